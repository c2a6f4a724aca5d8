//! The events of a run; each is one line of a trace.
//!
//! What an event of a round carries is a struct (`event/`), which a session keeps whole. So a new field of it is written, read
//! and kept without further code; one that older recordings lack needs a default.
//!
//! In a turn a lane has `prompted`, `prefilled`, then per round `round_started`, k × `drafted`, `scored`, `verified`,
//! `committed`, and at last `finished`. Events of several lanes may interleave.

mod draft;
mod round;

use serde::{Deserialize, Serialize};

pub use draft::{Alternatives, DraftRefused, DraftStopped, Drafted, Lattice, Probed, ProbedDraft};
pub use round::{Committed, Masked, Prefilled, RoundStarted, Scored};

use super::branch::Branch;
use super::costs::Costs;
use super::engine::CountedRound;
use super::header::Header;
use super::lane::Lane;
use super::settings::Settings;
use super::summary::RunSummary;
use super::token::Prediction;
use super::turn_times::TurnEdge;
use super::verdict::Verification;

/// One event. Events are ordered by `seq`. [`Event::of_line`] reads one back.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Event {
    /// 0, 1, 2 … without gaps within a run.
    pub seq: u64,
    /// Microseconds since the run started.
    pub at_us: u64,
    /// The lane in which it happened.
    #[serde(default, skip_serializing_if = "Lane::is_speculative")]
    pub lane: Lane,
    /// What happened.
    #[serde(flatten)]
    pub kind: EventKind,
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
    /// The cache has no room for another round.
    ContextFull,
    /// The user stopped it.
    Stopped,
    /// A plain or rival lane was switched off or has measured enough.
    Measured,
    /// The prompt cannot be answered; the notice before says why.
    Refused,
    /// An attached engine broke off; the notice before says why.
    BrokenOff,
}

/// Defines [`EventKind`] for writing, with the tag among the fields, and `Kind`, with which `line.rs` reads it: serde
/// has no single attribute for both.
macro_rules! events {
    ($(#[$doc:meta])* pub enum EventKind { $($kinds:tt)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Serialize)]
        #[cfg_attr(test, derive(schemars::JsonSchema))]
        #[serde(tag = "type", rename_all = "snake_case")]
        pub enum EventKind { $($kinds)+ }

        /// [`EventKind`] for reading, where the tag is known before the fields.
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
            /// The part that is loading.
            stage: String,
            /// Units done.
            done: u64,
            /// All units; 0 when unknown.
            total: u64,
        },
        /// The run begins.
        Started {
            /// Models, settings and machine.
            header: Box<Header>,
        },
        /// A turn begins.
        Prompted {
            /// Number of the turn: 1, 2, 3 …
            turn: u32,
            /// The text that the user typed, without the chat template.
            text: String,
            /// The branch, if it continues an earlier turn.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            branch: Option<Branch>,
        },
        /// The prompt is in the cache and the first token of the answer is known.
        Prefilled(Prefilled),
        /// A lane beside goes on with its answer to a turn, which had ended as `measured` or `stopped`.
        LaneContinued {
            /// Which turn.
            turn: u32,
        },
        /// A person drafts: the engine waits for [`super::Command::ProposeDraft`].
        DraftAsked {
            /// Most tokens of the person's text that are drafted.
            draft_len: u8,
        },
        /// A round begins.
        RoundStarted(RoundStarted),
        /// The costs of passes on this machine: measured before the first answer for which the engine chooses k, or
        /// remembered from an earlier run with the same machine and model.
        CostsKnown {
            /// The costs.
            costs: Costs,
            /// Whether they come from an earlier run.
            remembered: bool,
        },
        /// The engine chose another k, in force from the next round on.
        DraftLenChosen {
            /// k before.
            from: u8,
            /// k now.
            draft_len: u8,
            /// Expected tokens per second for each k; index 0 is plain decoding.
            expected: Vec<f64>,
            /// Whether the engine only tries this k for a few rounds, since it may have become better.
            exploring: bool,
            /// The reason in one sentence.
            reason: String,
        },
        /// In a probe run: the drafter's proposals, which are recorded and neither verified nor output.
        Probed(Probed),
        /// The draft ended before a token, because the drafter's probability of it was too low.
        DraftStopped(DraftStopped),
        /// The drafter proposed one token.
        Drafted(Drafted),
        /// The candidates of the round's positions, among which the drafter's selector chose the drafts: DFlash 2. Comes
        /// after these drafts.
        Lattice(Lattice),
        /// What the round's alternatives were chosen by: those whose gain was more than a row costs. Comes after them.
        Alternatives(Alternatives),
        /// The grammar forbids a token that the drafter preferred or would have copied, so the target never sees it.
        DraftRefused(DraftRefused),
        /// What the grammar did to the rows of the target's pass. Comes before `scored`, whose rows are those after the mask.
        Masked(Masked),
        /// The target ran over anchor and drafts.
        Scored(Scored),
        /// The rule judged the drafts.
        Verified {
            /// Number of the round.
            round: u32,
            /// The verdict.
            #[serde(flatten)]
            verdict: Verification,
        },
        /// The round's tokens are output, and both caches are rolled back to them.
        Committed(Committed),
        /// What an attached engine counted, at an answer's end: before, only accepted drafts were known.
        Recounted {
            /// All rounds of the answer, which keep their tokens and are numbered from its first round on.
            rounds: Vec<CountedRound>,
        },
        /// The target's prediction at a token of an answer, asked of an attached engine when the answer was over.
        RowAsked {
            /// Number of the turn.
            turn: u32,
            /// Index of the token in the answer, 0 for its first.
            index: u32,
            /// What the token was picked from.
            row: Prediction,
        },
        /// Settings changed; in force from the next round on.
        SettingsChanged {
            /// All settings, with the new values.
            settings: Settings,
        },
        /// The engine paused between two phases.
        Paused,
        /// The engine continues after a pause.
        Resumed,
        /// A message to the user; the run continues.
        Notice {
            /// One sentence.
            message: String,
        },
        /// A note that a person added.
        Noted {
            /// The note's text.
            text: String,
            /// The round of the speculative lane that it is about; none for the run, or for the prefill of `turn`.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            round: Option<u32>,
            /// The turn whose prefill it is about, since a prefill belongs to no round.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            turn: Option<u32>,
        },
        /// A bookmark that a person set.
        Bookmarked {
            /// The round of the speculative lane; none for this moment, or for the prefill of `turn`.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            round: Option<u32>,
            /// The turn whose prefill it marks, since a prefill belongs to no round.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            turn: Option<u32>,
            /// Its name; may be empty.
            #[serde(default)]
            label: String,
        },
        /// In a recording without texts: a digest of this lane's answer, to compare answers.
        TextDigest {
            /// SHA-256 of the answer's bytes, lower-case hex.
            #[cfg_attr(test, schemars(transform = super::schema::sha256))]
            sha256: String,
        },
        /// A turn of the lane ended.
        Finished {
            /// The reason.
            reason: StopReason,
        },
        /// The engine failed and the run is over.
        Failed {
            /// One sentence with the cause and what to do.
            message: String,
        },
        /// The run ended normally; no event follows. A trace without it was cut off.
        Ended {
            /// Figures of the speculative lane over all turns.
            summary: Box<RunSummary>,
            /// Figures of the plain lane, if it was measured.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            plain: Option<Box<RunSummary>>,
        },
        /// Written by a newer version; readers skip it.
        #[serde(other)]
        Unknown,
    }
}

impl EventKind {
    /// What the event says about the extent of its turn; none for one between turns, or one that changes nothing.
    #[must_use]
    pub const fn turn_edge(&self) -> Option<TurnEdge> {
        match self {
            Self::Prompted { .. } => Some(TurnEdge::Begins),
            Self::Prefilled(_) | Self::Committed(_) | Self::Finished { .. } => Some(TurnEdge::Lasts),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{
        Copied, Departure, Judgement, LatticeColumn, MaskedRow, NextKind, NodeWorth, Outcome, Piece, TokenId,
    };
    use super::*;

    fn round_trip(event: &Event) -> String {
        let json = serde_json::to_string(event).unwrap();
        assert_eq!(&Event::of_line(json.as_bytes()).unwrap(), event);
        json
    }

    #[test]
    fn a_verdict_is_flat_json() {
        let verdict = Verification {
            judgements: vec![Judgement {
                p: Some(0.5),
                q: Some(0.25),
                u: Some(0.1),
                limit: None,
                outcome: Outcome::Accepted,
            }],
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
            next_in_draft_vocab: Some(false),
            ..Verification::new(Vec::new(), TokenId(7), NextKind::Recovered, Some(0.5))
        };
        let drafted = EventKind::Drafted(Drafted {
            round: 1,
            index: 2,
            token: Piece::default(),
            top: Prediction::default(),
            row: Some(0),
            more: true,
            copied: Some(Copied { from: 17, len: 4, chance: Some(0.75) }),
            forced: true,
            took_us: 3,
            ..Drafted::default()
        });
        let refused = EventKind::DraftRefused(DraftRefused {
            round: 1,
            token: Piece::new(TokenId(9), "Sure"),
            q: Some(0.75),
            expected: "{".into(),
            ..DraftRefused::default()
        });
        let masked =
            EventKind::Masked(Masked { round: 1, rows: vec![MaskedRow { allowed: 3, removed: 0.5 }], took_us: 120 });
        let asked = EventKind::DraftAsked { draft_len: 3 };
        let column = LatticeColumn::new(0, &[TokenId(9), TokenId(4)], [&[1.0, 0.5], &[0.0, 1.0]], None);
        let lattice = EventKind::Lattice(Lattice { round: 1, columns: vec![column] });
        let worth = NodeWorth { index: 3, gain: 0.25, cost: 0.0625 };
        let alternatives = EventKind::Alternatives(Alternatives { round: 1, worths: vec![worth] });
        for kind in [EventKind::Verified { round: 1, verdict }, drafted, refused, masked, asked, lattice, alternatives]
        {
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
            kind: EventKind::Scored(Scored {
                round: 1,
                rows: vec![Prediction { top: top.collect(), tail: 1e-9 }],
                verify_us: 1,
                sample_us: 2,
            }),
        });
    }

    #[test]
    fn choices_of_the_engine_and_probed_drafts_round_trip() {
        let draft =
            ProbedDraft { token: Piece::new(TokenId(4), "x"), q: Some(0.5), top: Prediction::default(), row: Some(0) };
        let kinds = [
            EventKind::CostsKnown {
                costs: Costs {
                    verify_us: vec![100.0, 101.5],
                    draft_us: 9.0,
                    draft_pass_us: 0.0,
                    settle_us: 0.5,
                    overhead_us: 2.0,
                },
                remembered: true,
            },
            EventKind::DraftLenChosen {
                from: 0,
                draft_len: 2,
                expected: vec![300.0, 310.5, 320.25],
                exploring: false,
                reason: "drafts pay".into(),
            },
            EventKind::Probed(Probed { round: 3, drafts: vec![draft], took_us: 7 }),
            EventKind::DraftStopped(DraftStopped {
                round: 3,
                index: 1,
                token: Piece::new(TokenId(5), "y"),
                q: 0.125,
                p_min: 0.25,
                took_us: 7,
            }),
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
