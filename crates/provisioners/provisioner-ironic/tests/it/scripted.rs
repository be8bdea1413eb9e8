//! An Ironic with one conductor, in memory: its state machine, its locks, its errors.
//!
//! Texts, status codes and what a node shows in each state are those that Ironic 39.0.0 has answered (fake-hardware, SQLite); times are as on a machine that
//! boots fast. Times of states count whole seconds, as with MariaDB, which is harder than SQLite's microseconds.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use provisioner_ironic::{Method, Request, Response, Transport, TransportError};
use provisioner_kit::{Effect, Point, Trail};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

/// Fields that a node is made with.
const FIELDS: [&str; 20] = [
    "uuid",
    "name",
    "driver",
    "driver_info",
    "properties",
    "automated_clean",
    "disable_power_off",
    "network_data",
    "bios_interface",
    "boot_interface",
    "deploy_interface",
    "firmware_interface",
    "inspect_interface",
    "management_interface",
    "power_interface",
    "raid_interface",
    "vendor_interface",
    "instance_info",
    "instance_uuid",
    "maintenance",
];

/// States in which Ironic changes no field.
const FROZEN: [&str; 10] = [
    "deploying",
    "wait call-back",
    "deploy hold",
    "cleaning",
    "clean wait",
    "clean hold",
    "deleting",
    "adopting",
    "servicing",
    "service wait",
];

/// States in which a conductor holds the lock.
const LOCKED: [&str; 7] = ["verifying", "inspecting", "cleaning", "deploying", "deleting", "adopting", "servicing"];

/// What is to happen to a node.
#[derive(Clone, Debug)]
enum Change {
    /// It comes into this state, on the way to that.
    State(&'static str, Option<&'static str>),
    /// Its power is so.
    Power(bool),
    /// Its inspection has found something.
    Inventory,
    /// These settings are in force.
    Settings(Vec<Value>),
    /// What was deployed is forgotten.
    Cleared,
    /// It failed so, into this state; with maintenance.
    Failed(&'static str, &'static str, bool),
    /// A medium is in, or not.
    Medium(bool),
}

/// How the Ironic is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trouble {
    /// Everything takes ten times as long.
    pub slow: bool,
    /// The next work fails.
    pub failing: bool,
    /// The next order is refused.
    pub refusing: bool,
    /// Nothing answers.
    pub silent: bool,
    /// There is no worker.
    pub busy: bool,
    /// The BMC fails to show any of its subscriptions.
    pub blind: bool,
}

/// All that it has.
#[derive(Default)]
pub struct World {
    /// The node.
    pub node: Option<Map<String, Value>>,
    /// Ports: address and node.
    pub ports: Vec<(String, String)>,
    /// How it is.
    pub trouble: Trouble,
    /// Nodes of others, which nobody may change.
    pub others: Vec<Value>,
    /// What is answered instead of Ironic, to everything: status and body.
    pub between: Option<(u16, &'static str)>,
    /// What Ironic answers to each order and each change: status and sentence.
    pub always: Option<(u16, &'static str)>,
    /// What the BMC answers when it is asked.
    pub bmc: Option<&'static str>,
    /// Requests, oldest first: method, path, status.
    pub log: Vec<(&'static str, String, u16)>,
    /// Bodies of orders.
    pub bodies: Vec<(String, Value)>,
    pending: Vec<(Instant, Change)>,
    inventory: bool,
    medium: bool,
    settings: Map<String, Value>,
    /// Subscriptions to the BMC's events: id and what is shown.
    pub subscriptions: Vec<(String, Value)>,
    made: u64,
}

/// An Ironic in memory. Clones share it.
#[derive(Clone)]
pub struct Scripted {
    /// All that it has.
    pub world: Arc<Mutex<World>>,
    trail: Trail,
    begun: Instant,
    /// The newest version of its API.
    pub maximum: &'static str,
    /// Where it is.
    pub place: &'static str,
}

type Answer = (u16, Value);

fn error(status: u16, text: &str) -> Answer {
    let inner = json!({ "faultcode": "Client", "faultstring": text, "debuginfo": null });
    (status, json!({ "error_message": inner.to_string() }))
}

impl World {
    fn text(&self, field: &str) -> String {
        self.node.as_ref().and_then(|node| node.get(field)?.as_str()).unwrap_or_default().to_owned()
    }

    fn state(&self) -> String {
        self.text("provision_state")
    }

    fn set(&mut self, field: &str, value: impl Into<Value>) {
        if let Some(node) = &mut self.node {
            node.insert(field.to_owned(), value.into());
        }
    }

    fn flag(&self, field: &str) -> bool {
        self.node.as_ref().is_some_and(|node| node.get(field) == Some(&Value::Bool(true)))
    }

    fn apply(&mut self, at: &str, change: Change) {
        match change {
            Change::State(state, target) => {
                self.set("provision_state", state);
                self.set("target_provision_state", target);
                self.set("provision_updated_at", at);
                let by = LOCKED.contains(&state).then_some("conductor-1");
                self.set("reservation", by);
            }
            Change::Power(on) => {
                self.set("power_state", if on { "power on" } else { "power off" });
                self.set("target_power_state", Value::Null);
            }
            Change::Inventory => self.inventory = true,
            Change::Settings(settings) => {
                for setting in settings {
                    self.settings.insert(setting["name"].as_str().unwrap().to_owned(), setting["value"].clone());
                }
            }
            Change::Cleared => {
                self.set("instance_info", json!({}));
                self.set("instance_uuid", Value::Null);
            }
            Change::Failed(state, text, maintenance) => {
                self.apply(at, Change::State(state, None));
                self.set("last_error", text);
                if maintenance {
                    self.set("maintenance", true);
                    self.set("fault", if state == "clean failed" { "clean failure" } else { "service failure" });
                }
            }
            Change::Medium(is_in) => {
                self.medium = is_in;
                self.set("reservation", Value::Null);
            }
        }
    }

    /// Plans changes one after the other. With trouble, what comes after the wait for the agent is this failure.
    fn plan(&mut self, now: Instant, changes: Vec<(u64, Change)>, failure: Option<Change>) {
        let mut at = now;
        let fails = failure.is_some() && std::mem::take(&mut self.trouble.failing);
        let factor = if self.trouble.slow { 10 } else { 1 };
        let mut failure = failure.filter(|_| fails);
        self.pending.clear();
        let total = changes.len();
        for (index, (seconds, change)) in changes.into_iter().enumerate() {
            at += Duration::from_secs(seconds * factor);
            if index + 1 == total
                && let Some(failure) = failure.take()
            {
                self.pending.push((at, failure));
                return;
            }
            self.pending.push((at, change));
        }
    }
}

impl Scripted {
    pub fn new(trail: Trail) -> Self {
        Self { world: Arc::default(), trail, begun: Instant::now(), maximum: "1.115", place: "http://192.0.2.1:6385" }
    }

    fn time(&self, at: Instant) -> String {
        let seconds = at.duration_since(self.begun).as_secs();
        let first = jiff::Timestamp::from_second(1_767_225_600).unwrap();
        let now = first.checked_add(jiff::SignedDuration::from_secs(seconds as i64)).unwrap();
        format!("{}+00:00", now.to_string().trim_end_matches('Z'))
    }

    fn pass(&self, world: &mut World) {
        let now = Instant::now();
        while let Some((at, change)) = world.pending.first().cloned().filter(|(at, _)| *at <= now) {
            world.pending.remove(0);
            let text = self.time(at);
            world.apply(&text, change);
        }
    }

    /// The state of the node now.
    pub fn state(&self) -> String {
        let mut world = self.world.lock().unwrap();
        self.pass(&mut world);
        world.state()
    }

    /// A field of the node now.
    pub fn field(&self, name: &str) -> Value {
        let mut world = self.world.lock().unwrap();
        self.pass(&mut world);
        world.node.as_ref().and_then(|node| node.get(name)).cloned().unwrap_or_default()
    }

    fn shown(node: &Map<String, Value>) -> Value {
        let mut shown = node.clone();
        if let Some(info) = shown.get_mut("driver_info").and_then(Value::as_object_mut) {
            for (key, value) in info.iter_mut() {
                if key.contains("password") {
                    *value = "******".into();
                }
            }
        }
        Value::Object(shown)
    }

    /// What a request does to the machine.
    fn effect(&self, request: &Request) -> Option<Effect> {
        let world = self.world.lock().unwrap();
        let path = request.path.split('?').next().unwrap();
        let target = request.body.as_ref().map(|body| body["target"].clone()).unwrap_or_default();
        let cleans = world.flag("automated_clean");
        match (request.method, path.rsplit('/').next().unwrap()) {
            (Method::Put, "provision") => match target.as_str().unwrap() {
                "active" => Some(Effect::Write),
                "deleted" | "provide" if cleans => Some(Effect::Wipe),
                "inspect" => Some(Effect::Inspect),
                "clean" | "service" => Some(Effect::Configure),
                "abort" | "deleted" => Some(Effect::End),
                _ => None,
            },
            (Method::Put, "power") => Some(Effect::Power),
            (Method::Post | Method::Delete, "vmedia") => Some(Effect::Media),
            (Method::Post | Method::Delete, "vendor_passthru") => Some(Effect::Events),
            _ => None,
        }
    }

    fn answer(&self, request: &Request) -> Answer {
        let mut world = self.world.lock().unwrap();
        self.pass(&mut world);
        let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let body = request.body.clone().unwrap_or_default();
        match (request.method, parts.as_slice()) {
            (Method::Get, ["v1"]) => (200, json!({ "id": "v1" })),
            (Method::Get, ["v1", "nodes"]) => {
                assert!(!query.contains("created_at"), "Field created_at is not a valid field.");
                let others = world.others.iter().filter_map(Value::as_object);
                let nodes: Vec<Value> = world.node.iter().chain(others).map(|node| listed(node, query)).collect();
                (200, json!({ "nodes": nodes }))
            }
            (Method::Post, ["v1", "nodes"]) => self.create(&mut world, &body),
            (Method::Get, ["v1", "ports"]) => (200, ports(&world, query)),
            (Method::Post, ["v1", "ports"]) => port(&mut world, &body),
            (method, ["v1", "nodes", ident, rest @ ..]) => {
                let known = world.node.as_ref().is_some_and(|node| node["uuid"] == *ident || node["name"] == *ident);
                let named = |node: &&Value| node["uuid"] == *ident || node["name"] == *ident;
                if let Some(node) = world.others.iter().find(named) {
                    assert!(method == Method::Get && rest.is_empty(), "{method:?} of another's node");
                    return (200, node.clone());
                }
                if !known {
                    return error(404, &format!("Node {ident} could not be found."));
                }
                self.of_node(&mut world, method, rest, query, &body)
            }
            other => panic!("{other:?} is not scripted"),
        }
    }

    fn create(&self, world: &mut World, body: &Value) -> Answer {
        let fields = body.as_object().unwrap();
        for field in fields.keys() {
            assert!(FIELDS.contains(&field.as_str()), "{field} is no field");
        }
        if let Some(node) = &world.node {
            if node["uuid"] == fields["uuid"] {
                return error(409, &format!("A node with UUID {} already exists.", fields["uuid"].as_str().unwrap()));
            }
            return error(409, &format!("A node with name {} already exists.", fields["name"].as_str().unwrap()));
        }
        world.made += 1;
        let mut node = json!({
            "provision_state": "enroll", "target_provision_state": null, "provision_updated_at": null, "power_state": null,
            "target_power_state": null, "maintenance": false, "fault": null, "last_error": null, "reservation": null,
            "driver_info": {}, "instance_info": {}, "instance_uuid": null, "automated_clean": null, "network_data": {}, "properties": {},
            "clean_step": {}, "deploy_step": {}, "health": null, "disable_power_off": false,
            "created_at": format!("{}#{}", self.time(Instant::now()), world.made),
        });
        let node = node.as_object_mut().unwrap();
        let deploy = ("deploy_interface".to_owned(), json!("direct"));
        node.extend([deploy]);
        node.extend(fields.clone());
        world.node = Some(node.clone());
        (201, Self::shown(node))
    }

    fn of_node(&self, world: &mut World, method: Method, rest: &[&str], query: &str, body: &Value) -> Answer {
        match (method, rest) {
            (Method::Get, []) => (200, Self::shown(world.node.as_ref().unwrap())),
            (Method::Patch, []) => self.patch(world, body),
            (Method::Delete, []) => {
                let state = world.state();
                if LOCKED.contains(&state.as_str()) {
                    return error(
                        409,
                        "Node is locked by host conductor-1, please retry after the current operation is completed.",
                    );
                }
                if !world.text("instance_uuid").is_empty() && !world.flag("maintenance") {
                    return error(409, "Node is associated with instance.");
                }
                let plain = matches!(state.as_str(), "enroll" | "manageable" | "adopt failed" | "available");
                if !plain && !world.flag("maintenance") {
                    return error(400, &format!("Can not delete node while it is in provision state {state}."));
                }
                world.node = None;
                world.ports.clear();
                world.pending.clear();
                world.inventory = false;
                (204, Value::Null)
            }
            (Method::Get, ["validate"]) => (
                200,
                json!({ "boot": {"result": true}, "deploy": {"result": true}, "raid": {"result": false, "reason": "x"} }),
            ),
            (Method::Get, ["inventory"]) if world.inventory => (200, inventory()),
            (Method::Get, ["inventory"]) => error(404, "Node inventory record for node 1 could not be found."),
            (Method::Get, ["bios"]) => {
                let all =
                    world.settings.iter().map(|(name, value)| json!({ "name": name, "value": value.to_string() }));
                (200, json!({ "bios": all.collect::<Vec<_>>() }))
            }
            (Method::Get, ["firmware"]) => {
                (200, json!({ "firmware": [{ "component": "bios", "initial_version": "1", "current_version": "1" }] }))
            }
            (Method::Get, ["management", "boot_device"]) => match world.bmc {
                Some(text) => error(500, text),
                None => (200, json!({ "boot_device": null, "persistent": null })),
            },
            (Method::Put, ["states", "raid"]) => (204, Value::Null),
            (Method::Put, ["states", "power"]) => self.power(world, body),
            (Method::Put, ["states", "provision"]) => self.provision(world, body),
            (Method::Put | Method::Delete, ["maintenance"]) => {
                world.set("maintenance", method == Method::Put);
                world.set("fault", Value::Null);
                (202, Value::Null)
            }
            (Method::Get, ["vmedia"]) => {
                (200, json!([{ "media_types": ["CD"], "inserted": world.medium, "image": "http://ironic/x" }]))
            }
            (Method::Post, ["vmedia"]) => self.medium(world, true),
            (Method::Delete, ["vmedia"]) => self.medium(world, false),
            (method, ["vendor_passthru"]) => subscription(world, method, query, body),
            other => panic!("{other:?} is not scripted"),
        }
    }

    fn medium(&self, world: &mut World, is_in: bool) -> Answer {
        if !world.text("reservation").is_empty() {
            return error(
                409,
                "Node is locked by host conductor-1, please retry after the current operation is completed.",
            );
        }
        world.set("reservation", "conductor-1");
        world.plan(Instant::now(), vec![(1, Change::Medium(is_in))], None);
        (204, Value::Null)
    }

    fn patch(&self, world: &mut World, body: &Value) -> Answer {
        let state = world.state();
        if FROZEN.contains(&state.as_str()) {
            let text = format!("Node 1 can not be updated while a state transition is in progress (\"{state}\").");
            return error(409, &text);
        }
        let mut changed = Value::Object(world.node.clone().unwrap());
        for change in body.as_array().unwrap() {
            let path = change["path"].as_str().unwrap();
            let fields = ["/driver_info/", "/properties/", "/instance_info/"];
            let known = FIELDS.iter().any(|field| path == format!("/{field}"))
                || fields.iter().any(|field| path.starts_with(field));
            assert!(known, "{path} cannot be changed");
            let (parent, key) = path.rsplit_once('/').unwrap();
            let parent = changed.pointer_mut(parent).and_then(Value::as_object_mut).unwrap();
            match change["op"].as_str().unwrap() {
                "add" => drop(parent.insert(key.to_owned(), change["value"].clone())),
                "remove" if parent.get(key).is_none_or(Value::is_null) => {
                    return error(400, &format!("Couldn't apply patch. can't remove a non-existent object {key}"));
                }
                "remove" if path == "/deploy_interface" => drop(parent.insert(key.to_owned(), "direct".into())),
                "remove" if parent.contains_key("uuid") => drop(parent.insert(key.to_owned(), Value::Null)),
                "remove" => drop(parent.remove(key)),
                other => panic!("{other}"),
            }
        }
        let is_instance = body.as_array().unwrap().iter().any(|change| change["path"] == "/deploy_interface");
        if is_instance
            && !matches!(state.as_str(), "enroll" | "manageable" | "available" | "inspecting" | "inspect wait")
        {
            return error(
                400,
                &format!(
                    "Node 1 can not have deploy_interface updated unless it is in one of allowed states, not {state}."
                ),
            );
        }
        world.node = changed.as_object().cloned();
        (200, Self::shown(world.node.as_ref().unwrap()))
    }

    fn power(&self, world: &mut World, body: &Value) -> Answer {
        if LOCKED.contains(&world.state().as_str()) {
            return error(
                409,
                "Node is locked by host conductor-1, please retry after the current operation is completed.",
            );
        }
        let target = body["target"].as_str().unwrap();
        let on = matches!(target, "power on" | "rebooting" | "soft rebooting");
        world.set("target_power_state", if on { "power on" } else { "power off" });
        world.set("last_error", Value::Null);
        world.plan(Instant::now(), vec![(2, Change::Power(on))], None);
        (202, Value::Null)
    }

    fn provision(&self, world: &mut World, body: &Value) -> Answer {
        let (state, target) = (world.state(), body["target"].as_str().unwrap().to_owned());
        let cleans = world.flag("automated_clean");
        let fast = world.text("inspect_interface") == "redfish";
        let found = on_empty(&state, &target, (cleans, fast), body)
            .or_else(|| on_deployed(&state, &target, cleans, body))
            .or_else(|| broken_off(&state, &target));
        let Some((changes, failure)) = found else {
            return error(
                400,
                &format!(
                    "The requested action \"{target}\" can not be performed on node \"1\" while it is in state \"{state}\"."
                ),
            );
        };
        if world.flag("maintenance") && target != "abort" {
            return error(
                400,
                &format!("The {target} operation can't be performed on node 1 because it's in maintenance mode."),
            );
        }
        if world.flag("maintenance") && state == "service failed" {
            return error(409, "Can not abort service on node \"1\" while it is in maintenance mode.");
        }
        world.set("last_error", Value::Null);
        world.plan(Instant::now(), changes, failure);
        self.pass(world);
        (202, Value::Null)
    }
}

/// What follows from a verb, with the seconds before each change; and what happens instead of the last, if it fails.
type Course = (Vec<(u64, Change)>, Option<Change>);

fn cleaning(then: Change) -> Vec<(u64, Change)> {
    let to = Some("available");
    let back = Change::State("cleaning", to);
    vec![(0, Change::State("cleaning", to)), (2, Change::State("clean wait", to)), (8, back), (1, then)]
}

fn failed_cleaning() -> Option<Change> {
    Some(Change::Failed("clean failed", "Node failed step: the agent says no", true))
}

fn steps(body: &Value, name: &str) -> Vec<Value> {
    let all = body[name].as_array().unwrap().iter();
    all.filter(|step| step["interface"] == "bios").flat_map(settings).collect()
}

fn on_empty(state: &str, target: &str, (cleans, fast): (bool, bool), body: &Value) -> Option<Course> {
    use Change::{Failed, Inventory, Power, Settings, State};
    let to = Some("manageable");
    Some(match (state, target) {
        ("enroll", "manage") => {
            let refused = "Failed to get power state for node 1. Error: Redfish exception occurred. Error: HTTP GET https://b/ returned code 401. Unauthorized";
            let way = vec![(0, State("verifying", to)), (2, Power(false)), (0, State("manageable", None))];
            (way, Some(Failed("enroll", refused, false)))
        }
        ("available" | "inspect failed" | "clean failed" | "adopt failed", "manage") => {
            (vec![(0, State("manageable", None))], None)
        }
        ("manageable", "provide") if cleans => (cleaning(State("available", None)), failed_cleaning()),
        ("manageable", "provide") => (vec![(0, State("available", None))], None),
        ("manageable" | "inspect failed", "inspect") => {
            let mut way = vec![(0, State("inspecting", to))];
            if fast {
                way.push((3, Inventory));
            } else {
                way.extend([(2, State("inspect wait", to)), (6, State("inspecting", to)), (1, Inventory)]);
            }
            way.push((0, State("manageable", None)));
            (way, Some(Failed("inspect failed", "Inspection failed: the agent says no", false)))
        }
        ("manageable", "clean") => {
            let made = Settings(steps(body, "clean_steps"));
            let way = vec![(0, State("cleaning", to)), (2, State("clean wait", to)), (6, made)];
            ([way, vec![(0, State("manageable", None))]].concat(), failed_cleaning())
        }
        ("manageable" | "adopt failed", "adopt") => {
            (vec![(0, State("adopting", Some("active"))), (2, State("active", None))], None)
        }
        _ => return None,
    })
}

fn on_deployed(state: &str, target: &str, cleans: bool, body: &Value) -> Option<Course> {
    use Change::{Cleared, Failed, Power, Settings, State};
    let to = Some("active");
    Some(match (state, target) {
        ("available" | "deploy failed", "active") => {
            let way = vec![(0, State("deploying", to)), (2, State("wait call-back", to)), (8, State("deploying", to))];
            let end = vec![(2, Power(true)), (0, State("active", None))];
            let failed = Failed("deploy failed", "Deploy step deploy.write_image failed: the agent says no", false);
            ([way, end].concat(), Some(failed))
        }
        ("active" | "deploy failed" | "wait call-back" | "error" | "service failed" | "service wait", "deleted") => {
            let mut way = vec![(0, State("deleting", Some("available"))), (2, Power(false)), (0, Cleared)];
            if cleans {
                way.extend(cleaning(State("available", None)));
                return Some((way, failed_cleaning()));
            }
            way.push((0, State("available", None)));
            (way, Some(Failed("error", "Failed to tear down", false)))
        }
        ("active" | "service failed", "service") => {
            let made = Settings(steps(body, "service_steps"));
            let way = vec![(0, State("servicing", to)), (2, State("service wait", to)), (6, made)];
            let failed = Failed("service failed", "Node failed step: the agent says no", true);
            ([way, vec![(0, State("active", None))]].concat(), Some(failed))
        }
        _ => return None,
    })
}

fn broken_off(state: &str, target: &str) -> Option<Course> {
    let failed = match (state, target) {
        ("inspect wait", "abort") => Change::Failed("inspect failed", "Inspection was aborted by request.", false),
        ("clean wait", "abort") => Change::Failed("clean failed", "By request, the clean operation was aborted", false),
        ("wait call-back", "abort") => Change::Failed("deploy failed", "Deployment was aborted by request.", false),
        ("service wait", "abort") => Change::Failed("active", "By request, the service operation was aborted", false),
        ("service failed", "abort") => Change::State("active", None),
        _ => return None,
    };
    Some((vec![(0, failed)], None))
}

fn settings(step: &Value) -> Vec<Value> {
    step["args"]["settings"].as_array().cloned().unwrap()
}

fn listed(node: &Map<String, Value>, query: &str) -> Value {
    let fields = query.split('&').find_map(|pair| pair.strip_prefix("fields=")).unwrap();
    let shown = fields.split(',').map(|field| {
        assert!(node.contains_key(field), "{field} is no field of a node");
        (field.to_owned(), node[field].clone())
    });
    Value::Object(shown.collect())
}

fn ports(world: &World, query: &str) -> Value {
    let value = |key: &str| {
        query.split('&').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('=')).map(|text| text.replace("%3A", ":"))
    };
    let (address, node) = (value("address"), value("node_uuid"));
    let fits = |(mac, owner): &&(String, String)| {
        address.as_ref().is_none_or(|address| address == mac) && node.as_ref().is_none_or(|node| node == owner)
    };
    let found =
        world.ports.iter().filter(fits).map(|(mac, owner)| json!({ "uuid": "p", "address": mac, "node_uuid": owner }));
    json!({ "ports": found.collect::<Vec<_>>() })
}

fn port(world: &mut World, body: &Value) -> Answer {
    let (mac, node) = (body["address"].as_str().unwrap().to_owned(), body["node_uuid"].as_str().unwrap().to_owned());
    if world.ports.iter().any(|(known, _)| *known == mac) {
        return error(409, &format!("A port with MAC address {mac} already exists."));
    }
    world.ports.push((mac, node));
    (201, json!({}))
}

fn subscription(world: &mut World, method: Method, query: &str, body: &Value) -> Answer {
    let name = query.split('&').find_map(|pair| pair.strip_prefix("method=")).unwrap();
    let known = |world: &World, id: &str| world.subscriptions.iter().position(|(known, _)| known == id);
    match (method, name) {
        (Method::Get, "get_all_subscriptions") => {
            let members = world
                .subscriptions
                .iter()
                .map(|(id, _)| json!({ "@odata.id": format!("/redfish/v1/EventService/Subscriptions/{id}") }));
            (200, json!({ "Members": members.collect::<Vec<_>>() }))
        }
        (Method::Get, "get_subscription") if world.trouble.blind => {
            error(500, "Redfish exception occurred. Error: HTTP GET returned code 503")
        }
        (Method::Get, "get_subscription") => match known(world, body["id"].as_str().unwrap()) {
            Some(at) => (200, world.subscriptions[at].1.clone()),
            None => error(500, "Redfish exception occurred. Error: Redfish get_subscription failed"),
        },
        (Method::Post, "create_subscription") => {
            world.made += 1;
            let id = world.made.to_string();
            let made = json!({ "Id": id, "Destination": body["Destination"], "Context": body["Context"] });
            world.subscriptions.push((id, made.clone()));
            (200, made)
        }
        (Method::Delete, "delete_subscription") => match known(world, body["id"].as_str().unwrap()) {
            Some(at) => {
                world.subscriptions.remove(at);
                (200, Value::Null)
            }
            None => error(404, "Redfish exception occurred. Error: Redfish delete_subscription failed"),
        },
        other => panic!("{other:?} is not scripted"),
    }
}

/// What an agent has found.
fn inventory() -> Value {
    json!({ "plugin_data": {}, "inventory": {
        "hostname": "node-0", "memory": { "physical_mb": 8192 }, "cpu": { "architecture": "x86_64", "count": 4, "flags": ["aes"] },
        "interfaces": [{ "name": "eno1", "mac_address": "52:54:00:00:00:01" }],
        "disks": [{ "name": "/dev/sda", "size": 107_374_182_400_u64, "rotational": false, "serial": "D1" }],
        "system_vendor": { "manufacturer": "M", "product_name": "P", "serial_number": "S" } } })
}

#[async_trait]
impl Transport for Scripted {
    async fn send(&self, request: &Request) -> Result<Response, TransportError> {
        let mutates = request.method != Method::Get;
        if self.world.lock().unwrap().trouble.silent {
            return Err(TransportError::Unreachable("Connection refused".into()));
        }
        if mutates {
            self.trail.point(Point::BeforeEffect).await;
        }
        let effect = self.effect(request);
        let order = mutates && request.path.contains("/states/");
        let (refuses, busy) = {
            let mut world = self.world.lock().unwrap();
            (order && std::mem::take(&mut world.trouble.refusing), order && world.trouble.busy)
        };
        let (between, always) = {
            let world = self.world.lock().unwrap();
            (world.between, world.always.filter(|_| mutates))
        };
        if let Some((status, body)) = between {
            return Ok(Response { status, maximum: None, body: body.as_bytes().to_vec() });
        }
        let (status, body) = match (refuses, busy) {
            _ if always.is_some() => always.map(|(status, text)| error(status, text)).unwrap(),
            (true, _) => error(
                409,
                "Node 1 is locked by host conductor-1, please retry after the current operation is completed.",
            ),
            (_, true) => error(503, "Requested action cannot be performed due to lack of free conductor workers."),
            _ => self.answer(request),
        };
        {
            let mut world = self.world.lock().unwrap();
            world.log.push((request.method.as_str(), request.path.clone(), status));
            if let Some(body) = request.body.clone().filter(|_| order && status < 300) {
                world.bodies.push((request.path.rsplit('/').next().unwrap().to_owned(), body));
            }
        }
        if let Some(effect) = effect.filter(|_| status < 300) {
            let what = request.body.as_ref().map(|body| body["target"].to_string()).unwrap_or_default();
            self.trail.saw(effect, &format!("{} {} {what}", request.method.as_str(), request.path));
        }
        if mutates {
            self.trail.point(Point::AfterEffect).await;
        }
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        Ok(Response { status, maximum: Some(self.maximum.to_owned()), body })
    }

    fn endpoint(&self) -> String {
        self.place.to_owned()
    }
}
