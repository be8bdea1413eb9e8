//! What another controller may ask of a host's provisioner.

use std::sync::Arc;
use std::time::Duration;

use api::metal3::{BareMetalHost, OperationalStatus, annotation};
use host_lifecycle::{Action, Served, is_name};
use kube::ResourceExt as _;
use provisioner::{Answer, Call, Cause, Failure, Verdict, ask};
use tokio::time::timeout;
use tracing::Instrument as _;

use super::context::Context;
use super::error::ReconcileError;
use super::fetched::Fetched;
use super::reconcile::span;
use super::secrets::FoundCredentials;
use super::work::{self, NotDone};

/// Longest wait for the host's turn. Whoever asks looks after other hosts, too.
const TURN_WITHIN: Duration = Duration::from_secs(5);
/// Longest time that a provisioner is given.
const LONGEST_CALL: Duration = Duration::from_secs(3 * 60);

/// What became of the call.
pub enum Asked {
    /// There is no such host.
    NoHost,
    /// The host is let go: nobody calls its machine.
    Detached,
    /// It cannot be asked yet, a sentence.
    NotYet(String),
    /// It is not registered: nothing is known of its machine. A sentence.
    Unregistered(String),
    /// Its provisioner is at another call, a sentence.
    Busy(String),
    /// Its provisioner does not serve it.
    Unserved,
    /// The answer.
    Answered(Verdict<Answer>),
    /// It failed.
    Failed(Failure),
}

/// Asks the provisioner of the host with this name, if the host is registered and its provisioner serves that.
///
/// # Errors
/// When the Kubernetes API fails, or another process acts.
pub async fn asked(
    context: &Context,
    (namespace, name): (&str, &str),
    serves: impl Fn(&Served) -> bool,
    call: Call,
) -> Result<Asked, ReconcileError> {
    let span = span(namespace, name);
    ask_in(context, (namespace, name), |_| true, serves, call).instrument(span).await
}

/// The same of the host with this uid alone: one of the same name that was made later is not asked, and [`Asked::NoHost`] says so.
///
/// # Errors
/// As [`asked`].
pub async fn asked_of(
    context: &Context,
    (namespace, name, uid): (&str, &str, Option<&str>),
    serves: impl Fn(&Served) -> bool,
    call: Call,
) -> Result<Asked, ReconcileError> {
    let span = span(namespace, name);
    let is_meant = |host: &BareMetalHost| uid.is_some() && host.uid().as_deref() == uid;
    ask_in(context, (namespace, name), is_meant, serves, call).instrument(span).await
}

async fn ask_in(
    context: &Context,
    (namespace, name): (&str, &str),
    is_meant: impl Fn(&BareMetalHost) -> bool,
    serves: impl Fn(&Served) -> bool,
    call: Call,
) -> Result<Asked, ReconcileError> {
    if !is_name(name) {
        return Ok(Asked::NoHost);
    }
    context.begin().await;
    let found = Fetched::read(context, namespace, name).await?.filter(|found| is_meant(&found.host));
    let Some(found) = found else { return Ok(Asked::NoHost) };
    if let Some(why) = not_yet(&found.host, &call) {
        return Ok(why);
    }
    let uid = found.host.uid().unwrap_or_default();
    let Ok(_turn) = timeout(TURN_WITHIN, context.turns.of(&uid)).await else {
        let why = format!("the BMC of the host {name} is busy with another call: it is asked when that has ended");
        return Ok(Asked::Busy(why));
    };
    // Much may have happened while others had their turn.
    let Some(fetched) = Fetched::read(context, namespace, name).await? else { return Ok(Asked::NoHost) };
    if fetched.host.uid() != found.host.uid() {
        return Ok(Asked::NotYet(format!("the host {name} has just been made anew")));
    }
    if let Some(why) = not_yet(&fetched.host, &call) {
        return Ok(why);
    }
    match &fetched.choice {
        Err(failure) => return Ok(Asked::Failed(failure.clone())),
        Ok(provisioner) if !serves(&provisioner.capabilities(&fetched.facts)) => return Ok(Asked::Unserved),
        Ok(_) => {}
    }
    if !matches!(fetched.credentials, FoundCredentials::Present(_)) {
        let why = format!("the Secret with the BMC's user and password cannot be used: see the host {name}");
        return Ok(Asked::NotYet(why));
    }
    if !(context.settings.may_act)() {
        return Err(ReconcileError::NotLeading);
    }
    // Like a look at the power, it boots no agent.
    let answer = match work::prepare(context, &fetched, &Action::ReadPower).await {
        Ok(mut host) => match timeout(LONGEST_CALL, ask(host.as_mut(), call)).await {
            Ok(answer) => answer.map_err(NotDone::from),
            Err(_) => {
                context.machines.invalidate(&uid);
                let text = format!("ask the BMC: no end within {} minutes", LONGEST_CALL.as_secs() / 60);
                Err(Failure::new(Cause::BmcBusy, text).advise("look at the BMC; it is asked again").into())
            }
        },
        Err(not_done) => Err(not_done),
    };
    match answer {
        Ok(answer) => Ok(Asked::Answered(answer)),
        Err(NotDone::Blocked { message, .. }) => Ok(Asked::NotYet(message)),
        Err(NotDone::Unread(attempt, source)) => Err(ReconcileError::Api { attempt, source }),
        Err(NotDone::Failed(failure)) if failure.cause == Cause::NotLeading => Err(ReconcileError::NotLeading),
        Err(NotDone::Failed(failure)) => {
            if failure.cause == Cause::RecordUnreadable {
                context.machines.invalidate(&uid);
            }
            Ok(Asked::Failed(failure))
        }
    }
}

/// Why the host is not asked, if that can be told by itself.
fn not_yet(host: &Arc<BareMetalHost>, call: &Call) -> Option<Asked> {
    let name = host.name_any();
    let status = host.status.as_ref();
    if host.annotation(annotation::PAUSED).is_some() {
        return Some(Asked::NotYet(format!("the host {name} is paused (annotation {})", annotation::PAUSED)));
    }
    if status.is_some_and(|status| status.operational_status == OperationalStatus::Detached) {
        return Some(Asked::Detached);
    }
    if host.annotation(annotation::DETACHED).is_some() {
        let why = format!("the host {name} is about to be detached (annotation {})", annotation::DETACHED);
        return Some(Asked::NotYet(why));
    }
    // What was made for it may still end; its release ends what is left.
    if host.is_deleting() && matches!(call, Call::Subscribe(_) | Call::TestMedium(_)) {
        return Some(Asked::NotYet(format!("the host {name} is being deleted")));
    }
    // Why a host cannot be registered is what a diagnosis finds out.
    let registers = matches!(call, Call::Diagnose(_));
    if !registers && status.is_none_or(|status| status.provisioning.id.is_empty()) {
        return Some(Asked::Unregistered(format!("the host {name} is not registered yet")));
    }
    None
}

#[cfg(test)]
mod tests {
    use api::metal3::{BareMetalHostSpec, BareMetalHostStatus};
    use jiff::Timestamp;
    use provisioner::{Subscription, TestMediumRequest, Unsubscription};

    use super::*;

    #[test]
    fn a_host_that_leaves_is_asked_for_nothing_new_and_ends_what_there_is() {
        let mut status = BareMetalHostStatus::default();
        status.provisioning.id = "id".into();
        let mut host = BareMetalHost::new("h", BareMetalHostSpec::default());
        host.status = Some(status);
        let why = |host: &BareMetalHost, call: Call| match not_yet(&Arc::new(host.clone()), &call) {
            Some(Asked::NotYet(why)) => Some(why),
            Some(_) => panic!("another answer"),
            None => None,
        };
        let make = || Call::Subscribe(Subscription::default());
        let end = || Call::Unsubscribe(Unsubscription::default());
        assert_eq!((why(&host, make()), why(&host, end())), (None, None));
        let mut deleted = host.clone();
        deleted.metadata.deletion_timestamp = Some(api::Time(Timestamp::UNIX_EPOCH));
        assert!(why(&deleted, make()).is_some_and(|why| why.contains("being deleted")));
        let test = Call::TestMedium(TestMediumRequest::default());
        assert!(why(&deleted, test.clone()).is_some_and(|why| why.contains("being deleted")));
        assert_eq!(why(&host, test), None);
        assert_eq!(why(&deleted, end()), None);
        host.annotations_mut().insert(annotation::DETACHED.to_owned(), String::new());
        for call in [make(), end()] {
            assert!(why(&host, call).is_some_and(|why| why.contains("detached")));
        }
    }
}
