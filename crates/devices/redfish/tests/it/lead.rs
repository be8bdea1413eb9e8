//! Each request of a dialogue asks whether this process still leads.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::kit::{Bmc, PASSWORD, SYSTEM};
use bmc::{Address, BmcRegistry, Credentials, ErrorKind, Lead, Term};
use redfish::{Client, ClientOptions, ResetType};
use tokio::time::Instant;

const URL: &str = "http://192.0.2.1/media/0123456789.iso";

/// A client of a BMC that takes this long for each answer.
fn client(latency: Duration, lead: Lead) -> (Arc<Bmc>, Client) {
    let mut bmc = Arc::into_inner(Bmc::generic()).unwrap();
    bmc.latency = latency;
    let bmc = Arc::new(bmc);
    let address = Address::parse(&format!("redfish-virtualmedia://192.0.2.7{SYSTEM}")).unwrap();
    let credentials = Credentials::new("root", PASSWORD.to_owned().into()).unwrap();
    let registry = BmcRegistry::new().led_by(lead);
    let client = Client::new(address, credentials, bmc.clone(), &registry, ClientOptions::new("server-a"));
    (bmc, client)
}

#[tokio::test(start_paused = true)]
async fn a_dialogue_ends_where_the_lease_does() {
    let term = Arc::new(Mutex::new(Term::Always));
    let lead = Lead::new({
        let term = Arc::clone(&term);
        move || *term.lock().unwrap()
    });
    let (bmc, client) = client(Duration::from_secs(2), lead);
    client.system().await.unwrap();
    bmc.take_log();
    // Three seconds are left, and each request of the insertion takes two: the second is cut, and no other is begun.
    let begun = Instant::now();
    *term.lock().unwrap() = Term::Until(begun + Duration::from_secs(3));
    let error = client.insert_media(URL).await.unwrap_err();
    assert_eq!((error.kind, begun.elapsed()), (ErrorKind::NotLeading, Duration::from_secs(3)), "{error}");
    assert!(bmc.take_log().len() <= 2);
    for _ in 0..3 {
        let error = client.reset(ResetType::ForceOff).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::NotLeading, "{error}");
    }
    assert_eq!(bmc.take_log(), [""; 0], "no request without the Lease");
    assert_eq!(begun.elapsed(), Duration::from_secs(3), "nobody waits for it either");
    // It leads again.
    *term.lock().unwrap() = Term::Always;
    client.reset(ResetType::ForceOff).await.unwrap();
}
