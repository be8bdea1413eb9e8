//! A layer before a server that makes it behave as one with a defect would: it passes every request on, and changes
//! what the defect is about, in the request or in the answer. The server behind it is whole.

use anyhow::{Context as _, Result};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::StreamExt as _;
use serde_json::{Value, json};

/// The largest body that any case sends.
const MOST: usize = 64 << 20;
/// Headers of one connection; they are not passed on.
const HOP: [header::HeaderName; 4] =
    [header::HOST, header::CONNECTION, header::CONTENT_LENGTH, header::TRANSFER_ENCODING];

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Defect {
    /// No watch in JSON tells of a deletion.
    WatchMissesDeletions,
    /// The rest of a list is of now, not of the moment of its first chunk.
    ChunksOfOtherMoments,
    /// Apply takes fields from their managers as if it were forced.
    ApplyTakesOver,
    /// A write of the status moves the generation.
    StatusMovesGeneration,
    /// Unknown fields of custom objects stay.
    NothingPruned,
    /// A dry run writes.
    DryRunWrites,
    /// Finalizers do not keep an object.
    FinalizersIgnored,
    /// Whoever may write roles may grant more than is theirs.
    EscalationUnchecked,
    /// A null in a merge patch removes nothing.
    NullRemovesNothing,
    /// A deletion does not look at its preconditions.
    PreconditionsIgnored,
    /// Rules of schemas are neither checked nor run.
    RulesIgnored,
    /// Unknown and doubled fields are let in where the client asked for strictness.
    StrictnessIgnored,
}

/// The layer while it runs: it ends with the program.
#[derive(Clone)]
struct Layer {
    base: String,
    client: reqwest::Client,
    defect: Option<Defect>,
}

/// A request on its way.
struct Asked {
    method: Method,
    path: String,
    headers: HeaderMap,
    body: Bytes,
}

/// Starts the layer before the server at `base`; gives its own base. It speaks plain HTTP, on loopback alone.
pub async fn start(base: &str, client: &reqwest::Client, defect: Option<Defect>) -> Result<String> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let layer = Layer { base: base.to_owned(), client: client.clone(), defect };
    let router = Router::new().fallback(pass).with_state(layer);
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(url)
}

async fn pass(State(layer): State<Layer>, request: Request) -> Response {
    match layer.pass(request).await {
        Ok(response) => response,
        Err(e) => (StatusCode::BAD_GATEWAY, format!("{e:#}")).into_response(),
    }
}

impl Layer {
    async fn pass(&self, request: Request) -> Result<Response> {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path_and_query().map_or("/", |p| p.as_str()).to_owned();
        let body = axum::body::to_bytes(body, MOST).await?;
        let mut asked = Asked { method: parts.method, path, headers: parts.headers, body };
        for name in HOP {
            asked.headers.remove(name);
        }
        if self.defect == Some(Defect::FinalizersIgnored) && asked.method == Method::DELETE {
            self.strip_finalizers(&asked).await?;
        }
        if let Some(defect) = self.defect {
            asked.spoil(defect);
        }
        let answer = self.send(&asked).await?;
        self.answer(&asked, answer).await
    }

    async fn send(&self, asked: &Asked) -> Result<reqwest::Response> {
        let request = self.client.request(asked.method.clone(), format!("{}{}", self.base, asked.path));
        let request = request.headers(asked.headers.clone());
        let request = if asked.body.is_empty() { request } else { request.body(asked.body.clone()) };
        Ok(request.send().await?)
    }

    /// Takes the finalizers of the object that is about to be deleted.
    async fn strip_finalizers(&self, asked: &Asked) -> Result<()> {
        let mut headers = asked.headers.clone();
        headers.insert(header::CONTENT_TYPE, "application/merge-patch+json".parse()?);
        let path = asked.path.split('?').next().context("no path")?.to_owned();
        let body = json!({"metadata": {"finalizers": null}}).to_string().into();
        // For a collection, or an object that is not there, this is refused; then there is nothing to spoil.
        self.send(&Asked { method: Method::PATCH, path, headers, body }).await?;
        Ok(())
    }

    async fn answer(&self, asked: &Asked, answer: reqwest::Response) -> Result<Response> {
        let mut response = Response::builder().status(answer.status());
        for (name, value) in answer.headers().iter().filter(|(n, _)| !HOP.contains(n)) {
            response = response.header(name, value);
        }
        let of_json =
            answer.headers().get(header::CONTENT_TYPE).is_some_and(|t| t.as_bytes().starts_with(b"application/json"));
        let body = match self.defect {
            Some(Defect::WatchMissesDeletions) if of_json && asked.asks_to_watch() => without_deletions(answer),
            Some(Defect::StatusMovesGeneration) if of_json && asked.writes_status() => {
                moved(&answer.bytes().await?).into()
            }
            _ => Body::from_stream(answer.bytes_stream()),
        };
        Ok(response.body(body)?)
    }
}

impl Asked {
    fn asks_to_watch(&self) -> bool {
        self.path.contains("watch=true") || self.path.contains("/watch/")
    }

    fn writes_status(&self) -> bool {
        let path = self.path.split('?').next().unwrap_or_default();
        path.ends_with("/status") && [Method::PUT, Method::PATCH].contains(&self.method)
    }

    fn is_patch(&self, kind: &str) -> bool {
        let of_kind = |t: &header::HeaderValue| t.as_bytes().starts_with(kind.as_bytes());
        self.method == Method::PATCH && self.headers.get(header::CONTENT_TYPE).is_some_and(of_kind)
    }

    fn spoil(&mut self, defect: Defect) {
        match defect {
            Defect::ChunksOfOtherMoments => self.query(|key, value| {
                Some(if key == "continue" {
                    of_now(value).unwrap_or_else(|| value.to_owned())
                } else {
                    value.to_owned()
                })
            }),
            Defect::ApplyTakesOver if self.is_patch("application/apply-patch") && !self.path.contains("force=") => {
                self.path.push_str(if self.path.contains('?') { "&force=true" } else { "?force=true" });
            }
            Defect::DryRunWrites => self.query(|key, value| (key != "dryRun").then(|| value.to_owned())),
            Defect::StrictnessIgnored => self.query(|key, value| {
                Some(if key == "fieldValidation" && value == "Strict" { "Ignore".into() } else { value.to_owned() })
            }),
            Defect::EscalationUnchecked if self.path.contains("rbac.authorization") && self.method != Method::GET => {
                self.headers.remove("impersonate-user");
                self.headers.remove("impersonate-group");
            }
            Defect::NullRemovesNothing if self.is_patch("application/merge-patch") => self.change(without_nulls),
            Defect::PreconditionsIgnored if self.method == Method::DELETE => self.change(|options| {
                options.as_object_mut().map(|o| o.remove("preconditions"));
            }),
            Defect::NothingPruned if self.path.contains("/customresourcedefinitions") => self.change(preserving),
            Defect::RulesIgnored if self.path.contains("/customresourcedefinitions") => self.change(without_rules),
            _ => {}
        }
    }

    /// Changes the parameters, or takes them away.
    fn query(&mut self, change: impl Fn(&str, &str) -> Option<String>) {
        let Some((path, query)) = self.path.split_once('?') else { return };
        let changed = query.split('&').filter_map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            change(key, value).map(|value| format!("{key}={value}"))
        });
        self.path = format!("{path}?{}", changed.collect::<Vec<_>>().join("&"));
    }

    /// Changes a body in JSON; any other stays as it is.
    fn change(&mut self, change: impl FnOnce(&mut Value)) {
        if let Ok(mut value) = serde_json::from_slice::<Value>(&self.body) {
            change(&mut value);
            self.body = value.to_string().into();
        }
    }
}

/// A continue token that goes on at the same place in the list as it is now.
fn of_now(token: &str) -> Option<String> {
    let mut token: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(token).ok()?).ok()?;
    token["rv"] = json!(-1);
    Some(URL_SAFE_NO_PAD.encode(token.to_string()))
}

/// Every object schema keeps what it does not know.
fn preserving(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(preserving),
        Value::Object(map) => {
            map.values_mut().for_each(preserving);
            if map.get("type") == Some(&json!("object")) && !map.contains_key("additionalProperties") {
                map.insert("x-kubernetes-preserve-unknown-fields".into(), json!(true));
            }
        }
        _ => {}
    }
}

fn without_rules(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(without_rules),
        Value::Object(map) => {
            map.remove("x-kubernetes-validations");
            map.values_mut().for_each(without_rules);
        }
        _ => {}
    }
}

fn without_nulls(value: &mut Value) {
    if let Value::Object(map) = value {
        map.retain(|_, v| !v.is_null());
        map.values_mut().for_each(without_nulls);
    }
}

/// The object with its generation one further.
fn moved(body: &Bytes) -> Vec<u8> {
    let Ok(mut object) = serde_json::from_slice::<Value>(body) else { return body.to_vec() };
    if let Some(generation) = object.pointer_mut("/metadata/generation") {
        *generation = json!(generation.as_u64().unwrap_or_default() + 1);
    }
    object.to_string().into_bytes()
}

/// The stream of a watch without the events of one type.
fn without_deletions(answer: reqwest::Response) -> Body {
    let mut buffer: Vec<u8> = Vec::new();
    let deletion = |line: &[u8]| serde_json::from_slice::<Value>(line).is_ok_and(|e| e["type"] == json!("DELETED"));
    let stream = answer.bytes_stream().map(move |chunk| {
        chunk.map(|chunk| {
            buffer.extend(&chunk);
            let whole = buffer.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
            let lines: Vec<u8> = buffer.drain(..whole).collect();
            let kept = lines.split_inclusive(|b| *b == b'\n').filter(|line| !deletion(line));
            Bytes::from(kept.collect::<Vec<_>>().concat())
        })
    });
    Body::from_stream(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(method: Method, path: &str, kind: &'static str, body: &Value) -> Asked {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
        Asked { method, path: path.into(), headers, body: body.to_string().into() }
    }

    #[test]
    fn a_defect_spoils_its_own_requests_alone() {
        let patch = json!({"data": {"k": null, "l": "w"}});
        let mut merge = asked(Method::PATCH, "/x?dryRun=All&force=", "application/merge-patch+json", &patch);
        merge.spoil(Defect::ApplyTakesOver);
        merge.spoil(Defect::PreconditionsIgnored);
        assert_eq!(merge.body, patch.to_string());
        merge.spoil(Defect::NullRemovesNothing);
        assert_eq!(merge.body, json!({"data": {"l": "w"}}).to_string());
        merge.spoil(Defect::DryRunWrites);
        assert_eq!(merge.path, "/x?force=");
        let mut apply = asked(Method::PATCH, "/x", "application/apply-patch+yaml", &json!({}));
        apply.spoil(Defect::ApplyTakesOver);
        assert_eq!(apply.path, "/x?force=true");
    }

    #[test]
    fn a_token_of_now_keeps_its_place() {
        let token = URL_SAFE_NO_PAD.encode(json!({"v": "meta.k8s.io/v1", "rv": 7, "start": "b"}).to_string());
        let mut list = asked(Method::GET, &format!("/x?limit=2&continue={token}"), "", &Value::Null);
        list.spoil(Defect::ChunksOfOtherMoments);
        let (_, changed) = list.path.split_once("continue=").unwrap();
        let read: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(changed).unwrap()).unwrap();
        assert_eq!(read, json!({"v": "meta.k8s.io/v1", "rv": -1, "start": "b"}));
    }
}
