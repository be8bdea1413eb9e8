//! UEFI variables: boot entries of our own, and the owner as second witness.

pub mod boot;
pub mod device_path;
pub mod load_option;
pub mod owner;
pub mod variables;

pub use boot::{BootEntry, BootError};
pub use variables::{EfiVariables, VariableError};
