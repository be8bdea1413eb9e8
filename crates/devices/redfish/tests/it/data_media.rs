//! A second medium: in which drive, and when in none.

use std::time::Duration;

use bmc::{DataDrive as _, Drive, ErrorKind, Insertion, VirtualMedia as _};
use redfish::RedfishBmc;
use serde_json::{Value, json};

use crate::kit::{Bmc, CD, Odd, Rig, SYSTEM, dropped, error_body, odd, rig};

const LIST: &str = "/redfish/v1/Systems/437XR1138R2/VirtualMedia";
const CD2: &str = "/redfish/v1/Systems/437XR1138R2/VirtualMedia/CD2";
const BOOT: &str = "http://192.0.2.1:6180/media/0123456789abcdef.iso";
const DATA: &str = "http://media.example/tools.iso";

/// A second drive beside the first.
fn with_second(bmc: &Bmc) {
    let mut second = bmc.resource(CD);
    second["@odata.id"] = CD2.into();
    second["Actions"] = json!({
        "#VirtualMedia.InsertMedia": {"target": format!("{CD2}/Actions/VirtualMedia.InsertMedia")},
        "#VirtualMedia.EjectMedia": {"target": format!("{CD2}/Actions/VirtualMedia.EjectMedia")},
    });
    bmc.set(|inner| {
        inner.resources.insert(CD2.into(), second);
    });
    bmc.edit(LIST, |list| list["Members"].as_array_mut().unwrap().push(json!({"@odata.id": CD2})));
}

fn declares(bmc: &Bmc, drive: &str, protocols: Value) {
    bmc.edit(drive, |cd| {
        cd["Actions"]["#VirtualMedia.InsertMedia"]["TransferProtocolType@Redfish.AllowableValues"] = protocols;
    });
}

async fn attach(rig: &Rig) -> Result<String, bmc::BmcError> {
    let drive = rig.client.choose_data_drive(DATA).await?;
    assert_eq!(rig.client.insert_data_medium(&drive, DATA).await?, Insertion::Done);
    Ok(drive)
}

#[tokio::test]
async fn it_goes_into_the_drive_that_the_boot_medium_does_not_use() {
    let bmc = Bmc::generic();
    with_second(&bmc);
    let rig = rig(&bmc, SYSTEM);
    rig.client.insert_media(BOOT).await.unwrap();
    let drive = attach(&rig).await.unwrap();
    assert_eq!((drive.as_str(), bmc.resource(CD2)["Image"].as_str()), (CD2, Some(DATA)));
    assert_eq!(bmc.resource(CD)["Image"], BOOT, "the boot medium stays");
    assert_eq!(rig.client.data_medium(CD2, DATA).await.unwrap(), Drive::Medium);
    assert_eq!(rig.client.data_medium(CD2, "http://media.example/other.iso").await.unwrap(), Drive::Another);
    // The boot medium goes in and out, and that one stays.
    rig.client.eject_media().await.unwrap();
    assert_eq!(bmc.resource(CD2)["Image"], DATA);
    rig.client.eject_data_medium(CD2, DATA, false).await.unwrap();
    assert_eq!(rig.client.data_medium(CD2, DATA).await.unwrap(), Drive::Empty);
    rig.client.eject_data_medium(CD2, DATA, false).await.unwrap();
}

#[tokio::test]
async fn with_one_drive_it_waits_for_that_to_be_empty() {
    let bmc = Bmc::generic();
    let rig = rig(&bmc, SYSTEM);
    rig.client.insert_media(BOOT).await.unwrap();
    let error = rig.client.choose_data_drive(DATA).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unsupported);
    assert!(error.found.contains("one virtual drive for CDs, and a medium is in it already"), "{error}");
    assert_eq!(bmc.resource(CD)["Image"], BOOT);
    rig.client.eject_media().await.unwrap();
    assert_eq!(attach(&rig).await.unwrap(), CD);
    assert_eq!(bmc.resource(CD)["Image"], DATA);
}

#[tokio::test]
async fn what_somebody_else_has_put_in_is_left_alone() {
    let bmc = Bmc::generic();
    with_second(&bmc);
    let theirs = "http://elsewhere.example/rescue.iso";
    let rig = rig(&bmc, SYSTEM);
    let drive = rig.client.choose_data_drive(DATA).await.unwrap();
    assert_eq!(drive, CD2);
    bmc.edit(CD2, |cd| (cd["Inserted"], cd["Image"]) = (true.into(), theirs.into()));
    let error = rig.client.insert_data_medium(&drive, DATA).await.unwrap_err();
    assert!(error.found.contains("another medium has been put into the drive"), "{error}");
    assert_eq!(bmc.resource(CD2)["Image"], theirs);
    assert_eq!(rig.client.choose_data_drive(DATA).await.unwrap(), CD, "the other one is empty");
}

fn ejects(bmc: &Bmc) -> usize {
    bmc.take_log().iter().filter(|call| call.ends_with("VirtualMedia.EjectMedia")).count()
}

/// What the drive does not show may be in all the same, and is somebody's.
#[tokio::test]
async fn what_goes_into_an_empty_drive_ejects_nothing_whatever_the_bmc_answers() {
    const INSERT: &str = "CD1/Actions/VirtualMedia.InsertMedia";
    for status in [500, 503, 409] {
        for gently in [false, true] {
            let bmc = Bmc::generic();
            let rig = rig(&bmc, SYSTEM);
            assert_eq!(rig.client.choose_boot_drive(DATA).await.unwrap(), CD);
            for _ in 0..20 {
                bmc.script("POST", INSERT, odd(status, error_body("ResourceInUse", "the drive is in use")));
            }
            let put = if gently {
                rig.client.insert_beside_nothing(CD, DATA).await
            } else {
                rig.client.insert_data_medium(CD, DATA).await
            };
            assert_eq!((put.is_err(), ejects(&bmc)), (true, 0), "{status}, {gently}: {put:?}");
        }
    }
    let bmc = Bmc::generic();
    let rig = rig(&bmc, SYSTEM);
    assert_eq!(rig.client.insert_beside_nothing(CD, DATA).await.unwrap(), Insertion::Done);
    assert_eq!((bmc.resource(CD)["Image"].as_str(), ejects(&bmc)), (Some(DATA), 0));
    assert_eq!(rig.client.insert_beside_nothing(CD, DATA).await.unwrap(), Insertion::Done, "it is there");
}

/// An iDRAC goes on showing what was ejected: what it shows may be gone, and may be there.
#[tokio::test]
async fn a_drive_that_may_be_full_is_not_emptied_for_what_goes_into_an_empty_one() {
    const SLOT: &str = "/redfish/v1/Systems/System.Embedded.1/VirtualMedia/1";
    let bmc = Bmc::new("dell-r750");
    let rig = rig(&bmc, "/redfish/v1/Systems/System.Embedded.1");
    assert_eq!(rig.client.choose_boot_drive(DATA).await.unwrap(), SLOT);
    let theirs = "http://elsewhere.example/rescue.iso";
    bmc.edit(SLOT, |slot| (slot["Inserted"], slot["Image"]) = (true.into(), theirs.into()));
    let error = rig.client.insert_beside_nothing(SLOT, DATA).await.unwrap_err();
    assert!(error.found.contains("another medium has been put into the drive"), "{error}");
    assert_eq!((bmc.resource(SLOT)["Image"].as_str(), ejects(&bmc)), (Some(theirs), 0));
    bmc.edit(SLOT, |slot| (slot["Inserted"], slot["Image"]) = (false.into(), serde_json::Value::Null));
    assert_eq!(rig.client.insert_beside_nothing(SLOT, DATA).await.unwrap(), Insertion::Done);
    assert_eq!((bmc.resource(SLOT)["Image"].as_str(), ejects(&bmc)), (Some(DATA), 0));
}

/// What this server has ejected itself is gone, whatever the drive goes on showing; and nothing else is.
#[tokio::test]
async fn what_was_ejected_here_leaves_its_drive_empty_though_it_is_shown() {
    const SLOT: &str = "/redfish/v1/Systems/System.Embedded.1/VirtualMedia/1";
    const LATER: &str = "http://media.example/later.iso";
    let bmc = Bmc::new("dell-r750");
    let rig = rig(&bmc, "/redfish/v1/Systems/System.Embedded.1");
    let shows = |url: &str| bmc.edit(SLOT, |slot| (slot["Inserted"], slot["Image"]) = (true.into(), url.into()));
    // What it shows is no hindrance for it.
    let takes = || bmc.script("POST", "VirtualMedia.InsertMedia", odd(204, json!({})));
    rig.client.insert_media(BOOT).await.unwrap();
    assert!(rig.client.choose_boot_drive(DATA).await.is_err(), "it is in");
    rig.client.eject_media().await.unwrap();
    shows(BOOT);
    assert_eq!(rig.client.choose_boot_drive(DATA).await.unwrap(), SLOT);
    takes();
    assert_eq!(rig.client.insert_beside_nothing(SLOT, DATA).await.unwrap(), Insertion::Done);
    shows(DATA);
    rig.client.eject_data_medium(SLOT, DATA, false).await.unwrap();
    shows(DATA);
    takes();
    assert_eq!(rig.client.insert_beside_nothing(SLOT, LATER).await.unwrap(), Insertion::Done);
    shows(LATER);
    rig.client.eject_data_medium(SLOT, LATER, false).await.unwrap();
    // The same is put in again: it is there, as long as it is not ejected.
    rig.client.insert_media(BOOT).await.unwrap();
    assert!(rig.client.choose_boot_drive(LATER).await.is_err());
    shows("http://elsewhere.example/rescue.iso");
    assert!(rig.client.choose_boot_drive(LATER).await.is_err());
}

/// What is shown as ejected here is so for whoever looks; the medium goes in again, and one of that name alone is another's.
#[tokio::test]
async fn what_was_ejected_here_is_in_no_drive_though_it_is_shown() {
    const SLOT: &str = "/redfish/v1/Systems/System.Embedded.1/VirtualMedia/1";
    let bmc = Bmc::new("dell-r750");
    let device = RedfishBmc::new(rig(&bmc, "/redfish/v1/Systems/System.Embedded.1").client);
    let shows = |url: &str| bmc.edit(SLOT, |slot| (slot["Inserted"], slot["Image"]) = (true.into(), url.into()));
    device.put_in(SLOT, DATA).await.unwrap();
    device.take_out(SLOT, DATA).await.unwrap();
    shows(DATA);
    for url in [DATA, BOOT] {
        assert_eq!(device.content(SLOT, url).await.unwrap(), Drive::Empty);
        assert_eq!(device.drive(&[url.to_owned()]).await.unwrap(), Drive::Empty);
    }
    ejects(&bmc);
    device.put_in(SLOT, DATA).await.unwrap();
    assert_eq!((ejects(&bmc), device.content(SLOT, DATA).await.unwrap()), (1, Drive::Medium));
    device.take_out(SLOT, DATA).await.unwrap();
    shows("tools.iso");
    assert_eq!(device.content(SLOT, BOOT).await.unwrap(), Drive::Another);
    // It is in again, however its address was shown when it was ejected.
    let (whole, shown) = ("http://user:secret@media.example:80/t.iso", "http://media.example/t.iso");
    bmc.edit(SLOT, |slot| (slot["Inserted"], slot["Image"]) = (false.into(), Value::Null));
    for _ in 0..2 {
        device.put_in(SLOT, whole).await.unwrap();
        shows(shown);
        assert_eq!(device.content(SLOT, whole).await.unwrap(), Drive::Medium);
        device.take_out(SLOT, whole).await.unwrap();
    }
}

/// Whoever looked before it saw something else: what has gone in since stays, and one that is still read is called off.
#[tokio::test]
async fn only_the_medium_that_is_meant_is_ejected() {
    let bmc = Bmc::generic();
    with_second(&bmc);
    let device = RedfishBmc::new(rig(&bmc, SYSTEM).client);
    let theirs = "http://elsewhere.example/rescue.iso";
    bmc.edit(CD2, |slot| (slot["Inserted"], slot["Image"]) = (true.into(), theirs.into()));
    device.take_out(CD2, DATA).await.unwrap();
    device.call_off(CD2, DATA).await.unwrap();
    assert_eq!((bmc.resource(CD2)["Image"].as_str(), ejects(&bmc)), (Some(theirs), 0));
    bmc.edit(CD2, |slot| (slot["Inserted"], slot["Image"]) = (false.into(), Value::Null));
    device.take_out(CD2, DATA).await.unwrap();
    assert_eq!(ejects(&bmc), 0);
    // An empty drive may refuse it.
    for answer in [odd(204, json!({})), odd(400, error_body("Empty", "no medium"))] {
        bmc.script("POST", "CD2/Actions/VirtualMedia.EjectMedia", answer);
        device.call_off(CD2, DATA).await.unwrap();
        assert_eq!(ejects(&bmc), 1);
    }
}

/// An iDRAC that goes on showing what was ejected refuses another eject: nothing is in it.
#[tokio::test]
async fn one_that_was_ejected_and_is_still_shown_is_called_off_without_a_failure() {
    const SLOT: &str = "/redfish/v1/Systems/System.Embedded.1/VirtualMedia/1";
    let bmc = Bmc::new("dell-r750");
    let device = RedfishBmc::new(rig(&bmc, "/redfish/v1/Systems/System.Embedded.1").client);
    device.put_in(SLOT, DATA).await.unwrap();
    device.take_out(SLOT, DATA).await.unwrap();
    bmc.edit(SLOT, |slot| (slot["Inserted"], slot["Image"]) = (true.into(), DATA.into()));
    bmc.script("POST", "VirtualMedia.EjectMedia", odd(400, error_body("Empty", "no medium")));
    device.call_off(SLOT, DATA).await.unwrap();
}

/// Some BMCs show the name alone: an error says no more of it than that, and comes to an end.
#[tokio::test]
async fn a_failure_beside_a_medium_that_has_no_address_is_told() {
    for image in
        ["rescue.iso", "/media/rescue.iso", "http://elsewhere", "/", " ", "(http://a/b", " /a/b/c", "((/", "\u{ab}//b"]
    {
        let bmc = Bmc::generic();
        let rig = rig(&bmc, SYSTEM);
        bmc.edit(CD, |cd| (cd["Inserted"], cd["Image"]) = (true.into(), image.into()));
        assert_eq!(rig.client.data_medium(CD, DATA).await.unwrap(), Drive::Another, "{image}");
        let error = rig.client.insert_beside_nothing(CD, DATA).await.unwrap_err();
        assert!(error.found.contains("another medium has been put into the drive"), "{image}: {error}");
        for _ in 0..20 {
            let text = format!("rescue.iso {image}2 {image} and {image}");
            bmc.script("GET", "VirtualMedia/CD1", odd(400, error_body("GeneralError", &text)));
        }
        let error = rig.client.data_medium(CD, DATA).await.unwrap_err();
        assert!(!error.found.is_empty(), "{image}");
    }
}

/// What it shows may be gone, or somebody's: the BMC says so when something is to go in, and nothing is ejected for that.
#[tokio::test]
async fn a_second_drive_that_goes_on_showing_media_is_tried_and_not_emptied() {
    const LIST: &str = "/redfish/v1/Systems/System.Embedded.1/VirtualMedia";
    let (first, second) = (format!("{LIST}/1"), format!("{LIST}/2"));
    let theirs = "http://elsewhere.example/rescue.iso";
    let bmc = Bmc::new("dell-r750");
    let rig = rig(&bmc, "/redfish/v1/Systems/System.Embedded.1");
    rig.client.insert_media(BOOT).await.unwrap();
    bmc.edit(&second, |slot| (slot["Inserted"], slot["Image"]) = (true.into(), theirs.into()));
    ejects(&bmc);
    // It is there.
    assert_eq!(rig.client.choose_data_drive(DATA).await.unwrap(), second);
    for _ in 0..20 {
        bmc.script("POST", "2/Actions/VirtualMedia.InsertMedia", odd(400, error_body("IDRAC.2.8.VRM0012", theirs)));
    }
    let error = rig.client.insert_data_medium(&second, DATA).await.unwrap_err();
    assert!(error.found.contains("shows another medium") && !error.found.contains("rescue"), "{error}");
    assert!(error.kind == ErrorKind::Unsupported && error.advice.contains("eject the medium at the BMC"), "{error}");
    assert!(error.advice.contains("check that the image is there"), "{error}");
    assert_eq!((bmc.resource(&second)["Image"].as_str(), ejects(&bmc)), (Some(theirs), 0));
    // What is no answer about the medium keeps its cause and its advice, and hides as much.
    bmc.set(|inner| inner.script.clear());
    for _ in 0..20 {
        bmc.script("POST", "2/Actions/VirtualMedia.InsertMedia", odd(401, error_body("InsufficientPrivilege", theirs)));
    }
    let error = rig.client.insert_data_medium(&second, DATA).await.unwrap_err();
    assert!(error.kind == ErrorKind::Unauthorized && !error.advice.contains("eject"), "{error}");
    assert!(!error.to_string().contains("rescue"), "{error}");
    // Nor does a task's failure name what is somebody's.
    bmc.set(|inner| inner.script.clear());
    let accepted = Odd::Answer(202, vec![("location", "/t/1".to_owned())], Vec::new());
    bmc.script("POST", "2/Actions/VirtualMedia.InsertMedia", accepted);
    let failed = json!({"TaskState": "Exception", "Messages": [{"MessageId": "X.1.Unreadable", "Message": format!("{theirs} is unreadable.")}]});
    bmc.script("GET", "/t/1", odd(200, failed));
    let error = rig.client.insert_data_medium(&second, DATA).await.unwrap_err();
    assert!(error.found.contains("ended badly") && !error.found.contains("rescue"), "{error}");
    // It is gone, and still shown.
    bmc.set(|inner| inner.script.clear());
    bmc.script("POST", "2/Actions/VirtualMedia.InsertMedia", odd(204, json!({})));
    assert_eq!(rig.client.insert_data_medium(&second, DATA).await.unwrap(), Insertion::Done);
    assert_eq!((bmc.resource(&first)["Image"].as_str(), ejects(&bmc)), (Some(BOOT), 0));
}

#[tokio::test]
async fn a_bmc_that_reads_by_https_alone_is_told_before_anything_is_done() {
    let bmc = Bmc::generic();
    with_second(&bmc);
    for drive in [CD, CD2] {
        declares(&bmc, drive, json!(["HTTPS", "NFS"]));
    }
    let rig = rig(&bmc, SYSTEM);
    let error = rig.client.choose_data_drive(DATA).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unsupported);
    assert!(error.found.contains("mounts by HTTPS, NFS alone, and the image is served by http"), "{error}");
    assert!(error.advice.contains("spec.url"), "{error}");
    assert!(bmc.take_log().iter().all(|call| !call.contains("Actions")));
    declares(&bmc, CD, json!(["HTTP"]));
    assert_eq!(rig.client.choose_data_drive(DATA).await.unwrap(), CD);
}

#[tokio::test(start_paused = true)]
async fn a_recorded_drive_that_is_no_drive_is_never_called() {
    let bmc = Bmc::generic();
    let rig = rig(&bmc, SYSTEM);
    // One that the BMC had before an update may be hidden for a moment, too.
    is_not_shown(&rig, &format!("{LIST}/CD9")).await;
    for drive in [SYSTEM, "/redfish/v1/Managers/BMC", &format!("{LIST}/../../x"), &format!("{LIST}/CD1?x"), ""] {
        bmc.take_log();
        let error = rig.client.insert_data_medium(drive, DATA).await.unwrap_err();
        assert!(error.found.contains("none of the BMC's virtual drives"), "{drive}: {error}");
        // It counts as gone after a while: a host whose BMC shows its drives elsewhere since an update can be let go.
        is_not_shown(&rig, drive).await;
        tokio::time::advance(Duration::from_secs(599)).await;
        is_not_shown(&rig, drive).await;
        tokio::time::advance(Duration::from_secs(1)).await;
        rig.client.eject_data_medium(drive, DATA, false).await.unwrap();
        rig.client.eject_data_medium(drive, DATA, true).await.unwrap();
        assert_eq!(rig.client.data_medium(drive, DATA).await.unwrap(), Drive::Empty);
        let log = bmc.take_log();
        assert!(log.iter().all(|call| call.starts_with("GET ") || call.contains("/Sessions")), "{drive}: {log:?}");
    }
    // Nobody has looked for it since: that it was hidden then says nothing of now.
    let gone = format!("{LIST}/CD9");
    is_not_shown(&rig, &gone).await;
    tokio::time::advance(Duration::from_secs(599)).await;
    is_not_shown(&rig, &gone).await;
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(rig.client.data_medium(&gone, DATA).await.unwrap(), Drive::Empty);
    rig.client.eject_data_medium(&gone, DATA, false).await.unwrap();
}

/// Whoever has recorded this drive does not hear that it is empty.
async fn is_not_shown(rig: &Rig, drive: &str) {
    let looked = rig.client.data_medium(drive, DATA).await.unwrap_err();
    let ejected = rig.client.eject_data_medium(drive, DATA, false).await.unwrap_err();
    let called_off = rig.client.eject_data_medium(drive, DATA, true).await.unwrap_err();
    for error in [looked, ejected, called_off] {
        assert_eq!(error.kind, ErrorKind::NotFound, "{drive}: {error}");
        assert!(error.found.contains("does not show the virtual drive"), "{drive}: {error}");
    }
}

/// What was found in their place is not kept, be it in the process that knew them or in another.
#[tokio::test(start_paused = true)]
async fn drives_that_are_hidden_for_one_look_are_found_again() {
    const OTHERS: &str = "/redfish/v1/Managers/BMC/VirtualMedia";
    let theirs = "http://elsewhere.example/rescue.iso";
    for (known, hides) in [(true, "list"), (false, "list"), (true, "drive"), (true, "boot drive")] {
        let bmc = Bmc::generic();
        with_second(&bmc);
        let text = bmc.resource(CD).to_string().replace(LIST, OTHERS);
        bmc.set(|inner| {
            inner.resources.insert(format!("{OTHERS}/CD1"), serde_json::from_str(&text).unwrap());
            let list = json!({"@odata.id": OTHERS, "Members": [{"@odata.id": format!("{OTHERS}/CD1")}]});
            inner.resources.insert(OTHERS.into(), list);
        });
        bmc.edit("/redfish/v1/Managers/BMC", |manager| manager["VirtualMedia"] = json!({"@odata.id": OTHERS}));
        bmc.edit(CD2, |cd| (cd["Inserted"], cd["Image"]) = (true.into(), DATA.into()));
        bmc.edit(CD, |cd| (cd["Inserted"], cd["Image"]) = (true.into(), theirs.into()));
        let rig = rig(&bmc, SYSTEM);
        if known {
            assert_eq!(rig.client.data_medium(CD2, DATA).await.unwrap(), Drive::Medium);
        } else {
            rig.client.system().await.unwrap();
        }
        let before = bmc.inner.lock().unwrap().resources.clone();
        bmc.set(|inner| {
            let is_hidden = |path: &str| match hides {
                "list" => path.starts_with(LIST),
                "drive" => path == CD2,
                _ => path == CD,
            };
            inner.resources.retain(|path, _| !is_hidden(path));
        });
        for _ in 0..2 {
            match hides {
                // It is known by its name, whichever is found first.
                "boot drive" => assert_eq!(rig.client.data_medium(CD2, DATA).await.unwrap(), Drive::Medium),
                _ => is_not_shown(&rig, CD2).await,
            }
        }
        tokio::time::advance(Duration::from_secs(500)).await;
        bmc.set(|inner| inner.resources.clone_from(&before));
        assert_eq!(rig.client.data_medium(CD2, DATA).await.unwrap(), Drive::Medium, "{known} {hides}");
        // The next time counts anew.
        tokio::time::advance(Duration::from_secs(500)).await;
        bmc.set(|inner| drop(inner.resources.remove(CD2)));
        is_not_shown(&rig, CD2).await;
        bmc.set(|inner| inner.resources = before);
        assert_eq!(rig.client.data_medium(CD, theirs).await.unwrap(), Drive::Medium, "{known} {hides}");
        assert_eq!(rig.client.choose_boot_drive(theirs).await.unwrap(), CD, "{known} {hides}");
    }
}

/// A BMC that shows its drives elsewhere for good has them there in the end, and they are kept in mind.
#[tokio::test(start_paused = true)]
async fn drives_that_are_shown_elsewhere_for_good_are_taken_for_what_they_are() {
    let bmc = Bmc::generic();
    with_second(&bmc);
    let rig = rig(&bmc, SYSTEM);
    assert_eq!(rig.client.choose_boot_drive(DATA).await.unwrap(), CD);
    bmc.set(|inner| drop(inner.resources.remove(CD)));
    bmc.edit(LIST, |list| list["Members"] = json!([{"@odata.id": CD2}]));
    let looks = || bmc.take_log().iter().filter(|call| call.contains(&format!("{LIST}?"))).count();
    for (minutes, is_found, searches) in [(0, false, 1), (1, false, 1), (5, false, 1), (5, true, 1), (1, true, 0)] {
        tokio::time::advance(Duration::from_secs(60 * minutes)).await;
        looks();
        // What is put into another one meanwhile would be looked for elsewhere later.
        match rig.client.choose_boot_drive(DATA).await {
            Ok(drive) => assert!(is_found && drive == CD2, "after {minutes} minutes more: {drive}"),
            Err(error) => assert!(!is_found && error.kind == ErrorKind::NotFound, "{error}"),
        }
        assert_eq!(looks(), searches, "after {minutes} minutes more");
    }
    // One that is missed again long after that counts anew.
    let missed = async || rig.client.data_medium(CD, DATA).await;
    assert_eq!(missed().await.unwrap_err().kind, ErrorKind::NotFound);
    tokio::time::advance(Duration::from_secs(3 * 86_400)).await;
    assert_eq!(missed().await.unwrap_err().kind, ErrorKind::NotFound);
}

/// What the agent boots from goes into what is there, and comes out of there.
#[tokio::test(start_paused = true)]
async fn what_went_into_a_drive_that_stood_in_for_another_is_ejected_from_it() {
    let bmc = Bmc::generic();
    with_second(&bmc);
    let rig = rig(&bmc, SYSTEM);
    assert_eq!(rig.client.choose_boot_drive(DATA).await.unwrap(), CD);
    let before = bmc.resource(CD);
    bmc.set(|inner| drop(inner.resources.remove(CD)));
    bmc.edit(LIST, |list| list["Members"] = json!([{"@odata.id": CD2}]));
    rig.client.insert_media(BOOT).await.unwrap();
    assert_eq!(bmc.resource(CD2)["Image"], BOOT);
    bmc.set(|inner| drop(inner.resources.insert(CD.into(), before)));
    bmc.edit(CD, |cd| (cd["Inserted"], cd["Image"]) = (true.into(), DATA.into()));
    bmc.edit(LIST, |list| list["Members"] = json!([{"@odata.id": CD}, {"@odata.id": CD2}]));
    // Nothing that is recorded goes into one that stands in, either.
    assert_eq!(rig.client.choose_data_drive(DATA).await.unwrap_err().kind, ErrorKind::NotFound);
    rig.client.eject_media().await.unwrap();
    assert_eq!((&bmc.resource(CD2)["Inserted"], &bmc.resource(CD)["Inserted"]), (&json!(false), &json!(true)));
    assert_eq!(rig.client.choose_data_drive(BOOT).await.unwrap(), CD2, "beside the one that is back");
    // What may be in one that is hidden is not taken to be out.
    rig.client.media_state().await.unwrap();
    bmc.set(|inner| drop(inner.resources.remove(CD)));
    bmc.edit(LIST, |list| list["Members"] = json!([{"@odata.id": CD2}]));
    rig.client.media_state().await.unwrap();
    assert_eq!(rig.client.eject_media().await.unwrap_err().kind, ErrorKind::NotFound);
}

/// It is looked for anew where what was known is forgotten, as after a look at the drive that is hidden: what is seen in the one that stands in is ours.
#[tokio::test(start_paused = true)]
async fn what_is_seen_in_a_drive_that_stands_in_is_ejected_from_it() {
    let bmc = Bmc::generic();
    with_second(&bmc);
    let rig = rig(&bmc, SYSTEM);
    assert_eq!(rig.client.choose_boot_drive(DATA).await.unwrap(), CD);
    bmc.set(|inner| drop(inner.resources.remove(CD)));
    bmc.edit(LIST, |list| list["Members"] = json!([{"@odata.id": CD2}]));
    rig.client.insert_media(BOOT).await.unwrap();
    assert_eq!(rig.client.data_medium(CD, DATA).await.unwrap_err().kind, ErrorKind::NotFound);
    rig.client.eject_media().await.unwrap();
    assert_eq!(bmc.resource(CD2)["Inserted"], false);
    // What somebody else has put there is left.
    let theirs = "http://elsewhere.example/rescue.iso";
    bmc.edit(CD2, |cd| (cd["Inserted"], cd["Image"]) = (true.into(), theirs.into()));
    assert_eq!(rig.client.eject_media().await.unwrap_err().kind, ErrorKind::NotFound);
    assert_eq!(bmc.resource(CD2)["Image"], theirs);
}

const INSERT_CD2: &str = "CD2/Actions/VirtualMedia.InsertMedia";

fn asked(bmc: &Bmc) -> usize {
    bmc.take_log().iter().filter(|call| call.ends_with(INSERT_CD2)).count()
}

/// The BMC may be at work on the first request, and refuse another because of that.
#[tokio::test]
async fn a_refusal_after_a_lost_answer_is_no_refusal_of_what_was_asked_first() {
    for status in [400, 404, 409, 422, 500, 501] {
        let bmc = Bmc::generic();
        with_second(&bmc);
        let rig = rig(&bmc, SYSTEM);
        assert_eq!(rig.client.choose_data_drive(DATA).await.unwrap(), CD2);
        bmc.script("POST", INSERT_CD2, dropped());
        for _ in 0..20 {
            bmc.script("POST", INSERT_CD2, odd(status, error_body("GeneralError", &format!("{DATA} is being read"))));
        }
        let error = rig.client.insert_data_medium(CD2, DATA).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unanswered, "{status}: {error}");
        assert!(error.found.contains("is being read") && !error.found.contains("tools.iso"), "{error}");
        assert!(asked(&bmc) >= 2, "{status}: it is asked again");
        // The same of the boot medium, which goes to no other drive and no other address for it.
        bmc.set(|inner| inner.script.clear());
        bmc.edit(CD, |cd| cd["Inserted"] = false.into());
        bmc.script("POST", "CD1/Actions/VirtualMedia.InsertMedia", dropped());
        for _ in 0..20 {
            let refusal = odd(status, error_body("GeneralError", "it is being read"));
            bmc.script("POST", "CD1/Actions/VirtualMedia.InsertMedia", refusal);
        }
        let urls = [BOOT.to_owned(), BOOT.replace("http:", "https:")];
        let error = rig.client.insert_media_from(&urls, None).await.unwrap_err();
        assert_eq!((error.kind, asked(&bmc)), (ErrorKind::Unanswered, 0), "{status}: {error}");
    }
    // Nor is a look at the drive that is refused one.
    let bmc = Bmc::generic();
    with_second(&bmc);
    let rig = rig(&bmc, SYSTEM);
    assert_eq!(rig.client.choose_data_drive(DATA).await.unwrap(), CD2);
    bmc.script("GET", "VirtualMedia/CD2", odd(200, bmc.resource(CD2)));
    bmc.script("POST", INSERT_CD2, dropped());
    bmc.script("GET", "VirtualMedia/CD2", odd(404, Value::Null));
    let error = rig.client.insert_data_medium(CD2, DATA).await.unwrap_err();
    assert_eq!((error.kind, asked(&bmc)), (ErrorKind::Unanswered, 1), "{error}");
}

fn accepted(location: &str) -> Odd {
    Odd::Answer(202, vec![("location", location.to_owned())], Vec::new())
}

/// The BMC has accepted it: it is not asked for twice, and not taken for refused, whatever becomes of the task's resource.
#[tokio::test]
async fn an_insertion_that_the_bmc_works_at_for_long_is_pending() {
    let bmc = Bmc::generic();
    with_second(&bmc);
    let rig = rig(&bmc, SYSTEM);
    assert_eq!(rig.client.choose_data_drive(DATA).await.unwrap(), CD2);
    let running = json!({"@odata.id": "/t/1", "TaskState": "Running", "PercentComplete": 5});
    bmc.set(|inner| drop(inner.resources.insert("/t/1".into(), running)));
    bmc.script("POST", INSERT_CD2, accepted("/t/1"));
    assert_eq!(rig.client.insert_data_medium(CD2, DATA).await.unwrap(), Insertion::Pending);
    assert_eq!(asked(&bmc), 1);
    // A look that is refused is one that tells nothing, whether it goes on or not.
    for status in [500, 503] {
        bmc.script("POST", INSERT_CD2, accepted("/t/1"));
        let refusal = || odd(status, error_body("GeneralError", "not now"));
        bmc.script("GET", "/t/1", refusal());
        assert_eq!(rig.client.insert_data_medium(CD2, DATA).await.unwrap(), Insertion::Pending, "{status}");
        bmc.set(|inner| inner.script.clear());
        bmc.script("POST", INSERT_CD2, accepted("/t/2"));
        for _ in 0..100 {
            bmc.script("GET", "/t/2", refusal());
        }
        let error = rig.client.insert_data_medium(CD2, DATA).await.unwrap_err();
        bmc.set(|inner| inner.script.clear());
        assert_eq!((error.kind, asked(&bmc)), (ErrorKind::Unanswered, 2), "{status}: {error}");
        assert!(!error.kind.is_definite_refusal() && error.found.contains("not now"), "{error}");
    }
    // A task that has ended badly is one that was refused, and so is one whose monitor answers as the insertion would have.
    bmc.script("POST", INSERT_CD2, accepted("/t/4"));
    bmc.script("GET", "/t/4", odd(400, error_body("GeneralError", "no such image")));
    let error = rig.client.insert_data_medium(CD2, DATA).await.unwrap_err();
    assert!(error.kind.is_definite_refusal() && error.found.contains("no such image"), "{error}");
    bmc.script("POST", INSERT_CD2, accepted("/t/3"));
    bmc.script("GET", "/t/3", odd(200, json!({"TaskState": "Exception"})));
    let error = rig.client.insert_data_medium(CD2, DATA).await.unwrap_err();
    assert!(error.kind.is_definite_refusal() && error.found.contains("ended badly"), "{error}");
}

#[tokio::test]
async fn an_answer_that_is_lost_is_made_up_for() {
    let bmc = Bmc::generic();
    with_second(&bmc);
    bmc.script("POST", "CD2/Actions/VirtualMedia.InsertMedia", crate::kit::Odd::DropAfter);
    let rig = rig(&bmc, SYSTEM);
    assert_eq!(attach(&rig).await.unwrap(), CD2);
    assert_eq!(bmc.resource(CD2)["Image"], DATA);
    bmc.script("POST", "CD2/Actions/VirtualMedia.EjectMedia", dropped());
    rig.client.eject_data_medium(CD2, DATA, false).await.unwrap();
    assert_eq!(bmc.resource(CD2)["Inserted"], false);
    // What the BMC says of the address is not repeated.
    bmc.script(
        "POST",
        "CD2/Actions/VirtualMedia.InsertMedia",
        odd(400, error_body("Unreachable", &format!("cannot read {DATA}"))),
    );
    let error = attach(&rig).await.unwrap_err();
    assert!(error.found.contains("cannot read") && !error.found.contains("tools.iso"), "{error}");
}

#[tokio::test]
async fn recorded_bmcs_have_these_drives() {
    // An iDRAC 9 has two drives in its system's collection, an iLO 5 one for CDs; the generic tree has a CD and a floppy.
    for (set, system, drive) in [
        ("dell-r750", "/redfish/v1/Systems/System.Embedded.1", "/redfish/v1/Systems/System.Embedded.1/VirtualMedia/2"),
        ("hpe", "/redfish/v1/Systems/1", "/redfish/v1/Managers/1/VirtualMedia/2"),
    ] {
        let bmc = Bmc::new(set);
        let rig = rig(&bmc, system);
        assert_eq!(rig.client.choose_data_drive(DATA).await.unwrap(), drive, "{set}");
    }
}
