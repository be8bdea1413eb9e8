//! Writing an image: what the deploy step `write_image`, `standby.prepare_image` and `image.install_bootloader` are told.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::Secret;
use crate::api::or_default;

/// Which image, and how (`I:drivers/modules/agent.py`, `write_image`; `A:extensions/standby.py`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ImageInfo {
    /// The last part of the image's address.
    pub id: String,
    /// Where it is read, tried in order.
    #[serde(default, deserialize_with = "or_default")]
    pub urls: Vec<String>,
    /// `raw`, `qcow2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_format: Option<String>,
    /// `bare`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_format: Option<String>,
    /// A raw image is written while it is read.
    #[serde(default, deserialize_with = "or_default")]
    pub stream_raw_images: bool,
    /// Digest, whose length says which, or the address of a file with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
    /// `sha256`, `sha512`, with `os_hash_value`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os_hash_algo: Option<String>,
    /// The digest, or the address of a file with it; it goes before `checksum`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os_hash_value: Option<String>,
    /// The node's UUID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_uuid: Option<String>,
    /// As the step's argument of that name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configdrive: Option<Secret>,
    /// `whole-disk` or `partition`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_type: Option<String>,
    /// Proxies by scheme: `http`, `https`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxies: Option<BTreeMap<String, Secret>>,
    /// What is read without them, separated by commas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_proxy: Option<String>,
    /// `http_basic`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_server_auth_strategy: Option<String>,
    /// User.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_server_user: Option<String>,
    /// Password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_server_password: Option<Secret>,
    /// Value of `Authorization`, in base64 (a registry's token).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_request_authorization: Option<Secret>,
    /// `uefi` or `bios`; of partition images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deploy_boot_mode: Option<String>,
    /// `local`; of partition images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_option: Option<String>,
    /// `gpt` or `msdos`; of partition images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_label: Option<String>,
    /// Sizes of partitions (`root_mb`, `swap_mb`, `ephemeral_mb`, …), and what is not known.
    #[serde(flatten)]
    pub others: Map<String, Value>,
}

impl ImageInfo {
    /// Whether it is the content of one partition.
    #[must_use]
    pub fn is_partition(&self) -> bool {
        self.image_type.as_deref() == Some("partition")
    }
}

/// Parameters of `standby.prepare_image`, and arguments of the deploy step `write_image`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PrepareImage {
    /// The image.
    pub image_info: ImageInfo,
    /// The config drive: an address, or a volume (ISO 9660), gzipped, in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configdrive: Option<Secret>,
}

/// The result of `standby.get_partition_uuids`: names have blanks. Empty after a whole-disk image without a root file system that is known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PartitionUuids {
    /// UUID of the root file system.
    #[serde(rename = "root uuid", default, skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
    /// UUID of the EFI system partition.
    #[serde(rename = "efi system partition uuid", default, skip_serializing_if = "Option::is_none")]
    pub efi_system_partition: Option<String>,
    /// `partitions`, `PReP Boot partition uuid` and others.
    #[serde(flatten)]
    pub others: Map<String, Value>,
}

/// Parameters of `image.install_bootloader` (`A:extensions/image.py`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstallBootloader {
    /// UUID of the root file system; null for a whole-disk image.
    #[serde(default)]
    pub root_uuid: Option<String>,
    /// UUID of the EFI system partition.
    #[serde(default)]
    pub efi_system_part_uuid: Option<String>,
    /// Of PowerPC.
    #[serde(default)]
    pub prep_boot_part_uuid: Option<String>,
    /// `uefi` or `bios`; none is `bios`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_boot_mode: Option<String>,
    /// Go on without a boot entry; none is as the kernel parameter says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignore_bootloader_failure: Option<bool>,
}
