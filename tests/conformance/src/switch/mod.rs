//! Switching in place between baremetal-operator and Metamorph, and upstream's own black-box suite on Metamorph: live, with programs that are built
//! elsewhere, on the real control plane and on the embedded API.
//!
//! A [`ways::Way`] is a host in a namespace of its own. The real operator, with its provisioner `fixture`, brings it to a state and is killed; Metamorph
//! takes the same objects over; and the real operator goes on with what Metamorph leaves. States that a host must not pass, errors, and fields that were
//! written without a reason fail the run. What upstream left is kept as data for tests that need no such program (`tests/scenarios/recorded`).

mod changes;
mod programs;
mod rules;
mod site;
mod suite;
mod ways;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::StreamExt as _;
use serde_json::Value;

use crate::target::Target;
pub use programs::Programs;
pub use rules::rules;
use site::Site;
pub use suite::{Listed, suite};
use ways::{WAYS, Way};

/// Ways that go on at once.
const AT_ONCE: usize = 3;
/// How long a host is looked at when it has come to rest.
const REST: Duration = Duration::from_secs(6);
/// Longest way to a state: the operators' fixtures take ten seconds for an image.
const LONGEST: Duration = Duration::from_secs(120);

/// What became of a host.
#[derive(Default)]
struct Went {
    /// What upstream left.
    left: Vec<Value>,
    /// States that the host was in, in order, with each operator.
    here: Vec<String>,
    back: Vec<String>,
    /// What each has written of the objects that it found.
    written_here: BTreeMap<String, BTreeSet<String>>,
    written_back: BTreeMap<String, BTreeSet<String>>,
    /// What must not be.
    wrong: Vec<String>,
}

/// Brings hosts to every state, takes them over and gives them back, on one server; whether all went as it must. What upstream left is written into
/// `record`, if that is given.
///
/// # Errors
/// When a server or a program does not start.
pub async fn switch(target: &Target, programs: &Programs, only: &str, record: Option<&Path>) -> Result<bool> {
    let began = Instant::now();
    programs.define(target).await?;
    let ways: Vec<&Way> = WAYS.iter().filter(|way| way.name.contains(only)).collect();
    ensure!(!ways.is_empty(), "no way contains {only:?}");
    let went = futures::stream::iter(&ways).map(|way| there_and_back(target, programs, way)).buffered(AT_ONCE);
    let went: Vec<Result<Went>> = went.collect().await;
    let (mut good, mut recorded, mut words) = (0, BTreeMap::new(), BTreeSet::new());
    for (way, went) in ways.iter().zip(went) {
        let went = went.unwrap_or_else(|error| Went { wrong: vec![format!("{error:#}")], ..Went::default() });
        let mark = if went.wrong.is_empty() { "✓" } else { "✗" };
        println!("{mark} {}: {}: {} | back: {}", target.name, way.name, went.here.join(" → "), went.back.join(" → "));
        went.wrong.iter().for_each(|wrong| println!("    {wrong}"));
        for (whose, written) in [("here", &went.written_here), ("back", &went.written_back)] {
            for (object, fields) in written.iter().filter(|_| way.rests) {
                words.extend(
                    fields
                        .iter()
                        .map(|field| format!("{whose}: {} {field}", object.split(' ').next().unwrap_or_default())),
                );
            }
        }
        good += usize::from(went.wrong.is_empty());
        recorded.insert(way.name, went.left);
    }
    println!("{}: written of hosts at rest and of what is beside them:", target.name);
    words.iter().for_each(|line| println!("    {line}"));
    println!(
        "{}: {good} of {} states taken over and given back, {:.0} s",
        target.name,
        ways.len(),
        began.elapsed().as_secs_f64()
    );
    if let Some(file) = record {
        std::fs::write(file, as_lines(&recorded)?).with_context(|| format!("write {}", file.display()))?;
    }
    Ok(good == ways.len())
}

/// An object a line.
fn as_lines(recorded: &BTreeMap<&str, Vec<Value>>) -> Result<String> {
    let mut states = Vec::new();
    for (name, objects) in recorded {
        let objects: Vec<String> = objects.iter().map(|object| format!("  {object}")).collect();
        states.push(format!(" {}: [\n{}\n ]", serde_json::to_string(name)?, objects.join(",\n")));
    }
    Ok(format!("{{\n{}\n}}\n", states.join(",\n")))
}

async fn there_and_back(target: &Target, programs: &Programs, way: &Way) -> Result<Went> {
    let site = Site::new(target, format!("t-{}", way.name)).await?;
    let mut went = Went::default();
    way.declare(&site).await?;
    {
        let upstream = programs.upstream(target, &site.namespace)?;
        let brought = way.bring(&site).await;
        // It must not get any further.
        upstream.kill().await?;
        brought.with_context(|| format!("bring a host to {}", way.name))?;
    }
    went.left = site.objects().await?;
    {
        let metamorph = programs.metamorph(target, &site.namespace)?;
        let ends = site.comes_to(way.ends, LONGEST, REST).await;
        let told = metamorph.stop().await?;
        let (seen, arrived) = ends?;
        judge(way, "Metamorph", &seen, arrived, way.passes, &mut went.wrong);
        went.here = seen;
        if !went.wrong.is_empty() {
            went.wrong.push(told);
        }
    }
    let ours = site.objects().await?;
    went.written_here = changes::written(&went.left, &ours);
    if way.rests {
        let unasked = went.written_here.iter().flat_map(|(object, fields)| {
            fields
                .iter()
                .filter(|field| !changes::is_asked(object, field, way.name))
                .map(move |field| format!("written here without need: {object} {field}"))
        });
        went.wrong.extend(unasked.collect::<Vec<_>>());
    }
    if way.ends.is_none() {
        let held = ours.iter().filter(|object| !object["metadata"]["finalizers"].is_null());
        went.wrong.extend(held.map(|object| {
            format!("held although its host is gone: {} {}", object["kind"], object["metadata"]["name"])
        }));
        return Ok(went);
    }
    {
        let upstream = programs.upstream(target, &site.namespace)?;
        let ends = site.comes_to(way.ends, LONGEST, REST).await;
        went.written_back = changes::written(&ours, &site.objects().await?);
        let gone = if way.goes { Some(gone(&site).await) } else { None };
        let told = upstream.stop().await?;
        let (seen, arrived) = ends?;
        let stays: Vec<&str> = way.ends.into_iter().collect();
        judge(way, "baremetal-operator", &seen, arrived, &stays, &mut went.wrong);
        went.back = seen;
        if let Some(gone) = gone {
            let (seen, arrived) = gone?;
            if !arrived {
                went.wrong.push(format!("with baremetal-operator it is not deleted, but went {}", seen.join(" → ")));
            }
            went.back.extend(seen.into_iter().skip(1));
        }
        if !went.wrong.is_empty() {
            went.wrong.push(told);
        }
    }
    Ok(went)
}

/// Has the host deleted; the states that it was in, and whether it is gone.
async fn gone(site: &Site<'_>) -> Result<(Vec<String>, bool)> {
    site.delete().await?;
    site.comes_to(None, LONGEST, Duration::ZERO).await
}

/// Where the host was, and what was wrong with it.
fn judge(way: &Way, whose: &str, seen: &[String], arrived: bool, passes: &[&str], wrong: &mut Vec<String>) {
    if !arrived {
        wrong.push(format!("with {whose} it does not come to {:?}, but went {}", way.ends, seen.join(" → ")));
    }
    for state in seen {
        let (state, trouble) = state.split_once(" (").unwrap_or((state, ""));
        let may = passes.contains(&state) || way.ends == Some(state) || state == "gone" && way.ends.is_none();
        if !may {
            wrong.push(format!("with {whose} it passes {state:?}"));
        }
        if trouble.contains("error") && !way.fails {
            wrong.push(format!("with {whose} it is {trouble:?} in {state:?}"));
        }
    }
}
