//! The certificate of the media endpoint over HTTPS: a given one, or one of the server's own, kept in the Kubernetes API so that BMCs that hold it
//! still trust the server after a restart. Both are replaced without a restart: a given one when its files change; an own one after two thirds of its
//! life, once BMCs have received its successor for a day.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::Context;
use axum_server::tls_rustls::RustlsConfig;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use kube::Client;
use provisioner_metamorph::MediaCertificates;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose};
use sha2::{Digest, Sha256};

use crate::connections;
use crate::kept::{self, Data, Series};
use crate::renewal::Times;
use crate::rotated::{Pair, Rotated};

const NAME: &str = "metamorph-media-certificate";
const NAMES: &str = "names";
/// BMCs receive the next certificate on insertion of a medium: after a day, every boot under way knows it.
const TIMES: Times = Times { life: SignedDuration::from_hours(10 * 365 * 24), lead: SignedDuration::from_hours(24) };

/// Where the certificate comes from.
enum Source {
    Given { certificate: PathBuf, key: PathBuf },
    Own(Rotated),
}

/// The media endpoint's TLS.
pub struct MediaTls {
    source: Source,
    now: Mutex<(Pair, Vec<String>)>,
    /// What the listener uses.
    pub config: RustlsConfig,
    /// The certificates that BMCs receive.
    pub certificates: MediaCertificates,
}

impl MediaTls {
    /// The certificate in these files.
    pub async fn given(certificate: &Path, key: &Path) -> anyhow::Result<Self> {
        Self::start(Source::Given { certificate: certificate.to_owned(), key: key.to_owned() }).await
    }

    /// The server's own certificate for these names and addresses; other names get another certificate.
    pub async fn own(client: &Client, namespace: &str, hosts: &[String]) -> anyhow::Result<Self> {
        let mut hosts = hosts.to_vec();
        hosts.sort_unstable();
        hosts.dedup();
        // Each set of hosts has a Secret of its own: the server needs no right to update one.
        let digest = hex::encode(Sha256::digest(hosts.join(",")));
        let name = format!("{NAME}-{}", digest.get(..16).unwrap_or_default());
        let series = Series::new(client, namespace, name, "the media endpoint's certificate");
        Self::start(Source::Own(Rotated::new(series, TIMES, move |now| new(&hosts, now)))).await
    }

    async fn start(source: Source) -> anyhow::Result<Self> {
        let (pair, given) = source.read(Timestamp::now()).await?;
        let config = connections::tls_of("media endpoint", &pair.certificate, &pair.key).await?;
        let certificates = MediaCertificates::new(Some(given.concat()));
        Ok(Self { source, now: Mutex::new((pair, given)), config, certificates })
    }

    /// Checks the certificate; gives a new one to BMCs, then serves it.
    pub async fn look(&self, now: Timestamp) -> anyhow::Result<()> {
        let (pair, given) = self.source.read(now).await?;
        let before = self.now.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if before == (pair.clone(), given.clone()) {
            return Ok(());
        }
        // Mismatched files change nothing, and BMCs receive the certificate before it is served.
        let config = connections::tls_of("media endpoint", &pair.certificate, &pair.key).await?;
        self.certificates.replace(given.concat());
        if before.0 != pair {
            self.config.reload_from_config(config.get_inner());
            tracing::info!("media are served with another certificate from now on");
        }
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = (pair, given);
        Ok(())
    }
}

impl Source {
    /// The certificate to serve, and those to give to BMCs.
    async fn read(&self, now: Timestamp) -> anyhow::Result<(Pair, Vec<String>)> {
        let (pair, all) = match self {
            Self::Own(rotated) => rotated.look(now).await?,
            Self::Given { certificate, key } => {
                let read = async |path: &Path| {
                    tokio::fs::read_to_string(path).await.with_context(|| format!("read {}", path.display()))
                };
                let pair = Pair { certificate: read(certificate).await?, key: read(key).await? };
                // BMCs receive this file's content, and users mix up the files.
                anyhow::ensure!(
                    !pair.certificate.contains("PRIVATE KEY-----"),
                    "--media-certificate: {} holds a private key; put certificates alone into it",
                    certificate.display()
                );
                let all = vec![pair.certificate.clone()];
                (pair, all)
            }
        };
        Ok((pair, all.iter().map(|chain| first_certificate(chain)).collect()))
    }
}

fn new(hosts: &[String], now: Timestamp) -> anyhow::Result<Data> {
    let key = KeyPair::generate().context("make a key")?;
    let mut params = CertificateParams::new(hosts.to_vec()).context("make a certificate")?;
    params.distinguished_name.push(DnType::CommonName, "Metamorph boot media");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    kept::valid(&mut params, now, now + TIMES.life);
    // BMC clocks are often wrong, and then they are behind.
    params.not_before = rcgen::date_time_ymd(2000, 1, 1);
    let certificate = params.self_signed(&key).context("make a certificate")?;
    let mut data = kept::fields(certificate.pem(), key.serialize_pem());
    data.insert(NAMES.to_owned(), ByteString(hosts.join(",").into_bytes()));
    Ok(data)
}

/// The first certificate of a chain: the endpoint's own, which is the one that BMCs compare.
fn first_certificate(chain: &str) -> String {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    const END: &str = "-----END CERTIFICATE-----";
    let Some(start) = chain.find(BEGIN) else { return String::new() };
    let from = chain.get(start..).unwrap_or_default();
    let end = from.find(END).map_or(from.len(), |at| at + END.len());
    format!("{}\n", from.get(..end).unwrap_or_default().trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kept::CERTIFICATE;
    use crate::kept::tests::Secrets;

    #[test]
    fn nothing_but_the_first_certificate_is_given_away() {
        let certificate = |name: &str| format!("-----BEGIN CERTIFICATE-----\n{name}\n-----END CERTIFICATE-----\n");
        let key = "-----BEGIN PRIVATE KEY-----\nsecret\n-----END PRIVATE KEY-----\n";
        let (own, ca) = (certificate("own"), certificate("ca"));
        for chain in [format!("{own}{ca}"), format!("{key}{own}{ca}"), format!("{own}{key}"), format!(" {key}\n{own}")]
        {
            assert_eq!(first_certificate(&chain), own, "{chain}");
        }
        assert_eq!(first_certificate(key), "");
    }

    fn text(data: &Data, field: &str) -> String {
        String::from_utf8(data[field].0.clone()).unwrap()
    }

    #[tokio::test]
    async fn bmcs_are_given_the_next_certificate_before_it_is_served() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let secrets = Secrets::default();
        let tls = MediaTls::own(&secrets.client(), "own", &["192.0.2.1".to_owned()]).await.unwrap();
        let first = tls.certificates.pem().unwrap();
        let begun = Timestamp::now();
        let renewed = begun + TIMES.life / 3 * 2;
        tls.look(renewed - SignedDuration::from_hours(1)).await.unwrap();
        assert_eq!((tls.certificates.pem().unwrap(), secrets.names().len()), (first.clone(), 1));
        *secrets.clock.lock().unwrap() = Some(renewed);
        tls.look(renewed + SignedDuration::from_hours(1)).await.unwrap();
        let name = secrets.names().pop().unwrap();
        let served = || tls.now.lock().unwrap().0.certificate.clone();
        tls.look(renewed + SignedDuration::from_hours(2)).await.unwrap();
        let both = tls.certificates.pem().unwrap();
        assert!(both.starts_with(&first) && both.len() > first.len(), "{both}");
        assert_eq!(served(), first, "the first is served");
        tls.look(renewed + SignedDuration::from_hours(25)).await.unwrap();
        assert_ne!(served(), first, "the second is served");
        assert_eq!(tls.certificates.pem().unwrap(), both, "and both are given");
        tls.look(renewed + SignedDuration::from_hours(49)).await.unwrap();
        assert_eq!(tls.certificates.pem().unwrap(), served());
        assert_eq!(secrets.names(), [name], "the first is gone");
    }

    #[tokio::test]
    async fn given_files_are_read_again_and_bad_ones_change_nothing() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
        let now = Timestamp::now();
        let pairs = [(); 2].map(|()| new(&["media.example".to_owned()], now).unwrap());
        let put = |of_certificate: &str, of_key: &str| {
            std::fs::write(&certificate, of_certificate).unwrap();
            std::fs::write(&key, of_key).unwrap();
        };
        put(&text(&pairs[0], CERTIFICATE), &text(&pairs[0], kept::KEY));
        let tls = MediaTls::given(&certificate, &key).await.unwrap();
        let first = tls.config.get_inner();
        tls.look(now).await.unwrap();
        assert!(std::sync::Arc::ptr_eq(&first, &tls.config.get_inner()), "nothing has changed");
        // Half a change: the old certificate stays in use.
        put(&text(&pairs[1], CERTIFICATE), &text(&pairs[0], kept::KEY));
        tls.look(now).await.unwrap_err();
        put(&text(&pairs[1], kept::KEY), &text(&pairs[1], kept::KEY));
        let error = tls.look(now).await.unwrap_err();
        assert!(error.to_string().contains("holds a private key"), "{error:#}");
        assert!(std::sync::Arc::ptr_eq(&first, &tls.config.get_inner()));
        put(&text(&pairs[1], CERTIFICATE), &text(&pairs[1], kept::KEY));
        tls.look(now).await.unwrap();
        assert!(!std::sync::Arc::ptr_eq(&first, &tls.config.get_inner()));
        assert_eq!(tls.certificates.pem().unwrap(), text(&pairs[1], CERTIFICATE));
    }
}
