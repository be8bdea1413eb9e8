//! Requests: what is refused, what is asked of the host and once only, and how each ends.

use std::time::Duration;

use api::metal3::{InspectionMode, ProvisioningState as State, annotation};
use api::metamorph::{
    AgentStep, CollectedLog, EraseOptions, HostOperation, HostOperationSpec, HostOperationStatus, HostReference,
    LocateOptions, OperationPhase as Phase, OperationType, RebootMode, RebootOptions, StepPhase,
};
use host_lifecycle::{
    Action, Collected, Outcome, PowerWish, RequestStep, RequestView, Retry, conclude_collection, decide_request,
    erase_of, is_live, is_rebuild_of, is_request, mark, named, steps_of,
};
use inventory::EraseMethod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use proptest::prelude::*;

use crate::kit::{World, failed};

/// An order that is under way.
pub fn working() -> Outcome {
    Outcome::Working { look_again: Duration::from_secs(10) }
}

/// The host goes on until it is at rest; its calls to erase, or to run steps, are answered so.
pub fn answered(site: &mut Site, outcome: Outcome) {
    for _ in 0..40 {
        (site.world.erase, site.world.steps) = (site.erase(), site.steps());
        let marked = |key: &str| site.world.host.annotation(key).map(ToOwned::to_owned);
        let (erase, steps) = (marked(annotation::ERASE), marked(annotation::STEPS));
        let outcome = outcome.clone();
        site.world.step_with(move |world, action| match action {
            Action::Erase { .. } | Action::RunSteps { .. } => outcome,
            _ => world.sound(action),
        });
        site.hear(erase.as_deref());
        site.hear_of_steps(steps.as_deref());
        if site.world.next != host_lifecycle::Next::Now {
            return;
        }
    }
    panic!("the host does not come to rest");
}

/// A host, and requests for it.
pub struct Site {
    pub world: World,
    pub requests: Vec<HostOperation>,
    lacking: Option<&'static str>,
    pub unserved: Option<&'static str>,
}

impl Site {
    pub fn at_rest(url: Option<&str>) -> Self {
        let mut world = World::at_rest(url);
        world.settings.served.erase = true;
        world.settings.served.steps = true;
        Self { world, requests: Vec::new(), lacking: None, unserved: None }
    }

    /// Somebody creates a request now.
    pub fn ask(&mut self, operation: OperationType) -> usize {
        let host = HostReference { name: "worker-0".into(), uid: None };
        let name = format!("r{}", self.requests.len());
        let erase =
            (operation == OperationType::Erase).then_some(EraseOptions { method: EraseMethod::Purge, disks: None });
        let step = || AgentStep { step: "flash".into(), interface: "deploy".into(), args: None };
        let steps = if operation == OperationType::Steps { vec![step()] } else { vec![] };
        let locate = (operation == OperationType::Locate).then_some(LocateOptions { lit: true });
        let spec =
            HostOperationSpec { operation, host, wish: None, reboot: None, erase, steps, locate, diagnose: None };
        let mut request = HostOperation::new(&name, spec);
        request.metadata.uid = Some(format!("uid-{name}"));
        request.metadata.creation_timestamp = Some(api::Time(self.world.now));
        self.requests.push(request);
        self.requests.len() - 1
    }

    fn rebuild(&self) -> bool {
        let Some(value) = self.world.host.annotation(annotation::REBUILD) else { return false };
        let named = self.requests.iter().find(|request| value == mark(request));
        is_rebuild_of(value, named, &self.world.host, self.world.now)
    }

    pub fn erase(&self) -> Option<EraseOptions> {
        let value = self.world.host.annotation(annotation::ERASE)?;
        let named = self.requests.iter().find(|request| value == mark(request));
        erase_of(value, named, &self.world.host, self.world.now).cloned()
    }

    pub fn steps(&self) -> Option<Vec<AgentStep>> {
        let value = self.world.host.annotation(annotation::STEPS)?;
        let named = self.requests.iter().find(|request| value == mark(request));
        steps_of(value, named, &self.world.host, self.world.now).map(<[_]>::to_vec)
    }

    /// One write for a request; false if there is none to be made.
    pub fn look(&mut self, index: usize) -> bool {
        let named = self.world.host.annotation(annotation::REQUEST).unwrap_or_default().to_owned();
        let request = &self.requests[index];
        let mut others = self.requests.iter().filter(|other| named.starts_with(&mark(other)));
        let other = others.find(|other| is_live(other) && mark(other) != mark(request));
        let reads = |other: &&HostOperation| {
            other.spec.operation == OperationType::CollectLogs
                && mark(other) != mark(request)
                && other.status.as_ref().is_some_and(|status| status.phase == Phase::Running)
        };
        let other = match request.spec.operation {
            OperationType::CollectLogs => self.requests.iter().find(reads),
            _ => other,
        };
        let other = other.and_then(|other| other.metadata.name.as_deref());
        let (lacking, unserved) = (self.lacking, self.unserved);
        let host = Some(&self.world.host);
        let view = RequestView { request, host, other, lacking, unserved, now: self.world.now };
        match decide_request(&view) {
            RequestStep::Nothing => return false,
            RequestStep::Take => {
                let annotations = self.requests[index].metadata.annotations.get_or_insert_default();
                assert!(annotations.insert(annotation::TAKEN.to_owned(), String::new()).is_none());
            }
            RequestStep::Status(status) => self.requests[index].status = Some(*status),
            RequestStep::Collect => return false,
            RequestStep::Annotate(annotations) => {
                for (key, value) in annotations {
                    match value {
                        Some(value) => self.world.annotate(key, &value),
                        None => self.world.unannotate(key),
                    }
                }
            }
        }
        true
    }

    /// All there is to write for it now.
    pub fn settle(&mut self, index: usize) -> HostOperationStatus {
        for _ in 0..8 {
            if !self.look(index) {
                return self.status(index);
            }
        }
        panic!("goes round in circles: {:?}", self.status(index));
    }

    pub fn status(&self, index: usize) -> HostOperationStatus {
        self.requests[index].status.clone().unwrap_or_default()
    }

    pub fn step_host(&mut self) {
        self.world.rebuild = self.rebuild();
        self.world.erase = self.erase();
        self.world.steps = self.steps();
        let marked = self.world.host.annotation(annotation::ERASE).map(ToOwned::to_owned);
        let stepped = self.world.host.annotation(annotation::STEPS).map(ToOwned::to_owned);
        self.world.step();
        self.hear(marked.as_deref());
        self.hear_of_steps(stepped.as_deref());
    }

    /// The same of steps of hardware managers.
    pub fn hear_of_steps(&mut self, marked: Option<&str>) {
        let Some(report) = self.world.stepped.take() else { return };
        let named = self.requests.iter_mut().find(|request| marked == Some(mark(request).as_str()) && is_live(request));
        if let Some(request) = named {
            request.status.get_or_insert_default().steps_report = Some(report);
        }
    }

    /// The host's controller tells the request that the annotation named.
    pub fn hear(&mut self, marked: Option<&str>) {
        let Some(erasure) = self.world.erasure.take() else { return };
        let named = self.requests.iter_mut().find(|request| marked == Some(mark(request).as_str()) && is_live(request));
        if let Some(request) = named {
            request.status.get_or_insert_default().erasure = Some(erasure);
        }
    }

    /// The host goes on until it is at rest.
    pub fn host_rests(&mut self) {
        for _ in 0..80 {
            self.step_host();
            if self.world.next != host_lifecycle::Next::Now {
                return;
            }
        }
        panic!("the host does not come to rest");
    }

    pub fn cause(&self, index: usize) -> String {
        self.status(index).error.map(|error| error.cause).unwrap_or_default()
    }

    fn offs(&self) -> usize {
        let is_off = |action: &&Action| matches!(action, Action::SetPower(PowerWish::SoftOff | PowerWish::HardOff));
        self.world.calls.iter().filter(is_off).count()
    }
}

#[test]
fn a_request_is_done_once_and_says_how_it_ended() {
    use OperationType::{Erase, Inspect, Reboot, Rebuild};
    for (url, operation) in
        [(None, Inspect), (None, Erase), (Some("http://i/1"), Reboot), (Some("http://i/1"), Rebuild)]
    {
        let mut site = Site::at_rest(url);
        let request = site.ask(operation);
        let status = site.settle(request);
        assert_eq!((status.phase, status.progress.as_deref()), (Phase::Running, Some("1/2")), "{operation:?}");
        site.world.pass(Duration::from_secs(5));
        site.host_rests();
        let status = site.settle(request);
        assert_eq!(status.phase, Phase::Succeeded, "{operation:?}: {status:?}");
        assert!(status.steps.iter().all(|step| step.phase == StepPhase::Done), "{status:?}");
        assert!(status.end_time.is_some() && status.error.is_none());
        let states = match operation {
            Inspect => vec![State::Inspecting, State::Preparing, State::Available],
            Rebuild => vec![State::Deprovisioning, State::Available, State::Provisioning, State::Provisioned],
            Erase => vec![State::Deprovisioning, State::Available],
            _ => Vec::new(),
        };
        assert_eq!(site.world.states, states, "{operation:?}");
        assert_eq!(site.offs(), usize::from(operation == Reboot), "{operation:?}: {:?}", site.world.calls);
        for key in [
            annotation::REQUEST,
            annotation::REBOOT,
            annotation::INSPECT,
            annotation::REBUILD,
            annotation::ERASE,
            annotation::STEPS,
        ] {
            assert!(!site.world.annotated(key), "{operation:?} leaves {key}");
        }
        // Whoever looks again does nothing.
        site.host_rests();
        assert!(!site.look(request));
        assert_eq!(site.world.states, states, "{operation:?}");
    }
}

#[test]
fn a_hard_reboot_is_one() {
    let mut site = Site::at_rest(Some("http://i/1"));
    let request = site.ask(OperationType::Reboot);
    site.requests[request].spec.reboot = Some(RebootOptions { mode: RebootMode::Hard });
    site.settle(request);
    site.host_rests();
    assert!(site.world.calls.contains(&Action::SetPower(PowerWish::HardOff)), "{:?}", site.world.calls);
    assert_eq!(site.settle(request).phase, Phase::Succeeded);
}

#[test]
fn what_cannot_be_done_now_is_refused_and_nothing_is_left_for_later() {
    use OperationType::{Deprovision, Erase, Inspect, Prepare, Provision, Reboot, Rebuild, Service, Steps};
    type Edit = fn(&mut Site, usize);
    let nothing: Edit = |_, _| ();
    let rows: [(Option<&str>, OperationType, Edit, &str, &str); 41] = [
        (None, Provision, nothing, "NotOnRequest", "spec.image"),
        (Some("http://i/1"), Deprovision, nothing, "NotOnRequest", "spec.image"),
        (None, Prepare, nothing, "NotOnRequest", "spec.raid"),
        (None, Service, nothing, "NotOnRequest", "HostFirmwareSettings"),
        (None, Inspect, |s, r| s.requests[r].spec.wish = Some("w".into()), "NotOnRequest", "spec.wish"),
        (None, Inspect, |s, r| s.requests[r].spec.host.uid = Some("x".into()), "HostNotFound", "another uid"),
        (None, Inspect, |s, _| s.world.pass(Duration::from_secs(3601)), "Expired", "an hour"),
        (None, Inspect, |s, r| s.requests[r].metadata.creation_timestamp = None, "Expired", "an hour"),
        (None, Inspect, |s, _| s.world.delete(), "NotNow", "deleted"),
        (None, Inspect, |s, _| s.world.annotate(annotation::PAUSED, ""), "NotNow", "paused"),
        (None, Inspect, |s, _| s.world.annotate(annotation::DETACHED, ""), "NotNow", "detached"),
        (None, Inspect, |s, _| s.world.annotate(annotation::INSPECT, ""), "NotNow", "already"),
        (None, Inspect, |s, _| s.world.annotate(annotation::INSPECT, "disabled"), "NotNow", "disabled"),
        (
            None,
            Inspect,
            |s, _| s.world.edit(|e| e.inspection_mode = Some(InspectionMode::Disabled)),
            "NotNow",
            "disabled",
        ),
        (Some("http://i/1"), Inspect, nothing, "NotNow", "only one that is available"),
        (None, Reboot, nothing, "NotNow", "system of its own"),
        (Some("http://i/1"), Reboot, |s, _| s.world.edit(|e| e.online = false), "NotNow", "spec.online"),
        (Some("http://i/1"), Reboot, |s, _| s.world.annotate(annotation::REBOOT, ""), "NotNow", "already"),
        (None, Rebuild, nothing, "NotNow", "only one that is provisioned"),
        (Some("http://i/1"), Rebuild, |s, _| s.world.edit(|e| e.online = false), "NotNow", "wiped"),
        (Some("http://i/1"), Rebuild, |s, _| s.world.annotate(annotation::REBUILD, "x/y"), "NotNow", "already"),
        (Some("http://i/1"), Erase, nothing, "NotNow", "only one that is available is erased"),
        (None, Erase, |s, r| s.requests[r].spec.erase = None, "InvalidRequest", "how thoroughly"),
        (
            None,
            Erase,
            |s, r| s.requests[r].spec.erase.as_mut().unwrap().disks = Some(vec![]),
            "InvalidRequest",
            "names no disk",
        ),
        (None, Erase, |s, _| s.unserved = Some("the provisioner does not"), "NotServed", "other means"),
        (None, Erase, |s, _| s.world.edit(|e| e.consumer_ref = Some(Default::default())), "NotNow", "consumerRef"),
        (None, Erase, |s, _| s.world.edit(|e| e.image = Some(Default::default())), "NotNow", "to be provisioned"),
        (None, Erase, |s, _| s.world.annotate(annotation::INSPECT, ""), "NotNow", "inspected again"),
        (None, Erase, |s, _| s.world.annotate(annotation::ERASE, "x/y"), "NotNow", "already"),
        (None, Erase, |s, _| s.world.annotate(annotation::STEPS, "x/y"), "NotNow", "something else"),
        (Some("http://i/1"), Steps, nothing, "NotNow", "steps are run on one that is available"),
        (None, Steps, |s, _| s.unserved = Some("the provisioner has none"), "NotServed", "docs/agent-ipa.md"),
        (None, Steps, |s, _| s.world.edit(|e| e.consumer_ref = Some(Default::default())), "NotNow", "consumerRef"),
        (None, Steps, |s, _| s.world.edit(|e| e.image = Some(Default::default())), "NotNow", "to be provisioned"),
        (None, Steps, |s, _| s.world.edit(|e| e.externally_provisioned = Some(true)), "NotNow", "somebody else"),
        (None, Steps, |s, _| s.world.annotate(annotation::INSPECT, ""), "NotNow", "inspected again"),
        (None, Steps, |s, _| s.world.annotate(annotation::STEPS, "x/y"), "NotNow", "already"),
        (None, Steps, |s, _| s.world.annotate(annotation::ERASE, "x/y"), "NotNow", "something else"),
        (None, Steps, |s, r| s.requests[r].spec.steps[0].args = Some("[]".into()), "InvalidRequest", "no JSON object"),
        (None, Steps, |s, r| s.requests[r].spec.steps[0].step.clear(), "InvalidRequest", "a name"),
        (None, Steps, |s, r| s.requests[r].spec.steps = vec![Default::default(); 17], "InvalidRequest", "17 steps"),
    ];
    for (number, (url, operation, edit, cause, word)) in rows.into_iter().enumerate() {
        let mut site = Site::at_rest(url);
        let request = site.ask(operation);
        edit(&mut site, request);
        let before = site.world.host.clone();
        let status = site.settle(request);
        let error = status.error.clone().unwrap_or_default();
        assert_eq!((status.phase, error.cause.as_str()), (Phase::Failed, cause), "row {number}: {status:?}");
        let said = format!("{} {}", error.message, error.advice.as_deref().unwrap_or_default());
        assert!(said.contains(word), "row {number}: {said}");
        assert_eq!(site.world.host, before, "row {number}");
    }
    let gone = World::at_rest(None);
    let mut site = Site::at_rest(None);
    let request = site.ask(OperationType::Inspect);
    let request = &site.requests[request];
    let view = RequestView { request, host: None, other: None, lacking: None, unserved: None, now: gone.now };
    let RequestStep::Status(status) = decide_request(&view) else { panic!("no status") };
    assert_eq!(status.error.unwrap().cause, "HostNotFound");
}

#[test]
fn a_request_whose_host_was_replaced_touches_no_other() {
    let mut site = Site::at_rest(Some("http://i/1"));
    let request = site.ask(OperationType::Rebuild);
    // The intent is recorded; the host is deleted and declared again before it is asked.
    assert!(site.look(request));
    site.world.host.metadata.uid = Some("another".into());
    let before = site.world.host.clone();
    site.settle(request);
    assert_eq!(site.cause(request), "HostGone");
    assert_eq!(site.world.host, before);
    // Annotations that came with the object are of the earlier host's request.
    site.world.annotate(annotation::REBUILD, &mark(&site.requests[request]));
    assert!(!site.rebuild());
}

#[test]
fn of_two_requests_at_once_one_is_refused() {
    let mut site = Site::at_rest(Some("http://i/1"));
    let (first, second) = (site.ask(OperationType::Reboot), site.ask(OperationType::Rebuild));
    // Both are taken before either has asked the host.
    assert!(site.look(first) && site.look(second));
    assert_eq!((site.status(first).phase, site.status(second).phase), (Phase::Running, Phase::Running));
    assert!(site.look(second) && site.look(second));
    site.settle(first);
    assert_eq!(site.cause(first), "NotNow");
    let third = site.ask(OperationType::Reboot);
    site.settle(third);
    assert_eq!(site.cause(third), "NotNow");
    site.settle(second);
    site.world.pass(Duration::from_secs(5));
    site.host_rests();
    assert_eq!(site.settle(second).phase, Phase::Succeeded);
    assert_eq!((site.offs(), site.world.state()), (0, State::Provisioned));
}

#[test]
fn the_hosts_error_is_shown_while_it_is_waited_out() {
    let mut site = Site::at_rest(Some("http://i/1"));
    let request = site.ask(OperationType::Rebuild);
    site.settle(request);
    site.step_host();
    site.world.rebuild = site.rebuild();
    assert_eq!(site.world.state(), State::Deprovisioning);
    site.world.step_with(|_, _| failed("the disk sda cannot be wiped"));
    let status = site.settle(request);
    assert_eq!(status.phase, Phase::Running);
    assert!(status.message.unwrap().contains("sda cannot be wiped"));
    // The wish is withdrawn meanwhile.
    site.world.edit(|spec| spec.image = None);
    site.world.pass(Duration::from_secs(4000));
    site.host_rests();
    site.settle(request);
    assert_eq!((site.cause(request).as_str(), site.world.state()), ("Withdrawn", State::Available));
}

#[test]
fn a_rebuild_that_nobody_asks_for_any_more_is_dropped_with_a_word() {
    // By hand, for a request that has ended, and on a host that has nothing on it.
    let mut site = Site::at_rest(Some("http://i/1"));
    let request = site.ask(OperationType::Rebuild);
    site.settle(request);
    site.world.pass(Duration::from_secs(5));
    site.host_rests();
    site.settle(request);
    site.world.states.clear();
    for value in ["", "x", "x/y", mark(&site.requests[request]).as_str()] {
        site.world.annotate(annotation::REBUILD, value);
        site.host_rests();
        assert!(!site.world.annotated(annotation::REBUILD), "{value}");
        assert!(site.world.events.contains(&"RebuildDropped"), "{value}");
        assert!(site.world.states.is_empty(), "{value}: {:?}", site.world.states);
        site.world.events.clear();
    }
    let mut site = Site::at_rest(None);
    site.world.annotate(annotation::REBUILD, "x/y");
    site.host_rests();
    assert!(!site.world.annotated(annotation::REBUILD) && site.world.events.contains(&"RebuildDropped"));
}

#[test]
fn a_time_ahead_of_the_servers_clock_is_told_as_such_and_not_as_age() {
    for (minutes, cause) in [(4, None), (7, Some("ClocksDiffer"))] {
        let mut site = Site::at_rest(None);
        let request = site.ask(OperationType::Inspect);
        let ahead = site.world.now + jiff::SignedDuration::from_mins(minutes);
        site.requests[request].metadata.creation_timestamp = Some(api::Time(ahead));
        let error = site.settle(request).error;
        assert_eq!(error.as_ref().map(|error| error.cause.as_str()), cause, "{error:?}");
        if let Some(error) = error {
            assert!(error.message.contains("7 minutes ahead of this server's clock"), "{error:?}");
            assert!(error.message.contains("set the clocks") && !error.message.contains("an hour"), "{error:?}");
        }
    }
}

#[test]
fn a_word_that_has_become_old_on_the_way_is_not_kept() {
    // Taken, and not asked of the host; and asked of it while it was paused.
    for asked in [false, true] {
        let mut site = Site::at_rest(Some("http://i/1"));
        let request = site.ask(OperationType::Rebuild);
        assert!(site.look(request));
        if asked {
            site.settle(request);
            site.world.annotate(annotation::PAUSED, "");
            site.host_rests();
            assert!(site.settle(request).message.unwrap().contains("paused"));
        }
        site.world.pass(Duration::from_secs(3601));
        site.world.unannotate(annotation::PAUSED);
        site.host_rests();
        let status = site.settle(request);
        site.host_rests();
        assert_eq!((status.phase, site.world.states.len()), (Phase::Failed, 0), "{status:?}");
        assert_eq!(site.cause(request), "Expired");
        assert_eq!(site.world.events.contains(&"RebuildDropped"), asked);
    }
}

#[test]
fn what_a_rebuild_would_lack_keeps_the_disks_as_they_are() {
    let edits: [fn(&mut Site); 4] = [
        |site| site.lacking = Some("the Secret that spec.userData names is missing"),
        |site| site.world.edit(|spec| spec.externally_provisioned = Some(true)),
        |site| site.world.edit(|spec| spec.image.as_mut().unwrap().checksum = None),
        |site| site.world.edit(|spec| spec.image = None),
    ];
    for (number, edit) in edits.into_iter().enumerate() {
        let mut site = Site::at_rest(Some("http://i/1"));
        edit(&mut site);
        let request = site.ask(OperationType::Rebuild);
        site.settle(request);
        assert_eq!(site.cause(request), "NotNow", "edit {number}");
        // An edit that comes in between.
        let mut site = Site::at_rest(Some("http://i/1"));
        let request = site.ask(OperationType::Rebuild);
        site.settle(request);
        edit(&mut site);
        let calls = site.world.calls.len();
        site.world.rebuild = site.rebuild();
        site.world.step();
        let wiped = site.world.states.contains(&State::Deprovisioning);
        // That the image is gone is another wish, and Secrets are looked for when it is taken.
        assert_eq!(wiped, matches!(number, 0 | 3), "edit {number}: {:?}", &site.world.calls[calls..]);
    }
}

#[test]
fn a_reboot_is_done_when_the_host_says_so() {
    // The annotation is removed, made unreadable, replaced; and the BMC's answer is lost.
    type Edit = fn(&mut Site);
    let edits: [(Edit, &str); 3] = [
        (|site| site.world.unannotate(annotation::REBOOT), "Withdrawn"),
        (|site| site.world.annotate(annotation::REBOOT, "{"), "Withdrawn"),
        (|site| site.world.unannotate(annotation::REQUEST), "Withdrawn"),
    ];
    for (number, (edit, cause)) in edits.into_iter().enumerate() {
        let mut site = Site::at_rest(Some("http://i/1"));
        let request = site.ask(OperationType::Reboot);
        site.settle(request);
        edit(&mut site);
        site.host_rests();
        let status = site.settle(request);
        assert_eq!((status.phase, site.cause(request).as_str()), (Phase::Failed, cause), "edit {number}: {status:?}");
    }
    let mut site = Site::at_rest(Some("http://i/1"));
    site.world.edit(|spec| spec.disable_power_off = Some(true));
    let request = site.ask(OperationType::Reboot);
    site.settle(request);
    site.world.step_with(|_, _| Outcome::Failed { message: "the answer was lost".into(), retry: Retry::Unknown });
    site.host_rests();
    assert!(site.settle(request).message.unwrap().contains("may have been restarted"));
    assert_eq!(site.cause(request), "Withdrawn");
}

#[test]
fn a_wish_that_the_host_does_not_come_to_is_taken_back_after_an_hour() {
    use OperationType::{Erase, Inspect, Reboot, Rebuild, Steps};
    for (url, operation, key) in [
        (None, Inspect, annotation::INSPECT),
        (None, Erase, annotation::ERASE),
        (None, Steps, annotation::STEPS),
        (Some("http://i/1"), Reboot, annotation::REBOOT),
        (Some("http://i/1"), Rebuild, annotation::REBUILD),
    ] {
        let mut site = Site::at_rest(url);
        let request = site.ask(operation);
        site.settle(request);
        assert!(site.world.annotated(key));
        site.world.annotate(annotation::PAUSED, "");
        site.world.pass(Duration::from_secs(3601));
        let status = site.settle(request);
        assert_eq!((site.cause(request).as_str(), site.world.annotated(key)), ("Expired", false), "{status:?}");
        assert!(!site.world.annotated(annotation::REQUEST));
        site.world.unannotate(annotation::PAUSED);
        site.host_rests();
        assert!(site.world.states.is_empty() && site.offs() == 0, "{operation:?}");
    }
    // So is one that can be served no more.
    let mut site = Site::at_rest(None);
    let request = site.ask(Inspect);
    site.settle(request);
    site.world.edit(|spec| spec.inspection_mode = Some(InspectionMode::Disabled));
    let status = site.settle(request);
    assert_eq!((site.cause(request).as_str(), site.world.annotated(annotation::INSPECT)), ("Withdrawn", false));
    assert!(status.message.unwrap().contains("disabled"));
}

#[test]
fn an_inspection_that_is_given_up_has_not_been_made() {
    let mut site = Site::at_rest(None);
    let request = site.ask(OperationType::Inspect);
    site.settle(request);
    site.world.pass(Duration::from_secs(5));
    site.step_host();
    assert_eq!(site.world.state(), State::Inspecting);
    site.world.edit(|spec| spec.inspection_mode = Some(InspectionMode::Disabled));
    site.host_rests();
    site.settle(request);
    assert_eq!((site.cause(request).as_str(), site.world.state()), ("Withdrawn", State::Available));
}

#[test]
fn a_request_that_does_not_say_what_was_before_is_not_called_done() {
    let mut site = Site::at_rest(Some("http://i/1"));
    let first = site.ask(OperationType::Rebuild);
    site.settle(first);
    site.world.pass(Duration::from_secs(5));
    site.host_rests();
    site.settle(first);
    // Of an earlier version, for a host that has been rebuilt before.
    let second = site.ask(OperationType::Rebuild);
    site.settle(second);
    site.requests[second].status.as_mut().unwrap().before = None;
    site.world.unannotate(annotation::REBUILD);
    let status = site.settle(second);
    assert_eq!((status.phase, site.cause(second).as_str()), (Phase::Failed, "Withdrawn"), "{status:?}");
}

#[test]
fn a_copy_of_a_request_that_was_taken_is_not_taken() {
    let mut site = Site::at_rest(Some("http://i/1"));
    let request = site.ask(OperationType::Rebuild);
    site.settle(request);
    site.world.pass(Duration::from_secs(5));
    site.host_rests();
    assert_eq!(site.settle(request).phase, Phase::Succeeded);
    // As a tool leaves it that copies objects without their status.
    let copy = site.ask(OperationType::Rebuild);
    site.requests[copy].metadata.annotations = site.requests[request].metadata.annotations.clone();
    site.settle(copy);
    assert_eq!(site.cause(copy), "Expired");
}

#[test]
fn a_request_that_is_being_deleted_or_hidden_holds_nothing_up_and_rebuilds_nothing() {
    for edit in [
        |request: &mut HostOperation| {
            request.metadata.deletion_timestamp = Some(api::Time(jiff::Timestamp::UNIX_EPOCH))
        },
        |request: &mut HostOperation| {
            request.metadata.labels = Some([("metamorph.metal3.io/host".to_owned(), "x".to_owned())].into());
        },
    ] {
        let mut site = Site::at_rest(Some("http://i/1"));
        let request = site.ask(OperationType::Rebuild);
        site.settle(request);
        edit(&mut site.requests[request]);
        assert!(!site.rebuild());
        site.host_rests();
        assert!(site.world.states.is_empty() && !site.world.annotated(annotation::REBUILD));
        let next = site.ask(OperationType::Reboot);
        assert_eq!(site.settle(next).phase, Phase::Running);
    }
}

#[test]
fn only_what_can_be_a_name_is_asked_for() {
    assert_eq!(named("a.b-1/u/done"), Some(("a.b-1", "a.b-1/u".to_owned())));
    let long = format!("{}/u", "a".repeat(254));
    for value in ["", "a", "a/", "/u", "yes please/u", "../x/u", "A/u", "-a/u", "a-/u", "a..b/u", "a?limit=1/u", &long]
    {
        assert_eq!(named(value), None, "{value}");
    }
    for name in ["", "node 0", "worker-0/status", "<worker-0>"] {
        let mut site = Site::at_rest(None);
        let request = site.ask(OperationType::Inspect);
        site.requests[request].spec.host.name = name.to_owned();
        site.settle(request);
        assert_eq!(site.cause(request), "HostNotFound", "{name}");
    }
}

#[test]
fn what_the_controller_writes_as_history_is_no_request() {
    let mut site = Site::at_rest(None);
    let request = site.ask(OperationType::Inspect);
    assert!(is_request(&site.requests[request]));
    let of = |kind: &str, controller| OwnerReference {
        api_version: "metal3.io/v1alpha1".into(),
        kind: kind.into(),
        uid: "u".into(),
        controller,
        ..OwnerReference::default()
    };
    let owner = |controller| of("BareMetalHost", controller);
    site.requests[request].metadata.owner_references = Some(vec![of("Fleet", Some(true))]);
    assert!(is_request(&site.requests[request]), "another controller may ask, too");
    site.requests[request].metadata.owner_references = Some(vec![owner(None), owner(Some(false))]);
    assert!(is_request(&site.requests[request]));
    site.requests[request].metadata.owner_references = Some(vec![owner(None), owner(Some(true))]);
    assert!(!is_request(&site.requests[request]));
}

proptest! {
    /// Whatever comes in whatever order, each request ends, a machine is switched off for each reboot that is taken and for no other reason, and a
    /// host is emptied for each rebuild that is taken, once.
    #[test]
    fn in_any_order_nothing_is_done_twice(
        kinds in prop::collection::vec(0_usize..3, 1..4),
        order in prop::collection::vec(0_usize..6, 0..80),
    ) {
        let mut site = Site::at_rest(Some("http://i/1"));
        let mut kinds = kinds.into_iter();
        for turn in order {
            match turn {
                0 => {
                    if let Some(kind) = kinds.next() {
                        site.ask([OperationType::Inspect, OperationType::Reboot, OperationType::Rebuild][kind]);
                    }
                }
                1 | 2 => site.step_host(),
                3 => site.world.pass(Duration::from_secs(2)),
                looked => {
                    if !site.requests.is_empty() {
                        let index = looked % site.requests.len();
                        site.look(index);
                    }
                }
            }
        }
        for _ in 0..6 {
            site.world.pass(Duration::from_secs(2));
            for index in 0..site.requests.len() {
                site.settle(index);
            }
            site.host_rests();
        }
        let taken = |operation: OperationType| {
            let asked = |r: &&HostOperation| {
                r.spec.operation == operation
                    && r.status.as_ref().is_some_and(|s| s.steps.first().is_some_and(|s| s.phase == StepPhase::Done))
            };
            site.requests.iter().filter(asked).count()
        };
        for request in &site.requests {
            prop_assert!(request.status.as_ref().is_some_and(|s| s.phase.is_final()), "{request:?}");
        }
        prop_assert!(!site.world.annotated(annotation::REQUEST) && !site.world.annotated(annotation::REBUILD));
        prop_assert_eq!(site.offs(), taken(OperationType::Reboot));
        let emptied = site.world.states.iter().filter(|state| **state == State::Deprovisioning).count();
        prop_assert_eq!(emptied, taken(OperationType::Rebuild));
        prop_assert_eq!(site.world.state(), State::Provisioned);
    }
}

/// A request for logs whose host is asked, and what is written of what came of it.
fn after(collected: Collected, minutes: i64) -> RequestStep {
    let mut site = Site::at_rest(None);
    let index = site.ask(OperationType::CollectLogs);
    let status = site.settle(index);
    assert_eq!((status.phase, status.current_step.as_deref()), (Phase::Running, Some("collect-logs")));
    let request = &site.requests[index];
    let now = site.world.now + jiff::SignedDuration::from_mins(minutes);
    let view = RequestView { request, host: Some(&site.world.host), other: None, lacking: None, unserved: None, now };
    assert_eq!(decide_request(&view), RequestStep::Collect);
    conclude_collection(&view, collected)
}

#[test]
fn logs_are_read_whatever_else_is_asked_of_the_host_and_nothing_is_asked_of_it() {
    let mut site = Site::at_rest(Some("http://192.0.2.8/i"));
    let rebuild = site.ask(OperationType::Rebuild);
    site.settle(rebuild);
    let before = site.world.host.clone();
    let logs = site.ask(OperationType::CollectLogs);
    assert_eq!(site.settle(logs).phase, Phase::Running);
    assert_eq!(site.world.host, before);
    // A BMC is read by one at a time.
    let second = site.ask(OperationType::CollectLogs);
    let status = site.settle(second);
    assert!(status.message.as_ref().is_some_and(|message| message.contains("\"r1\"")), "{status:?}");
    assert_eq!(status.error.map(|error| error.cause), Some("NotNow".to_owned()));
    // A deleted host may be what they are wanted for; one that is gone has none.
    site.world.host.metadata.uid = Some("another".into());
    let status = site.settle(logs);
    assert_eq!(status.error.map(|error| error.cause), Some("HostGone".to_owned()));
}

#[test]
fn a_request_for_logs_ends_with_them_or_with_why_there_are_none() {
    let failed = Collected::Failed { cause: "BmcUnreachable".into(), message: "no answer".into(), advice: None };
    let rows = [
        (Collected::NotNow("the host is paused".into()), "NotNow", "the host is paused"),
        (Collected::Unserved("x".into()), "NotServed", "the provisioner of the host, \"x\", reads no logs"),
        (Collected::Gone, "HostGone", "is not there any more"),
        (failed, "BmcUnreachable", "no answer"),
    ];
    for (collected, cause, message) in rows {
        let RequestStep::Status(status) = after(collected, 0) else { panic!("{cause}: no status") };
        let error = status.error.unwrap();
        assert_eq!((status.phase, error.cause.as_str()), (Phase::Failed, cause));
        assert!(error.message.contains(message) && error.advice.is_some(), "{error:?}");
    }
    let busy = || Collected::Busy("busy with another call".into());
    let RequestStep::Status(status) = after(busy(), 59) else { panic!("it does not say what it waits for") };
    assert_eq!((status.phase, status.message.as_deref()), (Phase::Running, Some("busy with another call")));
    let RequestStep::Status(status) = after(busy(), 61) else { panic!("it waits for ever") };
    assert_eq!(status.error.map(|error| error.cause), Some("Expired".to_owned()));
    let log =
        |source: &str, text: &str| CollectedLog { source: source.into(), text: text.into(), ..CollectedLog::default() };
    let logs = vec![log("bmc/sel", "a fan\u{1b} has failed\nand again"), log("agent", ""), log("bmc/iml", "well")];
    let RequestStep::Status(status) = after(Collected::Logs(logs), 0) else { panic!("no status") };
    assert_eq!((status.phase, status.error, status.progress.as_deref()), (Phase::Succeeded, None, Some("1/1")));
    assert_eq!(status.logs[0].text, "a fan? has failed\nand again\n");
    assert_eq!(status.message.as_deref(), Some("2 logs with entries were read; status.logs has them"));
}

#[test]
fn of_a_log_without_room_the_newest_lines_in_a_row_are_kept() {
    let cut = |text: String| {
        let log = CollectedLog { text, ..CollectedLog::default() };
        let RequestStep::Status(status) = after(Collected::Logs(vec![log]), 0) else { panic!("no status") };
        (status.logs[0].text.clone(), status.logs[0].omitted)
    };
    assert_eq!(cut("all of it\n".into()), ("all of it\n".into(), None));
    // A line that is older than one that has no room may be short: what is kept has no gap.
    let long = "x".repeat(200 << 10);
    assert_eq!(cut(format!("old\n{long}\nnew\n")), ("new\n".into(), Some(2)));
    // Lines of one sign take two bytes each.
    let (kept, omitted) = cut("x\n".repeat(100_000));
    assert_eq!((kept.len() + 1) >> 10, 128);
    assert_eq!(omitted.map(|left| left as usize), Some(100_000 - kept.len() / 2));
}

proptest! {
    /// A provisioner may be a program of somebody else.
    #[test]
    fn logs_of_any_size_fit_into_an_object_and_the_newest_lines_are_there(
        sizes in prop::collection::vec((0usize..40, 0usize..9000), 0..24), omitted in prop::option::of(any::<u32>()),
    ) {
        let logs: Vec<CollectedLog> = sizes.iter().map(|(lines, length)| CollectedLog {
            source: "s".repeat(*length),
            text: (0..*lines).map(|line| format!("{line:03}{}\n", "x".repeat(*length))).collect(),
            omitted,
            missing: Some("why ".repeat(*length)),
        }).collect();
        let given = logs.clone();
        let RequestStep::Status(status) = after(Collected::Logs(logs), 0) else { panic!("no status") };
        prop_assert!(serde_json::to_vec(&status).unwrap().len() < 200 << 10);
        for (kept, given) in status.logs.iter().zip(&given) {
            prop_assert!(given.text.ends_with(&kept.text));
            let left = given.text.lines().count() - kept.text.lines().count();
            let more = kept.omitted.unwrap_or_default().saturating_sub(given.omitted.unwrap_or_default());
            prop_assert!(more as usize == left || kept.omitted == Some(u32::MAX));
        }
        if given.iter().map(|log| log.text.len() + 1).sum::<usize>() <= 128 << 10 && given.len() <= 16 {
            prop_assert!(status.logs.iter().zip(&given).all(|(kept, given)| kept.text == given.text));
        }
    }
}
