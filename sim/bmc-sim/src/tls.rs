//! Certificates of the BMCs: one authority per state folder, and one certificate that all BMCs of a simulator show.

use std::{fs, net::IpAddr, path::Path, sync::Arc};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose, SanType};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tokio_rustls::TlsAcceptor;

/// Why there are no certificates.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file.
    #[error("{what} {path}")]
    File {
        /// What was attempted.
        what: &'static str,
        /// Which file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// Making them.
    #[error("making the certificates of the BMCs")]
    Make(#[from] rcgen::Error),
    /// The state folder's files are unusable.
    #[error("reading the certificates of the BMCs; remove the folder's *.pem files to have them made anew")]
    Pem(#[from] rustls_pki_types::pem::Error),
    /// The TLS library refused them.
    #[error("using the certificates of the BMCs")]
    Use(#[from] rustls::Error),
}

/// The authority's certificate (PEM) and a TLS acceptor. Both are kept in `folder` over restarts, so that clients that trust the authority keep
/// trusting it.
///
/// # Errors
/// Files cannot be read or written, or hold no certificates.
pub fn acceptor(folder: &Path, listen: IpAddr) -> Result<(String, TlsAcceptor), TlsError> {
    let paths = ["ca.pem", "bmc.pem", "bmc-key.pem"].map(|name| folder.join(name));
    if !paths.iter().all(|path| path.exists()) {
        let made = make(listen)?;
        for (path, text) in paths.iter().zip(made) {
            let error = |source| TlsError::File { what: "writing", path: path.display().to_string(), source };
            fs::write(path, text).map_err(error)?;
        }
    }
    let read = |path: &Path| {
        let error = |source| TlsError::File { what: "reading", path: path.display().to_string(), source };
        fs::read_to_string(path).map_err(error)
    };
    let [authority, certificate, key] = [read(&paths[0])?, read(&paths[1])?, read(&paths[2])?];
    let chain = CertificateDer::pem_slice_iter(certificate.as_bytes()).collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok((authority, TlsAcceptor::from(Arc::new(config))))
}

/// Authority, certificate and key, each as PEM. The authority's own key is forgotten.
fn make(listen: IpAddr) -> Result<[String; 3], rcgen::Error> {
    let mut authority = CertificateParams::default();
    authority.distinguished_name.push(DnType::CommonName, "Virtual BMC authority");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
    let mut leaf = CertificateParams::new(vec!["localhost".to_owned()])?;
    leaf.distinguished_name.push(DnType::CommonName, "Virtual BMC");
    for address in [IpAddr::from([127, 0, 0, 1]), IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]), IpAddr::from([10, 0, 2, 2])] {
        leaf.subject_alt_names.push(SanType::IpAddress(address));
    }
    if !listen.is_loopback() && !listen.is_unspecified() {
        leaf.subject_alt_names.push(SanType::IpAddress(listen));
    }
    let key = KeyPair::generate()?;
    let certificate = leaf.signed_by(&key, &authority)?;
    Ok([authority.pem(), certificate.pem(), key.serialize_pem()])
}
