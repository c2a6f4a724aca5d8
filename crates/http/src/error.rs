//! Why a request failed.

/// Why a request failed: one sentence without a final stop.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    /// The address cannot be used.
    #[error("'{0}' is no http or https address")]
    Address(String),
    /// The address has a query, which would have to follow every path that is asked for.
    #[error("the address must not have a query: leave out '?' and what follows it")]
    Query, // which may hold a key
    /// The address carries a name or password.
    #[error("the address must not contain a password; use --header NAME=ENVVAR or DRAFTSCOPE_API_KEY")]
    Credentials,
    /// The file of authorities cannot be used.
    #[error("cannot use '{path}' as a file of authorities: {why}")]
    Authorities {
        /// The file.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// The environment names a proxy that cannot be used.
    #[error("{variable} names {why}; set it to an http address, or add the server to NO_PROXY")]
    Proxy {
        /// The variable.
        variable: String,
        /// What it names instead.
        why: String,
    },
    /// No answer through a proxy.
    #[error("no answer from {host} through the proxy {proxy}: {why}; if the server needs no proxy, add it to NO_PROXY")]
    ThroughProxy {
        /// Host and port of the server.
        host: String,
        /// Host and port of the proxy, and its variable.
        proxy: String,
        /// What the connection reported.
        why: String,
    },
    /// The server's certificate, or what it sends instead of TLS.
    #[error("{host} {what}")]
    Tls {
        /// Host and port.
        host: String,
        /// What is wrong, as the predicate of a sentence.
        what: String,
    },
    /// No answer, or an answer that is no HTTP.
    #[error("no answer from {host}: {why}")]
    Failed {
        /// Host and port.
        host: String,
        /// What the connection reported.
        why: String,
    },
    /// The server sends nothing.
    #[error("{host}: no answer for {seconds} s")]
    Silent {
        /// Host and port.
        host: String,
        /// How long was waited.
        seconds: String,
    },
    /// The answer cannot be used.
    #[error("{host} {what}")]
    Refused {
        /// Host and port.
        host: String,
        /// What the server does, as the predicate of a sentence.
        what: &'static str,
    },
    /// The answer is an error.
    #[error("{host} answers {path} with status {status}: {message}")]
    Status {
        /// Host and port.
        host: String,
        /// The path that was requested.
        path: String,
        /// The HTTP status.
        status: u16,
        /// The error that the server names.
        message: String,
    },
    /// The server redirects to another host.
    #[error("{host} redirects to another host ({to}), which is not followed; give that address instead")]
    Redirect {
        /// Host and port.
        host: String,
        /// Where it redirects to.
        to: String,
    },
    /// A line or a body is too long.
    #[error("{host} sends more than {limit} bytes in one piece")]
    TooLong {
        /// Host and port.
        host: String,
        /// The limit.
        limit: u64,
    },
    /// The thread that reads the answer panicked.
    #[error("reading stopped on an internal error; please report it")]
    Stopped,
    /// The answer is no JSON.
    #[error("{host} answers {path} with something that is not JSON")]
    NotJson {
        /// Host and port.
        host: String,
        /// The path that was requested.
        path: String,
    },
}
