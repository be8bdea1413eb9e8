//! Typed failures: a cause that programs can tell apart, a sentence for people, advice, and whether trying again can help.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use terms::Retry;

/// What went wrong, by class. The name is what `status.error.cause` of a HostOperation shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The address cannot be parsed or its scheme is not served.
    BmcAddressInvalid,
    /// The machine, or its BMC, is not the one that this host is known to be: nothing has been done to it.
    AnotherMachine,
    /// Whether the machine is the one meant could not be told: nothing has been done to it.
    MachineUnknown,
    /// Nothing answers at the BMC's address, or it stopped answering.
    BmcUnreachable,
    /// The BMC's certificate is not trusted.
    BmcCertificateUntrusted,
    /// The BMC refuses user or password.
    BmcCredentialsRefused,
    /// The BMC, or the firmware of its machine, puts requests off: overloaded, starting, in the self-test.
    BmcBusy,
    /// The BMC answered with an error, or lacks something needed.
    BmcRefused,
    /// The agent did not report in time.
    AgentSilent,
    /// The key that the agent's boot was derived from has been removed.
    KeyRemoved,
    /// The image or its checksum cannot be had now: its server does not answer, or puts requests off.
    ImageUnavailable,
    /// The image or its checksum is not where the host says that it is: its server has said so, or the list of digests does not have it.
    ImageNotFound,
    /// The image's registry does not let it be read: it refuses the credentials, or wants some.
    ImageDenied,
    /// The image is not what was declared (digest, size, format).
    ImageInvalid,
    /// No disk fits the hints or the image.
    NoSuitableDisk,
    /// A disk carries another owner's mark.
    ForeignOwner,
    /// Disks were to be erased, and not all are, or not as thoroughly as asked for.
    NotErased,
    /// The machine runs what was provisioned on it for a host of this name, or may do so, and its host, which has no status, does not ask for that; or what is
    /// asked for would disturb who uses it, or its virtual drive: nothing has been done to it.
    MachineInUse,
    /// A disk, the firmware or the machine failed.
    HardwareFailed,
    /// The request itself is wrong (network data, format, missing Secret).
    InvalidRequest,
    /// The host's record could not be written. It is no failure of the host: nothing was done, and the call is made again.
    RecordUnavailable,
    /// The host's record is of a version that this program does not read, or is no record: nothing is done to the machine.
    RecordUnreadable,
    /// What the provisioner itself works with (a server of its own, such as Ironic) cannot be reached, or is not ready. The machine was not asked.
    ProvisionerUnavailable,
    /// What the provisioner itself works with has failed, in words of its own.
    ProvisionerFailed,
    /// The provisioner of this host does not serve what is asked of it.
    NotServed,
    /// Another process acts on machines. It is no failure of the host: nothing was done, and the other goes on.
    NotLeading,
    /// A fault of this program.
    Internal,
    /// A cause of which this version does not know, named by a provisioner of another.
    Other,
}

impl Cause {
    /// All of them with their CamelCase names.
    const ALL: [(Self, &'static str); 28] = [
        (Self::BmcAddressInvalid, "BmcAddressInvalid"),
        (Self::AnotherMachine, "AnotherMachine"),
        (Self::MachineUnknown, "MachineUnknown"),
        (Self::BmcUnreachable, "BmcUnreachable"),
        (Self::BmcCertificateUntrusted, "BmcCertificateUntrusted"),
        (Self::BmcCredentialsRefused, "BmcCredentialsRefused"),
        (Self::BmcBusy, "BmcBusy"),
        (Self::BmcRefused, "BmcRefused"),
        (Self::AgentSilent, "AgentSilent"),
        (Self::KeyRemoved, "KeyRemoved"),
        (Self::ImageUnavailable, "ImageUnavailable"),
        (Self::ImageNotFound, "ImageNotFound"),
        (Self::ImageDenied, "ImageDenied"),
        (Self::ImageInvalid, "ImageInvalid"),
        (Self::NoSuitableDisk, "NoSuitableDisk"),
        (Self::ForeignOwner, "ForeignOwner"),
        (Self::NotErased, "NotErased"),
        (Self::MachineInUse, "MachineInUse"),
        (Self::HardwareFailed, "HardwareFailed"),
        (Self::InvalidRequest, "InvalidRequest"),
        (Self::RecordUnavailable, "RecordUnavailable"),
        (Self::RecordUnreadable, "RecordUnreadable"),
        (Self::ProvisionerUnavailable, "ProvisionerUnavailable"),
        (Self::ProvisionerFailed, "ProvisionerFailed"),
        (Self::NotServed, "NotServed"),
        (Self::NotLeading, "NotLeading"),
        (Self::Internal, "Internal"),
        (Self::Other, "Other"),
    ];

    /// CamelCase name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(cause, _)| *cause == self).map_or("Other", |(_, name)| name)
    }

    /// What to do where nothing more is known than the cause.
    #[must_use]
    pub const fn advice(self) -> &'static str {
        match self {
            Self::BmcAddressInvalid => "correct spec.bmc.address",
            Self::AnotherMachine => {
                "correct spec.bmc.address or the cables; see the host's MachineRecord for the machine that is meant"
            }
            Self::MachineUnknown => "have the BMC show the machine's UUID, serial number or MAC addresses",
            Self::BmcUnreachable => "see whether the BMC answers, and the way to it; it is tried again",
            Self::BmcCertificateUntrusted => {
                "start the server with the BMC's authority (--bmc-ca), or set spec.bmc.disableCertificateVerification"
            }
            Self::BmcCredentialsRefused => {
                "correct user and password in the Secret that spec.bmc.credentialsName names"
            }
            Self::BmcBusy => "wait, it is tried again; restart the BMC if it stays busy",
            Self::BmcRefused => "see the BMC's words, its licence, its firmware and its open sessions",
            Self::AgentSilent => {
                "look at the machine's console, and at the way from it to this server; it is tried again"
            }
            Self::KeyRemoved => "nothing: the boot is begun anew with the present key",
            Self::ImageUnavailable => {
                "see whether the image's server answers, and the way to it from the machine; it is tried again"
            }
            Self::ImageNotFound | Self::ImageInvalid => "correct spec.image, or what its server has",
            Self::ImageDenied => "correct the Secret that spec.image.ociAuthSecretName names",
            Self::NoSuitableDisk => {
                "correct spec.rootDeviceHints; the disks found are in the HardwareData of this host"
            }
            Self::ForeignOwner => {
                "if the data on the disk may be destroyed, name its owner in the annotation metamorph.metal3.io/overwrite-owner"
            }
            Self::NotErased => "see the report of each disk in the request's status (docs/erase.md)",
            Self::MachineInUse => "give the host its status back (annotation baremetalhost.metal3.io/status)",
            Self::HardwareFailed => "look at the hardware that the message names; it is tried again",
            Self::InvalidRequest => "correct the field of the host that the message names",
            Self::RecordUnavailable => {
                "see whether the Kubernetes API answers, and this server's rights (metamorph rbac); it is tried again"
            }
            Self::RecordUnreadable => {
                "restore the host's MachineRecord from a backup, or run the version of the program that wrote it"
            }
            Self::ProvisionerUnavailable => "see whether what the provisioner works with runs; it is tried again",
            Self::ProvisionerFailed => "see the log of what the provisioner works with; it is tried again",
            Self::NotServed => "remove the field that the message names, or give the host another provisioner",
            Self::NotLeading => "nothing: the process that leads goes on",
            Self::Internal | Self::Other => "see the server's log, and report it; it is tried again",
        }
    }

    /// The cause of that name, [`Cause::Other`] if it is not known.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self::ALL.iter().find(|(_, known)| *known == name).map_or(Self::Other, |(cause, _)| *cause)
    }
}

impl Serialize for Cause {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Cause {
    /// A name that is not known is [`Cause::Other`].
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Ok(Self::named(&name))
    }
}

/// A failure that belongs in the host's status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Class.
    pub cause: Cause,
    /// Part of the machine that it is about, such as `PSU 2`, if one is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub component: Option<String>,
    /// What was attempted and what was found.
    pub message: String,
    /// What to do, a sentence.
    pub advice: Option<String>,
    /// Whether trying again can help.
    pub retry: Retry,
}

impl Failure {
    /// A failure that is retried with back-off.
    #[must_use]
    pub fn new(cause: Cause, message: impl Into<String>) -> Self {
        Self { cause, component: None, message: message.into(), advice: None, retry: Retry::Later }
    }

    /// Names the part of the machine.
    #[must_use]
    pub fn of(mut self, component: impl Into<String>) -> Self {
        self.component = Some(component.into());
        self
    }

    /// Adds what to do.
    #[must_use]
    pub fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    /// What to do: what was advised or stands in the message, or else what its cause says.
    #[must_use]
    pub fn what_to_do(&self) -> Option<&str> {
        let in_message = self.message.contains(" — ");
        self.advice.as_deref().or_else(|| (!in_message).then(|| self.cause.advice()))
    }

    /// Message and advice as one text, for `status.errorMessage`.
    #[must_use]
    pub fn text(&self) -> String {
        match self.what_to_do() {
            Some(advice) => format!("{} — {advice}", self.message),
            None => self.message.clone(),
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text())
    }
}

impl std::error::Error for Failure {}

impl From<crate::RecordError> for Failure {
    fn from(error: crate::RecordError) -> Self {
        if error.not_leading {
            return Self::new(Cause::NotLeading, error.to_string());
        }
        Self::new(Cause::RecordUnavailable, error.to_string())
            .advise("check the Kubernetes API; nothing was done, it is tried again")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_has_one_name_and_one_that_is_not_known_is_another() {
        for (cause, name) in Cause::ALL {
            assert_eq!(serde_json::to_value(cause).unwrap(), name);
            assert_eq!(serde_json::from_value::<Cause>(name.into()).unwrap(), cause);
        }
        assert_eq!(serde_json::from_str::<Cause>("\"FluxCapacitor\"").unwrap(), Cause::Other);
    }

    #[test]
    fn a_diagnosis_knows_each_cause_by_its_name() {
        for (cause, name) in Cause::ALL {
            let failure = diagnosis::FailureFacts {
                kind: diagnosis::FailureType::Provisioning,
                cause: Some(name.to_owned()),
                message: "it did not work".to_owned(),
                ..diagnosis::FailureFacts::default()
            };
            let evidence = diagnosis::Evidence { failure: Some(failure), ..diagnosis::Evidence::default() };
            let is_judged = diagnosis::diagnose(&evidence).first().is_some();
            // Neither is a failure of the host's, or says what it is.
            assert_eq!(is_judged, !matches!(cause, Cause::NotLeading | Cause::Other), "{name}");
        }
    }

    #[test]
    fn each_failure_says_what_to_do_next() {
        for (cause, name) in Cause::ALL {
            let plain = Failure::new(cause, "make it: it was not there");
            let (what, advice) = plain.text().split_once(" — ").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
            assert!(what == plain.message && advice.len() > 10, "{name}: {advice}");
            assert_eq!(plain.clone().advise("do this").text(), "make it: it was not there — do this");
            let advised = Failure::new(cause, "make it: it was not there — do that");
            assert_eq!(advised.text(), advised.message, "not twice");
        }
    }
}
