//! Building blocks of transformers on candle.
//!
//! `m` rows now, `n` positions cached, `d` = d_model, `v` = vocabulary.

mod attention;
mod block;
mod config;
mod embedding;
mod experts;
mod feed_forward;
mod gguf_keys;
mod grouped_experts;
mod head_matrix;
mod hf_keys;
mod host;
mod kv_cache;
mod linear;
mod matmul_backend;
mod norm;
mod pass_memory;
mod pass_rows;
mod rope;
mod streams;
mod trunk;
mod unread;

pub use attention::{Scores, attend, attend_by_head, attend_cached, runs_one_by_one, widened};
pub use block::{Block, BlockPass, Rope};
pub(crate) use config::check_heads;
pub use config::{Conventions, LLAMA_LAYOUT, TransformerConfig};
pub use embedding::{Embedding, SharedTarget};
pub(crate) use embedding::{OwnEmbedding, ids, trimmed};
pub use experts::{
    Choice, ExpertMatrix, ExpertNames, ExpertSizes, Experts, StoredExperts, best_of, by_expert, expected_experts,
};
pub use feed_forward::{Activation, Gated, capped, gated};
pub use gguf_keys::GgufKeys;
pub use grouped_experts::{DenseLayerKeys, Gating, GroupedExpertKeys, GroupedExperts};
pub use head_matrix::{HeadMatrix, HeadShape};
pub use hf_keys::{Ends, Extras, HfKeys, refuse_biases};
pub(crate) use host::numbers_of;
pub use kv_cache::KvCache;
pub use linear::Linear;
pub use matmul_backend::MatmulBackend;
pub(crate) use matmul_backend::Tensors;
pub use norm::RmsNorm;
pub use pass_memory::PassWidths;
pub(crate) use pass_rows::PREFILL_ROWS;
pub use pass_rows::{PassRows, ROW_BY_ROW, TreeRows};
pub use rope::{PairOrder, RopeScaling, RopeSpec, scaled_amplitude, yarn_amplitude};
pub use streams::Streams;
pub use trunk::{LayerWeights, Output, States, Trunk};
