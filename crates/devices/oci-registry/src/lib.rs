//! Disk images in OCI registries: from `oci://registry/repository:tag` to the one blob that is a disk image, and a token by which an agent reads it.
//!
//! **Two questions.** [`Registries::resolve`] follows a [`Reference`] to a [`DiskLayer`]: it is asked once, and its answer holds digests alone, so that what it
//! names can never become something else. [`Registries::access`] gives the address of the layer's blob with a token for it: asked for pulling
//! from that one repository, and again for each order. User and password ([`PullSecret`]) go to the registry's token service and nowhere else.
//!
//! **What is taken** is what Ironic takes (`ironic/common/image_service.py`, `OciImageService`): of an image index, the manifests of the machine's
//! architecture by their annotation `disktype` (`raw`, `applehv`, `qcow2`, `qemu`, then those without); of a manifest, its only layer. Beyond that, one disk
//! image among several layers is found by their media types and titles. Containers are no disk images (Ironic boots them by its `bootc`, which is not served).
//!
//! **Registries are hostile**: each answer, list, redirect and header has a bound (`MAX_*`); the bytes of a manifest must have the digest by which they were
//! asked for; a token follows no redirect to another host; token services are asked over TLS and at allowed addresses, like registries themselves. No text
//! of an answer is repeated: digests and architectures are shown after they have been checked, and everything else is described.
//!
//! **Why no client of others.** `oci-client` (0.18) reads bodies without a bound, follows any redirect and any `realm`, and repeats answers in its errors;
//! none of this can be set, and it brings a second implementation of cryptography. `oci-spec` builds manifests with builders and macros, where two structures
//! with bounded lists are needed. What is taken from others: HTTP (`reqwest`), the grammar of challenges (`http-auth`).

mod challenge;
mod client;
mod digest;
mod error;
mod http;
mod manifest;
mod pull_secret;
mod reference;
mod transport;

pub use client::{Access, MAX_MANIFEST_BYTES, MAX_REDIRECTS, MAX_TOKEN_BYTES, Registries, Resolved};
pub use digest::Digest;
pub use error::{Class, Error};
pub use http::HttpTransport;
pub use manifest::{DiskLayer, MAX_LAYERS, MAX_MANIFESTS};
pub use pull_secret::PullSecret;
pub use reference::{Reference, Target};
pub use terms::Compression;
pub use transport::{Answer, Request, Transport, TransportError};
