//! Subscriptions to events: each made once, found again, and nobody else's.

use std::time::Duration;

use provisioner::{Cause, Events, Host, ReleaseRequest, Retry, SecretText, Subscription, Unsubscription, Verdict};

use crate::common::World;

const TO: &str = "https://events.example/hook";

fn wanted(identity: &str) -> Subscription {
    Subscription {
        identity: identity.into(),
        destination: TO.into(),
        context: "rack-7".into(),
        headers: [("Authorization".to_owned(), SecretText("s3cret".into()))].into(),
    }
}

fn events(host: &mut Box<dyn Host>) -> &mut dyn Events {
    host.events().expect("the native provisioner has them")
}

async fn subscribe(world: &World, identity: &str) -> provisioner::Outcome<String> {
    events(&mut world.host()).subscribe(wanted(identity)).await
}

async fn id(world: &World, identity: &str) -> String {
    match subscribe(world, identity).await.unwrap() {
        Verdict::Done(id) => id,
        other => panic!("{other:?}"),
    }
}

async fn end(world: &World, identity: &str, id: &str) {
    let ends = Unsubscription { id: id.into(), identity: identity.into(), destination: TO.into() };
    assert_eq!(events(&mut world.host()).unsubscribe(ends).await.unwrap(), Verdict::Done(()));
}

fn ids(world: &World) -> Vec<String> {
    world.bmc.lock().unwrap().subscriptions.keys().cloned().collect()
}

#[tokio::test(start_paused = true)]
async fn it_is_made_once_and_again_when_the_bmc_has_lost_it() {
    let mut world = World::new();
    assert_eq!(id(&world, "a").await, "1");
    assert_eq!(world.bmc.lock().unwrap().headers, [("Authorization".to_owned(), "s3cret".to_owned())]);
    world.restart();
    assert_eq!((id(&world, "a").await.as_str(), ids(&world).len()), ("1", 1));
    // Restored to its factory settings; meanwhile somebody else has got the id.
    let theirs = ("https://elsewhere.example/".to_owned(), String::new());
    world.bmc.lock().unwrap().subscriptions = [("1".to_owned(), theirs)].into();
    assert_eq!((id(&world, "a").await.as_str(), ids(&world).len()), ("2", 2));
    end(&world, "a", "2").await;
    assert_eq!(ids(&world), ["1"]);
    end(&world, "a", "2").await;
}

/// A BMC that was reset gives the same ids again: whoever is made anew first has what was the other's.
#[tokio::test(start_paused = true)]
async fn an_id_that_another_object_has_got_is_not_ones_own_any_more() {
    let world = World::new();
    assert_eq!((id(&world, "x").await.as_str(), id(&world, "y").await.as_str()), ("1", "2"));
    {
        let mut bmc = world.bmc.lock().unwrap();
        (bmc.subscriptions, bmc.subscribed) = (Default::default(), 0);
    }
    assert_eq!(id(&world, "y").await, "1");
    assert_eq!(id(&world, "x").await, "2", "it is made again, and does not take the other's");
    end(&world, "x", "1").await;
    assert_eq!(ids(&world), ["1"], "the other's stays");
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_makes_no_second_one_and_takes_nobody_elses() {
    let mut world = World::new();
    // Another object's, and somebody else's, to the same place.
    assert_eq!(id(&world, "b").await, "1");
    world.bmc.lock().unwrap().subscriptions.insert("9".into(), (TO.into(), "rack-7".into()));
    world.bmc.lock().unwrap().loses_subscription = true;
    assert!(subscribe(&world, "a").await.is_err());
    world.restart();
    assert_eq!((id(&world, "a").await.as_str(), ids(&world).len()), ("2", 3));
    // An object that goes before its id was known.
    world.bmc.lock().unwrap().loses_subscription = true;
    assert!(subscribe(&world, "c").await.is_err());
    assert_eq!(ids(&world).len(), 4);
    end(&world, "c", "").await;
    assert_eq!(ids(&world), ["1", "2", "9"]);
}

#[tokio::test(start_paused = true)]
async fn one_of_another_server_is_ended_by_what_its_object_says() {
    let world = World::new();
    world.bmc.lock().unwrap().subscriptions.insert("7".into(), (TO.into(), String::new()));
    world.bmc.lock().unwrap().subscriptions.insert("8".into(), ("https://elsewhere.example/".into(), String::new()));
    end(&world, "a", "8").await;
    assert_eq!(ids(&world), ["7", "8"], "it is to another destination");
    end(&world, "a", "7").await;
    assert_eq!(ids(&world), ["8"]);
}

#[tokio::test(start_paused = true)]
async fn a_bmc_without_events_and_another_machine_are_refused() {
    let world = World::new();
    world.bmc.lock().unwrap().lacks = Some(bmc::Capability::Events);
    let failure = subscribe(&world, "a").await.unwrap_err();
    assert!(failure.cause == Cause::BmcRefused && failure.message.contains("event subscriptions"), "{failure:?}");
    world.bmc.lock().unwrap().lacks = None;
    world.bmc.lock().unwrap().shows_another = true;
    assert_eq!(subscribe(&world, "a").await.unwrap_err().cause, Cause::AnotherMachine);
    assert_eq!(ids(&world).len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_host_has_so_many_and_no_more() {
    let world = World::new();
    for number in 0..32 {
        id(&world, &format!("s{number}")).await;
    }
    let failure = subscribe(&world, "one-more").await.unwrap_err();
    assert!(failure.cause == Cause::InvalidRequest && failure.message.contains("32"), "{failure:?}");
    assert_eq!(ids(&world).len(), 32);
    // Its object may be gone; whoever deletes it at the BMC makes room.
    world.bmc.lock().unwrap().subscriptions.remove("7");
    assert_eq!(id(&world, "one-more").await, "33");
}

#[tokio::test(start_paused = true)]
async fn they_take_a_part_of_the_record_and_no_more() {
    let world = World::new();
    let long = |number: usize| Subscription { context: "x".repeat(2000), ..wanted(&format!("s{number}")) };
    let mut made = 0;
    let failure = loop {
        match events(&mut world.host()).subscribe(long(made)).await {
            Ok(_) => made += 1,
            Err(failure) => break failure,
        }
    };
    assert!((5..9).contains(&made), "{made}");
    assert_eq!((failure.cause, failure.retry), (Cause::InvalidRequest, Retry::AfterChange), "{failure:?}");
    assert!(failure.message.contains("16384 bytes"), "{failure:?}");
    assert_eq!(ids(&world).len(), made);
    let recorded = serde_json::to_vec(&world.journal.content().unwrap().data).unwrap();
    assert!(recorded.len() < 20 << 10, "{}", recorded.len());
    // So many of somebody else's that they could not be told apart.
    let others = (0..99).map(|n| (format!("{n:0>36}"), (TO.to_owned(), "rack-7".to_owned())));
    world.bmc.lock().unwrap().subscriptions = others.collect();
    let failure = subscribe(&world, "short").await.unwrap_err();
    assert!(failure.cause == Cause::InvalidRequest && failure.message.contains("99"), "{failure:?}");
    assert_eq!(ids(&world).len(), 99);
}

#[tokio::test(start_paused = true)]
async fn a_bmc_is_sent_to_no_local_address_and_to_none_that_it_cannot_send_to() {
    let world = World::new();
    for to in [
        "https://127.0.0.1/",
        "http://[::1]:8080/x",
        "http://169.254.169.254/latest",
        "http://LOCALHOST:8080/",
        "https://bmc.localhost./",
        "http://good.example\\@127.0.0.1/",
        "snmp://10.0.0.1",
        "events",
        "",
    ] {
        let one = Subscription { destination: to.into(), ..wanted("a") };
        let failure = events(&mut world.host()).subscribe(one).await.unwrap_err();
        assert_eq!((failure.cause, failure.retry), (Cause::InvalidRequest, Retry::AfterChange), "{to} {failure:?}");
        assert!(failure.advice.is_some_and(|advice| advice.contains("spec.destination")), "{to}");
    }
    assert_eq!(world.bmc.lock().unwrap().subscribed, 0);
    assert!(world.journal.content().is_none_or(|content| content.data.get("subscriptions").is_none()));
}

#[tokio::test(start_paused = true)]
async fn a_bmc_that_shows_none_of_what_it_takes_is_asked_ever_more_seldom() {
    let mut world = World::new();
    world.bmc.lock().unwrap().hides_subscriptions = true;
    let mut failures = std::collections::BTreeSet::new();
    for _ in 0..24 * 60 {
        failures.insert(subscribe(&world, "a").await.unwrap_err().text());
        tokio::time::sleep(Duration::from_mins(1)).await;
    }
    world.restart();
    failures.insert(subscribe(&world, "a").await.unwrap_err().text());
    let asked = world.bmc.lock().unwrap().subscribed;
    assert!((8..13).contains(&asked), "{asked}");
    assert_eq!(failures.len(), asked as usize, "each is told once: {failures:?}");
    // An update of its firmware.
    world.bmc.lock().unwrap().hides_subscriptions = false;
    tokio::time::sleep(Duration::from_hours(24)).await;
    assert_eq!(id(&world, "a").await, (asked + 1).to_string());
}

#[tokio::test(start_paused = true)]
async fn what_the_bmc_has_refused_is_not_recorded() {
    let world = World::new();
    world.bmc.lock().unwrap().refuses_subscriptions = true;
    assert_eq!(subscribe(&world, "a").await.unwrap_err().cause, Cause::BmcRefused);
    assert!(world.journal.content().unwrap().data.get("subscriptions").is_none());
    world.bmc.lock().unwrap().refuses_subscriptions = false;
    assert_eq!(id(&world, "a").await, "1");
}

#[tokio::test(start_paused = true)]
async fn none_is_ended_for_a_host_that_has_changed_meanwhile() {
    let world = World::new();
    id(&world, "a").await;
    world.journal.record.unwanted(Some("the host has been paused"));
    let ends = Unsubscription { id: "1".into(), identity: "a".into(), destination: TO.into() };
    let failure = events(&mut world.host()).unsubscribe(ends).await.unwrap_err();
    assert!(failure.message.contains("paused"), "{failure:?}");
    assert_eq!(ids(&world), ["1"]);
}

#[tokio::test(start_paused = true)]
async fn they_end_with_the_deletion_of_their_host_which_waits_for_none() {
    let mut world = World::new();
    id(&world, "a").await;
    world.bmc.lock().unwrap().subscriptions.insert("9".into(), (TO.into(), "rack-7".into()));
    world.host().release(ReleaseRequest::default()).await.unwrap();
    assert_eq!(ids(&world), ["1", "9"], "it is let go, and not deleted");
    world.deleting = true;
    world.bmc.lock().unwrap().refuses_subscriptions = true;
    assert_eq!(world.host().release(ReleaseRequest::default()).await.unwrap(), Verdict::Done(()));
    assert_eq!(ids(&world), ["1", "9"]);
    world.bmc.lock().unwrap().refuses_subscriptions = false;
    world.host().release(ReleaseRequest::default()).await.unwrap();
    assert_eq!(ids(&world), ["9"]);
}

#[tokio::test(start_paused = true)]
async fn one_that_the_bmc_refuses_to_end_keeps_no_others() {
    let mut world = World::new();
    for identity in ["a", "b", "c"] {
        id(&world, identity).await;
    }
    world.deleting = true;
    world.bmc.lock().unwrap().keeps_subscription = Some("1".to_owned());
    assert_eq!(world.host().release(ReleaseRequest::default()).await.unwrap(), Verdict::Done(()));
    assert_eq!(ids(&world), ["1"]);
}
