//! What lies over a page.

pub(super) mod exports;
pub(super) mod help;
pub(super) mod palette;
pub(super) mod quit;
pub(super) mod rival;
pub(super) mod sent_prompt;
pub(super) mod settings;
pub(super) mod themes;
pub(super) mod tour;
pub(super) mod what_if;
pub(super) mod why;
