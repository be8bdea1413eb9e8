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
        Ok(Self { certificate_pem: read(certificate)?, key_pem: read(key)? })
    }

    /// The server's own certificate for these names and addresses, made anew when they have changed.
    pub async fn own(client: &Client, namespace: &str, hosts: &[String]) -> anyhow::Result<Self> {
        let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
        let attempt = || format!("read the media endpoint's certificate (Secret {NAME} in namespace {namespace})");
        let mut hosts = hosts.to_vec();
        hosts.sort_unstable();
        hosts.dedup();
        let found = api.get_opt(NAME).await.with_context(attempt)?;
        if let Some(own) = found.as_ref().and_then(|found| Self::of(found, &hosts)) {
            return Ok(own);
        }
        let mut new = new_secret(&hosts)?;
        let kept = match found {
            None => api.create(&PostParams::default(), &new).await,
            Some(old) => {
                new.metadata.resource_version = old.metadata.resource_version;
                api.replace(NAME, &PostParams::default(), &new).await
            }
        };
        let kept = match kept {
            // Another process of this server was quicker.
            Err(kube::Error::Api(error)) if error.code == 409 => api.get(NAME).await.with_context(attempt)?,
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

fn new_secret(hosts: &[String]) -> anyhow::Result<Secret> {
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
    let metadata = ObjectMeta { name: Some(NAME.to_owned()), ..ObjectMeta::default() };
    Ok(Secret { metadata, data: Some(data), ..Secret::default() })
}

/// The first certificate of a chain: the endpoint's own, which is what a BMC compares with.
pub fn first_certificate(chain: &str) -> String {
    const END: &str = "-----END CERTIFICATE-----";
    let end = chain.find(END).map_or(chain.len(), |at| at + END.len());
    let start = chain[..end].find("-----BEGIN").unwrap_or(0);
    format!("{}\n", chain[start..end].trim())
}
