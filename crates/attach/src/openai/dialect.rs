//! Servers with OpenAI routes differ in the fields that they add.

/// The fields that a server adds to the OpenAI routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Vllm,
    Sglang,
    Plain,
}
