//! What comes of a scan: hosts, and the status.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::Time;
use api::metal3::{BareMetalHost, BareMetalHostSpec, annotation, label};
use api::metamorph::{DiscoveredMachine, DiscoveryPhase, DiscoveryScan, HostDiscovery, HostDiscoveryStatus};
use discovery::{Discovered, KnownHost, NewHost, Place, Plan, Rediscover, Situation, Taken, Verdict};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Resource as _, ResourceExt as _};
use serde_json::{Value, json};
use terms::clean;
use tokio::time::Instant;

use super::scan::Scanned;
use super::world::{self, Known, Unplaced};
use super::{AGAIN, All, FAILED, Key, LEAST, OFFERED, One, Stand, Wish};
use crate::events::Said;
use crate::host::freeze::frozen;

/// The condition that says whether it scans.
const READY: &str = "Ready";
/// Where the definition is from before revisions of media were kept.
const UNKEPT_NOTE: &str = "The status does not keep which media were offered and taken back, as the definition of HostDiscoveries is an earlier one: a medium that is removed and added again with the same number would be valid again. Apply `metamorph crds` again";
/// Longest message of a condition, characters.
const MAX_MESSAGE: usize = 1024;

impl All {
    /// The hosts that this process has made.
    pub(super) fn made_hosts(&self) -> Vec<Arc<BareMetalHost>> {
        self.made.iter().map(|(_, host)| Arc::clone(host)).collect()
    }

    /// A scan has ended.
    pub(super) async fn scanned(&mut self, key: &Key, stand: &Stand, mut scanned: Scanned) {
        self.is_scanning = false;
        let now = Instant::now();
        let (in_step, may_act) = (self.is_in_step(), self.may_act());
        let Some(one) = self.of.get_mut(key) else { return };
        one.rest = now + LEAST;
        if one.stand() != *stand || !one.is_scanned() {
            // It was asked for by another spec.
            one.due = one.due.max(one.rest);
            return;
        }
        one.due = now + FAILED;
        if !in_step || !may_act {
            return;
        }
        let Some(plan) = one.plan.clone() else { return };
        let (object, is_only_reported) = (one.object.clone(), one.is_only_reported());
        // What is frozen since it began is left as it is, too: hosts are made of what is found after that.
        if let Some(why) = self.frozen(&key.0).await {
            return self.hold(key, why);
        }
        self.names.clone_from(&scanned.names);
        self.resolved = Some(now);
        let rediscover = object.annotations().get(annotation::REDISCOVER).map(|text| Rediscover::read(text));
        let nowhere = BTreeSet::new();
        let asked = is_only_reported.then_some(&nowhere);
        let again = rediscover.clone().unwrap_or_default();
        let mut verdict = self.decide(key, &object, &plan, &again, &mut scanned, asked);
        let was_unwritten = self.unwritten.contains(key);
        self.carry_out(key, &mut verdict).await;
        self.tell_left_out(&object, &scanned, &verdict).await;
        let again = verdict.again;
        let written = self.report(key, scanned, verdict).await;
        if was_unwritten
            && written
            && let Some(one) = self.of.get_mut(key)
        {
            // Hosts are made by the next one.
            one.due = one.rest;
            return;
        }
        if !written || rediscover.is_none() {
            return;
        }
        if self.forget_wish(key).await {
            self.tell_again(&object, again).await;
        } else if let Some(one) = self.of.get_mut(key) {
            (one.due, one.rest) = (now + FAILED, now + FAILED);
        }
    }

    /// Why nothing is done in this namespace now: it is frozen, or whether it is cannot be read.
    pub(super) async fn frozen(&self, namespace: &str) -> Option<String> {
        match frozen(&self.context.client, namespace).await {
            Ok(why) => why,
            Err(error) => Some(format!(
                "whether the namespace {namespace} is frozen cannot be read: {}",
                clean(&error.to_string(), 300)
            )),
        }
    }

    /// Asks nobody while the namespace is frozen, and says so.
    pub(super) fn hold(&mut self, key: &Key, why: String) {
        let Some(one) = self.of.get_mut(key) else { return };
        let now = Instant::now();
        one.due = now + AGAIN;
        // What is not scanned is looked at with its medium.
        one.offers = one.offers.min(one.due);
        if one.held.as_ref() != Some(&why) {
            (one.held, one.says) = (Some(why), Some(now));
        }
    }

    /// The namespace is not frozen any more, if it was.
    pub(super) fn thawed(&mut self, key: &Key) {
        if let Some(one) = self.of.get_mut(key)
            && one.held.take().is_some()
        {
            one.says = Some(Instant::now());
        }
    }

    /// Makes the hosts of a verdict, and wishes the approvals of rules.
    pub(super) async fn carry_out(&mut self, key: &Key, verdict: &mut Verdict) {
        if self.unwritten.contains(key) {
            make_none(verdict);
        }
        for new in std::mem::take(&mut verdict.make) {
            self.make(key, new, verdict).await;
        }
        for name in std::mem::take(&mut verdict.approve) {
            self.wishes.entry((key.0.clone(), name)).or_insert(Wish::new(true));
        }
    }

    /// What comes of it. Wishes of rules that this scan does not bear out are given up: another machine may show the same UUID by now.
    pub(super) fn decide(
        &mut self,
        key: &Key,
        object: &HostDiscovery,
        plan: &Plan,
        rediscover: &Rediscover,
        scanned: &mut Scanned,
        asked: Option<&BTreeSet<Place>>,
    ) -> Verdict {
        let known = Known::of(&self.context, &self.made_hosts(), &scanned.names);
        let elsewhere = self.elsewhere(key);
        let situation = Situation {
            namespace: &key.0,
            name: &key.1,
            spec: &object.spec,
            rules: &plan.rules,
            hosts: &known.hosts,
            records: &known.records,
            before: self.of.get(key).map_or(&[][..], One::machines),
            elsewhere: &elsewhere,
            rediscover,
            now: Time(self.context.settings.clock.now()),
            asked,
        };
        let mut verdict = discovery::judge(&situation, &scanned.found);
        let unplaced = Unplaced::of(&self.context, &known.records, &scanned.names);
        if unplaced.is_blind {
            verdict.approve.clear();
            verdict.make.iter_mut().for_each(|new| new.approved = false);
        }
        unplaced.log();
        scanned.left_out.extend(unplaced.said(&key.0));
        // Where only some places were asked, this says nothing of others' hosts, unless their UUID was shown here.
        let shown: BTreeSet<String> =
            scanned.found.iter().filter_map(|(_, shown)| discovery::identity(shown.uuid.as_deref()?)).collect();
        let is_judged = |made: &Discovered| {
            let is_asked = |asked: &BTreeSet<Place>| {
                Place::parse(&made.address).is_some_and(|place| asked.contains(&place))
                    || made.identity.as_ref().is_some_and(|identity| shown.contains(identity))
            };
            asked.is_none_or(is_asked)
        };
        let is_own = |host: &&KnownHost| {
            let is_it = |made: &Discovered| made.by == key.1 && is_judged(made);
            host.namespace == key.0 && host.discovered.as_ref().is_some_and(is_it)
        };
        let own: BTreeSet<&str> = known.hosts.iter().filter(is_own).map(|host| host.name.as_str()).collect();
        self.wishes.retain(|(namespace, name), wish| {
            !wish.by_rule || *namespace != key.0 || !own.contains(name.as_str()) || verdict.approve.contains(name)
        });
        verdict
    }

    /// What other HostDiscoveries of the namespace list.
    pub(super) fn elsewhere(&self, key: &Key) -> Vec<&DiscoveredMachine> {
        let others = self.of.iter().filter(|(of, _)| of.0 == key.0 && of.1 != key.1);
        others.flat_map(|(_, one)| one.machines()).collect()
    }

    /// Makes a host. One of that name that is there already is somebody's.
    async fn make(&mut self, key: &Key, new: NewHost, verdict: &mut Verdict) {
        let Some(machine) = verdict.machines.get_mut(new.machine) else { return };
        if !self.may_act() {
            machine.host = None;
            machine.message = "it is no host yet".to_owned();
            return;
        }
        let api: Api<BareMetalHost> = Api::namespaced(self.context.client.clone(), &key.0);
        let host = host_of(key, &new.name, machine);
        match api.create(&PostParams::default(), &host).await {
            Ok(host) => {
                machine.host_uid = host.uid();
                self.made.push((Instant::now(), Arc::new(host)));
                if new.approved {
                    self.wishes.insert((key.0.clone(), new.name), Wish::new(true));
                }
            }
            Err(kube::Error::Api(status)) if status.code == 409 => {
                machine.host = None;
                verdict.pending = verdict.pending.saturating_sub(1);
                let there = api.get_opt(&new.name).await.ok().flatten();
                let made = there.as_ref().and_then(world::discovered);
                let same = made.is_some_and(|made| {
                    made.identity.is_some() && made.identity == machine.uuid.as_deref().and_then(discovery::identity)
                });
                let (phase, message) = if same {
                    (DiscoveryPhase::Known, format!("the host {} was made of it already", new.name))
                } else {
                    (
                        DiscoveryPhase::Contradiction,
                        format!("it would be called {}, and a host of that name is another's", new.name),
                    )
                };
                (machine.phase, machine.message) = (phase, message);
            }
            Err(error) => {
                tracing::warn!(namespace = key.0, host = new.name, %error, "make a host of a machine that was found");
                machine.host = None;
                verdict.pending = verdict.pending.saturating_sub(1);
                machine.message = format!("the API has refused its host: {}", clean(&error.to_string(), 300));
            }
        }
    }

    /// An Event where hosts were not made for want of room: somebody may be flooding.
    async fn tell_left_out(&self, object: &HostDiscovery, scanned: &Scanned, verdict: &Verdict) {
        if verdict.left_out.is_empty() {
            return;
        }
        let note = format!("{} machines answered: {}", scanned.answered, verdict.left_out.join("; "));
        self.tell(object, "HostsLeftOut", note).await;
    }

    /// An Event where a wish to have machines again has meant none.
    async fn tell_again(&self, object: &HostDiscovery, again: usize) {
        tracing::info!(discovery = object.name_any(), again, "dismissed machines may have their hosts made again");
        if again == 0 {
            let note = format!("{} means no machine that is dismissed: nothing is made again", annotation::REDISCOVER);
            self.tell(object, "NothingRediscovered", note).await;
        }
    }

    pub(super) async fn tell(&self, object: &HostDiscovery, reason: &str, note: String) {
        let said = Said { reason: reason.to_owned(), note, warning: true };
        if let Err(error) = self.context.recorder.publish(&said, &object.object_ref(&())).await {
            tracing::warn!(discovery = object.name_any(), %error, "publish an Event");
        }
    }

    /// Writes the status; whether it was written.
    async fn report(&mut self, key: &Key, scanned: Scanned, verdict: Verdict) -> bool {
        let now = self.context.settings.clock.now();
        let Some(one) = self.of.get(key) else { return false };
        let mut left_out: Vec<String> =
            scanned.left_out.iter().chain(&verdict.left_out).map(|text| clean(text, 500)).collect();
        left_out.truncate(16);
        let last_scan = DiscoveryScan {
            began: Some(Time(scanned.began)),
            ended: Some(Time(now)),
            asked: scanned.asked,
            answered: scanned.answered,
            left_out,
        };
        let status = HostDiscoveryStatus {
            observed_generation: one.generation,
            conditions: conditions(one, now),
            last_scan: Some(last_scan),
            pending: verdict.pending,
            machines: verdict.machines,
            ..one.status()
        };
        self.put_status(key, status).await
    }

    /// Writes a status, with all that was gathered of reports ([`One::status`]); whether it is as it is to be.
    pub(super) async fn put_status(&mut self, key: &Key, status: HostDiscoveryStatus) -> bool {
        let Some(one) = self.of.get(key) else { return false };
        if !self.may_act() {
            self.give_up(key);
            return false;
        }
        let before = one.object.status.clone().unwrap_or_default();
        if before == status {
            self.settle(key, &[]);
            return true;
        }
        let mut error = match self.write_status(key, &status).await {
            Ok(()) => {
                self.settle(key, &[]);
                return true;
            }
            Err(error) => error,
        };
        // A row that the API does not take is no reason to write nothing of the others.
        if let Some(taken) = taken(&status, &before, &error) {
            match self.write_status(key, &taken.status).await {
                Ok(()) => {
                    self.settle(key, &taken.reports);
                    self.tell_refused(key, &taken, &error).await;
                    return true;
                }
                Err(again) => error = again,
            }
        }
        self.give_up(key);
        self.is_not_written(key, &error).await;
        false
    }

    async fn write_status(&mut self, key: &Key, status: &HostDiscoveryStatus) -> Result<(), kube::Error> {
        let uid = self.of.get(key).and_then(|one| one.object.uid());
        // Nobody else writes it, and a change beside it, as of a label, is no reason to lose a scan.
        let mut all = json!({ "observedGeneration": null, "conditions": null, "lastScan": null, "machines": null, "media": null,
            "offeredRevision": null, "revokedRevision": null, "reports": null });
        if let (Some(all), Ok(Value::Object(fields))) = (all.as_object_mut(), serde_json::to_value(status)) {
            all.extend(fields);
            // Objects are merged: what an older scan has left out would stay.
            if let Some(scan) = all.get_mut("lastScan").and_then(Value::as_object_mut) {
                scan.entry("leftOut").or_insert(Value::Null);
            }
        }
        let change = json!({ "metadata": { "uid": uid }, "status": all });
        let mut written = self.api(key).patch_status(&key.1, &PatchParams::default(), &Patch::Merge(change)).await?;
        written.metadata.managed_fields = None;
        self.unwritten.remove(key);
        self.put(written);
        Ok(())
    }

    /// An Event for the rows that the API does not take.
    async fn tell_refused(&self, key: &Key, taken: &Taken, error: &kube::Error) {
        let Some(object) = self.of.get(key).map(|one| one.object.clone()) else { return };
        let of: Vec<&str> = taken.reports.iter().map(|row| row.identity.as_str()).collect();
        let of: Vec<&str> = of.into_iter().chain(taken.machines.iter().map(String::as_str)).take(4).collect();
        let (count, why) = (taken.reports.len() + taken.machines.len(), clean(&error.to_string(), 300));
        let note =
            format!("The API has refused {count} rows of the status, which are left out ({}): {why}", of.join(", "));
        tracing::warn!(namespace = key.0, discovery = key.1, %error, "write rows of the status of a HostDiscovery");
        self.tell(&object, "RowsNotWritten", note).await;
    }

    /// Tells that the API takes no status: without one, what was made and dismissed is not remembered.
    async fn is_not_written(&mut self, key: &Key, error: &kube::Error) {
        let code = if let kube::Error::Api(status) = error { Some(status.code) } else { None };
        if matches!(code, Some(404 | 409)) {
            tracing::debug!(namespace = key.0, discovery = key.1, %error, "write the status of a HostDiscovery");
            return;
        }
        tracing::warn!(namespace = key.0, discovery = key.1, %error, "write the status of a HostDiscovery");
        let refused = code.is_some_and(|code| code != 429);
        let Some(object) = self.of.get(key).map(|one| one.object.clone()).filter(|_| refused) else { return };
        self.unwritten.insert(key.clone());
        let why = clean(&error.to_string(), 300);
        let note = format!("The API has refused the status, and no host is made before it takes one: {why}");
        self.tell(&object, "StatusNotWritten", note).await;
    }

    /// Removes the wish to have dismissed machines again; whether it was removed.
    async fn forget_wish(&mut self, key: &Key) -> bool {
        let Some(one) = self.of.get(key) else { return false };
        let change = json!({ "metadata": { "uid": one.object.uid(), "resourceVersion": one.object.resource_version(),
            "annotations": { (annotation::REDISCOVER): Value::Null } } });
        match self.api(key).patch(&key.1, &PatchParams::default(), &Patch::Merge(change)).await {
            Ok(mut written) => {
                written.metadata.managed_fields = None;
                self.put(written);
                true
            }
            Err(error) => {
                tracing::warn!(namespace = key.0, discovery = key.1, %error, "remove an annotation");
                false
            }
        }
    }

    /// Writes the conditions that differ, of those that were seen anew.
    pub(super) async fn say(&mut self) {
        if !self.may_act() {
            return;
        }
        let now = Instant::now();
        let due = |one: &One| one.says.is_some_and(|at| at <= now);
        let anew: Vec<Key> = self.of.iter().filter(|(_, one)| due(one)).map(|(key, _)| key.clone()).collect();
        for key in anew {
            let time = self.context.settings.clock.now();
            let Some(one) = self.of.get_mut(&key) else { continue };
            one.says = None;
            let mut status = one.status();
            let conditions = conditions(one, time);
            // What is scanned says so with its first scan.
            let is_quiet = one.is_scanned() && one.held.is_none() && status.last_scan.is_none() && one.media.is_empty();
            let (offered, revoked) = (one.revisions.offered, one.revisions.revoked);
            let is_unkept = one.unkept.is_some_and(|until| until > now);
            let are_counted = is_unkept || (status.offered_revision, status.revoked_revision) == (offered, revoked);
            let is_told = status.conditions == conditions && status.media == one.media && are_counted;
            if is_quiet || is_told || one.object.metadata.deletion_timestamp.is_some() {
                continue;
            }
            (status.conditions, status.media) = (conditions, one.media.clone());
            (status.offered_revision, status.revoked_revision) = (offered, revoked);
            if !one.is_scanned() {
                status.observed_generation = one.generation;
            }
            let is_written = self.put_status(&key, status).await;
            let Some(one) = self.of.get_mut(&key) else { continue };
            if !is_written {
                one.says = Some(now + AGAIN);
                continue;
            }
            let kept = one.object.status.as_ref().map(|status| (status.offered_revision, status.revoked_revision));
            if kept != Some((offered, revoked)) {
                // An earlier definition: the API drops what it does not name.
                (one.unkept, one.says) = (Some(now + OFFERED), Some(now + OFFERED));
                let object = one.object.clone();
                self.tell(&object, "RevisionsNotKept", UNKEPT_NOTE.to_owned()).await;
            }
        }
    }
}

/// What the API takes of a status that it has refused, if some rows are the reason.
fn taken(status: &HostDiscoveryStatus, before: &HostDiscoveryStatus, error: &kube::Error) -> Option<Taken> {
    let kube::Error::Api(answer) = error else { return None };
    let causes = answer.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default();
    let fields: Vec<&str> = causes.iter().map(|cause| cause.field.as_str()).collect();
    matches!(answer.code, 400 | 422).then(|| discovery::without_refused(status, &before.reports, &fields))?
}

/// No host is made for now.
fn make_none(verdict: &mut Verdict) {
    for new in std::mem::take(&mut verdict.make) {
        verdict.pending = verdict.pending.saturating_sub(1);
        if let Some(machine) = verdict.machines.get_mut(new.machine) {
            machine.host = None;
            machine.message = "it is no host yet: the API has refused the status of this HostDiscovery".to_owned();
        }
    }
}

fn host_of(key: &Key, name: &str, machine: &DiscoveredMachine) -> BareMetalHost {
    let mut host = BareMetalHost::new(name, BareMetalHostSpec::default());
    host.metadata.namespace = Some(key.0.clone());
    host.metadata.labels = Some([(label::DISCOVERED.to_owned(), "true".to_owned())].into());
    let annotations = [
        (annotation::DISCOVERED_BY, Some(key.1.clone())),
        (annotation::DISCOVERED_ADDRESS, Some(machine.address.clone())),
        (annotation::DISCOVERED_UUID, machine.uuid.clone()),
        (annotation::DISCOVERED_KEY, machine.key_sha256.clone()),
    ];
    host.metadata.annotations =
        Some(annotations.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect());
    host
}

/// Its conditions as they are now; the time of the last change stays.
fn conditions(one: &One, now: jiff::Timestamp) -> Vec<Condition> {
    let (holds, reason, message) = if !one.faults.is_empty() {
        (false, "InvalidSpec", one.faults.join("; "))
    } else if one.object.spec.suspended {
        (false, "Suspended", "spec.suspended is true: nothing is scanned".to_owned())
    } else if let Some(why) = &one.held {
        (false, "Frozen", why.clone())
    } else {
        let places = one.plan.as_ref().map_or(0, |plan| plan.places.len());
        let minutes = one.object.spec.interval_minutes;
        let (reason, words) = if one.is_only_reported() {
            ("Listening", format!("each of {places} addresses is asked when a machine reports that its BMC is there"))
        } else {
            ("Scanning", format!("{places} addresses are asked every {minutes} minutes"))
        };
        match &one.no_medium {
            Some(why) => (false, "NoMedium", format!("{words}; there is no medium: {why}")),
            None => (true, reason, words),
        }
    };
    let status = if holds { "True" } else { "False" };
    let before = one.object.status.as_ref().and_then(|status| status.conditions.iter().find(|one| one.type_ == READY));
    let since = before.filter(|before| before.status == status).map(|before| before.last_transition_time.clone());
    vec![Condition {
        type_: READY.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: clean(&message, MAX_MESSAGE),
        observed_generation: one.generation,
        last_transition_time: since.unwrap_or(Time(now)),
    }]
}
