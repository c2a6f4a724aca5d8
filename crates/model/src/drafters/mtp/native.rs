//! An MTP module from its own file, on the native kernels.

use crate::ModelError;
use crate::drafters::mtp::{config::MtpConfig, file::MtpFile};
use crate::files::llama_part;
use crate::native::draft_head::DraftHead;
use crate::native::layer::{BlockShape, NormWeight};
use crate::native::load::check_shape;
use crate::native::matrix::{Bits, Cpu, Matrix};
use crate::native::mtp::{MtpModule, MtpWeights};
use crate::native::pack::{BlockPacker, lanes};
use crate::native::{MtpStorage, NativeLlama, NativeMtp};
use crate::nn::{Fuse, RopeSpec};
use crate::plan::Angles;
use draftscope_kernels::LANES;

fn block_shape(config: &MtpConfig) -> BlockShape {
    BlockShape {
        d_model: config.hidden_size,
        heads: config.num_attention_heads,
        kv_heads: config.num_key_value_heads,
        head_dim: config.head_dim,
        eps: config.rms_norm_eps,
    }
}

impl NativeMtp {
    /// Builds the module of one depth of a stack, from 0, from the bytes of the safetensors file; its matrices are
    /// packed as `storage`.
    ///
    /// # Errors
    /// If the file is damaged, lacks a tensor, or does not fit the target.
    pub(crate) fn load(
        (safetensors, depth): (&[u8], usize),
        config: &MtpConfig,
        target: &NativeLlama,
        storage: MtpStorage,
    ) -> Result<Self, ModelError> {
        let shape = block_shape(config);
        check_shape(&shape)?;
        let shared = &target.weights;
        if shape.d_model != shared.shape.d_model {
            let (ours, theirs) = (shape.d_model, shared.shape.d_model);
            let what = format!("a draft module of width {ours} does not fit a target of width {theirs}");
            return Err(ModelError::Unsupported(what));
        }
        let file = MtpFile::parse(safetensors, depth)?;
        let vocab = file.draft_vocab(config.draft_vocab_size, shared.head.rows())?;
        let head = DraftHead::trimmed(shared, vocab, (config.context_vocab_size, storage))?;
        let angles = Angles { rope: RopeSpec::plain(f64::from(config.rope_theta)), width: shape.head_dim };
        let packer = Packer { file, shape: &shape, d_ff: config.intermediate_size, cpu: &shared.cpu, storage };
        let weights = packer.weights(config.layers_of(depth))?;
        let bytes = weights.bytes() + head.0.bytes();
        let (head, tokens) = head;
        MtpModule::module(target, (weights, bytes), (head, tokens, None), (shape, &angles, config.spec()))
    }
}

/// Packs a module's tensors.
struct Packer<'a> {
    file: MtpFile<'a>,
    shape: &'a BlockShape,
    d_ff: usize,
    cpu: &'a Cpu,
    storage: MtpStorage,
}

impl Packer<'_> {
    /// The module's fusion; `layers` are the blocks of the target after which it reads.
    fn weights(&self, layers: &[usize]) -> Result<MtpWeights, ModelError> {
        let d = self.shape.d_model;
        let fuse = match layers.len() {
            0 => None,
            count => {
                let matrix = self.pack(count * d, &self.matrix("fuse", d, count * d)?);
                Some(Fuse::new(layers, matrix, vec![[1.0; LANES]; d / LANES]))
            }
        };
        let joined = self.matrix("eh_proj", d, 2 * d)?;
        let (embedding, hidden): (Vec<_>, Vec<_>) = joined.chunks_exact(2 * d).map(|row| row.split_at(d)).unzip();
        Ok(MtpWeights {
            embedding_norm: self.norm("enorm")?,
            hidden_norm: self.norm("hnorm")?,
            fuse,
            from_embedding: self.pack(d, &embedding.concat()),
            from_hidden: self.pack(d, &hidden.concat()),
            layer: BlockPacker {
                matrix: &|part, shape| self.file.matrix(llama_part(part).unwrap_or(part), shape),
                norm: &|part, width| self.file.norm(llama_part(part).unwrap_or(part), width),
                pack: &|k, rows| self.pack(k, rows),
            }
            .layer(self.shape, (d, self.d_ff, false))?,
            final_norm: self.norm("shared_head.norm")?,
        })
    }

    fn pack(&self, k: usize, rows: &[f32]) -> Matrix {
        self.storage.pack(self.cpu, k, rows, Bits::Four)
    }

    fn norm(&self, part: &str) -> Result<NormWeight, ModelError> {
        Ok(lanes(&self.file.norm(part, self.shape.d_model)?))
    }

    fn matrix(&self, part: &str, rows: usize, k: usize) -> Result<Vec<f32>, ModelError> {
        self.file.matrix(part, [rows, k])
    }
}

#[cfg(test)]
#[path = "../../../../../tests/common/bf16.rs"]
mod bf16;

#[cfg(test)]
mod tests {
    use candle_core::Device;
    use safetensors::{Dtype, SafeTensors, tensor::TensorView};

    use std::sync::Arc;

    use super::bf16::in_bf16;
    use super::*;
    use crate::load::OpenModel;
    use crate::nn::{MatmulBackend, SharedTarget, Tensors};
    use crate::{DraftModule, Rows, Tap};
    use draftscope_protocol::TokenId;

    use crate::drafters::core::CandleMtp;
    use crate::native::testing::{Noise, Parity, ParityPrompt, gguf_path, mtp_path, mtp_weights, token_ids};
    use crate::options::WeightType;
    use crate::reference::Weights;
    use crate::tap::State;
    use crate::{LogitRows, Model};

    /// The default target and its unfused module, from the file in FP8 or from the same in bf16.
    fn load(dtype: Dtype, storage: MtpStorage) -> Option<(NativeLlama, NativeMtp)> {
        let (gguf, config) = (gguf_path()?, mtp_path("config.json"));
        let module = if dtype == Dtype::BF16 { in_bf16(&mtp_weights()) } else { mtp_weights() };
        let target = NativeLlama::load(OpenModel::open(&gguf).unwrap().parts(), 256, Some(2)).unwrap();
        let config = serde_json::from_slice(&std::fs::read(config).unwrap()).unwrap();
        let module = NativeMtp::load((&module, 0), &config, &target, storage).unwrap();
        Some((target, module))
    }

    /// The same module with its target on candle.
    fn load_candle(target: &OpenModel, bytes: &[u8], config: &MtpConfig) -> CandleMtp {
        let on_candle = (MatmulBackend::Candle(WeightType::F32), &Device::Cpu);
        let tensors = Tensors::new(&target.source, on_candle, target.transformer());
        let weights = Weights::load(tensors, target.config.plan(), 256, &mut |_, _, _| {}).unwrap();
        CandleMtp::load((bytes, 0), config, &(weights.trunk as Arc<dyn SharedTarget>), 256).unwrap()
    }

    /// Greedy drafts after a prompt, as a drafter makes them, and the logits of the first.
    fn draft(module: &mut NativeMtp, prompt: &ParityPrompt, count: usize) -> (Vec<TokenId>, Vec<f32>) {
        let hidden = Rows::new(prompt.hidden.clone(), 576);
        let mut tokens = prompt.ids[1..].to_vec();
        tokens.push(prompt.next);
        let mut out = module.forward(&tokens, &hidden).unwrap();
        let first = out.logits.row(0).to_vec();
        let mut drafted = Vec::new();
        for _ in 0..count {
            let best = out.stats[0].argmax;
            drafted.push(module.draft_vocab()[best as usize]);
            let last = Rows::new(out.hidden.last().unwrap().to_vec(), 576);
            out = module.forward(&drafted[drafted.len() - 1..], &last).unwrap();
        }
        (drafted, first)
    }

    #[test]
    fn drafts_are_those_of_the_reference() {
        let parity = Parity::open();
        let kinds = [
            (Dtype::BF16, MtpStorage::Bf16, 0.1),
            (Dtype::BF16, MtpStorage::Blocks, 2.0),
            (Dtype::F8_E4M3, MtpStorage::Blocks, 2.0),
        ];
        for (dtype, storage, tolerance) in kinds {
            let Some((_, mut module)) = load(dtype, storage) else {
                return;
            };
            for prompt in parity.prompts() {
                module.truncate(0).unwrap();
                let (drafted, logits) = draft(&mut module, &prompt, 4);
                let squares = logits.iter().zip(&prompt.mtp_logits).map(|(a, b)| (a - b).powi(2));
                let error = (squares.sum::<f32>() / logits.len() as f32).sqrt();
                println!("{dtype:?} {storage:?}: {drafted:?} of {:?}, logits off by {error} (rms)", prompt.drafted);
                assert!(error < tolerance, "{dtype:?} {storage:?}: off by {error}");
                assert!(storage == MtpStorage::Blocks || drafted == prompt.drafted);
            }
        }
    }

    /// The module's file with matrices rounded to blocks of 4-bit codes.
    fn rounded(file: &[u8], cpu: &Cpu) -> Vec<u8> {
        let tensors = SafeTensors::deserialize(file).unwrap();
        let rounded = tensors.iter().map(|(name, view)| {
            let (dtype, shape) = (view.dtype(), view.shape().to_vec());
            let &[rows, k] = shape.as_slice() else {
                return (name.to_owned(), dtype, shape, view.data().to_vec());
            };
            assert_eq!(dtype, Dtype::BF16, "{name}");
            let numbers = view.data().as_chunks().0.iter().map(|bytes| half::bf16::from_le_bytes(*bytes).to_f32());
            let matrix = Matrix::quantise(cpu, k, &numbers.collect::<Vec<_>>(), Bits::Four);
            let mut numbers = vec![0.0; rows * k];
            numbers.chunks_exact_mut(k).enumerate().for_each(|(index, row)| matrix.row(index, row));
            (name.to_owned(), Dtype::F32, shape, numbers.iter().flat_map(|x| x.to_le_bytes()).collect())
        });
        let rounded: Vec<_> = rounded.collect();
        let views = rounded
            .iter()
            .map(|(name, dtype, shape, bytes)| (name, TensorView::new(*dtype, shape.clone(), bytes).unwrap()));
        safetensors::serialize(views, None).unwrap()
    }

    #[test]
    fn blocks_differ_from_the_reference_by_what_rounding_their_weights_does() {
        let Some((target, mut module)) = load(Dtype::BF16, MtpStorage::Blocks) else {
            return;
        };
        let config = serde_json::from_slice(&std::fs::read(mtp_path("config.json")).unwrap()).unwrap();
        let file = rounded(&in_bf16(&mtp_weights()), &target.weights.cpu);
        let mut plain = NativeMtp::load((&file, 0), &config, &target, MtpStorage::Bf16).unwrap();
        for prompt in Parity::open().prompts() {
            let states = [&mut module, &mut plain].map(|module| {
                module.truncate(0).unwrap();
                let mut tokens = prompt.ids[1..].to_vec();
                tokens.push(prompt.next);
                module.forward(&tokens, &Rows::new(prompt.hidden.clone(), 576)).unwrap().hidden
            });
            let size: f32 = states[1].as_slice().iter().map(|x| x * x).sum();
            let off: f32 = states[0].as_slice().iter().zip(states[1].as_slice()).map(|(a, b)| (a - b).powi(2)).sum();
            let off = (off / size).sqrt();
            println!("off by {off} of their size");
            assert!(off < 0.02, "off by {off}"); // activations of 8 bits
        }
    }

    #[test]
    fn slots_run_together_or_alone_give_the_same_bits() {
        let Some((mut target, mut module)) = load(Dtype::BF16, MtpStorage::Blocks) else {
            return;
        };
        let tokens = token_ids(41);
        let hidden = target.forward(&tokens[..40], LogitRows::Last).unwrap().hidden;
        let together = module.forward(&tokens[1..], &hidden).unwrap();
        module.truncate(0).unwrap();
        let mut last = Rows::empty(1);
        for (token, row) in tokens[1..].iter().zip(hidden.iter()) {
            last = module.forward(&[*token], &Rows::new(row.to_vec(), 576)).unwrap().logits;
        }
        assert!(together.logits == last);
        let short = module.forward(&tokens[..2], &Rows::new(hidden.row(0).to_vec(), 576));
        assert!(matches!(short, Err(ModelError::Shape { .. })));
        assert!(matches!(module.truncate(41), Err(ModelError::Rewind { .. })));
    }

    /// The unfused module with a matrix for two inner states, so small that drafts stay sensible.
    fn fused() -> (Vec<u8>, MtpConfig) {
        let bytes = in_bf16(&mtp_weights());
        let numbers = Noise(3).numbers(576 * 2 * 576);
        let fuse: Vec<u8> = numbers.iter().flat_map(|x| (0.02 * x).to_le_bytes()).collect();
        let fuse = ("mtp.layers.0.fuse.weight", TensorView::new(Dtype::F32, vec![576, 2 * 576], &fuse).unwrap());
        let own = SafeTensors::deserialize(&bytes).unwrap();
        let all = own.iter().filter(|(name, _)| *name != fuse.0).chain([fuse.clone()]);
        let config = std::fs::read(mtp_path("config.json")).unwrap();
        let config = MtpConfig { hidden_layers: vec![7, 25], ..MtpConfig::from_json(&config).unwrap() };
        (safetensors::serialize(all, None).unwrap(), config)
    }

    /// Difference of two results, relative to the length of the second.
    fn apart(a: &Rows, b: &Rows) -> f32 {
        let squares = |values: &mut dyn Iterator<Item = f32>| values.map(|x| x * x).sum::<f32>().sqrt();
        let (a, b) = (a.as_slice(), b.as_slice());
        squares(&mut a.iter().zip(b).map(|(a, b)| a - b)) / squares(&mut b.iter().copied())
    }

    #[test]
    fn states_within_the_target_are_fused_as_on_candle() {
        let Some(path) = gguf_path() else {
            return;
        };
        let ((bytes, config), source) = (fused(), OpenModel::open(&path).unwrap());
        let mut target = NativeLlama::load(source.parts(), 256, Some(2)).unwrap();
        let mut module = NativeMtp::load((&bytes, 0), &config, &target, MtpStorage::Bf16).unwrap();
        let mut on_candle = load_candle(&source, &bytes, &config);
        assert_eq!(module.tap(), Tap::new(vec![State::Normed, State::Behind(7), State::Behind(25)]));
        assert_eq!(on_candle.tap(), module.tap());
        target.set_tap(&module.tap()).unwrap();
        let tokens = token_ids(41);
        let hidden = target.forward(&tokens[..40], LogitRows::Last).unwrap().hidden;
        assert_eq!(hidden.width(), 3 * 576);
        let [ours, theirs] = [&mut module as &mut dyn DraftModule, &mut on_candle]
            .map(|module| module.forward(&tokens[1..], &hidden).unwrap());
        assert!(apart(&ours.hidden, &theirs.hidden) < 1e-2, "{}", apart(&ours.hidden, &theirs.hidden));
        assert!(apart(&ours.logits, &theirs.logits) < 1e-2, "{}", apart(&ours.logits, &theirs.logits));
        // another order of the same states gives another result
        let swap = |row: &[f32]| [&row[..576], &row[1152..], &row[576..1152]].concat();
        let swapped = Rows::new(hidden.iter().flat_map(swap).collect(), hidden.width());
        module.truncate(0).unwrap();
        let wrong = module.forward(&tokens[1..], &swapped).unwrap();
        assert!(apart(&wrong.hidden, &theirs.hidden) > 5e-2, "{}", apart(&wrong.hidden, &theirs.hidden));
        // alone as together, and its own outputs keep their width
        module.truncate(0).unwrap();
        let mut last = Rows::empty(1);
        for (token, row) in tokens[1..].iter().zip(hidden.iter()) {
            last = module.forward(&[*token], &Rows::new(row.to_vec(), hidden.width())).unwrap().logits;
        }
        assert!(last == ours.logits);
        module.forward(&tokens[..1], &ours.hidden.last_row()).unwrap();
        let narrow = Rows::new(vec![0.0; 2 * 576], 2 * 576);
        assert!(matches!(module.forward(&tokens[..1], &narrow), Err(ModelError::Shape { .. })));
        on_candle.forward(&tokens[..1], &narrow).unwrap_err();
    }

    /// The unfused module with a draft vocabulary of so many tokens, which tokens of the text may join.
    fn joined(count: usize, room: usize) -> (Vec<u8>, MtpConfig) {
        let bytes = in_bf16(&mtp_weights());
        let own = SafeTensors::deserialize(&bytes).unwrap();
        let vocab = own.tensor("mtp.draft_vocab").unwrap().data()[..8 * count].to_vec();
        let vocab = TensorView::new(Dtype::I64, vec![count], &vocab).unwrap();
        let all = own.tensors().into_iter().filter(|(name, _)| name != "mtp.draft_vocab");
        let all = all.chain([("mtp.draft_vocab".to_owned(), vocab)]);
        let config = std::fs::read(mtp_path("config.json")).unwrap();
        let config = MtpConfig::from_json(&config).unwrap();
        let config = MtpConfig { draft_vocab_size: count, context_vocab_size: room, ..config };
        (safetensors::serialize(all, None).unwrap(), config)
    }

    #[test]
    fn tokens_of_the_text_are_drafted_on_both_backends() {
        let Some(path) = gguf_path() else {
            return;
        };
        let ((bytes, config), source) = (joined(1000, 100), OpenModel::open(&path).unwrap());
        let mut target = NativeLlama::load(source.parts(), 256, Some(2)).unwrap();
        let mut module = NativeMtp::load((&bytes, 0), &config, &target, MtpStorage::Bf16).unwrap();
        let mut on_candle = load_candle(&source, &bytes, &config);
        let tokens = token_ids(41);
        let hidden = target.forward(&tokens[..40], LogitRows::Last).unwrap().hidden;
        let fixed = module.draft_vocab().to_vec();
        let besides: Vec<_> = tokens[1..].iter().filter(|token| !fixed.contains(token)).copied().collect();
        assert!((20..100).contains(&besides.len()), "{} tokens of the text are none of the vocabulary", besides.len());
        let [ours, theirs] = [&mut module as &mut dyn DraftModule, &mut on_candle]
            .map(|module| module.forward(&tokens[1..], &hidden).unwrap().logits);
        assert_eq!(module.draft_vocab(), on_candle.draft_vocab());
        assert_eq!(module.draft_vocab(), [&fixed[..], &besides].concat());
        assert_eq!((ours.width(), theirs.width()), (1000 + besides.len(), ours.width()));
        let joined = |logits: &Rows| Rows::new(logits.row(0)[1000..].to_vec(), besides.len());
        assert!(apart(&joined(&ours), &joined(&theirs)) < 1e-2, "{}", apart(&joined(&ours), &joined(&theirs)));
        // a copy proposes the same, and dropped slots drop the tokens they added
        let copy = module.fork().unwrap();
        assert_eq!(copy.draft_vocab(), module.draft_vocab());
        for module in [&mut module as &mut dyn DraftModule, &mut on_candle] {
            module.truncate(0).unwrap();
            assert_eq!(module.draft_vocab(), fixed);
            let again = module.forward(&tokens[1..3], &hidden.slice(0..2)).unwrap().logits;
            assert_eq!(again.width(), module.draft_vocab().len());
        }
    }

    #[test]
    fn states_that_the_target_lacks_are_refused() {
        let (_, mut config) = fused();
        let Some(path) = gguf_path() else {
            return;
        };
        let target = OpenModel::open(&path).unwrap().transformer().clone();
        config.block_config(&target).unwrap();
        config.hidden_layers = vec![7, 31];
        let error = config.block_config(&target).unwrap_err().to_string();
        assert!(error.contains("reads the state after block 31, and the target has 30 blocks"), "{error}");
        let many = String::from_utf8(std::fs::read(mtp_path("config.json")).unwrap()).unwrap();
        let many = many.replacen('{', r#"{"hidden_layers": [1, 2, 3, 4, 5, 6, 7, 8, 9],"#, 1);
        let error = MtpConfig::from_json(many.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("'hidden_layers' names 9 states"), "{error}");
    }

    #[test]
    fn sizes_that_no_module_has_are_refused() {
        let json: serde_json::Value = serde_json::from_slice(&std::fs::read(mtp_path("config.json")).unwrap()).unwrap();
        let refused = |key: &str, value: serde_json::Value| {
            let mut json = json.clone();
            json[key] = value;
            let error = MtpConfig::from_json(json.to_string().as_bytes()).unwrap_err().to_string();
            assert!(error.contains(key), "{error}");
        };
        // 2³¹ heads of 2³³ make a width of 0
        refused("num_attention_heads", (1u64 << 31).into());
        refused("head_dim", (1u64 << 33).into());
        for key in ["num_key_value_heads", "intermediate_size", "draft_vocab_size", "hidden_size", "rope_theta"] {
            refused(key, 0.into());
        }
    }
}
