//! From a model on disk to a [`NativeLlama`]: sizes checked, tensors packed one after the other, as its plan says.
//!
//! A model that asks for something this backend does not do is an error here, never a silent difference later; no file
//! content can make it panic.

use std::ops::Range;
use std::sync::Arc;

use super::attention::Attention;
use super::cache::{AngleTable, KvCache, KvShape};
use super::layer::{BlockShape, Layer, NormWeight};
use super::llama::{NativeLlama, Weights};
use super::matrix::{Cpu, Matrix, Part, RowOrder};
use super::mixer::Mixer;
use super::mtp::MtpWeights;
use super::pack::lanes;
use super::parts::{LayerParts, rows_of};
use super::rule::Rule;
use super::tensors::{RawTensor, Tensors};
use crate::model::files::{MatrixForm, ModelFiles};
use crate::model::nn::{PairOrder, TransformerConfig};
use crate::model::plan::{self, Head, Over, Plan};
use crate::model::{ExpertsMet, ModelError, ModelSpec};
use draftscope_kernels::{BLOCK, Encoding, MAX_HEAD_DIM};

/// A model on disk: its files, its sizes, and what it computes.
pub type Source<'a> = (&'a ModelFiles, &'a TransformerConfig, &'a Plan);

/// Reads the model in `source`.
pub(in crate::model) fn llama(
    (source, config, plan): Source<'_>,
    (ctx_len, cpu): (usize, Cpu),
    on_layer: &mut dyn FnMut(usize, usize),
) -> Result<NativeLlama, ModelError> {
    let shape = BlockShape::of(config);
    check_shape(&shape)?;
    let kv = KvShape { layers: config.layers, kv_heads: shape.kv_heads, head_dim: shape.head_dim, ctx_len };
    let tables = plan.angles.iter().map(|angles| AngleTable::new(&angles.rope, angles.width, ctx_len)).collect();
    cpu.expect(tiled_bytes(source, (config.layers, 0), false));
    let weights = Loader { tensors: Tensors(source), cpu: &cpu, shape, angles: &plan.angles }.read(plan, on_layer)?;
    let (layers, final_norm, embedding, head) = weights;
    let weights = Weights {
        cpu,
        shape,
        layers,
        final_norm,
        embedding,
        head,
        embedding_scale: plan.embedding.scale as f32,
        logit_scale: plan.end.scale as f32,
        logit_cap: plan.end.cap.map(|cap| cap as f32),
    };
    let spec = spec(source, config, &weights, kv);
    Ok(NativeLlama::new(Arc::new(weights), spec, KvCache::new(kv), tables))
}

/// Reads the draft module of this index in the model's own files; `layer` describes its block.
pub(in crate::model) fn module(
    source: &ModelFiles,
    config: &TransformerConfig,
    (cpu, index): (&Cpu, usize),
    layer: &plan::Layer,
) -> Result<MtpWeights, ModelError> {
    let [before, all] = [index, index + 1].map(|count| tiled_bytes(source, (config.layers, count), true));
    cpu.expect(all - before + (8 * config.d_model * config.d_model) as u64);
    let angles = &[];
    Loader { tensors: Tensors(source), cpu, shape: BlockShape::of(config), angles }.module(config.layers + index, layer)
}

/// Bytes of the matrices, as tiles, of a target of so many layers or of its first modules.
pub(in crate::model) fn tiled_bytes(source: &ModelFiles, (layers, modules): (usize, usize), of_module: bool) -> u64 {
    let tensors = source.loaded_tensors(layers, modules);
    let matrices = tensors.iter().filter(|tensor| tensor.of_module == of_module && tensor.shape.len() > 1);
    matrices.map(|tensor| tensor.bytes(MatrixForm::Tiles)).sum()
}

pub(super) fn unsupported(what: impl std::fmt::Display) -> ModelError {
    ModelError::Unsupported(format!("the native backend does not run {what}; try `--backend candle`"))
}

/// What the kernels require of sizes.
pub(in crate::model) fn check_shape(shape: &BlockShape) -> Result<(), ModelError> {
    let BlockShape { d_model, heads, kv_heads, head_dim, .. } = *shape;
    if heads == 0 || kv_heads == 0 || heads % kv_heads != 0 {
        return Err(ModelError::Metadata(format!("{heads} heads cannot share {kv_heads} KV heads")));
    }
    if head_dim > MAX_HEAD_DIM || [d_model, head_dim].iter().any(|&len| len == 0 || len % BLOCK != 0) {
        return Err(unsupported(format!("a width of {d_model} with heads of {head_dim}")));
    }
    Ok(())
}

/// Blocks, final norm, embedding unless it is the head, head.
type Parts = (Vec<Layer>, NormWeight, Option<Matrix>, Matrix);

/// Packs tensors one after the other, and releases each one's file pages.
pub(super) struct Loader<'a> {
    pub(super) tensors: Tensors<'a>,
    pub(super) cpu: &'a Cpu,
    shape: BlockShape,
    /// Tables that rotate parts of heads; whole heads rotate by others.
    angles: &'a [plan::Angles],
}

impl Loader<'_> {
    fn read(&self, plan: &Plan, on_layer: &mut dyn FnMut(usize, usize)) -> Result<Parts, ModelError> {
        // the largest first: a matrix takes memory twice while it is packed
        let tokens = self.matrix(&plan.embedding.table)?;
        let (head, embedding) = match &plan.end.head {
            Head::Tied => (tokens, None),
            Head::Own(head) => (self.matrix(head)?, Some(tokens)),
        };
        let layer = |(index, layer)| {
            on_layer(index, plan.layers.len());
            self.layer(layer)
        };
        let layers = plan.layers.iter().enumerate().map(layer).collect::<Result<Vec<_>, _>>()?;
        Ok((layers, self.norm(&plan.end.norm, plan.width)?, embedding, head))
    }

    fn layer(&self, layer: &plan::Layer) -> Result<Layer, ModelError> {
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
        let [head_norms, width_norms] = self.query_norms(&parts)?;
        Ok(Layer {
            attn_norm,
            mixer: Mixer::Attention(Attention {
                qkv: self.qkv(&parts)?,
                head_norms,
                width_norms,
                rule: Rule::of(parts.attention),
            }),
            out: self.scaled(&parts.attention.o, scales[0])?,
            ffn_norm,
            feed: self.feed(parts.feed, scales[1])?,
            after_norms,
            raw: parts.before.map(|norm| norm.is_none()),
            scales,
        })
    }

    /// Norms of queries and keys: head by head, or over all heads. Their weights are in the order of the rows.
    fn query_norms(&self, parts: &LayerParts<'_>) -> Result<[Option<[NormWeight; 2]>; 2], ModelError> {
        let order = self.order(parts);
        let read = |norm: &plan::HeadNorm, heads: usize| {
            let len = if norm.over == Over::Head { self.shape.head_dim } else { heads * self.shape.head_dim };
            let stored = norm.norm.read(self.tensors.0, len)?;
            Ok::<_, ModelError>(lanes(&(0..len).map(|row| stored[order.stored_row(row)]).collect::<Vec<_>>()))
        };
        let Some([q, k]) = parts.query_norms else { return Ok([None, None]) };
        let norms = Some(both([read(q, self.shape.heads), read(k, self.shape.kv_heads)])?);
        Ok(if q.over == Over::Head { [norms, None] } else { [None, norms] })
    }

    /// The order in which rows of queries and keys are packed.
    fn order(&self, parts: &LayerParts<'_>) -> RowOrder {
        let head_dim = self.shape.head_dim;
        let Some(plan::Rotation { table, pairs }) = parts.attention.rotation else { return RowOrder::Stored };
        let (rotated, adjacent) =
            (self.angles.get(table).map_or(head_dim, |angles| angles.width), pairs == PairOrder::Interleaved);
        match rotated == head_dim && !adjacent {
            true => RowOrder::Stored,
            false => RowOrder::Halves { head_dim, rotated, adjacent },
        }
    }

    /// A draft module in the model's own files, whose block has this number.
    fn module(&self, block: usize, layer: &plan::Layer) -> Result<MtpWeights, ModelError> {
        let d = self.shape.d_model;
        let part = |name: &str| format!("blk.{block}.nextn.{name}.weight");
        let norm = |name: &str| Ok::<_, ModelError>(lanes(&self.tensors.0.vector(&part(name), d)?));
        let project = self.tensors.0.stored(&part("eh_proj"), &[d, 2 * d])?.to_f32(&[d, 2 * d])?;
        let half = |second: bool| {
            let rows = project.chunks_exact(2 * d).map(|row| row.split_at(d));
            let bytes = rows.flat_map(|(left, right)| if second { right } else { left }).flat_map(|x| x.to_le_bytes());
            let bytes: Vec<u8> = bytes.collect();
            let part = Part { encoding: Encoding::F32, rows: d, bytes: &bytes, order: RowOrder::Stored };
            Matrix::pack(self.cpu, d, &[part])
        };
        Ok(MtpWeights {
            fuse: None,
            embedding_norm: norm("enorm")?,
            hidden_norm: norm("hnorm")?,
            from_embedding: half(false),
            from_hidden: half(true),
            layer: self.layer(layer)?,
            final_norm: norm("shared_head_norm")?,
        })
    }

    fn qkv(&self, of: &LayerParts<'_>) -> Result<Matrix, ModelError> {
        let turned = self.order(of);
        let parts = [(&of.attention.q, turned), (&of.keys.k, turned), (of.values, RowOrder::Stored)];
        let stored = parts.iter().map(|(part, _)| self.raw(part)).collect::<Result<Vec<_>, _>>()?;
        let packed: Vec<_> =
            stored.iter().zip(parts).map(|((raw, rows), (_, order))| raw.some(rows.0.clone(), rows.1, order)).collect();
        let mut matrix = Matrix::pack(self.cpu, of.attention.q.columns, &packed);
        if parts.iter().any(|(part, _)| part.bias.is_some()) {
            // heads are whole tiles
            let biases = parts.iter().map(|(part, order)| self.bias(part, *order));
            matrix = matrix.with_bias(&biases.collect::<Result<Vec<_>, _>>()?.concat());
        }
        parts.iter().for_each(|(part, _)| self.tensors.0.release(part.name()));
        Ok(matrix)
    }

    /// The bias in the order of the packed rows; zeros if there is none.
    fn bias(&self, part: &plan::Matrix, order: RowOrder) -> Result<Vec<f32>, ModelError> {
        let Some(bias) = &part.bias else { return Ok(vec![0.0; part.rows]) };
        let stored = self.tensors.0.vector(&bias.name, bias.len)?;
        Ok((0..part.rows).map(|row| stored[order.stored_row(row)]).collect())
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
        let (raw, (rows, all)) = self.raw(of)?;
        let matrix = Matrix::pack(self.cpu, of.columns, &[raw.some(rows, all, RowOrder::Stored)]);
        self.tensors.0.release(of.name());
        Ok(matrix)
    }

    /// The tensor of a matrix, its rows, and the number of all rows.
    pub(super) fn raw(&self, of: &plan::Matrix) -> Result<(RawTensor<'_>, (Range<usize>, usize)), ModelError> {
        let rows = rows_of(of).map_err(unsupported)?;
        let raw = self.tensors.matrix(&rows.tensor.name, rows.stored(), of.columns)?;
        Ok((raw, (rows.first..rows.first + rows.taken(), rows.stored())))
    }

    pub(super) fn norm(&self, of: &plan::Norm, len: usize) -> Result<NormWeight, ModelError> {
        Ok(lanes(&of.read(self.tensors.0, len)?))
    }
}

/// Two results, or the first error.
fn both<T>([first, second]: [Result<T, ModelError>; 2]) -> Result<[T; 2], ModelError> {
    Ok([first?, second?])
}

fn spec(source: &ModelFiles, config: &TransformerConfig, weights: &Weights, kv: KvShape) -> ModelSpec {
    let mut info = config.describe(source.name(), source.file_name());
    info.own_name = source.other_name();
    info.weight_bytes = weights.bytes() as u64;
    let experts = weights.layers.iter().filter_map(|layer| layer.feed.experts_met()).reduce(ExpertsMet::and);
    (info.expert_bytes, info.expert_row_bytes) = experts.map_or((0, 0), |experts| (experts.bytes, experts.row_bytes));
    info.kv_bytes_per_token = kv.bytes_per_position();
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
    use crate::model::load::OpenModel;
    use crate::model::native::testing::{Noise, tiny_gguf};
    use crate::model::{LogitRows, Model};
    use crate::protocol::TokenId;
    use draftscope_kernels::{Isa, Pool};

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
