//! The reference: an interpreter of plans over candle's tensors, for weights as f32, bf16, f16 or in GGUF's blocks.
//!
//! It is written to be read, not to be fast: each part of a [`Plan`] is a few lines here, in the order in which the plan
//! names it. Tests compare the other backends with it, `--backend candle` runs it, and so do files that the kernels do not
//! take.
//!
//! Invariant: few rows are multiplied and attend one by one, so that a row's bits do not depend on the rows beside it, and
//! greedy speculation equals plain decoding. Whatever a plan asks for beyond these parts is an error that names it.

mod attention;
mod delta;
mod experts;
mod latent;
mod layer;
mod model;
mod pass;
mod reader;
mod weights;

pub(crate) use self::layer::{Layer, Memory};
pub(crate) use self::model::ReferenceModel;
pub(crate) use self::pass::Pass;
pub(crate) use self::reader::Reader;
pub(crate) use weights::Weights;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use candle_core::Device;
    use safetensors::SafeTensors;

    use super::*;
    use std::sync::Arc;

    use crate::ModelError;
    use crate::load::OpenModel;
    use crate::nn::MatmulBackend;
    use crate::nn::Tensors;
    use crate::options::Rollback;
    use crate::options::WeightType;
    use crate::plan::{self, Keys, Mixer, Plan};
    use crate::{Checkpoint, LogitRows, Model, ModelSpec};
    use draftscope_protocol::TokenId;

    fn weights((opened, plan): (&OpenModel, &Plan), held: WeightType) -> Result<Weights, ModelError> {
        let tensors = Tensors::new(&opened.source, (MatmulBackend::Candle(held), &Device::Cpu), opened.transformer());
        Weights::load(tensors, plan, 64, &mut |_, _, _| {})
    }

    pub(super) fn target(opened: &OpenModel, held: WeightType) -> Result<ReferenceModel, ModelError> {
        let weights = weights((opened, opened.config.plan()), held)?;
        let spec = ModelSpec {
            info: opened.transformer().describe(String::new(), String::new()),
            ctx_len: 64,
            backend: "candle",
            device: "cpu".into(),
            dtype: "f32".into(),
            threads: 1,
        };
        ReferenceModel::new(Arc::new(weights), spec, Rollback::Snapshots)
    }

    pub(super) fn fixture(name: &str) -> OpenModel {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("tests/fixtures/checkpoints");
        OpenModel::open(&folder.join(name)).unwrap()
    }

    /// Numbers of a fixture that another program computed.
    fn golden<const N: usize>(name: &str, tensor: &str, number: fn([u8; N]) -> f32) -> Vec<f32> {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("tests/fixtures/checkpoints");
        let bytes = std::fs::read(folder.join(name).join("golden.safetensors")).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        tensors.tensor(tensor).unwrap().data().as_chunks::<N>().0.iter().map(|bytes| number(*bytes)).collect()
    }

    /// Gemma 4 has what no family that runs here has: keys of other layers, values that are keys, norms without weights, tables by
    /// layer, scales of layers; it runs elsewhere for its experts and assistants.
    #[test]
    fn parts_that_gemma_4_alone_has_equal_the_oracle_and_rows_keep_their_bits() {
        for (name, oracle) in [
            ("gemma4", "gemma4"),
            ("gemma4.gguf", "gemma4"),
            ("gemma4-unified", "gemma4-unified"),
            ("gemma4-experts", "gemma4-experts"),
        ] {
            let mut model = target(&fixture(name), WeightType::F32).unwrap();
            let tokens: Vec<TokenId> = golden(oracle, "tokens", |x| i64::from_le_bytes(x) as f32)
                .into_iter()
                .map(|x| TokenId(x as u32))
                .collect();
            let expected = golden(oracle, "logits", f32::from_le_bytes);
            let whole = model.forward(&tokens, LogitRows::All).unwrap().logits;
            let off = whole.as_slice().iter().zip(&expected).fold(0.0f32, |most, (a, b)| most.max((a - b).abs()));
            println!("{name}: off by {off}");
            assert!(off < 5e-4, "{name}: {off}");
            let mut alone: Option<Vec<Vec<f32>>> = None;
            for rows in [1, 3, 7, 16] {
                model.truncate(0, &Checkpoint { len: 0 }).unwrap();
                let passes = tokens.chunks(rows).map(|tokens| model.forward(tokens, LogitRows::All).unwrap().logits);
                let logits: Vec<Vec<f32>> = passes.map(|logits| logits.as_slice().to_vec()).collect();
                let logits = logits.concat().chunks(whole.width()).map(<[f32]>::to_vec).collect();
                assert!(*alone.get_or_insert_with(|| Vec::clone(&logits)) == logits, "{name}: passes of {rows} rows");
            }
        }
    }

    #[test]
    fn weights_held_in_other_types_give_nearly_the_same() {
        let opened = fixture("olmo2");
        let tokens: Vec<TokenId> = (5..25).map(TokenId).collect();
        let logits = |held| {
            let mut model = target(&opened, held).unwrap();
            model.forward(&tokens, LogitRows::All).unwrap().logits.as_slice().to_vec()
        };
        let wide = logits(WeightType::F32);
        for held in [WeightType::Bf16, WeightType::Stored] {
            let (narrow, square) = (logits(held), |x: f32| f64::from(x * x));
            let off: f64 = narrow.iter().zip(&wide).map(|(a, b)| square(a - b)).sum();
            let off = (off / wide.iter().map(|x| square(*x)).sum::<f64>()).sqrt();
            assert!(off > 0.0 && off < 0.03, "{held:?}: {off}");
        }
    }

    #[test]
    fn what_is_not_interpreted_is_named() {
        let opened = fixture("llama");
        for (spoil, says) in [
            ((|of| of.sight.causal = false) as fn(&mut plan::Attention), "attention to later positions"),
            (|of| of.keys = Keys::OfTarget, "attention to keys and values of a target"),
            (|of| of.value_width += 1, "values of another width than keys"),
            (|of| of.o.stored.clear(), "matrices without rows"),
            (|of| of.o.stored.extend(of.q.stored.clone()), "matrices in several tensors"),
        ] {
            let mut plan = opened.config.plan().clone();
            let Mixer::Attention(attention) = &mut plan.layers[1].mixer else { panic!("it attends") };
            spoil(attention);
            let error = weights((&opened, &plan), WeightType::F32).err().unwrap().to_string();
            assert_eq!(error, format!("the reference does not run {says}"));
        }
    }
}
