//! The fixture behind gRPC passes the kit: nothing of the contract is lost on the way.

use std::sync::Arc;

use provisioner_external::check::{Checked, CheckedMachine, Machines};
use provisioner_external::{Connect, ExternalProvisioner};
use provisioner_fixture::{Machines as Fixtures, Trouble, capabilities};
use provisioner_kit::{Class, Condition, FOREIGN_OWNER, capabilities_of, run, scenarios};

use crate::fixture::{fixture, in_memory, machines, site};

pub const ADDRESS: &str = "redfish-virtualmedia://192.0.2.7/redfish/v1/Systems/1";

struct InProcess;

struct One {
    machines: Fixtures,
    before: Option<(String, String)>,
}

impl Machines for InProcess {
    fn machine(&self) -> Box<dyn CheckedMachine> {
        Box::new(One { machines: machines(), before: None })
    }
}

impl CheckedMachine for One {
    fn address(&self) -> String {
        ADDRESS.into()
    }

    /// A worker dies with its server here: it knows nothing but what is recorded.
    fn connect(&mut self) -> Arc<dyn Connect> {
        Arc::new(in_memory(fixture(self.machines.clone())))
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
            Condition::Forgotten if !on => return,
            Condition::Forgotten => Trouble::Forgotten,
            Condition::Another => Trouble::Another,
            Condition::Foreign => {
                let there = self.machines.system(ADDRESS);
                if on {
                    self.before = there;
                    self.machines.put(ADDRESS, Some(("theirs".into(), FOREIGN_OWNER.into())));
                } else if there.is_some_and(|(_, owner)| owner == FOREIGN_OWNER) {
                    self.machines.put(ADDRESS, self.before.take());
                }
                return;
            }
            Condition::Occupied | Condition::Unread => panic!("its machines have no BMC that reads"),
        };
        self.machines.trouble(ADDRESS, trouble, on);
    }
}

#[tokio::test(start_paused = true)]
async fn the_fixture_behind_grpc_passes_every_scenario() {
    let began = std::time::Instant::now();
    let greeted = ExternalProvisioner::new(site("fixture"), Arc::new(in_memory(fixture(machines()))));
    let known = greeted.greet().await.unwrap();
    let checked = Checked::new(site("fixture"), known, Box::new(InProcess), None);
    let caps = capabilities_of(&checked);
    assert_eq!(caps, capabilities());
    let report = run(&checked, &scenarios(&caps)).await;
    println!("{report}\n{:.1} s", began.elapsed().as_secs_f64());
    assert!(report.violations.is_empty(), "{report}");
    assert_eq!(report.left_out, Vec::<String>::new());
    let classes: Vec<&Class> = report.runs.keys().collect();
    assert_eq!(classes, Class::ALL.iter().collect::<Vec<_>>(), "each class is carried out");
}
