//! Keys and certificates: a CA per data folder, a server certificate created at each start, an administrator. All are
//! renewed before they expire ([`life`]), while the server runs ([`live`]).
//!
//! The folder has up to three CAs: `ca`, which signs; `ca-next`, which is published; `ca-previous`, which is still
//! trusted.

mod clients;
mod life;
mod live;

use std::fs;
use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, UnixTime};

pub use clients::{ClientCertificate, Clients};
use life::Step;
pub use life::Validity;
pub use live::{Live, Place};

/// File names of the CAs without extension: the signing one, the next, the previous.
const CA: &str = "ca";
const NEXT: &str = "ca-next";
const PREVIOUS: &str = "ca-previous";

/// A key or certificate could not be read, created or written.
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
    /// A certificate could not be created.
    #[error("a certificate for {subject} could not be made")]
    Make {
        /// Its subject.
        subject: String,
        /// The cause.
        #[source]
        source: rcgen::Error,
    },
    /// TLS rejected the material.
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

/// The source of the CA certificates.
#[derive(Clone)]
pub enum Ca {
    /// Fixed, PEM.
    Given(String),
    /// Renewed while the server runs.
    Live(Arc<Live>),
}

impl Ca {
    /// The CAs to trust now, PEM.
    pub fn pem(&self) -> String {
        match self {
            Self::Given(pem) => pem.clone(),
            Self::Live(live) => live.ca(),
        }
    }
}

/// A server's credentials besides its certificate.
pub struct Credentials {
    /// Certificates of the CAs.
    pub ca: Ca,
    /// Bearer token of the administrator.
    pub admin_token: String,
    /// Key that signs tokens of service accounts (P-256), PEM.
    pub account_key: String,
}

impl Credentials {
    /// New credentials outside of any folder. The CA's key is dropped: a server without TLS signs nothing.
    pub fn new() -> Result<Self, PkiError> {
        let pem = ca_params().self_signed(&new_key("the CA")?).map_err(making("the CA"))?.pem();
        Ok(Self {
            ca: Ca::Given(pem),
            admin_token: hex_token(),
            account_key: new_key("service accounts")?.serialize_pem(),
        })
    }
}

/// All keys and certificates of a data folder.
pub struct Pki {
    /// Certificates of the trusted CAs, PEM, the signing one first.
    pub ca: String,
    /// Client certificate of group `system:masters`.
    pub admin: Identity,
    /// Bearer token of the same administrator.
    pub admin_token: String,
    /// Key that signs tokens of service accounts (P-256), PEM.
    pub account_key: String,
    /// The signing CA.
    signer: Identity,
}

impl Pki {
    /// The credentials of the server besides TLS.
    pub fn credentials(&self, ca: Ca) -> Credentials {
        Credentials { ca, admin_token: self.admin_token.clone(), account_key: self.account_key.clone() }
    }

    /// Reads the folder. Creates what is missing and renews what is due. Files have mode 0600, the folder 0700.
    pub fn open(folder: &Path, now: Timestamp) -> Result<Self, PkiError> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|source| PkiError::File {
            what: "written",
            path: folder.to_owned(),
            source,
        })?;
        let (signer, ca) = authorities(folder, now)?;
        let mut pki = Self {
            ca,
            admin: Identity { certificate: String::new(), key: String::new() },
            admin_token: read_or_make(&folder.join("admin.token"), || Ok(hex_token()))?.trim().to_owned(),
            account_key: read_or_make(&folder.join("accounts.key"), || {
                Ok(new_key("service accounts")?.serialize_pem())
            })?,
            signer,
        };
        pki.admin = pki.administrator(folder, now)?;
        Ok(pki)
    }

    /// The administrator's certificate: the present one if it is not due and a trusted CA has signed it, else a new
    /// one.
    fn administrator(&self, folder: &Path, now: Timestamp) -> Result<Identity, PkiError> {
        let key = read_or_make(&folder.join("admin.key"), || Ok(new_key("admin")?.serialize_pem()))?;
        let path = folder.join("admin.crt");
        let good = |certificate: &String| {
            let due = Validity::of_pem(certificate).is_none_or(|validity| validity.due(now));
            !due && self.knows(certificate, now)
        };
        if let Some(certificate) = read(&path)?.filter(good) {
            return Ok(Identity { certificate, key });
        }
        let pair = KeyPair::from_pem(&key).map_err(making("admin"))?;
        let certificate = self.sign(client_params("admin", "system:masters"), &pair, "admin", now)?;
        write(&path, &certificate)?;
        Ok(Identity { certificate, key })
    }

    /// Whether a client certificate is accepted.
    fn knows(&self, certificate: &str, now: Timestamp) -> bool {
        let authorities = CertificateDer::pem_slice_iter(self.ca.as_bytes()).filter_map(Result::ok).collect();
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let (Ok(clients), Ok(leaf)) =
            (Clients::of(authorities, &provider), CertificateDer::from_pem_slice(certificate.as_bytes()))
        else {
            return false;
        };
        let seconds = u64::try_from(now.as_second()).unwrap_or_default();
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
        matches!(clients.judge(&[leaf], now), ClientCertificate::User(_))
    }

    /// A new server certificate with a new key.
    pub fn server(&self, names: &[String], addresses: &[IpAddr], now: Timestamp) -> Result<Identity, PkiError> {
        let key = new_key("the server")?;
        let certificate = self.sign(server_params(names, addresses)?, &key, "the server", now)?;
        Ok(Identity { certificate, key: key.serialize_pem() })
    }

    fn sign(
        &self,
        mut params: CertificateParams,
        key: &KeyPair,
        subject: &str,
        now: Timestamp,
    ) -> Result<String, PkiError> {
        let ca_key = KeyPair::from_pem(&self.signer.key).map_err(making("the CA"))?;
        let authority = ca_params();
        let issuer = Issuer::from_params(&authority, &ca_key);
        let mut validity = Validity::of_new(now, life::LEAF);
        if let Some(of_signer) = Validity::of_pem(&self.signer.certificate) {
            validity.to = validity.to.min(of_signer.to);
        }
        valid(&mut params, validity);
        Ok(params.signed_by(key, &issuer).map_err(making(subject))?.pem())
    }
}

/// The signing CA, and the certificates of all trusted CAs, the signing one first.
fn authorities(folder: &Path, now: Timestamp) -> Result<(Identity, String), PkiError> {
    let file = |name: &str, end: &str| folder.join(format!("{name}.{end}"));
    // Completes an interrupted switch, in which only the key was renamed.
    if file(NEXT, "crt").exists() && !file(NEXT, "key").exists() {
        rename(&file(NEXT, "crt"), &file(CA, "crt"))?;
    }
    let mut signer = authority(folder, CA, now)?;
    let mut next = read(&file(NEXT, "crt"))?;
    let of = |pem: &str| Validity::of_pem(pem);
    if let Some(current) = of(&signer.certificate) {
        let step = life::step(current, next.as_deref().and_then(of), now);
        if step != Step::Keep {
            next = Some(authority(folder, NEXT, now)?.certificate);
        }
        if step == Step::Switch {
            write(&file(PREVIOUS, "crt"), &signer.certificate)?;
            rename(&file(NEXT, "key"), &file(CA, "key"))?;
            rename(&file(NEXT, "crt"), &file(CA, "crt"))?;
            (signer, next) = (authority(folder, CA, now)?, None);
            tracing::warn!(
                "the API's CA has had its time: another one signs from now on, of which kubeconfigs older than a year know nothing"
            );
        }
    }
    let previous = read(&file(PREVIOUS, "crt"))?;
    let trusted = previous.filter(|pem| of(pem).is_some_and(|validity| !validity.over(now)));
    let all = [Some(signer.certificate.clone()), next, trusted].into_iter().flatten();
    Ok((signer, all.collect()))
}

/// The CA in these files; a missing key or certificate is created, the key first.
fn authority(folder: &Path, name: &str, now: Timestamp) -> Result<Identity, PkiError> {
    let key = read_or_make(&folder.join(format!("{name}.key")), || Ok(new_key("the CA")?.serialize_pem()))?;
    let certificate = read_or_make(&folder.join(format!("{name}.crt")), || {
        let pair = KeyPair::from_pem(&key).map_err(making("the CA"))?;
        let mut params = ca_params();
        valid(&mut params, Validity::of_new(now, life::CA));
        Ok(params.self_signed(&pair).map_err(making("the CA"))?.pem())
    })?;
    Ok(Identity { certificate, key })
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

fn valid(params: &mut CertificateParams, validity: Validity) {
    let day = |at: Timestamp| {
        let date = at.to_zoned(jiff::tz::TimeZone::UTC).date();
        rcgen::date_time_ymd(date.year().into(), date.month().unsigned_abs(), date.day().unsigned_abs())
    };
    (params.not_before, params.not_after) = (day(validity.from), day(validity.to));
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
    params.distinguished_name = named("embedded-kubernetes-ca", None);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    params
}

fn client_params(user: &str, group: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = named(user, Some(group));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

fn server_params(names: &[String], addresses: &[IpAddr]) -> Result<CertificateParams, PkiError> {
    let mut params = CertificateParams::default();
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

/// The file's text; a missing file is created with the text of `make`.
fn read_or_make(path: &Path, make: impl FnOnce() -> Result<String, PkiError>) -> Result<String, PkiError> {
    if let Some(text) = read(path)? {
        return Ok(text);
    }
    let text = make()?;
    write(path, &text)?;
    Ok(text)
}

/// The file's text, `None` if it is absent.
fn read(path: &Path) -> Result<Option<String>, PkiError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(PkiError::File { what: "read", path: path.to_owned(), source }),
    }
}

/// Writes a file atomically.
fn write(path: &Path, text: &str) -> Result<(), PkiError> {
    let failed = |source| PkiError::File { what: "written", path: path.to_owned(), source };
    let new = path.with_extension("new");
    let mut file =
        fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    rename(&new, path)
}

fn rename(from: &Path, to: &Path) -> Result<(), PkiError> {
    fs::rename(from, to).map_err(|source| PkiError::File { what: "written", path: to.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_was_made_is_kept_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("pki");
        let now = Timestamp::now();
        let first = Pki::open(&folder, now).unwrap();
        let again = Pki::open(&folder, now).unwrap();
        assert_eq!((first.ca, first.admin_token), (again.ca, again.admin_token));
        assert_eq!(first.admin.certificate, again.admin.certificate);
        for file in ["ca.key", "admin.key", "admin.token", "accounts.key"] {
            let mode = fs::metadata(folder.join(file)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{file}");
        }
    }
}
