//! A simulated rack: two switches and eight hosts with bonds, inspected by real agents, as `metamorph topology` shows it.

use api::metal3::{DEVICES, HardwareData, LLDP, ProvisioningState};
use e2e::{Options, World, machine, program};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tokio::process::Command;

const HOSTS: usize = 8;
const NAMESPACE: &str = "default";
const LEAVES: [(&str, &str); 2] = [("00:1c:73:00:00:01", "leaf-1"), ("00:1c:73:00:00:02", "leaf-2")];

fn mac(host: usize, nic: usize) -> String {
    format!("52:54:00:77:{host:02x}:{nic:02x}")
}

/// Two cables, one to each switch, a port on which nobody speaks, and one without a cable.
fn rack_machine(number: usize) -> Value {
    let mut config = machine(&format!("node-{number}"));
    let leg = |at: usize| {
        let (chassis, name) = LEAVES[at];
        let port = format!("Ethernet1/{}", 2 * number + 1);
        json!({ "name": format!("eno{}", at + 1), "mac": mac(number, at + 1),
            "lldp": [{ "chassis": chassis, "port": port, "name": name, "untaggedVlan": 10, "vlans": [10, 20] }] })
    };
    config["nics"] = json!([
        leg(0),
        leg(1),
        { "name": "eno3", "mac": mac(number, 3) },
        { "name": "eno4", "mac": mac(number, 4), "unplugged": true },
    ]);
    config
}

fn network_data(number: usize) -> String {
    json!({ "links": [
        { "id": "a", "type": "phy", "ethernet_mac_address": mac(number, 1) },
        { "id": "b", "type": "phy", "ethernet_mac_address": mac(number, 2) },
        { "id": "bond0", "type": "bond", "bond_links": ["a", "b"], "bond_mode": "802.3ad" },
    ] })
    .to_string()
}

async fn topology(world: &World, arguments: &[&str]) -> String {
    let mut command = Command::new(program("metamorph").unwrap());
    command.arg("topology").arg("--kubeconfig").arg(world.kubeconfig()).args(arguments);
    let out = command.output().await.unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(out.stderr.is_empty(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

#[tokio::test]
async fn a_rack_is_seen_as_it_is_cabled() {
    let machines = (0..HOSTS).map(rack_machine).collect();
    let world = World::start(Options { machines, ..Options::one_fake() }).await.unwrap();
    for number in 0..HOSTS {
        let name = format!("node-{number}");
        world.apply_secret(&format!("net-{number}"), json!({ "networkData": network_data(number) })).await.unwrap();
        let spec = json!({ "networkData": { "name": format!("net-{number}"), "namespace": NAMESPACE } });
        world.apply_host(&name, spec).await.unwrap();
    }
    for number in 0..HOSTS {
        world.expect_well(&format!("node-{number}"), ProvisioningState::Available).await.unwrap();
    }
    let data: Api<HardwareData> = Api::namespaced(world.client.clone(), NAMESPACE);
    let data = data.get("node-3").await.unwrap();
    assert_eq!(
        data.annotations().get(LLDP).map(String::as_str),
        Some("eno1: heard; eno2: heard; eno3: no LLDP seen; eno4: link down")
    );
    let devices = data.annotations().get(DEVICES).map(String::as_str).unwrap_or_default();
    assert!(devices.contains("020000 8086:1572 - i40e -"), "its cards are PCI devices: {devices}");
    let nic = &data.spec.hardware.as_ref().unwrap().nics[0];
    assert_eq!((nic.vlan_id, nic.vlans.len()), (Some(10), 2));

    let view: Value = serde_json::from_str(&topology(&world, &["-A", "--output", "json"]).await).unwrap();
    assert_eq!(view["findings"], json!([]), "{view:#}");
    assert_eq!(view["hosts"].as_array().unwrap().len(), HOSTS);
    for (at, (id, name)) in LEAVES.into_iter().enumerate() {
        let switch = &view["switches"][at];
        assert_eq!((&switch["id"], &switch["names"]), (&json!(id), &json!([name])));
        let ports: Vec<Value> = (0..HOSTS)
            .map(|number| {
                let host = format!("{}/node-{number}", NAMESPACE);
                json!({ "id": format!("Ethernet1/{}", 2 * number + 1), "nics": [{ "host": host, "nic": format!("eno{}", at + 1) }] })
            })
            .collect();
        assert_eq!(switch["ports"], json!(ports));
    }
    let bonds: Vec<&Value> = view["hosts"][5]["nics"].as_array().unwrap().iter().map(|nic| &nic["bond"]).collect();
    assert_eq!(bonds, [&json!("bond0"), &json!("bond0"), &Value::Null, &Value::Null]);
    let tree = topology(&world, &["--namespace", NAMESPACE]).await;
    assert!(tree.starts_with("leaf-1  00:1c:73:00:00:01\n├─ Ethernet1/1  "), "{tree}");
    assert!(tree.contains("   ├─ eno3  no LLDP seen  10 Gbit/s\n   └─ eno4  link down\n"), "{tree}");
    for (form, begins) in [("dot", "graph topology {"), ("mermaid", "flowchart TB"), ("svg", "<svg ")] {
        let text = topology(&world, &["-A", "--output", form]).await;
        assert!(text.starts_with(begins), "{form}: {text}");
    }
    // A namespace without hosts has no topology, and says so.
    assert_eq!(topology(&world, &["--namespace", "kube-system"]).await, "there are no hosts\n");
}
