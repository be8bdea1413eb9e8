//! `metamorph provision`: what a person does first with it, and what a slip of the pen costs.

use std::process::Stdio;

use e2e::{DiskImage, OneShot, machine, program, tool};
use serde_json::{Value, json};
use tokio::process::Command;

/// `host list --state`.
async fn listed(world: &OneShot, format: &str) -> String {
    let mut command = Command::new(program("metamorph").unwrap());
    let output =
        command.args(["host", "list", "-o", format, "--state"]).arg(world.state()).stdin(Stdio::null()).output();
    let output = output.await.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn hosts_of_a_file_become_as_declared_and_nothing_is_done_twice() {
    let mut with_password = machine("node-0");
    with_password["password"] = json!("sesame-4711");
    let world = OneShot::start(&[with_password]).await.unwrap();
    let image = world.image("disk.raw", DiskImage::small().unwrap());
    let text = world.manifest("node-0", json!({ "image": image, "description": "declared" }));
    let file = world.write("host.yaml", &text).unwrap();
    let (state, log) = (world.state(), world.folder.path().join("up.log"));
    let state = ["--state", state.to_str().unwrap()];

    let first = world.provision(&file, &state).await.unwrap();
    assert_eq!(first.code, Some(0), "{first:?}");
    for part in ["2 new, 0 changed", "inspecting", "provision", "1 of 1 hosts are as declared", "up --data"] {
        assert!(first.out.contains(part), "no {part:?} in {}", first.out);
    }
    for output in [&first.out, &first.err] {
        assert!(!output.contains("sesame") && !output.contains("c2VzYW1l"), "the password is told: {first:?}");
    }
    let after = world.sim.wait("node-0", 30, "booted from its disk", |m| m["running"] == "disk").await.unwrap();
    assert_eq!((&after["boots"], &after["sessions"]), (&json!(2), &json!(0)), "{after}");
    let effects = world.effects("node-0").await.unwrap();
    assert!(effects.iter().any(|effect| effect.contains("Reset")), "nothing is seen of what was done: {effects:?}");

    let asked = after["counters"]["requests"].as_u64();
    let again = world.provision(&file, &state).await.unwrap();
    assert_eq!(again.code, Some(0), "{again:?}");
    assert!(again.out.contains("0 new, 0 changed, 2 as before"), "{}", again.out);
    let now = world.sim.now("node-0").await.unwrap();
    assert!(now["counters"]["requests"].as_u64() > asked, "the machine was not looked at: {now}");
    assert_eq!(world.effects("node-0").await.unwrap(), effects, "the second run did something");

    let table = listed(&world, "text").await;
    assert!(table.contains("default/node-0") && table.contains("provisioned"), "{table}");
    let list: Value = serde_json::from_str(&listed(&world, "json").await).unwrap();
    assert_eq!(list["items"][0]["status"]["provisioning"]["state"], "provisioned", "{list}");

    let asked = world.sim.now("node-0").await.unwrap()["counters"]["requests"].as_u64();
    let mut up = world.up(&log).unwrap();
    up.wait_logged("Metamorph is up", 60).await.unwrap();
    world.sim.wait("node-0", 60, "looked at", |m| m["counters"]["requests"].as_u64() > asked).await.unwrap();
    assert!(listed(&world, "text").await.contains("provisioned"), "a state is shown while somebody works on it");
    let busy = world.provision(&file, &state).await.unwrap();
    assert!(busy.code == Some(4) && busy.err.contains("in use by another server"), "{busy:?}");
    let kubeconfig = world.state().join("kubeconfig").to_string_lossy().into_owned();
    let advice = format!("kubectl --kubeconfig {kubeconfig} apply -f {file}");
    assert!(busy.err.contains(&advice), "no {advice:?} in {}", busy.err);
    // The log beside it says what was found, not what to do.
    let message = busy.err.split_once("error: ").map(|(_, message)| message).unwrap_or_default();
    for fails in ["go on with", "up --data", "choose another folder"] {
        assert!(!message.contains(fails), "advice that fails now: {fails:?} in {message}");
    }
    let edit = [
        "--kubeconfig",
        &kubeconfig,
        "patch",
        "bmh",
        "node-0",
        "--type=merge",
        "-p",
        r#"{"spec":{"description":"edited"}}"#,
    ];
    tool("kubectl", &edit).unwrap();
    up.stop().await.unwrap();
    assert_eq!(world.effects("node-0").await.unwrap(), effects, "`up` on the state did something");
    assert_eq!(world.sim.now("node-0").await.unwrap()["boots"], 2);

    let conflict = world.provision(&file, &state).await.unwrap();
    assert_eq!(conflict.code, Some(2), "{conflict:?}");
    assert!(conflict.err.contains("conflict") && conflict.err.contains("--force-conflicts"), "{}", conflict.err);
    let forced = world.provision(&file, &[state[0], state[1], "--force-conflicts"]).await.unwrap();
    assert!(forced.code == Some(0) && forced.out.contains("1 changed"), "{forced:?}");
    assert_eq!(world.effects("node-0").await.unwrap(), effects, "a description is no work");

    let without = world.manifest("node-0", json!({ "description": "declared" }));
    let removed = world.provision(&world.write("host.yaml", &without).unwrap(), &state).await.unwrap();
    assert_eq!(removed.code, Some(0), "{removed:?}");
    assert!(removed.out.contains("as declared: available"), "{}", removed.out);
}

#[tokio::test]
async fn wrong_manifests_are_all_told_at_once_and_nothing_is_made() {
    let world = OneShot::start(&[machine("node-0")]).await.unwrap();
    let good = world.manifest("node-0", json!({}));
    let bad = format!(
        "{good}---\nkind: [\n---\n{{apiVersion: metal3.io/v1alpha1, kind: PreprovisioningImage, metadata: {{name: d}}, spec: {{}}}}\n---\n\
         {{apiVersion: apps/v1, kind: Deployment, metadata: {{name: d}}}}\n---\n\
         {{apiVersion: metal3.io/v1alpha1, kind: BareMetalHost, metadata: {{name: typo, namespace: elsewhere}}, spec: {{onlin: true}}}}\n---\n\
         {{apiVersion: metal3.io/v1alpha1, kind: BareMetalHost, metadata: {{name: scheme}}, spec: {{online: true, \
         bmc: {{address: 'nonsense://x', credentialsName: node-0-bmc-secret}}}}}}\n---\n\
         {{apiVersion: metal3.io/v1alpha1, kind: BareMetalHost, metadata: {{name: secret}}, spec: {{online: true, \
         bmc: {{address: 'redfish-virtualmedia://192.0.2.1', credentialsName: nobodys}}}}}}\n---\n\
         {{apiVersion: metal3.io/v1alpha1, kind: BareMetalHost, metadata: {{name: digest}}, spec: {{online: true, \
         image: {{url: 'http://192.0.2.9/i.raw', checksum: zz}}}}}}\n---\n\
         {{apiVersion: metal3.io/v1alpha1, kind: BareMetalHost, metadata: {{name: Two_Faults}}, spec: {{online: 7}}}}\n"
    );
    let file = world.write("bad.yaml", &bad).unwrap();
    let state = world.state();
    let ended = world.provision(&file, &["--state", state.to_str().unwrap(), "-o", "json"]).await.unwrap();
    assert_eq!(ended.code, Some(2), "{ended:?}");
    let report: Value = serde_json::from_str(ended.out.trim()).unwrap();
    assert_eq!((&report["verdict"], &report["exitCode"]), (&json!("WrongInput"), &json!(2)), "{report}");
    for (at, part) in [
        ("document 3", "yaml"),
        ("document 4", "does not serve this kind"),
        ("document 5", "is not known here"),
        ("document 6", "onlin"),
        ("document 7", "nonsense"),
        ("document 8", "names Secret default/nobodys, which is neither given nor in the state"),
        ("document 9", "spec.image.checksum is \"zz\""),
        ("document 10", "online"),
        ("document 10", "RFC 1123"),
    ] {
        let errors = report["errors"].as_array().unwrap();
        let text = |error: &Value, field: &str| error[field].as_str().unwrap_or_default().to_owned();
        let found = errors.iter().any(|e| text(e, "source").contains(at) && text(e, "message").contains(part));
        assert!(found && ended.err.contains(part), "{at}: no {part:?} in {report}\n{}", ended.err);
    }
    assert!(!state.exists(), "a state was made");
    assert!(world.temporary().unwrap().is_empty());
    let machine = world.sim.now("node-0").await.unwrap();
    assert_eq!(machine["counters"]["requests"], 0, "the BMC was asked: {machine}");

    for (arguments, says) in [
        (vec!["--wait=false"], "--state"),
        (vec!["--images", "/nonexistent"], "--images"),
        (vec!["--media-listen", "127.0.0.1:7777", "--health-listen", "127.0.0.1:7777"], "same port"),
        (vec!["--timeout", "0"], "--timeout"),
        (vec!["-f", "/nonexistent.yaml"], "/nonexistent.yaml"),
        (vec!["--output", "xml"], "xml"),
    ] {
        let file = world.write("good.yaml", &good).unwrap();
        let ended = world.provision(&file, &arguments).await.unwrap();
        assert!(ended.code == Some(2) && ended.err.contains(says), "{arguments:?}: {ended:?}");
    }
    assert!(world.temporary().unwrap().is_empty());
}
