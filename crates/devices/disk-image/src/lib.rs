//! Image formats and the streaming write pipeline.
//!
//! [`write_image`] takes a [`Source`] (a file, or HTTP with resumption), decodes it as declared and writes it to a
//! [`Disk`], hashing the bytes on their way. Memory is constant. Everything read (images, their tables, what disks
//! hold) is taken for hostile.

mod block_disk;
mod buffer;
mod checksum;
mod disk;
mod error;
mod format;
mod held;
mod http;
mod partition;
mod pipeline;
mod qcow2;
mod source;
mod write;

pub use block_disk::BlockDisk;
pub use checksum::{Checksum, ChecksumKind, MAX_CHECKSUM_FILE};
pub use disk::{Disk, FileDisk};
pub use error::{Cause, Error};
pub use format::{Compression, DEFAULT_MAX_WINDOW, Format};
pub use http::{HttpSource, RetryPolicy, without_credentials};
pub use partition::{DiskId, ESP_TYPE, Partition, PartitionTable, PartitionType, TableKind, read_partitions};
pub use pipeline::{Flow, Phase, Progress};
pub use source::{FileSource, Source};
pub use write::{WriteRequest, Written, write_image, write_image_then};
