//! From arguments to what the engine gets: the settings of a run, and its prompt.
//!
//! Invariant: returned settings are valid in themselves; the engine checks them against the model.

use anyhow::{Context, Result, bail};
use draftscope::cli::{DecodeArgs, DraftLenArg, LabArgs, ModelArgs, PromptArgs, SampleArgs};
use draftscope::host::file_access;
use draftscope::protocol::{
    Baseline, DraftLenMode, DrafterKind, Drafting, Leniency, Message, Prompt, Sampling, Settings, Speaker,
};

use super::prompts::{STDIN, no_prompt, read_text};

pub(crate) fn settings(model: &ModelArgs, decode: &DecodeArgs, baseline: Baseline) -> Result<Settings> {
    let (draft_len, draft_len_mode) = match decode.k {
        DraftLenArg::Fixed(k) => (k, DraftLenMode::Fixed),
        DraftLenArg::Auto => (Settings::default().draft_len, DraftLenMode::Auto),
    };
    let settings = Settings {
        draft_len,
        draft_len_mode,
        probe_depth: 0,
        threads: 0,
        drafter: model.drafter.parse()?,
        drafting: drafting(&decode.lab)?,
        rule: decode.verify.parse()?,
        leniency: leniency(&decode.lab),
        sampling: sampling(&decode.sample),
        max_tokens: decode.sample.max_tokens,
        baseline,
        rival: None,
    };
    settings.validate()?;
    Ok(settings)
}

pub(crate) const fn sampling(args: &SampleArgs) -> Sampling {
    Sampling { temperature: args.temperature, top_k: args.top_k, top_p: args.top_p, min_p: args.min_p, seed: args.seed }
}

/// Longest answer to a prompt of a suite, in tokens.
pub(crate) const ANSWER_TOKENS: u32 = 128;

/// Warns that answers to a suite are shorter than requested.
pub(crate) fn report_short_answers(decode: &DecodeArgs) {
    let asked = decode.sample.max_tokens;
    if asked > ANSWER_TOKENS && asked != Settings::default().max_tokens {
        super::output::say(&format!("answers are at most {ANSWER_TOKENS} tokens long here, not {asked}"));
    }
}

fn drafting(lab: &LabArgs) -> Result<Drafting> {
    let (shortest, usual) = (lab.ngram_min, Drafting::default().ngram_max);
    let longest = lab.ngram_max.unwrap_or(usual.max(shortest));
    if shortest > longest {
        bail!("--ngram-min is {shortest} and --ngram-max {longest}; the minimum must not be above the maximum");
    }
    Ok(Drafting {
        pick: lab.draft_pick.parse()?,
        p_min: lab.p_min,
        ngram_min: shortest,
        ngram_max: longest,
        exit_layers: lab.exit_layers,
        dial: lab.dial,
        tree: lab.tree,
        mtp: lab.mtp_spec.parse()?,
    })
}

const fn leniency(lab: &LabArgs) -> Leniency {
    Leniency {
        epsilon: lab.epsilon,
        delta: lab.delta,
        top_k: lab.lenient_top_k,
        threshold: lab.threshold,
        confidence: lab.confidence,
    }
}

/// Rejects the drafter `human`, which needs a screen.
pub(crate) fn nobody_to_ask(args: &ModelArgs) -> Result<()> {
    if args.drafter == DrafterKind::Human.name() {
        bail!(
            "the drafter human needs the terminal view, where drafts are typed; run `draftscope chat --drafter human`"
        );
    }
    Ok(())
}

/// The requested prompt, in the form that the engine takes.
pub(crate) fn prompt(args: &PromptArgs, decode: &DecodeArgs) -> Result<Prompt> {
    let text = prompt_text(args)?;
    report_idle_system(&decode.sample);
    Ok(if decode.sample.raw { Prompt::Raw(text) } else { Prompt::Chat(conversation(&decode.sample, text)) })
}

fn prompt_text(args: &PromptArgs) -> Result<String> {
    let given = args.prompt.as_ref().or(args.text.as_ref().filter(|text| *text != "-"));
    if let Some(text) = given {
        if text.trim().is_empty() {
            bail!("the prompt is empty; give some text with --prompt");
        }
        return Ok(text.clone());
    }
    let (text, source) = match args.prompt_file.as_ref().filter(|path| path.as_os_str() != "-") {
        Some(path) => {
            let (source, file) = (path.display().to_string(), file_access::open(path));
            (read_text(file.with_context(|| format!("cannot open {source}"))?, &source)?, source)
        }
        None => (read_text(std::io::stdin(), STDIN)?, STDIN.to_owned()),
    };
    if text.trim().is_empty() { Err(no_prompt(source)) } else { Ok(text) }
}

/// Warns that instructions need the chat template.
pub(crate) fn report_idle_system(sample: &SampleArgs) {
    if sample.raw && sample.system.is_some() {
        super::output::say("--system does nothing here: --raw sends the prompt without the model's chat template");
    }
}

pub(crate) fn conversation(sample: &SampleArgs, text: String) -> Vec<Message> {
    let system = sample.system.iter().map(|content| Message { role: Speaker::System, content: content.clone() });
    system.chain([Message { role: Speaker::User, content: text }]).collect()
}
