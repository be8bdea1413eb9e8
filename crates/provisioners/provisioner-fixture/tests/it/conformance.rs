//! The fixture passes the kit; and the kit sees what is wrong.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use provisioner::{BmcAccess, HostFacts, HostKey, MayAct, Provisioner};
use provisioner_fixture::{Effect as Done, FixtureProvisioner, Machines, Trouble, Watch, capabilities};
use provisioner_kit::{
    Class, Condition, Effect, FOREIGN_OWNER, Kind, Point, Scenario, Subject, Trail, capabilities_of, run, scenarios,
};

pub const ADDRESS: &str = "redfish-virtualmedia://192.0.2.7/redfish/v1/Systems/1";

/// The fixture, and one machine of its own for each run.
struct Fixture;

/// Makes the provisioner of a process.
type Make = Box<dyn Fn(Machines) -> Arc<dyn Provisioner> + Send>;

struct OneMachine {
    machines: Machines,
    make: Make,
    before: Option<(String, String)>,
}

struct Watching(Trail);

const fn kind(done: Done) -> Effect {
    match done {
        Done::On | Done::Off | Done::Restart | Done::Vacate => Effect::Power,
        Done::Inspect => Effect::Inspect,
        Done::Provision | Done::BootLive | Done::Deploy => Effect::Write,
        Done::Deprovision | Done::Erase => Effect::Wipe,
        Done::Prepare | Done::Service | Done::Steps => Effect::Configure,
        Done::Attach | Done::Detach => Effect::Media,
        Done::Subscribe | Done::Unsubscribe => Effect::Events,
        Done::Stop => Effect::End,
        Done::Light | Done::Darken => Effect::Locate,
    }
}

#[async_trait]
impl Watch for Watching {
    async fn before(&self, _: &str, _: Done) {
        self.0.point(Point::BeforeEffect).await;
    }
    async fn after(&self, _: &str, effect: Done, happened: bool) {
        if happened {
            self.0.saw(kind(effect), &effect.to_string());
        }
        self.0.point(Point::AfterEffect).await;
    }
}

/// A machine whose processes have such a provisioner.
pub fn machine(trail: &Trail, make: Make) -> Box<dyn Subject> {
    Box::new(OneMachine { machines: Machines::watched(Arc::new(Watching(trail.clone()))), make, before: None })
}

impl Kind for Fixture {
    fn name(&self) -> &str {
        "fixture"
    }

    fn machine(&self, trail: &Trail) -> Box<dyn Subject> {
        machine(trail, Box::new(|machines| Arc::new(FixtureProvisioner::new(machines))))
    }
}

impl Subject for OneMachine {
    fn start(&mut self, _: u64, _: MayAct) -> Arc<dyn Provisioner> {
        (self.make)(self.machines.clone())
    }

    fn stop(&mut self, _: u64) {}

    fn facts(&self) -> HostFacts {
        facts("node-0")
    }

    fn access(&self) -> BmcAccess {
        access()
    }

    fn can_be(&self, condition: Condition) -> bool {
        !matches!(condition, Condition::Occupied | Condition::Unread)
    }

    fn set(&mut self, condition: Condition, on: bool) {
        let trouble = match condition {
            Condition::Slow => Trouble::Slow,
            Condition::Failing => Trouble::Failing,
            Condition::Refusing => Trouble::Refusing,
            Condition::Silent => Trouble::Silent,
            Condition::Busy => Trouble::Busy,
            // What is known again is known by its registration.
            Condition::Forgotten if !on => return,
            Condition::Forgotten => Trouble::Forgotten,
            Condition::Another => Trouble::Another,
            Condition::Foreign => return self.foreign(on),
            Condition::Occupied | Condition::Unread => panic!("its machines have no BMC that reads"),
        };
        self.machines.trouble(ADDRESS, trouble, on);
    }
}

impl OneMachine {
    fn foreign(&mut self, on: bool) {
        let there = self.machines.system(ADDRESS);
        if on {
            self.before = there;
            self.machines.put(ADDRESS, Some(("theirs".into(), FOREIGN_OWNER.into())));
        } else if there.is_some_and(|(_, owner)| owner == FOREIGN_OWNER) {
            self.machines.put(ADDRESS, self.before.take());
        }
    }
}

pub fn facts(name: &str) -> HostFacts {
    HostFacts {
        key: HostKey { namespace: "ns".into(), name: name.into(), uid: format!("uid-of-{name}") },
        address: ADDRESS.into(),
        ..HostFacts::default()
    }
}

pub fn access() -> BmcAccess {
    BmcAccess {
        address: ADDRESS.into(),
        username: "u".into(),
        password: String::new().into(),
        disable_certificate_verification: true,
    }
}

/// Every call, whatever happens.
#[tokio::test(start_paused = true)]
async fn the_fixture_passes_every_scenario() {
    let began = std::time::Instant::now();
    let caps = capabilities_of(&Fixture);
    assert_eq!(caps, capabilities());
    let report = run(&Fixture, &scenarios(&caps)).await;
    println!("{report}\n{:.1} s", began.elapsed().as_secs_f64());
    assert!(report.violations.is_empty(), "{report}");
    assert_eq!(report.left_out, Vec::<String>::new(), "the fixture can be made as every scenario wants it");
    let classes: Vec<&Class> = report.runs.keys().collect();
    assert_eq!(classes, Class::ALL.iter().collect::<Vec<_>>(), "each class is carried out");
}

/// Scenarios are data: what a tool has written, another one carries out.
#[tokio::test(start_paused = true)]
async fn scenarios_travel() {
    let all = scenarios(&capabilities());
    let text = serde_json::to_string(&all).unwrap();
    let read: Vec<Scenario> = serde_json::from_str(&text).unwrap();
    assert_eq!(read, all);
    let names: BTreeMap<(Class, &str), usize> = all.iter().fold(BTreeMap::new(), |mut names, scenario| {
        *names.entry((scenario.class, scenario.name.as_str())).or_default() += 1;
        names
    });
    assert!(names.values().all(|count| *count == 1), "each has a name of its own");
}
