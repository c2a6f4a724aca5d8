//! Where a plugin listens: a Unix socket, or TCP on this machine's loopback.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

/// An address of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A Unix socket.
    Unix(PathBuf),
    /// A port of a loopback address.
    Tcp(SocketAddr),
}

impl FromStr for Address {
    type Err = String;

    /// Reads `unix:PATH`, a path, `tcp:HOST:PORT` or `HOST:PORT`.
    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Self::Unix(path.into()));
        }
        let is_tcp = text.starts_with("tcp:");
        let place = text.strip_prefix("tcp:").unwrap_or(text);
        let port = place.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        if !is_tcp && (text.contains('/') || !port) {
            return Ok(Self::Unix(text.into()));
        }
        let place = place.strip_prefix("localhost:").map_or(place.to_owned(), |port| format!("127.0.0.1:{port}"));
        match place.parse::<SocketAddr>() {
            Ok(address) if is_loopback(address.ip()) => Ok(Self::Tcp(address)),
            _ => Err(format!("'{text}' is no socket: give a path, or a loopback address such as 127.0.0.1:7070")),
        }
    }
}

fn is_loopback(ip: IpAddr) -> bool {
    ip.is_loopback()
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => path.display().fmt(f),
            Self::Tcp(address) => address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_loopback_ports_are_addresses() {
        let unix = |path: &str| Ok(Address::Unix(path.into()));
        assert_eq!("/run/a:1/b".parse(), unix("/run/a:1/b"));
        assert_eq!("unix:s".parse(), unix("s"));
        assert_eq!("s.sock".parse(), unix("s.sock"));
        let tcp = Ok(Address::Tcp("127.0.0.1:70".parse().unwrap()));
        for text in ["127.0.0.1:70", "tcp:127.0.0.1:70", "localhost:70"] {
            assert_eq!(text.parse(), tcp, "{text}");
        }
        assert!("tcp:[::1]:70".parse::<Address>().is_ok());
        for text in ["tcp:10.0.0.1:70", "0.0.0.0:70", "example.org:70", "tcp:x"] {
            assert!(text.parse::<Address>().unwrap_err().contains("loopback"), "{text}");
        }
    }
}
