//! A live ISO: in the drive that machines boot from, which they are told to boot each time.

use bmc::{BootDevice, Drive, ErrorKind, Insertion, Lasting};
use redfish::RedfishBmc;
use serde_json::json;

use crate::kit::{Bmc, CD, SYSTEM, error_body, odd, rig};

const ISO: &str = "http://media.example/rescue.iso";
const ALLOWED: &str = "BootSourceOverrideEnabled@Redfish.AllowableValues";

#[tokio::test]
async fn it_goes_into_the_drive_that_machines_boot_from_unless_another_is_in_it() {
    let bmc = Bmc::generic();
    let rig = rig(&bmc, SYSTEM);
    let drive = rig.client.choose_boot_drive(ISO).await.unwrap();
    assert_eq!(drive, CD);
    assert_eq!(rig.client.insert_data_medium(&drive, ISO).await.unwrap(), Insertion::Done);
    assert_eq!(rig.client.data_medium(&drive, ISO).await.unwrap(), Drive::Medium);
    // Its own medium is in nobody's way.
    assert_eq!(rig.client.choose_boot_drive(ISO).await.unwrap(), CD);
    let error = rig.client.choose_boot_drive("http://media.example/other.iso").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unsupported);
    assert!(error.found.contains("another medium is in the virtual drive that machines boot from"), "{error}");
    assert_eq!(bmc.resource(CD)["Image"], ISO, "it is left there");
}

#[tokio::test]
async fn a_drive_that_reads_by_other_protocols_is_told() {
    let bmc = Bmc::generic();
    bmc.edit(CD, |cd| {
        cd["Actions"]["#VirtualMedia.InsertMedia"]["TransferProtocolType@Redfish.AllowableValues"] = json!(["HTTPS"]);
    });
    let error = rig(&bmc, SYSTEM).client.choose_boot_drive(ISO).await.unwrap_err();
    assert!(error.found.contains("mounts by HTTPS alone, and the image is served by http"), "{error}");
    assert!(error.advice.contains("spec.image.url"), "{}", error.advice);
}

/// What is set by an override for each boot, in order, and what it is said to hold for.
async fn set(bmc: &std::sync::Arc<Bmc>) -> (Vec<String>, Lasting) {
    let device = RedfishBmc::new(rig(bmc, SYSTEM).client);
    let lasting = device.each_from_medium().await.unwrap();
    let sent = bmc.take_seen().into_iter().filter(|seen| seen.method == "PATCH");
    let word = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    (sent.map(|seen| word(&seen.body["Boot"]["BootSourceOverrideEnabled"])).collect(), lasting)
}

#[tokio::test]
async fn each_boot_is_from_it_where_the_bmc_keeps_that() {
    let bmc = Bmc::generic();
    assert_eq!(set(&bmc).await, (vec!["Continuous".to_owned()], Lasting::EachBoot));
    let boot = bmc.resource(SYSTEM)["Boot"].clone();
    assert_eq!(
        (&boot["BootSourceOverrideTarget"], &boot["BootSourceOverrideEnabled"]),
        (&json!("Cd"), &json!("Continuous"))
    );
    // An agent is booted once after that, and nothing is left of it when the firmware is to choose again.
    let device = RedfishBmc::new(rig(&bmc, SYSTEM).client);
    device.once_from_medium().await.unwrap();
    assert_eq!(bmc.resource(SYSTEM)["Boot"]["BootSourceOverrideEnabled"], "Once");
    device.normally().await.unwrap();
    assert_eq!(device.standing().await.unwrap().override_ahead, Some(false));
}

#[tokio::test]
async fn the_next_boot_alone_is_from_it_where_the_bmc_offers_or_takes_no_more() {
    let bmc = Bmc::generic();
    bmc.edit(SYSTEM, |system| system["Boot"][ALLOWED] = json!(["Disabled", "Once"]));
    assert_eq!(set(&bmc).await, (vec!["Once".to_owned()], Lasting::NextBoot));
    let bmc = Bmc::generic();
    bmc.script(
        "PATCH",
        SYSTEM,
        odd(400, error_body("PropertyValueNotInList", "The value Continuous is not in the list")),
    );
    assert_eq!(set(&bmc).await, (vec!["Continuous".to_owned(), "Once".to_owned()], Lasting::NextBoot));
    assert_eq!(bmc.resource(SYSTEM)["Boot"]["BootSourceOverrideEnabled"], "Once");
}

#[tokio::test]
async fn what_the_bmc_has_made_of_it_is_read_back() {
    // It takes the change and drops it: it is set for one boot then.
    let bmc = Bmc::generic();
    bmc.edit(SYSTEM, |system| system["Boot"]["BootSourceOverrideEnabled"] = "Disabled".into());
    bmc.script("PATCH", SYSTEM, odd(204, serde_json::Value::Null));
    assert_eq!(set(&bmc).await, (vec!["Continuous".to_owned(), "Once".to_owned()], Lasting::NextBoot));
    // It takes the change and makes another of it, or does not show it: it is left at that, and not said to last.
    for shown in [json!("Once"), serde_json::Value::Null] {
        let bmc = Bmc::generic();
        bmc.edit(SYSTEM, |system| {
            (system["Boot"]["BootSourceOverrideEnabled"], system["Boot"]["BootSourceOverrideTarget"]) =
                (shown, "Cd".into());
        });
        bmc.script("PATCH", SYSTEM, odd(204, serde_json::Value::Null));
        assert_eq!(set(&bmc).await, (vec!["Continuous".to_owned()], Lasting::NextBoot));
    }
}
