//! Who asks: client certificates and bearer tokens.

use http::{HeaderMap, header};
use subtle::ConstantTimeEq;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::route::Target;
use crate::status::{ApiError, ApiResult};

/// A user with groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// User name.
    pub name: String,
    /// Groups; `system:authenticated` or `system:unauthenticated` is among them.
    pub groups: Vec<String>,
}

impl User {
    /// The user of requests without credentials.
    pub fn anonymous() -> Self {
        Self { name: "system:anonymous".to_owned(), groups: vec!["system:unauthenticated".to_owned()] }
    }

    /// Whether no credentials were given.
    pub fn is_anonymous(&self) -> bool {
        self.name == "system:anonymous"
    }

    /// The user as which one of the server's own controllers acts.
    pub fn controller(name: &str) -> Self {
        let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"];
        Self { name: format!("system:serviceaccount:kube-system:{name}"), groups: groups.map(str::to_owned).to_vec() }
    }

    fn administrator() -> Self {
        Self { name: "admin".to_owned(), groups: vec!["system:masters".to_owned(), "system:authenticated".to_owned()] }
    }
}

/// The user that a verified client certificate names: common name and organizations.
pub fn user_of_certificate(der: &[u8]) -> Option<User> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let mut groups: Vec<String> =
        subject.iter_organization().filter_map(|o| o.as_str().ok()).map(str::to_owned).collect();
    groups.push("system:authenticated".to_owned());
    Some(User { name, groups })
}

/// Finds out who asks.
pub struct Authenticator {
    admin_token: String,
}

impl Authenticator {
    /// Knows one administrator by its token.
    pub fn new(admin_token: String) -> Self {
        Self { admin_token }
    }

    /// The user: by certificate, else by token, else anonymous. A wrong token is an error, not anonymous.
    pub fn authenticate(&self, certificate: Option<&User>, headers: &HeaderMap) -> ApiResult<User> {
        if let Some(user) = certificate {
            return Ok(user.clone());
        }
        let Some(value) = headers.get(header::AUTHORIZATION) else {
            return Ok(User::anonymous());
        };
        let text = value.to_str().map_err(|_| ApiError::unauthorized())?;
        let (scheme, token) = text.split_once(' ').ok_or_else(ApiError::unauthorized)?;
        let known = self.admin_token.as_bytes().ct_eq(token.trim().as_bytes());
        if scheme.eq_ignore_ascii_case("bearer") && bool::from(known) {
            Ok(User::administrator())
        } else {
            Err(ApiError::unauthorized())
        }
    }
}

/// Whether the user may do this; `target` is `None` if nothing is served at the path. Anonymous users reach health and version only; everyone with credentials of this
/// server reaches all. This is where role-based access control takes its place.
pub fn authorize(user: &User, path: &str, _target: Option<&Target>) -> ApiResult<()> {
    let open = matches!(path, "/healthz" | "/livez" | "/readyz" | "/version")
        || path.starts_with("/livez/")
        || path.starts_with("/readyz/")
        || path.starts_with("/healthz/");
    if open || !user.is_anonymous() { Ok(()) } else { Err(ApiError::unauthorized()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bearer(token: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
        headers
    }

    #[test]
    fn tokens_must_match_and_wrong_ones_are_not_anonymous() {
        let auth = Authenticator::new("secret".into());
        assert_eq!(auth.authenticate(None, &bearer("secret")).unwrap().name, "admin");
        assert_eq!(auth.authenticate(None, &bearer("secreT")).unwrap_err().code, 401);
        assert!(auth.authenticate(None, &HeaderMap::new()).unwrap().is_anonymous());
    }

    #[test]
    fn anonymous_reaches_health_only() {
        let nobody = User::anonymous();
        assert!(authorize(&nobody, "/readyz", None).is_ok());
        assert_eq!(authorize(&nobody, "/api/v1/secrets", None).unwrap_err().code, 401);
        assert_eq!(authorize(&nobody, "/versions", None).unwrap_err().code, 401);
    }
}
