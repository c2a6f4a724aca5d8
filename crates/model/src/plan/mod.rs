//! A model as plain data: what it computes, from which tensors, and nothing about how.
//!
//! # What a transformer is
//!
//! A language model of this kind reads token numbers and returns, for each position, one number a token: its *logit*. It does
//! so with a list of numbers for each position, the *residual stream*, `width` numbers wide. Nothing else connects the
//! parts: each part reads the stream, computes an update, and adds the update to it.
//!
//! ```text
//!   token ─► embedding row ─► stream ─┬──────────────► + ──┬──────────────► + ─► … ─► norm ─► head ─► logits
//!                                     └─► norm ─► mixer ┘  └─► norm ─► feed ┘
//!                                     ╰──────────── one Layer ────────────╯   as often as there are layers
//! ```
//!
//! 1. **[`Embedding`]**: the token's row of a table becomes the stream. A table is a matrix of which rows are looked up.
//! 2. **[`Layer`]**, several in a row, each of two steps:
//!    - The *[`Mixer`]* is the only part in which a position learns of earlier ones. With [`Attention`] each position makes a
//!      query, a key and a value from its stream; it adds up the values of all positions up to its own, weighted by how well
//!      their keys fit its query. Keys and values of earlier positions never change, so they are cached. [`Latent`]
//!      attention caches one short row from which the keys and values of all heads follow. [`Delta`] has no list of
//!      positions at all but a matrix of state, which each position corrects.
//!    - The *[`Feed`]* layer looks at each position alone: two matrices widen the stream, one switches the other's numbers on
//!      and off, a third one narrows the result. With [`Experts`] there are many such layers, of which each position
//!      chooses a few.
//!    - A [`Join`] says how a step reads the stream and is added to it: `stream + scale · after(step(before(stream)))`,
//!      where `before` and `after` are [`Norm`]s, which bring a row to a common length.
//! 3. **[`End`]**: a last norm, and the *head*, a matrix of one row a token, often the embedding's table again.
//!
//! Attention itself does not see how far apart two positions are. So queries and keys are *rotated* before they meet
//! ([`Rotation`]): pairs of their numbers turn by an angle that grows with the position, and the product of two of them then
//! depends on the distance. [`Angles`] says how fast each pair turns.
//!
//! # What a plan is for
//!
//! A family reads the keys of a file and returns a [`Plan`]. Everything else follows from it and is computed once: which
//! tensors are read and in which shapes, how many weights there are, what is cached, what memory passes need, which part a
//! backend lacks, the lines of `models info`. So a backend knows no family, and a family knows no backend.
//!
//! Invariants: a plan has names and shapes but no weights, so it exists before anything is downloaded. Tensors have their
//! names in GGUF files, whatever the files are; a folder [translates](crate::files::TensorNames) them. Shapes are
//! outermost dimension first. Sizes are consistent: the family has checked its keys.

mod assistant;
mod attention;
mod block_draft;
mod delta;
mod description;
mod draft_module;
mod end;
mod experts_of;
mod feed;
mod layer;
mod matrix;
mod module_layers;
mod numbers;
mod tensors_of;
mod usual;
mod whole;

pub use assistant::{Assistant, Clusters};
pub use attention::{Attention, Folded, HeadNorm, Keys, KeysAndValues, Latent, LatentQueries, Over, Sight};
pub use block_draft::{BlockDraft, Confidence, Convolution, Selector};
pub use delta::{Decay, Delta, DeltaShape, HeadOrder};
pub use description::Description;
pub use draft_module::{DraftPlan, Entry, Fusion, StatesNorm};
pub use end::{Angles, Embedding, End, Head, LayerTable, Rotation};
pub use experts_of::grouped_experts;
pub use feed::{Beside, ExpertStorage, Experts, Feed, GatedFeed, Groups, RouterInput, RouterPlan, Scoring, SharedFeed};
pub use layer::{Join, Layer, Mixer, TokenInput};
pub use matrix::{Matrix, Norm, Rows, Tensor, Vector};
pub use module_layers::MAX_MODULES;
pub use tensors_of::{BlockNames, PlanFiles};
pub use usual::UsualAttention;
pub use whole::{ModuleLayer, Plan};
