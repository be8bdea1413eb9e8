//! A machine that nobody has declared boots a HostDiscovery's medium, asks its BMC over its own registers where that is on the network, and reports itself.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::{Duration, Instant};

use api::metal3::{HardwareData, ProvisioningState, REPORTED_BY};
use api::metamorph::{HostDiscoveryStatus, ReportOutcome, ReportedMachine};
use e2e::{DiskImage, LocalBmc, Options, UsedDisk, World, bytes_at, own_addresses, program, tool};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{DISK, machine, milestone};
use crate::discovery;

/// How long a machine may take from its start to its report, seconds.
const PATIENCE: u64 = 600;
/// The network card of the machine (one of its maker's: those that anybody may give tell no machine from another), and that of its BMC.
const MAC: &str = "00:1b:21:6c:2e:07";
const BMC_MAC: &str = "00:1b:21:6c:2e:08";

/// File with what the machine's firmware says of its BMC, and the address that it says: one that the machine alone can call.
const STRUCTURE: &str = "host-interface";
const ON_ITS_LINK: Ipv4Addr = Ipv4Addr::new(169, 254, 0, 17);
/// Where the image has data beyond its boot partition, and how many bytes.
const DATA: u64 = 14 << 20;
const LENGTH: usize = 4 << 20;

/// The world, and the BMC that the machine itself asks.
struct Site {
    world: World,
    bmc: LocalBmc,
    ip: IpAddr,
}

impl Site {
    /// One machine, `found`, whose BMC has an address that no list but the machine's own BMC tells.
    async fn start(disk: &Path, images: &Path) -> Self {
        let [own] = own_addresses().unwrap();
        let IpAddr::V4(ip) = own.ip() else { panic!("{own}") };
        let bmc = LocalBmc::start(ip, BMC_MAC).await.unwrap();
        let mut found = machine("found", disk);
        found["nics"] = json!([{ "mac": MAC }]);
        found["localBmc"] = json!(bmc.address());
        let structure = images.join(STRUCTURE);
        found["smbios"] = json!([structure]);
        let options = Options { machines: vec![found], tls: true, arguments: vec![] }.with(&[
            "--agent-host",
            "10.0.2.2",
            "--images",
            &images.display().to_string(),
            "--agent-boot-timeout",
            "600",
            "--agent-kernel-arguments",
            "no_timer_check metamorph.lldp=2",
        ]);
        let site =
            Self { world: World::start_with(options, json!({ "listen": ip })).await.unwrap(), bmc, ip: ip.into() };
        std::fs::write(structure, host_interface(site.service().await)).unwrap();
        site
    }

    /// The range that is asked: the address of the BMC is one of 254 in it.
    fn network(&self) -> String {
        let text = self.ip.to_string();
        format!("{}.0/24", text.rsplit_once('.').unwrap().0)
    }

    /// What a person does at the BMC to have the machine boot this medium.
    async fn boot(&self, medium: &str) {
        let boot = json!({ "Boot": { "BootSourceOverrideTarget": "Cd", "BootSourceOverrideEnabled": "Once" } });
        let insert = "/VirtualMedia/CD1/Actions/VirtualMedia.InsertMedia";
        // A server that has been started a moment ago says nowhere that it serves this medium, too: a bounded number of tries, as a person makes them.
        for left in (0..100).rev() {
            match self.ask(Method::POST, insert, json!({ "Image": medium })).await {
                Ok(()) => break,
                Err(_) if left > 0 => tokio::time::sleep(Duration::from_millis(200)).await,
                Err(refused) => panic!("{refused}"),
            }
        }
        self.ask(Method::PATCH, "", boot).await.unwrap();
        let is_on = self.world.sim.now("found").await.unwrap()["power"] == "On";
        let kind = if is_on { "ForceRestart" } else { "On" };
        self.ask(Method::POST, "/Actions/ComputerSystem.Reset", json!({ "ResetType": kind })).await.unwrap();
    }

    /// The UUID that the BMC's service root shows to anybody.
    async fn service(&self) -> Uuid {
        let url = format!("{}/redfish/v1/", self.world.sim.machine("found")["redfish"].as_str().unwrap());
        let root: Value = client().get(url).send().await.unwrap().json().await.unwrap();
        root["UUID"].as_str().unwrap().parse().unwrap()
    }

    async fn ask(&self, method: Method, path: &str, body: Value) -> Result<(), String> {
        let machine = self.world.sim.machine("found");
        let text = |field: &str| machine[field].as_str().unwrap().to_owned();
        let url = format!("{}{}{path}", text("redfish"), text("system"));
        let request = client().request(method, url).basic_auth(text("username"), Some(text("password")));
        let answer = request.json(&body).send().await.unwrap();
        let (status, text) = (answer.status(), answer.text().await.unwrap());
        if status.is_success() { Ok(()) } else { Err(format!("{path}: {status}: {text}")) }
    }

    /// The one report, once it is as wanted; without one, the end of the machine's console says how far it came.
    async fn report(&self, wanted: impl Fn(&ReportedMachine) -> bool + Send + Sync) -> HostDiscoveryStatus {
        let reported = discovery::wait(&self.world, "rack", PATIENCE, |status| status.reports.iter().any(&wanted));
        let switched_off = self.world.sim.wait("found", PATIENCE, "off", |machine| machine["power"] == "Off");
        tokio::select! {
            status = reported => status,
            off = switched_off => {
                off.unwrap();
                let status = discovery::wait(&self.world, "rack", 10, |_| true).await;
                assert!(status.reports.iter().any(&wanted), "{:?}; {}; {}", status.reports, self.console(), self.bmc.tail());
                status
            }
        }
    }

    /// The end of the machine's console.
    fn console(&self) -> String {
        let path = self.world.sim.machine("found")["serialConsole"].as_str().unwrap_or_default().to_owned();
        let text = String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned();
        text.chars().skip(text.chars().count().saturating_sub(4000)).collect()
    }

    async fn hosts(&self) -> Vec<String> {
        let hosts = self.world.hosts().list(&ListParams::default()).await.unwrap();
        hosts.iter().map(ResourceExt::name_any).collect()
    }

    /// What is known of the host's hardware: the HostDiscovery by whose report it is, if it is by one; its network cards are looked at.
    async fn facts(&self, name: &str) -> Option<String> {
        let all: Api<HardwareData> = Api::default_namespaced(self.world.client.clone());
        let data = all.get(name).await.unwrap();
        let nics = data.spec.hardware.as_ref().unwrap().nics.as_slice();
        assert!(!nics.is_empty() && nics.iter().all(|nic| nic.mac.as_deref() == Some(MAC)), "{nics:?}");
        data.annotations().get(REPORTED_BY).cloned()
    }
}

/// Of BMCs whose certificates are not judged.
fn client() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().tls_danger_accept_invalid_certs(true).build().unwrap()
}

/// A management controller host interface (SMBIOS 3.7, 7.43): a network of its own, by which a machine reaches the Redfish service with this UUID at
/// [`ON_ITS_LINK`] (DSP0270 1.3.1, 8.3).
fn host_interface(service: Uuid) -> Vec<u8> {
    let mut record = vec![0; 91];
    record[..16].copy_from_slice(&service.to_bytes_le());
    // Static addresses of IPv4, at the machine's end and at the service's; port 443.
    let [a, b, c, d] = ON_ITS_LINK.octets();
    record[16..22].copy_from_slice(&[1, 1, 169, 254, 0, 18]);
    record[50..56].copy_from_slice(&[1, 1, a, b, c, d]);
    record[84..86].copy_from_slice(&443_u16.to_le_bytes());
    // A network host interface without a description of its device, and one record, of Redfish over IP.
    let mut body = vec![0x40, 0, 1, 4, 91];
    body.append(&mut record);
    let mut structure = vec![42, u8::try_from(4 + body.len()).unwrap(), 0x00, 0x2a];
    structure.append(&mut body);
    // No strings.
    structure.extend([0, 0]);
    structure
}

fn at(ip: IpAddr, port: u16) -> String {
    format!("redfish-virtualmedia://{ip}:{port}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_tells_where_its_bmc_is_and_becomes_one_host_however_often_it_boots_the_medium() {
    let started = Instant::now();
    let folder = tempfile::tempdir().unwrap();
    let (path, images) = (folder.path().join("found.raw"), folder.path().join("images"));
    UsedDisk::make(&path, DISK).unwrap();
    let image = DiskImage::small().unwrap();
    std::fs::create_dir(&images).unwrap();
    std::fs::write(images.join("disk.raw"), &image.bytes).unwrap();
    let mut site = Site::start(&path, &images).await;
    let redfish = site.world.sim.machine("found");
    let port = discovery::port_of(&redfish);
    let login = json!({ "username": redfish["username"], "password": redfish["password"] });
    site.world.apply_secret("login", login).await.unwrap();
    let object = json!({ "apiVersion": "metamorph.metal3.io/v1alpha1", "kind": "HostDiscovery", "metadata": { "name": "rack" },
        "spec": { "ranges": [site.network()], "ports": [port], "credentialsName": "login",
            "disableCertificateVerification": true, "naming": { "prefix": "found-" }, "medium": { "onlyReported": true } } });
    site.world.kubectl(&["apply", "-f", "-"], &object.to_string()).await.unwrap();
    let status = discovery::wait(&site.world, "rack", 60, |status| !status.media.is_empty()).await;
    let medium = status.media[0].urls[0].clone();
    let file = folder.path().join("rack.iso");
    let fetch = ["discovery", "medium", "rack", "--out", &file.display().to_string(), "--kubeconfig"];
    let kubeconfig = site.world.kubeconfig().display().to_string();
    tool(&program("metamorph").unwrap().display().to_string(), &[&fetch[..], &[&kubeconfig]].concat()).unwrap();
    // A volume descriptor (ECMA-119, 9.1.2).
    assert_eq!(bytes_at(&file, 32_769, 5).unwrap(), b"CD001");
    site.boot(&medium).await;
    let status = site.report(|_| true).await;
    milestone(started, "the machine has reported itself");
    let [row] = status.reports.as_slice() else { panic!("{:?}", status.reports) };
    assert_eq!(row.outcome, ReportOutcome::Host, "{row:?}; {}; {}", site.console(), site.bmc.tail());
    // By its registers, and by its firmware; only the first is one that is asked.
    assert_eq!(row.bmc_addresses, [site.ip.to_string(), ON_ITS_LINK.to_string()]);
    assert_eq!(row.address, Some(at(site.ip, port)));
    assert_eq!((json!(row.mac_addresses), json!(row.uuid)), (json!([MAC]), redfish["uuid"].clone()));
    assert!(status.last_scan.is_none() && status.pending == 1, "{status:?}");
    let name = row.host.clone().unwrap();
    assert_eq!(site.hosts().await, [name.as_str()]);
    site.world.wait_state(&name, 60, ProvisioningState::Unmanaged).await.unwrap();
    assert_eq!(site.facts(&name).await.as_deref(), Some("rack"));
    let now = site.world.sim.wait("found", 60, "off", |machine| machine["power"] == "Off").await.unwrap();
    assert_eq!(now["sessions"], 0, "nobody has signed in");

    let url = format!("http://10.0.2.2:{}/images/disk.raw", site.world.media_port());
    let image_wish = json!({ "url": url, "checksum": image.sha256, "checksumType": "sha256", "format": "raw" });
    let wish = json!({ "online": true, "bootMode": "UEFI", "rootDeviceHints": { "minSizeGigabytes": 2 }, "image": image_wish });
    site.world.patch(&name, json!({ "spec": wish })).await.unwrap();
    site.world.annotate(&name, "metamorph.metal3.io/approve=true").await.unwrap();
    let host = site.world.wait_state(&name, 900, ProvisioningState::Provisioned).await.unwrap();
    milestone(started, "it is provisioned");
    assert_eq!(host.spec.bmc.unwrap().address, at(site.ip, port));
    assert_eq!(site.facts(&name).await, None, "its inspection says it, and no report");
    let is_written = || bytes_at(&path, DATA, LENGTH).unwrap() == image.bytes[DATA as usize..][..LENGTH];
    assert!(is_written());

    // Everything is forgotten that a server knows of media and reports, and the medium that somebody has is good all the same.
    site.world.server.kill().await.unwrap();
    site.world.start_server_again().await.unwrap();
    let again = discovery::wait(&site.world, "rack", 60, |status| !status.media.is_empty()).await;
    assert_eq!(again.media[0].urls[0], medium);
    site.boot(&medium).await;
    let status = site.report(|report| report.outcome != ReportOutcome::Host).await;
    milestone(started, "it has reported itself again");
    let [row] = status.reports.as_slice() else { panic!("{:?}", status.reports) };
    assert_eq!((row.outcome, row.host.as_deref()), (ReportOutcome::Known, Some(name.as_str())), "{row:?}");
    assert_eq!((site.hosts().await, status.pending), (vec![name], 0));
    site.world.sim.wait("found", 60, "off", |machine| machine["power"] == "Off").await.unwrap();
    assert!(is_written(), "the medium's agent writes to no disk");
}
