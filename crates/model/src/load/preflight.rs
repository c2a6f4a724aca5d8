//! Whether a repository's model runs, from its small files alone, before its weights are downloaded.

use crate::files::{ConfigJson, SideFiles};
use crate::load::named_module;
use crate::text::tokenizer::TextCodec;
use crate::{ModelError, families, memory};

/// Checks configuration and tokenizer. A model with experts whose weights exceed all memory is rejected with the
/// figures.
///
/// # Errors
/// What is not supported, or damaged, or does not fit.
pub fn preflight(files: &SideFiles) -> Result<(), ModelError> {
    preflight_within(files, memory::installed().filter(|_| !cfg!(any(feature = "cuda", feature = "metal"))))
}

/// The same on a machine with so many bytes of memory; `None` = unknown.
///
/// # Errors
/// As [`preflight`].
pub fn preflight_within(files: &SideFiles, memory: Option<u64>) -> Result<(), ModelError> {
    let text = files.config()?;
    if let Some(kind) = named_module::kind_of(&text) {
        return kind.check(&text);
    }
    let json = ConfigJson::parse(&text)?;
    let family = families::of_json(&json)?;
    json.fp8_block()?;
    let config = family.read_json(&json, None)?;
    if config.plan().is_large() {
        // the narrowest dtype that weights can be loaded in: FP8 is widened
        memory::check_weights(2 * config.plan().weights(), "bf16", memory)?;
    }
    TextCodec::from_folder(files, family.always_begins()).map(drop)
}
