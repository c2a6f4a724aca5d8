//! Certificates: the authorities that are trusted, and why a server's certificate is not.

use std::path::{Path, PathBuf};

use rustls::CertificateError;
use ureq::tls::{PemItem, RootCerts, parse_pem};

use super::error::HttpError;

/// The variable that names a file of authorities, as OpenSSL and curl read it.
pub const CA_VARIABLE: &str = "SSL_CERT_FILE";

/// Longest file of authorities in bytes; a system's own has some 250 kB.
const MAX_FILE: u64 = 8 << 20;

/// The authorities in this file, else in the one that [`CA_VARIABLE`] names, else Mozilla's.
pub(super) fn roots(file: Option<&Path>) -> Result<RootCerts, HttpError> {
    let named = || std::env::var_os(CA_VARIABLE).filter(|name| !name.is_empty()).map(PathBuf::from);
    match file.map(Path::to_owned).or_else(named) {
        Some(path) => read(&path),
        None => Ok(RootCerts::WebPki),
    }
}

fn read(path: &Path) -> Result<RootCerts, HttpError> {
    let failed = |why: String| HttpError::Authorities { path: path.display().to_string(), why };
    let bytes = draftscope_host::file_access::read(path, MAX_FILE).map_err(|error| failed(error.to_string()))?;
    let certificates = parse_pem(&bytes).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    });
    let certificates: Vec<_> = certificates.collect();
    if certificates.is_empty() {
        return Err(failed("it has no certificate in PEM form".to_owned()));
    }
    Ok(RootCerts::new_with_certs(&certificates))
}

/// What is wrong with the other side's TLS, as the rest of a sentence after its name; none if `error` is of another kind.
pub(super) fn fault(error: &ureq::Error) -> Option<String> {
    let tls = match error {
        ureq::Error::Rustls(error) => error,
        ureq::Error::Io(error) => error.get_ref()?.downcast_ref()?,
        _ => return None,
    };
    Some(match tls {
        rustls::Error::InvalidCertificate(certificate) => certificate_fault(certificate),
        rustls::Error::InvalidMessage(_) => {
            "does not speak TLS here; for a server without TLS write http://".to_owned()
        }
        other => format!("cannot be reached through TLS: {other}"),
    })
}

fn certificate_fault(error: &CertificateError) -> String {
    match error {
        // a bad signature is that of another authority with the same name
        CertificateError::UnknownIssuer | CertificateError::BadSignature => format!(
            "has a certificate of an authority that is not trusted; give the authority's own with --ca-file or {CA_VARIABLE}"
        ),
        CertificateError::NotValidForName => "has a certificate for another host name".to_owned(),
        CertificateError::NotValidForNameContext { presented, .. } => {
            let names: Vec<String> = presented.iter().take(4).map(|name| plain_name(name)).collect();
            if names.is_empty() {
                return "has a certificate without a host name".to_owned();
            }
            format!("has a certificate for another host name: it is for {}", names.join(", "))
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "has a certificate that has expired".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "has a certificate that is not valid yet; is this machine's clock right?".to_owned()
        }
        other => format!("has a certificate that cannot be used: {other}"),
    }
}

/// A name without the kind that rustls writes around it: `localhost` of `DnsName("localhost")`. A server may write
/// anything into its certificate, so characters that control a terminal are left out.
fn plain_name(name: &str) -> String {
    let (_, inner) = name.strip_suffix(')').and_then(|name| name.split_once('(')).unwrap_or(("", name));
    inner.trim_matches('"').chars().filter(|c| !c.is_control()).take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_certificates_is_named_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let says = |path: &Path| read(path).map(drop).unwrap_err().to_string();
        let missing = folder.path().join("none.pem");
        assert!(says(&missing).starts_with(&format!("cannot use '{}' as a file of authorities: ", missing.display())));
        let empty = folder.path().join("empty.pem");
        std::fs::write(&empty, "-----BEGIN NONSENSE-----\n").unwrap();
        assert!(says(&empty).ends_with("it has no certificate in PEM form"));
        let huge = folder.path().join("huge.pem");
        std::fs::File::create(&huge).unwrap().set_len(MAX_FILE + 1).unwrap();
        assert!(says(&huge).ends_with("it has more than 8 MiB"));
    }

    #[test]
    fn names_are_shown_without_their_kind() {
        assert_eq!(plain_name("DnsName(\"a.example\")"), "a.example");
        assert_eq!(plain_name("IpAddress(127.0.0.1)"), "127.0.0.1");
        assert_eq!(plain_name("DnsName(\"a\u{1b}[2J\")"), "a[2J");
    }
}
