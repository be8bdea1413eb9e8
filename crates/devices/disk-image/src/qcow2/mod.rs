//! Reading qcow2 images, versions 2 and 3 (QEMU's `docs/interop/qcow2.txt`), from a source that is read in file order.
//!
//! First the header and the tables are read (by ranges; from a source without ranges by reading up to three times from
//! the beginning) into a compact plan: which bytes of the file go where on the disk. Then the whole file is read once in
//! file order, hashed, and every cluster is written where the plan says; the tables pass by again and must be the
//! very bytes that the plan was made from. Only the active layer is written; snapshots are ignored.

mod cluster;
mod header;
mod pass;
mod plan;

pub(crate) use header::MAGIC;
pub(crate) use pass::write;
pub(crate) use plan::{Plan, read_plan};
