//! A machine that Ironic has provisioned, as a running Metal³ leaves it: a simulated one with a BMC, a used disk without anybody's mark, and the real operator's
//! objects. `tests/scenarios` goes through all states in one process.

use std::path::Path;
use std::time::Duration;

use api::metal3::{BareMetalHost, HardwareData, ProvisioningState as State};
use api::metamorph::MachineRecord;
use e2e::{EmbeddedApi, GPT, Running, Sim, UsedDisk, agent_image, bytes_at, program};
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::process::Command;

const RECORDED: &str = include_str!("../../../scenarios/recorded/baremetal-operator/states.json");
const MACHINE: &str = "node-0";
const HOST: &str = "host";
/// An id as Ironic makes them.
const IRONICS: &str = "5b0c1c9e-52b7-4f0b-9d0a-6a4e0a3a7f21";
const MIB: u64 = 64;

/// Creates an object, and its status, as it was left.
async fn create<K>(api: &Api<K>, mut object: Value)
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    for field in ["uid", "resourceVersion", "generation", "creationTimestamp", "ownerReferences", "namespace"] {
        object["metadata"].as_object_mut().unwrap().remove(field);
    }
    let name = object["metadata"]["name"].as_str().unwrap().to_owned();
    let status = object["status"].take();
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    if !status.is_null() {
        let status = Patch::Merge(json!({ "status": status }));
        api.patch_status(&name, &PatchParams::default(), &status).await.unwrap();
    }
}

/// Stores what upstream's operator left of a provisioned host, for this machine.
async fn left(client: &Client, sim: &Sim) {
    let all: Value = serde_json::from_str(RECORDED).unwrap();
    let found = |kind: &str| {
        all["provisioned"].as_array().unwrap().iter().find(|object| object["kind"] == kind).unwrap().clone()
    };
    let mac = sim.machine(MACHINE)["mac"].clone();
    let hardware = |hardware: &mut Value| {
        hardware["nics"] = json!([{ "name": "eno1", "mac": mac }]);
        hardware["storage"] = json!([{ "name": "/dev/sda", "sizeBytes": MIB << 20 }]);
    };
    let machine = sim.machine(MACHINE);
    let mut secret = found("Secret");
    secret.as_object_mut().unwrap().remove("data");
    secret["stringData"] = json!({ "username": machine["username"], "password": machine["password"] });
    let secrets: Api<Secret> = Api::default_namespaced(client.clone());
    create(&secrets, secret).await;
    let version = secrets.get("bmc").await.unwrap().metadata.resource_version;
    let mut data = found("HardwareData");
    hardware(&mut data["spec"]["hardware"]);
    create::<HardwareData>(&Api::default_namespaced(client.clone()), data).await;
    let mut host = found("BareMetalHost");
    host["spec"]["bmc"]["address"] = json!(sim.address(MACHINE));
    host["spec"]["bootMACAddress"] = mac.clone();
    host["status"]["provisioning"]["ID"] = json!(IRONICS);
    hardware(&mut host["status"]["hardware"]);
    for known in ["goodCredentials", "triedCredentials"] {
        host["status"][known] =
            json!({ "credentials": { "name": "bmc", "namespace": "default" }, "credentialsVersion": version });
    }
    create::<BareMetalHost>(&Api::default_namespaced(client.clone()), host).await;
}

fn operator(folder: &Path, kubeconfig: &Path) -> Running {
    let mut command = Command::new(program("metamorph").unwrap());
    command.arg("operator").arg("--kubeconfig").arg(kubeconfig).arg("--agent-image").arg(agent_image().unwrap());
    command.args(["--namespace", "default", "--media-listen", "127.0.0.1:0", "--agent-listen", "127.0.0.1:0"]);
    command.args(["--health-listen", "127.0.0.1:0", "--allow-address", "127.0.0.0/8", "--power-poll", "1"]);
    Running::start(command, &folder.join("operator.log")).unwrap()
}

async fn wait(client: &Client, operator: &Running, what: &str, wanted: impl Fn(&BareMetalHost) -> bool) {
    let hosts: Api<BareMetalHost> = Api::default_namespaced(client.clone());
    let waited = kube::runtime::wait::await_condition(hosts.clone(), HOST, |host: Option<&BareMetalHost>| {
        host.is_some_and(&wanted)
    });
    if tokio::time::timeout(Duration::from_secs(120), waited).await.is_err() {
        panic!("the host is not {what}: {:?}\n{}", hosts.get(HOST).await.unwrap().status, operator.tail());
    }
}

#[tokio::test]
async fn a_machine_of_ironics_is_taken_over_as_it_runs_and_emptied_when_its_image_goes() {
    let folder = tempfile::tempdir().unwrap();
    let disk = UsedDisk::make(&folder.path().join("disk.raw"), MIB).unwrap();
    let machine = json!({ "id": MACHINE, "kind": "fake", "disks": [disk.config()] });
    let EmbeddedApi { server, client } = EmbeddedApi::start(folder.path()).await.unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, server.admin_kubeconfig()).unwrap();
    let sim = Sim::start(folder.path(), &[machine], false).await.unwrap();
    sim.post(&format!("/machines/{MACHINE}/power"), json!({ "action": "On" })).await.unwrap();
    let before = sim.now(MACHINE).await.unwrap();
    let content = std::fs::read(&disk.path).unwrap();
    left(&client, &sim).await;

    let operator = operator(folder.path(), &kubeconfig);
    let says_so = |host: &BareMetalHost| {
        host.status
            .as_ref()
            .is_some_and(|status| status.conditions.iter().any(|c| c.type_ == "Manageable" && !c.message.is_empty()))
    };
    let records: Api<MachineRecord> = Api::default_namespaced(client.clone());
    let recorded = |record: Option<&MachineRecord>| record.is_some_and(|record| record.spec.bmc.is_some());
    let waited = kube::runtime::wait::await_condition(records, HOST, recorded);
    assert!(tokio::time::timeout(Duration::from_secs(60), waited).await.is_ok(), "{}", operator.tail());
    // And it is looked at again and again.
    let requests = |machine: &Value| machine["counters"]["requests"].as_u64().unwrap();
    let then = requests(&sim.now(MACHINE).await.unwrap());
    let now = sim.wait(MACHINE, 60, "looked at", |machine| requests(machine) > then + 4).await.unwrap();
    for field in ["power", "boots", "medium", "bootOverride"] {
        assert_eq!(now[field], before[field], "{field}: {now}");
    }
    // From here on it is switched as its user asks, and keeps what is on its disk.
    let hosts: Api<BareMetalHost> = Api::default_namespaced(client.clone());
    let off =
        Patch::Merge(json!({ "metadata": { "annotations": { "reboot.metal3.io/hold": "{\"mode\":\"hard\"}" } } }));
    hosts.patch(HOST, &PatchParams::default(), &off).await.unwrap();
    sim.wait(MACHINE, 60, "Off", |m| m["power"] == "Off").await.unwrap();
    let on = Patch::Merge(json!({ "metadata": { "annotations": { "reboot.metal3.io/hold": null } } }));
    hosts.patch(HOST, &PatchParams::default(), &on).await.unwrap();
    sim.wait(MACHINE, 60, "On", |m| m["power"] == "On").await.unwrap();
    wait(&client, &operator, "provisioned and on", |host| {
        says_so(host)
            && host.state() == State::Provisioned
            && host.status.as_ref().is_some_and(|status| status.powered_on)
    })
    .await;
    assert!(std::fs::read(&disk.path).unwrap() == content, "the disk was written to");
    let status = hosts.get(HOST).await.unwrap().status.unwrap();
    assert_eq!((status.error_type, status.provisioning.id.as_str()), (None, IRONICS));

    // What was Ironic's is removed as what was Metamorph's would be.
    let none = Patch::Merge(json!({ "spec": { "image": null } }));
    hosts.patch(HOST, &PatchParams::default(), &none).await.unwrap();
    wait(&client, &operator, "available", |host| host.state() == State::Available).await;
    assert_ne!(bytes_at(&disk.path, 512, GPT.len()).unwrap(), GPT);
}
