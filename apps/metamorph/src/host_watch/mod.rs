//! `host watch`: live progress of the work on hosts, from BareMetalHosts and HostOperations alone.

mod row;

use std::collections::{BTreeMap, BTreeSet};
use std::io::IsTerminal;
use std::time::Duration;

use api::metal3::BareMetalHost;
use api::metamorph::HostOperation;
use futures::{Stream, StreamExt};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use operator::Readable;
use serde_json::json;

use crate::cli::HostWatch;
use crate::{client, say};
use row::Row;

/// Columns of a terminal that does not report its width.
const COLUMNS: usize = 80;

/// Watches until a stop signal.
pub async fn run(options: HostWatch) -> anyhow::Result<()> {
    let client = client::connect(options.kubeconfig.as_deref()).await?;
    let mut view = View::new(options.namespace.is_none());
    tokio::select! {
        result = follow(&client, options.namespace.as_deref(), options.name.as_deref(), &mut view) => result,
        signal = crate::stop::stop_signal() => signal,
    }
}

/// Feeds the view with every change, until the output's reader is gone.
pub async fn follow(
    client: &Client,
    namespace: Option<&str>,
    name: Option<&str>,
    view: &mut View,
) -> anyhow::Result<()> {
    let of_name = match name {
        Some(name) => watcher::Config::default().fields(&format!("metadata.name={name}")),
        None => watcher::Config::default(),
    };
    let hosts = changes::<Readable<BareMetalHost>>(client, namespace, of_name).filter_map(|event| {
        std::future::ready(match event {
            Ok(watcher::Event::Apply(host)) => rest(host).map(watcher::Event::Apply).map(Ok),
            Ok(watcher::Event::InitApply(host)) => rest(host).map(watcher::Event::InitApply).map(Ok),
            Ok(watcher::Event::Delete(host)) => host.rest().map(watcher::Event::Delete).map(Ok),
            Ok(watcher::Event::Init) => Some(Ok(watcher::Event::Init)),
            Ok(watcher::Event::InitDone) => Some(Ok(watcher::Event::InitDone)),
            Err(error) => Some(Err(error)),
        })
    });
    let operations = changes::<HostOperation>(client, namespace, watcher::Config::default());
    let mut hosts = std::pin::pin!(hosts);
    let mut operations = std::pin::pin!(operations);
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    loop {
        let goes_on = tokio::select! {
            Some(event) = hosts.next() => match view.noted(event) {
                Some(event) => {
                    let listed = matches!(event, watcher::Event::InitDone);
                    let goes_on = view.host(event)?;
                    if let Some(missing) = name.filter(|_| listed).and_then(|name| view.missing(namespace, name)) {
                        say::note(&missing);
                    }
                    goes_on
                }
                None => true,
            },
            Some(event) = operations.next() => match view.noted(event) {
                Some(event) => view.operation(event, name)?,
                None => true,
            },
            _ = tick.tick() => {
                view.refresh();
                true
            }
        };
        if !goes_on {
            return Ok(());
        }
    }
}

fn changes<K>(
    client: &Client,
    namespace: Option<&str>,
    config: watcher::Config,
) -> impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send + use<K>
where
    K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
        + Send
        + 'static,
{
    let api: Api<K> = namespace.map_or_else(|| Api::all(client.clone()), |n| Api::namespaced(client.clone(), n));
    watcher(api, config).default_backoff()
}

/// The hosts, with what can be read of those that cannot be, which standard error names.
pub fn read(found: Vec<Readable<BareMetalHost>>) -> Vec<BareMetalHost> {
    found.into_iter().filter_map(rest).collect()
}

/// The host, or what can be read of it; a note says which could not be read in full.
pub fn rest(host: Readable<BareMetalHost>) -> Option<BareMetalHost> {
    if let Readable::Unreadable(unreadable) = &host {
        let name = key(&host.namespace().unwrap_or_default(), &host.name_any());
        say::note(&format!("the host {name} cannot be read in full: {}", unreadable.why));
    }
    host.rest()
}

/// The current hosts, one or more lines each.
pub fn listed(hosts: Vec<BareMetalHost>, operations: Vec<HostOperation>, namespaces: bool) -> String {
    let mut view = View::plain(namespaces);
    for host in hosts {
        let key = key(&host.namespace().unwrap_or_default(), &host.name_any());
        view.rows.entry(key).or_default().row.see_host(Box::new(host));
    }
    for operation in operations {
        let key = key(&operation.namespace().unwrap_or_default(), &operation.spec.host.name);
        view.rows.entry(key).or_default().row.see_operation(Box::new(operation));
    }
    let mut text = String::new();
    for (key, entry) in view.rows.iter().filter(|(_, entry)| entry.row.is_known()) {
        for line in entry.row.lines(view.name(key), columns(), Timestamp::now()) {
            text.push_str(&line);
            text.push('\n');
        }
    }
    text
}

/// Lines that change at a terminal, a log elsewhere, or JSON for programs.
pub struct View {
    terminal: Option<MultiProgress>,
    json: bool,
    zone: TimeZone,
    /// Whether to show names with their namespaces.
    namespaces: bool,
    rows: BTreeMap<String, Entry>,
    /// Hosts seen since the current list began; `None` outside of a list.
    listed: Option<BTreeSet<String>>,
    failing: bool,
    /// Whether it was said that there is no host of the name that is watched.
    said_missing: bool,
}

#[derive(Default)]
struct Entry {
    row: Row,
    bar: Option<ProgressBar>,
    /// Key of the last logged line, see [`Row::logged`].
    last: String,
}

impl View {
    /// A view that matches standard output; `namespaces` shows those of the hosts.
    pub fn new(namespaces: bool) -> Self {
        let terminal =
            std::io::stdout().is_terminal().then(|| MultiProgress::with_draw_target(ProgressDrawTarget::stdout()));
        Self { terminal, ..Self::plain(namespaces) }
    }

    /// A view that writes a line of JSON for each event.
    pub fn json() -> Self {
        Self { json: true, ..Self::plain(true) }
    }

    fn plain(namespaces: bool) -> Self {
        let zone = TimeZone::try_system().unwrap_or(TimeZone::UTC);
        Self {
            terminal: None,
            json: false,
            zone,
            namespaces,
            rows: BTreeMap::new(),
            listed: None,
            failing: false,
            said_missing: false,
        }
    }

    /// The event, or `None` for a failure, whose beginning and end are reported once.
    fn noted<K>(&mut self, event: watcher::Result<watcher::Event<K>>) -> Option<watcher::Event<K>> {
        match event {
            Ok(event) => {
                if self.failing && !matches!(event, watcher::Event::Init) {
                    self.failing = false;
                    say::note("the Kubernetes API answers again");
                }
                Some(event)
            }
            Err(error) => {
                if !std::mem::replace(&mut self.failing, true) {
                    say::error(&anyhow::Error::new(error).context("watch the hosts; it is tried again"));
                }
                None
            }
        }
    }

    /// Applies a change of hosts; false if the reader is gone.
    fn host(&mut self, event: watcher::Event<BareMetalHost>) -> anyhow::Result<bool> {
        match event {
            watcher::Event::Init => {
                self.listed = Some(BTreeSet::new());
                Ok(true)
            }
            watcher::Event::Apply(host) | watcher::Event::InitApply(host) => {
                let key = key(&host.namespace().unwrap_or_default(), &host.name_any());
                if let Some(listed) = &mut self.listed {
                    listed.insert(key.clone());
                }
                self.rows.entry(key.clone()).or_default().row.see_host(Box::new(host));
                self.show(&key)
            }
            watcher::Event::Delete(host) => self.gone(&key(&host.namespace().unwrap_or_default(), &host.name_any())),
            watcher::Event::InitDone => {
                let listed = self.listed.take().unwrap_or_default();
                let missing = self.rows.iter().filter(|(key, entry)| entry.row.is_known() && !listed.contains(*key));
                let missing: Vec<String> = missing.map(|(key, _)| key.clone()).collect();
                let mut read = true;
                for key in missing {
                    read &= self.gone(&key)?;
                }
                Ok(read)
            }
        }
    }

    /// Says that there is no host of the name that is watched, once; call it when the hosts have been listed.
    fn missing(&mut self, namespace: Option<&str>, name: &str) -> Option<String> {
        let there = self.rows.values().any(|entry| entry.row.is_known());
        if there || std::mem::replace(&mut self.said_missing, true) {
            return None;
        }
        let place =
            namespace.map_or_else(|| "any namespace".to_owned(), |namespace| format!("namespace \"{namespace}\""));
        Some(format!(
            "there is no host \"{name}\" in {place}; it is waited for until Ctrl-C — correct the name if it is mistyped: \
             \"metamorph host list\" shows the hosts that there are"
        ))
    }

    /// Applies a change of operations; false if the reader is gone.
    fn operation(&mut self, event: watcher::Event<HostOperation>, wanted: Option<&str>) -> anyhow::Result<bool> {
        let (watcher::Event::Apply(operation) | watcher::Event::InitApply(operation)) = event else { return Ok(true) };
        let host = operation.spec.host.name.clone();
        if wanted.is_some_and(|name| name != host) {
            return Ok(true);
        }
        let key = key(&operation.namespace().unwrap_or_default(), &host);
        self.rows.entry(key.clone()).or_default().row.see_operation(Box::new(operation));
        self.show(&key)
    }

    fn name<'a>(&self, key: &'a str) -> &'a str {
        if self.namespaces { key } else { key.split_once('/').map_or(key, |(_, name)| name) }
    }

    fn gone(&mut self, key: &str) -> anyhow::Result<bool> {
        let Some(entry) = self.rows.remove(key) else { return Ok(true) };
        if let Some(bar) = entry.bar {
            bar.finish_and_clear();
        }
        if self.json {
            let (namespace, name) = key.split_once('/').unwrap_or_default();
            let event = json!({ "time": Timestamp::now().to_string(), "type": "deleted",
                "host": { "namespace": namespace, "name": name } });
            return say::still_read(&format!("{event}\n"));
        }
        let now = Timestamp::now().to_zoned(self.zone.clone());
        self.say(&format!("{} {}  deleted", now.strftime("%H:%M:%S"), self.name(key)))
    }

    fn show(&mut self, key: &str) -> anyhow::Result<bool> {
        let name = self.name(key).to_owned();
        let Some(entry) = self.rows.get_mut(key).filter(|entry| entry.row.is_known()) else { return Ok(true) };
        let Some(terminal) = &self.terminal else {
            let (about, line) = entry.row.logged(&name, &self.zone, Timestamp::now());
            if about == entry.last {
                return Ok(true);
            }
            entry.last = about;
            if self.json {
                return say::still_read(&format!("{}\n", entry.row.event(Timestamp::now())));
            }
            return say::still_read(&format!("{line}\n"));
        };
        let bar = entry.bar.get_or_insert_with(|| {
            let bar = terminal.add(ProgressBar::new(0));
            if let Ok(style) = ProgressStyle::with_template("{msg}") {
                bar.set_style(style);
            }
            bar
        });
        // The last column stays free: some terminals wrap when it is written.
        bar.set_message(entry.row.lines(&name, columns() - 1, Timestamp::now()).join("\n"));
        Ok(true)
    }

    /// Redraws the elapsed times, which advance without events.
    fn refresh(&mut self) {
        if self.terminal.is_some() {
            for key in self.rows.keys().cloned().collect::<Vec<_>>() {
                // Cannot fail at a terminal.
                let _ = self.show(&key);
            }
        }
    }

    /// Prints a line above the others; false if the reader is gone.
    ///
    /// # Errors
    /// When standard output fails for another reason.
    pub fn say(&self, line: &str) -> anyhow::Result<bool> {
        match &self.terminal {
            Some(terminal) => {
                // A closed terminal needs no line.
                let _ = terminal.println(line);
                Ok(true)
            }
            None => say::still_read(&format!("{line}\n")),
        }
    }

    /// Removes the lines: the final report replaces them.
    pub fn clear(&self) {
        for entry in self.rows.values() {
            if let Some(bar) = &entry.bar {
                bar.finish_and_clear();
            }
        }
    }

    /// Leaves the lines on the screen.
    pub fn finish(&self) {
        for entry in self.rows.values() {
            if let Some(bar) = &entry.bar {
                bar.abandon();
            }
        }
    }
}

fn key(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

/// Columns of the terminal.
fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stdout());
    size.map(|size| usize::from(size.ws_col)).ok().filter(|columns| *columns > 1).unwrap_or(COLUMNS)
}

#[cfg(test)]
mod tests {
    use super::*;

    use api::metal3::BareMetalHostSpec;

    #[test]
    fn a_host_that_is_not_there_is_told_once() {
        let mut view = View::plain(false);
        let list = |view: &mut View, hosts: &[&str]| {
            view.host(watcher::Event::Init).unwrap();
            for name in hosts {
                let mut host = BareMetalHost::new(name, BareMetalHostSpec::default());
                host.metadata.namespace = Some("default".to_owned());
                view.host(watcher::Event::InitApply(host)).unwrap();
            }
            view.host(watcher::Event::InitDone).unwrap();
            view.missing(Some("default"), "node-9")
        };
        let said = list(&mut view, &[]).unwrap();
        for part in ["no host \"node-9\"", "namespace \"default\"", "is waited for", "metamorph host list"] {
            assert!(said.contains(part), "{said}");
        }
        assert_eq!(list(&mut view, &[]), None, "a watch that begins anew");
        let mut view = View::plain(true);
        assert!(view.missing(None, "node-9").is_some_and(|said| said.contains("any namespace")));
        assert_eq!(list(&mut View::plain(false), &["node-9"]), None);
    }
}
