//! A system's interfaces: all in one answer where the BMC inlines members of collections (`$expand`), one by one where it does not.

use redfish::TransportError;
use serde_json::{Value, json};

use crate::kit::{Bmc, Odd, Rig, SYSTEM, dropped, odd, rig};

const MACS: [&str; 3] = ["12:44:6A:3B:04:11", "12:44:6A:3B:88:90", "12:44:6A:3B:04:11"];
const LIST: &str = "/redfish/v1/Systems/437XR1138R2/EthernetInterfaces";
const FIRST: &str = "/redfish/v1/Systems/437XR1138R2/EthernetInterfaces/12446A3B0411";

/// A BMC whose system has been read.
async fn known() -> (std::sync::Arc<Bmc>, Rig) {
    let bmc = Bmc::generic();
    let rig = rig(&bmc, SYSTEM);
    rig.client.system().await.unwrap();
    bmc.take_log();
    (bmc, rig)
}

/// The expanded collection as the BMC would have sent it, changed.
fn inlined(bmc: &Bmc, change: impl FnOnce(&mut Value)) -> Odd {
    let mut collection = bmc.inner.lock().unwrap().expanded(LIST);
    change(&mut collection);
    odd(200, collection)
}

/// What is asked for when the plain list is read, and each interface.
fn one_by_one() -> Vec<String> {
    let members = ["", "/12446A3B0411", "/12446A3B8890", "/VLAN1", "/ToManager"];
    members.iter().map(|member| format!("GET {LIST}{member}")).collect()
}

#[tokio::test]
async fn all_are_read_with_one_request() {
    for (features, query) in [
        (json!({"NoLinks": true, "Levels": true}), "?$expand=.($levels=1)"),
        (json!({"NoLinks": true, "Levels": false}), "?$expand=."),
    ] {
        let bmc = Bmc::generic();
        bmc.edit("/redfish/v1", |root| root["ProtocolFeaturesSupported"]["ExpandQuery"] = features);
        let rig = rig(&bmc, SYSTEM);
        rig.client.system().await.unwrap();
        bmc.take_log();
        assert_eq!(rig.client.macs().await.unwrap(), MACS);
        assert_eq!(bmc.take_log(), [format!("GET {LIST}{query}")]);
    }
}

#[tokio::test]
async fn a_bmc_that_does_not_offer_to_inline_is_not_asked_to() {
    for features in [json!(null), json!({}), json!({"NoLinks": false, "Levels": true, "Links": true})] {
        let bmc = Bmc::generic();
        bmc.edit("/redfish/v1", |root| root["ProtocolFeaturesSupported"]["ExpandQuery"] = features);
        let rig = rig(&bmc, SYSTEM);
        rig.client.system().await.unwrap();
        bmc.take_log();
        assert_eq!(rig.client.macs().await.unwrap(), MACS);
        assert_eq!(bmc.take_log(), one_by_one());
    }
}

/// Whatever is wrong with the answer, the plain list has the addresses, and the BMC is not asked to inline again.
#[tokio::test]
async fn an_expansion_that_cannot_be_used_hides_no_address() {
    let text = |body: &str| Odd::Answer(200, Vec::new(), body.as_bytes().to_vec());
    let bmc = Bmc::generic();
    let unusable: Vec<(&str, Odd)> = vec![
        ("refused", odd(400, json!({}))),
        ("forbidden", odd(403, json!({}))),
        ("not found", odd(404, json!({}))),
        ("failed", odd(500, json!({}))),
        ("not implemented", odd(501, json!({}))),
        ("not there now", odd(202, Value::Null)),
        ("nothing", odd(204, Value::Null)),
        ("empty", text("")),
        ("a page for people", text("<html>")),
        ("cut off", text(r#"{"Members": [{"MACAddress": "#)),
        ("too large", Odd::Fail(TransportError::TooLarge)),
        ("no HTTP", Odd::Fail(TransportError::Protocol { detail: "invalid chunk".into() })),
        ("no object", odd(200, json!([]))),
        ("no members", inlined(&bmc, |list| list["Members"] = Value::Null)),
        ("counted members", inlined(&bmc, |list| list["Members"] = json!([]))),
        ("members without content", inlined(&bmc, |list| list["Members"] = json!([{}, {}, {}, {}]))),
        ("one without content", inlined(&bmc, |list| list["Members"][1] = Value::Null)),
    ];
    for (name, answer) in unusable {
        let (bmc, rig) = known().await;
        bmc.script("GET", "/EthernetInterfaces", answer);
        assert_eq!(rig.client.macs().await.unwrap(), MACS, "{name}");
        assert_eq!(bmc.take_log().split_off(1), one_by_one(), "{name}");
        assert_eq!(rig.client.macs().await.unwrap(), MACS, "{name}");
        assert_eq!(bmc.take_log(), one_by_one(), "{name}: it is not asked to inline again");
    }
}

/// The link alone, or a part without the addresses: only that one is read by itself.
#[tokio::test]
async fn a_member_that_is_not_whole_is_read_by_itself() {
    for part in [json!({"@odata.id": FIRST}), json!({"@odata.id": FIRST, "Id": "12446A3B0411", "Name": "eth0"})] {
        let (bmc, rig) = known().await;
        let answer = inlined(&bmc, |list| list["Members"][0] = part);
        bmc.script("GET", "/EthernetInterfaces", answer);
        assert_eq!(rig.client.macs().await.unwrap(), MACS);
        assert_eq!(bmc.take_log().split_off(1), [format!("GET {FIRST}")]);
    }
}

#[tokio::test]
async fn an_interface_without_address_hides_none_of_the_others() {
    for expand in [true, false] {
        let bmc = Bmc::generic();
        if !expand {
            bmc.edit("/redfish/v1", |root| root["ProtocolFeaturesSupported"] = Value::Null);
        }
        bmc.edit(FIRST, |interface| {
            interface["MACAddress"] = Value::Null;
            interface.as_object_mut().unwrap().remove("PermanentMACAddress");
        });
        let rig = rig(&bmc, SYSTEM);
        assert_eq!(rig.client.macs().await.unwrap(), MACS[1..], "expand: {expand}");
    }
}

/// What is no answer to the query says nothing about it: the plain list would not be answered either.
#[tokio::test]
async fn a_lost_connection_is_no_reason_to_ask_otherwise() {
    let (bmc, rig) = known().await;
    bmc.script("GET", "/EthernetInterfaces", dropped());
    bmc.script("GET", "/EthernetInterfaces", dropped());
    rig.client.macs().await.unwrap_err();
    assert!(bmc.take_log().iter().all(|line| line.contains("expand")));
    assert_eq!(rig.client.macs().await.unwrap(), MACS);
    assert_eq!(bmc.take_log().len(), 1, "it is asked to inline again");
}
