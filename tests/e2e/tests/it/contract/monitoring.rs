//! What `deploy/monitoring` has for Prometheus and Grafana: its rules are what Prometheus takes, and nothing asks for a metric that no server has.

use std::collections::BTreeSet;
use std::path::PathBuf;

use e2e::tool;
use serde_json::Value;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy/monitoring")
}

/// Names of metrics in an expression, of the families that a server has.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let ours = words.filter(|word| ["metamorph_", "metal3_", "process_"].iter().any(|of| word.starts_with(of)));
    ours.map(|word| word.strip_suffix("_bucket").unwrap_or(word).to_owned()).collect()
}

/// Alerts and dashboard ask for metrics of this text alone.
pub fn asks_for_what_there_is(metrics: &str) {
    let read = |name: &str| std::fs::read_to_string(folder().join(name)).unwrap();
    let rules = read("alerts.yaml");
    let asked = rules.lines().filter(|line| !line.contains("summary:") && !line.contains("description:"));
    let mut all: BTreeSet<String> = asked.flat_map(names).collect();
    let dashboard: Value = serde_json::from_str(&read("dashboard.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets: Vec<&Value> = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap()).collect();
    for target in &targets {
        let names = names(target["expr"].as_str().unwrap());
        assert!(!names.is_empty(), "{target}");
        all.extend(names);
    }
    assert!(panels.len() >= 20 && all.len() >= 18, "{all:?}");
    for name in all {
        assert!(metrics.contains(&format!("# TYPE {name} ")), "{name} is in no metric\n{metrics}");
    }
}

#[test]
fn alerts_are_what_prometheus_takes_and_fire_when_they_should() {
    let of = |name: &str| folder().join(name).display().to_string();
    let checked = tool("promtool", &["check", "rules", &of("alerts.yaml")]).unwrap();
    assert!(checked.contains("9 rules found"), "{checked}");
    tool("promtool", &["test", "rules", &of("alerts-test.yaml")]).unwrap();
    // Each is tested: where it fires, and where it does not.
    let (rules, tests) = (of("alerts.yaml"), std::fs::read_to_string(of("alerts-test.yaml")).unwrap());
    let rules = std::fs::read_to_string(rules).unwrap();
    let alerts: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert_eq!(alerts.len(), 9);
    for alert in alerts {
        assert!(tests.matches(alert).count() >= 2, "{alert}");
    }
}
