//! Fields that are read as far as they can be: one that has another type than expected is left out, and hides no other one.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A field, or its default if it is null or has another type.
///
/// # Errors
/// Only for what is no JSON at all.
pub(super) fn field<'de, D: Deserializer<'de>, T: DeserializeOwned + Default>(data: D) -> Result<T, D::Error> {
    let value = Value::deserialize(data)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

/// A text: as it is, as a number, or the texts of a list of parts.
///
/// # Errors
/// Only for what is no JSON at all.
pub(super) fn text<'de, D: Deserializer<'de>>(data: D) -> Result<String, D::Error> {
    Ok(text_of(&Value::deserialize(data)?, DEPTH))
}

/// How deep parts of a text are looked into.
const DEPTH: usize = 8;

fn text_of(value: &Value, depth: usize) -> String {
    let Some(deeper) = depth.checked_sub(1) else { return String::new() };
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Array(parts) => parts.iter().map(|part| text_of(part, deeper)).collect(),
        Value::Object(part) => {
            let held = ["text", "content", "parts", "value"].iter().filter_map(|name| part.get(*name)).next();
            held.map_or_else(String::new, |held| text_of(held, deeper))
        }
        Value::Null | Value::Bool(_) => String::new(),
    }
}

/// A count, also as a number with a fraction or as text; 0 if it is neither.
///
/// # Errors
/// Only for what is no JSON at all.
pub(super) fn count<'de, D: Deserializer<'de>>(data: D) -> Result<u64, D::Error> {
    let value = Value::deserialize(data)?;
    let number = value.as_u64().or_else(|| value.as_f64().filter(|n| *n >= 0.0).map(|n| n as u64));
    Ok(number.or_else(|| value.as_str()?.trim().parse().ok()).unwrap_or(0))
}

/// A number; NaN if there is none.
///
/// # Errors
/// Only for what is no JSON at all.
pub(super) fn number<'de, D: Deserializer<'de>>(data: D) -> Result<f64, D::Error> {
    Ok(Value::deserialize(data)?.as_f64().unwrap_or(f64::NAN))
}

/// A list without the entries that cannot be read.
///
/// # Errors
/// Only for what is no JSON at all.
pub(super) fn entries<'de, D: Deserializer<'de>, T: DeserializeOwned>(data: D) -> Result<Vec<T>, D::Error> {
    let list = match Value::deserialize(data)? {
        Value::Array(list) => list,
        _ => Vec::new(),
    };
    Ok(list.into_iter().filter_map(|entry| serde_json::from_value(entry).ok()).collect())
}
