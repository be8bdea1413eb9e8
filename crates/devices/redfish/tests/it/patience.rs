//! BMCs that are busy, not ready yet, or silent about what they have done: how long is waited, and what is looked at.

use crate::kit::{Bmc, CD, Odd, Rig, SESSIONS, SYSTEM, dropped, error_body, odd, rig};
use bmc::ErrorKind;
use redfish::{Inserted, PowerState, ResetType, TransportError};
use serde_json::{Value, json};

const URL: &str = "http://192.0.2.1/media/0123456789.iso";
const RESET: &str = "ComputerSystem.Reset";
const INSERT: &str = "VirtualMedia.InsertMedia";

fn waits(rig: &Rig) -> Vec<u64> {
    std::mem::take(&mut *rig.waits.0.lock().unwrap()).iter().map(std::time::Duration::as_secs).collect()
}

fn later(status: u16, seconds: &str) -> Odd {
    Odd::Answer(status, vec![("retry-after", seconds.to_owned())], Vec::new())
}

/// What iDRACs answer while they start (as reported of firmware 4.00), with 400.
fn idrac_not_ready() -> Odd {
    let text = "iDRAC is not ready. The configuration values cannot be accessed. Please retry after a few minutes.";
    odd(
        400,
        json!({"error": {"code": "Base.1.0.GeneralError", "@Message.ExtendedInfo": [
        {"MessageId": "IDRAC.1.6.SWC0700", "Message": text}]}}),
    )
}

fn in_self_test(state: &str) -> Odd {
    odd(
        400,
        json!({"error": {"code": "iLO.0.10.ExtendedInfo", "@Message.ExtendedInfo": [
        {"MessageId": "iLO.2.14.InvalidOperationForSystemState", "MessageArgs": [state]}]}}),
    )
}

#[tokio::test]
async fn every_request_that_is_put_off_is_made_again_when_the_bmc_says() {
    for status in [429, 503] {
        let bmc = Bmc::generic();
        let rig = rig(&bmc, SYSTEM);
        bmc.script("POST", SESSIONS, later(status, "7"));
        rig.client.power_state().await.unwrap();
        assert_eq!(waits(&rig), [7], "{status}");
        bmc.script("POST", INSERT, later(status, "20"));
        bmc.script("POST", INSERT, later(status, "0"));
        assert_eq!(rig.client.insert_media(URL).await.unwrap(), Inserted::Now);
        assert_eq!(waits(&rig), [20, 3], "{status}");
        bmc.script("POST", RESET, later(status, "30"));
        rig.client.reset(ResetType::ForceOff).await.unwrap();
        assert_eq!(waits(&rig), [30], "{status}");
        assert_eq!(rig.client.power_state().await.unwrap(), PowerState::Off);
        assert_eq!(bmc.session_count(), 1);
        assert!(bmc.script_is_used_up());
    }
}

#[tokio::test]
async fn a_bmc_that_wants_to_be_left_alone_for_long_is_and_it_is_told() {
    let bmc = Bmc::generic();
    let rig = rig(&bmc, SYSTEM);
    bmc.script("POST", SESSIONS, later(429, "300"));
    let error = rig.client.power_state().await.unwrap_err();
    assert_eq!(waits(&rig), [] as [u64; 0], "nobody waits in the BMC's queue for minutes");
    assert!(error.is_transient() && error.kind.as_str() == "busy", "{error:?}");
    assert!(error.to_string().contains("429") && error.to_string().contains("300 s"), "{error}");
    assert!(error.advice.contains("tried again"), "{}", error.advice);
    // Forever busy: a minute at most, then it is told, too.
    for method in ["POST", "GET"] {
        for _ in 0..20 {
            bmc.script(method, if method == "GET" { SYSTEM } else { RESET }, later(503, "40"));
        }
    }
    let error = rig.client.power_state().await.unwrap_err();
    assert_eq!(error.kind.as_str(), "busy", "{error}");
    assert_eq!(waits(&rig), [40]);
}

#[tokio::test(start_paused = true)]
async fn a_bmc_that_puts_off_each_request_is_not_waited_for_for_hours() {
    let bmc = Bmc::generic();
    let rig = rig(&bmc, SYSTEM);
    rig.client.power_state().await.unwrap();
    let mut failed = 0;
    for _ in 0..20 {
        bmc.script("GET", SYSTEM, later(503, "40"));
        failed += u32::from(rig.client.power_state().await.is_err());
    }
    assert_eq!((waits(&rig).as_slice(), failed), (&[40, 40, 40, 40][..], 16));
    // Later it is given time again.
    tokio::time::advance(std::time::Duration::from_secs(601)).await;
    bmc.script("GET", SYSTEM, later(503, "40"));
    rig.client.power_state().await.unwrap();
    assert_eq!(waits(&rig), [40]);
}

#[tokio::test]
async fn a_full_bmc_is_not_waited_for() {
    let bmc = Bmc::generic();
    let rig = rig(&bmc, SYSTEM);
    bmc.set(|inner| inner.session_limit = 0);
    assert_eq!(rig.client.power_state().await.unwrap_err().kind, ErrorKind::SessionLimit);
    assert_eq!(waits(&rig), [] as [u64; 0]);
}

#[tokio::test]
async fn a_bmc_that_is_not_ready_is_given_a_minute() {
    for answer in [idrac_not_ready, || in_self_test("System is in POST")] {
        let bmc = Bmc::generic();
        let rig = rig(&bmc, SYSTEM);
        rig.client.power_state().await.unwrap();
        bmc.script("POST", INSERT, answer());
        bmc.script("POST", INSERT, answer());
        assert_eq!(rig.client.insert_media(URL).await.unwrap(), Inserted::Now);
        assert_eq!(waits(&rig), [5, 10]);
        assert_eq!(bmc.resource(CD)["Image"], URL, "in the first drive, which was only busy");
        bmc.script("POST", RESET, answer());
        bmc.script("POST", RESET, answer());
        rig.client.restart().await.unwrap();
        assert_eq!(waits(&rig), [5, 10]);
        assert!(bmc.script_is_used_up());
        for _ in 0..40 {
            bmc.script("POST", RESET, answer());
        }
        let error = rig.client.restart().await.unwrap_err();
        let waited: u64 = waits(&rig).iter().sum();
        assert!((45..=60).contains(&waited), "{waited} s");
        assert_eq!(error.kind.as_str(), "busy", "{error:?}");
        assert!(error.is_transient() && error.advice.contains("tried again"), "{error:?}");
    }
}

#[tokio::test]
async fn changes_of_settings_wait_for_the_self_test() {
    let bmc = Bmc::generic();
    let rig = rig(&bmc, SYSTEM);
    let found = rig.client.secure_boot().await.unwrap().unwrap();
    let on = !found.enable.unwrap();
    bmc.script("PATCH", "/SecureBoot", in_self_test("System is in POST"));
    bmc.script("PATCH", SYSTEM, in_self_test("System is in POST"));
    assert!(rig.client.set_secure_boot(on).await.unwrap());
    rig.client.clear_boot_override().await.unwrap();
    assert_eq!(waits(&rig), [5, 5]);
}

/// Even reads are refused so by an iDRAC that starts.
#[tokio::test]
async fn reads_wait_for_a_bmc_that_is_not_ready_too() {
    let bmc = Bmc::generic();
    let rig = rig(&bmc, SYSTEM);
    bmc.script("GET", SYSTEM, idrac_not_ready());
    let soon = json!({"error": {"code": "Base.1.12.GeneralError", "@Message.ExtendedInfo": [
        {"MessageId": "IDRAC.2.8.SYS518", "Message": "iDRAC is currently unable to display any information because data sources are unavailable."},
        {"MessageId": "Base.1.12.ServiceTemporarilyUnavailable", "Message": "The service is temporarily unavailable.  Retry in 30 seconds.",
         "MessageArgs": ["30"]}]}});
    bmc.script("GET", SYSTEM, odd(503, soon));
    rig.client.power_state().await.unwrap();
    assert_eq!(waits(&rig), [5, 30], "as long as the message says");
}

#[tokio::test]
async fn a_dell_that_has_just_been_off_is_given_a_minute_to_come_on() {
    let bmc = Bmc::new("dell-r750");
    let rig = rig(&bmc, "/redfish/v1/Systems/System.Embedded.1");
    rig.client.reset(ResetType::ForceOff).await.unwrap();
    let conflict = || odd(409, error_body("ActionParameterValueConflict", "Conflict"));
    for _ in 0..5 {
        bmc.script("POST", RESET, conflict());
    }
    rig.client.reset(ResetType::On).await.unwrap();
    assert_eq!(waits(&rig), [5, 10, 10, 10, 10]);
    assert_eq!(rig.client.power_state().await.unwrap(), PowerState::On);
    // Another maker's conflict is one.
    let bmc = Bmc::generic();
    let rig = self::rig(&bmc, SYSTEM);
    rig.client.reset(ResetType::ForceOff).await.unwrap();
    bmc.script("POST", RESET, conflict());
    assert_eq!(rig.client.reset(ResetType::On).await.unwrap_err().kind, ErrorKind::Rejected { status: 409 });
    assert_eq!(waits(&rig), [] as [u64; 0]);
}

/// A drive that looks empty, and is not: the insertion fails until something has been ejected.
#[tokio::test]
async fn an_insertion_that_needed_an_eject_first_gets_one() {
    let bmc = Bmc::generic();
    let rig = rig(&bmc, SYSTEM);
    bmc.script("POST", INSERT, odd(500, error_body("InternalError", "Internal error")));
    assert_eq!(rig.client.insert_media(URL).await.unwrap(), Inserted::Now);
    let log = bmc.take_log();
    assert_eq!(log.iter().filter(|line| line.contains("EjectMedia")).count(), 1, "{log:?}");
    assert_eq!(log.iter().filter(|line| line.contains("InsertMedia")).count(), 2, "{log:?}");
    // What keeps failing ends in the BMC's words, after one ejection.
    rig.client.eject_media().await.unwrap();
    bmc.take_log();
    for _ in 0..20 {
        bmc.script("POST", INSERT, odd(500, error_body("InternalError", "Internal error")));
    }
    let error = rig.client.insert_media(URL).await.unwrap_err();
    assert!(error.to_string().contains("Internal error"), "{error}");
    let log = bmc.take_log();
    assert_eq!(log.iter().filter(|line| line.contains("EjectMedia")).count(), 1, "{log:?}");
    assert!(log.len() < 12, "{log:?}");
}

#[tokio::test]
async fn an_insertion_whose_answer_was_lost_is_looked_after() {
    // Done, and not done.
    for fault in [|| Odd::DropAfter, dropped] {
        let bmc = Bmc::generic();
        let rig = rig(&bmc, SYSTEM);
        bmc.script("POST", INSERT, fault());
        assert_eq!(rig.client.insert_media(URL).await.unwrap(), Inserted::Now);
        assert_eq!(bmc.resource(CD)["Image"], URL);
        bmc.script("POST", "VirtualMedia.EjectMedia", fault());
        rig.client.eject_media().await.unwrap();
        assert_eq!(bmc.resource(CD)["Inserted"], false);
    }
}

/// It reads the whole medium before it answers, for instance.
#[tokio::test]
async fn an_insertion_that_takes_longer_than_an_answer_may_is_waited_for() {
    let empty = json!({"@odata.id": CD, "MediaTypes": ["CD"], "Inserted": false, "Image": null,
        "Actions": {"#VirtualMedia.InsertMedia": {"target": format!("{CD}/Actions/VirtualMedia.InsertMedia")}}});
    for done in [true, false] {
        let bmc = Bmc::generic();
        bmc.edit(CD, |cd| (cd["Inserted"], cd["Image"]) = (done.into(), URL.into()));
        let rig = rig(&bmc, SYSTEM);
        bmc.script("GET", "/VirtualMedia", odd(200, json!({"Members": [empty.clone()]})));
        for _ in 0..2 {
            bmc.script("GET", CD, odd(200, empty.clone()));
        }
        bmc.script("POST", INSERT, Odd::Fail(TransportError::Timeout { seconds: 60 }));
        let result = rig.client.insert_media(URL).await;
        let posts = bmc.take_log().iter().filter(|line| line.ends_with(INSERT)).count();
        assert_eq!(posts, 1, "asked twice, it would begin anew");
        if done {
            assert_eq!((result.unwrap(), waits(&rig)), (Inserted::Now, vec![5, 10]));
        } else {
            assert_eq!(result.unwrap(), Inserted::Pending);
            assert_eq!(waits(&rig).iter().sum::<u64>(), 55);
        }
    }
}

#[tokio::test]
async fn a_button_is_not_pushed_at_a_machine_of_which_nothing_is_known() {
    let bmc = Bmc::generic();
    bmc.edit(SYSTEM, |system| {
        system["PowerState"] = Value::Null;
        system["Actions"]["#ComputerSystem.Reset"]["ResetType@Redfish.AllowableValues"] = json!(["PushPowerButton"]);
    });
    let rig = rig(&bmc, SYSTEM);
    let error = rig.client.reset(ResetType::On).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("toggles") && error.advice.contains("by hand"), "{error:?}");
    assert!(bmc.take_log().iter().all(|line| !line.ends_with(RESET)));
}

#[tokio::test]
async fn a_reset_whose_answer_was_lost_is_looked_after() {
    for (kind, goal) in [(ResetType::ForceOff, PowerState::Off), (ResetType::On, PowerState::On)] {
        for fault in [|| Odd::DropAfter, dropped] {
            let bmc = Bmc::generic();
            let rig = rig(&bmc, SYSTEM);
            let other = if goal == PowerState::Off { ResetType::On } else { ResetType::ForceOff };
            rig.client.reset(other).await.unwrap();
            bmc.script("POST", RESET, fault());
            rig.client.reset(kind).await.unwrap();
            assert_eq!(rig.client.power_state().await.unwrap(), goal);
        }
    }
}

#[tokio::test]
async fn a_restart_whose_answer_was_lost_is_not_made_twice() {
    let restarts = |bmc: &Bmc| bmc.take_log().iter().filter(|line| line.ends_with(RESET)).count();
    // The BMC says that the machine was reset since. That it was not proves nothing: it may be on its way, or the time may be that of the chassis' power.
    let cases: [(fn() -> Odd, bool); 3] = [(dropped, false), (|| Odd::DropAfter, false), (|| Odd::DropAfter, true)];
    for (fault, moved) in cases {
        for graceful in [false, true] {
            let bmc = Bmc::generic();
            bmc.edit(SYSTEM, |system| system["LastResetTime"] = "2026-03-01T10:00:00Z".into());
            let rig = rig(&bmc, SYSTEM);
            rig.client.system().await.unwrap();
            bmc.script("POST", RESET, fault());
            if moved {
                bmc.edit(SYSTEM, |system| system["LastResetTime"] = "2026-03-01T12:00:00Z".into());
            }
            let made = if graceful { rig.client.graceful_restart().await } else { rig.client.restart().await };
            let told = made.map_err(|error| error.kind);
            let expected = if moved { Ok(()) } else { Err(ErrorKind::Unanswered) };
            assert_eq!((told, restarts(&bmc)), (expected, 1), "{moved} {graceful}");
        }
    }
    // It does not say: neither is it done again, which would reset what has begun, nor is it taken for done.
    let bmc = Bmc::generic();
    bmc.edit(SYSTEM, |system| system["LastResetTime"] = Value::Null);
    let rig = rig(&bmc, SYSTEM);
    rig.client.system().await.unwrap();
    bmc.script("POST", RESET, dropped());
    let error = rig.client.restart().await.unwrap_err();
    assert_eq!((error.kind.as_str(), restarts(&bmc)), ("unanswered", 1), "{error}");
    assert!(error.is_transient() && error.to_string().contains("answer was lost"), "{error}");
    // The machine has gone off: it is switched on.
    bmc.script("POST", RESET, dropped());
    bmc.edit(SYSTEM, |system| system["PowerState"] = "Off".into());
    rig.client.restart().await.unwrap();
    assert_eq!(rig.client.power_state().await.unwrap(), PowerState::On);
    // The BMC itself is gone: what was asked of it before may have been done.
    bmc.script("POST", RESET, dropped());
    bmc.script("GET", SYSTEM, dropped());
    bmc.script("GET", SYSTEM, dropped());
    assert_eq!(rig.client.restart().await.unwrap_err().kind, ErrorKind::Unanswered);
}

/// Off, says the BMC of a restart; On, says what it shows of the power, for it has not looked since.
#[tokio::test]
async fn a_machine_that_is_off_by_the_refusal_alone_is_switched_on() {
    let bmc = Bmc::generic();
    let rig = rig(&bmc, SYSTEM);
    bmc.script("POST", RESET, in_self_test("Power is off"));
    rig.client.restart().await.unwrap();
    let seen = bmc.take_seen().into_iter().filter(|seen| seen.path.ends_with(RESET));
    assert_eq!(seen.map(|seen| seen.body["ResetType"].clone()).collect::<Vec<_>>(), ["ForceRestart", "On"]);
}

#[tokio::test]
async fn a_power_state_that_is_not_told_is_no_obstacle() {
    let said = |state: &str| format!(r#"{{"@odata.id":"{SYSTEM}","PowerState":"On","PowerState":{state}}}"#);
    let states: [Vec<u8>; 4] = [
        json!({"@odata.id": SYSTEM, "PowerState": null}).to_string().into_bytes(),
        json!({"@odata.id": SYSTEM}).to_string().into_bytes(),
        said("\"Off\"").into_bytes(),
        said("null").into_bytes(),
    ];
    for (index, state) in states.into_iter().enumerate() {
        let bmc = Bmc::generic();
        let rig = rig(&bmc, SYSTEM);
        for _ in 0..20 {
            bmc.script("GET", SYSTEM, Odd::Answer(200, vec![], state.clone()));
        }
        assert_eq!(rig.client.power_state().await.unwrap(), PowerState::Unknown, "{index}");
        // Off already, says the BMC, whatever it is told; only "On" helps.
        let off = || odd(409, error_body("InvalidOperationForSystemState", "The system is off already"));
        bmc.script("POST", RESET, off());
        rig.client.restart().await.unwrap_or_else(|error| panic!("{index}: {error}"));
        let seen = bmc.take_seen().into_iter().filter(|seen| seen.path.ends_with(RESET));
        let resets: Vec<Value> = seen.map(|seen| seen.body["ResetType"].clone()).collect();
        assert_eq!(resets, ["ForceRestart", "On"], "{index}");
        bmc.script("POST", RESET, off());
        rig.client.reset(ResetType::ForceOff).await.unwrap_or_else(|error| panic!("{index}: {error}"));
        let on = error_body("ResourceInUse", "The system is already powered on");
        bmc.script("POST", RESET, odd(409, on));
        rig.client.reset(ResetType::On).await.unwrap_or_else(|error| panic!("{index}: {error}"));
        assert!(waits(&rig).is_empty(), "{index}");
    }
}
