//! Power: an order counts from when the BMC has taken it, has a direction, and belongs to the work that it was given for.

use std::time::Duration;

use axum::http::StatusCode;
use bmc::{ErrorKind, PowerAction};
use provisioner::{CleaningRequest, Failure, InspectRequest, PowerWish, Verdict};

use crate::common::{Agent, LEFT, World, pass};

/// Asks for the power until it is there or fails; gives how long it took, in seconds.
async fn until(world: &World, request: PowerWish) -> Result<u64, Failure> {
    for second in 0..1000 {
        if let Verdict::Done(on) = world.host().set_power(request.into()).await? {
            assert_eq!(on, request == PowerWish::On);
            return Ok(second);
        }
        pass(1).await;
    }
    panic!("it neither comes nor fails: {:?}", world.calls());
}

#[tokio::test(start_paused = true)]
async fn an_order_that_was_lost_on_its_way_is_given_again() {
    for (on, request, order) in
        [(true, PowerWish::HardOff, "HardOff"), (true, PowerWish::SoftOff, "SoftOff"), (false, PowerWish::On, "On")]
    {
        let world = World::new();
        world.bmc.lock().unwrap().on = on;
        world.bmc.lock().unwrap().drops_orders = 1;
        assert!(world.host().set_power(request.into()).await.is_err(), "that the BMC was not reached is told");
        pass(1).await;
        assert_eq!(until(&world, request).await.unwrap(), 1);
        assert_eq!(world.calls(), [order, order]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_order_is_nobodys_hours_later() {
    for (on, request, action) in
        [(true, PowerWish::HardOff, PowerAction::HardOff), (false, PowerWish::On, PowerAction::On)]
    {
        let world = World::new();
        world.bmc.lock().unwrap().on = on;
        world.bmc.lock().unwrap().ignores = vec![action];
        assert!(matches!(world.host().set_power(request.into()).await.unwrap(), Verdict::Working(_)));
        // The wish is withdrawn, and comes again much later.
        world.host().power_state().await.unwrap();
        pass(3 * 3600).await;
        world.bmc.lock().unwrap().ignores.clear();
        world.calls();
        assert_eq!(until(&world, request).await.unwrap(), 1);
        assert_eq!(world.calls(), [format!("{action:?}")]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_polite_request_of_long_ago_is_no_leave_to_cut_the_power() {
    let world = World::new();
    world.bmc.lock().unwrap().ignores = vec![PowerAction::SoftOff];
    world.host().set_power(PowerWish::SoftOff.into()).await.unwrap();
    // The wish is withdrawn: power is only read until another comes.
    for _ in 0..300 {
        world.host().power_state().await.unwrap();
        pass(60).await;
    }
    world.bmc.lock().unwrap().ignores.clear();
    world.calls();
    until(&world, PowerWish::SoftOff).await.unwrap();
    assert_eq!(world.calls(), ["SoftOff"]);
}

#[tokio::test(start_paused = true)]
async fn the_order_to_power_on_swallows_no_order_to_power_off() {
    let world = World::new();
    {
        let mut bmc = world.bmc.lock().unwrap();
        (bmc.on, bmc.takes) = (false, Duration::from_secs(3));
    }
    assert!(matches!(world.host().set_power(PowerWish::On.into()).await.unwrap(), Verdict::Working(_)));
    pass(4).await;
    // The machine has come on, and nobody has looked.
    assert!(until(&world, PowerWish::HardOff).await.unwrap() <= 4);
    assert_eq!(world.calls(), ["On", "HardOff"]);
}

/// What the life cycle asks for when a second reboot is wished while the machine comes on from the first.
#[tokio::test(start_paused = true)]
async fn two_reboots_within_a_tenth_of_a_second_are_two_reboots() {
    for off in [PowerWish::SoftOff, PowerWish::HardOff] {
        let world = World::new();
        world.bmc.lock().unwrap().takes = Duration::from_secs(3);
        until(&world, off).await.unwrap();
        assert!(matches!(world.host().set_power(PowerWish::On.into()).await.unwrap(), Verdict::Working(_)));
        tokio::time::advance(Duration::from_millis(100)).await;
        assert!(until(&world, off).await.unwrap() <= 7);
        until(&world, PowerWish::On).await.unwrap();
        assert_eq!(world.calls(), [&format!("{off:?}"), "On", &format!("{off:?}"), "On"]);
        pass(60).await;
        assert_eq!(world.host().power_state().await.unwrap(), Verdict::Done(Some(true)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_about_to_come_on_does_not_count_as_off() {
    let world = World::new();
    {
        let mut bmc = world.bmc.lock().unwrap();
        (bmc.on, bmc.takes) = (false, Duration::from_secs(3));
    }
    world.host().set_power(PowerWish::On.into()).await.unwrap();
    // It is let go without cleaning: what is on its disk must not run on.
    let mut done = false;
    for _ in 0..20 {
        done = world.host().deprovision(CleaningRequest::default()).await.unwrap() == LEFT;
        if done {
            break;
        }
        pass(1).await;
    }
    assert!(done, "{:?}", world.calls());
    pass(60).await;
    assert_eq!(world.host().power_state().await.unwrap(), Verdict::Done(Some(false)));
    assert_eq!(world.calls(), ["On", "HardOff"]);
}

#[tokio::test(start_paused = true)]
async fn an_order_of_other_work_is_no_order_of_this_one() {
    let world = World::new();
    world.bmc.lock().unwrap().ignores = vec![PowerAction::HardOff];
    assert!(matches!(world.host().set_power(PowerWish::HardOff.into()).await.unwrap(), Verdict::Working(_)));
    pass(119).await;
    world.bmc.lock().unwrap().ignores.clear();
    world.calls();
    let mut answers = Vec::new();
    for _ in 0..3 {
        answers.push(world.host().deprovision(CleaningRequest::default()).await.unwrap());
        pass(1).await;
    }
    assert!(answers.contains(&LEFT), "{answers:?}");
    assert_eq!(world.calls(), ["HardOff"]);
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_looked_at_and_told_as_one() {
    let world = World::new();
    {
        let mut bmc = world.bmc.lock().unwrap();
        (bmc.on, bmc.loses_on, bmc.takes) = (false, true, Duration::from_secs(5));
    }
    assert!(matches!(world.host().set_power(PowerWish::On.into()).await.unwrap(), Verdict::Working(_)));
    assert_eq!(until(&world, PowerWish::On).await.unwrap(), 5);
    assert_eq!(world.calls(), ["On"]);
    world.bmc.lock().unwrap().on = false;
    world.bmc.lock().unwrap().takes = Duration::from_secs(1000);
    let failure = until(&world, PowerWish::On).await.unwrap_err();
    assert!(failure.message.contains("answer was lost") && failure.message.contains("120 s later"), "{failure}");
    assert_eq!(world.calls(), ["On"]);
}

#[tokio::test(start_paused = true)]
async fn an_order_that_the_bmc_takes_and_forgets_fails_in_its_time_and_is_given_again() {
    let world = World::new();
    world.bmc.lock().unwrap().ignores = vec![PowerAction::HardOff, PowerAction::SoftOff];
    for (request, orders) in [(PowerWish::HardOff, vec!["HardOff"]), (PowerWish::SoftOff, vec!["SoftOff", "HardOff"])] {
        for _ in 0..2 {
            let failure = until(&world, request).await.unwrap_err();
            assert!(failure.message.contains("accepted it, but 120 s later the machine is not off"), "{failure}");
            assert_eq!(world.calls(), orders);
        }
    }
}

/// A resident agent has no power daemon: its machine is cut off, and is asked nothing after that.
#[tokio::test(start_paused = true)]
async fn a_machine_whose_power_was_cut_is_not_asked_politely_after_that() {
    let world = World::new();
    world.booted().await;
    world.calls();
    world.bmc.lock().unwrap().takes = Duration::from_secs(5);
    until(&world, PowerWish::SoftOff).await.unwrap();
    assert_eq!(world.calls(), ["HardOff"]);
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_made_anew_when_what_bmcs_are_trusted_by_changes() {
    let world = World::new();
    for (trust, connections) in [(0, 1), (0, 1), (1, 2), (1, 2), (2, 3)] {
        world.bmc.lock().unwrap().trust = trust;
        world.host().power_state().await.unwrap();
        assert_eq!(world.bmc.lock().unwrap().connections, connections, "{trust}");
    }
}

/// Who ran on a machine that is off is waited for by nobody: not by the next server, and not for the next host of that name.
#[tokio::test(start_paused = true)]
async fn the_agent_of_a_machine_that_was_switched_off_is_not_waited_for() {
    let mut world = World::new();
    let wish = |wish: &str| InspectRequest { wish: Some(wish.into()), ..InspectRequest::default() };
    world.host().inspect(wish("one")).await.unwrap();
    assert_eq!(Agent::new(1, "boot-1").say(&world).await.0, StatusCode::OK);
    world.host().inspect(wish("one")).await.unwrap();
    until(&world, PowerWish::HardOff).await.unwrap();
    world.restart();
    world.calls();
    world.host().inspect(wish("other")).await.unwrap();
    let calls = world.calls();
    assert!(calls.iter().any(|line| line == "insert"), "{calls:?}");
    assert_eq!(world.journal.latest_boot().unwrap().generation, 2);
}

#[tokio::test(start_paused = true)]
async fn a_host_that_must_not_be_off_is_restarted_and_let_go_running() {
    let mut world = World::new();
    world.disable_power_off = true;
    world.host().power_state().await.unwrap();
    world.calls();
    for wish in [PowerWish::HardOff, PowerWish::SoftOff] {
        world.host().set_power(wish.into()).await.unwrap();
        pass(600).await;
        world.host().set_power(wish.into()).await.unwrap();
        let calls = world.calls();
        assert_eq!(calls, ["SoftRestart"], "{wish:?}");
        world.host().power_state().await.unwrap();
    }
    while world.host().deprovision(CleaningRequest::default()).await.unwrap() != LEFT {
        pass(1).await;
    }
    assert_eq!(world.calls(), Vec::<String>::new());
    assert_eq!(world.host().power_state().await.unwrap(), Verdict::Done(Some(true)));
}

/// Nobody repeats a restart blindly, and nobody says that it was made.
#[tokio::test(start_paused = true)]
async fn a_restart_whose_answer_was_lost_is_told_as_unknown() {
    // A gateway's answer, and one that cannot be read, are no refusal of the BMC's.
    for kind in [ErrorKind::Unanswered, ErrorKind::Rejected { status: 504 }, ErrorKind::Protocol] {
        let mut world = World::new();
        world.disable_power_off = true;
        world.host().power_state().await.unwrap();
        world.bmc.lock().unwrap().answers_restart = Some(kind);
        world.calls();
        let failure = world.host().set_power(PowerWish::SoftOff.into()).await.unwrap_err();
        assert_eq!((failure.retry, world.calls().len()), (provisioner::Retry::Unknown, 1), "{kind:?}");
        assert!(failure.text().contains("answer was lost") && failure.text().contains("reboot.metal3.io"), "{failure}");
        let again = world.host().set_power(PowerWish::SoftOff.into()).await.unwrap_err();
        assert_eq!((again.retry, world.calls().len()), (provisioner::Retry::Unknown, 0), "the host could not note it");
    }
}

/// The annotation that asks for it is used up afterwards, which a server may not live to do, or the API may refuse.
#[tokio::test(start_paused = true)]
async fn a_restart_is_not_repeated_because_its_host_could_not_note_it() {
    let mut world = World::new();
    world.disable_power_off = true;
    world.host().power_state().await.unwrap();
    world.calls();
    for calls in [1, 0, 0] {
        assert_eq!(world.host().set_power(PowerWish::SoftOff.into()).await.unwrap(), Verdict::Done(true));
        assert_eq!(world.calls().len(), calls);
        pass(10).await;
    }
    // Once the host has noted it, the next that is asked for is another.
    for _ in 0..2 {
        world.restart_is_noted();
        assert_eq!(world.host().set_power(PowerWish::SoftOff.into()).await.unwrap(), Verdict::Done(true));
        assert_eq!(world.calls(), ["SoftRestart"]);
    }
    // Another process does not know whether it was made.
    world.restart();
    for _ in 0..2 {
        let failure = world.host().set_power(PowerWish::SoftOff.into()).await.unwrap_err();
        assert_eq!((failure.retry, world.calls().len()), (provisioner::Retry::Unknown, 0), "{failure}");
        assert!(
            failure.text().contains("server ended before") && failure.text().contains("reboot.metal3.io"),
            "{failure}"
        );
    }
    // The next that is asked for is another, whichever process hears of it.
    world.host().power_state().await.unwrap();
    world.restart();
    assert_eq!(world.host().set_power(PowerWish::SoftOff.into()).await.unwrap(), Verdict::Done(true));
    assert_eq!(world.calls(), ["SoftRestart"]);
}

/// One that was not made is made, and one that cannot be recorded is not ordered.
#[tokio::test(start_paused = true)]
async fn a_restart_that_was_not_made_is_asked_for_again() {
    let mut world = World::new();
    world.disable_power_off = true;
    world.host().power_state().await.unwrap();
    world.calls();
    // It may have been recorded all the same.
    world.journal.record.fail_after(|_| true);
    let failure = world.host().set_power(PowerWish::SoftOff.into()).await.unwrap_err();
    assert_eq!((failure.cause, world.calls().len()), (provisioner::Cause::RecordUnavailable, 0), "{failure}");
    world.bmc.lock().unwrap().drops_orders = 1;
    assert!(world.host().set_power(PowerWish::SoftOff.into()).await.is_err());
    world.calls();
    world.restart();
    assert_eq!(world.host().set_power(PowerWish::SoftOff.into()).await.unwrap(), Verdict::Done(true));
    assert_eq!(world.calls(), ["SoftRestart"]);
}

/// The machine may come on yet: it does not count as off because whoever had it powered on has given up.
#[tokio::test(start_paused = true)]
async fn an_order_whose_call_was_given_up_may_still_be_carried_out() {
    let world = World::new();
    {
        let mut bmc = world.bmc.lock().unwrap();
        (bmc.on, bmc.never_answers, bmc.takes) = (false, true, Duration::from_secs(30));
    }
    let mut host = world.host();
    let call = host.set_power(PowerWish::On.into());
    assert!(tokio::time::timeout(Duration::from_secs(10), call).await.is_err());
    world.bmc.lock().unwrap().never_answers = false;
    let verdict = world.host().set_power(PowerWish::HardOff.into()).await.unwrap();
    assert!(matches!(verdict, Verdict::Working(_)), "it is on its way: {verdict:?}");
    world.bmc.lock().unwrap().takes = Duration::ZERO;
    until(&world, PowerWish::HardOff).await.unwrap();
    assert_eq!(world.calls(), ["On", "HardOff"]);
}
