//! BMCs that deviate from the standard, are busy, or lie, as data (`fixtures/variants`): each ends as an operator should see it, within
//! its time, without hurting the BMC, and no two are the same to the client.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use api::metal3::BareMetalHost;
use e2e::{Options, World, machine};
use futures::{StreamExt, future::join_all};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::{Api, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use serde::Deserialize;
use serde_json::{Value, json};

/// Hosts of one server: it switches few machines on at a time.
const HOSTS: usize = 40;
/// Most requests that a BMC gets within a minute.
const MOST_REQUESTS: usize = 60;
/// How long all of it may take after the last host was declared, in seconds; two processors of their own take a third of it.
const PATIENCE: u64 = 150;

/// How a variant ends.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct End {
    /// The host's state, without an error.
    state: Option<String>,
    /// Or the type of the error that is shown,
    error: Option<String>,
    /// the cause for which the work failed,
    cause: Option<String>,
    /// and what the message says.
    #[serde(default)]
    says: Vec<String>,
}

/// A BMC and what it comes to.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Variant {
    name: String,
    /// Where it was seen.
    #[serde(default)]
    seen: String,
    /// What the machine is called.
    #[serde(default)]
    machine: BTreeMap<String, String>,
    /// The simulator's settings.
    #[serde(default = "nothing")]
    settings: Value,
    /// The simulator's rules; `{id}` stands for the system's id.
    #[serde(default)]
    faults: Vec<Value>,
    /// Path of the system in `spec.bmc.address`, when it is not the right one.
    system: Option<String>,
    /// The password in the Secret, when it is not the right one.
    password: Option<String>,
    /// Whether errors may be shown on the way to a good end.
    #[serde(default)]
    recovers: bool,
    /// Rules, by their number from 1, that a client who knows its BMC never meets.
    #[serde(default)]
    spared: Vec<u64>,
    /// Most sessions that are open at the end.
    sessions: Option<u64>,
    end: End,
    /// The time it may take, in seconds: a fraction of what registration and inspection may take on real machines, waits for repetition included.
    #[serde(default = "two_minutes")]
    within: u64,
    /// Why it does not end so yet.
    pending: Option<String>,
}

fn nothing() -> Value {
    json!({})
}

fn two_minutes() -> u64 {
    120
}

fn variants() -> Vec<Variant> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/variants");
    let mut files: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    let mut all = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let mut some: Vec<Variant> =
            serde_saphyr::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        for variant in &mut some {
            let name = variant.name.clone();
            variant.end.says.iter_mut().for_each(|part| *part = part.replace("{id}", &name));
        }
        all.extend(some);
    }
    // What waits for an agent that never reports takes longest: it begins first.
    all.sort_by_key(|variant| variant.end.cause.as_deref() != Some("AgentSilent") && !variant.recovers);
    all
}

/// The machine as the simulator wants it.
fn simulated(variant: &Variant) -> Value {
    let mut value = machine(&variant.name);
    for (name, text) in &variant.machine {
        value[name] = json!(text);
    }
    value["settings"] = variant.settings.clone();
    let faults = Value::from(variant.faults.clone()).to_string().replace("{id}", &variant.name);
    value["faults"] = serde_json::from_str(&faults).unwrap();
    value
}

/// What a host has shown so far.
#[derive(Clone, Debug, Default)]
struct Observed {
    state: String,
    message: String,
    /// All errors, in order: type and message.
    errors: Vec<(String, String)>,
    /// When the expected end was first seen.
    reached: Option<Duration>,
}

impl Observed {
    fn see(&mut self, host: &BareMetalHost) {
        let status = host.status.clone().unwrap_or_default();
        status.provisioning.state.as_str().clone_into(&mut self.state);
        self.message = status.error_message;
        let kind = status.error_type.map(|kind| json!(kind).as_str().unwrap_or_default().to_owned());
        let error = (kind.unwrap_or_default(), self.message.clone());
        if !self.message.is_empty() && self.errors.last() != Some(&error) {
            self.errors.push(error);
        }
    }

    /// Whether it has come to that end, the causes being those that the server has logged for the host.
    fn is(&self, end: &End, causes: &BTreeSet<String>) -> bool {
        match &end.state {
            Some(state) => self.state == *state && self.message.is_empty(),
            None => {
                self.is_error(end, causes).is_some_and(|message| end.says.iter().all(|part| message.contains(part)))
            }
        }
    }

    /// The last message of an error of that type and cause.
    fn is_error(&self, end: &End, causes: &BTreeSet<String>) -> Option<&String> {
        let (kind, message) = self.errors.iter().rfind(|(kind, _)| end.error.as_ref() == Some(kind))?;
        let caused = end.cause.as_ref().is_some_and(|cause| causes.contains(cause));
        (caused && !kind.is_empty()).then_some(message)
    }

    /// Whether nothing that may still come can make it the end that it should come to.
    fn is_wrong(&self, variant: &Variant, causes: &BTreeSet<String>) -> bool {
        match variant.end.state {
            Some(_) => !variant.recovers && !self.errors.is_empty(),
            None => self.is_error(&variant.end, causes).is_some(),
        }
    }
}

/// A log without the colours that it may have.
fn plain(log: &str) -> String {
    let mut parts = log.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once('m').map_or(part, |(_, rest)| rest))
}

/// The causes for which a host's work has failed, by the server's log.
fn causes(log: &str, host: &str) -> BTreeSet<String> {
    let marked = format!("host={host} ");
    let of_host = log.lines().filter(|line| line.contains(&marked));
    let named = of_host.filter_map(|line| line.split("cause=").nth(1)?.split_whitespace().next());
    named.map(|cause| cause.trim_matches('"').to_owned()).collect()
}

async fn declare(world: &World, variant: &Variant) {
    let (name, simulated) = (&variant.name, world.sim.machine(&variant.name));
    let password = variant.password.clone().map_or_else(|| simulated["password"].clone(), Value::from);
    let secret: Secret = serde_json::from_value(json!({ "metadata": { "name": format!("{name}-bmc") },
        "stringData": { "username": simulated["username"], "password": password } }))
    .unwrap();
    let secrets: Api<Secret> = Api::default_namespaced(world.client.clone());
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    let mut address = world.sim.address(name);
    if let Some(system) = &variant.system {
        let right = simulated["system"].as_str().unwrap();
        address = address.replace(right, &system.replace("{id}", name));
    }
    let host: BareMetalHost = serde_json::from_value(json!({
        "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": { "name": name },
        "spec": { "online": true, "bootMACAddress": simulated["mac"],
            "bmc": { "address": address, "credentialsName": format!("{name}-bmc") } } }))
    .unwrap();
    world.hosts().create(&PostParams::default(), &host).await.unwrap();
}

/// The requests that a BMC got, each with how its sender signed in and the status of the answer. Sessions, tasks and media have numbers that
/// differ from run to run, and a question that is asked again and again counts once.
fn transcript(name: &str, requests: &[Value]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for request in requests {
        let mut body = request["body"].clone();
        for field in ["Image", "Context"] {
            if body.get(field).is_some_and(Value::is_string) {
                body[field] = json!("…");
            }
        }
        let path = request["path"].as_str().unwrap().replace(name, "{id}");
        let path: Vec<&str> =
            path.split('/').map(|part| if part.parse::<u64>().is_ok() { "…" } else { part }).collect();
        let (method, status) = (request["method"].as_str().unwrap(), &request["status"]);
        let line = format!("{method} {} {body} {status} {}", path.join("/"), request["authentication"]);
        if lines.last() != Some(&line) {
            lines.push(line);
        }
    }
    lines
}

/// The most requests within any minute.
fn most_in_a_minute(requests: &[Value]) -> usize {
    let times: Vec<u64> = requests.iter().map(|request| request["atMs"].as_u64().unwrap()).collect();
    let ends = times.iter().enumerate();
    ends.map(|(end, at)| times[..=end].iter().filter(|time| *time + 60_000 > *at).count()).max().unwrap_or(0)
}

/// What one variant came to.
struct Outcome {
    variant: Variant,
    observed: Observed,
    causes: BTreeSet<String>,
    requests: Vec<Value>,
    struck: Vec<u64>,
    sessions: u64,
}

impl Outcome {
    /// What is wrong with it; nothing if it ended as it should.
    fn wrong(&self) -> Vec<String> {
        let (variant, observed) = (&self.variant, &self.observed);
        let mut wrong = Vec::new();
        match observed.reached {
            None => {
                wrong.push(format!("is {:?}, with errors for {:?}: {:?}", observed.state, self.causes, observed.errors))
            }
            Some(after) if after > Duration::from_secs(variant.within) => {
                wrong.push(format!("took {} s of {}", after.as_secs(), variant.within));
            }
            Some(_) => {}
        }
        if variant.end.state.is_some() && !variant.recovers && !observed.errors.is_empty() {
            wrong.push(format!("showed errors on its way: {:?}", observed.errors));
        }
        let most = most_in_a_minute(&self.requests);
        if most > MOST_REQUESTS {
            wrong.push(format!("got {most} requests in a minute"));
        }
        if variant.sessions.is_some_and(|most| self.sessions > most) {
            wrong.push(format!("holds {} sessions", self.sessions));
        }
        for (index, count) in (1..).zip(&self.struck) {
            if variant.spared.contains(&index) == (*count > 0) {
                wrong.push(format!("rule {index} struck {count} times"));
            }
        }
        wrong
    }
}

/// Runs variants on one server and one simulator.
async fn run(variants: Vec<Variant>) -> Vec<Outcome> {
    let began = Instant::now();
    let machines = variants.iter().map(simulated).collect();
    let options = Options { machines, ..Options::one_fake() };
    let options = options.with(&["--retry-after", "6", "--agent-boot-timeout", "15"]);
    // Not the word that it is: messages are shown without it.
    let world = World::start_with(options, json!({ "password": "calvin-7x" })).await.unwrap();
    let observed = Arc::<Mutex<BTreeMap<String, Observed>>>::default();
    let lock =
        |observed: &Mutex<BTreeMap<String, Observed>>| observed.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let watching = tokio::spawn({
        let observed = observed.clone();
        let mut hosts = watcher(world.hosts(), watcher::Config::default()).default_backoff().applied_objects().boxed();
        async move {
            while let Some(event) = hosts.next().await {
                if let Ok(host) = event {
                    let mut observed = observed.lock().unwrap_or_else(PoisonError::into_inner);
                    observed.entry(host.name_any()).or_default().see(&host);
                }
            }
        }
    });
    for variant in &variants {
        declare(&world, variant).await;
    }
    println!("{} hosts declared after {} s", variants.len(), began.elapsed().as_secs());
    let start = Instant::now();
    let mut reached: BTreeMap<String, Duration> = BTreeMap::new();
    let mut left: BTreeSet<&str> = variants.iter().map(|variant| variant.name.as_str()).collect();
    while !left.is_empty() && start.elapsed() < Duration::from_secs(PATIENCE) {
        let (log, seen) = (plain(&world.server.logged()), lock(&observed));
        for variant in &variants {
            let Some(observed) = seen.get(&variant.name).filter(|_| left.contains(variant.name.as_str())) else {
                continue;
            };
            let causes = causes(&log, &variant.name);
            if observed.is(&variant.end, &causes) {
                reached.insert(variant.name.clone(), start.elapsed());
            }
            if reached.contains_key(&variant.name) || observed.is_wrong(variant, &causes) {
                left.remove(variant.name.as_str());
            }
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    watching.abort();
    let (log, seen) = (plain(&world.server.logged()), lock(&observed));
    let mut outcomes = Vec::new();
    for variant in variants {
        let name = variant.name.clone();
        let requests = world.sim.get(&format!("/machines/{name}/requests")).await.unwrap();
        let faults = world.sim.get(&format!("/machines/{name}/faults")).await.unwrap();
        let sessions = world.sim.now(&name).await.unwrap()["sessions"].as_u64().unwrap();
        let mut observed = seen.get(&name).cloned().unwrap_or_default();
        observed.reached = reached.get(&name).copied();
        let struck = faults["faults"].as_array().unwrap().iter().map(|rule| rule["struck"].as_u64().unwrap()).collect();
        let requests = requests["requests"].as_array().unwrap().clone();
        outcomes.push(Outcome { causes: causes(&log, &name), variant, observed, requests, struck, sessions });
    }
    outcomes
}

/// The variants, dealt out to as many servers as it takes.
fn dealt(all: Vec<Variant>) -> Vec<Vec<Variant>> {
    let mut hands = vec![Vec::new(); all.len().div_ceil(HOSTS)];
    let count = hands.len();
    for (index, variant) in all.into_iter().enumerate() {
        hands[index % count].push(variant);
    }
    hands
}

/// Says which have the most of something.
fn say_most(outcomes: &[Outcome], what: &str, of: impl Fn(&Outcome) -> u64) {
    let mut all: Vec<(u64, &str)> =
        outcomes.iter().map(|outcome| (of(outcome), outcome.variant.name.as_str())).collect();
    all.sort_unstable_by(|a, b| b.cmp(a));
    println!("{what}: {:?}", &all[..all.len().min(8)]);
}

#[tokio::test]
async fn every_variant_ends_as_an_operator_should_see_it() {
    let all = variants();
    let names: BTreeSet<&str> = all.iter().map(|variant| variant.name.as_str()).collect();
    assert_eq!(names.len(), all.len(), "two variants have the same name");
    assert!(all.len() >= 80, "{} variants", all.len());
    let start = Instant::now();
    let parts = join_all(dealt(all).into_iter().map(run)).await;
    let outcomes: Vec<Outcome> = parts.into_iter().flatten().collect();
    println!("{} variants in {} s", outcomes.len(), start.elapsed().as_secs());
    say_most(&outcomes, "seconds", |outcome| outcome.observed.reached.unwrap_or_default().as_secs());
    say_most(&outcomes, "requests in a minute", |outcome| most_in_a_minute(&outcome.requests) as u64);

    let mut failures = Vec::new();
    for outcome in &outcomes {
        let (name, wrong) = (&outcome.variant.name, outcome.wrong());
        match &outcome.variant.pending {
            None if !wrong.is_empty() => {
                let lines = transcript(name, &outcome.requests);
                let last = lines[lines.len().saturating_sub(16)..].join("\n    ");
                failures.push(format!("{name}: {}\n    seen: {}\n    {last}", wrong.join("; "), outcome.variant.seen));
            }
            Some(why) if wrong.is_empty() => {
                failures.push(format!("{name} ends as it should: it is not pending any more ({why})"));
            }
            Some(why) => println!("pending: {name} ({why}): {}", wrong.join("; ")),
            None => {}
        }
    }
    let mut seen: BTreeMap<Vec<String>, &str> = BTreeMap::new();
    for outcome in &outcomes {
        let lines = transcript(&outcome.variant.name, &outcome.requests);
        if let Some(other) = seen.insert(lines, &outcome.variant.name) {
            failures.push(format!("{} and {other} are the same to the client", outcome.variant.name));
        }
    }
    assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), outcomes.len(), failures.join("\n"));
}
