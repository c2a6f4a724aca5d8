//! Draft modules: the code that all of them share, and the modules in files of their own.

pub mod core;
pub mod dflash;
pub mod eagle3;
pub mod mtp;
