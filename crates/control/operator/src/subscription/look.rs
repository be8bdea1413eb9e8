//! One look at a subscription: is it there, or has it ended, and what keeps it from that.

use std::sync::Arc;
use std::time::Duration;

use api::metal3::{BMCEventSubscription, BmcEventSubscriptionStatus, finalizer};
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::controller::Action;
use kube::{Api, Resource as _, ResourceExt as _};
use provisioner::{Answer, Call, Failure, Retry, Subscription, Unsubscription, Verdict};
use serde_json::json;

use super::{All, headers};
use crate::events::Said;
use crate::host::asked::{Asked, asked};
use crate::host::{LookError, ReconcileError};

/// How soon the BMC is asked whether it still has the subscription.
const LOOK: Duration = Duration::from_secs(600);
/// How soon something that failed is tried again.
const AGAIN: Duration = Duration::from_secs(60);
/// How soon a host is asked again that was busy.
const BUSY: Duration = Duration::from_secs(15);
/// Longest `status.error`, in bytes.
const MAX_ERROR: usize = 1024;
/// Longest destination and context, in bytes.
const MAX_TEXT: usize = 2048;

/// What a look has found.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    /// The subscription with this id is there.
    There(String),
    /// It has ended, or never was.
    Ended,
    /// Why not, and when to look again.
    Not(String, Duration),
    /// The host's BMC is busy with another call, a sentence.
    Busy(String),
}

/// Looks at the subscription.
pub async fn look(seen: Arc<BMCEventSubscription>, all: Arc<All>) -> Result<Action, LookError> {
    if all.unreadable.hold(seen.as_ref()) {
        return Ok(Action::await_change());
    }
    if !(all.host.settings.may_act)() {
        return Err(ReconcileError::NotLeading.into());
    }
    let api: Api<BMCEventSubscription> =
        Api::namespaced(all.host.client.clone(), &seen.namespace().unwrap_or_default());
    // The watch may be stale, and a subscription on a BMC is not undone by itself.
    let read = api.get_opt(&seen.name_any()).await.map_err(LookError::of("read the BMCEventSubscription"))?;
    let Some(subscription) = read else { return Ok(Action::await_change()) };
    let held = subscription.finalizers().iter().any(|held| held == finalizer::EVENT_SUBSCRIPTION);
    if subscription.metadata.deletion_timestamp.is_some() {
        return if held { end(&all, &api, subscription).await } else { Ok(Action::await_change()) };
    }
    let subscription = if held { subscription } else { hold(&api, &subscription).await? };
    let found = subscribe(&all, &subscription).await?;
    let mut status = subscription.status.clone().unwrap_or_default();
    let after = match found {
        Found::There(id) => {
            let before = std::mem::replace(&mut status.subscription_id, id);
            if !before.is_empty() && before != status.subscription_id {
                let note = format!(
                    "The BMC had lost the subscription {before}, as after a restart or a reset to its factory settings; it is made anew"
                );
                say(&all, &subscription, "SubscriptionRenewed", note).await;
            }
            status.error.clear();
            LOOK
        }
        Found::Ended => LOOK,
        Found::Busy(why) => {
            // It says nothing of a subscription that is there.
            if status.subscription_id.is_empty() && status.error.is_empty() {
                status.error = why;
            }
            BUSY
        }
        Found::Not(why, after) => {
            status.error = clip(&why);
            after
        }
    };
    put(&all, &api, subscription, status).await?;
    Ok(Action::requeue(after))
}

/// Has it made, or finds it there.
async fn subscribe(all: &All, subscription: &BMCEventSubscription) -> Result<Found, LookError> {
    let spec = &subscription.spec;
    if spec.host_name.is_empty() || spec.destination.is_empty() {
        let why = "spec.hostName and spec.destination must both be set — delete it, and create another";
        return Ok(Found::Not(why.to_owned(), LOOK));
    }
    if spec.destination.len() > MAX_TEXT || spec.context.len() > MAX_TEXT {
        let why = format!("spec.destination and spec.context have at most {MAX_TEXT} bytes");
        return Ok(Found::Not(why, LOOK));
    }
    let read = headers::read(&all.host, subscription).await;
    let headers = match read.map_err(LookError::of("read the Secret with the HTTP headers"))? {
        Ok(headers) => headers,
        Err(why) => return Ok(Found::Not(why, AGAIN)),
    };
    let call = Call::Subscribe(Subscription {
        identity: subscription.uid().unwrap_or_default(),
        destination: spec.destination.clone(),
        context: spec.context.clone(),
        headers,
    });
    let asked = ask(all, subscription, call).await?;
    Ok(match asked {
        Asked::NoHost => Found::Not(
            format!("the BareMetalHost {} does not exist — create it, or delete this subscription", spec.host_name),
            LOOK,
        ),
        Asked::Detached => Found::Not(format!("the host {} is detached: its BMC is not called", spec.host_name), LOOK),
        Asked::Unserved => Found::Not(
            "the provisioner of this host has no BMC send its events — delete this subscription".to_owned(),
            LOOK,
        ),
        Asked::NotYet(why) | Asked::Unregistered(why) => Found::Not(why, AGAIN),
        Asked::Busy(why) => Found::Busy(why),
        Asked::Answered(Verdict::Done(Answer::Subscribed(id))) => Found::There(id),
        Asked::Answered(other) => not_done(other),
        Asked::Failed(failure) => failed(&failure),
    })
}

/// Ends it, and lets its object go.
async fn end(
    all: &All,
    api: &Api<BMCEventSubscription>,
    subscription: BMCEventSubscription,
) -> Result<Action, LookError> {
    let id = subscription.status.as_ref().map(|status| status.subscription_id.clone()).unwrap_or_default();
    let call = Call::Unsubscribe(Unsubscription {
        id: id.clone(),
        identity: subscription.uid().unwrap_or_default(),
        destination: subscription.spec.destination.clone(),
    });
    let found = match ask(all, &subscription, call).await? {
        Asked::NoHost | Asked::Detached | Asked::Unserved | Asked::Unregistered(_) if id.is_empty() => Found::Ended,
        Asked::NoHost => {
            let note = format!(
                "The subscription {id} may be left on the BMC of the host {}, which is gone: its deletion ends it, unless the BMC could not be reached then",
                subscription.spec.host_name
            );
            say(all, &subscription, "SubscriptionLeft", note).await;
            Found::Ended
        }
        Asked::Detached | Asked::Unserved => {
            let note = format!(
                "The subscription {id} is left on the BMC of the host {}, which is not called for it any more",
                subscription.spec.host_name
            );
            say(all, &subscription, "SubscriptionLeft", note).await;
            Found::Ended
        }
        Asked::NotYet(why) | Asked::Unregistered(why) => Found::Not(format!("it cannot be ended yet: {why}"), AGAIN),
        Asked::Busy(why) => Found::Busy(why),
        Asked::Answered(Verdict::Done(Answer::Done)) => Found::Ended,
        Asked::Answered(other) => not_done(other),
        Asked::Failed(failure) => failed(&failure),
    };
    let (why, after) = match found {
        Found::There(_) | Found::Ended => {
            release(api, &subscription).await?;
            return Ok(Action::await_change());
        }
        Found::Busy(why) => (format!("it cannot be ended yet: {why}"), BUSY),
        Found::Not(why, after) => (why, after),
    };
    let mut status = subscription.status.clone().unwrap_or_default();
    status.error = clip(&why);
    put(all, api, subscription, status).await?;
    Ok(Action::requeue(after.min(AGAIN)))
}

async fn ask(all: &All, subscription: &BMCEventSubscription, call: Call) -> Result<Asked, LookError> {
    let namespace = subscription.namespace().unwrap_or_default();
    let name = subscription.spec.host_name.as_str();
    if name.is_empty() {
        return Ok(Asked::NoHost);
    }
    Ok(asked(&all.host, (&namespace, name), |served| served.events, call).await?)
}

fn not_done(verdict: Verdict<Answer>) -> Found {
    match verdict {
        Verdict::Done(_) => Found::Not("the provisioner answers what was not asked".to_owned(), AGAIN),
        Verdict::Working(working) => Found::Not(
            "the BMC has not answered yet".to_owned(),
            working.look_again.clamp(Duration::from_secs(1), AGAIN),
        ),
        Verdict::Waiting(_) => Found::Not("the host's provisioner is busy, or registers the machine".to_owned(), AGAIN),
    }
}

fn failed(failure: &Failure) -> Found {
    Found::Not(failure.text(), if failure.retry == Retry::AfterChange { LOOK } else { AGAIN })
}

fn clip(text: &str) -> String {
    text.get(..text.floor_char_boundary(MAX_ERROR)).unwrap_or_default().to_owned()
}

/// Puts the finalizer on the version that was read.
async fn hold(
    api: &Api<BMCEventSubscription>,
    subscription: &BMCEventSubscription,
) -> Result<BMCEventSubscription, LookError> {
    let mut finalizers = subscription.finalizers().to_vec();
    finalizers.push(finalizer::EVENT_SUBSCRIPTION.to_owned());
    set_finalizers(api, subscription, &finalizers).await
}

async fn release(api: &Api<BMCEventSubscription>, subscription: &BMCEventSubscription) -> Result<(), LookError> {
    let rest = subscription.finalizers().iter().filter(|held| *held != finalizer::EVENT_SUBSCRIPTION);
    let rest: Vec<String> = rest.cloned().collect();
    set_finalizers(api, subscription, &rest).await.map(|_| ())
}

async fn set_finalizers(
    api: &Api<BMCEventSubscription>,
    subscription: &BMCEventSubscription,
    finalizers: &[String],
) -> Result<BMCEventSubscription, LookError> {
    let meta = &subscription.metadata;
    let change =
        json!({ "metadata": { "uid": meta.uid, "resourceVersion": meta.resource_version, "finalizers": finalizers } });
    let patched = api.patch(&subscription.name_any(), &PatchParams::default(), &Patch::Merge(change)).await;
    patched.map_err(LookError::of("write the BMCEventSubscription's finalizer"))
}

/// Writes the status of the version that was read, if it is another.
async fn put(
    all: &All,
    api: &Api<BMCEventSubscription>,
    subscription: BMCEventSubscription,
    status: BmcEventSubscriptionStatus,
) -> Result<(), LookError> {
    if subscription.status.as_ref() == Some(&status) {
        return Ok(());
    }
    let before = subscription.status.as_ref().map(|before| before.error.as_str()).unwrap_or_default();
    if !status.error.is_empty() && status.error != before {
        say(all, &subscription, "SubscriptionError", status.error.clone()).await;
    }
    let name = subscription.name_any();
    let object = BMCEventSubscription { status: Some(status), ..subscription };
    let put = api.replace_status(&name, &PostParams::default(), &object).await;
    put.map_err(LookError::of("write the status of the BMCEventSubscription")).map(|_| ())
}

async fn say(all: &All, subscription: &BMCEventSubscription, reason: &str, note: String) {
    let said = Said { reason: reason.to_owned(), note, warning: true };
    if let Err(error) = all.host.recorder.publish(&said, &subscription.object_ref(&())).await {
        tracing::warn!(subscription = %subscription.name_any(), reason, %error, "publish an Event");
    }
}
