//! Faults, set at run time over the control API.

use crate::kit::{self, Images, Lab, SYSTEM, path};
use reqwest::Method;
use serde_json::{Value, json};

async fn fault(lab: &Lab, rule: Value) {
    lab.control(Method::POST, "/machines/m/faults", rule).await;
}

#[tokio::test]
async fn a_bmc_refuses_connections_and_comes_back_on_its_port() {
    let lab = Lab::fake("exit 0").await;
    let client = kit::client();
    let url = format!("{}/redfish/v1/", lab.simulator.redfish_url("m").unwrap());
    assert_eq!(client.get(&url).send().await.unwrap().status(), 200);
    for _ in 0..3 {
        lab.control(Method::PATCH, "/machines/m/settings", json!({ "refuse": true })).await;
        // Neither a new connection nor the one that was kept open gets an answer.
        assert!(client.get(&url).send().await.unwrap_err().is_connect());
        assert!(lab.send(lab.bare(Method::GET, "/redfish/v1/")).await.unwrap_err().is_connect());
        lab.control(Method::PATCH, "/machines/m/settings", json!({ "refuse": false })).await;
        assert_eq!(client.get(&url).send().await.unwrap().status(), 200);
    }
}

#[tokio::test]
async fn answers_fail_as_often_as_asked_for() {
    let lab = Lab::fake("exit 0").await;
    fault(
        &lab,
        json!({ "method": "GET", "path": "*/Systems/m", "skip": 1, "count": 2,
        "action": { "type": "status", "status": 503 } }),
    )
    .await;
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.push(lab.get(SYSTEM).await.status);
    }
    assert_eq!(seen, [200, 503, 503, 200]);
    assert_eq!(lab.get("/redfish/v1/Managers").await.status, 200);
    let faults = lab.control(Method::GET, "/machines/m/faults", Value::Null).await;
    assert_eq!(faults["faults"][0]["struck"], 2);

    fault(&lab, json!({ "action": { "type": "garbage" } })).await;
    let got = lab.get(SYSTEM).await;
    assert!(got.status == 200 && got.body.is_string());
    lab.control(Method::DELETE, "/machines/m/faults", Value::Null).await;
    assert!(lab.get(SYSTEM).await.body.is_object());
}

#[tokio::test]
async fn connections_are_cut_before_or_after_the_effect() {
    let lab = Lab::fake("exit 0").await;
    let reset = path("/Actions/ComputerSystem.Reset");
    let send = || lab.send(lab.request(Method::POST, &reset).json(&json!({ "ResetType": "On" })));
    fault(&lab, json!({ "method": "POST", "count": 1, "action": { "type": "drop", "when": "before" } })).await;
    assert!(send().await.is_err());
    assert_eq!(lab.machine().await["power"], "Off");
    fault(&lab, json!({ "method": "POST", "count": 1, "action": { "type": "drop", "when": "after" } })).await;
    assert!(send().await.is_err());
    assert_eq!(lab.machine().await["power"], "On");

    let requests = lab.control(Method::GET, "/machines/m/requests", Value::Null).await;
    let seen: Vec<(&Value, &Value)> =
        requests["requests"].as_array().unwrap().iter().map(|one| (&one["status"], &one["performed"])).collect();
    assert_eq!(seen, [(&Value::Null, &json!(false)), (&Value::Null, &json!(true))]);
    assert_eq!(requests["requests"][1]["body"], json!({ "ResetType": "On" }));
    lab.control(Method::DELETE, "/machines/m/requests", Value::Null).await;
    assert_eq!(lab.control(Method::GET, "/machines/m/requests", Value::Null).await["total"], 0);
}

#[tokio::test]
async fn requests_are_held_and_stepped() {
    let lab = std::sync::Arc::new(Lab::fake("exit 0").await);
    for (when, power) in [("before", "Off"), ("after", "On")] {
        let after = lab.now();
        lab.control(Method::POST, "/machines/m/pause", json!({ "when": when })).await;
        let request = tokio::spawn({
            let lab = lab.clone();
            async move { lab.reset("On").await.status }
        });
        let held = lab.event(after, "held", |_| true).await;
        assert_eq!((&held["method"], &held["when"]), (&json!("POST"), &json!(when)));
        assert_eq!(lab.machine().await["power"], power);
        assert_eq!(lab.control(Method::POST, "/machines/m/step", json!({ "count": 1 })).await["stepped"], 1);
        assert_eq!(request.await.unwrap(), 204);
        lab.control(Method::POST, "/machines/m/resume", json!({})).await;
        assert_eq!(lab.reset("ForceOff").await.status, 204);
    }

    // A client that goes away while it is held leaves nothing behind.
    let after = lab.now();
    fault(&lab, json!({ "method": "POST", "action": { "type": "hold", "when": "before" } })).await;
    let request = tokio::spawn({
        let lab = lab.clone();
        async move { lab.reset("On").await.status }
    });
    lab.event(after, "held", |_| true).await;
    request.abort();
    assert!(request.await.unwrap_err().is_cancelled());
    for _ in 0..600 {
        let held = lab.control(Method::GET, "/machines/m/held", Value::Null).await;
        if held["held"] == json!([]) {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(lab.control(Method::POST, "/machines/m/resume", json!({})).await["resumed"], 0);
    assert_eq!(lab.machine().await["power"], "Off");
}

#[tokio::test]
async fn power_can_be_stuck() {
    let lab = Lab::fake("exit 0").await;
    lab.control(Method::PATCH, "/machines/m/settings", json!({ "powerStuck": true })).await;
    assert_eq!(lab.reset("On").await.status, 204);
    assert_eq!(lab.get(SYSTEM).await.body["PowerState"], "Off");
    lab.control(Method::PATCH, "/machines/m/settings", json!({ "powerStuck": false, "resetConflict": false })).await;
    assert_eq!(lab.reset("ForceOff").await.status, 204);
    lab.control(Method::POST, "/machines/m/power", json!({ "action": "On" })).await;
    assert_eq!(lab.get(SYSTEM).await.body["PowerState"], "On");
}

#[tokio::test]
async fn media_fail_as_asked_for() {
    let lab = Lab::fake("exit 0").await;
    let images = Images::serve(kit::pattern(8 << 20)).await;
    lab.control(Method::PATCH, "/machines/m/settings", json!({ "media": { "fail": true } })).await;
    assert_eq!(lab.insert(&images.url("a.iso")).await.message_id(), "CouldNotEstablishConnection");
    let faults = json!({ "media": { "fail": false, "failAfterBytes": 2_040_000 } });
    lab.control(Method::PATCH, "/machines/m/settings", faults).await;
    assert_eq!(lab.insert(&images.url("a.iso")).await.status, 204);
    let medium = lab.simulator.bmc("m").unwrap().medium().unwrap();
    assert_eq!(medium.read(0, 2 << 20).await.unwrap(), kit::pattern(8 << 20)[..2 << 20]);
    assert!(medium.read(4 << 20, 1).await.is_err());
    assert!(medium.read((8 << 20) - 1, 2).await.is_err(), "beyond the end");
    assert_eq!(
        medium.read((2 << 20) - 9, 7).await.unwrap(),
        kit::pattern(2 << 20)[(2 << 20) - 9..(2 << 20) - 2],
        "what is cached stays readable"
    );
    // One that reads nothing takes what nobody serves.
    lab.control(Method::POST, "/machines/m/eject", json!({})).await;
    lab.control(Method::PATCH, "/machines/m/settings", json!({ "media": { "unread": true } })).await;
    assert_eq!(lab.insert(&images.url("not-there.iso")).await.status, 204);
    let medium = lab.simulator.bmc("m").unwrap().medium().unwrap();
    assert_eq!(medium.size(), 0);
    assert!(medium.read(0, 1).await.is_err());
}

#[tokio::test]
async fn the_control_api_refuses_what_it_does_not_know() {
    let lab = Lab::fake("exit 0").await;
    let client = kit::client();
    let base = lab.simulator.control_url();
    let patch = |body: Value| client.patch(format!("{base}/machines/m/settings")).json(&body).send();
    assert_eq!(patch(json!({ "refused": true })).await.unwrap().status(), 400);
    assert_eq!(client.get(format!("{base}/machines/x")).send().await.unwrap().status(), 404);
    let rule = json!({ "action": { "type": "status", "status": 7 } });
    let answer = client.post(format!("{base}/machines/m/faults")).json(&rule).send().await.unwrap();
    assert_eq!(answer.status(), 400);
    assert!(client.get(format!("{base}/")).send().await.unwrap().text().await.unwrap().contains("/events"));
}

#[tokio::test]
async fn rules_depend_on_what_the_machine_does_and_what_the_request_carries() {
    let lab = Lab::fake("exec sleep 1000").await;
    let conflict = json!({ "type": "answer", "status": 409, "messageId": "IDRAC.2.8.SYS403", "message": "busy" });
    fault(&lab, json!({ "method": "PATCH", "if": { "power": true, "lacks": ["/Boot/Mode"] }, "action": conflict }))
        .await;
    let boot = json!({ "Boot": { "BootSourceOverrideTarget": "Cd", "BootSourceOverrideEnabled": "Once" } });
    assert_eq!(lab.patch(SYSTEM, boot.clone()).await.status, 200);
    assert_eq!(lab.reset("On").await.status, 204);
    let refused = lab.patch(SYSTEM, boot).await;
    assert_eq!((refused.status, &refused.body["error"]["code"]), (409, &json!("IDRAC.2.8.SYS403")));
    assert_ne!(lab.patch(SYSTEM, json!({ "Boot": { "Mode": 1 } })).await.status, 409);
    let requests = lab.control(Method::GET, "/machines/m/requests", Value::Null).await;
    let struck: Vec<&Value> = requests["requests"].as_array().unwrap().iter().map(|one| &one["faults"]).collect();
    assert_eq!(struck, [&json!([]), &json!([]), &json!([1]), &json!([])]);
}

#[tokio::test]
async fn answers_are_put_on_the_wire_as_faults_want_them() {
    let lab = Lab::fake("exit 0").await;
    let client = kit::client();
    let url = format!("{}{SYSTEM}", lab.simulator.redfish_url("m").unwrap());
    let get = || async { client.get(&url).basic_auth("admin", Some("password")).send().await.unwrap() };
    for (action, first) in [
        (json!({ "type": "text", "prefix": "\u{feff}" }), &b"\xef\xbb\xbf{"[..]),
        (json!({ "type": "text", "encoding": "utf16" }), b"\xff\xfe{\0"),
        (json!({ "type": "text", "encoding": "gzip" }), b"\x1f\x8b\x08"),
        (json!({ "type": "text", "keep": 1 }), b"{"),
        (json!({ "type": "pieces", "bytes": 7 }), b"{\n"),
    ] {
        fault(&lab, json!({ "count": 1, "action": action })).await;
        let bytes = get().await.bytes().await.unwrap();
        assert!(bytes.starts_with(first), "{action}: {bytes:?}");
    }
    let headers = json!({ "type": "headers", "set": { "etag": "W/\"1\"" }, "remove": ["odata-version"] });
    fault(&lab, json!({ "count": 1, "action": headers })).await;
    let answer = get().await;
    assert_eq!((&answer.headers()["etag"], answer.headers().get("odata-version")), (&"W/\"1\"".parse().unwrap(), None));
    fault(&lab, json!({ "count": 1, "action": { "type": "pieces", "bytes": 9, "cutAfter": 20 } })).await;
    let broken = client.get(&url).basic_auth("admin", Some("password")).send().await;
    assert!(broken.is_err() || broken.unwrap().bytes().await.is_err(), "the answer breaks off");
    fault(&lab, json!({ "count": 1, "action": { "type": "remove", "fields": ["/PowerState"] } })).await;
    assert!(lab.get(SYSTEM).await.body.get("PowerState").is_none());

    // A connection is used once, whether the BMC drops the second request or reads nothing after an answer.
    for rule in [
        json!({ "if": { "reused": true }, "action": { "type": "drop" } }),
        json!({ "action": { "type": "close", "afterMs": 200 } }),
    ] {
        lab.control(Method::DELETE, "/machines/m/faults", Value::Null).await;
        fault(&lab, rule).await;
        let fresh = kit::client();
        assert_eq!(fresh.get(&url).send().await.unwrap().status(), 401);
        assert!(fresh.post(&url).send().await.is_err(), "the connection was used again");
    }
}

#[tokio::test]
async fn things_happen_beside_what_is_asked_for() {
    let lab = Lab::fake("exit 0").await;
    let images = Images::serve(kit::pattern(1 << 20)).await;
    lab.boot_cd_once().await;
    for (effect, when) in [("eject", "after"), ("forgetOverride", "before"), ("powerOn", "before")] {
        let rule = json!({ "method": "POST", "action": { "type": "also", "effect": effect, "when": when } });
        fault(&lab, rule).await;
    }
    assert_eq!(lab.insert(&images.url("a.iso")).await.status, 204);
    let machine = lab.machine().await;
    assert_eq!((&machine["medium"], &machine["power"]), (&Value::Null, &json!("On")));
    assert_eq!(machine["bootOverride"]["enabled"], "Disabled");
}
