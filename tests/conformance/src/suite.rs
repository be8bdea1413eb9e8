//! Kubernetes' own end-to-end suite on both servers: exactly the listed specs must pass.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::target::Target;

/// Programs that run at once: the specs are dealt out to them.
const SHARDS: usize = 3;

/// The list of specs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listed {
    /// These pass on both servers.
    pub both: Vec<String>,
    /// These pass on kube-apiserver alone, each with the reason.
    pub reference_only: Vec<Excluded>,
}

/// One spec that the embedded server is not asked.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Excluded {
    /// The spec's whole name.
    pub spec: String,
    /// Why.
    pub reason: String,
}

impl Listed {
    /// Reads the list.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let listed: Self = serde_saphyr::from_str(&text).with_context(|| path.display().to_string())?;
        for excluded in &listed.reference_only {
            ensure!(!excluded.reason.is_empty(), "{} is excluded without a reason", excluded.spec);
        }
        Ok(listed)
    }

    /// The specs that must pass on the real server.
    pub fn reference(&self) -> Vec<&str> {
        let excluded = self.reference_only.iter().map(|e| e.spec.as_str());
        self.both.iter().map(String::as_str).chain(excluded).collect()
    }
}

/// Runs the specs on a server and prints those that do not pass; whether all do.
pub async fn run(target: &Target, bin: &Path, specs: &[&str]) -> Result<bool> {
    let folder = tempfile::tempdir()?;
    let mut shards = Vec::new();
    for shard in 0..SHARDS.min(specs.len()) {
        let mine: Vec<String> = specs.iter().skip(shard).step_by(SHARDS).map(|s| regex::escape(s)).collect();
        let report = folder.path().join(format!("report-{shard}.json"));
        let log = std::fs::File::create(folder.path().join(format!("log-{shard}")))?;
        let mut command = tokio::process::Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(bin.join("e2e.test"));
        command.args(["--provider=skeleton", "--allowed-not-ready-nodes=-1", "--num-nodes=0", "--minStartupPods=0"]);
        command.arg(format!("--kubeconfig={}", target.kubeconfig.display()));
        command.arg(format!("--kubectl-path={}", bin.join("kubectl").display()));
        command.args(["--ginkgo.no-color", "--ginkgo.timeout=20m"]);
        command.arg(format!("--ginkgo.focus=({})$", mine.join("|")));
        command.arg(format!("--ginkgo.json-report={}", report.display()));
        command.current_dir(folder.path()).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.kill_on_drop(true).spawn().context("start e2e.test")?;
        shards.push((child, report));
    }
    let mut states: BTreeMap<String, (String, String)> = BTreeMap::new();
    for (mut child, report) in shards {
        child.wait().await?;
        let text = std::fs::read_to_string(&report).context("e2e.test left no report")?;
        states.extend(read_report(&serde_json::from_str(&text)?));
    }
    let mut passed = 0;
    for spec in specs {
        match states.get(*spec) {
            Some((state, _)) if state == "passed" => passed += 1,
            Some((state, why)) => println!("✗ {spec}\n    {state}: {why}"),
            None => println!("✗ {spec}\n    was not run: no such spec"),
        }
    }
    println!("{}: {passed} of {} specs pass", target.name, specs.len());
    let extra: Vec<&String> = states.keys().filter(|n| !specs.contains(&n.as_str())).collect();
    for name in &extra {
        println!("✗ {name}\n    was run, but is not listed");
    }
    Ok(passed == specs.len() && extra.is_empty())
}

/// Names, states and failures of the specs that were run.
fn read_report(report: &Value) -> BTreeMap<String, (String, String)> {
    let mut all = BTreeMap::new();
    let none = Vec::new();
    for suite in report.as_array().unwrap_or(&none) {
        for spec in suite["SpecReports"].as_array().unwrap_or(&none) {
            let state = spec["State"].as_str().unwrap_or_default();
            let why = spec["Failure"]["Message"].as_str().unwrap_or_default();
            // Specs out of focus are reported as skipped without a message.
            if spec["LeafNodeType"] != json!("It") || (state == "skipped" && why.is_empty()) || state == "pending" {
                continue;
            }
            let containers = spec["ContainerHierarchyTexts"].as_array().unwrap_or(&none);
            let mut parts: Vec<&str> = containers.iter().filter_map(Value::as_str).collect();
            parts.extend(spec["LeafNodeText"].as_str());
            let why = why.lines().next().unwrap_or_default().chars().take(300).collect();
            all.insert(parts.join(" "), (state.to_owned(), why));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_out_of_focus_do_not_count() {
        let spec = |state: &str, why: &str| {
            json!({"LeafNodeType": "It", "State": state, "ContainerHierarchyTexts": ["a", "b"], "LeafNodeText": state,
                "Failure": {"Message": why}})
        };
        let report = json!([{"SpecReports": [spec("passed", ""), spec("skipped", ""), spec("failed", "because\nof")]}]);
        let read = read_report(&report);
        assert_eq!(read["a b failed"], ("failed".to_owned(), "because".to_owned()));
        assert_eq!(read.keys().collect::<Vec<_>>(), ["a b failed", "a b passed"]);
    }
}
