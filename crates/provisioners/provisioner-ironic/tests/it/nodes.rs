//! Which machines the Ironics have: what other provisioners are told, from few calls.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use provisioner::{OtherMaster, Sought};
use provisioner_ironic::{Ironic, IronicProvisioner, Method, Request, Response, Site, Transport, TransportError};
use provisioner_kit::Trail;

use crate::guards::theirs;
use crate::scripted::Scripted;

const HELD: &str = "redfish-virtualmedia://192.0.2.7/redfish/v1/Systems/1";
const FREE: &str = "redfish-virtualmedia://192.0.2.8/redfish/v1/Systems/1";

fn at(seconds: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(1_767_225_600 + seconds)
}

fn sought(address: &str, mac: Option<&str>) -> Sought {
    Sought { address: address.into(), boot_mac: mac.map(ToOwned::to_owned), is_known: false }
}

fn nodes(all: Vec<(&str, Arc<dyn Transport>)>) -> Arc<dyn OtherMaster> {
    let ironic = |(name, transport): (&str, Arc<dyn Transport>)| Ironic { site: Site::new(name), transport };
    IronicProvisioner::new(all.into_iter().map(ironic).collect()).nodes()
}

/// An Ironic with a node of somebody's, which has a port.
fn one() -> Scripted {
    let ironic = Scripted::new(Trail::default());
    let node = theirs("ns~victim", "https://192.0.2.7");
    let uuid = node["uuid"].as_str().unwrap().to_owned();
    let mut world = ironic.world.lock().unwrap();
    world.others.push(node);
    world.ports.push(("52:54:00:00:00:0a".into(), uuid));
    drop(world);
    ironic
}

#[tokio::test(start_paused = true)]
async fn a_machine_is_an_ironics_by_its_bmc_or_its_boot_mac() {
    let ironic = one();
    let nodes = nodes(vec![("hall", Arc::new(ironic.clone()))]);
    for (address, mac, says) in [
        (HELD, None, Some("which is at its BMC")),
        // A scheme, a port of its own or another system make no other machine, or another one.
        ("redfish+https://192.0.2.7:443/redfish/v1/Systems/1/", None, Some("which is at its BMC")),
        ("redfish://192.0.2.7", None, Some("which is at its BMC")),
        ("ipmi://192.0.2.7", None, Some("which is at its BMC")),
        ("redfish://192.0.2.7/redfish/v1/Systems/2", None, None),
        ("redfish://192.0.2.7:8443/redfish/v1/Systems/1", None, None),
        (FREE, None, None),
        (FREE, Some("52:54:00:00:00:0b"), None),
        (FREE, Some("52:54:00:00:00:0A"), Some("which has its boot MAC address 52:54:00:00:00:0a")),
        (FREE, Some("52-54-00-00-00-0A"), Some("boot MAC")),
        ("no address at all", Some("52:54:00:00:00:0a"), Some("boot MAC")),
    ] {
        let found = nodes.holds(&sought(address, mac), at(0)).await.unwrap();
        assert_eq!(found.is_some(), says.is_some(), "{address} {mac:?}: {found:?}");
        let found = found.unwrap_or_default();
        assert!(found.contains(says.unwrap_or_default()), "{address} {mac:?}: {found}");
        assert!(says.is_none() || found.starts_with("the Ironic \"hall\" as the node \"ns~victim\""), "{found}");
    }
    // All of them from one list, and none of them changes anything.
    let log = ironic.world.lock().unwrap().log.clone();
    let lists = |what: &str| log.iter().filter(|(_, path, _)| path.starts_with(what)).count();
    assert_eq!((lists("/v1/nodes"), lists("/v1/ports")), (1, 1), "{log:?}");
    assert!(log.iter().all(|(method, _, _)| *method == Method::Get.as_str()), "{log:?}");
    // A node that goes is looked for again.
    ironic.world.lock().unwrap().others.clear();
    ironic.world.lock().unwrap().ports.clear();
    assert!(nodes.holds(&sought(HELD, None), at(29)).await.unwrap().is_some());
    assert_eq!(nodes.holds(&sought(HELD, None), at(30)).await.unwrap(), None);
}

/// Whoever may declare a host has Ironic make a node, with whatever address it names, before its BMC is reached.
#[tokio::test(start_paused = true)]
async fn a_node_whose_bmc_was_never_reached_takes_no_machine_from_the_host_that_has_it() {
    for (state, holds) in [("enroll", false), ("verifying", false), ("manageable", true), ("active", true)] {
        let ironic = one();
        ironic.world.lock().unwrap().others[0]["provision_state"] = state.into();
        let nodes = nodes(vec![("hall", Arc::new(ironic.clone()))]);
        for (address, mac) in [(HELD, None), (FREE, Some("52:54:00:00:00:0a"))] {
            let sought = sought(address, mac);
            assert!(
                nodes.holds(&sought, at(0)).await.unwrap().is_some(),
                "{state}: it is no machine of the host's yet"
            );
            let known = Sought { is_known: true, ..sought };
            assert_eq!(nodes.holds(&known, at(0)).await.unwrap().is_some(), holds, "{state} {address}");
        }
    }
}

/// Answers nothing, and counts.
#[derive(Default)]
struct Hangs(std::sync::atomic::AtomicU32);

#[async_trait::async_trait]
impl Transport for Hangs {
    async fn send(&self, _: &Request) -> Result<Response, TransportError> {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        std::future::pending().await
    }

    fn endpoint(&self) -> String {
        "http://192.0.2.99".into()
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_is_silent_keeps_nobody_waiting_and_no_other_from_being_heard() {
    let (ironic, hangs) = (one(), Arc::new(Hangs::default()));
    let nodes = nodes(vec![("dead", hangs.clone()), ("hall", Arc::new(ironic.clone()))]);
    let begun = tokio::time::Instant::now();
    assert!(nodes.holds(&sought(HELD, None), at(0)).await.unwrap().is_some());
    let why = nodes.holds(&sought(FREE, None), at(1)).await.unwrap_err();
    assert!(why.contains("\"dead\"") && why.contains("10 s"), "{why}");
    for second in 2..29 {
        nodes.holds(&sought(FREE, None), at(second)).await.unwrap_err();
    }
    let asked = || hangs.0.load(std::sync::atomic::Ordering::Relaxed);
    assert!(begun.elapsed() <= Duration::from_secs(20) && asked() <= 2, "{:?}, {}", begun.elapsed(), asked());
    // What is refused is not nobody's either.
    ironic.world.lock().unwrap().between = Some((401, "{}"));
    nodes.holds(&sought(FREE, None), at(60)).await.unwrap_err();
}
