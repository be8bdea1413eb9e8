//! What is wrong with a simulated machine is found by the evidence that the native provisioner gathers over the network, and by the rules: one row an ailment. And of a machine that is well nothing is
//! found, in few requests.

use std::sync::Arc;

use bmc::{Connector as _, Connectors, Protocol, Target};
use boot_media::{Assets, Manifest};
use diagnosis::{Certainty, Code, Evidence, FailureFacts, FailureType, Verdict, diagnose};
use e2e::Sim;
use inventory::{HardwareDetails, Storage};
use jiff::{SignedDuration, Timestamp};
use provisioner::{BmcAccess, HostContext, HostFacts, Provisioner as _};
use provisioner_kit::{MemoryHistory, MemoryMachine, MemoryRecord};
use provisioner_metamorph::{Bases, Key, KeyRing, MediaCertificates, NativeProvisioner, Settings, Timing};
use redfish::{RedfishConnector, Trust};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Requests that a look at a machine that is well may cost.
const MOST_REQUESTS: u64 = 40;

struct Lab {
    sim: Sim,
    _folder: TempDir,
}

/// A provisioner that reaches BMCs on this machine, with an agent image that nothing boots.
fn server() -> (NativeProvisioner, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    for name in ["vmlinuz", "initramfs", "shimx64.efi", "gcdx64.efi"] {
        std::fs::write(folder.path().join(name), vec![1; 5000]).unwrap();
    }
    let manifest = Manifest::describe(folder.path(), "6.1.0", "0.1.0").unwrap();
    std::fs::write(folder.path().join("manifest.json"), manifest.to_json().unwrap()).unwrap();
    let settings = Settings {
        bases: Bases {
            media: vec!["http://127.0.0.1:6180".into()],
            agents: vec!["https://127.0.0.1:6385".into()],
            images: None,
        },
        networks: Vec::new(),
        media_certificates: MediaCertificates::default(),
        keys: KeyRing::new(
            Key { number: 1, secret: [7; 32], certificate_sha256: "00".repeat(32), certificate_pem: String::new() },
            vec![],
        ),
        image_authorities: Default::default(),
        kernel_arguments: String::new(),
        allowed: addresses::Allowed::loopback(),
        registries: Default::default(),
        may_act: Arc::new(|| true),
        provisioning_limit: 1,
        timing: Timing::default(),
        other_masters: Vec::new(),
    };
    let connectors = Connectors::new().with(Protocol::Redfish, connector());
    (NativeProvisioner::new(settings, Assets::open(folder.path()).unwrap().into(), connectors), folder)
}

fn connector() -> RedfishConnector {
    RedfishConnector::new("e2e".to_owned(), Trust::default()).allowing(addresses::Allowed::loopback())
}

impl Lab {
    async fn new(manufacturer: Option<&str>) -> Self {
        let disk = json!({ "sizeBytes": 1_u64 << 30 });
        let mut machine = json!({ "id": "m", "kind": "fake", "disks": [disk, disk] });
        if let Some(manufacturer) = manufacturer {
            machine["manufacturer"] = json!(manufacturer);
        }
        Self::of(&machine, false).await
    }

    async fn of(machine: &Value, tls: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let sim = Sim::start(folder.path(), std::slice::from_ref(machine), tls).await.unwrap();
        Self { sim, _folder: folder }
    }

    async fn ail(&self, ailments: &[&str]) {
        self.sim.settings("m", json!({ "ailments": ailments })).await.unwrap();
    }

    fn access(&self, password: &str) -> BmcAccess {
        let username = self.sim.machine("m")["username"].as_str().unwrap().to_owned();
        let password = password.to_owned().into();
        BmcAccess { address: self.sim.address("m"), username, password, disable_certificate_verification: false }
    }

    fn password(&self) -> String {
        self.sim.machine("m")["password"].as_str().unwrap().to_owned()
    }

    /// What the provisioner gathers for a host that it has never reached, and what the rules say of it.
    async fn look_as(
        &self,
        password: &str,
        hardware: Option<HardwareDetails>,
        failure: &Failed,
    ) -> (Evidence, Verdict) {
        // What was refused is remembered, and so are failed calls: each look is a new server's.
        let (server, _image) = server();
        let context = HostContext {
            facts: Arc::new(HostFacts {
                address: self.sim.address("m"),
                hardware: hardware.map(Arc::new),
                ..HostFacts::default()
            }),
            bmc: Some(self.access(password)),
            record: Arc::<MemoryRecord>::default(),
            history: Arc::<MemoryHistory>::default(),
            machine: Arc::<MemoryMachine>::default(),
            now: Arc::new(Timestamp::now),
            may_act: Arc::new(|| true),
        };
        let mut host = server.host(context).unwrap();
        let asked = host.diagnose().unwrap().evidence(provisioner::EvidenceBudget::default());
        let provisioner::Verdict::Done(evidence) = asked.await.unwrap() else { panic!("it has not ended") };
        judged(*evidence, failure)
    }

    async fn look(&self, failure: &Failed) -> (Evidence, Verdict) {
        self.look_as(&self.password(), None, failure).await
    }

    async fn power(&self, action: &str) {
        self.sim.post("/machines/m/power", json!({ "action": action })).await.unwrap();
    }
}

/// What the host says.
struct Failed(FailureType, &'static str);

const REGISTRATION: Failed = Failed(FailureType::Registration, "registering");
const INSPECTION: Failed = Failed(FailureType::Inspection, "inspecting");
const PROVISIONING: Failed = Failed(FailureType::Provisioning, "provisioning");
const PREPARATION: Failed = Failed(FailureType::Preparation, "preparing");
const POWER: Failed = Failed(FailureType::PowerManagement, "provisioned");

fn judged(mut evidence: Evidence, failure: &Failed) -> (Evidence, Verdict) {
    let now = evidence.taken.unwrap();
    evidence.failure = Some(FailureFacts {
        kind: failure.0,
        state: failure.1.to_owned(),
        last_good: Some(now - SignedDuration::from_hours(1)),
        since: Some(now),
        ..FailureFacts::default()
    });
    let verdict = diagnose(&evidence);
    (evidence, verdict)
}

/// A row of the fault matrix (`tests/scenarios/tests/faults.toml`) that is read over sockets, too: what is wrong, and what has to come first.
#[derive(serde::Deserialize)]
struct Row {
    id: String,
    phase: String,
    #[serde(default)]
    settings: Value,
    #[serde(default)]
    rules: Vec<Value>,
    code: String,
    fixer: String,
    #[serde(default)]
    component: String,
    advice: String,
    #[serde(default)]
    sockets: bool,
}

fn rows() -> Vec<Row> {
    #[derive(serde::Deserialize)]
    struct Matrix {
        fault: Vec<Row>,
    }
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios/tests/faults.toml")).unwrap();
    let matrix: Matrix = toml::from_str(&text).unwrap();
    matrix.fault.into_iter().filter(|row| row.sockets).collect()
}

#[tokio::test]
async fn each_fault_is_the_first_cause_of_what_it_breaks() {
    let lab = Lab::new(None).await;
    let rows = rows();
    assert!(rows.len() >= 12, "{} rows", rows.len());
    let mut wrong = Vec::new();
    for row in rows {
        let failure = match row.phase.as_str() {
            "registration" => &REGISTRATION,
            "inspection" => &INSPECTION,
            "preparation" => &PREPARATION,
            "provisioning" => &PROVISIONING,
            "power" => &POWER,
            other => panic!("no phase {other}"),
        };
        // The machine is started where it is its start that does not end.
        let on = row.code.starts_with("StuckIn");
        lab.sim.settings("m", row.settings.clone()).await.unwrap();
        for rule in &row.rules {
            let rule = rule.to_string().replace("{id}", "m");
            lab.sim.post("/machines/m/faults", serde_json::from_str(&rule).unwrap()).await.unwrap();
        }
        if on {
            // Its orders are followed, whatever the row has them do.
            lab.power("On").await;
        }
        let (evidence, verdict) = lab.look(failure).await;
        let found = verdict.first().map(|first| {
            let part = first.component.as_ref().map(|part| format!("{:?} {}", part.kind, part.slot));
            (first.code.as_str(), first.fixer.as_str(), part.unwrap_or_default(), first.advice.contains(&row.advice))
        });
        if found != Some((row.code.as_str(), row.fixer.as_str(), row.component.clone(), true)) {
            wrong.push(format!("{}: {:?}; skipped {:?}", row.id, verdict.first(), evidence.skipped));
        }
        if on {
            lab.power("ForceOff").await;
        }
        // The same failure of a machine that is well has another cause, or none.
        lab.sim.settings("m", json!({ "ailments": [], "powerStuck": false })).await.unwrap();
        lab.sim.clear_faults("m").await.unwrap();
        let (_, verdict) = lab.look(failure).await;
        if verdict.first().is_some_and(|cause| cause.code.as_str() == row.code) {
            wrong.push(format!("{}: {} is found where it is not", row.id, row.code));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn of_a_machine_that_is_well_nothing_is_found_in_few_requests_that_change_nothing() {
    for manufacturer in [None, Some("Dell Inc."), Some("HPE"), Some("Supermicro")] {
        let lab = Lab::new(manufacturer).await;
        let before = lab.sim.now("m").await.unwrap()["counters"]["requests"].as_u64().unwrap();
        let (evidence, verdict) = lab.look(&INSPECTION).await;
        let log = lab.sim.get("/machines/m/requests").await.unwrap();
        let requests = log["requests"].as_array().unwrap();
        let lines: Vec<String> =
            requests.iter().map(|one| format!("{} {} {}", one["method"], one["path"], one["status"])).collect();
        let counted = lab.sim.now("m").await.unwrap()["counters"]["requests"].as_u64().unwrap() - before;
        println!("{manufacturer:?}: {counted} requests, {:?}\n  {}", evidence.spent, lines.join("\n  "));
        assert!(verdict.first().is_none(), "{:?}", verdict.first());
        // One signs in, and one out.
        assert!(counted <= MOST_REQUESTS, "{counted} requests:\n{}", lines.join("\n"));
        let changing: Vec<&String> = lines.iter().filter(|line| !line.starts_with("\"GET\"")).collect();
        assert_eq!(changing.len(), 2, "the session alone: {changing:?}");
        assert!(evidence.parts.read().unwrap().len() > 12, "{:?}", evidence.parts);
        assert!(evidence.logs.read().is_some() && evidence.tasks.read().is_some() && evidence.media.read().is_some());
        assert_eq!(lab.sim.now("m").await.unwrap()["sessions"], 0);
    }
}

#[tokio::test]
async fn old_noise_in_the_log_is_no_cause_and_a_hostile_log_costs_its_budget_alone() {
    let lab = Lab::new(None).await;
    lab.ail(&["correctable-ecc-noise"]).await;
    let (evidence, verdict) = lab.look(&INSPECTION).await;
    assert_eq!(evidence.logs.read().unwrap().entries.len(), 65, "with the one of the BMC's own log");
    assert!(verdict.first().is_none(), "{:?}", verdict.first());
    lab.ail(&["correctable-ecc-noise", "nic-link-down"]).await;
    let (_, verdict) = lab.look(&INSPECTION).await;
    assert_eq!(verdict.first().map(|cause| cause.code), Some(Code::LinkDown));
    for hostile in ["log-loop", "log-100k", "log-escapes", "log-long-message"] {
        lab.ail(&[hostile, "dimm-failed"]).await;
        let (evidence, verdict) = lab.look(&INSPECTION).await;
        assert_eq!(verdict.first().map(|cause| cause.code), Some(Code::MemoryFailed), "{hostile}");
        let text = serde_json::to_string(&(&evidence, &verdict)).unwrap();
        assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}') && text.len() < 1 << 20, "{hostile}");
        assert!(evidence.spent.calls <= 40 && evidence.spent.bytes < 16 << 20, "{hostile}: {:?}", evidence.spent);
    }
}

#[tokio::test]
async fn makers_logs_are_read_with_their_advice() {
    let dell = Lab::new(Some("Dell Inc.")).await;
    dell.ail(&["psu-input-lost"]).await;
    let (evidence, verdict) = dell.look(&POWER).await;
    let first = verdict.first().unwrap();
    assert_eq!((first.code, first.certainty), (Code::PowerInputLost, Certainty::Certain));
    let logs = evidence.logs.read().unwrap();
    assert!(logs.registry["IDRAC.2.8.PSU0003"].resolution.as_ref().unwrap().contains("power cord"));
    let text = serde_json::to_string(&evidence).unwrap();
    assert!(!text.contains("192.0.2.77"), "who has signed in, and from where, is nobody's business");
    dell.ail(&["drive-foreign"]).await;
    let (_, verdict) = dell.look(&PROVISIONING).await;
    assert_eq!(verdict.first().map(|cause| cause.code), Some(Code::DriveForeign));
    let hpe = Lab::new(Some("HPE")).await;
    hpe.ail(&["dimm-failed"]).await;
    let (evidence, verdict) = hpe.look(&INSPECTION).await;
    assert_eq!(verdict.first().map(|cause| cause.code), Some(Code::MemoryFailed));
    let entry = &evidence.logs.read().unwrap().entries[0];
    assert_eq!((entry.log.as_str(), entry.resolved), ("IML", Some(false)));
    assert!(entry.resolution.is_some());
}

#[tokio::test]
async fn the_way_to_the_bmc_is_judged_without_a_session() {
    let lab = Lab::new(None).await;
    let (_, verdict) = lab.look_as("wrong", None, &REGISTRATION).await;
    assert_eq!(verdict.first().map(|cause| cause.code), Some(Code::CredentialsWrong));
    lab.sim.settings("m", json!({ "refuse": true })).await.unwrap();
    let (evidence, verdict) = lab.look(&REGISTRATION).await;
    assert_eq!(verdict.first().map(|cause| cause.code), Some(Code::BmcConnectionRefused));
    assert_eq!(evidence.spent.calls, 1);
    // A certificate that nobody has told this server of.
    let tls = Lab::of(&json!({ "id": "m", "kind": "fake" }), true).await;
    let (evidence, verdict) = tls.look(&REGISTRATION).await;
    assert_eq!(verdict.first().map(|cause| cause.code), Some(Code::BmcAuthorityUnknown));
    let shown = evidence.access.read().unwrap().certificate.read().unwrap().clone();
    assert!(shown.not_after > shown.not_before && shown.sha256.len() == 64, "{shown:?}");
}

#[tokio::test]
async fn why_a_medium_was_refused_is_told_with_its_drive() {
    let lab = Lab::new(None).await;
    let url = "http://127.0.0.1:9/s3cret-medium.iso".to_owned();
    for (ailment, code) in
        [("media-unreachable", Code::MediaUnreachable), ("media-certificate", Code::MediaCertificateRefused)]
    {
        lab.ail(&[ailment]).await;
        let access = lab.access(&lab.password());
        let target = Target::parse(&access.address, &access.username, access.password.clone()).unwrap();
        let bmc = connector().connect(target).unwrap();
        bmc.begin(&[]).await.unwrap();
        bmc.virtual_media().unwrap().insert(std::slice::from_ref(&url), None).await.unwrap_err();
        let look = bmc::EvidenceBudget::at(Timestamp::now());
        let (evidence, verdict) = judged(bmc.diagnostics().unwrap().evidence(&look).await, &INSPECTION);
        assert_eq!(verdict.first().map(|cause| cause.code), Some(code), "{:?}", evidence.media);
        assert!(!serde_json::to_string(&evidence).unwrap().contains("s3cret"));
        bmc.close().await;
    }
}

#[tokio::test]
async fn a_clock_at_its_epoch_is_seen_and_its_log_is_of_no_known_time() {
    let lab = Lab::new(None).await;
    lab.ail(&["clock-1970", "fan-failed"]).await;
    let (evidence, verdict) = lab.look(&REGISTRATION).await;
    assert!(evidence.manager.read().unwrap().clock_skew_seconds.unwrap() < -1_000_000_000);
    assert!(verdict.causes.iter().any(|cause| cause.code == Code::BmcClockWrong), "{:?}", verdict.causes);
}

#[tokio::test]
async fn a_disk_that_is_gone_is_missed_by_what_the_host_had() {
    let lab = Lab::new(None).await;
    let machine = lab.sim.machine("m");
    let serials = machine["diskSerials"].as_array().unwrap();
    let disk = |serial: &Value| Storage { serial_number: serial.as_str().map(str::to_owned), ..Storage::default() };
    let had = HardwareDetails { storage: serials.iter().map(disk).collect(), ..HardwareDetails::default() };
    let (evidence, verdict) = lab.look_as(&lab.password(), Some(had.clone()), &PROVISIONING).await;
    assert!(evidence.differences.read().unwrap().is_empty() && verdict.first().is_none(), "{:?}", verdict.first());
    lab.ail(&["drive-missing"]).await;
    let (_, verdict) = lab.look_as(&lab.password(), Some(had), &PROVISIONING).await;
    assert_eq!(verdict.first().map(|cause| cause.code), Some(Code::DriveMissing));
    let is_it = |cause: &diagnosis::Cause| {
        let serial = cause.component.as_ref().and_then(|part| part.serial.as_deref());
        cause.code == Code::DriveMissing && !cause.background && serial == serials[0].as_str()
    };
    assert!(verdict.causes.iter().any(is_it), "{:?}", verdict.causes);
}
