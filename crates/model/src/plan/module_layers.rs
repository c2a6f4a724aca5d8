//! Layers of the draft modules in the files of a model, which follow the model's own.

use super::layer::Layer;
use super::tensors_of::PlanFiles;
use super::whole::{ModuleLayer, Plan};

/// Most draft modules of a file.
pub const MAX_MODULES: usize = 8;

impl Plan {
    /// The same with the draft modules whose tensors the files have, at most so many. `layer` makes the layer of a block, which
    /// follows the model's last one. `announced`: how many the configuration has.
    #[must_use]
    pub fn with_modules(
        self,
        files: PlanFiles<'_>,
        (announced, most): (usize, usize),
        layer: impl Fn(usize) -> Layer,
    ) -> Self {
        let has = |block: usize, part: &str| files.has_or(&format!("blk.{block}.nextn.{part}.weight"), false);
        let blocks = (self.layers.len()..).take(most).take_while(|block| has(*block, "eh_proj"));
        let module = |block| ModuleLayer { layer: layer(block), has_head: has(block, "shared_head_head") };
        let modules = blocks.map(module).collect();
        Self { modules, announced_modules: announced, ..self }
    }
}
