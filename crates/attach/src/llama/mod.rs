//! llama-server: recognised by `/props`; prompts go to `/completion` as token ids.

pub mod chunk;
pub mod rounds;

use serde_json::{Value, json};

use draftscope_http::{Client, HttpError};
use draftscope_protocol::{
    Ability, Candidate, Capabilities, DrafterInfo, DrafterKind, EngineInfo, Header, Message, ModelInfo, Piece,
    Prediction, Prompt, Sampling, Settings, TRACE_VERSION, TokenId,
};

use super::address;
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

/// Marks of thought, which may be control tokens whose text no answer repeats.
const MARKS: &str = "<think></think><|channel>thought<channel|>[THINK][/THINK]";

/// A llama-server, and what was learned from it.
pub(super) struct Llama {
    client: Client,
    props: Value,
    /// The model of a router, which every request names.
    model: Option<String>,
    /// Whether the server's own sampling counts.
    leaves_sampling: bool,
    /// Sentences of the time of connecting.
    notices: Vec<String>,
    names: Names,
    knows_marks: bool,
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
        let slots = self.client.get_json(&self.path("/slots")).unwrap_or_default();
        let meta = self.meta();
        let model = self.model(&meta);
        let speculates = slots.pointer("/0/speculative").and_then(Value::as_bool);
        let named = slots.pointer("/0/params/speculative.types").and_then(Value::as_str).map(str::to_owned);
        // a server names its drafter with its first request; until then there is no cache that one could disturb
        let types = named.or_else(|| (speculates == Some(true)).then(|| self.ask_drafter()).flatten());
        let kind = if speculates == Some(false) { DrafterKind::None } else { kind(types.as_deref().unwrap_or("none")) };
        let mut notices = std::mem::take(&mut self.notices);
        if self.leaves_sampling {
            notices.push("sampling is the server's own, as its /props shows it".to_owned());
        }
        if speculates.is_none() {
            notices.push(
                "the server does not show its slots (--no-slots), so whether it drafts is seen in answers".to_owned(),
            );
        }
        let counters = self.client.get(&self.path("/metrics")).map(|text| metrics::parse(&text)).unwrap_or_default();
        notices.extend(counters.sentence());
        let drafter = (kind != DrafterKind::None).then(|| DrafterInfo {
            name: drafters(&types.unwrap_or_default()),
            dtype: "not reported".to_owned(),
            ..DrafterInfo::weightless(kind, model.vocab)
        });
        if let Some(drafter) = drafter.as_ref().filter(|drafter| drafter.may_remember()) {
            notices.push(format!(
                "its drafter ({}) may draft from earlier answers to anybody: a prompt that is asked again drafts better than a \
                 new one",
                drafter.name
            ));
        }
        let context = self.props.pointer("/default_generation_settings/n_ctx").and_then(Value::as_u64);
        let header = Header {
            version: TRACE_VERSION,
            program: concat!("draftscope ", env!("CARGO_PKG_VERSION")).to_owned(),
            drafters: drafter.iter().cloned().collect(),
            drafter,
            lossless: None,
            settings: Settings { drafter: kind, rival: None, sampling: self.sampling(&settings), ..settings },
            ctx_len: context.map_or(model.context_length, small),
            grammar: None,
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
        let body = self.body(request(&prompt, settings, self.leaves_sampling));
        Ok(Request { path: COMPLETION.to_owned(), body, prompt })
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::new(Rounds::default())
    }

    fn names(&mut self) -> &mut Names {
        &mut self.names
    }

    fn send_sampling(&mut self) {
        self.leaves_sampling = false;
    }

    /// One request for one token, which is never speculative; the cache has what comes before.
    fn row_after(&mut self, tokens: &[TokenId]) -> Result<Prediction, String> {
        let prompt: Vec<u32> = tokens.iter().map(|id| id.0).collect();
        let body = json!({
            "prompt": prompt, "n_predict": 1, "n_probs": TOP, "cache_prompt": true, "temperature": 0,
        });
        let answer = self.client.post_json(COMPLETION, &self.body(body)).map_err(|error| error.to_string())?;
        prediction(&answer).ok_or_else(|| "llama-server reports no probabilities (n_probs)".to_owned())
    }
}

impl Llama {
    /// A llama-server that answered `/props` with this, as the router to this model if one is named.
    pub(super) fn new(client: &Client, props: Value, model: Option<String>, leaves_sampling: bool) -> Self {
        let (notices, names) = (Vec::new(), Names::default());
        Self { client: client.clone(), props, model, leaves_sampling, notices, names, knows_marks: false }
    }

    /// The same server, which has these sentences for the user.
    pub(super) fn with_notices(self, notices: Vec<String>) -> Self {
        Self { notices, ..self }
    }

    /// A path of a question, with the model where a router needs it.
    fn path(&self, path: &str) -> String {
        self.model.as_ref().map_or_else(|| path.to_owned(), |model| address::with_model(path, model))
    }

    /// The body of a request, with the model where a router needs it.
    fn body(&self, mut body: Value) -> Value {
        if let Some(model) = &self.model {
            body["model"] = json!(model);
        }
        body
    }

    /// What the server lists about the model.
    fn meta(&self) -> Value {
        let models = self.client.get_json("/v1/models").unwrap_or_default();
        let entries = models.get("data").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let is_own = |entry: &&Value| self.model.as_deref().is_none_or(|model| entry["id"] == json!(model));
        entries.iter().find(is_own).and_then(|entry| entry.get("meta")).cloned().unwrap_or_default()
    }

    /// The sampling that counts: the server's own if it is left to it.
    fn sampling(&self, settings: &Settings) -> Sampling {
        let sent = settings.sampling;
        if !self.leaves_sampling {
            return sent;
        }
        let own = |name: &str| self.props.pointer(&format!("/default_generation_settings/params/{name}"));
        let number = |name: &str| own(name).and_then(Value::as_f64).map(|number| number as f32);
        let own = Sampling {
            temperature: number("temperature").unwrap_or(sent.temperature),
            top_k: own("top_k").and_then(Value::as_u64).map_or(sent.top_k, small),
            top_p: number("top_p").unwrap_or(sent.top_p),
            min_p: number("min_p").unwrap_or(sent.min_p),
            seed: own("seed").and_then(Value::as_u64).unwrap_or(sent.seed),
        };
        let is_valid = Settings { sampling: own, ..*settings }.validate().is_ok();
        if is_valid { own } else { sent }
    }

    /// The drafter, from a request for one token.
    fn ask_drafter(&self) -> Option<String> {
        let body = self.body(json!({ "prompt": " ", "n_predict": 1 }));
        let answer = self.client.post_json(COMPLETION, &body).ok()?;
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
    /// As in its own chat, it puts the begin token first where the model wants one: `/apply-template` leaves it out then.
    fn tokens(&mut self, prompt: &Prompt) -> Result<Vec<Piece>, String> {
        let (text, is_raw) = match prompt {
            Prompt::Raw(text) => (text.clone(), true),
            Prompt::Chat(messages) => (self.render(messages).map_err(|error| self.in_words(&error))?, false),
            Prompt::Branch(from) if from.again.is_some() => {
                return Err("llama-server cannot run a round again".to_owned());
            }
            Prompt::Branch(from) => return self.names.all(&from.tokens, "llama-server"),
        };
        if !is_raw && !std::mem::replace(&mut self.knows_marks, true) {
            let marks = self.tokenize(MARKS, (false, true)).unwrap_or_default();
            marks.iter().for_each(|piece| self.names.learn(piece));
        }
        let pieces = self.tokenize(&text, (true, !is_raw))?;
        pieces.iter().for_each(|piece| self.names.learn(piece));
        Ok(pieces)
    }

    fn tokenize(&self, text: &str, (adds, parses): (bool, bool)) -> Result<Vec<Piece>, String> {
        let body = json!({ "content": text, "add_special": adds, "parse_special": parses, "with_pieces": true });
        let answer = self.client.post_json("/tokenize", &self.body(body)).map_err(|error| self.in_words(&error))?;
        let list = answer.get("tokens").and_then(Value::as_array).cloned().unwrap_or_default();
        let pieces: Option<Vec<Piece>> = list.iter().map(piece).collect();
        pieces.ok_or_else(|| "llama-server's /tokenize sends no ids and pieces; a newer server is needed".to_owned())
    }

    fn in_words(&self, error: &HttpError) -> String {
        super::server::in_words(error, &self.client, false)
    }

    fn render(&self, messages: &[Message]) -> Result<String, HttpError> {
        let answer = self.client.post_json("/apply-template", &self.body(json!({ "messages": messages })))?;
        let path = "/apply-template".to_owned();
        let no_text = HttpError::NotJson { host: self.client.host().to_owned(), path };
        answer.get("prompt").and_then(Value::as_str).map(str::to_owned).ok_or(no_text)
    }
}

/// The body of a request that streams an answer with its counts.
fn request(prompt: &[Piece], settings: &Settings, leaves_sampling: bool) -> Value {
    let mut body = json!({
        "prompt": prompt.iter().map(|piece| piece.id.0).collect::<Vec<_>>(),
        "n_predict": settings.max_tokens,
        "stream": true,
        "return_tokens": true,
        "timings_per_token": true,
        "cache_prompt": true,
    });
    if !leaves_sampling {
        let sampling = &settings.sampling;
        body["temperature"] = json!(sampling.temperature);
        body["top_k"] = json!(sampling.top_k);
        body["top_p"] = json!(sampling.top_p);
        body["min_p"] = json!(sampling.min_p);
        body["seed"] = json!(sampling.seed & u64::from(u32::MAX));
    }
    body
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
        _ if has("draft") => DrafterKind::DraftModel,
        _ => DrafterKind::Unknown,
    }
}

fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
