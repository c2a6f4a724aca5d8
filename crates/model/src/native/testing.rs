//! What tests of this backend share: the real files and seeded noise.

use std::path::{Path, PathBuf};

use candle_core::{
    Device, Tensor,
    quantized::{
        GgmlDType, QTensor,
        gguf_file::{self, Value},
    },
};
use safetensors::{SafeTensors, tensor::TensorView};

pub(crate) use draftscope_kernels::testing::Noise;

use draftscope_protocol::TokenId;

/// The default target; `None` only if `DRAFTSCOPE_OFFLINE=1` says that there is no network.
pub(crate) fn gguf_path() -> Option<PathBuf> {
    if std::env::var("DRAFTSCOPE_OFFLINE").is_ok_and(|value| value == "1") {
        println!("not run: DRAFTSCOPE_OFFLINE=1");
        return None;
    }
    Some(draftscope_store::resolve(None).unwrap_or_else(|error| panic!("the default model is needed: {error}")))
}

/// The weights of its built-in MTP module, in FP8.
pub(crate) fn mtp_weights() -> Vec<u8> {
    std::fs::read(
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("assets/mtp/smollm2-135m/mtp.fp8.safetensors"),
    )
    .unwrap()
}

/// The configuration that makes it an unfused module, which reads the target's last state only and has a fixed vocabulary, or
/// reference values of that.
pub(crate) fn mtp_path(file: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("tests/fixtures/smollm2-135m-mtp").join(file)
}

/// Tokens without meaning.
pub(crate) fn token_ids(count: u32) -> Vec<TokenId> {
    (0..count).map(|i| TokenId((i * 7919 + 13) % 49152)).collect()
}

/// A random Llama of two blocks with most encodings, as the bytes of a GGUF file.
pub(crate) fn tiny_gguf(omit: &str) -> Vec<u8> {
    let mut noise = Noise(7);
    let mut tensor = |rows: usize, k: usize, dtype| {
        let shape: &[usize] = if rows == 0 { &[k] } else { &[rows, k] };
        let plain: Vec<f32> = noise.numbers(rows.max(1) * k).iter().map(|x| x + f32::from(rows == 0)).collect();
        QTensor::quantize(&Tensor::from_vec(plain, shape, &Device::Cpu).unwrap(), dtype).unwrap()
    };
    let mut tensors = vec![
        ("token_embd.weight".to_owned(), tensor(70, 64, GgmlDType::Q8_0)),
        ("output.weight".to_owned(), tensor(70, 64, GgmlDType::Q5_1)),
        ("output_norm.weight".to_owned(), tensor(0, 64, GgmlDType::F32)),
    ];
    for (layer, dtype) in [GgmlDType::Q4_1, GgmlDType::F16].into_iter().enumerate() {
        let parts = [
            ("attn_norm", 0, 64, GgmlDType::F32),
            ("attn_q", 64, 64, dtype),
            ("attn_k", 32, 64, GgmlDType::Q4_0),
            ("attn_v", 32, 64, GgmlDType::Q5_0),
            ("attn_output", 64, 64, GgmlDType::BF16),
            ("ffn_norm", 0, 64, GgmlDType::F32),
            ("ffn_gate", 96, 64, dtype),
            ("ffn_up", 96, 64, GgmlDType::Q8_0),
            ("ffn_down", 64, 96, GgmlDType::F32),
        ];
        let name = |part: &str| format!("blk.{layer}.{part}.weight");
        tensors.extend(parts.map(|(part, rows, k, dtype)| (name(part), tensor(rows, k, dtype))));
    }
    tensors.retain(|(name, _)| name != omit);
    let counts = [
        ("block_count", 2),
        ("embedding_length", 64),
        ("feed_forward_length", 96),
        ("attention.head_count", 2),
        ("attention.head_count_kv", 1),
        ("context_length", 64),
    ];
    let mut metadata = vec![("general.architecture".to_owned(), Value::String("llama".to_owned()))];
    metadata.push(("llama.attention.layer_norm_rms_epsilon".to_owned(), Value::F32(1e-5)));
    metadata.extend(counts.map(|(key, count)| (format!("llama.{key}"), Value::U32(count))));
    let metadata: Vec<_> = metadata.iter().map(|(key, value)| (key.as_str(), value)).collect();
    let tensors: Vec<_> = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    let mut file = std::io::Cursor::new(Vec::new());
    gguf_file::write(&mut file, &metadata, &tensors).unwrap();
    file.into_inner()
}

/// Reference values for a few chat prompts.
pub(crate) struct Parity {
    bytes: Vec<u8>,
    prompts: Vec<serde_json::Value>,
}

/// One of them.
pub(crate) struct ParityPrompt {
    pub(crate) ids: Vec<TokenId>,
    pub(crate) next: TokenId,
    pub(crate) drafted: Vec<TokenId>,
    /// Best token of each row.
    pub(crate) top_ids: Vec<usize>,
    pub(crate) last_logits: Vec<f32>,
    pub(crate) hidden: Vec<f32>,
    pub(crate) mtp_logits: Vec<f32>,
}

impl Parity {
    pub(crate) fn open() -> Self {
        let bytes = std::fs::read(mtp_path("parity.safetensors")).unwrap();
        let prompts = std::fs::read(mtp_path("parity.json")).unwrap();
        let prompts = serde_json::from_slice(&prompts).unwrap();
        Self { bytes, prompts }
    }

    pub(crate) fn prompts(&self) -> Vec<ParityPrompt> {
        let tensors = SafeTensors::deserialize(&self.bytes).unwrap();
        let prompt = |(index, prompt): (usize, &serde_json::Value)| {
            let floats = |name: &str| floats(&tensors.tensor(&format!("{index}.{name}")).unwrap());
            let top = tensors.tensor(&format!("{index}.top_ids")).unwrap();
            let ids = |key: &str| -> Vec<TokenId> { serde_json::from_value(prompt[key].clone()).unwrap() };
            ParityPrompt {
                ids: ids("ids"),
                next: serde_json::from_value(prompt["next"].clone()).unwrap(),
                drafted: ids("drafted"),
                top_ids: top
                    .data()
                    .chunks_exact(4 * top.shape()[1])
                    .map(|row| row[0] as usize | (row[1] as usize) << 8)
                    .collect(),
                last_logits: floats("last_logits"),
                hidden: floats("hidden"),
                mtp_logits: floats("mtp1_logits_last"),
            }
        };
        self.prompts.iter().enumerate().map(prompt).collect()
    }
}

fn floats(tensor: &TensorView<'_>) -> Vec<f32> {
    tensor.data().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}
