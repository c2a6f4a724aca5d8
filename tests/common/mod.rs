//! Shared by several test files: a tiny seeded random model in real files, and the real model.

#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used)] // each test file uses its own part

pub mod bf16;
pub mod checkpoint;
pub mod chi_square;
#[cfg(feature = "gpu")]
pub mod gpu;
pub mod grown;
pub mod real;
pub mod tiny;
