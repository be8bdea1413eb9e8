//! Whether what a HostDiagnosis says is of the host as it is now.

use api::metal3::BareMetalHost;
use api::metamorph::HostDiagnosisStatus;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::times;

/// How long a diagnosis that was asked for tells of a host that shows nothing else, seconds.
const RECENT: u64 = 3600;

/// The condition that says that the machine has a fault.
pub fn unhealthy(host: &BareMetalHost) -> Option<&Condition> {
    let conditions = &host.status.as_ref()?.conditions;
    conditions.iter().find(|condition| condition.type_ == "Healthy" && condition.status == "False")
}

/// Whether its state has lasted longer than its budget, by this machine's clock.
pub fn is_late(host: &BareMetalHost, now: Timestamp) -> bool {
    host_lifecycle::spent(host).is_some_and(|(since, budget)| times::seconds(since, now) >= budget.as_secs())
}

/// Whether the diagnosis is not of an earlier error, or of a fault that is gone.
pub fn is_of_now(host: &BareMetalHost, found: &HostDiagnosisStatus, now: Timestamp) -> bool {
    let Some(status) = &host.status else { return false };
    match status.error_type {
        Some(error) => found.error_type.as_deref() == Some(error.as_str()),
        None if found.error_type.as_deref().is_some_and(|error| !error.is_empty()) => false,
        None => match found.trigger.as_str() {
            "Fault" => unhealthy(host).is_some(),
            "TimeBudget" => is_late(host, now),
            _ => true,
        },
    }
}

/// Whether its advice is what to do next. Of a host without an error, what is wrong with its machine, or keeps it so long in its state, counts as long as it
/// does, and what somebody has asked for as long, or for a while.
pub fn advises(host: &BareMetalHost, found: &HostDiagnosisStatus, now: Timestamp) -> bool {
    let is_recent = || found.finish_time.as_ref().is_some_and(|at| times::seconds(at.0, now) < RECENT);
    let has_error = host.status.as_ref().is_some_and(|status| status.error_type.is_some());
    is_of_now(host, found, now) && (has_error || unhealthy(host).is_some() || is_late(host, now) || is_recent())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn host(error: Option<&str>, healthy: &str) -> BareMetalHost {
        let condition = json!({ "type": "Healthy", "status": healthy, "reason": "Disk", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z" });
        let status = json!({ "provisioning": { "ID": "", "state": "provisioned", "image": { "url": "" } }, "poweredOn": true,
            "errorMessage": "", "errorCount": 0, "operationalStatus": "OK", "triedCredentials": {}, "goodCredentials": {},
            "operationHistory": {}, "conditions": [condition] });
        let mut host: BareMetalHost =
            serde_json::from_value(json!({ "metadata": { "name": "a" }, "spec": {}, "status": status })).unwrap();
        if let (Some(status), Some(error)) = (host.status.as_mut(), error) {
            status.error_type = serde_json::from_value(json!(error)).unwrap();
        }
        host
    }

    fn found(trigger: &str, error: Option<&str>, minutes_ago: i64) -> (HostDiagnosisStatus, Timestamp) {
        let now: Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
        let status = HostDiagnosisStatus {
            trigger: trigger.to_owned(),
            error_type: error.map(str::to_owned),
            finish_time: Some(api::Time(now - jiff::SignedDuration::from_mins(minutes_ago))),
            ..HostDiagnosisStatus::default()
        };
        (status, now)
    }

    #[test]
    fn advice_counts_as_long_as_what_it_is_about() {
        let (ill, well, failed) =
            (host(None, "False"), host(None, "True"), host(Some("power management error"), "True"));
        for (host, trigger, error, minutes_ago, expected) in [
            (&ill, "Fault", None, 6000, true),
            (&well, "Fault", None, 1, false),
            // What was asked for does not take the advice on a fault away, and tells of a host without one for an hour.
            (&ill, "Request", None, 6000, true),
            (&well, "Request", None, 59, true),
            (&well, "Request", None, 61, false),
            (&well, "Request", Some("power management error"), 1, false),
            (&failed, "Error", Some("power management error"), 6000, true),
            (&failed, "Error", Some("inspection error"), 1, false),
            (&failed, "Request", None, 1, false),
        ] {
            let (found, now) = found(trigger, error, minutes_ago);
            assert_eq!(advises(host, &found, now), expected, "{trigger} {error:?} {minutes_ago}");
        }
    }
}
