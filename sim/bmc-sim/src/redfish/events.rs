//! Subscriptions to events (schema EventDestination): made, shown and ended. What is sent to them is in `push`.

use axum::http::header;
use serde_json::{Map, Value, json};

use super::answer::Answer;

/// Type of a subscription's resource.
pub const DESTINATION_TYPE: &str = "#EventDestination.v1_13_3.EventDestination";
/// The collection.
pub const SUBSCRIPTIONS: &str = "/redfish/v1/EventService/Subscriptions";
/// Most subscriptions.
const LIMIT: usize = 20;
/// What a client may give.
const KNOWN: [&str; 8] =
    ["Context", "Destination", "EventFormatType", "EventTypes", "HttpHeaders", "Name", "Protocol", "SubscriptionType"];

/// One subscription.
pub struct Subscription {
    id: u64,
    destination: String,
    context: String,
    event_types: Vec<Value>,
    headers: Vec<Value>,
}

impl Subscription {
    fn path(&self) -> String {
        format!("{SUBSCRIPTIONS}/{}", self.id)
    }

    /// Where its events go, with their context and headers.
    #[must_use]
    pub fn taker(&self) -> (String, String, Vec<Value>) {
        (self.destination.clone(), self.context.clone(), self.headers.clone())
    }

    /// Its resource. The headers are not shown again (EventDestination, HttpHeaders).
    fn resource(&self) -> Value {
        json!({
            "@odata.type": DESTINATION_TYPE,
            "@odata.id": self.path(),
            "Id": self.id.to_string(),
            "Name": format!("Event Subscription {}", self.id),
            "Destination": self.destination,
            "Context": self.context,
            "Protocol": "Redfish",
            "SubscriptionType": "RedfishEvent",
            "EventFormatType": "Event",
            "EventTypes": self.event_types,
            "HttpHeaders": [],
            "Status": { "State": "Enabled", "Health": "OK" },
        })
    }
}

/// The subscriptions of one BMC.
#[derive(Default)]
pub struct Subscriptions {
    last: u64,
    all: Vec<Subscription>,
}

impl Subscriptions {
    /// The collection, or one of its members.
    #[must_use]
    pub fn resource(&self, path: &str) -> Option<Value> {
        if path == SUBSCRIPTIONS {
            let members: Vec<Value> = self.all.iter().map(|one| json!({ "@odata.id": one.path() })).collect();
            return Some(json!({
                "@odata.type": "#EventDestinationCollection.EventDestinationCollection",
                "@odata.id": path,
                "Name": "Event Subscriptions Collection",
                "Members@odata.count": members.len(),
                "Members": members,
            }));
        }
        self.all.iter().find(|subscription| subscription.path() == path).map(Subscription::resource)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Subscription> {
        self.all.iter()
    }

    /// As their clients made them, with the headers.
    #[must_use]
    pub fn describe(&self) -> Vec<Value> {
        let describe = |one: &Subscription| json!({ "id": one.id.to_string(), "destination": one.destination, "context": one.context, "headers": one.headers });
        self.all.iter().map(describe).collect()
    }

    /// Makes one.
    pub fn make(&mut self, body: &Map<String, Value>) -> Answer {
        if let Some(other) = body.keys().find(|name| !KNOWN.contains(&name.as_str())) {
            return Answer::error(400, "PropertyUnknown", format!("There is no property {other}."), &[other]);
        }
        let text = |name: &str| body.get(name).and_then(Value::as_str);
        for name in ["Destination", "Context", "Protocol"] {
            if text(name).is_none() {
                let message = format!("A subscription needs the property {name}.");
                return Answer::error(400, "PropertyMissing", message, &[name]);
            }
        }
        if text("Protocol") != Some("Redfish") {
            let message = "Events are sent by the protocol Redfish only.";
            return Answer::error(400, "PropertyValueNotInList", message, &["Protocol"]);
        }
        if self.all.len() >= LIMIT {
            let message = format!("There are {LIMIT} subscriptions, and no more can be made.");
            return Answer::error(400, "EventSubscriptionLimitExceeded", message, &[]);
        }
        self.last += 1;
        let list = |name: &str| body.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
        let made = Subscription {
            id: self.last,
            destination: text("Destination").unwrap_or_default().to_owned(),
            context: text("Context").unwrap_or_default().to_owned(),
            event_types: list("EventTypes"),
            headers: list("HttpHeaders"),
        };
        let mut answer = Answer::resource(made.resource()).with(header::LOCATION, made.path());
        answer.status = 201;
        self.all.push(made);
        answer
    }

    /// Ends one; false if there is none at this path.
    pub fn end(&mut self, path: &str) -> bool {
        let before = self.all.len();
        self.all.retain(|subscription| subscription.path() != path);
        self.all.len() < before
    }

    /// Ends all, as a reset to the factory settings does.
    pub fn clear(&mut self) {
        self.all.clear();
    }
}
