//! What tests of this backend share: the real files and seeded noise.

use std::path::{Path, PathBuf};

use safetensors::{SafeTensors, tensor::TensorView};

use crate::protocol::TokenId;

/// The default target; none only when `DRAFTSCOPE_OFFLINE=1` says that there is no network.
pub(super) fn gguf_path() -> Option<PathBuf> {
    if std::env::var("DRAFTSCOPE_OFFLINE").is_ok_and(|value| value == "1") {
        println!("not run: DRAFTSCOPE_OFFLINE=1");
        return None;
    }
    Some(crate::store::resolve(None).unwrap_or_else(|error| panic!("the default model is needed: {error}")))
}

/// A file of its first MTP module, or of the reference values that came with it.
pub(super) fn mtp_path(file: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["tests/fixtures/smollm2-135m-mtp", "assets/mtp/smollm2-135m"];
    folders.map(|folder| root.join(folder).join(file)).into_iter().find(|path| path.exists()).unwrap()
}

/// Tokens without meaning.
pub(super) fn token_ids(count: u32) -> Vec<TokenId> {
    (0..count).map(|i| TokenId((i * 7919 + 13) % 49152)).collect()
}

/// Numbers in −1…1, the same for the same seed (SplitMix64, Steele et al., OOPSLA 2014).
pub(super) struct Noise(pub(super) u64);

impl Noise {
    pub(super) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub(super) fn number(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    pub(super) fn numbers(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.number()).collect()
    }

    pub(super) fn lanes(&mut self, count: usize) -> Vec<[f32; 16]> {
        self.numbers(16 * count).as_chunks().0.to_vec()
    }
}

/// Reference values for a few chat prompts.
pub(super) struct Parity {
    bytes: Vec<u8>,
    prompts: Vec<serde_json::Value>,
}

/// One of them.
pub(super) struct ParityPrompt {
    pub(super) ids: Vec<TokenId>,
    pub(super) next: TokenId,
    pub(super) drafted: Vec<TokenId>,
    /// Best token of each row.
    pub(super) top_ids: Vec<usize>,
    pub(super) last_logits: Vec<f32>,
    pub(super) hidden: Vec<f32>,
    pub(super) mtp_logits: Vec<f32>,
}

impl Parity {
    pub(super) fn open() -> Self {
        let bytes = std::fs::read(mtp_path("parity.safetensors")).unwrap();
        let prompts = std::fs::read(mtp_path("parity.json")).unwrap();
        let prompts = serde_json::from_slice(&prompts).unwrap();
        Self { bytes, prompts }
    }

    pub(super) fn prompts(&self) -> Vec<ParityPrompt> {
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
