//! Keys are rotated while machines boot: none is lost, and an earlier key opens nothing but what began with it.

use std::time::Duration;

use agent_protocol::{AgentState, Outcome, WriteSummary};
use axum::http::StatusCode;
use provisioner::{Cause, Verdict};

use crate::common::{Agent, World, image, key, pass};
use crate::kit::{self, Lab};

/// An agent whose token is derived from the server's second key.
fn second(generation: u64, boot: &str) -> Agent {
    Agent { secret: key(2).secret, ..Agent::new(generation, boot) }
}

#[tokio::test(start_paused = true)]
async fn a_machine_in_mid_boot_is_not_lost_when_keys_are_rotated() {
    for restarted in [false, true] {
        let mut world = World::new();
        world.host().provision(image()).await.unwrap();
        let recorded = world.journal.latest_boot().unwrap();
        assert_eq!(recorded.key, None, "the first key's");
        // The machine reads its medium; its agent has not reported.
        world.keys.replace(key(2), vec![key(1)]);
        if restarted {
            world.restart();
        }
        world.host().provision(image()).await.unwrap();
        assert_eq!(world.medium().await, StatusCode::PARTIAL_CONTENT, "restarted: {restarted}");
        let agent = Agent::new(recorded.generation, "boot-1");
        assert_eq!(agent.say(&world).await.0, StatusCode::OK, "restarted: {restarted}");
        world.host().provision(image()).await.unwrap();
        // In mid-write it happens again.
        let command = agent.given(&world).await;
        world.keys.replace(key(3), vec![key(1), key(2)]);
        agent.finished(&command, Outcome::Written(WriteSummary { disk: "/dev/vda".into(), ..WriteSummary::default() }));
        assert_eq!(agent.say(&world).await.0, StatusCode::OK);
        world.host().provision(image()).await.unwrap();
        let resets = world.calls().iter().filter(|call| *call == "insert").count();
        assert_eq!(resets, 1, "the boot was not begun anew");
        assert_eq!(world.journal.latest_boot().unwrap().generation, recorded.generation);
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_boot_is_derived_from_the_current_key_and_its_record_says_so() {
    let world = World::new();
    world.keys.replace(key(2), vec![key(1)]);
    world.host().provision(image()).await.unwrap();
    let recorded = world.journal.latest_boot().unwrap();
    assert_eq!(recorded.key, Some(2));
    // The earlier key, in wrong hands, does not open it, and neither opens it one that is to come.
    for generation in [recorded.generation, recorded.generation + 1] {
        assert_eq!(Agent::new(generation, "thief").say(&world).await.0, StatusCode::UNAUTHORIZED);
    }
    let agent = second(recorded.generation, "boot-1");
    assert_eq!(agent.say(&world).await.0, StatusCode::OK);
    world.host().provision(image()).await.unwrap();
    assert_eq!(world.journal.latest_boot().unwrap().key, Some(2), "it stays so when the boot is bound");
    // The newest key opens no boot of an earlier one.
    world.keys.replace(key(3), vec![key(2)]);
    let newest = Agent { secret: key(3).secret, ..Agent::new(recorded.generation, "boot-1") };
    assert_eq!(newest.say(&world).await.0, StatusCode::UNAUTHORIZED);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_removed_while_it_is_in_use_fails_the_work_which_is_begun_anew_with_another() {
    for reported in [false, true] {
        let world = World::new();
        world.host().provision(image()).await.unwrap();
        let old = Agent::new(world.journal.latest_boot().unwrap().generation, "boot-1");
        if reported {
            assert_eq!(old.say(&world).await.0, StatusCode::OK);
            world.host().provision(image()).await.unwrap();
        }
        world.keys.replace(key(2), vec![]);
        let failure = world.host().provision(image()).await.unwrap_err();
        assert_eq!(failure.cause, Cause::KeyRemoved, "reported: {reported}");
        assert!(failure.text().contains("key 1") && failure.advice.is_some(), "{failure}");
        assert_eq!(world.medium().await, StatusCode::NOT_FOUND);
        assert_eq!(old.say(&world).await.0, StatusCode::UNAUTHORIZED);
        // Tried again, it is booted at once: nobody waits for an agent that cannot be heard.
        world.calls();
        world.host().provision(image()).await.unwrap();
        let boot = world.journal.latest_boot().unwrap();
        assert_eq!((boot.generation, boot.key), (old.generation + 1, Some(2)));
        assert!(world.calls().contains(&"insert".to_owned()));
        let agent = second(boot.generation, "boot-2");
        assert_eq!(agent.say(&world).await.0, StatusCode::OK);
        pass(1).await;
        assert!(matches!(world.host().provision(image()).await.unwrap(), Verdict::Working(_)));
        assert!(matches!(*agent.state.lock().unwrap(), AgentState::Idle));
    }
}

#[tokio::test(start_paused = true)]
async fn a_medium_keeps_its_bytes_when_keys_are_rotated_and_the_server_is_replaced() {
    let one = kit::image(1);
    let mut lab = Lab::new(&one);
    lab.inspect().await.unwrap();
    let first = lab.bmc.inserted().remove(0);
    let before = lab.read(&first).await.unwrap();
    let settings = kit::settings();
    let old = (*settings.keys.current()).clone();
    let mut new = old.clone();
    (new.number, new.secret, new.certificate_sha256) = (2, [9; 32], "22".repeat(32));
    settings.keys.replace(new.clone(), vec![old]);
    lab.restart(settings, &one);
    lab.inspect().await.unwrap();
    assert_eq!(lab.read(&first).await, Some(before));
    lab.look_for(Duration::from_secs(120)).await;
    assert_eq!((lab.bmc.inserted().len(), lab.bmc.resets()), (1, 1));
    // Without its key it is gone, and the host says why.
    let settings = kit::settings();
    settings.keys.replace(new, vec![]);
    lab.restart(settings, &one);
    let failures = lab.look_for(Duration::from_secs(120)).await;
    assert_eq!(failures.iter().map(|f| f.cause).collect::<Vec<_>>(), [Cause::KeyRemoved]);
    assert_eq!(lab.read(&first).await, None);
    assert_ne!(lab.bmc.inserted().pop().unwrap(), first);
}
