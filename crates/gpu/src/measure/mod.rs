//! What is measured on the device at hand: whether a row's bits depend on rows beside it, and how long launches take.

mod profile;
mod read_rate;
mod self_test;

pub use profile::KernelTime;
pub use self_test::{Difference, self_test};
