//! Addresses of servers as people write them: without a scheme, with the `/v1` of OpenAI's clients, with a route copied.

/// Routes that may stand at the end of a copied address, the longest of each kind first.
const ROUTES: &[&str] = &[
    "/chat/completions",
    "/completions",
    "/completion",
    "/responses",
    "/embeddings",
    "/models",
    "/props",
    "/slots",
    "/metrics",
    "/health",
    "/tokenize",
    "/apply-template",
    "/index.html",
    "/docs",
];

/// The address that the routes of a server follow: with a scheme, without `/v1` and without a route.
///
/// `http://` is meant where no scheme stands, but for port 443, and this machine where a port stands alone.
#[must_use]
pub fn base(address: &str) -> String {
    let address = address.trim();
    let address = address.split_once('#').map_or(address, |(before, _)| before);
    // a port alone is one of this machine
    let port = address.strip_prefix(':').unwrap_or(address);
    let is_port = port.split('/').next().is_some_and(|port| port.parse::<u16>().is_ok());
    let local = is_port.then(|| format!("localhost:{port}"));
    let address = local.as_deref().unwrap_or(address);
    let mut whole = match address.contains("://") {
        true => address.to_owned(),
        false if address.split('/').next().is_some_and(|host| host.ends_with(":443")) => format!("https://{address}"),
        false => format!("http://{address}"),
    };
    let from = whole.find("://").map_or(0, |at| at + 3);
    loop {
        let path = &whole[from..];
        let Some(slash) = path.find('/') else { break };
        let shorter = path.strip_suffix('/').or_else(|| ROUTES.iter().find_map(|route| path.strip_suffix(route)));
        match shorter {
            Some(shorter) if shorter.len() >= slash => whole.truncate(from + shorter.len()),
            _ => break,
        }
    }
    let path = &whole[from..];
    let without = path.strip_suffix("/v1").filter(|host| !host.is_empty()).map(str::len);
    if let Some(len) = without {
        whole.truncate(from + len);
    }
    whole
}

/// A path that names the model in its query, as routers read it from requests without a body.
pub(super) fn with_model(path: &str, model: &str) -> String {
    let mut query = format!("{path}?model=");
    for byte in model.bytes() {
        match char::from(byte) {
            c if c.is_ascii_alphanumeric() || "-_.~".contains(c) => query.push(c),
            _ => query.push_str(&format!("%{byte:02X}")),
        }
    }
    query
}

#[cfg(test)]
mod tests {
    use super::base;

    #[test]
    fn schemes_are_added_and_routes_left_out() {
        for (written, meant) in [
            ("http://h:1", "http://h:1"),
            ("http://h:1/", "http://h:1"),
            ("http://h:1/v1", "http://h:1"),
            ("http://h:1/v1/", "http://h:1"),
            ("http://h:1/v1/chat/completions", "http://h:1"),
            ("http://h:1/v1/chat/completions/", "http://h:1"),
            ("http://h:1/v1/models", "http://h:1"),
            ("http://h:1/completion", "http://h:1"),
            ("http://h:1/#/chat/7", "http://h:1"),
            ("https://h/llm/v1", "https://h/llm"),
            ("https://h/v1beta/openai/", "https://h/v1beta/openai"),
            ("https://h/models/v1", "https://h/models"),
            (" h:8080 ", "http://h:8080"),
            ("localhost:8080/v1", "http://localhost:8080"),
            ("[::1]:8080", "http://[::1]:8080"),
            ("api.example:443/v1", "https://api.example:443"),
            ("h", "http://h"),
            (":8080", "http://localhost:8080"),
            ("8080/v1", "http://localhost:8080"),
            ("http://h:1/docs", "http://h:1"),
            ("v1", "http://v1"),
            ("ftp://x", "ftp://x"),
        ] {
            assert_eq!(base(written), meant, "{written}");
        }
    }
}
