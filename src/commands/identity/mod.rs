//! `draftscope verify-identity`: checks that the output is the same with and without drafts, and explains a difference.

mod distributions;
mod greedy;
mod reference;

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use draftscope::cli::{DraftLenArg, IdentityArgs, ReportArg};
use draftscope::engine;
use draftscope::engine::grammar::{Constraint, Vocabulary};
use draftscope::engine::speculate::decoder::{Decoder, TIMING};
use draftscope::engine::speculate::drafter::NoDrafter;
use draftscope::model::Model;
use draftscope::model::load::{Loaded, load};
use draftscope::model::row_by_row::RowByRow;
use draftscope::model::text::prompt;
use draftscope::model::text::template::ChatTemplate;
use draftscope::model::text::tokenizer::TextCodec;
use draftscope::protocol::policy::Policy;
use draftscope::protocol::{
    Baseline, DrafterKind, Drafting, Grammar, Message, ModelInfo, Sampling, Settings, Speaker, TokenId, VerifyRule,
    counted,
};
use serde::Serialize;

/// Exit status when the modes differ.
const DIFFERENT: u8 = 1;

/// 200 prompts in all categories.
const PROMPTS: &str = include_str!("../../../assets/prompts/identity.toml");

/// Both modes over one model, and what to try on them.
struct Bench {
    plain: Decoder,
    speculative: Decoder,
    /// The same model with an empty cache, for computing positions again.
    fresh: Box<dyn Model>,
    codec: Arc<TextCodec>,
    template: Option<ChatTemplate>,
    model: ModelInfo,
    drafters: Vec<DrafterKind>,
    settings: Settings,
    /// What answers must match, as it is written, and at work.
    grammar: Option<(Grammar, Constraint)>,
}

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

/// A report, with its model and rule.
#[derive(Serialize)]
struct Described<'a, T> {
    model: &'a ModelInfo,
    rule: VerifyRule,
    /// What every answer had to match, in both modes.
    #[serde(skip_serializing_if = "Option::is_none")]
    grammar: Option<Grammar>,
    #[serde(flatten)]
    report: &'a T,
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

/// The grammar for this tokenizer.
fn constraint(grammar: Grammar, codec: &Arc<TextCodec>) -> Result<(Grammar, Constraint)> {
    let constraint = Constraint::new(&Vocabulary::new(Arc::clone(codec))?, &grammar)?;
    Ok((grammar, constraint))
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

/// A drafter with a k, and the policy that chooses k if it is automatic.
struct Trial {
    drafter: DrafterKind,
    k: DraftLenArg,
    policy: Option<Policy>,
}

impl Bench {
    fn described<'a, T>(&'a self, report: &'a T) -> Described<'a, T> {
        let grammar = self.grammar.as_ref().map(|(grammar, _)| grammar.shortened());
        Described { model: &self.model, rule: self.settings.rule, grammar, report }
    }

    /// Every drafter with every k. Called before anything is decoded, so that whole rounds can be timed.
    fn trials(&mut self, ks: &[DraftLenArg]) -> Result<Vec<Trial>> {
        let pairs: Vec<_> = self.drafters.iter().flat_map(|drafter| ks.iter().map(|k| (*drafter, *k))).collect();
        let trial = |(drafter, k)| {
            let policy = (k == DraftLenArg::Auto).then(|| self.policy(drafter)).transpose()?;
            Ok(Trial { drafter, k, policy })
        };
        pairs.into_iter().map(trial).collect()
    }

    fn policy(&mut self, drafter: DrafterKind) -> Result<Policy> {
        if self.settings.drafting.tree.is_some() {
            bail!("with a draft tree there is no automatic choice of k; give numbers with -k");
        }
        self.speculative.set(&Settings { drafter, ..self.settings });
        let costs = self.speculative.measure_costs(TIMING)?.costs;
        if !costs.is_usable() {
            bail!("passes could not be timed here, so there is no automatic k; give numbers with -k");
        }
        Ok(Policy::new(costs, 0))
    }
}

impl Trial {
    /// Settings of its runs; an automatic k is set round by round.
    fn settings(&self, base: &Settings) -> Settings {
        let draft_len = match self.k {
            DraftLenArg::Fixed(draft_len) => draft_len,
            DraftLenArg::Auto => base.draft_len,
        };
        Settings { drafter: self.drafter, draft_len, ..*base }
    }
}

impl Bench {
    fn tokens(&self, text: &str, raw: bool) -> Result<Vec<TokenId>> {
        let ctx_len = self.plain.target().spec().ctx_len;
        if raw {
            self.codec.check_length(text, ctx_len)?;
            return Ok(self.codec.encode_raw(text)?);
        }
        let message = Message { role: Speaker::User, content: text.to_owned() };
        Ok(prompt::tokens_of(&self.codec, self.template.as_ref(), &[message], ctx_len)?)
    }
}
