//! Attaching through TLS: a server on this machine whose certificate an authority of its own has signed.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

#[path = "common/scripted.rs"]
mod scripted;

use std::io::Write;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use scripted::{Seen, answer_one, from};

const STREAM: &str = include_str!("fixtures/attach/vllm/completions-logprobs.sse.txt");

/// A server for the name `localhost`, and the file with the authority that signed its certificate.
struct Secure {
    port: u16,
    seen: Seen,
    ca_file: PathBuf,
    _folder: tempfile::TempDir,
}

impl Secure {
    fn start() -> Self {
        let (ca_key, mut ca) = (KeyPair::generate().unwrap(), CertificateParams::new(Vec::new()).unwrap());
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let folder = tempfile::tempdir().unwrap();
        let ca_file = folder.path().join("ca.pem");
        std::fs::write(&ca_file, ca.self_signed(&ca_key).unwrap().pem()).unwrap();
        let key = KeyPair::generate().unwrap();
        let own = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = own.signed_by(&key, &Issuer::new(ca, ca_key)).unwrap();
        let private = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let builder = ServerConfig::builder_with_provider(rustls::crypto::ring::default_provider().into());
        let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let config = Arc::new(builder.with_single_cert(vec![certificate.der().clone()], private).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, seen) = (listener.local_addr().unwrap().port(), Seen::default());
        let log = Arc::clone(&seen);
        let models = r#"{"data":[{"id":"SmolLM2","owned_by":"vllm","max_model_len":2048}]}"#.to_owned();
        let answer = Arc::new(from(vec![
            ("/v1/models", "200 OK", models),
            ("/version", "200 OK", r#"{"version":"0.32.0"}"#.to_owned()),
            ("/v1/completions", "200 OK", STREAM.to_owned()),
        ]));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (answer, log) = (Arc::clone(&answer), Arc::clone(&log));
                let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
                std::thread::spawn(move || {
                    let mut stream = StreamOwned::new(connection, stream.unwrap());
                    answer_one(&mut stream, &*answer, &log);
                    stream.conn.send_close_notify();
                    let _ = stream.conn.complete_io(&mut stream.sock);
                });
            }
        });
        Self { port, seen, ca_file, _folder: folder }
    }

    fn ask(&self, host: &str, options: &[&str], env: &[(&str, &str)]) -> Output {
        let url = format!("https://{host}:{}", self.port);
        let mut command = Command::new(env!("CARGO_BIN_EXE_draftscope"));
        command.args(["run", "--attach", &url, "--raw", "one"]).args(options);
        command.env_remove("SSL_CERT_FILE").env("DRAFTSCOPE_API_KEY", "s3cret").envs(env.iter().copied());
        command.output().unwrap()
    }

    /// The sentence that the question ends with, and that the server saw no request.
    fn refused(&self, host: &str, options: &[&str]) -> String {
        let output = self.ask(host, options, &[]);
        assert!(
            !output.status.success() && self.seen.lock().unwrap().is_empty(),
            "no request, and so no key, was sent"
        );
        let said = String::from_utf8(output.stderr).unwrap();
        let sentences: Vec<_> = said.lines().filter(|line| !line.trim().is_empty()).collect();
        assert_eq!(sentences.len(), 1, "{said}");
        sentences[0].to_owned()
    }
}

#[test]
fn an_authority_that_is_trusted_is_enough() {
    let server = Secure::start();
    let file = server.ca_file.to_str().unwrap();
    for (options, env) in [(vec!["--ca-file", file], vec![]), (vec![], vec![("SSL_CERT_FILE", file)])] {
        let output = server.ask("localhost", &options, &env);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(String::from_utf8(output.stdout).unwrap().starts_with(" four five six"));
        let seen = std::mem::take(&mut *server.seen.lock().unwrap());
        assert!(seen.len() >= 3 && seen.iter().all(|(head, _)| head.contains("Bearer s3cret")), "{seen:?}");
    }
}

#[test]
fn an_authority_that_is_not_trusted_is_one_sentence() {
    let server = Secure::start();
    let said = server.refused("localhost", &[]);
    let wanted = format!(
        "localhost:{} has a certificate of an authority that is not trusted; give the authority's own with --ca-file or \
         SSL_CERT_FILE",
        server.port
    );
    assert!(said.contains(&wanted), "{said}");
    // another authority than the one that signed
    let other = Secure::start();
    let said = server.refused("localhost", &["--ca-file", other.ca_file.to_str().unwrap()]);
    assert!(said.contains("of an authority that is not trusted"), "{said}");
}

#[test]
fn a_certificate_for_another_name_is_one_sentence() {
    let server = Secure::start();
    let said = server.refused("127.0.0.1", &["--ca-file", server.ca_file.to_str().unwrap()]);
    let wanted = format!("127.0.0.1:{} has a certificate for another host name: it is for localhost", server.port);
    assert!(said.contains(&wanted), "{said}");
}

#[test]
fn a_file_of_authorities_that_cannot_be_read_is_one_sentence() {
    let server = Secure::start();
    let said = server.refused("localhost", &["--ca-file", "/does/not/exist.pem"]);
    assert!(said.contains("cannot use '/does/not/exist.pem' as a file of authorities: "), "{said}");
}

#[test]
fn a_server_without_tls_is_one_sentence() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = stream.unwrap().write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
        }
    });
    let mut command = Command::new(env!("CARGO_BIN_EXE_draftscope"));
    let output = command.args(["run", "--attach", &url, "one"]).env_remove("SSL_CERT_FILE").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains(" does not speak TLS here; for a server without TLS write http://"), "{said}");
}
