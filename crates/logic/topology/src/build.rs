//! From hosts to switches.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use agent_protocol::{LinkKind, NetworkData};
use inventory::{LinkReport, LinkSeen, Nic};
use serde::Serialize;
use terms::clean;

use crate::findings::{self, Finding};
use crate::host::{Declared, Host, SwitchObject};
use crate::order::natural;

/// Longest id and name, in characters.
const MAX_NAME: usize = 128;
/// Most VLANs of a port that are told.
const MAX_VLANS: usize = 256;
/// Most different names of a switch that are told.
const MAX_NAMES: usize = 8;
/// Stands for the id of a port whose switch has told none.
pub const NO_PORT: &str = "?";
/// Largest network data that is read, bytes.
const MAX_NETWORK_DATA: usize = 1 << 20;

/// The whole view.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Topology {
    /// Switches, by name and id.
    pub switches: Vec<Switch>,
    /// Hosts, by namespace and name.
    pub hosts: Vec<HostView>,
    /// What contradicts itself, then what is worth knowing.
    pub findings: Vec<Finding>,
}

/// A switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Switch {
    /// Chassis id, or its name where it gives no id.
    pub id: String,
    /// What it calls itself; more than one where hosts have heard different names.
    pub names: Vec<String>,
    /// The BareMetalSwitch with this hardware address, `namespace/name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// Ports at which hosts are, in their order.
    pub ports: Vec<SwitchPort>,
}

impl Switch {
    /// What people call it.
    #[must_use]
    pub fn title(&self) -> &str {
        self.names.first().unwrap_or(&self.id)
    }
}

/// A port of a switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SwitchPort {
    /// Port id.
    pub id: String,
    /// Who is there: one, if nothing contradicts itself.
    pub nics: Vec<Attached>,
}

/// An interface at a port: places in [`Topology::hosts`] and [`HostView::nics`], with their names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Attached {
    /// The host's namespace and name.
    pub host: String,
    /// The interface.
    pub nic: String,
    #[serde(skip)]
    pub(crate) at: (usize, usize),
}

/// A host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HostView {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// When its facts were found, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inspected: Option<i64>,
    /// The facts are older than is given.
    pub stale: bool,
    /// Its interfaces, in their order.
    pub nics: Vec<NicView>,
    #[serde(skip)]
    pub(crate) is_network_data_unreadable: bool,
}

impl HostView {
    /// Namespace and name.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// An interface of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NicView {
    /// The kernel's name, or the hardware address where there is none.
    pub name: String,
    /// Hardware address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// Gbit/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed_gbps: Option<i64>,
    /// VLAN of untagged frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub untagged_vlan: Option<i32>,
    /// VLANs that the switch offers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vlans: Vec<VlanView>,
    /// The bond that the host's network data has it in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bond: Option<String>,
    /// How its port is known, or why it is not.
    pub seen: SeenAs,
    /// The switch's id.
    #[serde(rename = "switch", skip_serializing_if = "Option::is_none")]
    pub switch_id: Option<String>,
    /// The switch's port.
    #[serde(rename = "port", skip_serializing_if = "Option::is_none")]
    pub port_id: Option<String>,
    /// Neighbours that were heard, where there is more than one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub neighbours: Option<u32>,
    /// What has become of listening on it, if somebody has listened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<LinkSeen>,
    /// What its switch has told, where a port is declared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heard: Option<Place>,
    /// A port is declared for it, and no inspection has found it.
    #[serde(skip)]
    pub(crate) is_unknown: bool,
}

impl NicView {
    /// Its port had no link, whatever is declared.
    pub(crate) fn is_down(&self) -> bool {
        self.seen == SeenAs::Down
            || self.seen == SeenAs::Declared && self.link == Some(LinkSeen::Down) && self.heard.is_none()
    }
}

/// A VLAN.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct VlanView {
    /// Number.
    pub id: i32,
    /// The switch's name of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// How an interface's port is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum SeenAs {
    /// Its switch has said so.
    Heard,
    /// Somebody has declared it.
    Declared,
    /// The link was up, and nobody spoke.
    Silent,
    /// The link was down.
    Down,
    /// It was not listened on, or not to the end.
    Unheard,
    /// The facts do not say whether anybody has listened: they are of no agent that does.
    #[default]
    NobodyListened,
}

impl SeenAs {
    /// In words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Heard => "heard by LLDP",
            Self::Declared => "declared",
            Self::Silent => LinkSeen::Silent.words(),
            Self::Down => LinkSeen::Down.words(),
            Self::Unheard => LinkSeen::Unheard.words(),
            Self::NobodyListened => "not known whether anybody has listened",
        }
    }
}

/// A port of a switch by its ids.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Place {
    /// The switch's id.
    pub switch: String,
    /// The port's id.
    pub port: String,
}

/// An id as it is compared: hardware addresses are written in either case.
fn id(text: &str) -> Option<String> {
    let text = clean(text, MAX_NAME);
    let is_mac = text.len() == 17 && text.bytes().all(|c| c.is_ascii_hexdigit() || c == b':' || c == b'-');
    let text = if is_mac { text.to_ascii_lowercase().replace('-', ":") } else { text };
    (!text.is_empty()).then_some(text)
}

fn name(text: Option<&String>) -> Option<String> {
    text.map(|text| clean(text, MAX_NAME)).filter(|text| !text.is_empty())
}

/// The place that a switch has told, and the switch's name.
fn told(nic: &Nic) -> Option<(Place, Option<String>)> {
    let lldp = nic.lldp.as_ref()?;
    let system = name(lldp.switch_system_name.as_ref());
    let switch = lldp.switch_id.as_deref().and_then(id).or_else(|| system.clone())?;
    let port = lldp.port_id.as_deref().and_then(id).unwrap_or_else(|| NO_PORT.to_owned());
    Some((Place { switch, port }, system))
}

/// Bonds by the hardware addresses of their legs; `None` if it is no network data. It comes from a Secret: nothing else of it is told, not even by an error.
fn bonds(network_data: &str) -> Option<HashMap<String, String>> {
    if network_data.len() > MAX_NETWORK_DATA {
        return None;
    }
    let (_, plan) = NetworkData::from_json(network_data).ok()?;
    let mut macs: HashMap<&str, &str> = HashMap::new();
    let mut legs = HashMap::new();
    for link in &plan.links {
        match &link.kind {
            LinkKind::Physical { mac } => drop(macs.insert(&link.id, mac)),
            LinkKind::Bond(bond) => {
                let bond_name = clean(&link.id, MAX_NAME);
                let found = bond.ports.iter().filter_map(|port| macs.get(port.as_str()));
                legs.extend(found.map(|mac| ((*mac).to_owned(), bond_name.clone())));
            }
            LinkKind::Vlan(_) => {}
        }
    }
    Some(legs)
}

/// Whether the port is declared for the interface of this name and hardware address.
fn is_for(declared: &Declared, own: &str, mac: Option<&str>) -> bool {
    match (&declared.nic, &declared.mac) {
        (Some(name), _) => name == own,
        (None, Some(declared)) => mac.is_some_and(|mac| mac.eq_ignore_ascii_case(declared)),
        (None, None) => false,
    }
}

fn place_of(declared: &Declared) -> Option<Place> {
    Some(Place { switch: id(&declared.switch_id)?, port: id(&declared.port_id)? })
}

/// The interface for which a port is declared, and that no inspection has found; `None` for one that says neither name nor address.
fn unknown(declared: &Declared, bonds: &HashMap<String, String>) -> Option<NicView> {
    let mac = name(declared.mac.as_ref()).map(|mac| mac.to_ascii_lowercase());
    let place = place_of(declared)?;
    Some(NicView {
        name: name(declared.nic.as_ref()).or_else(|| mac.clone())?,
        bond: mac.as_ref().and_then(|mac| bonds.get(mac)).cloned(),
        mac,
        seen: SeenAs::Declared,
        switch_id: Some(place.switch),
        port_id: Some(place.port),
        is_unknown: true,
        ..NicView::default()
    })
}

/// Name and hardware address as they are compared.
fn ids_of(nic: &Nic) -> (String, Option<String>) {
    let mac = name(nic.mac.as_ref()).map(|mac| mac.to_ascii_lowercase());
    (name(nic.name.as_ref()).or_else(|| mac.clone()).unwrap_or_else(|| "?".to_owned()), mac)
}

fn nic_view(nic: &Nic, host: &Host, bonds: &HashMap<String, String>, names: &mut Names) -> NicView {
    let (own, mac) = ids_of(nic);
    let link: Option<&LinkReport> = host.links.iter().find(|link| link.nic == own);
    let heard = told(nic);
    let declared = host.declared.iter().find(|declared| is_for(declared, &own, mac.as_deref())).and_then(place_of);
    let (heard, system) = heard.map_or((None, None), |(place, system)| (Some(place), system));
    if let (Some(place), Some(system)) = (&heard, system) {
        names.entry(place.switch.clone()).or_default().insert(system);
    }
    let seen = match (&declared, &heard, link.map(|link| link.seen)) {
        (Some(_), ..) => SeenAs::Declared,
        (None, Some(_), _) => SeenAs::Heard,
        (None, None, Some(LinkSeen::Silent)) => SeenAs::Silent,
        (None, None, Some(LinkSeen::Down)) => SeenAs::Down,
        (None, None, Some(_)) => SeenAs::Unheard,
        (None, None, None) => SeenAs::NobodyListened,
    };
    let (place, heard) = match declared {
        Some(declared) => (Some(declared), heard),
        None => (heard, None),
    };
    let mut vlans: Vec<VlanView> = nic
        .vlans
        .iter()
        .take(MAX_VLANS)
        .filter_map(|vlan| Some(VlanView { id: vlan.id?, name: name(vlan.name.as_ref()) }))
        .collect();
    vlans.sort();
    NicView {
        bond: mac.as_ref().and_then(|mac| bonds.get(mac)).cloned(),
        name: own,
        mac,
        // Nothing is known of a link that is down, and 0 is what is less than 1 Gbit/s.
        speed_gbps: nic.speed_gbps.filter(|speed| *speed > 0),
        untagged_vlan: nic.vlan_id,
        vlans,
        seen,
        switch_id: place.as_ref().map(|place| place.switch.clone()),
        port_id: place.map(|place| place.port),
        neighbours: link.map(|link| link.neighbours).filter(|number| *number > 1),
        link: link.map(|link| link.seen),
        heard,
        is_unknown: false,
    }
}

/// Names that switches have told, by their ids.
type Names = BTreeMap<String, BTreeSet<String>>;

fn host_view(host: &Host, now: i64, stale_after: i64, names: &mut Names) -> HostView {
    let found = host.network_data.as_deref().map(bonds);
    let is_unreadable = found == Some(None);
    let bonds = found.flatten().unwrap_or_default();
    let mut nics: Vec<NicView> = Vec::new();
    let mut known: BTreeSet<(String, Option<String>)> = BTreeSet::new();
    for nic in &host.nics {
        let view = nic_view(nic, host, &bonds, names);
        // An interface with two addresses is there twice.
        if known.insert((view.name.clone(), view.mac.clone())) {
            nics.push(view);
        }
    }
    let is_known =
        |declared: &&Declared| host.nics.iter().map(ids_of).any(|(own, mac)| is_for(declared, &own, mac.as_deref()));
    nics.extend(host.declared.iter().filter(|one| !is_known(one)).filter_map(|one| unknown(one, &bonds)));
    nics.sort_by(|a, b| natural(&a.name, &b.name).then_with(|| a.mac.cmp(&b.mac)));
    HostView {
        namespace: clean(&host.namespace, MAX_NAME),
        name: clean(&host.name, MAX_NAME),
        inspected: host.inspected,
        stale: host.inspected.is_some_and(|at| now.saturating_sub(at) > stale_after),
        nics,
        is_network_data_unreadable: is_unreadable,
    }
}

impl Topology {
    /// The view of these hosts. Facts that are older than `stale_after` seconds at `now` (seconds since 1970) are called stale.
    #[must_use]
    pub fn of(hosts: &[Host], objects: &[SwitchObject], now: i64, stale_after: i64) -> Self {
        let mut names = Names::new();
        let mut views: Vec<HostView> = hosts.iter().map(|host| host_view(host, now, stale_after, &mut names)).collect();
        views.sort_by(|a, b| a.namespace.cmp(&b.namespace).then_with(|| natural(&a.name, &b.name)));
        let mut found: BTreeMap<&str, BTreeMap<&str, Vec<Attached>>> = BTreeMap::new();
        for (at, host) in views.iter().enumerate() {
            for (nic_at, nic) in host.nics.iter().enumerate() {
                if let (Some(switch), Some(port)) = (&nic.switch_id, &nic.port_id) {
                    let attached = Attached { host: host.key(), nic: nic.name.clone(), at: (at, nic_at) };
                    found.entry(switch).or_default().entry(port).or_default().push(attached);
                }
            }
        }
        let objects: HashMap<String, String> = objects
            .iter()
            .filter_map(|object| {
                Some((id(&object.mac)?, clean(&format!("{}/{}", object.namespace, object.name), MAX_NAME)))
            })
            .collect();
        let mut switches: Vec<Switch> = found
            .into_iter()
            .map(|(id, ports)| {
                let ports = ports.into_iter().map(|(id, nics)| SwitchPort { id: id.to_owned(), nics });
                let mut ports: Vec<SwitchPort> = ports.collect();
                ports.sort_by(|a, b| natural(&a.id, &b.id));
                let told = names.get(id).into_iter().flatten().take(MAX_NAMES).cloned();
                Switch { id: id.to_owned(), names: told.collect(), object: objects.get(id).cloned(), ports }
            })
            .collect();
        switches.sort_by(|a, b| natural(a.title(), b.title()).then_with(|| natural(&a.id, &b.id)));
        let findings = findings::of(&switches, &views);
        Self { switches, hosts: views, findings }
    }
}
