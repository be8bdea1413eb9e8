//! Collections of resources: their members, page by page (DSP0266, «Resource collection responses»).

use http::Method;
use serde_json::Value;

use crate::client::Auth;
use crate::exchange::{Core, Fault};
use crate::json::{MAX_MEMBERS, link, path_only, same_path};

/// Most pages of a collection that are read.
const MAX_PAGES: usize = 16;

impl Core {
    /// Links to the members of a collection.
    pub async fn members(&self, what: &str, path: &str) -> Result<Vec<String>, Fault> {
        Ok(self.pages(what, path, None).await?.into_iter().map(|(path, _)| path).collect())
    }

    /// The members of a collection, each with what stands of it in the collection itself; with the credentials in use if none are given. Each member
    /// counts once, pages in a circle end, and a further page that the BMC refuses is left out.
    pub async fn pages(&self, what: &str, path: &str, auth: Option<&Auth>) -> Result<Vec<(String, Value)>, Fault> {
        let mut found: Vec<(String, Value)> = Vec::new();
        let mut seen = vec![path.to_owned()];
        let mut value = self.send(what, Method::GET, path, auth).await?.value;
        loop {
            if let Some(Value::Array(items)) = value.get("Members") {
                for item in items.iter().take(MAX_MEMBERS) {
                    let Some(path) = link(item) else { continue };
                    if !found.iter().any(|(known, _)| same_path(known, &path)) {
                        found.push((path, item.clone()));
                    }
                }
            }
            let next = value.get("Members@odata.nextLink").and_then(Value::as_str).and_then(path_only);
            let Some(next) = next else { return Ok(found) };
            if found.len() >= MAX_MEMBERS || seen.len() >= MAX_PAGES || seen.iter().any(|old| same_path(old, &next)) {
                tracing::debug!(
                    collection = path,
                    pages = seen.len(),
                    "the pages go on or in a circle: the rest is left out"
                );
                return Ok(found);
            }
            value = match self.send(what, Method::GET, &next, auth).await {
                Ok(reply) => reply.value,
                Err(fault) if fault.status().is_some_and(|status| status < 500 && status != 401) => return Ok(found),
                Err(fault) => return Err(fault),
            };
            seen.push(next);
        }
    }
}
