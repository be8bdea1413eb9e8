//! Conversion between the versions of a kind, by the webhook of its definition if there is one.
//!
//! A tail does not contain its version, because it serves all versions of most kinds. Tails of custom resources with
//! several versions are marked with theirs ([`object::mark`]). Without a webhook the mark is ignored; with one it
//! decides whether to convert. Unmarked tails predate the second version: they are in the first of the definition's
//! stored versions.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Map, Value, json};

use crate::checks;
use crate::object::{self, Object};
use crate::objects::Objects;
use crate::resource::{Flavor, Resource};
use crate::status::{ApiError, ApiResult, FieldError, StatusReason};
use crate::store::{Row, Stored};
use crate::versions::{Webhook, by_webhook};
use crate::webhook::{self, Call};

/// Timeout of a conversion webhook; upstream has only the request's own limit.
const PATIENCE: Duration = Duration::from_secs(30);
/// Largest response, in bytes.
const MAX_ANSWER: usize = 64 << 20;
/// Most objects per call.
const BATCH: usize = 100;

/// A conversion failure as upstream's storage reports it: 500 without a reason.
fn failed(text: String) -> ApiError {
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, StatusReason::Unknown, text)
}

impl Objects {
    /// Converts an object of `from` to `to`, another version of the same kind.
    pub async fn in_version(&self, object: Object, from: &Resource, to: &Resource) -> ApiResult<Object> {
        if from.version == to.version && from.group == to.group {
            return Ok(object);
        }
        let mut object = object;
        if by_webhook(to).is_some() {
            return self.by_webhook(to, object, &to.api_version()).await;
        }
        if let Flavor::Builtin(_) = to.flavor {
            let version = object::metadata(&object).get("resourceVersion").cloned();
            object = to.load(0, &from.tail(object)).map_err(ApiError::internal)?;
            let meta = object::metadata_mut(&mut object);
            meta.shift_remove("resourceVersion");
            if let Some(version) = version {
                meta.insert("resourceVersion".into(), version);
            }
        }
        object.insert("apiVersion".into(), json!(to.api_version()));
        object.insert("kind".into(), json!(to.kind));
        Ok(object)
    }

    /// Converts a resource's object to the version `to` by its webhook, if it has one.
    pub async fn by_webhook(&self, resource: &Resource, object: Object, to: &str) -> ApiResult<Object> {
        let Some((_, webhook)) = by_webhook(resource) else { return Ok(object) };
        let converted = self.ask(webhook, vec![object], to).await?;
        converted.into_iter().next().ok_or_else(|| failed("no object was converted".to_owned()))
    }

    /// Converts an object to the storage version if its kind has a webhook. Also returns that version's resource in
    /// this case.
    pub async fn to_storage(&self, resource: &Resource, object: Object) -> ApiResult<(Object, Option<Arc<Resource>>)> {
        let catalog = self.registry.catalog();
        let storage = by_webhook(resource).and_then(|_| catalog.storage_version(resource)).cloned();
        let Some(storage) = storage else { return Ok((object, None)) };
        let mut object = self.in_version(object, resource, &storage).await?;
        storage.prune_and_default(&mut object);
        Ok((object, Some(storage)))
    }

    /// Converts a stored object to the resource's version.
    pub async fn converted(&self, resource: &Resource, mut stored: Stored) -> ApiResult<Stored> {
        if by_webhook(resource).is_some() {
            let mut tails = [(stored.rev, &mut stored.tail)];
            self.convert_tails(resource, &mut tails).await?;
        }
        Ok(stored)
    }

    /// Converts the tails of rows to the resource's version.
    pub async fn convert_rows(&self, resource: &Resource, rows: &mut [Row]) -> ApiResult<()> {
        if by_webhook(resource).is_none() {
            return Ok(());
        }
        let mut tails: Vec<(u64, &mut Bytes)> = rows.iter_mut().map(|r| (r.rev, &mut r.body)).collect();
        self.convert_tails(resource, &mut tails).await
    }

    /// Converts tails to the resource's version, if the kind has a webhook.
    pub async fn convert_tails(&self, resource: &Resource, tails: &mut [(u64, &mut Bytes)]) -> ApiResult<()> {
        let Some((versions, webhook)) = by_webhook(resource) else { return Ok(()) };
        let mut others = Vec::new();
        for (at, (_, tail)) in tails.iter().enumerate() {
            if object::mark_of(tail).unwrap_or(&versions.first) != resource.version {
                others.push(at);
            }
        }
        for batch in others.chunks(BATCH) {
            let mut objects = Vec::with_capacity(batch.len());
            for at in batch {
                let (rev, tail) = &tails[*at];
                let version = object::mark_of(tail).unwrap_or(&versions.first);
                let version = object::api_version(&versions.group, version);
                let mut object = object::from_tail(&version, &resource.kind, *rev, tail).map_err(ApiError::internal)?;
                // Upstream converts objects from storage before it sets their resourceVersion.
                object::metadata_mut(&mut object).shift_remove("resourceVersion");
                objects.push(object);
            }
            let converted = self.ask(webhook, objects, &resource.api_version()).await?;
            for (at, mut object) in batch.iter().zip(converted) {
                resource.prune_and_default(&mut object);
                *tails[*at].1 = resource.tail(object);
            }
        }
        Ok(())
    }

    /// Calls the webhook. The response must have as many objects, each of which is checked against the one sent.
    async fn ask(&self, webhook: &Webhook, objects: Vec<Object>, wanted: &str) -> ApiResult<Vec<Object>> {
        let from = objects.first().map(gvk).unwrap_or_default();
        let review = webhook.reviews.iter().find(|v| matches!(v.as_str(), "v1" | "v1beta1"));
        let review = review.ok_or_else(|| failed("no supported conversion review versions".to_owned()))?;
        let target = webhook.target.as_ref().map_err(|why| failed(why.clone()))?;
        let uid = self.given.uid();
        let question = json!({"kind": "ConversionReview", "apiVersion": format!("apiextensions.k8s.io/{review}"),
            "request": {"uid": uid, "desiredAPIVersion": wanted, "objects": objects},
            "response": {"uid": "", "convertedObjects": null, "result": {"metadata": {}}}});
        let call =
            Call { body: gotext::encode(&question).into(), patience: PATIENCE, send_timeout: false, most: MAX_ANSWER };
        let broken = |why: String| failed(format!("conversion webhook for {from} failed: {why}"));
        let answer = target.post(self, &call).await.map_err(broken)?;
        if let Some(why) = webhook::refusal(&answer) {
            return Err(broken(why));
        }
        let answer = webhook::decoded(&answer).map_err(broken)?;
        let converted = response(&answer, &uid, review == "v1").map_err(broken)?;
        if converted.len() != objects.len() {
            let (got, sent) = (converted.len(), objects.len());
            return Err(failed(format!("conversion webhook for {from} returned {got} objects, expected {sent}")));
        }
        let pairs = objects.iter().zip(converted);
        pairs.map(|(original, converted)| checked(original, converted, wanted).map_err(failed)).collect()
    }
}

/// `group/version, Kind=K` of an object, as Go prints it.
fn gvk(object: &Object) -> String {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    format!("{}, Kind={}", text("apiVersion"), text("kind"))
}

fn response(review: &Value, uid: &str, v1: bool) -> Result<Vec<Value>, String> {
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    if v1
        && (text(review, "apiVersion"), text(review, "kind"))
            != ("apiextensions.k8s.io/v1".into(), "ConversionReview".into())
    {
        let (version, kind) = (text(review, "apiVersion"), text(review, "kind"));
        return Err(format!(
            "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got {version}, Kind={kind}"
        ));
    }
    let response = review.get("response").filter(|r| r.is_object()).ok_or("no response provided")?;
    if v1 && text(response, "uid") != uid {
        return Err(format!("expected response.uid=\"{uid}\", got \"{}\"", text(response, "uid")));
    }
    let result = response.get("result").cloned().unwrap_or_default();
    let status = text(&result, "status");
    if status != "Success" {
        let message = text(&result, "message");
        let plain = format!("response.result.status was '{status}', not 'Success'");
        return Err(if message.is_empty() { plain } else { message });
    }
    Ok(response.get("convertedObjects").and_then(Value::as_array).cloned().unwrap_or_default())
}

/// The converted object with the original's metadata, except labels and annotations. Fails if it is not the same
/// object.
fn checked(original: &Object, converted: Value, wanted: &str) -> Result<Object, String> {
    let from = gvk(original);
    let text = |object: &Object, key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let invalid = |why: String| format!("conversion webhook for {from} returned invalid object{why}");
    let Value::Object(mut converted) = converted else { return Err(invalid(": it is no object".to_owned())) };
    let got = text(&converted, "apiVersion");
    if got != wanted {
        return Err(invalid(format!(" at index 0: invalid groupVersion (expected {wanted}, received {got})")));
    }
    let (kind, got) = (text(original, "kind"), text(&converted, "kind"));
    if got != kind {
        return Err(invalid(format!(" at index 0: invalid kind (expected {kind}, received {got})")));
    }
    for (key, label) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let (before, after) = (object::meta_str(original, key), object::meta_str(&converted, key));
        if before != after {
            return Err(invalid(format!(": must have the same {label}: {before} != {after}")));
        }
    }
    let meta = |why: String| format!("conversion webhook for {from} returned invalid metadata: {why}");
    let given = match converted.shift_remove("metadata") {
        Some(Value::Object(given)) => given,
        None => return Err(meta("missing metadata in converted object".to_owned())),
        Some(_) => return Err(meta("invalid metadata in converted object".to_owned())),
    };
    let mut kept = object::metadata(original).clone();
    for key in ["labels", "annotations"] {
        match given.get(key) {
            None | Some(Value::Null) => {
                kept.shift_remove(key);
            }
            Some(Value::Object(map)) => {
                changeable(key, map, kept.get(key)).map_err(meta)?;
                kept.insert(key.to_owned(), json!(map));
            }
            Some(_) => return Err(meta(format!("invalid metadata.{key} in converted object"))),
        }
    }
    converted.insert("metadata".into(), Value::Object(kept));
    Ok(converted)
}

/// Checks that changed labels and annotations are valid.
fn changeable(key: &str, given: &Map<String, Value>, before: Option<&Value>) -> Result<(), String> {
    if let Some((name, _)) = given.iter().find(|(_, v)| !v.is_string()) {
        return Err(format!("metadata.{key}[{name}] must be a string in converted object"));
    }
    if before.and_then(Value::as_object) == Some(given) {
        return Ok(());
    }
    let mut errors: Vec<FieldError> = Vec::new();
    if key == "labels" {
        checks::labels("metadata.labels", &Value::Object(given.clone()), &mut errors);
    } else {
        for name in given.keys() {
            let wrong = names::qualified_name(&name.to_lowercase());
            checks::all_invalid("metadata.annotation", &json!(name), wrong, &mut errors);
        }
    }
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    match texts.as_slice() {
        [] => Ok(()),
        [one] => Err(one.clone()),
        many => Err(format!("[{}]", many.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: Value) -> Object {
        value.as_object().cloned().unwrap_or_default()
    }

    #[test]
    fn a_converted_object_must_be_the_same_one() {
        let original = object(json!({"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "a", "uid": "u",
            "labels": {"x": "y"}, "generation": 2}}));
        let run = |value: Value| checked(&original, value, "g/v2");
        let good = json!({"apiVersion": "g/v2", "kind": "K", "spec": 1, "metadata": {"name": "a", "uid": "u",
            "generation": 9, "annotations": {"n": "1"}}});
        let kept = run(good.clone()).unwrap();
        assert_eq!(
            Value::Object(kept)["metadata"],
            json!({"name": "a", "uid": "u", "generation": 2, "annotations": {"n": "1"}})
        );
        let error_of = |key: &str, value: Value| {
            let mut bad = good.clone();
            *bad.pointer_mut(key).unwrap() = value;
            run(bad).unwrap_err()
        };
        let start = "conversion webhook for g/v1, Kind=K returned invalid";
        assert_eq!(
            error_of("/apiVersion", json!("g/v1")),
            format!("{start} object at index 0: invalid groupVersion (expected g/v2, received g/v1)")
        );
        assert_eq!(error_of("/metadata/uid", json!("w")), format!("{start} object: must have the same UID: u != w"));
        assert_eq!(
            error_of("/metadata/annotations/n", json!(1)),
            format!("{start} metadata: metadata.annotations[n] must be a string in converted object")
        );
    }
}
