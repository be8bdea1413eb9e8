//! The machine's parts, its logs, and how ailments show in them.
//!
//! The recorded tree has no power supplies, fans, disks and network cards of its own: they are made here from the machine's configuration (`parts`). What is wrong with a machine
//! (`crate::ailments`) is laid over every resource that tells of it (`lay`), written into the log of the maker's style (`logs`), and met by requests (`access`).

pub mod access;
mod lay;
pub mod logs;
mod parts;
mod registries;
pub mod tasks;

use serde_json::Value;

use crate::{bmc::Bmc, settings::Settings};

/// A resource that is made here.
#[must_use]
pub fn resource(bmc: &Bmc, path: &str, settings: &Settings) -> Option<Value> {
    parts::resource(bmc, path, &settings.ailments)
        .or_else(|| logs::resource(bmc, path, &settings.ailments))
        .or_else(|| registries::resource(bmc, path, &settings.ailments))
}

/// Lays what is made here, and what is wrong, over another resource.
pub fn lay(bmc: &Bmc, path: &str, body: &mut Value, settings: &Settings) {
    parts::link(bmc, path, body, &settings.ailments);
    registries::link(bmc, path, body);
    logs::link(bmc, path, body);
    lay::lay(bmc, path, body, &settings.ailments);
}
