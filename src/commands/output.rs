//! What commands say, on standard output and standard error.
//!
//! Invariant: text of models, files and paths leaves as what a terminal does not obey.

use std::fmt::Display;
use std::io::{ErrorKind, Write};

use anyhow::Result;
use draftscope::headless::{Driver, Outcome, Summary, write_json_pretty};
use draftscope::protocol::{DraftLenMode, DrafterKind, Lane, Settings, VerifyRule};
use draftscope::session::text::printable;
use draftscope::stream::Dropped;

/// Says on standard error how the newest race went.
pub(crate) fn report_rival(driver: &Driver) {
    let Some(turn) = driver.session().turn().filter(|turn| !turn.answer(Lane::Rival).tokens.is_empty()) else {
        return;
    };
    let speed = |lane| turn.answer(lane).stats().tokens_per_second();
    if let (Some(own), Some(other)) = (speed(Lane::Speculative), speed(Lane::Rival)) {
        eprintln!("draftscope: {own:.1} tokens/s, the rival {other:.1}: {:.2}× as fast as the rival", own / other);
    }
    if let Some(told) = departures(&Summary::of(turn, Lane::Rival)) {
        say(&format!("the rival's rule is {told}"));
    }
    match turn.agreement_with(Lane::Rival) {
        Some(told) if told.divergence.is_none() => {
            eprintln!("draftscope: both wrote the same {} tokens", told.identical);
        }
        Some(told) => eprintln!("draftscope: they differ after {} identical tokens", told.identical),
        None => {}
    }
}

/// Says on standard error what the user should know, but for what is told as the outcome.
pub(crate) fn report_notices(driver: &Driver, outcome: &Outcome) {
    for notice in driver.session().notices() {
        if !matches!(outcome, Outcome::Failed(message) if message == notice) {
            say(notice);
        }
    }
    report_idle(driver);
    report_idle_draft_model(driver);
    report_seed(driver.session().settings());
}

/// Says what was asked for and has no effect with this drafter.
pub(crate) fn report_idle(driver: &Driver) {
    let settings = driver.session().settings();
    let Some(header) = driver.session().header() else {
        return;
    };
    let (asked, drafts) = (u32::from(settings.drafting.exit_layers), settings.drafter.chain());
    // drafting with every layer of the target is no early exit
    if drafts.contains(&DrafterKind::EarlyExit) && asked >= header.model.layers {
        say(&format!(
            "--exit-layers {asked} is no early exit: the target has {} layers, and a draft cost as much as a pass",
            header.model.layers
        ));
    }
    let has_tree = settings.drafting.tree.is_some_and(|nodes| nodes > 0);
    if has_tree && !drafts.is_empty() && !drafts.contains(&DrafterKind::Mtp) {
        say(&format!("--tree has no effect: the drafter {} drafts chains, only mtp drafts trees", settings.drafter));
    }
}

/// Says that a seed does not fix the text where measured times decide what is drafted and a rule's draws follow the
/// drafts.
fn report_seed(settings: &Settings) {
    let is_auto = settings.draft_len_mode == DraftLenMode::Auto;
    if is_auto && !settings.sampling.is_greedy() && settings.rule != VerifyRule::Exact {
        say(&format!(
            "-k auto drafts by measured times, and by {} another draft is another draw: one seed can give another text in \
             each run; a fixed k, or --verify exact, gives one",
            settings.rule
        ));
    }
}

/// Says that a second model was loaded and nobody drafts with it.
fn report_idle_draft_model(driver: &Driver) {
    let (settings, kind) = (driver.session().settings(), DrafterKind::DraftModel);
    let is_loaded = driver.session().header().is_some_and(|h| h.drafters.iter().any(|info| info.kind == kind));
    let rival = settings.rival.map_or(DrafterKind::None, |rival| rival.drafter);
    if is_loaded && ![settings.drafter, rival].iter().any(|drafter| drafter.chain().contains(&kind)) {
        say(&format!(
            "--draft-model is loaded and drafts nothing: the drafter is {}; --drafter draft-model has it draft",
            settings.drafter
        ));
    }
}

/// Says those notices that are new since `told` were seen.
pub(crate) fn report_new_notices(driver: &Driver, told: &mut u64) {
    let session = driver.session();
    let new = session.notices_seen().saturating_sub(*told);
    let kept: Vec<_> = session.notices().collect();
    let first = kept.len().saturating_sub(usize::try_from(new).unwrap_or(usize::MAX));
    kept[first..].iter().for_each(|notice| say(notice));
    *told = session.notices_seen();
}

/// What a rule that is not lossless did to the text; none under a lossless one.
pub(crate) fn departures(run: &Summary) -> Option<String> {
    let first = run.first_departure.map_or(String::new(), |at| format!(", the first at token {}", at + 1));
    let (count, tokens) = (run.departures, run.output_tokens);
    let told =
        format!("not lossless: {count} of {tokens} tokens accepted that the target would not have picked{first}");
    (!run.lossless).then_some(told)
}

/// Lines on standard output, with nothing that a terminal obeys. A reader that has enough is an error that
/// `main` knows, and a full disk one that it tells.
pub(crate) fn print(text: impl Display) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", printable(&text.to_string()))?;
    Ok(out.flush()?)
}

/// Writes one JSON object and a newline to standard output.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<()> {
    Ok(write_json_pretty(&mut std::io::stdout().lock(), value)?)
}

/// A line on standard error; text of files and models is in it only as what a terminal does not obey.
pub(crate) fn say(what: &str) {
    // nobody is left to tell where this cannot be told
    let _ = writeln!(std::io::stderr(), "draftscope: {}", printable(what));
}

/// A consumer that failed is an error at the end of a run: its output is not whole. That nobody reads standard
/// output any longer is told last: `main` takes it for no failure, and what else failed must not hide behind it.
pub(crate) fn complete(dropped: Vec<Dropped>) -> Result<()> {
    let (gone, failed): (Vec<_>, Vec<_>) =
        dropped.into_iter().partition(|dropped| dropped.error.kind() == ErrorKind::BrokenPipe);
    let mut errors = failed
        .into_iter()
        .chain(gone)
        .map(|Dropped { name, error }| anyhow::Error::new(error).context(format!("{name} is not complete")));
    errors.next().map_or(Ok(()), Err)
}
