//! Carries scenarios out: one machine and one record a run, processes that come and go over them.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use provisioner::{
    Asked, Cause, Context, Envelope, Failure, Now, Outcome, Provides, Record, Reply, Resource, Retry, Verdict, Waiting,
};
use tokio::time::{Instant, sleep, timeout};

use crate::condition::Condition;
use crate::laws::{self, Seen};
use crate::paused_clock;
use crate::process::{Process, ProcessRecord, Store, may_act};
use crate::scenario::{Edit, Expected, Interruption, Scenario, Step};
use crate::subject::{Kind, Subject};
use crate::tested::Tested;
use crate::trail::{Point, Trail};
use crate::verdict::{Found, Law, Report, Violation};

/// Looks after which unfinished work counts as stuck.
const MOST_LOOKS: usize = 500;
/// Most failures that a step may have.
const MOST_FAILURES: usize = 6;
/// How many looks a disturbance lasts.
const DISTURBED: usize = 3;
/// Most looks of one step that are interrupted.
const MOST_INTERRUPTED: usize = 40;
/// Violations after which the rest is skipped.
const MOST_VIOLATIONS: usize = 40;

/// Where a run is interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Nowhere.
    Nowhere,
    /// Everywhere.
    Everywhere,
    /// At this place within the calls.
    Point(usize),
    /// Before this look, counted from 0.
    Look(usize),
}

/// Lines of what has happened that a violation shows, the newest.
const MOST_LINES: usize = 60;

/// A call under way.
type Asking<R> = Pin<Box<dyn Future<Output = Outcome<<R as Resource>::Answer>> + Send>>;

enum Looked<R: Resource> {
    Answered(Outcome<R::Answer>),
    Stopped(Asking<R>),
}

enum Next<A> {
    Again(Duration),
    Done(Box<A>),
    Over,
}

/// What a resource with such a thing behind it says that it can be asked.
pub fn capabilities_of<R: Tested>(kind: &dyn Kind<R>) -> R::Capabilities {
    let mut machine = kind.machine(&Trail::default());
    let provisioner: Arc<R::Provisioner> = machine.start(0, may_act(&Arc::new(AtomicBool::new(true))));
    Provides::<R>::capabilities(provisioner.as_ref(), &machine.facts())
}

/// Carries the scenarios out. Tokio's clock has to be paused.
pub async fn run<R: Tested>(kind: &dyn Kind<R>, scenarios: &[Scenario<R>]) -> Report {
    let mut report = Report::default();
    for scenario in scenarios {
        if !is_possible(kind, scenario) {
            report.left_out.push(scenario.name.clone());
            continue;
        }
        if report.violations.len() >= MOST_VIOLATIONS {
            break;
        }
        let (runs, found) = all_runs(kind, scenario).await;
        *report.runs.entry(scenario.class).or_default() += runs;
        report.violations.extend(found);
    }
    report
}

fn is_possible<R: Tested>(kind: &dyn Kind<R>, scenario: &Scenario<R>) -> bool {
    let machine = kind.machine(&Trail::default());
    scenario.steps.iter().all(|step| {
        let during = match &step.interruption {
            Interruption::Machine(condition) => machine.can_be(*condition),
            _ => true,
        };
        during && step.machine.iter().all(|condition| machine.can_be(*condition))
    })
}

async fn all_runs<R: Tested>(kind: &dyn Kind<R>, scenario: &Scenario<R>) -> (usize, Vec<Violation>) {
    let plain = Run::new(kind, scenario, At::Nowhere).go().await;
    let (mut count, mut found) = (1, plain.found);
    let Some(last) = scenario.steps.last() else { return (count, found) };
    let at_points = |matches: fn(Point) -> bool| -> Vec<At> {
        let all = plain.points.iter().enumerate();
        all.filter(|(_, point)| matches(**point)).map(|(index, _)| At::Point(index)).collect()
    };
    let looks = plain.looks.min(MOST_INTERRUPTED);
    let places = match &last.interruption {
        Interruption::Nothing => Vec::new(),
        Interruption::Killed => {
            let mut places = at_points(|_| true);
            places.extend((1..looks).map(At::Look));
            places
        }
        Interruption::Concurrent => at_points(|_| true),
        // What is on its way to the machine cannot be taken back.
        Interruption::Frozen => at_points(|point| point != Point::BeforeEffect),
        Interruption::Overtaken => at_points(|point| point == Point::BeforeWrite),
        Interruption::Repeated | Interruption::HistoryDeleted | Interruption::Record(_) => vec![At::Everywhere],
        Interruption::CancelledBy(..) | Interruption::RecordDeleted | Interruption::Forced => {
            (1..looks).map(At::Look).collect()
        }
        Interruption::Machine(_) | Interruption::NotLeading => (0..looks).map(At::Look).collect(),
    };
    for at in places {
        if !found.is_empty() {
            break;
        }
        count += 1;
        found.extend(Run::new(kind, scenario, at).go().await.found);
    }
    (count, found)
}

/// Result of a run.
struct RunReport {
    /// Places within the calls of the last step.
    points: Vec<Point>,
    /// Looks of the last step.
    looks: usize,
    found: Vec<Violation>,
}

struct Run<'a, R: Tested> {
    scenario: &'a Scenario<R>,
    at: At,
    index: usize,
    trail: Trail,
    store: Arc<Store>,
    world: R::World,
    now: Now,
    subject: Box<dyn Subject<R>>,
    facts: R::Facts,
    process: Process<R>,
    processes: u64,
    /// A process that stands still, with its call.
    frozen: Option<(Asking<R>, Process<R>)>,
    calls: u64,
    found: Vec<Violation>,
}

impl<'a, R: Tested> Run<'a, R> {
    fn new(kind: &dyn Kind<R>, scenario: &'a Scenario<R>, at: At) -> Self {
        let trail = Trail::default();
        let mut subject = kind.machine(&trail);
        let store = Arc::new(Store::default());
        let process = started(subject.as_mut(), &store, &trail, 0);
        Self {
            scenario,
            at,
            index: 0,
            facts: subject.facts(),
            subject,
            process,
            trail,
            store,
            world: R::World::default(),
            now: paused_clock(),
            processes: 1,
            frozen: None,
            calls: 0,
            found: Vec::new(),
        }
    }

    async fn go(mut self) -> RunReport {
        let mut report = RunReport { points: Vec::new(), looks: 0, found: Vec::new() };
        let scenario = self.scenario;
        if scenario.steps.is_empty() {
            self.compare_capabilities();
        }
        for (index, step) in scenario.steps.iter().enumerate() {
            self.index = index;
            let is_last = index + 1 == scenario.steps.len();
            let at = if is_last { self.at } else { At::Nowhere };
            for condition in &step.machine {
                self.subject.set(*condition, true);
            }
            self.trail.begin_part(if let At::Point(place) = at { Some(place) } else { None });
            report.looks = self.drive(step, at, is_last).await;
            if is_last {
                report.points = self.trail.points();
            }
            for condition in &step.machine {
                self.subject.set(*condition, false);
            }
            if !self.found.is_empty() {
                break;
            }
        }
        self.subject.stop(self.process.id);
        report.found = self.found;
        report
    }

    fn violates(&mut self, step: &Step<R>, found: impl IntoIterator<Item = Found>) {
        self.found_at(step.call.name(), &step.interruption, found);
    }

    fn found_at(&mut self, what: &str, interruption: &Interruption<R>, found: impl IntoIterator<Item = Found>) {
        let run = if self.at == At::Nowhere { String::new() } else { format!(", {interruption:?} at {:?}", self.at) };
        for (law, text) in found {
            let lines = self.trail.entries();
            let trail = lines
                .iter()
                .rev()
                .take(MOST_LINES)
                .rev()
                .map(|e| format!("{} {:?} {}", e.part, e.what, e.text))
                .collect();
            self.found.push(Violation {
                scenario: self.scenario.name.clone(),
                class: self.scenario.class,
                step: format!("step {} ({what})", self.index + 1),
                run: run.clone(),
                law,
                found: text,
                trail,
            });
        }
    }

    fn compare_capabilities(&mut self) {
        let found = R::compare(self.process.provisioner.as_ref(), self.context(&self.process));
        self.found_at("what it has", &Interruption::Nothing, found);
    }

    fn context(&self, process: &Process<R>) -> R::Context {
        let common = Context {
            facts: Arc::new(self.facts.clone()),
            record: Arc::clone(&process.record) as Arc<dyn Record>,
            now: Arc::clone(&self.now),
            may_act: may_act(&process.leads),
        };
        R::context(&self.world, self.subject.access(), common)
    }

    fn another(&mut self) -> Process<R> {
        self.processes += 1;
        started(self.subject.as_mut(), &self.store, &self.trail, self.processes)
    }

    /// The process dies; another one starts.
    fn replace(&mut self) {
        self.subject.stop(self.process.id);
        self.process = self.another();
    }

    /// The call as it arrives after its way through JSON.
    fn travelled(&mut self, step: &Step<R>, call: &R::Call) -> Envelope<R> {
        self.calls += 1;
        let sent = Envelope::<R>::new(self.calls, R::key(&self.facts).clone(), self.facts.clone(), call.clone());
        let written = serde_json::to_string(&sent).and_then(|text| serde_json::from_str(&text));
        match written.map(Envelope::<R>::read) {
            Ok(Ok(read)) if read.call.known == *call && read.facts.known == self.facts => read,
            other => {
                self.violates(step, [(Law::Travels, format!("{} arrives as {other:?}", call.name()))]);
                sent
            }
        }
    }

    fn asking(&mut self, step: &Step<R>, process: Option<&Process<R>>, call: &R::Call) -> Asking<R> {
        let call = self.travelled(step, call).call.known;
        let process = process.unwrap_or(&self.process);
        let (provisioner, context) = (Arc::clone(&process.provisioner), self.context(process));
        Box::pin(async move { Provides::<R>::ask(provisioner.as_ref(), context, call).await })
    }

    /// One call, until it is answered or stopped.
    async fn look(&mut self, step: &Step<R>, call: &R::Call) -> Looked<R> {
        let mut asking = self.asking(step, None, call);
        let began = Instant::now();
        let result = tokio::select! {
            biased;
            result = &mut asking => result,
            () = self.trail.stopped() => return Looked::Stopped(asking),
        };
        if began.elapsed() > Duration::ZERO {
            self.violates(step, [(Law::AtOnce, format!("{} is answered after {:?}", call.name(), began.elapsed()))]);
        }
        let envelope = Envelope::<R>::new(self.calls, R::key(&self.facts).clone(), self.facts.clone(), call.clone());
        let reply = serde_json::to_string(&envelope.head.reply(result.clone()));
        let read = reply.and_then(|text| serde_json::from_str::<Reply<R>>(&text));
        if !matches!(read.map(|read| envelope.accept(read)), Ok(Ok(read)) if read.result == result) {
            self.violates(step, [(Law::Travels, format!("{result:?} does not arrive as it was sent"))]);
        }
        Looked::Answered(result)
    }

    /// One call to its answer, with its interruption; `None` if the process died.
    async fn through(&mut self, step: &Step<R>, call: &R::Call) -> Option<Outcome<R::Answer>> {
        let asking = match self.look(step, call).await {
            Looked::Answered(result) => return Some(result),
            Looked::Stopped(asking) => asking,
        };
        match &step.interruption {
            Interruption::Frozen => {
                self.process.leads.store(false, Ordering::SeqCst);
                self.subject.stop(self.process.id);
                let another = self.another();
                self.frozen = Some((asking, std::mem::replace(&mut self.process, another)));
                None
            }
            Interruption::Concurrent => {
                // Two of them never do the same at the very same instant.
                sleep(Duration::from_secs(1)).await;
                let other = self.another();
                // The other process's answer does not matter.
                let _ = self.asking(step, Some(&other), call).await;
                self.subject.stop(other.id);
                self.trail.thaw();
                Some(asking.await)
            }
            Interruption::Overtaken => {
                self.store.replace(self.store.now().content);
                self.trail.thaw();
                Some(asking.await)
            }
            _ => {
                drop(asking);
                self.replace();
                None
            }
        }
    }

    /// Repeats the call until it is done. Returns the number of looks.
    async fn drive(&mut self, step: &Step<R>, at: At, is_last: bool) -> usize {
        let (mut seen, mut call) = (Seen::default(), step.call.clone());
        while seen.looks < MOST_LOOKS {
            if let (Interruption::CancelledBy(other, effect), At::Look(look)) = (&step.interruption, at)
                && look == seen.looks
            {
                let early = laws::order(&self.trail.present(), step, seen.begun_again());
                self.violates(step, early);
                self.trail.begin_part(None);
                let instead = Step::<R>::of((**other).clone(), *effect);
                return Box::pin(self.drive(&instead, At::Nowhere, false)).await;
            }
            if step.interruption == Interruption::Forced && at == At::Look(seen.looks) {
                R::force(&mut call, true);
            }
            self.before_look(step, at, seen.looks).await;
            let entries = self.trail.present().len();
            let mut result = self.through(step, &call).await;
            if step.interruption == Interruption::Repeated && matches!(result, Some(Ok(Verdict::Working(_)))) {
                result = self.through(step, &call).await;
            }
            seen.looks += 1;
            let next = match result {
                Some(result) => self.heed(step, at, &mut seen, result, entries, &mut call).await,
                None => Next::Again(Duration::from_millis(100)),
            };
            if !self.found.is_empty() {
                return seen.looks;
            }
            match next {
                Next::Again(pause) => sleep(pause.clamp(Duration::from_millis(100), Duration::from_secs(60))).await,
                Next::Over => return seen.looks,
                Next::Done(answer) => {
                    self.ended(step, at, &seen, &answer, is_last).await;
                    return seen.looks;
                }
            }
        }
        let text = format!("not done after {MOST_LOOKS} looks, {} failures: {:?}", seen.failures.len(), seen.failures);
        let early = laws::order(&self.trail.present(), step, seen.begun_again());
        self.violates(step, early);
        self.violates(step, [(Law::Arrives, text)]);
        seen.looks
    }

    async fn before_look(&mut self, step: &Step<R>, at: At, look: usize) {
        match (&step.interruption, at) {
            (Interruption::Killed, At::Look(place)) if place == look => self.replace(),
            (Interruption::Machine(condition), At::Look(place)) if look == place || look == place + DISTURBED => {
                self.subject.set(*condition, look == place);
            }
            (Interruption::NotLeading, At::Look(place)) => {
                let leads = !(place..place + DISTURBED).contains(&look);
                self.process.leads.store(leads, Ordering::SeqCst);
            }
            (Interruption::RecordDeleted, At::Look(place)) if place == look => self.store.delete(),
            (Interruption::HistoryDeleted, At::Everywhere) => R::lose_history(&self.world),
            (Interruption::Record(edit), At::Everywhere) if look == 1 => self.edited(step, *edit).await,
            _ => {}
        }
    }

    /// Edits the record, lets another process read it, and restores it.
    async fn edited(&mut self, step: &Step<R>, edit: Edit) {
        let Some(before) = self.store.now().content else { return };
        let mut content = before.clone();
        match edit {
            Edit::Newer => content.version += 1,
            Edit::Nonsense => content.data = serde_json::json!("no record"),
            Edit::Foreign => content.provisioner = "another".to_owned(),
            Edit::Unknown => content.data["weather"] = serde_json::json!({ "sunny": true }),
        }
        self.store.replace(Some(content));
        self.replace();
        if edit == Edit::Unknown {
            return;
        }
        let entries = self.trail.present().len();
        let Looked::Answered(result) = self.look(step, &step.call.clone()).await else { return };
        let since = self.trail.present().split_off(entries);
        match result {
            Err(failure) if failure.cause == Cause::RecordUnreadable => {}
            other => self.violates(step, [(Law::Record, format!("a record with {edit:?} is answered with {other:?}"))]),
        }
        let done = laws::nothing(&since, Law::Waits, "though the record cannot be read");
        self.violates(step, done);
        self.store.replace(Some(before));
        self.process.record.read_again();
    }

    /// What an answer means for the next look.
    async fn heed(
        &mut self,
        step: &Step<R>,
        at: At,
        seen: &mut Seen,
        result: Outcome<R::Answer>,
        entries: usize,
        call: &mut R::Call,
    ) -> Next<R::Answer> {
        let since = self.trail.present().split_off(entries.min(self.trail.present().len()));
        let leads = self.process.leads.load(Ordering::SeqCst);
        if !leads {
            let done = laws::nothing(&since, Law::Leads, "by a process that does not lead");
            self.violates(step, done);
        }
        match result {
            Ok(Verdict::Done(answer)) => Next::Done(Box::new(answer)),
            Ok(Verdict::Working(working)) => {
                seen.working = true;
                seen.accepted |= working.accepted;
                if working.accepted && step.interruption == Interruption::Forced {
                    seen.forced += 1;
                    R::force(call, false);
                }
                Next::Again(working.look_again)
            }
            Ok(Verdict::Waiting(Waiting::Busy { look_again, .. })) => {
                seen.busy += 1;
                let done = laws::no_effect(&since, Law::Waits, "though there is no room");
                self.violates(step, done);
                if step.expected == Expected::Busy && seen.busy == DISTURBED {
                    self.subject.set(Condition::Busy, false);
                }
                Next::Again(look_again)
            }
            Ok(Verdict::Waiting(Waiting::Registration { .. })) => {
                seen.registration = true;
                let done = laws::no_effect(&since, Law::Waits, "though the machine is to be registered");
                self.violates(step, done);
                self.register(step).await;
                Next::Again(Duration::from_secs(1))
            }
            Ok(Verdict::Waiting(other)) => {
                self.violates(step, [(Law::Answer, format!("the kit cannot give {other:?}"))]);
                Next::Over
            }
            Err(failure) => {
                let next = self.failed(step, at, seen, failure, leads, call);
                if let (Next::Again(_), Some(before)) = (&next, R::before_retry(call)) {
                    self.comes_first(step, &before).await;
                }
                next
            }
        }
    }

    fn failed(
        &mut self,
        step: &Step<R>,
        at: At,
        seen: &mut Seen,
        failure: Failure,
        leads: bool,
        call: &mut R::Call,
    ) -> Next<R::Answer> {
        if failure.cause == Cause::RecordUnavailable || failure.cause == Cause::NotLeading && !leads {
            return Next::Again(Duration::from_secs(1));
        }
        if let Expected::Refused(cause) = step.expected {
            let found = laws::refused(&self.trail.present(), &failure, cause, &step.machine);
            self.violates(step, found);
            return Next::Over;
        }
        self.violates(step, laws::typed(&failure));
        let disturbed = matches!(step.interruption, Interruption::Machine(_)) && at != At::Nowhere;
        let may_fail = matches!(step.expected, Expected::Arrives | Expected::FailsFirst) || disturbed;
        if !may_fail || seen.failures.len() >= MOST_FAILURES {
            self.violates(step, [(Law::Answer, format!("failed {} times: {failure}", seen.failures.len() + 1))]);
        }
        if failure.retry != Retry::Waiting {
            R::restart(call);
        }
        seen.failures.push(failure);
        Next::Again(Duration::from_secs(10))
    }

    /// The machine is registered again.
    async fn register(&mut self, step: &Step<R>) {
        let Some(call) = R::registers() else {
            return self.violates(step, [(Law::Answer, "it is nothing that is registered".to_owned())]);
        };
        for _ in 0..10 {
            match self.look(step, &call).await {
                Looked::Answered(Ok(Verdict::Done(_))) => return,
                _ => sleep(Duration::from_secs(5)).await,
            }
        }
        self.violates(step, [(Law::Arrives, "the machine cannot be registered again".to_owned())]);
    }

    /// What has to be done before a call is tried again.
    async fn comes_first(&mut self, step: &Step<R>, call: &R::Call) {
        for _ in 0..60 {
            match self.look(step, call).await {
                Looked::Answered(Ok(Verdict::Done(_))) => return,
                _ => sleep(Duration::from_secs(5)).await,
            }
        }
    }

    /// Checks a finished step: what it did, what it left, and what repeating the call does.
    async fn ended(&mut self, step: &Step<R>, at: At, seen: &Seen, answer: &R::Answer, is_last: bool) {
        if let Interruption::Machine(condition) = step.interruption {
            self.subject.set(condition, false);
        }
        self.process.leads.store(true, Ordering::SeqCst);
        let mut found = laws::end(&self.trail.present(), step, seen, answer);
        let undisturbed = at == At::Nowhere && step.expected == Expected::Done;
        found.extend(R::judged(step, answer, &self.trail.present(), undisturbed));
        self.violates(step, found);
        R::learn(&mut self.facts, answer);
        let found = R::shown(&self.world, &step.call);
        self.violates(step, found);
        let kept = self.store.now().content.is_some_and(|content| content.data.get("weather").is_some());
        // The record is edited before the second look; some work needs none.
        let is_edited = step.interruption == Interruption::Record(Edit::Unknown) && at != At::Nowhere && seen.looks > 1;
        if is_edited && !kept {
            self.violates(step, [(Law::Record, "what a later version had added is lost".to_owned())]);
        }
        if let Some((asking, process)) = self.frozen.take() {
            self.awakes(step, asking, process).await;
        }
        if is_last && at == At::Nowhere && step.interruption != Interruption::Nothing {
            // The caller still needs this part's points.
            return;
        }
        if is_last || R::lets_go(&step.call) {
            self.again(step).await;
        }
        if R::lets_go(&step.call) {
            self.let_go(step).await;
        }
    }

    /// Resumes a frozen process after another has done the work.
    async fn awakes(&mut self, step: &Step<R>, asking: Asking<R>, process: Process<R>) {
        self.trail.begin_part(None);
        self.trail.thaw();
        if timeout(Duration::from_secs(3600), asking).await.is_err() {
            self.violates(step, [(Law::AtOnce, "a call that stood still does not come back".to_owned())]);
        }
        let done =
            laws::nothing(&self.trail.present(), Law::Leads, "by a process that awoke when another had its place");
        self.violates(step, done);
        drop(process);
    }

    /// The answer was lost: the repeated call gets the same answer, and nothing is done.
    async fn again(&mut self, step: &Step<R>) {
        if !R::is_made_anew(&step.call) {
            self.replace();
        }
        self.trail.begin_part(None);
        for _ in 0..DISTURBED {
            match self.look(step, &step.call).await {
                Looked::Answered(Ok(Verdict::Done(_))) => {}
                // To look once more does no harm.
                Looked::Answered(Ok(Verdict::Working(_))) if R::may_do_again(&step.call) => {}
                Looked::Answered(other) => {
                    self.violates(
                        step,
                        [(Law::Idempotent, format!("asked again, {} is answered {other:?}", step.call.name()))],
                    );
                    return;
                }
                Looked::Stopped(_) => return,
            }
            sleep(Duration::from_secs(2)).await;
        }
        let done = laws::no_effect(&self.trail.present(), Law::Idempotent, "though all was done");
        self.violates(step, done);
    }

    async fn let_go(&mut self, step: &Step<R>) {
        self.trail.begin_part(None);
        sleep(Duration::from_secs(1800)).await;
        let done = laws::no_effect(&self.trail.present(), Law::LetsGo, "though the machine was let go");
        self.violates(step, done);
    }
}

fn started<R: Tested>(subject: &mut dyn Subject<R>, store: &Arc<Store>, trail: &Trail, id: u64) -> Process<R> {
    let leads = Arc::new(AtomicBool::new(true));
    let record = Arc::new(ProcessRecord::new(Arc::clone(store), trail.clone(), Arc::clone(&leads)));
    Process { id, provisioner: subject.start(id, may_act(&leads)), leads, record }
}
