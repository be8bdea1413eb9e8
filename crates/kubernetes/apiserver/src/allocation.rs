//! Addresses and node ports of Services: each belongs to one Service, and a Service that names none is assigned one.
//!
//! Allocations follow from the stored Services and are not stored themselves: every committed write is noted before
//! its client is answered. A [`Claim`] reserves what a write needs until the write ends. Follows
//! `pkg/registry/core/service` (`storage/alloc.go`, `ipallocator`, `portallocator`).

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use crate::checks::{formats, list, member, text};
use crate::given::Given;
use crate::object::{self, Object, child};
use crate::resource::Resource;
use crate::status::{ApiError, ApiResult, FieldError, StatusReason};
use crate::strategies::service::{before_allocation, needs_health_check, needs_node_port, node_port};

/// The address range is 10.96.0.0/16, without its first and last address.
const FIRST_ADDRESS: u32 = u32::from_be_bytes([10, 96, 0, 1]);
const LAST_ADDRESS: u32 = u32::from_be_bytes([10, 96, 255, 254]);
/// First address for automatic assignment. Lower ones are for explicit requests, and assigned when the others run
/// out.
const CHOSEN_ADDRESSES: u32 = u32::from_be_bytes([10, 96, 1, 0]);
/// Range of node ports, and the first one for automatic assignment.
const FIRST_PORT: u16 = 30_000;
const LAST_PORT: u16 = 32_767;
const CHOSEN_PORTS: u16 = 30_086;
/// How many revisions a deleted Service is remembered: no overtaken write is noted later.
const MARK_AGE: u64 = 100_000;
/// Number of deletions after which old deleted Services are dropped.
const MARKS: usize = 1024;

const TAKEN_ADDRESS: &str = "provided IP is already allocated";
const FOREIGN_ADDRESS: &str = "the provided network does not match the current range";
const TAKEN_PORT: &str = "provided port is already allocated";
const FOREIGN_PORT: &str = "provided port is not in the valid range. The range of valid ports is 30000-32767";

/// The allocations of a stored Service.
#[derive(Default)]
struct Held {
    rev: u64,
    addresses: Vec<u32>,
    ports: Vec<u16>,
}

/// Reference counts of allocations: one that is both stored and claimed counts twice.
#[derive(Default)]
struct Inner {
    services: HashMap<(String, String), Held>,
    addresses: HashMap<u32, u32>,
    ports: HashMap<u16, u32>,
    /// Number of deletions since old deleted Services were dropped.
    marks: usize,
}

/// All addresses and node ports.
#[derive(Default)]
pub struct Allocator {
    inner: Mutex<Inner>,
    given: Arc<Given>,
}

/// Reserves the allocations of a Service until its write ends.
pub struct Claim<'a> {
    allocator: &'a Allocator,
    addresses: Vec<u32>,
    ports: Vec<u16>,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut inner = self.allocator.lock();
        self.addresses.iter().for_each(|address| release(&mut inner.addresses, address));
        self.ports.iter().for_each(|port| release(&mut inner.ports, port));
    }
}

fn release<T: Hash + Eq>(taken: &mut HashMap<T, u32>, one: &T) {
    if let Some(count) = taken.get_mut(one) {
        *count -= 1;
        if *count == 0 {
            taken.remove(one);
        }
    }
}

/// A free number in `from..=to`, searched from a random start.
fn free_of((from, to): (u32, u32), given: &Given, taken: impl Fn(u32) -> bool) -> Option<u32> {
    let count = to - from + 1;
    let start = u32::try_from(given.below(count.into())).unwrap_or_default();
    (0..count).map(|step| from + (start + step) % count).find(|one| !taken(*one))
}

impl Allocator {
    /// With this source of randomness.
    pub fn new(given: Arc<Given>) -> Self {
        Self { inner: Mutex::default(), given }
    }
}

impl Inner {
    fn address_taken(&self, address: u32) -> bool {
        // The first address belongs to the server's own Service.
        address == FIRST_ADDRESS || self.addresses.contains_key(&address)
    }

    fn free_address(&self, given: &Given) -> Option<u32> {
        let free = |from: u32, to: u32| free_of((from, to), given, |a| self.address_taken(a));
        free(CHOSEN_ADDRESSES, LAST_ADDRESS).or_else(|| free(FIRST_ADDRESS, CHOSEN_ADDRESSES - 1))
    }

    fn free_port(&self, given: &Given) -> Option<u16> {
        let taken = |port: u32| u16::try_from(port).map_or(true, |port| self.ports.contains_key(&port));
        let free = |from: u16, to: u16| free_of((from.into(), to.into()), given, taken);
        let found = free(CHOSEN_PORTS, LAST_PORT).or_else(|| free(FIRST_PORT, CHOSEN_PORTS - 1));
        found.and_then(|port| u16::try_from(port).ok())
    }

    fn drop_held(&mut self, held: &Held) {
        held.addresses.iter().for_each(|address| release(&mut self.addresses, address));
        held.ports.iter().for_each(|port| release(&mut self.ports, port));
    }
}

/// Parses an IPv4 address.
fn address_of(text: &str) -> Option<u32> {
    match formats::sloppy_ip(text)?.to_canonical() {
        IpAddr::V4(address) => Some(u32::from(address)),
        IpAddr::V6(_) => None,
    }
}

fn health_port(spec: &Value) -> i64 {
    spec.get("healthCheckNodePort").and_then(Value::as_i64).unwrap_or_default()
}

impl Allocator {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a committed write: the object's tail, or `None` if it was deleted. Other kinds and outdated writes are
    /// ignored.
    pub fn see(&self, storage: &str, ns: &str, name: &str, rev: u64, tail: Option<&[u8]>) {
        if storage != "services" {
            return;
        }
        let mut held = Held { rev, ..Held::default() };
        if let Some(tail) = tail {
            let object = object::from_tail("", "", rev, tail).unwrap_or_default();
            let spec = member(&object, "spec");
            let addresses = list(spec, "clusterIPs").iter().filter_map(Value::as_str);
            held.addresses = addresses.filter_map(address_of).collect();
            let ports = list(spec, "ports").iter().map(node_port).chain([health_port(spec)]);
            held.ports = ports.filter(|port| *port != 0).filter_map(|port| u16::try_from(port).ok()).collect();
            held.ports.sort_unstable();
            held.ports.dedup();
        }
        let mut inner = self.lock();
        let place = (ns.to_owned(), name.to_owned());
        if inner.services.get(&place).is_some_and(|known| known.rev > rev) {
            return;
        }
        held.addresses.iter().for_each(|address| *inner.addresses.entry(*address).or_default() += 1);
        held.ports.iter().for_each(|port| *inner.ports.entry(*port).or_default() += 1);
        inner.marks += usize::from(tail.is_none());
        if let Some(before) = inner.services.insert(place, held) {
            inner.drop_held(&before);
        }
        if inner.marks > MARKS {
            inner.services.retain(|_, held| !held.addresses.is_empty() || held.rev.saturating_add(MARK_AGE) > rev);
            inner.marks = 0;
        }
    }

    /// Assigns what a Service lacks, and reserves what it names; `old` is its former state. Other kinds are ignored,
    /// and so is an invalid Service, which validation reports.
    pub fn claim(
        &self,
        resource: &Resource,
        object: &mut Object,
        old: Option<&Object>,
        dry: bool,
    ) -> ApiResult<Claim<'_>> {
        let mut claim = Claim { allocator: self, addresses: Vec::new(), ports: Vec::new() };
        if resource.strategy.takes_addresses() && before_allocation(member(object, "spec")).is_empty() {
            let name = object::name(object).to_owned();
            let before = old.map(|old| member(old, "spec"));
            let spec = child(object, "spec");
            claim.address(spec, before, &name, dry)?;
            match before {
                None => claim.first_ports(spec, &name)?,
                Some(before) => claim.changed_ports(spec, before, &name)?,
            }
            claim.health_check(spec, before)?;
        }
        Ok(claim)
    }
}

impl Claim<'_> {
    fn address(&mut self, spec: &mut Object, before: Option<&Value>, name: &str, dry: bool) -> ApiResult<()> {
        let now = Value::Object(spec.clone());
        let given = text(&now, "clusterIP");
        if text(&now, "type") == "ExternalName" || given == "None" {
            return Ok(());
        }
        // A Service keeps its address; validation reports an attempt to change it.
        if before.is_some_and(|b| text(b, "type") != "ExternalName" && !text(b, "clusterIP").is_empty()) {
            return Ok(());
        }
        let mut inner = self.allocator.lock();
        if given.is_empty() {
            let failed = || ApiError::internal("failed to allocate a serviceIP: range is full");
            let address = inner.free_address(&self.allocator.given).ok_or_else(failed)?;
            *inner.addresses.entry(address).or_default() += 1;
            drop(inner);
            self.addresses.push(address);
            let text = Ipv4Addr::from(address).to_string();
            spec.insert("clusterIPs".into(), json!([text]));
            spec.insert("clusterIP".into(), json!(text));
            return Ok(());
        }
        let address = address_of(given).filter(|a| (FIRST_ADDRESS..=LAST_ADDRESS).contains(a));
        let why = match address {
            None => FOREIGN_ADDRESS,
            // Upstream's dry run does not check whether the address is free.
            Some(address) if !dry && inner.address_taken(address) => TAKEN_ADDRESS,
            Some(address) => {
                *inner.addresses.entry(address).or_default() += 1;
                drop(inner);
                self.addresses.push(address);
                return Ok(());
            }
        };
        let detail = format!("failed to allocate IP {given}: {why}");
        let error = FieldError::invalid("spec.clusterIPs", &json!([given]), detail);
        Err(ApiError::invalid("", "Service", name, &[error]))
    }

    /// Reserves a port, or returns why it cannot.
    fn take(&mut self, port: i64) -> Result<(), &'static str> {
        let port = u16::try_from(port).ok().filter(|p| (FIRST_PORT..=LAST_PORT).contains(p)).ok_or(FOREIGN_PORT)?;
        let mut inner = self.allocator.lock();
        if inner.ports.contains_key(&port) {
            return Err(TAKEN_PORT);
        }
        inner.ports.insert(port, 1);
        drop(inner);
        self.ports.push(port);
        Ok(())
    }

    fn take_named(&mut self, port: i64, at: usize, name: &str) -> ApiResult<()> {
        self.take(port).map_err(|why| {
            let error = FieldError::invalid(format!("spec.ports[{at}].nodePort"), &json!(port), why);
            ApiError::invalid("", "Service", name, &[error])
        })
    }

    fn take_any(&mut self) -> ApiResult<i64> {
        let mut inner = self.allocator.lock();
        let failed = || ApiError::internal("failed to allocate a nodePort: range is full");
        let port = inner.free_port(&self.allocator.given).ok_or_else(failed)?;
        inner.ports.insert(port, 1);
        drop(inner);
        self.ports.push(port);
        Ok(port.into())
    }

    /// Node ports of a new Service. Ports with the same number but different protocols share one unless they name
    /// others.
    fn first_ports(&mut self, spec: &mut Object, name: &str) -> ApiResult<()> {
        let now = Value::Object(spec.clone());
        if !matches!(text(&now, "type"), "NodePort" | "LoadBalancer") {
            return Ok(());
        }
        let number = |port: &Value| port.get("port").and_then(Value::as_i64).unwrap_or_default();
        let mut shared: HashMap<i64, i64> = HashMap::new();
        for (at, port) in list(&now, "ports").iter().enumerate() {
            let port_number = node_port(port);
            if port_number == 0 && !needs_node_port(&now) {
                continue;
            }
            let chosen = match shared.get(&number(port)) {
                Some(known) if port_number == 0 || port_number == *known => *known,
                Some(_) => {
                    self.take_named(port_number, at, name)?;
                    port_number
                }
                None => {
                    let named = list(&now, "ports").iter().filter(|p| number(p) == number(port)).map(node_port);
                    let chosen = match named.into_iter().find(|port| *port != 0) {
                        Some(named) => {
                            self.take_named(named, at, name)?;
                            named
                        }
                        None => self.take_any()?,
                    };
                    shared.insert(number(port), chosen);
                    chosen
                }
            };
            set_node_port(spec, at, chosen);
        }
        Ok(())
    }

    /// Node ports of a changed Service, which may keep the former ones.
    fn changed_ports(&mut self, spec: &mut Object, before: &Value, name: &str) -> ApiResult<()> {
        let now = Value::Object(spec.clone());
        if !matches!(text(&now, "type"), "NodePort" | "LoadBalancer") {
            return Ok(());
        }
        let mut known: Vec<i64> = list(before, "ports").iter().map(node_port).collect();
        let mut seen: Vec<(&str, i64)> = Vec::new();
        for (at, port) in list(&now, "ports").iter().enumerate() {
            let mut port_number = node_port(port);
            if port_number == 0 && !needs_node_port(&now) {
                continue;
            }
            if port_number == 0 {
                port_number = self.take_any()?;
                set_node_port(spec, at, port_number);
            } else if !known.contains(&port_number) {
                self.take_named(port_number, at, name)?;
                known.push(port_number);
            }
            let this = (text(port, "protocol"), port_number);
            if seen.contains(&this) {
                let text = format!("duplicate nodePort: {{{} {port_number}}}", this.0);
                return Err(ApiError::new(http::StatusCode::INTERNAL_SERVER_ERROR, StatusReason::Unknown, text));
            }
            seen.push(this);
        }
        Ok(())
    }

    fn health_check(&mut self, spec: &mut Object, before: Option<&Value>) -> ApiResult<()> {
        let now = Value::Object(spec.clone());
        let had = before.is_some_and(|b| needs_health_check(b) && health_port(b) != 0);
        if !needs_health_check(&now) || had {
            return Ok(());
        }
        let mut port = health_port(&now);
        if port == 0 {
            port = self.take_any()?;
            spec.insert("healthCheckNodePort".into(), json!(port));
            return Ok(());
        }
        self.take(port).map_err(|why| {
            ApiError::internal(format!("failed to allocate requested HealthCheck NodePort {port}: {why}"))
        })
    }
}

fn set_node_port(spec: &mut Object, at: usize, port: i64) {
    if let Some(found) = spec.get_mut("ports").and_then(|ports| ports.get_mut(at)) {
        found["nodePort"] = json!(port);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;

    fn service(spec: Value) -> Object {
        let mut object = Object::new();
        object.insert("metadata".into(), json!({"name": "s", "namespace": "a"}));
        object.insert("spec".into(), spec);
        object
    }

    fn ip(object: &Object) -> String {
        text(member(object, "spec"), "clusterIP").to_owned()
    }

    #[test]
    fn what_is_claimed_is_taken_until_the_claim_is_given_up_and_what_is_stored_until_it_is_gone() {
        let (allocator, catalog) = (Allocator::default(), Registry::new(crate::strategies::kinds()).catalog());
        let services = catalog.find("", "v1", "services").unwrap();
        let wanted = json!({"type": "NodePort", "clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"],
            "ports": [{"port": 1, "nodePort": 30_001, "protocol": "TCP"}]});
        let claim = |object: &mut Object| allocator.claim(services, object, None, false).map_err(|e| e.message);
        let mut first = service(wanted.clone());
        let held = claim(&mut first).unwrap();
        assert!(claim(&mut service(wanted.clone())).err().unwrap().contains(TAKEN_ADDRESS));
        drop(held);
        let held = claim(&mut first).unwrap();
        let tail = services.tail(first);
        allocator.see("services", "a", "s", 7, Some(&tail));
        drop(held);
        assert!(claim(&mut service(wanted.clone())).err().unwrap().contains(TAKEN_ADDRESS));
        // An overtaken write changes nothing.
        allocator.see("services", "a", "s", 6, None);
        assert!(claim(&mut service(wanted.clone())).is_err());
        allocator.see("services", "a", "s", 8, None);
        allocator.see("services", "a", "s", 7, Some(&tail));
        assert!(claim(&mut service(wanted)).is_ok());
    }

    #[test]
    fn every_node_port_is_given_once_and_then_none() {
        let (allocator, catalog) = (Allocator::default(), Registry::new(crate::strategies::kinds()).catalog());
        let services = catalog.find("", "v1", "services").unwrap();
        let mut held = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for number in 0..2768 {
            let mut object = service(json!({"type": "NodePort", "ports": [{"port": 1, "protocol": "TCP"}]}));
            held.push(allocator.claim(services, &mut object, None, false).unwrap());
            let port = node_port(&list(member(&object, "spec"), "ports")[0]);
            assert!((30_000..=32_767).contains(&port) && seen.insert(port), "{port}");
            // The range for explicit requests comes last.
            assert_eq!(port >= i64::from(CHOSEN_PORTS), number < 32_768 - i64::from(CHOSEN_PORTS), "{number} {port}");
            assert!(ip(&object).starts_with("10.96."));
        }
        let mut object = service(json!({"type": "NodePort", "ports": [{"port": 1, "protocol": "TCP"}]}));
        let error = allocator.claim(services, &mut object, None, false).err().unwrap();
        assert!(error.message.contains("failed to allocate a nodePort: range is full"), "{}", error.message);
        drop(held);
        assert!(allocator.lock().ports.is_empty() && allocator.lock().addresses.is_empty());
    }
}
