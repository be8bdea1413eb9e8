//! The server is killed at each effect that it has on the world, just before it and just after it, while the simulator and the
//! agents live on. It is started again, or another takes over, and the host's life goes on as if nothing had happened: nothing destructive
//! is repeated, nothing is left behind.
//!
//! Each scenario is a script of wishes (`scenario.rs`). Which effects there are is recorded, not chosen: the script is played once with
//! proxies around the server, which note each write to the Kubernetes API, each request to the BMC that changes something, and each
//! directive that an agent gets. `metamorph up` has its API within itself: there, what it writes is seen by watches, and killed after.
//! `KILL_ONLY=<text>` runs the cuts whose line holds the text; `METAMORPH_SHARD` names the part of them that a run does.

use std::time::Instant;

use anyhow::bail;
use e2e::{Cut, Shard, Side};
use futures::StreamExt;

use self::run::live;
use self::scenario::{Killed, Scenario};

mod run;
mod scenario;
mod stage;

/// Worlds at a time.
const WORLDS: usize = 3;
/// A run does a quarter of the kills of a plain life, and of those of the other scenarios as much as the shard says.
const QUARTERS: usize = 4;
/// How often a kill is tried whose effect does not come: how late the test sees what it waits for has a say in what comes after.
const TRIES: usize = 3;

/// A life that is killed at `cut`; tried again if it has not come to that.
async fn killed(scenario: &'static Scenario, cut: &Cut) -> anyhow::Result<()> {
    for _ in 0..TRIES {
        if live(scenario, Some(cut.clone())).await?.killed {
            return Ok(());
        }
    }
    bail!("this effect did not come in {TRIES} lives")
}

/// Whether the effect belongs to each life: progress within a step is written every few seconds, if there is time for it.
fn in_each_life(label: &str) -> bool {
    !(label.starts_with("api ") && label.contains(" hostoperations/") && label.contains('#'))
}

/// The sides on which the server can be killed: what `up` writes to its own API is seen when it is written.
fn sides(scenario: &Scenario, label: &str) -> &'static [Side] {
    let within = scenario.killed == Killed::Up && label.starts_with("api ");
    if within { &[Side::After] } else { &[Side::Before, Side::After] }
}

async fn enumerate(scenario: &'static Scenario, kinds: &[&str]) {
    let started = Instant::now();
    let labels = live(scenario, None).await.unwrap_or_else(|error| panic!("a life without a kill: {error:#}")).effects;
    println!("{} effects in {} ms:\n  {}", labels.len(), started.elapsed().as_millis(), labels.join("\n  "));
    for kind in kinds {
        assert!(labels.iter().any(|label| label.starts_with(kind)), "nothing of the kind {kind} was recorded");
    }
    let shard = Shard::from_environment().unwrap();
    let shard = if scenario.name == scenario::LIFE.name { shard.one_of(QUARTERS) } else { shard };
    let only = std::env::var("KILL_ONLY").unwrap_or_default();
    let cuts: Vec<Cut> = labels
        .into_iter()
        .filter(|label| in_each_life(label))
        .flat_map(|label| sides(scenario, &label).iter().map(move |side| Cut { label: label.clone(), side: *side }))
        .filter(|cut| format!("{} {}", cut.side, cut.label).contains(&only))
        .filter(|cut| shard.has(&format!("{} {} {}", scenario.name, cut.side, cut.label)))
        .collect();
    let count = cuts.len();
    let runs = futures::stream::iter(cuts.into_iter().enumerate()).map(|(index, cut)| async move {
        let (started, name) = (Instant::now(), format!("{} {}", cut.side, cut.label));
        let result = killed(scenario, &cut).await;
        let word = if result.is_ok() { "ok" } else { "FAILED" };
        println!("{index:3} {:6} ms {word:6} {name}", started.elapsed().as_millis());
        result.err().map(|error| format!("killed {name}: {error:#}"))
    });
    let failures: Vec<String> = runs.buffer_unordered(WORLDS).filter_map(|result| async { result }).collect().await;
    println!("{count} kills in {} s", started.elapsed().as_secs());
    assert!(failures.is_empty(), "{} of {count} failed:\n{}", failures.len(), failures.join("\n\n"));
}

/// Kinds of effects that a whole life has, seen by proxies.
const ALL: &[&str] =
    &["api POST", "api PUT", "api PATCH", "bmc POST", "bmc PATCH", "bmc DELETE", "agent command", "agent ack"];
/// Kinds of effects that any work has.
const WORK: &[&str] = &["api PUT", "bmc "];

macro_rules! enumerations {
    ($($(#[$doc:meta])* $name:ident: $scenario:ident, $kinds:expr;)*) => { $(
        $(#[$doc])*
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            enumerate(&scenario::$scenario, $kinds).await;
        }
    )* };
}

enumerations! {
    at_any_effect_of_a_life: LIFE, ALL;
    at_any_effect_of_the_leader: LEADER, ALL;
    at_any_effect_of_up: UP, &["api WATCH", "bmc POST", "bmc PATCH", "bmc DELETE", "agent command", "agent ack"];
    while_a_wrong_image_is_found_and_mended: WRONG_IMAGE, WORK;
    while_the_medium_is_refused: REFUSED_MEDIUM, WORK;
    while_an_image_is_taken_back: CANCELLED, WORK;
    while_an_image_is_replaced: REPLACED, WORK;
    while_consent_is_given_and_the_disks_are_wiped: CONSENT, WORK;
    while_consent_is_given_and_the_disk_is_written: CONSENT_TO_WRITING, WORK;
    while_another_machine_is_accepted: ACCEPTED_MACHINE, WORK;
    while_the_power_is_switched: POWER, WORK;
    while_the_host_is_detached_and_attached: DETACHED, &["api PUT"];
    while_the_host_is_detached_at_work: DETACHED_AT_WORK, WORK;
    while_the_host_is_deleted: DELETED, WORK;
    while_the_host_is_deleted_at_work: DELETED_AT_WORK, WORK;
}
