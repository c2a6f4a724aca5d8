//! What a Gemma 4 computes.

use crate::families::gemma4::names::TABLE;
use crate::families::gemma4::shapes::{ExpertShape, Gemma, LayerShape, PerLayer};
use crate::nn::{Activation, ExpertSizes, PairOrder, TransformerConfig};
use crate::plan::{
    Angles, Attention, Beside, BlockNames, Experts, Feed, Join, Keys, Layer, LayerTable, Matrix, Mixer, Norm, Plan,
    PlanFiles, Rotation, RouterInput, RouterPlan, Scoring, Sight, TokenInput, UsualAttention, Vector,
};
use crate::shared_kv::Reach;

/// The plan of a model of these sizes.
pub(super) fn plan(config: &TransformerConfig, gemma: &Gemma, files: PlanFiles<'_>) -> Plan {
    let layers =
        (0..config.layers).map(|index| layer((config.heads, gemma), &BlockNames::of(config, index, false), files));
    let mut plan = Plan::usual(config, angles(gemma), layers.collect(), false);
    plan.embedding.scale = (config.d_model as f64).sqrt();
    plan.embedding.by_layer = gemma.per_layer.map(|of| layer_table(config, of));
    plan.end.cap = gemma.softcap.map(f64::from);
    plan
}

/// The angles of sliding layers and of full ones.
pub(super) fn angles(gemma: &Gemma) -> Vec<Angles> {
    let width = |reach| gemma.layers.iter().find(|layer| layer.reach == reach).map_or(2, |layer| layer.head_dim);
    let kinds = [(Reach::Sliding, &gemma.sliding_rope), (Reach::Full, &gemma.full_rope)];
    kinds.map(|(reach, rope)| Angles { rope: rope.clone(), width: width(reach) }).into()
}

fn layer_table(config: &TransformerConfig, of: PerLayer) -> LayerTable {
    let all = config.layers * of.width;
    let weight = Some(Vector { name: "per_layer_proj_norm.weight".into(), len: of.width });
    LayerTable {
        table: Matrix::whole(TABLE, [of.vocab, all]),
        width: of.width,
        scale: (of.width as f64).sqrt(),
        project: Matrix::whole("per_layer_model_proj.weight", [all, config.d_model]),
        project_scale: 1.0 / (config.d_model as f64).sqrt(),
        norm: Norm { weight, centred: false, eps: config.norm_eps },
        join_scale: std::f64::consts::FRAC_1_SQRT_2,
    }
}

/// A layer of a model or an assistant with so many query heads.
pub(super) fn layer((heads, gemma): (usize, &Gemma), names: &BlockNames, files: PlanFiles<'_>) -> Layer {
    let shape = &gemma.layers[names.block];
    let dense = names.gated("", shape.ffn, Activation::Gelu);
    let token_input = gemma.per_layer.map(|of| TokenInput {
        gate: names.matrix("inp_gate", of.width, names.width),
        act: Activation::Gelu,
        project: names.matrix("proj", names.width, of.width),
        after: names.norm("post_norm"),
    });
    Layer {
        mixer: Mixer::Attention(attention(heads, (gemma, shape), names)),
        mix: Join::between(names.norm("attn_norm"), names.norm("post_attention_norm")),
        feed: match gemma.experts {
            None => Feed::Dense(dense),
            Some(shape) => {
                let beside = Beside {
                    dense,
                    dense_norm: names.norm("post_ffw_norm_1"),
                    before: names.norm("pre_ffw_norm_2"),
                    experts_norm: names.norm("post_ffw_norm_2"),
                };
                Feed::Experts(Box::new(experts(shape, names, files, beside)))
            }
        },
        fed: Join::between(names.norm("ffn_norm"), names.norm("post_ffw_norm")),
        token_input,
        output_scale: Some(names.name("layer_output_scale")),
    }
}

fn attention(heads: usize, (gemma, shape): (&Gemma, &LayerShape), names: &BlockNames) -> Attention {
    let (table, window) = match shape.reach {
        Reach::Sliding => (0, Some(gemma.window)),
        Reach::Full => (1, None),
    };
    let rotation = Some(Rotation { table, pairs: PairOrder::HalfSplit });
    let (kv_heads, head_dim) = (shape.kv_heads, shape.head_dim);
    let usual = UsualAttention { heads, kv_heads, head_dim, qk_norm: true, qkv_bias: false, rotation }.plan(names);
    let keys = match (shape.source, usual.keys) {
        (None, _) => Keys::OfTarget,
        (Some(source), _) if source != names.block => Keys::OfLayer(source),
        (_, Keys::Own(mut own)) => {
            own.v_norm = Some(Norm { weight: None, centred: false, eps: names.eps });
            if gemma.k_eq_v && shape.reach == Reach::Full {
                own.v = None;
            }
            Keys::Own(own)
        }
        (_, keys) => keys,
    };
    Attention { keys, scale: 1.0, sight: Sight { window, causal: true }, ..usual }
}

fn experts(shape: ExpertShape, names: &BlockNames, files: PlanFiles<'_>, beside: Beside) -> Experts {
    let (ExpertShape { count, used, width }, d) = (shape, names.width);
    let vector = |part: &str, len| Vector { name: format!("blk.{}.{part}.scale", names.block), len };
    Experts {
        sizes: ExpertSizes { count, d, width },
        used,
        act: Activation::Gelu,
        block: names.block,
        storage: names.expert_storage(files),
        router: RouterPlan {
            reads: RouterInput::Stream {
                scale: vector("ffn_gate_inp", d),
                factor: (d as f64).powf(-0.5),
                eps: names.eps,
            },
            rescaled: true,
            per_expert: Some(vector("ffn_down_exps", count)),
            ..RouterPlan::new(names, count, Scoring::Softmax)
        },
        shared: None,
        beside: Some(beside),
    }
}
