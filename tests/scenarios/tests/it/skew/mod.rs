//! Versions beside each other: a server goes on with what another version, or an earlier build of this one, has left at any moment of a host's life.
//! The machine's content is what it would have been: written as often, wiped as often, by whomever.

mod lives;
mod record;
mod recorded;

use std::path::Path;
use std::time::Duration;

use api::metamorph::{HostOperation, OperationPhase};
use kube::api::{Api, ListParams};
use scenarios::Site;
use scenarios::plant::Plant;

use lives::{LIVES, Life};
use recorded::{Moment, Recorded};

/// One moment of so many is gone on from, unless `SCENARIO_MOMENTS` names others.
const PARTS: usize = 9;
/// After each step, before the next.
const PAUSE: Duration = Duration::from_secs(60);
/// At the end, nothing happens any more for this long.
const AFTER: Duration = Duration::from_secs(1800);

/// A test for each life of a recorded set.
macro_rules! of_sets {
    ($($name:ident: $folder:literal;)*) => {$(
        mod $name {
            #[test]
            fn whole() {
                super::moments_of($folder, "whole");
            }

            #[test]
            fn uncleaned() {
                super::moments_of($folder, "uncleaned");
            }

            #[test]
            fn failed_write() {
                super::moments_of($folder, "failed-write");
            }

            #[test]
            fn detached() {
                super::moments_of($folder, "detached");
            }

            #[test]
            fn other_image() {
                super::moments_of($folder, "other-image");
            }
        }
    )*};
}

of_sets! {
    left_without_shards_in_addresses: "943ee6a";
    left_without_what_the_machine_runs: "3ea475b";
    left_by_this_version: "this";
}

/// Which moments of a life are gone on from: those whose number leaves this when it is divided by that. `SCENARIO_MOMENTS` is `all` or
/// PART/PARTS, as `deploy/shard` prints it; without it, another of [`PARTS`] in each life.
fn wanted(life: &str) -> (usize, usize) {
    let Ok(said) = std::env::var("SCENARIO_MOMENTS") else { return (life.len() % PARTS, PARTS) };
    if said == "all" {
        return (0, 1);
    }
    let part = said.split_once('/').and_then(|(part, parts)| Some((part.parse().ok()?, parts.parse().ok()?)));
    match part {
        Some((part, parts)) if (1..=parts).contains(&part) => (part - 1, parts),
        _ => panic!("SCENARIO_MOMENTS is {said:?}, not all or PART/PARTS"),
    }
}

fn moments_of(set: &str, name: &str) {
    let (rest, parts) = wanted(name);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("recorded").join(set);
    let life = LIVES.iter().find(|life| life.name == name).unwrap();
    let recorded = Recorded::read(&folder.join(format!("{name}.json.gz")));
    let (mut count, mut wrong) = (0, Vec::new());
    for (number, moment) in recorded.moments.iter().enumerate() {
        if number % parts != rest {
            continue;
        }
        count += 1;
        let ended = scenarios::run_at(moment.at, 1, async |site| goes_on(life, &recorded, moment, &site).await);
        if let Err(why) = ended {
            wrong.push(format!("{number} (step {}, {}): {why}", moment.step, moment.at));
        }
    }
    println!("{set}, {name}: {count} moments");
    assert!(count > 0, "no moment of {name}, {set}");
    assert!(wrong.is_empty(), "{} of {count} moments of {name}, {set}:\n{}", wrong.len(), wrong.join("\n"));
}

/// A server that knows nothing goes on from a moment to the life's end.
async fn goes_on(life: &Life, recorded: &Recorded, moment: &Moment, site: &Site) -> Result<(), String> {
    for object in &moment.objects {
        site.put_as_left(recorded.objects[*object].clone()).await;
    }
    let plant = Plant::new(site.weather.clone());
    plant.stands(moment.machine.clone());
    let _server = plant.serve(site);
    let went = lives::go_on(life, moment.step, site, PAUSE, |_| ()).await;
    tokio::time::sleep(AFTER).await;
    let effects = plant.effects();
    let failure = |what: String| Err(format!("{what}\n  {effects:?}"));
    if let Err(why) = went {
        return failure(why);
    }
    let (image, then) = (plant.image(), recorded.end.image());
    if image.as_deref() != then {
        return failure(format!("the disk holds {image:?} and not {then:?}"));
    }
    for what in ["write ", "wipe "] {
        let all = |effects: &[String]| effects.iter().filter(|effect| effect.starts_with(what)).count();
        let (now, then) = (all(&effects), all(recorded.end.effects()));
        if now != then {
            return failure(format!("{what}was done {now} times and not {then}"));
        }
    }
    if effects.iter().any(|effect| effect.ends_with("an agent in work")) {
        return failure("an agent in work was reset".to_owned());
    }
    let operations: Api<HostOperation> = Api::default_namespaced(site.observer());
    for operation in operations.list(&ListParams::default()).await.unwrap().items {
        let phase = operation.status.map(|status| status.phase);
        if matches!(phase, None | Some(OperationPhase::Pending | OperationPhase::Running)) {
            return failure(format!("the operation {:?} is {phase:?}", operation.metadata.name));
        }
    }
    Ok(())
}
