//! MiMo-7B's draft module, in the model's own folder: a block of the model's kind after a projection that reads the
//! hidden state first.
//!
//! `x = input_proj [norm(h) ; norm(E[token])]`, the block, `u = norm(x)`; logits by the target's head, u is recycled.
//! As in vLLM (`mimo_mtp.py`), h is the residual stream before the target's last norm, and the embedding of slot 0 is
//! zero. Invariant: tensors have GGUF's names; the module's block is one more layer.

use crate::ModelError;
use crate::drafters::core::OwnTensors;
use crate::files::{ModelFiles, renamed};
use crate::nn::TransformerConfig;
use crate::plan::{Angles, DraftPlan, Layer};
use draftscope_protocol::{ConcatOrder, Feed, MtpSpec, NormForm, Pairing, Recycle, SlotPosition, SlotZero};

/// Prefix of modules in a checkpoint, beside `layers`.
pub(super) const LAYERS: &str = "mtp_layers";

/// Part of a GGUF name, and of the checkpoint's.
const PARTS: &[(&str, &str)] = &[
    ("nextn.eh_proj", "input_proj"),
    ("nextn.enorm", "token_layernorm"),
    ("nextn.hnorm", "hidden_layernorm"),
    ("nextn.shared_head_norm", "final_layernorm"),
];

/// How the module was trained.
const SPEC: MtpSpec = MtpSpec {
    feed: Feed::PreNorm,
    order: ConcatOrder::HiddenFirst,
    slot0: SlotZero::Zeroed,
    recycle: Recycle::PostNorm,
    pairing: Pairing::Next,
    position: SlotPosition::Own,
    norm: NormForm::Weight,
};

/// The checkpoint's name of a part of a module.
pub(super) fn part(name: &str) -> Option<&'static str> {
    renamed(PARTS, name)
}

/// The modules as data, so many.
pub(super) fn plans(
    source: &ModelFiles,
    config: &TransformerConfig,
    count: usize,
) -> Result<Vec<DraftPlan>, ModelError> {
    let own = OwnTensors { source, config };
    own.check(count)?;
    let angles = Angles { rope: config.rope.clone(), width: config.head_dim };
    let module = |index| own.plan(index, (Layer::usual(config, config.layers + index), angles.clone()), SPEC);
    Ok((0..count).map(module).collect())
}
