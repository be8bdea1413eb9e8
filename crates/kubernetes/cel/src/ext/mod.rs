//! Values of Kubernetes' own types. Their functions are in [`functions`](crate::functions).

pub mod authz;
pub(crate) mod format;
pub(crate) mod quantity;
pub(crate) mod semver;
pub(crate) mod url;

use std::net::IpAddr;

use self::authz::{Authorization, Decision, GroupCheck, PathCheck, ResourceCheck};
use self::format::Format;
use self::quantity::Quantity;
use self::semver::Semver;
use self::url::Url;
use crate::types::Type;

/// A value of one of Kubernetes' own types.
#[derive(Debug, Clone)]
pub enum Ext {
    /// `url()`.
    Url(Url),
    /// `quantity()`.
    Quantity(Quantity),
    /// `ip()`.
    Ip(IpAddr),
    /// `cidr()`: address and prefix length.
    Cidr(IpAddr, u8),
    /// `format.named()`.
    Format(Format),
    /// `semver()`.
    Semver(Semver),
    /// `authorizer`.
    Authorizer(Authorization),
    /// A check of a path.
    PathCheck(PathCheck),
    /// A check within a group.
    GroupCheck(GroupCheck),
    /// A check of a resource.
    ResourceCheck(ResourceCheck),
    /// The authorizer's decision.
    Decision(Decision),
}

impl Ext {
    pub(crate) fn type_of(&self) -> Type {
        match self {
            Self::Url(_) => Type::object("kubernetes.URL"),
            Self::Quantity(_) => Type::object("kubernetes.Quantity"),
            Self::Ip(_) => Type::Opaque("net.IP".into()),
            Self::Cidr(..) => Type::Opaque("net.CIDR".into()),
            Self::Format(_) => Type::object("kubernetes.NamedFormat"),
            Self::Semver(_) => Type::object("kubernetes.Semver"),
            Self::Authorizer(_) => Type::object("kubernetes.authorization.Authorizer"),
            Self::PathCheck(_) => Type::object("kubernetes.authorization.PathCheck"),
            Self::GroupCheck(_) => Type::object("kubernetes.authorization.GroupCheck"),
            Self::ResourceCheck(_) => Type::object("kubernetes.authorization.ResourceCheck"),
            Self::Decision(_) => Type::object("kubernetes.authorization.Decision"),
        }
    }

    /// The size for cost accounting: bytes of an address, else one.
    pub(crate) fn size(&self) -> u64 {
        match self {
            Self::Ip(ip) => ip_size(ip),
            Self::Cidr(ip, _) => ip_size(ip),
            _ => 1,
        }
    }

    pub(crate) fn equals(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Url(a), Self::Url(b)) => a == b,
            (Self::Quantity(a), Self::Quantity(b)) => a.compare(b).is_eq(),
            (Self::Ip(a), Self::Ip(b)) => a == b,
            (Self::Cidr(a, x), Self::Cidr(b, y)) => a == b && x == y,
            (Self::Format(a), Self::Format(b)) => a == b,
            (Self::Semver(a), Self::Semver(b)) => a.compare(b).is_eq(),
            _ => false,
        }
    }
}

fn ip_size(ip: &IpAddr) -> u64 {
    if ip.is_ipv4() { 4 } else { 16 }
}
