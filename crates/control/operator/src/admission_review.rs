//! Admission of BareMetalHosts and of the objects beside them: an AdmissionReview in, an AdmissionReview out.
//!
//! HostClasses, a kind of our own, are reviewed here, too.
//!
//! The embedded API asks in the process, any other by HTTPS (`admission.k8s.io/v1`). What is refused and what is warned of is decided by
//! `host-lifecycle`; this adds which provisioner the host gets, and what that says of the host and of its BMC's address (`foreseen`).

use std::sync::{Arc, PoisonError, RwLock};

use api::metal3::{BareMetalHost, annotation};
use api::metamorph::HostDiscoverySpec;
use host_lifecycle::{Beside, Review, Served, references, review, review_beside};
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::foreseen::ForeseenAll;
use crate::host::facts;

/// Path at which upstream's webhook is asked (baremetal-operator `internal/webhooks/metal3.io/v1alpha1/baremetalhost_webhook.go`).
pub const PATH: &str = "/validate-metal3-io-v1alpha1-baremetalhost";
/// Name of the webhook, upstream's.
pub const NAME: &str = "baremetalhost.metal3.io";
/// Path at which the webhook is asked about HostClasses.
pub const CLASS_PATH: &str = "/validate-metamorph-metal3-io-v1alpha1-hostclass";
/// Name of that webhook.
pub const CLASS_NAME: &str = "hostclass.metamorph.metal3.io";
/// Warnings that a client is told at once.
const MAX_WARNINGS: usize = 16;

/// Answers reviews of BareMetalHosts. Clones share what is known of the provisioners.
#[derive(Clone)]
pub struct HostAdmission {
    known: Arc<RwLock<ForeseenAll>>,
}

impl HostAdmission {
    /// For a server with these provisioners.
    #[must_use]
    pub fn new(known: ForeseenAll) -> Self {
        Self { known: Arc::new(RwLock::new(known)) }
    }

    /// From now on these are the server's provisioners.
    pub fn knows(&self, known: ForeseenAll) {
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = known;
    }

    /// The answer to a review. It echoes the question's uid; a question that cannot be read is refused, with what is wrong. `of_namespace` is the provisioner
    /// that the annotation of the host's namespace names.
    #[must_use]
    pub fn answer(&self, question: &Value, of_namespace: Option<&str>) -> Value {
        let request = question.get("request").unwrap_or(&Value::Null);
        let found = match read(request) {
            Ok((new, old)) => self.review(&new, old.as_ref(), of_namespace),
            Err(what) => Review { denials: vec![what], warnings: Vec::new() },
        };
        verdict(request, &found)
    }

    fn review(&self, new: &BareMetalHost, old: Option<&BareMetalHost>, of_namespace: Option<&str>) -> Review {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner).clone();
        let (chosen, fault_of_choice) = known.choose(new, of_namespace);
        let facts = facts(new, None);
        // Where it is not known what can be done, the host is told of it when it is registered.
        let served = chosen.and_then(|chosen| chosen.capabilities(&facts)).unwrap_or_else(Served::everything);
        let address_fault =
            chosen.filter(|_| !facts.address.is_empty()).and_then(|chosen| chosen.address_fault(&facts.address));
        let mut found = review(new, old, &served, address_fault.as_deref());
        if !new.is_deleting() {
            found.warnings.extend(fault_of_choice);
        }
        found
    }
}

/// The namespace of the host in a question, if its annotations say something of the answer.
#[must_use]
pub fn namespace_asked_for(question: &Value) -> Option<&str> {
    let request = question.get("request")?;
    let is_annotated = request["object"]["metadata"]["annotations"].get(annotation::PROVISIONER).is_some();
    request["namespace"].as_str().filter(|name| !name.is_empty() && !is_annotated)
}

/// The provisioner that a namespace's annotation names.
#[must_use]
pub fn named_by_namespace(namespace: &Value) -> Option<&str> {
    namespace["metadata"]["annotations"].get(annotation::PROVISIONER)?.as_str()
}

/// Path at which upstream's webhook of a kind is asked.
#[must_use]
pub fn path_of(kind: Beside) -> String {
    format!("/validate-metal3-io-v1alpha1-{}", kind.kind().to_ascii_lowercase())
}

/// Name of the webhook of a kind, upstream's.
#[must_use]
pub fn name_of(kind: Beside) -> String {
    format!("{}.metal3.io", kind.kind().to_ascii_lowercase())
}

/// Path at which the webhook of HostDiscoveries is asked.
pub const DISCOVERY_PATH: &str = "/validate-metamorph-metal3-io-v1alpha1-hostdiscovery";
/// Its name.
pub const DISCOVERY_NAME: &str = "hostdiscovery.metamorph.metal3.io";

/// The answer to a review of a HostDiscovery. One that is being deleted is let go on its way.
#[must_use]
pub fn answer_discovery(question: &Value) -> Value {
    let request = question.get("request").unwrap_or(&Value::Null);
    let object = &request["object"];
    if !object["metadata"]["deletionTimestamp"].is_null() {
        return verdict(request, &Review::default());
    }
    let found = match HostDiscoverySpec::deserialize(&object["spec"]) {
        Ok(spec) => {
            let discovery::Review { mut denials, mut warnings } = discovery::Review::of(&spec);
            denials.extend(taken_back(&spec, &request["oldObject"]));
            let given = object["spec"].as_object().and_then(|spec| spec.get("medium"));
            if given.is_some_and(Value::is_null) {
                warnings.push(
                    "spec.medium is null, which is as if it were not there: write medium: {} for a medium".to_owned(),
                );
            }
            Review { denials, warnings }
        }
        Err(error) => {
            Review { denials: vec![format!("read the HostDiscovery in request.object: {error}")], warnings: Vec::new() }
        }
    };
    verdict(request, &found)
}

/// Why a medium is not added to a HostDiscovery from which it was removed: with a number that was offered, media would be valid again that are out.
fn taken_back(spec: &HostDiscoverySpec, old: &Value) -> Option<String> {
    let revision = spec.medium.as_ref()?.revision;
    let is_added = old.is_object() && old["spec"]["medium"].is_null();
    let offered = old["status"]["offeredRevision"].as_u64().filter(|_| is_added)?;
    (u64::from(revision) <= offered).then(|| {
        format!(
            "spec.medium.revision is {revision}, and media up to {offered} were taken back when spec.medium was removed: write {}",
            offered.saturating_add(1)
        )
    })
}

/// Whether the answer to this question depends on the hosts that there are.
#[must_use]
pub fn asks_for_hosts(kind: Beside, question: &Value) -> bool {
    kind.is_held_by_hosts() && question["request"]["operation"] != "CREATE"
}

/// The answer to a review of an object beside hosts, which are given where [`asks_for_hosts`] says so, else why they are not known.
#[must_use]
pub fn answer_beside(kind: Beside, question: &Value, hosts: Result<&[BareMetalHost], String>) -> Value {
    let request = question.get("request").unwrap_or(&Value::Null);
    let object = |field: &str| request.get(field).filter(|object| object.is_object());
    let (new, old) = (object("object"), object("oldObject"));
    let found = if new.is_none() && old.is_none() {
        Review { denials: vec!["read the AdmissionReview: it has no object".to_owned()], warnings: Vec::new() }
    } else {
        review_beside(kind, new, old, |namespace, name| hosts.map(|hosts| references(hosts, namespace, name)))
    };
    verdict(request, &found)
}

/// The answer to a review of a HostClass: its rules are compiled and costed.
#[must_use]
pub fn answer_class(question: &Value) -> Value {
    let request = question.get("request").unwrap_or(&Value::Null);
    let object = |field: &str| request.get(field).filter(|object| object.is_object());
    let found = match object("object") {
        None => Review { denials: vec!["read the AdmissionReview: it has no object".to_owned()], warnings: Vec::new() },
        Some(new) => {
            let classification::host_class::Review { denials, warnings } =
                classification::host_class::review(new, object("oldObject"));
            Review { denials, warnings }
        }
    };
    verdict(request, &found)
}

/// What is found, as the answer to a request.
fn verdict(request: &Value, found: &Review) -> Value {
    let mut response = json!({
        "uid": request.get("uid").and_then(Value::as_str).unwrap_or_default(),
        "allowed": found.denials.is_empty(),
    });
    if !found.denials.is_empty() {
        // Reason and code as controller-runtime gives them, which upstream's webhook is made with.
        response["status"] = json!({
            "status": "Failure", "reason": "Forbidden", "code": 403, "message": found.denials.join("; "),
        });
    }
    if !found.warnings.is_empty() {
        let warnings: Vec<&String> = found.warnings.iter().take(MAX_WARNINGS).collect();
        response["warnings"] = json!(warnings);
    }
    json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response })
}

/// The new and the old object of a request.
fn read(request: &Value) -> Result<(BareMetalHost, Option<BareMetalHost>), String> {
    let object = |field: &str| {
        let found = request.get(field).filter(|object| object.is_object());
        found
            .map(|object| serde_json::from_value::<BareMetalHost>(object.clone()))
            .transpose()
            .map_err(|error| format!("read the BareMetalHost in request.{field}: {error}"))
    };
    let new = object("object")?.ok_or("read the AdmissionReview: it has no request.object")?;
    // What is stored is what it is: one that cannot be read is no reason to refuse its correction.
    Ok((new, object("oldObject").unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_medium_that_was_removed_is_not_added_with_a_number_that_was_offered() {
        let old = |spec: Value| json!({ "spec": spec, "status": { "offeredRevision": 3 } });
        let asked = |revision: u32, old: &Value| {
            let spec = json!({ "ranges": ["192.0.2.0/24"], "medium": { "revision": revision } });
            let question = json!({ "request": { "uid": "u", "object": { "spec": spec }, "oldObject": old } });
            answer_discovery(&question)["response"].clone()
        };
        let removed = old(json!({ "ranges": ["192.0.2.0/24"] }));
        let refused = asked(3, &removed);
        assert!(refused["allowed"] == json!(false) && refused.to_string().contains("write 4"), "{refused}");
        assert_eq!(asked(4, &removed)["allowed"], json!(true));
        // It is there, or the object is new: nothing was removed.
        assert_eq!(asked(3, &old(json!({ "medium": { "revision": 3 } })))["allowed"], json!(true));
        assert_eq!(asked(1, &Value::Null)["allowed"], json!(true));
    }

    #[test]
    fn a_medium_that_is_left_empty_is_told() {
        let spec = json!({ "ranges": ["192.0.2.0/24"], "medium": null });
        let asked = |spec: &Value| answer_discovery(&json!({ "request": { "uid": "u", "object": { "spec": spec } } }));
        let answer = &asked(&spec)["response"];
        assert!(answer["allowed"] == json!(true) && answer["warnings"].to_string().contains("medium: {}"), "{answer}");
        let answer = &asked(&json!({ "ranges": ["192.0.2.0/24"], "medium": {} }))["response"];
        assert!(!answer["warnings"].to_string().contains("medium: {}"), "{answer}");
    }
}
