//! Does a case's steps on a server and keeps each answer whole, masked.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt as _;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use crate::case::{Case, File, Variables, fill, mentions, text};
use crate::hooks::Hooks;
use crate::mask::{Masks, durations, sort_causes};
use crate::openapi;
use crate::target::Target;
use crate::wire;

const METHODS: [&str; 8] = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE"];
/// Headers that are compared.
const HEADERS: [&str; 6] = ["content-type", "warning", "retry-after", "allow", "location", "content-encoding"];
/// How long one answer may take.
const PATIENCE: Duration = Duration::from_secs(45);
/// How long a state may take to come.
pub const UNTIL: Duration = Duration::from_secs(25);

/// Runs cases on one server.
pub struct Runner<'a> {
    /// The server.
    pub target: &'a Target,
    /// Webhooks for it.
    pub hooks: &'a Hooks,
    /// How long a state may take to come: [`UNTIL`].
    pub until: Duration,
}

/// A case while it runs.
struct Run {
    variables: Variables,
    watches: BTreeMap<String, mpsc::UnboundedReceiver<Value>>,
    refused: BTreeSet<String>,
    bodies: BTreeMap<String, Vec<u8>>,
    answers: Vec<Value>,
}

/// An answer as it came.
struct Answer {
    status: u16,
    headers: Map<String, Value>,
    /// All headers, for what a step wants of them besides.
    whole: reqwest::header::HeaderMap,
    body: Vec<u8>,
    /// What the step waited for never came.
    late: bool,
}

impl Runner<'_> {
    /// Steps of a whole file: once, before its cases. An error is every case's.
    pub async fn shared(&self, file: &File) -> Result<()> {
        let mut run = self.begin(file.variables.clone());
        for step in &file.shared {
            let step = fill(step, &run.variables);
            self.quiet(&mut run, &step).await.with_context(|| format!("shared step {step}"))?;
        }
        Ok(())
    }

    /// A case's answers, masked; a set-up that fails is an answer too.
    pub async fn case(&self, file: &File, case: &Case) -> Value {
        let mut variables = file.variables.clone();
        variables.extend(case.variables.clone());
        let mut run = self.begin(variables);
        let answers = match self.steps(&mut run, file, case).await {
            Ok(()) => run.answers,
            Err(e) => {
                run.answers.push(json!({"failed": format!("{e:#}")}));
                run.answers
            }
        };
        let mut masks = Masks::new(vec![
            (self.target.base.clone(), "<server>".into()),
            (self.target.base.replace("https://", ""), "<server>".into()),
            (self.hooks.base.clone(), "<webhook>".into()),
            (self.hooks.base.replace("https://", ""), "<webhook>".into()),
            (self.hooks.ca_bundle.clone(), "<webhook-ca>".into()),
            (STANDARD.encode(&self.target.ca), "<ca>".into()),
        ]);
        let masked = answers.into_iter().map(|mut answer| {
            if answer.pointer("/body/protobuf").is_some() {
                masks.protobuf(&mut answer["body"]);
            }
            masks.apply(&mut answer);
            answer
        });
        masked.collect()
    }

    fn begin(&self, mut variables: Variables) -> Run {
        variables.insert("hook".into(), json!(self.hooks.base));
        variables.insert("hookca".into(), json!(self.hooks.ca_bundle));
        Run { variables, watches: BTreeMap::new(), refused: BTreeSet::new(), bodies: BTreeMap::new(), answers: vec![] }
    }

    async fn steps(&self, run: &mut Run, file: &File, case: &Case) -> Result<()> {
        let everything = json!([case.setup, case.steps, case.variables, file.variables]);
        for name in ["ns", "ns2"] {
            if mentions(&everything, name) {
                let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": run.variables[name]}});
                self.quiet(run, &json!({"POST": "/api/v1/namespaces", "body": body})).await?;
            }
        }
        for step in &case.setup {
            let step = fill(step, &run.variables);
            self.quiet(run, &step).await.with_context(|| format!("set-up {step}"))?;
        }
        for step in &case.steps {
            let step = fill(step, &run.variables);
            if let Some(answer) = self.step(run, &step).await.with_context(|| format!("step {step}"))? {
                run.answers.push(answer);
            }
        }
        Ok(())
    }

    /// A step whose answer is not compared, but must be good.
    async fn quiet(&self, run: &mut Run, step: &Value) -> Result<()> {
        if let Some(answer) = self.step(run, step).await? {
            let status = answer["status"].as_u64().unwrap_or_default();
            ensure!((200..300).contains(&status), "answered {status}: {}", answer["body"]);
        }
        Ok(())
    }

    /// One step. `None` if it has no answer of its own.
    async fn step(&self, run: &mut Run, step: &Value) -> Result<Option<Value>> {
        let object = step.as_object().context("a step is a map")?;
        if let Some(body) = object.get("crd") {
            self.define(run, body).await?;
            return Ok(None);
        }
        if let Some(key) = object.get("hook").and_then(Value::as_str) {
            self.hooks.set(key, step.get("merge").unwrap_or(step));
            if step["forget"] == json!(true) {
                self.hooks.forget(key);
            }
            return Ok(None);
        }
        if let Some(key) = object.get("calls").and_then(Value::as_str) {
            let mut calls = self.hooks.calls(key);
            calls.truncate(step["first"].as_u64().map_or(calls.len(), |n| usize::try_from(n).unwrap_or_default()));
            return Ok(Some(json!({"calls": calls})));
        }
        if let Some(file) = object.get("install").and_then(Value::as_str) {
            self.install(run, file).await?;
            return Ok(None);
        }
        if let Some(path) = object.get("watch").and_then(Value::as_str) {
            return self.watch(run, path, step).await;
        }
        if let Some(name) = object.get("events").and_then(Value::as_str) {
            // A watch that was refused has been answered already.
            return if run.refused.contains(name) {
                Ok(None)
            } else {
                events(run, name, step, self.until).await.map(Some)
            };
        }
        if let Some(values) = object.get("set").and_then(Value::as_object) {
            run.variables.extend(values.iter().map(|(k, v)| (k.clone(), v.clone())));
            return Ok(None);
        }
        let method = METHODS.into_iter().find(|m| object.contains_key(*m));
        let Some(method) = method else { bail!("no such step") };
        let path = object[method].as_str().context("a path is a text")?;
        let answer = self.poll(run, method, path, step).await?;
        Ok(self.finish(run, step, answer))
    }

    /// Keeps what later steps want to know, and shapes the answer for comparison.
    fn finish(&self, run: &mut Run, step: &Value, mut answer: Answer) -> Option<Value> {
        let mut body = shape(&answer);
        if step["unordered"] == json!(true) {
            sort_causes(&mut body);
            if let Some(Value::Array(warnings)) = answer.headers.get_mut("warning") {
                warnings.sort_by_key(text);
            }
        }
        if let Some(captures) = step["capture"].as_object() {
            for (name, pointer) in captures {
                let pointer = text(pointer);
                let value = if pointer == "bytes" {
                    run.bodies.insert(name.clone(), answer.body.clone());
                    Value::Null
                } else if let Some(header) = pointer.strip_prefix("header ") {
                    json!(header_of(&answer, header))
                } else {
                    body.pointer(&pointer).cloned().unwrap_or_default()
                };
                run.variables.insert(name.clone(), value);
            }
        }
        if step["quiet"] == json!(true) {
            return None;
        }
        for name in step["tells"].as_array().into_iter().flatten().map(text) {
            let normalized = normalized_header(&header_of(&answer, &name));
            answer.headers.insert(name, normalized);
        }
        let body = match step.get("only").and_then(Value::as_array) {
            Some(pointers) => {
                let picked = pointers.iter().map(|p| (text(p), pick(&body, &text(p))));
                Value::Object(picked.collect())
            }
            None => body,
        };
        let mut out = json!({"status": answer.status, "headers": answer.headers, "body": body});
        if answer.late {
            out["late"] = json!("what was waited for never came");
        }
        Some(out)
    }

    /// Asks, and with `until` goes on asking until the answer is as wanted. The last one counts, and that it came too late.
    async fn poll(&self, run: &Run, method: &str, path: &str, step: &Value) -> Result<Answer> {
        let end = Instant::now() + self.until;
        loop {
            let mut answer = self.send(run, method, path, step).await?;
            answer.late = step.get("until").is_some_and(|wanted| !holds(wanted, &answer));
            if answer.late && Instant::now() > end && step["quiet"] == json!(true) {
                bail!("{} never came", step["until"]);
            }
            if !answer.late || Instant::now() > end {
                return Ok(answer);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn send(&self, run: &Run, method: &str, path: &str, step: &Value) -> Result<Answer> {
        let request = self.request(run, method, path, step)?;
        let response = timeout(PATIENCE, self.target.send(request)).await;
        let response = match response {
            Ok(Ok(response)) => response,
            Ok(Err(e)) => bail!("no answer: {e}"),
            Err(_) => bail!("no answer within {} s", PATIENCE.as_secs()),
        };
        let (status, headers) = head(&response);
        let whole = response.headers().clone();
        let body = timeout(PATIENCE, response.bytes()).await.context("the body never ended")?.context("body")?;
        Ok(Answer { status, headers, whole, body: body.to_vec(), late: false })
    }

    fn request(&self, run: &Run, method: &str, path: &str, step: &Value) -> Result<reqwest::RequestBuilder> {
        let method = reqwest::Method::from_bytes(method.as_bytes())?;
        let certificate = step["certificate"].as_str();
        let client = match certificate {
            Some(what) => self.target.bearing(what)?,
            None if step["token"].is_string() => self.target.stranger()?,
            None => self.target.client.clone(),
        };
        let mut request = client.request(method.clone(), format!("{}{path}", self.target.base));
        match step["token"].as_str() {
            None if certificate.is_some() => {}
            Some("none") => {}
            None | Some("administrator") => request = request.bearer_auth(&self.target.token),
            Some(token) => request = request.bearer_auth(token),
        }
        if let Some(user) = step["as"].as_str() {
            request = request.header("Impersonate-User", user);
        }
        for group in step["groups"].as_array().into_iter().flatten() {
            request = request.header("Impersonate-Group", text(group));
        }
        request = request.header("Accept", step["accept"].as_str().map_or("application/json", accept));
        for (name, value) in step["headers"].as_object().into_iter().flatten() {
            request = request.header(name, text(value));
        }
        let mut kind = step["type"].as_str().map(content_type);
        let body = self.body(run, step)?;
        if let Some((body, usual)) = body {
            kind = kind.or((method != reqwest::Method::PATCH).then_some(usual));
            request = request.body(body);
        }
        if let Some(kind) = kind {
            request = request.header("Content-Type", kind);
        }
        Ok(request)
    }

    /// The body's bytes and their usual content type.
    fn body<'s>(&self, run: &Run, step: &'s Value) -> Result<Option<(Vec<u8>, &'s str)>> {
        if let Some(body) = step.get("body") {
            return Ok(Some((body.to_string().into_bytes(), "application/json")));
        }
        if let Some(plain) = step.get("text") {
            return Ok(Some((text(plain).into_bytes(), "application/json")));
        }
        if let Some(encoded) = step["base64"].as_str() {
            return Ok(Some((STANDARD.decode(encoded)?, "application/json")));
        }
        if let Some(name) = step["bytes"].as_str() {
            let bytes = run.bodies.get(name).context("no such bytes")?;
            return Ok(Some((bytes.clone(), "application/vnd.kubernetes.protobuf")));
        }
        if let Some(parts) = step["fill"].as_array() {
            let mut out = String::new();
            for part in parts {
                let times = part["times"].as_u64().unwrap_or(1);
                out.push_str(&text(&part["text"]).repeat(usize::try_from(times)?));
            }
            return Ok(Some((out.into_bytes(), "application/json")));
        }
        if let Some(proto) = step.get("proto") {
            let raw = wire::encode(&proto["message"])?;
            let api_version = text(&proto["apiVersion"]);
            let bytes = wire::envelope(&api_version, &text(&proto["kind"]), &raw);
            return Ok(Some((bytes, "application/vnd.kubernetes.protobuf")));
        }
        Ok(None)
    }

    /// Creates the definitions of a file or folder below the repository's root.
    async fn install(&self, run: &mut Run, place: &str) -> Result<()> {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(place);
        let missing =
            || format!("{place} is missing; tests/kubernetes/build fetches what is not part of the repository");
        let mut files = vec![path.clone()];
        if path.is_dir() {
            files = std::fs::read_dir(&path)?.map(|e| e.map(|e| e.path())).collect::<Result<_, _>>()?;
            files.retain(|f| f.extension().is_some_and(|e| e == "yaml"));
            files.sort();
        }
        for file in files {
            let text = std::fs::read_to_string(&file).with_context(missing)?;
            for document in serde_saphyr::from_multiple::<Value>(&text)? {
                if document["kind"] == json!("CustomResourceDefinition") {
                    self.define(run, &document).await.with_context(|| file.display().to_string())?;
                }
            }
        }
        Ok(())
    }

    /// Creates a definition and waits until it is served.
    async fn define(&self, run: &mut Run, body: &Value) -> Result<()> {
        let spec = &body["spec"];
        let group = text(&spec["group"]);
        let plural = text(&spec["names"]["plural"]);
        let mut whole = body.clone();
        whole["apiVersion"] = json!("apiextensions.k8s.io/v1");
        whole["kind"] = json!("CustomResourceDefinition");
        whole["metadata"]["name"] = json!(format!("{plural}.{group}"));
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let answer = self.send(run, "POST", path, &json!({"body": whole})).await?;
        ensure!(answer.status == 201, "definition refused: {}", String::from_utf8_lossy(&answer.body));
        for version in spec["versions"].as_array().into_iter().flatten() {
            if version["served"] == json!(true) {
                let path = format!("/apis/{group}/{}/{plural}", text(&version["name"]));
                let answer = self.poll(run, "GET", &path, &json!({"until": 200})).await?;
                ensure!(answer.status == 200, "{path} is not served");
            }
        }
        Ok(())
    }

    /// Opens a watch. Its events are read by a later step; an answer that is no stream is the step's own.
    async fn watch(&self, run: &mut Run, path: &str, step: &Value) -> Result<Option<Value>> {
        let request = self.request(run, "GET", path, step)?;
        let response = timeout(PATIENCE, self.target.send(request)).await.context("no answer")?.context("no answer")?;
        let (status, headers) = head(&response);
        let name = step["name"].as_str().unwrap_or("w").to_owned();
        if status != 200 {
            run.refused.insert(name);
            let whole = response.headers().clone();
            let body = response.bytes().await?.to_vec();
            return Ok(self.finish(run, step, Answer { status, headers, whole, body, late: false }));
        }
        let (send, receive) = mpsc::unbounded_channel();
        let binary = text(&headers.get("content-type").cloned().unwrap_or_default()).contains("protobuf");
        let _ = send.send(json!({"status": status, "headers": headers}));
        tokio::spawn(read_events(response, binary, send));
        run.watches.insert(name, receive);
        Ok(None)
    }
}

/// Reads a stream to its end, one value per event.
async fn read_events(response: reqwest::Response, binary: bool, send: mpsc::UnboundedSender<Value>) {
    let mut stream = response.bytes_stream();
    let mut buffer: Vec<u8> = Vec::new();
    while let Some(Ok(chunk)) = stream.next().await {
        buffer.extend(chunk);
        while let Some(event) = if binary { take_frame(&mut buffer) } else { take_line(&mut buffer) } {
            if send.send(event).is_err() {
                return;
            }
        }
    }
}

fn take_line(buffer: &mut Vec<u8>) -> Option<Value> {
    let end = buffer.iter().position(|b| *b == b'\n')?;
    let line: Vec<u8> = buffer.drain(..=end).collect();
    let mut event: Value = serde_json::from_slice(&line).unwrap_or_else(|_| json!(String::from_utf8_lossy(&line)));
    if event["type"] == json!("BOOKMARK") {
        // A bookmark's version moves with every write of the server, whatever it is about.
        for place in ["/object/metadata/resourceVersion", "/object/rows/0/object/metadata/resourceVersion"] {
            if let Some(version) = event.pointer_mut(place).filter(|v| v.as_str().is_some_and(|s| !s.is_empty())) {
                *version = json!("<bookmark>");
            }
        }
    }
    Some(event)
}

fn take_frame(buffer: &mut Vec<u8>) -> Option<Value> {
    let (length, _) = buffer.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    if buffer.len() < length + 4 {
        return None;
    }
    let frame: Vec<u8> = buffer.drain(..length + 4).skip(4).collect();
    Some(wire::decode(&[wire::MAGIC, &frame].concat()))
}

/// The next events of a watch: `count` of them, or all until the server ends it.
async fn events(run: &mut Run, name: &str, step: &Value, until: Duration) -> Result<Value> {
    let watch = run.watches.get_mut(name).context("no such watch")?;
    let count = step["count"].as_u64();
    let mut all: Vec<Value> = Vec::new();
    let mut head = Value::Null;
    let end = Instant::now() + until;
    loop {
        let got = all.len() as u64;
        if count.is_some_and(|c| got >= c) {
            break;
        }
        match tokio::time::timeout_at(end, watch.recv()).await {
            Ok(Some(first)) if first.get("status").is_some() && first.get("headers").is_some() => head = first,
            Ok(Some(event)) if step["skip"] == json!("progress") && tells_progress(&event) => {}
            Ok(Some(event)) => all.push(event),
            Ok(None) => {
                all.push(json!("<end>"));
                break;
            }
            Err(_) => {
                all.push(json!("<no more events in time>"));
                break;
            }
        }
    }
    if let Some(captures) = step["capture"].as_object() {
        let body = json!(all);
        let values = captures.iter().map(|(k, p)| (k.clone(), body.pointer(&text(p)).cloned().unwrap_or_default()));
        run.variables.extend(values);
    }
    let binary = all.iter().any(|e| e.get("protobuf").is_some());
    let body = if binary { json!({"protobuf": all}) } else { json!(all) };
    Ok(json!({"status": head["status"], "headers": head["headers"], "body": body}))
}

/// Whether an event is a bookmark that says how far the server is and nothing else. One follows that at the end of the
/// initial events within a second, later ones when the server likes.
fn tells_progress(event: &Value) -> bool {
    let annotations = event.pointer("/object/metadata/annotations");
    event["type"] == json!("BOOKMARK") && annotations.is_none_or(|a| a.get("k8s.io/initial-events-end").is_none())
}

fn head(response: &reqwest::Response) -> (u16, Map<String, Value>) {
    let mut headers = Map::new();
    for name in HEADERS {
        let all: Vec<String> = response
            .headers()
            .get_all(name)
            .iter()
            .map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned())
            .collect();
        match all.len() {
            0 => {}
            1 => {
                headers.insert(name.into(), json!(all[0]));
            }
            _ => {
                headers.insert(name.into(), json!(all));
            }
        }
    }
    (response.status().as_u16(), headers)
}

/// The body as a value: JSON as such, protobuf as a tree, else the text.
fn shape(answer: &Answer) -> Value {
    let kind = text(&answer.headers.get("content-type").cloned().unwrap_or_default());
    if kind.contains("proto-openapi") {
        return openapi::decode(&kind, &answer.body);
    }
    if kind.contains("protobuf") && answer.body.starts_with(wire::MAGIC) {
        return wire::decode(&answer.body);
    }
    match serde_json::from_slice(&answer.body) {
        Ok(value) => value,
        Err(_) => json!(durations_of(&String::from_utf8_lossy(&answer.body))),
    }
}

/// The texts of a header, empty if it is not there.
fn header_of(answer: &Answer, name: &str) -> String {
    let values = answer.whole.get_all(name).iter();
    values.map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned()).collect::<Vec<_>>().join(", ")
}

/// A header as it is compared: tags are hashes of what the servers say in words of their own, times pass.
fn normalized_header(text: &str) -> Value {
    let bare = text.trim_start_matches("W/").trim_matches('"');
    if bare.len() == 128 && bare.chars().all(|c| c.is_ascii_hexdigit()) {
        return json!(text.replace(bare, "<hash>"));
    }
    let is_time = text.len() == 29 && text.is_char_boundary(26) && matches!(&text[26..], "GMT" | "UTC");
    json!(if is_time { format!("<time> {}", &text[26..]) } else { text.to_owned() })
}

fn durations_of(body: &str) -> String {
    if body.contains("context deadline") { durations(body) } else { body.to_owned() }
}

/// The value at a pointer in which `[key=value]` finds an element of a list, and `*` takes all keys.
fn pick(value: &Value, pointer: &str) -> Value {
    let mut now = value.clone();
    for part in pointer.split('/').skip(1) {
        let part = part.replace("~1", "/").replace("~0", "~");
        let inner = part.strip_prefix('[').and_then(|p| p.strip_suffix(']'));
        let next = match (inner.and_then(|p| p.split_once('=')), &now) {
            (Some((key, wanted)), Value::Array(items)) => {
                let at = format!("/{}", key.replace('.', "/"));
                items.iter().find(|i| i.pointer(&at).is_some_and(|v| text(v) == wanted)).cloned()
            }
            (None, Value::Array(items)) if part == "*" => return Value::Array(items.clone()),
            (None, Value::Object(map)) if part == "*" => Some(json!(map.keys().collect::<Vec<_>>())),
            (None, Value::Array(items)) => part.parse::<usize>().ok().and_then(|i| items.get(i).cloned()),
            (None, Value::Object(map)) => map.get(&part).cloned(),
            _ => None,
        };
        let Some(next) = next else { return json!("<nothing>") };
        now = next;
    }
    now
}

/// Whether an answer is as wanted: a status, or values at pointers (null: nothing there).
fn holds(wanted: &Value, answer: &Answer) -> bool {
    match wanted {
        Value::Number(status) => status.as_u64() == Some(u64::from(answer.status)),
        Value::Object(map) => {
            let body = shape(answer);
            map.iter().all(|(pointer, value)| match pick(&body, pointer) {
                Value::String(s) if s == "<nothing>" => value.is_null(),
                found => found == *value || (value == "*" && !found.is_null()),
            })
        }
        _ => true,
    }
}

fn content_type(short: &str) -> &str {
    match short {
        "json-patch" => "application/json-patch+json",
        "merge" => "application/merge-patch+json",
        "strategic" => "application/strategic-merge-patch+json",
        "apply" => "application/apply-patch+yaml",
        "yaml" => "application/yaml",
        "protobuf" => "application/vnd.kubernetes.protobuf",
        other => other,
    }
}

fn accept(short: &str) -> &str {
    match short {
        "table" => "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
        "partial" => "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json",
        "partial-list" => "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json",
        "protobuf" => "application/vnd.kubernetes.protobuf",
        "protobuf-json" => "application/vnd.kubernetes.protobuf,application/json",
        "partial-protobuf" => "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        "aggregated" => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
        other => other,
    }
}
