//! Where a redirect leads.
//!
//! Invariant: the result is an absolute http or https address without credentials, and never leads from https to http.

use ureq::http::Uri;

/// The address that an answer of `from` with this `location` redirects to.
///
/// # Errors
/// Why the redirect cannot be followed, as the predicate of a sentence.
pub(super) fn target(from: &Uri, location: Option<&str>) -> Result<Uri, &'static str> {
    let to = location.map(str::trim).filter(|to| !to.is_empty()).ok_or("redirects and names no address")?;
    let to = to.split('#').next().unwrap_or_default();
    let bad = "redirects to an address that cannot be used";
    let uri: Uri = absolute(from, to).parse().map_err(|_| bad)?;
    let authority = uri.authority().ok_or(bad)?;
    if authority.as_str().contains('@') {
        return Err(bad);
    }
    match (from.scheme_str(), uri.scheme_str()) {
        (Some("https"), Some("http")) => Err("redirects from https to http, which is not followed"),
        (_, Some("http" | "https")) => Ok(uri),
        _ => Err(bad),
    }
}

/// Whether both addresses are on one server: only there are credentials sent.
pub(super) fn is_same_server(a: &Uri, b: &Uri) -> bool {
    a.scheme_str() == b.scheme_str() && a.authority().is_some() && a.authority() == b.authority()
}

/// A reference, taken from an address.
fn absolute(from: &Uri, to: &str) -> String {
    let scheme = from.scheme_str().unwrap_or("http");
    let server = from.authority().map_or("", |authority| authority.as_str());
    let has_scheme = to.split_once(':').is_some_and(|(scheme, _)| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.chars().all(|c| c.is_ascii_alphanumeric())
    });
    if has_scheme {
        return to.to_owned();
    }
    if to.starts_with("//") {
        return format!("{scheme}:{to}");
    }
    let folder = || from.path().rsplit_once('/').map_or("", |(folder, _)| folder);
    match to.chars().next() {
        Some('/') => format!("{scheme}://{server}{to}"),
        Some('?') => format!("{scheme}://{server}{}{to}", from.path()),
        _ => format!("{scheme}://{server}{}/{to}", folder()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_taken_from_the_address_that_sent_them() {
        let from: Uri = "https://hub:8443/a/b?x=1".parse().unwrap();
        let cases = [
            ("https://cdn/f?sig=%2F#part", Ok("https://cdn/f?sig=%2F")),
            ("//cdn/f", Ok("https://cdn/f")),
            ("/c", Ok("https://hub:8443/c")),
            ("c/d", Ok("https://hub:8443/a/c/d")),
            ("?y=2", Ok("https://hub:8443/a/b?y=2")),
            ("http://hub:8443/c", Err("redirects from https to http, which is not followed")),
            ("", Err("redirects and names no address")),
            ("https://user:secret@hub/", Err("redirects to an address that cannot be used")),
            ("file:///etc/passwd", Err("redirects to an address that cannot be used")),
            ("https://", Err("redirects to an address that cannot be used")),
            ("https://a b/", Err("redirects to an address that cannot be used")),
        ];
        for (location, expected) in cases {
            let got = target(&from, Some(location)).map(|uri| uri.to_string());
            assert_eq!(got.as_deref().map_err(|why| *why), expected, "{location}");
        }
        assert!(target(&from, None).is_err());
        let same = |a: &str, b: &str| is_same_server(&a.parse().unwrap(), &b.parse().unwrap());
        assert!(same("https://Hub/a", "https://hub/b") && !same("https://hub/", "https://hub:444/"));
        assert!(!same("https://hub/", "http://hub/") && !same("https://hub.evil/", "https://hub/"));
    }
}
