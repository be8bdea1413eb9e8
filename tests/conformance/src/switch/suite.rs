//! Upstream's end-to-end suite on Metamorph: exactly the listed scenarios pass. What they are about is tried by tests of this repository as well, which run
//! without upstream's programs: each scenario names its own.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use tokio::process::Command;

use super::programs::Programs;
use crate::suite::{Ended, read_report};
use crate::target::Target;

/// The list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listed {
    /// Those that pass.
    pub pass: Vec<Passing>,
    /// Those that cannot, and those that skip themselves.
    pub cannot: Vec<Excluded>,
}

/// A scenario that passes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Passing {
    /// Its whole name.
    pub scenario: String,
    /// The test here that tries the same: file below `tests`, and name.
    pub twin: String,
}

/// A scenario that does not.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Excluded {
    /// Its whole name, or the beginning of several.
    pub scenario: String,
    /// Why.
    pub why: String,
}

impl Listed {
    /// Reads the list, and looks whether each twin is there.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let listed: Self = serde_saphyr::from_str(&text).with_context(|| path.display().to_string())?;
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for passing in &listed.pass {
            let (file, name) = passing.twin.split_once(" ").context("a twin is a file and a name")?;
            let source = std::fs::read_to_string(tests.join(file)).with_context(|| format!("read {file}"))?;
            ensure!(
                source.contains(&format!("fn {name}(")),
                "{file} has no test {name}, the twin of {}",
                passing.scenario
            );
        }
        for excluded in &listed.cannot {
            ensure!(!excluded.why.is_empty(), "{} is excluded without a reason", excluded.scenario);
        }
        let all: BTreeSet<&str> = listed.pass.iter().map(|p| p.scenario.as_str()).collect();
        ensure!(all.len() == listed.pass.len(), "a scenario is listed twice");
        Ok(listed)
    }

    fn excludes(&self, scenario: &str) -> bool {
        self.cannot.iter().any(|excluded| scenario.starts_with(&excluded.scenario))
    }
}

/// Runs it on one server, whose hosts Metamorph looks after with its fixture; whether exactly the listed scenarios pass.
///
/// # Errors
/// When a program does not start, or leaves no report.
pub async fn suite(target: &Target, programs: &Programs, listed: &Listed, only: &str) -> Result<bool> {
    let began = Instant::now();
    programs.define(target).await?;
    let folder = tempfile::tempdir()?;
    let at = |name: &str| folder.path().join(name);
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("upstream");
    let metamorph = programs.metamorph(target, "")?;
    let log = std::fs::File::create(at("log"))?;
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(programs.suite()?).current_dir(folder.path());
    command.env("KUBECONFIG", &target.kubeconfig).env("PATH", format!("{}:{path}", programs.kubernetes.display()));
    command.arg(format!("-e2e.config={}", own.join("fixture.yaml").display()));
    command.arg(format!("-e2e.bmcsConfig={}", own.join("bmcs.yaml").display()));
    command.args(["-e2e.use-existing-cluster=true", "-e2e.artifacts-folder=artifacts"]);
    let skipped: Vec<String> = listed.cannot.iter().map(|e| regex::escape(&e.scenario)).collect();
    command.args(["--ginkgo.no-color", "--ginkgo.timeout=30m"]).arg(format!("--ginkgo.skip={}", skipped.join("|")));
    if !only.is_empty() {
        command.arg(format!("--ginkgo.focus={}", regex::escape(only)));
    }
    command.arg(format!("--ginkgo.json-report={}", at("report.json").display()));
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).kill_on_drop(true);
    command.spawn().context("start upstream's suite")?.wait().await?;
    let told = metamorph.stop().await?;
    let report = std::fs::read_to_string(at("report.json")).with_context(|| {
        let log = std::fs::read_to_string(at("log")).unwrap_or_default();
        let last: Vec<&str> = log.lines().rev().take(15).collect();
        format!("upstream's suite left no report:\n{}", last.into_iter().rev().collect::<Vec<_>>().join("\n"))
    })?;
    let states = read_report(&serde_json::from_str(&report)?);
    let wanted: Vec<&Passing> = listed.pass.iter().filter(|passing| passing.scenario.contains(only)).collect();
    let mut passed = 0;
    for Passing { scenario, .. } in &wanted {
        match states.get(scenario) {
            Some(Ended { state, seconds, .. }) if state == "passed" => {
                passed += 1;
                println!("✓ {}: {scenario}, {seconds:.1} s", target.name);
            }
            Some(Ended { state, why, .. }) => println!("✗ {}: {scenario}\n    {state}: {why}", target.name),
            None => println!("✗ {}: {scenario}\n    was not run: no such scenario", target.name),
        }
    }
    let unknown: Vec<&String> = states
        .keys()
        .filter(|name| !listed.excludes(name) && !wanted.iter().any(|passing| passing.scenario == **name))
        .collect();
    unknown.iter().for_each(|name| println!("✗ {}: {name}\n    was run, but is not listed", target.name));
    let good = passed == wanted.len() && unknown.is_empty();
    if !good {
        println!("    {told}");
    }
    println!(
        "{}: {passed} of {} scenarios of upstream's suite pass, {:.0} s",
        target.name,
        wanted.len(),
        began.elapsed().as_secs_f64()
    );
    Ok(good)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scenario_has_a_test_here_and_no_other_is_left_out_by_its_name() {
        let listed = Listed::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("upstream/scenarios.yaml")).unwrap();
        assert!(listed.pass.len() >= 16, "upstream itself passes 16");
        for excluded in &listed.cannot {
            assert!(!listed.pass.iter().any(|p| p.scenario.starts_with(&excluded.scenario)), "{}", excluded.scenario);
        }
    }
}
