//! The part of a draft module that does not depend on what computes it: conventions, rotary positions, checks, passes and
//! rollback.
//!
//! Invariant: a pass that fails leaves the cache as it was. Slots of one pass stand at consecutive positions, so slots that
//! share one position run one by one.

use std::ops::Deref;
use std::sync::Arc;

use crate::model::{DraftModule, Forward, Model, ModelError, RowStats, Rows, Tap};
use crate::protocol::{ConcatOrder, Feed, MtpSpec, NormForm, SlotZero, TokenId};

/// Slots that run in one pass.
#[derive(Clone, Copy, Debug)]
pub struct Slots<'a> {
    /// One token for each slot.
    pub tokens: &'a [TokenId],
    /// The target's states, or what the module made of the slots before: `[m, width]`.
    pub hidden: &'a [f32],
    /// Rotary position of the first slot.
    pub at: usize,
    /// Whether the embedding of the first slot is zero.
    pub zeroed: bool,
    /// The conventions in force.
    pub spec: MtpSpec,
}

impl Slots<'_> {
    /// Values in a row of hidden states.
    #[must_use]
    pub fn width(&self) -> usize {
        self.hidden.len() / self.tokens.len().max(1)
    }

    /// What belongs to the embedding and to the hidden state, in the order in which the module reads them.
    pub fn in_order<T>(&self, embedding: T, hidden: T) -> [T; 2] {
        match self.spec.order {
            ConcatOrder::EmbeddingFirst => [embedding, hidden],
            ConcatOrder::HiddenFirst => [hidden, embedding],
        }
    }
}

/// What computes a draft module: its weights, its cache and its draft vocabulary.
pub trait ModuleBackend: Sized {
    /// What it is, for messages.
    const NAME: &'static str;

    /// Slots of a pass, at most.
    const MAX_SLOTS: usize;

    /// What logits are computed from: the normed state of a pass's last slot.
    type Last;

    /// Slots in the cache.
    fn cached(&self) -> usize;

    /// Slots that the cache can hold.
    fn ctx_len(&self) -> usize;

    /// Values of a state that the module computes.
    fn width(&self) -> usize;

    /// Blocks of the target whose outputs it reads besides the one state.
    fn blocks(&self) -> &[usize] {
        &[]
    }

    /// What settled slots read of the target.
    fn tap(&self, feed: Feed) -> Tap {
        Tap::fed(feed).and_behind(self.blocks())
    }

    /// Values of the target's states that a settled slot reads.
    fn target_width(&self) -> usize {
        (1 + self.blocks().len()) * self.width()
    }

    /// Whether it can run under these conventions.
    ///
    /// # Errors
    /// [`ModelError::Unsupported`] when it cannot.
    fn check_spec(&self, spec: &MtpSpec) -> Result<(), ModelError> {
        if spec.feed == Feed::Layers {
            return Err(ModelError::Unsupported(
                "which layers a module fuses is its own: feed it post-norm or pre-norm".into(),
            ));
        }
        Ok(())
    }

    /// Has the weights of its norms mean this from now on.
    ///
    /// # Errors
    /// When memory is short.
    fn set_norm_form(&mut self, form: NormForm) -> Result<(), ModelError>;

    /// Checks tokens, where [`ModuleBackend::run`] does not.
    ///
    /// # Errors
    /// [`ModelError::Vocabulary`] for one that is outside the vocabulary.
    fn check_tokens(&self, _tokens: &[TokenId]) -> Result<(), ModelError> {
        Ok(())
    }

    /// Runs slots at the end of the cache, where there is room for them, and writes what the next depth reads, `[m, width]`.
    ///
    /// # Errors
    /// What the backend reports; [`ModuleBackend::drop_from`] then cleans up.
    fn run(&mut self, slots: Slots<'_>, recycled: &mut [f32]) -> Result<Self::Last, ModelError>;

    /// Logits of the slot that ran last, one for each token of the draft vocabulary.
    ///
    /// # Errors
    /// What the backend reports.
    fn logits(&mut self, last: Self::Last) -> Result<(Vec<f32>, Vec<RowStats>), ModelError>;

    /// Drops slots `len..`, of which there may be none.
    ///
    /// # Errors
    /// What the backend reports.
    fn drop_from(&mut self, len: usize) -> Result<(), ModelError>;

    /// See [`DraftModule::draft_vocab`].
    fn draft_vocab(&self) -> &[TokenId];

    /// Tokens of the text that may join the draft vocabulary, at most.
    fn context_vocab(&self) -> usize {
        0
    }

    /// Bytes of its weights, those that it shares with the target not counted.
    fn weight_bytes(&self) -> u64;

    /// Bytes of cache per slot.
    fn kv_bytes_per_slot(&self) -> u64;

    /// See [`DraftModule::shares_target_kv`].
    fn shares_target_kv(&self) -> bool {
        false
    }

    /// See [`DraftModule::attach_kv`].
    ///
    /// # Errors
    /// See there.
    fn attach_kv(&mut self, _target: &dyn Model) -> Result<(), ModelError> {
        Ok(())
    }

    /// A copy with a cache of its own; weights are shared.
    ///
    /// # Errors
    /// When the cache cannot be copied.
    fn fork(&self) -> Result<Self, ModelError>;
}

/// A draft module on a backend.
#[derive(Debug)]
pub struct ModuleCore<B> {
    pub(in crate::model) backend: B,
    spec: MtpSpec,
    /// Rotary position of every slot that follows; none: each stands at its own.
    position: Option<usize>,
}

impl<B: ModuleBackend> ModuleCore<B> {
    /// A module that was trained with these conventions.
    ///
    /// # Errors
    /// When memory is short.
    pub(in crate::model) fn new(mut backend: B, spec: MtpSpec) -> Result<Self, ModelError> {
        backend.set_norm_form(spec.norm)?;
        Ok(Self { backend, spec, position: None })
    }

    /// Whether the cache has room for a slot per token, and rows have a width that the module reads.
    fn check(&self, tokens: &[TokenId], hidden: &Rows) -> Result<(), ModelError> {
        let (needed, ctx_len) = (self.backend.cached().saturating_add(tokens.len()), self.backend.ctx_len());
        if needed > ctx_len {
            return Err(ModelError::ContextFull { needed, ctx_len });
        }
        self.backend.check_tokens(tokens)?;
        let widths = [self.backend.target_width(), self.backend.width()];
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
        let (given, width) = (hidden.width(), self.backend.width());
        let most = if self.position.is_some() { 1 } else { B::MAX_SLOTS.min(tokens.len()) };
        let mut recycled = vec![0.0; tokens.len() * width];
        let mut last = None;
        let passes = tokens.chunks(most).zip(hidden.as_slice().chunks(most * given));
        for ((tokens, hidden), recycled) in passes.zip(recycled.chunks_mut(most * width)) {
            let len = self.backend.cached();
            let at = self.position.unwrap_or(len) + self.spec.ahead();
            let zeroed = len == 0 && self.spec.slot0 == SlotZero::Zeroed;
            let slots = Slots { tokens, hidden, at, zeroed, spec: self.spec };
            last = Some(self.backend.run(slots, recycled)?);
        }
        let last = last.ok_or_else(|| ModelError::Unsupported(format!("a pass of {} over no token", B::NAME)))?;
        let (logits, stats) = self.backend.logits(last)?;
        let logits = Rows::new(logits, self.backend.draft_vocab().len());
        Ok(Forward { logits, hidden: Rows::new(recycled, width), stats })
    }
}

impl<B: ModuleBackend + 'static> DraftModule for ModuleCore<B> {
    fn len(&self) -> usize {
        self.backend.cached()
    }

    fn spec(&self) -> MtpSpec {
        self.spec
    }

    fn set_spec(&mut self, spec: &MtpSpec) -> Result<(), ModelError> {
        self.backend.check_spec(spec)?;
        self.backend.set_norm_form(spec.norm)?;
        self.spec = *spec;
        self.backend.drop_from(0)
    }

    fn tap(&self) -> Tap {
        self.backend.tap(self.spec.feed)
    }

    fn shares_target_kv(&self) -> bool {
        self.backend.shares_target_kv()
    }

    fn attach_kv(&mut self, target: &dyn Model) -> Result<(), ModelError> {
        self.backend.attach_kv(target)
    }

    fn hold_position(&mut self, position: Option<usize>) {
        self.position = position;
    }

    fn forward(&mut self, tokens: &[TokenId], hidden: &Rows) -> Result<Forward, ModelError> {
        self.check(tokens, hidden)?;
        let before = self.backend.cached();
        self.run(tokens, hidden).or_else(|error| self.backend.drop_from(before).and(Err(error)))
    }

    fn truncate(&mut self, len: usize) -> Result<(), ModelError> {
        let have = self.backend.cached();
        if len > have {
            return Err(ModelError::Rewind { len, have, since: 0 });
        }
        self.backend.drop_from(len)
    }

    fn draft_vocab(&self) -> &[TokenId] {
        self.backend.draft_vocab()
    }

    fn fork(&self) -> Result<Box<dyn DraftModule>, ModelError> {
        Ok(Box::new(Self { backend: self.backend.fork()?, spec: self.spec, position: self.position }))
    }
}

/// Weights among which are those of norms.
pub(in crate::model) trait NormWeights: Sized {
    /// The same with 1 added to the weights of all norms: how zero-centred ones run.
    ///
    /// # Errors
    /// When memory is short.
    fn one_plus(&self) -> Result<Self, ModelError>;
}

/// Weights as they run: as they are stored, or with the norms changed to the form in force.
#[derive(Debug)]
pub(in crate::model) struct RunningWeights<W> {
    stored: Arc<W>,
    running: Arc<W>,
}

impl<W: NormWeights> RunningWeights<W> {
    /// As they are stored.
    pub(in crate::model) fn new(stored: W) -> Self {
        let stored = Arc::new(stored);
        Self { running: Arc::clone(&stored), stored }
    }

    /// Has norms mean this.
    pub(in crate::model) fn set_norm_form(&mut self, form: NormForm) -> Result<(), ModelError> {
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
    use crate::protocol::SlotPosition;

    /// Notes the position and number of slots of each pass; fails at a token 9.
    #[derive(Clone, Default)]
    struct Fake {
        passes: Vec<(usize, usize, bool)>,
        len: usize,
        form: NormForm,
    }

    impl ModuleBackend for Fake {
        const NAME: &'static str = "a fake";
        const MAX_SLOTS: usize = 3;
        type Last = u32;

        fn cached(&self) -> usize {
            self.len
        }
        fn ctx_len(&self) -> usize {
            8
        }
        fn width(&self) -> usize {
            1
        }
        fn blocks(&self) -> &[usize] {
            &[4]
        }
        fn set_norm_form(&mut self, form: NormForm) -> Result<(), ModelError> {
            self.form = form;
            Ok(())
        }
        fn run(&mut self, slots: Slots<'_>, recycled: &mut [f32]) -> Result<u32, ModelError> {
            self.len += slots.tokens.len();
            if slots.tokens.contains(&TokenId(9)) {
                return Err(ModelError::NotFinite { position: self.len });
            }
            self.passes.push((slots.at, slots.tokens.len(), slots.zeroed));
            slots.hidden.chunks(slots.width()).zip(recycled).for_each(|(row, out)| *out = -row[0]);
            Ok(slots.tokens[slots.tokens.len() - 1].0)
        }
        fn logits(&mut self, last: u32) -> Result<(Vec<f32>, Vec<RowStats>), ModelError> {
            Ok((vec![last as f32], Vec::new()))
        }
        fn drop_from(&mut self, len: usize) -> Result<(), ModelError> {
            self.len = len;
            Ok(())
        }
        fn draft_vocab(&self) -> &[TokenId] {
            &[TokenId(0)]
        }
        fn weight_bytes(&self) -> u64 {
            0
        }
        fn kv_bytes_per_slot(&self) -> u64 {
            0
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
        ModuleCore::new(Fake::default(), spec).unwrap()
    }

    #[test]
    fn slots_run_in_passes_and_one_by_one_at_a_held_position() {
        let spec = MtpSpec { slot0: SlotZero::Zeroed, position: SlotPosition::Next, ..MtpSpec::default() };
        let mut module = core(spec);
        let out = module.forward(&ids(&[1, 2, 3, 4, 5]), &rows(5)).unwrap();
        assert_eq!(module.backend.passes, [(1, 3, true), (4, 2, false)]);
        assert_eq!((out.hidden.as_slice(), out.logits.as_slice()), (&[0.0, -1.0, -2.0, -3.0, -4.0][..], &[5.0][..]));
        module.hold_position(Some(4));
        let out = module.forward(&ids(&[6, 7]), &rows(2)).unwrap();
        assert_eq!(module.backend.passes[2..], [(5, 1, false), (5, 1, false)]);
        assert_eq!((out.hidden.len(), out.logits.as_slice(), module.len()), (2, &[7.0][..], 7));
        module.hold_position(None);
        module.fork().unwrap().forward(&ids(&[8]), &Rows::new(vec![1.0, 2.0], 2)).unwrap();
        assert_eq!(module.len(), 7, "a fork has a cache of its own");
    }

    #[test]
    fn a_pass_that_fails_leaves_the_cache_as_it_was() {
        let mut module = core(MtpSpec::default());
        module.forward(&ids(&[1, 2]), &rows(2)).unwrap();
        let failed = module.forward(&ids(&[1, 2, 3, 9]), &rows(4));
        assert!(matches!(failed, Err(ModelError::NotFinite { .. })));
        let full = module.forward(&ids(&[1; 7]), &rows(7));
        assert!(matches!(full, Err(ModelError::ContextFull { needed: 9, ctx_len: 8 })));
        for (tokens, hidden) in [(vec![], rows(0)), (ids(&[1, 2]), rows(1)), (ids(&[1]), Rows::new(vec![0.0; 3], 3))] {
            let error = module.forward(&tokens, &hidden).err().unwrap();
            assert!(matches!(error, ModelError::Shape { .. }), "{error}");
        }
        assert!(matches!(module.truncate(3), Err(ModelError::Rewind { len: 3, have: 2, since: 0 })));
        assert_eq!(module.len(), 2);
        module.truncate(1).unwrap();
        assert_eq!(module.len(), 1);
    }

    #[test]
    fn other_conventions_empty_the_cache_and_those_that_do_not_fit_change_nothing() {
        let mut module = core(MtpSpec { norm: NormForm::OnePlus, ..MtpSpec::default() });
        assert_eq!(module.backend.form, NormForm::OnePlus);
        module.forward(&ids(&[1]), &rows(1)).unwrap();
        module.set_spec(&MtpSpec { feed: Feed::Layers, ..MtpSpec::default() }).unwrap_err();
        assert_eq!((module.len(), module.spec().norm), (1, NormForm::OnePlus));
        let spec = MtpSpec { feed: Feed::PreNorm, ..MtpSpec::default() };
        module.set_spec(&spec).unwrap();
        assert_eq!((module.len(), module.spec(), module.backend.form), (0, spec, NormForm::Weight));
        assert_eq!(module.tap(), Tap::fed(Feed::PreNorm).and_behind(&[4]));
    }
}
