//! llama-server: recognised by `/props`; prompts go to `/completion` as token ids.

pub mod chunk;
pub mod rounds;

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::http::{Client, HttpError};
use crate::protocol::{
    Ability, Baseline, Capabilities, DrafterInfo, DrafterKind, EngineInfo, Header, Message, ModelInfo, Piece, Prompt,
    Settings, TRACE_VERSION, TokenId,
};

/// The path that streams an answer.
pub(super) const COMPLETION: &str = "/completion";

/// Most tokens whose texts are remembered: more than any vocabulary has.
const MAX_NAMES: usize = 1 << 20;

/// What can be asked of it.
const ABILITIES: &[Ability] = &[Ability::SetSampling, Ability::Branch];

/// A llama-server, and what was learned from it.
pub(super) struct Llama {
    client: Client,
    props: Value,
    /// Texts of the tokens of prompts.
    pub(super) names: HashMap<TokenId, Piece>,
}

impl Llama {
    /// Asks whether a llama-server answers there.
    ///
    /// # Errors
    /// When nothing answers, or something else does.
    pub(super) fn connect(client: &Client) -> Result<Self, HttpError> {
        let props = client.get_json("/props")?;
        if props.get("default_generation_settings").is_none() {
            return Err(HttpError::NotJson { host: client.host().to_owned(), path: "/props".to_owned() });
        }
        Ok(Self { client: client.clone(), props, names: HashMap::new() })
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// The header of a run, and sentences about what is not known. The drafter is that of the last request on any slot.
    pub(super) fn header(&self, settings: Settings, started_unix_ms: u64) -> (Header, Vec<String>) {
        let slots = self.client.get_json("/slots").unwrap_or_default();
        let models = self.client.get_json("/v1/models").unwrap_or_default();
        let meta = models.pointer("/data/0/meta").cloned().unwrap_or_default();
        let model = self.model(&meta);
        let speculates = slots.pointer("/0/speculative").and_then(Value::as_bool);
        let named = slots.pointer("/0/params/speculative.types").and_then(Value::as_str).map(str::to_owned);
        // a server names its drafter with its first request; until then there is no cache that one could disturb
        let types = named.or_else(|| (speculates == Some(true)).then(|| self.ask_drafter()).flatten());
        let kind = if speculates == Some(false) { DrafterKind::None } else { kind(types.as_deref().unwrap_or("none")) };
        let mut notices = Vec::new();
        if speculates.is_none() {
            notices.push(
                "the server does not show its slots (--no-slots), so whether it drafts is seen in answers".to_owned(),
            );
        }
        let drafter = (kind != DrafterKind::None).then(|| DrafterInfo {
            name: types.unwrap_or_default().chars().take(80).collect(),
            dtype: "not reported".to_owned(),
            ..DrafterInfo::weightless(kind, model.vocab)
        });
        let context = self.props.pointer("/default_generation_settings/n_ctx").and_then(Value::as_u64);
        let header = Header {
            version: TRACE_VERSION,
            program: concat!("draftscope ", env!("CARGO_PKG_VERSION")).to_owned(),
            drafters: drafter.iter().cloned().collect(),
            drafter,
            lossless: true,
            settings: Settings { drafter: kind, baseline: Baseline::Off, rival: None, ..settings },
            ctx_len: context.map_or(model.context_length, small),
            device: self.client.host().to_owned(),
            backend: "llama.cpp".to_owned(),
            dtype: self.text("model_ftype").to_lowercase(),
            threads: 0,
            started_unix_ms,
            capabilities: Capabilities { can_generate: true, ..Capabilities::default() },
            engine: Some(EngineInfo {
                name: "llama-server".to_owned(),
                version: self.text("build_info"),
                abilities: ABILITIES.to_vec(),
            }),
            model,
        };
        (header, notices)
    }

    /// The drafter, from a request for one token.
    fn ask_drafter(&self) -> Option<String> {
        let answer = self.client.post_json(COMPLETION, &json!({ "prompt": " ", "n_predict": 1 })).ok()?;
        Some(answer.pointer("/generation_settings/speculative.types")?.as_str()?.to_owned())
    }

    fn model(&self, meta: &Value) -> ModelInfo {
        let path = self.text("model_path");
        let file = path.rsplit(['/', '\\']).next().unwrap_or_default().to_owned();
        let number = |name: &str| meta.get(name).and_then(Value::as_u64).unwrap_or(0);
        ModelInfo {
            name: file.trim_end_matches(".gguf").to_owned(),
            architecture: String::new(),
            d_model: small(number("n_embd")),
            vocab: small(number("n_vocab")),
            context_length: small(number("n_ctx_train")),
            weight_bytes: number("size"),
            file,
            ..ModelInfo::default()
        }
    }

    fn text(&self, name: &str) -> String {
        self.props.get(name).and_then(Value::as_str).unwrap_or_default().chars().take(300).collect()
    }

    /// The tokens of a prompt: the server renders the chat template and encodes.
    ///
    /// # Errors
    /// A sentence that says why the prompt cannot be sent.
    pub(super) fn tokens(&mut self, prompt: &Prompt) -> Result<Vec<Piece>, String> {
        let (text, is_raw) = match prompt {
            Prompt::Raw(text) => (text.clone(), true),
            Prompt::Chat(messages) => (self.render(messages).map_err(|error| error.to_string())?, false),
            Prompt::Branch(from) if from.again.is_some() => {
                return Err("llama-server cannot run a round again".to_owned());
            }
            Prompt::Branch(from) => return self.known(&from.tokens),
        };
        let body = json!({ "content": text, "add_special": is_raw, "parse_special": !is_raw, "with_pieces": true });
        let answer = self.client.post_json("/tokenize", &body).map_err(|error| error.to_string())?;
        let list = answer.get("tokens").and_then(Value::as_array).cloned().unwrap_or_default();
        let pieces: Option<Vec<Piece>> = list.iter().map(piece).collect();
        let pieces = pieces.ok_or("llama-server's /tokenize sends no ids and pieces; a newer server is needed")?;
        for piece in pieces.iter().filter(|piece| !piece.bytes.is_empty()) {
            if self.names.len() < MAX_NAMES {
                self.names.insert(piece.id, piece.clone());
            }
        }
        Ok(pieces)
    }

    fn render(&self, messages: &[Message]) -> Result<String, HttpError> {
        let answer = self.client.post_json("/apply-template", &json!({ "messages": messages }))?;
        let path = "/apply-template".to_owned();
        let no_text = HttpError::NotJson { host: self.client.host().to_owned(), path };
        answer.get("prompt").and_then(Value::as_str).map(str::to_owned).ok_or(no_text)
    }

    fn known(&self, tokens: &[TokenId]) -> Result<Vec<Piece>, String> {
        let piece = |id: &TokenId| match self.names.get(id) {
            _ if id.is_unknown() => None,
            Some(piece) => Some(piece.clone()),
            None => Some(Piece::new(*id, "")),
        };
        let pieces: Option<Vec<_>> = tokens.iter().map(piece).collect();
        pieces.ok_or_else(|| "llama-server did not report the id of a token before this place".to_owned())
    }

    /// Remembers the texts of committed tokens, so that a branch can show them.
    pub(super) fn remember(&mut self, tokens: &[Piece]) {
        for piece in tokens.iter().filter(|piece| !piece.id.is_unknown()) {
            if self.names.len() < MAX_NAMES {
                self.names.entry(piece.id).or_insert_with(|| piece.clone());
            }
        }
    }
}

/// The body of a request that streams an answer with its counts.
pub(super) fn request(prompt: &[Piece], settings: &Settings) -> Value {
    let sampling = &settings.sampling;
    json!({
        "prompt": prompt.iter().map(|piece| piece.id.0).collect::<Vec<_>>(),
        "n_predict": settings.max_tokens,
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "seed": sampling.seed & u64::from(u32::MAX),
        "stream": true,
        "return_tokens": true,
        "timings_per_token": true,
        "cache_prompt": true,
    })
}

/// A token of `/tokenize`, whose piece is text or a list of bytes.
fn piece(token: &Value) -> Option<Piece> {
    let id = TokenId(u32::try_from(token.get("id")?.as_u64()?).ok()?);
    match token.get("piece")? {
        Value::String(text) => Some(Piece::new(id, text.as_str())),
        Value::Array(bytes) => {
            let bytes: Option<Vec<u8>> = bytes.iter().map(|byte| u8::try_from(byte.as_u64()?).ok()).collect();
            Some(Piece::new(id, bytes?))
        }
        _ => None,
    }
}

/// The drafter of ours that is most like theirs.
pub(super) fn kind(types: &str) -> DrafterKind {
    let has = |name: &str| types.split(',').any(|one| one.trim().starts_with(name));
    match types {
        "" | "none" => DrafterKind::None,
        _ if has("draft-mtp") || has("draft-eagle") || has("draft-d") => DrafterKind::Mtp,
        _ if has("ngram") => DrafterKind::Ngram,
        _ => DrafterKind::DraftModel,
    }
}

fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
