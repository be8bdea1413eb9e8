//! What a switch says of itself by LLDP (IEEE 802.1AB-2016), read from Ethernet frames. No IO, no clock.
//!
//! Everybody on the wire can send such frames, so that nothing in them is believed beyond what it is: the words of whoever sent it. [`neighbour`] takes a
//! frame apart and refuses what the standard has a receiver discard (9.2.7.7); [`heard`] chooses among those that were heard on one port, the same one
//! whatever their order; [`tell`] puts that into a [`inventory::Nic`]. Texts are printable, on one line and bounded; lists are bounded; a frame is looked at
//! once, from its beginning to its end.
//!
//! - [`frame`](neighbour): Ethernet and TLVs. A frame with a VLAN tag, to an address that is none of LLDP's, or from the port itself is
//!   [`Ignored`]; so is the last frame of a neighbour that goes (time to live 0).
//! - [`ids`](neighbour): chassis and port ids by their subtypes (8.5.2, 8.5.3): MAC addresses with colons, IP addresses as such, names as text, what is no text
//!   as hexadecimal digits.
//! - `port`: of several neighbours on one port (a hub, a second switch, somebody who pretends), the one with the smallest chassis id, then port id, counts, and
//!   their number is told.

mod ids;
mod port;
mod tlv;

pub use port::{Heard, MAX_NEIGHBOURS, tell};
pub use tlv::{ETHERTYPE, GROUPS, Ignored, MAX_FRAME, MAX_VLANS, Neighbour, neighbour};
