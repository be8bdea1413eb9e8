//! What a host tells of work under way: how far it is, and that it takes too long. In few writes.

use std::time::Duration;

use api::metal3::{BareMetalHost, HostUpdatePolicy, ProvisioningState as State, UpdatePolicy, annotation};
use host_lifecycle::{Action, ERASING_BUDGET, Next, Outcome, SERVICING_BUDGET, budget, spent};

use crate::kit::{World, created, failed};
use crate::prepares::served;

const URL: &str = "https://images.example/a.raw";
const EVENT: &str = "TimeBudgetExceeded";
/// A provisioner that says nothing new.
const SLOW: Outcome = Outcome::Working { look_again: Duration::from_secs(15) };

/// States in which a host stays for as long as its user wishes, or that it passes.
const AT_REST: [State; 7] = [
    State::None,
    State::Unmanaged,
    State::MatchProfile,
    State::Ready,
    State::Available,
    State::Provisioned,
    State::ExternallyProvisioned,
];

/// A host that has just come into this state.
fn come_to(state: State) -> World {
    let mut world = match state {
        State::Registering | State::Inspecting => World::new(),
        State::Deprovisioning => World::at_rest(Some(URL)),
        State::Preparing => served(None),
        _ => World::at_rest(None),
    };
    match state {
        State::Preparing => world.wish_setting("LogicalProc", "Disabled"),
        State::Provisioning => world.host.spec.image = Some(crate::kit::image(URL)),
        State::Deprovisioning => world.host.spec.image = None,
        State::PoweringOffBeforeDelete => world.delete(),
        State::Deleting => {
            world.annotate(annotation::DETACHED, "");
            world.delete();
        }
        _ => {}
    }
    // Time has passed since it came to rest.
    world.pass(Duration::from_secs(86_400));
    if state == State::PoweringOffBeforeDelete || state == State::Deleting {
        world.delete();
    }
    for _ in 0..60 {
        if world.state() == state {
            return world;
        }
        world.step();
    }
    panic!("it never came to {state:?}: {:?}", world.states);
}

/// Looks for that long, at a provisioner that goes on working; whether the host has said that it is late.
fn works(world: &mut World, time: Duration) -> bool {
    let (state, until) = (world.state(), world.now + time);
    while world.now < until {
        world.step_with(|_, _| SLOW);
        assert_eq!(world.state(), state);
        let pause = match world.next {
            Next::After(pause) => pause,
            Next::Now => continue,
            other => panic!("{other:?}"),
        };
        world.pass(pause.min(Duration::try_from(until.duration_since(world.now)).unwrap()));
    }
    world.step_with(|_, _| SLOW);
    world.events.contains(&EVENT)
}

/// What is advised of a host that is late.
fn advice(state: State) -> &'static str {
    match state {
        State::Registering => "see whether the BMC answers (https://BMC/redfish/v1)",
        State::Inspecting | State::Provisioning => {
            "an agent that hangs is booted anew by the annotation reboot.metal3.io"
        }
        State::PoweringOffBeforeDelete | State::Deleting => "lets the host go and its machine as it is",
        State::Deprovisioning => "ends it, and leaves the machine as it is",
        _ => "see the host's newest HostOperation and the machine's console",
    }
}

#[test]
fn each_state_in_which_a_host_is_worked_on_has_a_budget_and_says_once_that_it_is_spent() {
    for state in State::ALL {
        let Some(budget) = budget(state) else {
            assert!(AT_REST.contains(&state), "{state:?}");
            continue;
        };
        let mut world = come_to(state);
        let (since, known) = spent(&world.host).unwrap();
        assert!(known == budget && since.duration_since(world.now).as_secs().abs() <= 1, "{state:?}: {since}");
        assert!(!works(&mut world, budget - Duration::from_secs(2)), "{state:?}: {}", world.message("Progressing"));
        assert!(works(&mut world, Duration::from_secs(3)), "{state:?}: {}", world.message("Progressing"));
        let said = world.message("Progressing");
        let minutes = budget.as_secs() / 60;
        assert!(said.contains(&format!("longer than the {minutes} minutes")), "{state:?}: {said}");
        assert!(said.contains(&since.to_string()) && said.split_once(" — ").is_some(), "{state:?}: {said}");
        assert!(said.contains(advice(state)), "{state:?}: {said}");
        let writes = world.status_writes;
        works(&mut world, 3 * budget);
        assert_eq!(world.events.iter().filter(|reason| **reason == EVENT).count(), 1, "{state:?}: {:?}", world.events);
        assert_eq!((world.status_writes, world.message("Progressing")), (writes, said), "{state:?}");
    }
}

#[test]
fn a_service_of_a_machine_in_use_has_a_budget() {
    let mut world = served(Some(URL));
    let mut policy: HostUpdatePolicy = created(HostUpdatePolicy::new);
    policy.spec.firmware_settings = Some(UpdatePolicy::OnReboot);
    world.update_policy = Some(policy);
    world.wish_setting("LogicalProc", "Disabled");
    world.annotate(annotation::REBOOT, "");
    world.pass(Duration::from_secs(86_400));
    for _ in 0..60 {
        if world.calls.last().is_some_and(|call| matches!(call, Action::Service { .. })) {
            break;
        }
        world.step_with(|world, action| match action {
            Action::Service { .. } => Outcome::Accepted { look_again: Duration::from_secs(15) },
            action => world.sound(action),
        });
    }
    let (_, budget) = spent(&world.host).unwrap();
    assert_eq!(budget, SERVICING_BUDGET);
    assert_eq!(budget, Duration::from_secs(2 * 3600));
    assert!(!works(&mut world, budget - Duration::from_secs(60)));
    assert!(works(&mut world, Duration::from_secs(61)), "{}", world.message("Progressing"));
}

#[test]
fn a_host_that_is_in_error_or_waits_for_its_turn_says_that_and_not_that_it_is_late() {
    for outcome in [
        failed("the BMC is silent — look at it"),
        Outcome::Busy { message: "all places are taken".into(), look_again: Duration::from_secs(60) },
    ] {
        let mut world = come_to(State::Inspecting);
        let until = world.now + 3 * budget(State::Inspecting).unwrap();
        while world.now < until {
            world.waited = matches!(outcome, Outcome::Busy { .. }).then_some(world.now);
            world.step_with(|_, _| outcome.clone());
            if let Next::After(pause) = world.next {
                world.pass(pause);
            }
        }
        assert!(!world.events.contains(&EVENT), "{:?}", world.events);
        assert!(
            spent(&world.host).is_some_and(|(since, budget)| since + budget < world.now),
            "it is counted all the same"
        );
        let said = world.message("Progressing");
        assert!(said.contains("look at it") || said.contains("all places are taken"), "{said}");
        if matches!(outcome, Outcome::Busy { .. }) {
            // Its time begins with its turn.
            assert!(!works(&mut world, budget(State::Inspecting).unwrap() - Duration::from_secs(180)));
        }
    }
}

/// The steps of a provisioning, with what is done of each after so many seconds.
fn step_at(second: u64) -> (String, Option<u8>) {
    match second {
        0..300 => (format!("waiting for the agent; {second} s"), None),
        300..2100 => {
            let percent = (second - 300) / 18;
            (format!("writing the image: {percent} of 100 MB"), Some(percent as u8))
        }
        _ => ("waiting for the agent to leave for the disk".to_owned(), None),
    }
}

#[test]
fn progress_is_told_by_steps_and_quarters_in_a_handful_of_writes() {
    let mut world = come_to(State::Provisioning);
    let (began, writes) = (world.now, world.status_writes);
    let (mut said, mut last) = (Vec::new(), String::new());
    for second in (0..2400).step_by(5) {
        world.now = began + Duration::from_secs(second);
        world.step = Some(step_at(second));
        world.step_with(|_, _| SLOW);
        let now = world.message("Progressing");
        if now != last {
            said.push(now.clone());
            last = now;
        }
    }
    for part in ["waiting for the agent, ", "writing the image: ", " 25 %", "leave for the disk"] {
        assert!(said.iter().any(|said| said.contains(part)), "{part}: {said:#?}");
    }
    assert!(said.iter().all(|said| said.starts_with("The image is being written")), "{said:#?}");
    assert!((4..=8).contains(&(world.status_writes - writes)), "{}: {said:#?}", world.status_writes - writes);
    // The next process, which has heard nothing yet, writes nothing, and loses nothing.
    world.step = None;
    let writes = world.status_writes;
    world.step_with(|_, _| SLOW);
    assert_eq!((world.status_writes, world.message("Progressing")), (writes, last));
    world.converge();
    assert_eq!(world.message("Progressing"), "Nothing is under way");
}

#[test]
fn work_of_a_minute_is_told_by_its_state_alone() {
    let mut world = come_to(State::Inspecting);
    let (began, writes) = (world.now, world.status_writes);
    for second in 0..60 {
        world.now = began + Duration::from_secs(second);
        world.step = Some((format!("step {}", second % 7), None));
        world.step_with(|_, _| SLOW);
    }
    assert_eq!((world.status_writes, world.message("Progressing")), (writes, "The hardware is being inspected".into()));
}

/// A step whose words never come to rest does not write all day.
#[test]
fn a_step_that_says_something_else_all_the_time_is_told_more_and_more_seldom() {
    let mut world = come_to(State::Deprovisioning);
    let (began, writes) = (world.now, world.status_writes);
    for minute in 0..24 * 60 {
        world.now = began + Duration::from_secs(60 * minute);
        world.step = Some((["one", "another"][minute as usize % 2].to_owned(), Some((minute % 100) as u8)));
        world.step_with(|_, _| SLOW);
    }
    assert!(world.status_writes - writes < 35, "{}", world.status_writes - writes);
}

#[test]
fn progress_and_the_failure_before_it_stand_side_by_side() {
    let mut world = come_to(State::Inspecting);
    world.fail("the medium was not read");
    let began = world.now + Duration::from_secs(600);
    for second in (0..300).step_by(10) {
        world.now = began + Duration::from_secs(second);
        world.step = Some(("waiting for the agent".into(), None));
        world.step_with(|_, _| SLOW);
    }
    let said = world.message("Progressing");
    assert!(said.contains("inspected: waiting for the agent; the last attempt failed: "), "{said}");
    assert!(said.contains("the medium was not read"), "{said}");
}

#[test]
fn a_host_that_others_hold_says_so_before_it_is_let_go() {
    let mut world = World::at_rest(None);
    world.host.metadata.finalizers.get_or_insert_default().push("example.com/keep".into());
    world.delete();
    assert!(world.run_until(|world| world.state() == State::Deleting));
    assert!(world.message("Progressing").contains("example.com/keep"), "{}", world.message("Progressing"));
}

#[test]
fn a_host_that_has_lost_its_status_is_taken_over_where_its_machine_is_recognized() {
    let mut world = World::new();
    world.host.spec.image = Some(crate::kit::image(URL));
    world.machine_on = true;
    let mut registered = 0;
    for _ in 0..60 {
        world.step_with(|world, action| match action {
            Action::Register { .. } => {
                registered += 1;
                recognized(&world.host)
            }
            action => world.sound(action),
        });
        if world.next != Next::Now {
            break;
        }
    }
    assert_eq!((world.state(), registered), (State::Provisioned, 1));
    let status = world.status();
    assert_eq!((status.provisioning.id.as_str(), status.provisioning.image.url.as_str()), ("the-earlier-id", URL));
    let touched = |call: &Action| {
        matches!(call, Action::Inspect { .. } | Action::Provision | Action::Deprovision { .. } | Action::SetPower(_))
    };
    assert!(!world.calls.iter().any(touched) && world.calls.contains(&Action::Adopt), "{:?}", world.calls);
}

/// What the host asks for is compared while a BMC is asked, and may be edited meanwhile.
#[test]
fn a_machine_is_recognized_as_what_was_compared_and_not_as_what_is_asked_for_by_then() {
    let edits: [fn(&mut World); 6] = [
        |world| world.host.spec.image = Some(crate::kit::image("http://i/another")),
        |world| world.host.spec.image = None,
        |world| world.host.spec.custom_deploy = Some(api::metal3::CustomDeploy { method: "burn".into() }),
        |world| world.host.spec.root_device_hints.get_or_insert_default().device_name = Some("/dev/sdz".into()),
        |world| world.host.spec.externally_provisioned = Some(true),
        |world| world.delete(),
    ];
    for (index, edit) in edits.into_iter().enumerate() {
        let mut world = World::new();
        world.host.spec.image = Some(crate::kit::image(URL));
        world.machine_on = true;
        let compared = world.host.clone();
        while world.state() != State::Registering {
            world.step_with(|_, _| unreachable!());
        }
        edit(&mut world);
        let before = world.status().clone();
        let change = world.conclude(&Action::Register { credentials_changed: true }, recognized(&compared));
        assert_eq!((change.next, &change.status.provisioning), (Next::Now, &before.provisioning), "{index}");
        assert_eq!(change.status.provisioning.id, "", "{index}");
        assert!(change.events.is_empty(), "{index}: {:?}", change.events);
    }
}

fn recognized(asking: &BareMetalHost) -> Outcome {
    Outcome::Recognized {
        id: "the-earlier-id".into(),
        powered_on: Some(true),
        image: Box::new(asking.spec.image.clone().unwrap()),
        root_device_hints: asking.spec.root_device_hints.clone().map(Box::new),
    }
}

#[test]
fn a_state_that_takes_too_long_is_told_once_though_attempts_fail_in_it() {
    let mut world = come_to(State::Deprovisioning);
    assert!(works(&mut world, budget(State::Deprovisioning).unwrap() + Duration::from_secs(1)));
    for _ in 0..3 {
        world.step_with(|_, _| failed("the agent is silent — look at it"));
        assert!(!world.message("Progressing").contains("longer than"), "{}", world.message("Progressing"));
        while !matches!(world.next, Next::Now) && world.message("Progressing").contains("next attempt") {
            world.pass(Duration::from_secs(3600));
            world.step_with(|_, _| SLOW);
        }
        works(&mut world, Duration::from_secs(60));
    }
    assert_eq!(world.events.iter().filter(|reason| **reason == EVENT).count(), 1, "{:?}", world.events);
}

/// The next process knows only what the status says.
#[test]
fn a_state_that_takes_too_long_is_told_once_by_all_processes() {
    let mut world = come_to(State::Deprovisioning);
    assert!(works(&mut world, budget(State::Deprovisioning).unwrap() + Duration::from_secs(1)));
    world.told_late = false;
    let written = world.status_writes;
    for percent in [10, 90] {
        world.step = Some(("WipeDisks".to_owned(), Some(percent)));
        works(&mut world, Duration::from_secs(3600));
        world.told_late = false;
    }
    assert!(world.status_writes > written && world.message("Progressing").contains("longer than"));
    assert_eq!(world.events.iter().filter(|reason| **reason == EVENT).count(), 1, "{:?}", world.events);
}

#[test]
fn erasing_has_days_and_no_advice_to_break_it_off() {
    let mut world = World::at_rest(None);
    world.settings.served.erase = true;
    world.annotate(annotation::ERASE, "r/uid");
    world.erase = Some(api::metamorph::EraseOptions::default());
    for _ in 0..10 {
        if world.state() == State::Deprovisioning {
            break;
        }
        world.step_with(|_, _| SLOW);
    }
    let (_, known) = spent(&world.host).unwrap();
    assert_eq!(known, ERASING_BUDGET);
    assert!(!works(&mut world, Duration::from_secs(6 * 86_400)), "{}", world.message("Progressing"));
    assert!(works(&mut world, Duration::from_secs(2 * 86_400)), "{}", world.message("Progressing"));
    let said = world.message("Progressing");
    assert!(!said.contains("force") && said.contains("may stay locked"), "{said}");
}
