//! The recorder: plays each life in calm weather and keeps all that is there whenever the server has written.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use apiserver::in_process::{Disk, ExecutorClock, Identity, InProcess, Setup};
use clock::Clock as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::{Client, ResourceExt as _};
use scenarios::plant::{Plant, Standing};
use serde_json::{Value, json};

use super::lives::{self, LIVES, Life};
use super::recorded::{Moment, Recorded};

/// After each step, before the next: what is late comes.
const PAUSE: Duration = Duration::from_secs(600);

/// A moment with the API's whole disk.
struct Raw {
    step: usize,
    at: Timestamp,
    disk: Disk,
    machine: Standing,
}

#[test]
fn the_lives_are_recorded_where_that_is_wished() {
    let Some(folder) = std::env::var_os("SCENARIO_RECORD") else { return };
    for life in &LIVES {
        let recorded = scenarios::run(1, async |site| record(life, &site).await);
        recorded.write(&Path::new(&folder).join(format!("{}.json.gz", life.name)));
        println!("{}: {} moments, {} objects", life.name, recorded.moments.len(), recorded.objects.len());
    }
}

async fn record(life: &Life, site: &scenarios::Site) -> Recorded {
    let plant = Plant::new(site.weather.clone());
    plant.fail_writes(life.bad_writes);
    let step = Arc::new(AtomicUsize::new(0));
    let raw: Arc<Mutex<Vec<Raw>>> = Arc::default();
    {
        let (disk, clock, plant, step, raw) = (site.disk(), site.clock(), plant.clone(), step.clone(), raw.clone());
        site.weather.on_write(move || {
            let (step, machine) = (step.load(Ordering::Relaxed), plant.standing());
            raw.lock().unwrap().push(Raw { step, at: clock.now(), disk: disk.copy().unwrap(), machine });
        });
    }
    let server = plant.serve(site);
    lives::go_on(life, 0, site, PAUSE, |number| step.store(number, Ordering::Relaxed)).await.unwrap();
    server.kill();
    let raw = std::mem::take(&mut *raw.lock().unwrap());
    let mut recorded = Recorded { objects: Vec::new(), moments: Vec::new(), end: plant.standing() };
    for Raw { step, at, disk, machine } in raw {
        let objects = objects(disk, at).await.into_iter().map(|object| {
            let known = recorded.objects.iter().position(|known| *known == object);
            known.unwrap_or_else(|| {
                recorded.objects.push(object);
                recorded.objects.len() - 1
            })
        });
        let objects: Vec<usize> = objects.collect();
        if recorded.moments.last().is_none_or(|last| last.objects != objects) {
            recorded.moments.push(Moment { step, at, objects, machine });
        }
    }
    recorded
}

/// The objects of our groups, and Secrets; hosts first, which own others.
async fn objects(disk: Disk, at: Timestamp) -> Vec<Value> {
    let setup = Setup { disk, clock: Arc::new(ExecutorClock::starting_at(at)), seed: 0, reviewers: vec![] };
    let server = InProcess::start(setup).await.unwrap();
    let client = Client::new(server.caller(Identity::administrator()), "default");
    let mut found = Vec::new();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut definitions = definitions.list(&ListParams::default()).await.unwrap().items;
    definitions.sort_by_key(|definition| definition.spec.names.kind != "BareMetalHost");
    for definition in definitions {
        let (spec, version) = (&definition.spec, definition.spec.versions[0].name.clone());
        let resource = ApiResource {
            api_version: format!("{}/{version}", spec.group),
            group: spec.group.clone(),
            kind: spec.names.kind.clone(),
            plural: spec.names.plural.clone(),
            version,
        };
        let all: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        for object in all.list(&ListParams::default()).await.unwrap().items {
            let mut object = serde_json::to_value(&object).unwrap();
            object["apiVersion"] = json!(resource.api_version);
            object["kind"] = json!(resource.kind);
            found.push(object);
        }
    }
    let secrets: Api<Secret> = Api::all(client);
    for secret in secrets.list(&ListParams::default()).await.unwrap().items {
        if secret.type_.as_deref() != Some("kubernetes.io/service-account-token") && !secret.name_any().is_empty() {
            found.push(serde_json::to_value(&secret).unwrap());
        }
    }
    for object in &mut found {
        // The version is the store's.
        object["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    }
    found
}
