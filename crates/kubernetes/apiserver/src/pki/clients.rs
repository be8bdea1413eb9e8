//! Client certificates. As in kube-apiserver, the handshake accepts any certificate, and it is verified afterwards. A
//! refused certificate leads to a 401, or has no effect beside a valid token, but does not end the connection.
//!
//! `rustls` and its `webpki` support only X.509 version 3, but `openssl x509 -req` creates version 1 by default,
//! which kube-apiserver accepts. Version 1 has no extensions, so only issuer, signature and dates are checked.

use std::sync::Arc;

use rustls::DigitallySignedStruct;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{self, CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls_pki_types::{
    AlgorithmIdentifier, CertificateDer, SignatureVerificationAlgorithm, SubjectPublicKeyInfoDer, UnixTime,
};
use x509_parser::prelude::{FromDer, X509Certificate, X509Version};

use crate::user::{User, user_of_certificate};

/// The certificate that a client presented in the handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientCertificate {
    /// No certificate, or one without a user name.
    Nothing,
    /// The certificate of a user.
    User(User),
    /// A certificate that was refused, and why.
    Refused(String),
}

/// Verifies client certificates and finds their users.
#[derive(Debug)]
pub struct Clients {
    known: Arc<dyn ClientCertVerifier>,
    authorities: Vec<CertificateDer<'static>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Clients {
    /// Trusts these CAs. The error is the TLS library's.
    pub fn of(authorities: Vec<CertificateDer<'static>>, provider: &Arc<CryptoProvider>) -> Result<Self, String> {
        let mut roots = rustls::RootCertStore::empty();
        for authority in &authorities {
            roots.add(authority.clone()).map_err(|e| e.to_string())?;
        }
        let known = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
            .build()
            .map_err(|e| e.to_string())?;
        Ok(Self { known, authorities, algorithms: provider.signature_verification_algorithms })
    }

    /// The user of a certificate chain, which begins with the client's own certificate.
    pub fn judge(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> ClientCertificate {
        let Some((leaf, others)) = chain.split_first() else { return ClientCertificate::Nothing };
        let judged = self.known.verify_client_cert(leaf, others, now).map(drop);
        let old_form = || self.authorities.iter().find_map(|ca| self.old_form(leaf, ca, now));
        match judged.or_else(|error| old_form().ok_or(error)) {
            Ok(()) => user_of_certificate(leaf).map_or(ClientCertificate::Nothing, ClientCertificate::User),
            Err(error) => ClientCertificate::Refused(error.to_string()),
        }
    }

    /// Checks that it is a version 1 certificate signed by this CA.
    fn old_form(&self, leaf: &[u8], ca: &[u8], now: UnixTime) -> Option<()> {
        let (_, certificate) = X509Certificate::from_der(leaf).ok()?;
        let (_, ca) = X509Certificate::from_der(ca).ok()?;
        let now = i64::try_from(now.as_secs()).ok()?;
        let validity = certificate.validity();
        let timely = validity.not_before.timestamp() <= now && now <= validity.not_after.timestamp();
        if certificate.version() != X509Version::V1 || certificate.issuer().as_raw() != ca.subject().as_raw() || !timely
        {
            return None;
        }
        let (signed, rest) = whole(element(leaf)?.content)?;
        let (algorithm, rest) = whole(rest)?;
        let (signature, _) = whole(rest)?;
        let algorithm = element(algorithm)?.content;
        let same = |id: AlgorithmIdentifier| *id == *algorithm;
        let candidates = self.algorithms.all.iter().filter(|a| same(a.signature_alg_id()));
        verified(candidates, ca.public_key().raw, signed, bits(signature)?)
    }

    fn key_of<'a>(&self, certificate: &'a [u8]) -> Option<SubjectPublicKeyInfoDer<'a>> {
        let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
        Some(SubjectPublicKeyInfoDer::from(certificate.tbs_certificate.subject_pki.raw))
    }
}

/// A DER value.
struct Element<'a> {
    content: &'a [u8],
    /// Length of the whole value with its header, in bytes.
    length: usize,
}

fn element(bytes: &[u8]) -> Option<Element<'_>> {
    let first = usize::from(*bytes.get(1)?);
    let (size, head) = if first < 0x80 {
        (first, 2)
    } else {
        let count = first & 0x7f;
        let size = bytes.get(2..2 + count).filter(|_| (1..=4).contains(&count))?;
        (size.iter().fold(0usize, |sum, b| sum << 8 | usize::from(*b)), 2 + count)
    };
    let length = head.checked_add(size)?;
    Some(Element { content: bytes.get(head..length)?, length })
}

/// Splits off the first value with its header.
fn whole(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    Some(bytes.split_at(element(bytes)?.length))
}

/// The content of a bit string without unused bits.
fn bits(value: &[u8]) -> Option<&[u8]> {
    element(value)?.content.split_first().filter(|(unused, _)| **unused == 0).map(|(_, bits)| bits)
}

/// Verifies the signature with an algorithm that matches the key.
fn verified<'a>(
    algorithms: impl IntoIterator<Item = &'a &'static dyn SignatureVerificationAlgorithm>,
    key: &[u8],
    message: &[u8],
    signature: &[u8],
) -> Option<()> {
    let (kind, key) = whole(element(key)?.content)?;
    let (kind, key) = (element(kind)?.content, bits(key)?);
    let fit = algorithms.into_iter().filter(|a| *a.public_key_alg_id() == *kind);
    fit.into_iter().find_map(|a| a.verify_signature(key, message, signature).ok())
}

impl ClientCertVerifier for Clients {
    fn root_hint_subjects(&self) -> &[rustls::DistinguishedName] {
        self.known.root_hint_subjects()
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        // Verified after the handshake, see the module.
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        crypto::verify_tls12_signature(message, certificate, signed, &self.algorithms).or_else(|error| {
            let of_scheme = self.algorithms.mapping.iter().find(|(scheme, _)| *scheme == signed.scheme);
            let candidates = of_scheme.map_or(&[][..], |(_, algorithms)| algorithms);
            self.key_of(certificate)
                .and_then(|key| verified(candidates, &key, message, signed.signature()))
                .map(|()| HandshakeSignatureValid::assertion())
                .ok_or(error)
        })
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        crypto::verify_tls13_signature(message, certificate, signed, &self.algorithms).or_else(|error| {
            let key = self.key_of(certificate).ok_or(error)?;
            crypto::verify_tls13_signature_with_raw_key(message, &key, signed, &self.algorithms)
        })
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
