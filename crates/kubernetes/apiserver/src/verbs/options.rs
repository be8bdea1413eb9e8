//! The parameters of lists and watches (`ListOptions` of `meta.k8s.io`), read and checked in kube-apiserver's order.

use serde_json::json;

use crate::objects::Objects;
use crate::resource::Resource;
use crate::route::Query;
use crate::selectors::Selector;
use crate::status::{ApiError, ApiResult, FieldError};

/// How long a request waits for a revision that does not exist yet.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(3);

/// How to interpret the requested resourceVersion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Match {
    /// Not specified.
    Unset,
    /// As of exactly this revision.
    Exact,
    /// As of this revision or a later one.
    NotOlderThan,
}

/// Parameters of a list or watch.
#[derive(Debug)]
pub struct Options {
    /// Which objects.
    pub selector: Selector,
    /// The resourceVersion parameter, empty if absent.
    pub version: String,
    /// How to interpret it.
    pub matching: Match,
    /// Size of a page; `None` is all.
    pub limit: Option<usize>,
    /// Continue token, empty if absent.
    pub token: String,
    /// Duration of a watch in seconds, 0 if not given.
    pub seconds: u64,
    /// Whether the watcher accepts bookmarks.
    pub bookmarks: bool,
    /// Whether a watch begins with the present objects; `None` if neither parameter nor version decides.
    pub initial: Option<bool>,
}

/// Parses a parameter like `strconv.ParseInt`, with its error text.
fn number(query: &Query, key: &str) -> ApiResult<i64> {
    match query.all(key).next() {
        None => Ok(0),
        Some(text) => text.parse().map_err(|_| ApiError::bad_request(not_a_number("ParseInt", text))),
    }
}

/// The error text of Go's `strconv` for a text that is not a number, or one out of range.
fn not_a_number(function: &str, text: &str) -> String {
    let digits = text.strip_prefix(['-', '+']).filter(|_| function == "ParseInt").unwrap_or(text);
    let out_of_range = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let why = if out_of_range { "value out of range" } else { "invalid syntax" };
    format!("strconv.{function}: parsing {}: {why}", json!(text))
}

/// Parses a resourceVersion parameter; 0 if it is empty. The error is the text that lists and watches embed in
/// theirs.
pub fn version(text: &str) -> Result<u64, String> {
    match text {
        "" => Ok(0),
        text if text.bytes().all(|b| b.is_ascii_digit()) && text.parse::<u64>().is_ok() => {
            Ok(text.parse().unwrap_or(0))
        }
        text => Err(format!("resourceVersion: Invalid value: {}: {}", json!(text), not_a_number("ParseUint", text))),
    }
}

impl Options {
    /// Reads the parameters of a list, or of a watch.
    pub fn read(query: &Query, resource: &Resource, watch: bool) -> ApiResult<Self> {
        let limit = number(query, "limit")?;
        let seconds = number(query, "timeoutSeconds")?;
        let selector = Selector::parse(query.get("labelSelector"), query.get("fieldSelector"), resource)?;
        let said = query.all("sendInitialEvents").next().map(|text| text != "0" && !text.eq_ignore_ascii_case("false"));
        let version = query.get("resourceVersion").to_owned();
        let token = query.get("continue").to_owned();
        let mut matching = query.get("resourceVersionMatch").to_owned();
        let mut initial = said;
        if watch && said.is_none() && matching.is_empty() && matches!(version.as_str(), "" | "0") {
            (initial, matching) = (Some(true), "NotOlderThan".to_owned());
        }
        let errors = if watch {
            check_watch(&matching, initial, &token)
        } else {
            check_list(&matching, &version, initial, &token)
        };
        if !errors.is_empty() {
            return Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", &errors));
        }
        let matching = match matching.as_str() {
            "Exact" => Match::Exact,
            "NotOlderThan" => Match::NotOlderThan,
            _ => Match::Unset,
        };
        // Upstream serves resourceVersion 0 from its cache and ignores the limit.
        let limit = usize::try_from(limit).ok().filter(|n| *n > 0 && version != "0");
        Ok(Self {
            selector,
            version,
            matching,
            limit,
            token,
            seconds: u64::try_from(seconds).unwrap_or(0),
            bookmarks: query.flag("allowWatchBookmarks"),
            initial,
        })
    }
}

const MATCH: &str = "resourceVersionMatch";

fn check_list(matching: &str, version: &str, initial: Option<bool>, token: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if !matching.is_empty() {
        if version.is_empty() {
            let text = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            errors.push(FieldError::forbidden(MATCH, text));
        }
        if !token.is_empty() {
            errors.push(FieldError::forbidden(MATCH, "resourceVersionMatch is forbidden when continue is provided"));
        }
        if !matches!(matching, "Exact" | "NotOlderThan") {
            errors.push(FieldError::not_supported(MATCH, &json!(matching), &["Exact", "NotOlderThan", ""]));
        }
        if matching == "Exact" && version == "0" {
            let text = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            errors.push(FieldError::forbidden(MATCH, text));
        }
    }
    if initial.is_some() {
        errors.push(FieldError::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
    }
    errors
}

fn check_watch(matching: &str, initial: Option<bool>, token: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if initial.is_some() && matching != "NotOlderThan" {
        let text = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        errors.push(FieldError::forbidden(MATCH, text));
    }
    if !matching.is_empty() {
        if initial.is_none() {
            let text = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            errors.push(FieldError::forbidden(MATCH, text));
        }
        if matching != "NotOlderThan" {
            errors.push(FieldError::not_supported(MATCH, &json!(matching), &["NotOlderThan"]));
        }
        if !token.is_empty() {
            errors.push(FieldError::forbidden(MATCH, "resourceVersionMatch is forbidden when continue is provided"));
        }
    }
    errors
}

/// Waits some seconds for a revision, then refuses it.
pub async fn wait_for(objects: &Objects, rev: u64) -> ApiResult<()> {
    let mut news = objects.store.subscribe();
    let reached = news.wait_for(|newest| *newest >= rev);
    if tokio::time::timeout(PATIENCE, reached).await.is_err() {
        return Err(ApiError::future_version(rev, objects.store.revision()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;
    use crate::strategies;

    fn read(query: &str, watch: bool) -> ApiResult<Options> {
        let catalog = Registry::new(strategies::kinds()).catalog();
        Options::read(&Query::parse(query), catalog.find("", "v1", "secrets").unwrap(), watch)
    }

    #[test]
    fn lists_are_refused_in_upstreams_words() {
        let text = |query: &str| read(query, false).unwrap_err().message;
        assert_eq!(text("limit=x"), "strconv.ParseInt: parsing \"x\": invalid syntax");
        assert_eq!(
            text("limit=99999999999999999999"),
            "strconv.ParseInt: parsing \"99999999999999999999\": value out of range"
        );
        assert_eq!(
            text("resourceVersionMatch=Exact"),
            "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden \
             unless resourceVersion is provided"
        );
        assert_eq!(
            text("resourceVersion=0&resourceVersionMatch=Exact"),
            "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch \"exact\" is \
             forbidden for resourceVersion \"0\""
        );
        assert!(text("sendInitialEvents=true").contains("sendInitialEvents is forbidden for list"));
        assert_eq!(read("limit=-1", false).unwrap().limit, None);
        assert_eq!(read("limit=2&resourceVersion=0", false).unwrap().limit, None);
    }

    #[test]
    fn watches_without_a_version_begin_with_what_is_there() {
        assert_eq!(read("", true).unwrap().initial, Some(true));
        assert_eq!(read("resourceVersion=0", true).unwrap().initial, Some(true));
        assert_eq!(read("resourceVersion=5", true).unwrap().initial, None);
        assert_eq!(
            read("sendInitialEvents=False&resourceVersionMatch=NotOlderThan", true).unwrap().initial,
            Some(false)
        );
        assert_eq!(read("sendInitialEvents=true", true).unwrap_err().code, 422);
        assert_eq!(read("resourceVersionMatch=NotOlderThan&resourceVersion=5", true).unwrap_err().code, 422);
    }

    #[test]
    fn versions_are_plain_numbers() {
        assert_eq!(version("7"), Ok(7));
        assert_eq!(
            version("-1").unwrap_err(),
            "resourceVersion: Invalid value: \"-1\": strconv.ParseUint: parsing \"-1\": invalid syntax"
        );
        assert!(version("18446744073709551616").unwrap_err().ends_with("value out of range"));
    }
}
