//! What an agent is told of an image: by http(s) the address and digest that the host names; in a registry (`oci://`) the layer that its reference named
//! when the first attempt began.
//!
//! **A tag is followed once for all attempts.** What it named is recorded before anything is done, and shown in the operation; each attempt for the same
//! image writes that layer, whatever the tag names by then, until one succeeds or the host wishes another, or this one anew. The layer's digest is what the
//! agent verifies.
//!
//! **Mirrors** are asked before what the host names, or in its place ([`image_sources::Sources`]): of files by the agent, of registries by both, which
//! follow a tag at the first that serves it. What they serve has to have the one digest. A registry sees its own user and password alone.
//!
//! **The agent gets a token** of the registry's token service, for pulling from the one repository, asked for anew with each order; never the pull
//! secret. A registry that takes user and password alone is therefore not served.

use std::time::Duration;

use addresses::text_without_secrets;
use agent_protocol::{
    Authorization, ErrorCode, ImageProxy, ImageSource, Outcome as AgentOutcome, SourceAddress, WriteImage,
};
use api::metal3::{ChecksumType, DiskFormat};
use api::metamorph::OperationImage;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use image_sources::{Candidate, Route};
use oci_registry::{Access, Class, Compression, DiskLayer, PullSecret, Reference, Registries, Resolved, Target};
use provisioner::{Cause, Failure, ProvisionRequest, Retry};
use secrecy::ExposeSecret as _;

use crate::host::NativeHost;
use crate::journal::Operation;
use crate::remembered::PinnedImage;

/// The architecture of the agent's image, and so of the machines (see [`crate::capabilities`]).
const ARCHITECTURE: &str = "x86_64";
/// How long a mirror may take to say what a tag names: the next one is asked then.
const MIRROR_PATIENCE: Duration = Duration::from_secs(20);

/// The agent's order to write an image, as far as the request says it.
pub struct WriteOrder {
    write: WriteImage,
    layer: Option<InRegistry>,
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
}

/// A place of an image in a registry: what the host names, or a mirror's.
struct Asked {
    reference: Reference,
    secret: Option<PullSecret>,
}

impl InRegistry {
    /// What the reference names, by the first registry that says so.
    async fn resolve(&self) -> Result<Resolved, Failure> {
        let mut told = Vec::new();
        for (index, asked) in self.asked.iter().enumerate() {
            let answer = self.registries.resolve(&asked.reference, asked.secret.as_ref(), ARCHITECTURE);
            let error = if index + 1 == self.asked.len() {
                match answer.await {
                    Ok(found) => return Ok(found),
                    Err(error) => return Err(after(failed(&asked.reference, &error), &told)),
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

    /// How the layer is read, at each registry that serves it, in order; else what the last one said.
    async fn access(&self, layer: &DiskLayer) -> Result<Vec<Access>, (Failure, oci_registry::Error)> {
        let ask = |asked: &Asked| {
            let (registries, reference, secret) =
                (self.registries.clone(), asked.reference.clone(), asked.secret.clone());
            let layer = layer.clone();
            async move { registries.access(&reference, &layer, secret.as_ref()).await }
        };
        let (mut given, mut told, mut last) = (Vec::new(), Vec::new(), None);
        for (asked, answer) in self.asked.iter().zip(futures::future::join_all(self.asked.iter().map(ask)).await) {
            match answer {
                Ok(access) => given.push(access),
                Err(error) => {
                    told.extend(last.replace((&asked.reference, error)).map(|(at, error)| format!("{at}: {error}")));
                }
            }
        }
        match last {
            Some((reference, error)) if given.is_empty() => Err((after(failed(reference, &error), &told), error)),
            Some((reference, error)) => {
                told.push(format!("{reference}: {error}"));
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
        let proxy = proxy.map(|proxy| ImageProxy {
            url: proxy.to_string(),
            authorization: proxy.login().map(|login| Authorization(login.0.clone())),
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
                proxy,
            },
            None => ImageSource { allowed_addresses, proxy, ..self.by_http(request, format)? },
        };
        let write = WriteImage {
            image,
            root_device_hints: request.root_device_hints.clone(),
            mark: self.mark(request.overwrite_owner.as_ref()),
            config_drive: request.config_drive.as_ref().map(encoded),
        };
        Ok(WriteOrder { write, layer })
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
        let by_address = checksum.trim().get(..4).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http"));
        let checksum_sources = match checksum.trim() {
            listed if by_address => self.addresses(request, "spec.image.checksum", listed, listed)?,
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
        let route = route(request, named)?;
        let mirrored = route.iter().any(|candidate| candidate.mirror);
        for Candidate { url, mirror } in route {
            let (url, field) = if mirror { (url, "the mirror's address") } else { (itself.to_owned(), field) };
            if let Some(refused) = self.local(&url) {
                let advice = refused.advice(field);
                return Err(refuse(format!("provision the image: {refused} ({field})"), &advice));
            }
            asked.push(url);
        }
        Ok(if mirrored { asked } else { Vec::new() })
    }

    /// The proxy by way of which the image is read.
    fn proxy(&self, request: &ProvisionRequest) -> Result<Option<Route>, Failure> {
        let Some(proxy) = &request.sources.proxy else { return Ok(None) };
        let route = proxy.route().map_err(|fault| {
            waits(
                format!("provision the image: {fault}"),
                "correct the proxy's settings (ConfigMap metamorph-images, or --image-proxy)",
            )
        })?;
        if let Err(refused) = self.shared.settings.allowed.check_url(route.url()) {
            let advice = refused.advice("the proxy's address");
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
            asked.push(Asked { reference, secret });
        }
        let registries = self.shared.settings.registries.through(proxy.cloned());
        let (url, wish, again) = (url.clone(), request.wish.clone(), request.attempt > 1);
        Ok(InRegistry { reference, asked, registries, url, wish, again, format })
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
        let access = image.access(layer).await.map_err(|(failure, error)| {
            if !matches!(error, oci_registry::Error::NotFound { .. })
                || matches!(image.reference.target(), Target::Digest(_))
            {
                return failure;
            }
            // What the tag named is gone: the next attempt follows it anew.
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
    request.sources.route(url).map_err(|blocked| {
        waits(
            format!("provision the image {}: {blocked}", text_without_secrets(url)),
            "correct spec.image.url, or the mirrors (ConfigMap metamorph-images)",
        )
    })
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
