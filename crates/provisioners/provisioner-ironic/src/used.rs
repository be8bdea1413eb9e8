//! Machines that may be in use, met when a host is registered: what is asked of [`provisioning_plan::in_use`], and what the host says where nothing is done.
//!
//! Beside the record there is Ironic's node: one that is deployed, of which the record tells nothing, runs a system that nobody knows.

use api::metal3::annotation::OVERWRITE_OWNER;
use provisioner::{Cause, Failure, RegisterRequest, Retry};
use provisioning_plan::in_use::{Facts, Found, Recorded, Runs, Told, UNKNOWN, Why, found};

use crate::host::IronicHost;
use crate::node::Node;

/// What becomes of a host whose machine may be in use.
#[derive(Debug, PartialEq, Eq)]
pub enum Use {
    /// It is registered as what it says it is.
    GoOn,
    /// What it asks for is on the machine.
    Recognized,
    /// It runs a system that the host does not tell of.
    By(Failure),
    /// It may run one, unless it turns out to be off.
    Perhaps(Failure),
}

impl IronicHost {
    /// What becomes of the host. `node` is its node, if Ironic has it.
    pub fn in_use(&self, request: &RegisterRequest, node: Option<&Node>) -> Use {
        let of_status = Runs { wish: request.deployed.wish.clone(), owner: String::new() };
        let told = match (&request.restored, request.asks_for.as_deref()) {
            (Some(restored), _) => Told::Restored { provisioning: restored.provisioning, runs: of_status.asked() },
            (None, Some(asks_for)) => Told::Lost {
                asks_for,
                has_past: request.has_past,
                is_claimed: request.is_claimed,
                known_since: request.known_since,
            },
            (None, None) => Told::Here,
        };
        let recorded = self.on_machine(node, request.deployed.image.is_some());
        let facts = Facts {
            recorded: &recorded,
            told,
            powered_on: node.and_then(Node::is_on),
            consent: request.overwrite_owner.as_deref(),
        };
        match found(&facts) {
            Found::GoOn => Use::GoOn,
            // Somebody else looks after it, which is asked for in the spec.
            Found::Hold(_) if request.deployed.externally => Use::GoOn,
            Found::Recognise(_) => Use::Recognized,
            Found::Hold(Why::Past) => Use::Perhaps(held(&Why::Past)),
            Found::Hold(why) => Use::By(held(&why)),
        }
    }

    /// What is on the machine, by the record and by the node.
    pub fn on_machine(&self, node: Option<&Node>, is_told: bool) -> Recorded {
        let recorded = self.journal.data.on_machine();
        let is_deployed = node.is_some_and(|node| node.state().is_deployed());
        match recorded {
            Recorded::Runs(_) => recorded,
            _ if is_deployed && !is_told => {
                let owner = node.and_then(|node| node.instance_uuid.clone()).unwrap_or_else(|| UNKNOWN.to_owned());
                Recorded::Runs(Runs { wish: None, owner })
            }
            _ => recorded,
        }
    }
}

fn held(why: &Why<'_>) -> Failure {
    const RESTORE: &str =
        "to have the host go on as it was, give it its status back (annotation baremetalhost.metal3.io/status)";
    const LEAVE: &str = "to leave the machine to somebody else, set spec.externallyProvisioned";
    let (text, owner) = match why {
        Why::Runs(Runs { owner, .. }) => (
            format!("it is in use by what was provisioned on it (owner {owner}), and this host, which has no status, does not ask for that"),
            owner.as_str(),
        ),
        Why::RunsSince(Runs { owner, .. }) => (
            format!("it is in use by what was provisioned on it (owner {owner}) later than this host's status, which was restored, tells of"),
            owner.as_str(),
        ),
        Why::Past => (
            "it may be in use, because the host has a consumer or HardwareData, and neither a status nor a MachineRecord tells what has become of it"
                .to_owned(),
            UNKNOWN,
        ),
    };
    let advice =
        format!("{RESTORE}; {LEAVE}; if its data may be destroyed, set the annotation {OVERWRITE_OWNER} to {owner}");
    let failure = Failure::new(Cause::MachineInUse, format!("register the host with Ironic: {text}")).advise(advice);
    Failure { retry: Retry::Held, ..failure }
}
