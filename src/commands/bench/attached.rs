//! The cases of a server: its drafter, rule and k are its own.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use draftscope::cli::{BenchArgs, SampleArgs};
use draftscope::headless::Driver;
use draftscope::host::Taskbar;
use draftscope::protocol::{DrafterInfo, Header};

use super::super::run_args::ANSWER_TOKENS;
use super::super::signals::StopSignal;
use super::ALL;
use super::report::{Case, SERVER, Sample};

/// The prompt before all others, which is none of a suite: a drafter may remember it.
const WARM_UP: &str = "Count from one to eight.";

/// Ends the category of answers to prompts that the server had not met before in this run; the category itself has these
/// and later ones.
const FIRST: &str = ", first";

/// What a drafter that may remember means for the rows.
const REMEMBERS: &str = "this server may draft from earlier answers: the prompts of later repeats are varied, and the first \
                         repeat has rows of its own ('first'); start the server anew before you compare two reports";

/// A prompt that asks for the same as an earlier one, in other words.
fn varied(prompt: &str, repeat: u32) -> String {
    format!("Request {}. {prompt}", repeat + 1)
}

/// Asks the suite of the server, once for each repeat; one prompt runs first as warm-up.
pub(super) fn measure(
    (args, stop): (&BenchArgs, &StopSignal),
    suite: &[(String, String)],
    samples: &mut BTreeMap<Case, Vec<Sample>>,
) -> Result<Option<Header>> {
    let url = args.attach.as_deref().context("no server is named; please report this")?;
    let sample = &args.decode.sample;
    let sample = SampleArgs { max_tokens: sample.max_tokens.min(ANSWER_TOKENS), ..sample.clone() };
    let model = super::super::attach::named(&args.model);
    let grammar = super::super::grammar::read(&args.grammar)?;
    let mut driver = Driver::new(super::super::attach::start(url, model, &args.connect, &sample, grammar)?);
    stop.watch(&mut driver);
    super::answer(&mut driver, (args, stop), WARM_UP)?;
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
        for (category, prompt) in suite {
            let prompt = if is_again { varied(prompt, repeat) } else { prompt.clone() };
            super::answer(&mut driver, (args, stop), &prompt)?;
            done += 1;
            taskbar.at(done, all);
            super::super::output::report_new_notices(&driver, &mut reported);
            let session = driver.session();
            let turn = session.turn().context("nothing was measured; please report this")?;
            let measured = Sample::of(turn, args.connect.plain_url.is_some());
            let drafter = session.header().and_then(|header| header.drafter.as_ref());
            let drafter = drafter.map_or_else(|| SERVER.to_owned(), |drafter| drafter.name.clone());
            let case = Case { drafter, rule: SERVER.into(), k: SERVER.into(), category: category.clone() };
            for category in [ALL, category] {
                let mut add = |category: String| {
                    samples.entry(Case { category, ..case.clone() }).or_default().push(measured.clone());
                };
                add(category.to_owned());
                if remembers && args.repeat > 1 && repeat == 0 {
                    add(format!("{category}{FIRST}"));
                }
            }
        }
    }
    let header = driver.session().header().cloned();
    super::super::output::complete(driver.finish())?;
    Ok(header)
}
