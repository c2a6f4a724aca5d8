//! The secrets that a client sends, and how they are kept out of what a server says.
//!
//! Invariant: text of a server that goes through [`Secrets::mask`] holds no secret of this client as it was sent, nor as
//! base64, URL-encoded, hexadecimal or with JSON escapes. A server that spreads a secret over several lines is not caught.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};

/// What stands in a secret's place.
pub const MASK: &str = "***";

/// Shorter values are no secrets, and occur in every text.
const SHORTEST: usize = 3;

/// Shorter secrets are masked as whole words only, since they occur within other words.
const WORD: usize = 8;

/// Every form of every secret, the longest first.
#[derive(Default)]
pub(super) struct Secrets {
    forms: Vec<String>,
}

impl Secrets {
    /// The secrets in these headers: their values, without the scheme before them.
    pub(super) fn of(headers: &[(String, String)]) -> Self {
        let secrets = headers.iter().flat_map(|(_, value)| parts(value));
        let mut forms: Vec<String> =
            secrets.filter(|secret| secret.len() >= SHORTEST).flat_map(|secret| forms(&secret)).collect();
        forms.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        forms.dedup();
        Self { forms }
    }

    /// The text with [`MASK`] in place of each secret.
    pub(super) fn mask(&self, text: String) -> String {
        if self.forms.is_empty() {
            return text;
        }
        let plain = unescaped(&text);
        let mut masked = match plain {
            // escapes are kept where they hide nothing
            Cow::Owned(plain) if self.forms.iter().any(|form| find(&plain, form).is_some()) => plain,
            _ => text,
        };
        for form in &self.forms {
            if let Some(first) = find(&masked, form) {
                masked = replaced(&masked, form, first);
            }
        }
        masked
    }
}

/// The secrets of a header's value: what follows the scheme, and of basic credentials the decoded text and the password.
fn parts(value: &str) -> Vec<String> {
    let value = value.trim();
    let is_scheme = |word: &str| word.chars().all(|c| c.is_ascii_alphabetic() || c == '-');
    let secret = match value.split_once(' ') {
        Some((scheme, rest)) if is_scheme(scheme) => rest.trim(),
        _ => value,
    };
    let mut all = vec![secret.to_owned()];
    let is_basic = value.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("basic "));
    if is_basic && let Some(decoded) = STANDARD.decode(secret).ok().and_then(|bytes| String::from_utf8(bytes).ok()) {
        all.extend(decoded.split_once(':').map(|(_, password)| password.to_owned()));
        all.push(decoded);
    }
    all
}

/// A secret as it was sent, and in other notations.
fn forms(secret: &str) -> Vec<String> {
    let mut all = vec![secret.to_owned()];
    let json = serde_json::Value::from(secret).to_string();
    all.push(json.trim_matches('"').to_owned());
    for kept in ["-_.~", "-_.~!'()*", "-_.~!'()*/:@$&+,;="] {
        let upper = percent(secret, kept);
        all.push(upper.replace("%20", "+"));
        all.push(lower_escapes(&upper));
        all.push(upper);
    }
    let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
    all.extend([hex.to_uppercase(), hex]);
    for core in (0..3).flat_map(|before| base64_cores(secret, before)) {
        all.push(percent(&core, "-_.~"));
        all.push(core);
    }
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

fn percent(text: &str, kept: &str) -> String {
    let mut all = String::new();
    for byte in text.bytes() {
        match char::from(byte) {
            c if c.is_ascii_alphanumeric() || kept.contains(c) => all.push(c),
            _ => all.push_str(&format!("%{byte:02X}")),
        }
    }
    all
}

/// The same with escapes in small letters.
fn lower_escapes(text: &str) -> String {
    let mut parts = text.split('%');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| {
        let (hex, rest) = part.split_at(part.len().min(2));
        format!("{all}%{}{rest}", hex.to_lowercase())
    })
}

/// The text with JSON's escapes of printable ASCII characters resolved, which changes no JSON text's meaning.
fn unescaped(text: &str) -> Cow<'_, str> {
    if !text.contains("\\u00") && !text.contains("\\/") {
        return Cow::Borrowed(text);
    }
    let (mut all, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        all.push_str(before);
        let code = escape.get(1..6).and_then(|code| code.strip_prefix('u'));
        let code = code.and_then(|code| u8::from_str_radix(code.strip_prefix("00")?, 16).ok());
        let len = match code.map(char::from) {
            Some(c) if matches!(c, ' '..='~') && !matches!(c, '"' | '\\') => {
                all.push(c);
                6
            }
            _ if escape.starts_with("\\/") => {
                all.push('/');
                2
            }
            _ => {
                let len = 1 + escape[1..].chars().next().map_or(0, char::len_utf8);
                all.push_str(&escape[..len]);
                len
            }
        };
        rest = &escape[len..];
    }
    all.push_str(rest);
    Cow::Owned(all)
}

/// Where a form stands. A short one counts as a whole word, and not as the name of a field.
fn find(text: &str, form: &str) -> Option<usize> {
    if form.len() >= WORD {
        return text.find(form);
    }
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let stands = |at: &usize| {
        let after = &text[at + form.len()..];
        !text[..*at].chars().next_back().is_some_and(is_word)
            && !after.chars().next().is_some_and(is_word)
            && !after.strip_prefix('"').is_some_and(|rest| rest.trim_start().starts_with(':'))
    };
    text.match_indices(form).map(|(at, _)| at).find(stands)
}

fn replaced(text: &str, form: &str, first: usize) -> String {
    let (mut all, mut rest, mut next) = (String::with_capacity(text.len()), text, Some(first));
    while let Some(at) = next {
        all.push_str(&rest[..at]);
        all.push_str(MASK);
        rest = &rest[at + form.len()..];
        next = find(rest, form);
    }
    all.push_str(rest);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(value: &str) -> Secrets {
        Secrets::of(&[("authorization".to_owned(), value.to_owned())])
    }

    #[test]
    fn every_notation_of_a_secret_is_masked() {
        let key = "sk/Ab+c\"d=1234";
        let secrets = secrets(&format!("Bearer {key}"));
        let before = |n: usize| STANDARD.encode([&b"abcdef"[..n], key.as_bytes(), b"rest"].concat());
        let texts = [
            format!("bad key {key}!"),
            serde_json::json!({ "message": format!("Authorization: Bearer {key}") }).to_string(),
            format!("k={}", percent(key, "-_.~")),
            format!("k={}", lower_escapes(&percent(key, "-_.~"))),
            format!("k={}", percent(key, "-_.~/:=+")),
            before(0),
            before(1),
            before(2),
            before(3),
            URL_SAFE.encode(key),
            format!("{{\"m\":\"{}\"}}", "sk\\/\\u0041b\\u002bc\\\"d=1234"),
            key.bytes().map(|byte| format!("{byte:02x}")).collect(),
        ];
        for text in texts {
            let masked = secrets.mask(text.clone());
            assert!(masked.contains(MASK), "{text} -> {masked}");
            assert!(!masked.contains("b+c") && !masked.contains("1234"), "{text} -> {masked}");
        }
    }

    #[test]
    fn what_holds_no_secret_stays_as_it_is() {
        let long = secrets("Bearer SECRETKEY123");
        for text in ["", "SECRETKEY12", "a \\u0041 \\/ b", "日本語 \\n"] {
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
    fn basic_credentials_are_masked_whole_and_decoded() {
        let basic = secrets(&format!("Basic {}", STANDARD.encode("anna:correct horse")));
        let said = format!("no {} / anna:correct horse / correct horse", STANDARD.encode("anna:correct horse"));
        assert_eq!(basic.mask(said), "no *** / *** / ***");
    }
}
