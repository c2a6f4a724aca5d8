//! The engine's thread: loads the models, then answers prompts until a command ends the run.
//!
//! Invariant: a panic on this thread becomes a `failed` event like any other failure.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use tokio::sync::mpsc::UnboundedSender;

use crate::grammar::{Constraint, Vocabulary};
use crate::speculate::SpecError;
use crate::speculate::decoder::Decoder;
use crate::speculate::drafter::{
    BlockDrafter, Drafter, DrafterSet, ModelDrafter, MtpDrafter, StringsDrafter, WEIGHTLESS,
};
use draftscope_host::fatal::OutOfMemory;
use draftscope_model::load::{DraftForm, Loaded, load};
use draftscope_model::text::prompt as chat;
use draftscope_model::text::template::ChatTemplate;
use draftscope_model::text::tokenizer::TextCodec;
use draftscope_model::{ModelError, ModelSpec};
use draftscope_protocol::{
    Capabilities, Command, DraftLenMode, DrafterInfo, DrafterKind, Event, EventKind, Grammar, Header, Lane, Prompt,
    TRACE_VERSION, TokenId,
};

use super::auto::Auto;
use super::config::EngineConfig;
use super::control::{Control, Job};
use super::cost_memory::CostMemory;
use super::outbox::Outbox;
use super::turn::{Task, Turn, refuse};

/// Runs the engine to its end.
pub(super) fn run(
    config: &EngineConfig,
    memory: Arc<dyn CostMemory>,
    inbox: Receiver<Command>,
    sender: UnboundedSender<Event>,
) {
    let mut control = Control::new(inbox, config.settings);
    guarded(Outbox::new(sender), |outbox| serve(config, memory, &mut control, outbox));
}

/// Does the work; an error or a panic becomes an event, so that nobody waits for the rest.
fn guarded(mut outbox: Outbox, work: impl FnOnce(&mut Outbox) -> Result<(), SpecError>) {
    let message = match catch_unwind(AssertUnwindSafe(|| work(&mut outbox))) {
        Ok(Ok(())) => return,
        Ok(Err(error)) => error.to_string(),
        Err(panic) => match OutOfMemory::of(&*panic) {
            Some(refused) => refused.to_string(),
            None => format!("the engine stopped on an internal error ({}); please report it", panic_text(&*panic)),
        },
    };
    outbox.send(Lane::Speculative, EventKind::Failed { message });
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("no message").lines().next().unwrap_or_default().to_owned()
}

fn serve(
    config: &EngineConfig,
    memory: Arc<dyn CostMemory>,
    control: &mut Control,
    outbox: &mut Outbox,
) -> Result<(), SpecError> {
    let loaded = load(&config.recipe, &mut |stage, done, total| {
        outbox.send(Lane::Speculative, EventKind::Loading { stage: stage.to_owned(), done, total });
    })?;
    let (drafters, Loaded { target, codec, template, backend_notice, warnings, memory: account, .. }) =
        drafters(loaded);
    outbox.set_codec(Arc::clone(&codec));
    let constraint = constraint(config, &codec)?;
    let mut header = header(target.spec(), &drafters, config, outbox.started_unix_ms());
    header.memory = Some(account);
    header.gpu = target.gpu_info();
    if let Some(gpu) = &mut header.gpu {
        // a device with too little memory left to measure it still runs the model
        gpu.read_bytes_per_second = target.device_read_rate().ok().flatten().map_or(0, |rate| rate as u64);
    }
    let mut decoder = Decoder::new(target, Box::new(drafters.drafter_set), &config.settings);
    decoder.constrain(constraint);
    let mut auto = Auto::new(memory, &header);
    if config.settings.draft_len_mode == DraftLenMode::Auto {
        outbox.send(Lane::Speculative, EventKind::Loading { stage: "timing passes".to_owned(), done: 0, total: 1 });
        auto.prepare(&mut decoder, config.settings.draft_len);
    }
    outbox.send(Lane::Speculative, EventKind::Started { header: Box::new(header) });
    auto.report(outbox);
    for message in backend_notice.into_iter().chain(warnings).chain(decoder.take_notices()) {
        outbox.send(Lane::Speculative, EventKind::Notice { message });
    }
    let mut number = 0;
    while let Some(job) = control.next_job(outbox) {
        let prompt = match job {
            Job::Answer(prompt) => prompt,
            Job::FinishPlain(plain) => {
                let mut turn = Turn { number: plain.turn, codec: &codec, auto: &mut auto, control, outbox };
                turn.finish_plain(&decoder, &plain)?;
                continue;
            }
        };
        number += 1;
        let (text, branch) = (prompt.typed().to_owned(), prompt.branch());
        outbox.send(Lane::Speculative, EventKind::Prompted { turn: number, text, branch });
        let tokens = tokens_of(&prompt, &codec, template.as_ref(), &decoder);
        match tokens.and_then(|tokens| task(&prompt, tokens, &codec, &decoder)) {
            Ok(task) => Turn { number, codec: &codec, auto: &mut auto, control, outbox }.run(&mut decoder, &task)?,
            Err(error) => refuse(outbox, &error),
        }
    }
    Ok(())
}

/// The grammar of a run for the tokens of its target.
fn constraint(config: &EngineConfig, codec: &Arc<TextCodec>) -> Result<Option<Constraint>, SpecError> {
    let Some(grammar) = &config.grammar else {
        return Ok(None);
    };
    let vocabulary = Vocabulary::new(Arc::clone(codec))?;
    Ok(Some(Constraint::new(&vocabulary, grammar)?))
}

/// All drafters of a run, and their descriptions for the header.
pub(super) struct Drafters {
    pub(super) drafter_set: DrafterSet,
    infos: Vec<DrafterInfo>,
}

impl Drafters {
    /// Description of a drafter. Of two drafters the last one has the weights; if it is missing, the first one drafts alone.
    fn info(&self, kind: DrafterKind) -> Option<DrafterInfo> {
        let kind = self.drafter_set.usable(kind);
        let own = self.infos.iter().find(|info| Some(&info.kind) == kind.chain().last());
        own.map(|info| DrafterInfo { kind, ..info.clone() })
    }
}

/// Moves the drafters out of the loaded models.
pub(super) fn drafters(mut loaded: Loaded) -> (Drafters, Loaded) {
    let vocab = loaded.target.spec().info.vocab;
    let mut infos: Vec<_> = WEIGHTLESS.iter().map(|(kind, _)| DrafterInfo::weightless(*kind, vocab)).collect();
    let mut drafter_set = DrafterSet::default();
    match loaded.mtp.take() {
        Some((first, info)) => {
            let modules = std::iter::once(first).chain(std::mem::take(&mut loaded.deeper)).collect();
            drafter_set.add(DrafterKind::Mtp, Box::new(MtpDrafter::stack(modules)));
            infos.insert(0, info);
        }
        None if loaded.block.is_some() => {
            if let Some((block, info)) = loaded.block.take() {
                drafter_set.add(DrafterKind::Mtp, Box::new(BlockDrafter::new(block)));
                infos.insert(0, info);
            }
        }
        None => drafter_set.set_missing(DrafterKind::Mtp, loaded.notice.take().unwrap_or_else(|| NO_MTP.to_owned())),
    }
    match loaded.draft_model.take() {
        Some(Ok((model, info))) => {
            let drafter: Box<dyn Drafter> = match std::mem::take(&mut loaded.draft_form) {
                DraftForm::Masks(mask) => Box::new(ModelDrafter::in_one_pass(model, mask)),
                DraftForm::OneByOne => Box::new(ModelDrafter::new(model)),
                DraftForm::Strings(strings) => Box::new(StringsDrafter::new(model, strings)),
            };
            drafter_set.add(DrafterKind::DraftModel, drafter);
            infos.push(info);
        }
        Some(Err(reason)) => drafter_set.set_missing(DrafterKind::DraftModel, reason),
        None => drafter_set.set_missing(DrafterKind::DraftModel, NO_DRAFT_MODEL.to_owned()),
    }
    (Drafters { drafter_set, infos }, loaded)
}

const NO_MTP: &str = "no MTP module is loaded; start again without --drafter none";
const NO_DRAFT_MODEL: &str = "no draft model is loaded; start again with --draft-model FILE";

fn tokens_of(
    prompt: &Prompt,
    codec: &TextCodec,
    template: Option<&ChatTemplate>,
    decoder: &Decoder,
) -> Result<Vec<TokenId>, SpecError> {
    if prompt.typed().trim().is_empty() && prompt.branch().is_none() {
        return Err(SpecError::EmptyPrompt);
    }
    let ctx_len = decoder.target().spec().ctx_len;
    let tokens = match (prompt, template) {
        (Prompt::Raw(text), _) => {
            codec.check_length(text, ctx_len)?;
            codec.encode_raw(text)?
        }
        (Prompt::Branch(from), _) => check_tokens(&from.tokens, decoder.target().spec().info.vocab)?,
        (Prompt::Chat(messages), template) => chat::tokens_of(codec, template, messages, ctx_len)?,
    };
    if tokens.is_empty() {
        return Err(SpecError::EmptyPrompt); // a template may drop the whole text
    }
    if tokens.len() >= ctx_len {
        // the first token of the answer needs one more position
        return Err(ModelError::ContextFull { needed: tokens.len() + 1, ctx_len }.into());
    }
    Ok(tokens)
}

/// The task of a prompt. If a round is repeated, the last token is its anchor and no part of the prompt.
fn task(prompt: &Prompt, mut tokens: Vec<TokenId>, codec: &TextCodec, decoder: &Decoder) -> Result<Task, SpecError> {
    let kept = prompt.branch().map_or(0, |branch| branch.kept as usize);
    let again = match prompt {
        Prompt::Branch(from) => from.again.as_ref().filter(|_| tokens.len() > 1),
        Prompt::Raw(_) | Prompt::Chat(_) => None,
    };
    let Some(again) = again else {
        return Ok(Task { prompt: tokens, kept, anchor: None, drafts: None });
    };
    let mut drafts = check_tokens(&again.drafts, decoder.target().spec().info.vocab)?;
    if !again.text.is_empty() {
        drafts.extend(codec.encode(&again.text)?);
    }
    let anchor = tokens.pop();
    let kept = kept.saturating_sub(1);
    Ok(Task { prompt: tokens, kept, anchor, drafts: Some(drafts).filter(|drafts| !drafts.is_empty()) })
}

/// Checks that the target's vocabulary contains all tokens of a continuation, since these come from outside.
pub(super) fn check_tokens(tokens: &[TokenId], vocab: u32) -> Result<Vec<TokenId>, SpecError> {
    match tokens.iter().find(|token| token.0 >= vocab) {
        Some(token) => Err(SpecError::UnknownToken { token: *token, vocab }),
        None => Ok(tokens.to_vec()),
    }
}

fn header(spec: &ModelSpec, drafters: &Drafters, config: &EngineConfig, started_unix_ms: u64) -> Header {
    Header {
        version: TRACE_VERSION,
        program: concat!("draftscope ", env!("CARGO_PKG_VERSION")).to_owned(),
        model: spec.info.clone(),
        drafter: drafters.info(config.settings.drafter),
        drafters: drafters.infos.clone(),
        lossless: Some(config.settings.rule.is_lossless()),
        settings: config.settings,
        grammar: config.grammar.as_ref().map(Grammar::shortened),
        ctx_len: spec.ctx_len as u32,
        memory: None,
        device: spec.device.clone(),
        backend: spec.backend.to_owned(),
        dtype: spec.dtype.clone(),
        threads: spec.threads as u32,
        gpu: None,
        started_unix_ms,
        capabilities: Capabilities { can_generate: true, ..Capabilities::default() },
        engine: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_the_thread_becomes_an_event() {
        let (sender, mut events) = tokio::sync::mpsc::unbounded_channel();
        guarded(Outbox::new(sender), |_| panic!("a fault\nmore"));
        let message = "the engine stopped on an internal error (a fault); please report it".to_owned();
        assert_eq!(events.try_recv().unwrap().kind, EventKind::Failed { message });
    }
}
