//! Steps of hardware managers on request: what the host does, what the request is told, and how it ends when something comes in between.

use std::time::Duration;

use api::metal3::{ErrorType, ProvisioningState as State, annotation};
use api::metamorph::{
    AgentStep, OfferedStep, OperationPhase as Phase, OperationType, RanStep, StepResult, StepsReport,
};
use host_lifecycle::{Action, Outcome, Retry};

use crate::kit::image;
use crate::requests::{Site, answered, working};

/// A host whose request for steps is taken and asked, and has begun.
fn begun() -> (Site, usize) {
    let mut site = Site::at_rest(None);
    site.world.pass(Duration::from_secs(3600));
    let request = site.ask(OperationType::Steps);
    assert_eq!(site.settle(request).phase, Phase::Running);
    site.world.pass(Duration::from_secs(5));
    answered(&mut site, working());
    assert_eq!(site.world.state(), State::Deprovisioning);
    (site, request)
}

fn report(result: StepResult) -> Outcome {
    let ran = RanStep {
        step: "flash".into(),
        interface: "deploy".into(),
        result,
        message: "its words".into(),
        ..RanStep::default()
    };
    Outcome::Stepped(Box::new(StepsReport { ran: vec![ran], ..StepsReport::default() }))
}

fn calls(site: &Site) -> Vec<(Vec<AgentStep>, bool)> {
    let of = |action: &Action| match action {
        Action::RunSteps { steps, restart } => Some((steps.clone(), *restart)),
        _ => None,
    };
    site.world.calls.iter().filter_map(of).collect()
}

#[test]
fn what_is_asked_for_is_handed_over_and_the_report_is_the_requests() {
    let (mut site, request) = begun();
    for _ in 0..5 {
        // A step takes hours; nobody takes it back for that, or says that it is late.
        site.world.pass(Duration::from_secs(3 * 3600));
        answered(&mut site, working());
        assert_eq!(site.settle(request).phase, Phase::Running);
        assert!(!site.world.events.contains(&host_lifecycle::BUDGET_EXCEEDED));
    }
    answered(&mut site, report(StepResult::Done));
    let status = site.settle(request);
    assert_eq!((status.phase, status.message.as_deref()), (Phase::Succeeded, Some("1 steps are done: flash")));
    assert_eq!(status.steps_report.unwrap().ran[0].message, "its words");
    assert_eq!((site.world.state(), site.world.annotated(annotation::STEPS)), (State::Available, false));
    assert!(site.world.events.contains(&"StepsStarted") && site.world.events.contains(&"StepsEnded"));
    let asked = vec![AgentStep { step: "flash".into(), interface: "deploy".into(), args: None }];
    assert!(calls(&site).iter().all(|call| *call == (asked.clone(), false)), "{:?}", calls(&site));
    assert!(!site.world.calls.iter().any(|action| matches!(action, Action::Deprovision { .. } | Action::Erase { .. })));
    // Nothing of it is done again.
    let before = calls(&site).len();
    site.world.pass(Duration::from_secs(3600));
    site.host_rests();
    assert_eq!(calls(&site).len(), before);
}

#[test]
fn without_steps_they_are_listed() {
    let mut site = Site::at_rest(None);
    let request = site.ask(OperationType::Steps);
    site.requests[request].spec.steps = vec![];
    site.settle(request);
    site.world.pass(Duration::from_secs(5));
    let offered = vec![OfferedStep { step: "flash".into(), interface: "deploy".into(), ..OfferedStep::default() }];
    answered(&mut site, Outcome::Stepped(Box::new(StepsReport { offered, ..StepsReport::default() })));
    let status = site.settle(request);
    assert_eq!(status.phase, Phase::Succeeded);
    assert!(status.message.unwrap().ends_with("flash (deploy)"));
    assert_eq!(calls(&site), [(vec![], false)]);
}

#[test]
fn a_step_that_is_not_done_fails_the_request_and_leaves_the_host_available() {
    for (result, word) in [
        (StepResult::Failed, "has failed: its words"),
        (StepResult::Begun, "not known"),
        (StepResult::NotBegun, "was not begun"),
    ] {
        let (mut site, request) = begun();
        answered(&mut site, report(result));
        let status = site.settle(request);
        assert_eq!((status.phase, site.cause(request).as_str()), (Phase::Failed, "StepFailed"));
        assert!(status.message.unwrap().contains(word));
        assert_eq!((site.world.state(), site.world.status().error_type), (State::Available, None));
        assert!(site.world.events.contains(&"StepsFailed"));
    }
}

#[test]
fn what_keeps_it_from_a_beginning_is_given_up_after_three_failures() {
    for (retry, attempts) in [(Retry::Later, 3), (Retry::AfterChange, 1), (Retry::AnotherMachine, 1)] {
        let (mut site, request) = begun();
        for attempt in 1..=attempts {
            answered(&mut site, Outcome::Failed { message: "the agent is silent".into(), retry });
            assert_eq!(site.world.state() == State::Available, attempt == attempts, "{retry:?} {attempt}");
            site.world.pass(Duration::from_secs(3600));
            if attempt < attempts {
                answered(&mut site, working());
                assert!(calls(&site).last().unwrap().1, "it begins anew");
            }
        }
        let status = site.settle(request);
        assert_eq!(site.cause(request), "StepFailed");
        assert!(status.message.unwrap().contains("given up: the agent is silent"));
    }
}

#[test]
fn steps_that_are_withdrawn_wipe_nothing() {
    let ways: [fn(&mut Site, usize); 2] =
        [|site, request| drop(site.requests.remove(request)), |site, _| site.world.unannotate(annotation::STEPS)];
    for (index, way) in ways.into_iter().enumerate() {
        let (mut site, request) = begun();
        way(&mut site, request);
        site.host_rests();
        assert_eq!((site.world.state(), site.world.annotated(annotation::STEPS)), (State::Available, false), "{index}");
        let wiped = |action: &Action| matches!(action, Action::Deprovision { clean: true, empty: false, .. });
        // Without the annotation nothing of the host tells what it is deprovisioned for: the provisioner's record does.
        assert_eq!(site.world.calls.iter().any(wiped), index == 1, "{index}");
        if index == 1 {
            let status = site.settle(request);
            assert_eq!((status.phase, site.cause(request).as_str()), (Phase::Failed, "Withdrawn"));
            assert!(status.message.unwrap().contains("runs to its end"));
        }
    }
}

#[test]
fn steps_that_cannot_go_on_wait_with_a_sentence() {
    let (mut site, _) = begun();
    site.world.settings.served.steps = false;
    for _ in 0..5 {
        site.world.step();
        site.world.pass(Duration::from_secs(60));
    }
    let status = site.world.status();
    assert_eq!((site.world.state(), status.error_type), (State::Deprovisioning, Some(ErrorType::Provisioning)));
    assert!(status.error_message.contains("own agent"), "{}", status.error_message);
    site.world.settings.served.steps = true;
    site.host_rests();
    assert_eq!((site.world.state(), site.world.status().error_type), (State::Available, None));
}

/// Somebody takes the host between the request and the host's look at it.
#[test]
fn a_host_that_somebody_has_taken_meanwhile_is_left_alone() {
    let mut site = Site::at_rest(None);
    let request = site.ask(OperationType::Steps);
    site.settle(request);
    site.world.edit(|spec| spec.image = Some(image("http://i/1")));
    site.host_rests();
    assert!(calls(&site).is_empty() && site.world.events.contains(&"StepsDropped"));
    assert_eq!(site.world.state(), State::Provisioned);
    site.settle(request);
    assert_eq!(site.cause(request), "Withdrawn");
}
