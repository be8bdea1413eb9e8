//! `provisioner check`: the kit's scenarios on a provisioner that is another program.
//!
//! Scenarios take hours of a machine's life, which pass in an instant: the kit's clock is paused, and a worker is told the time with each call. While the
//! worker is waited for, which takes real time, the paused clock stands still.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, anyhow};
use provisioner::HostResource;
use provisioner_external::check::{Checked, Numbered, real_time};
use provisioner_external::{Connect, ExternalProvisioner, Reached, Site, introduce, socket_address, unix_socket};
use provisioner_kit::{Report, Scenario, capabilities_of, run as carry_out, scenarios};

use crate::cli::ProvisionerCheck;
use crate::provisioners::read_list;
use crate::say;

/// Runs the command: the exit code is the verdict.
pub async fn run(options: ProvisionerCheck) -> anyhow::Result<ExitCode> {
    let (site, connect) = found(&options).await?;
    // The kit's time is a runtime's own.
    let (ended, end) = tokio::sync::oneshot::channel();
    let checking = std::thread::Builder::new().name("check".to_owned()).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        let verdict =
            runtime.context("begin to check").and_then(|runtime| runtime.block_on(check(&options, site, connect)));
        // Whoever waited has gone.
        let _ = ended.send(verdict);
    });
    checking.context("begin to check")?;
    let passes = end.await.context("the check broke off")??;
    Ok(if passes { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn found(options: &ProvisionerCheck) -> anyhow::Result<(Site, Arc<dyn Connect>)> {
    if let Some(list) = &options.list {
        let sites = read_list(list).await?;
        let site = sites.into_iter().find(|site| site.name == options.address);
        let site = site.with_context(|| format!("{} does not list \"{}\"", list.display(), options.address))?;
        let connect: Arc<dyn Connect> = match &site.reached {
            Reached::Socket(path, user) => Arc::new(unix_socket(path.clone(), *user)),
            Reached::Tls(tls) => Arc::new(tls.clone()),
            Reached::Started(_) => {
                return Err(anyhow!("a server starts \"{}\" itself: start it by hand, and name its socket", site.name));
            }
        };
        return Ok((site, connect));
    }
    let path = socket_address(&options.address)
        .map_err(|why| anyhow!("{}: {why}; or name the list that has it (--provisioners)", options.address))?;
    let connect = Arc::new(unix_socket(path.clone(), None));
    let (name, id_prefix) = introduce::<HostResource>(connect.as_ref())
        .await
        .map_err(|why| anyhow!("ask the provisioner at {}: {why}", options.address))?;
    let site = Site { id_prefix, ..Site::new(name, Reached::Socket(path, None)) };
    Ok((site, connect))
}

async fn check(options: &ProvisionerCheck, site: Site, connect: Arc<dyn Connect>) -> anyhow::Result<bool> {
    let hold = real_time();
    let held = hold();
    let greeted = ExternalProvisioner::new(site.clone(), Arc::clone(&connect));
    let known = greeted.greet().await?;
    drop((greeted, held));
    let named = options.machines.clone().or_else(|| known.check_address.clone());
    let template =
        named.context("the provisioner names no machines to check it with: name some that nobody uses (--machines)")?;
    if !template.contains("{n}") {
        return Err(anyhow!("{template:?} has no {{n}}: each run needs another machine"));
    }
    // Another number than those of any earlier check: a worker's machines outlive it.
    let first = u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or_default().saturating_mul(1000);
    let machines = Numbered::from(template, first, connect).context("begin to check")?;
    say::out(&format!("{}, version {} of the contract, program {}\n", site.name, known.version, known.program))?;
    let checked = Checked::new(site, known, Box::new(machines), Some(hold));
    let mut all = scenarios(&capabilities_of(&checked));
    if let Some(text) = &options.only {
        all.retain(|scenario| scenario.name.contains(text.as_str()));
    }
    judge(&checked, &all).await
}

/// Carries out one scenario after the other, and says how each came out.
async fn judge(checked: &Checked, all: &[Scenario]) -> anyhow::Result<bool> {
    let (mut failed, mut left_out, mut runs) = (0_usize, 0_usize, 0_usize);
    for scenario in all {
        let report = carry_out(checked, std::slice::from_ref(scenario)).await;
        let count: usize = report.runs.values().sum();
        runs += count;
        say::out(&line(scenario, &report, count))?;
        failed += usize::from(!report.violations.is_empty());
        left_out += report.left_out.len();
    }
    let passed = all.len() - failed - left_out;
    say::out(&format!(
        "{passed} scenarios passed in {runs} runs, {failed} did not, {left_out} were left out: its machines cannot be made so\n"
    ))?;
    if all.is_empty() {
        return Err(anyhow!("no scenario has such a name"));
    }
    Ok(failed == 0)
}

fn line(scenario: &Scenario, report: &Report, count: usize) -> String {
    let name = format!("{:?}: {}", scenario.class, scenario.name);
    if !report.left_out.is_empty() {
        return format!("left out  {name}\n");
    }
    match report.violations.first() {
        None => format!("passed    {name} ({count} runs)\n"),
        Some(_) => {
            report.violations.iter().fold(format!("FAILED    {name}\n"), |text, found| format!("{text}{found}\n"))
        }
    }
}
