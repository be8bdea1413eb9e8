//! States that upstream's operator brings a host to, and what is to become of the host then.

use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use super::LONGEST;
use super::site::{HOST, Site};

/// A host, what is done to it until it is in the state that it is left in, and where it comes to rest with Metamorph.
pub struct Way {
    /// What it is called, and its namespace after it.
    pub name: &'static str,
    /// What its spec and its annotations have besides, JSON.
    besides: &'static str,
    /// What is done to it.
    steps: &'static [Step],
    /// Where it comes to rest; `None` if it is deleted.
    pub ends: Option<&'static str>,
    /// States that it may pass on the way there.
    pub passes: &'static [&'static str],
    /// It is at rest when it is left: it stays in its state, and nothing is written but what has to be.
    pub rests: bool,
    /// It has an error, and keeps it.
    pub fails: bool,
    /// Upstream's operator deletes it when it has it back.
    pub goes: bool,
}

/// What is done to a host.
enum Step {
    /// Waits until its status has this value at this pointer below `/status`, JSON.
    Until(&'static str, &'static str),
    /// A merge patch, JSON.
    Change(&'static str),
    /// Creates this object, JSON.
    Create(&'static str),
    /// Deletes the host.
    Delete,
    /// Lets the operator look at it, for so many seconds.
    Look(u64),
}

use Step::{Change, Create, Delete, Look, Until};

const STATE: &str = "provisioning/state";
const AVAILABLE: Step = Until(STATE, r#""available""#);
const PROVISIONED: Step = Until(STATE, r#""provisioned""#);
const ON: Step = Until("poweredOn", "true");
const IMAGE: Step = Change(
    r#"{"spec": {"image": {"url": "http://192.0.2.8/image.raw", "checksumType": "sha256", "format": "raw",
        "checksum": "0000000000000000000000000000000000000000000000000000000000000000"}}}"#,
);

/// A way of a host that is at rest when it is left.
const fn at_rest(name: &'static str, steps: &'static [Step], state: &'static str) -> Way {
    Way { name, besides: "{}", steps, ends: Some(state), passes: &[], rests: true, fails: false, goes: false }
}

/// A way of a host that is left in the middle of work.
const fn at_work(
    name: &'static str,
    steps: &'static [Step],
    ends: Option<&'static str>,
    passes: &'static [&'static str],
) -> Way {
    Way { name, besides: "{}", steps, ends, passes, rests: false, fails: false, goes: false }
}

/// What a host passes that is deleted.
const LEAVING: &[&str] = &["deprovisioning", "powering off before delete", "deleting"];

/// Every state that upstream reaches.
pub const WAYS: &[Way] = &[
    at_work(
        "registering",
        &[Until(STATE, r#""registering""#)],
        Some("available"),
        &["registering", "inspecting", "preparing"],
    ),
    at_work(
        "registered",
        &[Until("provisioning/ID", r#""temporary-fake-id""#)],
        Some("available"),
        &["registering", "inspecting", "preparing"],
    ),
    at_work("inspecting", &[Until(STATE, r#""inspecting""#)], Some("available"), &["inspecting", "preparing"]),
    at_work("preparing", &[Until(STATE, r#""preparing""#)], Some("available"), &["preparing"]),
    Way { goes: true, ..at_rest("available", &[AVAILABLE, ON], "available") },
    Way {
        besides: r#"{"spec": {"inspectionMode": "disabled"}}"#,
        ..at_rest("inspection-disabled", &[AVAILABLE, ON], "available")
    },
    at_work(
        "provisioning",
        &[AVAILABLE, IMAGE, Until(STATE, r#""provisioning""#)],
        Some("provisioned"),
        &["provisioning"],
    ),
    Way { goes: true, ..at_rest("provisioned", &[AVAILABLE, IMAGE, PROVISIONED, ON, Look(2)], "provisioned") },
    at_rest(
        "user-data",
        &[
            Create(
                r#"{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "user-data"}, "stringData": {"userData": "{}"}}"#,
            ),
            Create(
                r#"{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "network-data"}, "stringData": {"networkData": "{}"}}"#,
            ),
            AVAILABLE,
            Change(
                r#"{"spec": {"userData": {"name": "user-data"}, "networkData": {"name": "network-data"}, "preprovisioningNetworkDataName": "network-data"}}"#,
            ),
            IMAGE,
            PROVISIONED,
            ON,
            Look(2),
        ],
        "provisioned",
    ),
    at_rest(
        "custom-deploy",
        &[AVAILABLE, Change(r#"{"spec": {"customDeploy": {"method": "install_coreos"}}}"#), PROVISIONED, ON, Look(2)],
        "provisioned",
    ),
    at_rest(
        "data-image",
        &[
            AVAILABLE,
            IMAGE,
            PROVISIONED,
            ON,
            Create(
                r#"{"apiVersion": "metal3.io/v1alpha1", "kind": "DataImage", "metadata": {"name": "host"}, "spec": {"url": "http://192.0.2.8/data.iso"}}"#,
            ),
            Look(4),
        ],
        "provisioned",
    ),
    at_rest(
        "powered-off",
        &[AVAILABLE, IMAGE, PROVISIONED, ON, Change(r#"{"spec": {"online": false}}"#), Until("poweredOn", "false")],
        "provisioned",
    ),
    at_rest(
        "paused",
        &[
            AVAILABLE,
            IMAGE,
            PROVISIONED,
            ON,
            Change(r#"{"metadata": {"annotations": {"baremetalhost.metal3.io/paused": ""}}}"#),
            Look(3),
        ],
        "provisioned",
    ),
    at_rest(
        "detached",
        &[
            AVAILABLE,
            IMAGE,
            PROVISIONED,
            ON,
            Change(r#"{"metadata": {"annotations": {"baremetalhost.metal3.io/detached": ""}}}"#),
            Until("operationalStatus", r#""detached""#),
        ],
        "provisioned",
    ),
    Way {
        besides: r#"{"spec": {"externallyProvisioned": true}}"#,
        ..at_rest(
            "externally-provisioned",
            &[Until(STATE, r#""externally provisioned""#), ON],
            "externally provisioned",
        )
    },
    Way {
        besides: r#"{"spec": {"bmc": null}}"#,
        ..at_rest("unmanaged", &[Until(STATE, r#""unmanaged""#)], "unmanaged")
    },
    Way {
        besides: r#"{"spec": {"bmc": {"credentialsName": "missing"}}}"#,
        fails: true,
        ..at_work("registration-error", &[Until("errorType", r#""registration error""#)], Some("registering"), &[])
    },
    at_work(
        "deprovisioning",
        &[
            AVAILABLE,
            IMAGE,
            PROVISIONED,
            ON,
            Change(r#"{"spec": {"image": null}}"#),
            Until(STATE, r#""deprovisioning""#),
        ],
        Some("available"),
        &["deprovisioning"],
    ),
    at_work(
        "deleting-deprovisioning",
        &[AVAILABLE, IMAGE, PROVISIONED, ON, Delete, Until(STATE, r#""deprovisioning""#)],
        None,
        LEAVING,
    ),
    at_work("powering-off", &[AVAILABLE, ON, Delete, Until(STATE, r#""powering off before delete""#)], None, LEAVING),
    at_work("deleting", &[AVAILABLE, ON, Delete, Until(STATE, r#""deleting""#)], None, LEAVING),
];

fn read(text: &str) -> Result<Value> {
    Ok(serde_json::from_str(text)?)
}

impl Way {
    /// Creates the host and its Secret.
    pub async fn declare(&self, site: &Site<'_>) -> Result<()> {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bmc"}, "stringData": {"username": "admin", "password": "password"}});
        let mut host = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": {"name": HOST}, "spec": {
            "online": true,
            // The interface that upstream's fixture finds in each of its machines.
            "bootMACAddress": "ab:cd:12:34:56:78",
            "bmc": {
                "address": format!("redfish-virtualmedia+http://192.0.2.7/redfish/v1/Systems/{}", site.namespace),
                "credentialsName": "bmc"}}});
        merge(&mut host, &read(self.besides)?);
        let names = host["spec"]["bmc"]["credentialsName"].as_str() == Some("bmc");
        if names {
            site.create(&secret).await?;
        }
        site.create(&host).await
    }

    /// Has it come to its state, with whatever operator runs.
    pub async fn bring(&self, site: &Site<'_>) -> Result<()> {
        for step in self.steps {
            match step {
                Until(at, value) => site.until(&[(&format!("/status/{at}"), read(value)?)], LONGEST).await?,
                Change(change) => site.change(&read(change)?).await?,
                Create(object) => site.create(&read(object)?).await?,
                Delete => site.delete().await?,
                Look(seconds) => tokio::time::sleep(Duration::from_secs(*seconds)).await,
            }
        }
        Ok(())
    }
}

/// Puts what the one has into the other; null takes away.
fn merge(into: &mut Value, what: &Value) {
    let (Value::Object(into), Value::Object(what)) = (into, what) else { return };
    for (key, value) in what {
        if value.is_null() {
            into.remove(key);
        } else if value.is_object() && into.get(key).is_some_and(Value::is_object) {
            merge(&mut into[key], value);
        } else {
            into.insert(key.clone(), value.clone());
        }
    }
}
