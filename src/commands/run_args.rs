//! From arguments to what the engine gets: the settings of a run, and its prompt.
//!
//! Invariant: returned settings are valid in themselves; the engine checks them against the model.

use std::io::Read;

use anyhow::{Context, Result, bail};
use draftscope::cli::{DecodeArgs, DraftLenArg, LabArgs, ModelArgs, PromptArgs};
use draftscope::protocol::{
    Baseline, DraftLenMode, DrafterKind, Drafting, Leniency, Message, Prompt, Sampling, Settings, Speaker,
};

/// Largest prompt that is read from a file, in bytes: far more than any context holds.
const MAX_PROMPT_BYTES: u64 = 16 << 20;

pub(crate) fn settings(model: &ModelArgs, decode: &DecodeArgs, baseline: Baseline) -> Result<Settings> {
    let (draft_len, draft_len_mode) = match decode.k {
        DraftLenArg::Fixed(k) => (k, DraftLenMode::Fixed),
        DraftLenArg::Auto => (Settings::default().draft_len, DraftLenMode::Auto),
    };
    let settings = Settings {
        draft_len,
        draft_len_mode,
        probe_depth: 0,
        drafter: model.drafter.parse()?,
        drafting: drafting(&decode.lab)?,
        rule: decode.verify.parse()?,
        leniency: leniency(&decode.lab),
        sampling: Sampling {
            temperature: decode.temperature,
            top_k: decode.top_k,
            top_p: decode.top_p,
            min_p: decode.min_p,
            seed: decode.seed,
        },
        max_tokens: decode.max_tokens,
        baseline,
        rival: None,
    };
    settings.validate()?;
    Ok(settings)
}

/// Longest answer to a prompt of a suite, in tokens.
pub(crate) const ANSWER_TOKENS: u32 = 128;

/// Warns that answers to a suite are shorter than requested.
pub(crate) fn report_short_answers(decode: &DecodeArgs) {
    let asked = decode.max_tokens;
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
    let text = match (args.prompt.as_ref().or(args.text.as_ref().filter(|text| *text != "-")), &args.prompt_file) {
        (Some(text), _) => text.clone(),
        (None, Some(path)) if path.as_os_str() != "-" => {
            let file = std::fs::File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
            read_text(file).with_context(|| format!("cannot read the prompt from {}", path.display()))?
        }
        _ => read_text(std::io::stdin()).context("cannot read the prompt from standard input")?,
    };
    if text.trim().is_empty() {
        bail!("the prompt is empty; give some text with --prompt");
    }
    if decode.raw && decode.system.is_some() {
        super::output::say("--system does nothing here: --raw sends the prompt without the model's chat template");
    }
    Ok(if decode.raw { Prompt::Raw(text) } else { Prompt::Chat(conversation(decode, text)) })
}

pub(crate) fn conversation(decode: &DecodeArgs, text: String) -> Vec<Message> {
    let system = decode.system.iter().map(|content| Message { role: Speaker::System, content: content.clone() });
    system.chain([Message { role: Speaker::User, content: text }]).collect()
}

fn read_text(reader: impl Read) -> Result<String> {
    let mut bytes = Vec::new();
    reader.take(MAX_PROMPT_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_PROMPT_BYTES {
        bail!("it is larger than {} MiB", MAX_PROMPT_BYTES >> 20);
    }
    String::from_utf8(bytes).context("it is not UTF-8 text")
}
