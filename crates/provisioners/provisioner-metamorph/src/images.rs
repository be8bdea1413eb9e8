//! What an agent is told of an image: by http(s) the address and digest that the host names; in a registry (`oci://`) the layer that its reference named
//! when the first attempt began.
//!
//! **A tag is followed once for all attempts.** What it named is recorded before anything is done, and shown in the operation; each attempt for the same
//! image writes that layer, whatever the tag names by then, until one succeeds or the host wishes another, or this one anew. The layer's digest is what the
//! agent verifies.
//!
//! **The agent gets a token** of the registry's token service, for pulling from the one repository, asked for anew with each order; never the pull
//! secret. A registry that takes user and password alone is therefore not served.

use addresses::text_without_secrets;
use agent_protocol::{Authorization, ErrorCode, ImageSource, Outcome as AgentOutcome, WriteImage};
use api::metal3::{ChecksumType, DiskFormat};
use api::metamorph::OperationImage;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use oci_registry::{Class, Compression, DiskLayer, PullSecret, Reference, Target};
use provisioner::{Cause, Failure, ProvisionRequest, Retry};
use secrecy::ExposeSecret as _;

use crate::host::NativeHost;
use crate::journal::Operation;
use crate::remembered::PinnedImage;

/// The architecture of the agent's image, and so of the machines (see [`crate::capabilities`]).
const ARCHITECTURE: &str = "x86_64";

/// The agent's order to write an image, as far as the request says it.
pub struct WriteOrder {
    write: WriteImage,
    layer: Option<InRegistry>,
}

/// An image in a registry.
struct InRegistry {
    reference: Reference,
    /// `spec.image.url`.
    url: String,
    secret: Option<PullSecret>,
    wish: Option<String>,
    /// It is not the first attempt for this image.
    again: bool,
    /// `spec.image.format`.
    format: Option<DiskFormat>,
}

impl InRegistry {
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
        let layer = if Reference::is_meant(url) { Some(in_registry(request, format)?) } else { None };
        let allowed_addresses = self.shared.settings.allowed.ranges().iter().map(ToString::to_string).collect();
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
            },
            None => ImageSource { allowed_addresses, ..self.by_http(request, format)? },
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
        let written = [("spec.image.url", &url), ("spec.image.checksum", &checksum)];
        if let Some((field, refused)) = written.into_iter().find_map(|(field, url)| Some((field, self.local(url)?))) {
            let advice = refused.advice(field);
            return Err(refuse(format!("provision the image: {refused} ({field})"), &advice));
        }
        Ok(ImageSource {
            url,
            format: format.unwrap_or(by_name),
            checksum,
            checksum_type: request.image.checksum_type.unwrap_or(ChecksumType::Auto),
            compression: None,
            authorization: None,
            allowed_addresses: Vec::new(),
        })
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
                let registries = &self.shared.settings.registries;
                let found = registries.resolve(&image.reference, image.secret.as_ref(), ARCHITECTURE).await;
                let found = found.map_err(|error| failed(&image.reference, &error))?;
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
        let access = self.shared.settings.registries.access(&image.reference, layer, image.secret.as_ref()).await;
        let access = access.map_err(|error| {
            if !matches!(error, oci_registry::Error::NotFound { .. }) || matches!(image.reference.target(), Target::Digest(_)) {
                return failed(&image.reference, &error);
            }
            // What the tag named is gone: the next attempt follows it anew.
            self.journal.note(|data| data.image = None);
            failed(&image.reference, &error)
                .advise("the registry does not serve any more what the tag named when the first attempt began; the next attempt takes what it names then")
        })?;
        write.image.url = access.url.into();
        write.image.authorization = access.authorization.map(|token| Authorization(token.expose_secret().to_owned()));
        Ok(write)
    }
}

fn in_registry(request: &ProvisionRequest, format: Option<DiskFormat>) -> Result<InRegistry, Failure> {
    let url = &request.image.url;
    let reference = Reference::parse(url).map_err(|error| {
        refuse(format!("provision the image {}: {error}", text_without_secrets(url)), &error.advice())
    })?;
    let secret = request.pull_secret.as_ref().map(|secret| PullSecret::read(&secret.0, &reference)).transpose();
    let secret = secret.map_err(|error| failed(&reference, &error))?;
    let (url, wish, again) = (url.clone(), request.wish.clone(), request.attempt > 1);
    Ok(InRegistry { reference, url, secret, wish, again, format })
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
