//! Machines that nobody has declared: where they are looked for, whose they are, and which become hosts. Pure.
//!
//! ```text
//! spec ──check──▶ Plan: places to ask, rules ──▶ answers ──judge──▶ status.machines, hosts to make, hosts to approve
//! ```
//!
//! **What is believed.** What a service root shows without a password is anybody's word: it makes a host, which nobody works on before it is approved, and it
//! keeps one from being made twice; it never gives a machine the place of another. A machine is told by the UUID of its service root ([`identity`]). The
//! same UUID at two addresses is one machine only where both prove the same key by TLS; otherwise both stand as a contradiction, and a host that is there
//! keeps its address.
//!
//! **Reports.** A machine that has booted the HostDiscovery's medium tells where its BMC is said to be ([`Sighted`]). That only says where to ask: what answers
//! there is judged as in a scan of those places alone ([`Situation::asked`]). Who has said whose BMC that is, is kept beside the machine ([`claim`]).
//!
//! **Floods.** An address has one host that waits for approval, whatever it shows later; a scan makes so many hosts, so many wait at once, and the list of
//! machines has an end. What a person has deleted is remembered by UUID and by address.

mod awaiting;
mod claims;
mod judge;
mod place;
mod plan;
mod ranges;
mod rediscover;
mod rows;
mod rules;
mod shown;
mod sighting;
mod since;

pub use awaiting::awaiting;
pub use claims::{Claim, claim};
pub use judge::{Discovered, KnownHost, NewHost, Recorded, Situation, Verdict, judge};
pub use place::{Place, Spot, SpotHost};
pub use plan::{Plan, Review, check};
pub use rediscover::Rediscover;
pub use rows::{Taken, as_listed, listed, without_refused};
pub use rules::{Rules, Ruling};
pub use shown::{Answer, MAX_TEXT, Shown, host_name, identity};
pub use sighting::{Declared, MAX_CLAIMED, Sighted, outcome};
pub use since::is_anothers;
