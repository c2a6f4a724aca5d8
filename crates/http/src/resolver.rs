//! Looks names up. ureq's own resolver starts a thread and panics where the system has none left.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;

use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;
use ureq::{Error, Timeout};

/// Looks names up on a thread of its own, so that a lookup that hangs is given up; addresses need none.
#[derive(Debug)]
pub(super) struct Lookup;

impl Resolver for Lookup {
    fn resolve(&self, uri: &Uri, _: &Config, timeout: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        let place = uri.scheme().zip(uri.authority());
        let place = place.and_then(|(scheme, authority)| DefaultResolver::host_and_port(scheme, authority));
        let place = place.ok_or(Error::HostNotFound)?;
        let found = match place.parse() {
            Ok(address) => vec![address],
            Err(_) => by_name(place, timeout)?,
        };
        let mut addresses = self.empty();
        // the list has room for 16
        found.into_iter().take(16).for_each(|address| addresses.push(address));
        if addresses.is_empty() { Err(Error::HostNotFound) } else { Ok(addresses) }
    }
}

fn by_name(place: String, timeout: NextTimeout) -> Result<Vec<SocketAddr>, Error> {
    let (sender, found) = sync_channel(1);
    let look = move || {
        let addresses = place.to_socket_addrs().map(Iterator::collect::<Vec<_>>);
        drop(sender.send(addresses)); // nobody waits any longer
    };
    thread::Builder::new().name("lookup".into()).spawn(look).map_err(|error| no_thread(&error))?;
    match found.recv_timeout(*timeout.after) {
        Ok(addresses) => Ok(addresses?),
        Err(RecvTimeoutError::Timeout) => Err(Error::Timeout(Timeout::Resolve)),
        Err(RecvTimeoutError::Disconnected) => Err(Error::HostNotFound),
    }
}

fn no_thread(error: &std::io::Error) -> std::io::Error {
    std::io::Error::new(error.kind(), format!("the system cannot start a thread to look the name up: {error}"))
}
