//! Requests to test what a BMC can read: to which hosts that is done, and how one ends.

use api::metal3::ProvisioningState as State;
use api::metamorph::{
    DiagnoseOptions, HostOperationStatus, OperationPhase as Phase, OperationType, TestMediumReport, TestMediumResult,
};
use host_lifecycle::{Collected, RequestStep, RequestView, asks_for_test, conclude_collection, conclude_waiting};
use jiff::SignedDuration;

use crate::requests::Site;

fn asked(site: &mut Site, allow_in_use: bool) -> HostOperationStatus {
    let request = site.ask(OperationType::Diagnose);
    site.requests[request].spec.diagnose = Some(DiagnoseOptions { test_medium: true, allow_in_use });
    assert!(asks_for_test(&site.requests[request]));
    let before = site.world.host.clone();
    let status = site.settle(request);
    assert_eq!(site.world.host, before, "nothing is asked of the host itself");
    status
}

fn refused(site: &mut Site, allow_in_use: bool, cause: &str, words: &str) {
    let status = asked(site, allow_in_use);
    let error = status.error.expect("it is refused");
    assert_eq!((status.phase, error.cause.as_str()), (Phase::Failed, cause), "{error:?}");
    assert!(error.message.contains(words), "{words}: {error:?}");
}

#[test]
fn a_medium_goes_into_the_drive_of_a_machine_in_use_with_consent_alone() {
    let mut site = Site::at_rest(None);
    assert_eq!(asked(&mut site, false).phase, Phase::Running, "it is available");
    for (state, word) in [(State::Provisioned, "provisioned"), (State::ExternallyProvisioned, "externally provisioned")]
    {
        let mut site = Site::at_rest(Some("http://i/1"));
        site.world.host.status.as_mut().unwrap().provisioning.state = state;
        refused(&mut site, false, "NotNow", word);
        assert_eq!(asked(&mut site, true).phase, Phase::Running, "{state:?}");
    }
    let mut site = Site::at_rest(None);
    site.world.edit(|spec| spec.externally_provisioned = Some(true));
    refused(&mut site, false, "NotNow", "spec.externallyProvisioned");
}

#[test]
fn where_the_drive_may_be_needed_at_any_moment_consent_is_of_no_use() {
    for state in [State::Provisioning, State::Deprovisioning, State::Registering, State::None] {
        let mut site = Site::at_rest(None);
        site.world.host.status.as_mut().unwrap().provisioning.state = state;
        refused(&mut site, true, "NotNow", "");
    }
    let mut site = Site::at_rest(None);
    site.world.delete();
    refused(&mut site, true, "NotNow", "being deleted");
    let mut site = Site::at_rest(None);
    site.unserved = Some("the provisioner has none");
    refused(&mut site, false, "NotServed", "the provisioner has none");
    // Nothing of that stands against a diagnosis that only reads.
    let mut site = Site::at_rest(Some("http://i/1"));
    let request = site.ask(OperationType::Diagnose);
    assert_eq!(site.settle(request).phase, Phase::Running);
}

#[test]
fn what_is_waited_for_is_written_once_and_the_end_has_the_test() {
    let mut site = Site::at_rest(None);
    asked(&mut site, false);
    let view = |site: &Site, minutes: i64| {
        let now = site.world.now + SignedDuration::from_mins(minutes);
        let (request, host) = (site.requests[0].clone(), site.world.host.clone());
        (request, host, now)
    };
    let step = |site: &Site, minutes: i64, conclude: &dyn Fn(&RequestView<'_>) -> RequestStep| {
        let (request, host, now) = view(site, minutes);
        let (request, host) = (&request, Some(&host));
        conclude(&RequestView { request, host, other: None, lacking: None, unserved: None, now })
    };
    let waits = |view: &RequestView<'_>| conclude_waiting(view, "waiting for the BMC");
    let RequestStep::Status(status) = step(&site, 1, &waits) else { panic!("it is told") };
    assert_eq!((status.phase, status.message.as_deref()), (Phase::Running, Some("waiting for the BMC")));
    site.requests[0].status = Some(*status);
    assert_eq!(step(&site, 2, &waits), RequestStep::Nothing);
    let RequestStep::Status(status) = step(&site, 61, &waits) else { panic!("it waits for ever") };
    assert_eq!(status.error.map(|error| error.cause), Some("Expired".to_owned()));
    let report =
        TestMediumReport { result: TestMediumResult::Read, from: Some("192.0.2.7".into()), requests: 1, bytes: 100 };
    let ends = |view: &RequestView<'_>| {
        let (tested, found) = ("the BMC reaches it".to_owned(), "No cause was found".to_owned());
        conclude_collection(view, Collected::Tested { report: report.clone(), tested, found })
    };
    let RequestStep::Status(status) = step(&site, 2, &ends) else { panic!("no status") };
    assert_eq!((status.phase, status.test_medium.as_ref()), (Phase::Succeeded, Some(&report)));
    let message = status.message.unwrap();
    assert!(message.starts_with("the BMC reaches it; No cause was found"), "{message}");
}
