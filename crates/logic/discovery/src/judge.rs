//! Whose the machines are that have answered, and which of them become hosts.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use api::Time;
use api::metamorph::{
    DiscoveredMachine, DiscoveryApproval, DiscoveryPhase as Phase, HostDiscoverySpec, MAX_MACHINE_BYTES, MAX_MACHINES,
};

use crate::claims;
use crate::place::{Place, Spot};
use crate::rediscover::Rediscover;
use crate::rows::weight;
use crate::rules::{Rules, Ruling};
use crate::shown::{Shown, host_name, identity};

/// A host, as far as it matters here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownHost {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Where its BMC is: one for each address of a name. None without BMC details.
    pub spots: Vec<Spot>,
    /// It has BMC details, wherever they lead.
    pub is_managed: bool,
    /// By which HostDiscovery it was made, and from what.
    pub discovered: Option<Discovered>,
}

/// What a host was made from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discovered {
    /// Name of the HostDiscovery, in the host's namespace.
    pub by: String,
    /// [`Place::address`].
    pub address: String,
    /// [`identity`] of the machine.
    pub identity: Option<String>,
    /// The key that it has proved.
    pub key_sha256: Option<String>,
    /// Somebody has said no to it.
    pub is_refused: bool,
}

/// By what a machine is recorded: a MachineRecord.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Its host's namespace.
    pub namespace: String,
    /// Its host's name.
    pub name: String,
    /// [`identity`] of its BMC's service root.
    pub identity: Option<String>,
    /// What else it is known by in the same form: some BMCs show the system's UUID, or its serial number, as their own.
    pub others: Vec<String>,
    /// The key that its BMC has proved.
    pub key_sha256: Option<String>,
}

/// Longest message of a machine, characters.
const MAX_SAID: usize = 400;

/// What is known when a scan has ended.
#[derive(Debug)]
pub struct Situation<'a> {
    /// Namespace of the HostDiscovery.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its spec.
    pub spec: &'a HostDiscoverySpec,
    /// Its rules.
    pub rules: &'a Rules,
    /// All hosts.
    pub hosts: &'a [KnownHost],
    /// All records.
    pub records: &'a [Recorded],
    /// What its status lists.
    pub before: &'a [DiscoveredMachine],
    /// What the status of other HostDiscoveries of the namespace lists: who deletes a host means it for all of them.
    pub elsewhere: &'a [&'a DiscoveredMachine],
    /// Which dismissed machines may become hosts again.
    pub rediscover: &'a Rediscover,
    /// When the scan has ended.
    pub now: Time,
    /// Where was asked, if not everywhere: of all other places what was known before stays.
    pub asked: Option<&'a BTreeSet<Place>>,
}

impl Situation<'_> {
    /// Machines at places that were not asked this time.
    fn unasked(&self) -> impl Iterator<Item = (&DiscoveredMachine, Place)> {
        let of = self.asked.map(|asked| (asked, self.before));
        of.into_iter().flat_map(|(asked, before)| {
            let at = before.iter().filter_map(|machine| Some((machine, Place::parse(&machine.address)?)));
            at.filter(move |(_, place)| !asked.contains(place))
        })
    }
}

/// A host that is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewHost {
    /// Its name.
    pub name: String,
    /// Which machine of the verdict it is.
    pub machine: usize,
    /// It is approved at once.
    pub approved: bool,
}

/// What is to be done.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// The machines for the status.
    pub machines: Vec<DiscoveredMachine>,
    /// Hosts to make.
    pub make: Vec<NewHost>,
    /// Hosts that are there and that an allow rule approves.
    pub approve: Vec<String>,
    /// Hosts that wait for approval.
    pub pending: u32,
    /// What was left out, a sentence each.
    pub left_out: Vec<String>,
    /// How many dismissed machines may become hosts again, because somebody has asked for it.
    pub again: usize,
}

/// Decides on what has answered. The order in which it is given makes no difference.
#[must_use]
pub fn judge(situation: &Situation<'_>, found: &[(Place, Shown)]) -> Verdict {
    let found: BTreeMap<Place, Shown> = found.iter().map(|(place, shown)| (*place, shown.clone().bounded())).collect();
    Court::new(situation, &found).decide(&found)
}

/// What is looked up for each machine.
struct Court<'a> {
    of: &'a Situation<'a>,
    /// Hosts by identity of the machine that they were made from.
    made_of: HashMap<&'a str, Vec<&'a KnownHost>>,
    /// Hosts of this HostDiscovery that wait for approval, by address.
    waiting: HashMap<&'a str, &'a KnownHost>,
    /// Managed hosts, by spot.
    managed: HashMap<&'a Spot, &'a KnownHost>,
    recorded: HashMap<&'a str, Vec<&'a Recorded>>,
    of_host: HashMap<(&'a str, &'a str), &'a Recorded>,
    /// Hosts by namespace and name.
    named: HashMap<(&'a str, &'a str), &'a KnownHost>,
    by_uid: HashMap<&'a str, &'a KnownHost>,
    dismissed: Vec<DiscoveredMachine>,
    /// Their identities and their addresses.
    dismissed_as: BTreeSet<String>,
    again: usize,
    /// By identity: where it has been found in this scan, with which key.
    shown_at: HashMap<String, Vec<(Place, Option<String>)>>,
}

/// What is said of one machine.
struct Said {
    phase: Phase,
    host: Option<String>,
    message: String,
    /// A declared host of another namespace that has it: by its uid it is seen when that one is taken away.
    elsewhere: Option<String>,
    /// It becomes a host, if there is room; whether it is approved at once.
    new: Option<bool>,
    /// A host that an allow rule approves.
    approve: Option<String>,
}

impl Said {
    fn new(phase: Phase, message: impl Into<String>) -> Self {
        Self { phase, host: None, message: message.into(), elsewhere: None, new: None, approve: None }
    }

    fn of_host(self, host: &KnownHost, namespace: &str) -> Self {
        let is_own = host.namespace == namespace;
        let elsewhere = (!is_own && host.is_managed).then(|| host.uid.clone());
        Self { host: is_own.then(|| host.name.clone()), elsewhere, ..self }
    }
}

impl<'a> Court<'a> {
    fn new(of: &'a Situation<'a>, found: &BTreeMap<Place, Shown>) -> Self {
        let mut court = Self {
            of,
            made_of: HashMap::new(),
            waiting: HashMap::new(),
            managed: HashMap::new(),
            recorded: HashMap::new(),
            of_host: HashMap::new(),
            named: HashMap::new(),
            by_uid: HashMap::new(),
            dismissed: Vec::new(),
            dismissed_as: BTreeSet::new(),
            again: 0,
            shown_at: HashMap::new(),
        };
        for host in of.hosts {
            court.named.insert((&host.namespace, &host.name), host);
            court.by_uid.insert(&host.uid, host);
            for spot in &host.spots {
                court.managed.entry(spot).or_insert(host);
            }
            let Some(discovered) = &host.discovered else { continue };
            if let Some(identity) = &discovered.identity {
                court.made_of.entry(identity).or_default().push(host);
            }
            if court.waits(host) {
                court.waiting.entry(&discovered.address).or_insert(host);
            }
        }
        for record in of.records {
            for identity in record.identity.iter().chain(&record.others) {
                court.recorded.entry(identity).or_default().push(record);
            }
            court.of_host.insert((&record.namespace, &record.name), record);
        }
        court.remember();
        for (place, shown) in found {
            if let Some(identity) = shown.uuid.as_deref().and_then(identity) {
                court.shown_at.entry(identity).or_default().push((*place, shown.key_sha256.clone()));
            }
        }
        for (machine, place) in of.unasked().filter(|(machine, _)| machine.phase != Phase::Dismissed) {
            if let Some(identity) = machine.uuid.as_deref().and_then(identity) {
                court.shown_at.entry(identity).or_default().push((place, machine.key_sha256.clone()));
            }
        }
        court
    }

    /// What somebody has deleted.
    fn remember(&mut self) {
        let of = self.of;
        let there: BTreeSet<&str> = of.hosts.iter().map(|host| host.uid.as_str()).collect();
        let gone = |machine: &&DiscoveredMachine| match (machine.phase, &machine.host_uid) {
            (Phase::Dismissed, _) => true,
            // Made here, or declared in another namespace.
            (_, Some(uid)) => !there.contains(uid.as_str()),
            // Declared by somebody, and taken away since: moved, say.
            (Phase::Known | Phase::Approved, None) => {
                machine.host.as_deref().is_some_and(|name| !self.named.contains_key(&(of.namespace, name)))
            }
            _ => false,
        };
        let (again, dismissed): (Vec<_>, Vec<_>) =
            of.before.iter().filter(gone).partition(|machine| of.rediscover.means(machine));
        let elsewhere = of.elsewhere.iter().copied().filter(gone);
        let (others_again, others): (Vec<_>, Vec<_>) = elsewhere.partition(|machine| of.rediscover.means(machine));
        self.again = again.len() + others_again.len();
        let all = dismissed.iter().chain(&others);
        let names = all.flat_map(|machine| {
            let identity = machine.uuid.as_deref().and_then(identity);
            identity.into_iter().chain([machine.address.clone()])
        });
        self.dismissed_as = names.collect();
        self.dismissed = dismissed.into_iter().map(dismissed_as).collect();
    }

    /// Whether it is of this HostDiscovery and waits for approval.
    fn waits(&self, host: &KnownHost) -> bool {
        let is_own = host.discovered.as_ref().is_some_and(|discovered| discovered.by == self.of.name);
        is_own && !host.is_managed && host.namespace == self.of.namespace
    }

    fn decide(mut self, found: &BTreeMap<Place, Shown>) -> Verdict {
        let waits = |host: &&KnownHost| self.waits(host);
        let pending = self.of.hosts.iter().filter(waits).count();
        let pending = u32::try_from(pending).unwrap_or(u32::MAX);
        let mut verdict = Verdict { pending, again: self.again, ..Verdict::default() };
        let mut wished: Vec<(usize, bool, String)> = Vec::new();
        for (place, shown) in found {
            let said = self.say(place, shown);
            let machine = self.machine(place, shown, &said);
            if let Some(approved) = said.new
                && let Some(identity) = shown.uuid.as_deref().and_then(identity)
            {
                wished.push((verdict.machines.len(), approved, host_name(&self.of.spec.naming, &identity, place)));
            }
            verdict.approve.extend(said.approve);
            verdict.machines.push(machine);
        }
        self.keep_unseen(&mut verdict);
        self.keep_unasked(&mut verdict);
        self.room(&mut verdict, &mut wished);
        self.make(&mut verdict, wished);
        verdict
    }

    fn machine(&self, place: &Place, shown: &Shown, said: &Said) -> DiscoveredMachine {
        let address = place.address();
        // The uid of the host that was made for this very machine: by it a deletion is seen.
        let before = self.of.before.iter().find(|before| before.address == address && before.uuid == shown.uuid);
        let identity = shown.uuid.as_deref().and_then(identity);
        let made = said.host.as_deref().and_then(|name| {
            let host = self.named.get(&(self.of.namespace, name))?;
            let made = host.discovered.as_ref()?;
            let is_it = made.by == self.of.name && made.address == address && made.identity == identity;
            is_it.then(|| host.uid.clone())
        });
        let mut machine = DiscoveredMachine {
            address,
            phase: said.phase,
            uuid: shown.uuid.clone(),
            key_sha256: shown.key_sha256.clone(),
            vendor: shown.vendor.clone(),
            product: shown.product.clone(),
            redfish_version: shown.redfish_version.clone(),
            host: said.host.clone().or_else(|| before.filter(|_| said.phase == Phase::Dismissed)?.host.clone()),
            host_uid: made
                .or_else(|| said.elsewhere.clone().filter(|_| said.phase == Phase::Known))
                .or_else(|| before.filter(|_| said.phase == Phase::Dismissed)?.host_uid.clone()),
            message: terms::clean(&said.message, MAX_SAID),
            claimants: before.map(|before| before.claimants.clone()).unwrap_or_default(),
            last_seen: Some(self.of.now.clone()),
        };
        claims::say(&mut machine, &self.of.now);
        machine
    }

    /// A host, for a message; of another namespace without its name.
    fn told(&self, namespace: &str, name: &str) -> String {
        if namespace == self.of.namespace {
            format!("the host {name}")
        } else {
            "a host of another namespace".to_owned()
        }
    }

    /// The host that has this BMC. The usual ports of both schemes of an address are one BMC's.
    fn at(&self, place: &Place) -> Option<&'a KnownHost> {
        place.spots().iter().find_map(|spot| self.managed.get(spot)).copied()
    }

    fn say(&self, place: &Place, shown: &Shown) -> Said {
        let identity = shown.uuid.as_deref().and_then(identity);
        if let Some(host) = self.at(place) {
            return self.of_managed(host, identity.as_deref(), shown);
        }
        let address = place.address();
        let own = self.waiting.get(address.as_str()).copied();
        let by_identity = || identity.as_ref().is_some_and(|one| self.dismissed_as.contains(one));
        // One that is there is not deleted: somebody has restored it, or had it made again.
        if own.is_none() && (self.dismissed_as.contains(&address) || by_identity()) {
            let is_it = |machine: &DiscoveredMachine| machine.address == address && machine.uuid == shown.uuid;
            // What is remembered is what was deleted, and not all that shows some of it: that could be without an end.
            return if self.dismissed.iter().any(is_it) {
                Said::new(Phase::Dismissed, DISMISSED)
            } else {
                Said::new(
                    Phase::Denied,
                    "a host of this address, or of this UUID, was deleted: annotate this HostDiscovery to have it made again",
                )
            };
        }
        let Some(identity) = identity else {
            return Said::new(Phase::Denied, "it shows no UUID of its own without a password: declare it yourself");
        };
        if let Some(said) = self.of_recorded(&identity, shown) {
            return said;
        }
        let ruling = self.of.rules.judge(place, shown);
        if let Some(own) = own
            && own.discovered.as_ref().and_then(|made| made.identity.as_deref()) != Some(&identity)
        {
            let message =
                format!("{} was found here with another UUID: delete it, if the machine was replaced", own.name);
            return Said::new(Phase::Contradiction, message).of_host(own, self.of.namespace);
        }
        if let Some(own) = own
            && let Some(said) = self.of_new_key(own, shown)
        {
            return said;
        }
        if own.is_none()
            && let Some(said) = self.of_made(&identity, place, shown)
        {
            return said;
        }
        let contested = self.contested(&identity, place, shown);
        match (ruling, own) {
            (Ruling::Denied(why), None) => Said::new(Phase::Denied, why),
            (Ruling::Denied(why), Some(own)) => {
                let message = format!("{why}; its host is left to you");
                Said::new(Phase::Denied, message).of_host(own, self.of.namespace)
            }
            (Ruling::Allowed { by_rule }, Some(own)) => self.of_waiting(own, by_rule, contested),
            (Ruling::Allowed { by_rule }, None) => self.of_new(&identity, place, by_rule, contested),
        }
    }

    /// Where a host waits, and what shows its UUID proves another key than it was made with.
    fn of_new_key(&self, own: &KnownHost, shown: &Shown) -> Option<Said> {
        let key = own.discovered.as_ref().map(|made| &made.key_sha256).filter(|key| key.is_some())?;
        if is_proved(key, &shown.key_sha256) {
            return None;
        }
        let message = format!(
            "{} was found here with another key: if its BMC's certificate is new, delete the host, and annotate this HostDiscovery with {}={}",
            own.name,
            api::metal3::annotation::REDISCOVER,
            shown.uuid.as_deref().unwrap_or_default()
        );
        Some(Said::new(Phase::Contradiction, message).of_host(own, self.of.namespace))
    }

    /// At the BMC of a host that has BMC details.
    fn of_managed(&self, host: &KnownHost, identity: Option<&str>, shown: &Shown) -> Said {
        let record = self.of_host.get(&(host.namespace.as_str(), host.name.as_str()));
        let differs = record.is_some_and(|record| {
            let other = identity.is_some() && record.identity.is_some() && identity != record.identity.as_deref();
            other && !is_proved(&record.key_sha256, &shown.key_sha256)
        });
        let named = self.told(&host.namespace, &host.name);
        if differs {
            let message = format!("{named} is at this address, and its machine is recorded with another UUID");
            return Said::new(Phase::Contradiction, message).of_host(host, self.of.namespace);
        }
        let is_own =
            host.namespace == self.of.namespace && host.discovered.as_ref().is_some_and(|d| d.by == self.of.name);
        let phase = if is_own { Phase::Approved } else { Phase::Known };
        Said::new(phase, format!("{named} has this BMC")).of_host(host, self.of.namespace)
    }

    /// A machine that is recorded under another address.
    fn of_recorded(&self, identity: &str, shown: &Shown) -> Option<Said> {
        let records = self.recorded.get(identity)?;
        let proved = records.iter().find(|record| is_proved(&record.key_sha256, &shown.key_sha256));
        let record = proved.or(records.first())?;
        let named = self.told(&record.namespace, &record.name);
        let host = self.named.get(&(record.namespace.as_str(), record.name.as_str())).copied();
        let said = if proved.is_some() {
            let gone = if host.is_none() { ", which is gone: create it, or delete its MachineRecord" } else { "" };
            Said::new(Phase::Known, format!("it is the machine of {named}{gone}, at another address"))
        } else {
            Said::new(
                Phase::Contradiction,
                format!(
                    "it shows the UUID of the machine of {named}, which is at another address, and proves no key of it"
                ),
            )
        };
        Some(match host {
            Some(host) => said.of_host(host, self.of.namespace),
            None => said,
        })
    }

    /// A machine of which a host was made already, at another address or by another HostDiscovery.
    fn of_made(&self, identity: &str, place: &Place, shown: &Shown) -> Option<Said> {
        let hosts = self.made_of.get(identity)?;
        let is_same = |host: &&&KnownHost| {
            let made = host.discovered.as_ref();
            let at = made.and_then(|made| Place::parse(&made.address));
            at.is_some_and(|at| at.ip == place.ip)
                || made.is_some_and(|made| is_proved(&made.key_sha256, &shown.key_sha256))
        };
        let proved = hosts.iter().find(is_same);
        let host = proved.or(hosts.first())?;
        let named = self.told(&host.namespace, &host.name);
        let said = if proved.is_some() {
            Said::new(Phase::Known, format!("it is the machine of {named}, by its UUID and its key or address"))
        } else {
            Said::new(
                Phase::Contradiction,
                format!("it shows the UUID that {named} was made with, and proves no key of it"),
            )
        };
        Some(said.of_host(host, self.of.namespace))
    }

    /// Where else in this scan the UUID was shown by what is not proved to be the same machine.
    fn contested(&self, identity: &str, place: &Place, shown: &Shown) -> Option<Place> {
        let all = self.shown_at.get(identity)?;
        let is_same = |other: &Place, key| other.ip == place.ip || is_proved(key, &shown.key_sha256);
        all.iter().find(|(other, key)| !is_same(other, key)).map(|(other, _)| *other)
    }

    /// A host that waits for approval, at its own address.
    fn of_waiting(&self, host: &KnownHost, by_rule: bool, contested: Option<Place>) -> Said {
        let mut said = Said::new(Phase::Found, "").of_host(host, self.of.namespace);
        let is_refused = host.discovered.as_ref().is_some_and(|made| made.is_refused);
        said.message = match contested {
            Some(other) => {
                format!("it waits for approval; another machine shows the same UUID at {other}: look at both first")
            }
            None if is_refused => "it waits for approval, which somebody has refused".to_owned(),
            None => "it waits for approval".to_owned(),
        };
        if self.approves(by_rule) && contested.is_none() && !is_refused {
            said.approve = Some(host.name.clone());
        }
        said
    }

    fn of_new(&self, identity: &str, place: &Place, by_rule: bool, contested: Option<Place>) -> Said {
        if let Some(other) = contested {
            let message = format!(
                "the same UUID is shown at {other}, and nothing proves that it is one machine: none is made a host"
            );
            return Said::new(Phase::Contradiction, message);
        }
        let first = self.shown_at.get(identity).and_then(|all| all.first()).map_or(*place, |(first, _)| *first);
        if first != *place {
            return Said::new(
                Phase::Known,
                format!("it is the machine at {first}, by its UUID and its key or address"),
            );
        }
        let mut said = Said::new(Phase::Found, "");
        said.new = Some(self.approves(by_rule));
        said
    }

    fn approves(&self, by_rule: bool) -> bool {
        by_rule && self.of.spec.approval == DiscoveryApproval::Automatic
    }

    /// Machines that have not answered now stay listed while their host is there, or was dismissed: who declares a machine and takes it away again while it
    /// is silent does not give it to whoever finds it next.
    fn keep_unseen(&self, verdict: &mut Verdict) {
        let listed: BTreeSet<(&str, Option<&str>)> =
            verdict.machines.iter().map(|one| (one.address.as_str(), one.uuid.as_deref())).collect();
        let is_listed =
            |machine: &DiscoveredMachine| listed.contains(&(machine.address.as_str(), machine.uuid.as_deref()));
        let there = self.of.before.iter().filter_map(|machine| {
            let host = self.kept_for(machine)?;
            let is_made = host.discovered.as_ref().is_some_and(|made| made.by == self.of.name);
            let is_own = is_made && host.namespace == self.of.namespace;
            let phase = if is_own && host.is_managed { Phase::Approved } else { machine.phase };
            Some(DiscoveredMachine { phase, ..machine.clone() })
        });
        let kept: Vec<DiscoveredMachine> =
            self.dismissed.iter().cloned().chain(there).filter(|machine| !is_listed(machine)).collect();
        verdict.machines.extend(kept);
    }

    /// The host by which a machine stays listed that has not answered: the one that was made for it, or one that has been declared with its BMC.
    fn kept_for(&self, machine: &DiscoveredMachine) -> Option<&'a KnownHost> {
        let named = || self.named.get(&(self.of.namespace, machine.host.as_deref()?)).copied();
        let host = match &machine.host_uid {
            Some(uid) => self.by_uid.get(uid.as_str()).copied()?,
            None => named()?,
        };
        let is_made = host.namespace == self.of.namespace && machine.host_uid.is_some();
        // A declared one whose BMC is elsewhere by now has left this place.
        let has_it = || {
            let spots = Place::parse(&machine.address).map(|place| place.spots());
            host.spots.is_empty() || spots.is_some_and(|spots| spots.iter().any(|spot| host.spots.contains(spot)))
        };
        match machine.phase {
            Phase::Dismissed => None,
            _ if is_made => Some(host),
            Phase::Known | Phase::Approved => (host.is_managed && has_it()).then_some(host),
            Phase::Found | Phase::Denied | Phase::Contradiction => None,
        }
    }

    /// What is at places that were not asked is as it was; of a host that is there, `keep_unseen` has said so.
    fn keep_unasked(&self, verdict: &mut Verdict) {
        let listed: BTreeSet<(String, Option<String>)> =
            verdict.machines.iter().map(|one| (one.address.clone(), one.uuid.clone())).collect();
        let unasked = self.of.unasked().map(|(machine, _)| machine);
        // One that was dismissed and is no more listed may become a host again.
        let kept = unasked.filter(|machine| machine.phase != Phase::Dismissed && machine.host_uid.is_none());
        verdict
            .machines
            .extend(kept.filter(|machine| !listed.contains(&(machine.address.clone(), machine.uuid.clone()))).cloned());
    }

    /// Cuts the list to what has room: what must be remembered goes first.
    fn room(&mut self, verdict: &mut Verdict, wished: &mut Vec<(usize, bool, String)>) {
        let becomes: BTreeSet<usize> = wished.iter().map(|(index, ..)| *index).collect();
        // What is said of a machine that becomes a host is said afterwards.
        let size = |index: usize, machine: &DiscoveredMachine| {
            weight(machine) + if becomes.contains(&index) { MAX_SAID } else { 0 }
        };
        let sizes: Vec<usize> = verdict.machines.iter().enumerate().map(|(index, one)| size(index, one)).collect();
        if verdict.machines.len() <= MAX_MACHINES && sizes.iter().sum::<usize>() <= MAX_MACHINE_BYTES {
            return;
        }
        let rank = |index: usize, machine: &DiscoveredMachine| match machine.phase {
            Phase::Dismissed => 0,
            _ if machine.host_uid.is_some() => 1,
            Phase::Contradiction => 2,
            // Of one that somebody has declared, it is remembered that it was.
            Phase::Known if machine.host.is_some() => 2,
            Phase::Found | Phase::Approved => 3,
            Phase::Known | Phase::Denied => 4 + usize::from(index > MAX_MACHINES),
        };
        let mut order: Vec<usize> = (0..verdict.machines.len()).collect();
        order.sort_by_key(|index| verdict.machines.get(*index).map_or(9, |machine| rank(*index, machine)));
        let (all, mut bytes) = (order.len(), 0_usize);
        order.retain(|index| {
            let with = bytes.saturating_add(sizes.get(*index).copied().unwrap_or_default());
            let has_room = with <= MAX_MACHINE_BYTES;
            bytes = if has_room { with } else { bytes };
            has_room
        });
        order.truncate(MAX_MACHINES);
        let dropped = all - order.len();
        let kept: BTreeMap<usize, usize> = order.iter().enumerate().map(|(new, old)| (*old, new)).collect();
        verdict.machines = order.iter().filter_map(|index| verdict.machines.get(*index).cloned()).collect();
        wished.retain_mut(|(index, ..)| match kept.get(index) {
            Some(new) => {
                *index = *new;
                true
            }
            None => false,
        });
        verdict.left_out.push(format!(
            "{dropped} machines have no room in the list of {MAX_MACHINES} and {} KiB, and none becomes a host",
            MAX_MACHINE_BYTES >> 10
        ));
    }

    fn make(&self, verdict: &mut Verdict, wished: Vec<(usize, bool, String)>) {
        let spec = self.of.spec;
        let (mut new, mut waiting, mut over) = (0_u32, verdict.pending, (0_u32, 0_u32));
        let mut names = BTreeSet::new();
        for (index, approved, name) in wished {
            let Some(machine) = verdict.machines.get_mut(index) else { continue };
            if !names.insert(name.clone()) {
                machine.phase = Phase::Contradiction;
                machine.message = format!("another machine of this scan is called {name}, too: it is no host");
                continue;
            }
            if new >= spec.max_new_hosts {
                over.0 += 1;
                machine.message = format!("it is no host yet: a scan makes at most {}", spec.max_new_hosts);
            } else if waiting >= spec.max_pending_hosts {
                over.1 += 1;
                machine.message =
                    format!("it is no host yet: {} wait for approval, which is the most", spec.max_pending_hosts);
            } else {
                new += 1;
                waiting += 1;
                machine.message = "it waits for approval".to_owned();
                machine.host = Some(name.clone());
                verdict.make.push(NewHost { name, machine: index, approved });
            }
        }
        if over.0 > 0 {
            verdict
                .left_out
                .push(format!("{} machines are no hosts yet: spec.maxNewHosts is {}", over.0, spec.max_new_hosts));
        }
        if over.1 > 0 {
            verdict.left_out.push(format!(
                "{} machines are no hosts: {} wait for approval (spec.maxPendingHosts): approve, deny or delete some",
                over.1, spec.max_pending_hosts
            ));
        }
        verdict.pending = waiting;
    }
}

/// Why a machine whose host was deleted is none again.
const DISMISSED: &str = "its host was deleted: annotate this HostDiscovery to have it made again";

/// Whether both keys are known and the same.
fn is_proved(one: &Option<String>, other: &Option<String>) -> bool {
    matches!((one, other), (Some(one), Some(other)) if one.eq_ignore_ascii_case(other))
}

fn dismissed_as(machine: &DiscoveredMachine) -> DiscoveredMachine {
    DiscoveredMachine { phase: Phase::Dismissed, message: DISMISSED.to_owned(), ..machine.clone() }
}
