//! Listening for LLDP, by recorded frames of a fake machine.

use std::path::Path;
use std::sync::Arc;

use agent::Machine;
use agent::commands::Runner;
use agent::neighbours::Listener;
use agent::report::Client;
use agent_protocol::{Action, Outcome};
use disk_image::Flow;
use inventory::{LinkSeen, Nic};
use tokio::runtime::Handle;

use crate::common::{Server, machine, machine_root};

/// A port of the fake machine.
pub fn add_nic(root: &Path, name: &str, mac: &str, has_link: bool) {
    let base = root.join("sys/class/net").join(name);
    std::fs::create_dir_all(base.join("device")).unwrap();
    for (file, text) in
        [("type", "1"), ("address", mac), ("carrier", if has_link { "1" } else { "0" }), ("speed", "25000")]
    {
        std::fs::write(base.join(file), format!("{text}\n")).unwrap();
    }
}

fn tlv(kind: u8, value: &[u8]) -> Vec<u8> {
    [&[kind << 1, u8::try_from(value.len()).unwrap()][..], value].concat()
}

/// A frame in hexadecimal digits.
fn frame(chassis: u8, port: &str, name: &str) -> String {
    let mut bytes = vec![1, 0x80, 0xC2, 0, 0, 0x0E, 0, 0x1C, 0x73, 0, 0, chassis, 0x88, 0xCC];
    bytes.extend(tlv(1, &[4, 0, 0x1C, 0x73, 0, 0, chassis]));
    bytes.extend(tlv(2, &[&[5][..], port.as_bytes()].concat()));
    bytes.extend(tlv(3, &[0, 120]));
    bytes.extend(tlv(5, name.as_bytes()));
    bytes.extend(tlv(127, &[0x00, 0x80, 0xC2, 1, 0, 10]));
    bytes.extend(tlv(127, b"\x00\x80\xc2\x03\x00\x14\x07storage"));
    hex::encode(bytes)
}

pub async fn runner(machine: Arc<dyn Machine>) -> Runner {
    let server = Server::start().await;
    let client = Client::new(&server.config()).unwrap();
    Runner::new(machine, Handle::current(), "", client.clock())
}

/// Inspects off the runtime's threads.
pub async fn inspect(runner: Arc<Runner>) -> (Vec<Nic>, Vec<(String, LinkSeen, u32)>) {
    let task = tokio::task::spawn_blocking(move || runner.run(Action::Inspect, &|_| Flow::Continue));
    let Outcome::Inspected { hardware, links, .. } = task.await.unwrap() else { panic!("another outcome") };
    (hardware.nics, links.into_iter().map(|link| (link.nic, link.seen, link.neighbours)).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_neighbours_say_is_in_the_facts_and_silence_is_told_from_a_cable_that_is_out() {
    let folder = machine_root();
    let root = folder.path();
    for (name, mac, has_link) in [
        ("eno1", "52:54:00:00:00:01", true),
        ("eno2", "52:54:00:00:00:02", true),
        ("eno3", "52:54:00:00:00:03", true),
        ("eno4", "52:54:00:00:00:04", false),
    ] {
        add_nic(root, name, mac, has_link);
    }
    std::fs::create_dir(root.join("lldp")).unwrap();
    let heard =
        |name: &str, frames: &[String]| std::fs::write(root.join("lldp").join(name), frames.join("\n")).unwrap();
    // What is no frame, a frame cut short, and two neighbours, the one that does not count first.
    let cut = frame(3, "Ethernet9", "cut")[..60].to_owned();
    heard("eno1", &["nonsense".into(), cut, frame(2, "Ethernet7", "leaf-2"), frame(1, "Ethernet1/1", "leaf-1")]);
    heard("eno2", &[frame(2, "Ethernet1/2", "\u{1b}[31mleaf-2")]);
    let machine = machine(root);
    let listener = Listener::begin(machine.clone());
    let runner = Arc::new(runner(machine).await.hearing(listener));
    let (nics, links) = inspect(runner.clone()).await;
    assert_eq!(
        links,
        [
            ("eno1".to_owned(), LinkSeen::Heard, 2),
            ("eno2".to_owned(), LinkSeen::Heard, 1),
            ("eno3".to_owned(), LinkSeen::Silent, 0),
            ("eno4".to_owned(), LinkSeen::Down, 0),
        ]
    );
    let lldp = nics[0].lldp.as_ref().unwrap();
    assert_eq!(lldp.switch_id.as_deref(), Some("00:1c:73:00:00:01"), "of two neighbours the smaller id");
    assert_eq!((lldp.port_id.as_deref(), lldp.switch_system_name.as_deref()), (Some("Ethernet1/1"), Some("leaf-1")));
    assert_eq!((nics[0].vlan_id, nics[0].vlans[0].id, nics[0].speed_gbps), (Some(10), Some(20), Some(25)));
    assert_eq!(nics[1].lldp.as_ref().unwrap().switch_system_name.as_deref(), Some("[31mleaf-2"));
    assert!(nics[2].lldp.is_none() && nics[3].lldp.is_none());
    // Another inspection of the same boot listens anew.
    heard("eno3", &[frame(1, "Ethernet1/3", "leaf-1")]);
    heard("eno2", &[]);
    let (_, links) = inspect(runner).await;
    let seen: Vec<LinkSeen> = links.iter().map(|link| link.1).collect();
    assert_eq!(seen, [LinkSeen::Heard, LinkSeen::Silent, LinkSeen::Heard, LinkSeen::Down]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_nobody_has_listen_says_nothing_of_links() {
    let folder = machine_root();
    add_nic(folder.path(), "eno1", "52:54:00:00:00:01", true);
    let runner = Arc::new(runner(machine(folder.path())).await);
    let (nics, links) = inspect(runner).await;
    assert!(nics.len() == 1 && nics[0].lldp.is_none() && links.is_empty(), "{links:?}");
}
