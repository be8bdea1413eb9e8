//! Addresses: which IP addresses count as one peer, which may not be called on behalf of outsiders, and how URLs are shown.

mod peers;
mod ranges;
mod urls;

pub use peers::{PeerPlace, Peers, peer};
pub use ranges::{Allowed, Kind, MAX_RANGES, NotAllowed, Range, RangeError, local_kind};
pub use urls::{text_without_secrets, without_secrets};
