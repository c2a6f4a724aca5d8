//! The conversation: what is sent, and what the empty screen offers to send.

pub(crate) mod conversation;
pub(crate) mod starters;
mod welcome;
