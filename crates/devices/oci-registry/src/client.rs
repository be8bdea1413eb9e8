//! From a reference to the layer, and from the layer to who may read it (distribution-spec, "Pulling manifests"; distribution, "Token Authentication
//! Specification").

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use addresses::Allowed;
use async_trait::async_trait;
use image_sources::Route;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use url::Url;

use crate::challenge::{self, Challenge};
use crate::digest::Digest;
use crate::error::Error;
use crate::manifest::{self, DiskLayer, Manifest};
use crate::pull_secret::PullSecret;
use crate::reference::{Reference, Target};
use crate::transport::{Answer, Request, Transport, TransportError};

/// Largest manifest that is read, in bytes (distribution-spec: registries should take 4 MiB).
pub const MAX_MANIFEST_BYTES: usize = 4 << 20;
/// Most redirects of one request.
pub const MAX_REDIRECTS: usize = 3;
/// Longest token that is taken, in bytes.
pub const MAX_TOKEN_BYTES: usize = 16 << 10;
/// Largest answer of a token service, in bytes.
const MAX_TOKEN_ANSWER: usize = 64 << 10;
/// Most manifests of an index that are fetched to find the disk image.
const MAX_FETCHED: usize = 8;
/// Longest time that an image is looked for, or its layer's access asked for.
const LONGEST: Duration = Duration::from_secs(90);
/// Longest address that is asked, in bytes.
const MAX_URL: usize = 8192;
/// Longest pause that a registry may ask for and have repeated, in seconds.
const MAX_RETRY_AFTER: u32 = 86_400;

const REGISTRY: &str = "the registry";
const TOKENS: &str = "its token service";

/// What a reference names, for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// Of the manifest or index that the reference names.
    pub digest: Digest,
    /// The disk image in it.
    pub layer: DiskLayer,
}

/// How a blob is read.
#[derive(Clone)]
pub struct Access {
    /// Its address.
    pub url: Url,
    /// The value of `Authorization`, a token for this repository; none where the registry wants none.
    pub authorization: Option<SecretString>,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Access({}, {})", self.url, if self.authorization.is_some() { "with a token" } else { "open" })
    }
}

/// All registries.
#[derive(Clone)]
pub struct Registries {
    transport: Arc<dyn Transport>,
    allowed: Allowed,
    plain_http: BTreeSet<String>,
    proxy: Option<Arc<Route>>,
}

impl std::fmt::Debug for Registries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registries").field("plain_http", &self.plain_http).finish_non_exhaustive()
    }
}

impl Default for Registries {
    /// None of which can be reached.
    fn default() -> Self {
        Self::new(Nowhere, Allowed::default(), [])
    }
}

/// No network.
struct Nowhere;

#[async_trait]
impl Transport for Nowhere {
    async fn get(&self, _: Request<'_>) -> Result<Answer, TransportError> {
        Err(TransportError::Lost("there is no network".to_owned()))
    }
}

impl Registries {
    /// Registries by this transport, at local addresses only if they are allowed. Those of `plain_http` (`host[:port]`) are asked without TLS.
    #[must_use]
    pub fn new(
        transport: impl Transport + 'static,
        allowed: Allowed,
        plain_http: impl IntoIterator<Item = String>,
    ) -> Self {
        let plain_http = plain_http.into_iter().map(|name| name.to_ascii_lowercase()).collect();
        Self { transport: Arc::new(transport), allowed, plain_http, proxy: None }
    }

    /// The same, asked by way of this proxy.
    #[must_use]
    pub fn through(&self, proxy: Option<Route>) -> Self {
        Self { proxy: proxy.map(Arc::new), ..self.clone() }
    }

    /// The disk image that the reference names now, for a machine of this architecture (`x86_64`).
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn resolve(
        &self,
        reference: &Reference,
        secret: Option<&PullSecret>,
        architecture: &str,
    ) -> Result<Resolved, Error> {
        within(self.resolved(reference, secret, architecture)).await
    }

    async fn resolved(
        &self,
        reference: &Reference,
        secret: Option<&PullSecret>,
        architecture: &str,
    ) -> Result<Resolved, Error> {
        let mut session = Session { registries: self, reference, secret, token: None };
        let (digest, bytes) = session.manifest(reference.target()).await?;
        let index = match Manifest::read(&bytes)? {
            Manifest::Layers(layers) => return Ok(Resolved { layer: layers.disk(&digest, None)?, digest }),
            Manifest::Index(index) => index,
        };
        let mut not_found = None;
        for candidate in index.candidates(architecture)?.into_iter().take(MAX_FETCHED) {
            let (manifest, bytes) = session.manifest(&Target::Digest(candidate.digest)).await?;
            let Manifest::Layers(layers) = Manifest::read(&bytes)? else {
                return Err(nonsense(REGISTRY, "serves an index within an index"));
            };
            match layers.disk(&manifest, candidate.format) {
                Ok(layer) => return Ok(Resolved { digest, layer }),
                Err(error @ (Error::NoDiskImage { .. } | Error::Unsupported { .. })) => {
                    not_found = not_found.or(Some(error));
                }
                Err(error) => return Err(error),
            }
        }
        Err(not_found.unwrap_or_else(|| Error::NoDiskImage { what: "has no manifest".to_owned() }))
    }

    /// How the layer's blob is read from now on. The registry is asked for the layer's manifest with the same right, so that one that does not serve it any
    /// more is found out here.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn access(
        &self,
        reference: &Reference,
        layer: &DiskLayer,
        secret: Option<&PullSecret>,
    ) -> Result<Access, Error> {
        let mut session = Session { registries: self, reference, secret, token: None };
        within(session.manifest(&Target::Digest(layer.manifest.clone()))).await?;
        let url = reference.url(self.scheme(reference), "blobs", layer.blob.as_str())?;
        Ok(Access { url, authorization: session.token })
    }

    /// Whether its registry is asked without TLS.
    #[must_use]
    pub fn is_plain(&self, reference: &Reference) -> bool {
        self.plain_http.contains(&reference.registry())
    }

    fn scheme(&self, reference: &Reference) -> &'static str {
        if self.is_plain(reference) { "http" } else { "https" }
    }

    /// Addresses that are written as such; those of names are seen when they are resolved.
    fn check(&self, url: &Url) -> Result<(), Error> {
        if !url.has_host() {
            return Err(nonsense(REGISTRY, "names an address without a host"));
        }
        self.allowed.check_url(url).map_err(Error::NotAllowed)
    }

    async fn get(&self, who: &'static str, request: Request<'_>) -> Result<Answer, Error> {
        self.check(request.url)?;
        let max = request.max_body;
        self.transport.get(request).await.map_err(|error| match error {
            TransportError::NotAllowed(refused) => Error::NotAllowed(refused),
            TransportError::Lost(why) => Error::Unreachable { who, why },
            TransportError::TooLarge => nonsense(who, &format!("answers with more than {max} bytes")),
        })
    }
}

/// Fails if the registry takes too long for all of it: each host has its own, and other work waits for it.
async fn within<T>(asked: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    tokio::time::timeout(LONGEST, asked).await.unwrap_or_else(|_| {
        let why = format!("it has not served what was asked for within {} s", LONGEST.as_secs());
        Err(Error::Unreachable { who: REGISTRY, why })
    })
}

/// One sequence of requests about one repository.
struct Session<'a> {
    registries: &'a Registries,
    reference: &'a Reference,
    secret: Option<&'a PullSecret>,
    token: Option<SecretString>,
}

impl Session<'_> {
    /// A manifest with its digest, which its bytes have.
    async fn manifest(&mut self, target: &Target) -> Result<(Digest, Vec<u8>), Error> {
        let scheme = self.registries.scheme(self.reference);
        let url = self.reference.url(scheme, "manifests", &target.to_string())?;
        let (mut answer, mut own) = self.follow(&url).await?;
        // Who a registry sends on to is not told the user and password for it.
        if answer.status == 401 && own {
            self.sign_in(&answer).await?;
            (answer, own) = self.follow(&url).await?;
        }
        if answer.status == 401 && !own {
            let what = "sends on to another host, which wants to be signed in to";
            return Err(nonsense(REGISTRY, what));
        }
        let what = if matches!(target, Target::Tag(_)) { "image" } else { "manifest" };
        self.judge(REGISTRY, &answer, what)?;
        let wanted = match target {
            Target::Digest(digest) => digest.clone(),
            // What the registry says is the digest has to be it, where it says one that can be read.
            Target::Tag(_) => match answer.digest.as_deref().and_then(|said| said.parse::<Digest>().ok()) {
                Some(said) if !said.fits(&answer.body) => said,
                _ => Digest::of(&answer.body),
            },
        };
        if !wanted.fits(&answer.body) {
            let found = Digest::of(&answer.body).to_string();
            return Err(Error::DigestMismatch { what: "manifest", expected: wanted.to_string(), found });
        }
        Ok((wanted, answer.body))
    }

    /// Asks at this address and, if it is sent on, at others: with the token at the same origin alone, and never from TLS to none. With the answer, whether it
    /// came from this origin.
    async fn follow(&self, url: &Url) -> Result<(Answer, bool), Error> {
        let mut at = url.clone();
        let mut token = self.token.as_ref();
        for _ in 0..=MAX_REDIRECTS {
            let (accept, max_body) = (manifest::ACCEPT, MAX_MANIFEST_BYTES);
            let proxy = self.registries.proxy.as_deref();
            let request = Request { url: &at, accept, authorization: token, max_body, proxy };
            let answer = self.registries.get(REGISTRY, request).await?;
            if !matches!(answer.status, 301 | 302 | 303 | 307 | 308) {
                return Ok((answer, at.origin() == url.origin()));
            }
            let next = answer.location.as_deref().and_then(|location| at.join(location).ok());
            let next = next.filter(|next| next.as_str().len() <= MAX_URL && matches!(next.scheme(), "http" | "https"));
            let next = next.ok_or_else(|| nonsense(REGISTRY, "redirects to no address"))?;
            if at.scheme() == "https" && next.scheme() != "https" {
                return Err(nonsense(REGISTRY, "redirects to an address without TLS"));
            }
            if next.origin() != at.origin() {
                token = None;
            }
            at = next;
        }
        Err(nonsense(REGISTRY, &format!("redirects more than {MAX_REDIRECTS} times")))
    }

    /// Meets the challenge of a refusal.
    async fn sign_in(&mut self, refusal: &Answer) -> Result<(), Error> {
        let (realm, service) = match challenge::choose(&refusal.challenges)? {
            Challenge::Basic => return Err(Error::NoTokenService),
            Challenge::Bearer { realm, service } => (realm, service),
        };
        let fault = |what: &str| nonsense(REGISTRY, what);
        let url = Url::parse(&realm).ok().filter(|url| url.has_host() && matches!(url.scheme(), "http" | "https"));
        let mut url = url.ok_or_else(|| fault("names a token service at no address"))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(fault("names a token service with a user"));
        }
        if url.scheme() != "https" && !self.registries.is_plain(self.reference) {
            return Err(fault("names a token service without TLS"));
        }
        {
            let mut query = url.query_pairs_mut();
            if let Some(service) = &service {
                query.append_pair("service", service);
            }
            query.append_pair("scope", &self.reference.scope());
        }
        if url.as_str().len() > MAX_URL {
            return Err(fault("names a token service at an address that is too long"));
        }
        let request = Request {
            url: &url,
            accept: "application/json",
            authorization: self.secret.map(PullSecret::basic),
            max_body: MAX_TOKEN_ANSWER,
            proxy: self.registries.proxy.as_deref(),
        };
        let answer = self.registries.get(TOKENS, request).await?;
        self.judge(TOKENS, &answer, "token")?;
        let token = token_of(&answer.body)?;
        if self.secret.is_some_and(|secret| secret.is_in(token.expose_secret())) {
            return Err(nonsense(TOKENS, "answers with the password, or what it was given, as a token"));
        }
        self.token = Some(format!("Bearer {}", token.expose_secret()).into());
        Ok(())
    }

    fn judge(&self, who: &'static str, answer: &Answer, what: &'static str) -> Result<(), Error> {
        match answer.status {
            200 => Ok(()),
            status @ (401 | 403) => {
                let shown = who == TOKENS || self.token.is_some();
                Err(Error::Denied { who, status, signed_in: shown && self.secret.is_some() })
            }
            404 if who == REGISTRY => Err(Error::NotFound { what }),
            429 => {
                let retry_after = answer.retry_after.as_deref().and_then(|text| text.trim().parse::<u32>().ok());
                Err(Error::RateLimited { who, retry_after: retry_after.filter(|seconds| *seconds <= MAX_RETRY_AFTER) })
            }
            status => Err(Error::Status { who, status }),
        }
    }
}

/// The token in a token service's answer.
fn token_of(body: &[u8]) -> Result<SecretString, Error> {
    #[derive(Deserialize)]
    struct Given {
        #[serde(default)]
        token: Option<SecretString>,
        #[serde(default)]
        access_token: Option<SecretString>,
    }
    let given: Given = serde_json::from_slice(body).map_err(|_| nonsense(TOKENS, "answers with no token"))?;
    let full = |token: &SecretString| !token.expose_secret().is_empty();
    let token = given.token.filter(full).or(given.access_token.filter(full));
    let token = token.ok_or_else(|| nonsense(TOKENS, "answers with no token"))?;
    let text = token.expose_secret();
    if text.len() > MAX_TOKEN_BYTES || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(nonsense(
            TOKENS,
            &format!("answers with a token that is no text of {MAX_TOKEN_BYTES} bytes at most"),
        ));
    }
    Ok(token)
}

fn nonsense(who: &'static str, what: &str) -> Error {
    Error::Nonsense { who, what: what.to_owned() }
}
