//! The controller of HostDiscoveries: BMCs that nobody has declared become hosts that wait for approval.
//!
//! One scan runs at a time, whatever the number of HostDiscoveries: [`scan`] asks, in a task of its own, and what comes of it is decided (`discovery::judge`) and
//! written here, one after the other, so that two scans never make two hosts of one machine. A scan that was under way when a process ended is made anew: its end is what is
//! written. Approval is served beside scans: a host that somebody approves is asked once more, and gets BMC details only if the machine that it was made from
//! answers there; from then on it is an ordinary host.
//!
//! Machines that boot a HostDiscovery's medium report themselves; [`medium`] has what comes of that.
//!
//! Nothing is decided before hosts, records and HostDiscoveries have been listed: a machine that somebody has would look like nobody's.

mod approve;
mod gathered;
mod medium;
mod queue;
mod reception;
mod scan;
mod world;
mod write;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use api::metal3::{BareMetalHost, annotation};
use api::metamorph::{DiscoveryMediumAt, HostDiscovery};
use discovery::{Answer, Plan};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use kube::runtime::watcher::{Error, Event};
use kube::{Api, ResourceExt as _};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::host::freeze::frozen;
use crate::host::readable::Marks;
use crate::host::{Context, HostController, objects, scoped};
use crate::news::Novelty;
use crate::shutdown::Shutdown;

pub use medium::{MediumOffice, MediumWish};
pub use reception::{NotTaken, Reception};
use scan::Scanned;
pub use scan::Scout;
use world::key_of;

/// How soon something that failed, or cannot be decided yet, is tried again.
const AGAIN: Duration = Duration::from_secs(60);
/// How soon a scan is made again that could not be written.
const FAILED: Duration = Duration::from_secs(300);
/// Least time between two scans of one HostDiscovery, however often its spec changes.
const LEAST: Duration = Duration::from_secs(30);
/// How often it is looked during a scan whether its namespace is frozen.
const LOOK: Duration = Duration::from_secs(5);
/// How often a medium is offered anew: a key may have followed another.
const OFFERED: Duration = Duration::from_secs(600);
/// Hosts that are asked for approval at once.
const APPROVALS: usize = 4;
/// How long a host that was made counts though the watch does not show it.
const SHOWN_WITHIN: Duration = Duration::from_secs(120);

/// Namespace and name.
type Key = (String, String);
/// Addresses of the names of hosts' BMCs.
type Names = HashMap<String, Vec<IpAddr>>;
type Seen = Result<Event<HostDiscovery>, Error>;

/// The controller.
pub struct DiscoveryController {
    context: Arc<Context>,
    scout: Arc<dyn Scout>,
    office: Option<Arc<dyn MediumOffice>>,
    reception: Arc<Reception>,
}

/// A HostDiscovery, as last seen or written.
struct One {
    object: HostDiscovery,
    /// What it asks; `None` while its spec cannot be used.
    plan: Option<Arc<Plan>>,
    /// Generation of the spec that the plan is made from.
    generation: Option<i64>,
    faults: Vec<String>,
    /// When it is to be scanned.
    due: Instant,
    /// Not before: a spec that changes again and again is no reason to ask again and again.
    rest: Instant,
    /// When it is looked whether its condition is to be written.
    says: Option<Instant>,
    /// Why it is not scanned though it is due: its namespace is frozen.
    held: Option<String>,
    /// Its medium, where it is offered.
    media: Vec<DiscoveryMediumAt>,
    /// Why none is, though one is wanted.
    no_medium: Option<String>,
    /// When it is offered anew.
    offers: Instant,
    /// The highest revision that was offered, and the highest that was taken back, as far as that is known here.
    revisions: medium::Revisions,
    /// Until when it is known that the API does not keep these, as its definition is an earlier one.
    unkept: Option<Instant>,
    /// What rules approve of it has been wished once by this process.
    wished: bool,
    /// What has come of reports and is not written yet.
    gathered: Option<gathered::Gathered>,
}

/// A host that is to be approved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wish {
    /// When it is tried.
    at: Instant,
    /// An allow rule approves it, not a person.
    by_rule: bool,
    /// How often it was tried in vain.
    tries: u32,
}

impl Wish {
    /// One that is tried now.
    fn new(by_rule: bool) -> Self {
        Self { at: Instant::now(), by_rule, tries: 0 }
    }

    /// It is tried once more, ever more rarely.
    fn later(&mut self) {
        self.at = Instant::now() + AGAIN.saturating_mul(1 << self.tries.min(4));
        self.tries = self.tries.saturating_add(1);
    }
}

/// Which spec a scan was made for: uid of the object, and generation.
type Stand = (Option<String>, Option<i64>);

/// What a task has come to.
enum Done {
    Scanned(Key, Stand, Scanned),
    /// The namespace was frozen meanwhile, and nobody is asked any more.
    Held(Key, String),
    Sighted(Key, Stand, Box<medium::Seen>, Scanned),
    Asked(Box<approve::Asked>, Answer, Names),
}

/// What it knows.
struct All {
    context: Arc<Context>,
    scout: Arc<dyn Scout>,
    office: Option<Arc<dyn MediumOffice>>,
    reception: Arc<Reception>,
    of: BTreeMap<Key, One>,
    listing: HashSet<Key>,
    are_listed: bool,
    unreadable: Arc<Marks>,
    /// Hosts that are to be approved.
    wishes: BTreeMap<Key, Wish>,
    asking: BTreeSet<Key>,
    is_scanning: bool,
    tasks: JoinSet<Done>,
    /// Hosts that were made lately.
    made: Vec<(Instant, Arc<BareMetalHost>)>,
    /// What was last resolved, and when all of it was.
    names: Names,
    resolved: Option<Instant>,
    /// HostDiscoveries whose status the API has refused: what they make would not be remembered, so they make nothing.
    unwritten: BTreeSet<Key>,
}

impl DiscoveryController {
    /// One that runs beside this host controller and asks by this scout.
    #[must_use]
    pub fn beside(hosts: &HostController, scout: Arc<dyn Scout>) -> Self {
        Self { context: hosts.context(), scout, office: None, reception: Arc::default() }
    }

    /// The same with media that machines boot to report themselves: by whom they are offered, and where the reports come in.
    #[must_use]
    pub fn with_media(self, office: Arc<dyn MediumOffice>, reception: Arc<Reception>) -> Self {
        Self { office: Some(office), reception, ..self }
    }

    /// Runs until `shutdown` resolves. Where there is no definition of HostDiscoveries, it waits for it.
    pub fn run(self, shutdown: Shutdown) -> BoxFuture<'static, ()> {
        Box::pin(self.run_until(shutdown))
    }

    async fn run_until(self, mut shutdown: Shutdown) {
        let mut news = self.context.news.listen();
        let (sender, mut seen) = unbounded_channel();
        let unreadable = Arc::<Marks>::default();
        let mut watch = JoinSet::new();
        watch.spawn(follow(Arc::clone(&self.context), Arc::clone(&unreadable), sender));
        let mut all = All {
            context: self.context,
            scout: self.scout,
            office: self.office,
            reception: self.reception,
            of: BTreeMap::new(),
            listing: HashSet::new(),
            are_listed: false,
            unreadable,
            wishes: BTreeMap::new(),
            asking: BTreeSet::new(),
            is_scanning: false,
            tasks: JoinSet::new(),
            made: Vec::new(),
            names: Names::new(),
            resolved: None,
            unwritten: BTreeSet::new(),
        };
        loop {
            all.say().await;
            all.begin().await;
            let next = all.next();
            let reception = Arc::clone(&all.reception);
            tokio::select! {
                () = &mut shutdown => break,
                novelty = news.recv() => match novelty {
                    None => break,
                    Some(novelty) => all.hear(novelty),
                },
                Some(event) = seen.recv() => all.hear_one(event),
                Some(done) = all.tasks.join_next() => match done {
                    Ok(Done::Scanned(key, stand, scanned)) => all.scanned(&key, &stand, scanned).await,
                    Ok(Done::Held(key, why)) => {
                        all.is_scanning = false;
                        all.hold(&key, why);
                    }
                    Ok(Done::Asked(asked, answer, names)) => all.answered(*asked, answer, names).await,
                    Ok(Done::Sighted(key, stand, seen, scanned)) => all.sighted(&key, &stand, *seen, scanned).await,
                    // A scan that ended badly is made again.
                    Err(error) => {
                        tracing::error!(%error, "ask BMCs that nobody has declared");
                        (all.is_scanning, all.asking) = (false, BTreeSet::new());
                        all.reception.give_up_all();
                        let later = Instant::now() + FAILED;
                        all.of.values_mut().for_each(|one| one.due = one.due.max(later));
                    }
                },
                () = reception.news() => {}
                () = sleep_until(next) => {}
            }
        }
    }
}

/// Watches the HostDiscoveries, as soon as there is a definition of them.
async fn follow(context: Arc<Context>, marks: Arc<Marks>, to: UnboundedSender<Seen>) {
    let namespace = context.settings.namespace.as_deref();
    let api: Api<HostDiscovery> = scoped(&context.client, namespace);
    objects::installed(&api, || {
        tracing::debug!(
            "there is no definition of HostDiscoveries: install those of `metamorph crds` to have machines discovered"
        );
    })
    .await;
    let mut events =
        std::pin::pin!(objects::follow::<HostDiscovery>(&context.client, namespace, &context.recorder, &marks));
    let mut fails = false;
    while let Some(event) = events.next().await {
        if let Err(error) = &event
            && !fails
        {
            tracing::warn!(error = error as &dyn std::error::Error, "watch the HostDiscoveries");
        }
        fails = event.is_err();
        if to.send(event).is_err() {
            return;
        }
    }
}

impl One {
    /// Reads an object. What is known of its rest, and of a plan for the same spec, stays.
    fn of(object: HostDiscovery, before: Option<&Self>, now: jiff::Timestamp) -> Self {
        let generation = object.metadata.generation;
        let same = before.filter(|before| before.generation == generation && before.object.uid() == object.uid());
        let (plan, faults) = match same {
            Some(same) => (same.plan.clone(), same.faults.clone()),
            None => match discovery::check(&object.spec) {
                Ok(plan) => (Some(Arc::new(plan)), Vec::new()),
                Err(faults) => (None, faults),
            },
        };
        let rest = before.map_or_else(Instant::now, |before| before.rest);
        let due = (Instant::now() + until_due(&object, now)).max(rest);
        let held = before.and_then(|before| before.held.clone());
        let (media, no_medium) =
            same.map_or_else(Default::default, |same| (same.media.clone(), same.no_medium.clone()));
        let offers = same.map_or_else(Instant::now, |same| same.offers);
        let says = Some(Instant::now());
        let unkept = same.and_then(|same| same.unkept);
        let wished = before.is_some_and(|before| before.wished);
        let revisions = medium::Revisions::of(&object, before);
        let gathered = None;
        Self {
            object,
            plan,
            generation,
            faults,
            due,
            rest,
            says,
            held,
            media,
            no_medium,
            offers,
            revisions,
            unkept,
            wished,
            gathered,
        }
    }

    fn stand(&self) -> Stand {
        (self.object.uid(), self.generation)
    }

    fn is_scanned(&self) -> bool {
        let is_there = self.object.metadata.deletion_timestamp.is_none();
        // What was dismissed is given free by a scan, be it one of no address.
        let is_due = !self.is_only_reported() || self.object.annotations().contains_key(annotation::REDISCOVER);
        self.plan.is_some() && !self.object.spec.suspended && is_there && is_due
    }

    /// Whether an address is asked only when a machine reports that its BMC is there.
    fn is_only_reported(&self) -> bool {
        self.object.spec.medium.as_ref().is_some_and(|medium| medium.only_reported)
    }
}

/// Waits until the namespace is frozen; why.
async fn until_frozen(client: &kube::Client, namespace: &str) -> String {
    loop {
        tokio::time::sleep(LOOK).await;
        // What cannot be read is read again before anything is made.
        if let Ok(Some(why)) = frozen(client, namespace).await {
            return why;
        }
    }
}

/// Whether this is a version of the same object from before the other one: they are numbers that grow.
fn is_before(object: &HostDiscovery, other: &HostDiscovery) -> bool {
    let version = |one: &HostDiscovery| one.resource_version().and_then(|version| version.parse::<u64>().ok());
    object.uid() == other.uid() && version(object).zip(version(other)).is_some_and(|(one, other)| one < other)
}

/// How long it is to the next scan.
fn until_due(object: &HostDiscovery, now: jiff::Timestamp) -> Duration {
    let status = object.status.as_ref();
    let is_of_spec = status.is_some_and(|status| status.observed_generation == object.metadata.generation);
    let began = status.and_then(|status| status.last_scan.as_ref()?.began.as_ref());
    let asked_for = object.annotations().contains_key(annotation::REDISCOVER);
    let Some(began) = began.filter(|_| is_of_spec && !asked_for) else { return Duration::ZERO };
    let interval = Duration::from_secs(u64::from(object.spec.interval_minutes) * 60);
    // One that began in the future, by another clock, waits for no more than its interval.
    let since = Duration::try_from(now.duration_since(began.0)).unwrap_or_default();
    interval.saturating_sub(since)
}

impl All {
    fn is_in_step(&self) -> bool {
        let records = &self.context.records;
        self.are_listed && self.context.hosts.in_step.get() && (records.in_step.get() || records.is_absent())
    }

    fn may_act(&self) -> bool {
        (self.context.settings.may_act)()
    }

    /// When something is to be done though nothing is heard.
    fn next(&self) -> Instant {
        let later = Instant::now() + AGAIN;
        if !self.is_in_step() || !self.may_act() {
            return Instant::now() + Duration::from_secs(1);
        }
        let scans = self.of.values().filter(|one| one.is_scanned() && !self.is_scanning).map(|one| one.due);
        let free = self.asking.len() < APPROVALS;
        let wishes = self.wishes.iter().filter(|(key, _)| free && !self.asking.contains(*key)).map(|(_, wish)| wish.at);
        let says = self.of.values().filter_map(|one| one.says);
        let offers = self.of.values().filter(|_| self.office.is_some()).map(|one| one.offers);
        let rows = self.of.values().filter_map(|one| Some(one.gathered.as_ref()?.due));
        let later_ones = rows.chain(self.next_report());
        scans.chain(wishes).chain(says).chain(offers).chain(later_ones).min().map_or(later, |at| at.min(later))
    }

    /// Begins what is due.
    async fn begin(&mut self) {
        if !self.is_in_step() || !self.may_act() {
            return;
        }
        let now = Instant::now();
        self.made.retain(|(at, _)| *at + SHOWN_WITHIN > now);
        let offers: Vec<Key> =
            self.of.iter().filter(|(_, one)| one.offers <= now).map(|(key, _)| key.clone()).collect();
        for key in offers {
            self.offer(&key);
            self.tell_flood(&key).await;
            // What is scanned looks for itself.
            let is_held = self.of.get(&key).is_some_and(|one| one.held.is_some() && !one.is_scanned());
            if is_held && self.frozen(&key.0).await.is_none() {
                self.thawed(&key);
            }
            self.find_wishes(&key);
            if let Some(one) = self.of.get_mut(&key) {
                let again = if one.held.is_some() { AGAIN } else { OFFERED };
                (one.offers, one.says) = (now + again, Some(now));
            }
        }
        self.write_gathered(now).await;
        self.sight().await;
        if !self.is_scanning {
            let due = self.of.iter().filter(|(_, one)| one.is_scanned() && one.due <= now);
            if let Some(key) = due.min_by_key(|(_, one)| one.due).map(|(key, _)| key.clone()) {
                match self.frozen(&key.0).await {
                    Some(why) => self.hold(&key, why),
                    None => self.scan(key),
                }
            }
        }
        let due: Vec<Key> = self.wishes.iter().filter(|(_, wish)| wish.at <= now).map(|(key, _)| key.clone()).collect();
        for key in due {
            if self.asking.len() < APPROVALS && !self.asking.contains(&key) {
                self.ask(key).await;
            }
        }
    }

    /// Begins a scan, which ends as soon as the namespace is frozen.
    fn scan(&mut self, key: Key) {
        let Some(one) = self.of.get(&key) else { return };
        let Some(plan) = one.plan.clone() else { return };
        self.thawed(&key);
        let Some(one) = self.of.get(&key) else { return };
        self.is_scanning = true;
        let (stand, context) = (one.stand(), Arc::clone(&self.context));
        let places = if one.is_only_reported() { Vec::new() } else { plan.places.clone() };
        let scan = scan::scan(
            Arc::clone(&self.scout),
            places,
            move || world::names(&context),
            Arc::clone(&self.context.settings.may_act),
            self.context.settings.clock.now(),
        );
        let client = self.context.client.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                scanned = scan => Done::Scanned(key, stand, scanned),
                why = until_frozen(&client, &key.0) => Done::Held(key, why),
            }
        });
    }

    fn hear(&mut self, novelty: Novelty) {
        match novelty {
            Novelty::Host(host) => {
                let key = key_of(host.as_ref());
                let waits = host.spec.bmc.is_none()
                    && !host.is_deleting()
                    && host.annotation(annotation::DISCOVERED_BY).is_some();
                // Another word than the known ones is answered, and approves nothing.
                let is_wished = waits && host.annotation(annotation::APPROVE).is_some_and(|word| word != "false");
                if is_wished {
                    // A change of the host is a reason to try again now, but no more often than every few seconds.
                    let new = Wish::new(false);
                    let wish = self.wishes.entry(key).or_insert(new);
                    *wish = Wish { at: wish.at.min(new.at + Duration::from_secs(5)), by_rule: false, ..*wish };
                } else if !waits || self.wishes.get(&key).is_some_and(|wish| !wish.by_rule) {
                    self.wishes.remove(&key);
                }
            }
            Novelty::HostGone(host) => {
                self.wishes.remove(&key_of(host.as_ref()));
                self.made.retain(|(_, made)| made.uid() != host.uid());
            }
            // The Secret that an approval lacks may be there now.
            Novelty::Secret(namespace, name) => {
                let names = |one: &One| one.object.spec.credentials_name == name;
                if self.of.iter().any(|((of, _), one)| *of == namespace && names(one)) {
                    let at = Instant::now() + Duration::from_secs(1);
                    let of_it = self.wishes.iter_mut().filter(|((of, _), _)| *of == namespace);
                    of_it.for_each(|(_, wish)| wish.at = wish.at.min(at));
                }
            }
            Novelty::Facts(..) | Novelty::FactsListed | Novelty::Listed => {}
        }
    }

    fn hear_one(&mut self, event: Seen) {
        match event {
            Ok(Event::Init) => self.listing.clear(),
            Ok(Event::InitApply(object)) => {
                self.listing.insert(key_of(&object));
                self.put(object);
            }
            Ok(Event::Apply(object)) => {
                // What this process has written since is not taken back by the watch, which is behind. A new listing tells the truth, whatever its number.
                if !self.of.get(&key_of(&object)).is_some_and(|one| is_before(&object, &one.object)) {
                    self.put(object);
                }
            }
            Ok(Event::Delete(object)) => {
                let key = key_of(&object);
                self.offers_no_more(object.metadata.uid.as_deref());
                self.unwritten.remove(&key);
                self.of.remove(&key);
            }
            Ok(Event::InitDone) => {
                let listed = std::mem::take(&mut self.listing);
                for one in self.of.iter().filter(|(key, _)| !listed.contains(*key)).map(|(_, one)| one) {
                    self.offers_no_more(one.object.metadata.uid.as_deref());
                }
                self.of.retain(|key, _| listed.contains(key));
                self.are_listed = true;
            }
            Err(_) => self.are_listed = false,
        }
    }

    fn put(&mut self, object: HostDiscovery) {
        let key = key_of(&object);
        // What is left of one that cannot be read would ask other addresses than it says.
        if self.unreadable.hold(&object) {
            self.offers_no_more(object.metadata.uid.as_deref());
            self.of.remove(&key);
            return;
        }
        let mut before = self.of.remove(&key);
        if let Some(other) = before.take_if(|before| before.object.uid() != object.uid()) {
            self.offers_no_more(other.object.metadata.uid.as_deref());
        }
        let mut one = One::of(object, before.as_ref(), self.context.settings.clock.now());
        one.gathered = before.and_then(|before| before.gathered);
        self.of.insert(key, one);
    }

    fn api(&self, key: &Key) -> Api<HostDiscovery> {
        Api::namespaced(self.context.client.clone(), &key.0)
    }
}

#[cfg(test)]
mod tests {
    use api::metamorph::HostDiscoverySpec;
    use kube::api::ObjectMeta;

    use super::*;

    fn spec() -> HostDiscoverySpec {
        serde_json::from_value(serde_json::json!({ "ranges": ["192.0.2.0/24"], "credentialsName": "bmc" })).unwrap()
    }

    #[test]
    fn what_the_watch_shows_of_before_an_own_write_is_known_by_its_version() {
        let version = |uid: &str, version: &str| {
            let metadata =
                ObjectMeta { uid: Some(uid.into()), resource_version: Some(version.into()), ..Default::default() };
            HostDiscovery { metadata, ..HostDiscovery::new("rack", spec()) }
        };
        let own = version("a", "10");
        assert!(is_before(&version("a", "9"), &own));
        for later in [version("a", "10"), version("a", "11"), version("b", "9"), version("a", "v9")] {
            assert!(!is_before(&later, &own), "{later:?}");
        }
    }
}
