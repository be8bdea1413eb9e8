//! Ironic's API as far as it is used, over a [`Transport`].

use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use provisioner::Now;
use serde::de::{DeserializeOwned, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::driver::{Bmc, bmcs};
use crate::fault::Fault;
use crate::fleet::{Fleet, Gate};
use crate::node::{LISTED, Node, Port, Verb};
use crate::transport::{Method, Request, Response, Transport};
use crate::versions;

/// Nodes of one page of a list, Ironic's own most.
const PAGE: usize = 1000;
/// How old, in seconds, the list of where nodes are may be.
const PLACES: i64 = 10;
/// Most pages of a list.
const MAX_PAGES: usize = 50;

/// Where a node is.
#[derive(Clone, Debug)]
pub struct Place {
    /// Its id.
    pub uuid: String,
    /// Its name and its id.
    pub shown: String,
    /// The BMCs that its `driver_info` names.
    pub bmcs: Vec<Bmc>,
    /// Ironic has reached its BMC; before that it switches nothing.
    pub is_verified: bool,
    /// Ironic has, or is trying to.
    pub is_tried: bool,
}

/// One Ironic.
pub struct Client {
    transport: Arc<dyn Transport>,
    version: Mutex<Option<u32>>,
    fleet: Mutex<Fleet>,
    /// Held while the list is asked for, which is done once for all that wait; the last failure.
    asking: tokio::sync::Mutex<Option<Failed>>,
    places: tokio::sync::Mutex<Places>,
    gate: Mutex<Gate>,
}

type Answered<T> = Result<T, Fault>;

/// A list that did not come, and when that was known. Who had begun to wait before does not ask again: an Ironic that hangs would be asked by one after the
/// other.
#[derive(Debug)]
struct Failed {
    fault: Fault,
    at: Instant,
}

impl Failed {
    fn new(fault: Fault) -> Self {
        Self { fault, at: Instant::now() }
    }

    /// For who has waited since then.
    fn of(last: Option<&Self>, since: Instant) -> Option<Fault> {
        last.filter(|failed| failed.at > since).map(|failed| failed.fault.clone())
    }
}

/// Where all nodes were when they were last listed, and the last failure.
#[derive(Default)]
struct Places {
    known: Option<(Timestamp, Vec<Place>)>,
    failed: Option<Failed>,
}

/// A page of a list.
#[derive(Deserialize)]
#[serde(bound = "T: Deserialize<'de>")]
struct Page<T> {
    #[serde(alias = "nodes", alias = "ports", default = "Vec::new", deserialize_with = "a_page")]
    all: Vec<T>,
    #[serde(default)]
    next: Option<String>,
}

/// Reads no more than a page has: what is short as text may be large in memory.
fn a_page<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    struct Bounded<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Bounded<T> {
        type Value = Vec<T>;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "a list of at most {PAGE}")
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut found: A) -> Result<Self::Value, A::Error> {
            let mut all = Vec::new();
            while let Some(one) = found.next_element()? {
                if all.len() >= PAGE {
                    return Err(serde::de::Error::invalid_length(all.len() + 1, &self));
                }
                all.push(one);
            }
            Ok(all)
        }
    }
    deserializer.deserialize_seq(Bounded(PhantomData))
}

impl Client {
    /// An Ironic that is reached so. Nothing is asked yet.
    pub fn new(transport: Arc<dyn Transport>) -> Self {
        Self {
            transport,
            version: Mutex::default(),
            fleet: Mutex::default(),
            asking: tokio::sync::Mutex::default(),
            places: tokio::sync::Mutex::default(),
            gate: Mutex::default(),
        }
    }

    /// Where it is.
    pub fn endpoint(&self) -> String {
        self.transport.endpoint()
    }

    /// The gate of orders.
    pub fn gate<T>(&self, look: impl FnOnce(&mut Gate) -> T) -> T {
        look(&mut self.gate.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The minor number of the API version in use; asked for once, and again when Ironic does not have it any more.
    pub async fn version(&self) -> Answered<u32> {
        if let Some(known) = *self.version.lock().unwrap_or_else(PoisonError::into_inner) {
            return Ok(known);
        }
        let response =
            self.exchange(&Request { method: Method::Get, path: "/v1".into(), version: None, body: None }).await?;
        if response.status != 200 {
            return Err(Fault::answered(&self.endpoint(), response.status, &response.body));
        }
        let Some(maximum) = response.maximum else {
            let text = "it names no version of Ironic's API: is it one?".to_owned();
            return Err(Fault::Unreadable { endpoint: self.endpoint(), text });
        };
        let Some(chosen) = versions::choose(&maximum) else {
            let found = crate::fault::clean(&maximum);
            return Err(Fault::TooOld { endpoint: self.endpoint(), found, needed: versions::NEEDED });
        };
        *self.version.lock().unwrap_or_else(PoisonError::into_inner) = Some(chosen);
        tracing::info!(ironic = %self.endpoint(), newest = %maximum, "uses the API version 1.{chosen}");
        Ok(chosen)
    }

    async fn exchange(&self, request: &Request) -> Answered<Response> {
        self.transport.send(request).await.map_err(|error| Fault::of(self.endpoint(), error))
    }

    /// A request with its answer, if that is a success.
    async fn call(&self, method: Method, path: String, body: Option<Value>) -> Answered<Response> {
        let version = self.version().await?;
        let mut request = Request { method, path, version: Some(version), body };
        let mut response = self.exchange(&request).await?;
        if response.status == 406 {
            // It was replaced by another release since.
            *self.version.lock().unwrap_or_else(PoisonError::into_inner) = None;
            request.version = Some(self.version().await?);
            response = self.exchange(&request).await?;
        }
        if (200..300).contains(&response.status) {
            return Ok(response);
        }
        Err(Fault::answered(&self.endpoint(), response.status, &response.body))
    }

    fn read<T: DeserializeOwned>(&self, response: &Response) -> Answered<T> {
        serde_json::from_slice(&response.body).map_err(|error| Fault::Unreadable {
            endpoint: self.endpoint(),
            text: crate::fault::clean(&error.to_string()),
        })
    }

    async fn get<T: DeserializeOwned>(&self, path: String) -> Answered<T> {
        let response = self.call(Method::Get, path, None).await?;
        self.read(&response)
    }

    /// A node, whole, by its id or name.
    pub async fn node(&self, ident: &str) -> Answered<Node> {
        let found: Node = self.get(format!("/v1/nodes/{}", segment(ident))).await.map_err(|fault| match fault {
            // A path that it does not know is no node that it does not have.
            Fault::NotFound(text) if !text.contains(ident) => Fault::Unreadable {
                endpoint: self.endpoint(),
                text: format!("it does not say that it has no node {ident}, but: {text}"),
            },
            other => other,
        })?;
        Ok(found)
    }

    /// Has the BMC asked for something that changes nothing: whether it lets itself be asked.
    pub async fn asks_bmc(&self, uuid: &str) -> Answered<()> {
        self.call(Method::Get, format!("/v1/nodes/{}/management/boot_device", segment(uuid)), None).await.map(drop)
    }

    /// A node for a host that waits, not older than [`crate::fleet::FRESH`]: as one list for all hosts shows it, or, where no other host waits, read by itself.
    /// Hosts that ask while the list comes wait for it. Whether it was read whole, and now.
    pub async fn seen(&self, now: &Now, uuid: &str) -> Answered<(Node, bool)> {
        if let Some(node) = self.fleet(|fleet| fleet.node(now(), uuid)).flatten() {
            return Ok((node, false));
        }
        if self.fleet(|fleet| fleet.looks_alone(now(), uuid)) {
            return self.read_alone(now, uuid).await;
        }
        self.refreshed(now).await?;
        match self.fleet(|fleet| fleet.node(now(), uuid)) {
            Some(Some(node)) => Ok((node, false)),
            // A list of thousands is not one instant's: what is missing is looked for.
            Some(None) | None => self.read_alone(now, uuid).await,
        }
    }

    async fn read_alone(&self, now: &Now, uuid: &str) -> Answered<(Node, bool)> {
        let asked = now();
        let node = self.node(uuid).await?;
        self.fleet(|fleet| fleet.read(asked, now(), node.clone()));
        Ok((node, true))
    }

    /// How many other nodes Ironic boots over the network now.
    pub async fn network_boots(&self, now: &Now, beside: &str) -> Answered<usize> {
        self.refreshed(now).await?;
        Ok(self.fleet(|fleet| fleet.network_boots(beside)))
    }

    fn fleet<T>(&self, look: impl FnOnce(&mut Fleet) -> T) -> T {
        look(&mut self.fleet.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The list is fresh when this returns. Nothing that orders waits for it.
    async fn refreshed(&self, now: &Now) -> Answered<()> {
        if self.fleet(|fleet| fleet.is_fresh(now())) {
            return Ok(());
        }
        let since = Instant::now();
        let mut failed = self.asking.lock().await;
        if self.fleet(|fleet| fleet.is_fresh(now())) {
            return Ok(());
        }
        if let Some(fault) = Failed::of(failed.as_ref(), since) {
            return Err(fault);
        }
        let asked = now();
        match self.list(LISTED.join(","), true).await {
            Ok(nodes) => {
                self.fleet(|fleet| fleet.listed(asked, now(), nodes));
                Ok(())
            }
            Err(fault) => {
                *failed = Some(Failed::new(fault.clone()));
                Err(fault)
            }
        }
    }

    /// Where all nodes are, not older than some seconds.
    pub async fn places(&self, now: Timestamp) -> Answered<Vec<Place>> {
        let since = Instant::now();
        let mut places = self.places.lock().await;
        let is_young =
            |(asked, _): &&(Timestamp, Vec<Place>)| (0..PLACES).contains(&now.duration_since(*asked).as_secs());
        if let Some((_, known)) = places.known.as_ref().filter(is_young) {
            return Ok(known.clone());
        }
        if let Some(fault) = Failed::of(places.failed.as_ref(), since) {
            return Err(fault);
        }
        match self.all_places().await {
            Ok(found) => {
                places.known = Some((now, found.clone()));
                Ok(found)
            }
            Err(fault) => {
                places.failed = Some(Failed::new(fault.clone()));
                Err(fault)
            }
        }
    }

    /// Where all nodes are now.
    pub async fn all_places(&self) -> Answered<Vec<Place>> {
        let nodes = self.list("uuid,name,driver_info,provision_state".to_owned(), false).await?;
        let place = |node: Node| Place {
            shown: node.shown(),
            bmcs: bmcs(&node.driver_info),
            is_verified: !matches!(node.provision_state.as_str(), "enroll" | "verifying"),
            is_tried: node.provision_state != "enroll",
            uuid: node.uuid,
        };
        Ok(nodes.into_iter().map(place).collect())
    }

    /// All ports now.
    pub async fn all_ports(&self) -> Answered<Vec<Port>> {
        self.pages("ports", "uuid,address,node_uuid", |port: &Port| &port.uuid).await
    }

    /// A whole list, page by page. Who counts on a part of one takes what is missing in it for nobody's, or makes a second one of it.
    async fn pages<T: serde::de::DeserializeOwned>(
        &self,
        what: &str,
        fields: &str,
        id: impl Fn(&T) -> &str,
    ) -> Answered<Vec<T>> {
        let (mut all, mut marker) = (Vec::new(), String::new());
        for _ in 0..MAX_PAGES {
            let page: Page<T> = self.get(format!("/v1/{what}?fields={fields}&limit={PAGE}{marker}")).await?;
            let Some(last) = page.all.last() else { return Ok(all) };
            let next = format!("&marker={}", segment(id(last)));
            all.extend(page.all);
            if page.next.is_none() {
                return Ok(all);
            }
            if next == marker {
                break;
            }
            marker = next;
        }
        let text = format!("its list of {what} does not end within {MAX_PAGES} pages of {PAGE}");
        Err(Fault::Unreadable { endpoint: self.endpoint(), text })
    }

    /// Something is ordered of the node: what was listed of it before does not count.
    pub fn ordered(&self, now: Timestamp, uuid: &str) {
        self.fleet(|fleet| fleet.ordered(now, uuid));
    }

    async fn list(&self, mut fields: String, health: bool) -> Answered<Vec<Node>> {
        let version = self.version().await?;
        if health && version >= versions::HEALTH {
            fields.push_str(",health");
        }
        self.pages("nodes", &fields, |node: &Node| &node.uuid).await
    }

    /// Makes a node.
    pub async fn create(&self, fields: &Map<String, Value>) -> Answered<Node> {
        let response = self.call(Method::Post, "/v1/nodes".into(), Some(Value::Object(fields.clone()))).await?;
        self.read(&response)
    }

    /// Changes a node by a JSON patch, and returns it.
    pub async fn patch(&self, uuid: &str, patch: Vec<Value>) -> Answered<Node> {
        let resets = if patch.iter().any(|change| change["path"] == "/driver") { "?reset_interfaces=true" } else { "" };
        let path = format!("/v1/nodes/{}{resets}", segment(uuid));
        let response = self.call(Method::Patch, path, Some(Value::Array(patch))).await?;
        self.read(&response)
    }

    /// Removes a node.
    pub async fn delete(&self, uuid: &str) -> Answered<()> {
        self.call(Method::Delete, format!("/v1/nodes/{}", segment(uuid)), None).await.map(drop)
    }

    /// Orders a verb, with what goes with it.
    pub async fn provision(&self, uuid: &str, verb: Verb, with: Map<String, Value>) -> Answered<()> {
        let mut body = with;
        body.insert("target".into(), verb.target().into());
        let path = format!("/v1/nodes/{}/states/provision", segment(uuid));
        self.call(Method::Put, path, Some(Value::Object(body))).await.map(drop)
    }

    /// Switches its power.
    pub async fn power(&self, uuid: &str, target: &str, seconds: Option<u64>) -> Answered<()> {
        let mut body = json!({ "target": target });
        if let Some(seconds) = seconds {
            body["timeout"] = seconds.into();
        }
        self.call(Method::Put, format!("/v1/nodes/{}/states/power", segment(uuid)), Some(body)).await.map(drop)
    }

    /// Says which volumes the next cleaning is to make.
    pub async fn raid(&self, uuid: &str, volumes: Vec<Value>) -> Answered<()> {
        let path = format!("/v1/nodes/{}/states/raid", segment(uuid));
        self.call(Method::Put, path, Some(json!({ "logical_disks": volumes }))).await.map(drop)
    }

    /// Puts it into maintenance, for this reason, or takes it out.
    pub async fn maintenance(&self, uuid: &str, reason: Option<&str>) -> Answered<()> {
        let path = format!("/v1/nodes/{}/maintenance", segment(uuid));
        let (method, body) = match reason {
            Some(reason) => (Method::Put, Some(json!({ "reason": reason }))),
            None => (Method::Delete, None),
        };
        self.call(method, path, body).await.map(drop)
    }

    /// What Ironic finds missing for a boot or a deployment, in sentences.
    pub async fn validate(&self, uuid: &str) -> Answered<Vec<String>> {
        let found: Value = self.get(format!("/v1/nodes/{}/validate", segment(uuid))).await?;
        let fault = |interface: &str| -> Option<String> {
            let found = &found[interface];
            (found["result"] == Value::Bool(false))
                .then(|| crate::fault::clean(found["reason"].as_str().unwrap_or("no reason is given")))
        };
        Ok(["boot", "deploy"].into_iter().filter_map(fault).collect())
    }

    /// Ports with this MAC address, or of this node.
    pub async fn ports(&self, key: &str, value: &str) -> Answered<Vec<Port>> {
        let found: Page<Port> =
            self.get(format!("/v1/ports?fields=uuid,address,node_uuid&limit={PAGE}&{key}={}", segment(value))).await?;
        Ok(found.all)
    }

    /// Makes a port.
    pub async fn create_port(&self, node: &str, address: &str, pxe: bool) -> Answered<()> {
        let body = json!({ "node_uuid": node, "address": address, "pxe_enabled": pxe });
        self.call(Method::Post, "/v1/ports".into(), Some(body)).await.map(drop)
    }

    /// What the last inspection found: `inventory` and `plugin_data`.
    pub async fn inventory(&self, uuid: &str) -> Answered<Value> {
        self.get(format!("/v1/nodes/{}/inventory", segment(uuid))).await
    }

    /// The settings of its firmware.
    pub async fn bios(&self, uuid: &str, detail: bool) -> Answered<Vec<Value>> {
        let detail = if detail { "?detail=true" } else { "" };
        let found: Value = self.get(format!("/v1/nodes/{}/bios{detail}", segment(uuid))).await?;
        Ok(found["bios"].as_array().cloned().unwrap_or_default())
    }

    /// The versions of its firmware.
    pub async fn firmware(&self, uuid: &str) -> Answered<Vec<Value>> {
        let found: Value = self.get(format!("/v1/nodes/{}/firmware", segment(uuid))).await?;
        Ok(found["firmware"].as_array().cloned().unwrap_or_default())
    }

    /// Its virtual media. Ironic asks the BMC.
    pub async fn media(&self, uuid: &str) -> Answered<Vec<Value>> {
        let found: Value = self.get(format!("/v1/nodes/{}/vmedia", segment(uuid))).await?;
        let list = if found.is_array() { &found } else { &found["vmedia"] };
        Ok(list.as_array().cloned().unwrap_or_default())
    }

    /// Puts a medium in.
    pub async fn attach(&self, uuid: &str, url: &str) -> Answered<()> {
        let body = json!({ "device_type": "cdrom", "image_url": url });
        self.call(Method::Post, format!("/v1/nodes/{}/vmedia", segment(uuid)), Some(body)).await.map(drop)
    }

    /// Takes the media out.
    pub async fn detach(&self, uuid: &str) -> Answered<()> {
        let path = format!("/v1/nodes/{}/vmedia?device_types=cdrom", segment(uuid));
        self.call(Method::Delete, path, None).await.map(drop)
    }

    /// A method of the vendor interface.
    pub async fn passthru(&self, uuid: &str, method: Method, name: &str, body: Option<Value>) -> Answered<Value> {
        let path = format!("/v1/nodes/{}/vendor_passthru?method={}", segment(uuid), segment(name));
        let response = self.call(method, path, body).await?;
        if response.body.is_empty() { Ok(Value::Null) } else { self.read(&response) }
    }
}

/// A text as one segment of a path, or a value in a query.
fn segment(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{Node, PAGE, Page, segment};

    #[test]
    fn a_page_has_no_more_than_was_asked_for() {
        let page = |number: usize| format!(r#"{{"nodes": [{}]}}"#, vec!["{}"; number].join(","));
        assert_eq!(serde_json::from_str::<Page<Node>>(&page(PAGE)).unwrap().all.len(), PAGE);
        let error = serde_json::from_str::<Page<Node>>(&page(PAGE + 1)).err().unwrap();
        assert!(error.to_string().contains("at most 1000"), "{error}");
        assert_eq!(serde_json::from_str::<Page<Node>>("{}").unwrap().all.len(), 0);
    }

    #[test]
    fn a_name_is_one_segment_whatever_is_in_it() {
        assert_eq!(segment("ns~node-0"), "ns~node-0");
        assert_eq!(segment("../nodes?x=1&y#z/ü"), "..%2Fnodes%3Fx%3D1%26y%23z%2F%C3%BC");
    }
}
