//! The demo's objects: for each machine, the Secrets and the BareMetalHost that a user would write.

use anyhow::{Context, ensure};
use api::metal3::BareMetalHost;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::call_home::Report;
use super::simulator::SimulatorProcess;
use crate::cli::Demo;

/// Namespace of the demo's hosts.
pub const NAMESPACE: &str = "default";

/// One machine of the demo.
pub struct Machine {
    /// Name of the host.
    pub name: String,
    /// Static address.
    pub address: String,
    bmc_address: String,
    username: String,
    password: String,
    mac: String,
    secure_boot: bool,
}

impl Machine {
    /// The simulator's machines.
    pub fn all(simulator: &SimulatorProcess, options: &Demo) -> anyhow::Result<Vec<Self>> {
        let one = |(index, ready): (usize, &super::simulator::ReadyMachine)| {
            let address = ready.redfish.strip_prefix("http://").context("the simulator speaks http")?;
            Ok(Self {
                name: ready.id.clone(),
                address: format!("10.0.2.{}", 77 + index % 100),
                bmc_address: format!("redfish-virtualmedia+http://{address}{}", ready.system),
                username: ready.username.clone(),
                password: ready.password.clone(),
                mac: ready.mac.clone(),
                secure_boot: options.secure_boot,
            })
        };
        simulator.machines().iter().enumerate().map(one).collect()
    }

    /// Checks that the report comes from a system with this machine's config drive.
    pub fn check(&self, report: &Report) -> anyhow::Result<()> {
        ensure!(
            report.hostname == self.name,
            "{} calls itself {}: its config drive was not applied",
            self.name,
            report.hostname
        );
        let address = format!("{}/24", self.address);
        ensure!(
            report.addresses.contains(&address),
            "{} has the addresses {}: the static {address} of its config drive was not applied",
            self.name,
            report.addresses.join(", ")
        );
        ensure!(report.secure_boot == self.secure_boot, "{}: Secure Boot is {}", self.name, report.secure_boot);
        Ok(())
    }

    /// Declares the machine.
    pub async fn apply(&self, client: &Client, image: &str, sha256: &str, call_home: &str) -> anyhow::Result<()> {
        let secret = |suffix: &str, data: Value| {
            json!({
                "apiVersion": "v1", "kind": "Secret",
                "metadata": { "name": format!("{}-{suffix}", self.name), "namespace": NAMESPACE },
                "stringData": data,
            })
        };
        let bmc = secret("bmc-secret", json!({ "username": self.username, "password": self.password }));
        let network = secret("network", json!({ "networkData": self.network_data().to_string() }));
        let user = secret("user-data", json!({ "userData": user_data(call_home) }));
        for object in [bmc, network, user] {
            create::<Secret>(client, object).await.with_context(|| format!("declare the Secrets of {}", self.name))?;
        }
        create::<BareMetalHost>(client, self.host(image, sha256))
            .await
            .with_context(|| format!("declare {}", self.name))
    }

    fn host(&self, image: &str, sha256: &str) -> Value {
        let name = &self.name;
        json!({
            "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
            "metadata": { "name": name, "namespace": NAMESPACE },
            "spec": {
                "online": true,
                "bmc": { "address": self.bmc_address, "credentialsName": format!("{name}-bmc-secret") },
                "bootMACAddress": self.mac,
                "bootMode": if self.secure_boot { "UEFISecureBoot" } else { "UEFI" },
                "preprovisioningNetworkDataName": format!("{name}-network"),
                "networkData": { "name": format!("{name}-network") },
                "userData": { "name": format!("{name}-user-data") },
                "image": { "url": image, "checksum": sha256, "checksumType": "sha256", "format": "raw" },
            }
        })
    }

    fn network_data(&self) -> Value {
        json!({
            "links": [{ "id": "port0", "type": "phy", "ethernet_mac_address": self.mac, "mtu": 1500 }],
            "networks": [{
                "id": "network0", "type": "ipv4", "link": "port0", "ip_address": self.address, "netmask": "255.255.255.0",
                "routes": [{ "network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "10.0.2.2" }],
            }],
            "services": [{ "type": "dns", "address": "10.0.2.3" }],
        })
    }
}

/// Creates the object, or brings one of the same name from an earlier run to the same state.
async fn create<K>(client: &Client, object: Value) -> anyhow::Result<()>
where
    K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + serde::Serialize,
{
    let api: Api<K> = Api::namespaced(client.clone(), NAMESPACE);
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let typed: K = serde_json::from_value(object.clone())?;
    match api.create(&PostParams::default(), &typed).await {
        Err(kube::Error::Api(e)) if e.code == 409 => {
            api.patch(&name, &PatchParams::default(), &Patch::Merge(object)).await?;
        }
        other => {
            other?;
        }
    }
    Ok(())
}

/// cloud-config that reports in. It can rely on Python, which cloud-init needs.
fn user_data(call_home: &str) -> String {
    let script = include_str!("report-in.py").replace("CALL_HOME", call_home);
    let indented: String = script.lines().map(|line| format!("      {line}\n")).collect();
    format!(
        "#cloud-config\nwrite_files:\n  - path: /usr/local/bin/report-in\n    permissions: '0755'\n    content: |\n      #!/usr/bin/python3\n{indented}runcmd:\n  - [sh, -c, \"for i in 1 2 3 4 5; do /usr/local/bin/report-in >/dev/console 2>&1 && break; sleep 2; done\"]\n"
    )
}
