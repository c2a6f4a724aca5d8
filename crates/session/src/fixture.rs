//! A hand-written conversation as events, for tests of this crate and of those above it: two turns, both lanes, every fate.
//!
//! Verdicts follow the `exact` rule from the rows given, times are made up but plausible.

use crate::fold::Session;
use draftscope_protocol::{
    Alternatives, Baseline, Candidate, Capabilities, Committed, Counters, Departure, Drafted, DrafterInfo, DrafterKind,
    Event, EventKind, Header, Judgement, Lane, ModelInfo, NextKind, NodeWorth, Outcome, Piece, Prediction, Prefilled,
    RoundOnDevice, RoundStarted, Scored, ServerSample, Settings, SlotState, StopReason, TRACE_VERSION, TokenId,
    Verification,
};

/// A header as the default model gives it.
pub fn header() -> Header {
    Header {
        version: TRACE_VERSION,
        program: "draftscope 0.1.0".to_owned(),
        model: ModelInfo {
            name: "SmolLM2-135M-Instruct".to_owned(),
            own_name: Some("Smollm2 135M 8k Lc100K Mix1 Ep2".to_owned()),
            architecture: "llama".to_owned(),
            layers: 30,
            vocab: 49_152,
            ..ModelInfo::default()
        },
        drafter: Some(DrafterInfo {
            kind: DrafterKind::Mtp,
            name: "mtp-smollm2".to_owned(),
            sha256: None,
            dtype: "f8_e4m3".to_owned(),
            weight_bytes: 5_000_000,
            kv_bytes_per_token: 768,
            draft_vocab: 16_384,
            context_vocab: 0,
            block: 0,
            vocab_method: None,
        }),
        drafters: Vec::new(),
        lossless: Some(true),
        settings: Settings { drafter: DrafterKind::Mtp, baseline: Baseline::Race, ..Settings::default() },
        ctx_len: 2048,
        grammar: None,
        memory: None,
        device: "cpu".to_owned(),
        backend: "candle".to_owned(),
        dtype: "q4_1".to_owned(),
        threads: 2,
        gpu: None,
        started_unix_ms: 1_790_000_000_000,
        capabilities: Capabilities { can_generate: true, ..Capabilities::default() },
        engine: None,
    }
}

/// Same text, same id.
pub fn piece(text: &str) -> Piece {
    let id = text.bytes().fold(7_u32, |id, byte| id.wrapping_mul(31).wrapping_add(byte.into()));
    let id = TokenId(id % 49_152);
    if text.starts_with("<|") { Piece::special(id, text) } else { Piece::new(id, text) }
}

/// A row with this best candidate, and a runner-up.
fn row(best: (&str, f32), second: &str) -> Prediction {
    let rest = (1.0 - best.1) * 0.6;
    let candidate = |text: &str, prob| Candidate { piece: piece(text), prob };
    Prediction { top: vec![candidate(best.0, best.1), candidate(second, rest)], tail: (1.0 - best.1 - rest).max(0.0) }
}

/// Tokens with a probability each.
type Cells<'a> = &'a [(&'a str, f32)];

/// Builds an event list; keeps the counters.
#[derive(Default)]
pub struct Script {
    pub events: Vec<Event>,
    rounds: [u32; 2],
    clocks: [u64; 2],
    turn: u32,
    /// Whether one pass makes all drafts of a round.
    pub in_blocks: bool,
    /// What each round does on a GPU.
    pub on_device: Option<RoundOnDevice>,
}

impl Script {
    pub fn push(&mut self, lane: Lane, kind: EventKind) {
        let seq = self.events.len() as u64;
        self.events.push(Event { seq, at_us: seq * 1_000, lane, kind });
    }

    pub fn started() -> Self {
        Self::started_with(|_| {})
    }

    /// With another header than usual.
    pub fn started_with(change: impl FnOnce(&mut Header)) -> Self {
        let mut script = Self::default();
        script.push(Lane::Speculative, EventKind::Started { header: Box::new(header()) });
        script.head(change);
        script
    }

    /// With a turn opened in both lanes: see [`Script::prompt`].
    pub fn prompted(text: &str, first: &str) -> Self {
        let mut script = Self::started();
        script.prompt(text, first);
        script
    }

    /// Changes the header.
    pub fn head(&mut self, change: impl FnOnce(&mut Header)) {
        match &mut self.events[0].kind {
            EventKind::Started { header } => change(header),
            other => panic!("a run begins with its header, not with {other:?}"),
        }
    }

    /// Opens a turn in both lanes with this first token.
    pub fn prompt(&mut self, text: &str, first: &str) {
        self.turn += 1;
        self.clocks = [0, 0];
        self.push(Lane::Speculative, EventKind::Prompted { turn: self.turn, text: text.to_owned(), branch: None });
        for lane in [Lane::Speculative, Lane::Plain] {
            let prefilled = Prefilled {
                turn: self.turn,
                prompt: text.split_inclusive(' ').map(piece).collect(),
                first: piece(first),
                row: row((first, 0.9), "It"),
                took_us: 61_000,
                ..Prefilled::default()
            };
            self.push(lane, EventKind::Prefilled(prefilled));
        }
    }

    /// One speculative round. `drafts` with q; `target` says, at each position, best and p.
    pub fn round(&mut self, drafts: &[(&str, f32)], target: &[(&str, f32)]) {
        self.round_start(drafts);
        self.round_end(drafts, target);
    }

    /// Up to the last draft.
    pub fn round_start(&mut self, drafts: &[(&str, f32)]) {
        self.rounds[0] += 1;
        let round = self.rounds[0];
        let started = RoundStarted { round, base_len: 40 + round * 2, draft_len: drafts.len() as u8 };
        self.push(Lane::Speculative, EventKind::RoundStarted(started));
        for (index, (text, q)) in drafts.iter().enumerate() {
            let draft = Drafted {
                round,
                index: index as u8,
                token: piece(text),
                q: Some(*q),
                top: row((text, *q), "…"),
                more: self.in_blocks && index + 1 < drafts.len(),
                took_us: if self.in_blocks && index > 0 { 10 } else { 900 },
                ..Drafted::default()
            };
            self.push(Lane::Speculative, EventKind::Drafted(draft));
        }
    }

    /// The rest of a round with these drafts.
    pub fn round_end(&mut self, drafts: &[(&str, f32)], target: &[(&str, f32)]) {
        let round = self.rounds[0];
        let second = |index: usize| drafts.get(index).map_or("…", |draft| draft.0);
        let rows: Vec<_> = target
            .iter()
            .enumerate()
            .map(|(index, best)| row(*best, if second(index) == best.0 { " not" } else { second(index) }))
            .collect();
        let accepted = drafts.iter().zip(target).take_while(|(d, t)| d.0 == t.0).count();
        let judgements = drafts.iter().enumerate().map(|(index, draft)| Judgement {
            p: Some(rows[index].find(piece(draft.0).id).map_or(0.0, |(_, p)| p)),
            q: Some(draft.1),
            u: None,
            limit: None,
            outcome: Outcome::in_chain(index, accepted),
        });
        let next = piece(target[accepted].0);
        let verdict = Verification {
            judgements: judgements.collect(),
            next: next.id,
            next_kind: if accepted == drafts.len() { NextKind::Bonus } else { NextKind::Recovered },
            ..Verification::new(Vec::new(), next.id, NextKind::Bonus, None)
        };
        let mut tokens: Vec<_> = drafts[..accepted].iter().map(|draft| piece(draft.0)).collect();
        tokens.push(next);
        self.clocks[0] += 900 * drafts.len() as u64 + 13_500 + 700;
        self.push(Lane::Speculative, EventKind::Scored(Scored { round, rows, verify_us: 13_500, sample_us: 400 }));
        self.push(Lane::Speculative, EventKind::Verified { round, verdict });
        let (clock_us, device) = (self.clocks[0], self.on_device);
        let commit = Committed { round, tokens, rollback_us: 20, clock_us, device };
        self.push(Lane::Speculative, EventKind::Committed(commit));
    }

    /// One round without drafts in the plain lane.
    pub fn plain(&mut self, text: &str) {
        self.rounds[1] += 1;
        let round = self.rounds[1];
        self.clocks[1] += 11_200;
        let verdict = Verification::new(Vec::new(), piece(text).id, NextKind::Bonus, None);
        let kinds = [
            EventKind::RoundStarted(RoundStarted { round, base_len: 40 + round, ..RoundStarted::default() }),
            EventKind::Scored(Scored {
                round,
                rows: vec![row((text, 0.8), " not")],
                verify_us: 10_800,
                sample_us: 300,
            }),
            EventKind::Verified { round, verdict },
            EventKind::Committed(Committed {
                round,
                tokens: vec![piece(text)],
                clock_us: self.clocks[1],
                ..Committed::default()
            }),
        ];
        for kind in kinds {
            self.push(Lane::Plain, kind);
        }
    }

    pub fn finish(&mut self, lane: Lane, reason: StopReason) {
        self.push(lane, EventKind::Finished { reason });
    }
}

/// [`first_turn`], whose second round accepts a draft that the target would not have picked.
pub fn departing() -> Script {
    let mut script = first_turn();
    for event in &mut script.events {
        if let EventKind::Verified { round: 2, verdict } = &mut event.kind
            && event.lane == Lane::Speculative
        {
            verdict.departures = vec![Departure { index: 1, instead: piece(" not").id }];
            verdict.lossless = false;
        }
    }
    script
}

/// A finished first turn: accepted, rejected, recovered, bonus, wide and broken characters.
pub fn first_turn() -> Script {
    let mut script = Script::prompted("Why is the sky blue?", "The");
    let rounds: &[(Cells, Cells)] = &[
        (
            &[(" color", 0.41), (" of", 0.93), (" the", 0.95)],
            &[(" sky", 0.61), (" is", 0.88), (" light", 0.35), (" sky", 0.72)],
        ),
        (
            &[(" is", 0.67), (" blue", 0.71), (" because", 0.52)],
            &[(" is", 0.84), (" blue", 0.77), (" because", 0.58), (" of", 0.64)],
        ),
        (
            &[(" the", 0.55), (" way", 0.35), (" that", 0.22)],
            &[(" a", 0.48), (" scattering", 0.44), (" light", 0.51), (" the", 0.40)],
        ),
        (
            &[(" phenomenon", 0.62), (" called", 0.81), (" Ray", 0.33)],
            &[(" phenomenon", 0.70), (" called", 0.91), (" Rayleigh", 0.86), (" light", 0.30)],
        ),
        (
            &[(" scattering", 0.96), (".", 0.60), (" When", 0.28)],
            &[(" scattering", 0.99), (".", 0.72), ("\n\n", 0.51), ("In", 0.30)],
        ),
        (
            &[("When", 0.58), (" sunlight", 0.63), (" enters", 0.57)],
            &[("When", 0.66), (" sunlight", 0.69), (" enters", 0.71), (" the", 0.80)],
        ),
        (
            &[(" atmosphere", 0.44), (",", 0.75), (" it", 0.61)],
            &[(" Earth", 0.47), ("'s", 0.93), (" the", 0.28), (" light", 0.22)],
        ),
    ];
    let mut text: Vec<&str> = Vec::new();
    for (drafts, target) in rounds {
        script.round(drafts, target);
        let accepted = drafts.iter().zip(*target).take_while(|(d, t)| d.0 == t.0).count();
        text.extend(drafts[..accepted].iter().map(|d| d.0));
        text.push(target[accepted].0);
        while text.len() > 1 && script.clocks[1] < script.clocks[0] {
            script.plain(text[(script.rounds[1] as usize).min(text.len() - 1)]);
        }
    }
    script.finish(Lane::Plain, StopReason::Stopped);
    script.finish(Lane::Speculative, StopReason::MaxTokens);
    script
}

/// The first turn, and a second one in the middle of a round.
pub fn conversation() -> Script {
    let mut script = first_turn();
    script.prompt("And at sunset?\nBriefly, please: 夕焼け.", "At");
    script.round(
        &[(" sunset", 0.74), (",", 0.81), (" the", 0.66)],
        &[(" sunset", 0.90), (",", 0.95), (" the", 0.71), (" light", 0.52)],
    );
    script.plain(" sunset");
    script.plain(",");
    script.round(
        &[(" travels", 0.38), (" through", 0.66), (" more", 0.41)],
        &[(" has", 0.36), (" to", 0.70), (" the", 0.33), (" air", 0.41)],
    );
    script.plain(" the");
    script.round_start(&[(" to", 0.64), (" travel", 0.59), (" 夕焼け", 0.31)]);
    script
}

/// A look at a server that has answered for so many seconds: 40 tokens and 10 steps of 4 drafts a second.
pub fn sample(server: usize, second: u64) -> ServerSample {
    let counters = Counters {
        steps: Some(100 + 10 * second),
        drafted: Some(400 + 40 * second),
        accepted: Some(200 + 30 * second),
        accepted_per_pos: vec![90 + 10 * second, 60 + 9 * second, 30 + 7 * second, 20 + 4 * second],
        generated: Some(300 + 40 * second),
        running: Some(2),
        waiting: Some(1),
        ..Counters::default()
    };
    ServerSample {
        server,
        host: format!("10.0.0.{server}:8080"),
        at_ms: second * 1000,
        engine: "llama-server".to_owned(),
        model: "SmolLM2-135M-Instruct".to_owned(),
        counters: Some(counters),
        slots: vec![
            SlotState {
                id: 0,
                task: Some(7),
                is_busy: true,
                speculates: Some(true),
                decoded: Some(41),
                context: Some(2048),
            },
            SlotState { id: 1, context: Some(2048), ..SlotState::default() },
        ],
        problem: None,
    }
}

/// What a session makes of these events.
#[must_use]
pub fn fold(events: &[Event]) -> Session {
    let mut session = Session::new();
    for event in events {
        session.apply(event);
    }
    session
}

/// A tree: anchor ─ ' a', anchor ─ ' the' ─ (' sky', ' sea'); a lenient rule took ' sea' for ' sky'.
pub fn tree_round(script: &mut Script) {
    let round = 1;
    let drafts = [(" a", 0), (" the", 0), (" sky", 2), (" sea", 2)];
    script.push(Lane::Speculative, EventKind::RoundStarted(RoundStarted { round, base_len: 4, draft_len: 2 }));
    for (index, (text, row)) in (0..).zip(drafts) {
        let (token, top) = (piece(text), Prediction::default());
        let kind = EventKind::Drafted(Drafted {
            round,
            index,
            token,
            q: Some(0.4),
            top,
            row: Some(row),
            took_us: 5,
            ..Drafted::default()
        });
        script.push(Lane::Speculative, kind);
    }
    let worths = vec![NodeWorth { index: 3, gain: 0.21, cost: 0.07 }];
    script.push(Lane::Speculative, EventKind::Alternatives(Alternatives { round, worths }));
    let row = |best: &str| Prediction { top: vec![Candidate { piece: piece(best), prob: 0.6 }], tail: 0.4 };
    let rows = [" the", " b", " moon", " x", " is"].map(row).into();
    script.push(Lane::Speculative, EventKind::Scored(Scored { round, rows, verify_us: 9, sample_us: 1 }));
    let outcomes = [Outcome::Rejected, Outcome::Accepted, Outcome::Rejected, Outcome::Accepted];
    let judgement = |outcome| Judgement { p: Some(0.2), q: Some(0.4), u: None, limit: None, outcome };
    let verdict = Verification {
        lossless: false,
        departures: vec![Departure { index: 3, instead: piece(" moon").id }],
        ..Verification::new(outcomes.map(judgement).into(), piece(" is").id, NextKind::Bonus, None)
    };
    script.push(Lane::Speculative, EventKind::Verified { round, verdict });
    let tokens = [" the", " sea", " is"].map(piece).into();
    script.push(
        Lane::Speculative,
        EventKind::Committed(Committed { round, tokens, rollback_us: 1, clock_us: 40, ..Committed::default() }),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use draftscope_protocol::TurnEdge;

    #[test]
    fn an_event_and_its_name_mean_the_same() {
        let mut edges = 0;
        for event in conversation().events {
            let line = serde_json::to_value(&event).unwrap();
            let name = line["type"].as_str().unwrap();
            assert_eq!(event.kind.turn_edge(), TurnEdge::of_name(name), "{name}");
            edges += usize::from(TurnEdge::of_name(name).is_some());
        }
        assert!(edges > 10);
    }
}
