//! The kinds that the server has of its own: what is filled in, what must hold, how versions of them are converted. Their
//! fields are the table of the crate `core_kinds`.

pub mod allocation;
pub mod events;
pub mod rbac;
pub mod registered;
pub mod rules;
pub mod selectable;
pub mod strategy;
