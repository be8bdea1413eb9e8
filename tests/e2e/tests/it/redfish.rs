//! The simulator is a Redfish service by the judgement of DMTF's Redfish Service Validator, so that clients which please it are not
//! tuned to its mistakes. What is recorded faithfully from real trees and fails all the same stands in a list, with the reason.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use e2e::{ImageServer, Sim, machine};
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

/// A failure as both the list and the validator name it.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
struct Failure {
    resource: String,
    property: String,
}

/// What the validator found at one service.
#[derive(Debug, Deserialize)]
struct Report {
    resources: usize,
    passed: usize,
    failures: Vec<Value>,
}

fn validator() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../redfish/validator")
}

async fn run(program: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    let output = command.args(arguments).env("NO_PROXY", "*").kill_on_drop(true).output().await.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} {arguments:?}: {said}", program.display());
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

async fn validated(python: &Path, sim: &Sim, id: &str, login: &str, folder: &Path) -> Report {
    let machine = sim.machine(id);
    let text = |name: &str| machine[name].as_str().unwrap().to_owned();
    let (address, user, password) = (text("redfish"), text("username"), text("password"));
    let (script, log) = (validator().join("validate.py"), folder.join(format!("{id}.log")));
    let arguments = [
        script.to_str().unwrap(),
        &address,
        &user,
        &password,
        login,
        nv_redfish_schema::REDFISH_CSDL_DIR,
        log.to_str().unwrap(),
    ];
    serde_json::from_str(&run(python, &arguments).await).unwrap()
}

/// A change by a client of the service.
async fn post(sim: &Sim, id: &str, path: &str, body: Value) -> u16 {
    let machine = sim.machine(id);
    let url = format!("{}{path}", machine["redfish"].as_str().unwrap());
    let client = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
    let request = client.post(url).basic_auth(machine["username"].as_str().unwrap(), machine["password"].as_str());
    request.json(&body).send().await.unwrap().status().as_u16()
}

/// Tasks that have ended well and badly, a medium in the drive, a machine that is on.
async fn in_use(sim: &Sim, images: &ImageServer) {
    sim.settings("m", json!({ "asyncActions": true })).await.unwrap();
    let system = "/redfish/v1/Systems/m";
    let reset = format!("{system}/Actions/ComputerSystem.Reset");
    assert_eq!(post(sim, "m", &reset, json!({ "ResetType": "On" })).await, 202);
    sim.wait("m", 30, "on", |machine| machine["power"] == "On").await.unwrap();
    assert_eq!(post(sim, "m", &reset, json!({ "ResetType": "On" })).await, 202);
    sim.settings("m", json!({ "asyncActions": false })).await.unwrap();
    let insert = format!("{system}/VirtualMedia/CD1/Actions/VirtualMedia.InsertMedia");
    let url = images.put("a.iso", vec![0; 1 << 20]);
    assert_eq!(post(sim, "m", &insert, json!({ "Image": url })).await, 204);
}

#[tokio::test]
async fn the_simulator_passes_the_service_validator_but_for_a_list() {
    let folder = TempDir::new().unwrap();
    let python = PathBuf::from(run(&validator().join("build"), &[]).await);
    let mut older = machine("older");
    older["settings"] = json!({ "mediaAt": "manager", "requireIfMatch": true });
    let mut ill = machine("ill");
    ill["manufacturer"] = json!("Dell Inc.");
    let ailments = [
        "psu-lost",
        "power-capped",
        "fan-failed",
        "over-temperature",
        "intrusion",
        "dimm-failed",
        "dimm-missing",
        "uncorrectable-ecc",
        "cpu-failed",
        "drive-failed",
        "controller-failed",
        "nic-link-down",
        "task-failed",
        "log-full",
    ];
    ill["settings"] = json!({ "ailments": ailments });
    let sim = Sim::start(folder.path(), &[machine("m"), older, ill], false).await.unwrap();
    let images = ImageServer::start().await.unwrap();
    in_use(&sim, &images).await;
    let (one, two, three) = tokio::join!(
        validated(&python, &sim, "m", "Session", folder.path()),
        validated(&python, &sim, "older", "Basic", folder.path()),
        validated(&python, &sim, "ill", "Session", folder.path()),
    );
    let known = std::fs::read_to_string(validator().join("known-failures.json")).unwrap();
    let known: BTreeSet<Failure> = serde_json::from_str(&known).unwrap();
    for (id, report) in [("m", one), ("older", two), ("ill", three)] {
        let named: BTreeSet<Failure> =
            report.failures.iter().map(|failure| serde_json::from_value(failure.clone()).unwrap()).collect();
        println!("{id}: {} resources, {} properties passed", report.resources, report.passed);
        assert!(report.resources > 150 && report.passed > 2000, "{id}: the validator has seen {report:?}");
        let new: Vec<&Value> = report
            .failures
            .iter()
            .filter(|failure| !known.contains(&serde_json::from_value((*failure).clone()).unwrap()))
            .collect();
        assert!(new.is_empty(), "{id} fails where the list does not say so: {new:#?}");
        let past: Vec<&Failure> = known.difference(&named).collect();
        assert!(past.is_empty(), "{id} passes where the list says that it fails; take out of the list: {past:#?}");
    }
}
