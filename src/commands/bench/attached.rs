//! The cases of a server: its drafter, rule and k are its own.
//!
//! Prompts of a given depth of the context are made with the server's own count of tokens where it reports one.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use draftscope::cli::{BenchArgs, SampleArgs};
use draftscope::headless::Driver;
use draftscope::host::Taskbar;
use draftscope::protocol::{DrafterInfo, Header};

use super::super::run_args::ANSWER_TOKENS;
use super::super::signals::StopSignal;
use super::super::suite::{ALL, SuitePrompt};
use super::depth;
use super::row::{Case, FIRST, SERVER};
use super::sample::{Sample, prompt_tokens};

/// The prompt before all others, which is none of a suite: a drafter may remember it.
const WARM_UP: &str = "Count from one to eight.";

/// What a drafter that may remember means for the rows.
const REMEMBERS: &str = "this server may draft from earlier answers: the prompts of later repeats are varied, and the first \
                         repeat has rows of its own ('first'); start the server anew before you compare two reports";

/// Turns that ask for the same as earlier ones, in other words.
fn varied(turns: &[String], repeat: u32) -> Vec<String> {
    turns.iter().map(|turn| format!("Request {}. {turn}", repeat + 1)).collect()
}

/// Bytes of a token in English text, about.
const BYTES_PER_TOKEN: f64 = 4.0;

/// Lines of a text that a server counts: few enough for the shortest context in use.
const COUNTED: usize = 60;

/// Tokens of a text: those that a prompt with its beginning has more than the warm-up, as the server reports them, times the
/// rest; or about as many as tokenizers make.
fn tokens_of(driver: &mut Driver, common: (&BenchArgs, &StopSignal), text: &str) -> Result<usize> {
    let counted = |driver: &Driver| driver.session().turn().and_then(prompt_tokens);
    let about = (text.len() as f64 / BYTES_PER_TOKEN) as usize;
    let Some(before) = counted(driver) else { return Ok(about) };
    let part: String = text.split_inclusive('\n').take(COUNTED).collect();
    match super::conversation::answer(driver, common, &[], &part) {
        Err(error) if common.1.is_set() => return Err(error),
        Err(_) => return Ok(about), // such as for a short context
        Ok(()) => {}
    }
    let more = counted(driver).map(|after| after.saturating_sub(before)).filter(|more| *more > 0);
    Ok(more.map_or(about, |more| (more as f64 * text.len() as f64 / part.len() as f64) as usize))
}

/// Asks the suite of the server, once for each repeat; one prompt runs first as warm-up.
pub(super) fn measure(
    (args, stop): (&BenchArgs, &StopSignal),
    suite: &[SuitePrompt],
    samples: &mut BTreeMap<Case, Vec<Sample>>,
) -> Result<Option<Header>> {
    let url = args.attach.as_deref().context("no server is named; please report this")?;
    let sample = &args.decode.sample;
    let sample = SampleArgs { max_tokens: sample.max_tokens.min(ANSWER_TOKENS), ..sample.clone() };
    let model = super::super::attach::named(&args.model);
    let grammar = super::super::grammar::read(&args.grammar)?;
    let mut driver = Driver::new(super::super::attach::start(url, model, &args.connect, &sample, grammar)?);
    stop.watch(&mut driver);
    super::conversation::answer(&mut driver, (args, stop), &[], WARM_UP)?;
    let suite = match &*args.context {
        [] => Cow::Borrowed(suite),
        depths => Cow::Owned(depth::at_depths(suite, depths, |text| tokens_of(&mut driver, (args, stop), text))?),
    };
    let mut left_out = BTreeSet::new();
    let drafter = driver.session().header().and_then(|header| header.drafter.as_ref());
    let remembers = drafter.is_some_and(DrafterInfo::may_remember);
    if remembers && args.repeat > 1 {
        eprintln!("draftscope: {REMEMBERS}");
    }
    let (mut reported, mut done) = (0, 0);
    let mut taskbar = Taskbar::default();
    let all = u64::from(args.repeat) * suite.len() as u64;
    for repeat in 0..args.repeat {
        eprintln!("draftscope: {url}, repeat {} of {}", repeat + 1, args.repeat);
        let is_again = remembers && repeat > 0;
        for prompt in suite.iter() {
            if left_out.contains(&prompt.category) {
                continue;
            }
            let turns = if is_again { varied(&prompt.turns, repeat) } else { prompt.turns.clone() };
            let asked = super::conversation::converse(&mut driver, (args, stop), &turns, |driver, turn| {
                super::super::output::report_new_notices(driver, &mut reported);
                let measured = Sample::of(turn, args.connect.plain_url.is_some());
                let drafter = driver.session().header().and_then(|header| header.drafter.as_ref());
                let drafter = drafter.map_or_else(|| SERVER.to_owned(), |drafter| drafter.name.clone());
                let case = Case { drafter, rule: SERVER.into(), k: SERVER.into(), category: String::new() };
                for category in [ALL, prompt.category.as_str()] {
                    let mut add = |category: String| {
                        samples.entry(Case { category, ..case.clone() }).or_default().push(measured.clone());
                    };
                    add(category.to_owned());
                    if remembers && args.repeat > 1 && repeat == 0 {
                        add(format!("{category}{FIRST}"));
                    }
                }
            });
            if let Err(error) = asked {
                // a server's context may be shorter than a depth; the others were measured all the same
                let is_of =
                    |case: &Case, name: &str| case.category.strip_suffix(FIRST).unwrap_or(&case.category) == name;
                let has_others = samples.keys().any(|case| !is_of(case, ALL) && !is_of(case, &prompt.category));
                if args.context.is_empty() || stop.is_set() || !has_others {
                    return Err(error);
                }
                super::super::output::say(&format!("{} is left out: {error:#}", prompt.category));
                samples.retain(|case, _| !is_of(case, &prompt.category));
                left_out.insert(prompt.category.clone());
            }
            done += 1;
            taskbar.at(done, all);
        }
    }
    let header = driver.session().header().cloned();
    super::super::output::complete(driver.finish())?;
    Ok(header)
}
