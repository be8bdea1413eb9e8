//! Machines that may be in use, met when a host is registered: what [`provisioning_plan::in_use`] is asked, by the record and by Ironic's node.
//!
//! Beside the record there is Ironic's node: one that is deployed, of which the record tells nothing, runs a system that nobody knows.

use provisioner::in_use::held;
use provisioner::{Failure, Method, RegisterRequest};
use provisioning_plan::in_use::{Facts, Found, Recorded, Runs, UNKNOWN, Why, found};

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
        // What a restored status tells to have been begun and not removed since, or says is there by another way than an image, may be what Ironic's node has.
        let begun = request.restored.as_ref().and_then(|restored| restored.provisioning);
        let is_begun = begun.is_some_and(|began| self.context.past.emptied.is_none_or(|emptied| began > emptied));
        let is_told = request.deployed.image.is_some() || request.deployed.method != Method::Disk || is_begun;
        let recorded = self.on_machine(node, is_told);
        let facts = Facts {
            recorded: &recorded,
            told: request.told(),
            powered_on: node.and_then(Node::is_on),
            consent: request.overwrite_owner.as_deref(),
        };
        match found(&facts) {
            Found::GoOn => Use::GoOn,
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
