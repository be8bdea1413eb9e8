//! Checks for approving and signing CertificateSigningRequests: besides the subresource, the user needs a right to
//! the signer (upstream's admission plug-ins CertificateApproval and CertificateSigning).

use serde_json::Value;

use super::Auth;
use crate::change::Change;
use crate::object::{self, Object};
use crate::rbac::Attributes;
use crate::resource::Resource;
use crate::status::{ApiError, ApiResult};
use crate::strategy::ExtraRights;

const GROUP: &str = "certificates.k8s.io";

/// Refuses a change of a request's approval or certificate by a user without rights to its signer.
pub fn check(auth: &Auth, change: &Change, resource: &Resource, object: &Object, old: &Object) -> ApiResult<()> {
    if resource.strategy.extra_rights() != ExtraRights::Signer {
        return Ok(());
    }
    let part = |object: &Object, path: &str| object.get("status").and_then(|s| s.get(path)).cloned();
    let signed = ["certificate", "conditions"].iter().any(|key| part(object, key) != part(old, key));
    let verb = match change.sub.as_str() {
        "approval" => "approve",
        "status" if signed => "sign",
        _ => return Ok(()),
    };
    let signer = old.get("spec").and_then(|s| s.get("signerName")).and_then(Value::as_str).unwrap_or_default();
    let domain = signer.split('/').next().unwrap_or_default();
    let may = |name: &str| {
        let asked = Attributes { name: name.to_owned(), ..Attributes::of(verb, GROUP, "signers", "") };
        auth.decide(&change.user, &asked).allowed
    };
    if may(signer) || may(&format!("{domain}/*")) {
        return Ok(());
    }
    let why = format!("user not permitted to {verb} requests with signerName {}", gotext::quote(signer));
    Err(ApiError::forbidden(GROUP, &resource.plural, object::name(old), &why))
}
