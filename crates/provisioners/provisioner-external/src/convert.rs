//! Between the messages and the contract's types. Pure. What a worker says is cleaned and bounded here; what the server says is a peer's, too, and is
//! checked by whoever reads it.

use std::time::Duration;

use jiff::Timestamp;
use provisioner::{
    Asked, BmcAccess, Cause, Failure, ObjectKey, Outcome, Purpose, RecordContent, RecordError, Recorded, Retry,
    Verdict, Waiting, Working,
};
use secrecy::ExposeSecret;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::limits::{MAX_CAPABILITIES, MAX_CAPABILITY_VALUES, MAX_TEXT, MAX_VALUES, look_again, tame};
use crate::wire::v1;
use terms::clean;

/// A document of the other side that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("read {what}: {why}")]
pub struct Unreadable {
    /// What was to be read.
    pub what: &'static str,
    /// Why it cannot be.
    pub why: String,
}

/// The JSON of a value of the contract.
pub fn document<T: Serialize>(value: &T) -> Vec<u8> {
    // What the contract has serialises: its tests go through all of it.
    serde_json::to_vec(value).unwrap_or_default()
}

/// A value of the contract.
///
/// # Errors
/// When it is none.
pub fn read<T: DeserializeOwned>(what: &'static str, text: &[u8]) -> Result<T, Unreadable> {
    // What a document has in it may be secret: of what is wrong, the place is said.
    serde_json::from_slice(text).map_err(|error| {
        let why = format!(
            "line {}, column {}: it is not what the contract has ({:?})",
            error.line(),
            error.column(),
            error.classify()
        );
        Unreadable { what, why }
    })
}

/// A value of the contract that ends in objects and on terminals, by a worker's word: its texts are made fit for them.
///
/// # Errors
/// When it is none, or has too many values.
pub fn read_tamed<T: DeserializeOwned>(what: &'static str, text: &[u8]) -> Result<T, Unreadable> {
    read_bounded(what, text, MAX_VALUES)
}

fn read_bounded<T: DeserializeOwned>(what: &'static str, text: &[u8], most: usize) -> Result<T, Unreadable> {
    let mut value: Value = read(what, text)?;
    if !tame(&mut value, most) {
        return Err(Unreadable {
            what,
            why: "it has too many values, too long a text, or a name that is none".to_owned(),
        });
    }
    serde_json::from_value(value).map_err(|_| Unreadable { what, why: "it is not what the contract has".to_owned() })
}

/// What a worker says that it can do. It is kept for each of its hosts, and shown to people.
///
/// # Errors
/// When it is not that, is too long, or has too many values.
pub fn capabilities<T: DeserializeOwned>(text: &[u8]) -> Result<T, Unreadable> {
    let what = "its capabilities";
    if text.len() > MAX_CAPABILITIES {
        return Err(Unreadable { what, why: format!("it is longer than {MAX_CAPABILITIES} bytes") });
    }
    read_bounded(what, text, MAX_CAPABILITY_VALUES)
}

/// An object.
pub fn key(key: &ObjectKey) -> v1::HostKey {
    v1::HostKey { namespace: key.namespace.clone(), name: key.name.clone(), uid: key.uid.clone() }
}

/// An object, as it was read.
pub fn key_read(key: v1::HostKey) -> ObjectKey {
    ObjectKey { namespace: key.namespace, name: key.name, uid: key.uid }
}

/// A call's name and request.
pub fn call<C: Asked + Serialize>(call: &C) -> (String, Vec<u8>) {
    let value = serde_json::to_value(call).unwrap_or_default();
    (call.name().to_owned(), value.get("request").map(document).unwrap_or_default())
}

/// Access to a BMC.
pub fn access(bmc: &BmcAccess) -> v1::BmcAccess {
    v1::BmcAccess {
        address: bmc.address.clone(),
        username: bmc.username.clone(),
        password: bmc.password.expose_secret().to_owned(),
        disable_certificate_verification: bmc.disable_certificate_verification,
    }
}

/// Access to a BMC, as it was read.
pub fn access_read(bmc: v1::BmcAccess) -> BmcAccess {
    BmcAccess {
        address: bmc.address,
        username: bmc.username,
        password: bmc.password.into(),
        disable_certificate_verification: bmc.disable_certificate_verification,
    }
}

/// What is recorded.
pub fn recorded(recorded: &Recorded) -> v1::Recorded {
    v1::Recorded { revision: recorded.revision, content: recorded.content.as_ref().map(content) }
}

/// What is recorded, as it was read.
///
/// # Errors
/// When the data is no JSON.
pub fn recorded_read(recorded: v1::Recorded) -> Result<Recorded, Unreadable> {
    let content = recorded.content.map(content_read).transpose()?;
    Ok(Recorded { revision: recorded.revision, content, earlier: Vec::new() })
}

/// What is to be recorded.
pub fn content(content: &RecordContent) -> v1::RecordContent {
    v1::RecordContent {
        provisioner: content.provisioner.clone(),
        version: content.version,
        data: document(&content.data),
    }
}

/// What is to be recorded, as it was read.
///
/// # Errors
/// When the data is no JSON.
pub fn content_read(content: v1::RecordContent) -> Result<RecordContent, Unreadable> {
    let data = read("the data of a record", &content.data)?;
    Ok(RecordContent { provisioner: content.provisioner, version: content.version, data })
}

/// What a write is for.
pub const fn purpose(purpose: Purpose) -> v1::Purpose {
    match purpose {
        Purpose::Intent => v1::Purpose::Intent,
        Purpose::Note => v1::Purpose::Note,
    }
}

/// Why something could not be recorded.
pub fn record_error(error: &RecordError) -> v1::RecordError {
    v1::RecordError { what: error.what.clone(), why: error.why.clone(), not_leading: error.not_leading }
}

/// The same, as it was read.
pub fn record_error_read(error: v1::RecordError) -> RecordError {
    RecordError { what: error.what, why: error.why, not_leading: error.not_leading }
}

/// The time.
pub fn time(at: Timestamp) -> prost_types::Timestamp {
    let nanos = at.as_nanosecond().rem_euclid(1_000_000_000);
    let seconds = at.as_nanosecond().div_euclid(1_000_000_000);
    prost_types::Timestamp {
        seconds: i64::try_from(seconds).unwrap_or_default(),
        nanos: i32::try_from(nanos).unwrap_or_default(),
    }
}

/// The time, as it was read.
pub fn time_read(at: prost_types::Timestamp) -> Option<Timestamp> {
    Timestamp::new(at.seconds, at.nanos).ok()
}

/// A span of time.
pub fn span(span: Duration) -> prost_types::Duration {
    let nanos = i32::try_from(span.subsec_nanos()).unwrap_or_default();
    prost_types::Duration { seconds: i64::try_from(span.as_secs()).unwrap_or(i64::MAX), nanos }
}

/// A span of time, as it was read; `None` if it is negative.
pub fn span_read(span: Option<prost_types::Duration>) -> Option<Duration> {
    let span = span?;
    let (seconds, nanos) = (u64::try_from(span.seconds).ok()?, u32::try_from(span.nanos).ok()?);
    Some(Duration::from_secs(seconds).saturating_add(Duration::from_nanos(u64::from(nanos))))
}

/// How a call ended.
pub fn verdict<A: Serialize>(outcome: &Outcome<A>) -> v1::Verdict {
    use v1::verdict::Verdict as V;
    let verdict = match outcome {
        Ok(Verdict::Done(answer)) => {
            let value = serde_json::to_value(answer).unwrap_or_default();
            let name = value.get("answer").and_then(Value::as_str).unwrap_or_default().to_owned();
            V::Done(v1::Done { answer: name, value: value.get("value").map(document).unwrap_or_default() })
        }
        Ok(Verdict::Working(working)) => V::Working(v1::Working {
            step: working.step.clone(),
            percent: working.percent.map(u32::from),
            bytes: working.bytes,
            accepted: working.accepted,
            look_again: Some(span(working.look_again)),
        }),
        Ok(Verdict::Waiting(Waiting::Busy { reason, look_again })) => {
            V::Busy(v1::Busy { reason: reason.clone(), look_again: Some(span(*look_again)) })
        }
        Ok(Verdict::Waiting(Waiting::Registration { reason })) => {
            V::RegistrationNeeded(v1::RegistrationNeeded { reason: reason.clone() })
        }
        Ok(Verdict::Waiting(Waiting::AgentImage { formats })) => {
            let name =
                |format| serde_json::to_value(format).ok().and_then(|value| value.as_str().map(ToOwned::to_owned));
            V::AgentImageNeeded(v1::AgentImageNeeded { formats: formats.iter().filter_map(name).collect() })
        }
        Err(failure) => V::Failure(failed(failure)),
    };
    v1::Verdict { verdict: Some(verdict) }
}

/// How a call ended, as a worker says it.
///
/// # Errors
/// When it is no verdict: the call has none then, and is made again.
pub fn verdict_read<A: DeserializeOwned>(verdict: v1::Verdict) -> Result<Outcome<A>, Unreadable> {
    use v1::verdict::Verdict as V;
    let what = "a verdict";
    let text = |text: &str| clean(text, MAX_TEXT);
    Ok(Ok(match verdict.verdict {
        None => return Err(Unreadable { what, why: "there is none in it that this version knows".to_owned() }),
        Some(V::Done(done)) => Verdict::Done(answer_read(&done)?),
        Some(V::Working(working)) => Verdict::Working(Working {
            step: text(&working.step),
            percent: working.percent.map(|percent| u8::try_from(percent.min(100)).unwrap_or(100)),
            bytes: working.bytes,
            accepted: working.accepted,
            look_again: look_again(span_read(working.look_again)),
        }),
        Some(V::Busy(busy)) => Verdict::Waiting(Waiting::Busy {
            reason: text(&busy.reason),
            look_again: look_again(span_read(busy.look_again)),
        }),
        Some(V::RegistrationNeeded(needed)) => Verdict::Waiting(Waiting::Registration { reason: text(&needed.reason) }),
        Some(V::AgentImageNeeded(needed)) => {
            let formats = needed.formats.into_iter().take(8).map(Value::String).collect();
            let formats = serde_json::from_value(Value::Array(formats));
            let formats = formats
                .map_err(|_| Unreadable { what, why: "it names a form of boot image that there is not".to_owned() })?;
            Verdict::Waiting(Waiting::AgentImage { formats })
        }
        Some(V::Failure(failure)) => return Ok(Err(failed_read(failure))),
    }))
}

fn answer_read<A: DeserializeOwned>(done: &v1::Done) -> Result<A, Unreadable> {
    let what = "an answer";
    let value: Value = if done.value.is_empty() { Value::Null } else { read_tamed(what, &done.value)? };
    let unknown = |_| Unreadable {
        what,
        why: format!("{:?} with this value is none that this version knows", clean(&done.answer, 64)),
    };
    let answer = if done.value.is_empty() {
        json!({ "answer": done.answer })
    } else {
        json!({ "answer": done.answer, "value": value })
    };
    serde_json::from_value(answer).map_err(unknown)
}

fn failed(failure: &Failure) -> v1::Failure {
    let retry = match failure.retry {
        Retry::Later => v1::Retry::Later,
        Retry::AfterChange => v1::Retry::AfterChange,
        Retry::Waiting => v1::Retry::Waiting,
        Retry::Held => v1::Retry::Held,
        Retry::AnotherMachine => v1::Retry::AnotherMachine,
        Retry::Unknown => v1::Retry::Unknown,
    };
    v1::Failure {
        cause: failure.cause.as_str().to_owned(),
        component: failure.component.clone(),
        message: failure.message.clone(),
        advice: failure.advice.clone(),
        retry: retry.into(),
    }
}

fn failed_read(failure: v1::Failure) -> Failure {
    let retry = match failure.retry() {
        v1::Retry::Unspecified | v1::Retry::Later => Retry::Later,
        v1::Retry::AfterChange => Retry::AfterChange,
        v1::Retry::Waiting => Retry::Waiting,
        v1::Retry::Held => Retry::Held,
        v1::Retry::AnotherMachine => Retry::AnotherMachine,
        v1::Retry::Unknown => Retry::Unknown,
    };
    let text = |text: String| Some(clean(&text, MAX_TEXT)).filter(|text| !text.is_empty());
    Failure {
        cause: Cause::named(&failure.cause),
        component: failure.component.and_then(text),
        message: text(failure.message)
            .unwrap_or_else(|| "the provisioner says that it failed, and not at what".to_owned()),
        advice: failure.advice.and_then(text),
        retry,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use provisioner::{Answer, Call, HealthState, HostKey, PowerWish, Registered};

    #[test]
    fn verdicts_are_the_same_after_their_way() {
        let busy = Waiting::Busy { reason: "no room".into(), look_again: Duration::from_secs(7) };
        let formats = serde_json::from_value(json!(["iso", "initrd"])).unwrap();
        let mut held = Failure::new(Cause::AnotherMachine, "look: it is another").of("PSU 2").advise("see");
        held.retry = Retry::Held;
        for outcome in [
            Ok(Verdict::Done(Answer::Done)),
            Ok(Verdict::Done(Answer::Power(None))),
            Ok(Verdict::Done(Answer::Power(Some(true)))),
            Ok(Verdict::Done(Answer::Registered(Registered { id: "x-1".into(), ..Registered::default() }))),
            Ok(Verdict::Done(Answer::Health(HealthState::default()))),
            Ok(Verdict::working("write", 9)),
            Ok(Verdict::Waiting(busy)),
            Ok(Verdict::Waiting(Waiting::Registration { reason: "lost".into() })),
            Ok(Verdict::Waiting(Waiting::AgentImage { formats })),
            Err(held),
        ] {
            assert_eq!(verdict_read(verdict(&outcome)), Ok(outcome));
        }
    }

    #[test]
    fn what_is_no_verdict_is_told_from_a_failure() {
        assert!(verdict_read::<Answer>(v1::Verdict { verdict: None }).is_err());
        for (answer, value) in [("levitated", ""), ("power", "\"maybe\""), ("power", "{"), ("registered", "")] {
            let done = v1::Done { answer: answer.into(), value: value.into() };
            let found = verdict_read::<Answer>(v1::Verdict { verdict: Some(v1::verdict::Verdict::Done(done)) });
            assert!(found.is_err(), "{answer} {value}: {found:?}");
        }
        let failure =
            v1::Failure { cause: "FluxCapacitor".into(), message: "a\nb".into(), retry: 77, ..Default::default() };
        let found = verdict_read::<Answer>(v1::Verdict { verdict: Some(v1::verdict::Verdict::Failure(failure)) })
            .unwrap()
            .unwrap_err();
        assert_eq!((found.cause, found.message.as_str(), found.retry), (Cause::Other, "a b", Retry::Later));
    }

    #[test]
    fn a_document_that_cannot_be_read_is_not_shown() {
        let error = read::<HostKey>("a host", b"{\"namespace\": 7, \"secret\": \"hidden\"}").unwrap_err();
        assert!(!error.to_string().contains("hidden"), "{error}");
    }

    #[test]
    fn calls_have_their_names_and_requests() {
        assert_eq!(call(&Call::PowerState), ("powerState".into(), Vec::new()));
        let (name, request) = call(&Call::SetPower(PowerWish::On.into()));
        assert_eq!(name, "setPower");
        assert!(serde_json::from_slice::<Value>(&request).unwrap().is_object());
        let before = Timestamp::new(-3, -500).unwrap();
        assert_eq!(time_read(time(before)), Some(before));
    }
}
