//! The Chat page: the conversation, every token with its fate, and the prompt box.

pub(super) mod answer_summary;
pub(super) mod laid;
pub(super) mod pacing;
pub(super) mod plain_text;
pub(super) mod prompt;
pub(super) mod token_text;
pub(super) mod transcript;
pub(super) mod transcript_blocks;
pub(super) mod transcript_cache;
pub(super) mod transcript_layout;
pub(super) mod welcome;
