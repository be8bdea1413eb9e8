//! A worker of volumes behind the protocol passes the kit; and the kit sees what is wrong with one that is careless.

use std::sync::Arc;

use provisioner_external::check::{Checked, CheckedMachine, Machines};
use provisioner_external::{Connect, External, ExternalProvisioner};
use provisioner_kit::{Class, Condition, FOREIGN_OWNER, Report, capabilities_of, run};
use volumes::Volume;
use volumes::volume::scenarios;

use crate::memory::{Memory, Shelf, Stored, served, site};

const NAME: &str = "v";

struct InProcess {
    careless: bool,
}

struct One {
    shelf: Shelf,
    careless: bool,
    before: Option<Stored>,
}

impl Machines for InProcess {
    fn machine(&self) -> Box<dyn CheckedMachine> {
        Box::new(One { shelf: Shelf::default(), careless: self.careless, before: None })
    }
}

impl CheckedMachine for One {
    fn address(&self) -> String {
        NAME.into()
    }

    /// A worker dies with its server here: it knows nothing but what is recorded.
    fn connect(&mut self) -> Arc<dyn Connect> {
        Arc::new(served(Memory::new(&self.shelf).careless(self.careless)))
    }

    fn can_be(&self, condition: Condition) -> bool {
        condition != Condition::Forgotten
    }

    fn set(&mut self, condition: Condition, on: bool) {
        let owner = |found: Option<&Stored>| match condition {
            Condition::Another => found.map(|found| found.owner.clone()).unwrap_or_default(),
            _ => FOREIGN_OWNER.to_owned(),
        };
        let there = self.shelf.get(NAME);
        match (condition, on) {
            (Condition::Another | Condition::Foreign, true) => {
                let other = Stored { id: "memory-other".into(), owner: owner(there.as_ref()), size: 9, doing: None };
                self.before = there;
                self.shelf.put(NAME, Some(other));
            }
            (Condition::Another | Condition::Foreign, false) => {
                if there.is_some_and(|there| there.id == "memory-other") {
                    self.shelf.put(NAME, self.before.take());
                }
            }
            _ => self.shelf.trouble(condition, on),
        }
    }
}

async fn judged(careless: bool) -> Report {
    let greeted = External::<Volume>::new(site("memory"), Arc::new(served(Memory::new(&Shelf::default()))));
    let known = greeted.greet().await.unwrap();
    let checked = Checked::<Volume>::new(site("memory"), known, Box::new(InProcess { careless }), None);
    let capabilities = capabilities_of(&checked);
    assert!(capabilities.grow);
    run(&checked, &scenarios(&capabilities)).await
}

#[tokio::test(start_paused = true)]
async fn a_worker_of_volumes_passes_every_scenario() {
    let report = judged(false).await;
    assert!(report.violations.is_empty(), "{report}");
    assert!(report.left_out.iter().all(|name| name.contains("forgotten")), "{:?}", report.left_out);
    // Volumes are neither booted nor registered, and say nothing of themselves that could be compared.
    let about_hosts = [Class::Forced, Class::Forgotten, Class::Capabilities, Class::Released];
    for class in Class::ALL.iter().filter(|class| !about_hosts.contains(class)) {
        assert!(report.runs.contains_key(class), "{class:?} is carried out: {:?}", report.runs);
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_does_not_look_whose_volume_it_is_is_seen() {
    let report = judged(true).await;
    assert!(report.violations.iter().any(|found| found.class == Class::Identity), "{report}");
}

#[tokio::test(start_paused = true)]
async fn a_worker_of_another_kind_is_not_used_on_either_side() {
    let connect = Arc::new(served(Memory::new(&Shelf::default())));
    let hosts = ExternalProvisioner::new(site("memory"), connect);
    let refused = hosts.greet().await.unwrap_err();
    assert!(refused.message.contains("it provisions volumes, and not hosts"), "{refused}");
}
