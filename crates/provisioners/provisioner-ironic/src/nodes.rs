//! Which machines the Ironics have, for provisioners that must not touch those: an Ironic switches the power of its nodes back to what it was, and runs
//! orders that others know nothing of.
//!
//! All nodes and all ports of an Ironic are listed at most once in [`LAST`], however many hosts ask, and one that cannot be listed is not asked again
//! before that either.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use provisioner::{OtherMaster, Sought};
use tokio::sync::Mutex;

use crate::client::{Client, Place};
use crate::driver::Address;
use crate::host::Shared;

/// How long a list counts.
const LAST: SignedDuration = SignedDuration::from_secs(30);
/// Longest time for both lists.
const PATIENCE: Duration = Duration::from_secs(10);

/// What one Ironic has.
#[derive(Clone)]
struct Holdings {
    places: Vec<Place>,
    /// Nodes by the MAC addresses of their ports, in lower case.
    ports: HashMap<String, String>,
}

impl Holdings {
    /// The node that is, or may be, this machine: its name and what it shares.
    fn of(&self, address: Option<&Address>, sought: &Sought) -> Option<String> {
        // Whoever may declare a host has Ironic make a node of any address: such a one takes no machine from its host.
        let counts = |place: &&Place| place.is_verified || !sought.is_known;
        let here = |place: &&Place| counts(place) && address.is_some_and(|address| address.may_be(&place.bmcs));
        if let Some(place) = self.places.iter().find(here) {
            return Some(format!("the node {}, which is at its BMC", place.shown));
        }
        let mac = sought.boot_mac.as_ref()?.to_ascii_lowercase().replace('-', ":");
        let node = self.ports.get(&mac)?;
        let place = self.places.iter().find(|place| place.uuid == *node);
        if !place.as_ref().is_none_or(counts) {
            return None;
        }
        let shown = place.map_or(node, |place| &place.shown);
        Some(format!("the node {}, which has its boot MAC address {mac}", crate::fault::clean(shown)))
    }
}

type Known = Option<(Timestamp, Result<Arc<Holdings>, String>)>;

/// All Ironics of a server.
pub struct Nodes {
    shared: Arc<Shared>,
    known: Vec<Arc<Mutex<Known>>>,
}

impl Nodes {
    pub fn new(shared: Arc<Shared>) -> Self {
        let known = shared.ironics.iter().map(|_| Arc::default()).collect();
        Self { shared, known }
    }

    /// The list of one Ironic. Who asks while it comes waits for it.
    async fn listed(client: &Client, known: &Mutex<Known>, now: Timestamp) -> Result<Arc<Holdings>, String> {
        let mut known = known.lock().await;
        if let Some((asked, found)) = known.as_ref() {
            let age = now.duration_since(*asked);
            if !age.is_negative() && age < LAST {
                return found.clone();
            }
        }
        let found = match tokio::time::timeout(PATIENCE, list(client)).await {
            Ok(found) => found.map(Arc::new),
            Err(_) => Err(format!("Ironic at {} does not answer within {} s", client.endpoint(), PATIENCE.as_secs())),
        };
        *known = Some((now, found.clone()));
        found
    }
}

async fn list(client: &Client) -> Result<Holdings, String> {
    let told = |fault: crate::fault::Fault| fault.to_string();
    let places = client.all_places().await.map_err(told)?;
    let ports = client.all_ports().await.map_err(told)?;
    let owner = |port: crate::node::Port| Some((port.address.to_ascii_lowercase(), port.node_uuid?));
    Ok(Holdings { places, ports: ports.into_iter().filter_map(owner).collect() })
}

#[async_trait]
impl OtherMaster for Nodes {
    async fn holds(&self, sought: &Sought, now: Timestamp) -> Result<Option<String>, String> {
        // An address that no node can be made with is at none.
        let address = Address::parse(&sought.address, false).ok();
        let (mut asked, mut silent) = (tokio::task::JoinSet::new(), None);
        for (at, known) in self.known.iter().enumerate() {
            let (shared, known) = (Arc::clone(&self.shared), Arc::clone(known));
            asked.spawn(async move {
                let Some(one) = shared.ironics.get(at) else { return (at, Err("there is no such Ironic".to_owned())) };
                (at, Self::listed(&one.client, &known, now).await)
            });
        }
        while let Some(answered) = asked.join_next().await {
            let (at, listed) = answered.map_err(|_| "the look at an Ironic broke off".to_owned())?;
            let name = self.shared.ironics.get(at).map(|one| one.site.name.as_str()).unwrap_or_default();
            match listed {
                Ok(holdings) => {
                    if let Some(node) = holdings.of(address.as_ref(), sought) {
                        return Ok(Some(format!("the Ironic \"{name}\" as {node}")));
                    }
                }
                Err(why) => silent = Some(format!("the Ironic \"{name}\" cannot be asked ({why})")),
            }
        }
        silent.map_or(Ok(None), Err)
    }
}
