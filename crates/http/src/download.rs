//! Files from a server, in pieces; redirects to other servers are followed.
//!
//! Invariant: the client's own headers, and so credentials, go only to the server that the client names; a redirect to
//! another one is followed without them. At most [`MAX_REDIRECTS`] are followed.

use std::io::Read;

use ureq::http::{HeaderMap, HeaderValue, Uri};
use ureq::{Body, BodyReader};

use super::client::Client;
use super::error::HttpError;
use super::{agent, proxy, redirect};

/// Most redirects that are followed.
const MAX_REDIRECTS: usize = 5;

/// An answer whose body is read in pieces. Dropping it closes the connection.
pub struct Download {
    reader: BodyReader<'static>,
    /// Headers of the answers of the server that the client names.
    own: HeaderMap,
    /// Headers of the answer with the body.
    last: HeaderMap,
    status: u16,
    client: Client,
}

impl Client {
    /// Requests a part of a file, as the header `range` says it (`bytes=0-`). A status of 416, for a range that the
    /// file does not have, is returned and no error.
    ///
    /// # Errors
    /// See [`HttpError`].
    pub fn download(&self, path: &str, range: &str) -> Result<Download, HttpError> {
        let mut at: Uri = self.url(path).parse().map_err(|_| HttpError::Address(path.chars().take(200).collect()))?;
        let base = at.clone();
        let mut own = HeaderMap::new();
        for _ in 0..=MAX_REDIRECTS {
            let is_own = redirect::is_same_server(&base, &at);
            let here = if is_own { self.clone() } else { self.stranger(&at)? };
            let mut request = here.agent.get(&at).header("range", range);
            for (name, value) in &here.headers {
                request = request.header(name, value);
            }
            let response = request.call().map_err(|error| here.failure(&error))?;
            if is_own {
                // of a header that several answers have, the last one counts
                let masked = |value: &HeaderValue| self.masked_header(value);
                response.headers().iter().for_each(|(name, value)| drop(own.insert(name.clone(), masked(value))));
            }
            let status = response.status();
            if status.is_redirection() {
                let location = response.headers().get("location").and_then(|to| to.to_str().ok());
                at = redirect::target(&at, location).map_err(|why| here.refused(why))?;
                continue;
            }
            if !status.is_success() && status.as_u16() != 416 {
                return Err(here.status_error(path, response));
            }
            let (parts, body): (_, Body) = response.into_parts();
            let reader = body.into_reader();
            return Ok(Download { reader, own, last: parts.headers, status: parts.status.as_u16(), client: here });
        }
        Err(self.refused("redirects in a circle"))
    }

    /// The same client without credentials, for another server.
    fn stranger(&self, at: &Uri) -> Result<Self, HttpError> {
        let host = self.secrets.mask(at.authority().map_or_else(String::new, ToString::to_string));
        let route = proxy::route(at)?;
        let agent = agent::of(self.patience, self.tls.clone(), route.as_ref());
        Ok(Self { host, agent, proxy: route.map(|route| route.name), headers: Vec::new(), ..self.clone() })
    }
}

impl Client {
    /// A header of the server without the secrets that it was sent.
    fn masked_header(&self, value: &HeaderValue) -> HeaderValue {
        let masked = value.to_str().ok().map(|text| self.secrets.mask(text.to_owned()));
        masked.and_then(|text| HeaderValue::from_str(&text).ok()).unwrap_or_else(|| value.clone())
    }
}

impl Download {
    /// The HTTP status: 200 for the whole file, 206 for a part, 416 if the file does not have the part.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status
    }

    /// A header that the server named by the client sent, before it redirected elsewhere, if it did.
    #[must_use]
    pub fn own_header(&self, name: &str) -> Option<&str> {
        self.own.get(name)?.to_str().ok()
    }

    /// First byte of the part that is sent, and bytes of the whole file, as far as the answer names them.
    #[must_use]
    pub fn extent(&self) -> (u64, Option<u64>) {
        let header = |name: &str| self.last.get(name).and_then(|value| value.to_str().ok());
        let range = header("content-range").and_then(|range| range.strip_prefix("bytes "));
        let whole = || header("content-length").and_then(|bytes| bytes.trim().parse().ok());
        match range.and_then(|range| range.split_once('/')) {
            Some((part, all)) => {
                let first = part.split_once('-').and_then(|(first, _)| first.trim().parse().ok());
                (first.unwrap_or(0), all.trim().parse().ok())
            }
            None => (0, whole().filter(|_| self.status == 200)),
        }
    }

    /// Reads the next piece; 0 bytes at the end.
    ///
    /// # Errors
    /// When the connection breaks or is silent for too long.
    pub fn read(&mut self, into: &mut [u8]) -> Result<usize, HttpError> {
        loop {
            match self.reader.read(into) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                read => return read.map_err(|error| self.client.failure(&error.into())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use super::super::client::Access;
    use super::super::patience::Patience;
    use super::*;

    /// For a server that answers: far longer than it needs.
    const LONG: Duration = Duration::from_secs(60);

    /// A server that gives each request the next of these answers, and notes request lines and credentials.
    fn server(answers: Vec<String>) -> (String, Arc<Mutex<Vec<String>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let noted = Arc::clone(&asked);
        std::thread::spawn(move || {
            for answer in answers {
                let Ok((mut stream, _)) = listener.accept() else { return };
                let lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
                let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
                let secret = head.iter().any(|line| line.to_lowercase() == "authorization: bearer secret");
                noted.lock().unwrap().push(format!("{} {secret}", head[0]));
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        (url, asked)
    }

    fn client(url: &str) -> Client {
        client_that_waits(url, LONG)
    }

    fn client_that_waits(url: &str, answer: Duration) -> Client {
        let patience = Patience { connect: LONG, answer, silence: LONG };
        let headers = vec![("authorization".into(), "Bearer secret".into())];
        Client::new(url, Access { headers, ..Access::default() }, patience).unwrap()
    }

    fn to(location: &str) -> String {
        format!("HTTP/1.1 302 Found\r\n{location}x-own: yes\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    }

    const FILE: &str = "HTTP/1.1 206 Part\r\nx-own: no\r\nContent-Range: bytes 3-6/7\r\nContent-Length: 4\r\n\
                        Connection: close\r\n\r\nabcd";

    fn all(mut download: Download) -> Result<Vec<u8>, HttpError> {
        let (mut bytes, mut buffer) = (Vec::new(), [0; 64]);
        loop {
            match download.read(&mut buffer)? {
                0 => return Ok(bytes),
                len => bytes.extend_from_slice(&buffer[..len]),
            }
        }
    }

    #[test]
    fn another_server_gets_no_credentials_and_its_headers_are_not_the_hubs() {
        let (cdn, cdn_asked) = server(vec![FILE.to_owned()]);
        let (hub, asked) = server(vec![to("Location: /moved\r\n"), to(&format!("Location: {cdn}/f?sig=1\r\n"))]);
        let download = client(&hub).download("/file", "bytes=3-").unwrap();
        assert_eq!(
            (download.status(), download.extent(), download.own_header("x-own")),
            (206, (3, Some(7)), Some("yes"))
        );
        assert_eq!(all(download).unwrap(), b"abcd");
        assert_eq!(*asked.lock().unwrap(), ["GET /file HTTP/1.1 true", "GET /moved HTTP/1.1 true"]);
        assert_eq!(*cdn_asked.lock().unwrap(), ["GET /f?sig=1 HTTP/1.1 false"]);
    }

    #[test]
    fn a_redirect_that_leads_nowhere_is_one_sentence() {
        let says = |answers: Vec<String>| {
            let (hub, _) = server(answers);
            client(&hub).download("/file", "bytes=0-").map(drop).unwrap_err().to_string()
        };
        assert!(says(vec![to("")]).ends_with("redirects and names no address"));
        assert!(says(vec![to("Location: again\r\n"); 9]).ends_with("redirects in a circle"));
        assert!(says(vec![to("Location: gopher://x/\r\n")]).ends_with("redirects to an address that cannot be used"));
        let status = says(vec!["HTTP/1.1 404 No\r\nContent-Length: 7\r\nConnection: close\r\n\r\nno file".to_owned()]);
        assert!(status.ends_with("answers /file with status 404: no file"), "{status}");
    }

    #[test]
    fn a_connection_that_ends_early_or_is_silent_is_an_error() {
        let (hub, _) = server(vec![FILE.replace("Length: 4", "Length: 9")]);
        let cut = all(client(&hub).download("/file", "bytes=3-").unwrap()).unwrap_err();
        assert!(cut.to_string().starts_with("no answer from 127.0.0.1:"), "{cut}");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let silent = client_that_waits(&url, Duration::from_secs(1));
        let error = silent.download("/file", "bytes=0-").map(drop).unwrap_err();
        assert!(
            matches!(error, HttpError::Silent { .. }) && error.to_string().ends_with("no answer for 1 s"),
            "{error}"
        );
    }
}
