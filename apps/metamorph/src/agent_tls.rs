//! The TLS certificate served to an agent: the one that its boot medium names, current or earlier.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use anyhow::Context;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// A certificate with its key, and the hint with which agents request it.
#[derive(Clone, Debug)]
pub struct ServedCertificate {
    hint: Vec<u8>,
    certified: Arc<CertifiedKey>,
}

impl ServedCertificate {
    /// Of a certificate and its key in PEM; `sha256` is the certificate's digest.
    pub fn of(certificate: &str, key: &str, sha256: &str) -> anyhow::Result<Self> {
        let attempt = "use the agent endpoint's certificate and key";
        let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).context(attempt)?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).context(attempt)?;
        let provider = CryptoProvider::get_default().context(attempt)?;
        let certified = CertifiedKey::from_der(vec![certificate], key, provider).context(attempt)?;
        Ok(Self { hint: agent_protocol::certificate_hint(sha256), certified: Arc::new(certified) })
    }
}

/// The certificates of all keys. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct AgentCertificates {
    all: Arc<RwLock<Vec<ServedCertificate>>>,
    turn: Arc<AtomicUsize>,
}

impl AgentCertificates {
    /// Replaces the served certificates; the current one comes first.
    pub fn replace(&self, all: Vec<ServedCertificate>) {
        *self.all.write().unwrap_or_else(PoisonError::into_inner) = all;
    }

    /// The TLS configuration that serves them, for HTTP/1 only.
    pub fn config(&self) -> rustls::ServerConfig {
        let mut config =
            rustls::ServerConfig::builder().with_no_client_auth().with_cert_resolver(Arc::new(self.clone()));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config
    }

    fn pick<'a>(&self, mut wanted: Option<impl Iterator<Item = &'a [u8]>>) -> Option<Arc<CertifiedKey>> {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        let chosen = match &mut wanted {
            Some(hints) => hints.find_map(|hint| all.iter().find(|served| served.hint == hint)).or_else(|| all.first()),
            // An agent of an earlier version sends no hint, and retries until it is served the certificate that it pins.
            None => all.get(self.turn.fetch_add(1, Ordering::Relaxed).checked_rem(all.len())?),
        };
        chosen.map(|served| Arc::clone(&served.certified))
    }
}

impl ResolvesServerCert for AgentCertificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.pick(hello.certificate_authorities().map(|names| names.iter().map(AsRef::as_ref)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::{Digest, Sha256};

    fn served() -> ServedCertificate {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(vec![]).unwrap().self_signed(&key).unwrap();
        let sha256 = hex::encode(Sha256::digest(certificate.der()));
        ServedCertificate::of(&certificate.pem(), &key.serialize_pem(), &sha256).unwrap()
    }

    #[test]
    fn an_agent_is_shown_the_certificate_that_it_names() {
        let (one, two) = (served(), served());
        let certificates = AgentCertificates::default();
        let pick = |hints: Option<&[&ServedCertificate]>| {
            let picked = certificates.pick(hints.map(|hints| hints.iter().map(|served| served.hint.as_slice())))?;
            Some(if Arc::ptr_eq(&picked, &one.certified) { 1 } else { 2 })
        };
        assert_eq!((pick(None), pick(Some(&[&one]))), (None, None), "there is none");
        certificates.replace(vec![two.clone(), one.clone()]);
        assert_eq!((pick(Some(&[&one])), pick(Some(&[&two]))), (Some(1), Some(2)));
        assert_eq!(pick(Some(&[&served()])), Some(2), "of a key that is gone: it is to see what there is");
        let turns: Vec<_> = (0..4).map(|_| pick(None).unwrap()).collect();
        assert_eq!(turns, [1, 2, 1, 2], "who names none gets each in turn");
    }
}
