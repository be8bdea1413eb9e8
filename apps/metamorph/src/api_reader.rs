//! Reads of the Kubernetes API for reports: by the caller's own rights, each with a limit of time, and with a sentence for what cannot be read.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::http::{Request, header};
use kube::Client;
use serde_json::Value;
use terms::clean;
use url::form_urlencoded;

/// How long one answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Objects that are asked for at once.
const PAGE: u32 = 50;
/// Most pages of a list.
const MOST_PAGES: usize = 4000;
/// Longest reason, characters.
const MAX_WHY: usize = 400;

/// Why something was not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unread {
    /// The caller may not.
    Forbidden,
    /// It is not there: the object, or its kind.
    Absent,
    /// Anything else, in words.
    Failed(String),
}

impl std::fmt::Display for Unread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Forbidden => f.write_str("you have no right to read it"),
            Self::Absent => f.write_str("it is not there"),
            Self::Failed(why) => f.write_str(why),
        }
    }
}

/// The reader.
#[derive(Clone)]
pub struct Reader {
    client: Client,
}

impl Reader {
    /// By the rights of this client.
    pub const fn new(client: Client) -> Self {
        Self { client }
    }

    /// The text at a path.
    ///
    /// # Errors
    /// [`Unread`].
    pub async fn text(&self, path: &str, accept: &str) -> Result<String, Unread> {
        let request = Request::get(path).header(header::ACCEPT, accept).body(Vec::new());
        self.send(request).await
    }

    async fn send(&self, request: Result<Request<Vec<u8>>, axum::http::Error>) -> Result<String, Unread> {
        let request = request.map_err(|error| Unread::Failed(clean(&error.to_string(), MAX_WHY)))?;
        match tokio::time::timeout(PATIENCE, self.client.request_text(request)).await {
            Ok(Ok(text)) => Ok(text),
            Ok(Err(kube::Error::Api(refused))) => Err(match refused.code {
                401 => Unread::Failed("the API does not know you: renew the login of the kubeconfig".to_owned()),
                403 => Unread::Forbidden,
                404 | 405 => Unread::Absent,
                code => Unread::Failed(clean(&format!("{code}: {}", refused.message), MAX_WHY)),
            }),
            Ok(Err(error)) => {
                let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
                Err(Unread::Failed(clean(&format!("{error}{cause}"), MAX_WHY)))
            }
            Err(_) => Err(Unread::Failed(format!("no answer within {} s", PATIENCE.as_secs()))),
        }
    }

    /// The object at a path.
    ///
    /// # Errors
    /// [`Unread`].
    pub async fn object(&self, path: &str) -> Result<Value, Unread> {
        self.json(&self.text(path, "application/json").await?)
    }

    fn json(&self, text: &str) -> Result<Value, Unread> {
        serde_json::from_str(text).map_err(|error| Unread::Failed(format!("the answer cannot be read: {error}")))
    }

    /// What a review says of the caller.
    ///
    /// # Errors
    /// [`Unread`].
    pub async fn ask(&self, path: &str, question: &Value) -> Result<Value, Unread> {
        let request = Request::post(path)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json")
            .body(question.to_string().into_bytes());
        self.json(&self.send(request).await?)
    }

    /// Shows all objects at a path, a page at a time, until `see` says that it has enough.
    ///
    /// # Errors
    /// [`Unread`]; what was shown before counts.
    pub async fn each(
        &self,
        path: &str,
        accept: &str,
        items: &str,
        mut see: impl FnMut(Value) -> bool,
    ) -> Result<(), Unread> {
        let mut next = String::new();
        for _ in 0..MOST_PAGES {
            let mut query = form_urlencoded::Serializer::new(String::new());
            query.append_pair("limit", &PAGE.to_string());
            if !next.is_empty() {
                query.append_pair("continue", &next);
            }
            let mut list = self.json(&self.text(&format!("{path}?{}", query.finish()), accept).await?)?;
            // A server that gives no table when it is asked for one has told nothing.
            let Some(all) = list.get_mut(items) else {
                return Err(Unread::Failed(format!("the answer has no {items}")));
            };
            let all = all.as_array_mut().map(std::mem::take).unwrap_or_default();
            for item in all {
                if !see(item) {
                    return Ok(());
                }
            }
            next = list["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
            if next.is_empty() {
                return Ok(());
            }
        }
        Err(Unread::Failed(format!("more than {MOST_PAGES} pages")))
    }
}

/// The keys of a Secret, as its writers have them.
pub fn secret_keys(metadata: &Value) -> BTreeSet<String> {
    let entries = metadata["managedFields"].as_array().into_iter().flatten();
    entries
        .flat_map(|entry| ["f:data", "f:stringData"].map(|field| entry["fieldsV1"][field].as_object()))
        .flatten()
        .flat_map(|fields| fields.keys().filter_map(|key| key.strip_prefix("f:")))
        .map(|key| terms::clean(key, 253))
        .collect()
}
