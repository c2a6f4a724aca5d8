//! From a model on disk to a [`NativeLlama`]: sizes checked, tensors packed one after the other, as its plan says.
//!
//! A model that asks for something this backend does not do is an error here, never a silent difference later; no file
//! content can make it panic.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::cache::{AngleTable, KvCache, KvHeads, KvShape};
use super::inputs::LayerInputs;
use super::layer::{BlockShape, Layer, NormWeight};
use super::llama::NativeLlama;
use super::matrix::{Cpu, Matrix, RowOrder};
use super::mixer::Mixer;
use super::pack::lanes;
use super::parts::{LayerParts, caches, rows_of, unsupported};
use super::recurrent::Recurrent;
use super::tensors::{RawTensor, Tensors};
use super::weights::Weights;
use crate::files::{MatrixForm, ModelFiles};
use crate::nn::TransformerConfig;
use crate::options::Rollback;
use crate::plan::{self, Head, Keys, Plan, Rows};
use crate::{ExpertsMet, ModelError, ModelSpec};
use draftscope_kernels::{BLOCK, LANES, MAX_HEAD_DIM};

/// A model on disk: its files, its sizes, and what it computes.
pub type Source<'a> = (&'a ModelFiles, &'a TransformerConfig, &'a Plan);

/// Reads the model in `source`.
pub(crate) fn llama(
    (source, config, plan): Source<'_>,
    (ctx_len, cpu): (usize, Cpu),
    on_layer: &mut dyn FnMut(usize, usize),
) -> Result<NativeLlama, ModelError> {
    check_width(config.d_model)?;
    let caches = caches(plan).map_err(unsupported)?;
    let base = BlockShape::of(config);
    plan.attentions().try_for_each(|of| check_shape(&base.with_heads(of)))?;
    let shape = base.widest(plan);
    let own = plan.attentions().filter(|of| matches!(of.keys, Keys::Own(_)));
    let latents = (plan.latents().count(), plan.latents().next().map_or(0, |latent| latent.rank + latent.rotated));
    let heads = own.map(|of| KvHeads { count: of.kv_heads, width: of.key_width }).collect();
    let kv = KvShape { heads, ctx_len, latents };
    let tables = plan.angles.iter().map(|angles| AngleTable::new(&angles.rope, angles.width, ctx_len)).collect();
    if !plan.layers.is_empty() {
        cpu.expect(tiled_bytes(source, (config.layers, 0), false));
    }
    let weights = Loader { tensors: Tensors(source), cpu: &cpu, shape, angles: &plan.angles, norms_as_stored: false };
    let (mut layers, final_norm, embedding, head, inputs) = weights.read(plan, on_layer)?;
    for (layer, cache) in layers.iter_mut().zip(caches) {
        if let Mixer::Attention(attention) = &mut layer.mixer {
            attention.cache = cache;
        }
    }
    let weights = Weights {
        cpu,
        shape,
        layers,
        final_norm,
        embedding,
        inputs,
        head,
        embedding_scale: plan.embedding.scale as f32,
        logit_scale: plan.end.scale as f32,
        logit_cap: plan.end.cap.map(|cap| cap as f32),
    };
    let spec = spec((source, config, plan), &weights, &kv);
    let recurrent = Recurrent::new(plan.deltas().map(|delta| delta.shape).collect(), Rollback::default());
    Ok(NativeLlama::new(Arc::new(weights), spec, (KvCache::new(kv), recurrent), tables))
}

/// Bytes of the matrices, as tiles, of a target of so many layers or of its first modules.
pub(crate) fn tiled_bytes(source: &ModelFiles, (layers, modules): (usize, usize), of_module: bool) -> u64 {
    let tensors = source.loaded_tensors(layers, modules);
    let matrices = tensors.iter().filter(|tensor| tensor.of_module == of_module && tensor.shape.len() > 1);
    matrices.map(|tensor| tensor.bytes(MatrixForm::Tiles)).sum()
}

pub(super) fn no_blocks(what: impl std::fmt::Display) -> ModelError {
    ModelError::Unsupported(format!(
        "the native backend needs rows of whole blocks of {BLOCK}, and this model has {what}; try `--backend candle`"
    ))
}

/// What the kernels require of the width of the stream.
pub(super) fn check_width(d_model: usize) -> Result<(), ModelError> {
    let whole = d_model > 0 && d_model.is_multiple_of(BLOCK);
    whole.then_some(()).ok_or_else(|| no_blocks(format!("rows of {d_model} values")))
}

/// What the kernels require of sizes.
pub(crate) fn check_shape(shape: &BlockShape) -> Result<(), ModelError> {
    let BlockShape { d_model, heads, kv_heads, head_dim, .. } = *shape;
    if heads == 0 || kv_heads == 0 || heads % kv_heads != 0 {
        return Err(ModelError::Metadata(format!("{heads} heads cannot share {kv_heads} KV heads")));
    }
    let whole = |len: usize, of: usize| len > 0 && len.is_multiple_of(of);
    if let Some(width) = [d_model, heads * head_dim].into_iter().find(|width| !whole(*width, BLOCK)) {
        return Err(no_blocks(format!("rows of {width} values")));
    }
    if !whole(head_dim, LANES) || head_dim > MAX_HEAD_DIM {
        return Err(unsupported(format!("heads of {head_dim}: {LANES} to {MAX_HEAD_DIM}, in steps of {LANES}")));
    }
    Ok(())
}

/// Blocks, final norm, embedding unless it is the head, head, what tokens add to single layers.
type Parts = (Vec<Layer>, NormWeight, Option<Matrix>, Matrix, Option<LayerInputs>);

/// Packs tensors one after the other, and releases each one's file pages.
pub(super) struct Loader<'a> {
    pub(super) tensors: Tensors<'a>,
    pub(super) cpu: &'a Cpu,
    pub(super) shape: BlockShape,
    /// Tables that rotate heads.
    pub(super) angles: &'a [plan::Angles],
    /// Whether norms are read as they are stored, whatever that means.
    pub(super) norms_as_stored: bool,
}

impl Loader<'_> {
    fn read(&self, plan: &Plan, on_layer: &mut dyn FnMut(usize, usize)) -> Result<Parts, ModelError> {
        // the largest first: a matrix takes memory twice while it is packed
        let inputs = plan.embedding.by_layer.as_ref().map(|of| self.layer_inputs(of)).transpose()?;
        let tokens = self.matrix(&plan.embedding.table)?;
        let (head, embedding) = match &plan.end.head {
            Head::Tied => (tokens, None),
            Head::Own(head) => (self.matrix(head)?, Some(tokens)),
        };
        let layer = |(index, layer)| {
            on_layer(index, plan.layers.len());
            let mut read = self.layer_alone(layer)?;
            read.token_input = layer.token_input.as_ref().map(|input| self.token_input(input, index)).transpose()?;
            Ok::<_, ModelError>(read)
        };
        let layers = plan.layers.iter().enumerate().map(layer).collect::<Result<Vec<_>, _>>()?;
        Ok((layers, self.norm(&plan.end.norm, plan.width)?, embedding, head, inputs))
    }

    /// A layer of a module, to which tokens add nothing.
    pub(super) fn layer(&self, layer: &plan::Layer) -> Result<Layer, ModelError> {
        match layer.token_input {
            Some(_) => Err(unsupported("a draft module whose layers have inputs of their own")),
            None => self.layer_alone(layer),
        }
    }

    /// A layer without what tokens add to it.
    fn layer_alone(&self, layer: &plan::Layer) -> Result<Layer, ModelError> {
        let d = self.shape.d_model;
        let parts = LayerParts::of(layer).map_err(unsupported)?;
        let before = parts.before.map(|norm| norm.map_or_else(|| Ok(lanes(&vec![1.0; d])), |norm| self.norm(norm, d)));
        let [attn_norm, ffn_norm] = both(before)?;
        // a factor joins the norm that comes after a step, where there is one
        let after = |norms: [&plan::Norm; 2]| {
            let mut after = both(norms.map(|norm| self.norm(norm, d)))?;
            for (norm, scale) in after.iter_mut().zip(parts.scales) {
                norm.iter_mut().flatten().for_each(|weight| *weight *= scale);
            }
            Ok::<_, ModelError>(after)
        };
        let after_norms = parts.after.map(after).transpose()?;
        let scales = if after_norms.is_some() { [1.0; 2] } else { parts.scales };
        Ok(Layer {
            attn_norm,
            mixer: self.mixer(parts.mixer)?,
            out: self.scaled(parts.mixer.out(), scales[0])?,
            ffn_norm,
            feed: self.feed(parts.feed, scales[1])?,
            after_norms,
            raw: parts.before.map(|norm| norm.is_none()),
            scales,
            token_input: None,
            factor: match &layer.output_scale {
                Some(name) => self.tensors.0.vector(name, 1)?[0],
                None => 1.0,
            },
        })
    }

    /// A matrix whose products get a factor; so does its bias.
    pub(super) fn scaled(&self, of: &plan::Matrix, factor: f32) -> Result<Matrix, ModelError> {
        let matrix = self.matrix(of)?;
        if of.bias.is_none() {
            return Ok(matrix);
        }
        let bias: Vec<_> = self.bias(of, RowOrder::Stored)?.iter().map(|x| x * factor).collect();
        Ok(matrix.with_bias(&bias))
    }

    pub(super) fn matrix(&self, of: &plan::Matrix) -> Result<Matrix, ModelError> {
        self.stacked(&[(of, RowOrder::Stored)])
    }

    /// Matrices of as many columns below each other, each in its own order of rows; their tensors are released.
    pub(super) fn stacked(&self, matrices: &[(&plan::Matrix, RowOrder)]) -> Result<Matrix, ModelError> {
        let rows =
            || matrices.iter().flat_map(|(of, order)| of.stored.iter().map(move |rows| (rows, of.columns, *order)));
        let mut tensors: BTreeMap<&str, RawTensor<'_>> = BTreeMap::new();
        for (rows, columns, _) in rows() {
            let name = rows.tensor.name.as_str();
            if !tensors.contains_key(name) {
                tensors.insert(name, self.tensors.matrix(name, rows.stored(), columns)?);
            }
        }
        let parts = rows().flat_map(|(rows, _, order)| {
            let raw = &tensors[rows.tensor.name.as_str()];
            adjacent(rows).map(move |range| raw.some(range, rows.stored(), order))
        });
        let columns = matrices.first().map_or(0, |(of, _)| of.columns);
        let parts: Vec<_> = parts.collect();
        let mut forms = parts.chunk_by(|a, b| a.encoding == b.encoding).rev().skip(1);
        if forms.any(|parts| !parts.iter().map(|part| part.rows).sum::<usize>().is_multiple_of(LANES)) {
            let name = matrices.first().map_or("", |(of, _)| of.name());
            return Err(unsupported(format!("the rows of tensor '{name}' beside rows of another type")));
        }
        let packed = Matrix::pack(self.cpu, columns, &parts);
        tensors.keys().for_each(|name| self.tensors.0.release(name));
        Ok(packed)
    }

    /// The bias in the order of the packed rows; zeros if there is none.
    pub(super) fn bias(&self, part: &plan::Matrix, order: RowOrder) -> Result<Vec<f32>, ModelError> {
        let Some(bias) = &part.bias else { return Ok(vec![0.0; part.rows]) };
        let stored = self.tensors.0.vector(&bias.name, bias.len)?;
        Ok((0..part.rows).map(|row| stored[order.stored_row(row)]).collect())
    }

    /// The tensor of a matrix, its rows, and the number of all rows.
    pub(super) fn raw(&self, of: &plan::Matrix) -> Result<(RawTensor<'_>, (Range<usize>, usize)), ModelError> {
        let rows = rows_of(of).map_err(unsupported)?;
        let raw = self.tensors.matrix(&rows.tensor.name, rows.stored(), of.columns)?;
        Ok((raw, (rows.first..rows.first + rows.taken(), rows.stored())))
    }

    pub(super) fn norm(&self, of: &plan::Norm, len: usize) -> Result<NormWeight, ModelError> {
        self.norm_numbers(of, len).map(|weights| lanes(&weights))
    }

    /// Weights of a norm as they multiply, or as they are stored.
    pub(super) fn norm_numbers(&self, of: &plan::Norm, len: usize) -> Result<Vec<f32>, ModelError> {
        match self.norms_as_stored {
            true => plan::Norm { centred: false, ..of.clone() }.read(self.tensors.0, len),
            false => of.read(self.tensors.0, len),
        }
    }
}

/// The stretches of adjacent rows.
fn adjacent(rows: &Rows) -> impl Iterator<Item = Range<usize>> {
    let (len, count) = if rows.step == rows.len { (rows.taken(), 1) } else { (rows.len, rows.count) };
    let (first, step) = (rows.first, rows.step);
    (0..count).map(move |group| first + group * step..first + group * step + len)
}

/// Two results, or the first error.
pub(super) fn both<T>([first, second]: [Result<T, ModelError>; 2]) -> Result<[T; 2], ModelError> {
    Ok([first?, second?])
}

fn spec((source, config, plan): Source<'_>, weights: &Weights, kv: &KvShape) -> ModelSpec {
    let mut info = config.describe(source.name(), source.file_name());
    info.own_name = source.other_name();
    info.weight_bytes = weights.bytes() as u64;
    info.active_weights = plan.active_weights();
    let experts = weights.layers.iter().filter_map(|layer| layer.feed.experts_met()).reduce(ExpertsMet::and);
    (info.expert_bytes, info.expert_row_bytes) = experts.map_or((0, 0), |experts| (experts.bytes, experts.row_bytes));
    info.kv_bytes_per_token = kv.bytes_per_position();
    info.unfolded_kv_bytes_per_token = size_of::<f32>() as u64 * plan.unfolded_values();
    ModelSpec {
        info,
        ctx_len: kv.ctx_len,
        backend: "native",
        device: format!("cpu ({})", weights.cpu.isa.name()),
        dtype: weights.layers.first().map_or("none", |layer| layer.feed.down().dtype()).to_owned(),
        threads: weights.cpu.pool.threads(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::load::OpenModel;
    use crate::native::testing::{Noise, tiny_gguf};
    use crate::{LogitRows, Model};
    use draftscope_kernels::{Isa, Pool};
    use draftscope_protocol::TokenId;

    fn load(bytes: &[u8], isa: Isa, threads: usize) -> Result<NativeLlama, ModelError> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        let opened = OpenModel::open(file.path())?;
        llama(opened.parts(), (64, Cpu::new(Pool::new(threads), isa)), &mut |_, _| {})
    }

    #[test]
    fn mixed_encodings_run_alike_on_every_instruction_set_and_cut() {
        let bytes = tiny_gguf("");
        let tokens: Vec<_> = (0..40).map(|i| TokenId(i * 13 % 70)).collect();
        let whole = load(&bytes, Isa::PORTABLE, 1).unwrap().forward(&tokens, LogitRows::All).unwrap();
        assert_eq!((whole.logits.len(), whole.logits.width(), whole.hidden.width()), (40, 70, 64));
        for isa in Isa::available() {
            let mut model = load(&bytes, isa, 3).unwrap();
            for (at, token) in tokens.iter().enumerate() {
                let one = model.forward(&[*token], LogitRows::Last).unwrap();
                assert!(one.logits.row(0) == whole.logits.row(at), "{}, position {at}", isa.name());
            }
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        for name in ["output_norm.weight", "blk.1.attn_v.weight", "token_embd.weight"] {
            let error = load(&tiny_gguf(name), Isa::detect(), 1).unwrap_err();
            assert!(matches!(&error, ModelError::MissingTensor(missing) if missing == name), "{error}");
        }
        assert!(matches!(load(b"GGUF\x03", Isa::detect(), 1), Err(ModelError::Corrupt { .. })));
    }

    #[test]
    fn damaged_files_are_errors_not_panics() {
        let whole = tiny_gguf("");
        for cut in [0, 3, 24, 100, 700, whole.len() / 2, whole.len() - 100] {
            assert!(load(&whole[..cut], Isa::detect(), 1).is_err(), "cut to {cut}");
        }
        let mut noise = Noise(11);
        for _ in 0..300 {
            let mut bytes = whole.clone();
            let at = noise.bits() as usize % 1800;
            bytes[at] = noise.bits() as u8;
            if let Ok(mut model) = load(&bytes, Isa::detect(), 1) {
                let _ = model.forward(&[TokenId(1), TokenId(2)], LogitRows::All);
            }
        }
    }
}
