//! IP addresses as policy sees them: which of them are one peer, and which nobody outside may have this program call.

mod peers;
mod ranges;

pub use peers::{PeerPlace, Peers, peer};
pub use ranges::{Allowed, Kind, MAX_RANGES, NotAllowed, Range, RangeError, local_kind};
