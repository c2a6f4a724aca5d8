//! Servers that are watched: screens and keys.

use super::*;
use draftscope_protocol::{Histogram, ServerSample};
use draftscope_session::fixture::sample;

fn watched() -> FleetView {
    let mut view = FleetView::new(3, vec!["acceptance<0.6 for 10s".parse().unwrap()], TuiOptions::default());
    for second in 0..40 {
        view.take(sample(0, second));
        let mut busy = sample(1, second);
        if let Some(counters) = &mut busy.counters {
            counters.generated = counters.generated.map(|tokens| tokens + second * second);
            counters.accepted = counters.accepted.map(|accepted| accepted - 10 * second);
        }
        if let Some(counters) = &mut busy.counters {
            let upto = |share: u64| share * (1 + second);
            let buckets = vec![(0.1, upto(2)), (0.5, upto(6)), (2.5, upto(8))];
            let time = Histogram { buckets, sum: 2.4 * (1 + second) as f64, count: upto(8) };
            (counters.first_token, counters.kv_use) = (Some(time), Some(0.31));
            (counters.prefix_queries, counters.prefix_hits) = (Some(100 + 40 * second), Some(10 * second));
        }
        (busy.engine, busy.model) = ("vLLM".to_owned(), "Qwen3-8B\u{1b}[31m".to_owned());
        busy.slots.clear();
        view.take(busy);
        view.take(ServerSample {
            counters: None,
            problem: Some("no answer from 10.0.0.2:8080: Connection refused".to_owned()),
            slots: Vec::new(),
            ..sample(2, second)
        });
    }
    view
}

fn screen(view: &FleetView, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| drop(crate::view::fleet(view, frame))).unwrap();
    let buffer = terminal.backend().buffer();
    assert!(buffer.content.iter().all(|cell| !cell.symbol().contains(char::is_control)));
    let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(row).collect::<Vec<_>>().join("\n")
}

fn press(view: &mut FleetView, key: &str) {
    view.press(Chord::parse(key).unwrap().event());
}

#[test]
fn servers_are_rows_and_the_chosen_one_is_shown_in_detail() {
    let mut view = watched();
    for (width, height) in [(140, 42), (100, 30), (80, 24)] {
        insta::assert_snapshot!(format!("fleet_{width}_{height}"), screen(&view, width, height));
    }
    press(&mut view, "j");
    let second = screen(&view, 140, 42);
    assert!(second.contains("▸ 10.0.0.1:8080") && !second.contains("Requests"), "{second}");
    insta::assert_snapshot!("fleet_times_140_42", second);
    insta::assert_snapshot!("fleet_times_80_24", screen(&view, 80, 24));
    press(&mut view, "G");
    press(&mut view, "j");
    assert!(screen(&view, 100, 30).contains("▸ 10.0.0.2:8080"));
    press(&mut view, "k");
    press(&mut view, "<Home>");
    assert_eq!(view.chosen, 0);
    press(&mut view, "q");
    assert!(view.quits());
}

#[test]
fn the_help_has_the_keys_of_this_view_and_what_its_columns_are() {
    let mut view = watched();
    press(&mut view, "?");
    for (width, height) in [(140, 42), (80, 24)] {
        insta::assert_snapshot!(format!("fleet_help_{width}_{height}"), screen(&view, width, height));
    }
    press(&mut view, "j");
    assert_eq!(view.chosen, 0, "keys are the help's");
    press(&mut view, "/");
    "waiting".chars().for_each(|c| press(&mut view, &c.to_string()));
    let found = screen(&view, 100, 30);
    assert!(found.contains("and those that wait") && !found.contains("the next server"), "{found}");
    press(&mut view, "<Esc>");
    press(&mut view, "<Esc>");
    press(&mut view, "j");
    assert_eq!(view.chosen, 1);
    press(&mut view, "?");
    press(&mut view, "q");
    assert!(!view.quits(), "q closes the help first");
    press(&mut view, "q");
    assert!(view.quits());
}

#[test]
fn before_the_first_look_and_without_counters_nothing_is_made_up() {
    let mut view = FleetView::new(2, Vec::new(), TuiOptions::default());
    assert!(screen(&view, 80, 24).contains("asking"));
    view.take(ServerSample { counters: Some(Default::default()), slots: Vec::new(), ..sample(0, 0) });
    let text = screen(&view, 80, 24);
    assert!(text.contains('–') && text.contains("one more look is needed"), "{text}");
    for (width, height) in [(1, 1), (60, 16), (61, 17), (300, 90)] {
        screen(&view, width, height);
    }
}

#[test]
fn a_history_is_shown_at_any_of_its_moments() {
    let samples: Vec<ServerSample> = (0..90).flat_map(|second| [sample(0, second), sample(1, second)]).collect();
    let mut view = FleetView::history(2, samples, TuiOptions::default());
    let end = screen(&view, 100, 30);
    assert!(end.contains("history of 2 servers: 1:29 of 1:29") && end.contains("40.0 now"), "{end}");
    press(&mut view, "<Left>");
    assert!(screen(&view, 100, 30).contains("1:28 of 1:29"));
    press(&mut view, "<PageUp>");
    assert!(screen(&view, 100, 30).contains("0:28 of 1:29"));
    press(&mut view, "<PageUp>");
    let start = screen(&view, 100, 30);
    assert!(start.contains("0:00 of 1:29") && start.contains("one more look is needed"), "{start}");
    press(&mut view, "<Right>");
    assert!(screen(&view, 100, 30).contains("0:01 of 1:29"));
    assert!(!view.pass(5000), "it does not play");
    press(&mut view, "<Space>");
    assert!(view.pass(5000) && screen(&view, 100, 30).contains("0:06 of 1:29, playing"));
    assert!(view.pass(500_000) && !view.pass(1), "at its end it stops");
    press(&mut view, "<Space>");
    assert!(screen(&view, 100, 30).contains("0:00 of 1:29, playing"), "and begins anew");
    let mut live = FleetView::new(1, Vec::new(), TuiOptions::default());
    press(&mut live, "<Left>");
    assert!(screen(&live, 100, 30).contains("--history"));
}
