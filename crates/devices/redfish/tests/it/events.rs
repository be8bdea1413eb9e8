//! Subscriptions to events: made, found again, ended, and nobody else's.

use bmc::{Bmc as _, Capability, ErrorKind, EventDestination};
use redfish::RedfishBmc;
use serde_json::{Value, json};

use crate::kit::{Bmc, EVENTS, Odd, SUBSCRIPTIONS, SYSTEM, error_body, odd, rig};

const TO: &str = "https://events.example/hook";
const SECRET: &str = "Bearer 8f14e45fceea167a";

fn wanted<'a>(headers: &'a [(&'a str, &'a str)]) -> EventDestination<'a> {
    EventDestination { url: TO, context: "rack-7", headers }
}

/// A BMC with an EventService, and these subscriptions.
fn with(members: &[Value]) -> std::sync::Arc<Bmc> {
    let bmc = Bmc::generic();
    let links: Vec<Value> =
        (0..members.len()).map(|n| json!({"@odata.id": format!("{SUBSCRIPTIONS}/old-{n}")})).collect();
    bmc.set(|inner| {
        let service =
            json!({"@odata.id": EVENTS, "ServiceEnabled": true, "Subscriptions": {"@odata.id": SUBSCRIPTIONS}});
        inner.resources.insert(EVENTS.into(), service);
        inner.resources.insert(SUBSCRIPTIONS.into(), json!({"@odata.id": SUBSCRIPTIONS, "Members": links}));
        for (n, member) in members.iter().enumerate() {
            inner.resources.insert(format!("{SUBSCRIPTIONS}/old-{n}"), member.clone());
        }
    });
    bmc
}

fn posted(bmc: &Bmc) -> Vec<Value> {
    let seen = bmc.take_seen().into_iter();
    seen.filter(|seen| seen.method == "POST" && seen.path == SUBSCRIPTIONS).map(|seen| seen.body).collect()
}

#[tokio::test]
async fn a_subscription_is_made_looked_for_and_ended() {
    let bmc = with(&[]);
    let rig = rig(&bmc, SYSTEM);
    let id = rig.client.subscribe_to_events(&wanted(&[("Authorization", SECRET)])).await.unwrap().unwrap();
    let body = json!({"Destination": TO, "Context": "rack-7", "Protocol": "Redfish", "EventTypes": ["Alert"],
        "HttpHeaders": [{"Authorization": SECRET}]});
    assert_eq!(posted(&bmc), [body]);
    assert_eq!(rig.client.subscriptions_like(&wanted(&[])).await.unwrap(), std::slice::from_ref(&id));
    assert!(rig.client.has_subscription(&id, TO).await.unwrap());
    // The id of another one now.
    assert!(!rig.client.has_subscription(&id, "https://events.example/other").await.unwrap());
    rig.client.end_subscription(&id, "https://events.example/other").await.unwrap();
    assert!(rig.client.has_subscription(&id, TO).await.unwrap());
    rig.client.end_subscription(&id, TO).await.unwrap();
    assert!(!rig.client.has_subscription(&id, TO).await.unwrap());
    rig.client.end_subscription(&id, TO).await.unwrap();
}

#[tokio::test]
async fn only_what_is_alike_is_found() {
    let there = [
        json!({"Destination": TO, "Context": "rack-8"}),
        json!({"Destination": "https://events.example/hook2", "Context": "rack-7"}),
        json!({"Destination": TO, "Context": "rack-7"}),
        json!({"Destination": TO}),
    ];
    let bmc = with(&there);
    let rig = rig(&bmc, SYSTEM);
    assert_eq!(rig.client.subscriptions_like(&wanted(&[])).await.unwrap(), ["old-2"]);
    let none = EventDestination { context: "", ..wanted(&[]) };
    assert_eq!(rig.client.subscriptions_like(&none).await.unwrap(), ["old-3"]);
}

#[tokio::test]
async fn a_destination_that_a_bmc_writes_in_another_way_is_the_same() {
    for (given, shown) in [
        ("https://events.example", "https://events.example:443/"),
        ("http://Events.example/hook", "http://events.example:80/hook"),
        ("https://events.example:443/hook?a=1", "https://events.example/hook?a=1"),
    ] {
        let bmc = with(&[json!({"Destination": shown, "Context": "rack-7"})]);
        let rig = rig(&bmc, SYSTEM);
        let like = EventDestination { url: given, ..wanted(&[]) };
        assert_eq!(rig.client.subscriptions_like(&like).await.unwrap(), ["old-0"], "{given}");
        assert!(rig.client.has_subscription("old-0", given).await.unwrap(), "{given}");
        for other in ["https://events.example:8443/", "http://events.example/", "https://events.example/Hook", ""] {
            assert!(!rig.client.has_subscription("old-0", other).await.unwrap(), "{given} {other}");
        }
        bmc.take_log();
        rig.client.end_subscription("old-0", given).await.unwrap();
        assert!(bmc.take_log().contains(&format!("DELETE {SUBSCRIPTIONS}/old-0")), "{given}");
    }
}

#[tokio::test]
async fn what_a_bmc_refuses_is_left_out_and_what_it_says_shows_no_header() {
    let bmc = with(&[]);
    bmc.script("POST", SUBSCRIPTIONS, odd(400, error_body("PropertyUnknown", "The property EventTypes is unknown.")));
    bmc.script("POST", SUBSCRIPTIONS, odd(400, error_body("PropertyMissing", "SubscriptionType is required.")));
    let first = rig(&bmc, SYSTEM);
    assert!(first.client.subscribe_to_events(&wanted(&[])).await.unwrap().is_some());
    let last = posted(&bmc).pop().unwrap();
    assert_eq!(
        last,
        json!({"Destination": TO, "Context": "rack-7", "Protocol": "Redfish", "SubscriptionType": "RedfishEvent"})
    );
    let bmc = with(&[]);
    bmc.script("POST", SUBSCRIPTIONS, odd(400, error_body("Wrong", &format!("the header {SECRET} is too long"))));
    let second = rig(&bmc, SYSTEM);
    let error = second.client.subscribe_to_events(&wanted(&[("Authorization", SECRET)])).await.unwrap_err();
    assert!(error.found.contains("is too long"), "{error}");
    assert!(!format!("{error} {error:?}").contains(SECRET), "{error:?}");
}

/// The BMC knows the headers, and others read what it says: none of its words are in errors.
#[tokio::test]
async fn a_bmc_cannot_tell_the_headers_to_others() {
    let bmc = with(&[]);
    let rig = rig(&bmc, SYSTEM);
    let id = rig.client.subscribe_to_events(&wanted(&[("Authorization", SECRET)])).await.unwrap().unwrap();
    let one: &'static str = format!("{SUBSCRIPTIONS}/{id}").leak();
    for path in [EVENTS, one] {
        bmc.script("GET", path, odd(500, error_body("GeneralError", SECRET)));
        let error = rig.client.has_subscription(&id, TO).await.unwrap_err();
        assert!(!format!("{error:?}").contains("8f14e45f") && error.found.contains("500"), "{error:?}");
    }
    let body = error_body("GeneralError", "it was 8f14e45fceea167a");
    bmc.script("POST", SUBSCRIPTIONS, odd(500, body));
    let error = rig.client.subscribe_to_events(&wanted(&[("Authorization", SECRET)])).await.unwrap_err();
    assert!(!format!("{error:?}").contains("8f14e45f"), "the token alone, too: {error:?}");
}

/// Who reads the server's log may not wake hosts by it.
#[tokio::test]
async fn a_bmc_that_repeats_what_marks_a_subscription_tells_it_to_nobody() {
    let bmc = with(&[]);
    let (context, token) = ("own-0f5c2d9a71", "c2b9e6a1d4");
    let url = format!("https://192.0.2.1/events/{token}");
    let words = format!("the values {context} of Context and {url} of Destination are of the wrong format");
    for _ in 0..4 {
        bmc.script("POST", SUBSCRIPTIONS, odd(500, error_body("PropertyValueFormatError", &words)));
    }
    let rig = rig(&bmc, SYSTEM);
    let wanted = EventDestination { url: &url, context, headers: &[] };
    let error = rig.client.subscribe_to_events(&wanted).await.unwrap_err();
    let said = format!("{error} {error:?}");
    assert!(said.contains("wrong format") && !said.contains(context) && !said.contains(token), "{said}");
}

/// Its subscriptions may do. A session that has ended is another matter.
#[tokio::test]
async fn a_stream_that_the_account_may_not_read_is_as_none() {
    const STREAM: &str = "/redfish/v1/EventService/SSE";
    for (status, kind) in [(403, ErrorKind::Unsupported), (401, ErrorKind::Unauthorized), (404, ErrorKind::NotFound)] {
        let bmc = with(&[]);
        bmc.edit(EVENTS, |service| service["ServerSentEventUri"] = STREAM.into());
        bmc.script("GET", STREAM, odd(status, error_body("InsufficientPrivilege", "not for this account")));
        let error = rig(&bmc, SYSTEM).client.event_stream().await.err().unwrap();
        assert_eq!(error.kind, kind, "{error:?}");
    }
}

#[tokio::test]
async fn an_id_that_tells_a_header_is_none() {
    let bmc = with(&[]);
    let rig = rig(&bmc, SYSTEM);
    let location = vec![("location", format!("{SUBSCRIPTIONS}/8f14e45fceea167a"))];
    bmc.script("POST", SUBSCRIPTIONS, Odd::Answer(201, location, b"{}".to_vec()));
    assert_eq!(rig.client.subscribe_to_events(&wanted(&[("Authorization", SECRET)])).await.unwrap(), None);
}

/// It tells nothing there.
#[tokio::test]
async fn an_id_may_hold_a_short_header() {
    let bmc = with(&[]);
    let rig = rig(&bmc, SYSTEM);
    let location = vec![("location", format!("{SUBSCRIPTIONS}/17"))];
    bmc.script("POST", SUBSCRIPTIONS, Odd::Answer(201, location, b"{}".to_vec()));
    let id = rig.client.subscribe_to_events(&wanted(&[("X-Rack", "7")])).await.unwrap();
    assert_eq!(id.as_deref(), Some("17"));
}

#[tokio::test]
async fn a_lost_answer_leaves_a_subscription_that_is_found() {
    let bmc = with(&[]);
    bmc.script("POST", SUBSCRIPTIONS, Odd::DropAfter);
    let rig = rig(&bmc, SYSTEM);
    assert!(rig.client.subscribe_to_events(&wanted(&[])).await.is_err());
    assert_eq!(posted(&bmc).len(), 1, "it is not sent again");
    assert_eq!(rig.client.subscriptions_like(&wanted(&[])).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_bmc_without_events_says_so() {
    let bmc = Bmc::generic();
    bmc.edit("/redfish/v1", |root| drop(root.as_object_mut().unwrap().remove("EventService")));
    let first = RedfishBmc::new(rig(&bmc, SYSTEM).client);
    first.look().await.unwrap();
    let lacking = first.events().err().unwrap();
    assert_eq!(lacking.capability, Capability::Events);
    assert!(lacking.to_string().contains("there is no EventService at /redfish/v1"), "{lacking}");
    let bmc = with(&[]);
    bmc.edit(EVENTS, |service| service["ServiceEnabled"] = false.into());
    let second = rig(&bmc, SYSTEM);
    let error = second.client.subscribe_to_events(&wanted(&[])).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unsupported);
    assert!(error.found.contains("switched off"), "{error}");
    // An id that is none is nobody's.
    for id in ["", "..", "a/b", "x?y", "../../Systems/1", "a%2Fb", "%2e%2e", "a\u{1b}[2J"] {
        assert!(!with_id(&second, id).await);
    }
}

async fn with_id(rig: &crate::kit::Rig, id: &str) -> bool {
    let before = rig.client.calls();
    let has = rig.client.has_subscription(id, TO).await.unwrap();
    assert_eq!(rig.client.calls(), before);
    has
}
