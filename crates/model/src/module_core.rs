//! The part of a draft module that does not depend on its backend: conventions, rotary positions, checks, passes and
//! rollback.
//!
//! Invariant: a pass that fails leaves the cache as it was. Slots of one pass have consecutive positions, so slots that
//! share one position run one by one.

use std::ops::Deref;
use std::sync::Arc;

use crate::draft_tokens::DraftTokens;
use crate::{DraftModule, Forward, LogitRows, Model, ModelError, RowStats, Rows, Tap};
use draftscope_protocol::{ConcatOrder, DeviceWork, Feed, MtpSpec, NormForm, SlotZero, TokenId};

/// Slots that run in one pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slots<'a> {
    /// One token for each slot.
    pub(crate) tokens: &'a [TokenId],
    /// The target's states, or the module's output for the slots before: `[m, width]`.
    pub(crate) hidden: &'a [f32],
    /// Rotary position of the first slot.
    pub(crate) at: usize,
    /// Whether the embedding of the first slot is zero.
    pub(crate) zeroed: bool,
    /// The conventions in force.
    pub(crate) spec: MtpSpec,
}

impl Slots<'_> {
    /// Values in a row of hidden states.
    pub(crate) fn width(&self) -> usize {
        self.hidden.len() / self.tokens.len().max(1)
    }

    /// What the embedding and the hidden state have, in the order in which the module reads them.
    pub(crate) fn in_order<T>(&self, embedding: T, hidden: T) -> [T; 2] {
        match self.spec.order {
            ConcatOrder::EmbeddingFirst => [embedding, hidden],
            ConcatOrder::HiddenFirst => [hidden, embedding],
        }
    }
}

/// The backend of a draft module.
pub(crate) trait ModuleBackend: Sized {
    /// Its name, for messages.
    const NAME: &'static str;

    /// Most slots of a pass.
    const MAX_SLOTS: usize;

    /// The module's weights, including norms.
    type Weights: NormWeights;

    /// The input of the head: the normed state of a pass's last slot.
    type Last;

    /// Runs slots at the end of the cache, which has room for them, and writes the states for the next depth, `[m,
    /// width]`. After an error slots may be left in the cache.
    fn run(
        &mut self,
        weights: &Self::Weights,
        slots: Slots<'_>,
        recycled: &mut [f32],
    ) -> Result<Self::Last, ModelError>;

    /// Logits of the last slot, one for each token of the draft vocabulary; none if the statistics list the best.
    fn logits(&mut self, last: Self::Last) -> Result<(Vec<f32>, Vec<RowStats>), ModelError>;

    /// Drops slots `len..` of the cache.
    fn truncate(&mut self, len: usize);

    /// Sets the tokens that the head gives logits for; the first ones never change.
    fn set_tokens(&mut self, _tokens: &DraftTokens) -> Result<(), ModelError> {
        Ok(())
    }

    /// See [`DraftModule::expect_drafts`].
    fn expect_drafts(&mut self, _count: usize, _logits: LogitRows) {}

    /// See [`DraftModule::device_work`].
    fn device_work(&self) -> Option<DeviceWork> {
        None
    }

    /// See [`DraftModule::attach_kv`]; returns how many slots count as run.
    fn attach_kv(&mut self, _target: &dyn Model) -> Result<usize, ModelError> {
        Ok(0)
    }

    /// A copy with a cache of its own.
    fn fork(&self) -> Result<Self, ModelError>;
}

/// The target's states that settled slots read.
#[derive(Clone, Debug)]
pub(crate) enum Reads {
    /// The state that the conventions name, and those after each of these blocks.
    State(Vec<usize>),
    /// These states.
    Layers(Tap),
    /// The state that the conventions name, and the target's KV cache instead of one of its own.
    StateAndKv,
}

/// Description of a module, fixed at load except for the conventions and the joined tokens.
#[derive(Clone, Debug)]
pub(crate) struct ModuleFacts {
    /// The conventions in force.
    pub(crate) spec: MtpSpec,
    /// What settled slots read.
    pub(crate) reads: Reads,
    /// Width of that, and of a state that the module computes.
    pub(crate) widths: [usize; 2],
    /// Slots that the cache can hold.
    pub(crate) ctx_len: usize,
    /// Token of each logit.
    pub(crate) tokens: DraftTokens,
    /// Bytes of weights that it does not share with the target.
    pub(crate) weight_bytes: u64,
    /// Bytes of cache per slot.
    pub(crate) kv_bytes_per_slot: u64,
}

impl ModuleFacts {
    fn tap(&self) -> Tap {
        match &self.reads {
            Reads::State(blocks) => Tap::fed(self.spec.feed).and_behind(blocks),
            Reads::Layers(tap) => tap.clone(),
            Reads::StateAndKv => Tap::fed(self.spec.feed),
        }
    }

    /// Whether the module can run under these conventions.
    fn check_spec(&self, spec: &MtpSpec) -> Result<(), ModelError> {
        let is_layers = spec.feed == Feed::Layers;
        Err(ModelError::Unsupported(String::from(match self.reads {
            Reads::State(_) if is_layers => "which layers a module fuses is its own: feed it post-norm or pre-norm",
            Reads::Layers(_) if !is_layers => "an EAGLE-3 head reads the layers it was made for",
            Reads::StateAndKv if is_layers => "an assistant fuses no layers; it reads one hidden state",
            Reads::StateAndKv if spec.slot0 != SlotZero::Plain => {
                "an assistant reads the target's keys and values and has no slot 0 of its own"
            }
            Reads::State(_) | Reads::Layers(_) | Reads::StateAndKv => return Ok(()),
        })))
    }
}

/// A draft module on a backend.
pub(crate) struct ModuleCore<B: ModuleBackend> {
    backend: B,
    facts: ModuleFacts,
    pub(crate) weights: RunningWeights<B::Weights>,
    /// Slots in the cache.
    len: usize,
    /// Rotary position of every later slot; `None`: each has its own.
    position: Option<usize>,
}

impl<B: ModuleBackend> ModuleCore<B> {
    /// A module with an empty cache, from its weights as stored.
    ///
    /// # Errors
    /// When memory is short.
    pub(crate) fn new(backend: B, weights: B::Weights, facts: ModuleFacts) -> Result<Self, ModelError> {
        let mut weights = RunningWeights::new(weights);
        weights.set_norm_form(facts.spec.norm)?;
        Ok(Self { backend, facts, weights, len: 0, position: None })
    }

    /// What it is.
    pub(crate) fn facts(&self) -> &ModuleFacts {
        &self.facts
    }

    /// Whether the cache has room for a slot per token, and rows have the module's input width.
    fn check(&self, tokens: &[TokenId], hidden: &Rows) -> Result<(), ModelError> {
        let (needed, ctx_len) = (self.len.saturating_add(tokens.len()), self.facts.ctx_len);
        if needed > ctx_len {
            return Err(ModelError::ContextFull { needed, ctx_len });
        }
        let widths = self.facts.widths;
        if tokens.is_empty() || tokens.len() != hidden.len() || !widths.contains(&hidden.width()) {
            return Err(ModelError::Shape {
                name: format!("hidden states for {}", B::NAME),
                got: vec![hidden.len(), hidden.width()],
                expected: vec![tokens.len().max(1), widths[0]],
            });
        }
        Ok(())
    }

    fn run(&mut self, tokens: &[TokenId], hidden: &Rows) -> Result<Forward, ModelError> {
        let (spec, before, [_, width]) = (self.facts.spec, self.len, self.facts.widths);
        let most = if self.position.is_some() { 1 } else { B::MAX_SLOTS.min(tokens.len()) };
        let mut recycled = vec![0.0; tokens.len() * width];
        let mut last = None;
        // before the pass, so that it computes the logits of the tokens that join with it
        if self.facts.tokens.read(before, tokens) > 0 {
            self.backend.set_tokens(&self.facts.tokens)?;
        }
        let passes = tokens.chunks(most).zip(hidden.as_slice().chunks(most * hidden.width()));
        for ((tokens, hidden), recycled) in passes.zip(recycled.chunks_mut(most * width)) {
            let at = self.position.unwrap_or(self.len) + spec.ahead();
            let zeroed = self.len == 0 && spec.slot0 == SlotZero::Zeroed;
            let slots = Slots { tokens, hidden, at, zeroed, spec };
            last = Some(self.backend.run(&self.weights, slots, recycled)?);
            self.len += tokens.len();
        }
        let last = last.ok_or_else(|| ModelError::Unsupported(format!("a pass of {} over no token", B::NAME)))?;
        let (logits, stats) = self.backend.logits(last)?;
        let logits = Rows::new(logits, self.facts.tokens.tokens().len());
        Ok(Forward { logits, hidden: Rows::new(recycled, width), stats })
    }

    /// Drops slots `len..`, and the tokens that they added.
    fn drop_from(&mut self, len: usize) -> Result<(), ModelError> {
        self.len = len;
        self.backend.truncate(len);
        let before = self.facts.tokens.joined().len();
        match self.facts.tokens.truncate(len) < before {
            true => self.backend.set_tokens(&self.facts.tokens),
            false => Ok(()),
        }
    }
}

impl<B: ModuleBackend + 'static> DraftModule for ModuleCore<B> {
    fn len(&self) -> usize {
        self.len
    }

    fn spec(&self) -> MtpSpec {
        self.facts.spec
    }

    fn set_spec(&mut self, spec: &MtpSpec) -> Result<(), ModelError> {
        self.facts.check_spec(spec)?;
        self.weights.set_norm_form(spec.norm)?;
        self.facts.spec = *spec;
        self.drop_from(0)
    }

    fn tap(&self) -> Tap {
        self.facts.tap()
    }

    fn shares_target_kv(&self) -> bool {
        matches!(self.facts.reads, Reads::StateAndKv)
    }

    fn attach_kv(&mut self, target: &dyn Model) -> Result<(), ModelError> {
        if self.shares_target_kv() {
            self.len = 0;
            self.len = self.backend.attach_kv(target)?;
        }
        Ok(())
    }

    fn expect_drafts(&mut self, count: usize, logits: LogitRows) {
        self.backend.expect_drafts(count, logits);
    }

    fn device_work(&self) -> Option<DeviceWork> {
        self.backend.device_work()
    }

    fn hold_position(&mut self, position: Option<usize>) {
        self.position = position;
    }

    fn forward(&mut self, tokens: &[TokenId], hidden: &Rows) -> Result<Forward, ModelError> {
        self.check(tokens, hidden)?;
        let before = self.len;
        self.run(tokens, hidden).or_else(|error| self.drop_from(before).and(Err(error)))
    }

    fn truncate(&mut self, len: usize) -> Result<(), ModelError> {
        if len > self.len {
            return Err(ModelError::Rewind { len, have: self.len, since: 0 });
        }
        self.drop_from(len)
    }

    fn draft_vocab(&self) -> &[TokenId] {
        self.facts.tokens.tokens()
    }

    fn fork(&self) -> Result<Box<dyn DraftModule>, ModelError> {
        let (mut backend, facts, weights) = (self.backend.fork()?, self.facts.clone(), self.weights.clone());
        backend.set_tokens(&facts.tokens)?;
        Ok(Box::new(Self { backend, facts, weights, len: self.len, position: self.position }))
    }
}

/// Weights that include norms.
pub(crate) trait NormWeights: Sized {
    /// A copy with 1 added to the weights of all norms: how zero-centred norms run.
    ///
    /// # Errors
    /// When memory is short.
    fn one_plus(&self) -> Result<Self, ModelError>;
}

/// Weights as they run: as stored, or with norms changed to the current form.
#[derive(Debug)]
pub(crate) struct RunningWeights<W> {
    stored: Arc<W>,
    running: Arc<W>,
}

impl<W: NormWeights> RunningWeights<W> {
    /// As stored.
    pub(crate) fn new(stored: W) -> Self {
        let stored = Arc::new(stored);
        Self { running: Arc::clone(&stored), stored }
    }

    /// Sets the form of the norms.
    pub(crate) fn set_norm_form(&mut self, form: NormForm) -> Result<(), ModelError> {
        self.running = match form {
            NormForm::Weight => Arc::clone(&self.stored),
            NormForm::OnePlus => Arc::new(self.stored.one_plus()?),
        };
        Ok(())
    }
}

impl<W> Deref for RunningWeights<W> {
    type Target = W;

    fn deref(&self) -> &W {
        &self.running
    }
}

impl<W> Clone for RunningWeights<W> {
    fn clone(&self) -> Self {
        Self { stored: Arc::clone(&self.stored), running: Arc::clone(&self.running) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use draftscope_protocol::SlotPosition;

    /// Records the position and number of slots of each pass; fails at a token 9.
    #[derive(Clone, Default)]
    struct Fake {
        passes: Vec<(usize, usize, bool)>,
        len: usize,
        logits: usize,
    }

    /// The form that norms have.
    #[derive(Debug, PartialEq)]
    struct Norms(NormForm);

    impl NormWeights for Norms {
        fn one_plus(&self) -> Result<Self, ModelError> {
            Ok(Self(NormForm::OnePlus))
        }
    }

    impl ModuleBackend for Fake {
        const NAME: &'static str = "a fake";
        const MAX_SLOTS: usize = 3;
        type Weights = Norms;
        type Last = u32;

        fn run(&mut self, _: &Norms, slots: Slots<'_>, recycled: &mut [f32]) -> Result<u32, ModelError> {
            self.len += slots.tokens.len();
            if slots.tokens.contains(&TokenId(9)) {
                return Err(ModelError::NotFinite { position: self.len });
            }
            self.passes.push((slots.at, slots.tokens.len(), slots.zeroed));
            slots.hidden.chunks(slots.width()).zip(recycled).for_each(|(row, out)| *out = -row[0]);
            Ok(slots.tokens[slots.tokens.len() - 1].0)
        }
        fn logits(&mut self, last: u32) -> Result<(Vec<f32>, Vec<RowStats>), ModelError> {
            Ok((vec![last as f32; self.logits], Vec::new()))
        }
        fn truncate(&mut self, len: usize) {
            self.len = len;
        }
        fn set_tokens(&mut self, tokens: &DraftTokens) -> Result<(), ModelError> {
            self.logits = tokens.tokens().len();
            Ok(())
        }
        fn fork(&self) -> Result<Self, ModelError> {
            Ok(self.clone())
        }
    }

    fn ids(ids: &[u32]) -> Vec<TokenId> {
        ids.iter().copied().map(TokenId).collect()
    }

    fn rows(count: u8) -> Rows {
        Rows::new((0..count).map(f32::from).collect(), 1)
    }

    fn core(spec: MtpSpec) -> ModuleCore<Fake> {
        let facts = ModuleFacts {
            spec,
            reads: Reads::State(vec![4]),
            widths: [2, 1],
            ctx_len: 8,
            tokens: DraftTokens::new(ids(&[1, 2]), 2),
            weight_bytes: 0,
            kv_bytes_per_slot: 0,
        };
        ModuleCore::new(Fake { logits: 2, ..Fake::default() }, Norms(NormForm::Weight), facts).unwrap()
    }

    #[test]
    fn slots_run_in_passes_and_one_by_one_where_they_share_a_position() {
        let spec = MtpSpec { slot0: SlotZero::Zeroed, position: SlotPosition::Next, ..MtpSpec::default() };
        let mut module = core(spec);
        let out = module.forward(&ids(&[1, 2, 1, 2, 1]), &rows(5)).unwrap();
        assert_eq!(module.backend.passes, [(1, 3, true), (4, 2, false)]);
        assert_eq!((out.hidden.as_slice(), out.logits.row(0)), (&[0.0, -1.0, -2.0, -3.0, -4.0][..], &[1.0, 1.0][..]));
        module.hold_position(Some(4));
        let out = module.forward(&ids(&[1, 2]), &rows(2)).unwrap();
        assert_eq!(module.backend.passes[2..], [(5, 1, false), (5, 1, false)]);
        assert_eq!((out.hidden.len(), out.logits.row(0), module.len()), (2, &[2.0, 2.0][..], 7));
        module.hold_position(None);
        module.fork().unwrap().forward(&ids(&[8]), &Rows::new(vec![1.0, 2.0], 2)).unwrap();
        assert_eq!((module.len(), module.draft_vocab().len()), (7, 2), "a fork has a cache of its own");
    }

    #[test]
    fn a_pass_that_fails_leaves_the_cache_as_it_was() {
        let mut module = core(MtpSpec::default());
        let out = module.forward(&ids(&[1, 5]), &rows(2)).unwrap();
        assert_eq!((out.logits.width(), module.draft_vocab()), (3, &ids(&[1, 2, 5])[..]));
        let failed = module.forward(&ids(&[1, 2, 3, 9]), &rows(4));
        assert!(matches!(failed, Err(ModelError::NotFinite { .. })));
        let full = module.forward(&ids(&[1; 7]), &rows(7));
        assert!(matches!(full, Err(ModelError::ContextFull { needed: 9, ctx_len: 8 })));
        for (tokens, hidden) in [(vec![], rows(0)), (ids(&[1, 2]), rows(1)), (ids(&[1]), Rows::new(vec![0.0; 3], 3))] {
            let error = module.forward(&tokens, &hidden).err().unwrap();
            assert!(matches!(error, ModelError::Shape { .. }), "{error}");
        }
        assert!(matches!(module.truncate(3), Err(ModelError::Rewind { len: 3, have: 2, since: 0 })));
        assert_eq!((module.len(), module.backend.len, module.draft_vocab().len()), (2, 2, 3));
        module.truncate(1).unwrap();
        assert_eq!((module.len(), module.backend.len, module.backend.logits), (1, 1, 2));
        assert_eq!(module.draft_vocab(), ids(&[1, 2]));
    }

    #[test]
    fn other_conventions_empty_the_cache_and_those_that_do_not_fit_change_nothing() {
        let mut module = core(MtpSpec { norm: NormForm::OnePlus, ..MtpSpec::default() });
        assert_eq!(*module.weights, Norms(NormForm::OnePlus));
        module.forward(&ids(&[1]), &rows(1)).unwrap();
        module.set_spec(&MtpSpec { feed: Feed::Layers, ..MtpSpec::default() }).unwrap_err();
        assert_eq!((module.len(), module.spec().norm), (1, NormForm::OnePlus));
        let spec = MtpSpec { feed: Feed::PreNorm, ..MtpSpec::default() };
        module.set_spec(&spec).unwrap();
        assert_eq!((module.len(), module.spec(), &*module.weights), (0, spec, &Norms(NormForm::Weight)));
        assert_eq!(module.tap(), Tap::fed(Feed::PreNorm).and_behind(&[4]));
    }
}
