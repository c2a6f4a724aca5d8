//! A tiny Llama with random weights, written as real files (GGUF, safetensors, config.json), so that
//! tests use the same loading code as a user's model.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use candle_core::quantized::gguf_file::{self, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use draftscope::model::load::{Loaded, load};
use draftscope::model::options::{Backend, DeviceChoice, Dtype, LoadOptions, ModuleFile};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

pub const D: usize = 64;
pub const LAYERS: usize = 2;
pub const HEADS: usize = 4;
pub const KV_HEADS: usize = 2;
pub const HEAD_DIM: usize = 16;
pub const FFN: usize = 96;
pub const CONTEXT: usize = 512;
const SPECIAL: [&str; 3] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];
const MERGES: [&str; 4] = ["t h", "th e", "Ġ the", "i n"];
pub const TEMPLATE: &str = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

/// Files of one tiny model.
pub struct Tiny {
    pub folder: tempfile::TempDir,
    pub target: PathBuf,
}

impl Tiny {
    /// The same seed gives the same files.
    pub fn new(seed: u64) -> Self {
        Self::with(seed, |_| {})
    }

    /// With changed metadata or tensors, for files that should be rejected.
    pub fn with(seed: u64, change: impl FnOnce(&mut Parts)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("tiny.gguf");
        let mut parts = parts(seed);
        change(&mut parts);
        write_gguf(&target, &parts);
        Self { folder, target }
    }

    pub fn recipe(&self) -> LoadOptions {
        LoadOptions {
            target: self.target.clone(),
            sha256: None,
            dtype: Dtype::F32,
            device: DeviceChoice::Cpu,
            adapter: None,
            device_memory: None,
            backend: Backend::Candle,
            threads: None,
            ctx_len: None,
            mtp: Some(mtp(9)),
            draft_model: None,
            draft_model_required: false,
            vocab_method: None,
            divides_by_q: false,
            rollback: None,
            draft_vocab: None,
            think: None,
            special_tokens: false,
            pass_form: None,
        }
    }

    pub fn load(&self) -> Loaded {
        load(&self.recipe(), &mut |_, _, _| {}).unwrap()
    }
}

/// Contents of the GGUF file.
pub struct Parts {
    pub metadata: Vec<(String, Value)>,
    pub tensors: Vec<(String, QTensor)>,
}

struct Random(ChaCha8Rng);

impl Random {
    fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// Roughly normal numbers: sums of four uniform draws.
    fn tensor(&mut self, shape: &[usize], scale: f32) -> Tensor {
        let n: usize = shape.iter().product();
        let mut uniform = || self.0.next_u32() as f32 / u32::MAX as f32 - 0.5;
        let data: Vec<f32> = (0..n).map(|_| (0..4).map(|_| uniform()).sum::<f32>() * scale).collect();
        Tensor::from_vec(data, shape, &Device::Cpu).unwrap()
    }
}

fn parts(seed: u64) -> Parts {
    let names = vocabulary();
    let types = names.iter().map(|n| Value::I32(if SPECIAL.contains(&n.as_str()) { 3 } else { 1 })).collect();
    let texts = |v: &[String]| Value::Array(v.iter().cloned().map(Value::String).collect());
    let merges: Vec<String> = MERGES.iter().map(|m| (*m).to_owned()).collect();
    let metadata = [
        ("general.architecture", Value::String("llama".into())),
        ("general.name", Value::String("tiny".into())),
        ("llama.block_count", Value::U32(LAYERS as u32)),
        ("llama.context_length", Value::U32(CONTEXT as u32)),
        ("llama.embedding_length", Value::U32(D as u32)),
        ("llama.feed_forward_length", Value::U32(FFN as u32)),
        ("llama.attention.head_count", Value::U32(HEADS as u32)),
        ("llama.attention.head_count_kv", Value::U32(KV_HEADS as u32)),
        ("llama.attention.layer_norm_rms_epsilon", Value::F32(1e-5)),
        ("llama.rope.freq_base", Value::F32(10_000.0)),
        ("llama.rope.dimension_count", Value::U32(HEAD_DIM as u32)),
        ("tokenizer.ggml.model", Value::String("gpt2".into())),
        ("tokenizer.ggml.pre", Value::String("smollm".into())),
        ("tokenizer.ggml.tokens", texts(&names)),
        ("tokenizer.ggml.token_type", Value::Array(types)),
        ("tokenizer.ggml.merges", texts(&merges)),
        ("tokenizer.ggml.bos_token_id", Value::U32(1)),
        ("tokenizer.ggml.eos_token_id", Value::U32(2)),
        ("tokenizer.chat_template", Value::String(TEMPLATE.into())),
    ];
    let metadata = metadata.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
    Parts { metadata, tensors: tensors(seed, names.len()) }
}

/// The same model with another tokenizer: all tokens but the special ones have other ids, and of the merged ones every
/// second has another name, so that it is another text.
pub fn with_other_tokenizer(parts: &mut Parts) {
    let len = vocab_len();
    let order: Vec<u32> = (0..SPECIAL.len()).chain((SPECIAL.len()..len).rev()).map(|id| id as u32).collect();
    for (key, value) in &mut parts.metadata {
        if let ("tokenizer.ggml.tokens", Value::Array(names)) = (key.as_str(), &mut *value) {
            let old = names.clone();
            names.iter_mut().zip(&order).for_each(|(name, id)| *name = old[*id as usize].clone());
            // the last merged ones come first now; they do not occur in a merge
            for place in (SPECIAL.len()..SPECIAL.len() + MERGES.len()).step_by(2) {
                names[place] = Value::String(format!("another{place}"));
            }
        }
        if let ("tokenizer.ggml.merges", Value::Array(merges)) = (key.as_str(), &mut *value) {
            merges.truncate(1); // the results of the others have no name or come too late
        }
    }
    let order = Tensor::new(order, &Device::Cpu).unwrap();
    for (name, weight) in &mut parts.tensors {
        if name == "token_embd.weight" {
            let rows = weight.dequantize(&Device::Cpu).unwrap().index_select(&order, 0).unwrap();
            *weight = QTensor::quantize(&rows, GgmlDType::F32).unwrap();
        }
    }
}

/// The same model with a SentencePiece tokenizer: a space begins every text, and characters without a token are bytes.
pub fn with_sentence_piece(parts: &mut Parts) {
    let texts = |names: Vec<String>| Value::Array(names.into_iter().map(Value::String).collect());
    let bytes = (0..=255u8).map(|byte| format!("<0x{byte:02X}>"));
    let pieces = ["▁", "t", "h", "th"].map(str::to_owned);
    let names: Vec<String> =
        ["<unk>", "<s>", "</s>"].map(str::to_owned).into_iter().chain(bytes).chain(pieces).collect();
    let kind = |id: usize| Value::I32([2, 3, 3].get(id).copied().unwrap_or(if id < 259 { 6 } else { 1 }));
    let kinds = (0..names.len()).map(kind).collect();
    let scores = (0..names.len()).map(|id| Value::F32(-(id as f32))).collect();
    // the row of a byte is that of the same byte
    let own = vocabulary();
    let table: HashMap<char, usize> = (0..=255u8).zip(byte_names()).map(|(byte, name)| (name, byte.into())).collect();
    let row_of_byte = |byte: usize| {
        own.iter().position(|name| {
            let mut chars = name.chars();
            chars.next().and_then(|first| table.get(&first)) == Some(&byte) && chars.next().is_none()
        })
    };
    let rows =
        (0..names.len()).map(|id| id.checked_sub(3).filter(|b| *b < 256).and_then(row_of_byte).unwrap_or(id) as u32);
    let rows = Tensor::new(rows.collect::<Vec<_>>(), &Device::Cpu).unwrap();
    parts.metadata.retain(|(key, _)| !key.starts_with("tokenizer."));
    parts.metadata.extend([
        ("tokenizer.ggml.model".to_owned(), Value::String("llama".into())),
        ("tokenizer.ggml.tokens".to_owned(), texts(names)),
        ("tokenizer.ggml.token_type".to_owned(), Value::Array(kinds)),
        ("tokenizer.ggml.scores".to_owned(), Value::Array(scores)),
    ]);
    let embedding = parts.tensors.iter_mut().find(|(name, _)| name == "token_embd.weight").unwrap();
    let weights = embedding.1.dequantize(&Device::Cpu).unwrap().index_select(&rows, 0).unwrap();
    embedding.1 = QTensor::quantize(&weights, GgmlDType::F32).unwrap();
}

/// The letter of each byte in byte-level names.
fn byte_names() -> impl Iterator<Item = char> {
    let printable = |b: u32| matches!(b, 33..=126 | 161..=172 | 174..=255);
    let mut moved = 0x100u32..;
    (0..256u32).map(move |b| if printable(b) { b } else { moved.next().unwrap() }).map(|c| char::from_u32(c).unwrap())
}

/// Special tokens, all bytes in their printable form, then the results of the merges.
fn vocabulary() -> Vec<String> {
    let printable = |b: &u32| matches!(b, 33..=126 | 161..=172 | 174..=255);
    let moved = (0..256u32).filter(|b| !printable(b)).zip(0x100u32..).map(|(_, c)| c);
    let bytes = (0..256u32).filter(printable).chain(moved).map(|c| char::from_u32(c).unwrap().to_string());
    let merged = MERGES.iter().map(|m| m.replace(' ', ""));
    SPECIAL.iter().map(|s| (*s).to_owned()).chain(bytes).chain(merged).collect()
}

pub fn vocab_len() -> usize {
    vocabulary().len()
}

fn tensors(seed: u64, vocab: usize) -> Vec<(String, QTensor)> {
    let mut random = Random::new(seed);
    let f32 = |t: &Tensor| QTensor::quantize(t, GgmlDType::F32).unwrap();
    let norm = |random: &mut Random| (random.tensor(&[D], 0.1) + 1.0).unwrap();
    let mut all = vec![("token_embd.weight".to_owned(), f32(&random.tensor(&[vocab, D], 1.5)))];
    all.push(("output_norm.weight".to_owned(), f32(&norm(&mut random))));
    for layer in 0..LAYERS {
        let kv = KV_HEADS * HEAD_DIM;
        let matrices = [
            ("attn_q", HEADS * HEAD_DIM, D),
            ("attn_k", kv, D),
            ("attn_v", kv, D),
            ("attn_output", D, HEADS * HEAD_DIM),
            ("ffn_gate", FFN, D),
            ("ffn_up", FFN, D),
            ("ffn_down", D, FFN),
        ];
        for (name, out, input) in matrices {
            let weight = random.tensor(&[out, input], 2.0 / (input as f32).sqrt());
            all.push((format!("blk.{layer}.{name}.weight"), f32(&weight)));
        }
        for name in ["attn_norm", "ffn_norm"] {
            all.push((format!("blk.{layer}.{name}.weight"), f32(&norm(&mut random))));
        }
    }
    all
}

fn write_gguf(path: &Path, parts: &Parts) {
    let metadata: Vec<(&str, &Value)> = parts.metadata.iter().map(|(k, v)| (k.as_str(), v)).collect();
    let tensors: Vec<(&str, &QTensor)> = parts.tensors.iter().map(|(k, v)| (k.as_str(), v)).collect();
    let mut file = std::fs::File::create(path).unwrap();
    gguf_file::write(&mut file, &metadata, &tensors).unwrap();
}

/// A random MTP module for the tiny target; every second token is in its draft vocabulary.
pub fn mtp(seed: u64) -> ModuleFile {
    mtp_stack(seed, 1)
}

/// One module for each depth.
pub fn mtp_stack(seed: u64, depths: usize) -> ModuleFile {
    mtp_with(seed, depths, 1.0)
}

/// A module that computes only NaN.
pub fn mtp_of_nan() -> ModuleFile {
    mtp_with(1, 1, f32::NAN)
}

fn mtp_with(seed: u64, depths: usize, norm: f32) -> ModuleFile {
    let mut random = Random::new(seed);
    let kv = KV_HEADS * HEAD_DIM;
    let matrices = [
        ("eh_proj", D, 2 * D),
        ("self_attn.q_proj", HEADS * HEAD_DIM, D),
        ("self_attn.k_proj", kv, D),
        ("self_attn.v_proj", kv, D),
        ("self_attn.o_proj", D, HEADS * HEAD_DIM),
        ("mlp.gate_proj", FFN, D),
        ("mlp.up_proj", FFN, D),
        ("mlp.down_proj", D, FFN),
    ];
    let mut tensors = HashMap::new();
    for depth in 0..depths {
        for (name, out, input) in matrices {
            let weight = random.tensor(&[out, input], 1.0 / (input as f32).sqrt());
            tensors.insert(format!("mtp.layers.{depth}.{name}.weight"), weight);
        }
        for name in ["enorm", "hnorm", "input_layernorm", "post_attention_layernorm", "shared_head.norm"] {
            let weight = Tensor::full(norm, D, &Device::Cpu).unwrap();
            tensors.insert(format!("mtp.layers.{depth}.{name}.weight"), weight);
        }
    }
    let vocab: Vec<i64> = (0..vocab_len() as i64).step_by(2).collect();
    let config = format!(
        r#"{{"hidden_size":{D},"num_attention_heads":{HEADS},"num_key_value_heads":{KV_HEADS},"head_dim":{HEAD_DIM},"intermediate_size":{FFN},"vocab_size":{},"draft_vocab_size":{},"num_nextn_predict_layers":{depths},"rms_norm_eps":1e-5,"rope_theta":10000.0,"concat_order":["embedding","hidden"]}}"#,
        vocab_len(),
        vocab.len()
    );
    let n = vocab.len();
    tensors.insert("mtp.draft_vocab".into(), Tensor::from_vec(vocab, n, &Device::Cpu).unwrap());
    let weights = safetensors::serialize(tensors.iter().map(|(k, v)| (k.as_str(), v)), None).unwrap();
    ModuleFile {
        name: "tiny-mtp".into(),
        weights: weights.into(),
        config: Arc::from(config.into_bytes()),
        sha256: None,
        required: true,
    }
}
