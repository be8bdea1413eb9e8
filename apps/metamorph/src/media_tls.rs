//! The certificate of the media endpoint over HTTPS: one that is given, or one of this server's own, kept in the Kubernetes API so that
//! BMCs to which it was given know it again after a restart.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, anyhow};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose};
use sha2::{Digest, Sha256};

const NAME: &str = "metamorph-media-certificate";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const NAMES: &str = "names";

/// Certificate chain and key, PEM.
pub struct MediaTls {
    /// Chain, the endpoint's own certificate first.
    pub certificate_pem: String,
    /// Its key.
    pub key_pem: String,
}

impl MediaTls {
    /// The certificate in these files.
    pub fn given(certificate: &Path, key: &Path) -> anyhow::Result<Self> {
        let read = |path: &Path| std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()));
        let certificate_pem = read(certificate)?;
        // Certificates are given to BMCs, and files are mixed up.
        anyhow::ensure!(
            !certificate_pem.contains("PRIVATE KEY-----"),
            "--media-certificate: {} holds a private key; put certificates alone into it",
            certificate.display()
        );
        Ok(Self { certificate_pem, key_pem: read(key)? })
    }

    /// The server's own certificate for these names and addresses, made anew when they have changed.
    pub async fn own(client: &Client, namespace: &str, hosts: &[String]) -> anyhow::Result<Self> {
        let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
        let mut hosts = hosts.to_vec();
        hosts.sort_unstable();
        hosts.dedup();
        // Each set of hosts has its own: the server needs no right to change one.
        let digest = hex::encode(Sha256::digest(hosts.join(",")));
        let name = format!("{NAME}-{}", digest.get(..16).unwrap_or_default());
        let attempt = || format!("read the media endpoint's certificate (Secret {name} in namespace {namespace})");
        if let Some(found) = api.get_opt(&name).await.with_context(attempt)? {
            return Self::of(&found, &hosts).with_context(|| {
                format!("use the media endpoint's certificate (Secret {name}): delete it, and it is made anew")
            });
        }
        let kept = api.create(&PostParams::default(), &new_secret(&name, &hosts)?).await;
        let kept = match kept {
            // Another process of this server was quicker.
            Err(kube::Error::Api(error)) if error.code == 409 => api.get(&name).await.with_context(attempt)?,
            other => {
                other.with_context(|| format!("keep the media endpoint's certificate in namespace {namespace}"))?
            }
        };
        Self::of(&kept, &hosts)
            .ok_or_else(|| anyhow!("another server with other --media-host keeps it"))
            .with_context(attempt)
    }

    fn of(found: &Secret, hosts: &[String]) -> Option<Self> {
        let field = |name: &str| String::from_utf8(found.data.as_ref()?.get(name)?.0.clone()).ok();
        let own = Self { certificate_pem: field(CERTIFICATE)?, key_pem: field(KEY)? };
        (field(NAMES)? == hosts.join(",")).then_some(own)
    }
}

fn new_secret(name: &str, hosts: &[String]) -> anyhow::Result<Secret> {
    let key = KeyPair::generate().context("make a key")?;
    let mut params = CertificateParams::new(hosts.to_vec()).context("make a certificate")?;
    params.distinguished_name.push(DnType::CommonName, "Metamorph boot media");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    // Clocks of BMCs are often wrong; later years do not fit everywhere (RFC 5280, 4.1.2.5.1).
    params.not_before = rcgen::date_time_ymd(2000, 1, 1);
    params.not_after = rcgen::date_time_ymd(2049, 12, 31);
    let certificate = params.self_signed(&key).context("make a certificate")?;
    let bytes = |text: String| ByteString(text.into_bytes());
    let data = BTreeMap::from([
        (CERTIFICATE.to_owned(), bytes(certificate.pem())),
        (KEY.to_owned(), bytes(key.serialize_pem())),
        (NAMES.to_owned(), bytes(hosts.join(","))),
    ]);
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    Ok(Secret { metadata, data: Some(data), ..Secret::default() })
}

/// The first certificate of a chain: the endpoint's own, which is what a BMC compares with.
pub fn first_certificate(chain: &str) -> String {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    const END: &str = "-----END CERTIFICATE-----";
    let Some(start) = chain.find(BEGIN) else { return String::new() };
    let from = chain.get(start..).unwrap_or_default();
    let end = from.find(END).map_or(from.len(), |at| at + END.len());
    format!("{}\n", from.get(..end).unwrap_or_default().trim())
}

#[cfg(test)]
mod tests {
    use super::first_certificate;

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
}
