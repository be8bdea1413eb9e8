//! All that was heard on one port.

use inventory::{Lldp, Nic, Vlan};

use crate::Neighbour;

/// Most neighbours of a port that are told apart; a port has one.
pub const MAX_NEIGHBOURS: usize = 8;

/// Neighbours of one port, in the order of their ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heard(Vec<Neighbour>);

impl Heard {
    /// One more frame: a neighbour that is known already says what holds now.
    pub fn add(&mut self, neighbour: Neighbour) {
        let key = |of: &Neighbour| (of.chassis_id.clone(), of.port_id.clone());
        match self.0.binary_search_by_key(&key(&neighbour), key) {
            Ok(at) => self.0[at] = neighbour,
            Err(at) => {
                self.0.insert(at, neighbour);
                // Whoever floods the wire with names makes nobody else unheard but by the rule that holds anyway.
                self.0.truncate(MAX_NEIGHBOURS);
            }
        }
    }

    /// The neighbour that counts: of several the one with the smallest chassis id, then port id.
    #[must_use]
    pub fn neighbour(&self) -> Option<&Neighbour> {
        self.0.first()
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> &[Neighbour] {
        &self.0
    }
}

/// Puts what the neighbour says into the interface's facts.
pub fn tell(neighbour: &Neighbour, nic: &mut Nic) {
    nic.lldp = Some(Lldp {
        switch_id: Some(neighbour.chassis_id.clone()),
        port_id: Some(neighbour.port_id.clone()),
        switch_system_name: neighbour.system_name.clone(),
    });
    nic.vlan_id = neighbour.untagged_vlan.map(i32::from);
    let vlans = neighbour.vlans.iter();
    nic.vlans = vlans.map(|(id, name)| Vlan { id: Some(i32::from(*id)), name: name.clone() }).collect();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn neighbour(chassis: &str, port: &str) -> Neighbour {
        Neighbour { chassis_id: chassis.into(), port_id: port.into(), ttl: 120, ..Neighbour::default() }
    }

    #[test]
    fn which_of_several_counts_does_not_depend_on_who_spoke_first() {
        let all = [("b", "1"), ("a", "2"), ("a", "1"), ("c", "0")];
        for turn in 0..all.len() {
            let mut heard = Heard::default();
            for at in 0..all.len() {
                let (chassis, port) = all[(at + turn) % all.len()];
                heard.add(neighbour(chassis, port));
                heard.add(neighbour(chassis, port));
            }
            assert_eq!(heard.neighbour(), Some(&neighbour("a", "1")));
            assert_eq!(heard.all().len(), 4);
        }
    }

    #[test]
    fn a_flood_of_names_takes_no_memory() {
        let mut heard = Heard::default();
        for number in 0..1000 {
            heard.add(neighbour(&format!("{number:04}"), "1"));
        }
        assert_eq!((heard.all().len(), heard.neighbour().unwrap().chassis_id.as_str()), (MAX_NEIGHBOURS, "0000"));
    }

    #[test]
    fn facts_are_told_by_upstreams_names() {
        let mut nic = Nic::default();
        let mut seen = neighbour("00:1c:73:aa:bb:cc", "Ethernet1/1");
        (seen.system_name, seen.untagged_vlan) = (Some("leaf-1".into()), Some(10));
        seen.vlans = vec![(10, None), (20, Some("storage".into()))];
        tell(&seen, &mut nic);
        let lldp = nic.lldp.unwrap();
        assert_eq!(lldp.switch_id.as_deref(), Some("00:1c:73:aa:bb:cc"));
        assert_eq!(
            (lldp.port_id.as_deref(), lldp.switch_system_name.as_deref()),
            (Some("Ethernet1/1"), Some("leaf-1"))
        );
        assert_eq!((nic.vlan_id, nic.vlans.len(), nic.vlans[1].name.as_deref()), (Some(10), 2, Some("storage")));
    }
}
