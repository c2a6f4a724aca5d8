//! draftscope shows speculative decoding happening: a drafter proposes tokens, the target checks
//! all of them in one pass, and every token, probability and time on screen comes from the engine.
//!
//! ```text
//!             Command                                   ┌─► trace::Recorder  ──► file.jsonl
//!    tui ───────────────► engine::worker ─┐             │
//!                         (own thread)    ├─► Event ────┼─► session::Session (fold) ──► tui::view ──► Frame
//!    file.jsonl ──► trace::replay ────────┘  (channel)  │
//!                                                       └─► headless::{Text, Summary, Jsonl}
//!
//!    file.jsonl ──► trace::Reader ──► export::{html, cast, svg, perfetto, csv, …}, session::Diff
//! ```
//!
//! The modules, their boundaries and where a change goes: `docs/architecture.md`, here as [`architecture`]; set-up, tests
//! and recipes: `CONTRIBUTING.md`, here as [`contributing`].
//!
//! Terms, used alike everywhere: *target* (main model), *drafter*, *draft token*, *k* (draft
//! length), *round* (one draft + verify), *anchor* (last committed token, not yet in the cache),
//! *accepted / rejected / not reached*, *bonus* (all k accepted, one more from p), *recovered*
//! (after a rejection, from the residual max(0, p − q)), *committed* (output), *p* target's and *q*
//! drafter's distribution, *u* uniform draw, *acceptance rate* = accepted / drafted, *mean tokens
//! per round* = committed / rounds, bonus and recovered included, *lossless* rule (the committed tokens
//! follow p, whatever is drafted), *departure* (a token that a rule which is not lossless accepted and a
//! lossless one would not have), *tree* (drafts with alternatives: each continues the anchor or another
//! draft), *row* of the target's pass (row 0 follows the anchor, row i + 1 follows draft i).

pub mod cli;
pub mod export;
pub mod headless;

pub use draftscope_attach as attach;
pub use draftscope_engine as engine;
pub use draftscope_host as host;
pub use draftscope_http as http;
pub use draftscope_learn as learn;
pub use draftscope_model as model;
pub use draftscope_protocol as protocol;
pub use draftscope_session as session;
pub use draftscope_store as store;
pub use draftscope_tui as tui;

#[doc = include_str!("../docs/architecture.md")]
#[cfg(doc)]
pub mod architecture {}

#[doc = include_str!("../CONTRIBUTING.md")]
#[cfg(doc)]
pub mod contributing {}
