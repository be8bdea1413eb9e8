//! Tokens of service accounts: their claims and their validity.
//!
//! Follows `k8s.io/kubernetes/pkg/serviceaccount` (claims, legacy, jwt).

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use subtle::ConstantTimeEq as _;

use super::Auth;
use super::keys::ISSUER;
use crate::object::{self, Object};
use crate::objects::Objects;
use crate::rbac::index::Account;
use crate::rbac::rules::quoted_list;
use crate::user::{CREDENTIAL, User, account_name};

/// Issuer of tokens in Secrets.
pub const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";
/// Type of the Secrets that hold tokens.
pub const SECRET_TYPE: &str = "kubernetes.io/service-account-token";
/// Annotation of such a Secret: name of the service account.
pub const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
/// Annotation of such a Secret: UID of the service account.
pub const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";
/// Label of such a Secret whose token is no longer accepted.
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
/// Tolerated clock skew in seconds.
const LEEWAY: i64 = 60;
/// Longest accepted token, in bytes.
const LONGEST: usize = 64 << 10;
/// Error text for an unknown token.
pub const UNKNOWN: &str = "invalid bearer token";
const INVALIDATED: &str = "service account token has been invalidated";

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Bound {
    name: String,
    uid: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Private {
    namespace: String,
    serviceaccount: Bound,
    secret: Option<Bound>,
    pod: Option<Bound>,
    node: Option<Bound>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Claims {
    iss: String,
    sub: String,
    aud: Option<Audience>,
    exp: Option<f64>,
    nbf: Option<f64>,
    iat: Option<f64>,
    jti: String,
    #[serde(rename = "kubernetes.io")]
    private: Private,
    #[serde(rename = "kubernetes.io/serviceaccount/namespace")]
    legacy_namespace: String,
    #[serde(rename = "kubernetes.io/serviceaccount/secret.name")]
    legacy_secret: String,
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.name")]
    legacy_name: String,
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.uid")]
    legacy_uid: String,
}

/// What a token is bound to.
pub struct Binding {
    /// `secret` or `node`.
    pub claim: &'static str,
    /// Object name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

/// The claims of a token that is valid from `now` for `seconds`.
pub fn claims(
    account: (&str, &str, &str),
    audiences: &[String],
    now: Timestamp,
    seconds: i64,
    bound: Option<&Binding>,
) -> Value {
    let (ns, name, uid) = account;
    let start = now.as_second();
    let mut private = json!({"namespace": ns, "serviceaccount": {"name": name, "uid": uid}});
    if let Some(bound) = bound {
        private[bound.claim] = json!({"name": bound.name, "uid": bound.uid});
    }
    json!({"aud": audiences, "exp": start + seconds, "iat": start, "iss": ISSUER, "nbf": start,
        "jti": uuid::Uuid::new_v4().to_string(), "kubernetes.io": private, "sub": account_name(ns, name)})
}

/// The claims of a token in a Secret.
pub fn legacy_claims(ns: &str, name: &str, uid: &str, secret: &str) -> Value {
    json!({"iss": LEGACY_ISSUER, "kubernetes.io/serviceaccount/namespace": ns,
        "kubernetes.io/serviceaccount/secret.name": secret,
        "kubernetes.io/serviceaccount/service-account.name": name,
        "kubernetes.io/serviceaccount/service-account.uid": uid, "sub": account_name(ns, name)})
}

/// The user of a token, and those of the requested audiences (this server's if `None`) that it is valid for. The
/// error is the reason for refusing it.
pub async fn user_of(
    auth: &Auth,
    objects: &Objects,
    token: &str,
    asked: Option<&[String]>,
    now: Timestamp,
) -> Result<(User, Vec<String>), String> {
    let issuer = [ISSUER.to_owned()];
    let asked = asked.unwrap_or(&issuer);
    let claims = read(token).filter(|c| c.iss == ISSUER || c.iss == LEGACY_ISSUER).ok_or(UNKNOWN)?;
    auth.keys.verify(token)?;
    let audiences = match &claims.aud {
        Some(Audience::One(one)) => vec![one.clone()],
        Some(Audience::Many(many)) if !many.is_empty() => many.clone(),
        _ => issuer.to_vec(),
    };
    let common: Vec<String> = audiences.iter().filter(|a| asked.contains(a)).cloned().collect();
    if common.is_empty() {
        let (got, wanted) = (quoted_list(&audiences), quoted_list(asked));
        return Err(format!("token audiences {got} is invalid for the target audiences {wanted}"));
    }
    let user = if claims.iss == LEGACY_ISSUER {
        legacy(auth, objects, token, &claims).await?
    } else {
        current(auth, objects, &claims, now).await?
    };
    Ok((user, common))
}

fn read(token: &str) -> Option<Claims> {
    if token.len() > LONGEST {
        return None;
    }
    let mut parts = token.split('.');
    let (_, payload, _) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).ok()?).ok()
}

async fn current(auth: &Auth, objects: &Objects, claims: &Claims, now: Timestamp) -> Result<User, String> {
    let seconds = now.as_second() as f64;
    if claims.exp.is_some_and(|exp| seconds - LEEWAY as f64 > exp) {
        return Err("service account token has expired".to_owned());
    }
    if claims.nbf.is_some_and(|nbf| seconds + (LEEWAY as f64) < nbf) {
        return Err("service account token is not valid yet".to_owned());
    }
    if claims.iat.is_some_and(|iat| seconds + (LEEWAY as f64) < iat) {
        return Err("service account token is issued in the future".to_owned());
    }
    let private = &claims.private;
    let (ns, name, uid) = (&private.namespace, &private.serviceaccount.name, &private.serviceaccount.uid);
    let account = account(auth, ns, name)?;
    if account.uid != *uid {
        return Err(format!("service account UID ({}) does not match claim ({uid})", account.uid));
    }
    if long_gone(account.deleting.as_deref(), now) {
        return Err(format!("service account {ns}/{name} has been deleted"));
    }
    let mut user = User::account(ns, name, uid);
    if let Some(secret) = &private.secret {
        bound(objects, "secrets", ns, secret, now).await?;
    }
    if private.pod.is_some() {
        // There are no Pods here, so the bound Pod cannot exist.
        return Err(INVALIDATED.to_owned());
    }
    if let Some(node) = &private.node {
        bound(objects, "nodes", "", node, now).await?;
        for (key, value) in [("node-name", &node.name), ("node-uid", &node.uid)] {
            user.extra.insert(format!("authentication.kubernetes.io/{key}"), vec![value.clone()]);
        }
    }
    if !claims.jti.is_empty() {
        user.extra.insert(CREDENTIAL.to_owned(), vec![format!("JTI={}", claims.jti)]);
    }
    Ok(user)
}

fn account(auth: &Auth, ns: &str, name: &str) -> Result<Account, String> {
    auth.index.account(ns, name).ok_or_else(|| format!("serviceaccounts \"{name}\" not found"))
}

/// Whether a deletion began longer ago than the tolerated clock skew.
fn long_gone(deleting: Option<&str>, now: Timestamp) -> bool {
    let since = deleting.and_then(|t| t.parse::<Timestamp>().ok());
    since.is_some_and(|at| at.as_second() < now.as_second() - LEEWAY)
}

/// Checks that the bound object still exists with the same UID.
async fn bound(objects: &Objects, plural: &str, ns: &str, wanted: &Bound, now: Timestamp) -> Result<(), String> {
    let found = load(objects, plural, ns, &wanted.name).await.ok_or(INVALIDATED)?;
    let uid = object::meta_str(&found, "uid");
    if uid != wanted.uid {
        let (kind, what) = if plural == "nodes" { ("node", "Node") } else { ("secret", "Secret") };
        return Err(format!("{what} UID ({uid}) does not match service account {kind} ref claim ({})", wanted.uid));
    }
    if long_gone(Some(object::meta_str(&found, "deletionTimestamp")), now) {
        return Err(INVALIDATED.to_owned());
    }
    Ok(())
}

async fn load(objects: &Objects, plural: &str, ns: &str, name: &str) -> Option<Object> {
    let catalog = objects.registry.catalog();
    let resource = catalog.find("", "v1", plural)?;
    let stored = objects.stored(&resource.key(ns, name)).await.ok()??;
    objects.load(resource, &stored).ok()
}

async fn legacy(auth: &Auth, objects: &Objects, token: &str, claims: &Claims) -> Result<User, String> {
    let (ns, name, uid) = (&claims.legacy_namespace, &claims.legacy_name, &claims.legacy_uid);
    for (claim, value) in [
        ("sub", &claims.sub),
        ("namespace", ns),
        ("secretName", &claims.legacy_secret),
        ("serviceAccountName", name),
        ("serviceAccountUID", uid),
    ] {
        if value.is_empty() {
            return Err(format!("{claim} claim is missing"));
        }
    }
    if claims.sub != account_name(ns, name) {
        return Err("sub claim is invalid".to_owned());
    }
    let secret = load(objects, "secrets", ns, &claims.legacy_secret).await;
    let secret = secret.filter(|s| !object::is_deleting(s)).ok_or("Token has been invalidated")?;
    let kept = secret.get("data").and_then(|d| d.get("token")).and_then(Value::as_str).unwrap_or_default();
    let kept = STANDARD.decode(kept).unwrap_or_default();
    if !bool::from(kept.ct_eq(token.as_bytes())) {
        return Err("Token does not match server's copy".to_owned());
    }
    let account = account(auth, ns, name)?;
    if account.deleting.is_some() {
        return Err(format!("ServiceAccount {ns}/{name} has been deleted"));
    }
    if account.uid != *uid {
        return Err(format!("ServiceAccount UID ({}) does not match claim ({uid})", account.uid));
    }
    let labels = object::metadata(&secret).get("labels");
    if labels.and_then(|l| l.get(INVALID_SINCE)).is_some_and(|v| v != "") {
        return Err(format!(
            "the token in secret {ns}/{} for service account {ns}/{name} has been marked invalid. Use tokens from the \
             TokenRequest API or manually created secret-based tokens, or remove the '{INVALID_SINCE}' label from the \
             secret to temporarily allow use of this token",
            claims.legacy_secret
        ));
    }
    Ok(User::account(ns, name, uid))
}
