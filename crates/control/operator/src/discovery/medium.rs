//! Media that machines boot to report themselves: offered for each HostDiscovery that wants one, and what comes of a report.
//!
//! Reports are looked at one of each HostDiscovery at a time, and decided on one after the other. A machine that somebody has declared already is told so; otherwise its BMC is asked at the address
//! that it tells, if the HostDiscovery asks that one, and what answers there is judged as in a scan of that place. Facts that it has told are kept as the
//! HardwareData of a host that waits, marked as its word (`REPORTED_BY`): nothing is decided by them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use agent_protocol::Afterwards;
use api::Time;
use api::metal3::{BareMetalHost, HardwareData, HardwareDataSpec, REPORTED_BY, finalizer};
use api::metamorph::{
    DiscoveredMachine, DiscoveryAfterwards, DiscoveryMedium, DiscoveryMediumAt, DiscoveryPhase, HostDiscovery,
    HostDiscoveryStatus, ReportOutcome, ReportedMachine,
};
use discovery::{Claim, Place, Sighted};
use inventory::HardwareDetails;
use kube::api::{Api, PostParams};
use kube::runtime::reflector::ObjectRef;
use kube::{Resource as _, ResourceExt as _};
use terms::clean;
use tokio::time::Instant;

use super::gathered::{Answer, Gathered};
use super::queue::Report;
use super::scan::{self, Scanned};
use super::{All, Done, Key, One, Stand, world};

/// How long the addresses of the names of hosts' BMCs count for reports.
const RESOLVED: Duration = Duration::from_secs(300);
/// How soon it is looked whether the next report may be looked at.
const LOOK: Duration = Duration::from_millis(500);

/// A medium that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediumWish {
    /// Namespace of the HostDiscovery.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid: the token of the medium is derived from that and the revision.
    pub uid: String,
    /// Number of the medium.
    pub revision: u32,
    /// What a machine does when its report has been taken.
    pub afterwards: Afterwards,
    /// How long it stays at most, minutes.
    pub stay_minutes: u32,
}

/// Who offers media. The program gives one that knows agent images and keys.
pub trait MediumOffice: Send + Sync {
    /// Offers a medium for each architecture that there is an agent image for, in place of what was offered for this HostDiscovery before. The same wish
    /// gives the same medium.
    ///
    /// # Errors
    /// Why none can be made, a clause.
    fn offer(&self, wish: &MediumWish) -> Result<Vec<DiscoveryMediumAt>, String>;
    /// Withdraws what is offered for the HostDiscovery with this uid.
    fn withdraw(&self, uid: &str);
}

/// A report whose BMC has been asked.
pub(super) struct Seen {
    report: Report,
    places: Vec<Place>,
    known: Option<ReportedMachine>,
}

/// Revisions of a medium: the highest that was offered, and the highest that was taken back. A medium that was taken back is not valid again, though
/// `spec.medium` be removed and added with the same number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Revisions {
    pub offered: u32,
    pub revoked: u32,
}

impl Revisions {
    /// As the status tells them, and as they were known of the same object before.
    pub(super) fn of(object: &HostDiscovery, before: Option<&One>) -> Self {
        let before = before.filter(|before| before.object.uid() == object.uid());
        let before = before.map(|before| before.revisions).unwrap_or_default();
        let status = object.status.as_ref();
        let (offered, revoked) = status.map_or((0, 0), |status| (status.offered_revision, status.revoked_revision));
        let mut all = Self { offered: before.offered.max(offered), revoked: before.revoked.max(revoked) };
        if object.spec.medium.is_none() {
            all.revoked = all.revoked.max(all.offered);
        }
        all
    }

    /// Offers this one: those before it are taken back.
    ///
    /// # Errors
    /// It was taken back; a clause.
    fn offer(&mut self, revision: u32) -> Result<(), String> {
        if revision <= self.revoked {
            return Err(format!(
                "spec.medium.revision is {revision}, and media up to {} were taken back: write {}",
                self.revoked,
                self.revoked.saturating_add(1)
            ));
        }
        (self.offered, self.revoked) = (self.offered.max(revision), self.revoked.max(revision - 1));
        Ok(())
    }
}

/// What is wanted, if its HostDiscovery can be used.
fn wish(one: &One) -> Option<MediumWish> {
    let medium = one.object.spec.medium.as_ref().filter(|_| is_open(one))?;
    let DiscoveryMedium { revision, afterwards, stay_minutes, .. } = medium.clone();
    Some(MediumWish {
        namespace: one.object.namespace().unwrap_or_default(),
        name: one.object.name_any(),
        uid: one.object.uid()?,
        revision,
        afterwards: match afterwards {
            DiscoveryAfterwards::PowerOff => Afterwards::PowerOff,
            DiscoveryAfterwards::Wait => Afterwards::Wait,
        },
        stay_minutes,
    })
}

/// Whether reports are looked at.
fn is_open(one: &One) -> bool {
    let is_there = one.object.metadata.deletion_timestamp.is_none();
    one.plan.is_some() && one.object.spec.medium.is_some() && !one.object.spec.suspended && is_there
}

impl All {
    /// Offers the medium of this HostDiscovery, or withdraws it. Where it is goes into the status with its condition.
    pub(super) fn offer(&mut self, key: &Key) {
        let Some(office) = self.office.clone() else { return };
        let Some(one) = self.of.get_mut(key) else { return };
        let uid = one.object.uid().unwrap_or_default();
        let Some(wish) = wish(one) else {
            office.withdraw(&uid);
            self.reception.close(&uid);
            (one.media, one.no_medium) = (Vec::new(), None);
            return;
        };
        if let Err(why) = one.revisions.offer(wish.revision) {
            office.withdraw(&uid);
            self.reception.close(&uid);
            (one.media, one.no_medium) = (Vec::new(), Some(why));
            return;
        }
        match office.offer(&wish) {
            Ok(media) => (one.media, one.no_medium) = (media, None),
            Err(why) => (one.media, one.no_medium) = (Vec::new(), Some(clean(&why, 300))),
        }
        self.reception.open(&uid, wish.revision);
    }

    /// An Event where reports were left out for want of room: somebody may be flooding.
    pub(super) async fn tell_flood(&self, key: &Key) {
        let Some(one) = self.of.get(key) else { return };
        let left_out = self.reception.left_out(one.object.metadata.uid.as_deref().unwrap_or_default());
        if left_out > 0 {
            let note =
                format!("{left_out} reports of machines were put off: too many came at once, or from one network");
            self.tell(&one.object, "ReportsLeftOut", note).await;
        }
    }

    /// The HostDiscovery with this uid is gone.
    pub(super) fn offers_no_more(&self, uid: Option<&str>) {
        if let (Some(office), Some(uid)) = (&self.office, uid) {
            office.withdraw(uid);
            self.reception.close(uid);
        }
    }

    /// Looks at the next report, if there is one.
    pub(super) async fn sight(&mut self) {
        let Some(report) = self.reception.next() else { return };
        let uid = &report.key.0;
        let found = self.of.iter().find(|(_, one)| one.object.uid().as_ref() == Some(uid) && is_open(one));
        let found = found.and_then(|(key, one)| Some((key.clone(), one.stand(), one.plan.clone()?)));
        let Some((key, stand, plan)) = found else {
            self.reception.give_up(&report.key);
            return;
        };
        // Its machine reports again.
        if let Some(why) = self.frozen(&key.0).await {
            self.reception.give_up(&report.key);
            return self.hold(&key, why);
        }
        self.thawed(&key);
        let known = self.known(&key, &report.sighted);
        let before = self.of.get(&key).map_or(&[][..], One::machines);
        match report.sighted.places(&plan, before) {
            Err((outcome, message)) => {
                let row = self.row(&report.sighted, outcome, &message);
                self.reported(&key, &report, (row, known), outcome, None, false).await;
            }
            Ok(places) => {
                let asking = scan::scan(
                    Arc::clone(&self.scout),
                    places.clone(),
                    self.unresolved(),
                    Arc::clone(&self.context.settings.may_act),
                    self.context.settings.clock.now(),
                );
                let seen = Box::new(Seen { report, places, known });
                self.tasks.spawn(async move { Done::Sighted(key, stand, seen, asking.await) });
            }
        }
    }

    /// The row of a machine that somebody has declared. Its machine is told what another would be told: its BMC is asked, too.
    fn known(&self, key: &Key, sighted: &Sighted) -> Option<ReportedMachine> {
        let declared = world::declared(&self.context);
        let known = sighted.known_as(&declared)?;
        let is_own = known.namespace == key.0;
        let message = if is_own {
            format!("it is the machine of the host {}", known.name)
        } else {
            "it is the machine of a host of another namespace".to_owned()
        };
        let host = is_own.then(|| known.name.clone());
        Some(ReportedMachine { host, ..self.row(sighted, ReportOutcome::Known, &message) })
    }

    /// Names of hosts' BMCs that are to be resolved for a report: all of them once in a while, and otherwise those that are new.
    fn unresolved(&mut self) -> impl Fn() -> BTreeSet<String> + Send + 'static {
        let now = Instant::now();
        let are_old = self.resolved.is_none_or(|at| at + RESOLVED <= now);
        let known: BTreeSet<String> = if are_old { BTreeSet::new() } else { self.names.keys().cloned().collect() };
        if are_old {
            self.resolved = Some(now);
        }
        let context = Arc::clone(&self.context);
        move || world::names(&context).difference(&known).cloned().collect()
    }

    fn row(&self, sighted: &Sighted, outcome: ReportOutcome, message: &str) -> ReportedMachine {
        sighted.row(outcome, message, Time(self.context.settings.clock.now()))
    }

    /// The BMC that a report tells has been asked.
    pub(super) async fn sighted(&mut self, key: &Key, stand: &Stand, seen: Seen, mut scanned: Scanned) {
        let Seen { report, places, known } = seen;
        self.names.extend(std::mem::take(&mut scanned.names));
        let there = world::names(&self.context);
        self.names.retain(|name, _| there.contains(name));
        scanned.names.clone_from(&self.names);
        let is_usable = self.is_in_step() && self.may_act();
        let one = self.of.get(key).filter(|one| one.stand() == *stand && is_open(one) && is_usable);
        let Some((object, Some(plan))) = one.map(|one| (one.object.clone(), one.plan.clone())) else {
            self.reception.give_up(&report.key);
            return;
        };
        if let Some(why) = self.frozen(&key.0).await {
            self.reception.give_up(&report.key);
            return self.hold(key, why);
        }
        let sighted = &report.sighted;
        let mut differs = None;
        scanned.found.retain(|(_, shown)| {
            let why = sighted.differs(shown);
            let is_it = why.is_none();
            differs = differs.take().or(why);
            is_it
        });
        if scanned.found.is_empty() {
            let (outcome, message) = match differs {
                Some(why) => (ReportOutcome::Contradiction, why),
                None => (ReportOutcome::NoAnswer, no_answer(&places, &scanned)),
            };
            let row = self.row(sighted, outcome, &message);
            self.reported(key, &report, (row, known), outcome, None, false).await;
            return;
        }
        let asked: BTreeSet<Place> = scanned.found.iter().map(|(place, _)| *place).collect();
        let mut verdict =
            self.decide(key, &object, &plan, &discovery::Rediscover::default(), &mut scanned, Some(&asked));
        if known.is_some() {
            // Nothing is made on the word of whoever says that it is somebody's machine.
            let (outcome, _) = discovery::outcome(&verdict.machines, &places);
            let row = self.row(sighted, outcome, "");
            self.reported(key, &report, (row, known), outcome, None, false).await;
            return;
        }
        let made = self.made.len();
        self.carry_out(key, &mut verdict).await;
        let makes = self.made.len() > made;
        let (row, outcome) = self.claimed(key, sighted, &places, &mut verdict.machines).await;
        let machines = Some((verdict.machines, verdict.pending));
        self.reported(key, &report, (row, None), outcome, machines, makes).await;
    }

    /// What has come of a report whose BMC has answered, and what would have if no other machine said that this is its BMC, too. What the machine has told of
    /// its hardware is kept, while it alone says so.
    async fn claimed(
        &mut self,
        key: &Key,
        sighted: &Sighted,
        places: &[Place],
        machines: &mut [DiscoveredMachine],
    ) -> (ReportedMachine, ReportOutcome) {
        let (outcome, machine) = discovery::outcome(machines, places);
        let message =
            machine.as_ref().map_or_else(String::new, |machine| match (&machine.host, machine.message.as_str()) {
                (Some(host), message) if outcome == ReportOutcome::Host => format!("its host is {host}: {message}"),
                (_, message) => message.to_owned(),
            });
        let mut row = self.row(sighted, outcome, &message);
        let is_it = |one: &&mut DiscoveredMachine| machine.as_ref() == Some(&**one);
        let Some(machine) = machines.iter_mut().find(is_it) else { return (row, outcome) };
        (row.address, row.host) = (Some(machine.address.clone()), machine.host.clone());
        let claim = discovery::claim(machine, &sighted.digest, &Time(self.context.settings.clock.now()));
        if claim == Claim::Contested {
            row.outcome = ReportOutcome::Contradiction;
            row.message =
                "another machine says that it has this BMC, too: what either has told of its hardware is not kept"
                    .to_owned();
            self.forget_facts(key, row.host.as_deref()).await;
        } else if machine.phase == DiscoveryPhase::Found {
            self.keep_facts(key, machine, &sighted.hardware).await;
        }
        (row, outcome)
    }

    /// Notes what has come of a report, for the status and for its machine: of one that is known, that it is. Whether that is the machine's last word goes by
    /// `outcome`, which nobody else's word has part in: who contests its BMC silences no machine that is no host yet.
    async fn reported(
        &mut self,
        key: &Key,
        report: &Report,
        (row, known): (ReportedMachine, Option<ReportedMachine>),
        outcome: ReportOutcome,
        machines: Option<(Vec<DiscoveredMachine>, u32)>,
        at_once: bool,
    ) {
        let told = report.sighted.told(outcome, &row.message);
        let row = known.unwrap_or(row);
        let answer = Answer { key: report.key.clone(), told, of: (row.identity.clone(), row.digest.clone()) };
        self.gather(key, row, machines, (answer, at_once)).await;
    }

    /// Keeps what the machine has told beside its host, as long as that waits and nobody else has written its HardwareData.
    /// What was kept stays: who says the same of itself, and something else of what is no part of that, does not take its place.
    async fn keep_facts(&self, key: &Key, machine: &DiscoveredMachine, hardware: &HardwareDetails) {
        let Some(host) = self.waiting(key, machine) else { return };
        let name = host.name_any();
        let reference = ObjectRef::new(&name).within(&key.0);
        let api: Api<HardwareData> = Api::namespaced(self.context.client.clone(), &key.0);
        let spec = HardwareDataSpec { hardware: Some(Arc::new(hardware.clone())) };
        let written = match self.context.hardware_data.get(&self.context.client, &reference).await {
            Ok(None) => {
                let mut new = HardwareData::new(&name, spec);
                new.metadata.namespace = Some(key.0.clone());
                new.metadata.owner_references = host.controller_owner_ref(&()).map(|owner| vec![owner]);
                new.metadata.finalizers = Some(vec![finalizer::HARDWARE_DATA.to_owned()]);
                new.annotations_mut().insert(REPORTED_BY.to_owned(), key.1.clone());
                let call = async { api.create(&PostParams::default(), &new).await };
                self.context.hardware_data.writing(&reference, call).await.map(|_| ())
            }
            // After a contest nothing is there.
            Ok(Some(old)) if old.annotations().get(REPORTED_BY) == Some(&key.1) && old.spec.hardware.is_none() => {
                let new = HardwareData { spec, ..old.as_ref().clone() };
                let call = async { api.replace(&name, &PostParams::default(), &new).await };
                self.context.hardware_data.writing(&reference, call).await.map(|_| ())
            }
            Ok(Some(_)) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = written {
            tracing::warn!(namespace = key.0, host = name, %error, "keep what a machine has reported of its hardware");
        }
    }

    /// The host of the machine, while it waits for approval.
    fn waiting(&self, key: &Key, machine: &DiscoveredMachine) -> Option<Arc<BareMetalHost>> {
        let name = machine.host.as_deref()?;
        let is_it = |host: &&Arc<BareMetalHost>| {
            host.name_any() == name
                && host.namespace().as_ref() == Some(&key.0)
                && host.spec.bmc.is_none()
                && !host.is_deleting()
                && world::discovered(host).is_some_and(|made| made.by == key.1 && made.address == machine.address)
        };
        let made: Vec<Arc<BareMetalHost>> = self.made.iter().map(|(_, host)| Arc::clone(host)).collect();
        let watched = self.context.hosts.store().map(|store| store.state()).unwrap_or_default();
        watched.iter().chain(&made).find(is_it).cloned()
    }

    /// Takes away what a machine has told: it may be of another one.
    async fn forget_facts(&self, key: &Key, host: Option<&str>) {
        let Some(name) = host else { return };
        let reference = ObjectRef::new(name).within(&key.0);
        let api: Api<HardwareData> = Api::namespaced(self.context.client.clone(), &key.0);
        let Ok(Some(data)) = self.context.hardware_data.get(&self.context.client, &reference).await else { return };
        if data.annotations().get(REPORTED_BY) != Some(&key.1) {
            return;
        }
        // Its finalizer keeps it while the host is there: the facts go, and the object stays.
        let new = HardwareData { spec: HardwareDataSpec { hardware: None }, ..data.as_ref().clone() };
        let call = async { api.replace(name, &PostParams::default(), &new).await };
        if let Err(error) = self.context.hardware_data.writing(&reference, call).await {
            tracing::warn!(namespace = key.0, host = name, %error, "take away what a machine has reported of its hardware");
        }
    }

    /// When a report is looked at.
    pub(super) fn next_report(&self) -> Option<Instant> {
        self.reception.has_next().then(|| Instant::now() + LOOK)
    }
}

fn no_answer(places: &[Place], scanned: &Scanned) -> String {
    let at: Vec<String> = places.iter().map(ToString::to_string).collect();
    let why = scanned.left_out.first().map(|why| format!(" ({why})")).unwrap_or_default();
    format!("no Redfish service shows itself at {}, where it says that its BMC is{why}", at.join(", "))
}

impl One {
    /// The machines as they are listed, or are to be.
    pub(super) fn machines(&self) -> &[DiscoveredMachine] {
        let gathered = self.gathered.as_ref().and_then(|gathered| gathered.machines.as_ref());
        let listed = || self.object.status.as_ref().map_or(&[][..], |status| &status.machines);
        gathered.map_or_else(listed, |(machines, _)| machines)
    }

    /// The status with what is to be written of reports.
    pub(super) fn status(&self) -> HostDiscoveryStatus {
        let mut status = self.object.status.clone().unwrap_or_default();
        if let Some(gathered) = &self.gathered {
            gathered.put_into(&mut status);
        }
        status
    }
}

impl All {
    /// Notes what has come of a report. It is written soon; at once, where a host was made: that is to be remembered.
    pub(super) async fn gather(
        &mut self,
        key: &Key,
        row: ReportedMachine,
        machines: Option<(Vec<DiscoveredMachine>, u32)>,
        (answer, at_once): (Answer, bool),
    ) {
        let Some(one) = self.of.get_mut(key) else {
            self.reception.give_up(&answer.key);
            return;
        };
        let before = one.object.status.as_ref().map(|status| status.reports.clone()).unwrap_or_default();
        let machines = machines.map(|(machines, pending)| (discovery::as_listed(one.machines(), machines), pending));
        self.reception.decided(&answer.key);
        let gathered = one.gathered.get_or_insert_with(|| Gathered::beside(before));
        gathered.reports = discovery::listed(&gathered.reports, row);
        gathered.machines = machines.or_else(|| gathered.machines.take());
        gathered.answers.push(answer);
        let is_full = gathered.is_full();
        // Where nothing has changed nothing is written, and the machine is told at once.
        let status = one.status();
        if at_once || is_full || one.object.status.as_ref() == Some(&status) {
            self.put_status(key, status).await;
        }
    }

    /// Writes what has been gathered for long enough.
    pub(super) async fn write_gathered(&mut self, now: Instant) {
        let is_due = |one: &One| one.gathered.as_ref().is_some_and(|gathered| gathered.due <= now);
        let due: Vec<Key> = self.of.iter().filter(|(_, one)| is_due(one)).map(|(key, _)| key.clone()).collect();
        for key in due {
            if let Some(status) = self.of.get(&key).map(One::status) {
                self.put_status(&key, status).await;
            }
        }
    }

    /// A status was written, without these rows: the machines are told.
    pub(super) fn settle(&mut self, key: &Key, refused: &[ReportedMachine]) {
        let Some(gathered) = self.of.get_mut(key).and_then(|one| one.gathered.take()) else { return };
        for Answer { key, told: (text, is_last), of } in gathered.answers {
            if refused.iter().any(|row| row.identity == of.0 && row.digest == of.1) {
                self.reception.settle(&key, "the report cannot be kept: its HostDiscovery's Events say why", false);
            } else {
                self.reception.settle(&key, &text, is_last);
            }
        }
    }

    /// A status was not written: without one it is not remembered what was made, and the machines report again.
    pub(super) fn give_up(&mut self, key: &Key) {
        let Some(gathered) = self.of.get_mut(key).and_then(|one| one.gathered.take()) else { return };
        gathered.answers.iter().for_each(|answer| self.reception.give_up(&answer.key));
    }
}
