//! Whom a webhook's certificate may come from: the bundle of its configuration, else the system's authorities.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// A configuration that trusts the PEM certificates of `bundle`, or the system's if it is empty.
pub fn client_config(bundle: &[u8]) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    let mut own = Vec::new();
    if bundle.is_empty() {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    } else {
        own = CertificateDer::pem_slice_iter(bundle).filter_map(Result::ok).collect();
        roots.add_parsable_certificates(own.iter().cloned());
        if roots.is_empty() {
            return Err("unable to load root certificates: unable to parse bytes as PEM block".to_owned());
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?;
    if roots.is_empty() {
        // A machine without authorities: every certificate is of an unknown one.
        return Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()));
    }
    let inner =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().map_err(|e| e.to_string())?;
    let verifier = Arc::new(Bundle { inner, own });
    Ok(Arc::new(config.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()))
}

/// Verifies as usual, and knows a self-signed certificate that stands in the bundle itself, even one that calls itself
/// an authority: Go takes such ones, and `openssl req -x509` makes them.
#[derive(Debug)]
struct Bundle {
    inner: Arc<WebPkiServerVerifier>,
    own: Vec<CertificateDer<'static>>,
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
        let listed = self.own.iter().any(|own| own.as_ref() == end_entity.as_ref());
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

/// Whether the certificate is in its time and names the server.
fn covers(der: &[u8], server: &ServerName<'_>, now: UnixTime) -> bool {
    let Ok((_, certificate)) = X509Certificate::from_der(der) else { return false };
    let validity = certificate.validity();
    let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    if seconds < validity.not_before.timestamp() || seconds > validity.not_after.timestamp() {
        return false;
    }
    let Ok(Some(names)) = certificate.subject_alternative_name() else { return false };
    names.value.general_names.iter().any(|name| match (name, server) {
        (GeneralName::DNSName(name), ServerName::DnsName(wanted)) => name.eq_ignore_ascii_case(wanted.as_ref()),
        (GeneralName::IPAddress(bytes), ServerName::IpAddress(wanted)) => match std::net::IpAddr::from(*wanted) {
            std::net::IpAddr::V4(v4) => v4.octets() == **bytes,
            std::net::IpAddr::V6(v6) => v6.octets() == **bytes,
        },
        _ => false,
    })
}
