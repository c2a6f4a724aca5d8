//! A draft module of DeepSeek-V3 shape on the native backend, sharing a target's embedding and head.
//!
//! Its head is the target's, cut down to the rows of the draft vocabulary. Unless asked otherwise, matrices and head are
//! kept as 4-bit blocks: what changes is only which tokens are proposed, never which are accepted. With the built-in
//! module that costs no acceptance (2.46 tokens per round at k = 4 with 8-bit blocks as with these), and a draft behind a
//! pass of the target, which has to fetch the module from memory again, a quarter less time. Invariant: as in the target,
//! a slot's bits do not depend on the slots that run with it.

use std::sync::Arc;

use super::{
    cache::{AngleTable, KvCache, KvShape},
    draft_head::DraftHead,
    fuse::Fuse,
    head,
    kernel::{Acts, LANES, MAX_ROWS, Norm, Onto, Operand},
    layer::{BlockShape, Layer, Next, NormWeight, Pass, Scratch},
    llama::{NativeLlama, Weights},
    load::check_shape,
    matrix::Matrix,
    mtp_file::MtpFile,
    turn::{transpose, untranspose},
};
use crate::model::drafters::mtp::file::MtpConfig;
use crate::model::files::source::Source;
use crate::model::nn::config::LlamaConfig;
use crate::model::nn::rope::RopeSpec;
use crate::model::{Forward, ModelError, MtpModule, Rows, Tap};
use crate::protocol::{ConcatOrder, Feed, MtpSpec, NormForm, Recycle, SlotZero, TokenId};

/// How a module's matrices are kept in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MtpStorage {
    /// Blocks of 32 with integer codes, and activations of 8 bits: fastest. Codes of an MTP module have 4 bits, those of an
    /// EAGLE-3 head 8.
    #[default]
    Blocks,
    /// bfloat16 with `f32` activations, as the module was trained, and the target's own head.
    Bf16,
}

/// What a module has of its own; copies share the matrices.
#[derive(Clone, Debug)]
pub(super) struct MtpWeights {
    pub(super) embedding_norm: NormWeight,
    pub(super) hidden_norm: NormWeight,
    /// What else of the target is read, where it is.
    pub(super) fuse: Option<Fuse>,
    pub(super) from_embedding: Matrix, // [d, d], left half of eh_proj
    pub(super) from_hidden: Matrix,    // [d, d], right half
    pub(super) layer: Layer,
    pub(super) final_norm: NormWeight,
}

impl MtpWeights {
    fn bytes(&self) -> usize {
        let fuse = self.fuse.as_ref().map_or(0, Fuse::bytes);
        fuse + self.from_embedding.bytes() + self.from_hidden.bytes() + self.layer.bytes()
    }

    /// As they run when their norms mean this.
    fn meant(self: &Arc<Self>, form: NormForm) -> Arc<Self> {
        if form == NormForm::Weight {
            return Arc::clone(self);
        }
        let mut meant = Self::clone(self);
        let head_norms = meant.layer.head_norms.iter_mut().flatten();
        let norms = [
            &mut meant.embedding_norm,
            &mut meant.hidden_norm,
            &mut meant.final_norm,
            &mut meant.layer.attn_norm,
            &mut meant.layer.ffn_norm,
        ];
        norms.into_iter().chain(head_norms).flatten().flatten().for_each(|weight| *weight += 1.0);
        Arc::new(meant)
    }
}

/// A module with its cache.
#[derive(Debug)]
pub struct NativeMtp {
    target: Arc<Weights>,
    stored: Arc<MtpWeights>,
    /// Norms as the conventions in force mean them.
    weights: Arc<MtpWeights>,
    spec: MtpSpec,
    held: Option<usize>,
    shape: BlockShape,
    head: DraftHead,
    cache: KvCache,
    angles: AngleTable,
    scratch: Scratch,
    acts: [Acts; 2],
    rows: Vec<[f32; LANES]>,
}

fn block_shape(config: &MtpConfig) -> BlockShape {
    BlockShape {
        d_model: config.hidden_size,
        heads: config.num_attention_heads,
        kv_heads: config.num_key_value_heads,
        head_dim: config.head_dim,
        d_ff: config.intermediate_size,
        eps: config.rms_norm_eps,
    }
}

impl NativeMtp {
    /// Builds a module from the bytes of its safetensors file, for `target`.
    ///
    /// # Errors
    /// When the file is damaged, lacks a tensor, or does not fit the target.
    pub fn load(safetensors: &[u8], config: &MtpConfig, target: &NativeLlama) -> Result<Self, ModelError> {
        Self::load_as(safetensors, config, target, MtpStorage::default())
    }

    /// The same with matrices kept as `storage`.
    ///
    /// # Errors
    /// As [`NativeMtp::load`].
    pub fn load_as(
        safetensors: &[u8],
        config: &MtpConfig,
        target: &NativeLlama,
        storage: MtpStorage,
    ) -> Result<Self, ModelError> {
        Self::build((safetensors, 0), config, target, storage)
    }

    /// The module of one depth of a stack, counted from 0.
    ///
    /// # Errors
    /// As [`NativeMtp::load`].
    pub fn load_depth(
        safetensors: &[u8],
        config: &MtpConfig,
        target: &NativeLlama,
        depth: usize,
    ) -> Result<Self, ModelError> {
        Self::build((safetensors, depth), config, target, MtpStorage::default())
    }

    /// The module of this index that comes with the target in `source`, whose head it shares.
    ///
    /// # Errors
    /// When a tensor is missing, misshapen or damaged.
    pub fn own(
        source: &Source,
        (config, spec): (&LlamaConfig, MtpSpec),
        target: &NativeLlama,
        index: usize,
    ) -> Result<Self, ModelError> {
        let shared = Arc::clone(&target.weights);
        let stored = Arc::new(super::load::module(source, config, (&shared.cpu, index))?);
        let (shape, kv) = (shared.shape, KvShape { layers: 1, ..target.cache.shape() });
        Ok(Self {
            weights: stored.meant(spec.norm),
            stored,
            spec,
            held: None,
            shape,
            head: DraftHead::whole(&shared),
            cache: KvCache::new(kv),
            angles: AngleTable::new(&config.rope, shape.head_dim, kv.ctx_len + 1),
            scratch: Scratch::default(),
            acts: Default::default(),
            rows: Vec::new(),
            target: shared,
        })
    }

    /// Bytes that the module's matrices take, a head that is shared with the target not counted.
    #[must_use]
    pub fn own_bytes(&self) -> usize {
        self.weights.bytes()
    }

    fn build(
        (safetensors, depth): (&[u8], usize),
        config: &MtpConfig,
        target: &NativeLlama,
        storage: MtpStorage,
    ) -> Result<Self, ModelError> {
        let shape = block_shape(config);
        check_shape(&shape)?;
        let shared = Arc::clone(&target.weights);
        if shape.d_model != shared.shape.d_model {
            let (ours, theirs) = (shape.d_model, shared.shape.d_model);
            let what = format!("a draft module of width {ours} does not fit a target of width {theirs}");
            return Err(ModelError::Unsupported(what));
        }
        let mut file = MtpFile::new(safetensors, &shape, &shared.cpu, storage)?;
        file.depth = depth;
        let vocab = file.draft_vocab(shared.head.rows())?;
        let head = DraftHead::trimmed(&shared, vocab, (config.context_vocab_size, storage))?;
        let kv = KvShape { layers: 1, kv_heads: shape.kv_heads, head_dim: shape.head_dim, ..target.cache.shape() };
        let rope = RopeSpec::plain(f64::from(config.rope_theta));
        let (stored, spec) = (Arc::new(file.weights(config.layers_of(depth))?), config.spec());
        Ok(Self {
            weights: stored.meant(spec.norm),
            stored,
            spec,
            held: None,
            target: shared,
            shape,
            head,
            cache: KvCache::new(kv),
            angles: AngleTable::new(&rope, shape.head_dim, kv.ctx_len + 1),
            scratch: Scratch::default(),
            acts: Default::default(),
            rows: Vec::new(),
        })
    }

    /// How most of its weights are kept, as people write it.
    #[must_use]
    pub fn dtype(&self) -> &'static str {
        self.weights.layer.down.dtype()
    }

    /// Bytes that the module's own weights take, its copy of head rows included.
    #[must_use]
    pub fn weight_bytes(&self) -> usize {
        self.weights.bytes() + self.head.bytes()
    }

    /// Bytes of cache per slot.
    #[must_use]
    pub fn kv_bytes_per_token(&self) -> u64 {
        self.cache.shape().bytes_per_position()
    }

    /// Rotary position of the first slot of a pass.
    fn position(&self) -> usize {
        self.held.unwrap_or(self.cache.len()) + self.spec.ahead()
    }

    /// Runs one pass at the end of the cache; `hidden` is `[m][width / 16]`, `out`, the normed states, `[m][d / 16]`. The
    /// states before the last norm are left in the scratch.
    fn pass(
        &mut self,
        tokens: &[TokenId],
        hidden: &[[f32; LANES]],
        out: &mut [[f32; LANES]],
    ) -> Result<(), ModelError> {
        let (base, m, at) = (self.cache.len(), tokens.len(), self.position());
        let (cpu, shape, angles, next) = (&self.target.cpu, &self.shape, &self.angles, Next::Head(self.head.matrix()));
        let pass = Pass { cpu, shape, angles, base, at, m, tree: None, next };
        let tiles = self.shape.d_model / LANES;
        let [embedded, handed] = &mut self.acts;
        self.rows.resize(tiles * m, [0.0; LANES]);
        // 1. Norms of embedding and hidden state, [m, d] each
        for (token, row) in tokens.iter().zip(out.chunks_exact_mut(tiles)) {
            self.target.embed(*token, row.as_flattened_mut());
        }
        if base == 0 && self.spec.slot0 == SlotZero::Zeroed {
            out[..tiles].fill([0.0; LANES]);
        }
        transpose(out, m, &mut self.rows);
        let (of_embedding, of_hidden) = match self.spec.order {
            ConcatOrder::EmbeddingFirst => (&self.weights.from_embedding, &self.weights.from_hidden),
            ConcatOrder::HiddenFirst => (&self.weights.from_hidden, &self.weights.from_embedding),
        };
        let operand = of_embedding.operand();
        let mut finite = pass.norm(&self.rows, &self.weights.embedding_norm, operand, embedded);
        match &self.weights.fuse {
            Some(fuse) if hidden.len() > m * tiles => finite &= fuse.fed(pass, hidden, handed, &mut self.rows),
            _ => transpose(hidden, m, &mut self.rows),
        }
        finite &= pass.norm(&self.rows, &self.weights.hidden_norm, operand, handed);
        // 2. z = eh_proj [embedding ; hidden]: [m, 2 d] -> [d / 16][m]
        self.scratch.x.resize(tiles * m, [0.0; LANES]);
        pass.product(of_embedding, embedded, Onto::Nothing, &mut self.scratch.x);
        pass.product(of_hidden, handed, Onto::Present, &mut self.scratch.x);
        // 3. Block and final norm
        finite &= self.weights.layer.enter(pass, &mut self.scratch);
        finite &= self.weights.layer.forward(pass, self.cache.layer(0), &mut self.scratch);
        embedded.shape(m, 0, Operand::default());
        let (x, weight) = (&self.scratch.x, &self.weights.final_norm);
        finite &= pass.cpu.isa.run(Norm { x, weight, eps: self.shape.eps, out: embedded, kept: out });
        if !finite {
            return Err(ModelError::NotFinite { position: base });
        }
        self.cache.set_len(base + m);
        Ok(())
    }

    fn drop_from(&mut self, len: usize) {
        self.cache.set_len(len);
        self.head.truncate(len);
    }

    fn run(&mut self, tokens: &[TokenId], hidden: &Rows) -> Result<Forward, ModelError> {
        let d = self.shape.d_model;
        self.head.read(self.cache.len(), tokens);
        let (tiles, given) = (d / LANES, hidden.width() / LANES);
        let mut out = vec![[0.0; LANES]; tokens.len() * tiles];
        let mut residual = Vec::new();
        // slots that stand at one position run one by one
        let together = if self.held.is_some() { 1 } else { MAX_ROWS };
        let parts = tokens.chunks(together).zip(hidden.as_slice().as_chunks().0.chunks(together * given));
        for ((tokens, hidden), out) in parts.zip(out.chunks_mut(together * tiles)) {
            self.pass(tokens, hidden, out)?;
            if self.spec.recycle == Recycle::PreNorm {
                let before = residual.len();
                residual.resize(before + out.len(), [0.0; LANES]);
                untranspose(&self.scratch.x, tokens.len(), &mut residual[before..]);
            }
        }
        let mut stats = Vec::new();
        let mut logits = Vec::new();
        if let Some(last) = out.chunks_exact(tiles).next_back() {
            let (head, acts) = (self.head.matrix(), &mut self.acts[0]);
            logits.resize(head.rows(), 0.0);
            head::operand(&self.target.cpu, head, last, acts);
            head::logits(&self.target.cpu, head, acts, &mut logits, &mut stats);
        }
        let recycled = if self.spec.recycle == Recycle::PreNorm { residual } else { out };
        let hidden = Rows::new(recycled.into_flattened(), d);
        Ok(Forward { logits: Rows::new(logits, self.head.tokens().len()), hidden, stats })
    }
}

impl MtpModule for NativeMtp {
    fn len(&self) -> usize {
        self.cache.len()
    }

    fn spec(&self) -> MtpSpec {
        self.spec
    }

    fn set_spec(&mut self, spec: &MtpSpec) -> Result<(), ModelError> {
        if spec.feed == Feed::Layers {
            return Err(ModelError::Unsupported(
                "which layers a module fuses is its own: feed it post-norm or pre-norm".into(),
            ));
        }
        self.weights = self.stored.meant(spec.norm);
        self.spec = *spec;
        self.truncate(0)
    }

    fn tap(&self) -> Tap {
        let own = Tap::fed(self.spec.feed);
        self.weights.fuse.as_ref().map_or_else(|| own.clone(), |fuse| fuse.tap(&own))
    }

    fn hold_position(&mut self, position: Option<usize>) {
        self.held = position;
    }

    fn forward(&mut self, tokens: &[TokenId], hidden: &Rows) -> Result<Forward, ModelError> {
        let base = self.cache.room(tokens.len())?;
        self.target.check(tokens)?;
        let widths = [self.tap().states().len() * self.shape.d_model, self.shape.d_model];
        if hidden.len() != tokens.len() || !widths.contains(&hidden.width()) {
            return Err(ModelError::Shape {
                name: "hidden states for the draft module".to_owned(),
                got: vec![hidden.len(), hidden.width()],
                expected: vec![tokens.len(), widths[0]],
            });
        }
        self.run(tokens, hidden).inspect_err(|_| self.drop_from(base))
    }

    fn truncate(&mut self, len: usize) -> Result<(), ModelError> {
        let have = self.len();
        if len > have {
            return Err(ModelError::Rewind { len, have, since: 0 });
        }
        self.drop_from(len);
        Ok(())
    }

    fn draft_vocab(&self) -> &[TokenId] {
        self.head.tokens()
    }

    fn fork(&self) -> Result<Box<dyn MtpModule>, ModelError> {
        Ok(Box::new(Self {
            target: Arc::clone(&self.target),
            stored: Arc::clone(&self.stored),
            weights: Arc::clone(&self.weights),
            spec: self.spec,
            held: self.held,
            shape: self.shape,
            head: self.head.clone(),
            cache: self.cache.fork(),
            angles: self.angles.clone(),
            scratch: Scratch::default(),
            acts: Default::default(),
            rows: Vec::new(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;
    use safetensors::{Dtype, SafeTensors, tensor::TensorView};

    use super::*;
    use crate::model::drafters::mtp::CandleMtp;
    use crate::model::families::llama::LlamaWeights;
    use crate::model::native::matrix::{Bits, Cpu};
    use crate::model::native::testing::{Noise, Parity, ParityPrompt, gguf_path, mtp_path, token_ids};
    use crate::model::nn::block::WeightType;
    use crate::model::tap::State;
    use crate::model::{LogitRows, Model};

    fn load(file: &str, storage: MtpStorage) -> Option<(NativeLlama, NativeMtp)> {
        let (gguf, module, config) = (gguf_path()?, mtp_path(file), mtp_path("config.json"));
        let target =
            NativeLlama::load(&crate::model::files::source::Source::open(&gguf).unwrap(), 256, Some(2)).unwrap();
        let config = serde_json::from_slice(&std::fs::read(config).unwrap()).unwrap();
        let module = NativeMtp::load_as(&std::fs::read(module).unwrap(), &config, &target, storage).unwrap();
        Some((target, module))
    }

    /// Greedy drafts after a prompt, as a drafter takes them, and the logits of the first.
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
            ("mtp.safetensors", MtpStorage::Bf16, 0.1),
            ("mtp.safetensors", MtpStorage::Blocks, 2.0),
            ("mtp.fp8.safetensors", MtpStorage::Blocks, 2.0),
        ];
        for (file, storage, tolerance) in kinds {
            let Some((_, mut module)) = load(file, storage) else {
                return;
            };
            for prompt in parity.prompts() {
                module.truncate(0).unwrap();
                let (drafted, logits) = draft(&mut module, &prompt, 4);
                let squares = logits.iter().zip(&prompt.mtp_logits).map(|(a, b)| (a - b).powi(2));
                let error = (squares.sum::<f32>() / logits.len() as f32).sqrt();
                println!("{file} {storage:?}: {drafted:?} of {:?}, logits off by {error} (rms)", prompt.drafted);
                assert!(error < tolerance, "{file} {storage:?}: off by {error}");
                assert!(storage == MtpStorage::Blocks || drafted == prompt.drafted);
            }
        }
    }

    /// The module's file with matrices as blocks of 4-bit codes hold them.
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
        let Some((target, mut module)) = load("mtp.safetensors", MtpStorage::Blocks) else {
            return;
        };
        let config = serde_json::from_slice(&std::fs::read(mtp_path("config.json")).unwrap()).unwrap();
        let file = rounded(&std::fs::read(mtp_path("mtp.safetensors")).unwrap(), &target.weights.cpu);
        let mut plain = NativeMtp::load_as(&file, &config, &target, MtpStorage::Bf16).unwrap();
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
        let Some((mut target, mut module)) = load("mtp.safetensors", MtpStorage::Blocks) else {
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

    /// The fixture's module with a matrix that reads two states within the target, so small that drafts stay sensible.
    fn fused() -> (Vec<u8>, MtpConfig) {
        let bytes = std::fs::read(mtp_path("mtp.safetensors")).unwrap();
        let numbers = Noise(3).numbers(576 * 2 * 576);
        let fuse: Vec<u8> = numbers.iter().flat_map(|x| (0.02 * x).to_le_bytes()).collect();
        let fuse = TensorView::new(Dtype::F32, vec![576, 2 * 576], &fuse).unwrap();
        let own = SafeTensors::deserialize(&bytes).unwrap();
        let all = own.tensors().into_iter().chain([("mtp.layers.0.fuse.weight".to_owned(), fuse)]);
        let config = std::fs::read(mtp_path("config.json")).unwrap();
        let config = MtpConfig { hidden_layers: vec![7, 25], ..MtpConfig::from_json(&config).unwrap() };
        (safetensors::serialize(all, None).unwrap(), config)
    }

    /// How far apart two results are, of the length of the second.
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
        let ((bytes, config), source) = (fused(), crate::model::files::source::Source::open(&path).unwrap());
        let mut target = NativeLlama::load(&source, 256, Some(2)).unwrap();
        let mut module = NativeMtp::load_as(&bytes, &config, &target, MtpStorage::Bf16).unwrap();
        let weights = LlamaWeights::load(&source, 256, WeightType::F32, &Device::Cpu, &mut |_, _| {}).unwrap();
        let mut on_candle = CandleMtp::load(&bytes, &config, Arc::new(weights), 256).unwrap();
        assert_eq!(module.tap(), Tap::new(vec![State::Normed, State::Behind(7), State::Behind(25)]));
        assert_eq!(on_candle.tap(), module.tap());
        target.set_tap(&module.tap()).unwrap();
        let tokens = token_ids(41);
        let hidden = target.forward(&tokens[..40], LogitRows::Last).unwrap().hidden;
        assert_eq!(hidden.width(), 3 * 576);
        let [ours, theirs] = [&mut module as &mut dyn MtpModule, &mut on_candle]
            .map(|module| module.forward(&tokens[1..], &hidden).unwrap());
        assert!(apart(&ours.hidden, &theirs.hidden) < 1e-2, "{}", apart(&ours.hidden, &theirs.hidden));
        assert!(apart(&ours.logits, &theirs.logits) < 1e-2, "{}", apart(&ours.logits, &theirs.logits));
        // another order of the same states is another matter
        let swap = |row: &[f32]| [&row[..576], &row[1152..], &row[576..1152]].concat();
        let swapped = Rows::new(hidden.iter().flat_map(swap).collect(), hidden.width());
        module.truncate(0).unwrap();
        let wrong = module.forward(&tokens[1..], &swapped).unwrap();
        assert!(apart(&wrong.hidden, &theirs.hidden) > 5e-2, "{}", apart(&wrong.hidden, &theirs.hidden));
        // alone as together, and its own outputs are as wide as ever
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

    /// The fixture's module with a draft vocabulary of so many tokens, which those of the text may join.
    fn joined(count: usize, room: usize) -> (Vec<u8>, MtpConfig) {
        let bytes = std::fs::read(mtp_path("mtp.safetensors")).unwrap();
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
        let ((bytes, config), source) = (joined(1000, 100), crate::model::files::source::Source::open(&path).unwrap());
        let mut target = NativeLlama::load(&source, 256, Some(2)).unwrap();
        let mut module = NativeMtp::load_as(&bytes, &config, &target, MtpStorage::Bf16).unwrap();
        let weights = LlamaWeights::load(&source, 256, WeightType::F32, &Device::Cpu, &mut |_, _| {}).unwrap();
        let mut on_candle = CandleMtp::load(&bytes, &config, Arc::new(weights), 256).unwrap();
        let tokens = token_ids(41);
        let hidden = target.forward(&tokens[..40], LogitRows::Last).unwrap().hidden;
        let fixed = module.draft_vocab().to_vec();
        let besides: Vec<_> = tokens[1..].iter().filter(|token| !fixed.contains(token)).copied().collect();
        assert!((20..100).contains(&besides.len()), "{} tokens of the text are none of the vocabulary", besides.len());
        let [ours, theirs] = [&mut module as &mut dyn MtpModule, &mut on_candle]
            .map(|module| module.forward(&tokens[1..], &hidden).unwrap().logits);
        assert_eq!(module.draft_vocab(), on_candle.draft_vocab());
        assert_eq!(module.draft_vocab(), [&fixed[..], &besides].concat());
        assert_eq!((ours.width(), theirs.width()), (1000 + besides.len(), ours.width()));
        let joined = |logits: &Rows| Rows::new(logits.row(0)[1000..].to_vec(), besides.len());
        assert!(apart(&joined(&ours), &joined(&theirs)) < 1e-2, "{}", apart(&joined(&ours), &joined(&theirs)));
        // a copy proposes the same, and slots that are dropped take along what they brought
        let copy = module.fork().unwrap();
        assert_eq!(copy.draft_vocab(), module.draft_vocab());
        for module in [&mut module as &mut dyn MtpModule, &mut on_candle] {
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
        let target = crate::model::files::source::Source::open(&path).unwrap().config().unwrap();
        config.block_config(&target).unwrap();
        config.hidden_layers = vec![7, 31];
        let error = config.block_config(&target).unwrap_err().to_string();
        assert!(error.contains("reads the state behind block 31, and the target has 30 blocks"), "{error}");
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
