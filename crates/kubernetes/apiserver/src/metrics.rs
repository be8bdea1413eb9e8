//! `/metrics`: what is counted, with the names and labels that kube-apiserver gives it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use exposition::{Counter, Family, Histogram, counters, gauges};
use http::HeaderMap;
use http_body_util::BodyExt as _;

use crate::limits::Limits;
use crate::media;
use crate::reply::Body;
use crate::route::{Query, ResourceTarget, Verb};
use crate::store::Store;

/// Upper bounds of the buckets of a request's duration, seconds (upstream's).
const BUCKETS: &[f64] = &[
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
];
/// Names of a request's labels, behind that of its answer's code.
const LABELS: [&str; 9] =
    ["code", "component", "dry_run", "group", "resource", "scope", "subresource", "verb", "version"];

/// What a request was about, as labels.
#[derive(Debug, Clone, Default)]
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

    /// The values of [`LABELS`].
    fn values<'a>(&'a self, code: &'a str) -> [&'a str; LABELS.len()] {
        let dry = if self.dry_run { "All" } else { "" };
        let (group, resource, subresource) = (&self.group, &self.resource, &self.subresource);
        [code, "apiserver", dry, group, resource, self.scope, subresource, &self.verb, &self.version]
    }
}

/// Everything counted since the start.
pub struct Metrics {
    requests: Counter,
    durations: Histogram,
    refused: [AtomicU64; 2],
    /// Held by each watch that runs.
    watches: Arc<()>,
}

impl Default for Metrics {
    fn default() -> Self {
        let help = "Time from a request's arrival to its answer, in seconds.";
        let family = Family { name: "apiserver_request_duration_seconds", help, labels: &LABELS[1..] };
        Self {
            requests: Counter::new("apiserver_request_total", "Answered requests.", &LABELS),
            durations: Histogram::new(family, BUCKETS),
            refused: Default::default(),
            watches: Arc::default(),
        }
    }
}

impl Metrics {
    /// Counts an answered request. Watches have no duration: theirs is their client's choice.
    pub fn answered(&self, labels: &Labels, code: u16, took: Duration) {
        let code = code.to_string();
        let values = labels.values(&code);
        self.requests.count(&values);
        if labels.verb != "WATCH" {
            self.durations.observe(&values[1..], took.as_secs_f64());
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
        self.requests.write(&mut out);
        self.durations.write(&mut out);
        let gauge = |out: &mut String, name, help, labels, samples: Vec<(Vec<String>, f64)>| {
            gauges(out, Family { name, help, labels }, samples);
        };
        let kind = |kind: &str, count: f64| (vec![kind.to_owned()], count);
        let (read_only, mutating) = limits.in_flight();
        let in_flight = vec![kind("mutating", mutating as f64), kind("readOnly", read_only as f64)];
        let name = "apiserver_current_inflight_requests";
        gauge(&mut out, name, "Requests in flight, by kind.", &["request_kind"], in_flight);
        let refused = |at: usize| self.refused[at].load(Ordering::Relaxed) as f64;
        let (name, help) = ("apiserver_dropped_requests_total", "Requests refused under pressure.");
        let family = Family { name, help, labels: &["request_kind"] };
        counters(&mut out, family, [kind("readOnly", refused(0)), kind("mutating", refused(1))]);
        let watches = kind("WATCH", (Arc::strong_count(&self.watches) - 1) as f64);
        gauge(&mut out, "apiserver_longrunning_requests", "Watches that run.", &["verb"], vec![watches]);
        let counts = store.object_counts().await.unwrap_or_default().into_iter().map(|(storage, count)| {
            let name = match storage.split_once('/') {
                Some((group, plural)) => format!("{plural}.{group}"),
                None => storage,
            };
            (vec![name], count as f64)
        });
        gauge(&mut out, "apiserver_storage_objects", "Stored objects, by resource.", &["resource"], counts.collect());
        let size = vec![(vec![], store.file_size() as f64)];
        gauge(&mut out, "apiserver_storage_size_bytes", "Size of the store's file.", &[], size);
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        exposition::process(&mut out, &stat, std::fs::read_dir("/proc/self/fd").ok().map(Iterator::count));
        out
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
        let mut text = String::new();
        metrics.requests.write(&mut text);
        metrics.durations.write(&mut text);
        assert_eq!(text.matches("\napiserver_request_total{").count(), 1, "{text}");
        let labels = "dry_run=\"\",group=\"\",resource=\"\",scope=\"\",subresource=\"\",verb=\"GET\",version=\"\"";
        let line = format!("apiserver_request_total{{code=\"404\",component=\"apiserver\",{labels}}} 100\n");
        assert!(text.contains(&line), "{text}");
        assert!(text.contains("le=\"0.025\"} 0\n"), "{text}");
        assert!(text.contains("le=\"0.05\"} 100\n"), "{text}");
    }
}
