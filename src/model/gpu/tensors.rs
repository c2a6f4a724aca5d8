//! A model's tensors, packed and uploaded one after the other.

use draftscope_gpu::{BlockWeights, Buffer, Gpu, Matrix, Shape, StoredRows, Style};
use draftscope_kernels::Encoding;

use crate::model::ModelError;
use crate::model::files::{ModelFiles, Stored};
use crate::model::nn::{PairOrder, RopeSpec, TransformerConfig};

/// Uploads tensors of a model's files.
#[derive(Clone, Copy)]
pub(in crate::model) struct Uploader<'a> {
    pub(in crate::model) gpu: &'a Gpu,
    pub(in crate::model) source: &'a ModelFiles,
    pub(in crate::model) config: &'a TransformerConfig,
    /// Whether norms multiply by 1 + w, as checkpoints of some families store them.
    pub(in crate::model) centred: bool,
}

/// A tensor as stored, `[rows, k]`.
struct Raw<'a> {
    stored: Stored<'a>,
}

/// Rows that are taken of a tensor.
#[derive(Clone, Copy)]
pub(in crate::model) struct Taken<'a> {
    pub(in crate::model) name: &'a str,
    /// Rows that it has.
    pub(in crate::model) stored: usize,
    /// Rows that are taken.
    pub(in crate::model) rows: usize,
    /// For each its place among the stored ones.
    pub(in crate::model) order: &'a dyn Fn(usize) -> usize,
}

impl<'a> Taken<'a> {
    /// All rows as they lie.
    pub(in crate::model) fn whole(name: &'a str, rows: usize) -> Self {
        Self { name, stored: rows, rows, order: &|row| row }
    }
}

/// The stored row for each row of a head in half-split order of rotary pairs.
pub(in crate::model) fn half_split(pairs: PairOrder, head_dim: usize, row: usize) -> usize {
    match pairs {
        PairOrder::HalfSplit => row,
        PairOrder::Interleaved => {
            let (head, i, half) = (row / head_dim, row % head_dim, head_dim / 2);
            head * head_dim + if i < half { 2 * i } else { 2 * (i - half) + 1 }
        }
    }
}

/// Cosine and sine of each position and pair of a head, `[positions][head_dim / 2]`.
pub(in crate::model) fn angles(gpu: &Gpu, rope: &RopeSpec, head_dim: usize, positions: usize) -> Buffer {
    let (frequencies, amplitude) = (rope.frequencies(head_dim), rope.amplitude());
    let angle = |(position, frequency): (usize, &f64)| {
        let (sin, cos) = (position as f64 * frequency).sin_cos();
        [cos, sin].map(|x| (x * amplitude) as f32)
    };
    let all: Vec<[f32; 2]> =
        (0..positions).flat_map(|position| frequencies.iter().map(move |f| (position, f))).map(angle).collect();
    gpu.upload(&all)
}

impl Uploader<'_> {
    fn raw(&self, name: &str, rows: usize, k: usize) -> Result<Raw<'_>, ModelError> {
        let stored = self.source.stored(name, &[rows, k])?.compact();
        let bytes = stored.encoding().row_bytes(k).and_then(|row| row.checked_mul(rows));
        if bytes != Some(stored.bytes().len()) {
            return Err(Self::odd_rows(name, k));
        }
        Ok(Raw { stored })
    }

    /// Matrices of `k` columns below each other.
    pub(in crate::model) fn stack(&self, k: usize, parts: &[Taken<'_>]) -> Result<Matrix, ModelError> {
        let raws = parts.iter().map(|part| self.raw(part.name, part.stored, k)).collect::<Result<Vec<_>, _>>()?;
        let sources = raws.iter().zip(parts).map(|(raw, part)| StoredRows {
            encoding: raw.stored.encoding(),
            bytes: raw.stored.bytes(),
            order: part.order,
            rows: part.rows,
        });
        let matrix = Matrix::upload(self.gpu, k, &sources.collect::<Vec<_>>())?;
        parts.iter().for_each(|part| self.source.release(part.name));
        Ok(matrix)
    }

    /// A matrix `[rows, k]`.
    pub(in crate::model) fn matrix(&self, name: &str, rows: usize, k: usize) -> Result<Matrix, ModelError> {
        self.stack(k, &[Taken::whole(name, rows)])
    }

    /// The left and the right half of a matrix `[rows, 2 k]`.
    pub(in crate::model) fn halves(&self, name: &str, rows: usize, k: usize) -> Result<[Matrix; 2], ModelError> {
        let raw = self.raw(name, rows, 2 * k)?;
        let encoding = raw.stored.encoding();
        if encoding.row_bytes(k).map(|half| 2 * half) != encoding.row_bytes(2 * k) {
            return Err(Self::odd_rows(name, k));
        }
        // rows of 2 k columns are twice as many of k columns
        let half = |index: usize| {
            let order = move |row: usize| 2 * row + index;
            Matrix::upload(self.gpu, k, &[StoredRows { encoding, bytes: raw.stored.bytes(), order: &order, rows }])
        };
        Ok([half(0)?, half(1)?])
    }

    fn odd_rows(name: &str, k: usize) -> ModelError {
        ModelError::Unsupported(format!(
            "the GPU backend needs rows of whole blocks, and those of tensor '{name}' ({k} weights) are not; choose --device cpu"
        ))
    }

    /// A norm's weights.
    pub(in crate::model) fn norm_weights(&self, name: &str, len: usize) -> Result<Vec<f32>, ModelError> {
        let mut weights = self.source.vector(name, len)?;
        if self.centred {
            weights.iter_mut().for_each(|weight| *weight += 1.0);
        }
        Ok(weights)
    }

    /// The same in device memory.
    pub(in crate::model) fn norm(&self, name: &str, len: usize) -> Result<Buffer, ModelError> {
        Ok(self.gpu.upload(&self.norm_weights(name, len)?))
    }

    /// A block.
    pub(in crate::model) fn block(&self, index: usize) -> Result<BlockWeights, ModelError> {
        let Shape { d_model: d, heads, kv_heads, head_dim, d_ff, .. } = shape(self.config);
        let name = |part: &str| format!("blk.{index}.{part}.weight");
        let paired = |row| half_split(self.config.pairs, head_dim, row);
        let qkv =
            [("attn_q", heads), ("attn_k", kv_heads), ("attn_v", kv_heads)].map(|(part, heads)| (name(part), heads));
        let bias = match self.config.conventions.qkv_bias {
            true => {
                // rows of families with biases are in the order of their pairs already
                let of = |(name, heads): &(String, usize)| {
                    self.source.vector(&name.replace(".weight", ".bias"), heads * head_dim)
                };
                Some(self.gpu.upload(&qkv.iter().map(of).collect::<Result<Vec<_>, _>>()?.concat()))
            }
            false => None,
        };
        let head_norms = match self.config.conventions.qk_norm {
            true => {
                let norms = ["attn_q_norm", "attn_k_norm"].map(|part| self.norm_weights(&name(part), head_dim));
                let [queries, keys] = norms;
                Some(self.gpu.upload(&[queries?, keys?].concat()))
            }
            false => None,
        };
        let [q, k, v] = qkv.each_ref().map(|(name, heads)| Taken::whole(name, heads * head_dim));
        let parts = [Taken { order: &paired, ..q }, Taken { order: &paired, ..k }, v];
        // both halves of the feed-forward layer go through one kernel, which reads one form
        let [gate, up] = self.same_form([(&name("ffn_gate"), [d_ff, d]), (&name("ffn_up"), [d_ff, d])])?;
        Ok(BlockWeights {
            attn_norm: self.norm(&name("attn_norm"), d)?,
            qkv: self.stack(d, &parts)?,
            bias,
            head_norms,
            out: self.matrix(&name("attn_output"), d, heads * head_dim)?,
            ffn_norm: self.norm(&name("ffn_norm"), d)?,
            gate,
            up,
            down: self.matrix(&name("ffn_down"), d, d_ff)?,
            style: Style::default(),
        })
    }

    /// Two matrices, each `[rows, k]`, in one form.
    pub(in crate::model) fn same_form(&self, parts: [(&str, [usize; 2]); 2]) -> Result<[Matrix; 2], ModelError> {
        let [a, b] = parts.map(|(name, [rows, k])| self.raw(name, rows, k));
        let raws = [a?, b?];
        let encodings = raws.each_ref().map(|raw| raw.stored.encoding());
        let upload = |(raw, (_, [rows, k])): (&Raw<'_>, (&str, [usize; 2]))| {
            let (encoding, bytes) = (raw.stored.encoding(), raw.stored.bytes());
            Matrix::upload_as(self.gpu, (k, &encodings), &[StoredRows { encoding, bytes, order: &|row| row, rows }])
        };
        let [a, b] = [0, 1].map(|index| upload((&raws[index], parts[index])));
        parts.iter().for_each(|(name, _)| self.source.release(name));
        Ok([a?, b?])
    }
}

/// Sizes of the blocks of a model.
pub(in crate::model) fn shape(config: &TransformerConfig) -> Shape {
    let (d_model, heads, kv_heads, head_dim) = (config.d_model, config.heads, config.kv_heads, config.head_dim);
    Shape { d_model, heads, kv_heads, head_dim, d_ff: config.ffn, eps: config.norm_eps }
}

/// Checks what the kernels need of sizes.
///
/// # Errors
/// [`ModelError::Metadata`] or [`ModelError::Unsupported`].
pub(in crate::model) fn check_shape(shape: &Shape) -> Result<(), ModelError> {
    let Shape { d_model, heads, kv_heads, head_dim, d_ff, .. } = *shape;
    if heads == 0 || kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
        return Err(ModelError::Metadata(format!("{heads} heads cannot share {kv_heads} KV heads")));
    }
    let is_odd = |len: usize| len == 0 || !len.is_multiple_of(32);
    // heads of 16 values are joined in pairs
    let is_narrow = head_dim == 16 && heads.is_multiple_of(2);
    let odd_heads = (is_odd(head_dim) && !is_narrow) || head_dim > draftscope_gpu::MAX_HEAD_DIM;
    if odd_heads || [d_model, d_ff].into_iter().any(is_odd) {
        return Err(ModelError::Unsupported(format!(
            "the GPU backend does not run widths {d_model}, {d_ff} with heads of {head_dim}; choose --device cpu"
        )));
    }
    Ok(())
}

/// Packs rows of `k` numbers in blocks of 4-bit codes: lossy, for drafters.
///
/// # Errors
/// When the device has no memory left.
pub(in crate::model) fn four_bits(gpu: &Gpu, k: usize, numbers: &[f32]) -> Result<Matrix, ModelError> {
    let bytes: Vec<u8> = numbers.as_chunks().0.iter().flat_map(Encoding::to_q4_1).collect();
    let rows = numbers.len() / k;
    Ok(Matrix::upload(gpu, k, &[StoredRows { encoding: Encoding::Q4_1, bytes: &bytes, order: &|row| row, rows }])?)
}
