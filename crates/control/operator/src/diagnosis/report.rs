//! From a verdict to what objects hold: the HostDiagnosis' status, and the summary in the host's annotation. Pure.

use api::Time;
use api::metamorph::{
    DiagnosedCause, DiagnosedPart, DiagnosisPhase, HostDiagnosisSpec, HostDiagnosisStatus, UnreadSource,
};
use diagnosis::{Cause, Verdict};
use jiff::Timestamp;
use serde_json::{Value, json};

/// Longest summary, bytes.
const MAX_SUMMARY: usize = 4096;

/// The status, without what it is about and when. What was seen earlier of the same cause is kept from the status before.
pub fn status(
    verdict: &Verdict,
    before: &HostDiagnosisStatus,
    spec: &HostDiagnosisSpec,
    now: Timestamp,
) -> HostDiagnosisStatus {
    let cause = |cause: &Cause| {
        let earlier = before.causes.iter().find(|before| before.fingerprint == cause.fingerprint);
        let first = plausible(cause.first_seen).map(time);
        let first = [first, earlier.and_then(|earlier| earlier.first_seen.clone())]
            .into_iter()
            .flatten()
            .min_by_key(|time| time.0);
        let until =
            spec.acknowledged.iter().filter(|known| known.fingerprint == cause.fingerprint && known.until.0 > now);
        DiagnosedCause {
            code: cause.code.as_str().to_owned(),
            meaning: cause.code.meaning().to_owned(),
            rule: cause.rule.clone(),
            fixer: cause.fixer.as_str().to_owned(),
            certainty: cause.certainty.as_str().to_owned(),
            severity: cause.severity.as_str().to_owned(),
            background: cause.background,
            component: cause.component.as_ref().map(|part| DiagnosedPart {
                kind: format!("{:?}", part.kind),
                slot: part.slot.clone(),
                part_number: part.part_number.clone(),
                serial: part.serial.clone(),
            }),
            first_seen: first,
            last_seen: plausible(cause.last_seen).map(time),
            // The schema's integers are signed.
            count: u32::try_from(cause.count).unwrap_or(u32::MAX).min(u32::MAX >> 1),
            fingerprint: cause.fingerprint.clone(),
            evidence: cause.evidence.clone(),
            advice: cause.advice.clone(),
            acknowledged_until: until.map(|known| known.until.clone()).max_by_key(|time| time.0),
        }
    };
    HostDiagnosisStatus {
        phase: if verdict.first().is_some() { DiagnosisPhase::Found } else { DiagnosisPhase::NoCauseFound },
        message: terms::clean(&verdict.line(), 500),
        causes: verdict.causes.iter().map(cause).collect(),
        read: verdict.read.clone(),
        not_read: verdict
            .not_read
            .iter()
            .map(|one| UnreadSource { what: one.what.clone(), why: one.why.clone() })
            .collect(),
        bmc_calls: verdict.spent.calls,
        bytes: verdict.spent.bytes.min(u64::MAX >> 1),
        ..HostDiagnosisStatus::default()
    }
}

/// A time that an object can hold: a BMC may write one of any year, and the API takes those of four digits.
fn plausible(at: Option<Timestamp>) -> Option<Timestamp> {
    at.filter(|at| (0..253_402_300_800).contains(&at.as_second()))
}

fn time(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}

/// The summary for the host's annotation: JSON of at most [`MAX_SUMMARY`] bytes. `error` is the identity of the error that it is about.
pub fn summary(status: &HostDiagnosisStatus, name: &str, error: &str) -> String {
    let first = status.causes.first().filter(|first| !first.background);
    let others: Vec<&str> =
        status.causes.iter().skip(1).filter(|cause| !cause.background).map(|cause| cause.code.as_str()).collect();
    let mut summary = json!({
        "phase": status.phase,
        "message": terms::clean(&status.message, 300),
        "hostDiagnosis": name,
        "trigger": status.trigger,
        "error": error,
        "finishTime": status.finish_time,
    });
    if let (Some(first), Some(fields)) = (first, summary.as_object_mut()) {
        let advice = terms::clean(&first.advice, 200);
        fields.insert("code".into(), json!(first.code));
        fields.insert("fixer".into(), json!(first.fixer));
        fields.insert("certainty".into(), json!(first.certainty));
        fields.insert("component".into(), json!(first.component));
        fields.insert("advice".into(), json!(advice));
        fields.insert("fingerprint".into(), json!(first.fingerprint));
        fields.insert("others".into(), json!(others));
    }
    let text = summary.to_string();
    if text.len() <= MAX_SUMMARY {
        return text;
    }
    // Characters of several bytes: what is least is left out.
    let code = first.map_or(Value::Null, |first| json!(first.code));
    json!({ "phase": status.phase, "code": code, "hostDiagnosis": name, "trigger": status.trigger, "error": error })
        .to_string()
}

#[cfg(test)]
mod tests {
    use api::metamorph::Acknowledgement;
    use diagnosis::{Evidence, FailureFacts, FailureType, Part, PartKind, Reading, diagnose};

    use super::*;

    fn verdict(slot: &str) -> Verdict {
        let part = Part {
            kind: PartKind::Memory,
            slot: slot.to_owned(),
            health: Some(provisioner::HealthLevel::Critical),
            ..Part::default()
        };
        let failure = FailureFacts { kind: FailureType::Inspection, ..FailureFacts::default() };
        diagnose(&Evidence { failure: Some(failure), parts: Reading::Read(vec![part]), ..Evidence::default() })
    }

    #[test]
    fn what_was_seen_earlier_and_what_somebody_knows_of_is_kept_by_fingerprint() {
        let now: Timestamp = "2026-03-01T12:00:00Z".parse().unwrap();
        let first = status(&verdict("DIMM A1"), &HostDiagnosisStatus::default(), &HostDiagnosisSpec::default(), now);
        let mut before = first.clone();
        before.causes[0].first_seen = Some(Time("2026-02-01T00:00:00Z".parse().unwrap()));
        let known = |until: &str| HostDiagnosisSpec {
            acknowledged: vec![Acknowledgement {
                fingerprint: first.causes[0].fingerprint.clone(),
                until: Time(until.parse().unwrap()),
            }],
            ..HostDiagnosisSpec::default()
        };
        let again = status(&verdict("DIMM A1"), &before, &known("2026-03-02T00:00:00Z"), now);
        assert_eq!(again.causes[0].first_seen, before.causes[0].first_seen);
        assert!(again.causes[0].acknowledged_until.is_some());
        let over = status(&verdict("DIMM A1"), &before, &known("2026-02-02T00:00:00Z"), now);
        assert_eq!(over.causes[0].acknowledged_until, None, "its time is over");
        let another = status(&verdict("DIMM B1"), &before, &known("2026-03-02T00:00:00Z"), now);
        assert_eq!((&another.causes[0].first_seen, &another.causes[0].acknowledged_until), (&None, &None));
    }

    #[test]
    fn times_that_no_object_can_hold_are_left_out() {
        let mut verdict = verdict("DIMM A1");
        verdict.causes[0].first_seen = Some("-000123-01-01T00:00:00Z".parse().unwrap());
        verdict.causes[0].last_seen = Some("2026-03-01T12:00:00Z".parse().unwrap());
        let now = Timestamp::UNIX_EPOCH;
        let told = status(&verdict, &HostDiagnosisStatus::default(), &HostDiagnosisSpec::default(), now);
        assert_eq!(told.causes[0].first_seen, None);
        assert!(told.causes[0].last_seen.is_some());
    }

    #[test]
    fn a_summary_is_short_json_whatever_is_in_it() {
        let now = Timestamp::UNIX_EPOCH;
        let mut long = status(&verdict("DIMM A1"), &HostDiagnosisStatus::default(), &HostDiagnosisSpec::default(), now);
        let fields: Value = serde_json::from_str(&summary(&long, "h", "e")).unwrap();
        assert_eq!((&fields["code"], &fields["component"]["slot"]), (&json!("MemoryFailed"), &json!("DIMM A1")));
        long.causes[0].advice = "\u{1F525}".repeat(5000);
        long.message = "\u{1F525}\"".repeat(5000);
        if let Some(part) = &mut long.causes[0].component {
            part.serial = Some("\u{1F525}".repeat(2000));
        }
        let text = summary(&long, "h", "e");
        assert!(text.len() <= MAX_SUMMARY, "{}", text.len());
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["code"], "MemoryFailed");
        long.causes[0].background = true;
        assert_eq!(serde_json::from_str::<Value>(&summary(&long, "h", "e")).unwrap().get("code"), None);
    }
}
