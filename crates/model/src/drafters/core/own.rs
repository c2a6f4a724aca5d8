//! Draft modules in a target's own files: blocks after the target's last one, each with norms and a projection before
//! it and a norm after it, under their names in GGUF files (`blk.{L}.nextn.…`).

use crate::ModelError;
use crate::files::ModelFiles;
use crate::nn::TransformerConfig;
use crate::plan::{Angles, DraftPlan, Layer, MAX_MODULES, Matrix, Norm, Vector};
use draftscope_protocol::MtpSpec;

/// The modules in the files of a target of these sizes.
#[derive(Clone, Copy)]
pub(crate) struct OwnTensors<'a> {
    pub(crate) source: &'a ModelFiles,
    pub(crate) config: &'a TransformerConfig,
}

impl OwnTensors<'_> {
    /// Name of a tensor of the module of this index.
    pub(crate) fn name(&self, index: usize, part: &str) -> String {
        format!("blk.{}.nextn.{part}.weight", self.config.layers + index)
    }

    /// Whether the module of this index has such a tensor.
    pub(crate) fn has(&self, index: usize, part: &str) -> bool {
        self.source.has(&self.name(index, part))
    }

    /// Number of modules with a projection, counted up to the first that is missing.
    pub(crate) fn found(&self) -> usize {
        (0..MAX_MODULES).take_while(|index| self.has(*index, "eh_proj")).count()
    }

    /// Whether as many modules exist as the configuration announces.
    ///
    /// # Errors
    /// A sentence that names the first missing one.
    pub(crate) fn check(&self, count: usize) -> Result<(), ModelError> {
        if count > MAX_MODULES {
            let what = format!("'num_nextn_predict_layers' is {count}; at most {MAX_MODULES} modules are supported");
            return Err(ModelError::Unsupported(what));
        }
        match self.found() {
            found if found < count => Err(ModelError::Metadata(format!(
                "config.json announces {count} draft modules ('num_nextn_predict_layers') and the weights of number {} are not in the folder",
                found + 1
            ))),
            _ => Ok(()),
        }
    }

    /// The module of this index as data, around its layer and the layer's angles.
    pub(crate) fn plan(&self, index: usize, (layer, angles): (Layer, Angles), conventions: MtpSpec) -> DraftPlan {
        let TransformerConfig { d_model: d, vocab, norm_eps: eps, layers, .. } = *self.config;
        let table = |part: &str| self.has(index, part).then(|| Matrix::whole(self.name(index, part), [vocab, d]));
        let module = DraftPlan::nextn(layers + index, (d, eps), (layer, angles), conventions);
        let of_target = Norm { weight: Some(Vector { name: "output_norm.weight".into(), len: d }), ..module.norm };
        DraftPlan {
            norm: if self.has_norm(index) { module.norm } else { of_target },
            embedding: table("embed_tokens"),
            head: table("shared_head_head"),
            ..module
        }
    }

    /// Whether the module of this index has a last norm; else it is the target's, as in llama.cpp.
    fn has_norm(&self, index: usize) -> bool {
        self.source.is_checkpoint() || self.has(index, "shared_head_norm")
    }
}
