//! Machines that may be in use, met when a host is registered: what a provisioner asks of [`provisioning_plan::in_use`], and what the host says where nothing is
//! done. Each provisioner knows by its own record what is on the machine.

use api::metal3::annotation::{DETACHED, OVERWRITE_OWNER, PROVISIONER};
use jiff::Timestamp;
pub use provisioning_plan::in_use::Recorded as OnMachine;
use provisioning_plan::in_use::{self, Recorded, Runs, Told, UNKNOWN, Why, asked, is_behind, names};
use serde::{Deserialize, Serialize};

use crate::{Cause, Failure, RegisterRequest, Retry};

/// What a host's status tells of its machine's past, and whose data may be destroyed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Past {
    /// When the host was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<Timestamp>,
    /// When its last provisioning began (`operationHistory.provision.start`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioned: Option<Timestamp>,
    /// When it was last emptied (`operationHistory.deprovision.end`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emptied: Option<Timestamp>,
    /// What is provisioned: the part of the wish that is not its time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs: Option<String>,
    /// Since when that is being removed, while it is (`operationHistory.deprovision.start`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removing: Option<Timestamp>,
    /// Somebody else looks after what is on the machine (`spec.externallyProvisioned`).
    #[serde(default)]
    pub externally: bool,
    /// Owners whose data may be destroyed, separated by commas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consent: Option<String>,
}

impl Past {
    /// Whether the host's status knows what its machine runs by the record, before something is done by which that ends. `attempt` is what is about to be done, such as
    /// `write the image`.
    ///
    /// # Errors
    /// The machine is in use: the status is an older one.
    pub fn knows(&self, recorded: &Recorded, attempt: &str) -> Result<(), Failure> {
        let past = in_use::Past {
            made: self.made,
            provisioned: self.provisioned,
            emptied: self.emptied,
            runs: self.runs.as_deref(),
            removing: self.removing,
            externally: self.externally,
        };
        self.judged(&past, recorded, attempt)
    }

    /// The same before the machine is switched off because its host is deleted. What somebody else looks after is switched off then, as baremetal-operator does it.
    ///
    /// # Errors
    /// As [`Past::knows`].
    pub fn knows_before_deletion(&self, recorded: &Recorded) -> Result<(), Failure> {
        Self { externally: false, ..self.clone() }.knows(recorded, "switch the machine off before its host is deleted")
    }

    /// The same before a system is put on the machine for this wish, by which the status tells of a provisioning already.
    ///
    /// # Errors
    /// As [`Past::knows`].
    pub fn knows_before(&self, wish: Option<&str>, recorded: &Recorded, attempt: &str) -> Result<(), Failure> {
        match recorded {
            Recorded::Runs(runs) if wish.is_some() && runs.wish.as_deref() != wish => {
                let (made, emptied, externally) = (self.made, self.emptied, self.externally);
                let past = in_use::Past { made, emptied, externally, ..in_use::Past::default() };
                self.judged(&past, recorded, attempt)
            }
            _ => Ok(()),
        }
    }

    fn judged(&self, past: &in_use::Past<'_>, recorded: &Recorded, attempt: &str) -> Result<(), Failure> {
        match recorded {
            Recorded::Runs(runs) if is_behind(past, runs) && !names(self.consent.as_deref(), &runs.owner) => {
                let owner = &runs.owner;
                let advice = format!(
                    "write the status back that the host had last (kubectl replace --subresource=status); to have the host go on by the old status, by which the \
                     data may be destroyed, set the annotation {OVERWRITE_OWNER} to {owner}"
                );
                let by = if past.externally && runs.began().is_none() {
                    "is somebody else's (spec.externallyProvisioned), which this host's status does not tell of"
                        .to_owned()
                } else {
                    format!(
                        "is in use by what was provisioned on it (owner {owner}) later than this host's status tells of"
                    )
                };
                let text = format!("{attempt}: the machine {by}, so an older status has been put back");
                Err(in_use(text, &advice))
            }
            _ => Ok(()),
        }
    }
}

impl RegisterRequest {
    /// What the host says of its machine.
    #[must_use]
    pub fn told(&self) -> Told<'_> {
        match (&self.restored, self.asks_for.as_deref()) {
            // The same image may have been provisioned again since, for somebody else: what was being removed is not what runs now.
            (Some(restored), _) => Told::Restored {
                provisioning: restored.provisioning,
                runs: self.deployed.wish.as_deref().filter(|_| restored.stays).and_then(asked),
            },
            // Somebody else looks after it, which is asked for in the spec.
            _ if self.deployed.externally => Told::Here,
            (None, Some(asks_for)) => Told::Lost {
                asks_for,
                has_past: self.has_past,
                is_claimed: self.is_claimed,
                known_since: self.known_since,
            },
            (None, None) => Told::Here,
        }
    }
}

/// What to do for a host whose machine is in use.
const RESTORE: &str = "to have the host go on as it was, give it its status back (annotation baremetalhost.metal3.io/status), or in spec.image and \
                       spec.rootDeviceHints what it was provisioned with; to leave the machine to somebody else, delete this host and declare it anew with \
                       spec.externallyProvisioned";

/// Whether a host that was made anew is to have another provisioner than the one whose record its machine has. That one's program may be all that knows what the
/// machine runs: it goes to the other where the record says that nobody uses it, or with consent.
///
/// # Errors
/// The machine is in use, or may be. `earlier` is the provisioner that wrote the record, `wanted` the one that the host is to have.
pub fn may_change(
    recorded: Option<&Recorded>,
    consent: Option<&str>,
    (earlier, wanted): (&str, &str),
) -> Result<(), Failure> {
    let attempt = format!(
        "choose a provisioner: by this host's MachineRecord the machine was last the provisioner \"{earlier}\"'s"
    );
    let (text, owner) = match recorded {
        Some(Recorded::Runs(Runs { owner, .. })) => (
            format!("{attempt}, and is in use by what was provisioned on it, by that one or others (owner {owner})"),
            owner.as_str(),
        ),
        Some(Recorded::Nothing | Recorded::Unused | Recorded::Emptied { .. }) => return Ok(()),
        Some(Recorded::Unclear) => (
            format!(
                "{attempt}, and may be in use: an image was being written or removed, or the machine was left to others"
            ),
            UNKNOWN,
        ),
        None => (format!("{attempt}, and may be in use: what it runs, that one alone knows"), UNKNOWN),
    };
    if names(consent, owner) {
        return Ok(());
    }
    let advice = format!(
        "to have the host go on with \"{earlier}\", set the host's annotation {PROVISIONER} to that, on a server that has it; to leave the machine to somebody \
         else, delete this host and declare it anew with spec.externallyProvisioned; if \
         nothing on the machine is needed, set the annotation {OVERWRITE_OWNER} to {owner}: the host goes to \"{wanted}\" then"
    );
    Err(in_use(text, &advice))
}

/// Why a host is held, and what is to be done.
#[must_use]
pub fn held(why: &Why<'_>) -> Failure {
    let (text, advice) = match why {
        Why::Runs(Runs { owner, .. }) => (
            format!(
                "register the machine: it is in use by what was provisioned on it for a host of this name (owner {owner}), and this host, which has no \
                 status, does not ask for that"
            ),
            format!("{RESTORE}; to have its data destroyed, set the annotation {OVERWRITE_OWNER} to {owner}"),
        ),
        // Of what others have put there, or what was taken over, nobody knows the time.
        Why::RunsSince(runs) if runs.began().is_none() => {
            let owner = &runs.owner;
            (
                format!(
                    "register the machine: by its MachineRecord (owner {owner}) what is on it is somebody else's, or was taken over, which this host's status, \
                     which was restored, does not tell of"
                ),
                format!(
                    "delete this host, let go by force (annotation {DETACHED}), and declare it anew with spec.externallyProvisioned, which leaves the machine \
                     to somebody else; taken out of the spec later, it has the host keep the system, as the image that spec.image names; to have its data \
                     destroyed, set the annotation {OVERWRITE_OWNER} to {owner}"
                ),
            )
        }
        Why::RunsSince(Runs { owner, .. }) => (
            format!(
                "register the machine: it is in use by what was provisioned on it (owner {owner}) later than this host's status, which was restored, tells of"
            ),
            format!(
                "give the host the status that it had last (annotation baremetalhost.metal3.io/status), or make it anew without one, so that it is \
                 recognized; to leave the machine to somebody else, delete this host, let go by force (annotation {DETACHED}), and declare it anew with \
                 spec.externallyProvisioned; to have the host go on by the old status, by which the data may be destroyed, set the annotation \
                 {OVERWRITE_OWNER} to {owner}"
            ),
        ),
        Why::Past => (
            "register the machine: it may be in use, because the host has a consumer or HardwareData, and neither a status nor a MachineRecord tells what has \
             become of it"
                .to_owned(),
            format!(
                "to have the host go on as it was, give it its status back (annotation baremetalhost.metal3.io/status); to leave the machine to somebody \
                 else, delete this host and declare it anew with spec.externallyProvisioned; if nothing on the machine is needed, set the annotation \
                 {OVERWRITE_OWNER} to {UNKNOWN}: it is inspected then"
            ),
        ),
    };
    in_use(text, &advice)
}

/// The machine is in use, and nothing is done to it.
#[must_use]
pub fn in_use(text: String, advice: &str) -> Failure {
    let failure = Failure::new(Cause::MachineInUse, text).advise(advice);
    Failure { retry: Retry::Held, ..failure }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Deployed, Restored};

    #[test]
    fn a_machine_goes_to_another_provisioner_if_it_is_known_to_run_nothing_or_with_consent() {
        let runs = || Some(Recorded::Runs(Runs { wish: None, owner: "o".into() }));
        let emptied = Some(Recorded::Emptied { ended: None });
        for (recorded, consent, goes) in [
            (emptied, None, true),
            (Some(Recorded::Nothing), None, true),
            (Some(Recorded::Unused), None, true),
            (Some(Recorded::Unclear), None, false),
            (Some(Recorded::Unclear), Some(UNKNOWN), true),
            (runs(), None, false),
            (runs(), Some("x,o"), true),
            (runs(), Some(UNKNOWN), false),
            (None, None, false),
            (None, Some(UNKNOWN), true),
        ] {
            let judged = may_change(recorded.as_ref(), consent, ("acme", "metamorph"));
            assert_eq!(judged.is_ok(), goes, "{recorded:?} {consent:?}");
            let held = |failure: Failure| failure.cause == Cause::MachineInUse && failure.retry == Retry::Held;
            assert!(judged.err().is_none_or(held));
        }
    }

    #[test]
    fn what_was_being_removed_is_not_what_runs_though_its_image_is_the_same() {
        for (stays, expected) in [(true, Some("i")), (false, None)] {
            let deployed = Deployed { wish: Some("2026-01-01T00:00:00Z i".into()), ..Deployed::default() };
            let restored = Some(Restored { provisioning: None, stays });
            let request = RegisterRequest { restored, deployed, ..RegisterRequest::default() };
            assert_eq!(request.told(), Told::Restored { provisioning: None, runs: expected });
        }
    }
}
