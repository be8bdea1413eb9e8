//! TLS: one certificate by its digest for the server, certificate authorities for images.
//!
//! The agent's machine may have any time of day, so the server's certificate is verified by its SHA-256 alone, which came with the boot medium; its
//! names and dates are ignored. The dates of image servers' certificates do count, and are compared with the time that the pinned server reports:
//! [`ServerClock`].

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};
use sha2::{Digest, Sha256};

/// Most extra certificate authorities.
const MAX_AUTHORITIES: usize = 64;

/// Accepts exactly one certificate.
#[derive(Debug)]
struct Pinned {
    sha256: [u8; 32],
    /// The pin as a hint in the handshake: a server with several certificates (it changes its keys while machines boot) serves the matching one.
    hint: [DistinguishedName; 1],
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

    fn root_hint_subjects(&self) -> Option<&[DistinguishedName]> {
        Some(&self.hint)
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// A configuration that accepts only the certificate with this SHA-256 (of its DER form).
///
/// # Errors
/// rustls' error if it has no usable protocol version.
pub fn pinned(sha256: [u8; 32]) -> Result<ClientConfig, Error> {
    let provider = provider();
    let hint = [DistinguishedName::from(agent_protocol::certificate_hint(&hex::encode(sha256)))];
    let verifier = Arc::new(Pinned { sha256, hint, provider: provider.clone() });
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth())
}

/// The time of day by the server's last answer, advanced by the machine's monotonic clock. Unset before the first answer.
#[derive(Debug, Default)]
pub struct ServerClock(Mutex<Option<(Duration, Instant)>>);

impl ServerClock {
    /// Sets the time from an answer's `Date` field (RFC 9110, section 6.6.1); ignores anything else.
    pub fn observe(&self, date: &str) {
        let reported = httpdate::parse_http_date(date).ok().and_then(|t| t.duration_since(std::time::UNIX_EPOCH).ok());
        if let Some(reported) = reported {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((reported, Instant::now()));
        }
    }
}

impl TimeProvider for ServerClock {
    fn current_time(&self) -> Option<UnixTime> {
        let (reported, at) = (*self.0.lock().unwrap_or_else(PoisonError::into_inner))?;
        Some(UnixTime::since_unix_epoch(reported + at.elapsed()))
    }
}

/// A configuration for image downloads: trusts the public authorities and those of `extra_pem`, at the time of `clock`. Also returns the number of
/// unusable certificates in `extra_pem`.
///
/// # Errors
/// rustls' error if it has no usable protocol version.
pub fn for_images(extra_pem: &str, clock: Arc<dyn TimeProvider>) -> Result<(ClientConfig, usize), Error> {
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    let mut unusable = 0;
    for certificate in CertificateDer::pem_slice_iter(extra_pem.as_bytes()).take(MAX_AUTHORITIES) {
        let added = certificate.ok().is_some_and(|certificate| roots.add(certificate).is_ok());
        unusable += usize::from(!added);
    }
    let config = ClientConfig::builder_with_details(provider(), clock)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok((config, unusable))
}

/// Accepts any certificate, and looks whether the server has its key.
#[derive(Debug)]
struct Any(Arc<CryptoProvider>);

impl ServerCertVerifier for Any {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// A configuration that accepts any certificate: for what an Ironic's `ipa-insecure` is about alone.
///
/// # Errors
/// rustls' error if it has no usable protocol version.
pub fn unverified() -> Result<ClientConfig, Error> {
    let provider = provider();
    let verifier = Arc::new(Any(provider.clone()));
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::PrivateKeyDer;
    use rustls::{ClientConnection, ServerConfig, ServerConnection};

    /// A handshake in memory with a server whose certificate is valid only in the year 2040; returns the client's result.
    fn handshake(clock: Arc<ServerClock>) -> Result<(), Error> {
        let mut params = rcgen::CertificateParams::new(["images.example".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2040, 1, 1);
        params.not_after = rcgen::date_time_ymd(2041, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let (client, unusable) = for_images(&certificate.pem(), clock).unwrap();
        assert_eq!(unusable, 0);
        let server = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
            .unwrap();
        let name = ServerName::try_from("images.example").unwrap();
        let mut client = ClientConnection::new(Arc::new(client), name).unwrap();
        let mut server = ServerConnection::new(Arc::new(server)).unwrap();
        while client.is_handshaking() {
            let mut wire = Vec::new();
            while client.wants_write() {
                client.write_tls(&mut wire).unwrap();
            }
            server.read_tls(&mut wire.as_slice()).unwrap();
            server.process_new_packets().unwrap();
            let mut wire = Vec::new();
            while server.wants_write() {
                server.write_tls(&mut wire).unwrap();
            }
            let mut rest = wire.as_slice();
            while !rest.is_empty() {
                client.read_tls(&mut rest).unwrap();
                client.process_new_packets()?;
            }
        }
        Ok(())
    }

    #[test]
    fn the_dates_of_an_image_servers_certificate_are_held_against_the_servers_time() {
        let clock = Arc::new(ServerClock::default());
        assert!(handshake(Arc::clone(&clock)).is_err(), "without a time nothing is trusted");
        clock.observe("Tue, 21 Nov 2028 12:00:00 GMT");
        assert!(handshake(Arc::clone(&clock)).is_err(), "it is not valid yet");
        clock.observe("Wed, 06 Jun 2040 12:00:00 GMT");
        clock.observe("yesterday");
        handshake(clock).unwrap();
    }
}
