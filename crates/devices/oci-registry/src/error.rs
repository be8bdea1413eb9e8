//! Why an image in a registry cannot be had.

use addresses::NotAllowed;

/// Why there is no answer. Messages hold no text of a registry's answer, and no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It is no reference.
    #[error("the reference {what}")]
    Reference {
        /// What is wrong with it, a clause.
        what: &'static str,
    },
    /// The pull secret cannot be used for this registry.
    #[error("the pull secret {what}")]
    PullSecret {
        /// What is wrong with it, a clause.
        what: String,
    },
    /// An address that is not called.
    #[error("{0}")]
    NotAllowed(NotAllowed),
    /// No answer, or a connection that broke.
    #[error("{who} cannot be reached: {why}")]
    Unreachable {
        /// `the registry` or `its token service`.
        who: &'static str,
        /// What happened, in words of this program.
        why: String,
    },
    /// 401 or 403.
    #[error("{who} refuses {} (HTTP {status})", if *.signed_in { "the user and password of the pull secret, or lets this user not pull" } else { "to serve the image without credentials" })]
    Denied {
        /// `the registry` or `its token service`.
        who: &'static str,
        /// The status.
        status: u16,
        /// Whether there were credentials.
        signed_in: bool,
    },
    /// 404.
    #[error("the registry has no such {what}")]
    NotFound {
        /// `image` or `manifest`.
        what: &'static str,
    },
    /// 429.
    #[error("{who} takes no more requests for now{}", .retry_after.map(|s| format!(" and asks to wait {s} s")).unwrap_or_default())]
    RateLimited {
        /// `the registry` or `its token service`.
        who: &'static str,
        /// `Retry-After`, in seconds, if it is said and plausible.
        retry_after: Option<u32>,
    },
    /// Any other status.
    #[error("{who} answers with HTTP status {status}")]
    Status {
        /// `the registry` or `its token service`.
        who: &'static str,
        /// The status.
        status: u16,
    },
    /// It speaks no sense, or more than is read.
    #[error("{who} {what}")]
    Nonsense {
        /// `the registry` or `its token service`.
        who: &'static str,
        /// What it does, a clause.
        what: String,
    },
    /// It takes user and password only.
    #[error(
        "the registry takes user and password alone and names no token service, and an agent is not given a password"
    )]
    NoTokenService,
    /// Content has another digest.
    #[error("the registry's {what} has the digest {found}, expected was {expected}")]
    DigestMismatch {
        /// `manifest`.
        what: &'static str,
        /// What was asked for, or announced.
        expected: String,
        /// What the bytes have.
        found: String,
    },
    /// None for this architecture.
    #[error("the image is for {found}, and none of it for {wanted}")]
    Architecture {
        /// The machine's.
        wanted: String,
        /// Those that were found, in words.
        found: String,
    },
    /// No disk image, or more than one.
    #[error("the image {what}")]
    NoDiskImage {
        /// What it is instead, a clause.
        what: String,
    },
    /// A disk image that is not written.
    #[error("the image's layer {what}")]
    Unsupported {
        /// Why, a clause.
        what: String,
    },
}

/// What kind of fault it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Reference, pull secret or address are wrong.
    Request,
    /// The registry may serve it later.
    Unavailable,
    /// The registry does not let the host read it.
    Denied,
    /// It is not there.
    NotFound,
    /// What is there is not what is needed.
    Invalid,
}

impl Error {
    /// Its class.
    #[must_use]
    pub const fn class(&self) -> Class {
        match self {
            Self::Reference { .. } | Self::PullSecret { .. } | Self::NotAllowed(_) | Self::NoTokenService => {
                Class::Request
            }
            Self::Unreachable { .. } | Self::RateLimited { .. } | Self::Status { .. } => Class::Unavailable,
            Self::Denied { .. } => Class::Denied,
            Self::NotFound { .. } => Class::NotFound,
            Self::Nonsense { .. }
            | Self::DigestMismatch { .. }
            | Self::Architecture { .. }
            | Self::NoDiskImage { .. }
            | Self::Unsupported { .. } => Class::Invalid,
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn advice(&self) -> String {
        match self {
            Self::NotAllowed(refused) => return refused.advice("spec.image.url"),
            Self::Reference { .. } => "correct spec.image.url: oci://registry[:port]/repository[:tag or @sha256:digest]",
            Self::PullSecret { .. } => {
                "correct the Secret that spec.image.ociAuthSecretName names (type kubernetes.io/dockerconfigjson); the host goes on as soon as it is right"
            }
            Self::Unreachable { .. } => {
                "check that the registry runs, that this server reaches it, and that its certificate is trusted (--image-ca); one that speaks plain HTTP is named with --http-registry"
            }
            Self::Denied { signed_in: true, .. } => {
                "correct user and password in the Secret that spec.image.ociAuthSecretName names, or let that user pull from the repository"
            }
            Self::Denied { signed_in: false, .. } => {
                "name a Secret of type kubernetes.io/dockerconfigjson in spec.image.ociAuthSecretName; some registries say this of images that do not exist, too"
            }
            Self::NotFound { .. } => "correct spec.image.url, or push the image there",
            Self::RateLimited { .. } => "wait, or use a registry without that limit; it is tried again",
            Self::Status { .. } => "look at the registry; it is tried again",
            Self::Nonsense { .. } => "look at the registry, and at any proxy before it",
            Self::NoTokenService => {
                "use a registry with a token service; or let this repository be read without credentials in the machines' network; or serve the image over https with a checksum"
            }
            Self::DigestMismatch { .. } => "look at the registry, and at any proxy before it: it serves other bytes than it says",
            Self::Architecture { .. } => "push an image for that architecture, or correct spec.image.url",
            Self::NoDiskImage { .. } => {
                "push the disk image as an artifact of one layer, for example with `oras push`; in an index, with the annotation disktype"
            }
            Self::Unsupported { .. } => "push a raw image, plain or compressed with zstd, gzip, xz or bzip2, or a qcow2 image, which has compression of its own",
        }
        .to_owned()
    }
}
