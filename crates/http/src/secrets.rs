//! The secrets that a client sends, and how they are kept out of what a server says.
//!
//! Invariant: text that went through [`Secrets::mask`] holds no secret of this client as it was sent, nor as base64 or
//! hexadecimal, nor with escapes of JSON or addresses, however these are nested. Where a text breaks off in a secret, at
//! most seven bytes of it are left. A server that spreads a secret over several lines is not caught here.

use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};

/// What stands in a secret's place.
pub const MASK: &str = "***";

/// Shorter values are no secrets, and occur in every text.
const SHORTEST: usize = 3;

/// Shorter secrets are masked as whole words only, since they occur within other words.
const WORD: usize = 8;

/// Most bytes of an escape: `\u0041`.
const ESCAPE: usize = 6;

/// Every form of every secret, the longest first.
#[derive(Default)]
pub struct Secrets {
    forms: Vec<String>,
}

impl Secrets {
    /// The secrets in these headers, each a name and a value: the values, without the scheme before them.
    #[must_use]
    pub fn of(headers: &[(String, String)]) -> Self {
        let secrets = headers.iter().flat_map(|(_, value)| parts(value));
        let mut forms: Vec<String> =
            secrets.filter(|secret| secret.len() >= SHORTEST).flat_map(|secret| forms(&secret)).collect();
        forms.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        forms.dedup();
        Self { forms }
    }

    /// The text with [`MASK`] in place of each secret.
    #[must_use]
    pub fn mask(&self, text: String) -> String {
        let found = self.find(&text);
        if found.is_empty() {
            return text;
        }
        let (mut masked, mut at) = (String::with_capacity(text.len()), 0);
        for place in found {
            masked.push_str(&text[at..place.start]);
            masked.push_str(MASK);
            at = place.end;
        }
        masked.push_str(&text[at..]);
        masked
    }

    /// Where secrets stand in a text, in bytes: in order, and apart from each other. The last one may be one that the text
    /// breaks off in, after eight bytes or more.
    #[must_use]
    pub fn find(&self, text: &str) -> Vec<Range<usize>> {
        if self.forms.last().is_none_or(|shortest| text.len() < shortest.len().min(WORD)) {
            return Vec::new();
        }
        let mut found = self.find_as_it_is(text);
        if text.contains(['\\', '%']) {
            let plain = Plain::of(text);
            let begins = |at: usize| plain.begins.get(at).map_or(text.len(), |at| *at as usize);
            let places = self.find_as_it_is(&plain.text);
            found.extend(places.into_iter().map(|place| begins(place.start)..begins(place.end)));
        }
        found.sort_by_key(|place| place.start);
        found.into_iter().fold(Vec::new(), |mut apart: Vec<Range<usize>>, place| {
            match apart.last_mut().filter(|last| place.start < last.end) {
                Some(last) => last.end = last.end.max(place.end),
                None => apart.push(place),
            }
            apart
        })
    }

    /// Whether a text that goes on may end with the beginning of a secret, by more than its first bytes: a third of it, or
    /// three bytes.
    #[must_use]
    pub fn may_begin(&self, text: &str) -> bool {
        let is_begun = |text: &str| self.begun(text).is_some();
        is_begun(text) || (text.contains(['\\', '%']) && is_begun(&Plain::of(complete(text)).text))
    }

    /// Most bytes of a text that a secret takes.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.forms.first().map_or(0, |longest| longest.len() * ESCAPE)
    }

    fn find_as_it_is(&self, text: &str) -> Vec<Range<usize>> {
        let whole = self.forms.iter().flat_map(|form| places(text, form));
        let begun = self.begun(text).filter(|at| text.len() - at >= WORD);
        whole.chain(begun.map(|at| at..text.len())).collect()
    }

    /// Where the beginning of a secret stands with which the text ends. A short secret counts also whole: what comes next
    /// says whether it is a word.
    fn begun(&self, text: &str) -> Option<usize> {
        let begun = self.forms.iter().filter_map(|form| {
            let most = if form.len() < WORD { form.len() } else { form.len() - 1 };
            let is_end = |len: &usize| form.get(..*len).is_some_and(|beginning| text.ends_with(beginning));
            let len = ((form.len() / 3).min(SHORTEST)..=most).rev().find(is_end)?;
            Some(text.len() - len)
        });
        begun.min()
    }
}

/// The secrets of a header's value: what follows the scheme, of a list such as that of a cookie also each value, and of
/// basic credentials the decoded text and the password.
fn parts(value: &str) -> Vec<String> {
    let value = value.trim();
    let is_scheme = |word: &str| word.chars().all(|c| c.is_ascii_alphabetic() || c == '-');
    let secret = match value.split_once(' ') {
        Some((scheme, rest)) if is_scheme(scheme) => rest.trim(),
        _ => value,
    };
    let mut all = vec![secret.to_owned()];
    let listed = value.split([';', ',', ' ']).filter_map(|pair| pair.split_once('='));
    let listed = listed.map(|(_, value)| value.trim_matches(['"', ' '])).filter(|value| value.len() >= WORD);
    all.extend(listed.map(str::to_owned));
    let is_basic = value.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("basic "));
    if is_basic && let Some(decoded) = STANDARD.decode(secret).ok().and_then(|bytes| String::from_utf8(bytes).ok()) {
        all.extend(decoded.split_once(':').map(|(_, password)| password.to_owned()));
        all.push(decoded);
    }
    all
}

/// A secret as it was sent, and in other notations.
fn forms(secret: &str) -> Vec<String> {
    let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
    let plain = Plain::of(secret).text;
    let mut all = vec![secret.to_owned(), plain, secret.replace(' ', "+"), hex.to_uppercase(), hex];
    all.extend((0..3).flat_map(|before| base64_cores(secret, before)));
    all.retain(|form| form.len() >= SHORTEST);
    all
}

/// The part of base64 that the secret alone decides if so many bytes stand before it, in both alphabets.
fn base64_cores(secret: &str, before: usize) -> Vec<String> {
    let bytes = [vec![0; before], secret.as_bytes().to_vec()].concat();
    let (from, to) = ((before * 8).div_ceil(6), bytes.len() * 8 / 6);
    let core = |text: String| text.get(from..to).map(str::to_owned).filter(|core| core.len() >= WORD);
    [STANDARD.encode(&bytes), URL_SAFE.encode(&bytes)].into_iter().filter_map(core).collect()
}

/// A text without the escapes of printable ASCII characters that JSON and addresses have, also where one text of this kind
/// stands in another, and without backslashes: how many of them stand before a character depends on how deep it is nested.
struct Plain {
    text: String,
    /// Where each byte begins in the text with its escapes.
    begins: Vec<u32>,
}

impl Plain {
    fn of(text: &str) -> Self {
        let (mut bytes, mut begins) = (Vec::new(), Vec::new());
        for (byte, at) in text.bytes().zip(0..) {
            bytes.push(byte);
            begins.push(at);
            while let Some((len, byte)) = last_escape(&bytes) {
                let kept = bytes.len() - len;
                bytes.truncate(kept);
                bytes.push(byte);
                begins.truncate(kept + 1);
            }
        }
        let (mut text, mut plain) = (Vec::new(), Self { text: String::new(), begins: Vec::new() });
        let mut slash = None; // where the backslashes before a byte begin
        for (byte, at) in bytes.into_iter().zip(begins) {
            let begin = *slash.get_or_insert(at);
            if byte != b'\\' {
                text.push(byte);
                plain.begins.push(begin);
                slash = None;
            }
        }
        plain.text = String::from_utf8(text).unwrap_or_default(); // only ASCII was replaced
        plain
    }
}

/// The escape with which a text ends: its length, and the character that it stands for.
fn last_escape(text: &[u8]) -> Option<(usize, u8)> {
    let character = |hex: [u8; 2]| {
        let byte = u8::from_str_radix(std::str::from_utf8(&hex).ok()?, 16).ok()?;
        (b' '..=b'~').contains(&byte).then_some(byte)
    };
    match *text {
        [.., b'%', a, b] => Some((3, character([a, b])?)),
        [.., b'\\', b'u', b'0', b'0', a, b] => Some((ESCAPE, character([a, b])?)),
        _ => None,
    }
}

/// The text without an escape at its end that is not complete.
fn complete(text: &str) -> &str {
    let Some(at) = text.rfind(['\\', '%']) else { return text };
    let len = if text[at..].starts_with('%') { 3 } else { ESCAPE };
    if text.len() - at < len { &text[..at] } else { text }
}

/// Where a form stands. A short one counts as a whole word, and not as the name of a field.
fn places<'a>(text: &'a str, form: &'a str) -> impl Iterator<Item = Range<usize>> + 'a {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let stands = move |at: &usize| {
        let after = &text[at + form.len()..];
        form.len() >= WORD
            || (!text[..*at].chars().next_back().is_some_and(is_word)
                && !after.chars().next().is_some_and(is_word)
                && !after.strip_prefix('"').is_some_and(|rest| rest.trim_start().starts_with(':')))
    };
    text.match_indices(form).map(|(at, _)| at).filter(stands).map(|at| at..at + form.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(value: &str) -> Secrets {
        Secrets::of(&[("authorization".to_owned(), value.to_owned())])
    }

    fn percent(text: &str, kept: &str) -> String {
        let coded = |c: char| {
            if c.is_ascii_alphanumeric() || kept.contains(c) { c.to_string() } else { format!("%{:02X}", u32::from(c)) }
        };
        text.chars().map(coded).collect()
    }

    /// The same with escapes in small letters.
    fn lower_escapes(text: &str) -> String {
        let mut parts = text.split('%');
        let first = parts.next().unwrap().to_owned();
        parts.fold(first, |all, part| format!("{all}%{}{}", part[..2].to_lowercase(), &part[2..]))
    }

    #[test]
    fn every_notation_of_a_secret_is_masked() {
        let key = "sk/Ab+c\"d\\=1234";
        let secrets = secrets(&format!("Bearer {key}"));
        let before = |n: usize| STANDARD.encode([&b"abcdef"[..n], key.as_bytes(), b"rest"].concat());
        let json = serde_json::json!({ "message": format!("Authorization: Bearer {key}") }).to_string();
        let escaped: String = key.chars().map(|c| format!("\\u{:04x}", u32::from(c))).collect();
        let texts = [
            format!("bad key {key}!"),
            serde_json::json!([json, [serde_json::json!([json]).to_string()]]).to_string(),
            serde_json::json!([[format!("{{\"m\":\"{escaped}\"}}")]]).to_string(),
            format!("{{\"m\":\"{escaped}\"}}"),
            format!("k={}", percent(&percent(key, "-_.~"), "-_.~")),
            format!("k={}", percent(key, "-_.~")),
            format!("k={}", lower_escapes(&percent(key, "-_.~"))),
            format!("k={}", percent(key, "-_.~/:=+")),
            before(0),
            before(1),
            before(2),
            before(3),
            percent(&before(0), ""),
            URL_SAFE.encode(key),
            format!("{{\"m\":\"{}\"}}", "sk\\/\\u0041b\\u002bc\\u0022d\\u005c=1234"),
            key.bytes().map(|byte| format!("{byte:02x}")).collect(),
            format!("it breaks off in {}", &key[..key.len() - 1]),
            json,
        ];
        for text in texts {
            let masked = secrets.mask(text.clone());
            assert!(masked.contains(MASK), "{text} -> {masked}");
            assert!(!Plain::of(&masked).text.contains("b+c") && !masked.contains("1234"), "{text} -> {masked}");
        }
    }

    #[test]
    fn masked_json_is_json_and_other_escapes_stay() {
        let secrets = secrets("Bearer SECRETKEY123");
        let text = r#"{"a":"\u0022 \\ \/ SECRETKEY1\u00323 \u0022 \n","b":"100%25"}"#;
        assert_eq!(secrets.mask(text.to_owned()), r#"{"a":"\u0022 \\ \/ *** \u0022 \n","b":"100%25"}"#);
    }

    #[test]
    fn what_holds_no_secret_stays_as_it_is() {
        let long = secrets("Bearer SECRETKEY123");
        for text in ["", "SECRETKEY12 ", "SECRETK", "a \\u0041 \\/ b", "日本語 \\n", "%e6%97 \\u65e5 \\ %"] {
            assert_eq!(long.mask(text.to_owned()), text);
        }
        let short = secrets("Bearer model");
        assert_eq!(
            short.mask("{\"model\": \"my-models\", \"key\": \"model\"}".into()),
            "{\"model\": \"my-models\", \"key\": \"***\"}"
        );
        assert_eq!(secrets("Bearer a").mask("a b".into()), "a b", "one letter is no secret");
        assert_eq!(Secrets::default().mask("x".into()), "x");
    }

    #[test]
    fn basic_credentials_and_lists_are_masked_whole_and_in_parts() {
        let basic = secrets(&format!("Basic {}", STANDARD.encode("anna:correct horse")));
        let said = format!("no {} / anna:correct horse / correct horse", STANDARD.encode("anna:correct horse"));
        assert_eq!(basic.mask(said), "no *** / *** / ***");
        let cookie = secrets("a=1; session=\"0123456789\"; theme=dark");
        assert_eq!(cookie.mask("1 0123456789 dark".into()), "1 *** dark");
        let signed = secrets("AWS4-HMAC-SHA256 Credential=abcdefgh, Signature=ijklmnop");
        assert_eq!(signed.mask("abcdefgh ijklmnop".into()), "*** ***");
    }

    #[test]
    fn the_beginning_of_a_secret_is_noticed_after_its_first_bytes() {
        let long = secrets("Bearer SECRETKEY123");
        for (text, begins) in
            [("x SE", false), ("x SEC", true), ("SECRETKEY12", true), ("SECRETKEY123", false), ("SEX", false)]
        {
            assert_eq!(long.may_begin(text), begins, "{text}");
        }
        for text in ["SE\\u0043", "SEC\\u00", "SEC%5", "\\u0053ECRET\\"] {
            assert!(long.may_begin(text), "{text}");
        }
        let short = secrets("Bearer model");
        assert!(short.may_begin("a m") && short.may_begin("a model") && !short.may_begin("a model "));
    }

    #[test]
    fn many_secrets_and_escapes_take_time_in_proportion() {
        let secrets = secrets("Bearer SECRETKEY123");
        let text = "\\\\SECRETKEY123".repeat(100_000);
        assert_eq!(secrets.find(&text).len(), 100_000);
        assert_eq!(secrets.mask("\\".repeat(1 << 20) + "u0053ECRETKEY123"), MASK);
    }
}
