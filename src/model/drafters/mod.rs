//! Draft modules that come in files of their own.

pub mod draft_vocab;
pub mod eagle3;
pub mod mtp;
