//! What is said of watched servers.

use super::*;
use crate::fixture::sample;

fn down(server: usize, second: u64) -> ServerSample {
    let problem = Some("no answer".to_owned());
    ServerSample { counters: None, slots: Vec::new(), problem, ..sample(server, second) }
}

#[test]
fn rates_are_differences_over_ten_seconds() {
    let mut fleet = Fleet::new(1);
    assert_eq!(fleet.servers()[0].recent(), Rates::default());
    (0..30).for_each(|second| drop(fleet.take(sample(0, second))));
    let recent = fleet.servers()[0].recent();
    assert_eq!((recent.seconds, recent.tokens_per_second), (10.0, Some(40.0)));
    assert_eq!((recent.acceptance_rate, recent.tokens_per_step), (Some(0.75), Some(4.0)));
    assert_eq!(recent.drafting_share, Some(1.0));
    assert_eq!(recent.accepted_per_pos, [1.0, 0.9, 0.7, 0.4].map(Some));
    assert_eq!(fleet.servers()[0].history.len(), 29);
    assert!(fleet.servers()[0].since_start().acceptance_rate.is_some_and(|rate| rate < 0.75));
}

#[test]
fn steps_without_drafts_are_counted() {
    let mut fleet = Fleet::new(1);
    for second in 0..5 {
        let mut plain = sample(0, second);
        // 30 plain steps a second beside the others
        let counters = plain.counters.as_mut().unwrap();
        counters.generated = counters.generated.map(|tokens| tokens + 30 * second);
        fleet.take(plain);
    }
    let recent = fleet.servers()[0].recent();
    assert_eq!((recent.tokens_per_step, recent.drafting_share), (Some(1.75), Some(0.25)));
}

#[test]
fn answers_that_are_not_over_count_in_the_speed() {
    let mut fleet = Fleet::new(1);
    for second in 0..5 {
        // the counters of llama-server stand still while an answer is written
        let mut busy = sample(0, second);
        busy.counters = sample(0, 0).counters;
        busy.slots[0].decoded = Some(20 * second);
        fleet.take(busy);
    }
    let server = &fleet.servers()[0];
    assert_eq!(server.recent().tokens_per_second, Some(20.0));
    assert_eq!(server.slot_speed(&server.slots()[0]), Some(20.0));
    assert_eq!(server.recent().acceptance_rate, None, "nothing was drafted meanwhile, as far as is known");
    let mut bare = Fleet::new(1);
    for second in 0..3 {
        let mut busy = ServerSample { counters: None, problem: Some("no metrics".to_owned()), ..sample(0, second) };
        busy.slots[0].decoded = Some(20 * second);
        bare.take(busy);
    }
    assert_eq!(bare.servers()[0].recent().tokens_per_second, Some(20.0), "from the slots alone");
}

#[test]
fn a_server_that_was_started_anew_counts_from_its_start() {
    let mut fleet = Fleet::new(1);
    (18..=20).for_each(|second| drop(fleet.take(sample(0, second))));
    fleet.take(ServerSample { at_ms: 21_000, ..sample(0, 0) });
    let server = &fleet.servers()[0];
    assert_eq!(server.history.len(), 0, "the run before is another one");
    let recent = server.recent();
    assert_eq!((recent.acceptance_rate, recent.tokens_per_second, recent.running), (None, None, Some(2)));
    assert_eq!(server.since_start().acceptance_rate, Some(0.5));
    fleet.take(ServerSample { at_ms: 22_000, ..sample(0, 1) });
    assert_eq!(fleet.servers()[0].recent().acceptance_rate, Some(0.75));
    fleet.take(ServerSample { at_ms: 23_000, model: "another".to_owned(), ..sample(0, 2) });
    assert_eq!(fleet.servers()[0].recent().acceptance_rate, None, "another model");
    fleet.take(sample(7, 1)); // no such server
}

#[test]
fn while_a_server_does_not_answer_nothing_is_said_of_it() {
    let mut fleet = Fleet::new(2);
    (0..5).for_each(|second| drop(fleet.take(sample(0, second))));
    fleet.take(down(0, 5));
    fleet.take(down(1, 5));
    let server = &fleet.servers()[0];
    assert_eq!((server.recent(), server.since_start(), server.is_up()), (Rates::default(), Rates::default(), false));
    assert_eq!(server.history.back(), Some(&(5000, Rates::default())), "a gap in the curve");
    // it comes back: the counters of the time in between are not the last second's
    fleet.take(sample(0, 9));
    assert_eq!(fleet.servers()[0].recent().tokens_per_second, None);
    fleet.take(sample(0, 10));
    assert_eq!(fleet.servers()[0].recent().tokens_per_second, Some(40.0));
}

#[test]
fn servers_are_added_up() {
    let mut fleet = Fleet::new(3);
    for second in 0..5 {
        fleet.take(sample(0, second));
        let mut other = sample(1, second);
        let counters = other.counters.as_mut().unwrap();
        counters.accepted = counters.accepted.map(|accepted| accepted - 20 * second);
        fleet.take(other);
        fleet.take(down(2, second));
    }
    let sum = fleet.together();
    assert_eq!((sum.tokens_per_second, sum.running, sum.waiting), (Some(80.0), Some(4), Some(2)));
    assert_eq!(sum.acceptance_rate, Some(0.5), "(30 + 10) ÷ 80");
}
