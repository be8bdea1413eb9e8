//! What another controller may ask of a host's provisioner.

use std::sync::Arc;

use api::metal3::{BareMetalHost, OperationalStatus, annotation};
use host_lifecycle::{Action, Served};
use kube::ResourceExt as _;
use provisioner::{Answer, Call, Cause, Failure, Verdict, ask};
use tokio::time::timeout;

use super::context::Context;
use super::error::ReconcileError;
use super::fetched::Fetched;
use super::secrets::FoundCredentials;
use super::work::{self, LONGEST_CALL, NotDone};

/// What became of the call.
pub enum Asked {
    /// There is no such host.
    NoHost,
    /// The host is let go: nobody calls its machine.
    Detached,
    /// It cannot be asked yet, a sentence.
    NotYet(String),
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
    context.begin().await;
    let Some(found) = Fetched::read(context, namespace, name).await? else { return Ok(Asked::NoHost) };
    if let Some(why) = not_yet(&found.host) {
        return Ok(why);
    }
    let uid = found.host.uid().unwrap_or_default();
    let _turn = context.turns.of(&uid).await;
    // Much may have happened while others had their turn.
    let Some(fetched) = Fetched::read(context, namespace, name).await? else { return Ok(Asked::NoHost) };
    if fetched.host.uid() != found.host.uid() {
        return Ok(Asked::NotYet(format!("the host {name} has just been made anew")));
    }
    if let Some(why) = not_yet(&fetched.host) {
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
fn not_yet(host: &Arc<BareMetalHost>) -> Option<Asked> {
    let name = host.name_any();
    let status = host.status.as_ref();
    if host.annotation(annotation::PAUSED).is_some() {
        return Some(Asked::NotYet(format!("the host {name} is paused (annotation {})", annotation::PAUSED)));
    }
    if status.is_some_and(|status| status.operational_status == OperationalStatus::Detached) {
        return Some(Asked::Detached);
    }
    if status.is_none_or(|status| status.provisioning.id.is_empty()) {
        return Some(Asked::NotYet(format!("the host {name} is not registered yet")));
    }
    None
}
