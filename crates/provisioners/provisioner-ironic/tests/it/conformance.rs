//! The Ironic provisioner passes the kit, on an Ironic in memory.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::metal3::CleaningMode;
use provisioner::{BmcAccess, HostFacts, HostKey, MayAct, Provisioner};
use provisioner_ironic::{Ironic, IronicProvisioner, Site, Transport};
use provisioner_kit::{Class, Condition, Kind, Subject, Trail, capabilities_of, run, scenarios};

use crate::scripted::Scripted;

pub const ADDRESS: &str = "redfish-virtualmedia://192.0.2.7/redfish/v1/Systems/1";

/// An Ironic with one machine for each run.
struct InMemory;

struct OneMachine(Scripted);

impl Kind for InMemory {
    fn name(&self) -> &str {
        "ironic"
    }

    fn machine(&self, trail: &Trail) -> Box<dyn Subject> {
        Box::new(OneMachine(Scripted::new(trail.clone())))
    }
}

/// The provisioner of a process that has this Ironic alone.
pub fn provisioner(transport: Arc<dyn Transport>, site: Site) -> IronicProvisioner {
    IronicProvisioner::new(vec![Ironic { site, transport }])
}

/// A host that is not cleaned before it is deployed for the first time: that is a wipe, which a deployment alone does not ask for.
pub fn facts(name: &str) -> HostFacts {
    HostFacts {
        key: HostKey { namespace: "ns".into(), name: name.into(), uid: format!("uid-of-{name}") },
        address: ADDRESS.into(),
        cleaning: CleaningMode::Disabled,
        ..HostFacts::default()
    }
}

pub fn access() -> BmcAccess {
    BmcAccess {
        address: ADDRESS.into(),
        username: "u".into(),
        password: "p".to_owned().into(),
        disable_certificate_verification: true,
    }
}

impl Subject for OneMachine {
    fn start(&mut self, _: u64, _: MayAct) -> Arc<dyn Provisioner> {
        Arc::new(provisioner(Arc::new(self.0.clone()), Site::new("one")))
    }

    fn stop(&mut self, _: u64) {}

    fn facts(&self) -> HostFacts {
        facts("node-0")
    }

    fn access(&self) -> BmcAccess {
        access()
    }

    fn can_be(&self, condition: Condition) -> bool {
        !matches!(condition, Condition::Another | Condition::Foreign | Condition::Occupied | Condition::Unread)
    }

    fn set(&mut self, condition: Condition, on: bool) {
        let mut world = self.0.world.lock().unwrap();
        match condition {
            Condition::Slow => world.trouble.slow = on,
            Condition::Failing => world.trouble.failing = on,
            Condition::Refusing => world.trouble.refusing = on,
            Condition::Silent => world.trouble.silent = on,
            Condition::Busy => world.trouble.busy = on,
            // Its database was lost.
            Condition::Forgotten if on => {
                world.node = None;
                world.ports.clear();
            }
            Condition::Forgotten => {}
            Condition::Another | Condition::Foreign => panic!("an Ironic compares no machines, and marks no disks"),
            Condition::Occupied | Condition::Unread => panic!("an Ironic has no test medium"),
        }
    }
}

/// Every call, whatever happens.
#[tokio::test(start_paused = true)]
async fn the_ironic_provisioner_passes_every_scenario() {
    let began = std::time::Instant::now();
    let caps = capabilities_of(&InMemory);
    assert_eq!(caps, provisioner_ironic::capabilities());
    let report = run(&InMemory, &scenarios(&caps)).await;
    println!("{report}\n{:.1} s", began.elapsed().as_secs_f64());
    assert!(report.violations.is_empty(), "{report}");
    assert_eq!(report.left_out, Vec::<String>::new());
    let classes: BTreeSet<Class> = report.runs.keys().copied().collect();
    // It says that it compares no machines: nothing can be told of another one.
    let expected: BTreeSet<Class> = Class::ALL.into_iter().filter(|class| *class != Class::Identity).collect();
    assert_eq!(classes, expected);
}
