//! Authorization of users: attributes of requests ([`attributes`]), rules ([`rules`]), and the index of all roles and
//! bindings ([`index`]).

pub mod attributes;
pub mod index;
pub mod rules;

pub use attributes::Attributes;
pub use index::Decision;
