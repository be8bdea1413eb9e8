//! Requests by themselves: what is made of each state of request and host, without the way to it.

use std::collections::BTreeMap;

use api::metal3::{BareMetalHost, ProvisioningState as State, annotation};
use api::metamorph::{
    EraseOptions, Erasure, HostOperation, HostOperationSpec, HostOperationStatus, HostReference,
    OperationPhase as Phase, OperationStep, OperationType, StepPhase, WorkBefore,
};
use host_lifecycle::{RequestStep, RequestView, decide_request, erase_of, mark};
use inventory::{EraseMethod, EraseResult, ErasedDisk};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kit::new_host;

const LAST_YEAR: &str = "2025-03-01T00:00:00Z";
const EARLY: &str = "2026-01-01T00:00:00Z";
const BEGUN: &str = "2026-01-01T11:58:00Z";
const NOW: &str = "2026-01-01T12:00:00Z";

fn time(text: &str) -> api::Time {
    api::Time(text.parse().unwrap())
}

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

/// A host of this state, with what its status says beside.
fn host(state: State, history: Value) -> BareMetalHost {
    let mut host = new_host();
    let status = json!({"provisioning": {"state": state.as_str(), "ID": "x"}, "operationHistory": history});
    host.status = Some(serde_json::from_value(status).unwrap());
    host
}

fn annotated(mut host: BareMetalHost, annotations: &[(&str, &str)]) -> BareMetalHost {
    let all = annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    host.metadata.annotations.get_or_insert_default().extend(all);
    host
}

/// A request that is new.
fn new(operation: OperationType) -> HostOperation {
    let host = HostReference { name: "worker-0".into(), uid: None };
    let erase = Some(EraseOptions { method: EraseMethod::Purge, disks: None });
    let erase = erase.filter(|_| operation == OperationType::Erase);
    let spec = HostOperationSpec {
        operation,
        host,
        wish: None,
        reboot: None,
        erase,
        steps: vec![],
        locate: None,
        diagnose: None,
    };
    let mut request = HostOperation::new("r", spec);
    request.metadata.uid = Some("uid-r".into());
    request.metadata.creation_timestamp = Some(time(BEGUN));
    request
}

/// A request whose host was asked at this time, when it had last been inspected and deprovisioned a while before.
fn asked(operation: OperationType, at: &str) -> HostOperation {
    let mut request = new(operation);
    let step = |name: &str, phase| OperationStep { name: name.into(), phase, ..OperationStep::default() };
    request.status = Some(HostOperationStatus {
        phase: Phase::Running,
        start_time: Some(time(at)),
        host_uid: new_host().metadata.uid,
        before: Some(WorkBefore { inspect: Some(time(LAST_YEAR)), deprovision: Some(time(LAST_YEAR)) }),
        steps: vec![step("ask-host", StepPhase::Done), step("wait-for-host", StepPhase::Running)],
        ..HostOperationStatus::default()
    });
    request
}

fn decided(request: &HostOperation, host: &BareMetalHost) -> RequestStep {
    let host = Some(host);
    decide_request(&RequestView { request, host, other: None, lacking: None, unserved: None, now: now() })
}

fn written(request: &HostOperation, host: &BareMetalHost) -> HostOperationStatus {
    match decided(request, host) {
        RequestStep::Status(status) => *status,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_erasure_is_asked_for_by_one_request_of_this_host_in_time_or_once_it_has_begun() {
    type Edit = fn(&mut HostOperation, &mut BareMetalHost);
    fn status(request: &mut HostOperation) -> &mut HostOperationStatus {
        request.status.as_mut().unwrap()
    }
    let of = |state, at: &str, start: Option<&str>, edit: Edit| {
        let mut request = asked(OperationType::Erase, at);
        let mut host = host(state, json!({"deprovision": {"start": start}}));
        let value = mark(&request);
        edit(&mut request, &mut host);
        erase_of(&value, Some(&request), &host, now()).is_some()
    };
    let nothing: Edit = |_, _| {};
    let available = |edit: Edit| of(State::Available, BEGUN, Some(LAST_YEAR), edit);
    assert!(available(nothing));
    let refused: [Edit; 8] = [
        |request, _| request.metadata.deletion_timestamp = Some(time(NOW)),
        |request, _| request.metadata.uid = Some("another".into()),
        |request, _| status(request).phase = Phase::Pending,
        |request, host| (status(request).host_uid, host.metadata.uid) = (None, None),
        |_, host| host.metadata.uid = Some("another".into()),
        |request, _| status(request).erasure = Some(Erasure::default()),
        |request, _| status(request).start_time = Some(time(EARLY)),
        |request, _| request.spec.operation = OperationType::Rebuild,
    ];
    for (number, edit) in refused.into_iter().enumerate() {
        assert!(!available(edit), "{number}");
    }
    // What has begun goes on for as long as it takes, to its report and beyond.
    assert!(of(State::Deprovisioning, EARLY, Some(BEGUN), |request, _| {
        status(request).erasure = Some(Erasure::default());
    }));
    for (state, start, edit) in [
        (State::Available, Some(BEGUN), nothing),
        (State::Deprovisioning, Some(LAST_YEAR), nothing),
        (State::Deprovisioning, None, nothing),
        (State::Deprovisioning, Some(BEGUN), |request: &mut HostOperation, _| status(request).before = None),
    ] {
        assert!(!of(state, EARLY, start, edit), "{state:?} {start:?}");
    }
}

#[test]
fn who_else_provisions_the_host_or_keeps_it_off_is_asked_first() {
    let held = format!("{}/maintenance", annotation::REBOOT);
    let provisioned = annotated(host(State::Provisioned, json!({})), &[(&held, "")]);
    let status = written(&new(OperationType::Reboot), &provisioned);
    assert!(status.message.as_ref().unwrap().contains("is kept off (annotation reboot.metal3.io/maintenance)"));
    let mut restarted = provisioned;
    restarted.spec.disable_power_off = Some(true);
    assert_eq!(written(&new(OperationType::Reboot), &restarted).phase, Phase::Running);
    let mut external = host(State::Available, json!({}));
    external.spec.externally_provisioned = Some(true);
    let status = written(&new(OperationType::Inspect), &external);
    assert!(status.message.as_ref().unwrap().contains("somebody else provisions the host"), "{status:?}");
}

#[test]
fn a_request_that_is_taken_says_what_is_done_and_what_was_before() {
    let history = json!({"inspect": {"start": LAST_YEAR}, "deprovision": {"start": EARLY}});
    let status = written(&new(OperationType::Inspect), &host(State::Available, history));
    let expected = json!({
        "phase": "Running",
        "startTime": NOW,
        "currentStep": "ask-host",
        "progress": "0/2",
        "message": "the host is asked",
        "bmcCalls": 0,
        "steps": [
            {"name": "ask-host", "phase": "Running", "startTime": NOW, "attempt": 1},
            {"name": "wait-for-host", "phase": "Pending"},
        ],
        "hostUID": new_host().metadata.uid,
        "before": {"inspect": LAST_YEAR, "deprovision": EARLY},
    });
    assert_eq!(serde_json::to_value(&status).unwrap(), expected);
}

/// How the work stands: the phase, and what is said of it.
fn told(request: &HostOperation, host: &BareMetalHost) -> (Phase, String) {
    let status = written(request, host);
    (status.phase, status.message.unwrap_or_default())
}

#[test]
fn what_the_host_does_while_its_annotation_is_there_is_told_as_it_stands() {
    use OperationType::{Erase, Inspect, Reboot};
    let inspect = (annotation::INSPECT, "");
    let erase = (annotation::ERASE, "r/uid-r");
    let begun = json!({"deprovision": {"start": BEGUN}});
    let old = json!({"deprovision": {"start": LAST_YEAR}});
    let rows = [
        (Inspect, BEGUN, State::Available, json!({}), inspect, "the host has not come to it yet (it is available)"),
        (Inspect, BEGUN, State::Inspecting, json!({}), inspect, "the host is under way (it is inspecting)"),
        (Inspect, EARLY, State::Inspecting, json!({}), inspect, "the host is under way (it is inspecting)"),
        (Inspect, EARLY, State::Available, json!({}), inspect, "the host has not come to it within an hour"),
        (Erase, EARLY, State::Deprovisioning, begun, erase, "the host is under way (it is deprovisioning)"),
        (
            Erase,
            BEGUN,
            State::Deprovisioning,
            old,
            erase,
            "the host is deprovisioning, and only one that is available is erased",
        ),
        (
            Reboot,
            BEGUN,
            State::Provisioned,
            json!({}),
            (annotation::REBOOT, "{\"mode\":\"hard\"}"),
            "somebody has changed the annotation reboot.metal3.io",
        ),
    ];
    for (operation, at, state, history, wish, expected) in rows {
        let host = annotated(host(state, history), &[wish]);
        let (phase, message) = told(&asked(operation, at), &host);
        assert_eq!(message, expected, "{operation:?} {state:?}");
        assert_eq!(phase == Phase::Failed, operation == Reboot, "{operation:?} {state:?}");
    }
}

#[test]
fn a_report_of_disks_ends_an_erasure_unless_the_host_is_at_it_with_its_annotation() {
    let mut request = asked(OperationType::Erase, EARLY);
    let disk = ErasedDisk { name: "sda".into(), result: EraseResult::Purged, ..ErasedDisk::default() };
    request.status.as_mut().unwrap().erasure = Some(Erasure { disks: vec![disk], given_up: None });
    let begun = json!({"deprovision": {"start": BEGUN}});
    for (state, there, phase) in [
        (State::Deprovisioning, true, Phase::Running),
        (State::Deprovisioning, false, Phase::Succeeded),
        (State::Available, true, Phase::Succeeded),
        (State::Available, false, Phase::Succeeded),
    ] {
        let wish = if there { vec![(annotation::ERASE, "r/uid-r")] } else { Vec::new() };
        let host = annotated(host(state, begun.clone()), &wish);
        assert_eq!(told(&request, &host).0, phase, "{state:?} {there}");
    }
}

const REMOVED: &str = "the annotation was removed before the host came to it";

/// What is said when the annotation is gone: `None` where the host is to go on.
fn gone(operation: OperationType, host: &BareMetalHost, expected: (Phase, &str)) {
    let (phase, message) = told(&asked(operation, BEGUN), host);
    assert_eq!((phase, message.as_str()), expected, "{operation:?} {:?}", host.state());
}

#[test]
fn a_reboot_ends_as_the_host_has_answered_and_as_it_is_now() {
    let answered = |state, on, online| {
        let mut host = annotated(host(state, json!({})), &[(annotation::REQUEST, "r/uid-r/done")]);
        (host.status.as_mut().unwrap().powered_on, host.spec.online) = (on, online);
        host
    };
    for (state, on, online, phase, message) in [
        (State::Provisioned, true, true, Phase::Succeeded, "the machine was switched off, or restarted, and is on"),
        (State::Provisioned, true, false, Phase::Succeeded, "the machine was switched off, or restarted, and is on"),
        (State::Provisioned, false, false, Phase::Failed, "the host is to be off now (spec.online)"),
        (State::Provisioned, false, true, Phase::Running, "the machine is off, and is to come on (it is provisioned)"),
        (State::Deprovisioning, true, true, Phase::Failed, "what was on the host is being removed"),
    ] {
        gone(OperationType::Reboot, &answered(state, on, online), (phase, message));
    }
}

#[test]
fn an_inspection_is_made_when_another_has_begun_and_ended() {
    for (state, start, end, phase, message) in [
        (State::Available, Some(BEGUN), Some(NOW), Phase::Succeeded, "the hardware has been inspected"),
        (State::Inspecting, Some(BEGUN), None, Phase::Running, "the host is under way (it is inspecting)"),
        (State::Inspecting, Some(LAST_YEAR), None, Phase::Failed, REMOVED),
        (State::Available, Some(BEGUN), None, Phase::Failed, "the inspection was given up"),
        (State::Available, Some(LAST_YEAR), None, Phase::Failed, REMOVED),
        (State::Available, Some(LAST_YEAR), Some(EARLY), Phase::Failed, REMOVED),
        (State::Available, None, None, Phase::Failed, REMOVED),
    ] {
        let host = host(state, json!({"inspect": {"start": start, "end": end}}));
        gone(OperationType::Inspect, &host, (phase, message));
    }
}

#[test]
fn a_rebuild_ends_with_the_system_or_with_what_keeps_the_host_from_it() {
    let of = |state, start: Option<&str>, end: Option<&str>, wishes: bool, online| {
        let mut host = host(state, json!({"deprovision": {"start": start}, "provision": {"end": end}}));
        host.spec.image = wishes.then(|| crate::kit::image("https://images.example/a.raw"));
        host.spec.online = online;
        host
    };
    let under_way = |state: State| format!("the host is under way (it is {})", state.as_str());
    let open = [State::Deprovisioning, State::Available, State::Provisioning, State::Provisioned];
    for state in open {
        let host = of(state, Some(BEGUN), None, true, true);
        gone(OperationType::Rebuild, &host, (Phase::Running, &under_way(state)));
    }
    let rows = [
        (of(State::Provisioned, Some(BEGUN), Some(NOW), true, true), "the host has been provisioned anew"),
        (of(State::Provisioned, Some(LAST_YEAR), Some(NOW), true, true), REMOVED),
        (of(State::Provisioned, None, Some(NOW), true, true), REMOVED),
        (
            of(State::Available, Some(BEGUN), None, false, true),
            "the host is empty, and its spec asks for nothing any more",
        ),
        (of(State::Available, Some(BEGUN), None, true, false), "the host is empty, and is to be off now (spec.online)"),
        (of(State::ExternallyProvisioned, Some(BEGUN), None, true, true), "somebody else provisions the host now"),
        (of(State::Unmanaged, Some(BEGUN), None, true, true), "the host is unmanaged, and not rebuilt any more"),
    ];
    for (number, (host, message)) in rows.into_iter().enumerate() {
        let phase = if number == 0 { Phase::Succeeded } else { Phase::Failed };
        gone(OperationType::Rebuild, &host, (phase, message));
    }
}

#[test]
fn an_erasure_whose_annotation_is_gone_is_told_by_whether_it_had_begun() {
    let of = |start: &str| host(State::Available, json!({"deprovision": {"start": start}}));
    gone(OperationType::Erase, &of(LAST_YEAR), (Phase::Failed, REMOVED));
    let (phase, message) = told(&asked(OperationType::Erase, BEGUN), &of(BEGUN));
    assert!(phase == Phase::Failed && message.starts_with("the annotation was removed in the middle"), "{message}");
}

#[test]
fn the_last_status_counts_the_steps_that_are_done() {
    let inspected = host(State::Available, json!({"inspect": {"start": BEGUN, "end": NOW}}));
    let of = |host: &BareMetalHost| {
        let status = written(&asked(OperationType::Inspect, BEGUN), host);
        (status.progress.unwrap_or_default(), status.steps.into_iter().map(|step| step.phase).collect::<Vec<_>>())
    };
    assert_eq!(of(&inspected), ("2/2".to_owned(), vec![StepPhase::Done; 2]));
    let given_up = host(State::Available, json!({"inspect": {"start": BEGUN}}));
    assert_eq!(of(&given_up), ("1/2".to_owned(), vec![StepPhase::Done, StepPhase::Failed]));
    let refused = written(&new(OperationType::Reboot), &given_up);
    assert_eq!((refused.phase, refused.progress), (Phase::Failed, None));
}

#[test]
fn a_wish_is_taken_back_by_removing_its_annotation_alone() {
    let mut request = asked(OperationType::Inspect, EARLY);
    let host = annotated(host(State::Available, json!({})), &[(annotation::INSPECT, "")]);
    request.status = Some(written(&request, &host));
    assert_eq!(decided(&request, &host), RequestStep::Annotate(BTreeMap::from([(annotation::INSPECT, None)])));
}
