//! A model as it lies on disk, whatever the form: a GGUF file or a folder of safetensors.
//!
//! Tensors are asked for by the names of GGUF (`blk.3.attn_q.weight`); a folder translates them.
//! Invariant: a tensor comes with its shape checked and as many bytes as its type asks for, so what
//! follows needs no checks; bytes are those of the mapped file wherever nothing has to be worked out.

use std::borrow::Cow;
use std::path::Path;

use candle_core::quantized::{GgmlDType, QTensor, ggml_file::qtensor_from_ggml};
use candle_core::{DType, Device, Tensor};
use half::{bf16, f16};

use crate::model::ModelError;
use crate::model::error::clean;
use crate::model::files::folder::Folder;
use crate::model::files::gguf::GgufFile;
use crate::model::nn::config::LlamaConfig;
use crate::model::nn::rope::PairOrder;
use crate::model::text::template::ChatTemplate;
use crate::model::text::tokenizer::TextCodec;
use crate::protocol::ModelInfo;

/// A tensor's bytes and what they are.
#[derive(Debug)]
pub struct Stored<'a> {
    dtype: GgmlDType,
    bytes: Cow<'a, [u8]>,
    /// FP8 in the file, widened exactly to f32: what holds weights as stored rounds it to bf16.
    widened: bool,
}

impl<'a> Stored<'a> {
    /// Bytes of a file.
    pub(in crate::model) fn new(dtype: GgmlDType, bytes: &'a [u8]) -> Self {
        Self { dtype, bytes: Cow::Borrowed(bytes), widened: false }
    }

    /// Numbers worked out from FP8.
    pub(in crate::model) fn widened(numbers: &[f32]) -> Self {
        let bytes = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        Self { dtype: GgmlDType::F32, bytes: Cow::Owned(bytes), widened: true }
    }

    /// What the bytes are.
    #[must_use]
    pub fn dtype(&self) -> GgmlDType {
        self.dtype
    }

    /// Whether both are the same numbers, stored alike.
    #[must_use]
    pub fn is_copy_of(&self, other: &Self) -> bool {
        self.dtype == other.dtype && self.bytes() == other.bytes()
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// As it should be held where weights stay as they are stored: FP8 becomes bf16.
    #[must_use]
    pub fn compact(self) -> Self {
        if !self.widened {
            return self;
        }
        let numbers = self.bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
        let bytes = numbers.flat_map(|x| bf16::from_f32(x).to_le_bytes()).collect();
        Self { dtype: GgmlDType::BF16, bytes: Cow::Owned(bytes), widened: false }
    }

    /// Plain numbers, `shape` being the tensor's.
    ///
    /// # Errors
    /// When candle cannot decode the type.
    pub fn to_f32(&self, shape: &[usize]) -> Result<Vec<f32>, ModelError> {
        let bytes = self.bytes();
        Ok(match self.dtype {
            GgmlDType::F32 => bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
            GgmlDType::F16 => bytes.as_chunks().0.iter().map(|bytes| f16::from_le_bytes(*bytes).to_f32()).collect(),
            GgmlDType::BF16 => bytes.as_chunks().0.iter().map(|bytes| bf16::from_le_bytes(*bytes).to_f32()).collect(),
            _ => self.quantised(shape, &Device::Cpu)?.dequantize(&Device::Cpu)?.flatten_all()?.to_vec1()?,
        })
    }

    /// A dense tensor of this dtype.
    ///
    /// # Errors
    /// When memory is short.
    pub fn to_tensor(&self, shape: &[usize], dtype: DType, device: &Device) -> Result<Tensor, ModelError> {
        let same = matches!((self.dtype, dtype), (GgmlDType::BF16, DType::BF16) | (GgmlDType::F16, DType::F16));
        if same {
            return Ok(Tensor::from_raw_buffer(self.bytes(), dtype, shape, device)?);
        }
        let plain = Tensor::from_vec(self.to_f32(shape)?, shape, device)?;
        Ok(if dtype == DType::F32 { plain } else { plain.to_dtype(dtype)? })
    }

    /// The blocks as they are.
    ///
    /// # Errors
    /// When candle does not run the type.
    pub fn quantised(&self, shape: &[usize], device: &Device) -> Result<QTensor, ModelError> {
        // blocks hold halves: bytes that begin at an odd place are copied to an even one
        let aligned = self.bytes().as_ptr().addr().is_multiple_of(align_of::<u64>());
        let copy = if aligned { None } else { Some(self.bytes().to_vec()) };
        Ok(qtensor_from_ggml(self.dtype, copy.as_deref().unwrap_or(self.bytes()), shape.to_vec(), device)?)
    }

    /// Whether the type is of blocks with scales.
    #[must_use]
    pub fn is_quantised(&self) -> bool {
        !matches!(self.dtype, GgmlDType::F32 | GgmlDType::F16 | GgmlDType::BF16)
    }
}

/// A model on disk.
pub enum Source {
    /// One GGUF file.
    Gguf(GgufFile),
    /// A folder with `config.json` and safetensors.
    Folder(Box<Folder>),
}

impl Source {
    /// Opens a GGUF file, or a folder as Hugging Face lays it out. Weights stay on disk.
    ///
    /// # Errors
    /// When it is neither, damaged, or of a family that does not run.
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        if path.is_dir() {
            Ok(Self::Folder(Box::new(Folder::open(path)?)))
        } else {
            Ok(Self::Gguf(GgufFile::open(path)?))
        }
    }

    /// Sizes of the model.
    ///
    /// # Errors
    /// As [`LlamaConfig::from_gguf`].
    pub fn config(&self) -> Result<LlamaConfig, ModelError> {
        match self {
            Self::Gguf(gguf) => LlamaConfig::from_gguf(gguf),
            Self::Folder(folder) => folder.config(),
        }
    }

    /// Text to tokens and back.
    ///
    /// # Errors
    /// When there is no tokenizer, or one of a kind that is not supported.
    pub fn codec(&self) -> Result<TextCodec, ModelError> {
        match self {
            Self::Gguf(gguf) => TextCodec::from_gguf(gguf),
            Self::Folder(folder) => TextCodec::from_folder(folder.side_files()),
        }
    }

    /// What of the metadata is left aside or had to be guessed, in a sentence.
    #[must_use]
    pub fn aside(&self) -> Option<String> {
        match self {
            Self::Gguf(gguf) => TextCodec::guess(gguf),
            Self::Folder(folder) => folder.aside(),
        }
    }

    /// The chat template, if there is one.
    ///
    /// # Errors
    /// When it cannot be compiled.
    pub fn template(&self, codec: &TextCodec) -> Result<Option<ChatTemplate>, ModelError> {
        let source = match self {
            Self::Gguf(gguf) => gguf.text("tokenizer.chat_template").map(Cow::Borrowed),
            Self::Folder(folder) => folder.side_files().chat_template()?.map(Cow::Owned),
        };
        source.map(|source| ChatTemplate::new(&source, codec.bos_name(), codec.eos_name())).transpose()
    }

    /// The same where a model is of use without: a template that does not run is none, and why.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn template_or_why(&self, codec: &TextCodec) -> Result<(Option<ChatTemplate>, Option<String>), ModelError> {
        match self.template(codec) {
            Ok(template) => Ok((template, None)),
            Err(ModelError::Template(why)) => Ok((None, Some(clean(&why)))),
            Err(error) => Err(error),
        }
    }

    /// Whether there is a tensor of this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        match self {
            Self::Gguf(gguf) => gguf.has_tensor(name),
            Self::Folder(folder) => folder.has(name),
        }
    }

    /// A tensor as stored, of the given shape, outermost dimension first.
    ///
    /// # Errors
    /// [`ModelError::MissingTensor`], [`ModelError::Shape`], or a type that is not supported.
    pub fn stored(&self, name: &str, shape: &[usize]) -> Result<Stored<'_>, ModelError> {
        match self {
            Self::Gguf(gguf) => gguf.stored(name, shape),
            Self::Folder(folder) => folder.stored(name, shape),
        }
    }

    /// A vector of plain numbers.
    ///
    /// # Errors
    /// As [`Source::stored`].
    pub fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>, ModelError> {
        self.stored(name, &[len])?.to_f32(&[len])
    }

    /// Gives back the memory of a tensor that was copied.
    pub fn release(&self, name: &str) {
        match self {
            Self::Gguf(gguf) => gguf.release(name),
            Self::Folder(folder) => folder.release(name),
        }
    }

    /// Which values of a head form a rotated pair.
    #[must_use]
    pub fn pair_order(&self, config: &LlamaConfig) -> PairOrder {
        match self {
            Self::Gguf(_) => config.architecture.gguf_pairs(),
            Self::Folder(_) => PairOrder::HalfSplit,
        }
    }

    /// As the model calls itself.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Gguf(gguf) => gguf.text("general.name").unwrap_or("unnamed").to_owned(),
            Self::Folder(folder) => folder.name(),
        }
    }

    /// What it says of itself, before any weight is read.
    #[must_use]
    pub fn describe(&self, config: &LlamaConfig) -> ModelInfo {
        ModelInfo {
            name: self.name(),
            architecture: config.architecture.name().to_owned(),
            file: self.file_name(),
            sha256: None,
            layers: config.layers as u32,
            d_model: config.d_model as u32,
            vocab: config.vocab as u32,
            context_length: config.context_length as u32,
            weight_bytes: 0,
            kv_bytes_per_token: 0,
            unfolded_kv_bytes_per_token: 0,
            state_bytes: 0,
            snapshot_bytes: 0,
        }
    }

    /// Name of the file or folder, without what it lies in.
    #[must_use]
    pub fn file_name(&self) -> String {
        let path = match self {
            Self::Gguf(gguf) => gguf.path(),
            Self::Folder(folder) => folder.path(),
        };
        path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// Bytes of a tensor on disk; none when there is no such one.
    #[must_use]
    pub fn bytes_of(&self, name: &str) -> Option<u64> {
        match self {
            Self::Gguf(gguf) => gguf.bytes_of(name),
            Self::Folder(folder) => folder.bytes_of(name),
        }
    }

    /// In what most of the weights are stored, in lower case: `q4_1`, `bf16`, `f8_e4m3`.
    #[must_use]
    pub fn stored_dtype(&self) -> String {
        match self {
            Self::Gguf(gguf) => gguf.main_dtype(),
            Self::Folder(folder) => folder.main_dtype(),
        }
    }

    /// Bytes that tensors take in memory where they are held as stored: [`Folder::held_bytes`]; a GGUF file holds what
    /// it stores.
    #[must_use]
    pub fn held_bytes(&self, layers: usize) -> u64 {
        match self {
            Self::Gguf(gguf) => gguf.tensor_bytes(),
            Self::Folder(folder) => folder.held_bytes(layers),
        }
    }

    /// Bytes of all tensors on disk.
    #[must_use]
    pub fn tensor_bytes(&self) -> u64 {
        match self {
            Self::Gguf(gguf) => gguf.tensor_bytes(),
            Self::Folder(folder) => folder.tensor_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_every_type_mean_the_same_wherever_they_begin() {
        use GgmlDType::{Q2K, Q3K, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0};
        let numbers: Vec<f32> = (0..2 * 512).map(|i| ((i * 7919) % 1009) as f32 / 500.0 - 1.0).collect();
        let plain = Tensor::from_vec(numbers.clone(), (2, 512), &Device::Cpu).unwrap();
        // type, bits of a weight's code
        for (dtype, bits) in
            [(Q2K, 2), (Q3K, 3), (Q4_0, 4), (Q4_1, 4), (Q4K, 4), (Q5_0, 5), (Q5_1, 5), (Q5K, 5), (Q6K, 6), (Q8_0, 8)]
        {
            let bytes = QTensor::quantize(&plain, dtype).unwrap().data().unwrap().into_owned();
            for shift in 0..8 {
                let moved: Vec<u8> = std::iter::repeat_n(0, shift).chain(bytes.iter().copied()).collect();
                let got = Stored::new(dtype, &moved[shift..]).to_f32(&[2, 512]).unwrap();
                let worst = got.iter().zip(&numbers).fold(0f32, |worst, (a, b)| worst.max((a - b).abs()));
                // a step of the code over −1 … 1.02, and what the scales' own codes add
                assert!(worst < 2.0 * 2.1 / (1 << bits) as f32, "{dtype:?} at {shift}: off by {worst}");
            }
        }
    }
}
