//! A raw socket on a cable at whose other end Debian's `lldpd` runs, or somebody who sends what one should not.
//!
//! Run them as root: `cargo test -p agent --test it cable:: -- --ignored`

use std::io;
use std::net::IpAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use agent::fake::FakeMachine;
use agent::linux::LldpPort;
use agent::machine::{Disks, Facts, Heard, Medium, MediumError, Network, NetworkError, Port, Ports, Power};
use agent::neighbours::Listener;
use agent::{Machine, Tree};
use agent_protocol::{AgentNetwork, HostConfig, Leave};
use disk_image::Disk;
use inventory::LinkSeen;
use rustix::process::{Pid, Signal, kill_process};
use tokio::runtime::Handle;

use crate::common::machine_root;
use crate::lldp::{add_nic, inspect, runner};

/// A network namespace with one end of a cable and `lldpd`; the other end is in this process's.
struct Cable {
    space: String,
    near: String,
    lldpd: Vec<Child>,
    folder: tempfile::TempDir,
}

fn ip(arguments: &str) {
    let done = Command::new("ip").args(arguments.split_whitespace()).output().unwrap();
    assert!(done.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&done.stderr));
}

impl Cable {
    fn new() -> Self {
        let id = std::process::id();
        let (space, near) = (format!("lldp{id}"), format!("ln{id}"));
        ip(&format!("netns add {space}"));
        ip(&format!("link add {near} type veth peer name far netns {space}"));
        ip(&format!("-n {space} link set far address 00:1c:73:00:00:09"));
        for link in ["far", "lo"] {
            ip(&format!("-n {space} link set {link} up"));
        }
        Self { space, near, lldpd: Vec::new(), folder: tempfile::tempdir().unwrap() }
    }

    fn inside(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.space, program]).stdin(Stdio::null()).stderr(Stdio::null());
        command.stdout(Stdio::null());
        command
    }

    /// Debian's `lldpd`, which speaks at once and then every 30 s.
    fn speak(&mut self) {
        let socket = self.folder.path().join("socket");
        let configuration = self.folder.path().join("lldpd.conf");
        // The VLAN as 802.1's TLV: kernels need not have VLAN devices.
        let lines = [
            "configure system hostname leaf-7",
            "configure ports far lldp portidsubtype local Ethernet1/7",
            "configure ports far lldp custom-tlv oui 00,80,c2 subtype 1 oui-info 00,14",
        ];
        std::fs::write(&configuration, lines.join("\n") + "\n").unwrap();
        let mut lldpd = self.inside("lldpd");
        lldpd.arg("-d").arg("-u").arg(&socket).args(["-I", "far", "-O"]).arg(&configuration);
        self.lldpd.push(lldpd.spawn().unwrap());
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        let mut ids = Command::new("ip");
        let ids = ids.args(["netns", "pids", &self.space]).output().map(|out| out.stdout).unwrap_or_default();
        for id in String::from_utf8_lossy(&ids).split_whitespace().filter_map(|id| Pid::from_raw(id.parse().ok()?)) {
            // It need not say goodbye, and one that has just begun does not heed a request to end.
            let _ = kill_process(id, Signal::KILL);
        }
        for child in &mut self.lldpd {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = Command::new("ip").args(["link", "delete", &self.near]).status();
        let _ = Command::new("ip").args(["netns", "delete", &self.space]).status();
    }
}

/// A fake machine with one port, which is the near end of a cable.
struct Wired {
    fake: FakeMachine,
    port: String,
}

impl Facts for Wired {
    fn tree(&self) -> &Tree {
        self.fake.tree()
    }
}

impl Disks for Wired {
    fn open_disk(&self, device: &str) -> Result<Box<dyn Disk>, disk_image::Error> {
        self.fake.open_disk(device)
    }
}

impl Network for Wired {
    fn configure(&self, network: &AgentNetwork) -> Result<(), NetworkError> {
        self.fake.configure(network)
    }

    fn addresses(&self) -> Vec<(String, IpAddr)> {
        Vec::new()
    }
}

impl Ports for Wired {
    fn ports(&self) -> Vec<String> {
        vec![self.port.clone()]
    }

    fn listen(&self, name: &str) -> io::Result<Box<dyn Port>> {
        Ok(Box::new(LldpPort::open(&Tree::new("/"), name)?))
    }
}

impl Medium for Wired {
    fn host_config(&self) -> Result<HostConfig, MediumError> {
        self.fake.host_config()
    }

    fn parameters(&self) -> Result<ipa_protocol::Parameters, MediumError> {
        self.fake.parameters()
    }
}

impl Power for Wired {
    fn leave(&self, how: Leave) -> io::Error {
        self.fake.leave(how)
    }
}

/// Takes frames until there is one that fits, for as long as a neighbour may be silent.
fn next(port: &mut LldpPort, fits: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(45) {
        match port.next().unwrap() {
            Heard::Frame(frame) if fits(&frame) => return Some(frame),
            Heard::Frame(_) => {}
            _ => std::thread::sleep(Duration::from_millis(50)),
        }
    }
    None
}

fn is_up(port: &str) -> bool {
    let shown = Command::new("ip").args(["-o", "link", "show", port]).output().unwrap();
    String::from_utf8_lossy(&shown.stdout).contains(",UP")
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and network namespaces"]
async fn a_real_neighbour_is_heard_on_a_port_that_was_down() {
    let mut cable = Cable::new();
    cable.speak();
    let folder = machine_root();
    let link = folder.path().join("sys/class/net");
    add_nic(folder.path(), &cable.near, "52:54:00:00:00:01", true);
    assert!(!is_up(&cable.near), "{}", link.display());
    let fake = FakeMachine::new(folder.path(), "http://127.0.0.1:9/none.iso", Handle::current());
    let machine: Arc<dyn Machine> = Arc::new(Wired { fake, port: cable.near.clone() });
    let listener = Listener::begin(machine.clone()).with_patience(Duration::from_secs(60));
    let runner = Arc::new(runner(machine).await.hearing(listener));
    let (nics, links) = inspect(runner).await;
    assert_eq!(links, [(cable.near.clone(), LinkSeen::Heard, 1)]);
    let lldp = nics[0].lldp.as_ref().unwrap();
    assert_eq!(lldp.port_id.as_deref(), Some("Ethernet1/7"));
    assert_eq!(lldp.switch_system_name.as_deref(), Some("leaf-7"));
    assert!(lldp.switch_id.as_ref().is_some_and(|id| id.len() == 17), "{lldp:?}");
    assert_eq!(nics[0].vlan_id, Some(20));
    assert!(!is_up(&cable.near), "as it was before");
    let ipv6 = std::fs::read_to_string(format!("/proc/sys/net/ipv6/conf/{}/disable_ipv6", cable.near)).unwrap();
    assert_eq!(ipv6.trim(), "0", "as it was before");
}

#[test]
#[ignore = "needs root and network namespaces"]
fn a_raw_socket_hears_lldp_to_all_groups_and_nothing_else() {
    let cable = Cable::new();
    ip(&format!("link set {} up", cable.near));
    let mut port = LldpPort::open(&Tree::new("/"), &cable.near).unwrap();
    assert_eq!(port.next().unwrap(), Heard::Nothing);
    // From the far end: with another EtherType, with a VLAN tag, then to each group.
    let script = r#"
import socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind(("far", 0))
source = bytes.fromhex("001c73000009")
def send(last, kind, mark):
    s.send(bytes.fromhex("0180c20000" + last) + source + bytes.fromhex(kind) + bytes([mark]) * 60)
send("0e", "0800", 1)
send("0e", "8100002088cc", 2)
for mark, last in ((3, "0e"), (4, "03"), (5, "00")):
    send(last, "88cc", mark)
"#;
    let sent = cable.inside("python3").args(["-c", script]).status().unwrap();
    assert!(sent.success());
    for mark in 3..=5 {
        let frame = next(&mut port, |_| true).unwrap();
        assert_eq!((frame[14], frame.len()), (mark, 74), "in order, and none before: {frame:02x?}");
    }
    // What this machine sends itself is not heard.
    let own = format!(
        "import socket\ns = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)\ns.bind((\"{}\", 0))\ns.send(bytes.fromhex(\"0180c200000e00000000000188cc\") + bytes([9]) * 60)\n",
        cable.near
    );
    assert!(Command::new("python3").args(["-c", &own]).status().unwrap().success());
    assert_eq!(port.next().unwrap(), Heard::Nothing);
    assert!(LldpPort::open(&Tree::new("/"), "there-is-none").is_err());
}
