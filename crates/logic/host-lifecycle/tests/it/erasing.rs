//! Erasing on request: what the host does, what the request is told, and how it ends when something comes in between.

use std::time::Duration;

use api::metal3::{ErrorType, ProvisioningState as State, annotation};
use api::metamorph::{Erasure, OperationPhase as Phase, OperationType};
use host_lifecycle::{Action, Outcome, Retry, mark};
use inventory::{EraseResult, ErasedDisk};

use crate::kit::image;
use crate::requests::{Site, answered, working};

/// A host whose request to erase is taken and asked, and has begun.
fn begun() -> (Site, usize) {
    begun_after(None)
}

/// The same of a host that was provisioned before, with the image of this URL, which was removed.
fn begun_after(url: Option<&str>) -> (Site, usize) {
    let mut site = Site::at_rest(url);
    site.world.pass(Duration::from_secs(3600));
    site.world.edit(|spec| spec.image = None);
    site.host_rests();
    assert_eq!(site.world.state(), State::Available);
    site.world.pass(Duration::from_secs(3600));
    site.world.calls.clear();
    let request = site.ask(OperationType::Erase);
    assert_eq!(site.settle(request).phase, Phase::Running);
    site.world.pass(Duration::from_secs(5));
    answered(&mut site, working());
    assert_eq!(site.world.state(), State::Deprovisioning);
    (site, request)
}

fn disk(name: &str, result: EraseResult) -> ErasedDisk {
    ErasedDisk { name: name.into(), result, evidence: "it is frozen".into(), ..ErasedDisk::default() }
}

fn report(disks: Vec<ErasedDisk>) -> Outcome {
    Outcome::Erased(Box::new(Erasure { disks, given_up: None }))
}

fn erasures(site: &Site) -> usize {
    site.world.calls.iter().filter(|action| matches!(action, Action::Erase { .. })).count()
}

#[test]
fn the_host_is_under_way_for_as_long_as_it_takes_and_says_so() {
    let (mut site, request) = begun();
    for _ in 0..5 {
        // An erase of large disks takes days; nobody takes it back for that.
        site.world.pass(Duration::from_secs(24 * 3600));
        answered(&mut site, working());
        assert_eq!(site.settle(request).phase, Phase::Running);
    }
    site.world.annotate(annotation::OVERWRITE_OWNER, "somebody");
    answered(&mut site, report(vec![disk("sda", EraseResult::Purged)]));
    let status = site.settle(request);
    assert_eq!((status.phase, status.message.as_deref()), (Phase::Succeeded, Some("1 disks are Purged")));
    assert_eq!(status.erasure.unwrap().disks, [disk("sda", EraseResult::Purged)]);
    assert_eq!(site.world.state(), State::Available);
    assert!(!site.world.annotated(annotation::ERASE) && !site.world.annotated(annotation::OVERWRITE_OWNER));
    assert!(site.world.events.contains(&"EraseStarted") && site.world.events.contains(&"EraseEnded"));
    assert!(!site.world.calls.iter().any(|action| matches!(action, Action::Deprovision { .. })));
}

#[test]
fn a_disk_that_is_not_done_fails_the_request_and_leaves_the_host_available() {
    let (mut site, request) = begun();
    answered(&mut site, report(vec![disk("sda", EraseResult::Purged), disk("sdb", EraseResult::Cleared)]));
    let status = site.settle(request);
    assert_eq!((status.phase, site.cause(request).as_str()), (Phase::Failed, "NotErased"));
    let message = status.message.unwrap();
    assert!(message.starts_with("1 of 2 disks are not Purged: sdb") && message.contains("frozen"), "{message}");
    assert_eq!((site.world.state(), site.world.status().error_type), (State::Available, None));
}

#[test]
fn it_is_given_up_after_three_failures_and_at_once_where_trying_again_cannot_help() {
    for (retry, attempts) in [(Retry::Later, 3), (Retry::AfterChange, 1), (Retry::AnotherMachine, 1)] {
        let (mut site, request) = begun();
        let before = erasures(&site);
        for attempt in 1..=attempts {
            answered(&mut site, working());
            answered(&mut site, Outcome::Failed { message: "the agent is silent".into(), retry });
            let over = attempt == attempts;
            assert_eq!(site.world.state() == State::Available, over, "{retry:?} {attempt}");
            site.world.pass(Duration::from_secs(3600));
        }
        assert_eq!(erasures(&site) - before, 2 * attempts, "{retry:?}");
        let status = site.settle(request);
        assert_eq!(site.cause(request), "NotErased");
        assert!(status.message.unwrap().contains("given up: the agent is silent"));
        assert!(site.world.events.contains(&"EraseFailed") && !site.world.annotated(annotation::ERASE));
        assert_eq!(site.world.status().error_type, None, "the host is as it was");
    }
}

#[test]
fn what_is_waited_for_is_no_failure() {
    let (mut site, request) = begun();
    for _ in 0..6 {
        answered(&mut site, Outcome::Blocked { message: "the BMC is gone".into() });
        site.world.pass(Duration::from_secs(60));
    }
    assert_eq!(site.world.state(), State::Deprovisioning);
    assert_eq!(site.settle(request).message.as_deref(), Some("the BMC is gone"));
}

/// Nor does it take earlier failures back: it would go on for ever.
#[test]
fn what_blocks_an_erase_leaves_its_failures_counted() {
    let (mut site, _) = begun();
    let mut attempts = 0;
    while site.world.state() == State::Deprovisioning {
        attempts += 1;
        assert!(attempts < 5, "it goes on");
        for what in ["the BMC is gone", "the BMC refuses connections"] {
            answered(&mut site, Outcome::Blocked { message: what.into() });
            site.world.pass(Duration::from_secs(3600));
            answered(&mut site, working());
        }
        assert_eq!(site.world.state(), State::Deprovisioning);
        answered(&mut site, Outcome::Failed { message: "the agent is silent".into(), retry: Retry::Later });
        site.world.pass(Duration::from_secs(3600));
    }
    assert_eq!((site.world.state(), attempts), (State::Available, 2), "what blocked it first counts as one");
}

/// The deprovisionings that were asked for, and what of them: whether to wipe, and whether there is nothing to remove.
fn deprovisionings(site: &Site) -> Vec<(bool, bool)> {
    let of = |action: &Action| match action {
        Action::Deprovision { clean, empty, .. } => Some((*clean, *empty)),
        _ => None,
    };
    site.world.calls.iter().filter_map(of).collect()
}

#[test]
fn an_erase_that_is_withdrawn_in_the_middle_wipes_nothing() {
    let ways: [fn(&mut Site, usize); 2] =
        [|site, request| drop(site.requests.remove(request)), |site, _| site.world.unannotate(annotation::ERASE)];
    for (index, way) in ways.into_iter().chain(ways).enumerate() {
        // The second time of hosts that have been provisioned before.
        let (index, before) = (index % 2, (index > 1).then_some("http://i/1"));
        let (mut site, request) = begun_after(before);
        let began = site.world.status().operation_history.deprovision.start.clone();
        way(&mut site, request);
        site.host_rests();
        assert_eq!((site.world.state(), site.world.annotated(annotation::ERASE)), (State::Available, false), "{index}");
        // Without the annotation nothing of the host tells what it is deprovisioned for: the provisioner's record does.
        let wanted = if index == 1 { (true, false) } else { (false, true) };
        assert_eq!(deprovisionings(&site), [wanted], "{index}");
        let history = &site.world.status().operation_history.deprovision;
        assert!(history.start == began && history.end.is_some(), "{index}: {history:?}");
    }
}

/// A server that is started with other agents has withdrawn nothing.
#[test]
fn an_erase_that_cannot_go_on_waits_with_a_sentence_until_it_can_or_is_withdrawn() {
    for withdrawn in [false, true] {
        let (mut site, _) = begun();
        site.world.settings.served.erase = false;
        for _ in 0..5 {
            site.world.step();
            site.world.pass(Duration::from_secs(60));
        }
        let status = site.world.status();
        assert_eq!((site.world.state(), status.error_type), (State::Deprovisioning, Some(ErrorType::Provisioning)));
        assert!(status.error_message.contains("ironic-python-agent"), "{}", status.error_message);
        assert!(site.world.annotated(annotation::ERASE) && deprovisionings(&site).is_empty());
        if withdrawn {
            site.world.unannotate(annotation::ERASE);
        } else {
            site.world.settings.served.erase = true;
        }
        site.host_rests();
        assert_eq!((site.world.state(), site.world.status().error_type), (State::Available, None));
    }
}

#[test]
fn what_was_provisioned_before_and_removed_is_no_reason_to_wipe_and_a_failed_attempt_is() {
    let mut site = Site::at_rest(Some("http://i/1"));
    site.world.edit(|spec| spec.image = None);
    site.host_rests();
    // An attempt that fails is wiped, as ever.
    site.world.edit(|spec| spec.image = Some(image("http://i/2")));
    for _ in 0..40 {
        let failed = Outcome::Failed { message: "no".into(), retry: Retry::Later };
        site.world.step_with(move |world, action| match action {
            Action::Provision => failed,
            _ => world.sound(action),
        });
        if site.world.state() == State::Deprovisioning {
            break;
        }
    }
    site.world.edit(|spec| spec.image = None);
    site.host_rests();
    assert_eq!((deprovisionings(&site), site.world.state()), (vec![(true, false); 2], State::Available));
    // What was to be erased then, and is not any more, is not.
    let request = site.ask(OperationType::Erase);
    site.settle(request);
    site.world.pass(Duration::from_secs(5));
    answered(&mut site, working());
    assert_eq!(site.world.state(), State::Deprovisioning);
    site.requests.remove(request);
    site.host_rests();
    assert_eq!(deprovisionings(&site), [(true, false), (true, false), (false, true)]);
}

#[test]
fn a_host_that_is_deleted_in_the_middle_is_not_held_up_and_not_wiped() {
    let (mut site, request) = begun();
    site.world.delete();
    for _ in 0..20 {
        site.step_host();
    }
    assert!(site.world.gone, "{:?}", site.world.state());
    assert_eq!(deprovisionings(&site), [(false, true)]);
    site.settle(request);
    assert_eq!(site.cause(request), "HostGone");
}

#[test]
fn a_report_without_a_disk_is_no_success() {
    let (mut site, request) = begun();
    answered(&mut site, report(vec![]));
    let status = site.settle(request);
    assert_eq!((status.phase, site.cause(request).as_str()), (Phase::Failed, "NotErased"));
    assert!(status.message.unwrap().contains("no disk was found"));
}

#[test]
fn an_image_or_a_consumer_that_comes_before_it_has_begun_stops_it() {
    let edits: [fn(&mut Site); 2] = [
        |site| site.world.edit(|spec| spec.image = Some(image("http://i/1"))),
        |site| site.world.edit(|spec| spec.consumer_ref = Some(Default::default())),
    ];
    for edit in edits {
        let mut site = Site::at_rest(None);
        let request = site.ask(OperationType::Erase);
        site.settle(request);
        edit(&mut site);
        site.step_host();
        assert!(site.world.events.contains(&"EraseDropped"), "{:?}", site.world.events);
        site.host_rests();
        assert_eq!(erasures(&site), 0);
        site.settle(request);
        assert_eq!(site.cause(request), "Withdrawn");
    }
}

#[test]
fn an_image_that_comes_in_the_middle_waits_for_its_end() {
    let (mut site, request) = begun();
    site.world.edit(|spec| spec.image = Some(image("http://i/1")));
    answered(&mut site, working());
    assert_eq!(site.world.state(), State::Deprovisioning);
    answered(&mut site, report(vec![disk("sda", EraseResult::Purged)]));
    assert_eq!(site.settle(request).phase, Phase::Succeeded);
    assert!(site.world.states.contains(&State::Provisioning), "{:?}", site.world.states);
}

#[test]
fn an_annotation_of_somebodys_erases_nothing() {
    let mut site = Site::at_rest(None);
    // Of nobody; of a request of another type; of one that is for another host.
    let inspect = site.ask(OperationType::Inspect);
    let erase = site.ask(OperationType::Erase);
    site.settle(erase);
    site.host_rests();
    site.settle(erase);
    let done = erasures(&site);
    let ended = mark(&site.requests[erase]);
    for value in ["x/y".to_owned(), mark(&site.requests[inspect]), ended] {
        site.world.annotate(annotation::ERASE, &value);
        site.host_rests();
        assert_eq!((erasures(&site), site.world.annotated(annotation::ERASE)), (done, false), "{value}");
        assert_eq!(site.world.state(), State::Available);
    }
    assert_eq!(site.world.status().error_type, None::<ErrorType>);
}

#[test]
fn a_report_is_told_before_the_host_is_available_and_a_kill_between_loses_nothing() {
    let (mut site, request) = begun();
    // The report is written, and the process dies before the host's status says so: the next asks again, and gets the same.
    let told = Erasure { disks: vec![disk("sda", EraseResult::Purged)], given_up: None };
    site.requests[request].status.as_mut().unwrap().erasure = Some(told.clone());
    let status = site.settle(request);
    assert_eq!(status.phase, Phase::Running, "the host is not there yet");
    answered(&mut site, report(told.disks.clone()));
    assert_eq!(site.world.state(), State::Available);
    assert_eq!(site.settle(request).phase, Phase::Succeeded);
}

#[test]
fn what_the_provisioner_does_not_do_is_not_asked_of_it_whatever_the_annotation_says() {
    let mut site = Site::at_rest(None);
    let request = site.ask(OperationType::Erase);
    site.settle(request);
    // Another server has taken over, whose provisioner has no erasing.
    site.world.settings.served.erase = false;
    site.host_rests();
    assert_eq!((erasures(&site), site.world.annotated(annotation::ERASE)), (0, false));
    assert_eq!(site.settle(request).phase, Phase::Failed);
}
