//! Which proxy leads to a server: `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`, as curl reads them.
//!
//! The lower-case form of a variable comes first. `HTTPS_PROXY` is for https addresses, `HTTP_PROXY` for http addresses,
//! `ALL_PROXY` for both. `NO_PROXY` lists hosts that are reached directly: names with their subdomains, addresses, networks
//! such as `10.0.0.0/8`, each with or without a port, or `*`. This machine is always reached directly.

use std::net::IpAddr;

use ureq::Proxy;
use ureq::http::Uri;

use super::error::HttpError;

/// Most entries of `NO_PROXY` that are read.
const MAX_ENTRIES: usize = 1024;

/// A proxy, and how messages name it.
#[derive(Clone)]
pub(super) struct Route {
    pub(super) proxy: Proxy,
    /// Host and port, and the variable that names it.
    pub(super) name: String,
}

/// The proxy for an address, as the environment sets it; none if the server is reached directly.
///
/// # Errors
/// [`HttpError::Proxy`] for a proxy that cannot be used.
pub(super) fn route(to: &Uri) -> Result<Option<Route>, HttpError> {
    route_by(to, |name| std::env::var(name).ok())
}

/// Whether a proxy leads to this address.
#[must_use]
pub fn has_proxy(url: &str) -> bool {
    url.parse().is_ok_and(|uri| !matches!(route(&uri), Ok(None)))
}

fn route_by(to: &Uri, variable: impl Fn(&str) -> Option<String>) -> Result<Option<Route>, HttpError> {
    let set = |name: &'static str| {
        let forms = [name.to_ascii_lowercase(), name.to_owned()];
        forms.into_iter().find_map(|form| Some((variable(&form).filter(|value| !value.trim().is_empty())?, form)))
    };
    let (own, port) = if to.scheme_str() == Some("https") { ("HTTPS_PROXY", 443) } else { ("HTTP_PROXY", 80) };
    let host = to.host().unwrap_or_default().trim_matches(['[', ']']).trim_end_matches('.').to_ascii_lowercase();
    let excluded = || set("NO_PROXY").is_some_and(|(list, _)| lists(&list, &host, to.port_u16().unwrap_or(port)));
    let Some((value, name)) = set(own).or_else(|| set("ALL_PROXY")).filter(|_| !is_local(&host) && !excluded()) else {
        return Ok(None);
    };
    let refused = |why: &str| HttpError::Proxy { variable: name.clone(), why: why.to_owned() };
    let scheme = value.split_once("://").map_or("http", |(scheme, _)| scheme).to_ascii_lowercase();
    match scheme.as_str() {
        "http" | "https" => {}
        scheme if scheme.starts_with("socks") => return Err(refused("a SOCKS proxy, which is not supported")),
        _ => return Err(refused("no http or https address")),
    }
    let server = value.trim().trim_end_matches('/');
    if server.eq_ignore_ascii_case("http:") || server.eq_ignore_ascii_case("https:") {
        return Err(refused("no address of a proxy"));
    }
    let proxy = Proxy::new(server).map_err(|_| refused("no address of a proxy"))?;
    let name = format!("{}:{} ({name})", proxy.host(), proxy.port());
    Ok(Some(Route { proxy, name }))
}

/// Whether a host is this machine, which no proxy reaches.
fn is_local(host: &str) -> bool {
    let address: Option<IpAddr> = host.parse().ok();
    host == "localhost" || host.ends_with(".localhost") || address.is_some_and(|address| address.is_loopback())
}

/// Whether a list of `NO_PROXY` has the host, in lower case, at this port.
fn lists(list: &str, host: &str, port: u16) -> bool {
    let entries = list.split([',', ' ', '\t', '\n']).map(str::trim).filter(|entry| !entry.is_empty());
    entries.take(MAX_ENTRIES).any(|entry| {
        let (name, own_port) = name_and_port(entry);
        own_port.is_none_or(|own| own.parse() == Ok(port)) && names(&name.to_ascii_lowercase(), host)
    })
}

/// `host:port` → both; the colons of an IPv6 address are no port unless it is in brackets.
fn name_and_port(entry: &str) -> (&str, Option<&str>) {
    if let Some((name, rest)) = entry.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return (name, rest.strip_prefix(':'));
    }
    match entry.rsplit_once(':') {
        Some((name, port)) if !name.contains(':') => (name, Some(port)),
        _ => (entry, None),
    }
}

/// Whether an entry without its port names a host: itself, or a domain or network that it is in.
fn names(entry: &str, host: &str) -> bool {
    if entry == "*" {
        return true;
    }
    if let Ok(address) = host.parse::<IpAddr>() {
        return match entry.split_once('/') {
            Some((network, bits)) => is_in(address, network, bits).unwrap_or(false),
            None => entry.parse() == Ok(address),
        };
    }
    let domain = entry.trim_start_matches('*').trim_matches('.');
    let rest = if domain.is_empty() { None } else { host.strip_suffix(domain) };
    rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// Whether an address is in a network; none if it is not written as one.
fn is_in(address: IpAddr, network: &str, bits: &str) -> Option<bool> {
    let (network, bits): (IpAddr, u32) = (network.parse().ok()?, bits.parse().ok()?);
    match (address, network) {
        (IpAddr::V4(address), IpAddr::V4(network)) => {
            let rest = 32u32.checked_sub(bits)?;
            Some(address.to_bits().checked_shr(rest) == network.to_bits().checked_shr(rest))
        }
        (IpAddr::V6(address), IpAddr::V6(network)) => {
            let rest = 128u32.checked_sub(bits)?;
            Some(address.to_bits().checked_shr(rest) == network.to_bits().checked_shr(rest))
        }
        _ => Some(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Name of the proxy for an address in this environment.
    fn via(url: &str, set: &[(&str, &str)]) -> Option<String> {
        let variable = |name: &str| set.iter().find(|(own, _)| *own == name).map(|(_, value)| (*value).to_owned());
        route_by(&url.parse().unwrap(), variable).unwrap().map(|route| route.name)
    }

    #[test]
    fn each_scheme_has_its_variable_and_lower_case_comes_first() {
        let set = [("HTTP_PROXY", "http://p:1"), ("HTTPS_PROXY", "http://u:secret@s:2/"), ("ALL_PROXY", "a:3")];
        assert_eq!(via("http://x", &set).unwrap(), "p:1 (HTTP_PROXY)");
        assert_eq!(via("https://x", &set).unwrap(), "s:2 (HTTPS_PROXY)");
        assert_eq!(via("https://x", &set[..1]), None);
        assert_eq!(via("https://x", &set[2..]).unwrap(), "a:3 (ALL_PROXY)");
        assert_eq!(via("http://x", &[("HTTP_PROXY", "p:1"), ("http_proxy", "q:2")]).unwrap(), "q:2 (http_proxy)");
        assert_eq!(via("http://x", &[("http_proxy", ""), ("HTTP_PROXY", "p")]).unwrap(), "p:80 (HTTP_PROXY)");
        assert_eq!(via("http://x", &[]), None);
    }

    #[test]
    fn hosts_of_no_proxy_and_this_machine_are_reached_directly() {
        let direct = |url: &str, list: &str| {
            via(url, &[("http_proxy", "p:1"), ("https_proxy", "p:1"), ("NO_PROXY", list)]).is_none()
        };
        for (url, list) in [
            ("http://host:8000", "host"),
            ("http://host:8000", "*"),
            ("http://host:8000", ".example.org,host:8000"),
            ("http://HOST.", "a, Host"),
            ("https://a.b.example.org", "example.org"),
            ("https://a.b.example.org", ".example.org"),
            ("https://a.example.org", "*.example.org"),
            ("https://example.org", ".example.org:443"),
            ("http://10.1.2.3", "10.0.0.0/8"),
            ("http://10.1.2.3:81", "x 10.1.2.3:81"),
            ("http://[fd00::1]:81", "fd00::/8"),
            ("http://[fd00::1]:81", "[fd00::1]:81"),
            ("http://[fd00::1]", "fd00::1"),
            ("http://1.2.3.4", "0.0.0.0/0"),
            ("http://localhost:1", ""),
            ("http://a.localhost", ""),
            ("http://127.8.8.8", ""),
            ("http://[::1]:81", ""),
        ] {
            assert!(direct(url, list), "{url} with {list}");
        }
        for (url, list) in [
            ("http://host:8000", ""),
            ("http://host:8000", "host:80"),
            ("http://host", "ost,hos,host.org,."),
            ("https://badexample.org", "example.org"),
            ("http://11.1.2.3", "10.0.0.0/8,10.0.0.0/99,10.0.0.0/x,fd00::/8"),
            ("http://110.1.2.3", "10.1.2.3"),
            ("http://[fd00::1]:81", "[fd00::1]:82,fd00"),
            ("http://127.example.org", ""),
        ] {
            assert!(!direct(url, list), "{url} with {list}");
        }
    }

    #[test]
    fn a_proxy_that_cannot_be_used_is_named_by_its_variable_without_its_password() {
        for value in ["socks5://u:secret@p:1", "ftp://u:secret@p", "http://u:secret@:x y"] {
            let set = |name: &str| (name == "HTTPS_PROXY").then(|| value.to_owned());
            let error = route_by(&"https://x".parse().unwrap(), set).err().unwrap().to_string();
            assert!(error.contains("HTTPS_PROXY") && !error.contains("secret"), "{error}");
        }
    }
}
