//! `host watch`: what is being done to hosts, live, from BareMetalHosts and HostOperations alone.

use std::collections::BTreeMap;
use std::io::IsTerminal;

use api::metal3::BareMetalHost;
use api::metamorph::{HostOperation, OperationPhase};
use futures::{StreamExt, TryStreamExt};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};

use crate::cli::HostWatch;
use crate::client;

/// Watches until it is told to stop.
pub async fn run(options: HostWatch) -> anyhow::Result<()> {
    let client = client::connect(options.kubeconfig.as_deref()).await?;
    let mut view = View::new();
    tokio::select! {
        result = follow(&client, options.namespace.as_deref(), options.name.as_deref(), &mut view) => result,
        signal = crate::server::stop_signal() => signal,
    }
}

/// Feeds the view with every change, until the watch fails for good.
pub async fn follow(
    client: &Client,
    namespace: Option<&str>,
    name: Option<&str>,
    view: &mut View,
) -> anyhow::Result<()> {
    let hosts: Api<BareMetalHost> = scoped(client, namespace);
    let operations: Api<HostOperation> = scoped(client, namespace);
    let host_config = match name {
        Some(name) => watcher::Config::default().fields(&format!("metadata.name={name}")),
        None => watcher::Config::default(),
    };
    let hosts =
        watcher(hosts, host_config).default_backoff().applied_objects().map_ok(|h| Change::Host(Box::new(h))).boxed();
    let operations = watcher(operations, watcher::Config::default())
        .default_backoff()
        .applied_objects()
        .map_ok(|o| Change::Operation(Box::new(o)))
        .boxed();
    let mut changes = futures::stream::select(hosts, operations);
    while let Some(change) = changes.next().await {
        match change {
            Ok(Change::Operation(operation)) if name.is_some_and(|n| n != operation.spec.host.name) => {}
            Ok(change) => view.show(&change),
            Err(error) => tracing::debug!(%error, "watch"),
        }
    }
    Ok(())
}

fn scoped<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
{
    namespace.map_or_else(|| Api::all(client.clone()), |n| Api::namespaced(client.clone(), n))
}

/// Something that changed.
pub enum Change {
    /// A host.
    Host(Box<BareMetalHost>),
    /// An operation.
    Operation(Box<HostOperation>),
}

/// Bars at a terminal, lines elsewhere.
pub struct View {
    bars: Option<MultiProgress>,
    rows: BTreeMap<String, Row>,
}

#[derive(Default)]
struct Row {
    bar: Option<ProgressBar>,
    state: String,
    step: String,
    last: String,
}

impl View {
    /// A view for what standard output is.
    pub fn new() -> Self {
        Self { bars: std::io::stdout().is_terminal().then(MultiProgress::new), rows: BTreeMap::new() }
    }

    /// Shows a change.
    pub fn show(&mut self, change: &Change) {
        match change {
            Change::Host(host) => {
                let state = match host.status.as_ref() {
                    Some(status) if !status.error_message.is_empty() => {
                        format!("{}: {}", status.error_type.map_or("error", |e| e.as_str()), status.error_message)
                    }
                    _ => host.state().to_string(),
                };
                self.row(&host.namespace().unwrap_or_default(), &host.name_any(), |row| row.state = state, None);
            }
            Change::Operation(operation) => {
                let status = operation.status.clone().unwrap_or_default();
                let step = match status.phase {
                    OperationPhase::Running => format!(
                        "{} {} {}: {}",
                        operation.spec.operation.as_str(),
                        status.progress.unwrap_or_default(),
                        status.current_step.unwrap_or_default(),
                        status.message.unwrap_or_default()
                    ),
                    _ => String::new(),
                };
                let percent =
                    status.steps.iter().find(|s| s.phase == api::metamorph::StepPhase::Running).and_then(|s| s.percent);
                let namespace = operation.namespace().unwrap_or_default();
                self.row(&namespace, &operation.spec.host.name, |row| row.step = step, percent);
            }
        }
    }

    #[allow(clippy::print_stdout)] // The command's purpose.
    fn row(&mut self, namespace: &str, name: &str, change: impl FnOnce(&mut Row), percent: Option<u32>) {
        let key = format!("{namespace}/{name}");
        let row = self.rows.entry(key.clone()).or_default();
        change(row);
        let text = if row.step.is_empty() { row.state.clone() } else { format!("{} · {}", row.state, row.step) };
        if text == row.last {
            return;
        }
        row.last.clone_from(&text);
        let Some(bars) = &self.bars else {
            println!("{key}  {text}");
            return;
        };
        let bar = row.bar.get_or_insert_with(|| {
            let bar = bars.add(ProgressBar::new(100));
            if let Ok(style) = ProgressStyle::with_template("{prefix:24} {bar:20} {elapsed:>4} {wide_msg}") {
                bar.set_style(style);
            }
            bar.set_prefix(key.clone());
            bar.enable_steady_tick(std::time::Duration::from_millis(500));
            bar
        });
        if let Some(percent) = percent {
            bar.set_position(u64::from(percent));
        }
        bar.set_message(text);
    }

    /// Prints a line above the bars.
    #[allow(clippy::print_stdout)] // For the person at the terminal.
    pub fn say(&self, line: &str) {
        match &self.bars {
            Some(bars) => {
                // A terminal that is gone needs no line.
                let _ = bars.println(line);
            }
            None => println!("{line}"),
        }
    }

    /// Leaves the bars as they are.
    pub fn finish(&self) {
        for row in self.rows.values() {
            if let Some(bar) = &row.bar {
                bar.abandon();
            }
        }
    }
}
