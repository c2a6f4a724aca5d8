//! Building blocks of transformers on candle.
//!
//! `m` rows now, `n` positions cached, `d` = d_model, `v` = vocabulary.

pub mod block;
pub mod config;
pub mod fusion;
pub mod kv_cache;
pub mod matmul_backend;
pub mod rope;
pub mod transformer;
