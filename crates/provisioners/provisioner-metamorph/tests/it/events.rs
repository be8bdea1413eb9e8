//! Subscriptions to events: each made once, found again, and nobody else's.

use provisioner::{Cause, Events, Host, SecretText, Subscription, Unsubscription, Verdict};

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
}
