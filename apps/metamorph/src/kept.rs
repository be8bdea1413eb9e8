//! Keys and certificates that the server makes once and keeps in the Kubernetes API, each in a Secret that never changes.
//!
//! They form series: `NAME`, `NAME-2`, `NAME-3` and so on. A replacement is another Secret: several processes that make it at once make only one (the
//! name is taken for the others), a backup of the namespace holds all of them, and the server needs no right to update Secrets.

use std::collections::BTreeMap;

use anyhow::{Context, anyhow};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, PostParams};
use kube::{Client, ResourceExt};
use rcgen::CertificateParams;

/// Label of the Secrets of a series; its value is the series' name. The first ones of earlier versions lack it.
pub const SERIES: &str = "metamorph.metal3.io/series";
/// Field of a certificate, PEM.
pub const CERTIFICATE: &str = "tls.crt";
/// Field of its key, PEM.
pub const KEY: &str = "tls.key";

/// Fields of a Secret.
pub type Data = BTreeMap<String, ByteString>;

/// One Secret of a series.
pub struct Kept {
    /// Its number, from 1.
    pub number: u32,
    /// When it was made.
    pub made: Timestamp,
    name: String,
    data: Data,
}

impl Kept {
    /// A field.
    pub fn bytes(&self, field: &str) -> anyhow::Result<&[u8]> {
        let found = self.data.get(field).map(|bytes| bytes.0.as_slice());
        found.ok_or_else(|| anyhow!("the Secret {} has no {field}; delete it, and it is made anew", self.name))
    }

    /// A field with text.
    pub fn text(&self, field: &str) -> anyhow::Result<String> {
        String::from_utf8(self.bytes(field)?.to_vec())
            .with_context(|| format!("read {field} of the Secret {}", self.name))
    }
}

/// A series of Secrets.
#[derive(Clone)]
pub struct Series {
    client: Client,
    namespace: String,
    name: String,
    /// What the Secrets hold, for messages.
    what: &'static str,
}

impl Series {
    /// The series of this name.
    pub fn new(client: &Client, namespace: &str, name: String, what: &'static str) -> Self {
        Self { client: client.clone(), namespace: namespace.to_owned(), name, what }
    }

    fn api(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn attempt(&self, doing: &str) -> String {
        format!("{doing} {} (Secret {} in namespace {})", self.what, self.name, self.namespace)
    }

    fn name_of(&self, number: u32) -> String {
        if number == 1 { self.name.clone() } else { format!("{}-{number}", self.name) }
    }

    /// The number of a Secret of this name, if it is one of the series.
    fn number_of(&self, name: &str) -> Option<u32> {
        if name == self.name {
            return Some(1);
        }
        let number = name.strip_prefix(&self.name)?.strip_prefix('-')?.parse().ok()?;
        (number > 1 && name == self.name_of(number)).then_some(number)
    }

    /// All existing ones, by number.
    pub async fn all(&self) -> anyhow::Result<Vec<Kept>> {
        let attempt = || format!("{}; `metamorph rbac` prints the rights for that", self.attempt("read"));
        let selected = ListParams::default().labels(&format!("{SERIES}={}", self.name));
        let mut found = self.api().list(&selected).await.with_context(attempt)?.items;
        if !found.iter().any(|secret| secret.name_any() == self.name) {
            found.extend(self.api().get_opt(&self.name).await.with_context(attempt)?);
        }
        let mut all: Vec<Kept> = found.into_iter().filter_map(|secret| self.kept(secret)).collect();
        all.sort_by_key(|kept| kept.number);
        Ok(all)
    }

    fn kept(&self, secret: Secret) -> Option<Kept> {
        let name = secret.name_any();
        let number = self.number_of(&name)?;
        // Without a creation time, it counts as new.
        let made = secret.metadata.creation_timestamp.map_or_else(Timestamp::now, |time| time.0);
        Some(Kept { number, made, name, data: secret.data.unwrap_or_default() })
    }

    /// All existing ones; makes the first if none exists.
    pub async fn all_or_first(&self, make: impl FnOnce() -> anyhow::Result<Data> + Send) -> anyhow::Result<Vec<Kept>> {
        let all = self.all().await?;
        if !all.is_empty() {
            return Ok(all);
        }
        self.make(1, make()?).await
    }

    /// Makes the one after this number and returns all. If another process was faster, its Secret counts.
    pub async fn next(&self, after: u32, data: Data) -> anyhow::Result<Vec<Kept>> {
        self.make(after.checked_add(1).context("number the next key")?, data).await
    }

    async fn make(&self, number: u32, data: Data) -> anyhow::Result<Vec<Kept>> {
        let labels = BTreeMap::from([(SERIES.to_owned(), self.name.clone())]);
        let metadata = ObjectMeta { name: Some(self.name_of(number)), labels: Some(labels), ..ObjectMeta::default() };
        let new = Secret { metadata, data: Some(data), immutable: Some(true), ..Secret::default() };
        let mut made = self.api().create(&PostParams::default(), &new).await;
        if matches!(&made, Err(kube::Error::Api(error)) if error.code == 404) {
            make_namespace(&self.client, &self.namespace).await?;
            made = self.api().create(&PostParams::default(), &new).await;
        }
        match made {
            Ok(_) => {}
            Err(kube::Error::Api(error)) if error.code == 409 => {}
            Err(error) => return Err(error).with_context(|| self.attempt("keep")),
        }
        let all = self.all().await?;
        anyhow::ensure!(!all.is_empty(), "{}: it was deleted as soon as it was made", self.attempt("keep"));
        Ok(all)
    }

    /// Deletes one; succeeds if it is already gone.
    pub async fn delete(&self, number: u32) -> anyhow::Result<()> {
        match self.api().delete(&self.name_of(number), &DeleteParams::default()).await {
            Err(kube::Error::Api(error)) if error.code == 404 => Ok(()),
            other => other.map(drop).with_context(|| self.attempt(&format!("delete number {number} of"))),
        }
    }
}

/// Makes the namespace; another process may do so at the same time.
pub async fn make_namespace(client: &Client, name: &str) -> anyhow::Result<()> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    match namespaces.create(&PostParams::default(), &Namespace { metadata, ..Namespace::default() }).await {
        Err(kube::Error::Api(e)) if e.code == 409 => Ok(()),
        made => made.map(|_| ()).with_context(|| format!("make the namespace {name}; `metamorph rbac` prints it")),
    }
}

/// Certificate and key as fields.
pub fn fields(certificate: String, key: String) -> Data {
    [(CERTIFICATE, certificate), (KEY, key)].map(|(field, pem)| (field.to_owned(), ByteString(pem.into_bytes()))).into()
}

/// Sets the validity period of a certificate, with these days as its bounds.
pub fn valid(params: &mut CertificateParams, from: Timestamp, to: Timestamp) {
    let day = |at: Timestamp| {
        let date = at.to_zoned(jiff::tz::TimeZone::UTC).date();
        rcgen::date_time_ymd(date.year().into(), date.month().unsigned_abs(), date.day().unsigned_abs())
    };
    (params.not_before, params.not_after) = (day(from), day(to));
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use axum::body::Body;
    use axum::http::{Request, Response, StatusCode};
    use serde_json::{Value, json};
    use std::sync::{Arc, Mutex};

    /// The Secrets of a Kubernetes API in memory.
    #[derive(Clone, Default)]
    pub struct Secrets {
        pub stored: Arc<Mutex<BTreeMap<String, Value>>>,
        pub requests: Arc<Mutex<Vec<String>>>,
        /// Another client creates this Secret just before the next creation.
        pub rival: Arc<Mutex<Option<Value>>>,
        listener: Arc<Mutex<Option<Listener>>>,
        /// MachineRecords.
        pub records: Arc<Mutex<Vec<Value>>>,
        /// The time of the API's clock; the system's if `None`.
        pub clock: Arc<Mutex<Option<Timestamp>>>,
    }

    type Listener = Box<dyn Fn(&Value) + Send>;

    impl Secrets {
        pub fn client(&self) -> Client {
            let server = self.clone();
            let service = tower::service_fn(move |request: Request<kube::client::Body>| {
                let server = server.clone();
                async move {
                    let (parts, body) = request.into_parts();
                    let bytes = body.collect_bytes().await.unwrap();
                    let (status, answer) = server.answer(parts.method.as_str(), parts.uri.path(), &bytes);
                    let answer = Body::from(answer.to_string());
                    Ok::<_, std::convert::Infallible>(Response::builder().status(status).body(answer).unwrap())
                }
            });
            Client::new(service, "default")
        }

        pub fn put(&self, name: &str, made: Timestamp, labels: Value, data: &Data) {
            let metadata = json!({ "name": name, "labels": labels, "creationTimestamp": made.to_string() });
            let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data });
            self.stored.lock().unwrap().insert(name.to_owned(), secret);
        }

        /// Calls `listener` with each applied object.
        pub fn on_applied(&self, listener: impl Fn(&Value) + Send + 'static) {
            *self.listener.lock().unwrap() = Some(Box::new(listener));
        }

        pub fn names(&self) -> Vec<String> {
            self.stored.lock().unwrap().keys().cloned().collect()
        }

        fn answer(&self, method: &str, path: &str, body: &[u8]) -> (StatusCode, Value) {
            let name = path.rsplit('/').next().unwrap().to_owned();
            self.requests.lock().unwrap().push(format!("{method} {path}"));
            let refused = |code: StatusCode, reason: &str| {
                let code_number = code.as_u16();
                (
                    code,
                    json!({ "kind": "Status", "status": "Failure", "message": reason, "reason": reason, "code": code_number }),
                )
            };
            let mut stored = self.stored.lock().unwrap();
            match method {
                "GET" if name == "secrets" => {
                    let labelled = |s: &&Value| s["metadata"]["labels"].get(SERIES).is_some();
                    let items: Vec<_> = stored.values().filter(labelled).cloned().collect();
                    (
                        StatusCode::OK,
                        json!({ "kind": "SecretList", "apiVersion": "v1", "metadata": {}, "items": items }),
                    )
                }
                "GET" if name == "machinerecords" => {
                    let items = self.records.lock().unwrap().clone();
                    let kind = "MachineRecordList";
                    (
                        StatusCode::OK,
                        json!({ "kind": kind, "apiVersion": "metamorph.metal3.io/v1alpha1", "metadata": {}, "items": items }),
                    )
                }
                "GET" => match stored.get(&name) {
                    Some(found) => (StatusCode::OK, found.clone()),
                    None => refused(StatusCode::NOT_FOUND, "NotFound"),
                },
                "POST" => {
                    let mut new: Value = serde_json::from_slice(body).unwrap();
                    if let Some(rival) = self.rival.lock().unwrap().take() {
                        stored.insert(rival["metadata"]["name"].as_str().unwrap().to_owned(), rival);
                    }
                    let name = new["metadata"]["name"].as_str().unwrap().to_owned();
                    if stored.contains_key(&name) {
                        return refused(StatusCode::CONFLICT, "AlreadyExists");
                    }
                    new["metadata"]["creationTimestamp"] =
                        json!(self.clock.lock().unwrap().unwrap_or_else(Timestamp::now).to_string());
                    stored.insert(name, new.clone());
                    (StatusCode::CREATED, new)
                }
                "PATCH" => {
                    let applied: Value = serde_json::from_slice(body).unwrap();
                    if let Some(listener) = &*self.listener.lock().unwrap() {
                        listener(&applied);
                    }
                    (StatusCode::OK, applied)
                }
                "DELETE" => match stored.remove(&name) {
                    Some(gone) => (StatusCode::OK, gone),
                    None => refused(StatusCode::NOT_FOUND, "NotFound"),
                },
                _ => refused(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed"),
            }
        }
    }

    fn data(text: &str) -> Data {
        fields(text.to_owned(), "k".to_owned())
    }

    fn series(secrets: &Secrets) -> Series {
        Series::new(&secrets.client(), "own", "s".to_owned(), "the keys")
    }

    fn contents(all: &[Kept]) -> Vec<(u32, String)> {
        all.iter().map(|kept| (kept.number, kept.text(CERTIFICATE).unwrap())).collect()
    }

    #[tokio::test]
    async fn the_first_is_made_once_and_the_next_beside_it() {
        let secrets = Secrets::default();
        let series = series(&secrets);
        assert_eq!(contents(&series.all_or_first(|| Ok(data("a"))).await.unwrap()), [(1, "a".to_owned())]);
        assert_eq!(contents(&series.all_or_first(|| panic!("it is there")).await.unwrap()).len(), 1);
        let both = [(1, "a".to_owned()), (2, "b".to_owned())];
        assert_eq!(contents(&series.next(1, data("b")).await.unwrap()), both);
        assert_eq!(contents(&series.next(1, data("c")).await.unwrap()), both, "who comes second takes what is there");
        assert!(secrets.stored.lock().unwrap().values().all(|secret| secret["immutable"] == true));
        series.delete(1).await.unwrap();
        series.delete(1).await.unwrap();
        assert_eq!(secrets.names(), ["s-2"]);
        assert_eq!(contents(&series.all_or_first(|| panic!("one is there")).await.unwrap()).len(), 1);
    }

    #[tokio::test]
    async fn who_loses_the_race_takes_the_winners() {
        let secrets = Secrets::default();
        let winner =
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s" }, "data": data("winner") });
        *secrets.rival.lock().unwrap() = Some(winner);
        let all = series(&secrets).all_or_first(|| Ok(data("loser"))).await.unwrap();
        assert_eq!(contents(&all), [(1, "winner".to_owned())]);
    }

    #[tokio::test]
    async fn an_earlier_versions_secret_without_a_label_is_the_first_and_strangers_are_left_out() {
        let secrets = Secrets::default();
        let now = Timestamp::now();
        secrets.put("s", now, json!({}), &data("old"));
        for stranger in ["s-1", "s-02", "s-x", "s-0", "t", "s-4294967296", "s-+3"] {
            secrets.put(stranger, now, json!({ SERIES: "s" }), &data("stranger"));
        }
        secrets.put("s-10", now, json!({ SERIES: "s" }), &data("ten"));
        secrets.put("s-9", now, json!({ SERIES: "s" }), &data("nine"));
        let all = series(&secrets).all().await.unwrap();
        assert_eq!(contents(&all), [(1, "old".to_owned()), (9, "nine".to_owned()), (10, "ten".to_owned())]);
        let error = all[0].bytes("else").err().unwrap().to_string();
        assert!(error.contains("Secret s has no else"), "{error}");
    }
}
