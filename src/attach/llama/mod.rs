//! llama-server: recognised by `/props`; prompts go to `/completion` as token ids.

pub mod chunk;
pub mod rounds;

use serde_json::{Value, json};

use crate::http::{Client, HttpError};
use crate::protocol::{
    Ability, Candidate, Capabilities, DrafterInfo, DrafterKind, EngineInfo, Header, Message, ModelInfo, Piece,
    Prediction, Prompt, Settings, TRACE_VERSION, TokenId,
};

use super::metrics;
use super::names::Names;
use super::server::{Reader, Request, Server};
use rounds::Rounds;

/// The path that streams an answer.
const COMPLETION: &str = "/completion";

/// What can be asked of it.
const ABILITIES: &[Ability] = &[Ability::SetSampling, Ability::Branch, Ability::AskRows];

/// Candidates of a prediction that is asked afterwards.
const TOP: usize = 20;

/// A llama-server, and what was learned from it.
pub(super) struct Llama {
    client: Client,
    props: Value,
    names: Names,
}

impl Server for Llama {
    fn name(&self) -> &'static str {
        "llama-server"
    }

    fn client(&self) -> &Client {
        &self.client
    }

    /// The drafter is that of the last request on any slot.
    fn header(&mut self, settings: Settings, started_unix_ms: u64) -> (Header, Vec<String>) {
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
        let counters = self.client.get("/metrics").map(|text| metrics::parse(&text)).unwrap_or_default();
        notices.extend(counters.sentence());
        let drafter = (kind != DrafterKind::None).then(|| DrafterInfo {
            name: drafters(&types.unwrap_or_default()),
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
            settings: Settings { drafter: kind, rival: None, ..settings },
            ctx_len: context.map_or(model.context_length, small),
            memory: None,
            device: self.client.host().to_owned(),
            backend: "llama.cpp".to_owned(),
            dtype: self.text("model_ftype").to_lowercase(),
            threads: 0,
            gpu: None,
            started_unix_ms,
            capabilities: Capabilities { can_generate: true, ..Capabilities::default() },
            engine: Some(EngineInfo {
                name: "llama-server".to_owned(),
                version: self.text("build_info"),
                abilities: ABILITIES.to_vec(),
                counted: counters.totals(),
                ..EngineInfo::default()
            }),
            model,
        };
        (header, notices)
    }

    fn request(&mut self, prompt: &Prompt, settings: &Settings) -> Result<Request, String> {
        let prompt = self.tokens(prompt)?;
        Ok(Request { path: COMPLETION, body: request(&prompt, settings), prompt })
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::new(Rounds::default())
    }

    fn names(&mut self) -> &mut Names {
        &mut self.names
    }

    /// One request for one token, which is never speculative; the cache has what comes before.
    fn row_after(&mut self, tokens: &[TokenId]) -> Result<Prediction, String> {
        let prompt: Vec<u32> = tokens.iter().map(|id| id.0).collect();
        let body = json!({
            "prompt": prompt, "n_predict": 1, "n_probs": TOP, "cache_prompt": true, "temperature": 0,
        });
        let answer = self.client.post_json(COMPLETION, &body).map_err(|error| error.to_string())?;
        prediction(&answer).ok_or_else(|| "llama-server reports no probabilities (n_probs)".to_owned())
    }
}

impl Llama {
    /// A llama-server that answered `/props` with this.
    pub(super) fn new(client: &Client, props: Value) -> Self {
        Self { client: client.clone(), props, names: Names::default() }
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
    fn tokens(&mut self, prompt: &Prompt) -> Result<Vec<Piece>, String> {
        let (text, is_raw) = match prompt {
            Prompt::Raw(text) => (text.clone(), true),
            Prompt::Chat(messages) => (self.render(messages).map_err(|error| error.to_string())?, false),
            Prompt::Branch(from) if from.again.is_some() => {
                return Err("llama-server cannot run a round again".to_owned());
            }
            Prompt::Branch(from) => return self.names.all(&from.tokens, "llama-server"),
        };
        let body = json!({ "content": text, "add_special": is_raw, "parse_special": !is_raw, "with_pieces": true });
        let answer = self.client.post_json("/tokenize", &body).map_err(|error| error.to_string())?;
        let list = answer.get("tokens").and_then(Value::as_array).cloned().unwrap_or_default();
        let pieces: Option<Vec<Piece>> = list.iter().map(piece).collect();
        let pieces = pieces.ok_or("llama-server's /tokenize sends no ids and pieces; a newer server is needed")?;
        pieces.iter().for_each(|piece| self.names.learn(piece));
        Ok(pieces)
    }

    fn render(&self, messages: &[Message]) -> Result<String, HttpError> {
        let answer = self.client.post_json("/apply-template", &json!({ "messages": messages }))?;
        let path = "/apply-template".to_owned();
        let no_text = HttpError::NotJson { host: self.client.host().to_owned(), path };
        answer.get("prompt").and_then(Value::as_str).map(str::to_owned).ok_or(no_text)
    }
}

/// The body of a request that streams an answer with its counts.
fn request(prompt: &[Piece], settings: &Settings) -> Value {
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

/// The prediction in the answer to a request for one token with `n_probs`.
fn prediction(answer: &Value) -> Option<Prediction> {
    let list = answer.pointer("/completion_probabilities/0/top_logprobs")?.as_array()?;
    let mut top: Vec<Candidate> = list.iter().take(TOP).filter_map(candidate).collect();
    top.sort_by(|a, b| b.prob.total_cmp(&a.prob));
    let listed: f32 = top.iter().map(|candidate| candidate.prob).sum();
    (!top.is_empty()).then(|| Prediction { tail: (1.0 - listed).max(0.0), top })
}

fn candidate(entry: &Value) -> Option<Candidate> {
    let id = u32::try_from(entry.get("id")?.as_u64()?).ok()?;
    let bytes: Option<Vec<u8>> = entry
        .get("bytes")
        .and_then(Value::as_array)
        .and_then(|bytes| bytes.iter().map(|byte| u8::try_from(byte.as_u64()?).ok()).collect());
    let text = entry.get("token").and_then(Value::as_str).unwrap_or_default();
    let prob = (entry.get("logprob")?.as_f64()?.min(0.0).exp()) as f32;
    let piece = Piece::new(TokenId(id), bytes.unwrap_or_else(|| text.as_bytes().to_vec()));
    prob.is_finite().then_some(Candidate { piece, prob })
}

/// The drafters that a server names, without the `none` that some builds list beside them.
fn drafters(types: &str) -> String {
    let named: Vec<_> = types.split(',').map(str::trim).filter(|one| !matches!(*one, "" | "none")).collect();
    named.join(", ").chars().take(80).collect()
}

/// The drafter of ours that is most like theirs.
fn kind(types: &str) -> DrafterKind {
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
