//! `/healthz`, `/livez` and `/readyz`: the server's own checks, with upstream's parameters and responses.

use http::{HeaderValue, StatusCode, header};

use crate::reply::{self, Response};
use crate::route::Query;
use crate::status::{ApiError, ApiResult};
use crate::verbs::Backend;

/// A check: its name, and its failure, if any.
type Check = (&'static str, Option<&'static str>);

/// The checks of an endpoint, in the order of its report.
fn checks(backend: &Backend, root: &str) -> Vec<Check> {
    let storage = (!backend.store.takes_writes()).then_some("the store takes no more writes");
    let mut all = vec![("ping", None), ("log", None), ("storage", storage)];
    if root == "readyz" {
        // Not for `livez`: a restart would not free any space.
        all.push(("storage-room", backend.store.lacks_room()));
        all.push(("shutdown", backend.stop.is_cancelled().then_some("process is shutting down")));
    }
    all
}

/// Plain text that browsers must not interpret otherwise.
fn text(code: StatusCode, body: String) -> Response {
    let mut response = reply::plain(code, "text/plain; charset=utf-8", body);
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Answers for the endpoint `root`, or for one of its checks.
pub fn answer(backend: &Backend, root: &str, rest: &[&str], query: &Query) -> ApiResult<Response> {
    let all = checks(backend, root);
    match rest {
        [] => Ok(summary(root, &all, query)),
        [name] => match all.iter().find(|(known, _)| known == name) {
            Some((_, None)) => Ok(reply::plain(StatusCode::OK, "text/plain; charset=utf-8", "ok")),
            Some((_, Some(why))) => {
                Ok(text(StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {why}\n")))
            }
            None => Err(ApiError::unknown_path()),
        },
        _ => Err(ApiError::unknown_path()),
    }
}

fn summary(root: &str, all: &[Check], query: &Query) -> Response {
    let excluded: Vec<&str> = query.all("exclude").collect();
    let (mut lines, mut failed) = (String::new(), false);
    for (name, wrong) in all {
        let line = if excluded.contains(name) {
            format!("[+]{name} excluded: ok\n")
        } else if wrong.is_some() {
            failed = true;
            format!("[-]{name} failed: reason withheld\n")
        } else {
            format!("[+]{name} ok\n")
        };
        lines.push_str(&line);
    }
    let mut unknown: Vec<&str> = excluded.into_iter().filter(|e| !all.iter().any(|(name, _)| name == e)).collect();
    unknown.sort_unstable();
    unknown.dedup();
    if !unknown.is_empty() {
        let quoted: Vec<String> = unknown.iter().map(|name| format!("{name:?}")).collect();
        lines.push_str(&format!("warn: some health checks cannot be excluded: no matches for {}\n", quoted.join(",")));
    }
    if failed {
        return text(StatusCode::INTERNAL_SERVER_ERROR, format!("{lines}{root} check failed\n"));
    }
    if query.all("verbose").next().is_none() {
        return text(StatusCode::OK, "ok".to_owned());
    }
    text(StatusCode::OK, format!("{lines}{root} check passed\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt as _;

    async fn summarize(all: &[Check], query: &str) -> (u16, String) {
        let response = summary("readyz", all, &Query::parse(query));
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (code, String::from_utf8_lossy(&body).into_owned())
    }

    #[tokio::test]
    async fn checks_are_summed_up() {
        let fine: [Check; 2] = [("ping", None), ("storage", None)];
        let bad: [Check; 2] = [("ping", None), ("storage", Some("secret"))];
        assert_eq!(summarize(&fine, "").await, (200, "ok".to_owned()));
        assert_eq!(
            summarize(&fine, "verbose").await,
            (200, "[+]ping ok\n[+]storage ok\nreadyz check passed\n".to_owned())
        );
        let failed = "[+]ping ok\n[-]storage failed: reason withheld\nreadyz check failed\n";
        assert_eq!(summarize(&bad, "").await, (500, failed.to_owned()));
        assert_eq!(summarize(&bad, "exclude=storage").await.0, 200);
        assert!(summarize(&fine, "verbose&exclude=x").await.1.contains("no matches for \"x\""));
    }
}
