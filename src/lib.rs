//! draftscope shows speculative decoding happening: a drafter proposes tokens, the target checks
//! all of them in one pass, and every token, probability and microsecond on screen is the engine's.
//!
//! ```text
//!             Command                                   ┌─► trace::Recorder  ──► file.jsonl
//!    tui ───────────────► engine::worker ─┐             │
//!                         (own thread)    ├─► Event ────┼─► session::Session (fold) ──► tui::view ──► Frame
//!                                         ┘  (channel)  │
//!                                                       └─► headless::{Text, Summary, Jsonl}
//! ```
//!
//! Words, used everywhere alike: *target* (main model), *drafter*, *draft token*, *k* (draft
//! length), *round* (one draft + verify), *anchor* (last committed token, not yet in the cache),
//! *accepted / rejected / not reached*, *bonus* (all k accepted, one more from p), *recovered*
//! (after a rejection, from the residual max(0, p − q)), *committed* (output), *p* target's and *q*
//! drafter's distribution, *u* uniform draw, *acceptance rate* = accepted / drafted, *mean tokens
//! per round* = committed / rounds, bonus and recovered included.

pub mod cli;
pub mod engine;
pub mod generate;
pub mod headless;
pub mod identity;
pub mod model;
pub mod protocol;
pub mod session;
pub mod speculate;
pub mod store;
pub mod stream;
pub mod trace;
pub mod tui;
