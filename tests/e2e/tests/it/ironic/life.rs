//! What the lives have in common: an emulated machine, its host, and what is seen of both.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use api::metal3::{BareMetalHost, ProvisioningState};
use api::metamorph::{HostOperation, HostOperationStatus};
use e2e::{CallHome, UsedDisk, World, bytes_at, demo_os, partitions, tool};
use kube::api::Api;
use serde_json::{Value, json};

/// Longest time from one state to another, in seconds: firmware, GRUB and kernel run in software, and Ironic takes half a second of a processor for
/// each look at the BMC.
pub const PATIENCE: u64 = 1200;
/// Size of the disk in MiB: ironic-python-agent waits half a minute, at each start, for one of 4 GiB at least.
pub const DISK: u64 = 5 << 10;
/// Where QEMU's guests find this machine.
pub const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
/// The machine's card: of a maker, not made up (ironic-python-agent passes over some that are).
const MAC: &str = "00:16:3e:4a:c0:01";
/// What Ironic calls an agent's port when nobody says otherwise (`I:drivers/modules/agent_client.py`).
const AGENT_PORT: u16 = 9999;

/// A machine with a used disk, whose agent is called at this port of loopback.
pub fn machine(folder: &Path, memory: u32, port: u16) -> (PathBuf, Value) {
    let disk = folder.join("disk.raw");
    UsedDisk::make(&disk, DISK).unwrap();
    let machine = json!({
        "id": "node-0", "kind": "qemu", "cpus": 1, "memoryMib": memory, "disks": [{ "path": disk, "bus": "virtio" }],
        "nics": [{ "mac": MAC, "forwards": [format!("tcp:127.0.0.1:{port}-:{AGENT_PORT}")] }],
    });
    (disk, machine)
}

/// Parameters of the agent's kernel.
pub fn parameters(port: u16) -> String {
    // Linux counts ticks of the 8254 in its first moments and panics when an emulated machine on a busy host gives none in time.
    format!("no_timer_check ipa-advertise-host=127.0.0.1 ipa-advertise-port={port}")
}

/// The demo's system in this form, read at this address.
pub fn image(name: &str, url: &str) -> Value {
    let sums = std::fs::read_to_string(demo_os().unwrap().join("SHA256SUMS")).unwrap();
    let sha256 = sums.lines().find_map(|line| line.strip_suffix(&format!("  {name}"))).unwrap();
    json!({ "url": url, "checksum": sha256, "checksumType": "sha256", "format": "raw" })
}

/// The demo's system as a qcow2 file in this folder, and what a host says of it but for its address.
pub fn as_qcow2(folder: &Path) -> (PathBuf, Value) {
    let (raw, path) = (demo_os().unwrap().join("debian-12.raw"), folder.join("debian-12.qcow2"));
    let text = path.display().to_string();
    tool("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", &raw.display().to_string(), &text]).unwrap();
    let sum = tool("sha256sum", &[&text]).unwrap();
    let sha256 = sum.split_whitespace().next().unwrap();
    (path, json!({ "checksum": sha256, "checksumType": "sha256", "format": "qcow2" }))
}

/// One machine's.
pub struct Life {
    pub started: Instant,
    pub world: World,
    pub disk: PathBuf,
}

impl Life {
    pub fn milestone(&self, what: &str) {
        println!("{:>4} s  {what}", self.started.elapsed().as_secs());
    }

    /// The end of what the machine has printed.
    pub fn console(&self) -> String {
        let machine = self.world.sim.machine("node-0");
        let printed = machine["serialConsole"].as_str().map(std::fs::read).unwrap().unwrap_or_default();
        String::from_utf8_lossy(&printed[printed.len().saturating_sub(8000)..]).into_owned()
    }

    /// Waits for a state. What fails on the way, or does not come, is the error.
    pub async fn comes_to(&self, state: ProvisioningState) -> Result<(), String> {
        let message = |host: &BareMetalHost| host.status.clone().unwrap_or_default().error_message;
        let ended = |host: &BareMetalHost| host.state() == state || !message(host).is_empty();
        match self.world.wait("node-0", PATIENCE, state.as_str(), ended).await {
            Ok(host) if message(&host).is_empty() => {
                self.milestone(state.as_str());
                Ok(())
            }
            Ok(host) => Err(message(&host)),
            Err(error) => Err(format!("{error:#}")),
        }
    }

    /// Declares the machine with a config drive whose static address no DHCP would give.
    pub async fn declare(&self, call_home: &CallHome) {
        let network = json!({
            "links": [{ "id": "port0", "type": "phy", "ethernet_mac_address": MAC, "mtu": 1400 }],
            "networks": [{ "id": "n0", "type": "ipv4", "link": "port0", "ip_address": "10.0.2.77", "netmask": "255.255.255.0",
                "routes": [{ "network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": HOST }] }],
            "services": [{ "type": "dns", "address": "10.0.2.3" }],
        });
        self.world.apply_secret("node-0-network", json!({ "networkData": network.to_string() })).await.unwrap();
        self.world.apply_secret("node-0-user", json!({ "userData": call_home.user_data("node-0") })).await.unwrap();
        let change = json!({
            "bootMode": "UEFI",
            "rootDeviceHints": { "minSizeGigabytes": 2 },
            "networkData": { "name": "node-0-network" },
            "userData": { "name": "node-0-user" },
        });
        self.world.apply_host("node-0", change).await.unwrap();
    }

    /// What it is to run; null for nothing.
    pub async fn is_to_run(&self, image: &Value) {
        let patch = json!({ "spec": { "image": image } }).to_string();
        self.world.kubectl(&["patch", "bmh", "node-0", "--type=merge", "-p", &patch], "").await.unwrap();
    }

    /// It was inspected, and nothing was written for that: nothing is cleaned before the machine is wanted.
    pub async fn is_inspected(&self) {
        let hardware = self.world.kubectl(&["get", "hardwaredata", "node-0", "-o", "json"], "").await.unwrap();
        let hardware = serde_json::from_str::<Value>(&hardware).unwrap()["spec"]["hardware"].clone();
        let has_card = hardware["nics"].as_array().unwrap().iter().any(|nic| nic["mac"] == MAC);
        assert!(has_card && hardware["storage"][0]["sizeBytes"] == DISK << 20, "{hardware}");
        let table = partitions(&self.disk).unwrap();
        assert!(table.iter().any(|(.., name)| name == "old-config"), "{table:?}");
    }

    /// The machine has what was written, and its own system says so. `added` are the names of the partitions that the agent has added to the image's two.
    pub async fn has_its_system(&self, call_home: &CallHome, added: &[&str]) {
        let report = match call_home.wait("node-0", 1, PATIENCE).await {
            Ok(report) => report,
            Err(error) => panic!("{error:#}; the end of its console:\n{}", self.console()),
        };
        self.milestone("its system has reported in");
        assert_eq!(report["hostname"], "node-0", "{report}");
        assert!(report["addresses"].as_array().unwrap().contains(&json!("10.0.2.77/24")), "{report}");
        let table = partitions(&self.disk).unwrap();
        let names: Vec<&str> = table.iter().skip(2).map(|(.., name)| name.as_str()).collect();
        assert_eq!(names, added, "{table:?}");
        let checked = tool("sgdisk", &["-v", &self.disk.display().to_string()]).unwrap();
        assert!(checked.contains("No problems found"), "{checked}");
        let machine = self.world.sim.now("node-0").await.unwrap();
        let line = machine["lastBoot"]["commandLine"].to_string();
        assert!(line.contains("qemu-system") && !line.contains("-kernel") && !line.contains("-initrd"), "{line}");
        assert!(machine["medium"].is_null(), "{machine}");
    }

    pub fn is_emptied(&self) {
        let first = bytes_at(&self.disk, 0, 34 * 512).unwrap();
        assert!(first.iter().all(|byte| *byte == 0), "the system was removed");
    }

    /// Its host is deleted, and goes; the machine is off then, and is returned as it is.
    pub async fn goes(&self) -> Value {
        self.world.kubectl(&["delete", "bmh", "node-0", "--wait=false"], "").await.unwrap();
        self.world.wait_gone("node-0", PATIENCE).await.unwrap();
        let machine = self.world.sim.now("node-0").await.unwrap();
        println!("{} starts of the machine", machine["lastBoot"]["boot"]);
        assert_eq!(machine["power"], "Off", "{machine}");
        self.milestone("gone");
        machine
    }

    /// How often the machine has been started.
    pub async fn starts(&self) -> Value {
        self.world.sim.now("node-0").await.unwrap()["lastBoot"]["boot"].clone()
    }

    /// Asks for steps of hardware managers, and returns what has become of that.
    pub async fn steps(&self, name: &str, steps: Value) -> HostOperationStatus {
        let wish = json!({ "apiVersion": "metamorph.metal3.io/v1alpha1", "kind": "HostOperation", "metadata": { "name": name },
            "spec": { "type": "Steps", "host": { "name": "node-0" }, "steps": steps } });
        self.world.kubectl(&["create", "-f", "-"], &wish.to_string()).await.unwrap();
        let all: Api<HostOperation> = Api::default_namespaced(self.world.client.clone());
        let has_ended = |found: Option<&HostOperation>| {
            found.and_then(|found| found.status.as_ref()).is_some_and(|status| status.phase.is_final())
        };
        let waited = kube::runtime::wait::await_condition(all, name, has_ended);
        let found = tokio::time::timeout(Duration::from_secs(PATIENCE), waited).await;
        let Ok(found) = found else { panic!("{name} has not ended; {}", self.console()) };
        self.milestone(name);
        found.unwrap().unwrap().status.unwrap()
    }
}
