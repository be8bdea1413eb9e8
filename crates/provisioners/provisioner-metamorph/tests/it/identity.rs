//! Which machine is it: no consent takes another host's, and what was seen a while ago is no proof of what is there now.

use std::time::Duration;

use api::metamorph::{HostReference, MachineRecordSpec};
use bmc::ErrorKind;
use inventory::{BmcPin, MachineEvidence};
use provisioner::{
    Cause, CleaningRequest, Failure, InspectRequest, Machine, OtherMachine, PowerWish, RegisterRequest, Verdict,
};

use crate::common::{Agent, World, image, pass};
use crate::fake::evidence;

const OTHERS_MAC: &str = "00:1b:21:cc:dd:02";

/// The machine of another host, as its BMC and its agent show it.
fn anothers() -> MachineEvidence {
    MachineEvidence {
        system_uuid: Some("4c4c4544-0047-3710-8051-b4c04f4a9999".into()),
        serial_number: Some("S-999".into()),
        macs: vec![OTHERS_MAC.into()],
        disks: vec!["DISK-9".into()],
        ..evidence()
    }
}

/// A host of a tenant that came after this one.
fn victim() -> OtherMachine {
    let record = MachineRecordSpec {
        host: HostReference { name: "node-9".into(), uid: Some("uid-9".into()) },
        bmc: Some(anothers()),
        agent: Some(anothers()),
        ..MachineRecordSpec::default()
    };
    OtherMachine {
        host: "of another namespace".into(),
        exists: true,
        is_older: false,
        is_near: false,
        is_there: true,
        is_sealed: true,
        record,
    }
}

/// What consent to that machine names.
fn consent() -> Option<String> {
    Some(machine_identity::fingerprint(&anothers()))
}

fn refused_as_anothers(failure: &Failure) {
    assert_eq!(failure.cause, Cause::AnotherMachine, "{failure:?}");
    assert!(failure.message.contains("it is the machine of the host"), "{failure:?}");
}

/// A tenant's BMC shows the machine of another tenant's host, with its MACs or with others: whatever the host's owner consents to, it stays that host's.
#[tokio::test(start_paused = true)]
async fn no_consent_takes_another_hosts_machine() {
    for macs in [vec![OTHERS_MAC.to_owned()], evidence().macs, Vec::new()] {
        let mut world = World::new();
        world.host().register(RegisterRequest::default()).await.unwrap();
        let before = world.machine.recorded().await.unwrap();
        world.machine.add_other(victim());
        world.accept_machine = consent();
        {
            let mut bmc = world.bmc.lock().unwrap();
            (bmc.shows_another, bmc.macs) = (true, Some(Ok(macs.clone())));
        }
        refused_as_anothers(&world.host().set_power(PowerWish::HardOff.into()).await.unwrap_err());
        refused_as_anothers(&world.host().power_state().await.unwrap_err());
        assert_eq!(world.machine.recorded().await.unwrap(), before, "{macs:?}");
        assert_eq!(world.calls(), Vec::<String>::new());
    }
}

/// The same with an agent that lies, when it is consented to.
#[tokio::test(start_paused = true)]
async fn no_consent_takes_the_machine_that_another_hosts_agent_is_on() {
    let mut world = World::new();
    world.host().register(RegisterRequest::default()).await.unwrap();
    let known = world.machine.recorded().await.unwrap().unwrap();
    world.machine.record(MachineRecordSpec { agent: Some(evidence()), ..known }).await.unwrap();
    let before = world.machine.recorded().await.unwrap();
    world.machine.add_other(victim());
    world.accept_machine = consent();
    world.host().provision(image()).await.unwrap();
    let agent = Agent { machine: anothers(), ..Agent::new(1, "boot-1") };
    agent.say(&world).await;
    refused_as_anothers(&world.host().provision(image()).await.unwrap_err());
    assert_eq!(world.machine.recorded().await.unwrap(), before);
}

/// An agent that shows another host's machine bit by bit, each inspection a little more of it.
#[tokio::test(start_paused = true)]
async fn a_machine_does_not_become_another_hosts_bit_by_bit() {
    let world = World::new();
    world.machine.add_other(victim());
    let mut agent = Agent::new(1, "boot-1");
    let mut refused = None;
    for step in 0..4 {
        match step {
            0 => {}
            1 => agent.machine.serial_number = anothers().serial_number,
            2 => agent.machine.system_uuid = anothers().system_uuid,
            _ => agent.machine.macs = anothers().macs,
        }
        world.host().inspect(InspectRequest::default()).await.unwrap();
        agent.generation = world.journal.latest_boot().unwrap().generation;
        agent.say(&world).await;
        world.host().inspect(InspectRequest::default()).await.unwrap();
        let command = agent.given(&world).await;
        agent.finished(
            &command,
            agent_protocol::Outcome::Inspected {
                hardware: Box::default(),
                marks: vec![],
                uefi: true,
                secure_boot: false,
                links: Vec::new(),
                devices: Box::default(),
            },
        );
        agent.say(&world).await;
        if let Err(failure) = world.host().inspect(InspectRequest::default()).await {
            refused = Some(failure);
            break;
        }
    }
    refused_as_anothers(&refused.expect("it goes all the way"));
    let recorded = world.machine.recorded().await.unwrap().unwrap().agent.unwrap();
    assert_eq!(recorded.system_uuid, evidence().system_uuid);
}

/// A machine of which only MACs tell, known for a while.
async fn nameless() -> World {
    let world = World::new();
    world.bmc.lock().unwrap().nameless = true;
    world.host().register(RegisterRequest::default()).await.unwrap();
    world.host().power_state().await.unwrap();
    world
}

/// Everything that has an effect, by name.
async fn each_effect(world: &World, name: &str) -> Option<Failure> {
    let mut host = world.host();
    match name {
        "power" => host.set_power(PowerWish::HardOff.into()).await.err(),
        "boot" => host.inspect(InspectRequest::default()).await.err(),
        "destroy" => host.deprovision(CleaningRequest::default()).await.err(),
        _ => panic!("{name}"),
    }
}

const EFFECTS: [&str; 3] = ["power", "boot", "destroy"];

#[tokio::test(start_paused = true)]
async fn where_macs_alone_tell_they_are_read_anew_before_each_effect() {
    for effect in EFFECTS {
        let world = nameless().await;
        world.bmc.lock().unwrap().macs = Some(Ok(vec![OTHERS_MAC.into()]));
        pass(60).await;
        let failure = each_effect(&world, effect).await.unwrap_or_else(|| panic!("{effect}: {:?}", world.calls()));
        assert_eq!(failure.cause, Cause::AnotherMachine, "{effect}: {failure:?}");
        assert_eq!(world.calls(), Vec::<String>::new(), "{effect}");
    }
}

#[tokio::test(start_paused = true)]
async fn where_macs_alone_tell_a_bmc_that_fails_to_show_them_is_told_nothing() {
    for effect in EFFECTS {
        let world = nameless().await;
        world.bmc.lock().unwrap().macs = Some(Err(ErrorKind::Timeout));
        pass(60).await;
        let failure = each_effect(&world, effect).await.unwrap_or_else(|| panic!("{effect}: {:?}", world.calls()));
        assert!(failure.message.contains("MAC addresses alone tell"), "{effect}: {failure:?}");
        assert_eq!(world.calls(), Vec::<String>::new(), "{effect}");
        // A look needs no more than what was shown a while ago.
        world.host().power_state().await.unwrap();
    }
}

/// A look asks for the MACs once in a while, and an effect on a machine that shows its UUID does not need them.
#[tokio::test(start_paused = true)]
async fn macs_are_asked_for_no_more_often_than_needed() {
    let world = nameless().await;
    let before = world.bmc.lock().unwrap().asked_macs;
    for _ in 0..10 {
        world.host().power_state().await.unwrap();
    }
    assert_eq!(world.bmc.lock().unwrap().asked_macs, before);
    world.bmc.lock().unwrap().nameless = false;
    let world = World::new();
    world.host().register(RegisterRequest::default()).await.unwrap();
    let before = world.bmc.lock().unwrap().asked_macs;
    assert!(matches!(world.host().set_power(PowerWish::HardOff.into()).await.unwrap(), Verdict::Working(_)));
    assert_eq!(world.bmc.lock().unwrap().asked_macs, before);
}

/// A network card was exchanged; another host's BMC shows the same UUID and serial number with MACs of its own. Whether that takes the worth from them is
/// not for a later tenant to say.
#[tokio::test(start_paused = true)]
async fn a_later_tenant_takes_no_worth_from_what_a_machine_shows() {
    for (is_older, is_near, counts) in [(false, false, true), (true, false, false), (false, true, false)] {
        let world = World::new();
        world.host().register(RegisterRequest::default()).await.unwrap();
        let known = world.machine.recorded().await.unwrap().unwrap();
        let before = MachineEvidence { macs: vec!["00:1b:21:00:00:77".into()], ..evidence() };
        world.machine.record(MachineRecordSpec { bmc: Some(before), ..known }).await.unwrap();
        let liar = MachineEvidence { macs: vec![OTHERS_MAC.into()], ..evidence() };
        let record = MachineRecordSpec { bmc: Some(liar), agent: None, ..victim().record };
        world.machine.add_other(OtherMachine { is_older, is_near, record, ..victim() });
        let switched = world.host().set_power(PowerWish::HardOff.into()).await;
        assert_eq!(switched.is_ok(), counts, "{is_older} {is_near}: {switched:?}");
    }
}

/// Cables are changed while the medium is put in: what was seen before that is no proof of the machine that would be reset.
#[tokio::test(start_paused = true)]
async fn a_machine_that_is_swapped_while_its_medium_is_put_in_is_not_reset() {
    for seconds in [2, 30] {
        let world = World::new();
        world.host().register(RegisterRequest::default()).await.unwrap();
        world.bmc.lock().unwrap().insertion = Duration::from_secs(seconds);
        world.calls();
        let mut host = world.host();
        let swap = async {
            tokio::time::sleep(Duration::from_secs(seconds / 2)).await;
            let mut bmc = world.bmc.lock().unwrap();
            (bmc.shows_another, bmc.macs) = (true, Some(Ok(vec![OTHERS_MAC.to_owned()])));
        };
        let (result, ()) = tokio::join!(host.inspect(InspectRequest::default()), swap);
        assert_eq!(result.expect_err("it was reset").cause, Cause::AnotherMachine, "{seconds} s");
        assert_eq!(world.calls(), ["insert"], "{seconds} s");
    }
}

/// The addresses of two hosts' BMCs were exchanged. Consent to the BMC that is there would be refused: the machine is the other host's.
#[tokio::test(start_paused = true)]
async fn the_bmc_of_another_host_is_told_by_name_and_no_consent_is_asked_for() {
    let theirs = || BmcPin { service_uuid: None, key_sha256: Some("cd".repeat(32)) };
    let at = |system: &str| format!("redfish-virtualmedia://192.0.2.99/redfish/v1/Systems/{system}");
    for (system, exists, named) in [("1", true, true), ("2", true, false), ("1", false, false)] {
        let world = World::new();
        world.host().register(RegisterRequest::default()).await.unwrap();
        let record = MachineRecordSpec { pin: theirs(), bmc_address: at(system), ..victim().record };
        world.machine.add_other(OtherMachine { exists, record, ..victim() });
        world.bmc.lock().unwrap().pin = Some(theirs());
        let failure = world.host().set_power(PowerWish::HardOff.into()).await.unwrap_err();
        assert_eq!(failure.cause, Cause::AnotherMachine, "{failure:?}");
        let text = failure.text();
        assert_eq!(text.contains(&format!("it is the BMC of the host {}", victim().host)), named, "{text}");
        assert_eq!(text.contains("accept-machine"), !named, "{text}");
        assert!(world.calls().iter().all(|call| call != "HardOff"));
    }
}

/// Nothing is known of the machine but the boot MAC that its host names.
#[tokio::test(start_paused = true)]
async fn an_agent_on_a_machine_without_the_hosts_boot_mac_is_given_nothing_to_write() {
    let own = evidence().macs[0].clone();
    for (boot_mac, shown, refused) in [
        (OTHERS_MAC, evidence().macs, true),
        (OTHERS_MAC, Vec::new(), false),
        ("02:00:00:00:00:01", evidence().macs, false),
        (own.as_str(), evidence().macs, false),
    ] {
        let mut world = World::new();
        world.boot_mac = Some(boot_mac.to_owned());
        // The BMC shows no MACs.
        world.bmc.lock().unwrap().macs = Some(Ok(Vec::new()));
        world.host().register(RegisterRequest::default()).await.unwrap();
        world.host().provision(image()).await.unwrap();
        let machine = MachineEvidence { macs: shown.clone(), ..evidence() };
        Agent { machine, ..Agent::new(1, "boot-1") }.say(&world).await;
        match world.host().provision(image()).await {
            Err(failure) if refused => {
                assert_eq!(failure.cause, Cause::AnotherMachine, "{failure:?}");
                assert!(failure.message.contains("spec.bootMACAddress"), "{failure:?}");
                let recorded = world.machine.recorded().await.unwrap().unwrap();
                assert_eq!(recorded.agent, None);
            }
            went => assert!(went.is_ok() && !refused, "{boot_mac} {shown:?}: {went:?}"),
        }
    }
}

/// The same where disks are to be wiped: the word of the BMC alone is none of the agent's machine.
#[tokio::test(start_paused = true)]
async fn an_agent_on_a_machine_without_the_hosts_boot_mac_is_given_nothing_to_wipe() {
    let mut world = World::new();
    world.boot_mac = Some(OTHERS_MAC.to_owned());
    world.bmc.lock().unwrap().macs = Some(Ok(Vec::new()));
    world.host().register(RegisterRequest::default()).await.unwrap();
    let request = CleaningRequest { clean: true, ..CleaningRequest::default() };
    world.host().deprovision(request.clone()).await.unwrap();
    let agent = Agent::new(world.journal.latest_boot().unwrap().generation, "boot-1");
    agent.say(&world).await;
    let failure = world.host().deprovision(request).await.unwrap_err();
    assert_eq!(failure.cause, Cause::AnotherMachine, "{failure:?}");
    let (_, directive) = agent.say(&world).await;
    assert_eq!(directive.command, None);
}
