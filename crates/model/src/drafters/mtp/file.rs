//! The safetensors file of an MTP module: names, shapes and number formats, for every backend.
//!
//! Numbers are stored as bf16, f16 or f32; matrices also as FP8 E4M3 with one scale per output row. Rotary pairs are in
//! half-split order, unlike in GGUF files. Invariant: no file content can make this panic.

use safetensors::{Dtype, SafeTensors, tensor::TensorView};

use crate::ModelError;
use crate::drafters::core::NamedNumbers;
use crate::files::{fp8::from_e4m3, llama_part, numbers};
use draftscope_protocol::TokenId;

/// Token of each logit.
const DRAFT_VOCAB: &str = "mtp.draft_vocab";

/// The tensors of a stack of modules.
pub(super) struct MtpFile<'a> {
    tensors: SafeTensors<'a>,
}

/// Name of a tensor of a module's plan, which has GGUF's names.
fn name_of(name: &str) -> Option<String> {
    let (depth, part) = name.strip_prefix("blk.")?.strip_suffix(".weight")?.split_once('.')?;
    let own = match part.strip_prefix("nextn.") {
        Some("shared_head_norm") => "shared_head.norm",
        Some(part) => part,
        None => llama_part(part)?,
    };
    Some(format!("mtp.layers.{depth}.{own}.weight"))
}

impl NamedNumbers for MtpFile<'_> {
    fn has(&self, name: &str) -> bool {
        name_of(name).is_some_and(|name| self.tensors.tensor(&name).is_ok())
    }

    fn numbers(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, ModelError> {
        let name = name_of(name).ok_or_else(|| ModelError::MissingTensor(name.to_owned()))?;
        match shape {
            [rows, k] => self.matrix(&name, [*rows, *k]),
            _ => self.plain(&name, shape),
        }
    }
}

impl<'a> MtpFile<'a> {
    /// The module, or the stack of modules.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, ModelError> {
        let tensors = SafeTensors::deserialize(bytes)
            .map_err(|error| ModelError::Metadata(format!("the MTP module's weights are damaged: {error}")))?;
        Ok(Self { tensors })
    }

    /// The `count` tokens that the module proposes, ascending, each below `vocab`.
    pub(super) fn draft_vocab(&self, count: usize, vocab: usize) -> Result<Vec<TokenId>, ModelError> {
        let wrong = |what: String| ModelError::Metadata(format!("'{DRAFT_VOCAB}' {what}"));
        let tensor = self.tensor(DRAFT_VOCAB, &[count])?;
        if tensor.dtype() != Dtype::I64 {
            return Err(wrong(format!("is stored as {:?}, expected I64", tensor.dtype())));
        }
        let token = |id: i64| match u32::try_from(id) {
            Ok(id) if (id as usize) < vocab => Ok(TokenId(id)),
            _ => Err(wrong(format!("names token {id}, and the target has {vocab} tokens"))),
        };
        let ids = tensor.data().as_chunks().0.iter().map(|bytes| token(i64::from_le_bytes(*bytes)));
        let ids = ids.collect::<Result<Vec<_>, _>>()?;
        match ids.windows(2).position(|pair| pair[0] >= pair[1]) {
            _ if ids.is_empty() => Err(wrong("names no token".to_owned())),
            None => Ok(ids),
            Some(at) => Err(wrong(format!(
                "names token {} and then token {}: it must name each token once, in ascending order, as the logits come",
                ids[at].0,
                ids[at + 1].0
            ))),
        }
    }

    /// A matrix, row by row, with scales applied.
    fn matrix(&self, name: &str, [rows, k]: [usize; 2]) -> Result<Vec<f32>, ModelError> {
        let (mut matrix, scale) = (self.plain(name, &[rows, k])?, format!("{name}_scale"));
        if self.tensor(name, &[rows, k])?.dtype() == Dtype::F8_E4M3 || self.tensors.tensor(&scale).is_ok() {
            for (row, scale) in matrix.chunks_exact_mut(k).zip(self.plain(&scale, &[rows])?) {
                row.iter_mut().for_each(|x| *x *= scale);
            }
        }
        Ok(matrix)
    }

    fn plain(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, ModelError> {
        let tensor = self.tensor(name, shape)?;
        match tensor.dtype() {
            Dtype::F8_E4M3 => Ok(tensor.data().iter().map(|bits| from_e4m3(*bits)).collect()),
            dtype => numbers::widened(dtype, tensor.data()).ok_or_else(|| {
                ModelError::Unsupported(format!(
                    "tensor '{name}' is stored as {dtype:?}, which is not supported; BF16, F16, F32 and F8_E4M3 are"
                ))
            }),
        }
    }

    fn tensor(&self, name: &str, expected: &[usize]) -> Result<TensorView<'_>, ModelError> {
        let tensor = self.tensors.tensor(name).map_err(|_| ModelError::MissingTensor(name.to_owned()))?;
        if tensor.shape() != expected {
            let (got, expected) = (tensor.shape().to_vec(), expected.to_vec());
            return Err(ModelError::Shape { name: name.to_owned(), got, expected });
        }
        Ok(tensor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Stored<'a> = (&'a str, Dtype, Vec<usize>, Vec<u8>);

    fn file(tensors: &[Stored<'_>]) -> Vec<u8> {
        let views = tensors
            .iter()
            .map(|(name, dtype, shape, bytes)| (*name, TensorView::new(*dtype, shape.clone(), bytes).unwrap()));
        safetensors::serialize(views, None).unwrap()
    }

    fn f32s(numbers: &[f32]) -> Vec<u8> {
        numbers.iter().flat_map(|x| x.to_le_bytes()).collect()
    }

    fn vocab(dtype: Dtype, bytes: Vec<u8>, count: usize) -> Result<Vec<TokenId>, String> {
        let bytes = file(&[(DRAFT_VOCAB, dtype, vec![bytes.len() * 8 / dtype.bitsize()], bytes)]);
        MtpFile::parse(&bytes).unwrap().draft_vocab(count, 10).map_err(|error| error.to_string())
    }

    #[test]
    fn a_draft_vocabulary_names_each_token_once_in_ascending_order() {
        let of = |ids: &[i64]| vocab(Dtype::I64, ids.iter().flat_map(|id| id.to_le_bytes()).collect(), ids.len());
        assert_eq!(of(&[0, 3, 9]).unwrap(), [0, 3, 9].map(TokenId));
        for (ids, says) in [
            (&[1, 5, 3][..], "names token 5 and then token 3: it must name each token once, in ascending order"),
            (&[1, 5, 5], "names token 5 and then token 5"),
            (&[1, 10], "names token 10, and the target has 10 tokens"),
            (&[-1, 2], "names token -1, and"),
            (&[1 << 32, 2], "names token 4294967296, and"),
            (&[], "names no token"),
        ] {
            let error = of(ids).unwrap_err();
            assert!(error.contains(&format!("'mtp.draft_vocab' {says}")), "{error}");
        }
        let other = vocab(Dtype::I32, vec![0; 8], 2).unwrap_err();
        assert!(other.contains("'mtp.draft_vocab' is stored as I32, expected I64"), "{other}");
        assert!(vocab(Dtype::I64, vec![0; 8], 2).unwrap_err().contains("has shape [1], expected [2]"));
    }

    #[test]
    fn matrices_of_eight_bits_have_a_scale_for_each_row() {
        let (name, scale) = ("mtp.layers.2.eh_proj.weight", "mtp.layers.2.eh_proj.weight_scale");
        let codes = || (name, Dtype::F8_E4M3, vec![2, 2], vec![0x38, 0xc0, 0x38, 0x7e]); // 1, -2; 1, 448
        let scales = |count: usize| (scale, Dtype::F32, vec![count], f32s(&vec![0.5, 2.0][..count]));
        let read = |tensors: &[Stored<'_>], depth: usize| {
            let bytes = file(tensors);
            let name = format!("blk.{depth}.nextn.eh_proj.weight");
            MtpFile::parse(&bytes).unwrap().numbers(&name, &[2, 2]).map_err(|error| error.to_string())
        };
        assert_eq!(read(&[codes(), scales(2)], 2).unwrap(), [0.5, -1.0, 2.0, 896.0]);
        let plain = (name, Dtype::BF16, vec![2, 2], vec![0x80, 0x3f, 0, 0, 0, 0xc0, 0, 0]); // 1, 0; -2, 0
        assert_eq!(read(std::slice::from_ref(&plain), 2).unwrap(), [1.0, 0.0, -2.0, 0.0]);
        assert_eq!(read(&[plain.clone(), scales(2)], 2).unwrap(), [0.5, 0.0, -4.0, 0.0]);
        for (tensors, depth, says) in [
            (vec![codes()], 2, "no tensor 'mtp.layers.2.eh_proj.weight_scale'"),
            (vec![codes(), scales(1)], 2, "weight_scale' has shape [1], expected [2]"),
            (vec![plain], 0, "no tensor 'mtp.layers.0.eh_proj.weight'"),
            (vec![(name, Dtype::I8, vec![2, 2], vec![0; 4])], 2, "is stored as I8, which is not supported; BF16"),
            (vec![(name, Dtype::F32, vec![2, 1], vec![0; 8])], 2, "has shape [2, 1], expected [2, 2]"),
        ] {
            let error = read(&tensors, depth).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
        let damaged = MtpFile::parse(b"no safetensors").err().unwrap().to_string();
        assert!(damaged.contains("the MTP module's weights are damaged: "), "{damaged}");
    }
}
