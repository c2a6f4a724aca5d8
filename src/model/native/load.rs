//! From a model on disk to a [`NativeLlama`]: sizes checked, tensors packed one after the other.
//!
//! A model that asks for something this backend does not do is an error here, never a silent difference later; no file
//! content can make it panic.

use std::sync::Arc;

use super::cache::{AngleTable, KvCache, KvShape};
use super::gate_up::GateUp;
use super::layer::{BlockShape, Layer, NormWeight};
use super::llama::{NativeLlama, Weights};
use super::matrix::{Cpu, Matrix, Part, RowOrder};
use super::mtp::MtpWeights;
use super::pack::lanes;
use super::tensors::{RawTensor, Tensors};
use crate::model::files::{MatrixForm, ModelFiles};
use crate::model::nn::{PairOrder, TransformerConfig};
use crate::model::{ModelError, ModelSpec};
use draftscope_kernels::{BLOCK, Encoding, MAX_HEAD_DIM};

/// Reads the model in `source`.
pub(in crate::model) fn llama(
    (source, config): (&ModelFiles, &TransformerConfig),
    (ctx_len, cpu): (usize, Cpu),
    on_layer: &mut dyn FnMut(usize, usize),
) -> Result<NativeLlama, ModelError> {
    let shape = BlockShape::of(config);
    check_shape(&shape)?;
    let kv = KvShape { layers: config.layers, kv_heads: shape.kv_heads, head_dim: shape.head_dim, ctx_len };
    let angles = AngleTable::new(&config.rope, shape.head_dim, ctx_len);
    cpu.expect(tiled_bytes(source, (config.layers, 0), false));
    let weights = Loader { tensors: Tensors(source), cpu: &cpu, shape, config }.read(on_layer)?;
    let (layers, final_norm, embedding, head) = weights;
    let weights = Weights { cpu, shape, layers, final_norm, embedding, head };
    let spec = spec(source, config, &weights, kv);
    Ok(NativeLlama::new(Arc::new(weights), spec, KvCache::new(kv), angles))
}

/// Reads the draft module of this index in the model's own files.
pub(in crate::model) fn module(
    source: &ModelFiles,
    config: &TransformerConfig,
    (cpu, index): (&Cpu, usize),
) -> Result<MtpWeights, ModelError> {
    let [before, all] = [index, index + 1].map(|count| tiled_bytes(source, (config.layers, count), true));
    cpu.expect(all - before + (8 * config.d_model * config.d_model) as u64);
    Loader { tensors: Tensors(source), cpu, shape: BlockShape::of(config), config }.module(index)
}

/// Bytes of the matrices, as tiles, of a target of so many layers or of its first modules.
pub(in crate::model) fn tiled_bytes(source: &ModelFiles, (layers, modules): (usize, usize), of_module: bool) -> u64 {
    let tensors = source.loaded_tensors(layers, modules);
    let matrices = tensors.iter().filter(|tensor| tensor.of_module == of_module && tensor.shape.len() > 1);
    matrices.map(|tensor| tensor.bytes(MatrixForm::Tiles)).sum()
}

fn unsupported(what: impl std::fmt::Display) -> ModelError {
    ModelError::Unsupported(format!("the native backend does not run {what}; try `--backend candle`"))
}

/// What the kernels require of sizes.
pub(in crate::model) fn check_shape(shape: &BlockShape) -> Result<(), ModelError> {
    let BlockShape { d_model, heads, kv_heads, head_dim, d_ff, .. } = *shape;
    if heads == 0 || kv_heads == 0 || heads % kv_heads != 0 {
        return Err(ModelError::Metadata(format!("{heads} heads cannot share {kv_heads} KV heads")));
    }
    if head_dim == 0
        || head_dim > MAX_HEAD_DIM
        || [d_model, head_dim, d_ff].iter().any(|&len| len == 0 || len % BLOCK != 0)
    {
        return Err(unsupported(format!("widths {d_model}, {d_ff} with heads of {head_dim}")));
    }
    Ok(())
}

/// Blocks, final norm, embedding unless it is the head, head.
type Parts = (Vec<Layer>, NormWeight, Option<Matrix>, Matrix);

/// Packs tensors one after the other, and releases each one's file pages.
struct Loader<'a> {
    tensors: Tensors<'a>,
    cpu: &'a Cpu,
    shape: BlockShape,
    config: &'a TransformerConfig,
}

impl Loader<'_> {
    fn read(&self, on_layer: &mut dyn FnMut(usize, usize)) -> Result<Parts, ModelError> {
        let (v, d) = (self.config.vocab, self.shape.d_model);
        // the largest first: a matrix takes memory twice while it is packed
        let tokens = self.matrix("token_embd.weight", v, d)?;
        let (head, embedding) = match self.config.tied {
            true => (tokens, None),
            false => (self.matrix("output.weight", v, d)?, Some(tokens)),
        };
        let layer = |index| {
            on_layer(index, self.config.layers);
            self.layer(index)
        };
        let layers = (0..self.config.layers).map(layer).collect::<Result<Vec<_>, _>>()?;
        Ok((layers, self.norm("output_norm.weight", d)?, embedding, head))
    }

    fn layer(&self, index: usize) -> Result<Layer, ModelError> {
        let BlockShape { d_model: d, d_ff, head_dim, heads, .. } = self.shape;
        let name = |part: &str| format!("blk.{index}.{part}.weight");
        let head_norms = match self.config.conventions.qk_norm {
            true => Some([self.norm(&name("attn_q_norm"), head_dim)?, self.norm(&name("attn_k_norm"), head_dim)?]),
            false => None,
        };
        Ok(Layer {
            attn_norm: self.norm(&name("attn_norm"), d)?,
            qkv: self.qkv(&name)?,
            head_norms,
            out: self.matrix(&name("attn_output"), d, heads * head_dim)?,
            ffn_norm: self.norm(&name("ffn_norm"), d)?,
            gate_up: self.gate_up(&[name("ffn_gate"), name("ffn_up")])?,
            down: self.matrix(&name("ffn_down"), d, d_ff)?,
        })
    }

    /// A draft module in the model's own files: its block follows the model's.
    fn module(&self, index: usize) -> Result<MtpWeights, ModelError> {
        let (d, block) = (self.shape.d_model, self.config.layers + index);
        let part = |name: &str| format!("blk.{block}.nextn.{name}.weight");
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
            embedding_norm: self.norm(&part("enorm"), d)?,
            hidden_norm: self.norm(&part("hnorm"), d)?,
            from_embedding: half(false),
            from_hidden: half(true),
            layer: self.layer(block)?,
            final_norm: self.norm(&part("shared_head_norm"), d)?,
        })
    }

    fn qkv(&self, name: &dyn Fn(&str) -> String) -> Result<Matrix, ModelError> {
        let BlockShape { d_model: d, head_dim, heads, kv_heads, .. } = self.shape;
        let turned = match self.config.pairs {
            PairOrder::Interleaved => RowOrder::Deinterleaved { head_dim },
            PairOrder::HalfSplit => RowOrder::Stored,
        };
        let parts = [("attn_q", heads, turned), ("attn_k", kv_heads, turned), ("attn_v", kv_heads, RowOrder::Stored)];
        let read = |&(part, heads, _): &(&str, usize, RowOrder)| self.tensors.matrix(&name(part), heads * head_dim, d);
        let stored = parts.iter().map(read).collect::<Result<Vec<RawTensor<'_>>, _>>()?;
        let packed: Vec<_> =
            stored.iter().zip(parts).map(|(raw, (_, heads, order))| raw.part(heads * head_dim, order)).collect();
        let mut matrix = Matrix::pack(self.cpu, d, &packed);
        if self.config.conventions.qkv_bias {
            let read = |&(part, heads, _): &(&str, usize, RowOrder)| {
                self.tensors.0.vector(&name(part).replace(".weight", ".bias"), heads * head_dim)
            };
            // heads are whole tiles, and rows of families with biases are not reordered
            matrix = matrix.with_bias(&parts.iter().map(read).collect::<Result<Vec<_>, _>>()?.concat());
        }
        parts.iter().for_each(|(part, ..)| self.tensors.0.release(&name(part)));
        Ok(matrix)
    }

    fn gate_up(&self, names: &[String; 2]) -> Result<GateUp, ModelError> {
        let BlockShape { d_model: d, d_ff, .. } = self.shape;
        let [gate, up] = names.each_ref().map(|name| self.tensors.matrix(name, d_ff, d));
        let both = [gate?, up?];
        let packed = GateUp::pack(self.cpu, d, both.each_ref().map(|raw| raw.part(d_ff, RowOrder::Stored)));
        names.iter().for_each(|name| self.tensors.0.release(name));
        Ok(packed)
    }

    fn matrix(&self, name: &str, rows: usize, k: usize) -> Result<Matrix, ModelError> {
        let raw = self.tensors.matrix(name, rows, k)?;
        let matrix = Matrix::pack(self.cpu, k, &[raw.part(rows, RowOrder::Stored)]);
        self.tensors.0.release(name);
        Ok(matrix)
    }

    fn norm(&self, name: &str, len: usize) -> Result<NormWeight, ModelError> {
        Ok(lanes(&self.tensors.0.vector(name, len)?))
    }
}

fn spec(source: &ModelFiles, config: &TransformerConfig, weights: &Weights, kv: KvShape) -> ModelSpec {
    let mut info = config.describe(source.name(), source.file_name());
    info.own_name = source.other_name();
    info.weight_bytes = weights.bytes() as u64;
    info.kv_bytes_per_token = kv.bytes_per_position();
    ModelSpec {
        info,
        ctx_len: kv.ctx_len,
        backend: "native",
        device: format!("cpu ({})", weights.cpu.isa.name()),
        dtype: weights.layers.first().map_or("none", |layer| layer.down.dtype()).to_owned(),
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
