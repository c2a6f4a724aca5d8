//! Whether a server can be reached at all, found out within seconds.
//!
//! Invariant: the time limit holds for the name lookup and all addresses together, also where a system call has none.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// Whether any address of the host accepts a connection within `limit`. The lookup and each connection
/// have their own thread, because a lookup and a series of dead addresses cannot be limited otherwise.
pub(super) fn connect(host: &str, port: u16, limit: Duration) -> Result<(), String> {
    let (sender, results) = mpsc::channel();
    let name = (host.to_owned(), port);
    let look_up = move || match name.to_socket_addrs() {
        Ok(addresses) if addresses.len() == 0 => drop(sender.send(Err("it has no address".to_owned()))),
        Ok(addresses) => addresses.take(8).for_each(|address| try_address(address, limit, sender.clone())),
        Err(error) => {
            let _ = sender.send(Err(error.to_string()));
        }
    };
    thread::Builder::new().spawn(look_up).map_err(no_thread)?;
    outcome(&results, limit)
}

/// The first connection, or the last reason why there is none.
fn outcome(results: &Receiver<Result<(), String>>, limit: Duration) -> Result<(), String> {
    let end = Instant::now() + limit;
    let mut last = None;
    loop {
        match results.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(why)) => last = Some(why),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(
                    last.unwrap_or_else(|| "asking for it ended on an internal error; please report it".to_owned())
                );
            }
            Err(RecvTimeoutError::Timeout) => return Err(format!("no connection within {} s", limit.as_secs())),
        }
    }
}

fn try_address(address: SocketAddr, limit: Duration, sender: Sender<Result<(), String>>) {
    let failed = sender.clone();
    let connect = move || {
        let opened = TcpStream::connect_timeout(&address, limit);
        let _ = sender.send(opened.map(drop).map_err(|error| error.to_string()));
    };
    if let Err(error) = thread::Builder::new().spawn(connect) {
        let _ = failed.send(Err(no_thread(error)));
    }
}

#[allow(clippy::needless_pass_by_value, reason = "it is given to map_err")]
fn no_thread(error: std::io::Error) -> String {
    format!("the system starts no thread for it: {error}")
}

/// `https://host:port/path` → host and port.
pub(super) fn host_and_port(endpoint: &str) -> Option<(String, u16)> {
    let (port, rest) = match endpoint.split_once("://")? {
        ("https", rest) => (443, rest),
        ("http", rest) => (80, rest),
        _ => return None,
    };
    let authority = rest.split(['/', '?', '#']).next()?;
    let authority = authority.rsplit('@').next()?;
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, digits)) if !digits.ends_with(']') => (host, digits.parse().ok()?),
        _ => (authority, port),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_ends_without_a_result_is_no_missing_address() {
        let (sender, results) = mpsc::channel();
        sender.send(Err("refused".to_owned())).unwrap();
        drop(sender);
        assert_eq!(outcome(&results, Duration::from_secs(9)), Err("refused".to_owned()));
        assert!(outcome(&results, Duration::from_secs(9)).unwrap_err().contains("please report it"));
    }

    #[test]
    fn endpoints_are_read_as_hosts_and_ports() {
        let cases = [
            ("https://huggingface.co", Some(("huggingface.co", 443))),
            ("http://mirror:8080/hf", Some(("mirror", 8080))),
            ("https://u:p@h/x:y", Some(("h", 443))),
            ("http://[::1]:81", Some(("::1", 81))),
            ("https://[::1]", Some(("::1", 443))),
            ("https://", None),
            ("huggingface.co", None),
            ("https://h:port", None),
        ];
        for (endpoint, expected) in cases {
            let got = host_and_port(endpoint);
            assert_eq!(got.as_ref().map(|(host, port)| (host.as_str(), *port)), expected, "{endpoint}");
        }
    }
}
