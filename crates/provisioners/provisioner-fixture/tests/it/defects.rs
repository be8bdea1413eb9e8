//! The kit sees what is wrong: the fixture is given what a faulty provisioner would make of its record, its history and its leave to act.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use provisioner::{
    Capabilities, Failure, History, HistoryEntry, Host, HostContext, HostFacts, HostKey, Named, Provisioner, Purpose,
    Record, RecordContent, RecordError, Recorded, Tell, WakeUps,
};
use provisioner_fixture::FixtureProvisioner;
use provisioner_kit::{Class, FOREIGN_OWNER, Kind, Law, Scenario, Subject, Trail, run, scenarios};
use secrecy::ExposeSecret;
use serde_json::json;

use crate::conformance::machine;

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defect {
    /// What is intended is not written.
    LostIntent,
    /// What is intended is written like anything else: nobody looks whether it is still wanted.
    IntentAsNote,
    /// Work is done for whatever wish, if it is of the kind.
    DoneByKind,
    /// Whoever writes last wins.
    NoCompare,
    /// Each process gives work an identity of its own.
    NewIdentity,
    /// Nobody asks whether another process leads.
    AlwaysLeads,
    /// A record of another version or provisioner is taken for its own.
    ReadsAll,
    /// What a later version has added is dropped.
    DropsUnknown,
    /// The password stands in the record.
    Leaks,
    /// Another machine is taken for the host's.
    NoIdentity,
    /// Another owner's mark is not asked for.
    NoMark,
    /// Nothing is shown.
    Silent,
    /// It says less than it has.
    Understates,
    /// A call waits.
    Waits,
}

/// A fault, the class of scenarios that sees it, the law that it breaks, and whether no other class does.
const DEFECTS: [(Defect, Class, Law, bool); 14] = [
    (Defect::LostIntent, Class::Plain, Law::IntentFirst, false),
    (Defect::IntentAsNote, Class::Plain, Law::IntentFirst, false),
    (Defect::DoneByKind, Class::Plain, Law::OnlyThisWish, false),
    (Defect::NoCompare, Class::Concurrent, Law::OnceAWish, true),
    (Defect::NewIdentity, Class::Killed, Law::OnceAWish, false),
    (Defect::AlwaysLeads, Class::Leading, Law::Leads, false),
    (Defect::ReadsAll, Class::Record, Law::Record, true),
    (Defect::DropsUnknown, Class::Record, Law::Record, true),
    (Defect::Leaks, Class::Plain, Law::Secrets, false),
    (Defect::NoIdentity, Class::Identity, Law::Answer, true),
    (Defect::NoMark, Class::Identity, Law::Answer, true),
    (Defect::Silent, Class::Plain, Law::Shown, false),
    (Defect::Understates, Class::Capabilities, Law::Capabilities, true),
    (Defect::Waits, Class::Plain, Law::AtOnce, false),
];

struct Broken(Defect);

impl Kind for Broken {
    fn name(&self) -> &str {
        "broken"
    }

    fn machine(&self, trail: &Trail) -> Box<dyn Subject> {
        let (defect, processes) = (self.0, AtomicU64::new(0));
        machine(
            trail,
            Box::new(move |machines| {
                let process = processes.fetch_add(1, Ordering::SeqCst);
                Arc::new(Faulty { inner: FixtureProvisioner::new(machines), defect, process })
            }),
        )
    }
}

struct Faulty {
    inner: FixtureProvisioner,
    defect: Defect,
    process: u64,
}

struct Paper {
    inner: Arc<dyn Record>,
    defect: Defect,
    process: u64,
    password: String,
}

#[async_trait]
impl Record for Paper {
    fn current(&self) -> Recorded {
        let mut now = self.inner.current();
        let Some(content) = now.content.as_mut() else { return now };
        match self.defect {
            Defect::DoneByKind => {
                let work = content.data["work"].as_object_mut();
                if let Some(work) = work.filter(|work| work["phase"] == "Succeeded") {
                    work.remove("wish");
                }
            }
            Defect::NewIdentity => {
                let name = format!(" of process {}", self.process);
                if let Some(id) = content.data["work"]["id"].as_str().map(|id| id.split(' ').next().unwrap().to_owned())
                {
                    content.data["work"]["id"] = json!(id + &name);
                }
            }
            Defect::ReadsAll => {
                (content.version, content.provisioner) = (1, "fixture".into());
                if !content.data.is_object() {
                    now.content = None;
                }
            }
            _ => {}
        }
        now
    }

    async fn write(&self, expected: u64, mut content: RecordContent, purpose: Purpose) -> Result<u64, RecordError> {
        let mut purpose = purpose;
        match self.defect {
            Defect::LostIntent if purpose == Purpose::Intent => return Ok(expected),
            Defect::IntentAsNote => purpose = Purpose::Note,
            Defect::DropsUnknown => drop(content.data.as_object_mut().and_then(|data| data.remove("weather"))),
            Defect::Leaks => content.data["note"] = json!(self.password),
            Defect::NoIdentity => drop(content.data.as_object_mut().and_then(|data| data.remove("machine"))),
            Defect::Waits => tokio::time::sleep(Duration::from_secs(1)).await,
            Defect::NoCompare => {
                if let Ok(revision) = self.inner.write(expected, content.clone(), purpose).await {
                    return Ok(revision);
                }
                let there = self.inner.current().revision;
                return self.inner.write(there, content, purpose).await;
            }
            _ => {}
        }
        self.inner.write(expected, content, purpose).await
    }

    async fn still_wanted(&self) -> Result<(), RecordError> {
        self.inner.still_wanted().await
    }
}

struct Blank;

#[async_trait]
impl History for Blank {
    async fn tell(&self, _: &HistoryEntry, _: Tell) {}
}

impl Named for Faulty {
    fn name(&self) -> &'static str {
        self.inner.name()
    }
}

#[async_trait]
impl Provisioner for Faulty {
    fn capabilities(&self, host: &HostFacts) -> Capabilities {
        let all = self.inner.capabilities(host);
        if self.defect == Defect::Understates { Capabilities { health: false, ..all } } else { all }
    }
    fn made(&self, id: &str) -> bool {
        self.inner.made(id)
    }
    fn machine_key(&self, address: &str) -> Option<String> {
        self.inner.machine_key(address)
    }
    fn host(&self, mut context: HostContext) -> Result<Box<dyn Host>, Failure> {
        match self.defect {
            Defect::AlwaysLeads => context.may_act = Arc::new(|| true),
            Defect::Silent => context.history = Arc::new(Blank),
            Defect::NoMark => Arc::make_mut(&mut context.facts).provisioning_id = FOREIGN_OWNER.into(),
            _ => {}
        }
        let password = context.bmc.as_ref().map(|bmc| bmc.password.expose_secret().to_owned()).unwrap_or_default();
        let (inner, defect, process) = (context.record, self.defect, self.process);
        context.record = Arc::new(Paper { inner, defect, process, password });
        self.inner.host(context)
    }
    fn has_news(&self, key: &HostKey) -> bool {
        self.inner.has_news(key)
    }
    fn acknowledge_news(&self, key: &HostKey) {
        self.inner.acknowledge_news(key);
    }
    fn subscribe(&self) -> WakeUps {
        self.inner.subscribe()
    }
    fn expect(&self, key: &HostKey, recorded: &Recorded) {
        self.inner.expect(key, recorded);
    }
    fn forget(&self, key: &HostKey) {
        self.inner.forget(key);
    }
    async fn close(&self) {}
}

/// Some of the stories, for time's sake.
fn some() -> Vec<Scenario> {
    let stories = ["says", "provision:", "provision anew:", "deprovision:", "attach a medium:"];
    let mut all = scenarios(&provisioner_fixture::capabilities());
    all.retain(|scenario| stories.iter().any(|story| scenario.name.starts_with(story)));
    all
}

#[tokio::test(start_paused = true)]
async fn each_defect_is_seen_and_some_get_through_without_their_class() {
    let mut wrong = Vec::new();
    for (defect, class, law, alone) in DEFECTS {
        let (with, without): (Vec<Scenario>, Vec<Scenario>) = some().into_iter().partition(|s| s.class == class);
        let seen = run(&Broken(defect), &with).await;
        let laws: BTreeSet<Law> = seen.violations.iter().map(|violation| violation.law).collect();
        if !laws.contains(&law) {
            wrong.push(format!("{defect:?} is not seen by {class:?} as {law:?}, but as {laws:?}"));
        }
        if alone && let Some(found) = run(&Broken(defect), &without).await.violations.first() {
            wrong.push(format!("{defect:?} is seen without {class:?}, too: {found}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
