//! Checks a lesson's file and says what is wrong, with line and field.
//!
//! Invariant: a lesson that passes shows no step that cannot be answered, run or finished.

use std::fmt;

use draftscope_protocol::{DrafterKind, MAX_DRAFT_LEN, Sampling, counted};

use super::answers;
use super::content::{Hidden, Lesson, Panel, Step};
use super::fact::Fact;
use super::run::Run;
use super::texts::BUNDLED;
use crate::theory::{HARDWARE, MapChoice, Slider, Sliders};

/// Most words of a text on screen, and of the reply to a wrong choice.
const MAX_WORDS: usize = 90;

/// Most steps, choices and hints, and the longest prompt in characters.
const MAX_STEPS: usize = 40;
const MAX_CHOICES: usize = 6;
const MAX_HINTS: usize = 4;
const MAX_PROMPT: usize = 2000;

/// Longest answer of a run, in tokens.
const MAX_TOKENS: u32 = 1024;

/// What is wrong with a lesson's file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct LessonError {
    /// The line, from 1.
    pub line: usize,
    /// The field; empty where the file is not TOML.
    pub field: String,
    /// What is wrong with it, and what is asked for.
    pub why: String,
}

impl fmt::Display for LessonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, field, why } = self;
        if field.is_empty() { write!(f, "line {line}: {why}") } else { write!(f, "line {line}, {field}: {why}") }
    }
}

/// Reads a lesson.
///
/// # Errors
/// Names the line and the field of the first thing that is wrong.
pub fn check(text: &str) -> Result<Lesson, LessonError> {
    let lesson: Lesson = toml::from_str(text).map_err(|error| {
        let start = error.span().map_or(0, |span| span.start);
        let before = text.get(..start).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let shown = text.lines().nth(line - 1).unwrap_or_default();
        let field = shown.split_once('=').map_or("", |(key, _)| key.trim());
        let is_name = !field.is_empty() && field.chars().all(|c| c.is_alphanumeric() || c == '_');
        let field = if is_name { field.to_owned() } else { String::new() };
        LessonError { line, field, why: error.message().trim().replace('\n', ", ") }
    })?;
    let fault = |step: Option<usize>, field: &str, why: String| {
        let field_name = field.to_owned();
        LessonError { line: line_of(text, step, field), field: field_name, why }
    };
    for (field, value) in [("title", &lesson.title), ("summary", &lesson.summary)] {
        if value.trim().is_empty() || value.contains('\n') {
            return Err(fault(None, field, "must be one line of text".to_owned()));
        }
    }
    if lesson.step.is_empty() || lesson.step.len() > MAX_STEPS {
        return Err(fault(None, "step", format!("a lesson has 1 to {MAX_STEPS} steps")));
    }
    for index in 0..lesson.step.len() {
        step_fault(&lesson, index).map_or(Ok(()), |(field, why)| Err(fault(Some(index), field, why)))?;
    }
    Ok(lesson.cleaned())
}

/// The line of a field: of the lesson, or of a step by its index; the line of the step's beginning where it has no such
/// field.
fn line_of(text: &str, step: Option<usize>, field: &str) -> usize {
    let mut current = None;
    let mut begins = 1;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_start();
        if line.starts_with("[[step]]") {
            current = Some(current.map_or(0, |index: usize| index + 1));
            if current == step {
                begins = number;
            }
        }
        let name = line.trim_start_matches('[').trim_start_matches("step.");
        let is_field = name.strip_prefix(field).is_some_and(|rest| {
            let rest = rest.trim_start();
            rest.starts_with('=') || rest.starts_with(']')
        });
        if current == step && is_field {
            return number;
        }
    }
    begins
}

fn words(text: &str) -> usize {
    text.split_whitespace().count()
}

/// The first field of a step that is wrong, and why.
fn step_fault(lesson: &Lesson, index: usize) -> Option<(&'static str, String)> {
    let step = &lesson.step[index];
    if step.text.trim().is_empty() && !step.quiz {
        return Some(("text", "must not be empty".to_owned()));
    }
    let texts = [("text", &step.text), ("recorded", &step.recorded), ("reveal", &step.reveal), ("notes", &step.notes)];
    let too_long = texts.into_iter().find(|(_, text)| words(text) > MAX_WORDS);
    if let Some((field, text)) = too_long {
        return Some((field, format!("has {}, at most {MAX_WORDS} fit", counted(words(text), "word"))));
    }
    for (field, text) in texts {
        if let Some(word) = unknown_fact(text) {
            let known: Vec<_> = Fact::ALL.iter().map(|(name, _)| *name).collect();
            return Some((field, format!("there is no number '{{{word}}}'; there are: {}", known.join(", "))));
        }
    }
    choices_fault(step)
        .or_else(|| step.run.as_ref().and_then(run_fault))
        .or_else(|| recorded_fault(step))
        .or_else(|| help_fault(step))
        .or_else(|| panels_fault(lesson, index))
        .or_else(|| answers::shown_early(lesson, index))
}

/// A word in braces that names no number.
fn unknown_fact(text: &str) -> Option<&str> {
    let mut words = text.split('{').skip(1).filter_map(|part| Some(part.split_once('}')?.0));
    words.find(|word| Fact::ALL.iter().all(|(name, _)| name != word))
}

fn choices_fault(step: &Step) -> Option<(&'static str, String)> {
    let count = step.choices.len();
    let asks = usize::from(step.answer.is_some()) + usize::from(step.measured.is_some());
    let ways = [asks > 0 || count > 0, step.goal.is_some(), step.task.is_some(), step.quiz, step.run.is_some()];
    if ways.iter().filter(|way| **way).count() > 1 {
        return Some(("text", "a step has only one of: choices, goal, task, quiz, run".to_owned()));
    }
    if count == 0 && asks == 0 {
        return None;
    }
    if !(2..=MAX_CHOICES).contains(&count) {
        return Some(("choices", format!("a question has 2 to {MAX_CHOICES} choices, not {count}")));
    }
    if asks != 1 {
        return Some(("choices", "a question has either an answer or a measured number".to_owned()));
    }
    if step.answer.is_some_and(|answer| !(1..=count).contains(&answer)) {
        return Some(("answer", format!("must be 1 to {count}, the number of the right choice")));
    }
    if let Some(measured) = &step.measured {
        let rises = measured.bounds.windows(2).all(|pair| pair[0] < pair[1]);
        if measured.bounds.len() + 1 != count || !rises || measured.bounds.iter().any(|bound| !bound.is_finite()) {
            return Some(("measured", format!("{count} choices need {} rising bounds", count - 1)));
        }
    }
    if step.reveal.trim().is_empty() {
        return Some(("reveal", "must say why the right choice is right".to_owned()));
    }
    for (index, choice) in step.choices.iter().enumerate() {
        let is_right = step.answer == Some(index + 1);
        if choice.text.trim().is_empty() {
            return Some(("choices", format!("choice {} has no text", index + 1)));
        }
        if !is_right && choice.why.trim().is_empty() {
            return Some(("choices", format!("choice {} needs a why: what is wrong with it", index + 1)));
        }
        if unknown_fact(&choice.text).is_some() {
            return Some(("choices", format!("choice {} names a number that there is not", index + 1)));
        }
        if words(&choice.why) > MAX_WORDS || unknown_fact(&choice.why).is_some() {
            return Some(("choices", format!("the why of choice {} is too long or names no number", index + 1)));
        }
    }
    None
}

fn run_fault(run: &Run) -> Option<(&'static str, String)> {
    let length = run.prompt.chars().count();
    if run.prompt.trim().is_empty() || length > MAX_PROMPT {
        return Some(("run", format!("prompt must have 1 to {MAX_PROMPT} characters, not {length}")));
    }
    if !(1..=MAX_DRAFT_LEN).contains(&run.k) {
        return Some(("run", format!("k is {}; it must lie between 1 and {MAX_DRAFT_LEN}", run.k)));
    }
    if let Some(k) = run.against_k.filter(|k| *k > MAX_DRAFT_LEN) {
        return Some(("run", format!("against_k is {k}; it must lie between 0 and {MAX_DRAFT_LEN}")));
    }
    if run.draft.is_some() && run.threads > 0 {
        return Some(("run", "a draft of the user runs on all threads".to_owned()));
    }
    if !(1..=MAX_TOKENS).contains(&run.tokens) {
        return Some(("run", format!("tokens is {}; it must lie between 1 and {MAX_TOKENS}", run.tokens)));
    }
    let sampling = Sampling { temperature: run.temperature, ..Sampling::default() };
    let fault = sampling.validate().and_then(|()| run.leniency.validate()).err();
    if let Some(error) = fault {
        return Some(("run", error.to_string()));
    }
    if run.draft.is_some() && !run.raw {
        return Some(("run", "a draft of the user needs raw = true".to_owned()));
    }
    let has = |name: &String| BUNDLED_RECORDINGS.contains(&name.as_str()) || BUNDLED.iter().any(|(own, _)| own == name);
    run.recording.as_ref().filter(|name| !has(name)).map(|name| ("run", format!("there is no recording '{name}'")))
}

/// Recordings of lessons that are not named as their lesson.
pub(crate) const BUNDLED_RECORDINGS: &[&str] = &["random", "rules", "confidence", "slow", "threads", "obama", "dial"];

/// A draft of the user and a dial need an engine: where a recording plays, the step must say something else.
fn recorded_fault(step: &Step) -> Option<(&'static str, String)> {
    let needs_engine = |run: &Run| run.draft.is_some() || run.drafter == DrafterKind::Dial;
    let run = step.run.as_ref().filter(|run| run.recording.is_some());
    if run.is_some_and(needs_engine) && step.recorded.trim().is_empty() {
        return Some((
            "run",
            "only an engine takes a draft or turns a dial: recorded says what a recording does".to_owned(),
        ));
    }
    (run.is_none() && !step.recorded.is_empty())
        .then(|| ("recorded", "is for a step whose run has a recording".to_owned()))
}

fn help_fault(step: &Step) -> Option<(&'static str, String)> {
    if step.hints.len() > MAX_HINTS {
        return Some(("hints", format!("at most {MAX_HINTS} hints")));
    }
    if let Some(word) = step.hints.iter().find_map(|hint| unknown_fact(hint)) {
        return Some(("hints", format!("there is no number '{{{word}}}'")));
    }
    if (step.goal.is_some() || step.task.is_some()) && step.hints.is_empty() {
        return Some(("hints", "a step that asks for an action needs at least one hint".to_owned()));
    }
    let task = step.task.as_ref()?;
    let [low, high] = task.speedup;
    if task.free.is_empty() || low > high || !low.is_finite() || !high.is_finite() {
        return Some(("task", "needs free sliders and a speedup from low to high".to_owned()));
    }
    let is_within =
        |point: &Sliders| Slider::ALL.iter().all(|slider| (0.0..=1.0).contains(&point.share(*slider))) && point.k > 0;
    if !is_within(&task.start) {
        return Some(("task", "a slider starts outside its range".to_owned()));
    }
    let solution = task.solution.as_ref()?;
    let is_fixed = |slider: &Slider| task.free.contains(slider) || solution.share(*slider) == task.start.share(*slider);
    let solves = is_within(solution) && (low..=high).contains(&solution.speedup());
    let is_one = solves && Slider::ALL.iter().all(is_fixed);
    (!is_one)
        .then(|| ("task", format!("the solution gives {:.2}, or moves a slider that is not free", solution.speedup())))
}

fn panels_fault(lesson: &Lesson, index: usize) -> Option<(&'static str, String)> {
    let step = &lesson.step[index];
    if step.task.is_some() && !step.show.contains(&Panel::Sliders) {
        return Some(("show", "a task needs the panel sliders".to_owned()));
    }
    let needs_run = |panel: &Panel| panel.is_of_run() && *panel != Panel::Round;
    if step.show.iter().chain(&step.after).any(needs_run) && lesson.run_at(index).is_none() {
        return Some(("show", "a panel of a run needs a step with a run before".to_owned()));
    }
    if (step.goal.is_some() || step.measured.is_some()) && lesson.run_at(index).is_none() {
        let field = if step.goal.is_some() { "goal" } else { "measured" };
        return Some((field, "needs a step with a run before".to_owned()));
    }
    if !step.after.is_empty() && step.choices.is_empty() {
        return Some(("after", "panels that come with an answer need a question".to_owned()));
    }
    if step.hardware.as_ref().is_some_and(|name| MapChoice::on(name).is_none()) {
        let known: Vec<_> = HARDWARE.iter().map(|hardware| hardware.name).collect();
        return Some(("hardware", format!("must be one of: {}", known.join(", "))));
    }
    let has_part = |part: &Hidden| step.show.iter().chain(&step.after).any(|panel| part.is_of(*panel));
    if !step.hides.iter().all(has_part) {
        return Some(("hides", "no panel of this step has that part".to_owned()));
    }
    let needs_example = |panel: &Panel| matches!(panel, Panel::Residual | Panel::Histogram);
    let needs_example = step.show.iter().chain(&step.after).any(needs_example);
    let Some(example) = step.example.as_ref() else {
        return needs_example.then(|| ("show", "residual and histogram draw an example".to_owned()));
    };
    let lists = [example.p.len(), example.q.len()];
    if needs_example {
        let sums = [&example.p, &example.q].map(|list| list.iter().sum::<f64>());
        let is_fine = lists == [example.tokens.len(); 2] && sums.iter().all(|sum| (sum - 1.0).abs() < 1e-6);
        if !is_fine || example.tokens.is_empty() {
            return Some(("example", "tokens, p and q must be equally long, and p and q must add up to 1".to_owned()));
        }
    }
    None
}
