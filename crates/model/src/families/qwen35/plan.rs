//! What a Qwen3.5 or Qwen3-Next computes.

use crate::families::qwen35::keys::{ExpertShape, Hybrid};
use crate::nn::{Activation, ExpertSizes, TransformerConfig};
use crate::plan::{
    Angles, Attention, BlockNames, Decay, Delta, DeltaShape, Experts, Feed, Layer, Matrix, Mixer, Norm, Plan,
    PlanFiles, RouterPlan, Rows, Scoring, SharedFeed, Tensor, UsualAttention, Vector,
};

/// The plan of a model of these sizes.
pub(super) fn plan(config: &TransformerConfig, hybrid: &Hybrid, files: PlanFiles<'_>) -> Plan {
    let layers = (0..config.layers).map(|index| layer(config, hybrid, index, files)).collect();
    let module = |block| layer(config, hybrid, block, files);
    // its one module has no number
    let count = (usize::from(hybrid.announces_mtp), 1);
    Plan::usual(config, vec![angles(config, hybrid)], layers, files.is_checkpoint()).with_modules(files, count, module)
}

/// Angles of the rotated part of a head.
pub(super) fn angles(config: &TransformerConfig, hybrid: &Hybrid) -> Angles {
    Angles { rope: config.rope.clone(), width: hybrid.rotary }
}

/// A layer, or that of the draft module, which follows the last one and attends.
pub(super) fn layer(config: &TransformerConfig, hybrid: &Hybrid, block: usize, files: PlanFiles<'_>) -> Layer {
    let names = BlockNames::of(config, block, files.is_checkpoint());
    let is_linear = hybrid.linear.get(block).copied().unwrap_or(false);
    Layer {
        mixer: match is_linear {
            true => Mixer::Delta(delta(config, hybrid, &names, files)),
            false => Mixer::Attention(attention(config, &names)),
        },
        mix: names.join("attn_norm"),
        feed: match hybrid.experts {
            None => Feed::Dense(names.gated("", config.ffn, Activation::Silu)),
            Some(shape) => Feed::Experts(Box::new(experts(shape, &names, files))),
        },
        fed: names.join("post_attention_norm"),
        token_input: None,
        output_scale: None,
    }
}

/// Of each head the rows of the query, then those of the gate.
fn attention(config: &TransformerConfig, names: &BlockNames) -> Attention {
    let usual = UsualAttention::of(config).plan(names);
    let (heads, head_dim, d) = (config.heads, config.head_dim, config.d_model);
    let of = |first| {
        let stored = [2 * heads * head_dim, d];
        Matrix::of(vec![Rows::some(names.name("attn_q"), stored, (first, head_dim), (2 * head_dim, heads))], d)
    };
    Attention { q: of(0), gate: Some(of(head_dim)), ..usual }
}

/// The mixer of a linear layer.
fn delta(config: &TransformerConfig, hybrid: &Hybrid, names: &BlockNames, files: PlanFiles<'_>) -> Delta {
    let (shape, d, is_checkpoint) = (hybrid.delta, config.d_model, files.is_checkpoint());
    let (values, heads) = (shape.value_width(), shape.value_heads);
    let is_next = config.conventions.name == "qwen3next";
    // where neither form is there, the family's own is the one that is missing
    let is_joint = |joint: &str, apart: &str| {
        files.has_or(&names.name(joint), is_next) || is_next && !files.has_or(&names.name(apart), false)
    };
    let [mixed, gate] = match is_joint("ssm_in", "attn_qkv") {
        true => joint_qkvz(&names.name("ssm_in"), shape, d),
        false => [names.matrix("attn_qkv", shape.channels(), d), names.matrix("attn_gate", values, d)],
    };
    let [beta, alpha] = match is_joint("ssm_ba", "ssm_beta") {
        true => joint_ba(&names.name("ssm_ba"), shape, d),
        false => ["ssm_beta", "ssm_alpha"].map(|part| names.matrix(part, heads, d)),
    };
    let a = Vector { name: format!("blk.{}.ssm_a", names.block), len: heads };
    let norm = Some(Vector { name: names.name("ssm_norm"), len: shape.value_dim });
    Delta {
        shape,
        order: hybrid.order,
        mixed,
        gate,
        alpha,
        beta,
        convolution: Tensor {
            name: names.name("ssm_conv1d"),
            shape: match is_checkpoint {
                true => vec![shape.channels(), 1, shape.kernel],
                false => vec![shape.channels(), shape.kernel],
            },
        },
        decay: if is_checkpoint { Decay::Log(a) } else { Decay::Negative(a) },
        dt: names.bias("ssm_dt", heads),
        norm: Norm { weight: norm, centred: false, eps: config.norm_eps },
        o: names.matrix("ssm_out", d, values),
    }
}

/// Qwen3-Next's joint projection, which has query, key, values and gates of one key head after the other: the rows of
/// queries, keys and values, and those of gates.
fn joint_qkvz(name: &str, shape: DeltaShape, d: usize) -> [Matrix; 2] {
    let (keys, of_head) = (shape.key_dim, shape.value_width() / shape.key_heads);
    let (step, stored) = (2 * (keys + of_head), [shape.channels() + shape.value_width(), d]);
    let part = |first, len| Rows::some(name, stored, (first, len), (step, shape.key_heads));
    let mixed = vec![part(0, keys), part(keys, keys), part(2 * keys, of_head)];
    [Matrix::of(mixed, d), Matrix::of(vec![part(2 * keys + of_head, of_head)], d)]
}

/// Its other joint projection: the rows of β, and those of α.
fn joint_ba(name: &str, shape: DeltaShape, d: usize) -> [Matrix; 2] {
    let of_head = shape.value_heads / shape.key_heads;
    let part = |first| {
        let stored = [2 * shape.value_heads, d];
        Matrix::of(vec![Rows::some(name, stored, (first, of_head), (2 * of_head, shape.key_heads))], d)
    };
    [part(0), part(of_head)]
}

fn experts(shape: ExpertShape, names: &BlockNames, files: PlanFiles<'_>) -> Experts {
    let d = names.width;
    Experts {
        sizes: ExpertSizes { count: shape.count, d, width: shape.width },
        used: shape.used,
        act: Activation::Silu,
        block: names.block,
        storage: names.expert_storage(files),
        router: RouterPlan { rescaled: shape.normed, ..RouterPlan::new(names, shape.count, Scoring::Softmax) },
        shared: Some(SharedFeed {
            feed: names.gated("_shexp", shape.shared, Activation::Silu),
            gate: Some(names.matrix("ffn_gate_inp_shexp", 1, d)),
            count: 1,
        }),
        beside: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joint_projections_have_the_rows_of_one_key_head_after_the_other() {
        let shape = DeltaShape { key_heads: 2, value_heads: 4, key_dim: 2, value_dim: 1, kernel: 2 };
        let places = |matrix: &Matrix| matrix.stored.iter().flat_map(Rows::places).collect::<Vec<_>>();
        let [mixed, gates] = joint_qkvz("x", shape, 8);
        // of each key head: two rows of its query, two of its key, one of each value, one of each gate
        assert_eq!(places(&mixed), [0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13]);
        assert_eq!(places(&gates), [6, 7, 14, 15]);
        assert_eq!(joint_ba("x", shape, 8).each_ref().map(places), [[0, 1, 4, 5], [2, 3, 6, 7]]);
    }
}
