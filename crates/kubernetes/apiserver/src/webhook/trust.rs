//! Trust in webhook certificates: the bundle of the configuration, else the system's CAs.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// A TLS configuration that trusts the PEM certificates of `bundle`, or the system's CAs if it is empty.
pub fn client_config(bundle: &[u8]) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    let mut bundled = Vec::new();
    if bundle.is_empty() {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    } else {
        bundled = CertificateDer::pem_slice_iter(bundle).filter_map(Result::ok).collect();
        roots.add_parsable_certificates(bundled.iter().cloned());
        if roots.is_empty() {
            return Err("unable to load root certificates: unable to parse bytes as PEM block".to_owned());
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?;
    if roots.is_empty() {
        // Without system CAs every certificate has an unknown issuer.
        return Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()));
    }
    let inner =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().map_err(|e| e.to_string())?;
    let verifier = Arc::new(Bundle { inner, bundled });
    Ok(Arc::new(config.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()))
}

/// Verifies as usual, and also accepts a self-signed certificate that is listed in the bundle, even one marked as a
/// CA: Go accepts these, and `openssl req -x509` creates them.
#[derive(Debug)]
struct Bundle {
    inner: Arc<WebPkiServerVerifier>,
    bundled: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for Bundle {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let usual = self.inner.verify_server_cert(end_entity, intermediates, server_name, ocsp, now);
        let Err(rustls::Error::InvalidCertificate(CertificateError::Other(_))) = &usual else { return usual };
        let listed = self.bundled.iter().any(|bundled| bundled.as_ref() == end_entity.as_ref());
        if listed && covers(end_entity, server_name, now) { Ok(ServerCertVerified::assertion()) } else { usual }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

/// Whether the certificate is within its validity period and matches the server's name.
fn covers(certificate: &CertificateDer<'_>, server: &ServerName<'_>, now: UnixTime) -> bool {
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else { return false };
    let validity = parsed.validity();
    let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let timely = (validity.not_before.timestamp()..=validity.not_after.timestamp()).contains(&seconds);
    let named = |parsed: ParsedCertificate<'_>| verify_server_name(&parsed, server).is_ok();
    timely && ParsedCertificate::try_from(certificate).is_ok_and(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listed_certificate_counts_for_its_names_in_its_time() {
        let names = ["hooks.example.com", "*.svc.example.com", "192.0.2.7", "2001:db8::7"];
        let mut params = rcgen::CertificateParams::new(names.map(str::to_owned)).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        (params.not_before, params.not_after) = (rcgen::date_time_ymd(2030, 1, 1), rcgen::date_time_ymd(2031, 1, 1));
        let certificate = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
        let (middle, day) = (1_909_000_000, 24 * 3600);
        let at = |seconds| UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
        let of = |name: &'static str, now| covers(certificate.der(), &ServerName::try_from(name).unwrap(), now);
        for name in ["hooks.example.com", "HOOKS.example.com", "a.svc.example.com", "192.0.2.7", "2001:db8::7"] {
            assert!(of(name, at(middle)), "{name}");
            assert!(!of(name, at(middle - 365 * day)) && !of(name, at(middle + 365 * day)), "{name}");
        }
        for name in ["example.com", "a.hooks.example.com", "a.b.svc.example.com", "svc.example.com", "192.0.2.8", "::7"]
        {
            assert!(!of(name, at(middle)), "{name}");
        }
    }
}
