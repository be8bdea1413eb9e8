//! What a BMC tells by itself wakes its host: by a stream, by a subscription, or not at all; and only where the host is to be heard.

use std::time::Duration;

use axum::body::Body;
use axum::http::StatusCode;
use bmc::{Alert, Capability, ErrorKind, HealthLevel};
use provisioner::{ReleaseRequest, Verdict, WakeUps};
use tokio::time::{Instant, sleep, timeout};

use crate::common::World;

const ALERT: Alert = Alert { severity: HealthLevel::Warning, is_health: false };
const FINE: Alert = Alert { severity: HealthLevel::OK, is_health: false };

/// A host that is to be heard, at a BMC with streams or without them.
fn world(streams: bool) -> World {
    let mut world = World::new();
    world.listens = Some(true);
    world.bmc.lock().unwrap().streams = streams;
    world
}

/// One look at a host at rest, and time for what it has begun.
async fn look(world: &World) {
    let seen = world.host().power_state().await.unwrap();
    assert_eq!(seen, Verdict::Done(Some(true)));
    sleep(Duration::from_millis(10)).await;
}

fn tells(world: &World, alert: Alert) {
    world.bmc.lock().unwrap().stream.as_ref().expect("a stream is open").send(alert).unwrap();
}

/// How often the host is woken in so long.
async fn woken(wakes: &mut WakeUps, time: Duration) -> usize {
    let (end, mut count) = (Instant::now() + time, 0);
    while let Ok(Some(wake)) = timeout(end.saturating_duration_since(Instant::now()), wakes.recv()).await {
        assert_eq!(wake.key.name, "node-0");
        count += 1;
    }
    count
}

/// Destination and context of the only subscription.
fn subscription(world: &World) -> (String, String) {
    let bmc = world.bmc.lock().unwrap();
    assert_eq!(bmc.subscriptions.len(), 1, "{:?}", bmc.subscriptions);
    bmc.subscriptions.values().next().unwrap().clone()
}

fn listened(world: &World) -> u32 {
    world.bmc.lock().unwrap().listened
}

#[tokio::test(start_paused = true)]
async fn an_alert_wakes_the_host_at_once_and_a_flood_of_them_now_and_then() {
    let world = world(true);
    let mut wakes = world.wake_ups();
    look(&world).await;
    look(&world).await;
    assert_eq!(
        (listened(&world), world.bmc.lock().unwrap().subscriptions.len()),
        (1, 0),
        "one stream, and nothing else"
    );
    tells(&world, FINE);
    assert_eq!(woken(&mut wakes, Duration::from_secs(60)).await, 0, "all is well");
    let told = Instant::now();
    tells(&world, ALERT);
    wakes.recv().await.unwrap();
    assert_eq!(told.elapsed(), Duration::ZERO);
    for _ in 0..1000 {
        (0..100).for_each(|_| tells(&world, ALERT));
        sleep(Duration::from_millis(60)).await;
    }
    let flooded = woken(&mut wakes, Duration::from_secs(30)).await;
    assert!((10..=13).contains(&flooded), "{flooded} in a minute");
    // What is no alert counts while the machine is not well: it may be again.
    world.bmc.lock().unwrap().health = Some(HealthLevel::Critical);
    look(&world).await;
    tells(&world, FINE);
    assert_eq!(woken(&mut wakes, Duration::from_secs(30)).await, 1);
    world.bmc.lock().unwrap().health = Some(HealthLevel::OK);
    look(&world).await;
    tells(&world, FINE);
    assert_eq!(woken(&mut wakes, Duration::from_secs(30)).await, 0);
    tells(&world, Alert { is_health: true, ..FINE });
    assert_eq!(woken(&mut wakes, Duration::from_secs(30)).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_lost_stream_is_opened_again_ever_more_slowly_and_not_where_access_is_refused() {
    let world = world(true);
    let mut wakes = world.wake_ups();
    look(&world).await;
    world.bmc.lock().unwrap().stream = None;
    assert_eq!(woken(&mut wakes, Duration::from_secs(10)).await, 1, "what was told in between was told to nobody");
    assert_eq!(listened(&world), 2);
    {
        let mut bmc = world.bmc.lock().unwrap();
        (bmc.stream, bmc.fails_to_stream, bmc.listened) = (None, Some(ErrorKind::Timeout), 0);
    }
    sleep(Duration::from_secs(3600)).await;
    assert!((12..=25).contains(&listened(&world)), "{} in an hour", listened(&world));
    {
        let mut bmc = world.bmc.lock().unwrap();
        (bmc.fails_to_stream, bmc.listened) = (Some(ErrorKind::Unauthorized), 0);
    }
    sleep(Duration::from_secs(7200)).await;
    assert_eq!(listened(&world), 1, "another try would be another sign-in");
    // The host's own looks sign in: after one of them it is tried again.
    world.bmc.lock().unwrap().fails_to_stream = None;
    look(&world).await;
    assert_eq!(listened(&world), 2);
    tells(&world, ALERT);
    assert_eq!(woken(&mut wakes, Duration::from_secs(60)).await, 1);
    // A stream of which nothing comes may be dead.
    sleep(Duration::from_secs(3600)).await;
    assert!((3..=6).contains(&listened(&world)), "{}", listened(&world));
}

#[tokio::test(start_paused = true)]
async fn without_streams_the_bmc_posts_to_an_address_that_it_alone_knows() {
    let mut world = world(false);
    let mut wakes = world.wake_ups();
    look(&world).await;
    assert_eq!(woken(&mut wakes, Duration::from_secs(1)).await, 1, "a look makes the subscription");
    look(&world).await;
    let (url, context) = subscription(&world);
    assert!(url.starts_with("http://192.0.2.1:6180/shard/0/events/") && context.len() >= 43, "{url}");
    let record = format!("{:?}", world.journal.content());
    assert!(record.contains("sha256:") && !record.contains(&context), "the record does not tell the secret");
    sleep(Duration::from_secs(10)).await;
    assert_eq!(world.tell(&url, format!("{context}|Warning")).await, StatusCode::NO_CONTENT);
    assert_eq!(woken(&mut wakes, Duration::from_secs(1)).await, 1);
    let long = Body::from(vec![b'x'; (64 << 10) + 1]);
    assert_eq!(world.tell(&url, long).await, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(world.tell(&url, "no event").await, StatusCode::BAD_REQUEST);
    assert_eq!(world.tell(&url, "|Warning").await, StatusCode::FORBIDDEN);
    assert_eq!(world.tell(&url, format!("{}|Warning", "x".repeat(context.len()))).await, StatusCode::FORBIDDEN);
    assert_eq!(
        world.tell(&url.replace("/events/", "/events/x"), format!("{context}|Warning")).await,
        StatusCode::NOT_FOUND
    );
    assert_eq!(woken(&mut wakes, Duration::from_secs(60)).await, 0);
    // Bodies that do not end keep no others out for long.
    let endless = || Body::from_stream(futures::stream::pending::<Result<Vec<u8>, std::io::Error>>());
    let (one, two) = tokio::join!(world.tell(&url, endless()), world.tell(&url, endless()));
    assert_eq!([one, two], [StatusCode::REQUEST_TIMEOUT; 2]);
    let three = tokio::join!(
        world.tell(&url, endless()),
        world.tell(&url, endless()),
        world.tell(&url, format!("{context}|Warning"))
    );
    assert_eq!(three.2, StatusCode::TOO_MANY_REQUESTS);
    // Another server finds it again; as long as it does not know whether the host is to be heard, it leaves it.
    world.restart();
    world.listens = None;
    look(&world).await;
    assert_eq!(subscription(&world), (url.clone(), context.clone()));
    assert_eq!(world.tell(&url, format!("{context}|Warning")).await, StatusCode::NOT_FOUND);
    world.listens = Some(true);
    look(&world).await;
    look(&world).await;
    assert_eq!(subscription(&world), (url.clone(), context.clone()));
    assert_eq!(world.bmc.lock().unwrap().subscribed, 1);
    assert_eq!(world.tell(&url, format!("{context}|Warning")).await, StatusCode::NO_CONTENT);
    // Lost by the BMC, it is made again, ten minutes later at most.
    world.bmc.lock().unwrap().subscriptions.clear();
    look(&world).await;
    assert!(world.bmc.lock().unwrap().subscriptions.is_empty());
    sleep(Duration::from_secs(601)).await;
    look(&world).await;
    assert_eq!(subscription(&world), (url.clone(), context.clone()));
    // Not to be heard any more.
    world.listens = Some(false);
    look(&world).await;
    assert!(world.bmc.lock().unwrap().subscriptions.is_empty());
    assert_eq!(world.tell(&url, format!("{context}|Warning")).await, StatusCode::NOT_FOUND);
    assert!(!format!("{:?}", world.journal.content()).contains("sha256:"));
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_makes_no_second_subscription_and_another_key_another_address() {
    let mut world = world(false);
    look(&world).await;
    world.bmc.lock().unwrap().loses_subscription = true;
    look(&world).await;
    assert_eq!(world.bmc.lock().unwrap().subscribed, 1);
    world.restart();
    look(&world).await;
    look(&world).await;
    let (url, context) = subscription(&world);
    assert_eq!(
        world.bmc.lock().unwrap().subscribed,
        1,
        "it is found again by the context, which the record does not tell"
    );
    assert_eq!(world.tell(&url, format!("{context}|Warning")).await, StatusCode::NO_CONTENT);
    world.keys.replace(crate::common::key(2), vec![crate::common::key(1)]);
    look(&world).await;
    look(&world).await;
    let (other, secret) = subscription(&world);
    assert!(other != url && secret != context);
    assert_eq!(world.tell(&url, format!("{context}|Warning")).await, StatusCode::NOT_FOUND);
    assert_eq!(world.tell(&other, format!("{secret}|Warning")).await, StatusCode::NO_CONTENT);
}

#[tokio::test(start_paused = true)]
async fn slow_bmcs_hold_up_no_others_for_long_and_are_not_waited_for_without_end() {
    let world = world(true);
    world.bmc.lock().unwrap().slow_to_stream = Duration::from_hours(1);
    let uids = ["u1", "u2", "u3", "u4", "u5", "u6", "u7", "u8"];
    let mut others = uids.map(|uid| world.beside("ns", uid));
    others.iter_mut().for_each(|one| one.listens = Some(true));
    for one in std::iter::once(&world).chain(&others) {
        look(one).await;
    }
    assert_eq!(listened(&world), 8, "so many are opened at once");
    sleep(Duration::from_secs(11)).await;
    assert_eq!(listened(&world), 9, "the ninth is not held up by eight slow ones");
    sleep(Duration::from_secs(100)).await;
    assert_eq!(listened(&world), 9);
    sleep(Duration::from_secs(60)).await;
    assert!(listened(&world) > 9, "none is waited for without end");
}

#[tokio::test(start_paused = true)]
async fn a_bmc_without_streams_wakes_its_host_no_more_often_however_often_it_is_asked_anew() {
    let world = world(false);
    let mut wakes = world.wake_ups();
    for number in 1..=5 {
        // Each time another ear.
        world.keys.replace(crate::common::key(number), vec![]);
        look(&world).await;
    }
    assert_eq!(listened(&world), 5);
    assert_eq!(woken(&mut wakes, Duration::from_secs(60)).await, 2, "at once, and once more for all that came after");
}

#[tokio::test(start_paused = true)]
async fn the_first_event_does_not_wait_for_what_was_said_of_streams() {
    let world = world(false);
    let mut wakes = world.wake_ups();
    look(&world).await;
    assert_eq!(woken(&mut wakes, Duration::from_secs(1)).await, 1, "a look makes the subscription");
    look(&world).await;
    let (url, context) = subscription(&world);
    assert_eq!(world.tell(&url, format!("{context}|Warning")).await, StatusCode::NO_CONTENT);
    assert_eq!(woken(&mut wakes, Duration::from_millis(100)).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_subscription_whose_answer_was_lost_is_known_by_the_key_that_it_was_made_with() {
    let world = world(false);
    look(&world).await;
    world.bmc.lock().unwrap().loses_subscription = true;
    look(&world).await;
    let (lost, _) = subscription(&world);
    world.keys.replace(crate::common::key(2), vec![crate::common::key(1)]);
    look(&world).await;
    look(&world).await;
    let (url, context) = subscription(&world);
    assert_ne!(url, lost, "the earlier one is ended, and one that the new key tells of is made");
    assert_eq!(world.tell(&url, format!("{context}|Warning")).await, StatusCode::NO_CONTENT);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_asked_for_where_the_host_is_not_to_be_heard_or_the_bmc_has_no_events() {
    for (listens, lacks) in [(None, None), (Some(false), None), (Some(true), Some(Capability::Events))] {
        let mut world = world(true);
        world.listens = listens;
        world.bmc.lock().unwrap().lacks = lacks;
        look(&world).await;
        sleep(Duration::from_secs(3600)).await;
        look(&world).await;
        let bmc = world.bmc.lock().unwrap();
        assert_eq!((bmc.listened, bmc.subscribed), (0, 0), "{listens:?} {lacks:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_ear_goes_with_the_host_and_with_what_is_wished() {
    for deleting in [true, false] {
        let mut world = world(false);
        look(&world).await;
        look(&world).await;
        let (url, context) = subscription(&world);
        world.deleting = deleting;
        let released = world.host().release(ReleaseRequest::default()).await.unwrap();
        assert_eq!(released, Verdict::Done(()));
        assert!(world.bmc.lock().unwrap().subscriptions.is_empty(), "deleted: {deleting}");
        assert_eq!(world.tell(&url, format!("{context}|Warning")).await, StatusCode::NOT_FOUND);
    }
    let mut world = world(true);
    let mut wakes = world.wake_ups();
    look(&world).await;
    world.listens = Some(false);
    look(&world).await;
    let stream = world.bmc.lock().unwrap().stream.take().unwrap();
    assert!(stream.is_closed(), "the stream is closed");
    assert_eq!(woken(&mut wakes, Duration::from_secs(60)).await, 0);
    // A subscription of the time before the BMC had streams is ended when one is open.
    world.bmc.lock().unwrap().streams = false;
    world.listens = Some(true);
    look(&world).await;
    look(&world).await;
    assert_eq!(subscription(&world).0.split('/').nth(5), Some("events"));
    world.restart();
    world.bmc.lock().unwrap().streams = true;
    look(&world).await;
    look(&world).await;
    assert!(world.bmc.lock().unwrap().subscriptions.is_empty());
    world.forget();
    sleep(Duration::from_secs(1)).await;
    assert!(world.bmc.lock().unwrap().stream.as_ref().unwrap().is_closed());
}
