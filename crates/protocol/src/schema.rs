//! The JSON Schema of a line of a trace, generated from the types: `docs/trace.schema.json`.
//!
//! Compiled only for tests, so that a build of the program does not need `schemars`. Invariant: unknown types and
//! unknown fields are valid, because a newer program may write them. Known fields are as strict as their types and the
//! functions below make them.

use std::borrow::Cow;

use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

use super::token::Written;
use super::{Candidate, Event, Piece, TRACE_VERSION};

/// Marks a field that older programs did not write; the finished schema has no such key.
const ADDED_LATER: &str = "x-added-later";

/// A field that older programs did not write, so that a line without it is valid.
pub(super) fn added_later(schema: &mut Schema) {
    schema.insert(ADDED_LATER.into(), true.into());
}

/// A type whose fields may all be absent and then have their defaults.
pub(super) fn has_defaults(schema: &mut Schema) {
    schema.remove("required");
}

/// A probability; a sum of rounded numbers may slightly exceed 1.
pub(super) fn probability(schema: &mut Schema) {
    schema.insert("minimum".into(), 0.into());
    schema.insert("maximum".into(), json!(1.001));
}

/// A uniform draw.
pub(super) fn draw(schema: &mut Schema) {
    schema.insert("minimum".into(), 0.into());
    schema.insert("exclusiveMaximum".into(), 1.into());
}

/// A SHA-256 sum in lower-case hex.
pub(super) fn sha256(schema: &mut Schema) {
    schema.insert("pattern".into(), "^[0-9a-f]{64}$".into());
}

impl JsonSchema for Piece {
    fn schema_name() -> Cow<'static, str> {
        "Piece".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = Written::json_schema(generator);
        schema.insert(
            "description".into(),
            "A token. Its bytes are `text` when they are UTF-8 on their own, else `bytes`.".into(),
        );
        schema.insert("oneOf".into(), json!([{ "required": ["text"] }, { "required": ["bytes"] }]));
        schema
    }
}

impl JsonSchema for Candidate {
    fn schema_name() -> Cow<'static, str> {
        "Candidate".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let piece = generator.subschema_for::<Piece>();
        json_schema!({
            "description": "One alternative of a distribution: a token and its probability.",
            "allOf": [piece, { "required": ["prob"] }],
        })
    }
}

/// The schema of a line.
fn of_line() -> Value {
    let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut schema = generator.into_root_schema_for::<Event>();
    RecursiveTransform(optional_is_never_null).transform(&mut schema);
    RecursiveTransform(without_links).transform(&mut schema);
    RecursiveTransform(shortest_default).transform(&mut schema);
    let root = schema.ensure_object();
    by_type(root);
    root.insert("$id".into(), "https://draftscope.invalid/trace.schema.json".into());
    root.insert(
        "title".into(),
        format!("One line of a draftscope trace (.dscope.jsonl), format {TRACE_VERSION}").into(),
    );
    root.insert(
        "description".into(),
        "Generated from the types. Unknown types and unknown fields are allowed: a newer program may write them, and \
         readers skip them."
            .into(),
    );
    schema.to_value()
}

/// Removes null from fields that may be absent, since this program omits them, and makes fields that were added later
/// optional.
fn optional_is_never_null(schema: &mut Schema) {
    let Some(object) = schema.as_object_mut() else { return };
    let mut required = object.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    let Some(Value::Object(properties)) = object.get_mut("properties") else { return };
    for (name, property) in properties {
        let Some(property) = property.as_object_mut() else { continue };
        if property.remove(ADDED_LATER).is_some() {
            required.retain(|key| key != name);
        } else if !required.contains(&json!(name)) {
            drop_null(property);
        }
    }
    if object.contains_key("required") {
        object.insert("required".into(), required.into());
    }
}

fn drop_null(property: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = property.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            property.insert("type".into(), only);
        }
    }
    let choices = property.get("anyOf").and_then(Value::as_array).cloned().unwrap_or_default();
    if let [Value::Object(only), null] = choices.as_slice()
        && *null == json!({ "type": "null" })
    {
        property.remove("anyOf");
        property.extend(only.clone());
    }
}

/// Removes rustdoc's link syntax from descriptions.
fn without_links(schema: &mut Schema) {
    if let Some(Value::String(text)) = schema.get_mut("description") {
        while let Some(at) = text.find("`](") {
            let len = text[at..].find(')').map_or(3, |len| len + 1);
            text.replace_range(at + 1..at + len, "");
        }
        *text = text.replace("[`", "`").replace("`]", "`").replace("`super::", "`");
    }
}

/// Writes the default of an `f32` field with the fewest digits that identify it.
fn shortest_default(schema: &mut Schema) {
    if schema.get("format").is_some_and(|format| format == "float")
        && let Some(default) = schema.get_mut("default")
        && let Some(number) = default.as_f64()
    {
        *default = serde_json::from_str(&format!("{:?}", number as f32)).unwrap_or(Value::Null);
    }
}

/// Replaces the list of alternatives by one condition per type: an unknown type is then valid, and a validator reports
/// the wrong field rather than all types.
fn by_type(root: &mut Map<String, Value>) {
    let Some(Value::Array(kinds)) = root.remove("oneOf") else { return };
    root.insert("allOf".into(), kinds.into_iter().filter_map(condition).collect());
    if let Some(Value::Object(properties)) = root.get_mut("properties") {
        properties.insert("type".into(), json!({ "description": "What happened.", "type": "string" }));
    }
    if let Some(Value::Array(required)) = root.get_mut("required") {
        required.push("type".into());
    }
    of_plugins(root);
}

/// What only the plugin of an engine sends: the request of a line, and the number of rounds that it left out.
fn of_plugins(root: &mut Map<String, Value>) {
    if let Some(Value::Object(properties)) = root.get_mut("properties") {
        let request = json!({
            "description": "From the plugin of an attached engine: the request that the line belongs to.",
            "type": "string",
            "maxLength": 256,
        });
        properties.insert("request".into(), request);
    }
    let dropped = json!({
        "description": "From the plugin of an attached engine: rounds were left out, because nobody read them fast enough.",
        "properties": {
            "rounds": { "description": "How many since it started.", "type": "integer", "minimum": 0 },
        },
        "required": ["rounds"],
    });
    if let Some(Value::Array(kinds)) = root.get_mut("allOf") {
        kinds.push(json!({ "if": { "properties": { "type": { "const": "dropped" } } }, "then": dropped }));
    }
}

/// The condition of one type; none for the placeholder of unknown types.
fn condition(mut kind: Value) -> Option<Value> {
    let tag = kind["properties"].as_object_mut()?.remove("type")?["const"].take();
    kind["required"].as_array_mut()?.retain(|name| name != "type");
    let kind = kind.as_object_mut()?;
    kind.retain(|_, value| !matches!(value.as_array(), Some(list) if list.is_empty()) && *value != json!({}));
    (tag != "unknown").then(|| json!({ "if": { "properties": { "type": { "const": tag } } }, "then": kind }))
}

#[test]
fn the_schema_is_what_the_types_say() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/trace.schema.json");
    let generated = of_line();
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(path, serde_json::to_string_pretty(&generated).unwrap() + "\n").unwrap();
    }
    let published: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert!(
        published == generated,
        "docs/trace.schema.json does not match the types; generate it again with \
         `UPDATE_SCHEMA=1 cargo test -p draftscope-protocol the_schema_is_what_the_types_say`"
    );
}
