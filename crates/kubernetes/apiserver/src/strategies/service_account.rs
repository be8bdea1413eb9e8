//! ServiceAccounts. Their tokens come from [`crate::verbs::token_request`].

use crate::strategy::{Kind, MetadataChecks, Strategy};

/// The kind's row in the table.
pub const KIND: Kind = Kind {
    kind: "ServiceAccount",
    plural: "serviceaccounts",
    short_names: &["sa"],
    strategy: &ServiceAccount,
    ..Kind::NEW
};

/// The rules of ServiceAccounts.
#[derive(Debug)]
struct ServiceAccount;

impl Strategy for ServiceAccount {
    fn metadata_checks(&self) -> MetadataChecks {
        MetadataChecks::CoreTwice
    }

    fn subresources(&self) -> &'static [&'static str] {
        &["token"]
    }

    fn shows_deleted(&self) -> bool {
        true
    }
}
