//! A medium's address names its bytes, and a boot keeps its address.

use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use serde_json::json;
use tokio::time::Instant;
use tower::ServiceExt;

use crate::kit::{Lab, asked_from, image, key, settings};

fn network(address: &str) -> serde_json::Value {
    json!({
        "links": [{ "id": "a", "type": "phy", "ethernet_mac_address": "52:54:00:00:00:01" }],
        "networks": [{ "id": "n", "type": "ipv4", "link": "a", "ip_address": address, "netmask": "255.255.255.0" }],
    })
}

/// The server is replaced while the machine reads its medium, and something that goes into media is another than before.
async fn in_mid_boot(change: impl FnOnce(&mut Lab, &tempfile::TempDir)) {
    let (one, two) = (image(1), image(2));
    let mut lab = Lab::new(&one);
    lab.network = Some(network("192.0.2.20"));
    lab.inspect().await.unwrap();
    let first = lab.bmc.inserted().remove(0);
    let before = lab.read(&first).await.unwrap();
    change(&mut lab, &two);
    lab.inspect().await.unwrap();
    // The BMC goes on reading. It gets the bytes that it has begun with, or none.
    let after = lab.read(&first).await;
    assert!(after.as_ref().is_none_or(|after| *after == before), "other bytes at the same address");
    // What cannot be served any more is booted anew, at another address.
    lab.look_for(Duration::from_secs(120)).await;
    if after.is_none() {
        let last = lab.bmc.inserted().pop().unwrap();
        assert_ne!(last, first);
        assert_ne!(lab.read(&last).await.unwrap(), before);
        assert_eq!(lab.bmc.resets(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn network_data_that_change_in_mid_boot_do_not_mix_two_media() {
    in_mid_boot(|lab, _| {
        lab.network = Some(network("192.0.2.21"));
        lab.restart(settings(), &image(1));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_in_mid_boot_does_not_mix_two_kernels() {
    in_mid_boot(|lab, two| lab.restart(settings(), two)).await;
}

#[tokio::test(start_paused = true)]
async fn new_endpoints_and_certificates_do_not_change_a_medium_under_way() {
    in_mid_boot(|lab, _| {
        let mut new = settings();
        new.bases.agents = vec!["https://192.0.2.9:6385".into()];
        new.keys = key(1, "11");
        lab.restart(new, &image(1));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_earlier_agent_image_stays_readable_until_its_boot_is_over() {
    let (one, two) = (image(1), image(2));
    let mut lab = Lab::new(&one);
    lab.inspect().await.unwrap();
    let first = lab.bmc.inserted().remove(0);
    let before = lab.read(&first).await.unwrap();
    lab.upgrade(&two, &one);
    lab.inspect().await.unwrap();
    assert_eq!(lab.read(&first).await, Some(before));
    // It was read, so the boot goes on: nothing is inserted or reset for as long as a machine may take.
    assert_eq!(lab.look_for(Duration::from_secs(1100)).await, []);
    assert_eq!((lab.bmc.inserted().len(), lab.bmc.resets()), (1, 1));
    // The next boot is from the new image.
    lab.look_for(Duration::from_secs(3600)).await;
    let last = lab.bmc.inserted().pop().unwrap();
    assert!(lab.read(&last).await.unwrap().1.windows(64).any(|bytes| bytes == [2; 64]));
}

#[tokio::test(start_paused = true)]
async fn what_an_operation_does_again_it_does_at_the_same_address() {
    let mut lab = Lab::new(&image(1));
    lab.inspect().await.unwrap();
    let recorded = lab.journal.all().pop().unwrap().1.boot.unwrap();
    assert_eq!(recorded.medium.unwrap().len(), 64);
    // Killed after the reset, and the BMC has lost the medium: put in again by the next server, when nothing shows itself.
    lab.bmc.state().medium = None;
    lab.restart(settings(), &image(1));
    lab.look_for(Duration::from_secs(120)).await;
    let inserted = lab.bmc.inserted();
    assert_eq!((inserted.len(), &inserted[0]), (2, &inserted[1]));
}

#[tokio::test(start_paused = true)]
async fn a_bmc_that_never_ends_putting_a_medium_in_is_given_up() {
    let lab = Lab::new(&image(1));
    lab.bmc.state().insertion = Duration::from_secs(86_400);
    let failures = lab.look_for(Duration::from_secs(800)).await;
    assert_eq!((failures.len(), lab.bmc.resets()), (1, 0), "{failures:?}");
    assert!(failures[0].message.contains("the medium is not in its drive"), "{failures:?}");
}

#[tokio::test(start_paused = true)]
async fn a_bmc_that_takes_minutes_to_put_a_medium_in_converges() {
    let lab = Lab::new(&image(1));
    lab.bmc.state().insertion = Duration::from_secs(170);
    let failures = lab.look_for(Duration::from_secs(600)).await;
    let inserted = lab.bmc.inserted();
    assert_eq!(inserted.len(), 1, "{inserted:?} {failures:?}");
    assert_eq!((lab.bmc.resets(), failures.len()), (1, 0), "{failures:?}");
}

#[tokio::test(start_paused = true)]
async fn a_host_is_told_the_addresses_of_its_network() {
    let mut lab = Lab::new(&image(1));
    let mut new = settings();
    let rule = "namespace=metal,bmc=192.0.2.0/24,media=http://[2001:db8::5]:6180,media=http://10.1.0.5:6180,agent=https://10.1.0.5:6385";
    new.networks = vec![rule.parse().unwrap()];
    lab.restart(new, &image(1));
    lab.inspect().await.unwrap();
    let url = lab.bmc.inserted().remove(0);
    assert!(url.starts_with("http://10.1.0.5:6180/shard/0/media/"), "an IPv4 BMC reads over IPv4: {url}");
    let (_, bytes) = lab.read(&url).await.unwrap();
    let files = boot_media::read_host_files(&bytes).unwrap();
    let config: serde_json::Value = serde_json::from_slice(&files[0].bytes).unwrap();
    // The version before serves no shard, and hears the agent if it comes back.
    assert_eq!(config["endpoints"], json!(["https://10.1.0.5:6385/shard/0", "https://10.1.0.5:6385"]));
    // A BMC that was given it by the version before reads it without the shard, and finds the same.
    assert_eq!(lab.read(&url.replace("/shard/0", "")).await.unwrap().1, bytes);
}

#[tokio::test(start_paused = true)]
async fn whoever_asks_for_invented_media_leaves_the_places_that_wait_to_others() {
    let lab = Lab::new(&image(1));
    // How long a request for a medium that is not there is kept waiting: the BMC's whole patience, or not at all.
    let ask = |from: String, n: usize| {
        let router = asked_from(lab.server.media_router(), &from);
        tokio::spawn(async move {
            let begun = Instant::now();
            let request = Request::get(format!("/media/{n:043}.iso")).body(Body::empty()).unwrap();
            assert_eq!(router.oneshot(request).await.unwrap().status(), 404);
            begun.elapsed() >= Duration::from_secs(20)
        })
    };
    type From = fn(usize) -> String;
    let hostiles: [(From, u32); 3] = [
        (|_| "192.0.2.66".to_owned(), 256),
        (|_| "2001:db8:6::66".to_owned(), 256),
        // Each address of a network waits at times, so that a neighbour does not keep it out; all of them four times as often as one peer.
        (|n| format!("2001:db8:6::{n:x}"), 4 * 256),
    ];
    for (hostile, most) in hostiles {
        let asked: Vec<_> = (0..3000).map(|n| ask(hostile(n), n)).collect();
        tokio::task::yield_now().await;
        for honest in ["192.0.2.7", "2001:db8:7::7", "2001:db8:6:1::7"] {
            assert!(ask(honest.to_owned(), 0).await.unwrap(), "{honest} was turned away");
        }
        let mut waited = 0;
        for asked in asked {
            waited += u32::from(asked.await.unwrap());
        }
        assert_eq!(waited, most, "one peer waits as often as it may");
    }
}
