//! Servers with OpenAI routes differ in the fields that they add.

/// The fields that a server adds to the OpenAI routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::attach) enum Dialect {
    Vllm,
    Sglang,
    Plain,
}
