//! `metamorph provision` where something goes wrong: killed, told to stop, machines that fail.

use std::time::Duration;

use e2e::{Behaviour, DiskImage, OneShot, machine};
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

/// One machine, and a file that declares it with an image.
async fn one() -> (OneShot, String) {
    let world = OneShot::start(&[machine("node-0")]).await.unwrap();
    let image = world.image("disk.raw", DiskImage::small().unwrap());
    let file = world.write("host.yaml", &world.manifest("node-0", json!({ "image": image }))).unwrap();
    (world, file)
}

/// The last line of JSON that a run has written.
fn last(out: &str) -> Value {
    let line = out.lines().last().unwrap_or_default();
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {out}"))
}

#[tokio::test]
async fn a_run_that_was_killed_is_gone_on_with() {
    let (world, file) = one().await;
    let (state, log) = (world.state(), world.folder.path().join("run.log"));
    let state = ["--state", state.to_str().unwrap()];
    world.images.set("disk.raw", Behaviour::Stalled);
    let mut run = world.begin(&file, &state, &world.folder.path().join("out"), &log).unwrap();
    world.images.wait_stalled("disk.raw", 1).await.unwrap();
    run.kill().await.unwrap();
    world.images.set("disk.raw", Behaviour::Good);

    let ended = world.provision(&file, &state).await.unwrap();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.out.contains("2 as before"), "{}", ended.out);
    let machine = world.sim.wait("node-0", 30, "booted from its disk", |m| m["running"] == "disk").await.unwrap();
    assert_eq!(machine["sessions"], 0, "the killed run's session is left: {machine}");
    assert_eq!(machine["boots"], 2, "the agent was booted once: {machine}");
}

#[tokio::test]
async fn a_run_that_is_told_to_stop_says_how_to_go_on() {
    let (world, file) = one().await;
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let (out, log) = (world.folder.path().join("out"), world.folder.path().join(format!("run-{code}.log")));
        world.images.set("disk.raw", Behaviour::Stalled);
        let stalled = world.images.requests("disk.raw");
        let state = world.state();
        let arguments = ["--state", state.to_str().unwrap(), "-o", "json"];
        let mut run = world.begin(&file, &arguments, &out, &log).unwrap();
        // The second run finds the agent at work with the first one's download.
        if stalled == 0 {
            world.images.wait_stalled("disk.raw", 1).await.unwrap();
        } else {
            run.wait_logged("the BareMetalHosts are watched", 60).await.unwrap();
        }
        kill_process(run.pid().unwrap(), signal).unwrap();
        let status = run.ended(Duration::from_secs(60)).await.unwrap();
        assert_eq!(status.code(), Some(code), "{}", run.tail());
        let machine = world.sim.now("node-0").await.unwrap();
        assert_eq!(machine["sessions"], 0, "a session is left: {machine}");
        let result = last(&std::fs::read_to_string(&out).unwrap());
        assert_eq!((&result["type"], &result["exitCode"]), (&json!("result"), &json!(code)), "{result}");
        assert_eq!(result["state"], state.to_str().unwrap(), "{result}");
        assert_eq!(result["hosts"][0]["result"], "NotYet", "{result}");
    }
    world.images.set("disk.raw", Behaviour::Good);
    let ended = world.provision(&file, &["--state", world.state().to_str().unwrap()]).await.unwrap();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(world.sim.now("node-0").await.unwrap()["boots"], 2);
}

#[tokio::test]
async fn a_host_that_needs_a_change_fails_the_run_and_keeps_no_other_from_its_end() {
    let password = "the-right-one";
    let mut other = machine("node-1");
    other["password"] = json!(password);
    let world = OneShot::start(&[machine("node-0"), other]).await.unwrap();
    let (well, right) = (world.manifest("node-0", json!({})), world.manifest("node-1", json!({})));
    let wrong = right.replace(password, "not-this-one");
    assert_ne!(wrong, right);
    let file = world.write("hosts.yaml", &format!("{well}{wrong}")).unwrap();
    let ended = world.provision(&file, &["--timeout", "150"]).await.unwrap();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    for part in ["default/node-0", "as declared: available", "needs a change: registration error", "1 of 2 hosts"] {
        assert!(ended.out.contains(part), "no {part:?} in {}", ended.out);
    }
    assert!(!ended.out.contains("not-this-one") && !ended.err.contains("not-this-one"), "{ended:?}");
    let kept = world.temporary().unwrap();
    assert_eq!(kept.len(), 1, "{kept:?}");
    let kept = kept[0].to_str().unwrap();
    assert!(ended.out.contains(&format!("--state {kept}")), "{}", ended.out);

    let file = world.write("hosts.yaml", &format!("{well}{right}")).unwrap();
    let ended = world.provision(&file, &["--state", kept]).await.unwrap();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.out.contains("2 of 2 hosts"), "{}", ended.out);
}

#[tokio::test]
async fn what_an_image_server_refuses_for_good_ends_the_run() {
    let (world, file) = one().await;
    world.images.set("disk.raw", Behaviour::Missing);
    let state = world.state();
    let state = ["--state", state.to_str().unwrap()];
    let ended = world.provision(&file, &[&state[..], &["--timeout", "120"]].concat()).await.unwrap();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    for part in ["needs a change: provisioning error", "404", "spec.image.url"] {
        assert!(ended.out.contains(part), "no {part:?} in {}", ended.out);
    }
    // Its list of digests has another image only.
    world.images.set("disk.raw", Behaviour::Good);
    let mut image = world.image("disk.raw", DiskImage::small().unwrap());
    image["checksum"] = json!(world.images.put("SHA256SUMS", format!("{}  other.raw\n", "0".repeat(64)).into_bytes()));
    let file = world.write("host.yaml", &world.manifest("node-0", json!({ "image": image }))).unwrap();
    let ended = world.provision(&file, &[&state[..], &["--timeout", "120"]].concat()).await.unwrap();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.out.contains("names no") && ended.out.contains("spec.image.checksum"), "{}", ended.out);
}

#[tokio::test]
async fn what_may_go_away_is_tried_until_the_time_is_over_and_at_once_by_the_next_run() {
    let (world, file) = one().await;
    let fault = json!({ "path": "*", "action": { "type": "status", "status": 503 } });
    world.sim.post("/machines/node-0/faults", fault).await.unwrap();
    let state = world.state();
    let state = state.to_str().unwrap();
    // The back-off's unit is long: only that a run tries anew at once brings the second one to its end.
    let slow = ["--state", state, "--retry-after", "3000"];
    let ended = world.provision(&file, &[&slow[..], &["--timeout", "30"]].concat()).await.unwrap();
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(ended.out.contains("not yet: registration error") && ended.out.contains("30 s is over"), "{}", ended.out);

    // A run whose attempt takes longer than the run: it was made at once, and what is told of the failure before is still when that was.
    let failed = world.listed().await.unwrap();
    assert!(failed["errorType"].is_string() && failed["lastUpdated"].is_string(), "{failed}");
    world.sim.clear_faults("node-0").await.unwrap();
    let fault = json!({ "path": "*", "action": { "type": "delay", "ms": 30_000 } });
    world.sim.post("/machines/node-0/faults", fault).await.unwrap();
    let asked = world.sim.now("node-0").await.unwrap()["counters"]["requests"].as_u64();
    let ended = world.provision(&file, &[&slow[..], &["--timeout", "3"]].concat()).await.unwrap();
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(world.sim.now("node-0").await.unwrap()["counters"]["requests"].as_u64() > asked, "it was not tried");
    assert_eq!(world.listed().await.unwrap()["lastUpdated"], failed["lastUpdated"]);

    world.sim.clear_faults("node-0").await.unwrap();
    let ended = world.provision(&file, &slow).await.unwrap();
    assert_eq!(ended.code, Some(0), "{ended:?}");

    let other = world.write("other.yaml", &world.manifest("node-0", json!({})).replace("node-0", "node-9")).unwrap();
    let ended = world.provision(&other, &["--state", state, "--wait=false"]).await.unwrap();
    assert!(
        ended.code == Some(0) && ended.out.contains("default/node-0 is in the state and in no manifest"),
        "{ended:?}"
    );
}

#[tokio::test]
async fn a_temporary_state_goes_when_all_went_well() {
    let world = OneShot::start(&[machine("node-0")]).await.unwrap();
    let file = world.write("host.json", &world.manifest("node-0", json!({ "online": false }))).unwrap();
    let ended = world.provision(&file, &["-o", "json"]).await.unwrap();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let result = last(&ended.out);
    assert_eq!((&result["verdict"], &result["state"]), (&json!("AsDeclared"), &Value::Null), "{result}");
    assert_eq!((&result["hosts"][0]["state"], &result["hosts"][0]["poweredOn"]), (&json!("available"), &json!(false)));
    let lines: Vec<Value> = ended.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().any(|line| line["type"] == "host" && line["state"] == "inspecting"), "{}", ended.out);
    assert!(world.temporary().unwrap().is_empty());
    assert_eq!(world.sim.now("node-0").await.unwrap()["power"], "Off");
}
