//! What a registry asks for before it serves: `WWW-Authenticate` (RFC 9110, 11.6.1; distribution, "Token Authentication Specification").

use crate::error::Error;

/// Longest challenge that is read, in bytes, and most of them.
const MAX_CHALLENGE: usize = 4096;
const MAX_CHALLENGES: usize = 8;
/// Longest name of a service, in bytes.
const MAX_SERVICE: usize = 256;

/// A challenge that can be met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Challenge {
    /// A token of the service at this URL.
    Bearer {
        /// Where tokens are.
        realm: String,
        /// For whom.
        service: Option<String>,
    },
    /// User and password.
    Basic,
}

/// The one that is met: a token before user and password.
pub(crate) fn choose(headers: &[String]) -> Result<Challenge, Error> {
    let nonsense = |what: &str| Error::Nonsense { who: "the registry", what: what.to_owned() };
    let mut basic = false;
    for header in headers.iter().take(MAX_CHALLENGES) {
        if header.len() > MAX_CHALLENGE {
            return Err(nonsense("asks for credentials in a header that is too long"));
        }
        let parsed = http_auth::parse_challenges(header)
            .map_err(|_| nonsense("asks for credentials in words that are no challenge"))?;
        for challenge in parsed.iter().take(MAX_CHALLENGES) {
            if challenge.scheme.eq_ignore_ascii_case("bearer") {
                let named = |name: &str| {
                    let found = challenge.params.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
                    found.map(|(_, value)| value.to_unescaped())
                };
                let realm = named("realm").ok_or_else(|| nonsense("asks for a token and does not say whose"))?;
                let service = named("service").filter(|service| service.len() <= MAX_SERVICE);
                return Ok(Challenge::Bearer { realm, service });
            }
            basic |= challenge.scheme.eq_ignore_ascii_case("basic");
        }
    }
    if basic { Ok(Challenge::Basic) } else { Err(nonsense("asks for credentials of a kind that is not known")) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(headers: &[&str]) -> Result<Challenge, String> {
        let headers: Vec<String> = headers.iter().map(|header| (*header).to_owned()).collect();
        choose(&headers).map_err(|error| error.to_string())
    }

    #[test]
    fn a_token_is_preferred_to_a_password() {
        let bearer = |realm: &str, service: Option<&str>| {
            Ok(Challenge::Bearer { realm: realm.to_owned(), service: service.map(ToOwned::to_owned) })
        };
        let plain = r#"Bearer realm="https://auth.example/token",service="r.example",scope="repository:a:pull""#;
        for headers in [
            vec![plain],
            vec![r#"Basic realm="x""#, plain],
            vec![r#"Basic realm="x", bearer realm="https://auth.example/token", SERVICE=r.example"#],
        ] {
            assert_eq!(of(&headers), bearer("https://auth.example/token", Some("r.example")), "{headers:?}");
        }
        assert_eq!(of(&[r#"Bearer realm="a\"b""#]), bearer("a\"b", None));
        assert_eq!(of(&[r#"Basic realm="Registry Realm""#]), Ok(Challenge::Basic));
    }

    #[test]
    fn what_cannot_be_met_is_said() {
        let long = format!("Bearer realm=\"{}\"", "x".repeat(MAX_CHALLENGE));
        for (headers, what) in [
            (vec![], "not known"),
            (vec![r#"Negotiate"#], "not known"),
            (vec![r#"Bearer service="x""#], "does not say whose"),
            (vec![r#"Bearer realm="x"#], "no challenge"),
            (vec![long.as_str()], "too long"),
        ] {
            let error = of(&headers).unwrap_err();
            assert!(error.contains(what), "{headers:?}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_header_is_repeated(header in "[ -~]{0,80}") {
            if let Err(error) = of(&[&format!("SENTINEL{header}")]) {
                prop_assert!(!error.contains("SENTINEL"));
            }
        }
    }
}
