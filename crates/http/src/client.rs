//! Requests to one server, and their answers.

use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use ureq::http::{Response, Uri};
use ureq::tls::TlsConfig;
use ureq::{Agent, Body};

use super::error::HttpError;
use super::first_byte::SpeaksTls;
use super::patience::Patience;
use super::secrets::Secrets;
use crate::{agent, certificate, error_words, proxy, redirect};

/// Longest answer that is read as a whole, in bytes.
const MAX_BODY: u64 = 8 << 20;

/// Longest time that such an answer takes after its first bytes; less where [`Patience::silence`] is short.
const MAX_BODY_TIME: Duration = Duration::from_secs(60);

/// Longest wait for the first byte of an answer to a question without a body. Nothing is computed for it, so a server that
/// takes longer is stuck; only an answer to a prompt may take as long as [`Patience::answer`].
const MAX_QUESTION: Duration = Duration::from_secs(60);

/// What such a server does.
const TOO_SLOW: &str = "sends its answer too slowly";

/// Most redirects within a host that are followed.
const MAX_REDIRECTS: usize = 3;

/// What a server is given and whom it is believed: for this one server, never for another.
#[derive(Clone, Default)]
pub struct Access {
    /// Headers of every request, such as an API key; they stay out of events and messages.
    pub headers: Vec<(String, String)>,
    /// A file in PEM form with the authorities that may sign the server's certificate. Without it the file that
    /// [`CA_VARIABLE`](crate::CA_VARIABLE) names counts, else the authorities that Mozilla trusts.
    pub ca_file: Option<PathBuf>,
}

/// How an answer is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Whole,
    Lines,
}

/// A client of one server.
#[derive(Clone)]
pub struct Client {
    pub(super) agent: Agent,
    /// The same for questions, which wait for less.
    pub(super) asking: Option<Arc<Self>>,
    pub(super) base: Uri,
    pub(super) host: String,
    pub(super) tls: TlsConfig,
    /// Name of the proxy, if one leads to the server.
    pub(super) proxy: Option<String>,
    pub(super) headers: Vec<(String, String)>,
    /// The parts of the headers that may not appear in any text.
    pub(super) secrets: Arc<Secrets>,
    pub(super) patience: Patience,
}

impl Client {
    /// A client of the server at `url`.
    ///
    /// # Errors
    /// When `url` is no http or https address, or contains credentials, or the file of authorities or the proxy of the
    /// environment cannot be used.
    pub fn new(url: &str, access: Access, patience: Patience) -> Result<Self, HttpError> {
        let Access { headers, ca_file } = access;
        let address = || HttpError::Address(url.chars().take(200).collect());
        let base: Uri = url.trim_end_matches('/').parse().map_err(|_| address())?;
        let authority = base.authority().ok_or_else(address)?;
        if authority.as_str().contains('@') {
            return Err(HttpError::Credentials);
        }
        if !matches!(base.scheme_str(), Some("http" | "https")) || authority.host().is_empty() {
            return Err(address());
        }
        if base.query().is_some() {
            return Err(HttpError::Query);
        }
        let host = authority.to_string();
        let route = proxy::route(&base)?;
        let tls = match base.scheme_str() {
            Some("https") => {
                let roots = certificate::roots(ca_file.as_deref())?;
                TlsConfig::builder().root_certs(roots).build()
            }
            _ => TlsConfig::default(),
        };
        let secrets = Arc::new(Secrets::of(&headers));
        let client = |patience| Self {
            agent: agent::of(patience, tls.clone(), route.as_ref()),
            asking: None,
            base: base.clone(),
            host: host.clone(),
            tls: tls.clone(),
            proxy: route.as_ref().map(|route| route.name.clone()),
            headers: headers.clone(),
            secrets: Arc::clone(&secrets),
            patience,
        };
        let question = Patience { answer: patience.answer.min(MAX_QUESTION), ..patience };
        Ok(Self { asking: Some(Arc::new(client(question))), ..client(patience) })
    }

    /// Host and port, for sentences.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// How long it waits.
    #[must_use]
    pub fn patience(&self) -> Patience {
        self.patience
    }

    /// Whether any header is sent that may hold a key.
    #[must_use]
    pub fn has_credentials(&self) -> bool {
        !self.headers.is_empty()
    }

    /// Requests a path as text.
    ///
    /// # Errors
    /// See [`HttpError`].
    pub fn get(&self, path: &str) -> Result<String, HttpError> {
        let asking = self.asking.as_deref().unwrap_or(self);
        let response = asking.request(path, None, Answer::Whole)?;
        asking.text(response)
    }

    /// Requests a path as JSON.
    ///
    /// # Errors
    /// See [`HttpError`].
    pub fn get_json(&self, path: &str) -> Result<Value, HttpError> {
        self.json(path, &self.get(path)?)
    }

    /// Requests a path as JSON, from a server that may have to compute for it: it waits as for an answer.
    ///
    /// # Errors
    /// See [`HttpError`].
    pub fn get_json_slowly(&self, path: &str) -> Result<Value, HttpError> {
        let response = self.request(path, None, Answer::Whole)?;
        let text = self.text(response)?;
        self.json(path, &text)
    }

    /// Posts JSON and reads the answer as JSON.
    ///
    /// # Errors
    /// See [`HttpError`].
    pub fn post_json(&self, path: &str, body: &Value) -> Result<Value, HttpError> {
        let response = self.request(path, Some(body), Answer::Whole)?;
        let text = self.text(response)?;
        self.json(path, &text)
    }

    pub(super) fn json(&self, path: &str, text: &str) -> Result<Value, HttpError> {
        let not_json = |_| HttpError::NotJson { host: self.host.clone(), path: path.to_owned() };
        serde_json::from_str(text).map_err(not_json)
    }

    pub(super) fn request(
        &self,
        path: &str,
        body: Option<&Value>,
        answer: Answer,
    ) -> Result<Response<Body>, HttpError> {
        let mut url = self.url(path);
        for _ in 0..=MAX_REDIRECTS {
            let response = self.send(&url, body, answer)?;
            let status = response.status();
            if status.is_redirection() {
                url = self.redirected(&url, &response)?;
                continue;
            }
            if status.is_success() {
                return Ok(response);
            }
            return Err(self.status_error(path, response));
        }
        Err(self.refused("redirects in a circle"))
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base.to_string().trim_end_matches('/'))
    }

    pub(super) fn status_error(&self, path: &str, response: Response<Body>) -> HttpError {
        let reason = response.status().canonical_reason().unwrap_or("the server gives no reason");
        let status = response.status().as_u16();
        let text = self.text(response);
        if status == 400 && text.as_ref().is_ok_and(|text| is_about_tls(text)) {
            return HttpError::Tls { host: self.host.clone(), what: SpeaksTls.to_string() };
        }
        let mut message = text.map_or_else(|error| error.to_string(), |text| error_words::of_body(&text));
        if message.is_empty() {
            reason.clone_into(&mut message);
        }
        // words that stood apart may be one secret
        let message = self.secrets.mask(message);
        HttpError::Status { host: self.host.clone(), path: path.to_owned(), status, message }
    }

    pub(super) fn send(&self, url: &str, body: Option<&Value>, answer: Answer) -> Result<Response<Body>, HttpError> {
        let headers = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        // the framing of a body can come in bits without a byte of the body
        let whole = self.patience.answer + self.longest_body();
        let most = (answer == Answer::Whole).then_some(whole);
        let sent = match body {
            None => {
                let request = self.agent.get(url).config().timeout_recv_body(most).build();
                headers.fold(request, |request, (name, value)| request.header(name, value)).call()
            }
            Some(body) => {
                let request = self.agent.post(url).config().timeout_recv_body(most).build();
                let request = request.header("content-type", "application/json");
                headers.fold(request, |request, (name, value)| request.header(name, value)).send(body.to_string())
            }
        };
        sent.map_err(|error| self.failure(&error))
    }

    /// Longest time that an answer which is read as a whole takes after its first bytes.
    fn longest_body(&self) -> Duration {
        MAX_BODY_TIME.min(self.patience.silence * 4)
    }

    /// Where a redirect leads, if it stays on this host.
    fn redirected(&self, from: &str, response: &Response<Body>) -> Result<String, HttpError> {
        let location = response.headers().get("location").and_then(|to| to.to_str().ok());
        let from: Uri = from.parse().map_err(|_| HttpError::Address(from.chars().take(200).collect()))?;
        let to = redirect::target(&from, location).map_err(|why| self.refused(why))?;
        if redirect::is_same_server(&self.base, &to) {
            return Ok(to.to_string());
        }
        Err(HttpError::Redirect {
            host: self.host.clone(),
            to: self.secrets.mask(to.to_string()).chars().take(200).collect(),
        })
    }

    pub(super) fn text(&self, response: Response<Body>) -> Result<String, HttpError> {
        let longest = self.longest_body();
        let mut first = None; // when the first bytes came, which may take as long as the head
        let mut reader = self.body(response)?.take(MAX_BODY + 1);
        let (mut bytes, mut chunk) = (Vec::new(), vec![0; 1 << 14]);
        loop {
            match reader.read(&mut chunk).map_err(|error| self.failure(&error.into()))? {
                0 => break,
                len if first.get_or_insert_with(Instant::now).elapsed() < longest => {
                    bytes.extend_from_slice(&chunk[..len]);
                }
                // a server that sends a byte now and then is never silent
                _ => return Err(self.refused(TOO_SLOW)),
            }
        }
        if bytes.len() as u64 > MAX_BODY {
            return Err(HttpError::TooLong { host: self.host.clone(), limit: MAX_BODY });
        }
        Ok(self.secrets.mask(String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// What went wrong with a connection.
    pub(super) fn failure(&self, error: &ureq::Error) -> HttpError {
        let host = self.host.clone();
        let waited = match error {
            ureq::Error::Timeout(ureq::Timeout::Resolve | ureq::Timeout::Connect) => self.patience.connect,
            ureq::Error::Timeout(ureq::Timeout::RecvResponse) => self.patience.answer,
            ureq::Error::Timeout(ureq::Timeout::RecvBody) => return self.refused(TOO_SLOW),
            ureq::Error::Timeout(_) => self.patience.silence,
            error => {
                return match (tls_fault(error), &self.proxy) {
                    (Some(what), _) => HttpError::Tls { host, what: self.secrets.mask(what) },
                    (None, Some(proxy)) => {
                        let why = match error {
                            ureq::Error::ConnectProxyFailed(why) => why.clone(),
                            error => error.to_string(),
                        };
                        HttpError::ThroughProxy { host, proxy: proxy.clone(), why: self.secrets.mask(why) }
                    }
                    (None, None) => HttpError::Failed { host, why: self.secrets.mask(error.to_string()) },
                };
            }
        };
        HttpError::Silent { host, seconds: waited.as_secs_f32().to_string() }
    }

    pub(super) fn refused(&self, what: &'static str) -> HttpError {
        HttpError::Refused { host: self.host.clone(), what }
    }
}

/// What is wrong with the other side's TLS, or that it wants TLS, as the predicate of a sentence.
fn tls_fault(error: &ureq::Error) -> Option<String> {
    let wants_tls = match error {
        ureq::Error::Io(error) => error.get_ref().is_some_and(|inner| inner.is::<SpeaksTls>()),
        _ => false,
    };
    if wants_tls { Some(SpeaksTls.to_string()) } else { certificate::fault(error) }
}

/// Whether an error says that a request without TLS reached a port for TLS, in the words of nginx, Go and Apache.
fn is_about_tls(text: &str) -> bool {
    let text = text.to_lowercase();
    ["http request was sent to https port", "http request to an https server", "speaking plain http to an ssl-enabled"]
        .iter()
        .any(|words| text.contains(words))
}
