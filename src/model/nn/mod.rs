//! Building blocks of transformers on candle.
//!
//! `m` rows now, `n` positions cached, `d` = d_model, `v` = vocabulary.

pub mod attention;
pub mod block;
pub mod config;
pub mod embedding;
pub mod feed_forward;
pub mod fusion;
pub mod gguf_keys;
pub mod hf_keys;
pub mod kv_cache;
pub mod linear;
pub mod matmul_backend;
pub mod norm;
pub mod rope;
pub mod streams;
pub mod transformer;
pub mod trunk;
