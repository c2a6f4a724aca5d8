//! The cases of a server: its drafter, rule and k are its own.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use draftscope::cli::{BenchArgs, SampleArgs};
use draftscope::headless::Driver;
use draftscope::protocol::Header;

use super::super::run_args::ANSWER_TOKENS;
use super::super::signals::StopSignal;
use super::ALL;
use super::report::{Case, SERVER, Sample};

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
    let mut driver = Driver::new(super::super::attach::start(url, model, &args.connect, &sample)?);
    stop.watch(&mut driver);
    let (_, warm_up) = suite.first().context("the suite holds no prompts")?;
    super::answer(&mut driver, (args, stop), warm_up)?;
    let mut reported = 0;
    for repeat in 0..args.repeat {
        eprintln!("draftscope: {url}, repeat {} of {}", repeat + 1, args.repeat);
        for (category, prompt) in suite {
            super::answer(&mut driver, (args, stop), prompt)?;
            super::super::output::report_new_notices(&driver, &mut reported);
            let session = driver.session();
            let turn = session.turn().context("nothing was measured; please report this")?;
            let measured = Sample::of(turn, args.connect.plain_url.is_some());
            let drafter = session.header().and_then(|header| header.drafter.as_ref());
            let drafter = drafter.map_or_else(|| SERVER.to_owned(), |drafter| drafter.name.clone());
            let case = Case { drafter, rule: SERVER.into(), k: SERVER.into(), category: category.clone() };
            samples.entry(Case { category: ALL.into(), ..case.clone() }).or_default().push(measured.clone());
            samples.entry(case).or_default().push(measured);
        }
    }
    let header = driver.session().header().cloned();
    super::super::output::complete(driver.finish())?;
    Ok(header)
}
