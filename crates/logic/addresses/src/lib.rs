//! IP addresses as policy sees them: which of them are one peer.

mod peers;

pub use peers::{PeerPlace, Peers, peer};
