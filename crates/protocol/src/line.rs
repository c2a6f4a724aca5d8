//! Reads an event from its line.
//!
//! Invariant: it reads what `serde` writes of an [`Event`], with keys in any order, and skips unknown keys. Derived
//! code would buffer a tagged enum before it reads the fields. This code reads the tag first and then the fields
//! directly, because a trace may have a million lines.

use std::borrow::Cow;

use serde::de::value::{EnumAccessDeserializer, StrDeserializer};
use serde::de::{DeserializeSeed, EnumAccess, Error as _, IgnoredAny, VariantAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Error;

use super::event::{Event, EventKind, Kind};
use super::lane::Lane;

/// The fields that every line has besides its payload.
#[derive(Debug, PartialEq, Eq, Deserialize)]
pub struct Head<'a> {
    /// Its number.
    pub seq: u64,
    /// Its time, in µs since the start of the run.
    pub at_us: u64,
    /// None for a lane of a newer version.
    #[serde(default = "own_lane", deserialize_with = "lane")]
    pub lane: Option<Lane>,
    /// Name of its type.
    #[serde(rename = "type", borrow)]
    pub kind: Cow<'a, str>,
}

impl<'a> Head<'a> {
    /// Reads the head of any line; fast if its keys have the order in which this program writes them.
    ///
    /// # Errors
    /// When the line is not a JSON object with these fields.
    pub fn of(line: &'a str) -> Result<Self, Error> {
        let is_whole = |head: &Self| head.lane != own_lane() || !line.contains("\"lane\"");
        Self::quick(line).filter(is_whole).map_or_else(|| serde_json::from_str(line), Ok)
    }

    /// Reads only up to `type`: it misses a lane after that.
    pub fn quick(line: &'a str) -> Option<Self> {
        let (seq, rest) = number(line.strip_prefix("{\"seq\":")?)?;
        let (at_us, rest) = number(rest.strip_prefix(",\"at_us\":")?)?;
        let beside = [(Lane::Plain, ",\"lane\":\"plain\""), (Lane::Rival, ",\"lane\":\"rival\"")];
        let found = beside.iter().find_map(|(lane, text)| Some((*lane, rest.strip_prefix(text)?)));
        let (lane, rest) = found.unwrap_or((Lane::Speculative, rest));
        let rest = rest.strip_prefix(",\"type\":\"")?;
        let len = rest.bytes().position(|byte| !byte.is_ascii_lowercase() && byte != b'_')?;
        rest[len..].starts_with('"').then(|| Self { seq, at_us, lane: Some(lane), kind: Cow::Borrowed(&rest[..len]) })
    }
}

const fn own_lane() -> Option<Lane> {
    Some(Lane::Speculative)
}

/// A lane by its name; none for a name that this version does not know.
fn lane<'a, D: Deserializer<'a>>(json: D) -> Result<Option<Lane>, D::Error> {
    let name = Cow::<'a, str>::deserialize(json)?;
    Ok(Lane::ALL.iter().copied().find(|lane| lane.name() == name))
}

/// A number in the syntax of JSON, and the rest of the text.
fn number(text: &str) -> Option<(u64, &str)> {
    let len = text.bytes().position(|byte| !byte.is_ascii_digit())?;
    let (digits, rest) = text.split_at(len);
    let is_json = digits == "0" || !digits.starts_with('0');
    Some((digits.parse().ok().filter(|_| is_json)?, rest))
}

impl Event {
    /// The event of a line of a trace.
    ///
    /// # Errors
    /// When the line is not an event. An unknown kind or lane is no error: it gives [`EventKind::Unknown`].
    pub fn of_line(line: &[u8]) -> Result<Self, Error> {
        let line = std::str::from_utf8(line).map_err(Error::custom)?;
        let head = Head::of(line)?;
        let Some(lane) = head.lane else {
            let kind =
                Tagged { kind: "", line }.read(|json| IgnoredAny::deserialize(json).map(|_| EventKind::Unknown))?;
            return Ok(Self { seq: head.seq, at_us: head.at_us, lane: Lane::default(), kind });
        };
        let tagged = Tagged { kind: &head.kind, line };
        let kind = Kind::deserialize(EnumAccessDeserializer::new(tagged))?;
        Ok(Self { seq: head.seq, at_us: head.at_us, lane, kind })
    }
}

/// A line whose kind is known.
struct Tagged<'a> {
    kind: &'a str,
    line: &'a str,
}

impl<'a> Tagged<'a> {
    /// Reads the whole line as one value.
    fn read<T>(
        self,
        as_value: impl FnOnce(&mut serde_json::Deserializer<serde_json::de::StrRead<'a>>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut json = serde_json::Deserializer::from_str(self.line);
        let value = as_value(&mut json)?;
        json.end()?;
        Ok(value)
    }
}

impl<'a> EnumAccess<'a> for Tagged<'a> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'a>>(self, seed: V) -> Result<(V::Value, Self), Error> {
        Ok((seed.deserialize(StrDeserializer::<Error>::new(self.kind))?, self))
    }
}

impl<'a> VariantAccess<'a> for Tagged<'a> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        self.read(|json| IgnoredAny::deserialize(json).map(drop))
    }

    fn newtype_variant_seed<T: DeserializeSeed<'a>>(self, seed: T) -> Result<T::Value, Error> {
        self.read(|json| seed.deserialize(json))
    }

    fn tuple_variant<V: Visitor<'a>>(self, _: usize, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("an event is not a list"))
    }

    fn struct_variant<V: Visitor<'a>>(self, fields: &'static [&'static str], visitor: V) -> Result<V::Value, Error> {
        self.read(|json| serde::Deserializer::deserialize_struct(json, "event", fields, visitor))
    }
}

#[cfg(test)]
mod tests {
    use super::super::StopReason;
    use super::*;

    #[test]
    fn keys_may_stand_in_any_order_and_unknown_ones_are_skipped() {
        let lines = [
            r#"{"seq":7,"at_us":9,"lane":"plain","type":"finished","reason":"eos"}"#,
            r#" { "type" : "finished", "x": [1, {"y": null}], "reason":"eos", "lane":"plain", "at_us":9, "seq": 7 } "#,
            r#"{"seq":7,"at_us":9,"lane":"plain","type":"fin\u0069shed","reason":"eos"}"#,
            r#"{"seq":7,"at_us":9,"type":"finished","reason":"eos","lane":"plain"}"#,
        ];
        let kind = EventKind::Finished { reason: StopReason::Eos };
        let expected = Event { seq: 7, at_us: 9, lane: Lane::Plain, kind };
        for line in &lines[..3] {
            assert_eq!(Event::of_line(line.as_bytes()).unwrap(), expected, "{line}");
        }
        let rival = lines[0].replace("plain", "rival");
        assert_eq!(Event::of_line(rival.as_bytes()).unwrap(), Event { lane: Lane::Rival, ..expected.clone() });
        // the fast reader must not miss a lane after `type`
        assert_eq!(Event::of_line(lines[3].as_bytes()).unwrap(), expected);
    }

    #[test]
    fn lines_that_are_not_events_are_errors() {
        for line in [
            "",
            "{}",
            "null",
            r#"{"seq":7,"at_us":9,"type":"paused""#,
            r#"{"seq":7,"at_us":9,"type":"paused"} x"#,
            r#"{"seq":7,"at_us":9,"type":"never_heard_of","x":}"#,
            r#"{"seq":-7,"at_us":9,"type":"paused"}"#,
            r#"{"seq":07,"at_us":9,"type":"paused"}"#,
            r#"{"seq":99999999999999999999,"at_us":9,"type":"paused"}"#,
            r#"{"seq":7,"at_us":9,"type":"finished"}"#,
            r#"{"seq":7,"at_us":9,"type":"drafted","round":1,"index":0,"token":{"id":1},"top":{"top":[{"id":1}],"tail":0},"took_us":1}"#,
        ] {
            assert!(Event::of_line(line.as_bytes()).is_err(), "{line}");
        }
        assert!(Event::of_line(b"{\"seq\":7,\"at_us\":9,\"type\":\"notice\",\"message\":\"\xff\"}").is_err());
    }
}
