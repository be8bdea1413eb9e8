//! What a test of what the BMC can read says: a request is proof, a refusal is what its words say, and silence is no proof of anything.

use diagnosis::{Certainty, Evidence, TestMedium, diagnose};
use serde_json::{Value, json};

use crate::kit::evidence;

fn of(test: &Value) -> Value {
    json!({ "ours": { "test": { "read": test } } })
}

/// The evidence of a host that is available and well, with this test.
fn at_rest(test: &Value) -> Evidence {
    let mut found = evidence("inspection", &of(test));
    let failure = found.failure.as_mut().unwrap();
    (failure.kind, failure.state, failure.message) = (diagnosis::FailureType::None, "available".into(), String::new());
    failure.cause = None;
    found
}

#[test]
fn a_test_answers_whether_the_host_fails_or_not() {
    let refused = |text: &str| json!({ "end": "refused", "server": "http://192.0.2.1:6180", "text": text });
    let rows = [
        (json!({ "end": "notRead", "seconds": 60 }), "MediumNeverRead", Certainty::Possible),
        (refused("400 Bad Request: Unable to mount: connection refused"), "MediaUnreachable", Certainty::Certain),
        (refused("Could not resolve host media.example"), "MediaUnreachable", Certainty::Certain),
        (refused("the SSL peer certificate was not OK"), "MediaCertificateRefused", Certainty::Certain),
        (refused("a license is required"), "LicenseMissing", Certainty::Certain),
        (refused("500 Internal Server Error"), "MediaUnreachable", Certainty::Possible),
    ];
    for (test, code, certainty) in rows {
        for found in [at_rest(&test), evidence("inspection", &of(&test))] {
            let verdict = diagnose(&found);
            let told = verdict.causes.iter().find(|cause| cause.rule.starts_with("test.")).expect("it is told");
            assert_eq!((told.code.as_str(), told.certainty, told.background), (code, certainty, false), "{test}");
            assert!(verdict.read.contains(&"test medium".to_owned()));
        }
        let first = diagnose(&at_rest(&test)).first().map(|cause| cause.code.as_str());
        assert_eq!(first, Some(code), "nothing else is wrong with it");
    }
}

#[test]
fn what_was_read_is_no_fault_and_what_was_not_tested_is_not_mentioned() {
    let read = json!({ "end": "read", "server": "http://192.0.2.1:6180", "from": "192.0.2.7", "requests": 3, "bytes": 4096, "seconds": 2 });
    let broken = json!({ "end": "refused", "requests": 3, "text": "the certificate of nobody" });
    for test in [&read, &broken, &json!({ "end": "teleported" })] {
        let verdict = diagnose(&at_rest(test));
        assert!(verdict.causes.iter().all(|cause| !cause.rule.starts_with("test.")), "{test}: {verdict:?}");
    }
    let untested = diagnose(&evidence("inspection", &json!({})));
    let names =
        untested.not_read.iter().map(|unread| unread.what.as_str()).chain(untested.read.iter().map(String::as_str));
    assert!(names.clone().count() > 5 && names.clone().all(|name| name != "test medium"));
    let told: TestMedium = serde_json::from_value(read).unwrap();
    let said = told.sentence();
    assert!(said.contains("192.0.2.7") && said.contains("4096 bytes") && said.contains("after 2 s"), "{said}");
    let silent = TestMedium { end: diagnosis::TestEnd::NotRead, seconds: 60, ..TestMedium::default() };
    assert!(silent.sentence().contains("may not reach it, or reads a medium only when"), "{}", silent.sentence());
}
