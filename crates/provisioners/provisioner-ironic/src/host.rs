//! One host for one reconcile: its Ironic, its node, and how something is asked of them.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use api::metal3::InspectionMode;
use jiff::Timestamp;
use provisioner::{Capabilities, Cause, Failure, HostContext, Purpose, RecordError, Retry, Waiting};
use serde_json::{Map, Value};

use crate::causes;
use crate::client::Client;
use crate::driver::Address;
use crate::fault::Fault;
use crate::journal::{Journal, Lock, Memory};
use crate::names::node_name;
use crate::node::{Node, Verb};
use crate::patch::Changes;
use crate::sites::{Site, chosen};
use crate::stop::{Step, Stop};
use crate::versions;

/// Seconds until a node is looked at again that is about to change.
pub const SOON: u64 = 3;
/// Seconds until a node is looked at again that takes its time.
pub const LATER: u64 = 10;

/// A node that proved to be the host's so long ago, seconds, is proved again before its firmware is read.
const PROVED: i64 = 30;
/// A lock that has been in the way for so long, seconds, is not waited for any more.
const STUCK: i64 = 600;
/// A lock that has not been met for so long, seconds, is another one.
const FORGOTTEN: i64 = 120;

fn seconds(now: Timestamp, then: Timestamp) -> i64 {
    now.duration_since(then).as_secs()
}

/// One Ironic of the server.
pub struct One {
    /// What is configured of it.
    pub site: Site,
    /// How it is asked.
    pub client: Client,
}

/// What all hosts share.
pub struct Shared {
    /// The Ironics.
    pub ironics: Vec<One>,
    /// What this process knows of its hosts.
    pub memory: Memory,
}

impl Shared {
    /// The Ironic that a host of this namespace gets.
    pub fn of_namespace(&self, namespace: &str) -> Option<&One> {
        chosen(self.ironics.iter().map(|one| &one.site), namespace).and_then(|at| self.ironics.get(at))
    }
}

/// One host for one reconcile.
pub struct IronicHost {
    /// What all hosts share.
    pub shared: Arc<Shared>,
    /// What is known of it.
    pub context: HostContext,
    /// What is remembered of it.
    pub journal: Journal,
    /// What it has.
    pub capabilities: Capabilities,
}

impl IronicHost {
    /// The time.
    pub fn now(&self) -> Timestamp {
        (self.context.now)()
    }

    /// Some seconds, with up to a quarter more that is the host's own: what began together goes apart.
    pub fn soon(&self, seconds: u64) -> Duration {
        let mut hasher = DefaultHasher::new();
        (&self.context.key.uid, self.now().as_nanosecond()).hash(&mut hasher);
        Duration::from_millis(seconds * 1000 + hasher.finish() % (seconds * 250).max(1))
    }

    /// Asked before each order, and after each record.
    ///
    /// # Errors
    /// When another process leads.
    pub fn leads(&self) -> Result<(), Failure> {
        if (self.context.may_act)() {
            return Ok(());
        }
        Err(Failure::new(Cause::NotLeading, "order something of Ironic: another process leads"))
    }

    /// The host's Ironic: the recorded one, or before registration that of its namespace.
    ///
    /// # Errors
    /// When this server does not have it.
    pub fn one(&self) -> Result<&One, Failure> {
        let known = self.journal.data.ironic.as_deref();
        let found = match known {
            Some(name) => self.shared.ironics.iter().find(|one| one.site.name == name),
            None => self.shared.of_namespace(&self.context.key.namespace),
        };
        found.ok_or_else(|| {
            let (text, advice, retry) = match known {
                Some(name) => (
                    format!(
                        "choose an Ironic: the host is registered with \"{}\", which this server does not have",
                        crate::fault::clean(name)
                    ),
                    "list it in the file of --ironics again, or detach the host by force",
                    Retry::Held,
                ),
                None => (
                    format!("choose an Ironic: none has the hosts of the namespace {}", self.context.key.namespace),
                    "give one the namespace in the file of --ironics, or list one without namespaces",
                    Retry::AfterChange,
                ),
            };
            let mut failure = Failure::new(Cause::ProvisionerUnavailable, text).advise(advice);
            failure.retry = retry;
            failure
        })
    }

    /// Its client.
    ///
    /// # Errors
    /// When this server does not have its Ironic.
    pub fn client(&self) -> Result<&Client, Failure> {
        self.one().map(|one| &one.client)
    }

    /// The BMC's address.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn address(&self) -> Result<Address, Failure> {
        let fakes = self.one()?.site.fakes;
        Address::parse(&self.context.address, fakes).map_err(|text| {
            let mut failure = Failure::new(Cause::BmcAddressInvalid, format!("read spec.bmc.address: {text}"));
            failure.retry = Retry::AfterChange;
            failure
        })
    }

    /// The id of its node; empty before registration.
    pub fn uuid(&self) -> String {
        let data = &self.journal.data;
        data.node.clone().unwrap_or_else(|| self.context.provisioning_id.clone()).to_ascii_lowercase()
    }

    /// What a fault means for the call; `doing` is what was attempted.
    pub fn heed(&self, doing: &str, fault: Fault) -> Stop {
        // What Ironic stumbles over itself, such as its database, is no answer to a deletion.
        let is_broken = self.context.deleting
            && matches!(&fault, Fault::Refused { status: 500.., text } if causes::cause(text) == Cause::ProvisionerFailed);
        match fault {
            Fault::Locked(text) => self.locked(doing, &text),
            Fault::Full(text) => {
                let now = self.now();
                let left =
                    self.client().map_or(Duration::from_secs(LATER), |client| client.gate(|gate| gate.close(now)));
                self.busy(format!("Ironic has no room ({text})"), left)
            }
            fault if fault.is_without(&self.uuid()) => {
                Stop::Waiting(Waiting::Registration { reason: format!("Ironic does not have the node: {fault}") })
            }
            Fault::NotFound(text) | Fault::Refused { text, .. } if !is_broken => {
                Stop::Failed(causes::failure(doing, Some(&text)))
            }
            fault => {
                let failure = Failure::new(Cause::ProvisionerUnavailable, format!("{doing}: {fault}"));
                // Work under way is not thrown away because a conductor is started anew.
                let works = self.journal.data.work.as_ref().is_some_and(|work| !work.phase.is_final());
                let has_no_conductor = matches!(fault, Fault::NoConductor(_)) && !works;
                let mut failure = self.away(failure, if has_no_conductor { Retry::Later } else { Retry::Waiting });
                if has_no_conductor {
                    failure = failure.advise(
                        "enable the driver of this BMC address's scheme in that Ironic, or start the conductor that has it",
                    );
                }
                if matches!(fault, Fault::Denied { .. }) {
                    failure =
                        failure.advise("correct user and password of this Ironic in the files that --ironics names");
                }
                Stop::Failed(failure)
            }
        }
    }

    /// The node is locked: it is asked again soon, unless the same lock has been in the way for long.
    pub fn locked(&self, doing: &str, text: &str) -> Stop {
        let now = self.now();
        let since = self.shared.memory.of(&self.context.key.uid, |live| {
            let known = live.locked.take().filter(|lock| lock.text == text && seconds(now, lock.seen) <= FORGOTTEN);
            let since = known.map_or(now, |lock| lock.since);
            live.locked = Some(Lock { text: text.to_owned(), since, seen: now });
            since
        });
        let lasted = seconds(now, since);
        if lasted < STUCK {
            return Stop::working(format!("{doing}: Ironic is at work on the node ({text})"), self.soon(SOON));
        }
        let minutes = lasted / 60;
        let text = format!("{doing}: the node has been locked for {minutes} minutes, and Ironic says: {text}");
        let advice = "see whether that conductor runs; it gives its locks up when it is started anew";
        let failure = Failure::new(Cause::ProvisionerUnavailable, text).advise(advice);
        let retry = failure.retry;
        self.away(failure, retry).into()
    }

    /// Ironic cannot be asked. A host that is being deleted waits for it, or for its user's word: it does not go with its disks as they are, and leaves no node behind.
    fn away(&self, mut failure: Failure, retry: Retry) -> Failure {
        failure.retry = if self.context.deleting { Retry::Held } else { retry };
        failure
    }

    /// Ironic has done what was asked: no lock is in the way.
    pub fn taken(&self) {
        self.shared.memory.of(&self.context.key.uid, |live| live.locked = None);
    }

    /// There is no room, for this long at least.
    pub fn busy(&self, reason: String, left: Duration) -> Stop {
        let look_again = left + self.soon(1);
        Stop::Waiting(Waiting::Busy { reason, look_again })
    }

    /// The node as it is now, whole. What is ordered, changed or removed is a node that was read so: it is the host's own.
    ///
    /// # Errors
    /// That it is another's, too.
    pub async fn fresh(&self) -> Step<Node> {
        let node = self.read().await?;
        self.proves(node)
    }

    /// The node, which was read whole just now, if it is the host's.
    ///
    /// # Errors
    /// That it is another's.
    pub fn proves(&self, node: Node) -> Step<Node> {
        if !self.is_own(&node) {
            return Err(self.another(&node).into());
        }
        let proof = (node.uuid.clone(), self.now());
        self.shared.memory.of(&self.context.key.uid, |live| live.own = Some(proof));
        Ok(node)
    }

    /// The id of the host's node, for what changes nothing: one that has proved to be the host's some seconds ago is not read again for it.
    ///
    /// # Errors
    /// That it is another's.
    pub async fn own(&self) -> Step<String> {
        let (uuid, now) = (self.known_uuid()?, self.now());
        let known = self.shared.memory.of(&self.context.key.uid, |live| live.own.clone());
        let counts = |(own, at): &(String, Timestamp)| {
            own.eq_ignore_ascii_case(&uuid) && (0..PROVED).contains(&seconds(now, *at))
        };
        match known.filter(counts) {
            Some((own, _)) => Ok(own),
            None => Ok(self.fresh().await?.uuid),
        }
    }

    /// The node that the host's id names, whosoever it is.
    pub async fn read(&self) -> Step<Node> {
        let uuid = self.known_uuid()?;
        self.client()?.node(&uuid).await.map_err(|fault| self.heed("read the node", fault))
    }

    /// Whether a node is the host's: it has the host's name and its BMC, or the record that was written for this very host names it. An id alone tells nothing: a
    /// status may be another host's.
    pub fn is_own(&self, node: &Node) -> bool {
        let data = &self.journal.data;
        let is_recorded = data.owner.as_ref() == Some(&self.context.key.uid)
            && data.node.as_ref().is_some_and(|uuid| uuid.eq_ignore_ascii_case(&node.uuid));
        let name = node_name(&self.context.key.namespace, &self.context.key.name);
        is_recorded
            || node.name.as_ref() == Some(&name) && self.address().is_ok_and(|address| address.is_of(&node.driver_info))
    }

    /// The node that the host's id names is another's.
    pub fn another(&self, node: &Node) -> Failure {
        let text = format!(
            "use the node {}, which the host's status names: it has another name or another BMC than this host, and no record of this host names it",
            node.shown()
        );
        Failure::new(Cause::AnotherMachine, text).advise(
            "if the status was copied from another host, delete this host (its node is left) and declare it without that status; if its name or its BMC \
             has changed, correct them in Ironic",
        )
    }

    /// The node as it was seen a moment ago, or is now.
    pub async fn look(&self) -> Step<Node> {
        self.see().await.map(|(node, _)| node)
    }

    /// The same, and whether it was read whole by this very call.
    pub async fn see(&self) -> Step<(Node, bool)> {
        let uuid = self.known_uuid()?;
        self.client()?.seen(&self.context.now, &uuid).await.map_err(|fault| self.heed("look at the node", fault))
    }

    fn known_uuid(&self) -> Step<String> {
        let uuid = self.uuid();
        if uuid.is_empty() {
            let reason = "the host has no node in Ironic yet".to_owned();
            return Err(Stop::Waiting(Waiting::Registration { reason }));
        }
        Ok(uuid)
    }

    /// Records what is in the journal now.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn record(&mut self, purpose: Purpose) -> Result<(), RecordError> {
        self.journal.write(&self.context, &self.shared.memory, purpose).await
    }

    /// The host is still as the call was decided on, and this process may act.
    ///
    /// # Errors
    /// When it is not so.
    pub async fn still(&self) -> Step<()> {
        self.context.record.still_wanted().await?;
        Ok(self.leads()?)
    }

    /// Changes the node, if anything differs.
    pub async fn change(&self, doing: &str, node: Node, changes: Changes) -> Step<Node> {
        if changes.is_empty() {
            return Ok(node);
        }
        self.leads()?;
        let client = self.client()?;
        client.ordered(self.now(), &node.uuid);
        let changed = client.patch(&node.uuid, changes.into_patch()).await;
        let changed = changed.map_err(|fault| self.heed(doing, fault))?;
        self.taken();
        Ok(changed)
    }

    /// Has the next `provide` or `deleted` clean the disks, or not.
    pub async fn set_cleaning(&self, node: Node, cleans: bool) -> Step<Node> {
        let mut changes = Changes::default();
        changes.field("automated_clean", node.automated_clean.map(Value::from), Some(cleans.into()));
        self.change("say whether the disks are cleaned", node, changes).await
    }

    /// Orders a verb that touches neither disks nor firmware, nor boots anything; it is not recorded.
    pub async fn nudge(&self, node: &Node, verb: Verb) -> Stop {
        let doing = format!("have Ironic {} the node", verb.target());
        let client = match self.client() {
            Ok(client) => client,
            Err(failure) => return failure.into(),
        };
        client.ordered(self.now(), &node.uuid);
        if let Err(stop) = self.still().await {
            return stop;
        }
        match client.provision(&node.uuid, verb, Map::new()).await {
            Ok(()) => {
                self.taken();
                Stop::working(doing, self.soon(SOON))
            }
            Err(Fault::Refused { status: 400, text }) => self.outdated(node, &doing, text).await,
            Err(fault) => self.heed(&doing, fault),
        }
    }

    /// Ironic says that the order does not fit the node's state. If the node is in another state by now, somebody else was faster.
    pub async fn outdated(&self, node: &Node, doing: &str, text: String) -> Stop {
        match self.fresh().await {
            Ok(now) if now.provision_state != node.provision_state => {
                Stop::working(format!("{doing}: {}", now.doing()), self.soon(SOON))
            }
            Ok(_) => Stop::Failed(causes::failure(doing, Some(&text))),
            Err(stop) => stop,
        }
    }

    /// Puts the node into maintenance, for this reason, or takes it out.
    pub async fn maintain(&self, node: &Node, reason: Option<&str>) -> Stop {
        let doing = if reason.is_some() { "put the node into maintenance" } else { "take the node out of maintenance" };
        if let Err(failure) = self.leads() {
            return failure.into();
        }
        let client = match self.client() {
            Ok(client) => client,
            Err(failure) => return failure.into(),
        };
        client.ordered(self.now(), &node.uuid);
        match client.maintenance(&node.uuid, reason).await {
            Ok(()) => Stop::working(doing, Duration::from_secs(1)),
            Err(fault) => self.heed(doing, fault),
        }
    }

    /// Whether a deployment that waits for its agent can be aborted.
    pub async fn aborts_deployments(&self) -> Step<bool> {
        let version = self.client()?.version().await.map_err(|fault| self.heed("ask Ironic for its version", fault))?;
        Ok(version >= versions::ABORT)
    }

    /// Whether the host is to be inspected by its BMC alone.
    pub fn is_fast(mode: Option<InspectionMode>) -> bool {
        mode == Some(InspectionMode::Fast)
    }
}
