//! The whole way on real (emulated) machines: UEFI firmware, Debian's signed boot chain, the agent as process 1, a real Debian on the
//! disk whose cloud-init applies the config drive. Software emulation: minutes, not seconds.

mod medium;

use std::path::Path;

use api::metal3::{DEVICES, ProvisioningState};
use e2e::{CallHome, DiskImage, Options, UsedDisk, World, agent_image_aarch64, demo_os, tool};
use serde_json::{Value, json};

use crate::discovery;

const IMAGE: &str = "debian-12.raw.zst";
/// A machine whose memory is what the agent has to make do with.
fn machine(id: &str, disk: &Path) -> Value {
    json!({ "id": id, "kind": "qemu", "memoryMib": 512, "disks": [{ "path": disk, "bus": "virtio" }] })
}

/// Size of the disks in MiB.
const DISK: u64 = 2 << 10;

/// Says how far a run of minutes is.
fn milestone(started: std::time::Instant, what: &str) {
    println!("{:>4} s  {what}", started.elapsed().as_secs());
}

/// What the machine's agent has found beside upstream's facts: its PCI devices, those of virtio among them, and its one NUMA node.
pub fn has_devices(data: &Value) {
    let text = data["metadata"]["annotations"][DEVICES].as_str().unwrap_or_default();
    let found: Value = serde_json::from_str(text).unwrap_or_default();
    let is_virtio = |line: &Value| line.as_str().is_some_and(|line| line.contains(" 1af4:"));
    assert!(found["pci"].as_array().is_some_and(|all| all.iter().any(is_virtio)), "{text}");
    assert_eq!((&found["numa"][0]["node"], found["numa"].as_array().map(Vec::len)), (&json!(0), Some(1)), "{text}");
    assert_eq!(found["started"]["uefi"], true, "{text}");
}

struct Lab {
    world: World,
    call_home: CallHome,
    sha256: String,
    images: u16,
}

impl Lab {
    async fn start(machines: Vec<Value>) -> Self {
        let folder = demo_os().unwrap();
        let sums = std::fs::read_to_string(folder.join("SHA256SUMS")).unwrap();
        let sha256 = sums.lines().find_map(|l| l.strip_suffix(&format!("  {IMAGE}"))).unwrap().to_owned();
        let folder = folder.display().to_string();
        let options = Options { machines, tls: false, arguments: vec![] }.with(&[
            "--agent-host",
            "10.0.2.2",
            "--images",
            &folder,
            "--agent-boot-timeout",
            "600",
            // Under software emulation on a busy host the kernel's check of its timer can fail by lateness, and it panics.
            "--agent-kernel-arguments",
            "no_timer_check metamorph.lldp=2",
        ]);
        let world = World::start(options).await.unwrap();
        let images = world.media_port();
        Self { world, call_home: CallHome::start().await.unwrap(), sha256, images }
    }

    /// Declares the machine with a static address that no DHCP would give.
    async fn declare(&self, id: &str, address: &str, secure_boot: bool) {
        let wish = self.wish(id, address, secure_boot).await;
        self.world.apply_host(id, wish).await.unwrap();
    }

    /// What its host asks for, whose Secrets are there.
    async fn wish(&self, id: &str, address: &str, secure_boot: bool) -> Value {
        let mac = self.world.sim.machine(id)["mac"].clone();
        let network = json!({
            "links": [{ "id": "port0", "type": "phy", "ethernet_mac_address": mac, "mtu": 1400 }],
            "networks": [{ "id": "n0", "type": "ipv4", "link": "port0", "ip_address": address, "netmask": "255.255.255.0",
                "routes": [{ "network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "10.0.2.2" }] }],
            "services": [{ "type": "dns", "address": "10.0.2.3" }],
        });
        let secrets = json!({ "apiVersion": "v1", "kind": "List", "items": [
            { "apiVersion": "v1", "kind": "Secret", "metadata": { "name": format!("{id}-network") },
              "stringData": { "networkData": network.to_string() } },
            { "apiVersion": "v1", "kind": "Secret", "metadata": { "name": format!("{id}-user") },
              "stringData": { "userData": self.call_home.user_data(id) } },
        ]});
        self.world.kubectl(&["apply", "-f", "-"], &secrets.to_string()).await.unwrap();
        json!({
            "bootMode": if secure_boot { "UEFISecureBoot" } else { "UEFI" },
            "preprovisioningNetworkDataName": format!("{id}-network"),
            "networkData": { "name": format!("{id}-network") },
            "userData": { "name": format!("{id}-user") },
            "rootDeviceHints": { "minSizeGigabytes": 2 },
            "image": self.image(),
        })
    }

    fn image(&self) -> Value {
        let url = format!("http://10.0.2.2:{}/images/{IMAGE}", self.images);
        json!({ "url": url, "checksum": self.sha256, "checksumType": "sha256", "format": "raw" })
    }

    /// The machine's n-th report; without one, the end of its console says how far it came.
    async fn report(&self, id: &str, count: usize) -> Value {
        match self.call_home.wait(id, count, 600).await {
            Ok(report) => report,
            Err(error) => {
                let console = self.world.sim.machine(id)["serialConsole"].as_str().unwrap_or_default().to_owned();
                let text = String::from_utf8_lossy(&std::fs::read(console).unwrap_or_default()).into_owned();
                let end: String = text.chars().skip(text.chars().count().saturating_sub(4000)).collect();
                panic!("{error:#}; the end of its console:\n{end}");
            }
        }
    }

    async fn machine(&self, id: &str) -> Value {
        self.world.sim.get(&format!("/machines/{id}")).await.unwrap()
    }
}

fn assert_applied(report: &Value, id: &str, address: &str, secure_boot: bool) {
    assert_eq!(report["hostname"], id, "{report}");
    assert!(report["addresses"].as_array().unwrap().contains(&json!(format!("{address}/24"))), "{report}");
    assert_eq!(report["secure_boot"], secure_boot, "{report}");
}

/// Waits until the machine is provisioned and its system has reported in; looks at how it was booted.
async fn comes_up(lab: &Lab, started: std::time::Instant, id: &str, address: &str, secure_boot: bool) {
    lab.world.wait_state(id, 900, ProvisioningState::Provisioned).await.unwrap();
    milestone(started, &format!("{id} is provisioned"));
    let report = lab.report(id, 1).await;
    milestone(started, &format!("{id} has reported in"));
    assert_applied(&report, id, address, secure_boot);
    let machine = lab.machine(id).await;
    let line = machine["lastBoot"]["commandLine"].to_string();
    assert!(line.contains("qemu-system") && !line.contains("-kernel") && !line.contains("-initrd"), "{line}");
    assert!(machine["medium"].is_null(), "{machine}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_is_provisioned_and_comes_back_from_its_own_boot_entry() {
    let started = std::time::Instant::now();
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("plain.raw");
    UsedDisk::make(&plain, DISK).unwrap();
    let lab = Lab::start(vec![machine("plain", &plain)]).await;
    lab.declare("plain", "10.0.2.77", false).await;
    comes_up(&lab, started, "plain", "10.0.2.77", false).await;
    media_were_read_by_range_and_are_no_files(&lab).await;
    let checked = tool("sgdisk", &["-v", &plain.display().to_string()]).unwrap();
    assert!(checked.contains("No problems found"), "{checked}");

    // Forced off and on through Redfish, without a medium: the machine's own boot entry brings it up again.
    for action in ["ForceOff", "On"] {
        lab.world.sim.post("/machines/plain/power", json!({ "action": action })).await.unwrap();
    }
    let again = lab.report("plain", 2).await;
    milestone(started, "plain has come back from its own boot entry");
    assert_applied(&again, "plain", "10.0.2.77", false);
    assert!(again["boot_entry"].as_str().unwrap().to_lowercase().contains("debian"), "{again}");
}

/// Found by its BMC, approved, inspected, provisioned; and found again when it has booted again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_nobody_declared_becomes_one_host_and_is_provisioned() {
    let started = std::time::Instant::now();
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("found.raw");
    UsedDisk::make(&disk, DISK).unwrap();
    let lab = Lab::start(vec![machine("found", &disk)]).await;
    let mut wish = lab.wish("found", "10.0.2.77", false).await;
    let bmc = lab.world.sim.machine("found");
    let login = json!({ "username": bmc["username"], "password": bmc["password"] });
    lab.world.apply_secret("login", login).await.unwrap();
    let scan = async |most: u32| {
        let object = json!({ "apiVersion": "metamorph.metal3.io/v1alpha1", "kind": "HostDiscovery", "metadata": { "name": "rack" },
            "spec": { "ranges": ["127.0.0.1"], "ports": [discovery::port_of(&bmc)], "scheme": "http", "credentialsName": "login",
                "naming": { "prefix": "found-", "from": "Address" }, "maxNewHosts": most } });
        lab.world.kubectl(&["apply", "-f", "-"], &object.to_string()).await.unwrap();
        let scanned = format!("--for=jsonpath={{.status.observedGeneration}}={most}");
        lab.world.kubectl(&["wait", "hostdisc/rack", &scanned, "--timeout=50s"], "").await.unwrap();
        let named = ["get", "bmh", "-o", "name"];
        lab.world.kubectl(&named, "").await.unwrap().lines().map(ToOwned::to_owned).collect::<Vec<_>>()
    };
    let hosts = scan(1).await;
    let [host] = hosts.as_slice() else { panic!("{hosts:?}") };
    let name = host.rsplit('/').next().unwrap();
    lab.world.wait_state(name, 60, ProvisioningState::Unmanaged).await.unwrap();
    milestone(started, &format!("{name} is found"));
    wish["online"] = json!(true);
    lab.world.patch(name, json!({ "spec": wish })).await.unwrap();
    lab.world.annotate(name, "metamorph.metal3.io/approve=true").await.unwrap();
    let host = lab.world.wait_state(name, 900, ProvisioningState::Provisioned).await.unwrap();
    assert!(host.status.unwrap().hardware.is_some_and(|found| !found.nics.is_empty()));
    milestone(started, "it is provisioned");
    assert_applied(&lab.report("found", 1).await, name, "10.0.2.77", false);
    for action in ["ForceOff", "On"] {
        lab.world.sim.post("/machines/found/power", json!({ "action": action })).await.unwrap();
    }
    lab.report("found", 2).await;
    milestone(started, "it has booted again");
    assert_eq!(scan(2).await, hosts);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_machines_one_of_them_with_secure_boot_live_their_whole_life() {
    let started = std::time::Instant::now();
    let folder = tempfile::tempdir().unwrap();
    let (plain, secure) = (folder.path().join("plain.raw"), folder.path().join("secure.raw"));
    UsedDisk::make(&plain, DISK).unwrap();
    UsedDisk::make(&secure, DISK).unwrap();
    let lab = Lab::start(vec![machine("plain", &plain), machine("secure", &secure)]).await;
    lab.declare("plain", "10.0.2.77", false).await;
    lab.declare("secure", "10.0.2.78", true).await;
    comes_up(&lab, started, "plain", "10.0.2.77", false).await;
    comes_up(&lab, started, "secure", "10.0.2.78", true).await;

    lab.world.kubectl(&["delete", "bmh", "secure", "--wait=false"], "").await.unwrap();
    lab.world
        .kubectl(&["patch", "bmh", "plain", "--type=merge", "-p", r#"{"spec":{"image":null}}"#], "")
        .await
        .unwrap();
    lab.world.wait_state("plain", 900, ProvisioningState::Available).await.unwrap();
    milestone(started, "plain is deprovisioned");
    let patch = json!({ "spec": { "image": lab.image() } }).to_string();
    lab.world.kubectl(&["patch", "bmh", "plain", "--type=merge", "-p", &patch], "").await.unwrap();
    lab.world.wait_state("plain", 900, ProvisioningState::Provisioned).await.unwrap();
    milestone(started, "plain is provisioned again");
    let third = lab.report("plain", 2).await;
    assert_applied(&third, "plain", "10.0.2.77", false);

    milestone(started, "plain has reported in again");
    lab.world.kubectl(&["delete", "bmh", "plain", "--wait=false"], "").await.unwrap();
    for id in ["plain", "secure"] {
        lab.world.wait_gone(id, 900).await.unwrap();
        let machine = lab.machine(id).await;
        assert_eq!((&machine["power"], &machine["sessions"]), (&json!("Off"), &json!(0)), "{machine}");
        assert!(machine["medium"].is_null(), "{machine}");
        lab.world.wait_no_operations(id).await.unwrap();
    }
}

/// A drive that erases itself: the kernel carries the agent's commands to QEMU's, which has Format NVM and no Sanitize.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_nvme_drive_is_erased_by_its_own_format_and_then_overwritten() {
    let started = std::time::Instant::now();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nvme.raw");
    let secret: Vec<u8> = (0..64_u32 << 20).map(|at| (at ^ at >> 9) as u8 | 1).collect();
    std::fs::write(&path, &secret).unwrap();
    let disks = json!([{ "path": path, "bus": "nvme" }]);
    let machines = vec![json!({ "id": "drive", "kind": "qemu", "memoryMib": 512, "disks": disks })];
    let options = Options { machines, tls: false, arguments: vec![] }.with(&[
        "--agent-host",
        "10.0.2.2",
        "--agent-boot-timeout",
        "600",
        "--agent-kernel-arguments",
        "no_timer_check metamorph.lldp=2",
    ]);
    let world = World::start(options).await.unwrap();
    world.apply_host("drive", json!({ "bootMode": "UEFI" })).await.unwrap();
    world.wait_state("drive", 900, ProvisioningState::Available).await.unwrap();
    milestone(started, "drive is available");
    let erased = async |name: &str, method: &str, phase: &str| {
        let object = json!({
            "apiVersion": "metamorph.metal3.io/v1alpha1", "kind": "HostOperation", "metadata": { "name": name },
            "spec": { "type": "Erase", "host": { "name": "drive" }, "erase": { "method": method } },
        });
        world.kubectl(&["create", "-f", "-"], &object.to_string()).await.unwrap();
        let wait = format!("jsonpath={{.status.phase}}={phase}");
        let ended = world.kubectl(&["wait", "hostop", name, &format!("--for={wait}"), "--timeout=600s"], "").await;
        let text = world.kubectl(&["get", "hostop", name, "-o", "json"], "").await.unwrap();
        ended.unwrap_or_else(|error| panic!("{error:#}: {text}"));
        milestone(started, &format!("{method} has ended"));
        let object: Value = serde_json::from_str(&text).unwrap();
        world.wait_state("drive", 60, ProvisioningState::Available).await.unwrap();
        object["status"].clone()
    };
    // Format is less than was asked for: the drive is erased by the best that it has, and the request says so.
    let status = erased("format", "Purge", "Failed").await;
    assert_eq!(status["error"]["cause"], "NotErased", "{status}");
    let disk = &status["erasure"]["disks"][0];
    assert_eq!(
        (&disk["result"], &disk["method"]),
        (&json!("Cleared"), &json!("NVMe Format (user data erase)")),
        "{status}"
    );
    let evidence = disk["evidence"].as_str().unwrap();
    assert!(evidence.starts_with("64 samples held data before, none of them holds the same now"), "{status}");
    assert!(std::fs::read(&path).unwrap().iter().all(|byte| *byte == 0), "QEMU's Format writes zeros");
    let status = erased("overwrite", "Overwrite", "Succeeded").await;
    let evidence = status["erasure"]["disks"][0]["evidence"].as_str().unwrap();
    assert!(evidence.starts_with("67108864 bytes written, 64 samples"), "{status}");
    let now = std::fs::read(&path).unwrap();
    let ends = now[..1 << 20].iter().chain(&now[63 << 20..]).all(|byte| *byte == 0);
    assert!(ends && now[1 << 20..63 << 20].chunks(512).all(|piece| piece.iter().any(|byte| *byte != 0)));
}

/// A machine with Arm processors, of which the server has an image beside the one for x86_64: its BMC alone says what it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_aarch64_machine_is_inspected_provisioned_and_boots_its_disk() {
    let started = std::time::Instant::now();
    let folder = tempfile::tempdir().unwrap();
    let image = agent_image_aarch64().unwrap();
    let message = "the disk of an aarch64 machine was booted";
    let disk = DiskImage::aarch64(&image, message).unwrap();
    std::fs::write(folder.path().join("disk.raw"), &disk.bytes).unwrap();
    let (path, images) = (folder.path().join("arm.raw"), folder.path().display().to_string());
    UsedDisk::make(&path, DISK).unwrap();
    let machines = vec![json!({
        "id": "arm", "kind": "qemu", "architecture": "aarch64", "cpus": 1, "memoryMib": 512, "cdBus": "virtioScsi",
        "disks": [{ "path": path, "bus": "virtio" }],
    })];
    let options = Options { machines, tls: false, arguments: vec![] }.with(&[
        "--agent-host",
        "10.0.2.2",
        "--images",
        &images,
        "--agent-image",
        &image.display().to_string(),
        "--agent-boot-timeout",
        "600",
    ]);
    let world = World::start(options).await.unwrap();
    let change = json!({
        "bootMode": "UEFISecureBoot", "automatedCleaningMode": "disabled", "rootDeviceHints": { "minSizeGigabytes": 2 },
    });
    world.apply_host("arm", change).await.unwrap();
    let host = world.wait_state("arm", 900, ProvisioningState::Available).await.unwrap();
    milestone(started, "arm is available");
    assert_eq!(host.spec.architecture.as_deref(), Some("aarch64"));
    let data = world.kubectl(&["get", "hardwaredata", "arm", "-o", "json"], "").await.unwrap();
    let data: Value = serde_json::from_str(&data).unwrap();
    let found = &data["spec"]["hardware"];
    assert_eq!((&found["cpu"]["arch"], &found["cpu"]["count"]), (&json!("aarch64"), &json!(1)), "{found}");
    assert!(found["cpu"]["flags"].as_array().unwrap().contains(&json!("asimd")), "{found}");
    assert_eq!(found["storage"].as_array().unwrap().len(), 1, "{found}");
    assert_eq!(found["systemVendor"]["manufacturer"], "Contoso", "{found}");
    has_devices(&data);

    let url = format!("http://10.0.2.2:{}/images/disk.raw", world.media_port());
    let change = json!({ "spec": { "image": { "url": url, "checksum": disk.sha256, "checksumType": "sha256", "format": "raw" } } });
    world.kubectl(&["patch", "bmh", "arm", "--type=merge", "-p", &change.to_string()], "").await.unwrap();
    world.wait_state("arm", 900, ProvisioningState::Provisioned).await.unwrap();
    milestone(started, "arm is provisioned");
    let console = world.sim.machine("arm")["serialConsole"].as_str().unwrap().to_owned();
    let said = || String::from_utf8_lossy(&std::fs::read(&console).unwrap_or_default()).into_owned();
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(300);
    while !said().contains(message) {
        assert!(tokio::time::Instant::now() < deadline, "the disk was not booted:\n{}", said());
        // The console is a file.
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    }
    milestone(started, "arm has booted its disk");
    for line in said().lines().filter(|line| line.contains("agent") || line.contains(message)) {
        println!("      {line}");
    }
}

async fn media_were_read_by_range_and_are_no_files(lab: &Lab) {
    let log = lab.world.sim.get("/machines/plain/media").await.unwrap();
    assert!(log["bytesFetched"].as_u64().is_some_and(|b| b > 1 << 20), "{log}");
    let mut folders = vec![lab.world.folder.path().join("data")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            let metadata = entry.metadata().unwrap();
            if metadata.is_dir() {
                folders.push(entry.path());
            } else if entry.file_name() != "store.reserve" {
                // The store's reserve for a full disk is no medium.
                assert!(metadata.len() < 16 << 20, "{} has {} bytes", entry.path().display(), metadata.len());
            }
        }
    }
}
