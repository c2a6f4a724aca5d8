//! `draftscope verify-identity`: checks that the output is the same with and without drafts, and explains a difference.

mod distributions;
mod greedy;
mod reference;
mod setup;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use draftscope::cli::{IdentityArgs, ReportArg};
use draftscope::engine;
use draftscope::engine::speculate::decoder::Decoder;
use draftscope::engine::speculate::drafter::NoDrafter;
use draftscope::model::Model;
use draftscope::model::load::{Loaded, load};
use draftscope::model::row_by_row::RowByRow;
use draftscope::protocol::{Baseline, DrafterKind, Drafting, Sampling, Settings, counted};
use serde::Serialize;
use setup::{Bench, constraint};

/// Exit status when the modes differ.
const DIFFERENT: u8 = 1;

/// 200 prompts in all categories.
const PROMPTS: &str = include_str!("../../../assets/prompts/identity.toml");

pub(crate) fn run(args: &IdentityArgs) -> Result<ExitCode> {
    let prompts = prompts(args)?;
    let mut bench = bench(args)?;
    if let Some(name) = &args.reference {
        let report = reference::run(args, &mut bench, &prompts, name)?;
        // other code rounds otherwise, so a difference is a finding and no failure
        return write(args.output, &bench.described(&report), &reference::text(&report), true);
    }
    eprintln!(
        "draftscope: {} × {} × {}",
        counted(prompts.len(), "prompt"),
        counted(args.k.len(), "draft length"),
        counted(bench.drafters.len(), "drafter")
    );
    if args.temperature > 0.0 {
        let report = distributions::run(args, &mut bench, &prompts)?;
        return write(args.output, &bench.described(&report), &distributions::text(&report), report.is_consistent());
    }
    let report = greedy::run(args, &mut bench, &prompts)?;
    let text = greedy::text(&report, &bench.codec);
    write(args.output, &bench.described(&report), &text, report.divergence.count == 0)
}

fn write(output: ReportArg, report: &impl Serialize, text: &str, is_same: bool) -> Result<ExitCode> {
    match output {
        ReportArg::Text => io::stdout().lock().write_all(text.as_bytes())?,
        ReportArg::Summary => super::output::print_json(report)?,
    }
    Ok(if is_same { ExitCode::SUCCESS } else { ExitCode::from(DIFFERENT) })
}

/// As many prompts as requested, spread evenly, so that every category occurs.
fn prompts(args: &IdentityArgs) -> Result<Vec<String>> {
    let text = match &args.prompts {
        None => PROMPTS.to_owned(),
        Some(path) => {
            super::suite::text(path).with_context(|| format!("cannot read the prompts {}", path.display()))?
        }
    };
    let all = super::suite::parse_suite(&text)?;
    let count = if args.limit == 0 { all.len() } else { all.len().min(args.limit as usize) };
    Ok((0..count).map(|i| all[i * all.len() / count].opening().to_owned()).collect())
}

fn bench(args: &IdentityArgs) -> Result<Bench> {
    super::run_args::nobody_to_ask(&args.model)?;
    let settings = settings(args)?;
    let grammar = super::grammar::read(&args.grammar)?;
    let recipe = super::recipe::recipe(&args.model, &settings)?;
    let loaded = load(&recipe, &mut |_, _, _| {})?;
    let drafters = drafters(args, &loaded)?;
    let (drafter_set, Loaded { target, codec, template, .. }) = engine::drafter_set(loaded);
    let model = target.spec().info.clone();
    let target: Box<dyn Model> = if args.row_by_row { Box::new(RowByRow::new(target)) } else { target };
    let fresh = target.fork()?;
    let plain = Settings { draft_len: 0, ..settings };
    let mut plain = Decoder::new(target.fork()?, Box::new(NoDrafter), &plain);
    let mut speculative = Decoder::new(target, Box::new(drafter_set), &settings);
    speculative.take_notices().iter().for_each(|notice| super::output::say(notice));
    let grammar = grammar.map(|grammar| constraint(grammar, &codec)).transpose()?;
    for decoder in [&mut plain, &mut speculative] {
        decoder.constrain(grammar.as_ref().map(|(_, constraint)| constraint.fork()));
    }
    Ok(Bench { plain, speculative, fresh, codec, template, model, drafters, settings, grammar })
}

fn settings(args: &IdentityArgs) -> Result<Settings> {
    let sampling =
        Sampling { temperature: args.temperature, top_k: args.top_k, top_p: args.top_p, ..Sampling::default() };
    let settings = Settings {
        rule: args.verify.parse()?,
        drafting: Drafting { tree: args.tree, ..Drafting::default() },
        sampling,
        max_tokens: args.max_tokens,
        baseline: Baseline::Off,
        ..Settings::default()
    };
    settings.validate()?;
    Ok(settings)
}

/// The requested drafters; `all` leaves out those that need missing files or a person.
fn drafters(args: &IdentityArgs, loaded: &Loaded) -> Result<Vec<DrafterKind>> {
    let is_there = |kind: &DrafterKind| match kind {
        DrafterKind::Mtp => loaded.mtp.is_some() || loaded.block.is_some(),
        DrafterKind::DraftModel => matches!(loaded.draft_model, Some(Ok(_))),
        DrafterKind::Human | DrafterKind::None | DrafterKind::Unknown => false,
        _ => true,
    };
    if args.drafters.iter().any(|name| name == "all") {
        let all = DrafterKind::ALL.iter().filter(|kind| **kind != DrafterKind::None);
        return Ok(all.filter(|kind| kind.chain().iter().all(is_there)).copied().collect());
    }
    let names = if args.drafters.is_empty() { vec![args.model.drafter.clone()] } else { args.drafters.clone() };
    let kinds: Vec<DrafterKind> = names.iter().map(|name| name.parse()).collect::<Result<_, _>>()?;
    if let Some(kind) = kinds.iter().find(|kind| kind.chain().is_empty() || !kind.chain().iter().all(is_there)) {
        let another = if kind.stacks_copies() { "--drafter suffix, which copies alone" } else { "another" };
        bail!("the drafter {kind} cannot draft here: its model is not loaded, or it needs a person; choose {another}");
    }
    Ok(kinds)
}
