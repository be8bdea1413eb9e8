//! The agent's own network: rtnetlink and DHCP on the wire, and network data as a list of operations.

pub mod dhcp;
mod dhcp_client;
pub mod netlink;
pub mod operations;
pub mod rtnetlink;

pub use dhcp_client::{DhcpError, lease_forever};
pub use operations::{Interface, Operation, operations};
