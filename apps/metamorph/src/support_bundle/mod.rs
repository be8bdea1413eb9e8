//! `support-bundle`: what is known of a site or of one host, in one file for whoever helps.
//!
//! All of it is read from the Kubernetes API by the person's own rights, and the server's metrics where an address is given; no machine is called. What a right is
//! missing for, what is too large and what is cut is said in `manifest.json`, which is the last file in it. Bodies of Secrets are never read: the API is asked
//! for a table of them, in which these are not. Everything is redacted ([`redact`]) before it is written, and the file is its owner's alone ([`archive`]).

mod archive;
mod collect;
mod redact;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout_at};
use url::Url;

use crate::api_reader::Reader;
use crate::report_args::SupportBundle;
use crate::{client, host_causes, host_explain, say};
use archive::{Archive, Full};

/// Longest time that collecting takes.
const LONGEST: Duration = Duration::from_secs(900);
/// Most lines of what was left out that the manifest has; further ones are counted.
const MOST_LEFT_OUT: usize = 500;
/// Most of them of one sort, so that no part fills the lines of all.
const MOST_OF_A_SORT: usize = 20;
/// Longest time that what goes before the objects takes, each.
const SHARE: Duration = Duration::from_secs(150);
/// Longest such line, characters.
const MAX_LINE: usize = 400;

/// What is looked for.
pub struct Scope {
    /// Of this namespace; all if `None`.
    pub namespace: Option<String>,
    /// Of this host alone.
    pub host: Option<String>,
    /// Namespace of the server's own objects.
    pub own_namespace: String,
}

/// The bundle under way: the file, and what its manifest will say.
pub struct Bundle {
    archive: Archive,
    parts: Vec<Value>,
    left_out: Vec<Value>,
    more_left_out: usize,
    /// Of what was left out, how much of each sort.
    sorts: BTreeMap<String, usize>,
    /// A file had no room.
    full: bool,
    files: usize,
    deadline: Instant,
}

impl Bundle {
    /// A bundle in this file.
    fn create(path: &Path, now: Timestamp, seconds: u64) -> anyhow::Result<Self> {
        let folder = format!("metamorph-support-{}", now.strftime("%Y%m%dT%H%M%SZ"));
        Ok(Self {
            archive: Archive::create(path, &folder, seconds)?,
            parts: Vec::new(),
            left_out: Vec::new(),
            more_left_out: 0,
            sorts: BTreeMap::new(),
            full: false,
            files: 0,
            deadline: Instant::now() + LONGEST,
        })
    }

    /// Adds a file; what has no room is noted. True: it is in.
    pub fn add(&mut self, name: &str, content: &[u8]) -> anyhow::Result<bool> {
        let added = self.archive.add(name, content).context("write the bundle")?;
        self.noted(name, added)
    }

    /// Adds one of the last files, for which room is kept.
    pub fn add_last(&mut self, name: &str, content: &[u8]) -> anyhow::Result<bool> {
        let added = self.archive.add_last(name, content).context("write the bundle")?;
        self.noted(name, added)
    }

    fn noted(&mut self, name: &str, added: Result<(), Full>) -> anyhow::Result<bool> {
        match added {
            Ok(()) => self.files += 1,
            Err(full) => {
                self.full |= full == Full::Whole;
                self.left_out(name, &full.to_string());
            }
        }
        Ok(added.is_ok())
    }

    /// Adds a value, redacted.
    pub fn add_value(&mut self, name: &str, value: &mut Value) -> anyhow::Result<bool> {
        redact::object(value);
        let mut text = serde_json::to_vec_pretty(value).context("write JSON")?;
        text.push(b'\n');
        self.add(name, &text)
    }

    /// Adds lines, redacted.
    pub fn add_text(&mut self, name: &str, text: &str) -> anyhow::Result<()> {
        self.add(name, redact::text(text).as_bytes())?;
        Ok(())
    }

    /// Notes that a part has been read, and how many objects or lines of it are in.
    pub fn part(&mut self, what: &str, number: usize) {
        self.parts.push(json!({ "what": what, "number": number }));
    }

    /// Notes that something is not in.
    pub fn left_out(&mut self, what: &str, why: &str) {
        let number = self.sorts.entry(sort(what)).or_default();
        *number += 1;
        if *number <= MOST_OF_A_SORT && self.left_out.len() < MOST_LEFT_OUT {
            self.left_out.push(json!({ "what": terms::clean(what, MAX_LINE), "why": terms::clean(why, MAX_LINE) }));
        } else {
            self.more_left_out += 1;
        }
    }

    /// Whether there is time for more.
    pub fn has_time(&self) -> bool {
        Instant::now() < self.deadline
    }

    /// Why no further object is taken.
    pub fn over(&self) -> Option<&'static str> {
        if self.full { Some("the bundle is full") } else { (!self.has_time()).then_some(collect::LATE) }
    }

    /// The end of the time for a part.
    fn share(&self) -> Instant {
        self.deadline.min(Instant::now() + SHARE)
    }

    /// Notes a part that took longer than it may.
    fn ended(&mut self, what: &str, read: Result<anyhow::Result<()>, Elapsed>) -> anyhow::Result<()> {
        read.unwrap_or_else(|_| {
            self.left_out(what, collect::LATE);
            Ok(())
        })
    }

    fn manifest(&self, scope: &Scope, now: Timestamp) -> Value {
        json!({
            "madeBy": format!("metamorph {}", env!("CARGO_PKG_VERSION")),
            "time": now.to_string(),
            "namespace": scope.namespace, "host": scope.host, "ownNamespace": scope.own_namespace,
            "files": self.files,
            "parts": self.parts,
            "leftOut": self.left_out,
            "furtherLeftOut": self.more_left_out,
            "leftOutBySort": self.sorts,
            "neverIn": ["bodies of Secrets", "metadata.managedFields", "the annotation kubectl.kubernetes.io/last-applied-configuration", "environment variables of containers"],
            "redacted": "values of keys that name passwords, tokens and other secrets; user, password and query of addresses; long runs of letters and digits",
        })
    }
}

/// The sort of what is left out: its kind, or its first word.
fn sort(what: &str) -> String {
    let mut parts = what.split(['/', ' ']);
    let first = parts.next().unwrap_or_default();
    let sort = if first == "objects" { parts.nth(1).unwrap_or(first) } else { first };
    terms::clean(sort, 100)
}

/// Makes it.
pub async fn run(options: SupportBundle) -> anyhow::Result<()> {
    let client = client::connect(options.kubeconfig.as_deref()).await?;
    let namespace = match (&options.namespace, &options.host) {
        (None, Some(_)) => Some(client.default_namespace().to_owned()),
        (namespace, _) => namespace.clone(),
    };
    let scope = Scope { namespace, host: options.host.clone(), own_namespace: options.own_namespace.clone() };
    make(&client, &scope, options.metrics_url.as_ref(), &options.out).await
}

async fn make(client: &Client, scope: &Scope, metrics_url: Option<&Url>, out: &Path) -> anyhow::Result<()> {
    let reader = Reader::new(client.clone());
    // Nothing is made where nothing can be read.
    let mut version = match reader.object("/version").await {
        Ok(version) => version,
        Err(why) => bail!("the Kubernetes API does not answer: {why}"),
    };
    let now = Timestamp::now();
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |passed| passed.as_secs());
    let mut bundle = Bundle::create(out, now, seconds)?;
    bundle.add_value("kubernetes-version.json", &mut version)?;
    // What helps most goes before the objects, which may fill the bundle and take all of the time.
    say::note("reading the server's pods, logs, definitions and Leases");
    let read = timeout_at(bundle.share(), collect::site(&mut bundle, &reader, scope)).await;
    bundle.ended("the server's pods, logs, definitions and Leases, or some of them", read)?;
    if let Some(url) = metrics_url {
        collect::metrics(&mut bundle, url).await?;
    }
    say::note("reading the events");
    let until = bundle.share();
    let late = until + Duration::from_secs(15);
    let read = timeout_at(late, collect::events(&mut bundle, &reader, scope, until)).await;
    bundle.ended("events", read)?;
    say::note("looking for causes");
    let told = timeout_at(bundle.share(), host_causes::collected(client, scope.namespace.as_deref())).await;
    match told {
        Ok(Ok(text)) => bundle.add_text("causes.txt", &text)?,
        Ok(Err(error)) => bundle.left_out("causes.txt", &format!("{error:#}")),
        Err(_) => bundle.left_out("causes.txt", collect::LATE),
    }
    if let (Some(host), Some(namespace)) = (&scope.host, &scope.namespace) {
        match timeout_at(bundle.share(), host_explain::explained(client, namespace, host)).await {
            Ok(Ok((text, ticket))) => {
                bundle.add_text("explain.txt", &text)?;
                bundle.add_text("ticket.txt", &ticket)?;
            }
            Ok(Err(error)) => bundle.left_out("explain.txt", &format!("{error:#}")),
            Err(_) => bundle.left_out("explain.txt", collect::LATE),
        }
    }
    say::note("reading the objects");
    // A page that is asked for at the end has its time.
    let late = bundle.deadline + Duration::from_secs(15);
    let read = timeout_at(late, collect::all(&mut bundle, &reader, scope)).await;
    bundle.ended("the rest of the objects", read)?;
    finish(bundle, scope, now, out)
}

fn finish(mut bundle: Bundle, scope: &Scope, now: Timestamp, out: &Path) -> anyhow::Result<()> {
    let text = serde_json::to_vec_pretty(&bundle.manifest(scope, now)).context("write JSON")?;
    if let Err(full) = bundle.archive.add_last("manifest.json", &text).context("write the bundle")? {
        bail!("the manifest is not in: {full}");
    }
    let (files, left) = (bundle.files, bundle.left_out.len() + bundle.more_left_out);
    let told: Vec<String> = bundle
        .left_out
        .iter()
        .take(10)
        .map(|one| format!("  not in: {}: {}", one["what"].as_str().unwrap_or(""), one["why"].as_str().unwrap_or("")))
        .collect();
    let bytes = bundle.archive.finish()?;
    say::out(&format!("{}: {files} files, {bytes} bytes\n", out.display()))?;
    told.iter().for_each(|line| say::note(line));
    if left > told.len() {
        say::note(&format!("  and {} more, which manifest.json names", left - told.len()));
    }
    say::note(&format!(
        "It is redacted, and yours alone to read. Look into it before you send it: tar -tzf {}",
        out.display()
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use api::metal3::BareMetalHost;
    use apiserver::Identity;
    use k8s_openapi::api::core::v1::Secret;
    use kube::api::{Api, PostParams};

    use super::*;
    use crate::server;

    fn read(path: &Path, arguments: &str) -> String {
        let read = Command::new("tar").arg(arguments).arg(path).output().unwrap();
        assert!(read.status.success());
        String::from_utf8(read.stdout).unwrap()
    }

    #[test]
    fn no_part_fills_the_manifest_alone() {
        let folder = tempfile::tempdir().unwrap();
        let mut bundle = Bundle::create(&folder.path().join("b.tar.gz"), Timestamp::UNIX_EPOCH, 0).unwrap();
        for number in 0..600 {
            bundle.left_out(&format!("objects/n{number}/baremetalhosts/h.json"), "the bundle is full");
            bundle.left_out(&format!("Secrets of the namespace n{number}"), "it is not there");
        }
        bundle.left_out("logs/server.txt", "it is not there");
        assert_eq!((bundle.left_out.len(), bundle.more_left_out), (41, 1160));
        assert_eq!(bundle.sorts["baremetalhosts"], 600);
        assert_eq!(bundle.left_out[40]["what"], "logs/server.txt");
        assert_eq!(bundle.over(), None);
        bundle.noted("x", Err(Full::Whole)).unwrap();
        assert_eq!(bundle.over(), Some("the bundle is full"));
    }

    #[tokio::test]
    async fn a_bundle_has_the_objects_and_no_secret_and_says_what_a_right_is_missing_for() {
        let folder = tempfile::tempdir().unwrap();
        let server = server::open_api(folder.path()).await.unwrap();
        for definition in ::api::crds::all().unwrap() {
            server.apply_crd_yaml(&definition).await.unwrap();
        }
        let client = client::of_served(&server);
        let secret: Secret = serde_json::from_value(json!({
            "metadata": { "name": "node-0-bmc" }, "stringData": { "username": "admin", "password": "hunter2" },
        }))
        .unwrap();
        Api::<Secret>::default_namespaced(client.clone()).create(&PostParams::default(), &secret).await.unwrap();
        for name in ["node-0", "node-1"] {
            let host: BareMetalHost = serde_json::from_value(json!({
                "metadata": { "name": name, "annotations": { "acme.example/token": "hunter3" } },
                "spec": { "online": true, "bmc": { "address": "redfish://192.0.2.7/redfish/v1/Systems/1", "credentialsName": "node-0-bmc" } },
            }))
            .unwrap();
            Api::default_namespaced(client.clone()).create(&PostParams::default(), &host).await.unwrap();
        }
        let scope = |host: Option<&str>| Scope {
            namespace: Some("default".to_owned()),
            host: host.map(ToOwned::to_owned),
            own_namespace: "metamorph-system".to_owned(),
        };
        let out = folder.path().join("all.tar.gz");
        make(&client, &scope(None), None, &out).await.unwrap();
        let names = read(&out, "-tzf");
        for name in [
            "default/baremetalhosts/node-0.json",
            "baremetalhosts/node-1.json",
            "secrets.json",
            "causes.txt",
            "definitions.json",
            "manifest.json",
        ] {
            assert!(names.contains(name), "{name}: {names}");
        }
        let at = |name: &str| names.find(name).unwrap();
        assert!(at("causes.txt") < at("/objects/") && at("events.txt") < at("/objects/"), "{names}");
        let all = read(&out, "-xzOf");
        assert!(all.contains("node-0-bmc") && all.contains("\"Opaque\"") && all.contains("192.0.2.7"), "{all}");
        // Neither in plain words nor as the API keeps it.
        assert!(!all.contains("hunter") && !all.contains("aHVudGVyMg"), "{all}");
        let keys = all.split("\"keys\": [").nth(1).unwrap().split(']').next().unwrap();
        assert!(keys.contains("username") && keys.contains("password"), "{keys}");
        assert!(make(&client, &scope(None), None, &out).await.is_err(), "it is not overwritten");

        let out = folder.path().join("one.tar.gz");
        make(&client, &scope(Some("node-1")), None, &out).await.unwrap();
        let names = read(&out, "-tzf");
        assert!(
            names.contains("node-1.json") && names.contains("explain.txt") && !names.contains("node-0.json"),
            "{names}"
        );

        let out = folder.path().join("empty.tar.gz");
        let elsewhere = Scope { namespace: Some("kube-public".to_owned()), ..scope(None) };
        make(&client, &elsewhere, None, &out).await.unwrap();
        let manifest = read(&out, "-xzOf");
        for words in [
            "objects in the namespace kube-public",
            "is the name right (--namespace)?",
            "logs of the server",
            "this Kubernetes API knows no pods: the server runs elsewhere",
        ] {
            assert!(manifest.contains(words), "{words}: {manifest}");
        }

        let nobody = Client::new(server.caller(Identity::user("nobody", &[])), "default");
        let out = folder.path().join("nobody.tar.gz");
        make(&nobody, &scope(None), None, &out).await.unwrap();
        let manifest = read(&out, "-xzOf");
        for what in ["baremetalhosts.metal3.io", "events", "leases", "causes.txt"] {
            assert!(manifest.contains(what), "{what}: {manifest}");
        }
        assert!(manifest.contains("you have no right to read it") && !manifest.contains("192.0.2.7"), "{manifest}");
        server.shutdown().await;
    }
}
