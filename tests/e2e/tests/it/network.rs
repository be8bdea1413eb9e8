//! What preprovisioning network data does to a machine's wire: booted machines (UEFI, the agent as process 1) whose network cards are
//! captured by QEMU. VLAN and bonds are judged by the frames that leave the machine, a plain static address by the inventory too.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use api::metal3::ProvisioningState;
use e2e::{Options, World};
use serde_json::{Value, json};

type Mac = [u8; 6];

/// Ethertypes (IANA's registry of IEEE 802 numbers).
const ARP: u16 = 0x0806;
const VLAN: u16 = 0x8100;
const SLOW: u16 = 0x8809;
/// Where LACPDUs go (IEEE 802.1AX: the Slow Protocols group address).
const SLOW_GROUP: Mac = [0x01, 0x80, 0xc2, 0x00, 0x00, 0x02];
/// QEMU's user network has the test's host, and so the server, at this address.
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
/// Longest capture that is read, in bytes. A machine that boots and waits sends a few kilobytes.
const MAX_CAPTURE: usize = 16 << 20;
/// Hardware address that one of the bonds is told to have.
const BOND_MAC: Mac = [0x52, 0x54, 0x00, 0xb0, 0x0d, 0x01];

/// A frame as it was on the wire, its VLAN tag taken off.
#[derive(Debug)]
struct Frame {
    destination: Mac,
    source: Mac,
    vlan: Option<u16>,
    kind: u16,
    payload: Vec<u8>,
}

impl Frame {
    /// Of Ethernet II with at most one tag of IEEE 802.1Q; `None` if it is cut short.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        let (vlan, kind) = if word(12)? == VLAN { (Some(word(14)? & 0xfff), 16) } else { (None, 12) };
        Some(Self {
            destination: bytes.get(..6)?.try_into().ok()?,
            source: bytes.get(6..12)?.try_into().ok()?,
            vlan,
            kind: word(kind)?,
            payload: bytes.get(kind + 2..)?.to_vec(),
        })
    }

    /// Whether it asks by ARP (RFC 826) for the server in the name of `sender`.
    fn asks_for_the_server(&self, sender: Ipv4Addr) -> bool {
        let part = |at: usize| self.payload.get(at..at + 4);
        self.kind == ARP && part(14) == Some(&sender.octets()) && part(24) == Some(&SERVER.octets())
    }

    /// System of the actor in a LACPDU (IEEE 802.1AX: subtype 1, then the actor's TLV 1 of 20 bytes with the system at its fourth).
    fn lacp_actor(&self) -> Option<Mac> {
        let lacpdu = self.kind == SLOW && self.payload.starts_with(&[1, 1, 1, 20]);
        if lacpdu { self.payload.get(6..12)?.try_into().ok() } else { None }
    }
}

/// Frames of a capture in libpcap's format (version 2.4, little endian, Ethernet) that may still be growing: a record that is not
/// complete yet ends it.
fn read_capture(path: &Path) -> Vec<Frame> {
    let Ok(bytes) = std::fs::read(path) else { return Vec::new() };
    assert!(bytes.len() <= MAX_CAPTURE, "{} has {} bytes", path.display(), bytes.len());
    let number = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let mut frames = Vec::new();
    let Some(link) = number(20) else { return frames };
    assert_eq!((number(0), link), (Some(0xa1b2_c3d4), 1), "{} is no capture of Ethernet", path.display());
    let mut at = 24;
    while let Some(length) = number(at + 8) {
        let end = at + 16 + usize::try_from(length).unwrap();
        let Some(record) = bytes.get(at + 16..end) else { break };
        frames.extend(Frame::parse(record));
        at = end;
    }
    frames
}

fn mac_text(mac: Mac) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// Hardware addresses of a machine's two cards.
fn cards(machine: u8) -> [Mac; 2] {
    [1, 2].map(|card| [0x52, 0x54, 0x00, 0xca, machine, card])
}

/// A machine with two captured cards; the first can be put on a network without the server.
fn machine(id: &str, number: u8, first: &str) -> Value {
    let [a, b] = cards(number).map(mac_text);
    json!({ "id": id, "kind": "qemu", "memoryMib": 512, "disks": [{ "sizeBytes": 2_u64 << 30, "bus": "virtio" }], "nics": [
        { "mac": a, "capture": true, "network": first },
        { "mac": b, "capture": true, "network": "10.0.2.0/24" },
    ]})
}

/// VLAN 7 with a static address, on a bond of both cards.
fn vlan_on_bond(machine: u8, address: Ipv4Addr, bond: Value) -> Value {
    let [a, b] = cards(machine).map(mac_text);
    let mut links = vec![
        json!({ "id": "tenant7", "type": "vlan", "vlan_link": "bond0", "vlan_id": 7 }),
        json!({ "id": "bond0", "type": "bond", "bond_links": ["port-a", "port-b"], "bond_miimon": 100 }),
        json!({ "id": "port-a", "type": "phy", "ethernet_mac_address": a }),
        json!({ "id": "port-b", "type": "phy", "ethernet_mac_address": b }),
    ];
    links[1].as_object_mut().unwrap().extend(bond.as_object().unwrap().clone());
    json!({ "links": links, "networks": [
        { "id": "n7", "type": "ipv4", "link": "tenant7", "ip_address": format!("{address}/24") },
    ]})
}

/// QEMU whose virtio cards tell speed and duplex, as hardware does: without them 802.3ad has nothing to negotiate.
fn qemu_with_full_duplex(folder: &Path) -> PathBuf {
    let path = folder.join("qemu");
    let globals = "-global virtio-net-pci.speed=1000 -global virtio-net-pci.duplex=full";
    std::fs::write(&path, format!("#!/bin/sh\nexec qemu-system-x86_64 \"$@\" {globals}\n")).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).unwrap();
    path
}

struct Lab {
    world: World,
    started: Instant,
}

impl Lab {
    fn milestone(&self, what: &str) {
        println!("{:>4} s  {what}", self.started.elapsed().as_secs());
    }

    async fn declare(&self, id: &str, network: &Value) {
        let name = format!("{id}-network");
        self.world.apply_secret(&name, json!({ "networkData": network.to_string() })).await.unwrap();
        self.world.apply_host(id, json!({ "preprovisioningNetworkDataName": name })).await.unwrap();
    }

    /// Captures of the machine's first start, one a card.
    async fn captures(&self, id: &str) -> [PathBuf; 2] {
        let captures = |machine: &Value| machine["lastBoot"]["captures"].as_array().cloned().unwrap_or_default();
        let machine = self.world.sim.wait(id, 60, "started", |machine| captures(machine).len() == 2).await.unwrap();
        assert_eq!(machine["lastBoot"]["boot"], 1, "{id} has started again:\n{}", self.console(id));
        [0, 1].map(|card| PathBuf::from(captures(&machine)[card].as_str().unwrap()))
    }

    /// What has left the machine's two cards, as soon as it is what is `wanted`.
    async fn left(&self, id: &str, what: &str, wanted: impl Fn(&[Vec<Frame>; 2]) -> bool) -> [Vec<Frame>; 2] {
        let files = self.captures(id).await;
        let mut lengths = [0; 2];
        let mut frames = [Vec::new(), Vec::new()];
        // A capture that grows is the only sign of a frame; it is looked at so often, and no longer.
        for _ in 0..900 {
            let now = files.clone().map(|file| std::fs::metadata(file).map_or(0, |metadata| metadata.len()));
            if now != lengths {
                lengths = now;
                frames = [0, 1].map(|card| read_capture(&files[card]));
                if wanted(&frames) {
                    self.milestone(&format!("{id}: {what}"));
                    return frames;
                }
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        panic!("{id}: no {what}; left:\n{}\n{}", frames.map(|f| summary(&f)).join("\n"), self.console(id))
    }

    /// The end of what the machine has printed.
    fn console(&self, id: &str) -> String {
        let machine = self.world.sim.machine(id);
        let printed = machine["serialConsole"].as_str().map(std::fs::read).unwrap().unwrap_or_default();
        String::from_utf8_lossy(&printed[printed.len().saturating_sub(8000)..]).into_owned()
    }

    async fn hardware(&self, id: &str) -> Value {
        let text = self.world.kubectl(&["get", "hardwaredata", id, "-o", "json"], "").await.unwrap();
        let data: Value = serde_json::from_str(&text).unwrap();
        crate::qemu::has_devices(&data);
        data["spec"]["hardware"].clone()
    }

    async fn delete(&self, ids: &[&str]) {
        for id in ids {
            self.world.kubectl(&["delete", "bmh", id, "--wait=false"], "").await.unwrap();
        }
        for id in ids {
            self.world.wait_gone(id, 60).await.unwrap();
            let machine = self.world.sim.now(id).await.unwrap();
            assert_eq!((&machine["power"], &machine["sessions"]), (&json!("Off"), &json!(0)), "{machine}");
        }
    }
}

/// How many frames of which kind.
fn summary(frames: &[Frame]) -> String {
    let mut counts = BTreeMap::new();
    for frame in frames {
        let tag = frame.vlan.map_or_else(String::new, |id| format!(" in VLAN {id}"));
        *counts.entry(format!("{:04x} from {}{tag}", frame.kind, mac_text(frame.source))).or_insert(0) += 1;
    }
    format!("{counts:?}")
}

/// How often this address asks for the server on a card.
fn asked(frames: &[Frame], sender: Ipv4Addr) -> usize {
    frames.iter().filter(|frame| frame.asks_for_the_server(sender)).count()
}

/// All that speaks in the name of the address does so in VLAN 7 with the bond's hardware address.
fn assert_tagged(frames: &[Vec<Frame>; 2], sender: Ipv4Addr, bond: Mac) {
    for frame in frames.iter().flatten().filter(|frame| frame.asks_for_the_server(sender)) {
        assert_eq!((frame.vlan, mac_text(frame.source)), (Some(7), mac_text(bond)), "{frame:?}");
    }
}

/// Both ports negotiate, each with its own hardware address, for one system: the bond.
fn assert_negotiates(frames: &[Vec<Frame>; 2], ports: [Mac; 2], bond: Mac) {
    for (frames, port) in frames.iter().zip(ports) {
        let lacpdus: Vec<&Frame> = frames.iter().filter(|frame| frame.lacp_actor().is_some()).collect();
        assert!(!lacpdus.is_empty(), "{}", summary(frames));
        for lacpdu in lacpdus {
            assert_eq!((lacpdu.destination, lacpdu.source, lacpdu.vlan), (SLOW_GROUP, port, None), "{lacpdu:?}");
            assert_eq!(lacpdu.lacp_actor(), Some(bond), "{lacpdu:?}");
        }
    }
}

/// The inventory has both cards, and the address on the second alone.
fn assert_static(hardware: &Value, cards: [Mac; 2], address: Ipv4Addr) {
    // QEMU's own router advertises a prefix (fec0::/64): a kernel that was slow to report has an address of it as well.
    let advertised = |nic: &&Value| nic["ip"].as_str().is_some_and(|ip| ip.starts_with("fec0:"));
    let nics: Vec<&Value> = hardware["nics"].as_array().unwrap().iter().filter(|nic| !advertised(nic)).collect();
    let found: BTreeMap<String, Option<&str>> = nics
        .iter()
        .map(|nic| (nic["mac"].as_str().unwrap().to_owned(), nic["ip"].as_str().filter(|ip| !ip.is_empty())))
        .collect();
    let address = address.to_string();
    let wanted = BTreeMap::from([(mac_text(cards[0]), None), (mac_text(cards[1]), Some(address.as_str()))]);
    assert_eq!((found, nics.len()), (wanted, 2), "{hardware}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn network_data_is_what_leaves_the_machine() {
    let folder = tempfile::tempdir().unwrap();
    let machines = vec![
        machine("lacp", 1, "10.0.2.0/24"),
        machine("backup", 2, "10.0.2.0/24"),
        machine("plain", 3, "192.168.77.0/24"),
    ];
    let options = Options { machines, tls: false, arguments: vec![] };
    // Linux counts ticks of the 8254 in its first moments and panics when an emulated machine on a busy host gives none in time.
    let options = options.with(&["--agent-kernel-arguments", "no_timer_check metamorph.lldp=2"]);
    let options = options.with(&["--agent-host", &SERVER.to_string(), "--agent-boot-timeout", "240"]);
    let simulator = json!({ "qemu": qemu_with_full_duplex(folder.path()) });
    let lab = Lab { started: Instant::now(), world: World::start_with(options, simulator).await.unwrap() };
    let [lacp, backup, plain] = [71, 72, 73].map(|last| Ipv4Addr::new(10, 0, 2, last));

    let bond = json!({ "bond_mode": "802.3ad", "ethernet_mac_address": mac_text(BOND_MAC) });
    lab.declare("lacp", &vlan_on_bond(1, lacp, bond)).await;
    lab.declare("backup", &vlan_on_bond(2, backup, json!({ "bond_mode": "active-backup" }))).await;
    let network = json!({
        "links": [{ "id": "second", "type": "phy", "ethernet_mac_address": mac_text(cards(3)[1]) }],
        "networks": [{ "id": "n", "type": "ipv4", "link": "second", "ip_address": plain, "netmask": "255.255.255.0" }],
    });
    lab.declare("plain", &network).await;

    // Nobody answers in VLAN 7: these machines never report, they only ask.
    let negotiating = |frames: &[Vec<Frame>; 2]| {
        frames.iter().all(|frames| frames.iter().any(|frame| frame.lacp_actor().is_some()))
            && asked(&frames[0], lacp) + asked(&frames[1], lacp) > 0
    };
    let frames = lab.left("lacp", "LACPDUs from both ports, and tagged frames", negotiating).await;
    assert_negotiates(&frames, cards(1), BOND_MAC);
    assert_tagged(&frames, lacp, BOND_MAC);

    let asking = |frames: &[Vec<Frame>; 2]| asked(&frames[0], backup) + asked(&frames[1], backup) > 0;
    let frames = lab.left("backup", "tagged frames", asking).await;
    assert_tagged(&frames, backup, cards(2)[0]);
    assert_eq!((asked(&frames[1], backup), frames.iter().flatten().filter(|frame| frame.kind == SLOW).count()), (0, 0));

    lab.world.wait_state("plain", 180, ProvisioningState::Available).await.unwrap();
    lab.milestone("plain is available");
    assert_static(&lab.hardware("plain").await, cards(3), plain);
    let frames = lab.captures("plain").await.map(|file| read_capture(&file));
    assert_eq!(asked(&frames[0], plain), 0, "{}", summary(&frames[0]));
    let questions = frames[1].iter().filter(|frame| frame.asks_for_the_server(plain));
    let questions: Vec<_> = questions.map(|frame| (frame.vlan, mac_text(frame.source))).collect();
    assert!(!questions.is_empty() && questions.iter().all(|q| *q == (None, mac_text(cards(3)[1]))), "{questions:?}");

    lab.delete(&["lacp", "backup", "plain"]).await;
    lab.milestone("all are deleted");
}
