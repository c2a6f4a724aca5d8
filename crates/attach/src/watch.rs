//! Follows servers that others use: reads their metrics, sends no prompt.
//!
//! Invariant: a thread a server, one look at a time; a server that does not answer delays no other one. A look starts an
//! interval after the answer to the last one. Nothing is sent once the receiver is gone.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use draftscope_http::{Access, Client, HttpError, Patience};
use draftscope_protocol::{ServerSample, SlotState};

use super::models::{self, WantedModel};
use super::{address, metrics, router};

/// How long to wait for a server that is looked at.
const PATIENCE: Patience =
    Patience { connect: Duration::from_secs(2), answer: Duration::from_secs(3), silence: Duration::from_secs(3) };

/// Samples that wait for a slow screen; further ones are left out.
const WAITING: usize = 256;

/// Slots that are read.
const MAX_SLOTS: usize = 256;

/// Looks at each of these servers again and again. All of them are given `access`; one with several models is asked about
/// the wanted one.
///
/// # Errors
/// When an address cannot be used, or the system cannot start a thread.
pub fn watch(
    urls: &[String],
    access: &Access,
    interval: Duration,
    model: Option<&WantedModel>,
) -> Result<Receiver<ServerSample>, String> {
    let (sender, samples) = sync_channel(WAITING);
    let began = Instant::now();
    let clients: Result<Vec<Client>, HttpError> =
        urls.iter().map(|url| Client::new(url, access.clone(), PATIENCE)).collect();
    for (server, client) in clients.map_err(|error| error.to_string())?.into_iter().enumerate() {
        let sender = sender.clone();
        let known = Known { wanted: model.cloned(), ..Known::default() };
        start(server, (client, known), (began, interval), sender)
            .map_err(|error| format!("cannot start a thread that watches a server: {error}"))?;
    }
    Ok(samples)
}

fn start(
    server: usize,
    (client, mut known): (Client, Known),
    (began, interval): (Instant, Duration),
    sender: SyncSender<ServerSample>,
) -> io::Result<()> {
    thread::Builder::new().name("watch".into()).spawn(move || {
        loop {
            let sample = guarded(&mut known, &client, Known::look);
            let at_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            let sample = ServerSample { server, at_ms, ..sample };
            if matches!(sender.try_send(sample), Err(TrySendError::Disconnected(_))) {
                return;
            }
            // the whole interval: after a slow answer, counters of two looks would be divided by too short a time
            thread::sleep(interval);
        }
    })?;
    Ok(())
}

/// A look; a panic becomes a problem of the server, so that nobody waits for the next one.
fn guarded(known: &mut Known, client: &Client, look: impl FnOnce(&mut Known, &Client) -> ServerSample) -> ServerSample {
    catch_unwind(AssertUnwindSafe(|| look(known, client))).unwrap_or_else(|_| ServerSample {
        problem: Some("looking at it failed with an internal error; please report it".to_owned()),
        ..known.nothing(client)
    })
}

/// What a server is; asked until it is known.
#[derive(Default)]
struct Known {
    engine: String,
    model: String,
    has_slots: bool,
    /// The model that the user named.
    wanted: Option<WantedModel>,
    /// The model of a router that is looked at.
    routed: Option<String>,
}

impl Known {
    /// A path that names the model to a router, which loads none for it.
    fn path(&self, path: &str) -> String {
        match &self.routed {
            Some(model) => address::with_model(path, model) + "&autoload=false",
            None => path.to_owned(),
        }
    }

    fn nothing(&self, client: &Client) -> ServerSample {
        ServerSample {
            server: 0,
            host: client.host().to_owned(),
            at_ms: 0,
            engine: String::new(),
            model: String::new(),
            counters: None,
            slots: Vec::new(),
            problem: None,
        }
    }

    fn look(&mut self, client: &Client) -> ServerSample {
        let mut sample = self.nothing(client);
        if self.engine.is_empty()
            && let Err(error) = self.recognise(client)
        {
            sample.problem = Some(error);
            return sample;
        }
        (sample.engine, sample.model) = (self.engine.clone(), self.model.clone());
        match client.get(&self.path("/metrics")) {
            Ok(text) => {
                sample.counters = Some(metrics::parse(&text));
                let nothing = sample.counters.as_ref().is_some_and(|counters| *counters == Default::default());
                if nothing {
                    sample.problem = Some("/metrics has no counters that are known here".to_owned());
                }
            }
            Err(HttpError::Status { status: 404 | 501, .. }) => {
                let how = match self.has_slots {
                    true => "start llama-server with --metrics; speed is that of its slots",
                    false => "it publishes no /metrics",
                };
                sample.problem = Some(format!("no metrics: {how}"));
            }
            Err(error) => {
                sample.problem = Some(error.to_string());
                self.engine.clear(); // it may come back as another one
                return sample;
            }
        }
        if self.has_slots {
            sample.slots = client.get_json(&self.path("/slots")).map(|slots| states(&slots)).unwrap_or_default();
        }
        sample
    }

    fn recognise(&mut self, client: &Client) -> Result<(), String> {
        let text = |value: Option<&Value>| {
            value.and_then(Value::as_str).unwrap_or_default().chars().take(120).collect::<String>()
        };
        let file = |path: String| path.rsplit(['/', '\\']).next().unwrap_or_default().to_owned();
        match client.get_json("/props") {
            Ok(props) if router::is_router(&props) => return self.behind_router(client),
            Ok(props) if props.get("default_generation_settings").is_some() => {
                self.engine = "llama-server".to_owned();
                self.model = file(text(props.get("model_path"))).trim_end_matches(".gguf").to_owned();
                self.has_slots = true;
                return Ok(());
            }
            Err(HttpError::Status { status: 400, message, .. }) if router::wants_model(&message) => {
                return self.behind_router(client);
            }
            Err(error @ (HttpError::Failed { .. } | HttpError::Status { status: 401 | 403, .. })) => {
                return Err(error.to_string());
            }
            _ => {}
        }
        let models = match client.get_json("/v1/models") {
            Ok(models) => models,
            Err(error) => return self.by_metrics(client, &error),
        };
        let model = models.pointer("/data/0");
        self.model = file(text(model.and_then(|model| model.get("id"))));
        self.engine = match text(model.and_then(|model| model.get("owned_by"))).as_str() {
            "vllm" => "vLLM",
            "sglang" => "SGLang",
            _ => "OpenAI-compatible",
        }
        .to_owned();
        Ok(())
    }
}

impl Known {
    /// An address with metrics and without models, such as that of an exporter or of a port of its own.
    fn by_metrics(&mut self, client: &Client, error: &HttpError) -> Result<(), String> {
        let answers = matches!(error, HttpError::NotJson { .. })
            || matches!(error, HttpError::Status { status, .. } if !matches!(status, 401 | 403));
        let text = if answers { client.get("/metrics").unwrap_or_default() } else { String::new() };
        let (engine, model) = metrics::origin(&text).ok_or_else(|| error.to_string())?;
        self.engine = engine.to_owned();
        self.model = model.rsplit('/').next().unwrap_or_default().chars().take(120).collect();
        Ok(())
    }

    /// A router: its metrics and slots are those of one of its models.
    fn behind_router(&mut self, client: &Client) -> Result<(), String> {
        let listed = client.get_json(router::MODELS).map_err(|error| error.to_string())?;
        let listed = models::list(&listed).unwrap_or_default();
        let model = models::choose(&listed, self.wanted.as_ref(), client.host())?.model.id;
        self.engine = "llama-server".to_owned();
        self.model = model.chars().take(120).collect();
        self.has_slots = true;
        self.routed = Some(model);
        Ok(())
    }
}

fn states(slots: &Value) -> Vec<SlotState> {
    let list = slots.as_array().map(Vec::as_slice).unwrap_or_default();
    let state = |slot: &Value| SlotState {
        task: slot.get("id_task").and_then(Value::as_u64),
        id: slot.get("id").and_then(Value::as_u64).and_then(|id| u32::try_from(id).ok()).unwrap_or(0),
        is_busy: slot.get("is_processing").and_then(Value::as_bool).unwrap_or(false),
        speculates: slot.get("speculative").and_then(Value::as_bool),
        // a list in newer servers, an object in older ones
        decoded: ["/next_token/0/n_decoded", "/next_token/n_decoded"]
            .iter()
            .find_map(|path| slot.pointer(path).and_then(Value::as_u64)),
        context: slot.get("n_ctx").and_then(Value::as_u64),
    };
    list.iter().take(MAX_SLOTS).map(state).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_that_panics_is_a_problem_of_its_server_and_the_next_one_is_taken() {
        let client = Client::new("http://127.0.0.1:9", Access::default(), PATIENCE).unwrap();
        let mut known = Known::default();
        let sample = guarded(&mut known, &client, |_, _| panic!("a fault"));
        assert_eq!(sample.host, "127.0.0.1:9");
        assert!(sample.problem.is_some_and(|problem| problem.contains("please report it")));
        assert_eq!(guarded(&mut known, &client, |known, client| known.nothing(client)).problem, None);
    }
}
