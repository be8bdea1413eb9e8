//! Clients' certificates, good ones and others.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SigningKey as _,
};
use rustls::client::ResolvesClientCert;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

/// A CA that clients' certificates are of.
#[derive(Clone)]
pub struct Authority {
    /// Its common name, and all of its name.
    pub name: String,
    /// Its key, PEM.
    pub key: String,
}

/// Shows one certificate, whatever the server asks for and whatever form it has.
#[derive(Debug)]
struct Shows(Arc<CertifiedKey>);

impl ResolvesClientCert for Shows {
    fn resolve(&self, _: &[&[u8]], _: &[rustls::SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl Authority {
    /// A client that trusts `ca` and shows a certificate of the user `somebody` in the group `a-group`: `own`; `foreign`, of a
    /// CA of the same name with another key; `stranger`, of a CA of another name; `old`, of X.509 v1; `old-foreign`,
    /// `expired`, `server` (for servers only), `unnamed`, `self-signed`.
    pub fn client(&self, what: &str, ca: &str) -> Result<reqwest::Client> {
        let (chain, key) = self.issue(what)?;
        let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes())?;
        let key = rustls::crypto::ring::sign::any_supported_type(&key)?;
        let resolver = Arc::new(Shows(Arc::new(CertifiedKey::new(vec![chain], key))));
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(ca.as_bytes())?)?;
        let tls = rustls::ClientConfig::builder().with_root_certificates(roots).with_client_cert_resolver(resolver);
        let builder = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
        Ok(builder.tls_backend_preconfigured(tls).user_agent("conformance/1").build()?)
    }

    fn issue(&self, what: &str) -> Result<(CertificateDer<'static>, KeyPair)> {
        let mut authority = self.clone();
        match what {
            "foreign" | "old-foreign" => authority.key = KeyPair::generate()?.serialize_pem(),
            "stranger" => authority = Self { name: "stranger".to_owned(), key: KeyPair::generate()?.serialize_pem() },
            "own" | "old" | "expired" | "server" | "unnamed" | "self-signed" => {}
            other => bail!("no such certificate: {other}"),
        }
        let mut ca = CertificateParams::default();
        ca.distinguished_name = DistinguishedName::new();
        ca.distinguished_name.push(DnType::CommonName, &authority.name);
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let ca_key = KeyPair::from_pem(&authority.key)?;
        let issuer = Issuer::from_params(&ca, &ca_key);
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        if what != "unnamed" {
            params.distinguished_name.push(DnType::CommonName, "somebody");
        }
        params.distinguished_name.push(DnType::OrganizationName, "a-group");
        params.extended_key_usages = vec![match what {
            "server" => ExtendedKeyUsagePurpose::ServerAuth,
            _ => ExtendedKeyUsagePurpose::ClientAuth,
        }];
        if what == "expired" {
            params.not_before = rcgen::date_time_ymd(2001, 1, 1);
            params.not_after = rcgen::date_time_ymd(2002, 1, 1);
        }
        let key = KeyPair::generate()?;
        let made = match what {
            "self-signed" => params.self_signed(&key)?,
            _ => params.signed_by(&key, &issuer)?,
        };
        let made = made.der().clone();
        let old = what.starts_with("old");
        Ok((if old { first_version(&made, &ca_key)? } else { made }, key))
    }
}

/// The certificate as one of X.509 v1: without version and extensions, and signed anew.
fn first_version(certificate: &[u8], ca: &KeyPair) -> Result<CertificateDer<'static>> {
    let (signed, algorithm) = parts(content(certificate)?)
        .and_then(|all| Some((*all.first()?, *all.get(1)?)))
        .context("a certificate has three parts")?;
    let kept = parts(content(signed)?).context("parts of what is signed")?;
    let kept: Vec<u8> = kept.into_iter().filter(|part| !matches!(part[0], 0xa0 | 0xa3)).flatten().copied().collect();
    let signed = value(0x30, &kept);
    let mut signature = vec![0];
    signature.extend(ca.sign(&signed)?);
    let whole = [&signed[..], algorithm, &value(0x03, &signature)].concat();
    Ok(CertificateDer::from(value(0x30, &whole)))
}

/// Where the content of a value in DER begins and ends.
fn span(bytes: &[u8]) -> Option<(usize, usize)> {
    let first = usize::from(*bytes.get(1)?);
    let count = if first < 0x80 { 0 } else { first & 0x7f };
    let long = bytes.get(2..2 + count)?.iter().fold(0, |sum, b| sum << 8 | usize::from(*b));
    let size = if first < 0x80 { first } else { long };
    Some((2 + count, 2 + count + size)).filter(|(_, end)| *end <= bytes.len())
}

fn content(bytes: &[u8]) -> Result<&[u8]> {
    span(bytes).map(|(from, to)| &bytes[from..to]).context("no DER")
}

/// The values that follow each other.
fn parts(mut bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let mut out = Vec::new();
    while !bytes.is_empty() {
        let (part, rest) = bytes.split_at(span(bytes)?.1);
        out.push(part);
        bytes = rest;
    }
    Some(out)
}

fn value(tag: u8, content: &[u8]) -> Vec<u8> {
    let size = content.len();
    let mut out = vec![tag];
    match u8::try_from(size) {
        Ok(short @ ..0x80) => out.push(short),
        Ok(byte) => out.extend([0x81, byte]),
        Err(_) => out.extend([0x82, size.to_be_bytes()[6], size.to_be_bytes()[7]]),
    }
    out.extend_from_slice(content);
    out
}
