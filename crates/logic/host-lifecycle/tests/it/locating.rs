//! A request to switch the light by which a server is found: it says which way, is taken once and not on an old word, asks nothing of the host, and tells how it ended.

use std::time::Duration;

use api::metal3::annotation;
use api::metamorph::{HostOperationStatus, LocateOptions, OperationPhase as Phase, OperationType};
use host_lifecycle::{Collected, RequestStep, RequestView, conclude_collection, decide_request};

use crate::requests::Site;

fn view<'a>(site: &'a Site, index: usize) -> RequestView<'a> {
    let request = &site.requests[index];
    RequestView {
        request,
        host: Some(&site.world.host),
        other: None,
        lacking: None,
        unserved: None,
        now: site.world.now,
    }
}

fn cause(status: &HostOperationStatus) -> Option<&str> {
    status.error.as_ref().map(|error| error.cause.as_str())
}

/// A request whose light the host's provisioner is about to be called for.
fn under_way(lit: bool) -> (Site, usize) {
    let mut site = Site::at_rest(Some("http://192.0.2.8/i"));
    let index = site.ask(OperationType::Locate);
    site.requests[index].spec.locate = Some(LocateOptions { lit });
    assert_eq!(site.settle(index).phase, Phase::Running);
    assert_eq!(decide_request(&view(&site, index)), RequestStep::Collect);
    (site, index)
}

fn after(lit: bool, collected: Collected) -> HostOperationStatus {
    let (site, index) = under_way(lit);
    match conclude_collection(&view(&site, index), collected) {
        RequestStep::Status(status) => *status,
        other => panic!("{other:?}"),
    }
}

#[test]
fn it_is_taken_before_anybody_is_called_and_nothing_is_asked_of_the_host() {
    let mut site = Site::at_rest(Some("http://192.0.2.8/i"));
    let before = site.world.host.clone();
    let index = site.ask(OperationType::Locate);
    assert!(site.look(index));
    assert_eq!(site.status(index).current_step.as_deref(), Some("switch-light"));
    // The intent is recorded; that it was taken is, too, before the light is switched.
    assert_eq!(decide_request(&view(&site, index)), RequestStep::Take);
    let status = site.settle(index);
    assert_eq!((status.phase, status.progress.as_deref(), status.steps.len()), (Phase::Running, Some("0/1"), 1));
    assert!(site.requests[index].metadata.annotations.as_ref().unwrap().contains_key(annotation::TAKEN));
    assert_eq!(decide_request(&view(&site, index)), RequestStep::Collect);
    assert_eq!(site.world.host, before);
    // A request that is made beside work under way is no hindrance to it, nor is that to the request.
    let reboot = site.ask(OperationType::Reboot);
    assert_eq!(site.settle(reboot).phase, Phase::Running);
}

#[test]
fn it_says_which_way_or_is_refused() {
    let mut site = Site::at_rest(None);
    let index = site.ask(OperationType::Locate);
    site.requests[index].spec.locate = None;
    let status = site.settle(index);
    assert_eq!((status.phase, cause(&status)), (Phase::Failed, Some("InvalidRequest")));
    assert!(status.message.as_ref().unwrap().contains("spec.locate.lit"), "{status:?}");
}

#[test]
fn a_light_is_not_switched_on_a_word_of_long_ago() {
    let (mut site, index) = under_way(true);
    site.world.pass(Duration::from_secs(59 * 60));
    assert_eq!(decide_request(&view(&site, index)), RequestStep::Collect);
    site.world.pass(Duration::from_secs(2 * 60));
    let status = site.settle(index);
    assert_eq!((status.phase, cause(&status)), (Phase::Failed, Some("Expired")));
    // Nor on a copy of a request, as tools make that back up and move objects: its status is lost.
    let (mut site, index) = under_way(true);
    site.requests[index].status = None;
    assert_eq!(cause(&site.settle(index)), Some("Expired"));
    // Nor for a host of the same name that was made later.
    let (mut site, index) = under_way(true);
    site.world.host.metadata.uid = Some("another".into());
    assert_eq!(cause(&site.settle(index)), Some("HostGone"));
}

#[test]
fn of_two_requests_for_it_the_first_counts() {
    let (mut site, _) = under_way(true);
    let second = site.ask(OperationType::Locate);
    let first = RequestView { other: Some("r0"), ..view(&site, second) };
    let RequestStep::Status(status) = decide_request(&first) else { panic!("no status") };
    assert_eq!(cause(&status), Some("NotNow"));
}

#[test]
fn its_end_says_which_light_or_why_none() {
    let located = || Collected::Located("IndicatorLED of /redfish/v1/Chassis/1 is Blinking".into());
    let status = after(true, located());
    assert_eq!((status.phase, status.progress.as_deref(), cause(&status)), (Phase::Succeeded, Some("1/1"), None));
    let message = "the light to find the server by is on: IndicatorLED of /redfish/v1/Chassis/1 is Blinking";
    assert_eq!(status.message.as_deref(), Some(message));
    assert!(after(false, located()).message.unwrap().contains("is off: "));
    // A provisioner may be a program of somebody else.
    let long = after(true, Collected::Located(format!("\u{1b}[2J{}", "x".repeat(9000)))).message.unwrap();
    assert!(long.len() < 400 && !long.contains('\u{1b}'), "{long}");
    let failed = |cause: &str| Collected::Failed { cause: cause.into(), message: "m".into(), advice: None };
    for (collected, expected, words) in [
        (Collected::Unserved("ironic".into()), "NotServed", "\"ironic\", switches no locating light"),
        (Collected::NotNow("the host is paused".into()), "NotNow", "is paused"),
        (failed("AnotherMachine"), "AnotherMachine", "m"),
        (Collected::Gone, "HostGone", "not there"),
    ] {
        let status = after(true, collected);
        assert_eq!((status.phase, cause(&status)), (Phase::Failed, Some(expected)));
        let error = status.error.unwrap();
        assert!(error.message.contains(words) && error.advice.is_some(), "{error:?}");
    }
}
