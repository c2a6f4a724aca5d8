//! The estimator on a busy machine: simulated recordings with a known true speedup.
//!
//! Passes have costs drawn per recording, each round and pass a few per cent of jitter and an occasional hiccup. While
//! other work runs, for 0.1 to 2 s at a time and 10 to 50 % of the time, everything takes three times as long. Which
//! lane runs next follows the engine's rule, [`Baseline::weight`]. Nothing was fitted to the seeds below.

use proptest::prelude::*;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use draftscope_protocol::{
    Baseline, Committed, Drafted, Event, EventKind, Lane, PROBE_WEIGHT, Piece, Prediction, Prefilled, RoundStarted,
    Scored, Settings, StopReason, TokenId,
};

use super::fixture::header;
use super::fold::Session;

/// Uniform in [from, to).
fn uniform(rng: &mut ChaCha8Rng, from: f64, to: f64) -> f64 {
    from + (to - from) * (rng.next_u32() as f64 / 2f64.powi(32))
}

/// A machine that is slowed down in stretches.
struct Machine {
    rng: ChaCha8Rng,
    /// Share of the time in which it is slow.
    busy: f64,
    is_slow: bool,
    /// Microseconds until it changes.
    left: f64,
}

impl Machine {
    fn new(rng: ChaCha8Rng, busy: f64) -> Self {
        let mut machine = Self { rng, busy, is_slow: false, left: 0.0 };
        machine.is_slow = uniform(&mut machine.rng, 0.0, 1.0) < busy;
        machine.left = machine.stretch() * uniform(&mut machine.rng, 0.0, 1.0);
        machine
    }

    fn stretch(&mut self) -> f64 {
        match (self.is_slow, self.busy > 0.0) {
            (_, false) => f64::INFINITY,
            (true, _) => uniform(&mut self.rng, 1e5, 2e6),
            (false, _) => {
                let mean = 1.05e6 * (1.0 - self.busy) / self.busy;
                -mean * uniform(&mut self.rng, 1e-9, 1.0).ln()
            }
        }
    }

    /// Time for an amount of work, in microseconds.
    fn run(&mut self, work: f64) -> u64 {
        let (mut work, mut took) = (work * self.jitter(), 0.0);
        loop {
            let factor = if self.is_slow { 3.0 } else { 1.0 };
            let now = (work * factor).min(self.left);
            (took, work, self.left) = (took + now, work - now / factor, self.left - now);
            if work <= 1e-6 {
                return took.round() as u64;
            }
            self.is_slow = !self.is_slow;
            self.left = self.stretch();
        }
    }

    /// Some 3 % in either direction, and a hiccup in one of a hundred.
    fn jitter(&mut self) -> f64 {
        let normal: f64 = (0..12).map(|_| uniform(&mut self.rng, 0.0, 1.0)).sum::<f64>() - 6.0;
        let hiccup = uniform(&mut self.rng, 0.0, 1.0) < 0.01;
        (0.03 * normal).exp() * if hiccup { uniform(&mut self.rng, 1.3, 3.0) } else { 1.0 }
    }
}

/// Costs and lengths of an answer.
struct Kind {
    /// A plain round, in microseconds.
    plain_us: f64,
    /// Cost of another row, of a draft, and of work outside passes, in plain rounds.
    row: f64,
    draft: f64,
    rest: f64,
    draft_len: u8,
    acceptance: f64,
    /// Whether drafts may end before k.
    ends_early: bool,
    tokens: u64,
}

impl Kind {
    fn draw(rng: &mut ChaCha8Rng) -> Self {
        Self {
            plain_us: uniform(rng, 2500_f64.ln(), 30_000_f64.ln()).exp(),
            row: uniform(rng, 0.01, 0.15),
            draft: uniform(rng, 0.03, 0.2),
            rest: uniform(rng, 0.005, 0.03),
            draft_len: uniform(rng, 1.0, 5.0) as u8,
            acceptance: uniform(rng, 0.4, 0.9),
            ends_early: uniform(rng, 0.0, 1.0) < 0.4,
            tokens: uniform(rng, 200.0, 500.0) as u64,
        }
    }

    /// Verify, draft and remaining time of a round of so many drafts, in microseconds.
    fn parts(&self, drafts: u8) -> [f64; 3] {
        let k = f64::from(drafts);
        [1.0 + self.row * k, self.draft * k, self.rest].map(|part| part * self.plain_us)
    }
}

/// Writes a turn's events.
struct Writer<'a> {
    session: &'a mut Session,
    clocks: [u64; 2],
    rounds: [u32; 2],
    tokens: [u64; 2],
}

impl Writer<'_> {
    fn say(&mut self, lane: Lane, kind: EventKind) {
        self.session.apply(&Event { seq: 0, at_us: 0, lane, kind });
    }

    fn begin(&mut self, turn: u32) {
        self.say(Lane::Speculative, EventKind::Prompted { turn, text: String::new(), branch: None });
        for lane in [Lane::Speculative, Lane::Plain] {
            let (first, row) = (Piece::new(TokenId(1), "a"), Prediction::default());
            self.say(lane, EventKind::Prefilled(Prefilled { turn, first, row, took_us: 1, ..Prefilled::default() }));
        }
    }

    fn round(&mut self, lane: Lane, drafts: u8, tokens: u64, us: u64, [verify, draft, rest]: [f64; 3]) {
        let at = usize::from(lane == Lane::Plain);
        self.rounds[at] += 1;
        self.clocks[at] += us;
        self.tokens[at] += tokens;
        let (round, clock_us, piece) = (self.rounds[at], self.clocks[at], Piece::new(TokenId(1), "a"));
        let share = us as f64 / (verify + draft + rest);
        self.say(lane, EventKind::RoundStarted(RoundStarted { round, base_len: round, draft_len: drafts }));
        for index in 0..drafts {
            let took_us = (draft * share / f64::from(drafts)).round() as u64;
            let (token, top) = (piece.clone(), Prediction::default());
            self.say(lane, EventKind::Drafted(Drafted { round, index, token, top, took_us, ..Drafted::default() }));
        }
        let (rows, verify_us) = (vec![Prediction::default(); usize::from(drafts) + 1], (verify * share).round() as u64);
        self.say(lane, EventKind::Scored(Scored { round, rows, verify_us, ..Scored::default() }));
        let tokens = vec![piece; tokens as usize];
        self.say(lane, EventKind::Committed(Committed { round, tokens, clock_us, ..Committed::default() }));
    }
}

/// Adds a turn; returns the speedup on an idle machine. `weight` is how often a plain token counts.
fn turn(session: &mut Session, number: u32, seed: u64, busy: Option<f64>, weight: impl Fn(u64) -> u32) -> f64 {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let kind = Kind::draw(&mut rng);
    let busy = busy.unwrap_or_else(|| uniform(&mut rng, 0.1, 0.5));
    let mut machine = Machine::new(ChaCha8Rng::seed_from_u64(seed ^ 0x5eed), busy);
    let mut writer = Writer { session, clocks: [0; 2], rounds: [0; 2], tokens: [0; 2] };
    writer.begin(number);
    let (mut own, mut plain, mut work) = (0, 0_u64, 0.0);
    while writer.tokens[0] < kind.tokens {
        let factor = u64::from(weight(writer.tokens[1]));
        if plain < own && factor > 0 {
            let parts = kind.parts(0);
            let us = machine.run(parts.iter().sum());
            plain += us * factor;
            writer.round(Lane::Plain, 0, 1, us, parts);
            continue;
        }
        let drafts = if kind.ends_early {
            uniform(&mut rng, 1.0, f64::from(kind.draft_len) + 1.0) as u8
        } else {
            kind.draft_len
        };
        let accepted = (0..drafts).take_while(|_| uniform(&mut rng, 0.0, 1.0) < kind.acceptance).count() as u64;
        let parts = kind.parts(drafts);
        work += parts.iter().sum::<f64>();
        let us = machine.run(parts.iter().sum());
        own += us;
        let tokens = (accepted + 1).min(kind.tokens - writer.tokens[0]);
        writer.round(Lane::Speculative, drafts, tokens, us, parts);
    }
    // a race goes on to its end
    while weight(writer.tokens[1]) == 1 && writer.tokens[1] < kind.tokens {
        let parts = kind.parts(0);
        let us = machine.run(parts.iter().sum());
        writer.round(Lane::Plain, 0, 1, us, parts);
    }
    writer.say(Lane::Plain, EventKind::Finished { reason: StopReason::Measured });
    writer.say(Lane::Speculative, EventKind::Finished { reason: StopReason::MaxTokens });
    kind.tokens as f64 * kind.parts(0).iter().sum::<f64>() / work
}

/// A session that ran natively.
fn native() -> Session {
    let mut session = Session::new();
    let header = Box::new(draftscope_protocol::Header { backend: super::pass_costs::NATIVE.to_owned(), ..header() });
    session.apply(&Event { seq: 0, at_us: 0, lane: Lane::Speculative, kind: EventKind::Started { header } });
    session
}

/// The figure used before: the quotient of both lanes' own speeds.
fn old(session: &Session) -> f64 {
    let speed = |lane| session.stats(lane).tokens_per_second().unwrap();
    speed(Lane::Speculative) / speed(Lane::Plain)
}

fn at(sorted: &mut [f64], share: f64) -> f64 {
    sorted.sort_unstable_by(f64::total_cmp);
    sorted[((sorted.len() as f64 * share) as usize).min(sorted.len() - 1)]
}

/// Errors of the estimator over 500 recordings, and of the old one on recordings by `old_weight`.
fn trial(name: &str, seed: u64, weight: fn(u64) -> u32, old_weight: fn(u64) -> u32) {
    let (mut errors, mut old_errors, mut widths) = (Vec::new(), Vec::new(), Vec::new());
    let (mut covered, mut disturbed) = (0, 0);
    for recording in 0..500 {
        let mut session = native();
        let truth = turn(&mut session, 1, seed + recording, None, weight);
        let speedup = session.speedup().unwrap();
        errors.push((speedup.value / truth - 1.0).abs());
        widths.push((speedup.high - speedup.low) / speedup.value);
        covered += usize::from(speedup.low <= truth && truth <= speedup.high);
        disturbed += usize::from(speedup.is_disturbed());
        let mut session = native();
        let truth = turn(&mut session, 1, seed + recording, None, old_weight);
        old_errors.push((old(&session) / truth - 1.0).abs());
    }
    let [median, high, width] = [at(&mut errors, 0.5), at(&mut errors, 0.95), at(&mut widths, 0.5)];
    let [old_median, old_high] = [0.5, 0.95].map(|share| at(&mut old_errors, share));
    let coverage = covered as f64 / 500.0;
    println!(
        "{name}: error median {median:.4}, 95th percentile {high:.4}, coverage {coverage:.3}, width {width:.4}, \
         disturbed {disturbed}; old: median {old_median:.4}, 95th percentile {old_high:.4}, no interval"
    );
    assert!(median <= 0.04 && high <= 0.08, "{name}: {median} {high}");
    assert!(coverage >= 0.9 && width <= 0.12, "{name}: {coverage} {width}");
    assert!(median * 2.0 < old_median && high * 2.0 < old_high, "{name}: the old one does not lose");
}

fn probe(tokens: u64) -> u32 {
    Baseline::PROBE.weight(tokens as u32)
}

fn split(_: u64) -> u32 {
    Baseline::Race.weight(0)
}

#[test]
fn a_probe_on_a_busy_machine_is_right_and_knows_how_right() {
    trial("probe", 330_000, probe, |tokens| if tokens < 64 { PROBE_WEIGHT } else { 0 });
}

#[test]
fn a_split_on_a_busy_machine_is_right_and_knows_how_right() {
    trial("split", 660_000, split, split);
}

#[test]
fn a_quiet_machine_is_never_called_disturbed() {
    for seed in 0..100 {
        let mut session = native();
        let truth = turn(&mut session, 1, 70_000 + seed, Some(0.0), probe);
        let speedup = session.speedup().unwrap();
        assert!((speedup.value / truth - 1.0).abs() < 0.05, "{seed}: {speedup} of {truth}");
        assert!(!speedup.is_disturbed(), "{seed}: {speedup}, {:?}", session.turn().unwrap().pass_costs());
    }
}

/// A turn in which only passes of the plain lane are slowed: no figure can be right.
fn impossible(backend: &str) -> Session {
    let mut session = Session::new();
    let header = Box::new(draftscope_protocol::Header { backend: backend.to_owned(), ..header() });
    session.apply(&Event { seq: 0, at_us: 0, lane: Lane::Speculative, kind: EventKind::Started { header } });
    let mut writer = Writer { session: &mut session, clocks: [0; 2], rounds: [0; 2], tokens: [0; 2] };
    writer.begin(1);
    for round in 0..40 {
        writer.round(Lane::Speculative, 2, 2, 3600 + round % 7 * 10, [3000.0, 400.0, 200.0]);
        writer.round(Lane::Plain, 0, 1, 9000 + round % 5 * 20, [8800.0, 0.0, 200.0]);
    }
    session
}

#[test]
fn what_cannot_be_is_disturbed_on_the_cpu_and_remarked_elsewhere() {
    let native = impossible(super::pass_costs::NATIVE);
    let speedup = native.speedup().unwrap();
    assert!(speedup.low > speedup.tokens_per_round && speedup.is_disturbed());
    assert!(speedup.note().unwrap().contains("send the prompt again"));
    assert!(native.turn().unwrap().pass_costs().unwrap().rows(3).unwrap().is_below_one_row());
    assert!(super::Figure::from(Some(speedup)).disturbed);
    let other = impossible("candle").speedup().unwrap();
    assert_eq!((other.trust, other.is_disturbed()), (super::Trust::Remarkable, false));
}

#[test]
fn too_little_data_has_no_number() {
    let mut session = native();
    let mut writer = Writer { session: &mut session, clocks: [0; 2], rounds: [0; 2], tokens: [0; 2] };
    writer.begin(1);
    for _ in 0..5 {
        writer.round(Lane::Speculative, 1, 2, 3000, [2700.0, 200.0, 100.0]);
        writer.round(Lane::Plain, 0, 1, 2600, [2500.0, 0.0, 100.0]);
    }
    assert_eq!(session.speedup(), None);
    let mut writer = Writer { session: &mut session, clocks: [15_000, 13_000], rounds: [5, 5], tokens: [0; 2] };
    writer.round(Lane::Speculative, 1, 2, 3000, [2700.0, 200.0, 100.0]);
    writer.round(Lane::Plain, 0, 1, 2600, [2500.0, 0.0, 100.0]);
    let speedup = session.speedup().unwrap();
    assert!((speedup.value - 2.0 * 2600.0 / 3000.0).abs() < 1e-9, "{speedup}");
}

/// Whether a quotient of two shown numbers can equal the third, each rounded to so many digits.
fn agrees((over, digits): (f64, i32), (under, under_digits): (f64, i32), shown: f64) -> bool {
    let shown = (shown * 100.0).round() / 100.0;
    let half = |digits: i32| 0.5 * 10_f64.powi(-digits) * 1.000_001;
    let round = |value: f64, digits: i32| (value * 10_f64.powi(digits)).round() / 10_f64.powi(digits);
    let (over, under) = (round(over, digits), round(under, under_digits));
    let low = (over - half(digits)) / (under + half(under_digits)) - half(2);
    let high = (over + half(digits)) / (under - half(under_digits)) + half(2);
    low <= shown && shown <= high
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_session_lies_among_its_turns(seeds in proptest::collection::vec((any::<u64>(), 0.0..0.6_f64, any::<bool>()), 1..8)) {
        let mut session = native();
        for (number, (seed, busy, races)) in (1..).zip(seeds) {
            turn(&mut session, number, seed, Some(busy), if races { split as fn(u64) -> u32 } else { probe });
        }
        let turns: Vec<f64> = session.turns().iter().filter_map(|turn| Some(turn.speedup()?.value)).collect();
        let whole = session.speedup().unwrap();
        let (least, most) = turns.iter().fold((f64::MAX, 0.0_f64), |(a, b), turn| (a.min(*turn), b.max(*turn)));
        prop_assert!(least - 1e-9 <= whole.value && whole.value <= most + 1e-9, "{least} {whole} {most}");
        prop_assert!(whole.low <= whole.value && whole.value <= whole.high);
        // the speeds of a table over all turns
        let speed = |lane| session.tokens_per_second(lane).unwrap();
        prop_assert!(agrees((speed(Lane::Speculative), 1), (speed(Lane::Plain), 1), whole.value));
    }

    #[test]
    fn numbers_that_stand_together_agree(seed in any::<u64>(), busy in 0.0..0.6_f64, races in any::<bool>()) {
        let mut session = native();
        turn(&mut session, 1, seed, Some(busy), if races { split as fn(u64) -> u32 } else { probe });
        let turn = session.turn().unwrap();
        let speedup = turn.speedup().unwrap();
        let speed = |lane| turn.tokens_per_second(lane).unwrap();
        prop_assert!(agrees((speed(Lane::Speculative), 1), (speed(Lane::Plain), 1), speedup.value));
        let cost = speedup.tokens_per_round / speedup.value;
        prop_assert!(agrees((speedup.tokens_per_round, 2), (cost, 2), speedup.value));
        let shown = turn.answer(Lane::Speculative).stats().mean_tokens_per_round().unwrap();
        prop_assert!((shown - speedup.tokens_per_round).abs() < 1e-9);
        for lane in [Lane::Speculative, Lane::Plain] {
            let seconds = turn.decode_us(lane) as f64 / 1e6;
            let own = turn.answer(lane).stats().committed() as f64 / seconds;
            prop_assert!((own / speed(lane) - 1.0).abs() < 1e-3, "tokens, clock and speed of a lane");
        }
        let costs = turn.pass_costs().unwrap();
        let one = costs.rows(1).unwrap().us / 1e3;
        for cost in &costs.widths {
            prop_assert!(agrees((cost.us / 1e3, 2), (one, 2), cost.ratio), "{cost:?} of {one}");
        }
        let used = turn.answer(Lane::Speculative).rounds.iter().map(|round| round.rows().len());
        for rows in used {
            prop_assert!(costs.rows(rows).is_some() || costs.unmeasured.contains(&rows), "{rows} rows");
        }
    }
}

#[test]
fn settings_of_a_probe_are_those_of_the_trial() {
    assert_eq!(Settings::default().baseline, Baseline::PROBE);
}
