//! An entry of the table: a target and its draft module, with the expected values.

use draftscope::protocol::{DrafterInfo, DrafterKind};

use crate::support::{
    Backend, ChatTemplate, DraftModule, Golden, LoadOptions, Loaded, Model, PassForm, Rollback, TextCodec,
    bare_options, modules_of, open, options, path, with_draft,
};

/// A target in one file format, and its draft module, if it has one.
pub struct Case {
    /// Folder or GGUF file under `tests/fixtures/checkpoints`.
    pub fixture: &'static str,
    /// Fixture whose golden files have the reference values.
    pub golden: &'static str,
    pub runs: &'static [Run],
    /// Names of the tokens that end an answer.
    pub ends: &'static [&'static str],
    /// Whether a text begins with a special token.
    pub begins: bool,
    /// Whether layers keep a recurrent state.
    pub recurrent: bool,
    /// Positions that sliding layers see.
    pub window: Option<usize>,
    /// Largest logit that soft-capping allows.
    pub soft_cap: Option<f32>,
    /// Bytes of cache per position in f32.
    pub kv_bytes: u64,
    /// Fixture that serves as draft model.
    pub draft_model: Option<&'static str>,
    /// Draft lengths of drafters without a module: fewer for slow targets.
    pub drafts: &'static [u8],
    pub draft: Option<Draft>,
    /// Edits after which the target is rejected (see [`crate::spoil`]).
    pub spoiled: &'static str,
}

/// One way to run a case.
pub struct Run {
    pub backend: Backend,
    pub rollback: Rollback,
    /// How passes on candle run, if not as on the CPU.
    pub form: Option<PassForm>,
    /// Largest allowed difference of logits and states from the oracle.
    pub limit: Limit,
    /// Whether greedy decoding writes the oracle's text; false if rounding may change the best token.
    pub greedy: bool,
    /// Largest allowed difference between logits of rows in one pass and of single rows.
    pub rows: f32,
    /// Largest allowed difference of the module's logits and states from the oracle.
    pub module: [Limit; 2],
    /// Largest allowed difference of draft probabilities from those of a fresh start.
    pub drafts: f32,
}

/// Limits of the largest difference and of the relative root mean square difference.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    pub largest: f32,
    pub relative: f64,
}

/// A draft module.
pub struct Draft {
    pub source: Source,
    /// Number of tokens that it can propose.
    pub vocab: u32,
    /// Bytes of cache per position in f32, over all modules of a stack.
    pub kv_bytes: u64,
    pub oracle: Oracle,
    /// Values of conventions, at least all that differ from the module's own, and what each of them changes.
    pub conventions: &'static [(&'static str, Effect)],
    /// Upper limit of the rounds that write 210 tokens, with any number of drafts.
    pub rounds: usize,
    pub tree: Tree,
    /// Size of the vocabulary with `DraftVocab::First(100)`; `None` if a vocabulary cannot be chosen.
    pub trimmed: Option<usize>,
    /// Edits after which the module is ignored (see [`crate::spoil`]).
    pub spoiled: &'static str,
}

/// Where a module comes from.
#[derive(Clone, Copy)]
pub enum Source {
    /// The target's files, with this many depths.
    Target(usize),
    /// A separate fixture.
    Fixture(&'static str),
}

/// Names of the module's reference values.
pub struct Oracle {
    /// Prefix of `logits` and `hidden` for single slots.
    pub slots: Option<&'static str>,
    /// Logits at depths 1 to 3; `#` stands for the number of modules in the stack.
    pub depths: &'static str,
    /// The drafts that they follow, if the golden file has them.
    pub drafts: Option<&'static str>,
    /// Prefix of logits at depths 1 to 3 under another convention, followed by the convention, and their limit.
    pub conventions: Option<(&'static str, f32)>,
    /// Tokens that get a logit at each depth.
    pub scored: usize,
    /// Whether the text is [`crate::support::oracle_text`], not the golden tokens.
    pub answer: bool,
}

/// What a convention changes: differences of drafts, on candle and on the native backend.
#[derive(Clone, Copy, Debug)]
pub enum Effect {
    /// Nothing beyond this.
    Near([f32; 2]),
    /// Some draft, by more than this.
    Any([f32; 2]),
    /// The first draft, by more than this.
    First(f32),
    /// The first draft by at most the first number, and drafts after it by more than the second.
    Deeper(f32, f32),
    /// The module rejects it.
    Refused(&'static str),
}

/// Behaviour with trees.
#[derive(Clone, Copy)]
pub enum Tree {
    /// The target rejects them with a notice, and a chain is drafted.
    Refused,
    /// They write 210 tokens in fewer rounds than this.
    Rounds(usize),
}

impl Limit {
    pub const NONE: Self = Self { largest: f32::INFINITY, relative: f64::INFINITY };

    pub const fn largest(largest: f32) -> Self {
        Self { largest, ..Self::NONE }
    }

    pub const fn relative(relative: f64) -> Self {
        Self { relative, ..Self::NONE }
    }

    /// Asserts that two lists differ by less.
    pub fn check(self, what: &str, got: &[f32], want: &[f32]) {
        let (largest, relative) = (largest(got, want), relative(got, want));
        println!("{what}: off by {largest:.1e}, relative {relative:.1e}");
        assert!(largest < self.largest && relative < self.relative, "{what}: {largest}, {relative}; {self:?}");
    }
}

/// Largest difference.
pub fn largest(got: &[f32], want: &[f32]) -> f32 {
    assert_eq!(got.len(), want.len());
    got.iter().zip(want).map(|(got, want)| (got - want).abs()).fold(0.0, f32::max)
}

/// Root mean square of the differences, relative to that of the reference.
pub fn relative(got: &[f32], want: &[f32]) -> f64 {
    assert_eq!(got.len(), want.len());
    let square = |x: f32| f64::from(x) * f64::from(x);
    let error: f64 = got.iter().zip(want).map(|(got, want)| square(got - want)).sum();
    (error / want.iter().map(|want| square(*want)).sum::<f64>()).sqrt()
}

impl Effect {
    /// Asserts this effect, from the differences of the first draft and of all drafts.
    pub fn check(self, run: &Run, what: &str, first: f32, all: f32) {
        println!("{what}: the first draft differs by {first:.1e}, all by {all:.1e}; {self:?}");
        let backend = usize::from(run.native());
        let holds = match self {
            Self::Near(most) => all <= most[backend],
            Self::Any(least) => all > least[backend],
            Self::First(least) => first > least,
            Self::Deeper(most, least) => first <= most && all > least,
            Self::Refused(_) => false,
        };
        assert!(holds, "{what}: {first}, {all}; {self:?}");
    }
}

impl Run {
    pub fn native(&self) -> bool {
        self.backend == Backend::Native
    }
}

/// Heights of stacks to test: one module, and all of them.
pub fn heights(count: usize) -> impl Iterator<Item = usize> {
    (1..=count).filter(move |height| [1, count].contains(height))
}

/// A loaded case.
pub struct Opened {
    pub target: Box<dyn Model>,
    /// The module of depth 1 first.
    pub modules: Vec<Box<dyn DraftModule>>,
    pub info: Option<DrafterInfo>,
    pub codec: std::sync::Arc<TextCodec>,
    pub template: Option<ChatTemplate>,
}

impl Case {
    pub fn golden(&self) -> Golden {
        Golden::of(self.golden)
    }

    pub fn draft(&self) -> &Draft {
        self.draft.as_ref().expect("a case with a draft module")
    }

    /// Golden values of the draft module.
    pub fn draft_golden(&self) -> Golden {
        match self.draft().source {
            Source::Target(_) => self.golden(),
            Source::Fixture(name) => Golden::bare(name),
        }
    }

    pub fn options(&self, run: &Run) -> LoadOptions {
        let target = path(self.fixture);
        let options = match self.draft.as_ref().map(|draft| draft.source) {
            None => bare_options(target, run.backend),
            Some(Source::Target(_)) => options(&target, run.backend),
            Some(Source::Fixture(name)) => with_draft(&target, &path(name), run.backend),
        };
        LoadOptions { rollback: self.recurrent.then_some(run.rollback), pass_form: run.form, ..options }
    }

    /// Loads it, and checks that the backend is the requested one and that no module is ignored.
    pub fn open(&self, run: &Run) -> Opened {
        let mut loaded = open(&self.options(run));
        assert_eq!(loaded.target.spec().backend, if run.native() { "native" } else { "candle" });
        assert_eq!((&loaded.notice, &loaded.backend_notice), (&None, &None));
        let info = loaded.mtp.as_ref().map(|(_, info)| info.clone());
        let modules = modules_of(&mut loaded);
        if let Some(draft) = &self.draft {
            let info = info.as_ref().expect("a draft module");
            assert_eq!((info.kind, info.draft_vocab), (DrafterKind::Mtp, draft.vocab));
            let depths = if let Source::Target(depths) = draft.source { depths } else { 1 };
            assert_eq!(modules.len(), depths);
        }
        let Loaded { target, codec, template, .. } = loaded;
        Opened { target, modules, info, codec, template }
    }
}
