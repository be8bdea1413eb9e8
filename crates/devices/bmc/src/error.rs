//! Failed exchanges with a BMC: a kind for programs, and for people what was attempted, what was found and what to do.

use std::borrow::Cow;

use inventory::BmcPin;

/// Kinds of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The address cannot be used.
    Address,
    /// The address does not answer, or the connection was lost.
    Unreachable,
    /// The address is not allowed: no call was made.
    NotAllowed,
    /// Another process acts on machines: the call was not made, or cut.
    NotLeading,
    /// The BMC's certificate is not trusted.
    TlsNotTrusted,
    /// The BMC and this server have no version or cipher suite of TLS in common.
    NoCommonTls,
    /// User or password refused, or the account lacks the right.
    Unauthorized,
    /// The system or another resource is not there.
    NotFound,
    /// The BMC has no free session.
    SessionLimit,
    /// Another BMC than the recorded one answers; it was not sent the password.
    AnotherBmc,
    /// The BMC answered with this HTTP status (or, for other protocols, code) and an error.
    Rejected {
        /// Status code.
        status: u16,
    },
    /// The BMC or the machine's firmware defers the request (overloaded, starting, in the self-test), and waiting for it did not help.
    Busy {
        /// Status code.
        status: u16,
    },
    /// The answer was lost, and the BMC's state does not reveal whether the request was carried out.
    Unanswered,
    /// No answer, or no end of a task, in time.
    Timeout,
    /// The answer cannot be understood, or is too large.
    Protocol,
    /// The BMC lacks something that is needed.
    Unsupported,
}

impl ErrorKind {
    /// Whether the same call may succeed later without a change by a person.
    #[must_use]
    pub const fn is_transient(self) -> bool {
        match self {
            // A BMC that restarts serves half pages and errors of its web server for a while.
            Self::Unreachable
            | Self::NotLeading
            | Self::SessionLimit
            | Self::Busy { .. }
            | Self::Unanswered
            | Self::Timeout
            | Self::Protocol => true,
            Self::Rejected { status } => status >= 500 || matches!(status, 408 | 409 | 423 | 425 | 429),
            Self::Address
            | Self::NotAllowed
            | Self::TlsNotTrusted
            | Self::NoCommonTls
            | Self::Unauthorized
            | Self::AnotherBmc
            | Self::NotFound
            | Self::Unsupported => false,
        }
    }

    /// Whether the BMC refused the request, lacks a capability, or gave an unreadable answer. Excludes a busy BMC, and failures of access or of the
    /// network.
    #[must_use]
    pub const fn is_refusal(self) -> bool {
        match self {
            Self::NotFound | Self::SessionLimit | Self::Rejected { .. } | Self::Protocol | Self::Unsupported => true,
            Self::Address
            | Self::NotAllowed
            | Self::NotLeading
            | Self::Unreachable
            | Self::TlsNotTrusted
            | Self::NoCommonTls
            | Self::Unauthorized
            | Self::AnotherBmc
            | Self::Busy { .. }
            | Self::Unanswered
            | Self::Timeout => false,
        }
    }

    /// Whether the BMC itself has refused an order, which it has not begun then. What a gateway answers in its place (502, 504), and what cannot be read, may
    /// come of one that is done all the same.
    #[must_use]
    pub const fn is_definite_refusal(self) -> bool {
        self.is_refusal() && !matches!(self, Self::Protocol | Self::Rejected { status: 502 | 504 })
    }

    /// One word, for ledgers and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Unreachable => "unreachable",
            Self::NotAllowed => "not-allowed",
            Self::NotLeading => "not-leading",
            Self::TlsNotTrusted => "tls-not-trusted",
            Self::NoCommonTls => "no-common-tls",
            Self::Unauthorized => "unauthorized",
            Self::NotFound => "not-found",
            Self::SessionLimit => "session-limit",
            Self::AnotherBmc => "another-bmc",
            Self::Rejected { .. } => "rejected",
            Self::Busy { .. } => "busy",
            Self::Unanswered => "unanswered",
            Self::Timeout => "timeout",
            Self::Protocol => "protocol",
            Self::Unsupported => "unsupported",
        }
    }

    const fn advice(self) -> &'static str {
        match self {
            Self::Address => "correct spec.bmc.address",
            Self::Unreachable => "check that the BMC runs, and that spec.bmc.address is right and reachable from here",
            Self::NotAllowed => "correct spec.bmc.address, or start the server with --allow-address for it",
            Self::NotLeading => "the process that leads goes on",
            Self::TlsNotTrusted => {
                "have the server trust the CA that signed the BMC's certificate, or a self-signed certificate itself (--bmc-ca), or set spec.bmc.disableCertificateVerification"
            }
            Self::NoCommonTls => {
                "update the BMC's firmware, or switch TLS 1.2 with ECDHE and AES-GCM on in its settings; a BMC that has neither can be addressed with +http in a network where nobody else listens"
            }
            Self::Unauthorized => {
                "correct user and password in the Secret that spec.bmc.credentialsName names, and check the account's role"
            }
            Self::NotFound => "correct the path in spec.bmc.address",
            Self::AnotherBmc => "check spec.bmc.address, and whether addresses or cables of BMCs have been exchanged",
            Self::SessionLimit => "end sessions on the BMC that are no longer used, or wait until they expire",
            Self::Rejected { .. } => "see the BMC's own log",
            Self::Busy { .. } => {
                "it is tried again; if it lasts, look at the machine's console and the BMC's job list, and restart the BMC"
            }
            Self::Unanswered => "it is looked at again; if that repeats, look at the BMC's load and network",
            Self::Timeout => "check the BMC's load and network; restart the BMC if it stays silent",
            Self::Protocol => "check that the address is a BMC's Redfish service, and the BMC's firmware for updates",
            Self::Unsupported => "check the BMC's licence and firmware",
        }
    }
}

/// A failed exchange with a BMC. Displayed as "attempted: found".
#[derive(Debug, thiserror::Error)]
#[error("{attempted}: {found}")]
pub struct BmcError {
    /// Kind.
    pub kind: ErrorKind,
    /// What was attempted, such as "insert the medium on BMC https://192.0.2.10".
    pub attempted: String,
    /// What was found.
    pub found: String,
    /// What to do.
    pub advice: Cow<'static, str>,
    /// An order of power has certainly not been carried out: it was not sent, for instance. False where that is not known, or where the kind alone says so. Of other
    /// orders nothing is told by it.
    pub unmade: bool,
    /// The identity of the BMC that answers in place of the recorded one ([`ErrorKind::AnotherBmc`]).
    pub presented: Option<Box<BmcPin>>,
    /// The cause below, if any.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl BmcError {
    /// A failure with the advice of its kind.
    #[must_use]
    pub fn new(kind: ErrorKind, attempted: impl Into<String>, found: impl Into<String>) -> Self {
        Self {
            kind,
            attempted: attempted.into(),
            found: found.into(),
            advice: Cow::Borrowed(kind.advice()),
            unmade: false,
            presented: None,
            source: None,
        }
    }

    /// Replaces the advice.
    #[must_use]
    pub fn advise(mut self, advice: impl Into<Cow<'static, str>>) -> Self {
        self.advice = advice.into();
        self
    }

    /// Adds the identity of the other BMC.
    #[must_use]
    pub fn showing(mut self, pin: BmcPin) -> Self {
        self.presented = Some(Box::new(pin));
        self
    }

    /// Adds the cause below.
    #[must_use]
    pub fn caused_by(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.source = Some(Box::new(source));
        self
    }

    /// Whether the same call may succeed later without a change by a person.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        self.kind.is_transient()
    }

    /// Status code of a rejection, temporary or final.
    #[must_use]
    pub const fn status(&self) -> Option<u16> {
        match self.kind {
            ErrorKind::Rejected { status } | ErrorKind::Busy { status } => Some(status),
            _ => None,
        }
    }
}
