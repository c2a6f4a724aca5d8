//! Servers with OpenAI routes: vLLM and SGLang with their own fields, and any other one for text and speed.

pub mod chunk;
mod content;
mod dialect;
pub mod recount;
mod refusal;
mod shared;
mod steps;
mod stream;
mod thought;
pub mod tokens;

use std::sync::Arc;

use serde_json::{Map, Value, json};

use draftscope_http::{Client, HttpError};
use draftscope_protocol::{
    Ability, Capabilities, Counters, DraftCounts, DrafterInfo, DrafterKind, EngineInfo, Header, ModelInfo, Prompt,
    Settings, TRACE_VERSION,
};

use super::models::{self, Chosen, WantedModel};
use super::names::Names;
use super::server::{ConnectError, Reader, Request, Server, Wishes};
use refusal::Refused;
use shared::Shared;
use steps::Steps;
use stream::Stream;

pub(super) use dialect::Dialect;

const CHAT: &str = "/chat/completions";
const COMPLETIONS: &str = "/completions";

/// What stands before the routes: as OpenAI has it, or nothing where the address names another version.
const ROOTS: [&str; 2] = ["/v1", ""];

/// Candidates of each position that are asked for: the most that vLLM gives without a changed setting.
const TOP: u32 = 20;

/// What two flags of vLLM show, said at the start.
const FLAGS: &str = "vLLM reports what each answer drafted, step by step, if it was started with --enable-per-request-metrics \
                     and --per-request-spec-decode-metrics detailed; without them drafts are taken from its counters, where \
                     nobody else uses the server and all steps draft alike";

/// A server, and what was learned from it.
pub(super) struct OpenAi {
    client: Client,
    dialect: Dialect,
    /// What stands before the routes.
    root: &'static str,
    /// The model that requests name.
    id: String,
    /// What the server lists about it.
    model: Value,
    version: String,
    names: Names,
    /// Whether the server's own sampling counts.
    leaves_sampling: bool,
    /// What the server refused of requests.
    refused: Refused,
    /// The last request.
    sent: Map<String, Value>,
    /// Sentences of the time of connecting.
    notices: Vec<String>,
    shared: Shared,
}

impl OpenAi {
    /// Asks for the model, and which fields the server adds unless that is given.
    ///
    /// # Errors
    /// When nothing answers, there is no such route, or the model that is meant cannot be found out.
    pub(super) fn connect(
        client: &Client,
        quick: &Client,
        wishes: &Wishes,
        dialect: Option<Dialect>,
    ) -> Result<Self, ConnectError> {
        let (root, Chosen { model, notices, .. }) = match listed(client) {
            Ok((root, listed)) => (root, models::choose(&listed, wishes.model.as_ref(), client.host())?),
            Err(error) => without_list(client, error, wishes.model.as_ref())?,
        };
        let owner = model.entry.get("owned_by").and_then(Value::as_str).unwrap_or_default();
        let version = |path: &str| {
            let answer = client.get_json(path).unwrap_or_default();
            answer.get("version").and_then(Value::as_str).map(|text| text.chars().take(80).collect::<String>())
        };
        let found = match dialect {
            Some(dialect) => dialect,
            None if owner == "vllm" => Dialect::Vllm,
            None if owner == "sglang" || is_sglang(client) => Dialect::Sglang,
            // a gateway may name another owner
            None if version("/version").is_some()
                && client.get("/metrics").is_ok_and(|text| text.contains("vllm:")) =>
            {
                Dialect::Vllm
            }
            None => Dialect::Plain,
        };
        let version = match found {
            Dialect::Vllm => version("/version"),
            Dialect::Sglang => version("/server_info").or_else(|| version("/get_server_info")),
            Dialect::Plain => None,
        };
        let shared = Shared { quick: Some(quick.clone()), dialect: found, known: Arc::default() };
        Ok(Self {
            client: client.clone(),
            dialect: found,
            root,
            version: version.unwrap_or_default(),
            id: model.id,
            model: model.entry,
            names: Names::default(),
            leaves_sampling: wishes.leaves_sampling,
            refused: Refused::default(),
            sent: Map::new(),
            notices,
            shared,
        })
    }

    /// Reads a stream that comes from no server.
    pub(super) fn offline_reader(dialect: Dialect) -> Box<dyn Reader> {
        Box::new(Stream::new(Steps::new(dialect, Shared::offline(dialect))))
    }

    fn body(&self, is_chat: bool, settings: &Settings) -> Map<String, Value> {
        let sampling = &settings.sampling;
        let mut body = json!({
            "model": self.id,
            "max_tokens": settings.max_tokens,
            "stream": true,
            "stream_options": { "include_usage": true },
        });
        let mut add = |name: &str, value: Value| body[name] = value;
        if !self.leaves_sampling {
            add("temperature", json!(sampling.temperature));
            add("top_p", json!(sampling.top_p));
            add("seed", json!(sampling.seed & (u64::MAX >> 1)));
            if self.dialect != Dialect::Plain {
                add("top_k", if sampling.top_k == 0 { json!(-1) } else { json!(sampling.top_k) });
                add("min_p", json!(sampling.min_p));
            }
        }
        if self.dialect != Dialect::Plain {
            add("return_token_ids", json!(true));
            if is_chat {
                add("logprobs", json!(true));
                add("top_logprobs", json!(TOP));
            } else {
                add("logprobs", json!(TOP));
            }
        }
        if self.dialect == Dialect::Vllm {
            add("stream_interval", json!(1));
        }
        if self.dialect == Dialect::Sglang {
            add("return_spec_tokens_details", json!(true));
        }
        match body {
            Value::Object(map) => map,
            _ => Map::new(),
        }
    }

    /// The drafter, from what the server reports and has counted, and sentences about what it does not.
    fn drafter(&self, vocab: u32, counters: &Counters) -> (Option<DrafterInfo>, Vec<String>) {
        let mut notices = Vec::new();
        let (name, kind) = match self.dialect {
            Dialect::Plain => {
                notices.push(
                    "this server reports no token ids and no drafts: text and speed are shown, a piece of its stream counts \
                     as a token"
                        .to_owned(),
                );
                (None, DrafterKind::None)
            }
            Dialect::Vllm => {
                notices.extend(counters.sentence());
                notices.push(FLAGS.to_owned());
                let k = counters.accepted_per_pos.len();
                let name = if k > 0 { format!("speculation with k = {k}") } else { "speculation".to_owned() };
                (counters.steps.map(|_| name), DrafterKind::Unknown)
            }
            Dialect::Sglang => {
                let info = self.client.get_json("/server_info").or_else(|_| self.client.get_json("/get_server_info"));
                let info = info.unwrap_or_default();
                let algorithm = info.get("speculative_algorithm").and_then(Value::as_str).map(str::to_lowercase);
                let kind = match algorithm.as_deref() {
                    Some("ngram") => DrafterKind::Ngram,
                    Some("standalone") => DrafterKind::DraftModel,
                    Some(name) if ["eagle", "nextn", "mtp", "dflash"].iter().any(|known| name.contains(known)) => {
                        DrafterKind::Mtp
                    }
                    Some(_) => DrafterKind::Unknown,
                    None => DrafterKind::None,
                };
                (algorithm, kind)
            }
        };
        let drafter = name.map(|name| DrafterInfo {
            name: name.chars().take(80).collect(),
            dtype: "not reported".to_owned(),
            ..DrafterInfo::weightless(kind, vocab)
        });
        (drafter, notices)
    }
}

/// The model of a server whose list of models cannot be read, as the user named it, and what stands before the routes.
///
/// # Errors
/// The list's own error, with the next step where a name would help.
fn without_list(
    client: &Client,
    error: HttpError,
    wanted: Option<&WantedModel>,
) -> Result<(&'static str, Chosen), ConnectError> {
    let is_missing = matches!(error, HttpError::NotJson { .. } | HttpError::Status { status: 404 | 405 | 501, .. });
    let is_failing = matches!(error, HttpError::Status { status: 400 | 500 | 502 | 504, .. });
    if !is_missing && !is_failing {
        return Err(error.into());
    }
    let Some(wanted) = wanted.filter(|wanted| wanted.hint_of.is_none()) else {
        return match is_failing {
            true => Err(format!("{error}; if the server answers all the same, name its model with --model").into()),
            false => Err(error.into()),
        };
    };
    let Some(root) = ROOTS.into_iter().find(|root| has_chat(client, root)) else { return Err(error.into()) };
    let notice = format!("the list of models cannot be read ({error}): {} is asked for all the same", wanted.name);
    let model = models::Listed { id: wanted.name.clone(), entry: Value::Null };
    Ok((root, Chosen { model, is_listed: false, notices: vec![notice] }))
}

/// Whether there is a route for chats, which refuses a request without messages.
fn has_chat(client: &Client, root: &str) -> bool {
    match client.post_json(&format!("{root}{CHAT}"), &json!({})) {
        Err(HttpError::Status { status, .. }) => !matches!(status, 404 | 405 | 501),
        answer => answer.is_ok(),
    }
}

/// The models of a server, and what stands before its routes.
fn listed(client: &Client) -> Result<(&'static str, Vec<models::Listed>), HttpError> {
    let mut first = None;
    for root in ROOTS {
        let path = format!("{root}/models");
        let not_json = HttpError::NotJson { host: client.host().to_owned(), path: path.clone() };
        let found = client.get_json(&path).and_then(|answer| models::list(&answer).ok_or(not_json));
        match found {
            Ok(listed) => return Ok((root, listed)),
            Err(error @ (HttpError::Status { status: 404 | 405 | 501, .. } | HttpError::NotJson { .. })) => {
                first.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    let none = || HttpError::NotJson { host: client.host().to_owned(), path: ROOTS[0].to_owned() };
    Err(first.unwrap_or_else(none))
}

/// Whether SGLang's own route answers.
fn is_sglang(client: &Client) -> bool {
    let has_model = |path| client.get_json(path).is_ok_and(|info| info.get("model_path").is_some());
    has_model("/model_info") || has_model("/get_model_info")
}

impl Server for OpenAi {
    fn name(&self) -> &'static str {
        match self.dialect {
            Dialect::Vllm => "vLLM",
            Dialect::Sglang => "SGLang",
            Dialect::Plain => "the server",
        }
    }

    fn client(&self) -> &Client {
        &self.client
    }

    fn header(&mut self, settings: Settings, started_unix_ms: u64) -> (Header, Vec<String>) {
        let context = self.model.get("max_model_len").and_then(Value::as_u64).unwrap_or(0);
        let context = u32::try_from(context).unwrap_or(u32::MAX);
        let name: String = self.id.rsplit('/').next().unwrap_or_default().chars().take(200).collect();
        let counters = if self.dialect == Dialect::Vllm { self.shared.counters() } else { None }.unwrap_or_default();
        let (drafter, more) = self.drafter(0, &counters);
        let mut notices = std::mem::take(&mut self.notices);
        notices.extend(more);
        if self.leaves_sampling {
            notices.push("sampling is the server's own, which it does not report: temperature and others shown here are not used".to_owned());
        }
        let (engine, abilities, draft_counts) = match self.dialect {
            Dialect::Vllm => ("vLLM", vec![Ability::SetSampling, Ability::Branch], DraftCounts::AtEnd),
            Dialect::Sglang => ("SGLang", vec![Ability::SetSampling, Ability::Branch], DraftCounts::AtEnd),
            Dialect::Plain => ("OpenAI-compatible server", vec![Ability::SetSampling], DraftCounts::Never),
        };
        let kind = drafter.as_ref().map_or(DrafterKind::None, |drafter| drafter.kind);
        let header = Header {
            version: TRACE_VERSION,
            program: concat!("draftscope ", env!("CARGO_PKG_VERSION")).to_owned(),
            model: ModelInfo { file: name.clone(), name, context_length: context, ..ModelInfo::default() },
            drafters: drafter.iter().cloned().collect(),
            drafter,
            lossless: None,
            settings: Settings { drafter: kind, rival: None, ..settings },
            ctx_len: context,
            grammar: None,
            memory: None,
            device: self.client.host().to_owned(),
            backend: engine.to_owned(),
            dtype: String::new(),
            threads: 0,
            gpu: None,
            started_unix_ms,
            capabilities: Capabilities { can_generate: true, ..Capabilities::default() },
            engine: Some(EngineInfo {
                name: engine.to_owned(),
                version: self.version.clone(),
                abilities,
                draft_counts,
                counted: counters.totals(),
                no_speedup: None,
            }),
        };
        (header, notices)
    }

    fn request(&mut self, prompt: &Prompt, settings: &Settings) -> Result<Request, String> {
        let is_chat = matches!(prompt, Prompt::Chat(_));
        let mut body = self.body(is_chat, settings);
        let mut known = Vec::new();
        match prompt {
            Prompt::Chat(messages) => body.insert("messages".to_owned(), json!(messages)),
            Prompt::Raw(text) => body.insert("prompt".to_owned(), json!(text)),
            Prompt::Branch(from) if from.again.is_some() => {
                return Err(format!("{} cannot run a round again", self.name()));
            }
            Prompt::Branch(from) => {
                known = self.names.all(&from.tokens, self.name())?;
                body.insert("prompt".to_owned(), json!(from.tokens.iter().map(|id| id.0).collect::<Vec<_>>()))
            }
        };
        self.refused.apply(&mut body);
        self.sent.clone_from(&body);
        self.shared.begin();
        let path = format!("{}{}", self.root, if is_chat { CHAT } else { COMPLETIONS });
        Ok(Request { path, body: Value::Object(body), prompt: known })
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::new(Stream::new(Steps::new(self.dialect, self.shared.clone())))
    }

    fn names(&mut self) -> &mut Names {
        &mut self.names
    }

    fn send_sampling(&mut self) {
        self.leaves_sampling = false;
    }

    fn relax(&mut self, refusal: &str) -> Option<String> {
        self.refused.learn(refusal, &self.sent)
    }
}
