//! list: pages of objects, consistent at one revision. Objects are passed on as stored, without being parsed, unless a
//! selector or another form of answer needs it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;
use serde_json::{Value, json};

use super::{Backend, Request, store_failed};
use crate::media::Shape;
use crate::reply::{self, Response};
use crate::resource::Resource;
use crate::selectors::Selector;
use crate::status::{ApiError, ApiResult};
use crate::store::{Cursor, ListPage, ListQuery, Row};
use crate::table;

/// Rows read at once.
const CHUNK: usize = 256;

/// What a list request asks for.
struct Ask {
    selector: Selector,
    at: Option<u64>,
    after: Option<Cursor>,
    limit: Option<usize>,
}

/// A page after the selectors.
pub struct Selected {
    /// Revision of the page.
    pub rev: u64,
    /// Matching rows.
    pub rows: Vec<Row>,
    /// Where the next page starts, if there is one.
    pub next: Option<Cursor>,
}

/// Answers with a list.
pub async fn list(backend: &Backend, request: &Request) -> ApiResult<Response> {
    let resource = request.resource();
    let ask = ask(backend, request).await?;
    let page = backend.page(resource, &request.target.ns, &ask.selector, ask.at, ask.after, ask.limit).await?;
    let token = page.next.as_ref().map(|next| encode_token(page.rev, next)).unwrap_or_default();
    let mut meta = json!({"resourceVersion": page.rev.to_string()});
    if !token.is_empty() {
        meta["continue"] = json!(token);
        if ask.selector.is_empty() {
            let left = backend.count_after(resource, &request.target.ns, &page).await?;
            meta["remainingItemCount"] = json!(left);
        }
    }
    encode(request, &page, &meta)
}

fn encode(request: &Request, page: &Selected, meta: &Value) -> ApiResult<Response> {
    let resource = request.resource();
    let damaged = |e: serde_json::Error| ApiError::internal(format!("a stored object is damaged: {e}"));
    match &request.accept.shape {
        Shape::Plain => {
            let mut body = format!(
                "{{\"apiVersion\":\"{}\",\"kind\":\"{}\",\"metadata\":{meta},\"items\":[",
                resource.api_version(),
                resource.list_kind
            )
            .into_bytes();
            for (at, row) in page.rows.iter().enumerate() {
                if at > 0 {
                    body.push(b',');
                }
                body.extend(resource.encode_item(row.rev, &row.body).map_err(damaged)?);
            }
            body.extend_from_slice(b"]}");
            reply::bytes(request, StatusCode::OK, body)
        }
        Shape::Partial => {
            let items = page
                .rows
                .iter()
                .map(|row| Ok(reply::partial(&resource.load(row.rev, &row.body).map_err(damaged)?)))
                .collect::<ApiResult<Vec<Value>>>()?;
            let list = json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": meta, "items": items});
            reply::whole(request, StatusCode::OK, &list)
        }
        Shape::Table(version) => {
            let include = table::included(request.query.get("includeObject"))?;
            let mut rows = Vec::with_capacity(page.rows.len());
            for row in &page.rows {
                rows.push(table::row(resource, resource.load(row.rev, &row.body).map_err(damaged)?, include));
            }
            let table = json!({"kind": "Table", "apiVersion": format!("meta.k8s.io/{version}"), "metadata": meta,
                "columnDefinitions": table::columns(resource), "rows": rows});
            reply::whole(request, StatusCode::OK, &table)
        }
    }
}

async fn ask(backend: &Backend, request: &Request) -> ApiResult<Ask> {
    let query = &request.query;
    let resource = request.resource();
    let selector = Selector::parse(query.get("labelSelector"), query.get("fieldSelector"), resource)?;
    let limit = query.number("limit")?.filter(|n| *n > 0).map(|n| usize::try_from(n).unwrap_or(usize::MAX));
    let asked = query.get("resourceVersion");
    let matching = query.get("resourceVersionMatch");
    let token = query.get("continue");
    if !token.is_empty() {
        if !asked.is_empty() && asked != "0" {
            return Err(ApiError::bad_request("specifying resource version is not allowed when using continue"));
        }
        let (rev, after) = decode_token(token).ok_or_else(|| ApiError::bad_request("continue key is not valid"))?;
        if rev < backend.store.compacted() {
            return Err(ApiError::expired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new list \
                 without the continue parameter.",
            ));
        }
        return Ok(Ask { selector, at: Some(rev), after: Some(after), limit });
    }
    if !matching.is_empty() && asked.is_empty() {
        return Err(ApiError::bad_request("resourceVersionMatch is forbidden unless resourceVersion is provided"));
    }
    let rev: u64 = match asked {
        "" => 0,
        text => text.parse().map_err(|_| {
            ApiError::bad_request(format!("resourceVersion: Invalid value: {text:?}: must be a number"))
        })?,
    };
    wait_for(backend, rev).await?;
    let at = match matching {
        "" | "NotOlderThan" => (matching.is_empty() && rev > 0 && limit.is_some()).then_some(rev),
        "Exact" if rev > 0 => Some(rev),
        "Exact" => {
            return Err(ApiError::bad_request("resourceVersionMatch \"Exact\" is forbidden for resourceVersion \"0\""));
        }
        other => {
            return Err(ApiError::bad_request(format!(
                "resourceVersionMatch: Unsupported value: {other:?}: supported values: \"Exact\", \"NotOlderThan\""
            )));
        }
    };
    Ok(Ask { selector, at, after: None, limit })
}

/// Gives a revision of the near future three seconds to come, then refuses it.
pub async fn wait_for(backend: &Backend, rev: u64) -> ApiResult<()> {
    let mut news = backend.store.subscribe();
    let reached = news.wait_for(|newest| *newest >= rev);
    if tokio::time::timeout(std::time::Duration::from_secs(3), reached).await.is_err() {
        return Err(ApiError::future_version(rev, backend.store.revision()));
    }
    Ok(())
}

fn encode_token(rev: u64, next: &Cursor) -> String {
    let text = json!({"v": "meta.k8s.io/v1", "rv": rev, "ns": next.0, "start": next.1}).to_string();
    URL_SAFE_NO_PAD.encode(text)
}

fn decode_token(token: &str) -> Option<(u64, Cursor)> {
    let value: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(token.trim_end_matches('=')).ok()?).ok()?;
    let text = |key: &str| value.get(key)?.as_str().map(str::to_owned);
    Some((value.get("rv")?.as_u64()?, (text("ns")?, text("start")?)))
}

impl Backend {
    /// Reads one page of matching objects, or all of them without a limit.
    pub async fn page(
        &self,
        resource: &Resource,
        ns: &str,
        selector: &Selector,
        at: Option<u64>,
        after: Option<Cursor>,
        limit: Option<usize>,
    ) -> ApiResult<Selected> {
        let mut selected = Selected { rev: 0, rows: Vec::new(), next: None };
        let mut query = ListQuery {
            resource: resource.storage.clone(),
            ns: (!ns.is_empty()).then(|| ns.to_owned()),
            after,
            at,
            limit: CHUNK,
        };
        loop {
            let wanted = limit.map_or(CHUNK, |l| l.saturating_sub(selected.rows.len()).clamp(1, CHUNK));
            query.limit = if selector.is_empty() { wanted } else { CHUNK };
            let ListPage { rev, mut rows, more } = self.store.list(query.clone()).await.map_err(store_failed)?;
            self.convert_rows(resource, &mut rows).await?;
            selected.rev = rev;
            // The rest of the list is read as of the same revision.
            query.at = Some(rev);
            let count = rows.len();
            for (seen, row) in rows.into_iter().enumerate() {
                let place = (row.ns.clone(), row.name.clone());
                if selector.is_empty() || selector.matches(resource, &row.ns, &row.name, row.rev, &row.body) {
                    selected.rows.push(row);
                }
                query.after = Some(place.clone());
                if limit.is_some_and(|l| selected.rows.len() >= l) {
                    if more || seen + 1 < count {
                        selected.next = Some(place);
                    }
                    return Ok(selected);
                }
            }
            if !more {
                return Ok(selected);
            }
        }
    }

    /// All objects that match now, and the revision of that.
    pub async fn select(&self, resource: &Resource, ns: &str, selector: &Selector) -> ApiResult<(u64, Vec<Row>)> {
        let page = self.page(resource, ns, selector, None, None, None).await?;
        Ok((page.rev, page.rows))
    }

    /// Objects after the page. Counted as of now: clients take it as an estimate.
    async fn count_after(&self, resource: &Resource, ns: &str, page: &Selected) -> ApiResult<u64> {
        let query = ListQuery {
            resource: resource.storage.clone(),
            ns: (!ns.is_empty()).then(|| ns.to_owned()),
            after: page.next.clone(),
            at: None,
            limit: 0,
        };
        self.store.count(query).await.map_err(store_failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_read_back_and_rubbish_does_not() {
        let next = ("a".to_owned(), "b\"c".to_owned());
        assert_eq!(decode_token(&encode_token(7, &next)), Some((7, next)));
        assert_eq!(decode_token("rubbish"), None);
    }
}
