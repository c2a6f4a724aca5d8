//! Tensor names of assistants: GGUF's, by which tensors are requested, and the checkpoint's.

use crate::families::gemma4::part;
use crate::files::{Layout, block_part, renamed};

/// The order of the tokens in clusters, which GGUF files never have.
pub(super) const ORDERING: &str = "masked_embedding.token_ordering";

/// Tensors outside layers.
const WHOLE: &[(&str, &str)] = &[
    ("nextn.pre_projection.weight", "pre_projection.weight"),
    ("nextn.post_projection.weight", "post_projection.weight"),
    ("masked_embd_centroids.weight", "masked_embedding.centroids.weight"),
    (ORDERING, ORDERING),
];

/// The checkpoint's name of a tensor.
pub(super) fn tensor_name(layout: &Layout, name: &str) -> Option<String> {
    if let Some(own) = renamed(WHOLE, name) {
        return Some(own.to_owned());
    }
    let (layer, own) = block_part(name)?;
    part(own).map(|own| format!("{}layers.{layer}.{own}", layout.prefix))
}
