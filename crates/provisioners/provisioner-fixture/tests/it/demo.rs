//! Upstream's demo hosts, its timings, and what a restart leaves.

use std::sync::Arc;
use std::time::Duration;

use api::metal3::Image;
use provisioner::{
    Answer, Call, Cause, CleaningRequest, Deployed, Failure, HostContext, InspectRequest, PrepareRequest,
    ProvisionRequest, Provisioner, RegisterRequest, Verdict, ask,
};
use provisioner_fixture::{Effect, FixtureProvisioner, Machines, Trouble};
use provisioner_kit::{MemoryHistory, MemoryMachine, MemoryRecord, paused_clock};
use tokio::time::advance;

use crate::conformance::{ADDRESS, access, facts};

/// A host of that name, and a server.
struct Lab {
    name: &'static str,
    id: String,
    /// What its status says is on the machine.
    deployed: Option<Deployed>,
    machines: Machines,
    provisioner: FixtureProvisioner,
    record: Arc<MemoryRecord>,
    history: Arc<MemoryHistory>,
    now: provisioner::Now,
}

impl Lab {
    fn new(name: &'static str) -> Self {
        let machines = Machines::default();
        Self {
            name,
            id: String::new(),
            deployed: None,
            provisioner: FixtureProvisioner::new(machines.clone()),
            machines,
            record: Arc::default(),
            history: Arc::default(),
            now: paused_clock(),
        }
    }

    async fn ask(&self, call: Call) -> Result<Verdict<Answer>, Failure> {
        let mut facts = facts(self.name);
        facts.provisioning_id.clone_from(&self.id);
        facts.deployed.clone_from(&self.deployed);
        let context = HostContext {
            facts: Arc::new(facts),
            bmc: Some(access()),
            record: self.record.clone(),
            history: self.history.clone(),
            machine: Arc::new(MemoryMachine::default()),
            now: self.now.clone(),
            may_act: Arc::new(|| true),
        };
        let mut host = self.provisioner.host(context)?;
        ask(host.as_mut(), call).await
    }

    /// Asks every second until it is done; the seconds that took, `None` if it is not after a minute.
    async fn takes(&self, call: Call) -> Result<Option<u32>, Failure> {
        for second in 0..60 {
            if let Verdict::Done(_) = self.ask(call.clone()).await? {
                return Ok(Some(second));
            }
            advance(Duration::from_secs(1)).await;
        }
        Ok(None)
    }
}

fn register() -> Call {
    Call::Register(RegisterRequest::default())
}

fn inspect() -> Call {
    Call::Inspect(InspectRequest { wish: Some("i".into()), ..InspectRequest::default() })
}

fn prepare() -> Call {
    Call::Prepare(Box::default())
}

fn provision() -> Call {
    let image = Image { url: "http://192.0.2.9/i".into(), ..Image::default() };
    Call::Provision(Box::new(ProvisionRequest { wish: Some("p".into()), image, ..ProvisionRequest::default() }))
}

#[tokio::test(start_paused = true)]
async fn it_takes_the_time_that_upstreams_fixture_takes() {
    let mut lab = Lab::new("node-0");
    // A fifth of a second, in whole ones.
    assert_eq!(lab.takes(register()).await, Ok(Some(1)));
    assert_eq!(lab.takes(register()).await, Ok(Some(0)), "once");
    let Ok(Verdict::Done(Answer::Registered(found))) = lab.ask(register()).await else { panic!("not registered") };
    assert_eq!(found.id, "fixture-uid-of-node-0", "an id of the host's own, and of no other provisioner");
    lab.id = found.id;
    assert_eq!(lab.takes(inspect()).await, Ok(Some(2)));
    let Ok(Verdict::Done(Answer::Inspected(found))) = lab.ask(inspect()).await else { panic!("not inspected") };
    let details = found.hardware;
    assert_eq!((details.ram_mebibytes, details.nics.len(), details.storage.len()), (Some(131_072), 2, 2));
    assert_eq!(details.cpu.unwrap().model.as_deref(), Some("FancyPants CPU"));
    assert_eq!(lab.takes(prepare()).await, Ok(Some(0)), "nothing is to be prepared");
    assert_eq!(lab.takes(provision()).await, Ok(Some(10)));
    let deprovision = CleaningRequest { wish: Some("d".into()), clean: true, ..CleaningRequest::default() };
    assert_eq!(lab.takes(Call::Deprovision(Box::new(deprovision))).await, Ok(Some(10)));
    assert_eq!(lab.machines.effects(ADDRESS), [Effect::Inspect, Effect::Provision, Effect::Deprovision]);
    let names: Vec<String> = lab.history.all().iter().map(|entry| entry.name("node-0")).collect();
    assert_eq!(names, ["node-0-001-inspect", "node-0-002-provision", "node-0-003-deprovision"]);
}

#[tokio::test(start_paused = true)]
async fn a_name_decides_how_far_a_demo_host_comes() {
    let done = |seconds| Ok(Some(seconds));
    let stays: Result<Option<u32>, Cause> = Ok(None);
    let calls = || [register(), inspect(), prepare(), provision()];
    for (name, ends) in [
        ("demo-registration-error", vec![Err(Cause::BmcRefused)]),
        ("demo-registering", vec![stays]),
        ("demo-inspecting", vec![done(1), stays]),
        ("demo-preparing-error", vec![done(1), done(2), Err(Cause::HardwareFailed)]),
        ("demo-preparing", vec![done(1), done(2), stays]),
        ("demo-available", vec![done(1), done(2), done(0)]),
        ("demo-validation-error", vec![done(1), done(2), done(0), Err(Cause::InvalidRequest)]),
        ("demo-provisioning", vec![done(1), done(2), done(0), stays]),
        ("demo-provisioned", vec![done(1), done(2), done(0), done(10)]),
    ] {
        let lab = Lab::new(name);
        for (call, end) in calls().into_iter().zip(ends) {
            let what = call.name();
            let found = lab.takes(call).await.map_err(|failure| failure.cause);
            assert_eq!(found, end, "{name}: {what}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn work_goes_on_when_the_server_and_its_machines_are_gone() {
    let mut lab = Lab::new("node-0");
    lab.takes(register()).await.unwrap();
    assert!(matches!(lab.ask(provision()).await, Ok(Verdict::Working(_))));
    lab.machines = Machines::default();
    lab.provisioner = FixtureProvisioner::new(lab.machines.clone());
    assert_eq!(lab.takes(provision()).await, Ok(Some(10)), "the new machine is told what stands recorded");
    assert_eq!(lab.machines.effects(ADDRESS), [Effect::Provision]);
    lab.machines = Machines::default();
    lab.provisioner = FixtureProvisioner::new(lab.machines.clone());
    assert_eq!(lab.takes(provision()).await, Ok(Some(0)), "what is done is done");
    assert!(lab.machines.effects(ADDRESS).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_provisioned_hosts_machine_is_on_when_its_server_was_started_again() {
    let mut lab = Lab::new("node-0");
    lab.takes(register()).await.unwrap();
    lab.takes(provision()).await.unwrap();
    lab.id = "fixture-uid-of-node-0".into();
    let image = Image { url: "http://192.0.2.9/i".into(), ..Image::default() };
    lab.deployed = Some(Deployed { image: Some(image), ..Deployed::default() });
    let is_on = Ok(Verdict::Done(Answer::Power(Some(true))));
    assert_eq!(lab.ask(Call::PowerState).await, is_on);
    lab.machines = Machines::default();
    lab.provisioner = FixtureProvisioner::new(lab.machines.clone());
    assert_eq!(lab.ask(Call::PowerState).await, is_on, "as a real one is");
    assert_eq!(lab.machines.system(ADDRESS), Some(("http://192.0.2.9/i".into(), lab.id)));
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_the_host_has_not_heard_of_is_told() {
    let mut lab = Lab::new("node-0");
    lab.takes(register()).await.unwrap();
    lab.machines.trouble(ADDRESS, Trouble::Failing, true);
    assert!(lab.takes(provision()).await.is_err());
    lab.provisioner = FixtureProvisioner::new(lab.machines.clone());
    assert_eq!(lab.ask(provision()).await.unwrap_err().cause, Cause::HardwareFailed, "whoever comes after tells it");
    assert_eq!(lab.machines.effects(ADDRESS).len(), 1, "and does not try again before");
    assert_eq!(lab.takes(provision()).await, Ok(Some(10)));
}

#[tokio::test(start_paused = true)]
async fn targets_that_are_there_already_are_not_set_again() {
    let lab = Lab::new("node-0");
    lab.takes(register()).await.unwrap();
    let mut request = PrepareRequest { wish: Some("a".into()), unprepared: true, ..PrepareRequest::default() };
    request.firmware.settings.insert("BootDelay".into(), provisioner::Setting::Number(9));
    let Ok(Verdict::Working(working)) = lab.ask(Call::Prepare(Box::new(request.clone()))).await else { panic!("done") };
    assert!(working.accepted);
    assert_eq!(lab.takes(Call::Prepare(Box::new(request.clone()))).await, Ok(Some(2)));
    let Ok(Verdict::Done(Answer::Firmware(facts))) = lab.ask(Call::FirmwareFacts { bounds: true }).await else {
        panic!("no facts")
    };
    assert_eq!(facts.settings.unwrap()["BootDelay"].value, "9");
    request.wish = Some("b".into());
    assert_eq!(lab.takes(Call::Prepare(Box::new(request))).await, Ok(Some(0)));
    assert_eq!(lab.machines.effects(ADDRESS), [Effect::Prepare]);
}
