//! Keys and certificates: a CA of the data folder, a server certificate made anew at each start, an administrator.

use std::fs;
use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::auth::Clients;

/// Years that the CA and what it signs are good for.
const YEARS: i32 = 20;

/// A key or certificate could not be read, made or written.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file could not be read or written.
    #[error("{} could not be {what}", path.display())]
    File {
        /// "read" or "written".
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A certificate could not be made.
    #[error("a certificate for {subject} could not be made")]
    Make {
        /// Whom for.
        subject: String,
        /// The cause.
        #[source]
        source: rcgen::Error,
    },
    /// TLS refused the material.
    #[error("the TLS set-up was refused: {0}")]
    Tls(String),
}

/// A signed certificate with its key, both PEM.
#[derive(Clone)]
pub struct Identity {
    /// Certificate, PEM.
    pub certificate: String,
    /// Private key, PEM (PKCS #8).
    pub key: String,
}

/// Everything TLS needs.
pub struct Pki {
    /// CA certificate, PEM.
    pub ca: String,
    /// Client certificate of group `system:masters`.
    pub admin: Identity,
    /// Bearer token of the same administrator.
    pub admin_token: String,
    /// Key that signs tokens of service accounts (P-256), PEM.
    pub account_key: String,
    server: Identity,
}

impl Pki {
    /// Reads the folder, making what is missing. Private files have mode 0600, the folder 0700.
    pub fn open(folder: &Path, names: &[String], addresses: &[IpAddr]) -> Result<Self, PkiError> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|source| PkiError::File {
            what: "written",
            path: folder.to_owned(),
            source,
        })?;
        let key_pem = read_or_make(&folder.join("ca.key"), || Ok(new_key("the CA")?.serialize_pem()))?;
        let key = KeyPair::from_pem(&key_pem).map_err(making("the CA"))?;
        let params = ca_params();
        let ca =
            read_or_make(&folder.join("ca.crt"), || Ok(params.self_signed(&key).map_err(making("the CA"))?.pem()))?;
        let issuer = Issuer::from_params(&params, &key);
        let admin_key = read_or_make(&folder.join("admin.key"), || Ok(new_key("admin")?.serialize_pem()))?;
        let admin_certificate = read_or_make(&folder.join("admin.crt"), || {
            let key = KeyPair::from_pem(&admin_key).map_err(making("admin"))?;
            sign(client_params("admin", "system:masters"), &key, &issuer, "admin")
        })?;
        let admin_token = read_or_make(&folder.join("admin.token"), || Ok(hex_token()))?;
        let account_key =
            read_or_make(&folder.join("accounts.key"), || Ok(new_key("service accounts")?.serialize_pem()))?;
        let server_key = new_key("the server")?;
        let certificate = sign(server_params(names, addresses)?, &server_key, &issuer, "the server")?;
        Ok(Self {
            ca,
            admin: Identity { certificate: admin_certificate, key: admin_key },
            admin_token: admin_token.trim().to_owned(),
            account_key,
            server: Identity { certificate, key: server_key.serialize_pem() },
        })
    }

    /// TLS for the listener: asks for a client certificate, and takes connections without one too. Whose a certificate is
    /// says the second.
    pub fn server_config(&self) -> Result<(rustls::ServerConfig, Arc<Clients>), PkiError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = |e: &dyn std::fmt::Display| PkiError::Tls(e.to_string());
        let ca = CertificateDer::from_pem_slice(self.ca.as_bytes()).map_err(|e| tls(&e))?;
        let clients = Arc::new(Clients::of(ca, &provider).map_err(PkiError::Tls)?);
        let chain = vec![CertificateDer::from_pem_slice(self.server.certificate.as_bytes()).map_err(|e| tls(&e))?];
        let key = PrivateKeyDer::from_pem_slice(self.server.key.as_bytes()).map_err(|e| tls(&e))?;
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| tls(&e))?
            .with_client_cert_verifier(Arc::clone(&clients) as _)
            .with_single_cert(chain, key)
            .map_err(|e| tls(&e))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok((config, clients))
    }
}

fn making(subject: &str) -> impl Fn(rcgen::Error) -> PkiError {
    let subject = subject.to_owned();
    move |source| PkiError::Make { subject: subject.clone(), source }
}

fn new_key(subject: &str) -> Result<KeyPair, PkiError> {
    KeyPair::generate().map_err(making(subject))
}

fn hex_token() -> String {
    let bytes: [u8; 32] = rand::random();
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn valid(params: &mut CertificateParams) {
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    let year = i32::from(jiff::Zoned::now().year());
    params.not_after = rcgen::date_time_ymd(year + YEARS, 1, 1);
}

fn named(common: &str, organization: Option<&str>) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common);
    if let Some(organization) = organization {
        name.push(DnType::OrganizationName, organization);
    }
    name
}

fn ca_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    valid(&mut params);
    params.distinguished_name = named("embedded-kubernetes-ca", None);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    params
}

fn client_params(user: &str, group: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    valid(&mut params);
    params.distinguished_name = named(user, Some(group));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

fn server_params(names: &[String], addresses: &[IpAddr]) -> Result<CertificateParams, PkiError> {
    let mut params = CertificateParams::default();
    valid(&mut params);
    params.distinguished_name = named("embedded-kubernetes-api", None);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let mut all: Vec<IpAddr> = addresses.to_vec();
    for name in names {
        match name.parse::<IpAddr>() {
            Ok(address) => all.push(address),
            Err(_) => {
                let dns = name.as_str().try_into().map_err(making(name))?;
                params.subject_alt_names.push(SanType::DnsName(dns));
            }
        }
    }
    all.sort_unstable();
    all.dedup();
    params.subject_alt_names.extend(all.into_iter().map(SanType::IpAddress));
    Ok(params)
}

fn sign(
    params: CertificateParams,
    key: &KeyPair,
    issuer: &Issuer<'_, &KeyPair>,
    subject: &str,
) -> Result<String, PkiError> {
    Ok(params.signed_by(key, issuer).map_err(making(subject))?.pem())
}

/// The file's text, or what `make` gives, then written so that it is whole or absent.
fn read_or_make(path: &Path, make: impl FnOnce() -> Result<String, PkiError>) -> Result<String, PkiError> {
    match fs::read_to_string(path) {
        Ok(text) => return Ok(text),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(source) => return Err(PkiError::File { what: "read", path: path.to_owned(), source }),
    }
    let text = make()?;
    let failed = |source| PkiError::File { what: "written", path: path.to_owned(), source };
    let new = path.with_extension("new");
    let mut file =
        fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    fs::rename(&new, path).map_err(failed)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_was_made_is_kept_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("pki");
        let first = Pki::open(&folder, &["localhost".into()], &["127.0.0.1".parse().unwrap()]).unwrap();
        let again = Pki::open(&folder, &[], &[]).unwrap();
        assert_eq!((first.ca.clone(), first.admin_token.clone()), (again.ca, again.admin_token));
        assert_eq!(first.admin.certificate, again.admin.certificate);
        for file in ["ca.key", "admin.key", "admin.token", "accounts.key"] {
            let mode = fs::metadata(folder.join(file)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{file}");
        }
        first.server_config().unwrap();
    }
}
