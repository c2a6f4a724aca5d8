//! Which model of a server is meant.
//!
//! Invariant: a model for embeddings is never picked by itself, and of several models none is picked without a sentence.

use serde_json::Value;

/// Most names in a sentence.
const MOST_NAMES: usize = 12;

/// Most models of a list that are read.
const MOST_MODELS: usize = 4096;

/// Words in the names of models that do not write text.
const OTHER_NAMES: &[&str] = &[
    "embed",
    "embedding",
    "embeddings",
    "rerank",
    "reranker",
    "minilm",
    "bge",
    "gte",
    "e5",
    "colbert",
    "mpnet",
    "whisper",
    "tts",
    "moderation",
    "clip",
    "siglip",
    "dall",
    "diffusion",
    "flux",
    "kokoro",
    "piper",
    "parakeet",
];

/// Kinds that a server names of models that do not write text.
const OTHER_KINDS: &[&str] = &[
    "embed",
    "rerank",
    "classif",
    "score",
    "transcri",
    "speech",
    "audio_",
    "image_generation",
    "text-to-image",
    "diffusion",
    "moderation",
];

/// A model that the user named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedModel {
    /// As the server lists it, or a part of it that is its own.
    pub name: String,
    /// What names it, if it does not count where the server has no such model, such as an environment variable.
    pub hint_of: Option<&'static str>,
}

impl WantedModel {
    /// The sentence about a hint that this server cannot follow; none for a model that must be asked.
    pub(super) fn left_aside(&self, host: &str) -> Option<String> {
        let source = self.hint_of?;
        Some(format!("{host} does not have the model {} that {source} names: its own answers", self.name))
    }
}

/// A model of a list.
#[derive(Clone, Debug, Default)]
pub(super) struct Listed {
    pub(super) id: String,
    pub(super) entry: Value,
}

/// The model that requests name.
#[derive(Clone, Debug, Default)]
pub(super) struct Chosen {
    pub(super) model: Listed,
    /// Whether the server lists it.
    pub(super) is_listed: bool,
    /// Sentences for the user.
    pub(super) notices: Vec<String>,
}

/// The models in an answer of `/v1/models`; none if it is no such list.
pub(super) fn list(answer: &Value) -> Option<Vec<Listed>> {
    let named = ["data", "models"].iter().find_map(|name| answer.get(*name)?.as_array());
    let entries = named.or(answer.as_array())?;
    let id = |entry: &Value| {
        let name = ["id", "name", "model"].iter().find_map(|name| entry.get(*name)?.as_str()).or(entry.as_str());
        name.map(str::to_owned)
    };
    let models =
        entries.iter().take(MOST_MODELS).filter_map(|entry| Some(Listed { id: id(entry)?, entry: entry.clone() }));
    Some(models.collect())
}

/// The model that is meant: the wanted one, else the only one, else the only one that is loaded.
///
/// # Errors
/// A sentence that lists the models, or says that there is none.
pub(super) fn choose(models: &[Listed], wanted: Option<&WantedModel>, host: &str) -> Result<Chosen, String> {
    let mut notices = Vec::new();
    if let Some(wanted) = wanted {
        if let Some(model) = find(models, &wanted.name) {
            return Ok(Chosen { model: model.clone(), is_listed: true, notices });
        }
        let Some(notice) = wanted.left_aside(host) else {
            let model = Listed { id: wanted.name.clone(), entry: Value::Null };
            let has = if models.is_empty() { String::new() } else { format!(" (it lists {})", names(models)) };
            notices.push(format!("{host} does not list the model {}{has}; it is asked for all the same", wanted.name));
            return Ok(Chosen { model, is_listed: false, notices });
        };
        notices.push(notice);
    }
    if models.is_empty() {
        return Err(format!(
            "{host} has no model loaded: its /v1/models is empty; load one there, or name one with --model"
        ));
    }
    let writers: Vec<&Listed> = models.iter().filter(|model| !is_other(model)).collect();
    let loaded: Vec<&Listed> = writers.iter().copied().filter(|model| is_loaded(model) == Some(true)).collect();
    let model = match (writers.as_slice(), loaded.as_slice()) {
        ([], _) => {
            return Err(format!(
                "{host} lists no model that writes text, only {}; if one of them does, name it with --model",
                names(models)
            ));
        }
        ([only], _) => *only,
        (all, _) if is_one_model(all) => all[0],
        (_, [only]) => {
            notices.push(format!(
                "{host} has several models, and {} is the loaded one; --model NAME asks another: {}",
                only.id,
                names(models)
            ));
            *only
        }
        (all, _) => {
            let all: Vec<Listed> = all.iter().map(|model| (*model).clone()).collect();
            return Err(format!("{host} has several models; name one with --model: {}", names(&all)));
        }
    };
    Ok(Chosen { model: model.clone(), is_listed: true, notices })
}

/// The model with this name: exactly, else without regard to capitals, owner and file extension, if only one fits.
pub(super) fn find<'a>(models: &'a [Listed], name: &str) -> Option<&'a Listed> {
    let is_alias = |model: &Listed, name: &str| {
        let aliases = model.entry.get("aliases").and_then(Value::as_array);
        aliases.is_some_and(|aliases| aliases.iter().any(|alias| alias.as_str() == Some(name)))
    };
    if let Some(model) = models.iter().find(|model| model.id == name || is_alias(model, name)) {
        return Some(model);
    }
    let mut fitting = models.iter().filter(|model| short(&model.id) == short(name));
    fitting.next().filter(|_| fitting.next().is_none())
}

fn short(name: &str) -> String {
    let file = name.rsplit(['/', '\\']).next().unwrap_or_default().to_lowercase();
    file.strip_suffix(".gguf").map_or(file.clone(), str::to_owned)
}

/// The names in a sentence.
pub(super) fn names(models: &[Listed]) -> String {
    let shown = models.iter().take(MOST_NAMES).map(|model| model.id.chars().take(80).collect::<String>());
    let all = shown.collect::<Vec<_>>().join(", ");
    match models.len().saturating_sub(MOST_NAMES) {
        0 => all,
        more => format!("{all} and {more} more"),
    }
}

/// Whether these are names of one model, as vLLM lists them: the same files, and no adapter.
fn is_one_model(models: &[&Listed]) -> bool {
    let root = |model: &Listed| {
        let has_parent = model.entry.get("parent").is_some_and(|parent| !parent.is_null());
        model.entry.get("root").and_then(Value::as_str).filter(|_| !has_parent).map(str::to_owned)
    };
    let first = models.first().and_then(|model| root(model));
    first.is_some() && models.iter().all(|model| root(model) == first)
}

/// Whether the server says that the model is in memory.
fn is_loaded(model: &Listed) -> Option<bool> {
    let entry = &model.entry;
    let said = ["/status/value", "/status", "/state"].iter().find_map(|path| entry.pointer(path)?.as_str());
    said.map(|said| said == "loaded").or_else(|| entry.get("loaded").and_then(Value::as_bool))
}

/// Whether a model is for embeddings or something else that is no text.
fn is_other(model: &Listed) -> bool {
    let entry = &model.entry;
    let says = |value: &Value| {
        let text = value.as_str().unwrap_or_default().to_lowercase();
        OTHER_KINDS.iter().any(|kind| text.contains(kind))
    };
    let kinds = ["type", "task", "mode", "kind", "model_type", "pipeline_tag"];
    if kinds.iter().any(|name| entry.get(*name).is_some_and(says)) {
        return true;
    }
    if let Some(list) = entry.get("capabilities").and_then(Value::as_array) {
        let writes = |one: &Value| matches!(one.as_str(), Some("completion" | "chat" | "generate" | "text"));
        return list.iter().any(says) && !list.iter().any(writes);
    }
    let args = entry.pointer("/status/args").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if args.iter().any(|arg| matches!(arg.as_str(), Some("--embedding" | "--embeddings" | "--rerank" | "--reranking")))
    {
        return true;
    }
    let name = model.id.to_lowercase();
    name.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| OTHER_NAMES.contains(&word))
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value)] // so that cases are short
mod tests {
    use serde_json::json;

    use super::*;

    fn models(entries: Value) -> Vec<Listed> {
        list(&json!({ "data": entries })).unwrap()
    }

    fn wanted(name: &str, hint_of: Option<&'static str>) -> Option<WantedModel> {
        Some(WantedModel { name: name.to_owned(), hint_of })
    }

    fn id(entries: Value, name: Option<&str>) -> Result<String, String> {
        let wanted = name.and_then(|name| wanted(name, None));
        choose(&models(entries), wanted.as_ref(), "h").map(|chosen| chosen.model.id)
    }

    #[test]
    fn one_model_that_writes_is_taken_and_several_are_listed() {
        let both = json!([{"id": "all-minilm-embedding"}, {"id": "qwen3-4b"}]);
        assert_eq!(id(both.clone(), None), Ok("qwen3-4b".to_owned()));
        assert_eq!(id(both, Some("all-minilm-embedding")), Ok("all-minilm-embedding".to_owned()), "a name overrides");
        let several = json!([{"id": "nomic-embed-text"}, {"id": "a/qwen3-4b"}, {"id": "qwen3-0.6b.gguf"}]);
        let why = id(several.clone(), None).unwrap_err();
        assert_eq!(why, "h has several models; name one with --model: a/qwen3-4b, qwen3-0.6b.gguf");
        assert_eq!(id(several.clone(), Some("Qwen3-4B")), Ok("a/qwen3-4b".to_owned()));
        assert_eq!(id(several, Some("qwen3-0.6b")), Ok("qwen3-0.6b.gguf".to_owned()));
        assert!(id(json!([]), None).unwrap_err().contains("no model loaded"));
        assert!(
            id(json!([{"id": "bge-m3"}, {"id": "x", "type": "embeddings"}]), None)
                .unwrap_err()
                .contains("only bge-m3, x")
        );
        assert_eq!(id(json!([{"id": "new-model"}]), Some("other")), Ok("other".to_owned()));
    }

    #[test]
    fn the_loaded_one_and_several_names_of_one_model_are_no_choice() {
        let loaded = json!([{"id": "a", "status": {"value": "unloaded"}}, {"id": "b", "status": {"value": "loaded"}}]);
        let chosen = choose(&models(loaded), None, "h").unwrap();
        assert!(chosen.model.id == "b" && chosen.notices[0].contains("--model NAME"), "{chosen:?}");
        let names = json!([{"id": "a", "root": "/m", "parent": null}, {"id": "b", "root": "/m", "parent": null}]);
        assert_eq!(id(names, None), Ok("a".to_owned()));
        let adapter = json!([{"id": "a", "root": "/m", "parent": null}, {"id": "l", "root": "/l", "parent": "a"}]);
        assert!(id(adapter, None).is_err(), "an adapter answers otherwise");
    }

    /// As the router of llama.cpp 0.7.0 (build 11669) lists its presets.
    #[test]
    fn a_router_s_model_for_embeddings_is_known_by_its_arguments() {
        let entry = |id: &str, value: &str, flag: &str| {
            json!({
                "id": id, "aliases": [], "tags": [], "object": "model", "owned_by": "llamacpp",
                "status": {"value": value, "args": ["/usr/bin/llama-server", flag, "--port", "0", "--alias", id], "preset": "[x]"},
                "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]}, "source": "preset",
            })
        };
        let vectors = entry("vectors", "unloaded", "--embeddings");
        let two = json!([vectors, entry("smol", "unloaded", "--metrics"), entry("other", "unloaded", "--metrics")]);
        assert_eq!(id(two, None).unwrap_err(), "h has several models; name one with --model: smol, other");
        let one = json!([vectors, entry("smol", "unloaded", "--metrics")]);
        assert_eq!(id(one, None), Ok("smol".to_owned()));
        let loaded = json!([vectors, entry("smol", "unloaded", "--metrics"), entry("other", "loaded", "--metrics")]);
        assert_eq!(id(loaded, None), Ok("other".to_owned()));
    }

    #[test]
    fn a_hint_that_does_not_fit_is_left_aside_with_a_sentence() {
        let chosen =
            choose(&models(json!([{"id": "a"}])), wanted("x.gguf", Some("DRAFTSCOPE_MODEL")).as_ref(), "h").unwrap();
        assert!(chosen.model.id == "a" && chosen.notices[0].contains("DRAFTSCOPE_MODEL"), "{chosen:?}");
    }

    #[test]
    fn lists_have_several_forms() {
        for answer in
            [json!({"data": [{"id": "m"}]}), json!([{"id": "m"}]), json!({"models": [{"name": "m"}]}), json!(["m"])]
        {
            assert_eq!(list(&answer).unwrap()[0].id, "m", "{answer}");
        }
        assert!(list(&json!({"error": "x"})).is_none());
    }
}
