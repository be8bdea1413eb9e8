//! The embedded Kubernetes API compared with kube-apiserver: cases are data, and what is right is what the real server
//! said when it was recorded. See README.md beside this crate.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test program: it prints, and fails loudly"
)]

mod case;
mod certificates;
mod compare;
mod defects;
mod generate;
mod hooks;
mod layer;
mod mask;
mod openapi;
mod recording;
mod report;
mod run;
mod suite;
mod switch;
mod target;
mod wire;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Parser, ValueEnum};
use futures::StreamExt as _;
use serde_json::Value;

use crate::case::{Case, File};
use crate::compare::Known;
use crate::hooks::Hooks;
use crate::report::Outcome;
use crate::run::Runner;
use crate::target::Target;

/// Cases in flight at once.
const AT_ONCE: usize = 6;
/// Cases that are asked again at most, one at a time: what was in flight while a busy machine stood still four times.
/// More is no accident.
const ASKED_AGAIN: usize = 4 * AT_ONCE;

/// Lines at the end of a run about what is not well.
const TOLD_AT_THE_END: usize = 20;

/// Compares the embedded Kubernetes API with kube-apiserver.
#[derive(Parser)]
struct Arguments {
    /// What to do.
    what: What,
    /// Only this area (may be repeated).
    #[arg(long)]
    area: Vec<String>,
    /// Only cases whose `area/file/name` contains this text.
    #[arg(long, default_value = "")]
    case: String,
    /// Folder for one file of differences per area.
    #[arg(long)]
    report: Option<PathBuf>,
    /// Differences shown per case.
    #[arg(long, default_value_t = 6)]
    show: usize,
    /// Prints the answers of each case too.
    #[arg(long)]
    answers: bool,
    /// Folder with the programs of the real control plane, as `tests/kubernetes/build` prints it.
    #[arg(long, env = "METAMORPH_KUBERNETES_BIN")]
    kubernetes: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// The embedded server against the recordings.
    Embedded,
    /// The embedded server, asked in process, against the recordings; without client certificates, which take TLS.
    InProcess,
    /// The real server against the recordings.
    Real,
    /// Both, each against the recordings, and the number of cases per area.
    Both,
    /// The embedded server with defects seeded on purpose: each must turn its area red.
    Defects,
    /// Writes the cases that are made by chance.
    Generate,
    /// Writes the recordings anew from the real server.
    Record,
    /// The listed specs of Kubernetes' own suite on both servers at once.
    Suite,
    /// The same on the embedded server alone.
    SuiteEmbedded,
    /// Schemas and admission rules as upstream has them, on both servers.
    Rules,
    /// The same on the embedded server alone.
    RulesEmbedded,
    /// Hosts of baremetal-operator taken over by Metamorph in every state, and given back, on both servers.
    Switch,
    /// The same on the embedded server alone.
    SwitchEmbedded,
    /// baremetal-operator's end-to-end suite on Metamorph, on both servers.
    Upstream,
    /// The same on the embedded server alone.
    UpstreamEmbedded,
    /// Starts the real control plane, prints the path of a kubeconfig, and runs until standard input ends.
    Serve,
    /// The same with the embedded server.
    ServeEmbedded,
}

fn main() -> Result<ExitCode> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    // Unoptimised code on deep documents needs more than the usual stack.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().thread_stack_size(16 << 20).build()?;
    runtime.block_on(start(Arguments::parse()))
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

async fn start(arguments: Arguments) -> Result<ExitCode> {
    if matches!(arguments.what, What::Serve | What::ServeEmbedded) {
        return serve(&arguments).await;
    }
    if matches!(arguments.what, What::Suite | What::SuiteEmbedded) {
        return suite(&arguments).await;
    }
    if matches!(arguments.what, What::Rules | What::RulesEmbedded) {
        return rules(&arguments).await;
    }
    if matches!(arguments.what, What::Switch | What::SwitchEmbedded | What::Upstream | What::UpstreamEmbedded) {
        return operators(&arguments).await;
    }
    if arguments.what == What::Generate {
        std::fs::create_dir_all(folder("cases/generated"))?;
        std::fs::write(folder("cases/generated/schemas.yaml"), generate::file())?;
        return Ok(ExitCode::SUCCESS);
    }
    let wanted = |area: &str, _: &str| arguments.area.is_empty() || arguments.area.iter().any(|a| a == area);
    let mut files = case::read(&folder("cases"), wanted)?;
    for file in &mut files {
        let path = file.path();
        file.cases.retain(|c| format!("{path}/{}", c.name).contains(&arguments.case));
    }
    if arguments.what == What::InProcess {
        files
            .iter_mut()
            .for_each(|file| file.cases.retain(|case| !case.setup.iter().chain(&case.steps).any(shows_certificate)));
    }
    files.retain(|f| !f.cases.is_empty());
    let hooks = Hooks::start().await?;
    if arguments.what == What::Defects {
        let known = compare::read_known(&folder("differences.yaml"))?;
        return Ok(exit(defects::run(&files, &hooks, &known, &arguments.area).await?));
    }
    let all: Vec<&File> = files.iter().collect();
    if arguments.what == What::Record {
        let target = real(&arguments).await?;
        let answers = ask_all(&target, &hooks, &all, AT_ONCE).await;
        return record(&files, &answers, arguments.case.is_empty());
    }
    let mut bad = Vec::new();
    if matches!(arguments.what, What::Real | What::Both) {
        let answers = ask_twice(async || real(&arguments).await, &hooks, &all, &[]).await?;
        bad.extend(judge("kube-apiserver", &arguments, &all, &answers, &[])?);
    }
    if matches!(arguments.what, What::Embedded | What::Both) {
        let known = compare::read_known(&folder("differences.yaml"))?;
        let answers = ask_twice(async || Target::embedded().await, &hooks, &all, &known).await?;
        bad.extend(judge("embedded", &arguments, &all, &answers, &known)?);
    }
    if arguments.what == What::InProcess {
        let known = compare::read_known(&folder("differences.yaml"))?;
        let answers = ask_twice(async || Target::in_process().await, &hooks, &all, &known).await?;
        bad.extend(judge("in process", &arguments, &all, &answers, &known)?);
    } else if arguments.area.is_empty() && arguments.case.is_empty() {
        bad.extend(enough(&files)?);
    }
    bad.iter().take(TOLD_AT_THE_END).for_each(|line| println!("{line}"));
    Ok(exit(bad.is_empty()))
}

/// Whether a step shows who it is in a TLS handshake.
fn shows_certificate(step: &Value) -> bool {
    step.get("certificate").is_some()
}

fn exit(good: bool) -> ExitCode {
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn real(arguments: &Arguments) -> Result<Target> {
    let bin = arguments.kubernetes.as_deref().context("--kubernetes (or METAMORPH_KUBERNETES_BIN) is needed")?;
    Target::real(bin).await
}

async fn serve(arguments: &Arguments) -> Result<ExitCode> {
    let target = if arguments.what == What::Serve { real(arguments).await? } else { Target::embedded().await? };
    println!("{}", target.kubeconfig.display());
    let ended = tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
    ended.await??;
    target.shutdown().await;
    Ok(ExitCode::SUCCESS)
}

/// Kubernetes' own suite, on both servers at once; `--case` takes a part of it.
async fn suite(arguments: &Arguments) -> Result<ExitCode> {
    let listed = suite::Listed::read(&folder("e2e.yaml"), &case::read(&folder("cases"), |_, _| true)?)?;
    let bin = arguments.kubernetes.as_deref().context("--kubernetes (or METAMORPH_KUBERNETES_BIN) is needed")?;
    let part = |all: Vec<&'_ str>| -> Vec<String> {
        all.into_iter().filter(|s| s.contains(&arguments.case)).map(str::to_owned).collect()
    };
    let on_real = async {
        if arguments.what == What::SuiteEmbedded {
            return Ok(true);
        }
        let specs = part(listed.reference());
        let specs: Vec<&str> = specs.iter().map(String::as_str).collect();
        suite::run(&real(arguments).await?, bin, &listed, &specs).await
    };
    let on_embedded = async {
        let specs = part(listed.both.iter().map(String::as_str).collect());
        let specs: Vec<&str> = specs.iter().map(String::as_str).collect();
        let target = Target::embedded().await?;
        let good = suite::run(&target, bin, &listed, &specs).await;
        target.shutdown().await;
        good
    };
    let (real, embedded) = tokio::try_join!(on_real, on_embedded)?;
    Ok(exit(real && embedded))
}

/// What upstream's schemas and webhook refuse, asked of both servers, which must answer alike.
async fn rules(arguments: &Arguments) -> Result<ExitCode> {
    let bin = arguments.kubernetes.as_deref().context("--kubernetes (or METAMORPH_KUBERNETES_BIN) is needed")?;
    let programs = switch::Programs::own(bin)?;
    let target = Target::embedded().await?;
    let (embedded, mut good) = switch::rules(&target, &programs).await?;
    target.shutdown().await;
    if arguments.what == What::Rules {
        let (real, is_good) = switch::rules(&real(arguments).await?, &programs).await?;
        let differ: Vec<&String> = embedded.keys().filter(|row| embedded.get(*row) != real.get(*row)).collect();
        for row in &differ {
            println!("    embedded {:?}, kube-apiserver {:?}: {row}", embedded.get(*row), real.get(*row));
        }
        good &= is_good && differ.is_empty() && embedded.len() == real.len();
    }
    Ok(exit(good))
}

/// What takes baremetal-operator's programs; `--case` takes a part of it, `--report` keeps what it leaves.
async fn operators(arguments: &Arguments) -> Result<ExitCode> {
    let bin = arguments.kubernetes.as_deref().context("--kubernetes (or METAMORPH_KUBERNETES_BIN) is needed")?;
    let programs = switch::Programs::find(bin)?;
    let listed = switch::Listed::read(&folder("upstream/scenarios.yaml"))?;
    let only = &arguments.case;
    let switches = matches!(arguments.what, What::Switch | What::SwitchEmbedded);
    let on = async |target: &Target| {
        let record = arguments.report.as_ref().map(|folder| folder.join(format!("{}.json", target.name)));
        match switches {
            true => switch::switch(target, &programs, only, record.as_deref()).await,
            false => switch::suite(target, &programs, &listed, only).await,
        }
    };
    if let Some(folder) = &arguments.report {
        std::fs::create_dir_all(folder)?;
    }
    let target = Target::embedded().await?;
    let mut good = on(&target).await?;
    target.shutdown().await;
    if matches!(arguments.what, What::Switch | What::Upstream) {
        good &= on(&real(arguments).await?).await?;
    }
    Ok(exit(good))
}

type Answers = BTreeMap<String, Value>;

/// Every case's answers by `area/file/case`.
async fn ask_all(target: &Target, hooks: &Hooks, files: &[&File], at_once: usize) -> Answers {
    let began = std::time::Instant::now();
    let answers = ask(&Runner { target, hooks, until: run::UNTIL }, files, at_once).await;
    println!("{} cases on {} in {:.1} s", answers.len(), target.name, began.elapsed().as_secs_f64());
    answers
}

/// Every case's answers; a few cases that differ are asked of a new server again, and what it says counts. What was
/// different the first time is printed: a machine under load can come late, a server that answers wrongly does so twice.
async fn ask_twice(
    start: impl AsyncFn() -> Result<Target>,
    hooks: &Hooks,
    files: &[&File],
    known: &[Known],
) -> Result<Answers> {
    let target = start().await?;
    let mut answers = ask_all(&target, hooks, files, AT_ONCE).await;
    target.shutdown().await;
    let first: Vec<Outcome> =
        outcomes(files, &answers, known)?.into_iter().filter(|o| !o.differences.is_empty()).collect();
    if first.is_empty() || first.len() > ASKED_AGAIN {
        return Ok(answers);
    }
    for outcome in &first {
        print!("asked again: {}", report::describe(outcome, 3));
    }
    let differs = |file: &File, case: &Case| first.iter().any(|o| o.case == format!("{}/{}", file.path(), case.name));
    let mut again: Vec<File> = files.iter().copied().cloned().collect();
    for file in &mut again {
        let cases = std::mem::take(&mut file.cases);
        file.cases = cases.into_iter().filter(|case| differs(file, case)).collect();
    }
    again.retain(|file| !file.cases.is_empty());
    let target = start().await?;
    answers.extend(ask_all(&target, hooks, &again.iter().collect::<Vec<_>>(), 1).await);
    target.shutdown().await;
    Ok(answers)
}

async fn ask(runner: &Runner<'_>, files: &[&File], at_once: usize) -> Answers {
    let shared: Vec<Result<()>> =
        futures::stream::iter(files).map(|file| runner.shared(file)).buffered(at_once).collect().await;
    let work: Vec<(&File, &Case, Option<String>)> = files
        .iter()
        .copied()
        .zip(&shared)
        .flat_map(|(file, shared)| {
            let error = shared.as_ref().err().map(|e| format!("{e:#}"));
            file.cases.iter().map(move |case| (file, case, error.clone()))
        })
        .collect();
    let all = futures::stream::iter(work)
        .map(|(file, case, error)| async move {
            let answers = match error {
                Some(error) => serde_json::json!([{"failed": error}]),
                None => runner.case(file, case).await,
            };
            (format!("{}/{}", file.path(), case.name), answers)
        })
        .buffer_unordered(at_once);
    all.collect().await
}

/// Writes the recordings; with `whole` files, cases that are gone go.
fn record(files: &[File], answers: &Answers, whole: bool) -> Result<ExitCode> {
    let mut failed = 0;
    for file in files {
        let mut recorded = if whole { recording::Recorded::new() } else { recording::read(&folder("recorded"), file)? };
        for case in &file.cases {
            let answer = &answers[&format!("{}/{}", file.path(), case.name)];
            for step in answer.as_array().into_iter().flatten() {
                if let Some(error) = compare::failure(step) {
                    failed += 1;
                    println!("✗ {}/{}: {error}", file.path(), case.name);
                }
            }
            recorded.insert(case.name.clone(), answer.clone());
        }
        recording::write(&folder("recorded"), file, &recorded)?;
    }
    println!("{} cases recorded, {failed} of them failed", answers.len());
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Compares with the recordings.
fn outcomes(files: &[&File], answers: &Answers, known: &[Known]) -> Result<Vec<Outcome>> {
    let mut outcomes = Vec::new();
    for file in files {
        let recorded = recording::read(&folder("recorded"), file)?;
        for case in &file.cases {
            let id = format!("{}/{}", file.path(), case.name);
            let found = &answers[&id];
            let mut expected = recorded.get(&case.name).cloned().unwrap_or_else(|| "never recorded".into());
            let mut found = found.clone();
            mask::renumber(&mut expected);
            mask::renumber(&mut found);
            let mut all = compare::differences(&expected, &found);
            all.extend(compare::failures(&found));
            let explained = |d: &compare::Difference| known.iter().filter(|k| k.explains(&id, d)).count() > 0;
            let (listed, differences): (Vec<_>, Vec<_>) = all.into_iter().partition(explained);
            outcomes.push(Outcome { area: file.area.clone(), case: id, known: listed.len(), differences });
        }
    }
    Ok(outcomes)
}

/// Compares with the recordings and prints; what is not well, a line each, which the last lines of a run tell again: what
/// came long before them is often cut off.
fn judge(
    name: &str,
    arguments: &Arguments,
    files: &[&File],
    answers: &Answers,
    known: &[Known],
) -> Result<Vec<String>> {
    if arguments.answers {
        for (id, found) in answers {
            println!("{id}\n{}", serde_json::to_string_pretty(found)?);
        }
    }
    let outcomes = outcomes(files, answers, known)?;
    for outcome in outcomes.iter().filter(|o| !o.differences.is_empty()) {
        print!("{}", report::describe(outcome, arguments.show));
    }
    if let Some(folder) = &arguments.report {
        report::write(folder, &outcomes)?;
    }
    println!("\n{name} against the recordings of kube-apiserver\n{}", report::table(&outcomes));
    let stale = |k: &&Known| !k.met.get() && outcomes.iter().any(|o| k.about(&o.case));
    let unmet: Vec<&Known> = known.iter().filter(stale).collect();
    let mut bad: Vec<String> = outcomes
        .iter()
        .filter_map(|o| o.differences.first().map(|first| format!("{name} differs: {} at {}", o.case, first.pointer)))
        .collect();
    bad.extend(unmet.iter().map(|entry| {
        format!("differences.yaml: {} {} no longer differs ({})", entry.case, entry.pointer, entry.reason)
    }));
    Ok(bad)
}

/// The areas that have fewer cases than they must have, a line each.
fn enough(files: &[File]) -> Result<Vec<String>> {
    let path = folder("minimum.yaml");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let minimum: BTreeMap<String, usize> = serde_saphyr::from_str(&text)?;
    let mut bad = Vec::new();
    for (area, wanted) in minimum {
        let count = |f: &&File| area == "all" || f.area == area;
        let found: usize = files.iter().filter(count).map(|f| f.cases.len()).sum();
        if found < wanted {
            bad.push(format!("area {area} has {found} cases, {wanted} are asked for"));
        }
    }
    Ok(bad)
}
