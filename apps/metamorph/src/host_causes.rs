//! `host causes`: the causes of all hosts in error, put together by what these have in common. It reads BareMetalHosts and HostDiagnoses of the Kubernetes API, a
//! page at a time, and calls no machine.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

use anyhow::Context as _;
use api::metal3::{BareMetalHost, annotation};
use api::metamorph::{DiagnosedCause, HostDiagnosis};
use bmc::HostName;
use diagnosis::{Overview, Shared, Site, Told};
use jiff::Timestamp;
use kube::{Client, ResourceExt as _};
use operator::Readable;
use serde_json::json;
use terms::clean;
use url::Url;

use crate::cli::Output;
use crate::report_args::HostCauses;
use crate::{client, host_watch, say};

/// Names of hosts that a group shows to people.
const MOST_NAMES: usize = 10;
/// Groups that are shown to people.
const MOST_GROUPS: usize = 25;
/// Longest text that is kept of a host, characters.
const MAX_TEXT: usize = 320;

/// Prints them.
pub async fn run(options: HostCauses) -> anyhow::Result<()> {
    let client = client::connect(options.kubeconfig.as_deref()).await?;
    let found = Found::read(&client, options.namespace.as_deref()).await?;
    match options.output {
        Output::Text => say::out(&found.text()),
        Output::Json => {
            let without = json!(found.without());
            let all = json!({ "inError": found.in_error, "beyond": found.overview.beyond(), "causes": found.overview.groups(), "withoutCause": without, "notRead": found.unread });
            say::out(&format!("{}\n", serde_json::to_string_pretty(&all).context("write JSON")?))
        }
    }
}

/// The same as text.
pub async fn collected(client: &Client, namespace: Option<&str>) -> anyhow::Result<String> {
    Ok(Found::read(client, namespace).await?.text())
}

/// What is kept of a host.
struct Seen {
    uid: Option<String>,
    /// Its error, if it shows one.
    error: Option<&'static str>,
    site: Site,
    /// A diagnosis has explained it.
    explained: bool,
    /// Why no cause is known.
    why: &'static str,
}

/// What was found so far: hosts in error or diagnosed for their time, by namespace and name.
#[derive(Default)]
struct Found {
    hosts: HashMap<String, Seen>,
    in_error: usize,
    overview: Overview,
    /// Why causes were not read.
    unread: Option<String>,
}

const NEVER: &str = "not diagnosed";
const UNREAD: &str = "its HostDiagnosis was not read";

impl Found {
    async fn read(client: &Client, namespace: Option<&str>) -> anyhow::Result<Self> {
        let mut found = Self::default();
        client::each(client, namespace, "hosts", |host: Readable<BareMetalHost>| {
            host_watch::read(vec![host]).iter().for_each(|host| found.see_host(host));
        })
        .await?;
        let read = client::each(client, namespace, "HostDiagnoses", |object: Readable<HostDiagnosis>| {
            // Of another version perhaps: what can be read of it counts.
            object.rest().iter().for_each(|object| found.see_diagnosis(object));
        });
        if let Err(error) = read.await {
            let resource = "hostdiagnoses.metamorph.metal3.io";
            let why = client::not_read(&error, "list", resource, namespace).ok_or(error)?;
            found.are_unread(format!("HostDiagnoses are not read: {why}"));
        }
        Ok(found)
    }

    /// Hosts in error have no cause then, for this reason.
    fn are_unread(&mut self, why: String) {
        self.hosts.values_mut().for_each(|seen| seen.why = UNREAD);
        self.unread = Some(why);
    }

    fn see_host(&mut self, host: &BareMetalHost) {
        let error = host.status.as_ref().and_then(|status| status.error_type).map(|error| error.as_str());
        // One that takes longer than its budget shows no error; the summary goes when that is over.
        if error.is_none() && host.annotation(annotation::DIAGNOSIS).is_none() {
            return;
        }
        self.in_error += usize::from(error.is_some());
        let seen = Seen { uid: host.uid(), error, site: site(host), explained: false, why: NEVER };
        self.hosts.insert(name(host), seen);
    }

    fn see_diagnosis(&mut self, object: &HostDiagnosis) {
        let Some(seen) = self.hosts.get_mut(&name(object)) else { return };
        let Some(status) = object.status.as_ref().filter(|_| object.spec.host.uid == seen.uid) else { return };
        if status.finish_time.is_none() {
            return;
        }
        if status.error_type.as_deref() != seen.error {
            seen.why = "diagnosed for an earlier error alone";
            return;
        }
        let causes: Vec<Told> = status.causes.iter().map(told).collect();
        let at = status.finish_time.as_ref().map(|time| time.0);
        seen.explained = self.overview.add(&name(object), &seen.site, &causes, at);
        seen.why = "diagnosed, and no cause found";
    }

    /// Hosts in error of which no cause is known: by why, and by their error.
    fn without(&self) -> BTreeMap<String, BTreeSet<&str>> {
        let mut all: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
        let unknown = |seen: &&Seen| !seen.explained;
        for (name, seen) in self.hosts.iter().filter(|(_, seen)| unknown(seen)) {
            let Some(error) = seen.error else { continue };
            all.entry(format!("{error}, {}", seen.why)).or_default().insert(name);
        }
        all
    }

    fn text(self) -> String {
        let mut out = String::new();
        let _ = writeln!(out, "{} in error", counted(self.in_error));
        if let Some(why) = &self.unread {
            let _ = writeln!(out, "{why}");
        }
        let without: Vec<(String, String, usize)> = self
            .without()
            .into_iter()
            .map(|(why, hosts)| (why, names(hosts.iter().copied(), hosts.len()), hosts.len()))
            .collect();
        let beyond = self.overview.beyond();
        let groups = self.overview.groups();
        groups.iter().take(MOST_GROUPS).for_each(|group| out.push_str(&shown(group)));
        if groups.len() > MOST_GROUPS {
            let more = groups.len() - MOST_GROUPS;
            let _ = writeln!(out, "\n{more} more causes, of fewer hosts: --output json");
        }
        if beyond > 0 {
            let _ = writeln!(out, "\n{beyond} causes are not counted: there are too many groups");
        }
        for (why, hosts, number) in without {
            let _ = writeln!(out, "\n{} without a cause: {why}\n  {hosts}", counted(number));
        }
        out
    }
}

fn counted(hosts: usize) -> String {
    format!("{hosts} {}", if hosts == 1 { "host" } else { "hosts" })
}

fn names<'a>(hosts: impl Iterator<Item = &'a str>, number: usize) -> String {
    let mut text = hosts.take(MOST_NAMES).map(|host| clean(host, MAX_TEXT)).collect::<Vec<_>>().join(", ");
    if number > MOST_NAMES {
        let _ = write!(text, " and {} more", number - MOST_NAMES);
    }
    text
}

fn shown(group: &Shared) -> String {
    let common = group.common.as_ref().map(|common| format!(", {} {}", common.by.words(), common.name));
    let mut out =
        format!("\n{}, one cause: {}{}\n", counted(group.hosts.len()), group.code, common.unwrap_or_default());
    let _ = writeln!(out, "  {}", group.meaning);
    let _ = writeln!(out, "  {} puts it right: {}", group.fixer, group.advice);
    let _ = write!(out, "  certain of {}, the best explanation of {}", group.certain, group.first);
    if let (Some(since), Some(until)) = (group.since, group.until) {
        let _ = write!(out, "; diagnosed {}", whole(since));
        if whole(since) != whole(until) {
            let _ = write!(out, " to {}", whole(until));
        }
    }
    let _ = writeln!(out, "\n  {}", names(group.hosts.iter().map(String::as_str), group.hosts.len()));
    out
}

/// Without fractions of a second.
fn whole(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

fn name(object: &impl kube::ResourceExt) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}

fn told(cause: &DiagnosedCause) -> Told {
    Told {
        code: cause.code.clone(),
        meaning: cause.meaning.clone(),
        fixer: cause.fixer.clone(),
        advice: cause.advice.clone(),
        certainty: cause.certainty.clone(),
        background: cause.background,
        part_number: cause.component.as_ref().and_then(|part| part.part_number.clone()),
    }
}

/// What a host may share with others.
fn site(host: &BareMetalHost) -> Site {
    // A diagnosis is of the image that was tried, which is not what is wanted by now.
    let tried = host.status.as_ref().and_then(|status| status.last_attempted_image.as_ref());
    let written = host.status.as_ref().map(|status| &status.provisioning.image);
    let images = [tried, written, host.spec.image.as_ref()];
    let url = images.into_iter().flatten().map(|image| image.url.as_str()).find(|url| !url.is_empty());
    let parsed = url.and_then(|url| Url::parse(url).ok());
    let server = parsed.as_ref().and_then(|url| {
        let host = url.host_str()?;
        Some(url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")))
    });
    let bmc = host.spec.bmc.as_ref();
    let hardware = host.status.as_ref().and_then(|status| status.hardware.as_ref());
    let vendor = hardware.and_then(|hardware| hardware.system_vendor.as_ref());
    let model = vendor.map(|vendor| {
        let words = [vendor.manufacturer.as_deref(), vendor.product_name.as_deref()];
        words.into_iter().flatten().collect::<Vec<_>>().join(" ")
    });
    let switches: BTreeSet<&str> = hardware
        .into_iter()
        .flat_map(|hardware| &hardware.nics)
        .filter_map(|nic| nic.lldp.as_ref()?.switch_id.as_deref())
        .collect();
    let kept = |text: &str| clean(text, MAX_TEXT);
    Site {
        image_server: server.as_deref().map(kept),
        image: url.map(|url| kept(&::addresses::text_without_secrets(url))),
        bmc_network: bmc.and_then(|bmc| network(&bmc.address)),
        model: model.as_deref().map(kept),
        credentials: bmc
            .filter(|bmc| !bmc.credentials_name.is_empty())
            .map(|bmc| kept(&format!("{}/{}", host.namespace().unwrap_or_default(), bmc.credentials_name))),
        switch: Some(switches.into_iter().collect::<Vec<_>>().join(" and "))
            .filter(|all| !all.is_empty())
            .as_deref()
            .map(kept),
    }
}

/// The network that a BMC's address is likely to be in: its first 24 bits of IPv4, 64 of IPv6; of a name, its domain.
fn network(address: &str) -> Option<String> {
    Some(match bmc::Address::parse(address).ok()?.host() {
        HostName::Dns(name) => name.split_once('.').map_or_else(|| name.clone(), |(_, domain)| domain.to_owned()),
        HostName::V4(address) => format!("{}/24", Ipv4Addr::from_bits(address.to_bits() & 0xffff_ff00)),
        HostName::V6(address) => format!("{}/64", Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, error: bool) -> BareMetalHost {
        let mut host = json!({
            "metadata": { "name": name, "namespace": "n", "uid": format!("uid-{name}") },
            "spec": {
                "online": true, "bmc": { "address": "redfish-virtualmedia://192.0.2.7/redfish/v1/Systems/1", "credentialsName": "s" },
                "image": { "url": "http://user:word@192.0.2.9:8080/os.img?sig=abc", "checksum": "c" },
            },
            "status": {
                "errorMessage": "", "errorCount": 1, "operationalStatus": "error", "poweredOn": true, "provisioning": { "state": "provisioning", "ID": "x" },
                "hardware": { "systemVendor": { "manufacturer": "Maker", "productName": "M1" }, "nics": [{ "lldp": { "switchID": "sw-1" } }] },
            },
        });
        if error {
            host["status"]["errorType"] = json!("provisioning error");
        }
        serde_json::from_value(host).unwrap()
    }

    fn diagnosed(name: &str, uid: &str, code: &str, error: &str) -> HostDiagnosis {
        serde_json::from_value(json!({
            "metadata": { "name": name, "namespace": "n" }, "spec": { "host": { "name": name, "uid": uid } },
            "status": { "phase": "Found", "errorType": error, "finishTime": "2026-03-01T12:00:00Z", "causes": [{
                "code": code, "meaning": "It does not answer", "rule": "r", "fixer": "Image", "certainty": "Certain", "severity": "Critical",
                "fingerprint": "f", "advice": "look at it",
            }] },
        }))
        .unwrap()
    }

    #[test]
    fn hosts_with_one_cause_are_one_line_and_those_without_are_named() {
        let mut found = Found::default();
        for number in 0..12 {
            let name = format!("h{number:02}");
            found.see_host(&host(&name, true));
            let uid = format!("uid-{name}");
            found.see_diagnosis(&diagnosed(&name, &uid, "ImageUnavailable", "provisioning error"));
        }
        for (name, uid, error) in
            [("earlier", "uid-earlier", "inspection error"), ("made-anew", "other", "provisioning error")]
        {
            found.see_host(&host(name, true));
            found.see_diagnosis(&diagnosed(name, uid, "ImageUnavailable", error));
        }
        // Recovered: its diagnosis is history.
        found.see_host(&host("well", false));
        found.see_diagnosis(&diagnosed("well", "uid-well", "FanFailed", "provisioning error"));
        let text = found.text();
        for words in [
            "14 hosts in error\n",
            "12 hosts, one cause: ImageUnavailable, image server 192.0.2.9:8080\n",
            "certain of 12, the best explanation of 12; diagnosed 2026-03-01T12:00:00Z\n",
            "n/h00, n/h01, n/h02, n/h03, n/h04, n/h05, n/h06, n/h07, n/h08, n/h09 and 2 more",
            "1 host without a cause: provisioning error, diagnosed for an earlier error alone\n  n/earlier",
            "1 host without a cause: provisioning error, not diagnosed\n  n/made-anew",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(!text.contains("FanFailed") && !text.contains("word") && !text.contains("abc"), "{text}");
    }

    #[test]
    fn what_a_host_shares_is_told_without_secrets() {
        let mut tried = host("h", true);
        let mut image = tried.spec.image.clone().unwrap();
        image.url = "http://192.0.2.8/old.img".to_owned();
        tried.status.as_mut().unwrap().last_attempted_image = Some(image);
        assert_eq!(site(&tried).image_server.as_deref(), Some("192.0.2.8"));
        let site = site(&host("h", true));
        assert_eq!(site.image.as_deref(), Some("http://192.0.2.9:8080/os.img?…"));
        assert_eq!(site.bmc_network.as_deref(), Some("192.0.2.0/24"));
        assert_eq!((site.model.as_deref(), site.switch.as_deref()), (Some("Maker M1"), Some("sw-1")));
        assert_eq!(site.credentials.as_deref(), Some("n/s"));
        assert_eq!(network("redfish://[2001:db8:1:2:3::4]").as_deref(), Some("2001:db8:1:2::/64"));
        assert_eq!(network("redfish://bmc-7.rack-1.example").as_deref(), Some("rack-1.example"));
        assert_eq!(network("nonsense://"), None);
    }
}
