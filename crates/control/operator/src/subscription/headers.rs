//! The HTTP headers that a BMC is to send along with its events, from a Secret. Their values appear nowhere else.

use std::collections::BTreeMap;
use std::time::Duration;

use api::metal3::BMCEventSubscription;
use host_lifecycle::is_name;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt as _};
use provisioner::SecretText;
use tokio::time::timeout;

use crate::host::Context;

/// Most headers.
const MAX_HEADERS: usize = 32;
/// Longest name or value, in bytes.
const MAX_LENGTH: usize = 4096;
/// Headers of the connection and the message, which are the BMC's own to send.
const OF_MESSAGE: [&str; 4] = ["host", "content-length", "transfer-encoding", "connection"];
/// The key by which a Secret of a BMC is known (baremetal-operator, `spec.bmc.credentialsName`).
const PASSWORD: &str = "password";
/// Longest wait for the hosts to be listed.
const LISTED_WITHIN: Duration = Duration::from_secs(10);

/// Longest type of a Secret that a message shows, in characters.
const MAX_SHOWN: usize = 64;

/// Headers by name; else why there are none, a sentence.
pub type Headers = Result<BTreeMap<String, SecretText>, String>;

/// The headers that the subscription asks for.
///
/// # Errors
/// When the Kubernetes API fails.
pub async fn read(context: &Context, subscription: &BMCEventSubscription) -> Result<Headers, kube::Error> {
    let Some(named) = &subscription.spec.http_headers_ref else { return Ok(Ok(BTreeMap::new())) };
    let namespace = subscription.namespace().unwrap_or_default();
    let name = named.name.clone().unwrap_or_default();
    if named.namespace.as_deref().is_some_and(|other| !other.is_empty() && other != namespace) {
        return Ok(Err(
            "spec.httpHeadersRef names a Secret of another namespace — put it into the subscription's own".to_owned()
        ));
    }
    if name.is_empty() {
        return Ok(Err("spec.httpHeadersRef names no Secret".to_owned()));
    }
    if !is_name(&name) {
        return Ok(Err(
            "spec.httpHeadersRef.name is none that a Secret can have — delete the subscription, and create another"
                .to_owned(),
        ));
    }
    // Whoever may create subscriptions may not read Secrets, and a BMC sends these wherever a subscription says.
    if timeout(LISTED_WITHIN, context.hosts.in_step.wait()).await.is_err() {
        return Ok(Err(format!(
            "the hosts could not be listed, so that the Secret {name} may be one of a BMC's password — look at the Kubernetes API; it is tried again"
        )));
    }
    if let Some(host) = context.index.signs_in(&namespace, &name).first() {
        return Ok(Err(format!(
            "the Secret {name} has the user and password of a BMC (the host {} names it in spec.bmc.credentialsName) — put the HTTP headers into another",
            host.name
        )));
    }
    if let Some(host) = context.index.takes_data(&namespace, &name).first() {
        return Ok(Err(format!(
            "the Secret {name} has data of the host {}, which is not for others — put the HTTP headers into another",
            host.name
        )));
    }
    let secrets: Api<Secret> = Api::namespaced(context.client.clone(), &namespace);
    match secrets.get_opt(&name).await {
        Ok(Some(secret)) => match secret.type_.as_deref() {
            None | Some("" | "Opaque") => Ok(of_data(&name, secret.data.unwrap_or_default())),
            Some(other) => Ok(Err(format!(
                "the Secret {name} is of type {}, which is for something else — put the HTTP headers into one of type Opaque",
                other.chars().take(MAX_SHOWN).collect::<String>()
            ))),
        },
        Ok(None) => Ok(Err(format!(
            "the Secret {name} with the HTTP headers does not exist — create it; the subscription is made as soon as it is there"
        ))),
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(Err(format!(
            "the server may not read the Secret {name} with the HTTP headers — allow it to get Secrets in this namespace"
        ))),
        Err(error) => Err(error),
    }
}

fn of_data(secret: &str, data: BTreeMap<String, ByteString>) -> Headers {
    if data.len() > MAX_HEADERS {
        return Err(format!("the Secret {secret} has more than {MAX_HEADERS} HTTP headers"));
    }
    let mut headers = BTreeMap::new();
    for (name, value) in data {
        let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if name.is_empty() || name.len() > MAX_LENGTH || !name.bytes().all(token) {
            return Err(format!("the Secret {secret} has a key that is no name of an HTTP header — correct it"));
        }
        // A Secret of a BMC may be there before its host is.
        if name.eq_ignore_ascii_case(PASSWORD) {
            return Err(format!(
                "the Secret {secret} has a key {PASSWORD}, as Secrets with the user and password of a BMC have — put the HTTP headers into another"
            ));
        }
        if OF_MESSAGE.iter().any(|own| name.eq_ignore_ascii_case(own)) {
            return Err(format!(
                "the Secret {secret} has the HTTP header {name}, which the BMC itself sends — remove that key"
            ));
        }
        // A value that was made with `echo` ends with a line break, which is not meant.
        let text = String::from_utf8(value.0).ok();
        let text = text.map(|text| text.trim_end_matches(['\r', '\n']).to_owned());
        let visible = |text: &String| {
            text.len() <= MAX_LENGTH && text.bytes().all(|byte| byte == b'\t' || (b' '..=b'~').contains(&byte))
        };
        let Some(text) = text.filter(visible) else {
            return Err(format!(
                "the value of {name} in the Secret {secret} is no value of an HTTP header: visible characters on one line, at most {MAX_LENGTH}"
            ));
        };
        headers.insert(name, SecretText(text));
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(data: &[(&str, &str)]) -> Headers {
        of_data(
            "s",
            data.iter().map(|(name, value)| ((*name).to_owned(), ByteString(value.as_bytes().to_vec()))).collect(),
        )
    }

    #[test]
    fn what_is_no_header_is_refused_and_its_value_is_not_repeated() {
        let good = of(&[("Authorization", "Bearer s3cret\n"), ("X-Rack", "7")]).unwrap();
        assert_eq!(good["Authorization"].0, "Bearer s3cret");
        assert_eq!(of(&[]).unwrap().len(), 0);
        for (name, value) in
            [("", "s3cret"), ("a b", "s3cret"), ("a", "s3cret\r\nX-Other: s3cret"), ("a", "s3cret\u{e9}")]
        {
            let why = of(&[(name, value)]).unwrap_err();
            assert!(!why.contains("s3cret"), "{why}");
        }
        for name in ["Host", "content-length", "Transfer-Encoding", "CONNECTION", "password"] {
            let why = of(&[(name, "s3cret")]).unwrap_err();
            assert!(why.contains(name) && !why.contains("s3cret"), "{why}");
        }
        let many: Vec<(String, ByteString)> = (0..33).map(|n| (format!("h{n}"), ByteString(Vec::new()))).collect();
        assert!(of_data("s", many.into_iter().collect()).is_err());
        assert!(of(&[("a", &"x".repeat(5000))]).is_err());
    }
}
