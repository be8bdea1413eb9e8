//! Who else may run a machine: a program that keeps machines in a state of its own, and would undo what another does to them.

use async_trait::async_trait;
use jiff::Timestamp;

/// A machine, as others may know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sought {
    /// `spec.bmc.address`.
    pub address: String,
    /// `spec.bootMACAddress`, if there is one.
    pub boot_mac: Option<String>,
    /// It has been this host's machine before: somebody's mere wish for it does not count.
    pub is_known: bool,
}

/// Somebody else who runs machines.
#[async_trait]
pub trait OtherMaster: Send + Sync {
    /// What of theirs has this machine, a clause to follow "it is run by"; `None` if they have nothing to do with it. It answers within seconds, for many machines
    /// from one look.
    ///
    /// # Errors
    /// Why that cannot be told now, a sentence.
    async fn holds(&self, sought: &Sought, now: Timestamp) -> Result<Option<String>, String>;
}
