//! Steps of hardware managers by name, from the HostOperation to the provisioner and back.

use api::metal3::{ProvisioningState as State, annotation};
use api::metamorph::{OperationPhase as Phase, StepResult};
use kube::api::DeleteParams;
use scenarios::plant::Plant;
use scenarios::{Effect, Machines, address, fixture, is};
use serde_json::{Value, json};

use crate::requests::{all, ask, ended};

const LONGEST: u32 = 4 * 3600;

fn steps(steps: &Value) -> Value {
    json!({"type": "Steps", "host": {"name": "a"}, "steps": steps})
}

#[test]
fn steps_are_listed_run_and_refused_by_name() {
    let machines = Machines::default();
    scenarios::run(61, async |site| {
        let _controller = site.requested(fixture(&machines));
        site.create_host("a").await;
        site.wait("a", LONGEST, is(State::Available)).await;
        let done = || machines.effects(&address("a")).iter().filter(|effect| **effect == Effect::Steps).count();

        ask(&site, "list", json!({"type": "Steps", "host": {"name": "a"}})).await;
        let status = ended(&site, "list").await;
        assert_eq!(status.phase, Phase::Succeeded, "{status:?}");
        let report = status.steps_report.unwrap();
        let names: Vec<&str> = report.offered.iter().map(|step| step.step.as_str()).collect();
        assert_eq!((names, report.ran.len(), done()), (vec!["set_label", "fail"], 0, 0));

        let label = json!([{"step": "set_label", "args": "{\"label\": \"a\"}"}]);
        ask(&site, "label", steps(&label)).await;
        let status = ended(&site, "label").await;
        assert_eq!(status.phase, Phase::Succeeded, "{status:?}");
        assert_eq!((status.steps_report.unwrap().ran[0].result, done()), (StepResult::Done, 1));

        ask(&site, "unknown", steps(&json!([{"step": "set_lable"}]))).await;
        let error = ended(&site, "unknown").await.error.unwrap();
        assert_eq!(error.cause, "StepFailed");
        assert!(error.message.contains("set_lable") && error.message.contains("set_label and fail"), "{error:?}");
        assert_eq!(done(), 1);

        ask(&site, "fails", steps(&json!([{"step": "set_label"}, {"step": "fail"}, {"step": "set_label"}]))).await;
        let status = ended(&site, "fails").await;
        let results: Vec<StepResult> = status.steps_report.unwrap().ran.iter().map(|ran| ran.result).collect();
        assert_eq!(results, [StepResult::Done, StepResult::Failed, StepResult::NotBegun]);
        assert!(status.error.unwrap().message.contains("it always fails"));

        let host = site.hosts().get("a").await.unwrap();
        assert_eq!(host.state(), State::Available);
        assert_eq!([host.annotation(annotation::STEPS), host.annotation(annotation::REQUEST)], [None, None]);
    });
}

#[test]
fn a_request_that_is_deleted_leaves_the_host_available() {
    let machines = Machines::default();
    scenarios::run(62, async |site| {
        let _controller = site.requested(fixture(&machines));
        site.create_host("a").await;
        site.wait("a", LONGEST, is(State::Available)).await;
        ask(&site, "label", steps(&json!([{"step": "set_label"}]))).await;
        site.wait("a", LONGEST, is(State::Deprovisioning)).await;
        all(&site).delete("label", &DeleteParams::default()).await.unwrap();
        site.wait("a", LONGEST, |host| is(State::Available)(host) && host.annotation(annotation::STEPS).is_none())
            .await;
        assert!(!machines.effects(&address("a")).contains(&Effect::Deprovision));
    });
}

#[test]
fn machines_that_boot_our_own_agent_have_none_and_it_is_said() {
    scenarios::run(63, async |site| {
        let plant = Plant::new(site.weather.clone());
        let _server = plant.serve_requests(&site);
        site.create_host("a").await;
        site.wait("a", LONGEST, is(State::Available)).await;
        ask(&site, "flash", steps(&json!([{"step": "flash"}]))).await;
        let error = ended(&site, "flash").await.error.unwrap();
        assert_eq!(error.cause, "NotServed");
        assert!(error.message.contains("ironic-python-agent"), "{error:?}");
        assert_eq!(site.hosts().get("a").await.unwrap().state(), State::Available);
    });
}
