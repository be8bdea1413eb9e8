//! Reports that wait: places for each HostDiscovery, and in it for each peer; they are served in turn.
//!
//! Whoever sends the most waits the longest: where there is no place, the last report of the one with the most makes room for one with fewer.

use std::collections::VecDeque;
use std::net::IpAddr;

use discovery::Sighted;

use super::reception::Key;

/// Most reports that wait, most of one HostDiscovery, and most of one peer in it: a network behind one address has machines enough for that.
pub(super) const MAX_WAITING: usize = 64;
pub(super) const MAX_OF_DISCOVERY: usize = 32;
pub(super) const MAX_OF_PEER: usize = 16;

/// A report that waits.
#[derive(Clone, Debug)]
pub(super) struct Report {
    /// uid of its HostDiscovery, and what it says.
    pub key: Key,
    pub sighted: Sighted,
    /// One peer's address.
    pub from: IpAddr,
}

/// Those that wait, in the order in which their turn comes.
#[derive(Default)]
pub(super) struct Queue {
    of: VecDeque<Lane>,
}

/// Those of one HostDiscovery.
struct Lane {
    uid: String,
    peers: VecDeque<(IpAddr, VecDeque<Report>)>,
}

impl Lane {
    fn len(&self) -> usize {
        self.peers.iter().map(|(_, reports)| reports.len()).sum()
    }

    fn of_peer(&self, from: IpAddr) -> usize {
        self.peers.iter().find(|(peer, _)| *peer == from).map_or(0, |(_, reports)| reports.len())
    }

    /// Most reports of one peer.
    fn most(&self) -> usize {
        self.peers.iter().map(|(_, reports)| reports.len()).max().unwrap_or_default()
    }

    /// Puts off the last report of the peer with the most.
    fn put_off(&mut self) {
        if let Some((_, reports)) = self.peers.iter_mut().max_by_key(|(_, reports)| reports.len()) {
            reports.pop_back();
        }
        self.peers.retain(|(_, reports)| !reports.is_empty());
    }
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.of.iter().map(Lane::len).sum()
    }

    /// Whether this very report waits.
    pub(super) fn holds(&self, key: &Key) -> bool {
        let lane = self.of.iter().find(|lane| lane.uid == key.0);
        lane.is_some_and(|lane| lane.peers.iter().flat_map(|(_, reports)| reports).any(|report| report.key == *key))
    }

    /// Takes a report, if there is a place or one can be made: whether it was taken, and the uid of the HostDiscovery of which one was left out, if any.
    pub(super) fn push(&mut self, report: Report) -> (bool, Option<String>) {
        let uid = report.key.0.clone();
        let own = self.of.iter().find(|lane| lane.uid == uid);
        let (of_uid, of_peer) = own.map_or((0, 0), |lane| (lane.len(), lane.of_peer(report.from)));
        if of_peer >= MAX_OF_PEER {
            return (false, Some(uid));
        }
        let mut left_out = None;
        if of_uid >= MAX_OF_DISCOVERY {
            // One more of this peer is no more than the others have.
            let Some(lane) = self.of.iter_mut().find(|lane| lane.uid == uid && lane.most() > of_peer + 1) else {
                return (false, Some(uid));
            };
            lane.put_off();
            left_out = Some(uid.clone());
        } else if self.len() >= MAX_WAITING {
            let most = self.of.iter_mut().max_by_key(|lane| lane.len()).filter(|lane| lane.len() > of_uid + 1);
            let Some(lane) = most else { return (false, Some(uid)) };
            lane.put_off();
            left_out = Some(lane.uid.clone());
        }
        self.of.retain(|lane| !lane.peers.is_empty());
        self.seat(uid, report);
        (true, left_out)
    }

    fn seat(&mut self, uid: String, report: Report) {
        let index = self.of.iter().position(|lane| lane.uid == uid).unwrap_or_else(|| {
            self.of.push_back(Lane { uid, peers: VecDeque::new() });
            self.of.len() - 1
        });
        let Some(lane) = self.of.get_mut(index) else { return };
        match lane.peers.iter_mut().find(|(peer, _)| *peer == report.from) {
            Some((_, reports)) => reports.push_back(report),
            None => lane.peers.push_back((report.from, VecDeque::from([report]))),
        }
    }

    /// Whether one waits whose HostDiscovery is free.
    pub(super) fn has(&self, is_free: impl Fn(&str) -> bool) -> bool {
        self.of.iter().any(|lane| is_free(&lane.uid))
    }

    /// The next one whose HostDiscovery is free: HostDiscoveries take turns, and in each its peers.
    pub(super) fn pop(&mut self, is_free: impl Fn(&str) -> bool) -> Option<Report> {
        let index = self.of.iter().position(|lane| is_free(&lane.uid))?;
        let mut lane = self.of.remove(index)?;
        let (peer, mut reports) = lane.peers.pop_front()?;
        let report = reports.pop_front();
        if !reports.is_empty() {
            lane.peers.push_back((peer, reports));
        }
        if !lane.peers.is_empty() {
            self.of.push_back(lane);
        }
        report
    }

    /// Nothing of this HostDiscovery waits any more.
    pub(super) fn forget(&mut self, uid: &str) {
        self.of.retain(|lane| lane.uid != uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(uid: &str, peer: u8, n: u32) -> Report {
        let machine = inventory::MachineEvidence { serial_number: Some(format!("SN{n:05}")), ..Default::default() };
        let sighting = agent_protocol::Sighting { machine, ..Default::default() };
        let mut digest = [0; 32];
        digest[..4].copy_from_slice(&n.to_be_bytes());
        let sighted = Sighted::of(&sighting).unwrap();
        Report { key: (uid.to_owned(), digest), sighted, from: [10, 0, 0, peer].into() }
    }

    /// Fills all places by these HostDiscoveries, with as many peers as it takes.
    fn full(uids: &[&str]) -> Queue {
        let mut queue = Queue::default();
        for n in 0..1000 {
            for uid in uids {
                queue.push(report(uid, u8::try_from(n % 8).unwrap(), n));
            }
        }
        assert_eq!(queue.len(), MAX_WAITING.min(MAX_OF_DISCOVERY * uids.len()));
        queue
    }

    #[test]
    fn who_floods_leaves_a_place_to_another_discovery_and_to_another_peer() {
        let mut queue = full(&["a", "b"]);
        assert_eq!(queue.push(report("a", 0, 5000)), (false, Some("a".into())));
        // A third one has a place, and so has a ninth peer of the first; each costs the one that has the most.
        let (is_taken, left_out) = queue.push(report("c", 0, 5001));
        assert!(is_taken && left_out.is_some_and(|uid| uid != "c"));
        let (is_taken, left_out) = queue.push(report("a", 9, 5002));
        assert!(is_taken && left_out.is_some());
        assert_eq!(queue.len(), MAX_WAITING);
        // However many come, no one has more than a fair part.
        for n in 0..1000 {
            queue.push(report("c", 0, 6000 + n));
            queue.push(report("d", 1, 6000 + n));
        }
        let lens: Vec<usize> = queue.of.iter().map(Lane::len).collect();
        assert!(queue.len() == MAX_WAITING && lens.iter().all(|len| (15..=17).contains(len)), "{lens:?}");
    }

    #[test]
    fn discoveries_take_turns_and_so_do_their_peers() {
        let mut queue = Queue::default();
        for (n, (uid, peer)) in
            [("a", 1), ("a", 1), ("a", 1), ("a", 2), ("b", 3), ("b", 3), ("c", 4)].into_iter().enumerate()
        {
            assert_eq!(queue.push(report(uid, peer, u32::try_from(n).unwrap())), (true, None));
        }
        let served = |report: Report| (report.key.0, report.from.to_string());
        // What a HostDiscovery has at work keeps no other waiting.
        assert_eq!(served(queue.pop(|uid| uid != "a").unwrap()).0, "b");
        let order: Vec<(String, String)> = std::iter::from_fn(|| queue.pop(|_| true).map(served)).collect();
        let order: Vec<(&str, &str)> =
            order.iter().map(|(uid, peer)| (uid.as_str(), peer.rsplit('.').next().unwrap())).collect();
        assert_eq!(order, [("a", "1"), ("c", "4"), ("b", "3"), ("a", "2"), ("a", "1"), ("a", "1")]);
        assert!(!queue.has(|_| true));
    }
}
