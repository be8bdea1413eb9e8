//! The Redfish service as clients see it.

use std::collections::BTreeSet;

use crate::kit::{self, Images, Lab, SYSTEM, path};
use bmc_sim::{Config, MachineConfig, MachineKind, redfish::recorded};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tower::ServiceExt as _;

const SESSIONS: &str = "/redfish/v1/SessionService/Sessions";

/// The targets of all links in a value.
fn links(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(target) if name == "@odata.id" || name == "DataSourceUri" => {
                        found.insert(target.split('#').next().unwrap().trim_end_matches('/').to_owned());
                    }
                    value => links(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| links(item, found)),
        _ => {}
    }
}

#[tokio::test]
async fn every_recorded_resource_is_served_and_nothing_but_dead_links_is_missing() {
    let lab = Lab::fake("exit 0").await;
    let mut count = 0;
    for (recorded, text) in recorded::recorded_paths() {
        let path = recorded.replace("437XR1138R2", "m");
        let got = lab.get(&path).await;
        assert_eq!(got.status, 200, "{path}");
        assert!(!got.body.to_string().contains("437XR1138R2"), "{path} still names the recorded system");
        let before: Value = serde_json::from_str(&text.replace("437XR1138R2", "m")).unwrap();
        for (name, value) in before.as_object().unwrap().iter().filter(|(name, _)| *name != "@Redfish.Copyright") {
            if got.body.get(name).is_some() {
                continue;
            }
            let mut lost = BTreeSet::new();
            links(value, &mut lost);
            assert!(!lost.is_empty(), "{path} lost {name}");
            for link in lost {
                assert_eq!(lab.get(&link).await.status, 404, "{path} lost {name}");
            }
        }
        count += 1;
    }
    assert_eq!(count, 86);
    assert_eq!(lab.get("/redfish/v1/Systems/437XR1138R2").await.status, 404);
    assert_eq!(lab.get("/redfish/v1/Systems/mm").await.status, 404);
}

#[tokio::test]
async fn no_link_leads_nowhere() {
    let lab = Lab::fake("exit 0").await;
    let (mut seen, mut next) = (BTreeSet::new(), BTreeSet::from(["/redfish/v1".to_owned()]));
    while let Some(path) = next.pop_first() {
        let got = lab.get(&path).await;
        assert_eq!(got.status, 200, "{path}");
        assert!(got.header("allow").starts_with("GET, HEAD"), "{path}");
        assert!(got.body.get("@Redfish.Copyright").is_none(), "{path}");
        seen.insert(path);
        let mut found = BTreeSet::new();
        links(&got.body, &mut found);
        next.extend(found.into_iter().filter(|path| !seen.contains(path)));
    }
    assert!(seen.len() > 150, "{}", seen.len());
}

#[tokio::test]
async fn the_metadata_document_names_every_schema() {
    let lab = Lab::fake("exit 0").await;
    let url = format!("{}/redfish/v1/$metadata", lab.simulator.redfish_url("m").unwrap());
    let answer = kit::client().get(url).send().await.unwrap();
    assert_eq!(answer.headers()["content-type"], "application/xml");
    let text = answer.text().await.unwrap();
    for schema in recorded::SCHEMAS.keys() {
        assert!(text.contains(&format!("Namespace=\"{schema}\"")), "{schema}");
    }
}

#[tokio::test]
async fn collections_expand() {
    let lab = Lab::fake("exit 0").await;
    let plain = lab.get("/redfish/v1/Systems").await.body;
    assert_eq!(plain["Members"][0], json!({ "@odata.id": SYSTEM }));
    let whole = lab.get("/redfish/v1/Systems?$expand=.($levels=1)").await.body;
    assert_eq!(whole["Members"][0], lab.get(SYSTEM).await.body);
}

/// What a BMC shows in a collection is what it shows of the member itself, deviations included.
#[tokio::test]
async fn faults_of_members_show_in_the_collection_too() {
    let lab = Lab::fake("exit 0").await;
    let edit = json!({ "method": "GET", "path": SYSTEM, "action": { "type": "edit", "fields": { "Model": "Other" } } });
    lab.control(Method::POST, "/machines/m/faults", edit).await;
    let whole = lab.get("/redfish/v1/Systems?$expand=.($levels=1)").await.body;
    assert_eq!(whole["Members"][0]["Model"], "Other");
    let gone = json!({ "method": "GET", "path": SYSTEM, "count": 1, "action": { "type": "status", "status": 400 } });
    lab.control(Method::POST, "/machines/m/faults", gone).await;
    let whole = lab.get("/redfish/v1/Systems?$expand=.($levels=1)").await.body;
    assert_eq!(whole["Members"][0], json!({ "@odata.id": SYSTEM }), "a link alone: its own answer is refused");
    assert_eq!(lab.get(SYSTEM).await.status, 400);
}

#[tokio::test]
async fn machines_differ_in_what_identifies_them() {
    let folder = tempfile::tempdir().unwrap();
    let agent = kit::agent(folder.path(), "exit 0");
    let machines = vec![MachineConfig::new("m", MachineKind::Fake), MachineConfig::new("n", MachineKind::Fake)];
    let lab = Lab::of(folder, Config { machines, agent: Some(agent), ..Config::default() }).await;
    let ready = lab.simulator.ready();
    let [m, n] = [&ready["machines"][0], &ready["machines"][1]];
    for field in ["id", "redfish", "system", "mac", "uuid", "serial", "serialConsole"] {
        assert_ne!(m[field], n[field], "{field}");
    }
    let system = lab.get(SYSTEM).await.body;
    assert_eq!((&system["UUID"], &system["SerialNumber"]), (&m["uuid"], &m["serial"]));
    let nic = lab.get(&path("/EthernetInterfaces/12446A3B0411")).await.body;
    assert_eq!(nic["MACAddress"].as_str().unwrap().to_lowercase(), m["mac"].as_str().unwrap());
}

#[tokio::test]
async fn sessions_open_serve_and_close() {
    let lab = Lab::fake("exit 0").await;
    assert_eq!(lab.send(lab.bare(Method::GET, "/redfish/v1/")).await.unwrap().status, 200);
    let refused = lab.send(lab.bare(Method::GET, SYSTEM)).await.unwrap();
    assert_eq!((refused.status, refused.message_id()), (401, "NoValidSession"));
    assert!(refused.header("www-authenticate").starts_with("Basic"));

    let login = |password: &str| {
        let body = json!({ "UserName": "admin", "Password": password, "Context": "metamorph/one" });
        lab.send(lab.bare(Method::POST, SESSIONS).json(&body))
    };
    assert_eq!(login("wrong").await.unwrap().status, 401);
    let opened = login("password").await.unwrap();
    assert_eq!(opened.status, 201);
    let (token, location) = (opened.header("x-auth-token").to_owned(), opened.header("location").to_owned());
    assert!(token.len() >= 32);
    let with = |method, path: &str| lab.send(lab.bare(method, path).header("x-auth-token", &token));
    let session = with(Method::GET, &location).await.unwrap();
    assert_eq!((&session.body["Context"], &session.body["UserName"]), (&json!("metamorph/one"), &json!("admin")));
    assert!(session.body["CreatedTime"].as_str().unwrap().ends_with('Z'));
    assert_eq!(with(Method::GET, SESSIONS).await.unwrap().body["Members@odata.count"], 1);
    assert_eq!(with(Method::GET, SYSTEM).await.unwrap().status, 200);
    assert_eq!(with(Method::DELETE, &location).await.unwrap().status, 204);
    assert_eq!(with(Method::GET, SYSTEM).await.unwrap().status, 401);

    lab.control(Method::PATCH, "/machines/m/settings", json!({ "sessionLimit": 1 })).await;
    assert_eq!(login("password").await.unwrap().status, 201);
    let full = login("password").await.unwrap();
    assert_eq!((full.status, full.message_id()), (503, "SessionLimitExceeded"));

    lab.control(Method::POST, "/machines/m/password", json!({ "password": "new" })).await;
    assert_eq!(lab.get(SYSTEM).await.status, 401);
    assert_eq!(lab.machine().await["sessions"], 0);
    assert_eq!(login("new").await.unwrap().status, 201);

    lab.control(Method::PATCH, "/machines/m/settings", json!({ "sessions": false })).await;
    assert_eq!(login("new").await.unwrap().status, 401);
    let basic = lab.bare(Method::POST, SESSIONS).basic_auth("admin", Some("new")).json(&json!({}));
    assert_eq!(lab.send(basic).await.unwrap().status, 404);
    let requests = lab.control(Method::GET, "/machines/m/requests", Value::Null).await;
    assert!(!requests.to_string().contains("\"new\""), "a password is in the request log");
}

#[tokio::test]
async fn systems_are_patched_with_care() {
    let lab = Lab::fake("exit 0").await;
    let before = lab.get(SYSTEM).await;
    assert_eq!(before.body["Boot"]["BootSourceOverrideEnabled"], "Disabled");
    let boot = json!({ "Boot": { "BootSourceOverrideTarget": "Cd", "BootSourceOverrideEnabled": "Once" } });
    let stale = lab.request(Method::PATCH, SYSTEM).header("if-match", "\"other\"").json(&boot);
    assert_eq!(lab.send(stale).await.unwrap().status, 412);
    let fresh = lab.request(Method::PATCH, SYSTEM).header("if-match", before.header("etag")).json(&boot);
    let patched = lab.send(fresh).await.unwrap();
    assert_eq!((patched.status, &patched.body["Boot"]["BootSourceOverrideTarget"]), (200, &json!("Cd")));
    assert_ne!(patched.header("etag"), before.header("etag"));

    for (body, id) in [
        (json!({ "Boot": { "BootSourceOverrideTarget": "Moon" } }), "PropertyValueNotInList"),
        (json!({ "Boot": { "BootSourceOverrideEnabled": 1 } }), "PropertyValueNotInList"),
        (json!({ "Boot": { "Colour": "red" } }), "PropertyUnknown"),
        (json!({ "Colour": "red" }), "PropertyUnknown"),
        (json!([]), "MalformedJSON"),
    ] {
        let got = lab.patch(SYSTEM, body.clone()).await;
        assert_eq!((got.status, got.message_id()), (400, id), "{body}");
        assert!(got.body["error"]["@Message.ExtendedInfo"][0]["Message"].is_string());
    }
    let broken = lab.request(Method::PATCH, SYSTEM).body("{");
    assert_eq!(lab.send(broken).await.unwrap().message_id(), "MalformedJSON");
    assert_eq!(lab.get(SYSTEM).await.body["Boot"], patched.body["Boot"], "a refused patch changes nothing");

    let wrong = lab.send(lab.request(Method::DELETE, SYSTEM)).await.unwrap();
    assert_eq!((wrong.status, wrong.header("allow")), (405, "GET, HEAD, PATCH"));
    assert_eq!(lab.reset("Explode").await.message_id(), "ActionParameterNotSupported");
    assert_eq!(lab.reset("ForceOff").await.status, 409, "it is off already");
    let on = lab.patch(&path("/SecureBoot"), json!({ "SecureBootEnable": true })).await;
    assert_eq!((&on.body["SecureBootEnable"], &on.body["SecureBootCurrentBoot"]), (&json!(true), &json!("Disabled")));
}

#[tokio::test]
async fn media_are_looked_at_when_inserted() {
    let lab = Lab::fake("exit 0").await;
    let images = Images::serve(kit::pattern(3 << 20)).await;
    for (image, id) in [
        ("nfs://host/a.iso".to_owned(), "ActionParameterValueFormatError"),
        ("a.iso".to_owned(), "ActionParameterValueFormatError"),
        (images.url("a.img"), "ResourceAtUriInUnknownFormat"),
        (images.url("whole.iso"), "ResourceAtUriInUnknownFormat"),
        (images.url("missing.iso"), "ResourceMissingAtURI"),
        ("http://127.0.0.1:1/a.iso".to_owned(), "CouldNotEstablishConnection"),
    ] {
        let got = lab.insert(&image).await;
        assert_eq!((got.status, got.message_id()), (400, id), "{image}: {}", got.body);
    }
    assert_eq!(lab.machine().await["medium"], Value::Null);
    let url = images.url("a.iso");
    assert_eq!(lab.insert(&url).await.status, 204);
    assert_eq!(lab.insert(&url).await.status, 409);
    let manager = "/redfish/v1/Managers/BMC/VirtualMedia/CD1";
    for at in [path("/VirtualMedia/CD1"), manager.to_owned()] {
        let drive = lab.get(&at).await.body;
        assert_eq!((&drive["Image"], &drive["Inserted"]), (&json!(url), &json!(true)));
        assert!(drive["Actions"]["#VirtualMedia.EjectMedia"]["target"].as_str().unwrap().starts_with(&at));
    }
    let eject = format!("{manager}/Actions/VirtualMedia.EjectMedia");
    assert_eq!(lab.post(&eject, json!({})).await.status, 204);
    assert_eq!(lab.get(manager).await.body["Inserted"], false);
    assert!(images.ranges.lock().unwrap().len() <= 2, "only a look was taken");

    lab.control(Method::PATCH, "/machines/m/settings", json!({ "mediaAt": "manager" })).await;
    assert_eq!(lab.get(&path("/VirtualMedia")).await.status, 404);
    assert!(lab.get(SYSTEM).await.body.get("VirtualMedia").is_none());
    assert_eq!(lab.insert(&url).await.status, 404);
    assert_eq!(lab.patch(manager, json!({ "Image": url, "Inserted": true })).await.status, 204);
    assert_eq!(lab.machine().await["medium"]["size"], 3 << 20);
    assert_eq!(lab.patch(manager, json!({ "Image": null })).await.status, 204);
    assert_eq!(lab.machine().await["medium"], Value::Null);
}

#[tokio::test]
async fn actions_can_be_tasks() {
    let lab = Lab::fake("exec sleep 1000").await;
    lab.control(Method::PATCH, "/machines/m/settings", json!({ "asyncActions": true })).await;
    let after = lab.now();
    let accepted = lab.reset("On").await;
    assert_eq!(accepted.status, 202);
    let monitor = accepted.header("location").to_owned();
    lab.event(after, "power", |data| data["state"] == "On").await;
    let mut done = lab.get(&monitor).await;
    while done.status == 202 {
        done = lab.get(&monitor).await;
    }
    assert_eq!(done.status, 204);
    let task = accepted.body["@odata.id"].as_str().unwrap();
    assert_eq!(lab.get(task).await.body["TaskState"], "Completed");

    let refused = lab.insert("http://127.0.0.1:1/a.iso").await;
    let monitor = refused.header("location").to_owned();
    let mut done = lab.get(&monitor).await;
    while done.status == 202 {
        done = lab.get(&monitor).await;
    }
    assert_eq!((done.status, done.message_id()), (400, "CouldNotEstablishConnection"));
    assert_eq!(lab.get(refused.body["@odata.id"].as_str().unwrap()).await.body["TaskState"], "Exception");

    lab.control(Method::PATCH, "/machines/m/settings", json!({ "stuckTasks": true })).await;
    let stuck = lab.reset("ForceOff").await;
    assert_eq!(lab.get(stuck.header("location")).await.status, 202);
    assert_eq!(lab.get(SYSTEM).await.body["PowerState"], "On");
}

#[tokio::test]
async fn a_bmc_can_be_mounted_in_process() {
    let lab = Lab::fake("exit 0").await;
    let router = lab.simulator.router("m").unwrap();
    let request = axum::http::Request::get("/redfish/v1/").body(axum::body::Body::empty()).unwrap();
    assert_eq!(router.oneshot(request).await.unwrap().status(), 200);
}

#[tokio::test]
async fn https_is_trusted_by_the_authority_and_by_no_one_else() {
    let folder = tempfile::tempdir().unwrap();
    let machines = vec![MachineConfig::new("m", MachineKind::Fake)];
    let agent = Some(kit::agent(folder.path(), "exit 0"));
    let state_dir = Some(folder.path().join("state"));
    let lab = Lab::of(folder, Config { machines, agent, state_dir, tls: true, ..Config::default() }).await;
    assert!(lab.send(lab.bare(Method::GET, "/redfish/v1/")).await.unwrap_err().is_connect());
    let authority = reqwest::Certificate::from_pem(lab.simulator.authority().unwrap().as_bytes()).unwrap();
    let client = reqwest::Client::builder().no_proxy().tls_certs_only([authority]).build().unwrap();
    let url = format!("{}/redfish/v1/", lab.simulator.redfish_url("m").unwrap());
    assert!(url.starts_with("https://"));
    assert_eq!(client.get(url).send().await.unwrap().status(), 200);
    assert!(lab.simulator.ready()["ca"].as_str().unwrap().ends_with("ca.pem"));
}

/// Answers every https request with the first bytes of an image.
async fn https_image(folder: &std::path::Path) -> u16 {
    let (_, acceptor) = bmc_sim::tls::acceptor(folder, "127.0.0.1".parse().unwrap()).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let Ok(mut stream) = acceptor.accept(socket).await else { continue };
            let mut request = [0; 4096];
            let read = stream.read(&mut request).await.unwrap();
            assert!(String::from_utf8_lossy(&request[..read]).to_lowercase().contains("range: bytes=0-2047"));
            let head =
                "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-2047/4096\r\nContent-Length: 2048\r\n\r\n";
            stream.write_all(head.as_bytes()).await.unwrap();
            stream.write_all(&[7; 2048]).await.unwrap();
            stream.shutdown().await.unwrap();
        }
    });
    port
}

#[tokio::test]
async fn certificates_of_media_are_checked_only_when_asked_for() {
    let certificates = tempfile::tempdir().unwrap();
    let url = format!("https://127.0.0.1:{}/a.iso", https_image(certificates.path()).await);
    for (media_verify_tls, media_ca, status) in
        [(false, None, 204), (true, None, 400), (true, Some(certificates.path().join("ca.pem")), 204)]
    {
        let folder = tempfile::tempdir().unwrap();
        let machines = vec![MachineConfig::new("m", MachineKind::Fake)];
        let agent = Some(kit::agent(folder.path(), "exit 0"));
        let config = Config { machines, agent, media_verify_tls, media_ca, ..Config::default() };
        let lab = Lab::of(folder, config).await;
        let got = lab.insert(&url).await;
        assert_eq!(got.status, status, "{}", got.body);
    }
}

#[tokio::test]
async fn subscriptions_to_events_are_made_shown_and_ended() {
    const LIST: &str = "/redfish/v1/EventService/Subscriptions";
    let lab = Lab::fake("exit 0").await;
    let wanted = json!({ "Destination": "https://events.example/x", "Context": "c", "Protocol": "Redfish",
        "EventTypes": ["Alert"], "HttpHeaders": [{ "Authorization": "s3cret" }] });
    let made = lab.post(LIST, wanted.clone()).await;
    assert_eq!((made.status, &made.body["Context"]), (201, &json!("c")), "{}", made.body);
    let path = made.body["@odata.id"].as_str().unwrap().to_owned();
    let listed = lab.get(LIST).await.body;
    assert_eq!((&listed["Members@odata.count"], &listed["Members"][0]["@odata.id"]), (&json!(1), &json!(path)));
    let body = lab.get(&path).await.body;
    assert_eq!((&body["Destination"], &body["HttpHeaders"]), (&wanted["Destination"], &json!([])));
    let listed = lab.control(Method::GET, "/machines/m/subscriptions", Value::Null).await;
    assert_eq!(listed["subscriptions"][0]["headers"], wanted["HttpHeaders"], "{listed}");
    for wrong in [
        json!({ "Destination": "https://events.example/x", "Context": "c" }),
        json!({ "Destination": "https://events.example/x", "Context": "c", "Protocol": "SMTP" }),
        json!({ "Destination": "https://events.example/x", "Context": "c", "Protocol": "Redfish", "Mood": "good" }),
    ] {
        assert_eq!(lab.post(LIST, wrong.clone()).await.status, 400, "{wrong}");
    }
    assert_eq!(lab.send(lab.request(Method::DELETE, &path)).await.unwrap().status, 204);
    assert_eq!(lab.send(lab.request(Method::DELETE, &path)).await.unwrap().status, 404);
    assert_eq!(lab.get(&path).await.status, 404);
    for _ in 0..20 {
        assert_eq!(lab.post(LIST, wanted.clone()).await.status, 201);
    }
    assert_eq!(lab.post(LIST, wanted.clone()).await.status, 400, "there is no room");
    lab.control(Method::DELETE, "/machines/m/subscriptions", Value::Null).await;
    assert_eq!(lab.get(LIST).await.body["Members@odata.count"], 0);
}

#[tokio::test]
async fn settings_of_the_firmware_come_into_force_with_the_next_start() {
    let lab = Lab::fake("exit 0").await;
    let (bios, settings) = (path("/Bios"), path("/Bios/Settings"));
    let body = lab.get(&bios).await.body;
    assert_eq!(body["@Redfish.Settings"]["SettingsObject"]["@odata.id"], settings);
    assert_eq!((&body["Attributes"]["BootDelay"], &body["Attributes"]["NumLock"]), (&json!(5), &json!(true)));
    let file = lab.get("/redfish/v1/Registries/BiosAttributeRegistry.1.0.0").await.body;
    assert_eq!(file["Registry"], body["AttributeRegistry"]);
    let registry = lab.get(file["Location"][0]["Uri"].as_str().unwrap()).await.body;
    let entries = registry["RegistryEntries"]["Attributes"].as_array().unwrap();
    let described: Vec<&str> = entries.iter().map(|entry| entry["AttributeName"].as_str().unwrap()).collect();
    assert_eq!(described, body["Attributes"].as_object().unwrap().keys().collect::<Vec<_>>());
    for (wrong, id) in [
        (json!({ "BootDelay": 21 }), "PropertyValueNotInList"),
        (json!({ "BootDelay": "5" }), "PropertyValueNotInList"),
        (json!({ "ProcTurboMode": "On" }), "PropertyValueNotInList"),
        (json!({ "SerialNumber": "x" }), "PropertyNotWritable"),
        (json!({ "BootDelay": 6, "Colour": "red" }), "PropertyUnknown"),
    ] {
        let got = lab.patch(&settings, json!({ "Attributes": wrong })).await;
        assert_eq!((got.status, got.message_id()), (400, id), "{wrong}");
    }
    assert_eq!(lab.get(&settings).await.body["Attributes"], json!({}), "a refused change changes nothing");
    assert_eq!(lab.patch(&bios, json!({ "Attributes": {} })).await.status, 405);

    let change = json!({ "Attributes": { "BootDelay": 6 }, "@Redfish.SettingsApplyTime": { "ApplyTime": "OnReset" } });
    assert_eq!(lab.patch(&settings, change).await.status, 200);
    assert_eq!(lab.get(&settings).await.body["Attributes"], json!({ "BootDelay": 6 }));
    assert_eq!(lab.get(&bios).await.body["Attributes"]["BootDelay"], 5);
    assert_eq!(lab.reset("On").await.status, 204);
    assert_eq!(lab.get(&bios).await.body["Attributes"]["BootDelay"], 6);
    assert_eq!(lab.get(&settings).await.body["Attributes"], json!({}));

    lab.control(Method::PATCH, "/machines/m/settings", json!({ "biosStuck": true })).await;
    lab.patch(&settings, json!({ "Attributes": { "BootDelay": 7 } })).await;
    assert_eq!(lab.reset("ForceRestart").await.status, 204);
    let left = lab.get(&bios).await.body;
    assert_eq!(left["Attributes"]["BootDelay"], 6);
    assert_eq!(left["@Redfish.Settings"]["Messages"][0]["RelatedProperties"], json!(["#/Attributes/BootDelay"]));

    lab.control(Method::PATCH, "/machines/m/settings", json!({ "bios": false })).await;
    assert_eq!((lab.get(&bios).await.status, lab.get(&settings).await.status), (404, 404));
    assert_eq!(lab.get(SYSTEM).await.body.get("Bios"), None);
}

#[tokio::test]
async fn a_restart_of_the_bmc_takes_the_medium_out_and_leaves_the_machine() {
    let lab = Lab::fake("exec sleep 1000").await;
    let images = Images::serve(kit::pattern(4096)).await;
    assert_eq!(lab.insert(&images.url("a.iso")).await.status, 204);
    lab.boot_cd_once().await;
    assert_eq!(lab.reset("On").await.status, 204);
    let restart =
        lab.post("/redfish/v1/Managers/BMC/Actions/Manager.Reset", json!({ "ResetType": "ForceRestart" })).await;
    assert_eq!(restart.status, 204);
    let drive = lab.get(&format!("{SYSTEM}/VirtualMedia/CD1")).await.body;
    assert_eq!((&drive["Inserted"], &drive["Image"]), (&json!(false), &Value::Null));
    assert_eq!(lab.machine().await["power"], "On");
}

#[tokio::test]
async fn overrides_for_each_boot_are_refused_or_forgotten_as_set() {
    let lab = Lab::fake("exec sleep 1000").await;
    let each = || json!({ "Boot": { "BootSourceOverrideTarget": "Cd", "BootSourceOverrideEnabled": "Continuous" } });
    let enabled = async || lab.get(SYSTEM).await.body["Boot"]["BootSourceOverrideEnabled"].clone();
    assert_eq!((lab.patch(SYSTEM, each()).await.status, enabled().await), (200, json!("Continuous")));
    lab.control(Method::PATCH, "/machines/m/settings", json!({ "forgetsContinuous": true })).await;
    assert_eq!((lab.patch(SYSTEM, each()).await.status, enabled().await), (200, json!("Once")));
    lab.control(Method::PATCH, "/machines/m/settings", json!({ "bootsOnce": true })).await;
    let refused = lab.patch(SYSTEM, each()).await;
    assert_eq!((refused.status, refused.message_id()), (400, "PropertyValueNotInList"));
    let listed = &lab.get(SYSTEM).await.body["Boot"]["BootSourceOverrideEnabled@Redfish.AllowableValues"];
    assert_eq!(*listed, json!(["Disabled", "Once"]));
}

/// One light, seen at the system and at its chassis, in the forms that BMCs have.
#[tokio::test]
async fn the_light_that_a_machine_is_found_by_is_switched_where_the_bmc_takes_orders() {
    const CHASSIS: &str = "/redfish/v1/Chassis/1U";
    let lab = Lab::fake("exit 0").await;
    let light = async |light: &str| {
        lab.control(Method::PATCH, "/machines/m/settings", json!({ "light": light })).await;
    };
    let shown = async || {
        let (system, chassis) = (lab.get(SYSTEM).await.body, lab.get(CHASSIS).await.body);
        for name in ["IndicatorLED", "LocationIndicatorActive"] {
            assert_eq!(system.get(name), chassis.get(name));
        }
        (chassis.get("IndicatorLED").cloned(), chassis.get("LocationIndicatorActive").cloned())
    };
    let led = |word: &str| (Some(json!(word)), None);
    assert_eq!((shown().await, lab.machine().await["light"].clone()), (led("Off"), json!("Off")));
    for (path, word) in [(SYSTEM, "Lit"), (CHASSIS, "Blinking")] {
        assert_eq!(lab.patch(path, json!({ "IndicatorLED": word })).await.status, 200);
        assert_eq!((shown().await, lab.machine().await["light"].clone()), (led(word), json!(word)));
    }
    let refused = lab.patch(SYSTEM, json!({ "LocationIndicatorActive": true })).await;
    assert_eq!((refused.status, refused.message_id()), (400, "PropertyUnknown"));
    light("active").await;
    for (path, lit, word) in [(CHASSIS, false, "Off"), (SYSTEM, true, "Blinking")] {
        assert_eq!(lab.patch(path, json!({ "LocationIndicatorActive": lit })).await.status, 200);
        assert_eq!(shown().await, (Some(json!(word)), Some(json!(lit))));
    }
    assert_eq!(lab.patch(SYSTEM, json!({ "LocationIndicatorActive": "yes" })).await.status, 400);
    // As an iDRAC: lit when nobody looks for it.
    light("chassis").await;
    assert_eq!(shown().await, led("Blinking"));
    assert_eq!(lab.patch(SYSTEM, json!({ "IndicatorLED": "Lit" })).await.status, 400);
    assert_eq!(lab.patch(CHASSIS, json!({ "IndicatorLED": "Off" })).await.status, 400);
    assert_eq!(lab.patch(CHASSIS, json!({ "IndicatorLED": "Lit" })).await.status, 200);
    assert_eq!((shown().await, lab.machine().await["light"].clone()), (led("Lit"), json!("Off")));
    assert_eq!(lab.patch(CHASSIS, json!({ "AssetTag": "x" })).await.status, 400);
    light("none").await;
    assert_eq!(shown().await, (None, None));
    assert_eq!(lab.patch(SYSTEM, json!({ "IndicatorLED": "Lit" })).await.status, 400);
    assert_eq!(lab.patch(CHASSIS, json!({ "IndicatorLED": "Lit" })).await.status, 405);
}
