//! `candle_transformers` as the reference: its quantised models read the same GGUF file with their own code.

use std::path::Path;

use anyhow::{Context, Result, bail};
use candle_core::quantized::gguf_file::Content;
use candle_core::{Device, Tensor};
use candle_transformers::models::{quantized_gemma3, quantized_llama, quantized_qwen2, quantized_qwen3};
use draftscope::host::file_access;
use draftscope::protocol::TokenId;

use super::report::Reference;

/// A quantised model of `candle_transformers`. They return the logits of the last position, and start anew at position 0.
enum Weights {
    Llama(quantized_llama::ModelWeights),
    Qwen2(quantized_qwen2::ModelWeights),
    Qwen3(quantized_qwen3::ModelWeights),
    Gemma3(quantized_gemma3::ModelWeights),
}

struct Candle(Weights);

/// Loads a GGUF file.
pub(super) fn load(path: &Path) -> Result<Box<dyn Reference>> {
    if path.is_dir() {
        bail!("the reference candle reads GGUF files, and {} is a folder", path.display());
    }
    let mut file = file_access::open_regular(path).with_context(|| format!("cannot read {}", path.display()))?;
    let content = Content::read(&mut file)?;
    if let Some(name) = scaled_rotation(&content) {
        bail!("candle_transformers ignores '{name}' of this file, so its results would be those of another model");
    }
    let architecture = content.metadata.get("general.architecture").and_then(|value| value.to_string().ok()).cloned();
    let device = Device::Cpu;
    let weights = match architecture.as_deref() {
        Some("llama") => Weights::Llama(quantized_llama::ModelWeights::from_gguf(content, &mut file, &device)?),
        Some("qwen2") => Weights::Qwen2(quantized_qwen2::ModelWeights::from_gguf(content, &mut file, &device)?),
        Some("qwen3") => Weights::Qwen3(quantized_qwen3::ModelWeights::from_gguf(content, &mut file, &device)?),
        Some("gemma3") => Weights::Gemma3(quantized_gemma3::ModelWeights::from_gguf(content, &mut file, &device)?),
        _ => bail!("the reference candle reads Llama, Qwen2, Qwen3 and Gemma 3, and this file is of another family"),
    };
    Ok(Box::new(Candle(weights)))
}

/// What scales the frequencies of rotary positions in a file: its quantised models read neither of these.
fn scaled_rotation(content: &Content) -> Option<&str> {
    const TENSOR: &str = "rope_freqs.weight";
    let key = content.metadata.keys().find(|key| key.ends_with(".rope.scaling.type"));
    content.tensor_infos.contains_key(TENSOR).then_some(TENSOR).or(key.map(String::as_str))
}

impl Candle {
    fn forward(&mut self, tokens: &[TokenId], position: usize) -> Result<Vec<f32>> {
        let ids: Vec<u32> = tokens.iter().map(|token| token.0).collect();
        let input = Tensor::new(ids, &Device::Cpu)?.unsqueeze(0)?;
        let logits = match &mut self.0 {
            Weights::Llama(model) => model.forward(&input, position),
            Weights::Qwen2(model) => model.forward(&input, position),
            Weights::Qwen3(model) => {
                if position == 0 {
                    model.clear_kv_cache();
                }
                model.forward(&input, position)
            }
            Weights::Gemma3(model) => model.forward(&input, position),
        }?;
        Ok(logits.flatten_all()?.to_dtype(candle_core::DType::F32)?.to_vec1()?)
    }
}

impl Reference for Candle {
    fn name(&self) -> &'static str {
        "candle_transformers"
    }

    fn begin(&mut self, prompt: &[TokenId]) -> Result<Vec<f32>> {
        self.forward(prompt, 0)
    }

    fn read(&mut self, token: TokenId, position: usize) -> Result<Vec<f32>> {
        self.forward(&[token], position)
    }
}
