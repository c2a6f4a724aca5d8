//! `draftscope demo`: recordings of the real engine that come with the program.

use std::process::ExitCode;

use anyhow::{Result, bail};
use draftscope::cli::DemoArgs;
use draftscope::host::config::UserFiles;
use draftscope::protocol::stream::FanOut;
use draftscope::session::trace::Recording;

/// Name, what it shows, and the recording.
type Demo = (&'static str, &'static str, &'static [u8]);

macro_rules! demo {
    ($name:literal, $about:literal) => {
        ($name, $about, include_bytes!(concat!("../../assets/traces/", $name, ".dscope.jsonl.zst")))
    };
}

/// Multiple of the recorded pace. Slow enough to follow: the engine makes some two hundred rounds a second.
const SPEED: f32 = 0.02;

/// In the order in which they play.
const DEMOS: &[Demo] = &[
    demo!("chat", "two turns of a conversation, k = 2"),
    demo!("code", "a Python function, k = 4, raced to the end against plain decoding"),
    demo!("story", "a story, k = 3, with a look at plain decoding beside it"),
    demo!("sampling", "temperature 1, speculative sampling: p, q and the draws u"),
    demo!("json", "JSON that a schema describes: forced tokens are free drafts, forbidden ones are refused"),
    demo!("vocabulary", "a draft model with another tokenizer (Gemma 3 270M): ¬ stands at the tokens that it lacks"),
    demo!("lenient", "a rule that is not lossless (top-k): where the text leaves the lossless path"),
];

pub(crate) fn run(args: &DemoArgs, files: &UserFiles) -> Result<ExitCode> {
    if args.list {
        for (name, about, _) in DEMOS {
            super::output::print(format_args!("{name:<10} {about}"))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let chosen: Vec<&Demo> = DEMOS.iter().filter(|demo| args.name.as_deref().is_none_or(|n| n == demo.0)).collect();
    if chosen.is_empty() {
        let names: Vec<_> = DEMOS.iter().map(|demo| demo.0).collect();
        bail!("there is no demo of that name; there are: {}", names.join(", "));
    }
    let recordings = chosen.iter().map(|(name, _, bytes)| Recording::of_bytes(name, *bytes));
    let play = (&args.play, SPEED, args.learn.clone());
    super::terminal::play(recordings.collect::<Result<_, _>>()?, play, files, FanOut::default())
}
