//! One look at a claim: finds its host and brings the host to what the claim asks for.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::metal3::{BareMetalHost, BoundObject, HostClaim, HostDeployPolicy, annotation};
use host_claims::{Association, Choice, Data, Fact, Report, Role, Search, Selector, Title};
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::claims::{Claims, Promise};
use super::copies::Provided;
use super::depart;
use super::write::{self, LookError, Written};
use crate::events::Said;
use crate::host::readable::Readable;

/// How soon a waiting claim is looked at again if nothing wakes it (upstream's `HostClaimRequeueDelay`).
pub const WAIT: Duration = Duration::from_secs(30);
/// Most steps in one look, each of which may try a host.
const TRIES: usize = 8;
/// Longest wait for the initial list of policies.
const LISTED_WITHIN: Duration = Duration::from_secs(10);

/// Looks at a claim, and reports on it why that fails.
pub(crate) async fn look(claim: Arc<HostClaim>, all: Arc<Claims>) -> Result<Action, LookError> {
    if all.unreadable.hold(claim.as_ref()) {
        return Ok(Action::await_change());
    }
    match go_on(&claim, &all).await {
        Err(error @ LookError::Unreadable(_)) => {
            let now = all.api_of(&claim).get_opt(&claim.name_any()).await.map_err(LookError::api("read the claim"))?;
            let Some(now) = now.filter(|now| now.metadata.uid == claim.metadata.uid) else {
                return Ok(Action::await_change());
            };
            all.report(&now, &Report::unclear(&now, error.to_string())).await?;
            Ok(Action::requeue(WAIT))
        }
        Err(LookError::Api { attempt, source }) => {
            let note =
                format!("{attempt}: the Kubernetes API fails; it is tried again, and why is in the server's log");
            all.say(&claim, &Said { reason: "KubernetesAPIFailed".to_owned(), note, warning: true }).await;
            Err(LookError::Api { attempt, source })
        }
        other => other,
    }
}

async fn go_on(claim: &HostClaim, all: &Claims) -> Result<Action, LookError> {
    all.host.begin().await;
    let mut claim = claim.clone();
    if claim.annotation(annotation::PAUSED).is_some() {
        return paused(all, &claim).await;
    }
    if claim.is_deleting() {
        return depart::depart(all, &claim).await;
    }
    if !claim.is_held() {
        claim = all.hold(&claim, true).await?;
    }
    // Hosts whose change the API server refused: each is tried once per look, then others.
    let mut refused = BTreeSet::new();
    for _ in 0..TRIES {
        let (named, holding) = hosts(all, &claim).await?;
        let held: Vec<&BareMetalHost> = holding.iter().map(AsRef::as_ref).collect();
        match host_claims::association(&claim, named.as_deref(), &held) {
            Association::Bound(host) => return keep(all, &claim, host, &held).await,
            Association::TakeUp(host) => {
                claim = all.report(&claim, &Report::choosing(place(host))).await?;
                let note = format!("BareMetalHost {} names this claim: it is this claim's again", place(host));
                all.say(&claim, &Said { reason: "BareMetalHostTakenUp".to_owned(), note, warning: false }).await;
            }
            Association::Chosen(host) => {
                let suits = suits(all, &claim, host).await?;
                if !suits || !commit(all, &claim, host).await? {
                    // Another process may still carry out the earlier intent and write the claim's name to this host.
                    let dropped = place(host);
                    if suits {
                        refused.insert(dropped.clone());
                    }
                    let chosen = search(all, &claim, &refused).await?;
                    let kept = chosen.as_ref().and_then(|claim| claim.status.as_ref()?.bare_metal_host.as_ref());
                    if kept != Some(&dropped) {
                        depart::void(all, chosen.as_ref().unwrap_or(&claim), &dropped).await?;
                    }
                    match chosen {
                        Some(chosen) => claim = chosen,
                        None => return Ok(Action::requeue(WAIT)),
                    }
                }
            }
            Association::Search => match search(all, &claim, &refused).await? {
                Some(chosen) => claim = chosen,
                None => return Ok(Action::requeue(WAIT)),
            },
            Association::Lost => {
                all.report(&claim, &Report::lost(&claim)).await?;
                return Ok(Action::requeue(WAIT));
            }
        }
    }
    // Other claims were faster: the next look goes on.
    Ok(Action::requeue(Duration::from_secs(1)))
}

pub fn place(host: &BareMetalHost) -> BoundObject {
    BoundObject { namespace: host.namespace().unwrap_or_default(), name: host.name_any() }
}

type Hosts = (Option<Arc<BareMetalHost>>, Vec<Arc<BareMetalHost>>);

/// The host that the claim names, and those that name the claim and are its own.
async fn hosts(all: &Claims, claim: &HostClaim) -> Result<Hosts, LookError> {
    let mut titles = Titles::default();
    let named = claim.status.as_ref().and_then(|status| status.bare_metal_host.as_ref());
    let named = match named {
        Some(named) => {
            let key = ObjectRef::new(&named.name).within(&named.namespace);
            match all.host.hosts.get(&all.host.client, &key).await {
                Err(kube::Error::SerdeError(_)) => {
                    // One that is not the claim's is none of its concern.
                    let rest = all.host_at(named).await?.and_then(Readable::rest);
                    if let Some(host) = rest
                        && titles.are_good(all, claim, &host).await?
                    {
                        return Err(LookError::Unreadable(named.clone()));
                    }
                    None
                }
                found => found.map_err(LookError::api("read the claim's host"))?,
            }
        }
        None => None,
    };
    let hosts = all.host.hosts.store().map(|store| store.state()).unwrap_or_default();
    let mut holding: Vec<Arc<BareMetalHost>> = Vec::new();
    for host in hosts {
        // The watch may lag behind what is known of the named host.
        let is_named = named.as_ref().is_some_and(|named| place(named) == place(&host));
        if !is_named && titles.are_good(all, claim, &host).await? {
            holding.push(host);
        }
    }
    if let Some(unreadable) = holding.iter().find(|host| all.host.hosts.marks().hold(host.as_ref())) {
        return Err(LookError::Unreadable(place(unreadable)));
    }
    if let Some(named) = &named
        && titles.are_good(all, claim, named).await?
    {
        holding.push(Arc::clone(named));
    }
    Ok((named, holding))
}

/// Whether hosts that name a claim are its own: by their [`host_claims::title`], and where that asks for it, by the policies of their namespaces,
/// which are read once.
#[derive(Default)]
pub struct Titles {
    admitting: BTreeMap<String, bool>,
}

impl Titles {
    /// Whether this host is the claim's.
    pub async fn are_good(&mut self, all: &Claims, claim: &HostClaim, host: &BareMetalHost) -> Result<bool, LookError> {
        match host_claims::title(host, claim) {
            Title::Own => return Ok(true),
            Title::Foreign => return Ok(false),
            Title::IfAdmitted => {}
        }
        let namespace = host.namespace().unwrap_or_default();
        if let Some(known) = self.admitting.get(&namespace) {
            return Ok(*known);
        }
        let admits = admits(all, claim, host).await?;
        self.admitting.insert(namespace, admits);
        Ok(admits)
    }
}

/// Namespaces whose hosts the claim may have: by the watched policies, or by those of the namespace `now_in`, read anew.
async fn admitted(all: &Claims, claim: &HostClaim, now_in: Option<&str>) -> Result<BTreeSet<String>, LookError> {
    let claim_namespace = claim.namespace().unwrap_or_default();
    let namespaces: Api<Namespace> = Api::all(all.host.client.clone());
    let found =
        namespaces.get_metadata(&claim_namespace).await.map_err(LookError::api("read the claim's namespace"))?;
    let labels: BTreeMap<String, String> = found.metadata.labels.unwrap_or_default();
    if let Some(namespace) = now_in {
        let api: Api<Readable<HostDeployPolicy>> = Api::namespaced(all.host.client.clone(), namespace);
        let found = api.list(&ListParams::default()).await.map_err(LookError::api("list the HostDeployPolicies"))?;
        let read = found.items.iter().filter_map(|policy| match policy {
            Readable::Read(policy) => Some(policy.as_ref()),
            // It admits nobody; an Event says so.
            Readable::Unreadable(_) => None,
        });
        return Ok(all.expressions().admitted(read, &claim_namespace, &labels));
    }
    let policies = all.policies.store().map(|store| store.state()).unwrap_or_default();
    let read =
        policies.iter().map(AsRef::as_ref).filter(|policy: &&HostDeployPolicy| !all.policies.marks().hold(*policy));
    Ok(all.expressions().admitted(read, &claim_namespace, &labels))
}

pub async fn admits(all: &Claims, claim: &HostClaim, host: &BareMetalHost) -> Result<bool, LookError> {
    let namespace = host.namespace().unwrap_or_default();
    Ok(admitted(all, claim, Some(&namespace)).await?.contains(&namespace))
}

/// Whether the claim may have the host by its namespace's policies, read anew.
async fn suits(all: &Claims, claim: &HostClaim, host: &BareMetalHost) -> Result<bool, LookError> {
    let Ok(selector) = Selector::of(&claim.spec.host_selector) else { return Ok(false) };
    let namespaces = admitted(all, claim, host.namespace().as_deref()).await?;
    Ok(Search { claim, namespaces: &namespaces, selector: &selector }.suits(host))
}

/// Writes the claim's name to the host. Returns whether that succeeded.
///
/// The claim is read again, after the host: if it is deleted later, giving its host back first changes the host's version, and this write
/// fails. So no host names a deleted claim, even if two processes act for a moment.
async fn commit(all: &Claims, claim: &HostClaim, host: &BareMetalHost) -> Result<bool, LookError> {
    let now = all.api_of(claim).get(&claim.name_any()).await.map_err(LookError::api("read the claim again"))?;
    let names = now.status.as_ref().and_then(|status| status.bare_metal_host.as_ref()) == Some(&place(host));
    if now.metadata.uid != claim.metadata.uid || now.is_deleting() || !now.is_held() || !names {
        return Err(LookError::Moved);
    }
    let annotations = json!({ annotation::NOT_CLAIMED: null });
    let patch =
        json!({ "metadata": { "annotations": annotations }, "spec": { "consumerRef": host_claims::consumer(claim) } });
    let outcome = all.change_host(host, patch).await;
    all.forget_promises(claim.metadata.uid.as_deref().unwrap_or_default());
    match outcome? {
        Written::Host(_) => Ok(true),
        Written::Refused(why) => {
            let note = format!("BareMetalHost {} cannot be claimed: {why}", place(host));
            all.say(claim, &Said { reason: "BareMetalHostNotSynchronized".to_owned(), note, warning: true }).await;
            // The next look tries it again, or a host that became free meanwhile.
            Ok(false)
        }
    }
}

/// Chooses a host and writes it to the claim's status. Returns the updated claim, or `None` if no host is available.
async fn search(
    all: &Claims,
    claim: &HostClaim,
    refused: &BTreeSet<BoundObject>,
) -> Result<Option<HostClaim>, LookError> {
    let selector = match Selector::of(&claim.spec.host_selector) {
        Ok(selector) => selector,
        Err(what) => {
            all.report(claim, &Report::without("NoBareMetalHost", what)).await?;
            return Ok(None);
        }
    };
    if tokio::time::timeout(LISTED_WITHIN, all.policies.listed()).await.is_err() {
        let why = "the HostDeployPolicies cannot be listed: whoever looks after the server lets it list and watch them, and applies their definition";
        all.report(claim, &Report::without("NoBareMetalHost", why.to_owned())).await?;
        return Ok(None);
    }
    let namespaces = admitted(all, claim, None).await?;
    let hosts = all.host.hosts.store().map(|store| store.state()).unwrap_or_default();
    let claim_uid = claim.uid().unwrap_or_default();
    all.forget_promises(&claim_uid);
    let choice = {
        let mut promised = all.promised();
        let search = Search { claim, namespaces: &namespaces, selector: &selector };
        let taken = |host: &BareMetalHost| {
            host.metadata.uid.as_ref().is_some_and(|uid| promised.contains_key(uid))
                || refused.contains(&place(host))
                || all.host.hosts.marks().hold(host)
        };
        let choice = host_claims::choose(&search, hosts.iter().map(AsRef::as_ref), taken);
        if let Choice::Host(chosen) = &choice
            && let Some(uid) = hosts.iter().find(|host| place(host) == *chosen).and_then(|host| host.uid())
        {
            promised.insert(uid, Promise { claim: ObjectRef::from_obj(claim), uid: claim_uid.clone() });
        }
        choice
    };
    match choice {
        Choice::Host(chosen) => {
            let written = all.report(claim, &Report::choosing(chosen)).await;
            if written.is_err() {
                all.forget_promises(&claim_uid);
            }
            written.map(Some)
        }
        Choice::None(why) => {
            let why = match refused.first() {
                None => why,
                Some(one) => format!(
                    "{why}; BareMetalHost {one} cannot be claimed: the Kubernetes API does not let it be changed, an Event says why"
                ),
            };
            all.report(claim, &Report::without("NoBareMetalHost", why)).await?;
            Ok(None)
        }
    }
}

/// Brings the claim's host to what the claim asks for.
async fn keep(
    all: &Claims,
    claim: &HostClaim,
    host: &BareMetalHost,
    holding: &[&BareMetalHost],
) -> Result<Action, LookError> {
    for stray in host_claims::strays(host, holding) {
        all.change_host(stray, json!({ "spec": { "consumerRef": null } })).await?;
    }
    // Recorded before work is written: if this process dies in between and the host is given away by hand, the claim gets no second one.
    let recorded;
    let claim = if host_claims::is_recorded(claim) {
        claim
    } else {
        recorded = all.report(claim, &Report::beginning(host)).await?;
        &recorded
    };
    let (synchronized, host) = match synchronize(all, claim, host).await {
        // The API server refuses it until its cause is corrected: report that.
        Err(LookError::Api { attempt, source }) => match refusal(&source) {
            None => return Err(LookError::Api { attempt, source }),
            Some(reason) => {
                tracing::warn!(claim = %claim.name_any(), error = %source, "{attempt}");
                let message = format!("{attempt} for BareMetalHost {}: {reason}", place(host));
                (Fact::no("BareMetalHostNotSynchronized", message), host.clone())
            }
        },
        other => other?,
    };
    let data = all.host.hardware_data.store();
    let hardware_data = data.is_some_and(|store| {
        store.get(&ObjectRef::new(&host.name_any()).within(&host.namespace().unwrap_or_default())).is_some()
    });
    let waits = !synchronized.holds;
    let claim = all.report(claim, &Report::with(&host, synchronized, hardware_data)).await?;
    reboot(all, &claim, &host).await?;
    Ok(if waits { Action::requeue(WAIT) } else { Action::await_change() })
}

/// Why a request is refused, if repeating it would not help.
fn refusal(error: &kube::Error) -> Option<String> {
    match error {
        kube::Error::Api(status) if matches!(status.code, 400 | 403 | 422) => Some(write::refused(status)),
        _ => None,
    }
}

/// Lifts the pause that a claim has put on its host: nobody else may.
async fn resume(all: &Claims, host: &BareMetalHost) -> Result<BareMetalHost, LookError> {
    if host.annotation(annotation::PAUSED) != Some(annotation::PAUSED_BY_CLAIM) {
        return Ok(host.clone());
    }
    let resumed = json!({ "metadata": { "annotations": { annotation::PAUSED: null } } });
    Ok(match all.change_host(host, resumed).await? {
        Written::Host(written) => *written,
        Written::Refused(why) => {
            tracing::warn!(host = %place(host), "resume a host that was paused with its claim: {why}");
            host.clone()
        }
    })
}

/// Writes to the host what the claim asks for. Returns the outcome and the updated host.
async fn synchronize(
    all: &Claims,
    claim: &HostClaim,
    host: &BareMetalHost,
) -> Result<(Fact, BareMetalHost), LookError> {
    const FAILED: &str = "BareMetalHostNotSynchronized";
    let same = host.clone();
    if host.is_deleting() {
        let host = resume(all, &same).await?;
        return Ok((Fact::no(FAILED, format!("BareMetalHost {} is being deleted", place(&host))), host));
    }
    let mut data = Data::default();
    for role in Role::ALL {
        match all.provide(claim, host, role).await? {
            Provided::Nothing => data.set(role, None),
            Provided::Secret(name) => data.set(role, Some(name)),
            Provided::Missing(fact) => return Ok((fact, resume(all, &same).await?)),
        }
    }
    let mut patch = json!({});
    if let Some(spec) = host_claims::change(claim, host, &data) {
        patch["spec"] = spec;
    }
    if host.annotation(annotation::PAUSED) == Some(annotation::PAUSED_BY_CLAIM) {
        patch["metadata"] = json!({ "annotations": { annotation::PAUSED: null } });
    }
    let mut host = same;
    if patch != json!({}) {
        match all.change_host(&host, patch).await? {
            Written::Host(written) => host = *written,
            Written::Refused(why) => {
                let message =
                    format!("BareMetalHost {} cannot be brought to what the claim asks for: {why}", place(&host));
                return Ok((Fact::no(FAILED, message), host));
            }
        }
    }
    all.clear(claim, &host, &data).await?;
    let message = if host.spec.online && !claim.spec.powered_on {
        "spec.poweredOn is false, and the BareMetalHost must not be switched off (its spec.disablePowerOff)".to_owned()
    } else {
        format!("The spec of BareMetalHost {} is what the claim asks for", place(&host))
    };
    Ok((Fact::yes("ConfigurationSynced", message), host))
}

/// Longest key of a reboot annotation that goes to the host as it is: with what stands before it there, the name has the 63 bytes that an annotation's may have.
const MAX_KEY: usize = 63 - annotation::CLAIM_REBOOT_PREFIX.len();
/// How much of a longer one is kept; a digest of all of it follows.
const KEPT: usize = 40;

/// A claim's key as its host's annotation has it.
fn short(key: &str) -> Cow<'_, str> {
    if key.len() <= MAX_KEY {
        return Cow::Borrowed(key);
    }
    let digest = hex::encode(Sha256::digest(key));
    let kept = key.get(..key.floor_char_boundary(KEPT)).unwrap_or_default();
    Cow::Owned(format!("{kept}-{}", digest.get(..12).unwrap_or_default()))
}

/// Passes reboot annotations on to the host. Those with a key last as long as the claim's. The one without a key is passed on once: the host
/// carries a mark until the claim has lost it, so that it is not passed on again after a crash. The write that removes it from the claim puts
/// the same mark there, so that one set again before the host has lost its mark counts as new.
async fn reboot(all: &Claims, claim: &HostClaim, host: &BareMetalHost) -> Result<(), LookError> {
    let mine = |key: &str| format!("{}/{}{}", annotation::REBOOT, annotation::CLAIM_REBOOT_PREFIX, short(key));
    let mut wanted: BTreeMap<String, &str> = BTreeMap::new();
    let mut once = None;
    for (key, value) in host_claims::reboots(claim) {
        match key.strip_prefix(annotation::REBOOT).and_then(|rest| rest.strip_prefix('/')) {
            Some(key) => {
                wanted.insert(mine(key), value);
            }
            None => once = Some(value),
        }
    }
    let empty = BTreeMap::new();
    let found = host.metadata.annotations.as_ref().unwrap_or(&empty);
    let mut changes: Map<String, Value> = Map::new();
    for key in found.keys().filter(|key| key.starts_with(&mine("")) && !wanted.contains_key(*key)) {
        changes.insert(key.clone(), Value::Null);
    }
    for (key, value) in wanted {
        if found.get(&key).map(String::as_str) != Some(value) {
            changes.insert(key, json!(value));
        }
    }
    let mark = found.get(annotation::CLAIM_REBOOT);
    // The claim carries the mark of the last annotation removed from it: an annotation beside that mark is a new one.
    let taken_off = claim.annotation(annotation::CLAIM_REBOOT);
    let mut handed_on = mark.cloned();
    match once {
        Some(value) if mark.is_none() || mark.map(String::as_str) == taken_off => {
            let new = format!("{}/{}", claim.uid().unwrap_or_default(), claim.resource_version().unwrap_or_default());
            changes.insert(annotation::REBOOT.to_owned(), json!(value));
            changes.insert(annotation::CLAIM_REBOOT.to_owned(), json!(new));
            handed_on = Some(new);
        }
        None if mark.is_some() => {
            changes.insert(annotation::CLAIM_REBOOT.to_owned(), Value::Null);
        }
        _ => {}
    }
    if !changes.is_empty()
        && let Written::Refused(why) = all.change_host(host, json!({ "metadata": { "annotations": changes } })).await?
    {
        let note =
            format!("The claim's reboot annotations cannot be handed on to BareMetalHost {}: {why}", place(host));
        all.say(claim, &Said { reason: "BareMetalHostNotSynchronized".to_owned(), note, warning: true }).await;
        return Ok(());
    }
    if once.is_some() {
        // This change triggers the next look, which does the rest.
        let marks = json!({ annotation::REBOOT: null, annotation::CLAIM_REBOOT: handed_on });
        all.annotate(claim, marks).await?;
    }
    Ok(())
}

/// Leaves a paused claim alone, and pauses its host.
async fn paused(all: &Claims, claim: &HostClaim) -> Result<Action, LookError> {
    let (named, holding) = hosts(all, claim).await?;
    let held: Vec<&BareMetalHost> = holding.iter().map(AsRef::as_ref).collect();
    let host = match host_claims::association(claim, named.as_deref(), &held) {
        Association::Bound(host) => host,
        // A lost host stays reported.
        Association::Lost => {
            all.report(claim, &Report::lost(claim)).await?;
            return Ok(Action::await_change());
        }
        Association::TakeUp(_) | Association::Chosen(_) | Association::Search => {
            all.report(claim, &Report::paused(claim)).await?;
            return Ok(Action::await_change());
        }
    };
    if host.annotation(annotation::PAUSED).is_none() {
        let pause = json!({ "metadata": { "annotations": { annotation::PAUSED: annotation::PAUSED_BY_CLAIM } } });
        if let Written::Refused(why) = all.change_host(host, pause).await? {
            let note = format!("BareMetalHost {} cannot be paused with the claim: {why}", place(host));
            all.say(claim, &Said { reason: "PauseAnnotationSetFailed".to_owned(), note, warning: true }).await;
        }
    }
    let message = format!("The claim is paused (annotation {}), and so is its host", annotation::PAUSED);
    all.report(claim, &Report::with(host, Fact::no("HostPaused", message), false)).await?;
    Ok(Action::await_change())
}
