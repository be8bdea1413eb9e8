//! Sessions: made, renewed, ended, swept up; and basic authentication where there are none.

use crate::kit::PASSWORD;
use crate::kit::{self, Bmc, SESSIONS, SYSTEM, client_in, dropped, error_body, odd, rig, rig_with};
use bmc::ErrorKind;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::time::Duration;

#[tokio::test]
async fn the_address_is_recorded_and_the_token_is_not() {
    let bmc = Bmc::generic();
    let rig = rig(&bmc, SYSTEM);
    assert_eq!(rig.client.session_address(), None);
    rig.client.power_state().await.unwrap();
    let address = rig.client.session_address().unwrap();
    assert_eq!(address, format!("https://192.0.2.7{SESSIONS}/1"));
    assert_eq!(bmc.take_seen()[1].body["Context"], "metamorph/server-a");
    rig.client.close().await.unwrap();
    assert_eq!((bmc.session_count(), rig.client.session_address()), (0, None));
    // Closed, not dead: the next operation signs in.
    rig.client.power_state().await.unwrap();
    assert_eq!(bmc.session_count(), 1);
}

#[tokio::test]
async fn a_session_that_ended_is_renewed_once() {
    let bmc = Bmc::generic();
    let rig = rig(&bmc, SYSTEM);
    rig.client.power_state().await.unwrap();
    bmc.set(|inner| inner.sessions.clear());
    rig.client.power_state().await.unwrap();
    assert_eq!(bmc.session_count(), 1);
    // The token alone is lost: the old session is not left behind.
    bmc.set(|inner| inner.revoked.push("token-2".into()));
    rig.client.power_state().await.unwrap();
    assert_eq!(bmc.session_count(), 1);
    assert!(rig.client.session_address().unwrap().ends_with("/3"));
}

#[tokio::test]
async fn two_operations_whose_session_ended_sign_in_once() {
    let bmc = Bmc::generic();
    let rig = rig(&bmc, SYSTEM);
    rig.client.power_state().await.unwrap();
    bmc.set(|inner| inner.sessions.clear());
    let (a, b) = tokio::join!(rig.client.power_state(), rig.client.media_state());
    a.unwrap();
    b.unwrap();
    assert_eq!(bmc.session_count(), 1);
}

#[tokio::test]
async fn a_right_that_is_missing_does_not_loop() {
    let bmc = Bmc::generic();
    let rig = rig(&bmc, SYSTEM);
    rig.client.power_state().await.unwrap();
    let no = || odd(401, error_body("NoValidSession", "No."));
    // With the old session, with a new one, with user and password.
    for _ in 0..3 {
        bmc.script("GET", SYSTEM, no());
    }
    let error = rig.client.power_state().await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unauthorized);
    assert!(bmc.script_is_used_up());
    assert_eq!(bmc.session_count(), 1, "no session is left over from the attempt");
}

/// Each sign-in would leave a session behind that cannot be used: the BMC is asked without, and not signed in to again and again.
#[tokio::test(start_paused = true)]
async fn a_bmc_that_refuses_its_own_tokens_does_not_collect_sessions() {
    for takes_basic in [true, false] {
        let bmc = Bmc::generic();
        bmc.set(|inner| inner.refuse_tokens = true);
        bmc.set(|inner| inner.refuse_basic = !takes_basic);
        let registry = bmc::BmcRegistry::new();
        let waits = Arc::default();
        for attempt in 0..5 {
            let client = client_in(&registry, &bmc, SYSTEM, PASSWORD, &waits);
            let state = client.power_state().await;
            assert_eq!(state.is_ok(), takes_basic, "attempt {attempt}: {state:?}");
            if let Err(error) = state {
                assert_eq!(error.kind, ErrorKind::Unauthorized);
            }
        }
        let left = bmc.session_count();
        assert_eq!(left, usize::from(!takes_basic), "sessions left behind");
        // It may have been restarting: sessions are tried again.
        tokio::time::advance(Duration::from_secs(601)).await;
        bmc.set(|inner| inner.refuse_tokens = false);
        client_in(&registry, &bmc, SYSTEM, PASSWORD, &waits).power_state().await.unwrap();
        assert_eq!(bmc.session_count(), left + 1);
    }
}

#[tokio::test]
async fn a_wrong_password_is_named_as_such() {
    let bmc = Bmc::generic();
    let rig = rig_with(&bmc, SYSTEM, "open-sesame");
    let error = rig.client.sweep(&[]).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unauthorized);
    assert!(!error.is_transient());
    let text = error.to_string();
    assert!(
        text.contains("sign in") && text.contains("Wrong user or password") && text.contains("https://192.0.2.7"),
        "{text}"
    );
    assert!(error.advice.contains("Secret"));
    assert_eq!(bmc.take_log().len(), 2, "one try only: accounts get locked");
    // Corrected: works by itself with a new client; the old one keeps failing without a panic.
    assert!(rig.client.power_state().await.is_err());
}

#[tokio::test]
async fn a_password_that_is_quoted_back_is_hidden() {
    let bmc = Bmc::generic();
    let rig = rig_with(&bmc, SYSTEM, "open-sesame");
    bmc.script(
        "POST",
        SESSIONS,
        odd(400, error_body("PropertyValueError", "open-sesame is too short for Unauthorized")),
    );
    bmc.script("POST", SESSIONS, odd(400, error_body("PropertyValueError", "open-sesame is too short")));
    let error = rig.client.power_state().await.unwrap_err();
    assert!(!format!("{error} {error:?}").contains("open-sesame"), "{error:?}");
    assert!(error.to_string().contains("[hidden] is too short"));
}

#[tokio::test]
async fn a_bmc_that_refuses_context_gets_none() {
    let bmc = Bmc::generic();
    bmc.set(|inner| inner.refuse_context = true);
    let rig = rig(&bmc, SYSTEM);
    rig.client.power_state().await.unwrap();
    assert_eq!(bmc.take_log().len(), 4);
    bmc.set(|inner| inner.sessions.clear());
    rig.client.power_state().await.unwrap();
    assert_eq!(bmc.take_log().iter().filter(|line| line.starts_with("POST")).count(), 1, "it is not asked again");
}

#[tokio::test]
async fn without_location_the_body_names_the_session() {
    let bmc = Bmc::generic();
    bmc.set(|inner| inner.no_location = true);
    let rig = rig(&bmc, SYSTEM);
    rig.client.power_state().await.unwrap();
    rig.client.close().await.unwrap();
    assert_eq!(bmc.session_count(), 0);
}

#[tokio::test]
async fn basic_authentication_where_there_are_no_sessions() {
    for hidden in [false, true] {
        let bmc = Bmc::generic();
        bmc.set(|inner| inner.no_sessions = true);
        if hidden {
            bmc.edit("/redfish/v1", |root| {
                root.as_object_mut().unwrap().remove("SessionService");
                root["Links"] = json!({});
            });
        }
        let rig = rig(&bmc, SYSTEM);
        rig.client.sweep(&["https://192.0.2.7/redfish/v1/SessionService/Sessions/9".into()]).await.unwrap();
        rig.client.power_state().await.unwrap();
        assert_eq!(bmc.take_seen().last().unwrap().auth, "basic");
        assert_eq!(rig.client.session_address(), None);
        rig.client.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_service_root_shown_to_users_only_is_no_obstacle() {
    let bmc = Bmc::generic();
    bmc.script("GET", "/redfish/v1/", odd(401, Value::Null));
    let rig = rig(&bmc, SYSTEM);
    rig.client.power_state().await.unwrap();
    assert!(rig.client.session_address().is_some());
}

#[tokio::test]
async fn an_earlier_life_is_swept_up_and_others_are_not() {
    for expand in [true, false] {
        let bmc = Bmc::generic();
        if !expand {
            bmc.edit("/redfish/v1", |root| root["ProtocolFeaturesSupported"] = Value::Null);
        }
        let by_context = bmc.foreign_session("root", Some("metamorph/server-a"));
        let recorded = bmc.foreign_session("root", None);
        let reused_number = bmc.foreign_session("admin", None);
        let other_server = bmc.foreign_session("root", Some("metamorph/server-b"));
        let person = bmc.foreign_session("root", None);
        let rig = rig(&bmc, SYSTEM);
        let twin = client_in(&rig.registry, &bmc, SYSTEM, kit::PASSWORD, &rig.waits);
        twin.power_state().await.unwrap();
        let at = |path: &str| format!("https://192.0.2.7{path}");
        let moved = format!("https://192.0.2.99{person}");
        let stale = [at(&recorded), at(&reused_number), at(&other_server), moved, at("/nonsense"), "x".into()];
        let swept = rig.client.sweep(&stale).await.unwrap();
        assert_eq!((swept.ended, swept.incomplete), (2, None));
        bmc.set(|inner| {
            let left: Vec<_> =
                inner.sessions.values().map(|(_, s)| s["@odata.id"].as_str().unwrap().to_owned()).collect();
            assert!(!left.contains(&by_context) && !left.contains(&recorded));
            assert!(left.contains(&reused_number) && left.contains(&other_server) && left.contains(&person));
            assert_eq!(left.len(), 5, "ours and our twin's live on");
        });
        twin.power_state().await.unwrap();
        assert_eq!(bmc.session_count(), 5);
    }
}

#[tokio::test]
async fn a_broken_expansion_is_tried_once() {
    let bmc = Bmc::generic();
    bmc.foreign_session("root", Some("metamorph/server-a"));
    bmc.script("GET", SESSIONS, odd(501, Value::Null));
    let rig = rig(&bmc, SYSTEM);
    assert_eq!(rig.client.sweep(&[]).await.unwrap().ended, 1);
    assert_eq!(rig.client.sweep(&[]).await.unwrap().ended, 0);
    assert_eq!(bmc.take_log().iter().filter(|line| line.contains("expand")).count(), 1);
}

#[tokio::test]
async fn our_own_leftovers_that_fill_the_bmc_are_swept_with_basic_authentication() {
    let bmc = Bmc::generic();
    bmc.set(|inner| inner.session_limit = 2);
    bmc.foreign_session("root", Some("metamorph/server-a"));
    bmc.foreign_session("admin", None);
    let rig = rig(&bmc, SYSTEM);
    let error = rig.client.power_state().await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::SessionLimit);
    assert!(error.is_transient(), "{error}");
    assert_eq!(rig.client.sweep(&[]).await.unwrap().ended, 1);
    rig.client.power_state().await.unwrap();
    assert_eq!(bmc.session_count(), 2);
    // Full of others' sessions: says so.
    bmc.set(|inner| inner.sessions.clear());
    bmc.foreign_session("admin", None);
    bmc.foreign_session("admin", None);
    let rig = kit::rig(&bmc, SYSTEM);
    assert_eq!(rig.client.sweep(&[]).await.unwrap_err().kind, ErrorKind::SessionLimit);
    assert_eq!(bmc.session_count(), 2);
}

#[tokio::test]
async fn a_session_that_could_not_be_ended_is_kept_to_try_again() {
    let bmc = Bmc::generic();
    let rig = rig(&bmc, SYSTEM);
    rig.client.power_state().await.unwrap();
    bmc.script("DELETE", "/1", dropped());
    bmc.script("DELETE", "/1", dropped());
    assert_eq!(rig.client.close().await.unwrap_err().kind, ErrorKind::Unreachable);
    assert_eq!(bmc.session_count(), 1);
    rig.client.close().await.unwrap();
    assert_eq!(bmc.session_count(), 0);
    rig.client.close().await.unwrap();
}

#[tokio::test]
async fn a_session_without_token_is_ended() {
    let bmc = Bmc::generic();
    let path = bmc.foreign_session("root", None);
    bmc.script("POST", SESSIONS, Odd201::at(&path));
    let rig = rig(&bmc, SYSTEM);
    let error = rig.client.power_state().await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Protocol);
    assert!(error.to_string().contains("no session token"), "{error}");
    assert_eq!(bmc.session_count(), 0);
    rig.client.power_state().await.unwrap();
    rig.client.close().await.unwrap();
    assert_eq!(bmc.session_count(), 0);
}

#[tokio::test]
async fn a_sign_in_that_was_cut_off_leaves_nothing_in_the_end() {
    let bmc = Bmc::generic();
    let other = bmc.foreign_session("root", None);
    let rig = rig(&bmc, SYSTEM);
    // The session is made, the answer lost.
    bmc.script("POST", SESSIONS, kit::Odd::DropAfter);
    assert_eq!(rig.client.power_state().await.unwrap_err().kind, ErrorKind::Unreachable);
    rig.client.power_state().await.unwrap();
    assert_eq!(bmc.session_count(), 3);
    rig.client.close().await.unwrap();
    assert_eq!(bmc.session_count(), 1, "the other user's");
    bmc.set(|inner| assert!(inner.sessions.values().all(|(_, session)| session["@odata.id"] == other.as_str())));
    // Known now: closing again costs nothing.
    bmc.take_log();
    rig.client.close().await.unwrap();
    assert!(bmc.take_log().is_empty());
    // Never signed in, but cut off: looked after as well.
    bmc.script("POST", SESSIONS, kit::Odd::DropAfter);
    assert!(rig.client.power_state().await.is_err());
    rig.client.close().await.unwrap();
    assert_eq!(bmc.session_count(), 1);
}

struct Odd201;

impl Odd201 {
    fn at(path: &str) -> kit::Odd {
        kit::Odd::Answer(201, vec![("location", path.to_owned())], b"{}".to_vec())
    }
}
