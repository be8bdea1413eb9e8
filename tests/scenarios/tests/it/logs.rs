//! What is logged while hosts are worked on: each line names its host, and none has a secret.

use std::collections::BTreeSet;
use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::metal3::{BareMetalHost, ProvisioningState as State};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use scenarios::Site;
use scenarios::plant::Plant;
use serde_json::{Value, json};
use tokio::time::sleep;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

/// Longest way from one state to the next, in seconds.
const LONGEST: u32 = 4 * 3600;
const PASSWORD: &str = "s3cr3t-of-the-BMC";
const USER_DATA: &str = "s3cr3t-of-the-tenant";
/// What is said of the process, and of no host.
const OF_THE_PROCESS: [&str; 5] = [
    "what is to be looked at",
    "the BareMetalHosts are watched",
    "message=watch",
    "the definition of MachineRecords",
    "not all objects have been listed",
];

/// A line: its target, its fields, and those of the spans that it is in.
#[derive(Clone, Debug, Default)]
struct Line {
    target: String,
    text: String,
    namespaces: BTreeSet<String>,
    names: BTreeSet<String>,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let value = format!("{value:?}");
        let _ = write!(self.text, " {}={value}", field.name());
        let plain = value.trim_matches('"').to_owned();
        match field.name() {
            "namespace" => drop(self.namespaces.insert(plain)),
            "name" | "host" => drop(self.names.insert(plain)),
            _ => {}
        }
    }
}

/// All lines of this program.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<Line>>>);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Lines {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut line = Line::default();
        attributes.record(&mut line);
        context.span(id).unwrap().extensions_mut().insert(line);
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let target = event.metadata().target();
        let ours = ["operator", "provisioner", "agent", "media", "redfish", "bmc", "host_lifecycle"];
        if !ours.iter().any(|part| target.starts_with(part)) {
            return;
        }
        let mut line = Line { target: target.to_owned(), ..Line::default() };
        event.record(&mut line);
        for span in context.event_scope(event).into_iter().flatten() {
            if let Some(outer) = span.extensions().get::<Line>() {
                line.text.push_str(&outer.text);
                line.namespaces.extend(outer.namespaces.clone());
                line.names.extend(outer.names.clone());
            }
        }
        self.0.lock().unwrap().push(line);
    }
}

async fn patch(site: &Site, change: Value) {
    site.hosts().patch("a", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
}

/// All tokens and keys in what the machine has been given, which outlive no test but this.
fn tokens(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if name.to_lowercase().contains("token") && !text.is_empty() => {
                        found.insert(text.clone());
                    }
                    other => tokens(other, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| tokens(item, found)),
        _ => {}
    }
}

#[test]
fn each_line_names_its_host_and_none_has_a_secret() {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::registry().with(lines.clone());
    let mut secrets = BTreeSet::from([PASSWORD.to_owned(), USER_DATA.to_owned()]);
    tracing::subscriber::with_default(subscriber, || {
        scenarios::run(91, async |site| {
            // Much of what is logged is of what goes wrong.
            site.weather.rough(20, Duration::from_millis(500));
            let plant = Plant::new(site.weather.clone());
            let mut server = plant.serve(&site);
            let all: Api<Secret> = Api::default_namespaced(site.observer());
            let user = json!({"metadata": {"name": "user"}, "stringData": {"userData": USER_DATA}});
            all.create(&PostParams::default(), &serde_json::from_value(user).unwrap()).await.unwrap();
            site.create_host("a").await;
            let password = json!({"stringData": {"password": PASSWORD}});
            all.patch("a-bmc", &PatchParams::default(), &Patch::Merge(password)).await.unwrap();
            site.wait("a", LONGEST, |host: &BareMetalHost| host.state() == State::Inspecting).await;
            while plant.effects().is_empty() {
                sleep(Duration::from_secs(1)).await;
            }
            site.wait("a", LONGEST, |host| host.state() == State::Available).await;
            tokens(&serde_json::to_value(plant.standing()).unwrap(), &mut secrets);
            plant.fail_writes(1);
            let image = json!({"url": "http://192.0.2.8/i", "checksum": "0".repeat(64), "checksumType": "sha256", "format": "raw"});
            patch(&site, json!({"spec": {"image": image, "userData": {"name": "user"}}})).await;
            site.wait("a", LONGEST, |host| host.state() == State::Provisioning).await;
            sleep(Duration::from_secs(60)).await;
            server.kill();
            server = plant.serve(&site);
            site.wait("a", 24 * LONGEST, |host| host.state() == State::Provisioned).await;
            tokens(&serde_json::to_value(plant.standing()).unwrap(), &mut secrets);
            sleep(Duration::from_secs(600)).await;
            patch(&site, json!({"spec": {"image": null}})).await;
            site.wait("a", LONGEST, |host| host.state() == State::Available).await;
            tokens(&serde_json::to_value(plant.standing()).unwrap(), &mut secrets);
            site.hosts().delete("a", &DeleteParams::default()).await.unwrap();
            site.gone("a", LONGEST).await;
            server.kill();
        });
    });
    let lines = lines.0.lock().unwrap().clone();
    assert!(lines.len() > 20, "{lines:#?}");
    assert!(secrets.len() > 2, "the agent's token is not known");
    for line in &lines {
        assert!(!secrets.iter().any(|secret| line.text.contains(secret.as_str())), "a secret: {line:?}");
        if OF_THE_PROCESS.iter().any(|part| line.text.contains(part)) {
            continue;
        }
        let named = line.namespaces.contains("default") && line.names.contains("a");
        assert!(named, "it does not name its host: {line:?}");
    }
    for part in ["operator", "provisioner_metamorph"] {
        assert!(lines.iter().any(|line| line.target.starts_with(part)), "{part} says nothing: {lines:#?}");
    }
}
