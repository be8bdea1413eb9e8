//! Approval: a host that was discovered gets BMC details, once the machine that it was made from has shown itself again.

use std::time::Duration;

use api::Time;
use api::metal3::{BareMetalHost, annotation};
use api::metamorph::{DiscoveryApproval, DiscoveryPhase, HostDiscovery};
use discovery::{Answer, Place, Rediscover, Ruling, Shown, Situation};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::reflector::ObjectRef;
use kube::{Resource as _, ResourceExt as _};
use serde_json::{Value, json};
use terms::clean;
use tokio::time::{Instant, timeout};

use super::world::{self, Known, Unplaced};
use super::{AGAIN, All, Done, Key, Names, One, Wish, scan};
use crate::events::Said;

/// Time for the machine to show itself.
const SHOW: Duration = Duration::from_secs(15);

/// A host whose machine is being asked.
pub(super) struct Asked {
    host: Key,
    discovery: Key,
    /// Its uid: another one of that name has decided nothing.
    uid: Option<String>,
    by_rule: bool,
    /// The host that was decided on.
    was: BareMetalHost,
    place: Place,
}

impl All {
    /// Asks the machine of a host that is to be approved, or says why that is not done.
    pub(super) async fn ask(&mut self, key: Key) {
        let Some(wish) = self.wishes.get_mut(&key) else { return };
        let was_by_rule = wish.by_rule;
        wish.later();
        let hosts: Api<BareMetalHost> = Api::namespaced(self.context.client.clone(), &key.0);
        // What somebody has approved is read as it is now.
        let host = match hosts.get_opt(&key.1).await {
            Ok(Some(host)) => host,
            Ok(None) => {
                self.wishes.remove(&key);
                return;
            }
            Err(error) => {
                tracing::debug!(namespace = key.0, host = key.1, %error, "read a host that is to be approved");
                return;
            }
        };
        let word = host.annotation(annotation::APPROVE);
        let is_unmanaged = host.spec.bmc.is_none() && !host.is_deleting();
        if let Some(word) = word.filter(|word| is_unmanaged && !matches!(*word, "true" | "false")) {
            self.wishes.remove(&key);
            let why = format!(
                "the annotation {} is {:?}, which is neither \"true\" nor \"false\": nothing is approved by it",
                annotation::APPROVE,
                clean(word, 64)
            );
            return self.refuse(&host, &why).await;
        }
        let by_rule = was_by_rule && word != Some("true");
        let is_wished = word == Some("true") || by_rule && word.is_none() && self.is_automatic(&host);
        if !is_wished || host.spec.bmc.is_some() || host.is_deleting() {
            self.wishes.remove(&key);
            return;
        }
        if let Some(why) = self.frozen(&key.0).await {
            if let Some(wish) = self.wishes.get_mut(&key) {
                // It is approved soon after that has ended.
                (wish.at, wish.tries) = (Instant::now() + AGAIN, 0);
            }
            return self.refuse(&host, &why).await;
        }
        match self.why_not(&key, &host).await {
            Ok((discovery, place)) => {
                self.asking.insert(key.clone());
                let scout = std::sync::Arc::clone(&self.scout);
                let uid = self.of.get(&discovery).and_then(|one| one.object.uid());
                let asked = Box::new(Asked { host: key, discovery, uid, by_rule, was: host, place });
                // A host may have been declared since the last scan whose BMC has a name.
                let mut names = world::names(&self.context);
                names.retain(|name| self.names.get(name).is_none_or(Vec::is_empty));
                self.tasks.spawn(async move {
                    let names = scan::resolve(&scout, names).await;
                    let answer = timeout(SHOW, scout.ask(place)).await.unwrap_or(Answer::Nothing);
                    Done::Asked(asked, answer, names)
                });
            }
            Err(why) => self.refuse(&host, &why).await,
        }
    }

    /// Whether rules may approve the host now: what its HostDiscovery said when the wish arose is past.
    fn is_automatic(&self, host: &BareMetalHost) -> bool {
        let by = world::discovered(host).map(|made| (host.namespace().unwrap_or_default(), made.by));
        let one = by.and_then(|by| self.of.get(&by));
        let stays = |one: &One| one.object.metadata.deletion_timestamp.is_none();
        one.is_some_and(|one| one.object.spec.approval == DiscoveryApproval::Automatic && stays(one))
    }

    /// Where the machine of the host is asked, and by what HostDiscovery; else why not, a sentence.
    async fn why_not(&self, key: &Key, host: &BareMetalHost) -> Result<(Key, Place), String> {
        let Some(made) = world::discovered(host) else {
            return Err("its annotations do not say where it was discovered: write spec.bmc yourself".to_owned());
        };
        let of = (key.0.clone(), made.by.clone());
        let Some(one) = self.of.get(&of) else {
            return Err(format!("the HostDiscovery {} is gone: write spec.bmc yourself", clean(&made.by, 253)));
        };
        let Some(plan) = &one.plan else {
            return Err(format!("the spec of the HostDiscovery {} cannot be used: correct it", made.by));
        };
        let place = Place::parse(&made.address).filter(|place| plan.places.binary_search(place).is_ok());
        let Some(place) = place else {
            return Err(format!(
                "{:?} is no address that the HostDiscovery {} asks",
                clean(&made.address, 128),
                made.by
            ));
        };
        let secret = one.object.spec.credentials_name.as_str();
        if secret.is_empty() {
            return Err(format!("spec.credentialsName of the HostDiscovery {} names no Secret", made.by));
        }
        let secrets: Api<Secret> = Api::namespaced(self.context.client.clone(), &key.0);
        match secrets.get_metadata_opt(secret).await {
            Ok(Some(_)) => Ok((of, place)),
            Ok(None) => Err(format!("there is no Secret {secret}, which the HostDiscovery {} names", made.by)),
            Err(error) => Err(format!("read the Secret {secret}: {}", clean(&error.to_string(), 200))),
        }
    }

    /// The machine has answered, or has not.
    pub(super) async fn answered(&mut self, asked: Asked, answer: Answer, names: Names) {
        self.asking.remove(&asked.host);
        self.names.extend(names);
        if !self.wishes.contains_key(&asked.host) || !self.may_act() {
            return;
        }
        let why = match answer {
            Answer::Shown(shown) => match self.fault(&asked, &shown.bounded()) {
                None => {
                    // While the machine was asked: nobody is sent a password there. It is approved soon after that has ended.
                    let Some(why) = self.frozen(&asked.host.0).await else { return self.approve(asked).await };
                    if let Some(wish) = self.wishes.get_mut(&asked.host) {
                        (wish.at, wish.tries) = (Instant::now() + AGAIN, 0);
                    }
                    return self.refuse(&asked.was, &why).await;
                }
                Some(why) => why,
            },
            Answer::Hidden => "what answers there shows nothing without a password now".to_owned(),
            Answer::NotAllowed => "its address is a local one, which is not called".to_owned(),
            Answer::Nothing => "nothing answers there now".to_owned(),
        };
        let note = format!("{}: {why}", asked.place);
        self.refuse(&asked.was, &note).await;
    }

    /// Why what has answered is not approved: by what it shows, and by what the HostDiscovery says now.
    fn fault(&self, asked: &Asked, shown: &Shown) -> Option<String> {
        if !self.is_in_step() {
            return Some("hosts and MachineRecords are being listed".to_owned());
        }
        let made = world::discovered(&asked.was).unwrap_or_default();
        if made.identity.is_none() || shown.uuid.as_deref().and_then(discovery::identity) != made.identity {
            return Some("another machine answers there now than was found; it has been sent no password".to_owned());
        }
        let name = &asked.discovery.1;
        if made.key_sha256.is_some() && made.key_sha256 != shown.key_sha256 {
            return Some(format!(
                "it shows the UUID, and proves another key than was found; it has been sent no password. If its BMC's certificate is new, delete the host, and annotate the HostDiscovery {name} with {}={}",
                annotation::REDISCOVER,
                shown.uuid.as_deref().unwrap_or_default()
            ));
        }
        let Some(one) = self.of.get(&asked.discovery).filter(|one| one.object.uid() == asked.uid) else {
            return Some(format!("the HostDiscovery {name} was deleted meanwhile"));
        };
        let Some(plan) = &one.plan else {
            return Some(format!("the spec of the HostDiscovery {name} cannot be used: correct it"));
        };
        if plan.places.binary_search(&asked.place).is_err() {
            return Some(format!("the HostDiscovery {name} does not ask this address any more"));
        }
        let spec = &one.object.spec;
        if spec.credentials_name.is_empty() {
            return Some(format!("spec.credentialsName of the HostDiscovery {name} names no Secret"));
        }
        // What was declared or recorded since the scan is somebody's.
        let lately: Vec<_> = self.made.iter().map(|(_, host)| std::sync::Arc::clone(host)).collect();
        let hosts = world::hosts(&self.context, &lately, &self.names);
        let records = world::records(&self.context);
        let known = (hosts.as_slice(), records.as_slice());
        let own = (asked.host.0.as_str(), asked.host.1.as_str());
        if let Some(why) = discovery::is_anothers(known, own, (&asked.place, made.identity.as_deref())) {
            return Some(why);
        }
        if !asked.by_rule {
            return None;
        }
        let unplaced = Unplaced::of(&self.context, &records, &self.names);
        if let Some(why) = unplaced.said(own.0).filter(|_| unplaced.is_blind) {
            return Some(why);
        }
        if one.object.metadata.deletion_timestamp.is_some() {
            return Some(format!("the HostDiscovery {name} is being deleted: its rules approve nothing any more"));
        }
        if spec.approval != DiscoveryApproval::Automatic {
            return Some(format!("spec.approval of the HostDiscovery {name} is not Automatic any more"));
        }
        match plan.rules.judge(&asked.place, shown) {
            Ruling::Allowed { by_rule: true } => None,
            Ruling::Allowed { by_rule: false } => Some(format!("the HostDiscovery {name} has no rule in spec.allow")),
            Ruling::Denied(why) => Some(why),
        }
    }

    /// Writes the BMC details, on the version that was decided on.
    async fn approve(&mut self, asked: Asked) {
        let Some(one) = self.of.get(&asked.discovery) else { return };
        let object = one.object.clone();
        let mut bmc = json!({ "address": asked.place.address(), "credentialsName": object.spec.credentials_name });
        if object.spec.disable_certificate_verification {
            bmc["disableCertificateVerification"] = Value::Bool(true);
        }
        let change = json!({
            "metadata": { "uid": asked.was.uid(), "resourceVersion": asked.was.resource_version(),
                "annotations": { (annotation::APPROVE): Value::Null } },
            "spec": { "bmc": bmc },
        });
        let hosts: Api<BareMetalHost> = Api::namespaced(self.context.client.clone(), &asked.host.0);
        let reference = ObjectRef::from_obj(&asked.was);
        let (params, patch) = (PatchParams::default(), Patch::Merge(change));
        let call = async { hosts.patch(&asked.host.1, &params, &patch).await };
        match self.context.hosts.writing(&reference, call).await {
            Ok(host) => {
                self.wishes.remove(&asked.host);
                let by = if asked.by_rule { "an allow rule" } else { "its annotation" };
                let note = format!(
                    "Approved by {by}: its BMC is {}, as the HostDiscovery {} has found it",
                    asked.place,
                    object.name_any()
                );
                self.publish(&host, "Approved", note, false).await;
                self.is_approved(&asked.discovery, &object, &asked.host.1).await;
            }
            Err(kube::Error::Api(status)) if status.code == 409 => self.again(&asked.host),
            Err(kube::Error::Api(status)) if status.code == 404 => {
                self.wishes.remove(&asked.host);
            }
            Err(error) => {
                let why = format!("the API has refused it: {}", clean(&error.to_string(), 300));
                self.refuse(&asked.was, &why).await;
            }
        }
    }

    /// The host has changed meanwhile: it is looked at anew.
    fn again(&mut self, key: &Key) {
        if let Some(wish) = self.wishes.get_mut(key) {
            wish.at = Instant::now() + Duration::from_secs(1);
        }
    }

    /// Says so in the list of machines.
    async fn is_approved(&mut self, key: &Key, object: &HostDiscovery, host: &str) {
        let Some(one) = self.of.get(key).filter(|one| one.object.uid() == object.uid()) else { return };
        let mut status = one.status();
        let of_host = |machine: &&mut api::metamorph::DiscoveredMachine| {
            machine.host.as_deref() == Some(host)
                && machine.host_uid.is_some()
                && machine.phase == DiscoveryPhase::Found
        };
        let Some(machine) = status.machines.iter_mut().find(of_host) else { return };
        machine.phase = DiscoveryPhase::Approved;
        machine.message = "its host has been approved".to_owned();
        status.pending = status.pending.saturating_sub(1);
        self.put_status(key, status).await;
    }

    /// Wishes what rules approve of the hosts that wait: what another process has wished is gone with it. Where nothing is scanned that is done again and
    /// again; elsewhere the next scan may be a week away, and then tells what is to be wished.
    pub(super) fn find_wishes(&mut self, key: &Key) {
        // A status that the API has refused is not what was found last.
        let is_written = !self.unwritten.contains(key);
        let is_it = |one: &&mut One| {
            let goes = one.object.metadata.deletion_timestamp.is_some();
            is_written && !goes && (one.is_only_reported() || !one.wished)
        };
        let Some(one) = self.of.get_mut(key).filter(is_it) else { return };
        one.wished = true;
        let Some(one) = self.of.get(key) else { return };
        let Some(plan) = one.plan.clone().filter(|_| one.object.spec.approval == DiscoveryApproval::Automatic) else {
            return;
        };
        let known = Known::of(&self.context, &self.made_hosts(), &self.names);
        let situation = Situation {
            namespace: &key.0,
            name: &key.1,
            spec: &one.object.spec,
            rules: &plan.rules,
            hosts: &known.hosts,
            records: &known.records,
            before: one.machines(),
            elsewhere: &self.elsewhere(key),
            rediscover: &Rediscover::default(),
            now: Time(self.context.settings.clock.now()),
            asked: None,
        };
        for name in discovery::awaiting(&situation) {
            self.wishes.entry((key.0.clone(), name)).or_insert(Wish::new(true));
        }
    }

    async fn refuse(&self, host: &BareMetalHost, why: &str) {
        self.publish(host, "NotApproved", format!("Not approved yet: {why}"), true).await;
    }

    async fn publish(&self, host: &BareMetalHost, reason: &str, note: String, warning: bool) {
        let said = Said { reason: reason.to_owned(), note, warning };
        if let Err(error) = self.context.recorder.publish(&said, &host.object_ref(&())).await {
            tracing::warn!(host = host.name_any(), reason, %error, "publish an Event");
        }
    }
}
