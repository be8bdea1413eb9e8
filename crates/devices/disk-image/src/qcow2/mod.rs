//! Reading qcow2 images, versions 2 and 3 (QEMU's `docs/interop/qcow2.txt`), from a source that is read in file order.
//!
//! Reads the header and the tables first (by ranges; from a source without ranges by reading up to three times from the beginning) and builds a
//! compact plan: which bytes of the file go where on the disk. Then reads the whole file once in file order, hashes it, and writes every cluster as
//! planned; the tables must be the very bytes that the plan was made from. Writes only the active layer; snapshots are ignored.

mod cluster;
mod header;
mod pass;
mod plan;

pub(crate) use header::MAGIC;
pub(crate) use pass::write;
pub(crate) use plan::{Plan, read_plan};
