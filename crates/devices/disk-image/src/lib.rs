//! Image formats and the streaming write pipeline.
//!
//! [`write_image`] takes a [`Source`] (a file, or HTTP with resumption), decodes it as declared and writes it to a
//! [`Disk`], hashing the bytes on their way. Memory use is constant. All input (images, their tables, existing disk
//! content) is treated as hostile.

mod block_disk;
mod boot;
mod buffer;
mod checksum;
mod config_drive;
mod crew;
mod disk;
mod error;
mod fat;
mod format;
mod held;
mod http;
mod mark;
mod partition;
mod pipeline;
mod qcow2;
mod shared;
mod source;
mod volume;
mod wipe;
mod write;

pub use block_disk::BlockDisk;
pub use boot::{BootArch, BootInfo, Loader, read_boot_info};
pub use checksum::{Checksum, MAX_CHECKSUM_FILE};
pub use config_drive::{
    CONFIG_LABEL, ConfigDriveFiles, ConfigDrivePlaced, ConfigVolume, config_drive_volume, find_config_volumes,
    neutralise_config_volume, write_config_drive, write_config_volume,
};
pub use disk::{Disk, FileDisk};
pub use error::{Cause, Error};
pub use format::DEFAULT_MAX_WINDOW;
pub use http::{HttpSource, RetryPolicy};
pub use mark::{MARK_TYPE, Mark, MarkFound, MarkPlaced, read_mark, write_mark};
pub use partition::{DiskId, ESP_TYPE, Partition, PartitionTable, PartitionType, TableKind, read_partitions};
pub use pipeline::{Flow, Phase, Progress};
pub use shared::cluster_file_system;
pub use source::{FileSource, Source};
pub use terms::{ChecksumType, Compression, DiskFormat};
pub use volume::VolumeKind;
pub use wipe::wipe_metadata;
pub use write::{WriteRequest, Written, write_image, write_image_then};
