//! Who is trusted over TLS: certificates of both sides, an authority from a file or the digest of the worker's key.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};
use sha2::{Digest, Sha256};
use x509_parser::prelude::{FromDer, X509Certificate};

use terms::clean;

/// Most certificates of a file.
const MAX_CERTIFICATES: usize = 64;

/// A digest of a public key (SHA-256 of the SubjectPublicKeyInfo, RFC 7469).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pin(pub [u8; 32]);

impl Pin {
    /// The pin of a certificate's key.
    #[must_use]
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
        Some(Self(Sha256::digest(parsed.public_key().raw).into()))
    }
}

/// Certificates and key, PEM.
pub struct Identity<'a> {
    /// The certificate, with those between it and its authority.
    pub certificate: &'a [u8],
    /// Its key.
    pub key: &'a [u8],
}

/// Whom the other side has to be.
pub enum Trust<'a> {
    /// Certified by one of these authorities (PEM), for the name in the address.
    Authority(&'a [u8]),
    /// The owner of this key, whatever its certificate says.
    Key(Pin),
}

fn certificates(what: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).take(MAX_CERTIFICATES).collect();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        Ok(_) => Err(format!("{what} has no certificate in it")),
        Err(error) => Err(format!("{what} is no list of PEM certificates: {}", clean(&error.to_string(), 200))),
    }
}

fn roots(pem: &[u8]) -> Result<Arc<RootCertStore>, String> {
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(certificates("the authority's file", pem)?);
    if store.is_empty() { Err("the authority's file has no authority in it".to_owned()) } else { Ok(Arc::new(store)) }
}

fn identity(identity: &Identity<'_>) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), String> {
    let key =
        PrivateKeyDer::from_pem_slice(identity.key).map_err(|_| "the key's file has no PEM key in it".to_owned())?;
    Ok((certificates("the certificate's file", identity.certificate)?, key))
}

/// The client's side.
///
/// # Errors
/// What is wrong with the files, a clause.
pub fn client(trust: &Trust<'_>, ours: &Identity<'_>) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(ring::default_provider());
    let shown = |error: &dyn std::fmt::Display| clean(&error.to_string(), 200);
    let verifier: Arc<dyn ServerCertVerifier> = match trust {
        Trust::Authority(pem) => {
            let builder = WebPkiServerVerifier::builder_with_provider(roots(pem)?, Arc::clone(&provider));
            builder.build().map_err(|error| shown(&error))?
        }
        Trust::Key(pin) => Arc::new(Pinned { pin: *pin, provider: Arc::clone(&provider) }),
    };
    let (chain, key) = identity(ours)?;
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| shown(&error))?;
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    let mut config = builder.with_client_auth_cert(chain, key).map_err(|error| shown(&error))?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(config))
}

/// The worker's side: only who is certified by this authority (PEM) is heard.
///
/// # Errors
/// What is wrong with the files, a clause.
pub fn server(authority: &[u8], ours: &Identity<'_>) -> Result<Arc<ServerConfig>, String> {
    let provider = Arc::new(ring::default_provider());
    let shown = |error: &dyn std::fmt::Display| clean(&error.to_string(), 200);
    let verifier = WebPkiClientVerifier::builder_with_provider(roots(authority)?, Arc::clone(&provider));
    let verifier = verifier.build().map_err(|error| shown(&error))?;
    let (chain, key) = identity(ours)?;
    let builder = ServerConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| shown(&error))?;
    let mut config =
        builder.with_client_cert_verifier(verifier).with_single_cert(chain, key).map_err(|error| shown(&error))?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(config))
}

/// Trusts the owner of one key, which the handshake proves.
#[derive(Debug)]
struct Pinned {
    pin: Pin,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match Pin::of(end_entity) {
            Some(pin) if pin == self.pin => Ok(ServerCertVerified::assertion()),
            Some(_) => Err(CertificateError::ApplicationVerificationFailure.into()),
            None => Err(CertificateError::BadEncoding.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
