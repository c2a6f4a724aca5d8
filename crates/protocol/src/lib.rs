//! The vocabulary that all parts share: events, commands, tokens, verdicts, settings. With it what follows from these alone:
//! [`verify`] says which drafts a rule accepts, [`random`] draws by address, [`policy`] says how many drafts pay, [`stream`]
//! carries events from a source to those who listen.
//!
//! The vocabulary is plain data that serde writes and reads unchanged, so a live, a recorded and a piped run look the
//! same to a viewer. Invariant: these types contain everything that a screen explains (token ids *and* bytes,
//! probabilities *and* the draws that were compared with them). This crate uses no tensor, terminal or file, and only [`stream`] a clock.

#[macro_use]
mod named_enum;

mod alternative;
pub mod argmax;
mod branch;
mod command;
mod costs;
mod counted;
mod device;
pub mod distribution;
mod drafting;
mod engine;
mod event;
mod grammar;
mod header;
mod lane;
mod lattice;
mod line;
mod memory;
mod mtp;
pub mod policy;
mod private;
pub mod random;
mod rule;
mod settings;
mod settings_error;
pub mod statistics;
pub mod stream;
mod summary;
mod token;
mod turn_times;
mod verdict;
pub mod verify;
mod watch;

pub use alternative::NodeWorth;
pub use branch::Branch;
pub use command::{Again, Command, Continuation, Landmark, Message, PlainAnswer, Prompt, Speaker};
pub use costs::Costs;
pub use counted::counted;
pub use device::{DeviceWork, GpuInfo, KernelTime, RoundOnDevice};
pub use drafting::{Copied, DraftPick, DrafterKind, Drafting};
pub use engine::{Ability, CountedRound, DraftCounts, DraftTotals, EngineInfo};
pub use event::{
    Alternatives, Committed, DraftRefused, DraftStopped, Drafted, Event, EventKind, Lattice, Masked, Prefilled, Probed,
    ProbedDraft, RoundStarted, Scored, StopReason,
};
pub use grammar::{Grammar, GrammarKind, MaskedRow};
pub use header::{Capabilities, DrafterInfo, Header, Listed, ModelInfo, TRACE_VERSION, VocabMethod};
pub use lane::Lane;
pub use lattice::{LatticeCandidate, LatticeColumn, MOST_CANDIDATES};
pub use line::Head;
pub use memory::MemoryAccount;
pub use mtp::{
    ConcatOrder, Convention, Feed, MtpOverride, MtpSpec, NormForm, Pairing, Recycle, SlotPosition, SlotZero,
};
pub use private::Private;
pub use rule::{Departure, Leniency, VerifyRule};
pub use settings::{Baseline, DraftLenMode, LEAST_TEMPERATURE, PROBE_WEIGHT, Rival, SPARSE_WEIGHT, Sampling, Settings};
pub use settings_error::{MAX_DRAFT_LEN, SettingsError, named};
pub use summary::RunSummary;
pub use token::{Candidate, FIRST_DIGESTED, Piece, Prediction, TokenBytes, TokenId};
pub use turn_times::{TurnEdge, TurnTimes};
pub use verdict::{Judgement, NextKind, Outcome, Verification};
pub use watch::{Counters, Histogram, ServerSample, SlotState};

#[cfg(test)]
mod schema;
