//! Our agent under a real Ironic: its Redfish driver boots the agent by virtual media, from an ISO that it builds itself; the agent inspects, cleans
//! and writes as Ironic's conductor tells it.
//!
//! The machine is one of `bmc-sim`'s that are made of files: its agent is the real program, and reads its kernel's parameters from the boot loader's
//! configuration on the very ISO. Ironic is asked over its REST API, as anybody would; Metamorph's server has no part in it.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use provisioner_ironic::Method;
use serde_json::{Value, json};

use super::{Real, Simulator, free_port, start};

/// How long Ironic and the agent may take from one state to another.
const LONGEST: Duration = Duration::from_secs(420);
/// Pause between two looks.
const LOOK: Duration = Duration::from_millis(200);

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A disk image of 40 MiB whose EFI system partition has a boot loader; gives its digest.
fn make_image(path: &Path) -> String {
    let text = path.to_str().unwrap();
    std::fs::File::create(path).unwrap().set_len(40 << 20).unwrap();
    run("sgdisk", &["-n", "1:2048:+20M", "-t", "1:ef00", "-n", "2:0:0", "-t", "2:8300", text]);
    let part = format!("{text}@@1M");
    run("mformat", &["-i", &part, "-T", "40960", "-h", "16", "-s", "32", "::"]);
    run("mmd", &["-i", &part, "::/EFI", "::/EFI/BOOT"]);
    let loader = path.with_extension("loader");
    std::fs::write(&loader, b"a boot loader").unwrap();
    run("mcopy", &["-i", &part, loader.to_str().unwrap(), "::/EFI/BOOT/BOOTX64.EFI"]);
    run("sha256sum", &[text]).split_whitespace().next().unwrap().to_owned()
}

struct Lab {
    real: Real,
    simulator: Simulator,
    node: String,
}

impl Lab {
    fn node(&self) -> Value {
        self.real.ask(Method::Get, format!("/v1/nodes/{}", self.node), None).1
    }

    fn order(&self, body: Value) {
        let target = body["target"].clone();
        // A node may still be locked by what was before.
        for _ in 0..50 {
            let (status, said) =
                self.real.ask(Method::Put, format!("/v1/nodes/{}/states/provision", self.node), Some(body.clone()));
            if status == 202 {
                return;
            }
            assert_eq!(status, 409, "{target}: {said}");
            std::thread::sleep(LOOK);
        }
        panic!("{target}: the node stays locked");
    }

    /// Waits for a state; a failure shows what the agent said.
    fn comes_to(&self, state: &str) {
        let begun = Instant::now();
        loop {
            let node = self.node();
            let found = node["provision_state"].as_str().unwrap_or_default();
            if found == state {
                println!("{:6.1} s until {state}", begun.elapsed().as_secs_f64());
                return;
            }
            let failed = found.ends_with("failed") || found == "error";
            if failed || begun.elapsed() > LONGEST {
                let console = self.simulator.machine("serialConsole");
                let said = std::fs::read(console).unwrap_or_default();
                let said = String::from_utf8_lossy(&said[said.len().saturating_sub(6000)..]).into_owned();
                panic!("the node is {found}, not {state}: {}; its agent said:\n{said}", node["last_error"]);
            }
            std::thread::sleep(LOOK);
        }
    }

    fn disk(&self) -> PathBuf {
        PathBuf::from(self.simulator.1["machines"][0]["disks"][0].as_str().unwrap())
    }

    /// The beginning of the machine's disk.
    fn begins(&self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        std::fs::File::open(self.disk()).unwrap().read_exact(&mut bytes).unwrap();
        bytes
    }
}

/// Ironic with the machine enrolled and verified.
fn lab(files: &Path) -> (Lab, u16) {
    for name in ["kernel", "ramdisk", "esp"] {
        std::fs::write(files.join(name), vec![name.as_bytes()[0]; 4096]).unwrap();
    }
    let port = start::serve(files).unwrap();
    // What is published is served from the test's own folder.
    let published = files.join("http");
    std::fs::create_dir_all(&published).unwrap();
    let real =
        Real::start_with(&|folder| start::boots_machines(folder, &published, &format!("http://127.0.0.1:{port}/http")));
    let simulator = Simulator::start();
    let url = |name: &str| format!("http://127.0.0.1:{port}/{name}");
    let agent = free_port();
    let (status, node) = real.ask(
        Method::Post,
        "/v1/nodes".into(),
        Some(json!({
            "driver": "redfish", "name": "machine-1",
            "boot_interface": "redfish-virtual-media", "deploy_interface": "direct", "inspect_interface": "agent",
            "management_interface": "redfish", "power_interface": "redfish",
            "properties": { "capabilities": "boot_mode:uefi", "cpu_arch": "x86_64" },
            "driver_info": {
                "redfish_address": simulator.machine("redfish"), "redfish_system_id": simulator.machine("system"),
                "redfish_username": simulator.machine("username"), "redfish_password": simulator.machine("password"),
                "deploy_kernel": url("kernel"), "deploy_ramdisk": url("ramdisk"), "bootloader": url("esp"),
                "kernel_append_params": format!(
                    "ipa-listen-port={agent} ipa-advertise-port={agent} metamorph-image-addresses=127.0.0.0/8 ipa-inspection-collectors=default,logs"
                ),
            },
        })),
    );
    assert_eq!(status, 201, "{node}");
    let node = node["uuid"].as_str().unwrap().to_owned();
    let address = json!({ "node_uuid": node, "address": simulator.machine("mac") });
    let (status, said) = real.ask(Method::Post, "/v1/ports".into(), Some(address));
    assert_eq!(status, 201, "{said}");
    let lab = Lab { real, simulator, node };
    lab.order(json!({ "target": "manage" }));
    lab.comes_to("manageable");
    (lab, port)
}

#[test]
fn ironic_inspects_cleans_deploys_and_empties_a_machine_by_our_agent() {
    let folder = tempfile::tempdir().unwrap();
    let files = folder.path().canonicalize().unwrap();
    let sha256 = make_image(&files.join("os.raw"));
    let (lab, port) = lab(&files);

    lab.order(json!({ "target": "inspect" }));
    lab.comes_to("inspect wait");
    lab.comes_to("manageable");
    let (_, found) = lab.real.ask(Method::Get, format!("/v1/nodes/{}/inventory", lab.node), None);
    assert_eq!(found["inventory"]["interfaces"][0]["mac_address"], lab.simulator.machine("mac"), "{found}");
    assert_eq!(found["inventory"]["disks"][0]["serial"], lab.simulator.1["machines"][0]["diskSerials"][0], "{found}");
    assert_eq!(found["plugin_data"]["configuration"]["managers"][0]["name"], "MetamorphAgent", "{found}");

    std::fs::File::options().write(true).open(lab.disk()).unwrap().write_all(&[0xFF; 4096]).unwrap();
    lab.order(json!({ "target": "provide" }));
    lab.comes_to("available");
    assert!(lab.begins(4096).iter().all(|byte| *byte == 0), "the metadata were erased");

    let patch = json!([
        { "op": "add", "path": "/instance_info/image_source", "value": format!("http://127.0.0.1:{port}/os.raw") },
        { "op": "add", "path": "/instance_info/image_os_hash_algo", "value": "sha256" },
        { "op": "add", "path": "/instance_info/image_os_hash_value", "value": sha256 },
        { "op": "add", "path": "/instance_info/image_disk_format", "value": "raw" },
        { "op": "add", "path": "/instance_info/image_type", "value": "whole-disk" },
    ]);
    let (status, said) = lab.real.ask(Method::Patch, format!("/v1/nodes/{}", lab.node), Some(patch));
    assert_eq!(status, 200, "{said}");
    let drive = json!({ "meta_data": { "uuid": "machine-1", "name": "machine-1" }, "user_data": "#cloud-config\n" });
    lab.order(json!({ "target": "active", "configdrive": drive }));
    lab.comes_to("active");
    let table = run("sgdisk", &["-p", lab.disk().to_str().unwrap()]);
    assert!(table.contains("config-2") && table.contains("EF00"), "{table}");
    let node = lab.node();
    assert_eq!((&node["power_state"], &node["last_error"]), (&json!("power on"), &Value::Null), "{node}");
    let logs = std::fs::read_dir(lab.real.folder.join("logs")).unwrap().count();
    assert!(logs >= 1, "Ironic keeps the agent's logs");

    lab.order(json!({ "target": "deleted" }));
    lab.comes_to("available");
    assert!(lab.begins(1 << 20).iter().all(|byte| *byte == 0), "the system was removed");
    assert_eq!(lab.node()["last_error"], Value::Null);
}
