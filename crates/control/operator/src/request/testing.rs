//! The test of what a host's BMC can read, before the host is diagnosed: its provisioner is asked until it has an end.

use api::metal3::BareMetalHost;
use api::metamorph::{TestMediumReport, TestMediumResult};
use diagnosis::{TestEnd, TestMedium};
use host_lifecycle::{Collected, RequestStep, RequestView, conclude_collection, conclude_waiting};
use kube::ResourceExt as _;
use provisioner::{Answer, Call, Cause, TestMediumRequest, Verdict};

use super::All;
use crate::host::LookError;
use crate::host::asked::{Asked, asked_of};

/// How a look at the test went.
pub enum Tested {
    /// It has ended.
    Ended(Box<TestMedium>),
    /// This is to be written.
    Step(RequestStep),
}

/// Asks the provisioner. It knows the test by the request's uid, however often it is asked, so that a killed server's successor goes on or begins anew.
///
/// # Errors
/// When the Kubernetes API fails, or another process acts.
pub async fn test_medium(all: &All, view: &RequestView<'_>, host: &BareMetalHost) -> Result<Tested, LookError> {
    let (namespace, name) = (host.namespace().unwrap_or_default(), host.name_any());
    let in_use = view.request.spec.diagnose.is_some_and(|options| options.allow_in_use);
    let call = Call::TestMedium(TestMediumRequest { identity: view.request.uid().unwrap_or_default(), in_use });
    // Not a later host of that name: the request was decided on for this one.
    let uid = host.uid();
    let asked = asked_of(&all.host, (&namespace, &name, uid.as_deref()), |served| served.test_medium, call).await?;
    let now = all.host.settings.clock.now();
    let view = RequestView { now, ..*view };
    let collected = match asked {
        Asked::Answered(Verdict::Done(Answer::Tested(tested))) => return Ok(Tested::Ended(tested)),
        Asked::Answered(Verdict::Done(_)) => Collected::Failed {
            cause: Cause::Internal.as_str().to_owned(),
            message: "the provisioner answers what was not asked".to_owned(),
            advice: None,
        },
        Asked::Answered(Verdict::Working(working)) => return Ok(Tested::Step(conclude_waiting(&view, &working.step))),
        Asked::Answered(Verdict::Waiting(_)) => {
            let what = format!("the provisioner of the host {name} has something else to do first");
            return Ok(Tested::Step(conclude_waiting(&view, &what)));
        }
        Asked::Busy(why) => return Ok(Tested::Step(conclude_waiting(&view, &why))),
        Asked::Failed(failure) if failure.cause == Cause::RecordUnavailable => {
            return Ok(Tested::Step(conclude_waiting(&view, &failure.message)));
        }
        Asked::Failed(failure) => Collected::Failed {
            // Nothing was done, and nothing is wrong with the host.
            cause: if failure.cause == Cause::MachineInUse { "NotNow" } else { failure.cause.as_str() }.to_owned(),
            message: failure.message.clone(),
            advice: failure.what_to_do().map(ToOwned::to_owned),
        },
        Asked::NoHost => Collected::Gone,
        Asked::Detached => Collected::NotNow(format!("the host {name} is detached: its BMC is not called")),
        Asked::NotYet(why) | Asked::Unregistered(why) => Collected::NotNow(why),
        Asked::Unserved => Collected::Failed {
            cause: "NotServed".to_owned(),
            message: "the provisioner of the host has no test medium".to_owned(),
            advice: Some("ask for a diagnosis without it (spec.diagnose)".to_owned()),
        },
    };
    Ok(Tested::Step(conclude_collection(&view, collected)))
}

/// The test as the request's status has it.
pub fn report(tested: &TestMedium) -> TestMediumReport {
    TestMediumReport {
        result: match tested.end {
            TestEnd::Read => TestMediumResult::Read,
            TestEnd::NotRead => TestMediumResult::NotRead,
            TestEnd::Refused => TestMediumResult::Refused,
            TestEnd::Other => TestMediumResult::Interrupted,
        },
        from: tested.from.clone(),
        requests: i64::try_from(tested.requests).unwrap_or(i64::MAX),
        bytes: i64::try_from(tested.bytes).unwrap_or(i64::MAX),
    }
}
