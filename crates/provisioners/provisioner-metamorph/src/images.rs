//! What an agent is told of an image: by http(s) the address and digest that the host names; in a registry (`oci://`) the layer that its reference named
//! when the first attempt began.
//!
//! **A tag is followed once for all attempts.** What it named is recorded before anything is done, and shown in the operation; each attempt for the same
//! image writes that layer, whatever the tag names by then, until one succeeds or the host wishes another, or this one anew. The layer's digest is what the
//! agent verifies.
//!
//! **Mirrors** are asked before what the host names, or in its place ([`image_sources::Sources`]): of files by the agent, of registries by both. What
//! they serve has to have the one digest; which one that is, by a tag or a checksum file, they are asked only where their rule says so
//! ([`Candidate::believed`]). A registry sees its own user and password alone.
//!
//! **The agent gets a token** of the registry's token service, for pulling from the one repository, asked for anew with each order; never the pull
//! secret. A registry that takes user and password alone is therefore not served.

use std::time::Duration;

use addresses::text_without_secrets;
use agent_protocol::{
    Authorization, ErrorCode, ImageProxy, ImageSource, Outcome as AgentOutcome, SourceAddress, WriteImage,
};
use api::metal3::{ChecksumType, DiskFormat};
use api::metamorph::{OperationImage, OperationType};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use boot_media::Architecture;
use image_sources::{Candidate, NotRead, Route, Sources};
use oci_registry::{Access, Class, Compression, DiskLayer, PullSecret, Reference, Registries, Resolved, Target};
use provisioner::{Cause, Failure, ProvisionRequest, Retry};
use provisioning_plan::steps::Step;
use secrecy::ExposeSecret as _;

use crate::host::NativeHost;
use crate::journal::Operation;
use crate::remembered::PinnedImage;

/// How long a mirror may take to say what a tag names: the next one is asked then.
const MIRROR_PATIENCE: Duration = Duration::from_secs(20);

/// The agent's order to write an image, as far as the request says it.
pub struct WriteOrder {
    write: WriteImage,
    layer: Option<InRegistry>,
}

/// An order, and what holds it back from agents that have not got it yet: the settings of images cannot be used as they are now.
pub struct Judged {
    /// The order; with a fault, one for comparing alone.
    pub order: WriteOrder,
    /// Why no agent is given it.
    pub fault: Option<Failure>,
}

/// An image in a registry.
struct InRegistry {
    reference: Reference,
    /// The registries that are asked, in order; at least one.
    asked: Vec<Asked>,
    /// How they are asked.
    registries: Registries,
    /// `spec.image.url`.
    url: String,
    wish: Option<String>,
    /// It is not the first attempt for this image.
    again: bool,
    /// `spec.image.format`.
    format: Option<DiskFormat>,
    /// The machine's.
    architecture: Architecture,
}

/// A place of an image in a registry: what the host names, or a mirror's.
struct Asked {
    reference: Reference,
    secret: Option<PullSecret>,
    mirror: bool,
    /// It says what a tag names.
    believed: bool,
}

impl Asked {
    /// Why it does not serve the image.
    fn failed(&self, error: &oci_registry::Error) -> Failure {
        let mut failure = failed(&self.reference, error);
        if self.mirror && matches!(error, oci_registry::Error::NotAllowed(_)) {
            failure.retry = Retry::Waiting;
            failure = failure.advise(format!("{} ({SETTINGS})", error.advice()));
        }
        failure
    }
}

impl InRegistry {
    /// What the reference names, by the first registry that says so, and that is believed: a digest says itself what it is.
    async fn resolve(&self) -> Result<Resolved, Failure> {
        let by_tag = matches!(self.reference.target(), Target::Tag(_));
        let all: Vec<&Asked> = self.asked.iter().filter(|asked| asked.believed || !by_tag).collect();
        if all.is_empty() {
            return Err(unbelieved(&format!("the image {} is", self.reference), "give its digest (@sha256:…)"));
        }
        let mut told = Vec::new();
        for (index, asked) in all.iter().enumerate() {
            let answer = self.registries.resolve(&asked.reference, asked.secret.as_ref(), self.architecture.as_str());
            let error = if index + 1 == all.len() {
                match answer.await {
                    Ok(found) => return Ok(found),
                    Err(error) => return Err(after(asked.failed(&error), &told)),
                }
            } else {
                match tokio::time::timeout(MIRROR_PATIENCE, answer).await {
                    Ok(Ok(found)) => return Ok(found),
                    Ok(Err(error)) => error.to_string(),
                    Err(_) => format!("it has not answered within {} s", MIRROR_PATIENCE.as_secs()),
                }
            };
            tracing::warn!("the mirror {} does not serve: {error}; the next one is asked", asked.reference);
            told.push(format!("{}: {error}", asked.reference));
        }
        Err(Failure::new(Cause::ImageUnavailable, "read the image: no registry is to be asked"))
    }

    /// How the layer is read, at each registry that serves it, in order; else what the last one said, and whether all say that there is none.
    async fn access(&self, layer: &DiskLayer) -> Result<Vec<Access>, (Failure, bool)> {
        let ask = |asked: &Asked| {
            let (registries, reference, secret) =
                (self.registries.clone(), asked.reference.clone(), asked.secret.clone());
            let layer = layer.clone();
            async move { registries.access(&reference, &layer, secret.as_ref()).await }
        };
        let (mut given, mut told, mut last) = (Vec::new(), Vec::new(), None);
        let mut gone = true;
        for (asked, answer) in self.asked.iter().zip(futures::future::join_all(self.asked.iter().map(ask)).await) {
            match answer {
                Ok(access) => given.push(access),
                Err(error) => {
                    gone &= matches!(error, oci_registry::Error::NotFound { .. });
                    let before: Option<(&Asked, _)> = last.replace((asked, error));
                    told.extend(before.map(|(at, error)| format!("{}: {error}", at.reference)));
                }
            }
        }
        match last {
            Some((asked, error)) if given.is_empty() => Err((after(asked.failed(&error), &told), gone)),
            Some((asked, error)) => {
                told.push(format!("{}: {error}", asked.reference));
                tracing::warn!("the layer {} is not read from {}", layer.blob, told.join("; "));
                Ok(given)
            }
            None => Ok(given),
        }
    }

    /// Fails if nothing says what the layer is, or it is what no agent writes: the bytes would be written as they are.
    fn may_be_written(&self, layer: &DiskLayer) -> Result<(), Failure> {
        let (format, plain) = (self.format.or(layer.format), layer.compression == Compression::None);
        let (what, advice) = match format {
            None if plain => (
                "says neither by its media type nor by its title what it is",
                "set spec.image.format to raw or qcow2, or push it with a title, as oras does for a file disk.raw.zst",
            ),
            Some(DiskFormat::Qcow2) if !plain => (
                "is a qcow2 image that is compressed as a whole",
                "use qcow2's own compression (qemu-img convert -c), or push a raw image, which may be compressed",
            ),
            _ => return Ok(()),
        };
        let text = format!("write the image {}: its layer {} {what}", self.reference, layer.blob);
        Err(Failure::new(Cause::ImageInvalid, text).advise(advice))
    }
}

impl NativeHost {
    /// The agent's order, or why the request cannot be served.
    pub fn write_order(&self, request: &ProvisionRequest) -> Result<WriteOrder, Failure> {
        let url = &request.image.url;
        let format = match request.image.format {
            format @ (None | Some(DiskFormat::Qcow2 | DiskFormat::Raw)) => format,
            Some(other) => {
                return Err(refuse(
                    format!("provision the image: the format {other:?} is not served by the native provisioner"),
                    "set spec.image.format to raw or qcow2",
                ));
            }
        };
        let proxy = self.proxy(request)?;
        let layer =
            if Reference::is_meant(url) { Some(self.in_registry(request, format, proxy.as_ref())?) } else { None };
        let allowed_addresses = self.shared.settings.allowed.ranges().iter().map(ToString::to_string).collect();
        let given = proxy.as_ref().map(|proxy| ImageProxy {
            url: proxy.to_string(),
            authorization: proxy
                .login()
                .filter(|_| !request.sources.login_withheld)
                .map(|login| Authorization(login.0.clone())),
            no_proxy: request.sources.proxy.as_ref().map(|proxy| proxy.no_proxy.clone()).unwrap_or_default(),
        });
        let image = match &layer {
            // What is missing is known when the registry has been asked.
            Some(_) => ImageSource {
                url: String::new(),
                format: DiskFormat::Raw,
                checksum: String::new(),
                checksum_type: ChecksumType::Auto,
                compression: None,
                authorization: None,
                allowed_addresses,
                sources: Vec::new(),
                checksum_sources: Vec::new(),
                proxy: given,
            },
            None => ImageSource { allowed_addresses, proxy: given, ..self.by_http(request, format)? },
        };
        if let Some(proxy) = proxy.filter(|proxy| request.sources.login_withheld && proxy.login().is_some()) {
            let registries = layer.iter().flat_map(|layer| &layer.asked).map(|asked| layer_host(&asked.reference));
            let files = std::iter::once(&image.url).filter(|url| !url.is_empty() && image.sources.is_empty());
            let files = files.chain(image.sources.iter().map(|source| &source.url)).cloned();
            let listed = Some(&image.checksum).filter(|_| layer.is_none() && image.checksum_sources.is_empty());
            let listed = listed.into_iter().chain(&image.checksum_sources).filter(|at| is_by_address(at)).cloned();
            if by_proxy_alone(&proxy, registries.chain(files)) || by_proxy_alone(&proxy, listed) {
                return Err(withheld(&proxy));
            }
        }
        let write = WriteImage {
            image,
            root_device_hints: request.root_device_hints.clone(),
            mark: self.mark(request.overwrite_owner.as_ref()),
            config_drive: request.config_drive.as_ref().map(encoded),
            known: self.disks_expected().0.unwrap_or_default(),
        };
        Ok(WriteOrder { write, layer })
    }

    /// The order. What the settings of images say against it holds back no agent that has it already, nor a machine on whose disk the image is.
    pub fn judged_order(&self, request: &ProvisionRequest) -> Result<Judged, Failure> {
        let fault = match self.write_order(request) {
            Ok(order) => return Ok(Judged { order, fault: None }),
            Err(fault) => fault,
        };
        let begun = self.journal.is_open(OperationType::Provision)
            && self.journal.newest().is_some_and(|newest| Step::WriteImage.begun(&newest.status));
        let without = ProvisionRequest { sources: Sources::default(), ..request.clone() };
        match self.write_order(&without) {
            Ok(order) if begun => Ok(Judged { order, fault: Some(fault) }),
            _ => Err(fault),
        }
    }

    /// Fails with the settings' fault unless an agent has the order already, by which the image is being written.
    pub fn may_go_on(&self, operation: &Operation, judged: &Judged) -> Result<(), Failure> {
        let Some(fault) = &judged.fault else { return Ok(()) };
        let boot = Step::WriteImage.recorded(operation.status()).boot_id;
        let is_with_agent = boot.is_some_and(|boot| self.is_with_agent(operation, Step::WriteImage, &boot));
        let is_known = judged.order.layer.is_none() || self.journal.data().image.is_some();
        if is_with_agent && is_known { Ok(()) } else { Err(fault.clone()) }
    }

    /// An image that is served as a file.
    fn by_http(&self, request: &ProvisionRequest, format: Option<DiskFormat>) -> Result<ImageSource, Failure> {
        let is_qcow2 = |url: &str| url.split(['?', '#']).next().is_some_and(|path| path.ends_with(".qcow2"));
        let by_name = if is_qcow2(&request.image.url) { DiskFormat::Qcow2 } else { DiskFormat::Raw };
        let scheme = request.image.url.split("://").next().unwrap_or_default().to_ascii_lowercase();
        if !matches!(scheme.as_str(), "http" | "https") {
            let printable = text_without_secrets(&request.image.url);
            return Err(refuse(
                format!("provision the image {printable}: only http, https and oci are served"),
                "correct spec.image.url",
            ));
        }
        let Some(checksum) = request.image.checksum.clone().filter(|c| !c.is_empty()) else {
            return Err(refuse("provision the image: it has no checksum".to_owned(), "set spec.image.checksum"));
        };
        let url = self.bases.image_url(&self.shared.settings.bases, &request.image.url);
        let sources = self.addresses(request, "spec.image.url", &request.image.url, &url)?;
        let checksum_sources = match checksum.trim() {
            listed if is_by_address(listed) => self.addresses(request, CHECKSUM, listed, listed)?,
            _ => Vec::new(),
        };
        // A mirror's file may have another name.
        let compression = if sources.is_empty() { None } else { Some(Compression::from_url(&url)) };
        Ok(ImageSource {
            url,
            format: format.unwrap_or(by_name),
            checksum,
            checksum_type: request.image.checksum_type.unwrap_or(ChecksumType::Auto),
            compression,
            authorization: None,
            allowed_addresses: Vec::new(),
            sources: sources.into_iter().map(|url| SourceAddress { url, authorization: None }).collect(),
            checksum_sources,
            proxy: None,
        })
    }

    /// The addresses to ask for what the host `named`, which is at `itself`, where mirrors are among them; else none.
    fn addresses(
        &self,
        request: &ProvisionRequest,
        field: &str,
        named: &str,
        itself: &str,
    ) -> Result<Vec<String>, Failure> {
        let mut asked = Vec::new();
        let mut route = route(request, named)?;
        if field == CHECKSUM {
            route.retain(|candidate| candidate.believed);
            if route.is_empty() {
                let what = format!("the checksum file {} lists", text_without_secrets(named));
                return Err(unbelieved(&what, "give the digest itself in spec.image.checksum"));
            }
        }
        let mirrored = route.iter().any(|candidate| candidate.mirror);
        for Candidate { url, mirror, .. } in route {
            let (url, field) = if mirror { (url, "the mirror's address") } else { (itself.to_owned(), field) };
            if let Some(refused) = self.local(&url) {
                let text = format!("provision the image: {refused} ({field})");
                return Err(if mirror {
                    waits(text, &refused.advice(&format!("{field} ({SETTINGS})")))
                } else {
                    refuse(text, &refused.advice(field))
                });
            }
            asked.push(url);
        }
        Ok(if mirrored { asked } else { Vec::new() })
    }

    /// The proxy by way of which the image is read.
    fn proxy(&self, request: &ProvisionRequest) -> Result<Option<Route>, Failure> {
        let Some(proxy) = &request.sources.proxy else { return Ok(None) };
        let route = proxy.route().map_err(|fault| {
            waits(format!("provision the image: {fault}"), &format!("correct the proxy's settings ({PROXY_SETTINGS})"))
        })?;
        if let Err(refused) = self.shared.settings.allowed.check_url(route.url()) {
            let advice = refused.advice(&format!("the proxy's address ({PROXY_SETTINGS})"));
            return Err(waits(format!("provision the image: {refused} (the proxy {route})"), &advice));
        }
        Ok(Some(route))
    }

    /// Fails if a medium that the BMC reads must not be read where it is: a BMC knows neither mirrors nor proxies.
    pub fn readable_in_place(&self, request: &ProvisionRequest) -> Result<(), Failure> {
        if route(request, &request.image.url)?.iter().any(|candidate| !candidate.mirror) {
            return Ok(());
        }
        let text = "boot the live ISO: the rule of its mirrors (ConfigMap metamorph-images) has no fallback to its own address, and the BMC reads it there";
        Err(waits(text.to_owned(), "name the mirror's address in spec.image.url"))
    }

    fn in_registry(
        &self,
        request: &ProvisionRequest,
        format: Option<DiskFormat>,
        proxy: Option<&Route>,
    ) -> Result<InRegistry, Failure> {
        let url = &request.image.url;
        let reference = Reference::parse(url).map_err(|error| {
            refuse(format!("provision the image {}: {error}", text_without_secrets(url)), &error.advice())
        })?;
        let registries = self.shared.settings.registries.through(proxy.cloned());
        let mut asked = Vec::new();
        for candidate in route(request, url)? {
            let reference = if candidate.mirror {
                Reference::parse(&candidate.url).map_err(|error| {
                    let text = format!("provision the image {reference}: its mirror {} {error}", candidate.url);
                    waits(text, "correct the mirrors (ConfigMap metamorph-images)")
                })?
            } else {
                reference.clone()
            };
            let secret = match &request.pull_secret {
                // A mirror may serve everybody.
                Some(secret) if candidate.mirror => PullSecret::find(&secret.0, &reference),
                Some(secret) => PullSecret::read(&secret.0, &reference).map(Some),
                None => Ok(None),
            };
            let secret = secret.map_err(|error| failed(&reference, &error))?;
            if let Some(proxy) = proxy.filter(|_| request.sources.proxy_unnamed && secret.is_some())
                && registries.is_plain(&reference)
            {
                let text = format!(
                    "provision the image: {reference} is asked without TLS (--http-registry), and the proxy {proxy} would be shown its user and password; a ConfigMap names this proxy, and no Secret does"
                );
                return Err(waits(
                    text,
                    "name a Secret in the proxy's secretName (ConfigMap metamorph-images) whose key proxy is its URL, ask the registry by HTTPS, or take ociAuthSecretName away",
                ));
            }
            asked.push(Asked { reference, secret, mirror: candidate.mirror, believed: candidate.believed });
        }
        let (url, wish, again) = (url.clone(), request.wish.clone(), request.attempt > 1);
        let architecture = self.architecture()?;
        Ok(InRegistry { reference, asked, registries, url, wish, again, format, architecture })
    }

    /// What an image in a registry is: as recorded for this wish or an earlier attempt, or as its reference says now, which is recorded with the
    /// operation's next intent. `None` for other images.
    pub async fn pin(&self, operation: &mut Operation, order: &WriteOrder) -> Result<Option<PinnedImage>, Failure> {
        let Some(image) = &order.layer else { return Ok(None) };
        let recorded = self.journal.data().image;
        // Without a name for the wish, it is that of the work under way.
        let shown = operation.status().image.is_some();
        let counts = |pinned: &PinnedImage| {
            let same_wish = pinned.wish == image.wish && (pinned.wish.is_some() || shown);
            pinned.url == image.url && (same_wish || image.again)
        };
        let pinned = match recorded.filter(counts) {
            Some(pinned) => pinned,
            None => {
                // Of an earlier wish: should this attempt fail before it knows better, the next one does not go by it.
                self.journal.note(|data| data.image = None);
                let found = image.resolve().await?;
                image.may_be_written(&found.layer)?;
                tracing::info!(
                    host = %self.context.key.name,
                    "the image {} is {}, of which {} is written", image.reference, found.digest, found.layer.blob
                );
                let (url, wish) = (image.url.clone(), image.wish.clone());
                let pinned = PinnedImage { url, wish, digest: found.digest, layer: found.layer };
                self.journal.note(|data| data.image = Some(pinned.clone()));
                pinned
            }
        };
        if !shown {
            operation.set_image(OperationImage {
                url: image.url.clone(),
                digest: pinned.digest.to_string(),
                layer: pinned.layer.blob.to_string(),
            });
        }
        Ok(Some(pinned))
    }

    /// The whole order. A registry is asked for access unless the agent has read the order already.
    pub async fn addressed(
        &self,
        order: &WriteOrder,
        pinned: Option<&PinnedImage>,
        given: bool,
    ) -> Result<WriteImage, Failure> {
        let mut write = order.write.clone();
        let (Some(image), Some(pinned)) = (&order.layer, pinned) else { return Ok(write) };
        let layer = &pinned.layer;
        write.image.format = image.format.or(layer.format).unwrap_or(DiskFormat::Raw);
        write.image.checksum = layer.blob.hex().to_owned();
        write.image.checksum_type =
            if layer.blob.algorithm() == "sha512" { ChecksumType::Sha512 } else { ChecksumType::Sha256 };
        write.image.compression = Some(layer.compression);
        if given {
            return Ok(write);
        }
        let access = image.access(layer).await.map_err(|(failure, gone)| {
            if !gone || matches!(image.reference.target(), Target::Digest(_)) {
                return failure;
            }
            // What the tag named is gone, and nobody who might have it is only away: the next attempt follows it anew.
            self.journal.note(|data| data.image = None);
            failure
                .advise("the registry does not serve any more what the tag named when the first attempt began; the next attempt takes what it names then")
        })?;
        let mut sources = access.into_iter().map(|access| SourceAddress {
            url: access.url.into(),
            authorization: access.authorization.map(|token| Authorization(token.expose_secret().to_owned())),
        });
        if image.asked.len() > 1 || image.asked.iter().any(|asked| asked.reference != image.reference) {
            write.image.sources = sources.collect();
            write.image.url = write.image.sources.first().map(|first| first.url.clone()).unwrap_or_default();
        } else if let Some(only) = sources.next() {
            write.image.url = only.url;
            write.image.authorization = only.authorization;
        }
        Ok(write)
    }
}

/// The addresses to ask.
fn route(request: &ProvisionRequest, url: &str) -> Result<Vec<Candidate>, Failure> {
    request.sources.route(url).map_err(|not_read| {
        let advice = match &not_read {
            NotRead::Blocked { .. } => "correct spec.image.url, or the mirrors (ConfigMap metamorph-images)",
            NotRead::Faulty(_) => "correct the ConfigMap metamorph-images, or the Secret that it names",
        };
        waits(format!("provision the image {}: {not_read}", text_without_secrets(url)), advice)
    })
}

/// Where mirrors are named.
const SETTINGS: &str = "ConfigMap metamorph-images";
/// Where proxies are named.
const PROXY_SETTINGS: &str = "ConfigMap metamorph-images, or --image-proxy";
/// The field that may name a file of digests.
const CHECKSUM: &str = "spec.image.checksum";

/// Whether a checksum is a file's address.
fn is_by_address(checksum: &str) -> bool {
    checksum.trim().get(..4).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http"))
}

/// Nobody who may be asked is believed about a name.
fn unbelieved(what: &str, instead: &str) -> Failure {
    waits(
        format!(
            "provision the image: what {what} is for the address itself to say, which its rule's mirrors replace (fallback: false), and they are not believed about it"
        ),
        &format!(
            "{instead}, or let the rule (ConfigMap metamorph-images) say `tags: true`: whoever runs its mirrors chooses then what is written"
        ),
    )
}

/// A layer's address, as far as it matters to proxies.
fn layer_host(reference: &Reference) -> String {
    format!("https://{}/", reference.registry())
}

/// Whether there are some addresses, and all are read by way of the proxy.
fn by_proxy_alone(proxy: &Route, mut urls: impl Iterator<Item = String>) -> bool {
    let carried = |url: String| url::Url::parse(&url).is_ok_and(|url| proxy.carries(&url));
    urls.next().is_some_and(&carried) && urls.all(carried)
}

/// The agent would need a login that is not for agents.
fn withheld(proxy: &Route) -> Failure {
    waits(
        format!(
            "provision the image: agents read it by way of the proxy {proxy}, whose user and password are the server's own; whoever may write hosts could read what an agent is given"
        ),
        "let the proxy serve the machines' network without them, or name what is read without it (noProxy); a proxy with a Secret of the host's own namespace is another way (ConfigMap metamorph-images there). If every host's owner may know them, say `agents: true` beside secretName in the server's ConfigMap, or --image-proxy-login-for-agents",
    )
}

/// A refusal that ends as soon as the settings are other ones.
fn waits(text: String, advice: &str) -> Failure {
    let mut failure = refuse(text, advice);
    failure.retry = Retry::Waiting;
    failure
}

/// The last failure, after others that are told with it.
fn after(mut last: Failure, others: &[String]) -> Failure {
    if !others.is_empty() {
        last.message = format!("{}; before that, of its mirrors: {}", last.message, others.join("; "));
    }
    last
}

fn refuse(text: String, advice: &str) -> Failure {
    let mut failure = Failure::new(Cause::InvalidRequest, text).advise(advice);
    failure.retry = Retry::AfterChange;
    failure
}

/// Why a registry does not serve an image.
fn failed(reference: &Reference, error: &oci_registry::Error) -> Failure {
    let cause = match error.class() {
        Class::Request => Cause::InvalidRequest,
        Class::Unavailable => Cause::ImageUnavailable,
        Class::Denied => Cause::ImageDenied,
        Class::NotFound => Cause::ImageNotFound,
        Class::Invalid => Cause::ImageInvalid,
    };
    let mut failure =
        Failure::new(cause, format!("read the image {reference} from its registry: {error}")).advise(error.advice());
    match error {
        oci_registry::Error::NotAllowed(_) => failure.retry = Retry::AfterChange,
        oci_registry::Error::PullSecret { .. } => failure.retry = Retry::Waiting,
        _ => {}
    }
    failure
}

/// A failure of the agent's, with advice for a layer.
pub fn of_layer(failure: Failure, outcome: &AgentOutcome) -> Failure {
    let advice = match outcome {
        AgentOutcome::Failed(error) if error.code == ErrorCode::ChecksumMismatch => {
            "look at the registry, and at any proxy before it: it serves other bytes than the layer's digest says; the disk has been left without a partition table"
        }
        AgentOutcome::Failed(error) if error.code == ErrorCode::ImageUnreachable => {
            "check that the machine's network (preprovisioningNetworkDataName) reaches the registry, and where that sends for its layers; it is tried again"
        }
        AgentOutcome::Failed(error) if error.code == ErrorCode::ImageNotFound => {
            "look at the registry: it has served the manifest, and does not serve its layer"
        }
        AgentOutcome::Failed(error)
            if matches!(error.code, ErrorCode::ImageInvalid | ErrorCode::ImageTooLarge | ErrorCode::ImageTruncated) =>
        {
            "each attempt writes the layer that the first one found: push another image, then take spec.image away and set it again, so that the tag is followed anew"
        }
        _ => return failure,
    };
    failure.advise(advice)
}

/// The documents as the agent's protocol carries them.
fn encoded(given: &provisioner::ConfigDrive) -> agent_protocol::ConfigDrive {
    agent_protocol::ConfigDrive {
        meta_data: STANDARD.encode(&given.meta_data),
        network_data: given.network_data.as_ref().map(|text| STANDARD.encode(text)),
        user_data: given.user_data.as_ref().map(|text| STANDARD.encode(text)),
    }
}
