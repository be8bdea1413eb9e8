//! A provisioner that has its hosts run by standalone Ironics, over their REST API.
//!
//! **What is whose.** Ironic talks to the BMC, boots its agent and writes the disks. This crate says what a host's node is to be: it makes and
//! describes the node, orders one verb of Ironic's state machine at a time, and tells the controller where the node is. A host has one node,
//! `<namespace>~<name>` as baremetal-operator names it, so that a host can be handed from one to the other and back. Node fields, clean steps and
//! deploy interfaces are baremetal-operator's (`pkg/provisioner/ironic` at 02aa505).
//!
//! **How it goes on after a kill.** Each order that touches disks, firmware or boots is recorded before it is made ([`journal`]), with what the node
//! was then: its state, when that state began and when the node was made ([`orders`]). The next process reads the node and sees whether the order was taken, what has
//! become of it, or that Ironic has lost the node since. Ironic itself runs one order at a time on a node and refuses the others, so two processes do
//! not do the same twice.
//!
//! **Where to go from here** is pure: [`way`] says which verb brings a node from any state to the one that work begins in, [`orders`] what a node's state says of an
//! order, [`driver`] which fields a BMC address becomes, [`causes`] which cause a sentence of Ironic's stands for.
//!
//! **A lost database** is answered with a registration: the node is made again under the same UUID. What is provisioned is then adopted, which touches nothing; work
//! that was under way has failed, and says so.
//!
//! **Few calls.** Hosts that wait share one list of all nodes for some seconds ([`fleet`]); a node is read whole right before something is ordered. A
//! node that is locked (409) is looked at again after some seconds, with a chance of the host's own. While Ironic has no worker (503), no host orders
//! anything for a time that doubles ([`fleet::Gate`]).
//!
//! **What is an Ironic's is nobody else's.** [`IronicProvisioner::nodes`] tells other provisioners which machines its Ironics have, from one list for all.
//!
//! **Several Ironics** have names; a host's is chosen by its namespace when it is registered, and recorded ([`sites`]).

mod causes;
mod cleaning;
mod client;
mod deploy;
mod details;
mod driver;
mod fault;
mod fleet;
mod hints;
mod host;
mod http;
mod image;
mod inspect;
mod journal;
mod manage;
mod media;
mod names;
mod node;
mod nodes;
mod optional;
mod orders;
mod patch;
mod power;
mod prepare;
mod provisioner_impl;
mod register;
mod show;
mod sites;
mod steps;
mod stop;
mod transport;
mod used;
mod versions;
mod way;
mod work;

pub use driver::{address_fault, hardware};
pub use http::{Access, HttpTransport};
pub use journal::recorded_on_machine;
pub use names::NAME;
pub use provisioner_impl::{Ironic, IronicProvisioner, capabilities};
pub use sites::{Site, SiteFile, SitesError, read_sites};
pub use transport::{Method, Request, Response, Transport, TransportError};
