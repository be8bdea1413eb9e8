//! `/metrics`: counters in Prometheus' text form, with the names and labels that kube-apiserver gives them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::HeaderMap;
use http_body_util::BodyExt as _;

use crate::limits::Limits;
use crate::media;
use crate::reply::Body;
use crate::route::{Query, ResourceTarget, Verb};
use crate::store::Store;

/// Upper bounds of the buckets of a request's duration, seconds (upstream's).
const BUCKETS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
];
/// Sets of labels that are told apart; what comes beyond is counted as one.
const MAX_SERIES: usize = 4096;

/// Clock ticks a second in `/proc`: `USER_HZ`, 100 on Linux.
const TICKS: f64 = 100.0;
/// Bytes of a page in `/proc`, on the machines that this is built for.
const PAGE: u64 = 4096;

/// What a request was about, as labels.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Labels {
    verb: String,
    group: String,
    version: String,
    resource: String,
    subresource: String,
    scope: &'static str,
    dry_run: bool,
}

impl Labels {
    /// Of a request for a resource.
    pub fn of(target: &ResourceTarget, headers: &HeaderMap, query: &Query) -> Self {
        let apply = media::content_type(headers).starts_with("application/apply-patch");
        let dry_run = query.all("dryRun").next().is_some();
        let verb = match target.verb {
            Verb::Patch if apply => "APPLY",
            Verb::Get => "GET",
            Verb::List => "LIST",
            Verb::Watch => "WATCH",
            Verb::Create => "POST",
            Verb::Update => "PUT",
            Verb::Patch => "PATCH",
            Verb::Delete => "DELETE",
            Verb::DeleteCollection => "DELETECOLLECTION",
        };
        let scope = match (target.name.is_empty(), target.ns.is_empty()) {
            (false, _) => "resource",
            (true, false) => "namespace",
            (true, true) => "cluster",
        };
        Self {
            verb: verb.to_owned(),
            group: target.resource.group.clone(),
            version: target.resource.version.clone(),
            resource: target.resource.plural.clone(),
            subresource: target.sub.clone(),
            scope,
            dry_run,
        }
    }

    /// Of a request for a path that is no resource: its first part only, since clients may invent any.
    pub fn of_path(method: &str, path: &str) -> Self {
        let known = ["healthz", "livez", "readyz", "metrics", "openapi", "version", "api", "apis"];
        let first = path.split('/').find(|part| !part.is_empty()).unwrap_or_default();
        let verb = if matches!(method, "GET" | "HEAD") { "GET" } else { "OTHER" };
        let subresource = if known.contains(&first) { format!("/{first}") } else { String::new() };
        Self { verb: verb.to_owned(), subresource, ..Self::default() }
    }

    fn text(&self) -> String {
        let dry = if self.dry_run { "All" } else { "" };
        format!(
            "component=\"apiserver\",dry_run=\"{dry}\",group=\"{}\",resource=\"{}\",scope=\"{}\",subresource=\"{}\",verb=\"{}\",version=\"{}\"",
            self.group, self.resource, self.scope, self.subresource, self.verb, self.version
        )
    }
}

#[derive(Default)]
struct Durations {
    buckets: [u64; BUCKETS.len()],
    count: u64,
    sum: f64,
}

/// Everything counted since the start.
#[derive(Default)]
pub struct Metrics {
    requests: Mutex<BTreeMap<(Labels, u16), u64>>,
    durations: Mutex<BTreeMap<Labels, Durations>>,
    refused: [AtomicU64; 2],
    /// Held by each watch that runs.
    watches: Arc<()>,
}

impl Metrics {
    /// Counts an answered request. Watches have no duration: theirs is their client's choice.
    pub fn answered(&self, labels: &Labels, code: u16, took: Duration) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let known = requests.len() < MAX_SERIES || requests.contains_key(&(labels.clone(), code));
        let labels = if known { labels.clone() } else { Labels::default() };
        *requests.entry((labels.clone(), code)).or_default() += 1;
        drop(requests);
        if labels.verb == "WATCH" {
            return;
        }
        let mut durations = self.durations.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = durations.entry(labels).or_default();
        let seconds = took.as_secs_f64();
        seen.count += 1;
        seen.sum += seconds;
        if let Some(at) = BUCKETS.iter().position(|bound| seconds <= *bound) {
            seen.buckets[at] += 1;
        }
    }

    /// Counts a watch for as long as its stream is there.
    pub fn watching(&self, stream: Body) -> Body {
        let running = Arc::clone(&self.watches);
        stream
            .map_frame(move |frame| {
                let _running = &running;
                frame
            })
            .boxed_unsync()
    }

    /// Counts a request that was refused under pressure.
    pub fn refused(&self, mutating: bool) {
        self.refused[usize::from(mutating)].fetch_add(1, Ordering::Relaxed);
    }

    /// The whole text.
    pub async fn text(&self, store: &Store, limits: &Limits) -> String {
        let mut out = String::new();
        self.requests_text(&mut out);
        let (read_only, mutating) = limits.in_flight();
        head(&mut out, "apiserver_current_inflight_requests", "gauge", "Requests in flight, by kind.");
        for (kind, count) in [("mutating", mutating), ("readOnly", read_only)] {
            line(&mut out, "apiserver_current_inflight_requests", &format!("request_kind=\"{kind}\""), count);
        }
        head(&mut out, "apiserver_dropped_requests_total", "counter", "Requests refused under pressure.");
        for (kind, at) in [("readOnly", 0), ("mutating", 1)] {
            let count = self.refused[at].load(Ordering::Relaxed);
            line(&mut out, "apiserver_dropped_requests_total", &format!("request_kind=\"{kind}\""), count);
        }
        head(&mut out, "apiserver_longrunning_requests", "gauge", "Watches that run.");
        line(&mut out, "apiserver_longrunning_requests", "verb=\"WATCH\"", Arc::strong_count(&self.watches) - 1);
        head(&mut out, "apiserver_storage_objects", "gauge", "Stored objects, by resource.");
        for (storage, count) in store.object_counts().await.unwrap_or_default() {
            let name = match storage.split_once('/') {
                Some((group, plural)) => format!("{plural}.{group}"),
                None => storage,
            };
            line(&mut out, "apiserver_storage_objects", &format!("resource=\"{name}\""), count);
        }
        head(&mut out, "apiserver_storage_size_bytes", "gauge", "Size of the store's file.");
        line(&mut out, "apiserver_storage_size_bytes", "", store.file_size());
        process_text(&mut out);
        out
    }

    fn requests_text(&self, out: &mut String) {
        head(out, "apiserver_request_total", "counter", "Answered requests.");
        for ((labels, code), count) in self.requests.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            line(out, "apiserver_request_total", &format!("code=\"{code}\",{}", labels.text()), count);
        }
        let name = "apiserver_request_duration_seconds";
        head(out, name, "histogram", "Time from a request's arrival to its answer, in seconds.");
        for (labels, seen) in self.durations.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let text = labels.text();
            let mut sum = 0;
            for (bound, count) in BUCKETS.iter().zip(seen.buckets) {
                sum += count;
                line(out, &format!("{name}_bucket"), &format!("{text},le=\"{bound}\""), sum);
            }
            line(out, &format!("{name}_bucket"), &format!("{text},le=\"+Inf\""), seen.count);
            line(out, &format!("{name}_sum"), &text, seen.sum);
            line(out, &format!("{name}_count"), &text, seen.count);
        }
    }
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn line(out: &mut String, name: &str, labels: &str, value: impl std::fmt::Display) {
    let _ =
        if labels.is_empty() { writeln!(out, "{name} {value}") } else { writeln!(out, "{name}{{{labels}}} {value}") };
}

/// What the system says of this process; what it does not say is left out.
fn process_text(out: &mut String) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // After the program's name in parentheses, which may hold anything: field 3 is the first.
    let fields: Vec<&str> =
        stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect()).unwrap_or_default();
    let field = |number: usize| fields.get(number - 3).and_then(|f| f.parse::<u64>().ok());
    if let (Some(user), Some(system)) = (field(14), field(15)) {
        head(out, "process_cpu_seconds_total", "counter", "Processor time used, in seconds.");
        line(out, "process_cpu_seconds_total", "", (user + system) as f64 / TICKS);
    }
    if let Some(pages) = field(24) {
        head(out, "process_resident_memory_bytes", "gauge", "Resident memory.");
        line(out, "process_resident_memory_bytes", "", pages * PAGE);
    }
    if let Some(bytes) = field(23) {
        head(out, "process_virtual_memory_bytes", "gauge", "Virtual memory.");
        line(out, "process_virtual_memory_bytes", "", bytes);
    }
    if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
        head(out, "process_open_fds", "gauge", "Open file descriptors.");
        line(out, "process_open_fds", "", open.count());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invented_paths_do_not_make_series() {
        let metrics = Metrics::default();
        for i in 0..100 {
            metrics.answered(&Labels::of_path("GET", &format!("/x{i}")), 404, Duration::from_millis(30));
        }
        assert_eq!(metrics.requests.lock().unwrap().len(), 1);
        let mut text = String::new();
        metrics.requests_text(&mut text);
        assert!(text.contains("apiserver_request_total{code=\"404\",component=\"apiserver\""), "{text}");
        assert!(text.contains("le=\"0.025\"} 0\n"), "{text}");
        assert!(text.contains("le=\"0.05\"} 100\n"), "{text}");
    }
}
