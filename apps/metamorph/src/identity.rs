//! The server's keys: the secret that tokens and media addresses are derived from, and the agent endpoint's certificate.
//!
//! They are kept in one Secret of the Kubernetes API, so that a server that is started anew, here or elsewhere, serves the same
//! bytes at the same addresses and agents that are up recognise it.

use std::collections::BTreeMap;

use anyhow::{Context, anyhow};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};
use rand::TryRng;
use rcgen::{CertificateParams, DnType, KeyPair};
use sha2::{Digest, Sha256};

const NAME: &str = "metamorph-identity";
const SECRET: &str = "secret";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

/// The keys.
pub struct Identity {
    /// 32 bytes that everything per host is derived from.
    pub secret: [u8; 32],
    /// Agent endpoint's certificate, PEM.
    pub certificate_pem: String,
    /// Its key, PEM.
    pub key_pem: String,
    /// SHA-256 of the certificate (DER), lower-case hex.
    pub certificate_sha256: String,
}

impl Identity {
    /// Reads the identity, or makes it when this is the first start.
    pub async fn load(client: &Client, namespace: &str) -> anyhow::Result<Self> {
        let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
        let attempt = || format!("read this server's keys (Secret {NAME} in namespace {namespace})");
        if let Some(found) = api.get_opt(NAME).await.with_context(attempt)? {
            return Self::of(&found).with_context(attempt);
        }
        let new = new_secret()?;
        let mut made = api.create(&PostParams::default(), &new).await;
        if matches!(&made, Err(kube::Error::Api(e)) if e.code == 404) {
            make_namespace(client, namespace).await?;
            made = api.create(&PostParams::default(), &new).await;
        }
        match made {
            Ok(made) => Self::of(&made).with_context(attempt),
            Err(kube::Error::Api(e)) if e.code == 409 => {
                Self::of(&api.get(NAME).await.with_context(attempt)?).with_context(attempt)
            }
            Err(error) => Err(error).with_context(|| format!("keep this server's keys in namespace {namespace}")),
        }
    }

    fn of(found: &Secret) -> anyhow::Result<Self> {
        let field = |name: &str| {
            found
                .data
                .as_ref()
                .and_then(|d| d.get(name))
                .map(|b| b.0.clone())
                .ok_or_else(|| anyhow!("it has no {name}"))
        };
        let secret = field(SECRET)?.try_into().map_err(|_| anyhow!("{SECRET} has not 32 bytes"))?;
        let certificate_pem = String::from_utf8(field(CERTIFICATE)?).context("the certificate is no PEM")?;
        let key_pem = String::from_utf8(field(KEY)?).context("the key is no PEM")?;
        let der = pem_certificate(&certificate_pem)?;
        Ok(Self { secret, certificate_sha256: hex::encode(Sha256::digest(&der)), certificate_pem, key_pem })
    }
}

/// Makes the namespace; another process may do so at the same time.
pub async fn make_namespace(client: &Client, name: &str) -> anyhow::Result<()> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    match namespaces.create(&PostParams::default(), &Namespace { metadata, ..Namespace::default() }).await {
        Err(kube::Error::Api(e)) if e.code == 409 => Ok(()),
        made => made.map(|_| ()).with_context(|| format!("make the namespace {name}; `metamorph rbac` prints it")),
    }
}

fn pem_certificate(pem: &str) -> anyhow::Result<Vec<u8>> {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;
    Ok(CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|e| anyhow!("the certificate is no PEM: {e}"))?.to_vec())
}

fn new_secret() -> anyhow::Result<Secret> {
    let mut secret = [0; 32];
    rand::rngs::SysRng.try_fill_bytes(&mut secret).context("get random bytes from the system")?;
    let key = KeyPair::generate().context("make a key")?;
    // Agents pin the certificate itself: its names and dates say nothing to them.
    let mut params = CertificateParams::new(vec!["metamorph".to_owned()]).context("make a certificate")?;
    params.distinguished_name.push(DnType::CommonName, "Metamorph agent endpoint");
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2120, 1, 1);
    let certificate = params.self_signed(&key).context("make a certificate")?;
    let data = BTreeMap::from([
        (SECRET.to_owned(), ByteString(secret.to_vec())),
        (CERTIFICATE.to_owned(), ByteString(certificate.pem().into_bytes())),
        (KEY.to_owned(), ByteString(key.serialize_pem().into_bytes())),
    ]);
    let metadata = ObjectMeta { name: Some(NAME.to_owned()), ..ObjectMeta::default() };
    Ok(Secret { metadata, data: Some(data), immutable: Some(true), ..Secret::default() })
}
