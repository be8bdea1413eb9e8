//! The light by which a person finds a server: on recorded trees of several makers, and on BMCs that refuse, do not follow, or have none.

use std::sync::Arc;

use bmc::{Bmc as _, BmcError, Capability, ErrorKind};
use redfish::RedfishBmc;
use serde_json::{Value, json};

use crate::kit::{Bmc, PASSWORD, SYSTEM, dropped, error_body, fixture, odd, rig};

const ACTIVE: &str = "LocationIndicatorActive";
const LED: &str = "IndicatorLED";
const ONE: &str = "/redfish/v1/Systems/1";
const DELL: &str = "/redfish/v1/Systems/System.Embedded.1";
const DELL_CHASSIS: &str = "/redfish/v1/Chassis/System.Embedded.1";
const CHASSIS: &str = "/redfish/v1/Chassis/1U";

/// Switches it; what is answered, and what was ordered, as `path property=value`.
async fn switch(bmc: &Arc<Bmc>, system: &str, lit: bool) -> (Result<String, BmcError>, Vec<String>) {
    let connected = RedfishBmc::new(rig(bmc, system).client);
    connected.begin(&[]).await.unwrap();
    bmc.take_log();
    let answer = connected.location_indicator().unwrap().switch(lit).await;
    let orders = bmc.take_seen().into_iter().filter(|seen| seen.method == "PATCH").map(|seen| {
        let fields = seen.body.as_object().unwrap().iter().map(|(name, value)| format!("{name}={value}"));
        format!("{} {}", seen.path, fields.collect::<Vec<_>>().join(" "))
    });
    (answer, orders.collect())
}

/// The recorded Dell, with its chassis.
fn dell() -> Arc<Bmc> {
    let bmc = Bmc::new("dell-r750");
    let chassis = fixture("dell-r750-parts", "_redfish_v1_Chassis_System.Embedded.1.json");
    bmc.set(|inner| drop(inner.resources.insert(DELL_CHASSIS.into(), chassis)));
    bmc
}

/// The generic BMC with a chassis that shows this.
fn with_chassis(chassis: Value) -> Arc<Bmc> {
    let bmc = Bmc::generic();
    bmc.edit(SYSTEM, |system| drop(system.as_object_mut().unwrap().remove(LED)));
    bmc.set(|inner| drop(inner.resources.insert(CHASSIS.into(), chassis)));
    bmc
}

fn refused() -> crate::kit::Odd {
    odd(400, error_body("PropertyNotWritable", "It cannot be changed."))
}

#[tokio::test]
async fn hpe_takes_the_newer_property_and_what_nobody_asked_for_stays() {
    let bmc = Bmc::new("hpe");
    let (before, chassis) = (bmc.resource(ONE), bmc.resource("/redfish/v1/Chassis/1"));
    let (answer, orders) = switch(&bmc, ONE, true).await;
    assert_eq!(answer.unwrap(), "LocationIndicatorActive of /redfish/v1/Systems/1 is true");
    assert_eq!(orders, ["/redfish/v1/Systems/1 LocationIndicatorActive=true"]);
    let mut expected = before;
    expected[ACTIVE] = true.into();
    assert_eq!((bmc.resource(ONE), bmc.resource("/redfish/v1/Chassis/1")), (expected, chassis));
    // Off, it goes out wherever it may have been lit.
    let (answer, orders) = switch(&bmc, ONE, false).await;
    let off = ["/redfish/v1/Systems/1", "/redfish/v1/Chassis/1"];
    assert_eq!(orders, off.map(|path| format!("{path} LocationIndicatorActive=false")));
    assert_eq!(answer.unwrap(), off.map(|path| format!("LocationIndicatorActive of {path} is false")).join(", and "));
}

/// Its light is `Lit` while nobody looks for the server.
#[tokio::test]
async fn dell_blinks_to_be_found_and_is_lit_otherwise() {
    let bmc = dell();
    // Some firmware takes orders at the chassis alone.
    bmc.script("PATCH", DELL, refused());
    let (answer, orders) = switch(&bmc, DELL, true).await;
    assert_eq!(answer.unwrap(), format!("IndicatorLED of {DELL_CHASSIS} is Blinking"));
    assert_eq!(orders, [DELL, DELL_CHASSIS].map(|path| format!("{path} IndicatorLED=\"Blinking\"")));
    // What shows it dark and takes no orders is dark.
    bmc.script("PATCH", DELL, refused());
    let (answer, orders) = switch(&bmc, DELL, false).await;
    assert!(answer.unwrap().ends_with(&format!("IndicatorLED of {DELL_CHASSIS} is Lit")));
    assert_eq!(orders, [DELL, DELL_CHASSIS].map(|path| format!("{path} IndicatorLED=\"Lit\"")));
    // Both show one light: what the system says of it before the chassis has switched it is not the last word.
    bmc.edit(DELL, |system| system[LED] = "Blinking".into());
    bmc.edit(DELL_CHASSIS, |chassis| chassis[LED] = "Blinking".into());
    bmc.script("GET", DELL, odd(200, bmc.resource(DELL)));
    bmc.script("GET", DELL, odd(200, bmc.resource(DELL)));
    bmc.script("PATCH", DELL, refused());
    bmc.edit(DELL, |system| system[LED] = "Lit".into());
    let (answer, _) = switch(&bmc, DELL, false).await;
    assert_eq!(answer.unwrap(), format!("IndicatorLED of {DELL_CHASSIS} is Lit"));
    // A newer one has both properties.
    bmc.edit(DELL, |system| system[ACTIVE] = false.into());
    let (answer, orders) = switch(&bmc, DELL, true).await;
    assert_eq!(answer.unwrap(), format!("LocationIndicatorActive of {DELL} is true"));
    assert_eq!(orders, [format!("{DELL} LocationIndicatorActive=true")]);
    assert!(bmc.script_is_used_up());
}

#[tokio::test]
async fn one_that_does_not_blink_is_lit() {
    let bmc = Bmc::new("supermicro-x10");
    let chassis = fixture("supermicro-x10-parts", "_redfish_v1_Chassis_1.json");
    bmc.set(|inner| drop(inner.resources.insert("/redfish/v1/Chassis/1".into(), chassis)));
    let (answer, orders) = switch(&bmc, ONE, true).await;
    assert_eq!(answer.unwrap(), format!("IndicatorLED of {ONE} is Blinking"));
    assert_eq!(orders, [format!("{ONE} IndicatorLED=\"Blinking\"")]);
    let (answer, _) = switch(&bmc, ONE, false).await;
    assert_eq!(
        answer.unwrap(),
        [ONE, "/redfish/v1/Chassis/1"].map(|path| format!("IndicatorLED of {path} is Off")).join(", and ")
    );
    bmc.script("PATCH", ONE, refused());
    let (answer, orders) = switch(&bmc, ONE, true).await;
    assert_eq!(answer.unwrap(), format!("IndicatorLED of {ONE} is Lit"));
    assert_eq!(orders, ["Blinking", "Lit"].map(|word| format!("{ONE} IndicatorLED=\"{word}\"")));
}

#[tokio::test]
async fn words_that_a_bmc_lists_are_taken_as_it_spells_them_and_no_others() {
    let allowed = format!("{LED}@Redfish.AllowableValues");
    for (words, lit, ordered, shown) in [
        (json!(["LIT", "OFF"]), true, "\"LIT\"", "LIT"),
        (json!(["LIT", "OFF"]), false, "\"OFF\"", "OFF"),
        // Without a word for off, the steady light is how it rests.
        (json!(["Lit", "Blinking"]), true, "\"Blinking\"", "Blinking"),
        (json!(["Lit", "Blinking"]), false, "\"Lit\"", "Lit"),
    ] {
        let chassis = json!({ "@odata.id": CHASSIS, LED: null, allowed.as_str(): words });
        let (answer, orders) = switch(&with_chassis(chassis), SYSTEM, lit).await;
        assert_eq!(answer.unwrap(), format!("IndicatorLED of {CHASSIS} is {shown}"), "{words} {lit}");
        assert_eq!(orders, [format!("{CHASSIS} IndicatorLED={ordered}")], "{words} {lit}");
    }
    let chassis = json!({ "@odata.id": CHASSIS, LED: null, allowed.as_str(): ["Unknown"] });
    let (answer, orders) = switch(&with_chassis(chassis), SYSTEM, true).await;
    let error = answer.unwrap_err();
    assert_eq!((error.kind, orders.len()), (ErrorKind::Unsupported, 0));
    assert!(error.to_string().contains("takes Unknown only"), "{error}");
}

/// The answer is as it should be, and no light is lit.
#[tokio::test]
async fn a_bmc_that_takes_the_order_and_does_not_follow_is_told() {
    let bmc = with_chassis(json!({ "@odata.id": CHASSIS, LED: "Off" }));
    let rig = rig(&bmc, SYSTEM);
    for _ in 0..2 {
        bmc.script("PATCH", CHASSIS, odd(204, Value::Null));
    }
    let error = rig.client.switch_light(true).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unsupported);
    let text = error.to_string();
    assert!(text.contains("switch the locating light on") && text.contains("does not follow"), "{text}");
    assert!(text.contains(&format!("IndicatorLED of {CHASSIS} is Off")), "{text}");
    assert!(error.advice.contains("at the BMC itself"), "{}", error.advice);
    assert_eq!(rig.waits.0.lock().unwrap().iter().map(|wait| wait.as_secs()).collect::<Vec<_>>(), [1, 2, 1, 2]);
    // One that takes its time is waited for.
    bmc.script("GET", CHASSIS, odd(200, json!({ LED: "Off" })));
    bmc.script("GET", CHASSIS, odd(200, json!({ LED: "Off" })));
    assert!(rig.client.switch_light(true).await.unwrap().ends_with("is Blinking"));
    // A light that stays lit is no success, whatever another shows.
    bmc.edit(SYSTEM, |system| system[LED] = "Off".into());
    bmc.script("PATCH", CHASSIS, refused());
    let error = rig.client.switch_light(false).await.unwrap_err();
    assert!(error.to_string().contains("cannot be changed"), "{error}");
    assert!(bmc.script_is_used_up());
}

#[tokio::test]
async fn a_bmc_without_a_light_says_what_was_looked_for() {
    let bmc = with_chassis(json!({ "@odata.id": CHASSIS }));
    let (answer, orders) = switch(&bmc, SYSTEM, true).await;
    let error = answer.unwrap_err();
    assert_eq!((error.kind, orders.len()), (ErrorKind::Unsupported, 0));
    for words in ["no locating light", ACTIVE, LED, SYSTEM] {
        assert!(error.to_string().contains(words), "{words}: {error}");
    }
    assert!(error.advice.contains("serial number"), "{}", error.advice);
    // Without a chassis, that is known before anything is asked.
    bmc.edit(SYSTEM, |system| system["Links"]["Chassis"] = json!([]));
    let connected = RedfishBmc::new(rig(&bmc, SYSTEM).client);
    connected.begin(&[]).await.unwrap();
    let lacking = connected.location_indicator().err().unwrap();
    assert_eq!(lacking.capability, Capability::LocationIndicator);
    assert!(lacking.looked_for.contains(SYSTEM), "{lacking}");
}

/// The light of an enclosure would lead to all servers in it.
#[tokio::test]
async fn a_light_of_several_systems_is_not_switched() {
    let systems = json!([{ "@odata.id": SYSTEM }, { "@odata.id": "/redfish/v1/Systems/2" }]);
    let bmc = with_chassis(json!({ "@odata.id": CHASSIS, LED: "Off", "Links": { "ComputerSystems": systems } }));
    let (answer, orders) = switch(&bmc, SYSTEM, true).await;
    let error = answer.unwrap_err().to_string();
    assert!(error.contains(&format!("the light of {CHASSIS} is that of other systems, too")), "{error}");
    assert_eq!(orders, [""; 0]);
    bmc.edit(CHASSIS, |chassis| chassis["Links"]["ComputerSystems"] = json!([{ "@odata.id": format!("{SYSTEM}/") }]));
    assert_eq!(switch(&bmc, SYSTEM, true).await.1, [format!("{CHASSIS} IndicatorLED=\"Blinking\"")]);
}

/// Many chassis, loops and nonsense: a few calls, and no secret is told.
#[tokio::test]
async fn what_a_bmc_says_of_its_lights_is_bounded() {
    let bmc = Bmc::generic();
    bmc.edit(SYSTEM, |system| {
        system[LED] = json!({ "a": [PASSWORD, "x".repeat(5000)] });
        let chassis: Vec<Value> = (0..64).map(|n| json!({ "@odata.id": format!("/redfish/v1/Chassis/{n}") })).collect();
        system["Links"]["Chassis"] = json!(chassis);
    });
    bmc.set(|inner| {
        for n in 0..64 {
            let path = format!("/redfish/v1/Chassis/{n}");
            let light = json!({ "@odata.id": path, ACTIVE: "no", LED: "\u{1b}[2J", "Links": { "ComputerSystems": 7 } });
            inner.resources.insert(path, light);
        }
    });
    let rig = rig(&bmc, SYSTEM);
    rig.client.system().await.unwrap();
    bmc.take_log();
    // It takes all orders, and keeps to what it says.
    for _ in 0..64 {
        bmc.script("PATCH", "", odd(204, Value::Null));
    }
    let error = rig.client.switch_light(true).await.unwrap_err();
    assert!(bmc.take_log().len() < 80, "it is asked no end");
    let text = error.to_string();
    assert!(!text.contains(PASSWORD) && !text.contains('\u{1b}') && text.len() < 4000, "{text}");
}

#[tokio::test]
async fn a_bmc_that_does_not_answer_is_not_asked_for_another_light() {
    let bmc = dell();
    let rig = rig(&bmc, DELL);
    rig.client.system().await.unwrap();
    bmc.take_log();
    bmc.script("PATCH", DELL, dropped());
    bmc.script("PATCH", DELL, dropped());
    let error = rig.client.switch_light(true).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    assert!(bmc.take_log().iter().all(|line| !line.contains("Chassis")));
}
