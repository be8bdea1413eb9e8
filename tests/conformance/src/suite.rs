//! Kubernetes' own end-to-end suite on both servers: exactly the listed specs must pass.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::case::File;
use crate::target::Target;

/// Programs that run at once on a server, beside those of slow specs: the rest is dealt out to them.
const SHARDS: usize = 4;

/// The list of specs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listed {
    /// These pass on both servers.
    pub both: Vec<String>,
    /// These pass on kube-apiserver alone, each with the reason.
    pub reference_only: Vec<Excluded>,
    /// Those that wait for something for so long that each gets a program of its own.
    slow: Vec<String>,
}

/// One spec that the embedded server is not asked.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Excluded {
    /// The spec's whole name.
    spec: String,
    /// Why.
    reason: String,
    /// The case, `area/file/name`, that tries the same on a kind which both servers have.
    twin: String,
}

impl Listed {
    /// Reads the list; `files` are all cases.
    pub fn read(path: &Path, files: &[File]) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let listed: Self = serde_saphyr::from_str(&text).with_context(|| path.display().to_string())?;
        let cases: BTreeSet<String> =
            files.iter().flat_map(|f| f.cases.iter().map(|c| format!("{}/{}", f.path(), c.name))).collect();
        for excluded in &listed.reference_only {
            ensure!(!excluded.reason.is_empty(), "{} is excluded without a reason", excluded.spec);
            ensure!(cases.contains(&excluded.twin), "the twin of {} is no case: {}", excluded.spec, excluded.twin);
        }
        let mut seen = BTreeSet::new();
        for spec in listed.reference() {
            ensure!(seen.insert(spec), "{spec} is listed twice");
        }
        for spec in &listed.slow {
            ensure!(seen.contains(spec.as_str()), "{spec} is slow, but not listed");
        }
        Ok(listed)
    }

    /// The specs that must pass on the real server.
    pub fn reference(&self) -> Vec<&str> {
        let excluded = self.reference_only.iter().map(|e| e.spec.as_str());
        self.both.iter().map(String::as_str).chain(excluded).collect()
    }

    /// The specs of each program.
    fn shards<'a>(&self, specs: &[&'a str]) -> Vec<Vec<&'a str>> {
        let (slow, rest): (Vec<&str>, Vec<&str>) = specs.iter().partition(|s| self.slow.iter().any(|l| l == *s));
        let dealt = (0..SHARDS).map(|shard| rest.iter().skip(shard).step_by(SHARDS).copied().collect());
        slow.into_iter().map(|spec| vec![spec]).chain(dealt).filter(|shard| !shard.is_empty()).collect()
    }
}

/// How a spec ended.
#[derive(Debug, PartialEq)]
pub struct Ended {
    /// `passed`, or what else.
    pub state: String,
    /// Why it did not.
    pub why: String,
    /// How long it took.
    pub seconds: f64,
}

/// Runs the specs on a server and prints those that do not pass; whether all do.
pub async fn run(target: &Target, bin: &Path, listed: &Listed, specs: &[&str]) -> Result<bool> {
    let folder = tempfile::tempdir()?;
    let began = Instant::now();
    let mut running = Vec::new();
    for (number, shard) in listed.shards(specs).iter().enumerate() {
        let report = folder.path().join(format!("report-{number}.json"));
        let log = folder.path().join(format!("log-{number}"));
        running.push((start(target, bin, shard, &report, &log)?, report, log));
    }
    let mut states = BTreeMap::new();
    for (mut child, report, log) in running {
        child.wait().await?;
        let text = std::fs::read_to_string(&report).with_context(|| {
            let log = std::fs::read_to_string(&log).unwrap_or_default();
            let tail: Vec<&str> = log.lines().rev().take(15).collect();
            format!("e2e.test left no report:\n{}", tail.into_iter().rev().collect::<Vec<_>>().join("\n"))
        })?;
        states.extend(read_report(&serde_json::from_str(&text)?));
    }
    let mut passed = 0;
    for spec in specs {
        match states.get(*spec) {
            Some(ended) if ended.state == "passed" => passed += 1,
            Some(ended) => println!("✗ {}: {spec}\n    {}: {}", target.name, ended.state, ended.why),
            None => println!("✗ {}: {spec}\n    was not run: no such spec", target.name),
        }
    }
    let extra: Vec<&String> = states.keys().filter(|n| !specs.contains(&n.as_str())).collect();
    for name in &extra {
        println!("✗ {}: {name}\n    was run, but is not listed", target.name);
    }
    let slowest = states.iter().max_by(|a, b| a.1.seconds.total_cmp(&b.1.seconds));
    println!(
        "{}: {passed} of {} specs pass, {:.0} s; the slowest takes {:.0} s: {}",
        target.name,
        specs.len(),
        began.elapsed().as_secs_f64(),
        slowest.map_or(0.0, |s| s.1.seconds),
        slowest.map_or("", |s| s.0)
    );
    Ok(passed == specs.len() && extra.is_empty())
}

/// Starts the program on these specs. To be called on the first thread, with which it ends.
fn start(target: &Target, bin: &Path, specs: &[&str], report: &Path, log: &Path) -> Result<Child> {
    let focus: Vec<String> = specs.iter().map(|s| regex::escape(s)).collect();
    let log = std::fs::File::create(log)?;
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(bin.join("e2e.test"));
    command.args(["--provider=skeleton", "--allowed-not-ready-nodes=-1", "--num-nodes=0", "--minStartupPods=0"]);
    command.arg(format!("--kubeconfig={}", target.kubeconfig.display()));
    command.arg(format!("--kubectl-path={}", bin.join("kubectl").display()));
    command.args(["--ginkgo.no-color", "--ginkgo.timeout=10m"]);
    command.arg(format!("--ginkgo.focus=({})$", focus.join("|")));
    command.arg(format!("--ginkgo.json-report={}", report.display()));
    if let Some(folder) = report.parent() {
        command.current_dir(folder);
    }
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    command.kill_on_drop(true).spawn().context("start e2e.test")
}

/// Names and ends of the specs that were run.
pub fn read_report(report: &Value) -> BTreeMap<String, Ended> {
    let mut all = BTreeMap::new();
    let none = Vec::new();
    for suite in report.as_array().unwrap_or(&none) {
        for spec in suite["SpecReports"].as_array().unwrap_or(&none) {
            let state = spec["State"].as_str().unwrap_or_default();
            let messages = ["Message", "ForwardedPanic"].map(|key| spec["Failure"][key].as_str().unwrap_or_default());
            let why = messages.join(" ");
            // Specs out of focus are reported as skipped without a message.
            if spec["LeafNodeType"] != json!("It")
                || (state == "skipped" && why.trim().is_empty())
                || state == "pending"
            {
                continue;
            }
            let containers = spec["ContainerHierarchyTexts"].as_array().unwrap_or(&none);
            let mut parts: Vec<&str> = containers.iter().filter_map(Value::as_str).collect();
            parts.extend(spec["LeafNodeText"].as_str());
            let why = why.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(400).collect();
            let seconds = spec["RunTime"].as_f64().unwrap_or_default() / 1e9;
            all.insert(parts.join(" "), Ended { state: state.to_owned(), why, seconds });
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
                "RunTime": 2_000_000_000, "Failure": {"Message": why}})
        };
        let report = json!([{"SpecReports": [spec("passed", ""), spec("skipped", ""), spec("failed", "because\nof")]}]);
        let read = read_report(&report);
        let failed = Ended { state: "failed".to_owned(), why: "because of".to_owned(), seconds: 2.0 };
        assert_eq!(read["a b failed"], failed);
        assert_eq!(read.keys().collect::<Vec<_>>(), ["a b failed", "a b passed"]);
    }

    #[test]
    fn slow_specs_run_alone() {
        let listed = Listed { both: vec![], reference_only: vec![], slow: vec!["b".into()] };
        assert_eq!(listed.shards(&["a", "b", "c"]), [vec!["b"], vec!["a"], vec!["c"]]);
    }
}
