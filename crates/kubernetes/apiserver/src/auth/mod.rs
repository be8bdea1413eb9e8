//! Authentication and authorization.
//!
//! [`Auth::authenticate`] finds the user by certificate or token, [`impersonate`] lets it act as another user, and
//! [`Auth::decide`] authorizes by [`crate::rbac`]. [`escalation`] keeps users from granting rights that they lack,
//! [`tokens`] issues and verifies tokens of service accounts.

pub mod escalation;
pub mod impersonate;
pub mod keys;
pub mod signers;
pub mod tokens;

use std::sync::Arc;

use http::{HeaderMap, header};
use subtle::ConstantTimeEq as _;

use crate::objects::Objects;
use crate::pki::{Ca, ClientCertificate, Credentials, PkiError};
use crate::rbac::index::Index;
use crate::rbac::{Attributes, Decision};
use crate::status::{ApiError, ApiResult};
use crate::user::User;

/// Users and rights for the lifetime of the server.
pub struct Auth {
    /// Roles, bindings and service accounts.
    pub index: Arc<Index>,
    /// Signs and verifies tokens of service accounts.
    pub keys: keys::Keys,
    ca: Ca,
    admin_token: String,
}

impl Auth {
    /// Uses these keys and this administrator's token.
    pub fn new(credentials: &Credentials) -> Result<Self, PkiError> {
        Ok(Self {
            index: Arc::default(),
            keys: keys::Keys::from_pem(&credentials.account_key)?,
            ca: credentials.ca.clone(),
            admin_token: credentials.admin_token.clone(),
        })
    }

    /// CA certificates in PEM, distributed together with tokens.
    pub fn ca(&self) -> String {
        self.ca.pem()
    }

    /// Authorizes a request of `user`. Reads memory only.
    pub fn decide(&self, user: &User, asked: &Attributes) -> Decision {
        self.index.decide(user, asked)
    }

    /// The user by certificate, else by token, else anonymous. A wrong token is an error, not anonymous, and so is a
    /// refused certificate without a good token.
    pub async fn authenticate(
        &self,
        objects: &Objects,
        certificate: &ClientCertificate,
        headers: &HeaderMap,
    ) -> ApiResult<User> {
        if let ClientCertificate::User(user) = certificate {
            return Ok(user.clone());
        }
        let Some(token) = bearer(headers)? else {
            let ClientCertificate::Refused(why) = certificate else { return Ok(User::anonymous()) };
            tracing::debug!(why, "a client certificate was refused");
            return Err(ApiError::unauthorized());
        };
        match self.user_of_token(objects, token, None).await {
            Ok((user, _)) => Ok(user),
            Err(why) => {
                tracing::debug!(why, "a token was refused");
                Err(ApiError::unauthorized())
            }
        }
    }

    /// The user of a token, and those of the requested audiences (this server's if `None`) that it is valid for.
    pub async fn user_of_token(
        &self,
        objects: &Objects,
        token: &str,
        audiences: Option<&[String]>,
    ) -> Result<(User, Vec<String>), String> {
        if bool::from(self.admin_token.as_bytes().ct_eq(token.as_bytes())) {
            // The administrator's token has no audience, so it is valid for all.
            let audiences = audiences.map_or_else(|| vec![keys::ISSUER.to_owned()], <[String]>::to_vec);
            return Ok((User::administrator(), audiences));
        }
        tokens::user_of(self, objects, token, audiences, objects.given.now()).await
    }

    #[cfg(test)]
    pub fn for_tests() -> Self {
        let pem = rcgen::KeyPair::generate().map(|k| k.serialize_pem()).unwrap_or_default();
        let keys = keys::Keys::from_pem(&pem).unwrap_or_else(|e| unreachable!("a fresh key is good: {e}"));
        Self { index: Arc::default(), keys, ca: Ca::Given("CA".to_owned()), admin_token: "secret".to_owned() }
    }
}

/// The bearer token of a request. Other schemes are ignored, as upstream.
fn bearer(headers: &HeaderMap) -> ApiResult<Option<&str>> {
    let Some(value) = headers.get(header::AUTHORIZATION) else { return Ok(None) };
    let text = value.to_str().map_err(|_| ApiError::unauthorized())?.trim();
    let mut words = text.splitn(3, ' ');
    let scheme = words.next().unwrap_or_default();
    let token = words.next().filter(|t| !t.is_empty());
    Ok(token.filter(|_| scheme.eq_ignore_ascii_case("bearer")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::Backend;

    fn headers(value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, value.parse().unwrap());
        headers
    }

    #[test]
    fn bearer_tokens_are_found() {
        assert_eq!(bearer(&headers("Bearer a")).unwrap(), Some("a"));
        assert_eq!(bearer(&headers("bearer a b")).unwrap(), Some("a"));
        assert_eq!(bearer(&headers("Basic a")).unwrap(), None);
        assert_eq!(bearer(&headers("Bearer  a")).unwrap(), None);
        assert_eq!(bearer(&headers("Bearer")).unwrap(), None);
    }

    #[tokio::test]
    async fn tokens_must_match_and_wrong_ones_are_not_anonymous() {
        let (backend, _dir) = Backend::for_tests();
        let user =
            async |value: &str| backend.auth.authenticate(&backend, &ClientCertificate::Nothing, &headers(value)).await;
        assert_eq!(user("Bearer secret").await.unwrap().name, "admin");
        assert_eq!(user("Bearer secreT").await.unwrap_err().code, 401);
        assert_eq!(user("Basic secret").await.unwrap(), User::anonymous());
        // Whoever shows a certificate that is not trusted, and nothing else, is somebody else than nobody.
        let foreign = ClientCertificate::Refused("unknown authority".into());
        let refused = backend.auth.authenticate(&backend, &foreign, &http::HeaderMap::new()).await;
        assert_eq!(refused.unwrap_err().code, 401);
    }
}
