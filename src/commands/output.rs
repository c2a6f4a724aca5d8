//! What commands print on standard output and standard error.
//!
//! Invariant: text of models, files and paths is printed without anything that controls a terminal.

use std::fmt::Display;
use std::io::{ErrorKind, Write};

use anyhow::Result;
use draftscope::headless::{Driver, Outcome, Summary, write_json_pretty};
use draftscope::protocol::stream::Dropped;
use draftscope::protocol::{DraftLenMode, DrafterKind, Lane, Settings, VerifyRule, counted};
use draftscope::session::text::printable;
use draftscope::store::StoreError;

/// Prints the result of the newest race on standard error.
pub(crate) fn report_rival(driver: &Driver) {
    let Some(turn) = driver.session().turn().filter(|turn| !turn.answer(Lane::Rival).tokens.is_empty()) else {
        return;
    };
    let speed = |lane| turn.tokens_per_second(lane);
    if let (Some(own), Some(other)) = (speed(Lane::Speculative), speed(Lane::Rival)) {
        let ratio = turn
            .speedup_over(Lane::Rival)
            .map_or("too few rounds to compare".to_owned(), |speedup| format!("{speedup} as fast as the rival"));
        eprintln!("draftscope: {own:.1} tokens/s, the rival {other:.1}: {ratio}");
    }
    if let Some(text) = departures(&Summary::of(turn, Lane::Rival)) {
        say(&format!("the rival's rule is {text}"));
    }
    match turn.agreement_with(Lane::Rival) {
        Some(agreement) if agreement.divergence.is_none() => {
            eprintln!("draftscope: both wrote the same {}", counted(agreement.identical, "token"));
        }
        Some(agreement) => {
            eprintln!("draftscope: they differ after {}", counted(agreement.identical, "identical token"));
        }
        None => {}
    }
}

/// Prints the notices of a run on standard error, except the one that is its outcome, and warnings about options without
/// effect.
pub(crate) fn report_notices(driver: &Driver, outcome: &Outcome) {
    for notice in driver.session().notices() {
        if !matches!(outcome, Outcome::Failed(message) if message == notice) {
            say(notice);
        }
    }
    report_idle(driver);
    report_unused_draft_model(driver);
    report_seed(driver.session().settings());
}

/// A server answered with an error, or broke its answer off.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct AnswerFailed(String);

/// The error to end with after an answer failed: an attached server's answer has a status of its own.
pub(crate) fn answer_failed(driver: &Driver, message: String) -> anyhow::Error {
    let is_attached = driver.session().header().is_some_and(|header| header.engine.is_some());
    if is_attached { AnswerFailed(message).into() } else { anyhow::Error::msg(message) }
}

/// Warns about options that have no effect with this drafter.
pub(crate) fn report_idle(driver: &Driver) {
    let settings = driver.session().settings();
    let Some(header) = driver.session().header() else {
        return;
    };
    let (exit_layers, drafts) = (u32::from(settings.drafting.exit_layers), settings.drafter.chain());
    // drafting with every layer of the target is no early exit
    if drafts.contains(&DrafterKind::EarlyExit) && exit_layers >= header.model.layers {
        say(&format!(
            "--exit-layers {exit_layers} is no early exit: the target has {} layers, so a draft costs as much as a pass",
            header.model.layers
        ));
    }
    let has_tree = settings.drafting.tree.is_some_and(|nodes| nodes > 0);
    if has_tree && !drafts.is_empty() && !drafts.contains(&DrafterKind::Mtp) {
        say(&format!("--tree has no effect: the drafter {} drafts chains, only mtp drafts trees", settings.drafter));
    }
}

/// Warns that a seed does not fix the text if measured times decide what is drafted, and drafts decide what is drawn.
fn report_seed(settings: &Settings) {
    let is_auto = settings.draft_len_mode == DraftLenMode::Auto;
    if is_auto && !settings.sampling.is_greedy() && settings.rule != VerifyRule::Exact {
        say(&format!(
            "-k auto follows measured times, so under {} one seed can give another text in each run; a fixed k, or \
             --verify exact, gives the same text",
            settings.rule
        ));
    }
}

/// Warns that a second model was loaded but does not draft.
fn report_unused_draft_model(driver: &Driver) {
    let (settings, kind) = (driver.session().settings(), DrafterKind::DraftModel);
    let is_loaded = driver.session().header().is_some_and(|h| h.drafters.iter().any(|info| info.kind == kind));
    let rival = settings.rival.map_or(DrafterKind::None, |rival| rival.drafter);
    if is_loaded && ![settings.drafter, rival].iter().any(|drafter| drafter.chain().contains(&kind)) {
        say(&format!(
            "--draft-model is loaded and drafts nothing: the drafter is {}; use --drafter draft-model",
            settings.drafter
        ));
    }
}

/// Prints the notices after the first `reported` ones, and counts them there.
pub(crate) fn report_new_notices(driver: &Driver, reported: &mut u64) {
    report_notices_before(driver, reported, None);
}

/// The same, without the sentence that the program ends with.
pub(crate) fn report_notices_before(driver: &Driver, reported: &mut u64, last: Option<&str>) {
    let session = driver.session();
    let new = session.notices_seen().saturating_sub(*reported);
    let kept: Vec<_> = session.notices().collect();
    let first = kept.len().saturating_sub(usize::try_from(new).unwrap_or(usize::MAX));
    kept[first..].iter().filter(|notice| Some(**notice) != last).for_each(|notice| say(notice));
    *reported = session.notices_seen();
}

/// The error and its causes, each once: most errors name their cause themselves.
pub(crate) fn with_causes(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |text, cause| match text.as_str() {
        "" => cause,
        before if before.contains(&cause) => text,
        before => format!("{before}: {cause}"),
    })
}

/// An error of finding a model, with what can be done without one.
pub(crate) fn without_model(error: anyhow::Error, other: &str) -> anyhow::Error {
    let is_missing = |error: &StoreError| matches!(error, StoreError::NoSource(_) | StoreError::Repo { .. });
    match error.chain().any(|cause| cause.downcast_ref().is_some_and(is_missing)) {
        true => anyhow::anyhow!("{}\nOr without a model: {other}", with_causes(&error)),
        false => error,
    }
}

/// How far a rule that is not lossless changed the text; none under a lossless rule.
pub(crate) fn departures(run: &Summary) -> Option<String> {
    let first = run.first_departure.map_or(String::new(), |at| format!(", the first at token {}", at + 1));
    let (count, tokens) = (run.departures, run.output_tokens);
    let text = format!(
        "not lossless: {count} of {} accepted that the target would not have picked{first}",
        counted(tokens as usize, "token")
    );
    (run.lossless == Some(false)).then_some(text)
}

/// What share of the answer's tokens a drafter with a vocabulary of its own has; none of other drafters.
pub(crate) fn draftable(run: &Summary) -> Option<String> {
    let (lacking, share) = (run.run.num_undraftable_tokens?, run.run.draftable_share?);
    Some(format!(
        "the drafter's vocabulary has {:.1} % of the tokens that the rounds wrote; {lacking} could not be drafted",
        share * 100.0
    ))
}

/// Prints lines on standard output, without anything that controls a terminal. `main` ignores the error of a closed pipe
/// and reports others, such as a full disk.
pub(crate) fn print(text: impl Display) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", printable(&text.to_string()))?;
    Ok(out.flush()?)
}

/// Writes one JSON object and a newline to standard output.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<()> {
    Ok(write_json_pretty(&mut std::io::stdout().lock(), value)?)
}

/// Prints a line on standard error, without anything that controls a terminal.
pub(crate) fn say(what: &str) {
    // there is no other place to report a failure
    let _ = writeln!(std::io::stderr(), "draftscope: {}", printable(what));
}

/// Turns a failed consumer into an error at the end of a run, because its output is not complete. A closed pipe comes
/// last: `main` does not count it as a failure, so it must not hide another one.
pub(crate) fn complete(dropped: Vec<Dropped>) -> Result<()> {
    let (gone, failed): (Vec<_>, Vec<_>) =
        dropped.into_iter().partition(|dropped| dropped.error.kind() == ErrorKind::BrokenPipe);
    let mut errors = failed
        .into_iter()
        .chain(gone)
        .map(|Dropped { name, error }| anyhow::Error::new(error).context(format!("{name} is not complete")));
    errors.next().map_or(Ok(()), Err)
}
