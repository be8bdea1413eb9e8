//! TLS: one certificate by its digest for the server, certificate authorities for images.
//!
//! The agent's machine may have any time of day, so the server's certificate is known by its SHA-256 alone, which came with
//! the boot medium; its names and dates are not looked at.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use sha2::{Digest, Sha256};

/// Most extra certificate authorities.
const MAX_AUTHORITIES: usize = 64;

/// Accepts exactly one certificate.
#[derive(Debug)]
struct Pinned {
    sha256: [u8; 32],
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let found: [u8; 32] = Sha256::digest(end_entity).into();
        if found == self.sha256 {
            return Ok(ServerCertVerified::assertion());
        }
        Err(Error::General(format!(
            "the server's certificate has SHA-256 {}, the boot medium names {}",
            hex::encode(found),
            hex::encode(self.sha256)
        )))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Configuration that accepts only the certificate with this SHA-256 (of its DER form).
///
/// # Errors
/// What rustls says when it has no usable protocol version.
pub fn pinned(sha256: [u8; 32]) -> Result<ClientConfig, Error> {
    let provider = provider();
    let verifier = Arc::new(Pinned { sha256, provider: provider.clone() });
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth())
}

/// Configuration for image downloads: the public authorities, and those of `extra_pem`. Gives also how many extra ones there
/// were that could not be used.
///
/// # Errors
/// What rustls says when it has no usable protocol version.
pub fn for_images(extra_pem: &str) -> Result<(ClientConfig, usize), Error> {
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    let mut unusable = 0;
    for certificate in CertificateDer::pem_slice_iter(extra_pem.as_bytes()).take(MAX_AUTHORITIES) {
        let added = certificate.ok().is_some_and(|certificate| roots.add(certificate).is_ok());
        unusable += usize::from(!added);
    }
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok((config, unusable))
}
