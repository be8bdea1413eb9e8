//! `topology`: which host is at which port of which switch, computed from the objects of a cluster or of a state folder. No machine and no switch is called.

use std::collections::HashMap;

use anyhow::Context as _;
use api::metal3::{BareMetalHost, BareMetalSwitch, HardwareData, LLDP};
use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt as _};
use operator::Readable;
use serde_json::Value;
use topology::{Declared, Host, SwitchObject, Topology};

use crate::report_args::{TopologyForm, TopologyOptions};
use crate::{client, host_list, host_watch, say};

/// What errors call the objects of switches.
const SWITCHES: &str = "BareMetalSwitches";
/// Secrets that are read at once.
const AT_ONCE: usize = 16;
/// Largest network data that is read, bytes.
const MAX_NETWORK_DATA: usize = 1 << 20;
/// Most values of network data.
const MAX_NODES: usize = 100_000;
/// Seconds of a day.
const DAY: i64 = 86_400;

/// Prints it.
pub async fn run(options: TopologyOptions) -> anyhow::Result<()> {
    let (kubeconfig, state) = (options.kubeconfig.clone(), options.state.clone());
    let print = async |client: Client| {
        let text = text(&client, &options).await?;
        say::out(&text)
    };
    host_list::with_client(kubeconfig.as_deref(), state.as_deref(), print).await
}

async fn text(client: &Client, options: &TopologyOptions) -> anyhow::Result<String> {
    let namespace = (!options.all_namespaces)
        .then(|| options.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned()));
    let hosts = known_hosts(client, namespace.as_deref(), options.no_network_data).await?;
    let switches = switches(client, namespace.as_deref()).await;
    let stale = i64::from(options.stale_after) * DAY;
    let view = Topology::of(&hosts, &switches, Timestamp::now().as_second(), stale);
    Ok(match options.output {
        TopologyForm::Tree => view.tree(),
        TopologyForm::Dot => view.dot(),
        TopologyForm::Mermaid => view.mermaid(),
        TopologyForm::Json => view.json().context("write JSON")?,
        TopologyForm::Svg => view.svg(),
    })
}

/// Facts of each host, by namespace and name.
type Facts = HashMap<(String, String), Host>;

async fn facts(client: &Client, namespace: Option<&str>) -> anyhow::Result<Facts> {
    let mut facts = Facts::new();
    let take = |data: Readable<HardwareData>| {
        let Some(data) = data.rest() else { return };
        let links = data.annotations().get(LLDP).map(|words| inventory::links::read(words)).unwrap_or_default();
        let key = (data.namespace().unwrap_or_default(), data.name_any());
        let nics = data.spec.hardware.map(|hardware| hardware.nics.clone()).unwrap_or_default();
        facts.insert(key, Host { nics, links, ..Host::default() });
    };
    client::each(client, namespace, "HardwareData", take).await?;
    Ok(facts)
}

async fn known_hosts(client: &Client, namespace: Option<&str>, no_network_data: bool) -> anyhow::Result<Vec<Host>> {
    let mut facts = facts(client, namespace).await?;
    let mut hosts: Vec<(Host, Option<String>)> = Vec::new();
    let take = |host: Readable<BareMetalHost>| {
        let Some(host) = host_watch::rest(host) else { return };
        let secret = network_data_of(&host);
        let key = (host.namespace().unwrap_or_default(), host.name_any());
        let known = facts.remove(&key).unwrap_or_default();
        hosts.push((with_object(known, &host), secret));
    };
    client::each(client, namespace, "hosts", take).await?;
    if no_network_data {
        return Ok(hosts.into_iter().map(|(host, _)| host).collect());
    }
    let read = stream::iter(hosts).map(|(host, secret)| async move {
        let Some(secret) = secret else { return (host, None) };
        let read = network_data(client, &host.namespace, &secret).await;
        let failed = read.as_ref().err().map(|error| format!("{}/{secret}: {error:#}", host.namespace));
        (Host { network_data: read.ok(), ..host }, failed)
    });
    let read: Vec<(Host, Option<String>)> = read.buffer_unordered(AT_ONCE).collect().await;
    let mut failed: Vec<&String> = read.iter().filter_map(|(_, failed)| failed.as_ref()).collect();
    failed.sort();
    if let Some(first) = failed.first() {
        say::note(&format!(
            "the network data of {} hosts could not be read, so that their bonds are not known; {}",
            failed.len(),
            terms::clean(first, 300)
        ));
    }
    Ok(read.into_iter().map(|(host, _)| host).collect())
}

/// The facts with what the host's own object says.
fn with_object(facts: Host, host: &BareMetalHost) -> Host {
    let status = host.status.as_ref();
    // The status stands for HardwareData that was lost.
    let of_status = || status.and_then(|status| status.hardware.as_ref()).map(|hardware| hardware.nics.clone());
    let nics = if facts.nics.is_empty() { of_status().unwrap_or_default() } else { facts.nics };
    let declared = host.spec.network_interfaces.iter().filter_map(|interface| {
        let port = interface.switch_port.as_ref()?;
        Some(Declared {
            nic: interface.name.clone(),
            mac: interface.mac_address.clone(),
            switch_id: port.switch_id.clone(),
            port_id: port.port_id.clone(),
        })
    });
    Host {
        namespace: host.namespace().unwrap_or_default(),
        name: host.name_any(),
        nics,
        declared: declared.collect(),
        inspected: status.and_then(|status| status.operation_history.inspect.end.as_ref()).map(|end| end.0.as_second()),
        ..facts
    }
}

/// The Secret that says how the installed system's network is, or else the agent's.
fn network_data_of(host: &BareMetalHost) -> Option<String> {
    let own = host.namespace().unwrap_or_default();
    let reference = host.spec.network_data.as_ref();
    // Another namespace's Secret is no part of the host.
    let installed = reference.filter(|secret| secret.namespace.as_ref().is_none_or(|namespace| *namespace == own));
    let agents = || host.spec.preprovisioning_network_data_name.clone();
    installed.and_then(|secret| secret.name.clone()).or_else(agents).filter(|name| !name.is_empty())
}

/// What the Secret has, as JSON: nothing that could be network data, if that is what it has.
async fn network_data(client: &Client, namespace: &str, name: &str) -> anyhow::Result<String> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let secret = secrets.get_opt(name).await?.context("there is no such Secret")?;
    let data = secret.data.unwrap_or_default();
    let bytes = ["networkData", "value"].into_iter().find_map(|key| data.get(key));
    Ok(bytes.and_then(|bytes| as_json(&bytes.0)).unwrap_or_default())
}

/// YAML or JSON as JSON; `None` if it is neither, or stands for too much. What its aliases stand for counts as often as they stand there. What is wrong with it is
/// a secret's content: it is not told.
fn as_json(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok().filter(|text| text.len() <= MAX_NETWORK_DATA)?;
    let limits = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_total_scalar_bytes: MAX_NETWORK_DATA, max_nodes: MAX_NODES },
    };
    let value: Value = serde_saphyr::from_str_with_options(text, limits).ok()?;
    Some(value.to_string()).filter(|text| text.len() <= MAX_NETWORK_DATA)
}

/// BareMetalSwitches, of all namespaces if these may be seen: a rack's switches are mostly not where its hosts are. None where there is no such kind.
async fn switches(client: &Client, namespace: Option<&str>) -> Vec<SwitchObject> {
    let mut found = Vec::new();
    let mut take = |switch: Readable<BareMetalSwitch>| {
        let Some(switch) = switch.rest() else { return };
        let (namespace, name) = (switch.namespace().unwrap_or_default(), switch.name_any());
        found.push(SwitchObject { namespace, name, mac: switch.spec.mac_address });
    };
    let is = |error: &anyhow::Error, code: u16| matches!(error.downcast_ref(), Some(kube::Error::Api(status)) if status.code == code);
    let mut listed = client::each(client, None, SWITCHES, &mut take).await;
    if let (Err(error), Some(_)) = (&listed, namespace)
        && is(error, 403)
    {
        listed = client::each(client, namespace, SWITCHES, &mut take).await;
    }
    if let Err(error) = &listed
        && !is(error, 404)
    {
        let why = terms::clean(&format!("{error:#}"), 300);
        say::note(&format!("BareMetalSwitches could not be listed, so that none is named: {why}"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn network_data_stands_for_no_more_than_it_may_be_large() {
        assert_eq!(as_json(b"a: &x 1\nb: *x").as_deref(), Some(r#"{"a":1,"b":1}"#));
        let aliases = format!("x: &a \"{}\"\nall: [{}]", "y".repeat(MAX_NETWORK_DATA / 10), ["*a"; 20].join(", "));
        assert_eq!(as_json(aliases.as_bytes()), None);
        let nodes = format!("[{}]", "1,".repeat(MAX_NODES + 1));
        assert_eq!(as_json(nodes.as_bytes()), None);
        // Each is six characters in JSON.
        let escapes = format!("\"{}\"", "\\x01".repeat(MAX_NETWORK_DATA / 5));
        assert_eq!(as_json(escapes.as_bytes()), None);
        assert_eq!(as_json(&[0xFF]), None);
    }

    #[test]
    fn a_host_says_where_its_ports_and_its_network_data_are() {
        let host: BareMetalHost = serde_json::from_value(json!({
            "metadata": { "name": "h", "namespace": "n" },
            "spec": {
                "online": true,
                "networkData": { "name": "net", "namespace": "n" },
                "preprovisioningNetworkDataName": "agents",
                "networkInterfaces": [
                    { "name": "eno1", "switchPort": { "switchID": "00:1c:73:00:00:01", "portID": "e1" } },
                    { "macAddress": "52:54:00:00:00:01" },
                ],
            },
            "status": { "operationHistory": { "inspect": { "end": "2026-03-01T00:00:00Z" } },
                "hardware": { "nics": [{ "name": "eno9" }] } },
        }))
        .unwrap();
        let known = with_object(Host::default(), &host);
        assert_eq!((known.nics.len(), known.declared.len(), known.inspected), (1, 1, Some(1_772_323_200)));
        assert_eq!(network_data_of(&host).as_deref(), Some("net"));
        let mut other = host.clone();
        other.spec.network_data.as_mut().unwrap().namespace = Some("elsewhere".into());
        assert_eq!(network_data_of(&other).as_deref(), Some("agents"), "not another namespace's");
        other.spec.preprovisioning_network_data_name = None;
        assert_eq!(network_data_of(&other), None);
        let nics = vec![inventory::Nic::default(), inventory::Nic::default()];
        assert_eq!(with_object(Host { nics, ..Host::default() }, &host).nics.len(), 2, "the HardwareData goes before");
    }
}
