//! The certificate of this boot: self-signed, as ironic-python-agent makes one (`A:tls_utils.py`).

use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{CertificateParams, DnType, KeyPair, PKCS_ECDSA_P384_SHA384, SanType};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use thiserror::Error;

/// How long it is valid.
const LIFE: Duration = Duration::from_secs(30 * 86_400);

/// How long it has been valid, in case Ironic's clocks differ.
const BEFORE: Duration = Duration::from_secs(3600);

/// Why there is no certificate.
#[derive(Debug, Error)]
pub enum CertificateError {
    /// It could not be made.
    #[error("making the certificate of the agent's API failed")]
    Make(#[from] rcgen::Error),
    /// TLS does not take it.
    #[error("setting up the TLS of the agent's API failed")]
    Tls(#[from] rustls::Error),
    /// Its key is not understood.
    #[error("setting up the TLS of the agent's API failed: {0}")]
    Key(&'static str),
}

/// A key that never leaves memory, and its certificate.
#[derive(Debug)]
pub struct Certificate {
    key: KeyPair,
    certificate: rcgen::Certificate,
}

impl Certificate {
    /// A certificate for this address: EC P-384, valid from an hour before `now` for 30 days.
    ///
    /// # Errors
    /// [`CertificateError::Make`].
    pub fn new(name: &str, address: IpAddr, now: SystemTime) -> Result<Self, CertificateError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384)?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.subject_alt_names.push(SanType::IpAddress(address));
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let start = rcgen::date_time_ymd(1970, 1, 1);
        params.not_before = start + since.saturating_sub(BEFORE);
        params.not_after = start + since + LIFE;
        let certificate = params.self_signed(&key)?;
        Ok(Self { key, certificate })
    }

    /// As the heartbeat carries it.
    #[must_use]
    pub fn pem(&self) -> String {
        self.certificate.pem()
    }

    /// The server's side of TLS; with `1.3` as the oldest version that one alone.
    ///
    /// # Errors
    /// [`CertificateError`].
    pub fn server(&self, oldest: Option<&str>) -> Result<ServerConfig, CertificateError> {
        let versions: &[&rustls::SupportedProtocolVersion] = match oldest {
            Some("1.3") => &[&rustls::version::TLS13],
            _ => rustls::DEFAULT_VERSIONS,
        };
        let chain = vec![CertificateDer::from(self.certificate.der().to_vec())];
        let key = PrivateKeyDer::try_from(self.key.serialize_der()).map_err(CertificateError::Key)?;
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}
