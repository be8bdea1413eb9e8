//! Schemas and admission on a server as clients meet them: the definitions that it serves are upstream's, and `metamorph operator` beside it refuses and
//! admits what upstream's webhook does, row by row of the tables that host-lifecycle is tested with (`crates/logic/host-lifecycle/tests/data`).
//!
//! Rows are dry runs, so that none is in the way of another. What a row changes or deletes, and the hosts that it counts on, are stored before the
//! operator begins; they are paused, and stay as they are.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use futures::StreamExt as _;
use reqwest::Method;
use serde_json::{Map, Value, json};

use super::programs::Programs;
use crate::target::Target;

/// Rows that are asked at once.
const AT_ONCE: usize = 8;
/// Longest wait until the server asks the webhook.
const ASKED_WITHIN: Duration = Duration::from_secs(60);
/// How a refusal by a webhook begins (apiserver `webhook/errors`).
const BY_WEBHOOK: &str = "admission webhook ";
/// The namespace that objects of the tables are in.
const OWN: &str = "metal";
/// The group of upstream's kinds.
const GROUP: &str = "metal3.io";
/// The namespace of rows that need nothing stored.
const SHARED: &str = "rules";
/// Keeps controllers away from an object (baremetal-operator `PausedAnnotation`).
const PAUSED: &str = "baremetalhost.metal3.io/paused";
/// Most wrong rows that are told.
const TOLD: usize = 20;

/// A row of a table.
struct Row {
    kind: String,
    name: String,
    new: Option<Value>,
    old: Option<Value>,
    hosts: Vec<Value>,
    denied: bool,
    /// Where its objects are.
    namespace: String,
}

/// How a server has answered a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answered {
    /// It is admitted.
    Admitted,
    /// The webhook refuses it.
    Webhook,
    /// The server's own validation does, by the schema or the rules for all objects: no webhook is asked.
    Server,
    /// What it would change cannot be stored at all.
    Impossible,
}

fn table(file: &str) -> Result<Vec<Value>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/logic/host-lifecycle/tests/data");
    let text = std::fs::read_to_string(folder.join(file)).with_context(|| format!("read {file}"))?;
    Ok(serde_json::from_str(&text)?)
}

/// Each namespace that it names is another one in each row; the tables' own is `own`.
fn remap(value: &mut Value, row: usize, own: &str) {
    match value {
        Value::Object(fields) => {
            for (key, field) in fields.iter_mut() {
                match field {
                    Value::String(name) if key == "namespace" && name == OWN => own.clone_into(name),
                    Value::String(name) if key == "namespace" && !name.is_empty() => *name = format!("r{row}-{name}"),
                    field => remap(field, row, own),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| remap(item, row, own)),
        _ => {}
    }
}

/// The object with its type, a name and a namespace.
fn object(mut object: Value, kind: &str, namespace: &str) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.insert("apiVersion".to_owned(), json!("metal3.io/v1alpha1"));
        fields.insert("kind".to_owned(), json!(kind));
        let metadata = fields.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.entry("name").or_insert_with(|| json!("worker-0"));
            metadata.entry("namespace").or_insert_with(|| json!(namespace));
        }
    }
    object
}

fn pause(object: &mut Value) {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        let annotations = metadata.entry("annotations").or_insert_with(|| Value::Object(Map::new()));
        annotations[PAUSED] = json!("");
    }
}

/// All rows of both tables that a server can be asked.
fn rows() -> Result<Vec<Row>> {
    let tables = [(Some("BareMetalHost"), table("admission.json")?), (None, table("beside.json")?)];
    let cases = tables.into_iter().flat_map(|(kind, cases)| cases.into_iter().map(move |case| (kind, case)));
    let mut rows = Vec::new();
    for (number, (kind, mut case)) in cases.enumerate() {
        // That the hosts cannot be listed is no state of a server that answers.
        if case.get("hosts").is_some_and(|hosts| !hosts.is_array()) {
            continue;
        }
        let stores = case.get("old").is_some() || case.get("hosts").is_some();
        let kind = kind.or(case["kind"].as_str()).context("a row has a kind")?.to_owned();
        let namespace = if stores { format!("r{number}-{OWN}") } else { SHARED.to_owned() };
        for field in ["new", "old", "hosts"] {
            if let Some(value) = case.get_mut(field) {
                remap(value, number, &namespace);
            }
        }
        let is_host = kind == "BareMetalHost";
        let taken = |field: &str| {
            let mut value = object(case.get(field)?.clone(), &kind, &namespace);
            // A host that was stored paused stays so: it is not what the row is about.
            if stores && is_host {
                pause(&mut value);
            }
            Some(value)
        };
        let hosts = case.get("hosts").and_then(Value::as_array).cloned().unwrap_or_default();
        let hosts = hosts.into_iter().map(|host| {
            let mut host = object(host, "BareMetalHost", &namespace);
            pause(&mut host);
            host
        });
        rows.push(Row {
            name: format!("{kind} {}", case["name"].as_str().unwrap_or_default()),
            new: taken("new"),
            old: taken("old"),
            hosts: hosts.collect(),
            denied: case["denied"].as_bool().context("a row says whether it is denied")?,
            namespace,
            kind,
        });
    }
    Ok(rows)
}

/// A server that is asked.
struct Asked<'a>(&'a Target);

impl Asked<'_> {
    async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<(u16, Value)> {
        let what = format!("{method} {path}");
        let until = Instant::now() + ASKED_WITHIN;
        loop {
            let mut request = self.0.client.request(method.clone(), format!("{}{path}", self.0.base));
            request = request.bearer_auth(&self.0.token).timeout(Duration::from_secs(45));
            if let Some(body) = body {
                request = request.header("content-type", "application/json").body(body.to_string());
            }
            let response = request.send().await.with_context(|| what.clone())?;
            let status = response.status().as_u16();
            // kube-apiserver puts clients off while it prepares to serve a kind that was defined a moment ago.
            if status == 429 && Instant::now() < until {
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
            let text = response.text().await.with_context(|| what.clone())?;
            return Ok((status, serde_json::from_str(&text).unwrap_or(Value::Null)));
        }
    }

    /// Where objects like this one are.
    fn collection(object: &Value) -> Result<String> {
        let kind = object["kind"].as_str().unwrap_or_default().to_lowercase();
        let plural = if kind.ends_with("components") { kind } else { format!("{kind}s") };
        let namespace = object["metadata"]["namespace"].as_str().context("it has a namespace")?;
        Ok(format!("/apis/metal3.io/v1alpha1/namespaces/{namespace}/{plural}"))
    }

    fn place(object: &Value) -> Result<String> {
        let name = object["metadata"]["name"].as_str().context("it has a name")?;
        // Names of rows may have any character.
        let name: String = name.bytes().map(|byte| format!("%{byte:02X}")).collect();
        Ok(format!("{}/{name}", Self::collection(object)?))
    }

    /// Stores an object with its status; `None` if the server cannot have such a one.
    async fn store(&self, object: &Value) -> Result<Option<()>> {
        let namespace = json!({"metadata": {"name": object["metadata"]["namespace"]}});
        let (status, answer) = self.call(Method::POST, "/api/v1/namespaces", Some(&namespace)).await?;
        ensure!([201, 409].contains(&status), "make the namespace: {status} {answer}");
        let (status, stored) = self.call(Method::POST, &Self::collection(object)?, Some(object)).await?;
        if status == 422 {
            return Ok(None);
        }
        ensure!(status == 201, "store {object}: {status} {stored}");
        let Some(wished) = object.get("status") else { return Ok(Some(())) };
        let mut with_status = stored;
        with_status["status"] = wished.clone();
        let (status, answer) =
            self.call(Method::PUT, &format!("{}/status", Self::place(object)?), Some(&with_status)).await?;
        ensure!(status == 200, "store the status of {object}: {status} {answer}");
        Ok(Some(()))
    }

    async fn ask(&self, row: &Row) -> Result<Answered> {
        let (status, answer) = match (&row.new, &row.old) {
            (Some(new), None) => {
                self.call(Method::POST, &format!("{}?dryRun=All", Self::collection(new)?), Some(new)).await?
            }
            (Some(new), Some(_)) => {
                let mut new = new.clone();
                let (status, stored) = self.call(Method::GET, &Self::place(&new)?, None).await?;
                ensure!(status == 200, "{}: read what is changed: {status} {stored}", row.name);
                new["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"].clone();
                self.call(Method::PUT, &format!("{}?dryRun=All", Self::place(&new)?), Some(&new)).await?
            }
            (None, Some(old)) => self.call(Method::DELETE, &format!("{}?dryRun=All", Self::place(old)?), None).await?,
            (None, None) => bail!("{}: nothing to ask", row.name),
        };
        let message = answer["message"].as_str().unwrap_or_default();
        Ok(match status {
            200 | 201 => Answered::Admitted,
            _ if message.starts_with(BY_WEBHOOK) => Answered::Webhook,
            400 | 403 | 422 => Answered::Server,
            _ => bail!("{}: {status} {message}", row.name),
        })
    }
}

/// Upstream's definitions whose schemas the server serves in another form than upstream's.
async fn changed_schemas(asked: &Asked<'_>, programs: &Programs) -> Result<Vec<String>> {
    let mut changed = Vec::new();
    let given: Vec<Value> =
        programs.definitions().await?.into_iter().filter(|definition| definition["spec"]["group"] == GROUP).collect();
    // Thirteen are of baremetal-operator, one of hardware-classification-controller.
    ensure!(given.len() == 14, "{} kinds, and upstream has 14", given.len());
    for definition in &given {
        let name = definition["metadata"]["name"].as_str().context("a definition has a name")?;
        let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
        let (status, served) = asked.call(Method::GET, &path, None).await?;
        ensure!(status == 200, "read {name}: {status}");
        let schemas = |definition: &Value| -> Vec<Value> {
            let versions = definition["spec"]["versions"].as_array().cloned().unwrap_or_default();
            let shown = ["name", "schema", "subresources", "additionalPrinterColumns", "served", "storage"];
            versions.iter().map(|version| shown.iter().map(|key| version[*key].clone()).collect()).collect()
        };
        if schemas(definition) != schemas(&served) {
            changed.push(name.to_owned());
        }
    }
    println!(
        "{}: {} of {} definitions are served as upstream has them",
        asked.0.name,
        given.len() - changed.len(),
        given.len()
    );
    Ok(changed)
}

/// Asks one server; how each row was answered, by its name, and whether all was as upstream has it.
///
/// # Errors
/// When a server or a program does not start, or an answer is none of those that rows have.
pub async fn rules(target: &Target, programs: &Programs) -> Result<(BTreeMap<String, Answered>, bool)> {
    let began = Instant::now();
    programs.define(target).await?;
    let asked = Asked(target);
    let changed = changed_schemas(&asked, programs).await?;
    changed.iter().for_each(|name| println!("    {} is not served as upstream has it", name));
    let rows = rows()?;
    let (status, answer) =
        asked.call(Method::POST, "/api/v1/namespaces", Some(&json!({"metadata": {"name": SHARED}}))).await?;
    ensure!(status == 201, "make a namespace: {status} {answer}");
    let mut impossible = std::collections::BTreeSet::new();
    for row in &rows {
        for object in row.hosts.iter().chain(&row.old) {
            if asked.store(object).await?.is_none() {
                impossible.insert(row.name.clone());
            }
        }
    }
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let operator = programs.with_webhook(target, port)?;
    let answers = ask_all(&asked, &rows, &impossible).await;
    let told = operator.stop().await?;
    let answers = answers.with_context(|| told)?;
    let mut wrong = Vec::new();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for row in &rows {
        let Some(answered) = answers.get(&key(row)) else { continue };
        *counts.entry(format!("{answered:?}")).or_default() += 1;
        // What the server itself refuses is refused; what upstream's webhook admits is refused by nobody but the server.
        let is_as_upstream = match answered {
            Answered::Admitted => !row.denied,
            Answered::Webhook => row.denied,
            Answered::Server | Answered::Impossible => true,
        };
        if !is_as_upstream {
            wrong.push(format!("{}: {answered:?}, and denied by upstream is {}", row.name, row.denied));
        }
    }
    wrong.iter().take(TOLD).for_each(|line| println!("    {line}"));
    println!(
        "{}: {} of {} rows are answered as upstream's webhook answers: {counts:?}, {:.0} s",
        target.name,
        rows.len() - wrong.len(),
        rows.len(),
        began.elapsed().as_secs_f64()
    );
    Ok((answers, wrong.is_empty() && changed.is_empty()))
}

/// Rows of one name differ in their namespaces, or are asked alike.
fn key(row: &Row) -> String {
    format!("{} {} {}", row.name, row.namespace, row.new.as_ref().map(ToString::to_string).unwrap_or_default())
}

async fn ask_all(
    asked: &Asked<'_>,
    rows: &[Row],
    impossible: &std::collections::BTreeSet<String>,
) -> Result<BTreeMap<String, Answered>> {
    // Servers take a moment to know of a webhook.
    let first = rows.iter().find(|row| row.denied && row.old.is_none()).context("a row that is refused")?;
    let until = Instant::now() + ASKED_WITHIN;
    while asked.ask(first).await? != Answered::Webhook {
        ensure!(Instant::now() < until, "the webhook is not asked: {}", first.name);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    for kind in ["DataImage", "HostFirmwareComponents", "BMCEventSubscription", "HostClaim", "HostNetworkAttachment"] {
        ensure!(rows.iter().any(|row| row.kind == kind), "there is no row for {kind}");
    }
    let answers = futures::stream::iter(rows).map(|row| async move {
        let is_impossible = impossible.contains(&row.name);
        let answered = if is_impossible { Answered::Impossible } else { asked.ask(row).await? };
        Ok::<_, anyhow::Error>((key(row), answered))
    });
    let answers: Vec<Result<_>> = answers.buffer_unordered(AT_ONCE).collect().await;
    answers.into_iter().collect()
}
