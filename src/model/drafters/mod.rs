//! Draft modules: what all of them share, and those that come in files of their own.

pub mod core;
pub mod eagle3;
pub mod mtp;
