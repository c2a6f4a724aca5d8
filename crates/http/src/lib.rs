//! A bounded HTTP client: every wait, line and body has a limit.
//!
//! Invariant: credentials and prompts go to the host that the caller named and to no other. A redirect to another host is
//! an error, except for a [`Download`], which follows it without credentials. Errors name the host, never a header's
//! value, and in all text of a server the secrets that it was sent are masked.

mod agent;
mod certificate;
mod client;
mod download;
mod encoding;
mod error;
mod error_words;
mod first_byte;
mod lines;
mod patience;
mod proxy;
mod redirect;
mod resolver;
mod secrets;

pub use certificate::CA_VARIABLE;
pub use client::{Access, Client};
pub use download::Download;
pub use error::HttpError;
pub use error_words::error_words;
pub use lines::{Lines, MAX_LINE};
pub use patience::Patience;
pub use proxy::has_proxy;
pub use secrets::{MASK, Secrets};
