//! Habits of BMCs that once led to wrong words: pages, links, redirects, rights, boot targets, passwords.

use crate::kit::{self, Bmc, CD, Odd, SESSIONS, SYSTEM, error_body, odd, rig, rig_with};
use bmc::ErrorKind;
use redfish::{BootMode, BootTarget, ResetType};
use serde_json::{Value, json};

const URL: &str = "http://192.0.2.1/media/0123456789.iso";
const SYSTEMS: &str = "/redfish/v1/Systems";
const MEDIA: &str = "/redfish/v1/Systems/437XR1138R2/VirtualMedia";

fn page(members: &[&str], next: Option<&str>) -> Value {
    let members: Vec<Value> = members.iter().map(|path| json!({"@odata.id": path})).collect();
    let mut page = json!({"Members": members, "Members@odata.count": 2});
    if let Some(next) = next {
        page["Members@odata.nextLink"] = next.into();
    }
    page
}

#[tokio::test]
async fn what_stands_on_a_second_page_is_found() {
    let bmc = Bmc::generic();
    let floppy = format!("{MEDIA}/Floppy1");
    let second = format!("{MEDIA}/Page2");
    bmc.set(|inner| {
        let mut drive = inner.resources[CD].clone();
        (drive["@odata.id"], drive["MediaTypes"]) = (floppy.as_str().into(), json!(["Floppy"]));
        inner.resources.insert(floppy.clone(), drive);
        inner.resources.insert(MEDIA.into(), page(&[&floppy], Some(&second)));
        inner.resources.insert(second.clone(), page(&[CD], None));
        // The system is on a second page as well.
        inner.resources.insert(SYSTEMS.into(), page(&[], Some("/redfish/v1/Systems2")));
        inner.resources.insert("/redfish/v1/Systems2".into(), page(&[SYSTEM], None));
    });
    let rig = rig(&bmc, "");
    assert_eq!(rig.client.system().await.unwrap().path, SYSTEM);
    rig.client.insert_media(URL).await.unwrap();
    assert_eq!(bmc.resource(CD)["Image"], URL);
}

#[tokio::test]
async fn pages_in_a_circle_or_without_end_come_to_one() {
    let bmc = Bmc::generic();
    bmc.set(|inner| drop(inner.resources.insert(SYSTEMS.into(), page(&[SYSTEM], Some(SYSTEMS)))));
    let rig = rig(&bmc, "");
    assert_eq!(rig.client.system().await.unwrap().path, SYSTEM);
    assert_eq!(bmc.take_log().iter().filter(|line| line.as_str() == "GET /redfish/v1/Systems").count(), 1);
    // Each page leads to another one, and all show the same system.
    let bmc = Bmc::generic();
    bmc.set(|inner| {
        for number in 0..400 {
            let path = if number == 0 { SYSTEMS.to_owned() } else { format!("/redfish/v1/More{number}") };
            let next = format!("/redfish/v1/More{}", number + 1);
            inner.resources.insert(path, page(&[SYSTEM], Some(&next)));
        }
    });
    let rig = kit::rig(&bmc, "");
    assert_eq!(rig.client.system().await.unwrap().path, SYSTEM, "one system, however often it is named");
    assert!(rig.client.calls() < 40, "{} calls", rig.client.calls());
}

/// A BMC whose drives are at its second manager; the first may not be looked at.
fn two_managers() -> std::sync::Arc<Bmc> {
    let bmc = Bmc::new("hpe");
    bmc.edit("/redfish/v1/Systems/1", |system| {
        system["Links"]["ManagedBy"] =
            json!([{"@odata.id": "/redfish/v1/Managers/0"}, {"@odata.id": "/redfish/v1/Managers/1"}]);
    });
    bmc
}

fn forbidden() -> Odd {
    odd(403, error_body("InsufficientPrivilege", "The account lacks the right ConfigureManager"))
}

#[tokio::test]
async fn a_manager_that_may_not_be_looked_at_does_not_hide_anothers_drives() {
    let bmc = two_managers();
    let rig = rig(&bmc, "/redfish/v1/Systems/1");
    bmc.script("GET", "/redfish/v1/Managers/0", forbidden());
    rig.client.insert_media(URL).await.unwrap();
    // Its drives may not.
    let bmc = two_managers();
    bmc.set(|inner| {
        let manager = json!({"VirtualMedia": {"@odata.id": "/redfish/v1/Managers/0/VirtualMedia"}});
        inner.resources.insert("/redfish/v1/Managers/0".into(), manager);
    });
    let rig = kit::rig(&bmc, "/redfish/v1/Systems/1");
    bmc.script("GET", "/redfish/v1/Managers/0/VirtualMedia", forbidden());
    rig.client.insert_media(URL).await.unwrap();
    // None may: that is what is told, not that a licence is missing.
    let bmc = two_managers();
    let rig = kit::rig(&bmc, "/redfish/v1/Systems/1");
    bmc.script("GET", "/redfish/v1/Managers/0", forbidden());
    bmc.script("GET", "/redfish/v1/Managers/1", forbidden());
    let error = rig.client.insert_media(URL).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unauthorized, "{error}");
    assert!(error.to_string().contains("ConfigureManager") && error.advice.contains("role"), "{error:?}");
}

#[tokio::test]
async fn links_that_are_not_absolute_are_followed() {
    let bmc = Bmc::generic();
    bmc.edit("/redfish/v1", |root| {
        root["Systems"] = json!({"@odata.id": "redfish/v1/Systems"});
        root["Managers"] = json!({"@odata.id": "Managers"});
        root["Links"]["Sessions"] = json!({"@odata.id": "SessionService/Sessions"});
    });
    bmc.set(|inner| {
        inner.resources.insert(SYSTEMS.into(), json!({"Members": [{"@odata.id": "Systems/437XR1138R2"}]}));
        inner.resources.insert(MEDIA.into(), json!({"Members": [{"@odata.id": "../437XR1138R2/VirtualMedia/CD1"}]}));
    });
    bmc.edit(CD, |cd| {
        let target = "CD1/Actions/VirtualMedia.InsertMedia";
        cd["Actions"]["#VirtualMedia.InsertMedia"]["target"] = target.into();
    });
    let rig = rig(&bmc, "");
    assert_eq!(rig.client.system().await.unwrap().path, SYSTEM);
    assert!(rig.client.session_address().is_some());
    rig.client.insert_media(URL).await.unwrap();
    assert_eq!(bmc.resource(CD)["Image"], URL);
    // Where a session is, is told relatively too.
    let session = bmc.foreign_session("root", None);
    let relative = session.strip_prefix("/redfish/v1/SessionService/").unwrap().to_owned();
    let headers = vec![("location", relative), ("x-auth-token", "foreign-2".to_owned())];
    let rig = kit::rig(&bmc, SYSTEM);
    bmc.script("POST", SESSIONS, Odd::Answer(201, headers, Vec::new()));
    rig.client.power_state().await.unwrap();
    assert_eq!(rig.client.session_address().unwrap(), format!("https://192.0.2.7{session}"));
}

#[tokio::test]
async fn answers_that_are_almost_json_are_read() {
    let text = Bmc::generic().resource(SYSTEM).to_string();
    let marked = [b"\xEF\xBB\xBF", text.as_bytes()].concat();
    let padded = [text.as_bytes(), &[0; 4]].concat();
    let typed = text.replacen('{', "{\"AssetTag\":\"f?r\",", 1).into_bytes();
    let typed = typed.into_iter().map(|byte| if byte == b'?' { 0xFC } else { byte }).collect();
    for body in [marked, padded, typed] {
        let bmc = Bmc::generic();
        let rig = rig(&bmc, SYSTEM);
        bmc.script("GET", SYSTEM, Odd::Answer(200, vec![], body));
        let system = rig.client.system().await.unwrap();
        // The power is read from the bytes themselves.
        assert_eq!((system.path.as_str(), system.power_state.is_on()), (SYSTEM, Some(true)), "{system:?}");
        assert!(bmc.script_is_used_up());
    }
}

#[tokio::test]
async fn changes_follow_redirects_that_stay_at_the_bmc() {
    let to = |status, location: &str| Odd::Answer(status, vec![("location", location.to_owned())], Vec::new());
    let bmc = Bmc::generic();
    let rig = rig(&bmc, SYSTEM);
    let insert = format!("{CD}/Actions/VirtualMedia.InsertMedia");
    bmc.script("POST", leak(&insert), to(308, &format!("{insert}/")));
    rig.client.insert_media(URL).await.unwrap();
    assert_eq!(bmc.resource(CD)["Image"], URL, "with its body");
    bmc.script("PATCH", SYSTEM, to(307, &format!("{SYSTEM}/")));
    rig.client.set_boot_once(BootTarget::Cd, BootMode::Uefi).await.unwrap();
    // Elsewhere: not with our credentials, and the advice fits.
    bmc.script("POST", "ComputerSystem.Reset", to(308, "https://192.0.2.99/redfish/v1/x"));
    let error = rig.client.reset(ResetType::ForceOff).await.unwrap_err();
    assert!(error.to_string().contains("redirect to https://192.0.2.99"), "{error}");
    assert!(error.advice.contains("spec.bmc.address"), "{}", error.advice);
    // In a circle: another address in the host would not help.
    for _ in 0..3 {
        bmc.script("GET", SYSTEM, to(308, SYSTEM));
    }
    let error = rig.client.power_state().await.unwrap_err();
    assert!(error.to_string().contains("circle"), "{error}");
    assert!(!error.advice.contains("spec.bmc.address") && error.advice.contains("firmware"), "{}", error.advice);
}

fn leak(text: &str) -> &'static str {
    Box::leak(text.to_owned().into_boxed_str())
}

async fn boot_sent(targets: Value, options: &[Value]) -> Value {
    let bmc = Bmc::generic();
    bmc.edit(SYSTEM, |system| {
        system["Boot"]["BootSourceOverrideTarget@Redfish.AllowableValues"] = targets;
        system["Boot"]["BootOptions"] = json!({"@odata.id": format!("{SYSTEM}/BootOptions")});
    });
    bmc.set(|inner| {
        let paths: Vec<String> = (0..options.len()).map(|index| format!("{SYSTEM}/BootOptions/{index}")).collect();
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        inner.resources.insert(format!("{SYSTEM}/BootOptions"), page(&paths, None));
        for (path, option) in paths.iter().zip(options) {
            inner.resources.insert((*path).to_owned(), option.clone());
        }
    });
    let rig = rig(&bmc, SYSTEM);
    rig.client.set_boot_once(BootTarget::Cd, BootMode::Uefi).await.unwrap();
    bmc.take_seen().pop().unwrap().body["Boot"].clone()
}

#[tokio::test]
async fn a_boot_from_the_medium_is_asked_for_by_what_the_bmc_offers() {
    let usb = boot_sent(json!(["None", "Pxe", "Hdd", "Usb"]), &[]).await;
    assert_eq!(usb["BootSourceOverrideTarget"], "Usb");
    let options = [
        json!({"BootOptionReference": "Boot0001", "DisplayName": "Debian", "UefiDevicePath": "HD(1,GPT)"}),
        json!({"BootOptionReference": "Boot0007", "DisplayName": "UEFI: Virtual CDROM 1.00", "UefiDevicePath": "PciRoot(0x0)/Pci(0x14,0x0)/USB(0x1,0x0)"}),
    ];
    let path = boot_sent(json!(["None", "Pxe", "Hdd", "UefiTarget"]), &options).await;
    assert_eq!(path["BootSourceOverrideTarget"], "UefiTarget");
    assert_eq!(path["UefiTargetBootSourceOverride"], "PciRoot(0x0)/Pci(0x14,0x0)/USB(0x1,0x0)");
    assert_eq!(path["BootSourceOverrideEnabled"], "Once");
    let next = boot_sent(json!(["None", "UefiBootNext"]), &options).await;
    assert_eq!((&next["BootSourceOverrideTarget"], &next["BootNext"]), (&json!("UefiBootNext"), &json!("Boot0007")));
    // Nothing that fits: the standard's own name.
    let none = boot_sent(json!(["None", "Pxe", "UefiTarget"]), &options[..1]).await;
    assert_eq!(none["BootSourceOverrideTarget"], "Cd");
}

#[tokio::test]
async fn a_refused_boot_override_says_what_is_offered() {
    let bmc = Bmc::generic();
    bmc.edit(SYSTEM, |system| {
        system["Boot"]["BootSourceOverrideTarget@Redfish.AllowableValues"] = json!(["None", "Pxe", "UefiTarget"]);
    });
    let rig = rig(&bmc, SYSTEM);
    bmc.script("PATCH", SYSTEM, odd(400, error_body("PropertyValueNotInList", "The value Cd is not in the list")));
    let error = rig.client.set_boot_once(BootTarget::Cd, BootMode::Uefi).await.unwrap_err();
    assert!(error.to_string().contains("not in the list") && error.to_string().contains("Pxe, UefiTarget"), "{error}");
    assert!(error.advice.contains("virtual"), "{}", error.advice);
}

#[tokio::test]
async fn a_password_that_must_be_changed_is_told_wherever_the_bmc_says_so() {
    // In the very answer that opens the session (DSP0266, "Password change required"): the session is good for nothing but that change.
    let bmc = Bmc::generic();
    let session = bmc.foreign_session("root", None);
    let rig = rig(&bmc, SYSTEM);
    let body = json!({"@odata.id": session, "@Message.ExtendedInfo": [{"MessageId": "Base.1.8.PasswordChangeRequired",
        "Message": "The password provided for this account must be changed before access is granted.",
        "MessageArgs": ["/redfish/v1/AccountService/Accounts/1"]}]});
    let headers = vec![("location", session.clone()), ("x-auth-token", "foreign-1".to_owned())];
    bmc.script("POST", SESSIONS, Odd::Answer(201, headers, body.to_string().into_bytes()));
    let error = rig.client.power_state().await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unauthorized, "{error}");
    assert!(error.to_string().contains("must be changed"), "{error}");
    assert!(error.advice.contains("set a new password"), "{}", error.advice);
    assert_eq!(bmc.session_count(), 0, "it is not left behind");
    // With any other request.
    let bmc = Bmc::generic();
    let rig = kit::rig(&bmc, SYSTEM);
    bmc.script("GET", SYSTEM, odd(403, error_body("PasswordChangeRequired", "The password must be changed.")));
    let error = rig.client.power_state().await.unwrap_err();
    assert!(error.advice.contains("set a new password"), "{}", error.advice);
}

#[tokio::test]
async fn a_password_that_is_an_everyday_word_does_not_hide_that_word() {
    for (password, text, expected) in [
        ("password", "Wrong user or password", "Wrong user or password"),
        ("Redfish", "The Redfish service needs a Redfish user", "The Redfish service needs a Redfish user"),
        ("password", "The value 'password' of UserName or Password is wrong", "The value '[hidden]' of UserName"),
        ("password", "refused: Password=password", "refused: Password=[hidden]"),
        ("s3cret", "user s3cretary", "user [hidden]ary"),
    ] {
        let bmc = Bmc::generic();
        let rig = rig_with(&bmc, SYSTEM, password);
        bmc.script("POST", SESSIONS, odd(401, error_body("Unauthorized", text)));
        let error = rig.client.power_state().await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    // Our own words are never meant.
    let bmc = Bmc::generic();
    let path = bmc.foreign_session("root", None);
    let rig = rig_with(&bmc, SYSTEM, "password");
    bmc.script("POST", SESSIONS, Odd::Answer(201, vec![("location", path)], b"{}".to_vec()));
    let error = rig.client.power_state().await.unwrap_err();
    assert!(error.to_string().contains("accepted user and password"), "{error}");
}

#[tokio::test]
async fn an_answer_that_is_compressed_is_said_to_be() {
    let bmc = Bmc::generic();
    let zipped = vec![("content-encoding", "gzip".to_owned())];
    bmc.script("GET", SYSTEM, Odd::Answer(200, zipped, vec![0x1f, 0x8b, 8, 0]));
    let error = rig(&bmc, SYSTEM).client.power_state().await.unwrap_err().to_string();
    assert!(error.contains("is compressed (gzip), which was not asked for"), "{error}");
}

/// JSON of four bytes a value takes a hundred times as much in memory.
#[tokio::test]
async fn an_answer_of_a_million_values_is_refused_before_it_is_read() {
    let nested = |count: usize| format!("[{}0]", "[0],".repeat(count)).into_bytes();
    let bmc = Bmc::generic();
    bmc.script("GET", SYSTEM, Odd::Answer(200, vec![], nested(1_000_000)));
    let error = rig(&bmc, SYSTEM).client.power_state().await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Protocol);
    assert!(error.to_string().contains("holds more than 100000 values"), "{error}");
    // An error that says so much says nothing.
    let bmc = Bmc::generic();
    bmc.script("GET", SYSTEM, Odd::Answer(400, vec![], nested(1_000_000)));
    let error = rig(&bmc, SYSTEM).client.power_state().await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Rejected { status: 400 }, "{error}");
}
