//! The light by which a person finds the server: of the host's machine alone, and nothing else changes for it.

use provisioner::{Cause, InspectRequest, LocateRequest, Outcome, RegisterRequest, Verdict};

use crate::common::World;

async fn switch(world: &World, lit: bool) -> Outcome<String> {
    world.host().locate().expect("it is served").switch_light(LocateRequest { lit }).await
}

/// What was done to the BMC, without looks.
fn orders(world: &World) -> Vec<String> {
    world.bmc.lock().unwrap().log.iter().filter(|line| !line.starts_with("look")).cloned().collect()
}

async fn registered() -> World {
    let world = World::new();
    world.bmc.lock().unwrap().light = Some(false);
    world.host().register(RegisterRequest::default()).await.unwrap();
    world
}

#[tokio::test(start_paused = true)]
async fn a_light_is_switched_and_told_and_work_under_way_goes_on() {
    let world = registered().await;
    world.host().inspect(InspectRequest::default()).await.unwrap();
    let (before, record) = (orders(&world), world.journal.content());
    for lit in [true, true, false] {
        let Verdict::Done(which) = switch(&world, lit).await.unwrap() else { panic!("it is not done") };
        assert_eq!((which, world.bmc.lock().unwrap().light), (format!("IndicatorLED is {lit}"), Some(lit)));
    }
    assert_eq!(orders(&world)[before.len()..], ["light true", "light true", "light false"]);
    assert_eq!(world.journal.content(), record, "nothing is to be remembered of it");
}

/// Somebody may open the server that blinks.
#[tokio::test(start_paused = true)]
async fn the_light_of_another_machine_is_never_switched() {
    let world = registered().await;
    let before = orders(&world);
    world.bmc.lock().unwrap().shows_another = true;
    for lit in [true, false] {
        let failure = switch(&world, lit).await.unwrap_err();
        assert_eq!(failure.cause, Cause::AnotherMachine, "{failure}");
    }
    assert_eq!(orders(&world), before);
    world.bmc.lock().unwrap().shows_another = false;
    switch(&world, true).await.unwrap();
    assert_eq!(world.bmc.lock().unwrap().light, Some(true));
}

#[tokio::test(start_paused = true)]
async fn a_bmc_without_a_light_is_told_with_what_to_do_and_one_that_hangs_is_given_up() {
    let world = registered().await;
    world.bmc.lock().unwrap().light = None;
    let failure = switch(&world, true).await.unwrap_err();
    assert_eq!(failure.cause, Cause::BmcRefused);
    assert!(failure.message.contains("shows no locating light: looked for in vain"), "{failure}");
    assert!(failure.what_to_do().is_some_and(|advice| advice.contains("serial number")), "{failure:?}");
    {
        let mut bmc = world.bmc.lock().unwrap();
        (bmc.light, bmc.never_answers) = (Some(false), true);
    }
    assert_eq!(switch(&world, true).await.unwrap_err().cause, Cause::BmcBusy);
}
