//! What BMCs tell by themselves, over sockets: streams of all sorts at the client, and the way of an event to the host's condition in a whole server.

use std::sync::Arc;
use std::time::Duration;

use api::metal3::{BareMetalHost, ProvisioningState, annotation};
use bmc::{Alert, Bmc, BmcError, Connector as _, ErrorKind, EventStream, HealthLevel, Target};
use e2e::{Options, Sim, World, machine};
use redfish::{RedfishConnector, Trust};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Longest wait.
const PATIENCE: u64 = 120;

async fn lab() -> (Sim, Arc<dyn Bmc>, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let sim = Sim::start(folder.path(), &[machine("m")], true).await.unwrap();
    let connector = RedfishConnector::new("e2e".to_owned(), Trust::default()).allowing(addresses::Allowed::loopback());
    let text = |name: &str| sim.machine("m")[name].as_str().unwrap().to_owned();
    let target = Target::parse(&sim.address("m"), &text("username"), text("password").into()).unwrap();
    let bmc = connector.connect(Target { accept_any_certificate: true, ..target }).unwrap();
    bmc.begin(&[]).await.unwrap();
    (sim, bmc, folder)
}

/// The next event of the stream, or its end.
async fn next(stream: &mut Box<dyn EventStream>) -> Result<Alert, BmcError> {
    let heard = async {
        loop {
            if let Some(alert) = stream.next().await? {
                return Ok(alert);
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(PATIENCE), heard).await.expect("the stream says something")
}

async fn listen(bmc: &Arc<dyn Bmc>) -> Result<Box<dyn EventStream>, BmcError> {
    bmc.events().unwrap().listen().await
}

async fn tell(sim: &Sim, what: Value) {
    sim.post("/machines/m/tell", what).await.unwrap();
}

fn event(severity: &str) -> Value {
    json!({ "events": [{ "MessageSeverity": severity, "MessageId": "X.1.0.Y" }] })
}

/// Why the stream ends when this is told.
async fn ends(sim: &Sim, bmc: &Arc<dyn Bmc>, what: Value) -> ErrorKind {
    let mut stream = listen(bmc).await.unwrap();
    tell(sim, what).await;
    next(&mut stream).await.expect_err("the stream has ended").kind
}

#[tokio::test]
async fn a_stream_tells_what_happens_beside_all_other_calls_and_ends_where_it_is_none() {
    let (sim, bmc, _folder) = lab().await;
    let mut stream = listen(&bmc).await.unwrap();
    sim.wait("m", PATIENCE, "listened to", |m| m["streams"]["open"] == 1).await.unwrap();
    for (ailments, severity) in [(json!(["psu-lost"]), HealthLevel::Critical), (json!([]), HealthLevel::OK)] {
        sim.settings("m", json!({ "ailments": ailments })).await.unwrap();
        assert_eq!(next(&mut stream).await.unwrap().severity, severity);
    }
    // It keeps nobody from a turn, and needs no session of its own.
    bmc.look().await.unwrap();
    assert_eq!(sim.now("m").await.unwrap()["sessions"], 1);
    // What cannot be read is passed over.
    tell(&sim, json!({ "text": ": alive\n\ndata: {broken\n\ndata: [1]\n\nid: 7\nretry: 1\n\n", "times": 5 })).await;
    tell(&sim, event("Warning")).await;
    assert_eq!(next(&mut stream).await.unwrap().severity, HealthLevel::Warning);
    // A flood is slow, and others are not.
    let Value::Object(mut flood) = event("Critical") else { panic!("it is an object") };
    flood.insert("times".to_owned(), json!(20_000));
    tell(&sim, Value::Object(flood)).await;
    for _ in 0..5 {
        assert_eq!(next(&mut stream).await.unwrap().severity, HealthLevel::Critical);
        bmc.look().await.unwrap();
    }
    drop(stream);
    let long = |text: &str, times: u32| json!({ "text": text, "times": times });
    for (what, kind) in [
        (long(&"x".repeat(70_000), 1), ErrorKind::Protocol),
        (long(&format!("data: {}\n", "1,".repeat(20_000)), 4), ErrorKind::Protocol),
        (long("data: <html>\n\n", 40), ErrorKind::Protocol),
    ] {
        assert_eq!(ends(&sim, &bmc, what).await, kind);
    }
    let mut stream = listen(&bmc).await.unwrap();
    sim.cut_streams("m").await.unwrap();
    assert_eq!(next(&mut stream).await.unwrap_err().kind, ErrorKind::Unreachable);
    for (action, kind) in [
        (json!({ "type": "status", "status": 503 }), ErrorKind::Busy { status: 503 }),
        (json!({ "type": "status", "status": 405 }), ErrorKind::Rejected { status: 405 }),
        (json!({ "type": "drop" }), ErrorKind::Unreachable),
        (json!({ "type": "answer", "status": 200, "body": {} }), ErrorKind::NotFound),
    ] {
        let rule = json!({ "method": "GET", "path": "*/EventService/SSE", "action": action });
        sim.post("/machines/m/faults", rule).await.unwrap();
        assert_eq!(listen(&bmc).await.err().unwrap().kind, kind, "{action}");
        sim.clear_faults("m").await.unwrap();
    }
    sim.settings("m", json!({ "events": "subscriptions" })).await.unwrap();
    assert_eq!(listen(&bmc).await.err().unwrap().kind, ErrorKind::Unsupported);
    bmc.close().await;
}

fn healthy(host: &BareMetalHost) -> (&str, &str) {
    let conditions = host.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let found = conditions.iter().find(|condition| condition.type_ == "Healthy");
    found.map(|found| (found.reason.as_str(), found.message.as_str())).unwrap_or_default()
}

/// The machines are others', so that nothing is done to them.
async fn taken_in(world: &World, id: &str) {
    world.apply_host(id, json!({ "externallyProvisioned": true })).await.unwrap();
    world.wait_state(id, PATIENCE, ProvisioningState::ExternallyProvisioned).await.unwrap();
    world.wait(id, PATIENCE, "well", |host| healthy(host).0 == "Healthy").await.unwrap();
    // It is listened to from its first look at rest on, which would be within a minute.
    world.annotate(id, "example.org/look=now").await.unwrap();
}

async fn is_told(world: &World, id: &str, ailments: Value, reason: &str) -> BareMetalHost {
    world.sim.settings(id, json!({ "ailments": ailments })).await.unwrap();
    // Without the event it is found within five minutes.
    world.wait(id, PATIENCE, reason, |host| healthy(host).0 == reason).await.unwrap()
}

#[tokio::test]
async fn an_event_is_at_the_host_by_stream_and_by_subscription_and_where_detection_is_off_nobody_listens() {
    let names = ["node-0", "node-1", "node-2", "node-3"];
    let machines = names.map(machine).to_vec();
    let options = Options { machines, ..Options::one_fake() }.with(&["--error-detect", "native"]);
    let mut world = World::start(options).await.unwrap();
    world.sim.settings("node-1", json!({ "events": "subscriptions" })).await.unwrap();
    world.sim.settings("node-2", json!({ "events": "none" })).await.unwrap();
    for id in names {
        taken_in(&world, id).await;
    }
    let heard = |machine: &Value| (machine["streams"]["open"].clone(), machine["subscriptions"].clone());
    world.sim.wait("node-0", PATIENCE, "streaming", |m| heard(m) == (json!(1), json!(0))).await.unwrap();
    world.sim.wait("node-1", PATIENCE, "subscribed to", |m| heard(m) == (json!(0), json!(1))).await.unwrap();
    world.sim.wait("node-3", PATIENCE, "streaming", |m| heard(m) == (json!(1), json!(0))).await.unwrap();
    world.kubectl(&["label", "bmh", "node-3", "error-detect=false"], "").await.unwrap();
    world.sim.settings("node-3", json!({ "ailments": ["fan-failed"] })).await.unwrap();
    for id in ["node-0", "node-1"] {
        is_told(&world, id, json!(["psu-lost"]), "CriticalError").await;
        // The cause follows, and the HostDiagnosis has it.
        let named = |host: &BareMetalHost| healthy(host).1.contains("power supply has failed");
        let host = world.wait(id, PATIENCE, "diagnosed", named).await.unwrap();
        assert!(host.metadata.annotations.unwrap().contains_key(annotation::DIAGNOSIS));
    }
    // Another server: the stream is opened again, and the subscription is the same.
    world.restart_with(&[]).await.unwrap();
    world.sim.wait("node-0", PATIENCE, "streaming", |m| m["streams"]["opened"] == 2).await.unwrap();
    for id in ["node-0", "node-1"] {
        let host = is_told(&world, id, json!([]), "Healthy").await;
        assert!(!healthy(&host).1.contains("power supply"));
    }
    let found = world.sim.get("/machines/node-1/subscriptions").await.unwrap();
    assert_eq!(found["subscriptions"].as_array().unwrap().len(), 1, "{found}");
    let neither = world.sim.now("node-2").await.unwrap();
    assert_eq!(heard(&neither), (json!(0), json!(0)));
    let off = world.sim.now("node-3").await.unwrap();
    assert_eq!(
        (&off["streams"]["opened"], &off["subscriptions"]),
        (&json!(1), &json!(0)),
        "after the restart nobody listens"
    );
    world.delete("node-1").await.unwrap();
    assert_eq!(world.sim.now("node-1").await.unwrap()["subscriptions"], 0);
}
