//! What goes wrong on the way: lost connections, busy BMCs, entity tags, tasks, redirects, nonsense.

use crate::kit::{self, Bmc, CD, Odd, SESSIONS, SYSTEM, dropped, error_body, fixture, odd, rig};
use bmc::{CallOutcome, ErrorKind};
use proptest::prelude::*;
use redfish::{BootMode, BootTarget, Inserted, MAX_BODY, ResetType, TransportError};
use serde_json::{Value, json};

const URL: &str = "https://192.0.2.1/media/0123456789.iso";

#[tokio::test]
async fn a_lost_connection_is_made_again_once_where_nothing_can_happen_twice() {
    let bmc = Bmc::generic();
    let rig = rig(&bmc, SYSTEM);
    rig.client.power_state().await.unwrap();
    bmc.script("GET", SYSTEM, dropped());
    rig.client.power_state().await.unwrap();
    let counters = rig.client.channel().ledger().counters();
    assert_eq!((counters.retries, counters.failures), (1, 1));
    bmc.script("GET", SYSTEM, dropped());
    bmc.script("GET", SYSTEM, dropped());
    let error = rig.client.power_state().await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unreachable);
    assert!(error.is_transient());
    assert!(error.to_string().contains("connection was lost"), "{error}");
    // A reset may have arrived: it is not sent again.
    bmc.edit(SYSTEM, |system| system["LastResetTime"] = Value::Null);
    rig.client.power_state().await.unwrap();
    bmc.take_log();
    bmc.script("POST", "ComputerSystem.Reset", Odd::DropAfter);
    assert!(rig.client.reset(ResetType::ForceRestart).await.is_err());
    assert_eq!(bmc.take_log().iter().filter(|line| line.starts_with("POST")).count(), 1);
}

/// Nothing that comes after a restart that may have been made says that it was not.
#[tokio::test]
async fn a_restart_that_may_have_been_made_is_told_as_one_whatever_is_answered_next() {
    let made = |bmc: &Bmc| bmc.take_log().iter().filter(|line| line.starts_with("POST")).count();
    for silent in [true, false] {
        let bmc = Bmc::generic();
        let rig = rig(&bmc, SYSTEM);
        rig.client.power_state().await.unwrap();
        bmc.take_log();
        bmc.script("POST", "ComputerSystem.Reset", Odd::DropAfter);
        for _ in 0..3 {
            let look = if silent { dropped() } else { odd(500, error_body("GeneralError", "not now")) };
            bmc.script("GET", SYSTEM, look);
        }
        let error = rig.client.graceful_restart().await.unwrap_err();
        assert_eq!((error.kind, made(&bmc)), (ErrorKind::Unanswered, 1), "{error}");
    }
    // It was accepted, and the BMC does not serve its task.
    for status in [401, 403, 500] {
        let bmc = Bmc::generic();
        let rig = rig(&bmc, SYSTEM);
        rig.client.power_state().await.unwrap();
        bmc.take_log();
        bmc.script("POST", "ComputerSystem.Reset", accepted("/t/1"));
        for _ in 0..100 {
            bmc.script("GET", "/t/1", odd(status, error_body("GeneralError", "not now")));
        }
        let error = rig.client.graceful_restart().await.unwrap_err();
        let sent = bmc.take_log().iter().filter(|line| line.contains("ComputerSystem.Reset")).count();
        assert_eq!((error.kind, sent), (ErrorKind::Unanswered, 1), "{status}: {error}");
    }
}

/// So many values that an answer is not read.
fn too_much() -> Odd {
    Odd::Answer(200, Vec::new(), format!("[{}0]", "0,".repeat(200_000)).into_bytes())
}

/// What cannot be read, or is a gateway's word in the BMC's place, is no refusal of the BMC's.
#[tokio::test]
async fn a_restart_that_a_gateway_answers_for_may_have_been_made() {
    let answers: [fn() -> Odd; 3] =
        [|| odd(502, Value::Null), || odd(504, error_body("GeneralError", "no answer")), too_much];
    for (number, answer) in answers.into_iter().enumerate() {
        for (graceful, moved) in [(false, false), (true, false), (false, true)] {
            let bmc = Bmc::generic();
            let rig = rig(&bmc, SYSTEM);
            rig.client.power_state().await.unwrap();
            bmc.take_log();
            bmc.script("POST", "ComputerSystem.Reset", answer());
            if moved {
                bmc.edit(SYSTEM, |system| system["LastResetTime"] = "2026-03-01T12:00:00Z".into());
            }
            let made = if graceful { rig.client.graceful_restart().await } else { rig.client.restart().await };
            let told = made.map_err(|error| error.kind);
            let expected = if moved { Ok(()) } else { Err(ErrorKind::Unanswered) };
            assert_eq!((told, resets(&bmc)), (expected, 1), "{number} {graceful} {moved}");
        }
        // Whether the machine is off is seen.
        let bmc = Bmc::generic();
        let rig = rig(&bmc, SYSTEM);
        bmc.script("POST", "ComputerSystem.Reset", answer());
        let error = rig.client.reset(ResetType::ForceOff).await.unwrap_err();
        assert!(error.kind.is_refusal(), "{number}: {error}");
    }
}

/// How often a reset was ordered; what else was asked is forgotten, too.
fn resets(bmc: &Bmc) -> usize {
    bmc.take_log().iter().filter(|line| line.contains("ComputerSystem.Reset")).count()
}

/// A restart that the BMC has accepted, and whose task is looked at with these answers, one after the other: what is told of it, and how often it was ordered.
async fn watched(looks: Vec<Odd>) -> (Result<(), bmc::BmcError>, usize) {
    watched_with(looks, false).await
}

/// The same; the time of the machine's last reset has changed since, if it has `moved`.
async fn watched_with(looks: Vec<Odd>, moved: bool) -> (Result<(), bmc::BmcError>, usize) {
    let bmc = Bmc::generic();
    let rig = rig(&bmc, SYSTEM);
    rig.client.power_state().await.unwrap();
    bmc.take_log();
    bmc.script("POST", "ComputerSystem.Reset", accepted("/t/3"));
    looks.into_iter().for_each(|look| bmc.script("GET", "/t/3", look));
    if moved {
        bmc.edit(SYSTEM, |system| system["LastResetTime"] = "2026-03-01T12:00:00Z".into());
    }
    let made = rig.client.restart().await;
    assert!(bmc.script_is_used_up(), "{made:?}");
    let sent = resets(&bmc);
    (made, sent)
}

#[tokio::test]
async fn a_restart_was_not_made_only_where_its_task_says_so() {
    let state = |state: &str| odd(200, json!({"TaskState": state}));
    // An order that was carried out may end so, too.
    let critical = odd(200, json!({"TaskState": "Completed", "TaskStatus": "Critical"}));
    for end in [state("Exception"), state("CompletedWithErrors"), critical] {
        let (made, sent) = watched(vec![end]).await;
        let error = made.unwrap_err();
        assert_eq!((error.kind, sent), (ErrorKind::Unanswered, 1), "{error}");
        assert!(error.found.contains("the task /t/3 ended badly"), "{error}");
    }
    // The machine was reset since: whatever has become of the task, it was made.
    for end in ["Exception", "CompletedWithErrors"] {
        let (made, sent) = watched_with(vec![state(end)], true).await;
        made.unwrap();
        assert_eq!(sent, 1, "{end}");
    }
    for stopped in ["Cancelled", "Killed"] {
        let (made, sent) = watched(vec![state(stopped)]).await;
        let error = made.unwrap_err();
        assert!(error.kind.is_definite_refusal() && error.found.contains("ended badly"), "{error}");
        assert_eq!(sent, 1);
    }
    // One that was interrupted goes on.
    let (made, sent) = watched(vec![state("Interrupted"), state("Completed")]).await;
    made.unwrap();
    assert_eq!(sent, 1);
    // The operation's own refusal comes from its monitor.
    let (made, sent) = watched(vec![odd(501, error_body("ActionNotSupported", "not here"))]).await;
    let error = made.unwrap_err();
    assert!(error.kind == ErrorKind::Rejected { status: 501 } && error.found.contains("not here"), "{error}");
    assert_eq!(sent, 1);
}

/// A monitor is gone as soon as its task is over, or is not there yet.
#[tokio::test]
async fn a_task_that_is_gone_at_the_first_look_is_looked_at_again_and_then_over() {
    for status in [404, 410] {
        let (made, sent) = watched((0..4).map(|_| odd(status, Value::Null)).collect()).await;
        made.unwrap();
        assert_eq!(sent, 1, "{status}");
        let (made, sent) = watched(vec![odd(status, Value::Null), odd(200, json!({"TaskState": "Cancelled"}))]).await;
        assert!(made.unwrap_err().kind.is_definite_refusal(), "{status}");
        assert_eq!(sent, 1, "{status}");
    }
}

/// Whatever comes of what is read before it: nothing was ordered, and it is asked for again.
#[tokio::test]
async fn a_restart_that_was_never_sent_is_not_told_as_one_that_may_have_been_made() {
    let info = format!("{SYSTEM}/ResetActionInfo");
    let failures: [fn() -> Odd; 3] = [|| Odd::Fail(TransportError::Timeout { seconds: 60 }), dropped, too_much];
    for (number, failure) in failures.into_iter().enumerate() {
        for (way, is_on) in [("graceful", true), ("hard", true), ("hard", false), ("its own read", true)] {
            let bmc = Bmc::generic();
            bmc.edit(SYSTEM, |system| {
                let reset = &mut system["Actions"]["#ComputerSystem.Reset"];
                reset.as_object_mut().unwrap().remove("ResetType@Redfish.AllowableValues");
                reset["@Redfish.ActionInfo"] = info.clone().into();
                system["PowerState"] = if is_on { "On" } else { "Off" }.into();
            });
            let rig = rig(&bmc, SYSTEM);
            let path = if way == "its own read" { SYSTEM } else { "ResetActionInfo" };
            if path != SYSTEM {
                rig.client.power_state().await.unwrap();
            }
            // A read is made again once where its connection is lost.
            for _ in 0..2 {
                bmc.script("GET", path, failure());
            }
            let made = if way == "graceful" { rig.client.graceful_restart().await } else { rig.client.restart().await };
            let error = made.unwrap_err();
            let told = (error.kind, error.unmade, resets(&bmc));
            assert_eq!(told, (ErrorKind::Unreachable, true, 0), "{number} {way} {is_on}: {error}");
        }
    }
    // Nor was one for which there was no connection in time.
    for is_on in [true, false] {
        let bmc = Bmc::generic();
        bmc.edit(SYSTEM, |system| system["PowerState"] = if is_on { "On" } else { "Off" }.into());
        let rig = rig(&bmc, SYSTEM);
        rig.client.power_state().await.unwrap();
        bmc.script("POST", "ComputerSystem.Reset", Odd::Fail(TransportError::Unconnected { seconds: 10 }));
        let error = rig.client.restart().await.unwrap_err();
        assert_eq!((error.kind, error.unmade), (ErrorKind::Unreachable, true), "{error}");
    }
    // A refused one was not made, whatever comes of the look after it, also where it was to start a machine that is off.
    for is_on in [true, false] {
        let bmc = Bmc::generic();
        bmc.edit(SYSTEM, |system| system["PowerState"] = if is_on { "On" } else { "Off" }.into());
        let rig = rig(&bmc, SYSTEM);
        rig.client.power_state().await.unwrap();
        bmc.script("POST", "ComputerSystem.Reset", odd(400, error_body("GeneralError", "not so")));
        bmc.script("GET", SYSTEM, Odd::Fail(TransportError::Timeout { seconds: 60 }));
        let error = rig.client.restart().await.unwrap_err();
        assert_eq!((error.kind, error.unmade), (ErrorKind::Unreachable, true), "{error}");
    }
}

/// An order to switch on that was lost may be carried out yet: that the next one is not sent says nothing of it.
#[tokio::test]
async fn a_start_is_not_told_as_unmade_where_an_earlier_answer_was_lost() {
    let bmc = Bmc::generic();
    bmc.edit(SYSTEM, |system| system["PowerState"] = "Off".into());
    let rig = rig(&bmc, SYSTEM);
    rig.client.power_state().await.unwrap();
    bmc.take_log();
    bmc.script("POST", "ComputerSystem.Reset", dropped());
    bmc.script("POST", "ComputerSystem.Reset", Odd::Fail(TransportError::Unconnected { seconds: 10 }));
    let error = rig.client.restart().await.unwrap_err();
    assert_eq!((error.kind, error.unmade, resets(&bmc)), (ErrorKind::Unanswered, false, 2), "{error}");
}

/// What is said after it takes back no order to switch on, in a restart's place, that may be carried out.
#[tokio::test]
async fn a_start_that_may_be_carried_out_is_told_so_whatever_comes_after_it() {
    let no = |status| odd(status, error_body("GeneralError", "No."));
    let failed = || odd(200, json!({ "TaskState": "Exception" }));
    let untrusted = || Odd::Fail(TransportError::Certificate { detail: "it is another".into() });
    // The power that is shown, and what answers: orders, looks at the system, looks at the task.
    type Row = (Value, Vec<Odd>, Vec<Odd>, Vec<Odd>);
    let rows: Vec<Row> = vec![
        ("Off".into(), vec![dropped()], vec![no(500)], vec![]),
        ("Off".into(), vec![dropped(), no(409)], vec![], vec![]),
        ("Off".into(), vec![dropped(), dropped()], vec![], vec![]),
        (Value::Null, vec![no(409), odd(502, Value::Null)], vec![], vec![]),
        (Value::Null, vec![no(409), too_much()], vec![], vec![]),
        ("Off".into(), vec![accepted("/t/3")], vec![no(500)], vec![failed()]),
        (Value::Null, vec![no(409), accepted("/t/3")], vec![], vec![no(500), failed()]),
        ("Off".into(), vec![accepted("/t/3")], vec![], vec![untrusted()]),
    ];
    for (number, (power, orders, looks, tasks)) in rows.into_iter().enumerate() {
        let bmc = Bmc::generic();
        bmc.edit(SYSTEM, |system| system["PowerState"] = power);
        let rig = rig(&bmc, SYSTEM);
        rig.client.power_state().await.unwrap();
        bmc.take_log();
        let sent = orders.len();
        orders.into_iter().for_each(|odd| bmc.script("POST", "ComputerSystem.Reset", odd));
        looks.into_iter().for_each(|odd| bmc.script("GET", SYSTEM, odd));
        tasks.into_iter().for_each(|odd| bmc.script("GET", "/t/3", odd));
        let error = rig.client.restart().await.unwrap_err();
        let told = (error.kind, error.unmade, resets(&bmc));
        assert_eq!(told, (ErrorKind::Unanswered, false, sent), "{number}: {error}");
    }
}

/// What was ordered shows, be it seconds later: a machine that stays off after the BMC has given the order up was not switched on.
#[tokio::test]
async fn a_start_whose_task_ends_badly_is_refused_where_the_machine_stays_off() {
    // What the looks at the system show, the last of them from then on.
    for states in [&["Off"][..], &["Off", "Off", "On"], &["Off", "PoweringOn"]] {
        let bmc = Bmc::generic();
        bmc.edit(SYSTEM, |system| system["PowerState"] = "Off".into());
        let rig = rig(&bmc, SYSTEM);
        rig.client.power_state().await.unwrap();
        bmc.script("POST", "ComputerSystem.Reset", accepted("/t/3"));
        let said = json!({ "TaskState": "Exception", "Messages": [{ "Message": "The power supplies do not match." }] });
        bmc.script("GET", "/t/3", odd(200, said));
        for state in states {
            let mut shown = bmc.resource(SYSTEM);
            shown["PowerState"] = (*state).into();
            bmc.script("GET", SYSTEM, odd(200, shown));
        }
        match rig.client.restart().await {
            Err(error) if states.len() == 1 => {
                assert!(error.kind.is_definite_refusal() && error.found.contains("power supplies"), "{error}");
            }
            other => assert!(states.len() > 1 && other.is_ok(), "{states:?}: {other:?}"),
        }
        assert_eq!(resets(&bmc), 1);
    }
}

/// What becomes of the sign-in after that says nothing of the restart.
#[tokio::test]
async fn a_restart_that_was_refused_for_its_session_was_not_made() {
    let failures: [fn() -> Odd; 3] = [|| Odd::Fail(TransportError::Timeout { seconds: 60 }), dropped, too_much];
    for (number, failure) in failures.into_iter().enumerate() {
        for is_on in [true, false] {
            let bmc = Bmc::generic();
            bmc.edit(SYSTEM, |system| system["PowerState"] = if is_on { "On" } else { "Off" }.into());
            let rig = rig(&bmc, SYSTEM);
            rig.client.power_state().await.unwrap();
            bmc.take_log();
            bmc.script("POST", "ComputerSystem.Reset", odd(401, error_body("NoValidSession", "No.")));
            bmc.script("POST", SESSIONS, failure());
            let error = rig.client.restart().await.unwrap_err();
            let told = (error.kind, error.unmade, resets(&bmc));
            assert_eq!(told, (ErrorKind::Unreachable, true, 1), "{number} {is_on}: {error}");
        }
    }
}

/// A machine that goes off may do so on its way through the restart.
#[tokio::test]
async fn a_restart_that_may_have_been_made_stays_one_where_the_machine_cannot_be_switched_on() {
    let answers: [fn() -> Odd; 2] = [|| odd(502, Value::Null), dropped];
    for (number, first) in answers.into_iter().enumerate() {
        let bmc = Bmc::generic();
        let rig = rig(&bmc, SYSTEM);
        rig.client.power_state().await.unwrap();
        bmc.edit(SYSTEM, |system| system["PowerState"] = "Off".into());
        bmc.take_log();
        bmc.script("POST", "ComputerSystem.Reset", first());
        bmc.script("POST", "ComputerSystem.Reset", odd(409, error_body("GeneralError", "not now")));
        let error = rig.client.restart().await.unwrap_err();
        assert_eq!((error.kind, resets(&bmc)), (ErrorKind::Unanswered, 2), "{number}: {error}");
    }
    // Nor does the refusal of a restart say that of the order to switch on after it, whose answer was lost.
    let bmc = Bmc::generic();
    bmc.edit(SYSTEM, |system| system["PowerState"] = Value::Null);
    let rig = rig(&bmc, SYSTEM);
    rig.client.power_state().await.unwrap();
    bmc.take_log();
    bmc.script("POST", "ComputerSystem.Reset", odd(409, error_body("GeneralError", "the system is off already")));
    bmc.script("POST", "ComputerSystem.Reset", dropped());
    let error = rig.client.restart().await.unwrap_err();
    assert_eq!((error.kind, resets(&bmc)), (ErrorKind::Unanswered, 2), "{error}");
}

#[tokio::test]
async fn kinds_of_silence_are_told_apart() {
    let cases = [
        (TransportError::Connect { detail: "connection refused".into() }, ErrorKind::Unreachable, "connection refused"),
        (TransportError::Certificate { detail: "it has expired".into() }, ErrorKind::TlsNotTrusted, "expired"),
        (TransportError::Tls { detail: "corrupt message".into() }, ErrorKind::Unreachable, "no TLS"),
        (TransportError::Unconnected { seconds: 10 }, ErrorKind::Timeout, "10 s"),
        (TransportError::Timeout { seconds: 60 }, ErrorKind::Timeout, "60 s"),
        (TransportError::TooLarge, ErrorKind::Protocol, "larger than"),
        (TransportError::Protocol { detail: "x".into() }, ErrorKind::Protocol, "not HTTP"),
    ];
    for (fault, kind, word) in cases {
        let bmc = Bmc::generic();
        let rig = rig(&bmc, SYSTEM);
        bmc.script("GET", "/redfish/v1/", Odd::Fail(fault));
        let error = rig.client.power_state().await.unwrap_err();
        assert_eq!(error.kind, kind);
        assert!(error.to_string().contains(word) && error.to_string().contains("read the power state"), "{error}");
        assert!(!error.advice.is_empty());
        assert!(std::error::Error::source(&error).is_some());
        let last = rig.client.channel().ledger().entries().pop().unwrap();
        assert_eq!(last.outcome, CallOutcome::Failed(kind));
        // It recovers by itself.
        rig.client.power_state().await.unwrap();
    }
}

#[tokio::test]
async fn a_busy_bmc_is_given_time_within_limits() {
    let bmc = Bmc::generic();
    let rig = rig(&bmc, SYSTEM);
    rig.client.power_state().await.unwrap();
    let busy = |after: &str| Odd::Answer(503, vec![("retry-after", after.to_owned())], Vec::new());
    bmc.script("GET", SYSTEM, busy("4"));
    bmc.script("GET", SYSTEM, busy("soon"));
    rig.client.power_state().await.unwrap();
    assert_eq!(rig.waits.0.lock().unwrap().iter().map(|wait| wait.as_secs()).collect::<Vec<_>>(), [4, 3]);
    for _ in 0..3 {
        bmc.script("GET", SYSTEM, busy("x"));
    }
    let error = rig.client.power_state().await.unwrap_err();
    assert_eq!((error.kind, error.status()), (ErrorKind::Busy { status: 503 }, Some(503)));
    assert!(error.to_string().contains("503 Service Unavailable (still so after 4 s)"), "{error}");
}

#[tokio::test]
async fn entity_tags_go_along_are_renewed_and_given_up() {
    let bmc = Bmc::generic();
    bmc.set(|inner| drop(inner.etags.insert(SYSTEM.into(), "\"one\"".into())));
    let rig = rig(&bmc, SYSTEM);
    rig.client.system().await.unwrap();
    let boot = async || rig.client.set_boot_once(BootTarget::Cd, BootMode::Uefi).await;
    let tags = || {
        let seen = bmc.take_seen().into_iter().filter(|seen| seen.method == "PATCH");
        seen.map(|seen| seen.if_match).collect::<Vec<_>>()
    };
    boot().await.unwrap();
    assert_eq!(tags(), [Some("\"one\"".to_owned())]);
    // The tag read before is known to be old after a change of ours.
    boot().await.unwrap();
    assert_eq!(tags(), [None]);
    // Somebody else changed it.
    rig.client.system().await.unwrap();
    bmc.set(|inner| drop(inner.etags.insert(SYSTEM.into(), "W/\"two\"".into())));
    boot().await.unwrap();
    let given = tags();
    assert_eq!((given.len(), given[1].as_deref()), (2, Some("W/\"two\"")));
    // A BMC that refuses the very tag that it gives.
    rig.client.system().await.unwrap();
    for _ in 0..2 {
        bmc.script("PATCH", SYSTEM, odd(412, Value::Null));
    }
    bmc.set(|inner| drop(inner.etags.insert(SYSTEM.into(), "\"three\"".into())));
    boot().await.unwrap();
    assert_eq!(tags().last().unwrap(), &None);
    // One that demands a tag.
    bmc.script("PATCH", SYSTEM, odd(428, Value::Null));
    boot().await.unwrap();
    assert_eq!(tags(), [None, Some("\"threex\"".to_owned())]);
}

fn accepted(location: &str) -> Odd {
    Odd::Answer(202, vec![("location", location.to_owned())], Vec::new())
}

#[tokio::test]
async fn tasks_are_watched_to_their_end() {
    let bmc = Bmc::generic();
    let rig = rig(&bmc, SYSTEM);
    bmc.script("POST", "VirtualMedia.InsertMedia", accepted("https://bmc/redfish/v1/TaskService/TaskMonitors/545"));
    // Not there yet, running in two ways, then as the sample has it.
    bmc.script("GET", "/545", odd(404, Value::Null));
    bmc.script("GET", "/545", odd(202, json!({"TaskState": "Running", "PercentComplete": 10})));
    bmc.script("GET", "/545", odd(202, Value::Null));
    bmc.script("GET", "/545", odd(200, fixture("sushy", "task2.json")));
    bmc.script("GET", "/545", odd(200, fixture("sushy", "task_monitor.json")));
    assert_eq!(rig.client.insert_media(URL).await.unwrap(), Inserted::Now);
    assert!(bmc.script_is_used_up());
    assert_eq!(rig.waits.0.lock().unwrap().len(), 5);
}

#[tokio::test]
async fn a_stuck_task_is_named() {
    // Whether the machine is off is seen, and whether it was restarted is not: it may be made when nobody watches any more.
    for (kind, told) in [(ResetType::ForceRestart, ErrorKind::Unanswered), (ResetType::ForceOff, ErrorKind::Timeout)] {
        let bmc = Bmc::generic();
        let rig = rig(&bmc, SYSTEM);
        bmc.script("POST", "ComputerSystem.Reset", accepted("/redfish/v1/TaskService/Tasks/7"));
        let running = json!({"@odata.id": "/x", "TaskState": "Running", "PercentComplete": 55});
        bmc.set(|inner| drop(inner.resources.insert("/redfish/v1/TaskService/Tasks/7".into(), running)));
        let error = rig.client.reset(kind).await.unwrap_err();
        assert_eq!((error.kind, resets(&bmc)), (told, 1), "{error}");
        let text = error.to_string();
        assert!(text.contains("/redfish/v1/TaskService/Tasks/7") && text.contains("Running, 55 %"), "{text}");
        assert!(error.advice.contains("task list"), "{}", error.advice);
        let waited: u64 = rig.waits.0.lock().unwrap().iter().map(|wait| wait.as_secs()).sum();
        assert!((60..180).contains(&waited), "{waited} s");
    }
}

#[tokio::test]
async fn a_failed_task_tells_why_and_a_forgotten_one_is_done() {
    let bmc = Bmc::generic();
    let rig = rig(&bmc, SYSTEM);
    bmc.script("POST", "VirtualMedia.InsertMedia", accepted("/t/1"));
    let failed = json!({"TaskState": "Exception", "TaskStatus": "Critical", "Messages": [
        {"MessageId": "X.1.Unreachable", "Message": "Image server unreachable."}]});
    bmc.script("GET", "/t/1", odd(200, failed));
    let error = rig.client.insert_media(URL).await.unwrap_err();
    assert!(error.to_string().contains("ended badly: Image server unreachable"), "{error}");
    bmc.script("POST", "VirtualMedia.InsertMedia", accepted("/t/2"));
    bmc.script("GET", "/t/2", odd(202, json!({"TaskState": "Running"})));
    bmc.script("GET", "/t/2", odd(404, Value::Null));
    rig.client.insert_media(URL).await.unwrap();
}

#[tokio::test]
async fn redirects_stay_at_the_bmc() {
    let bmc = Bmc::generic();
    let rig = rig(&bmc, SYSTEM);
    let to = |location: &str| Odd::Answer(308, vec![("location", location.to_owned())], Vec::new());
    bmc.script("GET", "/redfish/v1/", to("/redfish/v1"));
    rig.client.power_state().await.unwrap();
    bmc.script("GET", SYSTEM, to(&format!("https://192.0.2.7{SYSTEM}/")));
    rig.client.power_state().await.unwrap();
    for elsewhere in ["https://evil.example/redfish/v1", "http://192.0.2.7/redfish/v1", "//evil.example/x"] {
        bmc.script("GET", SYSTEM, to(elsewhere));
        bmc.take_log();
        let error = rig.client.power_state().await.unwrap_err();
        assert!(error.to_string().contains("redirect"), "{error}");
        assert_eq!(bmc.take_log().len(), 1);
    }
    // In a circle: a bounded one.
    for _ in 0..3 {
        bmc.script("GET", SYSTEM, to(SYSTEM));
    }
    assert!(rig.client.power_state().await.is_err());
    assert!(bmc.script_is_used_up());
}

#[tokio::test]
async fn nonsense_is_named_and_bounded() {
    let bmc = Bmc::generic();
    let rig = rig(&bmc, SYSTEM);
    bmc.script("GET", "/redfish/v1/", Odd::Answer(200, vec![], b"<html>\x1b[31mLogin</html>".to_vec()));
    let error = rig.client.power_state().await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Protocol);
    assert!(error.to_string().contains("not JSON") && !error.to_string().contains('\u{1b}'), "{error}");
    for body in [
        b"[1]".to_vec(),
        b"null".to_vec(),
        b"\xff\xfe".to_vec(),
        "[".repeat(100_000).into_bytes(),
        vec![b' '; MAX_BODY + 1],
    ] {
        bmc.script("GET", SYSTEM, Odd::Answer(200, vec![], body));
        let error = rig.client.power_state().await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Protocol);
        assert!(error.to_string().len() < 600);
    }
    bmc.script("GET", SYSTEM, odd(500, error_body("X", &"long\n".repeat(100_000))));
    assert!(rig.client.power_state().await.unwrap_err().to_string().len() < 1000);
}

#[tokio::test]
async fn a_wrong_system_path_names_the_right_ones() {
    let bmc = Bmc::generic();
    let rig = rig(&bmc, "/redfish/v1/Systems/9");
    let error = rig.client.system().await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotFound);
    assert!(error.to_string().contains("no system /redfish/v1/Systems/9"), "{error}");
    assert!(error.advice.contains(SYSTEM), "{}", error.advice);
    bmc.edit("/redfish/v1/Systems", |list| {
        list["Members"].as_array_mut().unwrap().push(json!({"@odata.id": "/redfish/v1/Systems/2"}));
    });
    let rig = kit::rig(&bmc, "");
    let error = rig.client.system().await.unwrap_err();
    assert!(error.to_string().contains("2 systems") && error.to_string().contains("Systems/2"), "{error}");
}

#[tokio::test]
async fn no_redfish_at_all() {
    let bmc = Bmc::generic();
    let rig = rig(&bmc, SYSTEM);
    bmc.script("GET", "/redfish/v1/", odd(404, Value::Null));
    let error = rig.client.system().await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotFound);
    assert!(error.to_string().contains("no Redfish service"), "{error}");
}

/// Any JSON, with names that the client looks for.
fn hostile() -> impl Strategy<Value = Value> {
    let path = prop_oneof![
        Just(SYSTEM.to_owned()),
        Just(CD.to_owned()),
        Just(format!("{SYSTEM}/VirtualMedia")),
        Just("/redfish/v1/Systems".to_owned()),
        Just("//evil/x".to_owned()),
        "[ -~]{0,30}",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        path.prop_map(Value::from),
        "\\PC{0,20}".prop_map(Value::from),
    ];
    let name = prop::sample::select(vec![
        "@odata.id",
        "Members",
        "Links",
        "ManagedBy",
        "VirtualMedia",
        "MediaTypes",
        "Actions",
        "#VirtualMedia.InsertMedia",
        "#VirtualMedia.EjectMedia",
        "#ComputerSystem.Reset",
        "target",
        "Boot",
        "PowerState",
        "Inserted",
        "Image",
        "error",
        "@Message.ExtendedInfo",
        "MessageId",
        "MessageArgs",
        "Message",
        "TaskState",
        "Messages",
        "SecureBoot",
        "Parameters",
        "Name",
        "@Redfish.ActionInfo",
        "ResetType@Redfish.AllowableValues",
        "BootSourceOverrideTarget@Redfish.AllowableValues",
        "Systems",
        "Managers",
        "SessionService",
        "ProtocolFeaturesSupported",
        "ExpandQuery",
        "NoLinks",
        "Context",
        "UserName",
        "SecureBootEnable",
        "@Redfish.Settings",
        "SettingsObject",
        "BootSourceOverrideTarget",
        "Manufacturer",
    ]);
    leaf.prop_recursive(6, 64, 8, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(name.clone().prop_map(ToOwned::to_owned), inner, 0..8)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    /// Whatever a BMC serves: no panic, an end after a bounded number of requests, and bounded messages.
    #[test]
    fn any_tree_is_survived(
        values in prop::collection::vec((hostile(), prop::sample::select(vec![200u16, 202, 204, 302, 400, 404, 409, 412, 428, 500, 503])), 1..8),
        keep in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let bmc = Bmc::generic();
            let rig = rig(&bmc, if keep { SYSTEM } else { "" });
            let odd_one = |index: usize| {
                let (value, status) = &values[index % values.len()];
                odd(*status, value.clone())
            };
            for (index, path) in ["", "/redfish/v1/", SYSTEM, "/VirtualMedia", CD, "InsertMedia", "EjectMedia", "Reset"].iter().enumerate() {
                for method in ["GET", "POST", "PATCH", "DELETE"] {
                    bmc.script(method, path, odd_one(index + method.len()));
                }
            }
            let mut texts = Vec::new();
            macro_rules! note { ($e:expr) => { if let Err(error) = $e.await { texts.push(error.to_string()) } } }
            note!(rig.client.sweep(&["https://192.0.2.7/redfish/v1/x".to_owned()]));
            note!(rig.client.system());
            note!(rig.client.insert_media(URL));
            note!(rig.client.set_boot_once(BootTarget::Cd, BootMode::Uefi));
            note!(rig.client.restart());
            note!(rig.client.set_secure_boot(true));
            note!(rig.client.eject_media());
            note!(rig.client.close());
            for text in texts {
                assert!(text.len() < 3000 && !text.chars().any(char::is_control), "{text:?}");
                assert!(!text.contains("0123456789") && !text.contains(kit::PASSWORD), "{text}");
            }
            assert!(rig.client.calls() < 400, "{} calls", rig.client.calls());
        });
    }

    #[test]
    fn any_error_body_is_read(bytes in prop::collection::vec(any::<u8>(), 0..400), value in hostile()) {
        for body in [bytes, value.to_string().into_bytes()] {
            if let Some(sentence) = redfish::message::ErrorBody::parse(&body).sentence() {
                prop_assert!(sentence.chars().count() <= 501);
                prop_assert!(!sentence.chars().any(char::is_control));
            }
        }
    }
}
