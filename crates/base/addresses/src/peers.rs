//! Limits per peer: an IPv4 address, or a whole IPv6 /64, since one machine can use any number of addresses in its network.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The peer of an address: the IPv4 address, also if written as mapped, or the /64 of an IPv6 address.
#[must_use]
pub fn peer(from: IpAddr) -> IpAddr {
    match from.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        other => other,
    }
}

/// The number of places that each peer holds.
#[derive(Debug, Default)]
pub struct Peers(Mutex<HashMap<IpAddr, usize>>);

/// Each address of a full IPv6 network still gets the network's share divided by this, so that one machine does not lock its neighbours out.
const OWN: usize = 64;
/// Most shares that a network gets in all, including the extra places of its addresses.
const SHARES: usize = 4;

impl Peers {
    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place for the peer with this address, unless the peer has `most` already; an address of a full IPv6 network gets a few more (see
    /// `OWN`).
    ///
    /// # Errors
    /// The number of places that the peer holds.
    pub fn enter(self: &Arc<Self>, from: IpAddr, most: usize) -> Result<PeerPlace, usize> {
        let peer = peer(from);
        let mut places = self.lock();
        let has = places.get(&peer).copied().unwrap_or(0);
        let address = from.to_canonical();
        let of_own = places.get(&address).copied().unwrap_or(0);
        let is_network = peer != address;
        if has >= most && !(is_network && of_own < (most / OWN).max(1) && has < most.saturating_mul(SHARES)) {
            return Err(has);
        }
        places.insert(peer, has + 1);
        if is_network {
            places.insert(address, of_own + 1);
        }
        Ok(PeerPlace { peers: Arc::clone(self), of: if is_network { vec![peer, address] } else { vec![peer] } })
    }

    /// The number of networks and addresses that hold places.
    #[must_use]
    pub fn count(&self) -> usize {
        self.lock().len()
    }
}

/// One place of a peer, released on drop.
#[derive(Debug)]
pub struct PeerPlace {
    peers: Arc<Peers>,
    /// Its network, and its address in it.
    of: Vec<IpAddr>,
}

impl Drop for PeerPlace {
    fn drop(&mut self) {
        let mut places = self.peers.lock();
        for of in &self.of {
            if let Some(has) = places.get_mut(of) {
                *has -= 1;
                if *has == 0 {
                    places.remove(of);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn one_peer_is_one_address_or_one_network() {
        for (from, expected) in [
            ("192.0.2.1", "192.0.2.1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
            ("2001:db8:1:3::1", "2001:db8:1:3::"),
            ("fe80::1234", "fe80::"),
            ("::1", "::1"),
            ("127.0.0.2", "127.0.0.2"),
        ] {
            assert_eq!(peer(ip(from)), ip(expected), "{from}");
        }
    }

    #[test]
    fn places_are_counted_by_peer_and_given_back() {
        let peers = Arc::new(Peers::default());
        let mut held: Vec<_> = (1..=3).map(|n| peers.enter(ip(&format!("2001:db8::{n}")), 3).unwrap()).collect();
        assert_eq!(peers.enter(ip("2001:db8::1"), 3).unwrap_err(), 3);
        // A neighbour is not locked out, and four shares are all that a network has.
        let more: Vec<_> = (0..20).filter_map(|n| peers.enter(ip(&format!("2001:db8::f{n:02}")), 3).ok()).collect();
        assert_eq!((more.len(), peers.enter(ip("2001:db8::ffff"), 3).unwrap_err()), (9, 12));
        drop(more);
        let other = peers.enter(ip("2001:db8:0:1::1"), 3).unwrap();
        assert_eq!(peers.count(), 4 + 2, "two networks, and their addresses");
        held.pop();
        held.push(peers.enter(ip("2001:db8::ffff"), 3).unwrap());
        drop((held, other));
        assert_eq!(peers.count(), 0);
        assert_eq!(peers.enter(ip("192.0.2.1"), 0).unwrap_err(), 0);
        assert_eq!(peers.count(), 0, "who gets no place leaves nothing behind");
    }
}
