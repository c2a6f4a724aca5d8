//! From a GGUF file to a [`NativeLlama`]: metadata checked, tensors packed one after the other.
//!
//! Names and keys are llama.cpp's. Whatever the file asks for that this backend does not do is an
//! error here, never a silent difference later; nothing in a file can make it panic.

use std::sync::Arc;

use super::{
    cache::{AngleTable, KvCache, KvShape, Rope},
    gguf_source::{GgufSource, RawTensor},
    kernel::{BLOCK, LANES, MAX_HEAD_DIM},
    layer::{BlockShape, Layer, NormWeight},
    llama::{NativeLlama, Weights},
    matrix::{Cpu, Matrix, Part, RowOrder},
};
use crate::{
    model::{ModelError, ModelSpec, gguf::GgufFile},
    protocol::ModelInfo,
};

/// Most that a width or count may be; keeps products of two far from overflow.
const LIMIT: usize = 1 << 24;

/// Reads the model in `gguf`.
pub(super) fn llama(gguf: &GgufFile, ctx_len: usize, cpu: Cpu) -> Result<NativeLlama, ModelError> {
    let source = GgufSource(gguf);
    let architecture = source.text("general.architecture").unwrap_or("unknown").to_owned();
    if architecture != "llama" {
        return Err(unsupported(format!("architecture '{architecture}'")));
    }
    refuse_extras(source)?;
    let shape = block_shape(source)?;
    let layers = bounded(source, "llama.block_count")?;
    let kv = KvShape { layers, kv_heads: shape.kv_heads, head_dim: shape.head_dim, ctx_len };
    let angles = AngleTable::new(&rope(source, &shape)?, shape.head_dim, ctx_len);
    let weights = read_weights(source, cpu, shape, layers)?;
    let spec = spec(source, &weights, kv)?;
    Ok(NativeLlama::new(Arc::new(weights), spec, KvCache::new(kv), angles))
}

fn unsupported(what: impl std::fmt::Display) -> ModelError {
    ModelError::Unsupported(format!("the native backend does not run {what}; try `--backend candle`"))
}

/// Variants that share the architecture's name.
fn refuse_extras(source: GgufSource<'_>) -> Result<(), ModelError> {
    if source.maybe_count("llama.expert_count")?.unwrap_or(0) > 0 {
        return Err(unsupported("mixtures of experts"));
    }
    if ["blk.0.attn_q.bias", "blk.0.attn_output.bias", "output.bias"].iter().any(|name| source.has(name)) {
        return Err(unsupported("models with biases"));
    }
    Ok(())
}

fn bounded(source: GgufSource<'_>, key: &str) -> Result<usize, ModelError> {
    let count = source.count(key)?;
    if (1..LIMIT).contains(&count) { Ok(count) } else { Err(ModelError::Metadata(format!("{key} is {count}"))) }
}

fn block_shape(source: GgufSource<'_>) -> Result<BlockShape, ModelError> {
    let d_model = bounded(source, "llama.embedding_length")?;
    let d_ff = bounded(source, "llama.feed_forward_length")?;
    let heads = bounded(source, "llama.attention.head_count")?;
    let kv_heads = match source.maybe_count("llama.attention.head_count_kv")? {
        Some(_) => bounded(source, "llama.attention.head_count_kv")?,
        None => heads,
    };
    let head_dim = match source.maybe_count("llama.attention.key_length")? {
        Some(_) => bounded(source, "llama.attention.key_length")?,
        None => d_model / heads,
    };
    let eps = source.number("llama.attention.layer_norm_rms_epsilon", 1e-5)?;
    let shape = BlockShape { d_model, heads, kv_heads, head_dim, d_ff, eps };
    check_shape(&shape)?;
    for key in ["llama.attention.value_length", "llama.rope.dimension_count"] {
        if source.maybe_count(key)?.is_some_and(|len| len != head_dim) {
            return Err(unsupported(format!("{key} other than the head's {head_dim}")));
        }
    }
    Ok(shape)
}

/// What the kernels ask of sizes.
pub(super) fn check_shape(shape: &BlockShape) -> Result<(), ModelError> {
    let BlockShape { d_model, heads, kv_heads, head_dim, d_ff, .. } = *shape;
    if kv_heads == 0 || heads % kv_heads != 0 {
        return Err(ModelError::Metadata(format!("{heads} heads cannot share {kv_heads} KV heads")));
    }
    if head_dim == 0 || head_dim > MAX_HEAD_DIM || [d_model, head_dim, d_ff].iter().any(|len| len % BLOCK != 0) {
        return Err(unsupported(format!("widths {d_model}, {d_ff} with heads of {head_dim}")));
    }
    Ok(())
}

fn rope(source: GgufSource<'_>, shape: &BlockShape) -> Result<Rope, ModelError> {
    let freq_factors = if source.has("rope_freqs.weight") {
        source.vector("rope_freqs.weight", shape.head_dim / 2)?
    } else {
        Vec::new()
    };
    let linear_factor = match source.text("llama.rope.scaling.type") {
        None | Some("none") => 1.0,
        Some("linear") => source.number("llama.rope.scaling.factor", 1.0)?,
        Some(other) => return Err(unsupported(format!("rotary scaling '{other}'"))),
    };
    Ok(Rope {
        theta: f64::from(source.number("llama.rope.freq_base", 10_000.0)?),
        linear_factor: f64::from(linear_factor),
        freq_factors,
    })
}

fn read_weights(source: GgufSource<'_>, cpu: Cpu, shape: BlockShape, layers: usize) -> Result<Weights, ModelError> {
    let d = shape.d_model;
    let vocab = source.shape("token_embd.weight")?.first().copied().unwrap_or(0);
    if !(1..LIMIT).contains(&vocab) {
        return Err(ModelError::Metadata(format!("a vocabulary of {vocab}")));
    }
    let layers = (0..layers).map(|index| read_layer(source, &cpu, &shape, index));
    let layers = layers.collect::<Result<Vec<_>, _>>()?;
    let final_norm = read_norm(source, "output_norm.weight", d)?;
    let tokens = read_matrix(source, &cpu, "token_embd.weight", vocab, d)?;
    let (head, embedding) = if source.has("output.weight") {
        (read_matrix(source, &cpu, "output.weight", vocab, d)?, Some(tokens))
    } else {
        (tokens, None)
    };
    Ok(Weights { cpu, shape, layers, final_norm, embedding, head })
}

fn read_layer(source: GgufSource<'_>, cpu: &Cpu, shape: &BlockShape, index: usize) -> Result<Layer, ModelError> {
    let BlockShape { d_model: d, d_ff, head_dim, .. } = *shape;
    let (q_rows, kv_rows) = (shape.heads * head_dim, shape.kv_heads * head_dim);
    let name = |part: &str| format!("blk.{index}.{part}.weight");
    let q = source.matrix(&name("attn_q"), q_rows, d)?;
    let k = source.matrix(&name("attn_k"), kv_rows, d)?;
    let v = source.matrix(&name("attn_v"), kv_rows, d)?;
    let turned = RowOrder::Deinterleaved { head_dim };
    let parts = [part(&q, q_rows, turned), part(&k, kv_rows, turned), part(&v, kv_rows, RowOrder::Stored)];
    Ok(Layer {
        attn_norm: read_norm(source, &name("attn_norm"), d)?,
        qkv: Matrix::pack(cpu, d, &parts),
        out: read_matrix(source, cpu, &name("attn_output"), d, q_rows)?,
        ffn_norm: read_norm(source, &name("ffn_norm"), d)?,
        gate: read_matrix(source, cpu, &name("ffn_gate"), d_ff, d)?,
        up: read_matrix(source, cpu, &name("ffn_up"), d_ff, d)?,
        down: read_matrix(source, cpu, &name("ffn_down"), d, d_ff)?,
    })
}

fn part(tensor: &RawTensor, rows: usize, order: RowOrder) -> Part<'_> {
    Part { encoding: tensor.encoding, rows, bytes: &tensor.bytes, order }
}

fn read_matrix(source: GgufSource<'_>, cpu: &Cpu, name: &str, rows: usize, k: usize) -> Result<Matrix, ModelError> {
    let tensor = source.matrix(name, rows, k)?;
    Ok(Matrix::pack(cpu, k, &[part(&tensor, rows, RowOrder::Stored)]))
}

fn read_norm(source: GgufSource<'_>, name: &str, len: usize) -> Result<NormWeight, ModelError> {
    Ok(source.vector(name, len)?.as_chunks::<LANES>().0.to_vec())
}

fn spec(source: GgufSource<'_>, weights: &Weights, kv: KvShape) -> Result<ModelSpec, ModelError> {
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let info = ModelInfo {
        name: source.text("general.name").unwrap_or("unnamed").to_owned(),
        architecture: "llama".to_owned(),
        file: source.file_name(),
        sha256: None,
        layers: count(kv.layers),
        d_model: count(weights.shape.d_model),
        vocab: count(weights.head.rows()),
        context_length: count(source.maybe_count("llama.context_length")?.unwrap_or(kv.ctx_len)),
        weight_bytes: weights.bytes() as u64,
        kv_bytes_per_token: kv.bytes_per_position(),
    };
    Ok(ModelSpec {
        info,
        ctx_len: kv.ctx_len,
        backend: "native",
        device: format!("cpu ({})", weights.cpu.isa.name()),
        dtype: weights.layers.first().map_or("none", |layer| layer.down.dtype()).to_owned(),
        threads: weights.cpu.pool.threads(),
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::{
        model::{
            LogitRows, Model,
            native::{
                kernel::{Isa, Pool},
                testing::{Noise, tiny_gguf},
            },
        },
        protocol::TokenId,
    };

    fn load(bytes: &[u8], isa: Isa, threads: usize) -> Result<NativeLlama, ModelError> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        llama(&GgufFile::open(file.path())?, 64, Cpu::new(Pool::new(threads), isa))
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
        assert!(matches!(load(b"no model", Isa::detect(), 1), Err(ModelError::Corrupt { .. })));
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
