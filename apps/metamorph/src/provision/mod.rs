//! `provision`: brings the hosts of manifests to their declared state, with the API and the controllers of `up` in this process, and then ends; the
//! exit code is the verdict.
//!
//! All input is read and checked before anything is stored; then it is applied to the state, the controllers work until each host is as declared or
//! cannot become so without a change, and everything stops in order.

mod apply;
mod folder;
mod manifests;
mod tell;
mod verdict;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use kube::Client;
use operator::Observer;
use tokio::signal::unix::SignalKind;

use crate::cli::{ApiServe, Provision};
use crate::flags::{self, Authorities};
use crate::host_watch;
use crate::logging::{self, Target};
use crate::server::{AllInOne, Embedded};
use crate::stop::StopSignal;
use apply::{Applied, Checked, Review};
use folder::Folder;
use manifests::{Manifests, Problem};
use tell::Tell;
use verdict::{Tracked, Verdict};

/// Name of the log file in the folder, used if a terminal shows the progress.
const LOG: &str = "provision.log";

/// Runs, and returns the verdict as exit code.
pub async fn run(options: &Provision, log: &str) -> ExitCode {
    let mut tell = Tell::new(options.output);
    // Read before the signal handlers exist: standard input may never end, and Ctrl-C must still end it.
    let manifests = Manifests::read(&options.files, options.recursive, &options.namespace);
    let verdict = match check_flags(options) {
        Err(error) => {
            let mut problems = manifests.problems;
            problems.push(Problem { source: "command line".to_owned(), message: format!("{error:#}") });
            tell.refuse(&problems);
            Verdict::WrongInput
        }
        Ok(_) if manifests.objects.is_empty() => {
            tell.refuse(&manifests.problems);
            Verdict::WrongInput
        }
        Ok(authorities) => in_folder(options, log, manifests, authorities, &mut tell).await,
    };
    ExitCode::from(verdict.code())
}

async fn in_folder(
    options: &Provision,
    log: &str,
    manifests: Manifests,
    authorities: Authorities,
    tell: &mut Tell,
) -> Verdict {
    let folder = match Folder::open(options.state.as_deref()) {
        Ok(folder) => folder,
        Err(error) => {
            tell.broke(options, &error, None);
            return Verdict::Broken;
        }
    };
    // At a terminal, the log would garble the progress view.
    let to_file = std::io::stderr().is_terminal();
    let target = if to_file { Target::Append(folder.path.join(LOG)) } else { Target::Stderr };
    let worked = match logging::start(log, target) {
        Ok(()) => Box::pin(with_state(options, &folder, manifests, authorities, tell)).await,
        Err(error) => Err(error),
    };
    worked.unwrap_or_else(|error| {
        tracing::error!(error = error.as_ref() as &dyn std::error::Error, "the run failed");
        tell.broke(options, &error, Some(&folder));
        Verdict::Broken
    })
}

/// Checks of the flags that need no state.
fn check_flags(options: &Provision) -> anyhow::Result<Authorities> {
    let authorities = flags::check(&options.endpoints)?;
    let endpoints = &options.endpoints;
    let mut listeners = flags::listeners(endpoints);
    listeners.push(("--api-listen", options.api_listen));
    flags::apart(&listeners)?;
    anyhow::ensure!(
        options.wait || options.state.is_some(),
        "--wait=false: without --state there is no folder that the next run could go on from; name one"
    );
    if let Some(state) = options.state.as_ref().filter(|state| state.exists()) {
        flags::folder(state, "--state")?;
    }
    Ok(authorities)
}

async fn with_state(
    options: &Provision,
    folder: &Folder,
    manifests: Manifests,
    authorities: Authorities,
    tell: &mut Tell,
) -> anyhow::Result<Verdict> {
    let mut stop = StopSignal::listen()?;
    let api = ApiServe {
        data: folder.path.clone(),
        api_listen: options.api_listen,
        api_name: Vec::new(),
        api_audit_log: None,
    };
    let embedded = tokio::select! {
        started = Embedded::start(&api, &options.behaviour) => started.context("open the state")?,
        signal = stop.which() => {
            tell.end_early(stopped(signal), folder);
            return Ok(stopped(signal));
        }
    };
    let checked = tokio::select! {
        checked = check(&embedded, manifests, options, tell) => checked,
        signal = stop.which() => {
            embedded.stop().await;
            tell.end_early(stopped(signal), folder);
            return Ok(stopped(signal));
        }
    };
    let Some(checked) = checked? else {
        embedded.stop().await;
        return Ok(Verdict::WrongInput);
    };
    folder.keep();
    let applied = checked.apply(&embedded.client).await?;
    tell_applied(tell, &applied);
    let mut hosts: Vec<Tracked> = applied.hosts.into_iter().map(Tracked::new).collect();
    if !options.wait {
        embedded.stop().await;
        tell.end_early(Verdict::Stored, folder);
        return Ok(Verdict::Stored);
    }
    let begun = Instant::now();
    let leading = tokio::select! {
        leading = embedded.lead("provision", &options.endpoints) => Ok(leading?),
        signal = stop.which() => Err(stopped(signal)),
        () = tokio::time::sleep(Duration::from_secs(options.timeout)) => Err(Verdict::TimedOut),
    };
    let leading = match leading {
        Ok(leading) => leading,
        Err(verdict) => {
            last_look(&embedded.client, &mut hosts).await?;
            embedded.stop().await;
            tell.end(options, verdict, &hosts, folder, begun.elapsed());
            return Ok(verdict);
        }
    };
    // A new run retries failures at once instead of waiting for their back-off. They stay counted.
    let anew = Some(jiff::Timestamp::now());
    let mut all = embedded.work(leading, &options.endpoints, &options.behaviour, authorities, anew).await?;
    tell.note(&format!(
        "{}; the state is in {}\n{}",
        if hosts.len() == 1 { "One host".to_owned() } else { format!("{} hosts", hosts.len()) },
        folder.path.display(),
        all.running.addresses()
    ));
    let worked = work(options, &mut all, &mut hosts, tell, &mut stop).await;
    let looked = match &worked {
        Ok(Verdict::AsDeclared | Verdict::NeedsChange) => Ok(()),
        // The final states, for the table.
        _ => last_look(&all.client, &mut hosts).await,
    };
    tell.view.clear();
    all.stop().await;
    let verdict = worked?;
    looked?;
    if verdict == Verdict::AsDeclared {
        folder.is_done();
    }
    tell.end(options, verdict, &hosts, folder, begun.elapsed());
    Ok(verdict)
}

const fn stopped(signal: SignalKind) -> Verdict {
    // Signal numbers are small.
    Verdict::Stopped(signal.as_raw_value() as u8)
}

/// Checks all input; reports the problems and returns `None` if there are any.
async fn check(
    embedded: &Embedded,
    manifests: Manifests,
    options: &Provision,
    tell: &Tell,
) -> anyhow::Result<Option<Checked>> {
    let Manifests { objects, mut problems, warnings, .. } = manifests;
    let checked = match apply::check(&embedded.client, objects, options.force_conflicts).await? {
        Review::Sound(checked) => Some(checked),
        Review::Wrong(mut more) => {
            problems.append(&mut more);
            None
        }
    };
    if !problems.is_empty() {
        tell.refuse(&problems);
        return Ok(None);
    }
    let of_api = checked.iter().flat_map(|checked| &checked.warnings);
    warnings.iter().chain(of_api).for_each(|warning| tell.warn(warning));
    Ok(checked)
}

fn tell_applied(tell: &Tell, applied: &Applied) {
    let Applied { made, changed, same, .. } = applied;
    tell.note(&format!("Applied {} objects: {made} new, {changed} changed, {same} as before.", made + changed + same));
    for [namespace, name] in &applied.others {
        tell.note(&format!(
            "Host {namespace}/{name} is in the state and in no manifest: it stays as it was declared, and is neither deleted nor waited for. To \
             delete it, run `metamorph up` on the state and `kubectl delete bmh`."
        ));
    }
}

/// Runs until the verdict, the time-out or a signal.
async fn work(
    options: &Provision,
    all: &mut AllInOne,
    hosts: &mut [Tracked],
    tell: &mut Tell,
    stop: &mut StopSignal,
) -> anyhow::Result<Verdict> {
    let observer: Observer = all.running.observer();
    let client = all.client.clone();
    let progress = async {
        if let Err(error) = host_watch::follow(&client, None, None, &mut tell.view).await {
            tracing::warn!(error = error.as_ref() as &dyn std::error::Error, "tell of the progress");
        }
        // The reader is gone; the work on machines goes on.
        std::future::pending::<()>().await;
    };
    tokio::select! {
        decided = verdict::decide(&all.client, &observer, hosts, options.keep_trying) => decided,
        () = progress => Ok(Verdict::Broken),
        () = tokio::time::sleep(Duration::from_secs(options.timeout)) => Ok(Verdict::TimedOut),
        signal = stop.which() => Ok(stopped(signal)),
        broken = all.running.broken() => Err(broken),
    }
}

async fn last_look(client: &Client, hosts: &mut [Tracked]) -> anyhow::Result<()> {
    for host in hosts {
        host.look(client).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;
    use serde_json::{Value, json};

    fn parsed(arguments: &[&str]) -> Provision {
        match Cli::try_parse_from(["metamorph", "provision"].iter().chain(arguments)).unwrap().command {
            Command::Provision(options) => options,
            _ => panic!("not provision"),
        }
    }

    #[test]
    fn a_run_can_stand_beside_a_service() {
        let run = parsed(&["-f", "x"]);
        assert_eq!((run.endpoints.health_listen.port(), run.api_listen.port(), run.wait), (0, 0, true));
        assert!(parsed(&["-f", "x", "--wait"]).wait && !parsed(&["-f", "x", "--wait=false"]).wait);
        let Command::Up(up) = Cli::try_parse_from(["metamorph", "up"]).unwrap().command else { panic!("up") };
        assert_eq!(up.endpoints.health_listen.port(), 9440, "the default of `up` has changed with it");
    }

    #[test]
    fn the_job_of_the_examples_runs_this_program() {
        let text = include_str!("../../../../examples/provision-job.yaml");
        let job = gojson::from_yaml_stream(text).unwrap().into_iter().find(|object| object["kind"] == "Job").unwrap();
        let container = &job["spec"]["template"]["spec"]["containers"][0];
        let arguments: Vec<String> = serde_json::from_value(container["args"].clone()).unwrap();
        let address = container["env"][0]["name"].as_str().unwrap();
        let arguments: Vec<String> =
            arguments.iter().map(|text| text.replace(&format!("$({address})"), "192.0.2.1")).collect();
        let [command, rest @ ..] = &arguments[..] else { panic!("{arguments:?}") };
        assert_eq!(command, "provision");
        let options = parsed(&rest.iter().map(String::as_str).collect::<Vec<_>>());
        let mounts = |name: &str| {
            let all = container["volumeMounts"].as_array().unwrap();
            all.iter().find(|m| m["name"] == name).unwrap()["mountPath"].as_str().unwrap().to_owned()
        };
        assert_eq!(options.files, [std::path::Path::new(&mounts("hosts"))]);
        assert_eq!(options.state.as_deref(), Some(std::path::Path::new(&mounts("state"))));
        assert_eq!(options.endpoints.media_host[0].to_string(), "192.0.2.1");
        let ports: Vec<&Value> = container["ports"].as_array().unwrap().iter().map(|p| &p["containerPort"]).collect();
        let listens = [options.endpoints.media_listen, options.endpoints.agent_listen].map(|at| json!(at.port()));
        assert_eq!(ports, listens.iter().collect::<Vec<_>>());
        let rule = &job["spec"]["podFailurePolicy"]["rules"][0];
        assert_eq!(rule["onExitCodes"]["containerName"], container["name"]);
        let codes = [Verdict::NeedsChange, Verdict::WrongInput].map(Verdict::code);
        assert_eq!((&rule["action"], &rule["onExitCodes"]["values"]), (&json!("FailJob"), &json!(codes)));
    }
}
