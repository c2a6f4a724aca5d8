//! What a model of DeepSeek-V3's layout computes.

use crate::families::deepseek::keys::{Latent as Sizes, LatentShape};
use crate::nn::{Activation, PairOrder, TransformerConfig};
use crate::plan::{
    Angles, BlockNames, Feed, Folded, Latent, LatentQueries, Layer, MAX_MODULES, Mixer, Norm, Plan, PlanFiles,
    Rotation, Rows, Tensor, grouped_experts,
};

/// Epsilon of the norms inside attention, whatever `rms_norm_eps` is: as in `modeling_deepseek_v3.py`.
const EPS: f32 = 1e-6;

/// The plan of a model of these sizes.
pub(super) fn plan(config: &TransformerConfig, sizes: &Sizes, files: PlanFiles<'_>) -> Plan {
    let angles = Angles { rope: config.rope.clone(), width: sizes.attention.rotary };
    let layer = |block| layer(config, sizes, block, files);
    Plan::usual(config, vec![angles], (0..config.layers).map(layer).collect(), false).with_modules(
        files,
        (sizes.modules, MAX_MODULES),
        layer,
    )
}

/// A layer, or that of a draft module, which follows the last one and has experts.
pub(super) fn layer(config: &TransformerConfig, sizes: &Sizes, block: usize, files: PlanFiles<'_>) -> Layer {
    let names = BlockNames::of(config, block, false);
    Layer {
        mixer: Mixer::Latent(attention(sizes.attention, &names, files)),
        mix: names.join("attn_norm"),
        feed: match block < sizes.dense_layers {
            true => Feed::Dense(names.gated("", config.ffn, Activation::Silu)),
            false => Feed::Experts(Box::new(grouped_experts(&sizes.experts, &names, files))),
        },
        fed: names.join("ffn_norm"),
        token_input: None,
        output_scale: None,
    }
}

fn attention(a: LatentShape, names: &BlockNames, files: PlanFiles<'_>) -> Latent {
    let (d, of_queries) = (names.width, a.heads * (a.plain + a.rotary));
    let norm = |part: &str, len| Norm { eps: EPS, ..names.norm_of(part, len) };
    let queries = match a.q_rank {
        None => LatentQueries::Direct(names.matrix("attn_q", of_queries, d)),
        Some(rank) => LatentQueries::Squeezed(
            names.matrix("attn_q_a", rank, d),
            norm("attn_q_a_norm", rank),
            names.matrix("attn_q_b", of_queries, rank),
        ),
    };
    let [to_keys, to_values] = unfolding(a, names, files);
    Latent {
        heads: a.heads,
        rank: a.rank,
        plain: a.plain,
        rotated: a.rotary,
        value: a.value,
        queries,
        kv: names.matrix("attn_kv_a_mqa", a.rank + a.rotary, d),
        kv_norm: norm("attn_kv_a_norm", a.rank),
        to_keys,
        to_values,
        o: names.matrix("attn_output", d, a.heads * a.value),
        rotation: Rotation {
            table: 0,
            pairs: if a.interleaved { PairOrder::Interleaved } else { PairOrder::HalfSplit },
        },
        scale: a.scale,
    }
}

/// The matrices that turn queries into latents, and latents into values: as llama.cpp's converter splits them, keys
/// transposed, or in one tensor, as in checkpoints.
fn unfolding(a: LatentShape, names: &BlockNames, files: PlanFiles<'_>) -> [Folded; 2] {
    let LatentShape { heads, rank, plain, value, .. } = a;
    let is_split = files.has_or(&names.name("attn_k_b"), false);
    let split = |part: &str, out, columns| Rows {
        tensor: Tensor { name: names.name(part), shape: vec![heads, out, columns] },
        ..Rows::all("", [heads * out, columns])
    };
    let of_both = |first, len| {
        let stored = [heads * (plain + value), rank];
        Rows::some(names.name("attn_kv_b"), stored, (first, len), (plain + value, heads))
    };
    let (keys, values) = match is_split {
        true => (split("attn_k_b", rank, plain), split("attn_v_b", value, rank)),
        false => (of_both(0, plain), of_both(plain, value)),
    };
    [
        Folded { heads, out: rank, columns: plain, stored: keys, transposed: !is_split },
        Folded { heads, out: value, columns: rank, stored: values, transposed: false },
    ]
}
