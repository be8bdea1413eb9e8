//! What all hosts of one Ironic share: the last list of its nodes, and a gate that is closed while it has no room.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;

use crate::node::Node;

/// How old what was seen of a node may be for a host that waits.
pub const FRESH: Duration = Duration::from_secs(2);
/// A host that has looked so long ago looks again no more: its pauses are shorter, ten seconds and a quarter.
const PAUSE: Duration = Duration::from_secs(15);
/// The gate's first time, which doubles up to [`LONGEST`].
const SHORTEST: Duration = Duration::from_secs(5);
/// The gate's longest time.
const LONGEST: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct List {
    /// What was ordered since is not in it.
    asked: Timestamp,
    /// It is as old as this.
    came: Timestamp,
    nodes: HashMap<String, Node>,
}

/// A node as it was read alone.
#[derive(Debug)]
struct Single {
    asked: Timestamp,
    came: Timestamp,
    node: Node,
}

/// The last list of nodes, and what was read of single ones.
#[derive(Debug, Default)]
pub struct Fleet {
    list: Option<List>,
    singles: HashMap<String, Single>,
    /// When hosts have looked at their nodes.
    looked: HashMap<String, Timestamp>,
    /// When something was last ordered of a node.
    ordered: HashMap<String, Timestamp>,
}

fn since(now: Timestamp, then: Timestamp) -> Option<Duration> {
    Duration::try_from(now.duration_since(then)).ok()
}

impl Fleet {
    /// Whether the list may be used at this time.
    pub fn is_fresh(&self, now: Timestamp) -> bool {
        self.list.as_ref().and_then(|list| since(now, list.came)).is_some_and(|age| age < FRESH)
    }

    /// The node as it was listed or read, unless something was ordered of it since. The inner value is nothing where the list does not have it.
    pub fn node(&self, now: Timestamp, uuid: &str) -> Option<Option<Node>> {
        let counts = |asked: &Timestamp| self.ordered.get(uuid).is_none_or(|ordered| ordered < asked);
        let is_fresh = |single: &&Single| since(now, single.came).is_some_and(|age| age < FRESH);
        if let Some(single) = self.singles.get(uuid).filter(is_fresh).filter(|single| counts(&single.asked)) {
            return Some(Some(single.node.clone()));
        }
        let List { asked, nodes, .. } = self.list.as_ref().filter(|_| self.is_fresh(now))?;
        counts(asked).then(|| nodes.get(uuid).cloned())
    }

    /// A host looks at its node now: whether no other has looked for so long that it looks again. Then the node alone is asked for, not the list of all.
    pub fn looks_alone(&mut self, now: Timestamp, uuid: &str) -> bool {
        self.looked.retain(|_, looked| since(now, *looked).is_some_and(|age| age < PAUSE));
        self.looked.insert(uuid.to_owned(), now);
        self.looked.len() == 1
    }

    /// A node that was asked for then has come.
    pub fn read(&mut self, asked: Timestamp, came: Timestamp, node: Node) {
        self.singles.retain(|_, single| since(came, single.came).is_some_and(|age| age < FRESH));
        self.singles.insert(node.uuid.clone(), Single { asked, came, node });
    }

    /// A list that was asked for then has come.
    pub fn listed(&mut self, asked: Timestamp, came: Timestamp, nodes: Vec<Node>) {
        let nodes: HashMap<String, Node> = nodes.into_iter().map(|node| (node.uuid.clone(), node)).collect();
        // What was read before it is older than the list, or was asked for while that came.
        let oldest = self.singles.values().map(|single| single.asked).min().map_or(asked, |single| single.min(asked));
        self.ordered.retain(|_, ordered| *ordered >= oldest);
        self.list = Some(List { asked, came, nodes });
    }

    /// Something is ordered of the node.
    pub fn ordered(&mut self, now: Timestamp, uuid: &str) {
        self.ordered.insert(uuid.to_owned(), now);
    }

    /// Nodes that Ironic boots over the network for work of its own, beside this one (`loadBusyHosts` of baremetal-operator).
    pub fn network_boots(&self, beside: &str) -> usize {
        let Some(List { nodes, .. }) = &self.list else { return 0 };
        let boots = |node: &&Node| {
            node.uuid != beside
                && node.state().is_at_work()
                && !node.boot_interface.as_deref().is_some_and(|boot| boot.contains("virtual-media"))
        };
        nodes.values().filter(boots).count()
    }
}

/// Closed while Ironic has no worker: nothing is ordered then, by no host.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gate {
    closed: Option<(Timestamp, Duration)>,
    last: Duration,
}

impl Gate {
    /// How long it stays closed; nothing if it is open.
    pub fn closed_for(&self, now: Timestamp) -> Option<Duration> {
        let (when, time) = self.closed?;
        time.checked_sub(since(now, when)?).filter(|left| !left.is_zero())
    }

    /// Ironic has no room: nothing is ordered for some time, twice as long as before.
    pub fn close(&mut self, now: Timestamp) -> Duration {
        self.last = (self.last * 2).clamp(SHORTEST, LONGEST);
        self.closed = Some((now, self.last));
        self.last
    }

    /// Ironic has taken an order.
    pub fn open(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_767_225_600 + second).unwrap()
    }

    fn node(uuid: &str, state: &str, boot: &str) -> Node {
        let (provision_state, boot_interface) = (state.into(), Some(boot.into()));
        Node { uuid: uuid.into(), provision_state, boot_interface, ..Node::default() }
    }

    #[test]
    fn a_list_counts_for_seconds_and_not_for_a_node_of_which_something_was_ordered() {
        let mut fleet = Fleet::default();
        assert!(fleet.node(at(0), "a").is_none());
        fleet.listed(at(0), at(0), vec![node("a", "available", "ipxe")]);
        assert_eq!(fleet.node(at(1), "a").unwrap().unwrap().uuid, "a");
        assert_eq!(fleet.node(at(1), "b"), Some(None), "it is known that there is none");
        assert!(fleet.node(at(2), "a").is_none(), "too old");
        fleet.listed(at(7), at(10), vec![node("a", "available", "ipxe"), node("b", "active", "ipxe")]);
        fleet.ordered(at(10), "a");
        assert!(fleet.node(at(11), "a").is_none() && fleet.node(at(11), "b").is_some());
        fleet.listed(at(11), at(11), vec![node("a", "deploying", "ipxe")]);
        assert!(fleet.node(at(11), "a").is_some());
    }

    #[test]
    fn a_host_that_looks_by_itself_reads_its_node_and_several_share_a_list() {
        let mut fleet = Fleet::default();
        assert!(fleet.looks_alone(at(0), "a") && fleet.looks_alone(at(12), "a"));
        assert!(!fleet.looks_alone(at(13), "b") && !fleet.looks_alone(at(14), "a"), "two wait");
        assert!(fleet.looks_alone(at(29), "a"), "the other has its end");
        fleet.read(at(29), at(30), node("a", "active", "ipxe"));
        assert_eq!(fleet.node(at(31), "a").unwrap().unwrap().provision_state, "active");
        assert!(fleet.node(at(32), "a").is_none() && fleet.node(at(31), "b").is_none());
        fleet.ordered(at(29), "a");
        fleet.listed(at(27), at(30), vec![node("a", "available", "ipxe")]);
        assert!(fleet.node(at(31), "a").is_none(), "ordered since the node and the list were asked for");
    }

    #[test]
    fn machines_that_boot_from_virtual_media_take_no_place() {
        let mut fleet = Fleet::default();
        fleet.listed(
            at(0),
            at(0),
            vec![
                node("a", "deploying", "ipxe"),
                node("b", "clean wait", "redfish-virtual-media"),
                node("c", "inspect wait", "redfish-https"),
                node("d", "active", "ipxe"),
            ],
        );
        assert_eq!((fleet.network_boots("a"), fleet.network_boots("d")), (1, 2));
    }

    #[test]
    fn the_gate_closes_for_twice_as_long_each_time_and_opens_with_an_order() {
        let mut gate = Gate::default();
        assert_eq!(gate.closed_for(at(0)), None);
        let times: Vec<u64> = (0..6).map(|_| gate.close(at(0)).as_secs()).collect();
        assert_eq!(times, [5, 10, 20, 40, 60, 60]);
        assert_eq!(gate.closed_for(at(59)), Some(Duration::from_secs(1)));
        assert_eq!(gate.closed_for(at(60)), None);
        gate.open();
        assert_eq!(gate.close(at(100)).as_secs(), 5);
    }
}
