//! The objects of one host, in a namespace of its own, as a client of the API sees them.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use futures::StreamExt as _;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use crate::target::Target;

/// The host's name.
pub const HOST: &str = "host";

/// What stands beside a host: path of the collection and kind.
const KINDS: [(&str, &str); 9] = [
    ("apis/metal3.io/v1alpha1", "BareMetalHost"),
    ("apis/metal3.io/v1alpha1", "HardwareData"),
    ("apis/metal3.io/v1alpha1", "HostFirmwareSettings"),
    ("apis/metal3.io/v1alpha1", "FirmwareSchema"),
    ("apis/metal3.io/v1alpha1", "HostFirmwareComponents"),
    ("apis/metal3.io/v1alpha1", "HostUpdatePolicy"),
    ("apis/metal3.io/v1alpha1", "DataImage"),
    ("apis/metal3.io/v1alpha1", "PreprovisioningImage"),
    ("api/v1", "Secret"),
];

/// What a server's own keys, and the service accounts of a cluster, are called in a namespace: they are nobody's host's.
const NOT_OF_HOSTS: &str = "metamorph-";

/// A host's namespace.
pub struct Site<'a> {
    target: &'a Target,
    /// Its name.
    pub namespace: String,
}

/// How long a server may put clients off.
const SETTLES: Duration = Duration::from_secs(60);

/// The path of a kind's objects.
fn plural(kind: &str) -> String {
    let lower = kind.to_lowercase();
    match kind {
        "HardwareData" | "HostFirmwareSettings" | "HostFirmwareComponents" => lower,
        "HostUpdatePolicy" => "hostupdatepolicies".to_owned(),
        _ => format!("{lower}s"),
    }
}

impl<'a> Site<'a> {
    /// Makes the namespace.
    pub async fn new(target: &'a Target, namespace: String) -> Result<Self> {
        let site = Self { target, namespace };
        let body = json!({"metadata": {"name": site.namespace}});
        site.call(Method::POST, "/api/v1/namespaces", Some(&body), &[201]).await?;
        Ok(site)
    }

    async fn call(&self, method: Method, path: &str, body: Option<&Value>, fine: &[u16]) -> Result<Value> {
        let what = format!("{method} {path}");
        let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let until = Instant::now() + SETTLES;
        let (status, text) = loop {
            let mut request = self.target.client.request(method.clone(), format!("{}{path}", self.target.base));
            request = request.bearer_auth(&self.target.token).timeout(Duration::from_secs(45));
            if let Some(body) = body {
                request = request.header("content-type", kind).body(body.to_string());
            }
            let response = request.send().await.with_context(|| what.clone())?;
            let status = response.status().as_u16();
            // kube-apiserver puts clients off while it prepares to serve a kind that was defined a moment ago.
            if status == 429 && Instant::now() < until {
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
            break (status, response.text().await.with_context(|| what.clone())?);
        };
        ensure!(fine.contains(&status), "{what}: {status} {text}");
        Ok(serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    fn path(&self, group: &str, kind: &str) -> String {
        format!("/{group}/namespaces/{}/{}", self.namespace, plural(kind))
    }

    fn hosts(&self) -> String {
        self.path("apis/metal3.io/v1alpha1", "BareMetalHost")
    }

    /// Creates an object.
    pub async fn create(&self, object: &Value) -> Result<()> {
        let kind = object["kind"].as_str().unwrap_or_default();
        let group = KINDS.iter().find(|(_, known)| *known == kind).context("a kind beside hosts")?.0;
        self.call(Method::POST, &self.path(group, kind), Some(object), &[201]).await.map(drop)
    }

    /// Changes the host by a merge patch.
    pub async fn change(&self, change: &Value) -> Result<()> {
        self.call(Method::PATCH, &format!("{}/{HOST}", self.hosts()), Some(change), &[200]).await.map(drop)
    }

    /// Deletes the host.
    pub async fn delete(&self) -> Result<()> {
        self.call(Method::DELETE, &format!("{}/{HOST}", self.hosts()), None, &[200]).await.map(drop)
    }

    /// All that stands beside the host, and the host.
    pub async fn objects(&self) -> Result<Vec<Value>> {
        let mut found = Vec::new();
        for (group, kind) in KINDS {
            // What is not defined has no objects.
            let listed = self.call(Method::GET, &self.path(group, kind), None, &[200, 404]).await?;
            for object in listed["items"].as_array().cloned().unwrap_or_default() {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                if name.starts_with(NOT_OF_HOSTS) {
                    continue;
                }
                let Value::Object(mut object) = object else { continue };
                let version = group.trim_start_matches("apis/").trim_start_matches("api/");
                object.insert("apiVersion".to_owned(), json!(version));
                object.insert("kind".to_owned(), json!(kind));
                let mut object = Value::Object(object);
                if let Some(metadata) = object["metadata"].as_object_mut() {
                    metadata.remove("managedFields");
                }
                found.push(object);
            }
        }
        Ok(found)
    }

    /// Tells each state of the host to `look`, from what is there now on, until that says that it is enough; whether it did.
    async fn watch(&self, until: Instant, mut look: impl FnMut(Option<&Value>) -> bool) -> Result<bool> {
        loop {
            let listed = self.call(Method::GET, &self.hosts(), None, &[200]).await?;
            if look(listed["items"].get(0)) {
                return Ok(true);
            }
            let version = listed["metadata"]["resourceVersion"].as_str().unwrap_or_default();
            let path = format!("{}?watch=true&resourceVersion={version}", self.hosts());
            let request = self.target.client.get(format!("{}{path}", self.target.base)).bearer_auth(&self.target.token);
            let mut body = request.send().await?.bytes_stream();
            let mut line = Vec::new();
            // A watch that ends is begun anew, with what is there then.
            loop {
                let Ok(piece) = timeout_at(until, body.next()).await else { return Ok(false) };
                let Some(Ok(piece)) = piece else { break };
                for byte in piece {
                    if byte != b'\n' {
                        line.push(byte);
                        continue;
                    }
                    let event: Value = serde_json::from_slice(&std::mem::take(&mut line))?;
                    let enough = match event["type"].as_str() {
                        Some("ADDED" | "MODIFIED") => look(Some(&event["object"])),
                        Some("DELETED") => look(None),
                        _ => false,
                    };
                    if enough {
                        return Ok(true);
                    }
                }
            }
            if Instant::now() >= until {
                return Ok(false);
            }
        }
    }

    /// Waits until the host has these values at these pointers.
    pub async fn until(&self, wanted: &[(&str, Value)], longest: Duration) -> Result<()> {
        let mut last = Value::Null;
        let is = |host: Option<&Value>| {
            last = host.map_or(Value::Null, |host| host["status"].clone());
            host.is_some_and(|host| wanted.iter().all(|(at, value)| host.pointer(at) == Some(value)))
        };
        if !self.watch(Instant::now() + longest, is).await? {
            bail!("the host is not {wanted:?} after {} s: {last}", longest.as_secs());
        }
        Ok(())
    }

    /// Waits until the host is in this state (`None`: gone), and for `rest` after that; the states that it was in meanwhile, and whether it was there at the
    /// end.
    pub async fn comes_to(
        &self,
        state: Option<&str>,
        longest: Duration,
        rest: Duration,
    ) -> Result<(Vec<String>, bool)> {
        let (mut seen, mut is_there): (Vec<String>, bool) = (Vec::new(), false);
        let mut look = |host: Option<&Value>| {
            let now = standing(host);
            is_there = now.split(" (").next() == Some(state.unwrap_or("gone"));
            if seen.last() != Some(&now) {
                seen.push(now);
            }
            is_there
        };
        if self.watch(Instant::now() + longest, &mut look).await? {
            let mut look = |host: Option<&Value>| {
                look(host);
                false
            };
            self.watch(Instant::now() + rest, &mut look).await?;
        }
        Ok((seen, is_there))
    }
}

/// A host's state, and its trouble if it has any.
fn standing(host: Option<&Value>) -> String {
    let Some(host) = host else { return "gone".to_owned() };
    let text = |at: &str| host.pointer(at).and_then(Value::as_str).unwrap_or_default();
    let (state, status) = (text("/status/provisioning/state"), text("/status/operationalStatus"));
    match (text("/status/errorType"), status) {
        ("", "" | "OK" | "discovered") => state.to_owned(),
        ("", status) => format!("{state} ({status})"),
        (error, _) => format!("{state} ({error})"),
    }
}
