//! What a lesson is made of: steps with texts, questions, runs, goals and drawings, as a file of TOML has them.
//!
//! Invariant: a step that asks shows its answer only after a choice was made; an answer is a fixed
//! one, a number measured in this session, or a verdict of a round that really happened. Words in
//! braces are filled in with measured numbers, never with made-up ones.

use serde::Deserialize;

use draftscope_session::Session;
use draftscope_session::text::printable;

use super::fact::{Fact, filled};
use super::run::Run;
use crate::theory::{Slider, Sliders};

/// A lesson.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lesson {
    /// Its title.
    pub title: String,
    /// What it is about, in a sentence.
    pub summary: String,
    /// Its screens, in order.
    pub step: Vec<Step>,
}

/// One screen of a lesson.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Step {
    /// What it says or asks, in at most 90 words.
    pub text: String,
    /// The same where no engine runs it, but its recording plays: of a step that asks for what only an engine can do.
    pub recorded: String,
    /// The answers to choose from; none if nothing is asked.
    pub choices: Vec<Choice>,
    /// The right one, from 1.
    pub answer: Option<usize>,
    /// Or: the choice in whose range a measured number lies.
    pub measured: Option<Measured>,
    /// Or: rounds to judge and statements, with screens of their own: see [`crate::quiz`].
    pub quiz: bool,
    /// Shown after the right choice.
    pub reveal: String,
    /// What helps, one after each wrong try or each Enter before the goal is reached.
    pub hints: Vec<String>,
    /// What Enter runs on the engine.
    pub run: Option<Run>,
    /// What the user has to do; the program sees when it is done.
    pub goal: Option<Goal>,
    /// The sliders and what they have to be set to.
    pub task: Option<Task>,
    /// The panels beside the words, from top to bottom.
    pub show: Vec<Panel>,
    /// Panels that join them once the question is answered.
    pub after: Vec<Panel>,
    /// What the panels leave out: from the step after the question before this one on, until this one is answered; on the
    /// whole step where nothing is asked.
    pub hides: Vec<Hidden>,
    /// Hardware that the map begins with here; none leaves the map as it was set.
    pub hardware: Option<String>,
    /// What drawings show that is not taken from a run.
    pub example: Option<Example>,
    /// Where the statements come from: papers, pages or files of this repository.
    pub source: Vec<String>,
    /// For the presenter.
    pub notes: String,
}

/// An answer to choose.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choice {
    /// The answer.
    pub text: String,
    /// Of a wrong answer, what is wrong with the belief it stands for.
    #[serde(default)]
    pub why: String,
}

/// A number of this session and where the choices part.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// The number.
    pub fact: Fact,
    /// Rising; one less than there are choices.
    pub bounds: Vec<f64>,
}

impl Measured {
    /// The choice, from 0, in whose range the number lies; none if it was not measured.
    #[must_use]
    pub fn right(&self, session: &Session, run: Option<&Run>) -> Option<usize> {
        let value = self.fact.value(session, run)?;
        Some(self.bounds.iter().filter(|bound| value >= **bound).count())
    }

    /// Whether the run is over and did not give the number: other work on the machine disturbed its passes, or left too
    /// few of them next to each other.
    #[must_use]
    pub fn is_unknown(&self, session: &Session, run: Option<&Run>) -> bool {
        !self.fact.is_of_round()
            && self.fact.value(session, run).is_none()
            && run.is_some_and(|run| run.is_over(session))
    }
}

/// What the user has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// Step until all drafts of the round are there.
    Drafted,
    /// Step until the target's pass has run.
    Scored,
    /// Step until the drafts are judged.
    Verdict,
    /// Step until the round's tokens are committed.
    Committed,
    /// Step until a draft of the round on show is rejected, and the round committed.
    Rejected,
    /// Go back in time.
    Past,
    /// Select a draft that was not reached.
    NotReached,
    /// Let all answers of the run come to their end.
    Finished,
}

/// Sliders to set.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// Where they begin.
    pub start: Sliders,
    /// Those that may be moved.
    pub free: Vec<Slider>,
    /// A setting that does it: the last hint.
    #[serde(default)]
    pub solution: Option<Sliders>,
    /// The speedup to reach: at least, at most.
    pub speedup: [f64; 2],
}

/// A panel beside the words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Panel {
    /// The end of the answer, every token with its fate.
    Answer,
    /// The round on show.
    Round,
    /// The lines of the loop, lit phase by phase, with what the round on show did in each.
    Loop,
    /// The answers beside each other.
    Lanes,
    /// T(m), measured.
    Costs,
    /// Candidates of drafter and target at the place on show.
    Distributions,
    /// Speedup against acceptance, measured and predicted, while the dial drafts.
    Dial,
    /// Weights and caches.
    Memory,
    /// Drawing: what a pass reads and predicts at every position.
    Pass,
    /// Drawing: bytes and multiplications of passes over one row and over k + 1.
    Bytes,
    /// Drawing: times of passes on all threads, and on fewer.
    Threads,
    /// Drawing: the slots of the target's cache through a round.
    Slots,
    /// Drawing: p, q, min(1, p/q) and the residual.
    Residual,
    /// Drawing: a thousand draws at one position under each rule, against p.
    Histogram,
    /// Drawing: a map of batch and context with the k that pays, on hardware and models to choose.
    Map,
    /// Drawing: the wiring of an MTP module.
    Wiring,
    /// Drawing: a chain of drafts against parallel heads.
    Heads,
    /// Drawing: what the draft module takes in memory, in FP8, in BF16 and as loaded, and what it shares.
    Saving,
    /// Drawing: the losses of training with multi-token prediction, and what a module trained later changes.
    Training,
    /// Sliders of the cost model.
    Sliders,
}

impl Panel {
    /// Whether it shows nothing but a run.
    #[must_use]
    pub const fn is_of_run(self) -> bool {
        matches!(
            self,
            Self::Answer | Self::Round | Self::Loop | Self::Lanes | Self::Costs | Self::Dial | Self::Distributions
        )
    }
}

/// A part of a panel that would give an answer away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hidden {
    /// Times and speedups measured in the run: of `bytes`, `threads` and `sliders`.
    Measured,
    /// How far the texts agree, and how fast they came: of `lanes`.
    Agreement,
    /// Speedups at other acceptances than the measured one: of `dial`.
    Predicted,
    /// The chance of acceptance, and the sums over all candidates: of `residual`.
    Chance,
    /// What is left over of p: of `residual`.
    LeftOver,
    /// The slots after the rollback: of `slots`.
    Rollback,
    /// What became of the drafts after the first rejected one: of `round` and `slots`.
    NotReached,
    /// The sentence that says why a draft was kept or not: of `round`.
    Reason,
    /// What the module reads besides the newest token: of `wiring`.
    State,
    /// Which KV cache the module reads: of `wiring`.
    Cache,
}

impl Hidden {
    /// Whether a panel has this part.
    #[must_use]
    pub fn is_of(self, panel: Panel) -> bool {
        match self {
            Self::Measured => matches!(panel, Panel::Bytes | Panel::Threads | Panel::Sliders),
            Self::Agreement => panel == Panel::Lanes,
            Self::Predicted => panel == Panel::Dial,
            Self::Chance | Self::LeftOver => panel == Panel::Residual,
            Self::Rollback => panel == Panel::Slots,
            Self::NotReached => matches!(panel, Panel::Round | Panel::Slots),
            Self::Reason => panel == Panel::Round,
            Self::State | Self::Cache => panel == Panel::Wiring,
        }
    }
}

/// What drawings show that no run gave.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Example {
    /// Tokens that a pass reads, or candidates.
    pub tokens: Vec<String>,
    /// The target's probability of each candidate.
    pub p: Vec<f64>,
    /// The drafter's.
    pub q: Vec<f64>,
    /// Whether the drafter reads the target's KV cache.
    pub shares_cache: bool,
    /// The k of `top-k` whose acceptance stands beside that of the lossless rules; 0 for none.
    pub top_k: u8,
}

impl Step {
    /// Whether it is a question.
    #[must_use]
    pub const fn asks(&self) -> bool {
        !self.choices.is_empty()
    }

    /// What it says or asks of an engine, or of a recording.
    #[must_use]
    pub fn words(&self, is_recorded: bool) -> &str {
        if is_recorded && !self.recorded.is_empty() { &self.recorded } else { &self.text }
    }

    /// Whether the user chooses rows of the map here and sets them: not where a question has the keys.
    #[must_use]
    pub fn sets_map(&self) -> bool {
        self.choices.is_empty() && self.show.contains(&Panel::Map)
    }

    /// The hints, the solution of a task last.
    #[must_use]
    pub fn all_hints(&self) -> Vec<String> {
        let task = self.task.as_ref();
        let solution = task.and_then(|task| Some((task, task.solution?))).map(|(task, solution)| {
            let free = Slider::ALL.into_iter().filter(|slider| task.free.contains(slider));
            let set: Vec<_> = free.map(|slider| format!("{} {}", slider.name(), solution.shown(slider))).collect();
            format!("For example: {}.", set.join(", "))
        });
        self.hints.iter().cloned().chain(solution).collect()
    }
}

impl Lesson {
    /// The run that a step builds on: its own, else the one of the nearest step before.
    #[must_use]
    pub fn run_at(&self, step: usize) -> Option<&Run> {
        self.step.get(..=step)?.iter().rev().find_map(|step| step.run.as_ref())
    }

    /// What the panels of a step leave out: what its question asks until it is answered, and what the next question asks.
    #[must_use]
    pub fn hides(&self, step: usize, is_answered: bool, part: Hidden) -> bool {
        let Some(shown) = self.step.get(step) else { return false };
        let is_open = !shown.asks() || !is_answered;
        let next = self.step[step + 1..].iter().find(|step| step.asks());
        // what is asked of another example is not what this one shows
        let is_same = |next: &&Step| !part.is_of(Panel::Residual) || next.example == shown.example;
        let next = next.filter(is_same);
        (is_open && shown.hides.contains(&part)) || next.is_some_and(|next| next.hides.contains(&part))
    }

    /// Index of the step that has this run.
    #[must_use]
    pub fn step_of_run(&self, step: usize) -> Option<usize> {
        self.step.get(..=step)?.iter().rposition(|step| step.run.is_some())
    }

    /// A step with the numbers of a session in its texts; the right choice, where it is known.
    #[must_use]
    pub fn shown(&self, step: usize, session: &Session) -> ShownStep {
        let (Some(shown), run) = (self.step.get(step), self.run_at(step)) else { return ShownStep::default() };
        let fill = |text: &str| filled(text, session, run);
        let measured = shown.measured.as_ref().and_then(|measured| measured.right(session, run));
        let is_recorded = session.header().is_some_and(|header| !header.capabilities.can_generate);
        ShownStep {
            text: fill(shown.words(is_recorded)),
            choices: shown.choices.iter().map(|choice| (fill(&choice.text), fill(&choice.why))).collect(),
            right: measured.or_else(|| shown.answer?.checked_sub(1)),
            reveal: fill(&shown.reveal),
            notes: fill(&shown.notes),
            hints: shown.all_hints().iter().map(|hint| fill(hint)).collect(),
        }
    }

    /// Replaces control characters in every text: lessons of the user may hold any.
    pub(super) fn cleaned(mut self) -> Self {
        let clean = |text: &mut String| *text = printable(text).into_owned();
        clean(&mut self.title);
        clean(&mut self.summary);
        for step in &mut self.step {
            let choices = step.choices.iter_mut().flat_map(|choice| [&mut choice.text, &mut choice.why]);
            let lists = step.hints.iter_mut().chain(&mut step.source);
            let tokens = step.example.iter_mut().flat_map(|example| &mut example.tokens);
            let single = [&mut step.text, &mut step.recorded, &mut step.reveal, &mut step.notes];
            choices.chain(lists).chain(tokens).chain(single).for_each(clean);
        }
        self
    }
}

/// What a step says, with measured numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ShownStep {
    /// What it says or asks.
    pub text: String,
    /// The choices, and what is wrong with each.
    pub choices: Vec<(String, String)>,
    /// The right one, from 0; none where nothing is asked or nothing was measured.
    pub right: Option<usize>,
    /// Shown after the right choice.
    pub reveal: String,
    /// For the presenter.
    pub notes: String,
    /// The hints.
    pub hints: Vec<String>,
}
