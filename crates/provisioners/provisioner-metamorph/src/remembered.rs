//! What the record says of the BMC beside the host's work: the data image in its drive, the subscriptions to its events.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A medium in a drive, or on its way there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DataMedium {
    /// As the DataImage names it.
    pub url: String,
    /// As the BMC is given it.
    pub address: String,
    /// Name of the drive, from [`bmc::DataDrive::choose`].
    pub drive: String,
}

/// A subscription that is there, or on its way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Subscribed {
    /// Its id on the BMC; empty until the BMC has told it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// Where the events go.
    pub destination: String,
    /// What goes along with them.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub context: String,
    /// Ids of the subscriptions like it that were there before it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<String>,
    /// How often the BMC was asked for it, without two days in between.
    #[serde(skip_serializing_if = "is_zero")]
    pub asked: u32,
    /// When it was asked last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked_at: Option<Timestamp>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape that serde wants")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}
