//! A longer wait for the first byte of an answer than between its pieces.
//!
//! A server may need minutes for a long prompt, before the head of its answer or after it; later a silence of that length
//! means that it is gone. ureq has one limit for every read, so this wraps its connection and sets that limit for each.

use std::time::{Duration, Instant};

use ureq::unversioned::transport::{Buffers, ConnectionDetails, Connector, NextTimeout, Transport};
use ureq::{Error, Timeout};

/// Makes connections whose first byte of a body may take as long as `answer`.
#[derive(Debug)]
pub(super) struct FirstByte {
    /// Longest wait from a sent request to the first byte of the body.
    pub(super) answer: Duration,
    /// Longest wait between two later pieces.
    pub(super) silence: Duration,
}

impl<In: Transport> Connector<In> for FirstByte {
    type Out = Waiting<In>;

    fn connect(&self, _: &ConnectionDetails, chained: Option<In>) -> Result<Option<Self::Out>, Error> {
        let (answer, silence) = (self.answer, self.silence);
        Ok(chained.map(|inner| Waiting { inner, answer, silence, sent: Instant::now(), has_body: false }))
    }
}

/// A connection, and whether a byte of the body has arrived.
#[derive(Debug)]
pub(super) struct Waiting<In> {
    inner: In,
    answer: Duration,
    silence: Duration,
    /// When the newest part of a request was sent.
    sent: Instant,
    has_body: bool,
}

impl<In: Transport> Transport for Waiting<In> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.inner.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        (self.has_body, self.sent) = (false, Instant::now()); // of the answer to what is sent
        self.inner.transmit_output(amount, timeout)
    }

    fn await_input(&mut self, mut timeout: NextTimeout) -> Result<bool, Error> {
        let is_head = timeout.reason == Timeout::RecvResponse;
        let is_first = !self.has_body;
        // one limit for head and first byte together: a server that sends its head byte by byte is never silent
        let left = || self.answer.saturating_sub(self.sent.elapsed());
        if is_first && left() < Duration::from_millis(1) {
            return Err(Error::Timeout(Timeout::RecvResponse));
        }
        timeout.per_read = Some(if is_first { left().into() } else { self.silence.into() });
        let read = self.inner.await_input(timeout).map_err(|error| match error {
            Error::Timeout(Timeout::PerRead) if is_first => Error::Timeout(Timeout::RecvResponse),
            error => error,
        })?;
        if is_head && !self.inner.is_tls() && is_tls_record(self.inner.buffers().input()) {
            return Err(Error::Io(std::io::Error::other(SpeaksTls)));
        }
        self.has_body |= if is_head { has_body(self.inner.buffers().input()) } else { read };
        Ok(read)
    }

    fn is_open(&mut self) -> bool {
        self.inner.is_open()
    }

    fn is_tls(&self) -> bool {
        self.inner.is_tls()
    }
}

/// The server answers a request without TLS with a record of TLS.
#[derive(Debug, thiserror::Error)]
#[error("speaks TLS here; write https:// in front of the address")]
pub(super) struct SpeaksTls;

/// Whether these bytes begin as an alert of TLS.
fn is_tls_record(input: &[u8]) -> bool {
    input.starts_with(&[0x15, 0x03])
}

/// Whether anything follows the head.
fn has_body(input: &[u8]) -> bool {
    input.windows(4).position(|four| four == b"\r\n\r\n").is_some_and(|at| at + 4 < input.len())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    use serde_json::json;

    use super::super::HttpError;
    use super::super::client::{Access, Client};
    use super::super::patience::Patience;
    use super::*;

    /// What a request gets from a server that sends these pieces, each after so many milliseconds: the lines, and why
    /// they ended. It may be silent for a second, and for three before its first byte.
    fn lines(pieces: &'static [(u64, &'static str)]) -> (Vec<String>, Option<HttpError>) {
        lines_within((3, 1), pieces)
    }

    /// The same with these seconds for the first byte, and for a silence after it.
    fn lines_within(
        (answer, silence): (u32, u32),
        pieces: &'static [(u64, &'static str)],
    ) -> (Vec<String>, Option<HttpError>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let reader = BufReader::new(stream.try_clone().unwrap());
            reader.lines().map_while(Result::ok).take_while(|line| !line.is_empty()).for_each(drop);
            for (after, piece) in pieces {
                std::thread::sleep(Duration::from_millis(*after));
                if stream.write_all(piece.as_bytes()).is_err() {
                    return;
                }
            }
        });
        let second = Duration::from_secs(1);
        let patience = Patience { connect: 30 * second, answer: answer * second, silence: silence * second };
        let client = Client::new(&url, Access::default(), patience).unwrap();
        let mut answer = match client.post_lines("/x", &json!({})) {
            Ok(answer) => answer,
            Err(error) => return (Vec::new(), Some(error)),
        };
        let mut lines = Vec::new();
        loop {
            match answer.next_line() {
                Ok(Some(line)) => lines.push(line),
                Ok(None) => return (lines, None),
                Err(error) => return (lines, Some(error)),
            }
        }
    }

    const HEAD: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";

    fn waited(seconds: &str, error: Option<&HttpError>) {
        assert!(matches!(error, Some(HttpError::Silent { seconds: waited, .. }) if waited == seconds), "{error:?}");
    }

    #[test]
    fn the_head_and_the_first_byte_may_take_longer_than_the_silence() {
        assert_eq!(lines_within((30, 3), &[(4000, HEAD), (0, "a\n")]), (vec!["a".to_owned()], None));
        let late = lines_within((30, 3), &[(0, HEAD), (4000, "a\n"), (100, "b\n")]);
        assert_eq!(late, (vec!["a".to_owned(), "b".to_owned()], None));
    }

    #[test]
    fn after_the_first_byte_the_silence_counts() {
        let (got, error) = lines(&[(0, HEAD), (0, "a\n"), (9000, "b\n")]);
        assert_eq!(got, ["a"]);
        waited("1", error.as_ref());
        // the head and the first byte in one piece
        let (got, error) = lines(&[(0, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\na\n"), (9000, "b\n")]);
        assert_eq!(got, ["a"]);
        waited("1", error.as_ref());
    }

    #[test]
    fn a_head_that_comes_in_bits_has_no_longer_time_than_one_that_does_not_come() {
        const BIT: (u64, &str) = (900, "a: b\r\n");
        const BITS: &[(u64, &str)] =
            &[(0, "HTTP/1.1 200 OK\r\n"), BIT, BIT, BIT, BIT, BIT, BIT, BIT, BIT, BIT, (900, "\r\n"), (900, "e\n")];
        waited("3", lines(BITS).1.as_ref());
    }

    #[test]
    fn a_body_whose_framing_comes_in_bits_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
            while stream.write_all(b"0").is_ok() {
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        let tick = Duration::from_secs(5);
        let client =
            Client::new(&url, Access::default(), Patience { connect: tick * 8, answer: tick * 4, silence: tick });
        let begun = std::time::Instant::now();
        let error = client.unwrap().get("/x").unwrap_err().to_string();
        assert!(error.ends_with("sends its answer too slowly"), "{error}");
        assert!(begun.elapsed() < tick * 40, "{:?}", begun.elapsed());
    }

    #[test]
    fn a_server_that_never_answers_is_left_after_the_longer_wait() {
        waited("3", lines(&[(15_000, HEAD)]).1.as_ref());
        waited("3", lines(&[(0, HEAD), (15_000, "a\n")]).1.as_ref());
    }
}
