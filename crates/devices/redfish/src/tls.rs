//! TLS for BMCs: which certificates are trusted, and why a handshake failed.
//!
//! Most BMCs have a self-signed certificate, usually with openssl's defaults: marked as a CA's, often without a name. No certification path leads to
//! such a certificate (RFC 5280, section 6), so it is trusted if it is itself among the given ones.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use sha2::{Digest, Sha256};
use x509_parser::prelude::{FromDer, X509Certificate};

use terms::clean;

/// Most certificates read from a file.
const MAX_GIVEN: usize = 1024;

/// The accepted certificates.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// Any (`spec.bmc.disableCertificateVerification`).
    pub accept_any_certificate: bool,
    /// Certificates trusted besides the system's, PEM: of authorities, or of BMCs themselves.
    pub extra_ca_pem: Option<String>,
}

/// Why the TLS settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The CA file is not a list of PEM certificates.
    #[error("read the CA certificates for BMCs: not a list of PEM certificates ({0}); correct the file")]
    CaPem(String),
    /// No trusted certificates.
    #[error("set up HTTPS to BMCs: {0}; install the system's CA certificates or name a CA file")]
    Setup(String),
    /// The host's name is not valid in a certificate.
    #[error("set up HTTPS to BMCs: {0:?} is no name that a certificate can have; correct the address")]
    Name(String),
}

/// The client's side of TLS: the same one for all BMCs that trust is given to by the same settings.
///
/// # Errors
/// [`TlsError`].
pub fn config(tls: &Tls) -> Result<Arc<ClientConfig>, TlsError> {
    type Made = HashMap<(bool, [u8; 32]), Weak<ClientConfig>>;
    static MADE: Mutex<Option<Made>> = Mutex::new(None);
    let pem = tls.extra_ca_pem.as_deref().unwrap_or_default();
    let key = (tls.accept_any_certificate, Sha256::digest(pem).into());
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let made = made.get_or_insert_default();
    if let Some(config) = made.get(&key).and_then(Weak::upgrade) {
        return Ok(config);
    }
    let config = make(tls)?;
    made.retain(|_, config| config.strong_count() > 0);
    made.insert(key, Arc::downgrade(&config));
    Ok(config)
}

fn make(tls: &Tls) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = provider();
    let given = match &tls.extra_ca_pem {
        Some(pem) => given(pem)?,
        None => Vec::new(),
    };
    let mut roots = system_roots().clone();
    // A certificate that is not a CA's may be a BMC's own.
    roots.add_parsable_certificates(given.iter().cloned());
    if roots.is_empty() && !tls.accept_any_certificate {
        return Err(TlsError::Setup("there are no CA certificates".to_owned()));
    }
    let setup = |error: &dyn std::fmt::Display| TlsError::Setup(clean(&error.to_string(), 300));
    let authorities = if roots.is_empty() {
        None
    } else {
        let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        Some(builder.build().map_err(|error| setup(&error))?)
    };
    let verifier = Verifier { any: tls.accept_any_certificate, given, authorities, provider: Arc::clone(&provider) };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| setup(&error))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    Ok(Arc::new(config))
}

fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    Arc::clone(PROVIDER.get_or_init(|| Arc::new(rustls::crypto::ring::default_provider())))
}

/// The system's authorities, read once.
fn system_roots() -> &'static RootCertStore {
    static ROOTS: OnceLock<RootCertStore> = OnceLock::new();
    ROOTS.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        roots
    })
}

/// The certificates of a file.
fn given(pem: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let mut found = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()).take(MAX_GIVEN) {
        let certificate = certificate.map_err(|error| TlsError::CaPem(clean(&error.to_string(), 200)))?;
        if X509Certificate::from_der(&certificate).is_err() {
            return Err(TlsError::CaPem(format!("number {} of them is no certificate", found.len() + 1)));
        }
        found.push(certificate);
    }
    if found.is_empty() { Err(TlsError::CaPem("there is none in it".to_owned())) } else { Ok(found) }
}

/// The versions and cipher suites that this program offers, as text.
pub fn offered() -> String {
    let names: Vec<String> = provider()
        .cipher_suites
        .iter()
        .filter(|suite| suite.tls13().is_none())
        .map(|suite| format!("{:?}", suite.suite()))
        .collect();
    format!("TLS 1.2 and 1.3, with {}", names.join(", "))
}

/// Verifies by certificate authorities as usual, and accepts a given certificate itself.
#[derive(Debug)]
struct Verifier {
    any: bool,
    given: Vec<CertificateDer<'static>>,
    authorities: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.any {
            return Ok(ServerCertVerified::assertion());
        }
        if self.given.iter().any(|given| given.as_ref() == end_entity.as_ref()) {
            return by_itself(end_entity, server_name, now);
        }
        match &self.authorities {
            Some(authorities) => {
                authorities.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
            }
            None => Err(CertificateError::UnknownIssuer.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Verifies a given certificate: its dates count, and its names if it has any. One without names (openssl's default) is valid for any holder of its
/// key, which the handshake proves.
///
/// # Errors
/// The certificate's fault.
pub fn by_itself(
    certificate: &CertificateDer<'_>,
    name: &ServerName<'_>,
    now: UnixTime,
) -> Result<ServerCertVerified, rustls::Error> {
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| CertificateError::BadEncoding)?;
    let validity = parsed.validity();
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    if now < validity.not_before.timestamp() {
        return Err(CertificateError::NotValidYet.into());
    }
    if now > validity.not_after.timestamp() {
        return Err(CertificateError::Expired.into());
    }
    if !matches!(parsed.subject_alternative_name(), Ok(None)) {
        rustls::client::verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
    }
    Ok(ServerCertVerified::assertion())
}

/// Why a handshake failed.
pub enum TlsFault {
    /// The certificate is not trusted.
    Certificate(String),
    /// There may be no version or cipher suite in common.
    NothingInCommon(String),
    /// Anything else.
    Other(String),
}

/// Classifies the error of a handshake.
pub fn fault_of(error: &std::io::Error) -> TlsFault {
    let first: Option<&(dyn std::error::Error + 'static)> = error.get_ref().map(|inner| inner as _);
    let causes = std::iter::successors(first, |cause: &&(dyn std::error::Error + 'static)| (*cause).source()).take(16);
    let inner = causes.into_iter().find_map(|cause| cause.downcast_ref::<rustls::Error>());
    let Some(fault) = inner else {
        let text = match error.kind() {
            // The reaction of servers too old to refuse a version properly.
            std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::ConnectionReset => {
                return TlsFault::NothingInCommon("the BMC ended the connection in the handshake".to_owned());
            }
            _ => error.to_string(),
        };
        return TlsFault::Other(clean(&text, 300));
    };
    let text = clean(&fault.to_string(), 300);
    match fault {
        rustls::Error::InvalidCertificate(reason) => TlsFault::Certificate(clean(&certificate_text(reason), 300)),
        rustls::Error::PeerIncompatible(_) => TlsFault::NothingInCommon(text),
        rustls::Error::AlertReceived(
            AlertDescription::ProtocolVersion
            | AlertDescription::HandshakeFailure
            | AlertDescription::InsufficientSecurity
            | AlertDescription::IllegalParameter
            | AlertDescription::DecodeError,
        ) => TlsFault::NothingInCommon(text),
        _ => TlsFault::Other(text),
    }
}

fn certificate_text(reason: &CertificateError) -> String {
    use CertificateError as E;
    match reason {
        E::UnknownIssuer => "it is signed by an unknown issuer, or self-signed".into(),
        E::Expired | E::ExpiredContext { .. } => "it has expired".into(),
        E::NotValidYet | E::NotValidYetContext { .. } => {
            "it is not valid yet; check the clocks of BMC and server".into()
        }
        E::NotValidForName | E::NotValidForNameContext { .. } => "it is not made out for this address".into(),
        // webpki's word for a certificate that is marked as an authority's.
        other if other.to_string().contains("CaUsedAsEndEntity") => {
            "it is self-signed and marked as an authority's, so that it has to be given itself".into()
        }
        other => other.to_string(),
    }
}
