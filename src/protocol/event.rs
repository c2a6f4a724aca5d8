//! What happened, one line of a trace each.
//!
//! A turn of one lane reads: `prompted`, `prefilled`, then per round `round_started`, k × `drafted`,
//! `scored`, `verified`, `committed`, and at last `finished`. Two lanes may interleave.

use serde::{Deserialize, Serialize};

use super::{Costs, Header, Lane, Piece, Prediction, RunSummary, Settings, TokenId, Verification};

/// One thing that happened. Order is `seq`. [`Event::of_line`] reads it back.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Event {
    /// 0, 1, 2 … without gaps within a run.
    pub seq: u64,
    /// Microseconds since the run started.
    pub at_us: u64,
    /// Which decoder it happened in.
    #[serde(default, skip_serializing_if = "Lane::is_speculative")]
    pub lane: Lane,
    /// What.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// Where a turn leaves another one: it takes over the prompt and the beginning of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Branch {
    /// Number of the turn that it leaves.
    pub turn: u32,
    /// Output tokens taken over; the prompt's last `kept` tokens are these.
    pub kept: u32,
    /// Whether the last of them was put there by the user, so that the text is no longer what the
    /// target would have written.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forced: bool,
}

/// Why a turn of a lane ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The target ended its answer.
    Eos,
    /// The answer reached `max_tokens`.
    MaxTokens,
    /// The cache holds no further round.
    ContextFull,
    /// The user stopped it.
    Stopped,
    /// The lane beside is no longer wanted, or has measured enough.
    Measured,
    /// The prompt cannot be answered; a notice before says why.
    Refused,
}

/// One token of a chain or a tree that was drafted for the record only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProbedDraft {
    /// The proposal.
    pub token: Piece,
    /// Drafter's probability of it; none when it has no distribution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(transform = super::schema::probability))]
    pub q: Option<f32>,
    /// What it was drawn from.
    pub top: Prediction,
    /// In a tree, the row that would judge it, as in [`EventKind::Drafted`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<u8>,
}

/// Defines [`EventKind`], which is written with its tag among its fields, and `Kind`, by which `line.rs`
/// reads it: serde has no one attribute for both.
macro_rules! events {
    ($(#[$doc:meta])* pub enum EventKind { $($kinds:tt)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Serialize)]
        #[cfg_attr(test, derive(schemars::JsonSchema))]
        #[serde(tag = "type", rename_all = "snake_case")]
        pub enum EventKind { $($kinds)+ }

        /// How each kind is read: the tag is known before its fields.
        #[derive(Deserialize)]
        #[cfg_attr(test, derive(schemars::JsonSchema))]
        #[serde(remote = "EventKind", rename_all = "snake_case")]
        pub(super) enum Kind { $($kinds)+ }
    };
}

events! {
    /// The kinds of event. All `*_us` are microseconds of measured work.
    pub enum EventKind {
        /// Progress before the run; not part of a trace.
        Loading {
            /// What is being loaded.
            stage: String,
            /// Units done.
            done: u64,
            /// Units in all; 0 when unknown.
            total: u64,
        },
        /// The run begins.
        Started {
            /// What it is made of.
            header: Box<Header>,
        },
        /// A turn begins.
        Prompted {
            /// 1, 2, 3 …
            turn: u32,
            /// What the user typed, before the chat template.
            text: String,
            /// The turn it goes on from, if it does not answer a new prompt.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            branch: Option<Branch>,
        },
        /// The prompt is in the cache and the first token of the answer is known.
        Prefilled {
            /// Which turn.
            turn: u32,
            /// All tokens of the prompt, template and earlier turns included.
            prompt: Vec<Piece>,
            /// How many of them were still in the cache.
            cached: u32,
            /// First committed token of the answer, picked from the prompt's last row.
            first: Piece,
            /// What it was picked from.
            row: Prediction,
            /// Time of the prompt's passes, target and drafter.
            took_us: u64,
        },
        /// The person drafts: the engine waits for [`super::Command::ProposeDraft`].
        DraftAsked {
            /// Most tokens of it that will be drafted.
            draft_len: u8,
        },
        /// A round begins.
        RoundStarted {
            /// 1, 2, 3 …: in the speculative lane over all turns, in the lanes beside it anew in each turn.
            round: u32,
            /// Positions in the target's cache.
            base_len: u32,
            /// k asked of the drafter.
            draft_len: u8,
        },
        /// What passes cost here: measured before the first answer for which the engine chooses k, or
        /// remembered from an earlier run on the same machine and model.
        CostsKnown {
            /// The costs.
            costs: Costs,
            /// Whether they were remembered.
            remembered: bool,
        },
        /// The engine chose another k, in force from the next round on.
        DraftLenChosen {
            /// k before.
            from: u8,
            /// k now.
            draft_len: u8,
            /// Tokens per second that each k promises, index 0 is plain decoding.
            expected: Vec<f64>,
            /// Whether this is a short look at a k that may have become better.
            exploring: bool,
            /// Why, one sentence.
            reason: String,
        },
        /// The drafter showed what it would propose; nothing of it is verified or output.
        Probed {
            /// Which round.
            round: u32,
            /// The chain, up to [`Settings::probe_depth`] tokens.
            drafts: Vec<ProbedDraft>,
            /// Time of the chain.
            took_us: u64,
        },
        /// The drafter was not sure enough of its next token: the draft ends before it.
        DraftStopped {
            /// Which round.
            round: u32,
            /// Place in the draft that the token would have had.
            index: u8,
            /// Its best candidate, which is not verified.
            token: Piece,
            /// The drafter's probability of it.
            #[cfg_attr(test, schemars(transform = super::schema::probability))]
            q: f32,
            /// What q fell below: p-min, or, where the engine chooses k, what this draft needed in order to pay.
            #[cfg_attr(test, schemars(transform = super::schema::probability))]
            p_min: f32,
            /// Time of this draft step.
            took_us: u64,
        },
        /// The drafter proposed one token.
        Drafted {
            /// Which round.
            round: u32,
            /// 0 to k − 1.
            index: u8,
            /// The proposal.
            token: Piece,
            /// Drafter's probability of it; none when it has no distribution.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[cfg_attr(test, schemars(transform = super::schema::probability))]
            q: Option<f32>,
            /// What it was drawn from.
            top: Prediction,
            /// In a tree, the row of the target's pass that judges it: 0 is the row of the anchor, i + 1
            /// that of draft i, which it continues. Absent in a chain, where it is `index`.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            row: Option<u8>,
            /// Time of this draft step.
            took_us: u64,
        },
        /// The target ran over anchor + drafts.
        Scored {
            /// Which round.
            round: u32,
            /// k + 1 rows: what the target says at every position, also behind a mismatch.
            rows: Vec<Prediction>,
            /// Time of the one target pass.
            verify_us: u64,
            /// Time from logits to distributions and candidates.
            sample_us: u64,
        },
        /// The rule has judged.
        Verified {
            /// Which round.
            round: u32,
            /// The verdict.
            #[serde(flatten)]
            verdict: Verification,
        },
        /// The round's tokens are output and both caches are rolled back to them.
        Committed {
            /// Which round.
            round: u32,
            /// Accepted drafts, then the bonus or recovered token; cut where the answer ends.
            tokens: Vec<Piece>,
            /// Time of the rollback.
            rollback_us: u64,
            /// The lane's clock: measured time of its rounds in this turn, this one included.
            clock_us: u64,
        },
        /// Settings changed; in force from the next round on.
        SettingsChanged {
            /// All of them, as they are now.
            settings: Settings,
        },
        /// The engine holds between two phases.
        Paused,
        /// It goes on.
        Resumed,
        /// Something the user should know that did not stop the run.
        Notice {
            /// One sentence.
            message: String,
        },
        /// Words that a person added.
        Noted {
            /// What they say.
            text: String,
            /// The round of the speculative lane they are about; none for the run, or for a prompt's pass.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            round: Option<u32>,
            /// The turn whose prompt's pass they are about; it has no round of its own.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            turn: Option<u32>,
        },
        /// A place that a person wants to find again.
        Bookmarked {
            /// The round of the speculative lane; none for this moment, or for a prompt's pass.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            round: Option<u32>,
            /// The turn whose prompt's pass it is; that has no round of its own.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            turn: Option<u32>,
            /// What to call it; may be empty.
            #[serde(default)]
            label: String,
        },
        /// In a recording that leaves text out: what the answer of this lane was, for comparing.
        TextDigest {
            /// Of the answer's bytes, lower-case hex.
            #[cfg_attr(test, schemars(transform = super::schema::sha256))]
            sha256: String,
        },
        /// A turn of the lane ended.
        Finished {
            /// Why.
            reason: StopReason,
        },
        /// The engine cannot go on.
        Failed {
            /// One sentence with the cause and the next step.
            message: String,
        },
        /// The run ended as it should; nothing follows. A trace without it was cut off.
        Ended {
            /// The speculative lane in numbers, over all turns.
            summary: Box<RunSummary>,
            /// The plain lane, where it was measured.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            plain: Option<Box<RunSummary>>,
        },
        /// Written by a newer version; readers skip it.
        #[serde(other)]
        Unknown,
    }
}

/// A part of an event that says what the text is.
pub(crate) enum Private<'a> {
    /// What the user typed.
    Typed(&'a mut String),
    /// A token with its bytes.
    Token(&'a mut Piece),
    /// A token without them.
    Id(&'a mut TokenId),
}

impl EventKind {
    /// Hands over every part that says what the text is, in the order of the fields: for recordings that leave the
    /// text out. Every kind is listed, so that a new one cannot be forgotten.
    pub(crate) fn each_private(&mut self, each: &mut dyn FnMut(Private<'_>)) {
        fn tokens<'a>(pieces: impl IntoIterator<Item = &'a mut Piece>, each: &mut dyn FnMut(Private<'_>)) {
            pieces.into_iter().for_each(|piece| each(Private::Token(piece)));
        }
        fn row(row: &mut Prediction, each: &mut dyn FnMut(Private<'_>)) {
            tokens(row.top.iter_mut().map(|candidate| &mut candidate.piece), each);
        }
        match self {
            Self::Prompted { text, .. } => each(Private::Typed(text)),
            Self::Prefilled { prompt, first, row: top, .. } => {
                tokens(prompt.iter_mut().chain([first]), each);
                row(top, each);
            }
            Self::Drafted { token, top, .. } => {
                tokens([token], each);
                row(top, each);
            }
            Self::DraftStopped { token, .. } => tokens([token], each),
            Self::Scored { rows, .. } => rows.iter_mut().for_each(|top| row(top, each)),
            Self::Verified { verdict, .. } => {
                each(Private::Id(&mut verdict.next));
                verdict.departures.iter_mut().for_each(|departure| each(Private::Id(&mut departure.instead)));
            }
            Self::Probed { drafts, .. } => drafts.iter_mut().for_each(|draft| {
                tokens([&mut draft.token], each);
                row(&mut draft.top, each);
            }),
            Self::Committed { tokens: committed, .. } => tokens(committed, each),
            Self::Loading { .. }
            | Self::Started { .. }
            | Self::Finished { .. }
            | Self::RoundStarted { .. }
            | Self::DraftAsked { .. }
            | Self::CostsKnown { .. }
            | Self::DraftLenChosen { .. }
            | Self::SettingsChanged { .. }
            | Self::Paused
            | Self::Resumed
            | Self::Notice { .. }
            | Self::Noted { .. }
            | Self::Bookmarked { .. }
            | Self::TextDigest { .. }
            | Self::Failed { .. }
            | Self::Ended { .. }
            | Self::Unknown => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Departure, Judgement, NextKind, Outcome, TokenId};
    use super::*;

    fn round_trip(event: &Event) -> String {
        let json = serde_json::to_string(event).unwrap();
        assert_eq!(&Event::of_line(json.as_bytes()).unwrap(), event);
        json
    }

    #[test]
    fn a_verdict_is_flat_json() {
        let verdict = Verification {
            judgements: vec![Judgement { p: 0.5, q: 0.25, u: Some(0.1), limit: None, outcome: Outcome::Accepted }],
            ..Verification::new(Vec::new(), TokenId(7), NextKind::Bonus, None)
        };
        let json = round_trip(&Event {
            seq: 3,
            at_us: 120,
            lane: Lane::Speculative,
            kind: EventKind::Verified { round: 1, verdict },
        });
        assert_eq!(
            json,
            r#"{"seq":3,"at_us":120,"type":"verified","round":1,"judgements":[{"p":0.5,"q":0.25,"u":0.1,"outcome":"accepted"}],"next":7,"next_kind":"bonus"}"#
        );
    }

    #[test]
    fn trees_and_departures_survive_json() {
        let departures = vec![Departure { index: 1, instead: TokenId(4) }];
        let verdict = Verification {
            lossless: false,
            departures,
            ..Verification::new(Vec::new(), TokenId(7), NextKind::Recovered, Some(0.5))
        };
        let drafted = EventKind::Drafted {
            round: 1,
            index: 2,
            token: Piece::default(),
            q: None,
            top: Prediction::default(),
            row: Some(0),
            took_us: 3,
        };
        for kind in [EventKind::Verified { round: 1, verdict }, drafted, EventKind::DraftAsked { draft_len: 3 }] {
            round_trip(&Event { seq: 3, at_us: 120, lane: Lane::Speculative, kind });
        }
    }

    #[test]
    fn probabilities_survive_json_to_the_bit() {
        let top =
            (1..200).map(|i| super::super::Candidate { piece: Piece::new(TokenId(i), "x"), prob: 1.0 / i as f32 });
        round_trip(&Event {
            seq: 0,
            at_us: 0,
            lane: Lane::Plain,
            kind: EventKind::Scored {
                round: 1,
                rows: vec![Prediction { top: top.collect(), tail: 1e-9 }],
                verify_us: 1,
                sample_us: 2,
            },
        });
    }

    #[test]
    fn what_the_engine_chose_and_probed_round_trips() {
        let draft =
            ProbedDraft { token: Piece::new(TokenId(4), "x"), q: Some(0.5), top: Prediction::default(), row: Some(0) };
        let kinds = [
            EventKind::CostsKnown {
                costs: Costs { verify_us: vec![100.0, 101.5], draft_us: 9.0, settle_us: 0.5, overhead_us: 2.0 },
                remembered: true,
            },
            EventKind::DraftLenChosen {
                from: 0,
                draft_len: 2,
                expected: vec![300.0, 310.5, 320.25],
                exploring: false,
                reason: "drafts pay".into(),
            },
            EventKind::Probed { round: 3, drafts: vec![draft], took_us: 7 },
            EventKind::DraftStopped {
                round: 3,
                index: 1,
                token: Piece::new(TokenId(5), "y"),
                q: 0.125,
                p_min: 0.25,
                took_us: 7,
            },
        ];
        for kind in kinds {
            round_trip(&Event { seq: 0, at_us: 0, lane: Lane::Speculative, kind });
        }
    }

    #[test]
    fn a_lane_of_a_newer_version_is_unknown_not_an_error() {
        for line in [
            r#"{"seq":9,"at_us":1,"lane":"third","type":"committed","round":"x"}"#,
            r#"{"type":"paused","lane":"third","at_us":1,"seq":9}"#,
        ] {
            let event = Event::of_line(line.as_bytes()).unwrap();
            assert_eq!((event.seq, event.at_us, event.kind), (9, 1, EventKind::Unknown), "{line}");
        }
        assert!(Event::of_line(br#"{"seq":9,"at_us":1,"lane":"third","type":"paused"} x"#).is_err());
        assert!(Event::of_line(br#"{"seq":9,"at_us":1,"lane":3,"type":"paused"}"#).is_err());
    }

    #[test]
    fn events_of_a_newer_version_are_unknown_not_errors() {
        let line = r#"{"seq":9,"at_us":1,"type":"tree_drafted","branches":[1,2]}"#;
        assert_eq!(Event::of_line(line.as_bytes()).unwrap().kind, EventKind::Unknown);
    }
}
