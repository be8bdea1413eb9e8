//! The requesting user, with its groups.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use sha2::Digest as _;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Group of everyone with known credentials.
pub const AUTHENTICATED: &str = "system:authenticated";
/// Group of requests without credentials.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// Group that may do everything.
pub const MASTERS: &str = "system:masters";
/// Name of requests without credentials.
pub const ANONYMOUS: &str = "system:anonymous";
/// Key of a user's extra that names the credential.
pub const CREDENTIAL: &str = "authentication.kubernetes.io/credential-id";
/// Start of the names of service accounts.
const ACCOUNT: &str = "system:serviceaccount:";

/// A user with groups (`authentication.k8s.io` UserInfo).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// User name.
    pub name: String,
    /// UID, empty if the credentials carry none.
    pub uid: String,
    /// Groups; `system:authenticated` or `system:unauthenticated` is among them.
    pub groups: Vec<String>,
    /// More about the user, by key.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    fn with(name: impl Into<String>, groups: &[&str]) -> Self {
        Self { name: name.into(), groups: groups.iter().map(|g| (*g).to_owned()).collect(), ..Self::default() }
    }

    /// The user of requests without credentials.
    pub fn anonymous() -> Self {
        Self::with(ANONYMOUS, &[UNAUTHENTICATED])
    }

    /// The user as which one of the server's own controllers acts.
    pub fn controller(name: &str) -> Self {
        let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system", AUTHENTICATED];
        Self::with(format!("{ACCOUNT}kube-system:{name}"), &groups)
    }

    /// The user as which the server itself acts.
    pub fn server() -> Self {
        Self::with("system:apiserver", &[AUTHENTICATED, MASTERS])
    }

    /// The administrator whose token is in the data folder.
    pub fn administrator() -> Self {
        Self::with("admin", &[MASTERS, AUTHENTICATED])
    }

    /// An authenticated user: these groups and `system:authenticated`.
    pub fn authenticated(name: &str, groups: &[&str]) -> Self {
        let mut user = Self::with(name, groups);
        if !user.is_in(AUTHENTICATED) {
            user.groups.push(AUTHENTICATED.to_owned());
        }
        user
    }

    /// A service account.
    pub fn account(ns: &str, name: &str, uid: &str) -> Self {
        let mut user = Self::with(account_name(ns, name), &[]);
        user.uid = uid.to_owned();
        user.groups = account_groups(ns);
        user.groups.push(AUTHENTICATED.to_owned());
        user
    }

    /// Whether the user is in a group.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }

    /// `UserInfo` as reviews, admission and audit write it; empty fields are left out.
    pub fn to_json(&self) -> Value {
        let mut out = Map::new();
        for (key, text) in [("username", &self.name), ("uid", &self.uid)] {
            if !text.is_empty() {
                out.insert(key.to_owned(), json!(text));
            }
        }
        if !self.groups.is_empty() {
            out.insert("groups".to_owned(), json!(self.groups));
        }
        if !self.extra.is_empty() {
            out.insert("extra".to_owned(), json!(self.extra));
        }
        Value::Object(out)
    }
}

/// User name of a service account.
pub fn account_name(ns: &str, name: &str) -> String {
    format!("{ACCOUNT}{ns}:{name}")
}

/// Groups of the service accounts of a namespace.
pub fn account_groups(ns: &str) -> Vec<String> {
    vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{ns}")]
}

/// Namespace and name of the service account with this user name.
pub fn split_account(user: &str) -> Option<(&str, &str)> {
    let (ns, name) = user.strip_prefix(ACCOUNT)?.split_once(':')?;
    (names::dns_1123_label(ns).is_empty() && names::dns_1123_subdomain(name).is_empty()).then_some((ns, name))
}

/// The user that a verified client certificate names: common name and organizations.
pub fn user_of_certificate(der: &[u8]) -> Option<User> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let mut groups: Vec<String> =
        subject.iter_organization().filter_map(|o| o.as_str().ok()).map(str::to_owned).collect();
    if !groups.iter().any(|g| g == AUTHENTICATED) {
        groups.push(AUTHENTICATED.to_owned());
    }
    let print: String = sha2::Sha256::digest(der).iter().map(|b| format!("{b:02x}")).collect();
    let extra = BTreeMap::from([(CREDENTIAL.to_owned(), vec![format!("X509SHA256={print}")])]);
    Some(User { name, uid: String::new(), groups, extra })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_service_accounts() {
        assert_eq!(split_account("system:serviceaccount:a:b.c"), Some(("a", "b.c")));
        for bad in ["system:serviceaccount:a", "system:serviceaccount:a:b:c", "a:b", "system:serviceaccount::b"] {
            assert_eq!(split_account(bad), None, "{bad}");
        }
        let user = User::account("a", "b", "u");
        assert_eq!(
            user.to_json(),
            json!({"username": "system:serviceaccount:a:b", "uid": "u",
                "groups": ["system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated"]})
        );
    }
}
