//! Which cause a sentence of Ironic's stands for. Pure.
//!
//! Ironic has one text for all failures of a node, `last_error`. The words looked for are those of its own sources and of sushy's at 39.0.0; what has none of them
//! is [`Cause::ProvisionerFailed`], with the text as it is.

use provisioner::{Cause, Failure};

use crate::fault::clean;

/// A sentence of Ironic's, fit to be shown: addresses lose their secrets.
pub fn shown(text: &str) -> String {
    let without = |word: &str| {
        let Some(colon) = word.find("://") else { return word.to_owned() };
        let before = &word[..colon];
        let is_of_scheme = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
        let start = before.trim_end_matches(is_of_scheme).len();
        let end = word.trim_end_matches(|c: char| ".,;:)]}>'\"".contains(c)).len().max(colon);
        let (first, address, last) = (&word[..start], &word[start..end], &word[end..]);
        format!("{first}{}{last}", addresses::text_without_secrets(address))
    };
    clean(text).split(' ').map(without).collect::<Vec<_>>().join(" ")
}

/// Words of a cause, in lower case; the first that fits counts. All words of a row have to be there.
const WORDS: [(&[&str], Cause); 25] = [
    (&["certificate verify failed"], Cause::BmcCertificateUntrusted),
    (&["certificate_verify_failed"], Cause::BmcCertificateUntrusted),
    (&["unauthorized"], Cause::BmcCredentialsRefused),
    (&["authentication", "fail"], Cause::BmcCredentialsRefused),
    (&["invalid username or password"], Cause::BmcCredentialsRefused),
    (&["returned code 401"], Cause::BmcCredentialsRefused),
    (&["http 401"], Cause::BmcCredentialsRefused),
    (&["rakp 2 hmac is invalid"], Cause::BmcCredentialsRefused),
    (&["no suitable device"], Cause::NoSuitableDisk),
    (&["root device hints"], Cause::NoSuitableDisk),
    (&["timeout reached while waiting for callback"], Cause::AgentSilent),
    (&["timeout reached while inspecting"], Cause::AgentSilent),
    (&["timeout reached while cleaning"], Cause::AgentSilent),
    (&["failed to connect to the agent"], Cause::AgentSilent),
    (&["checksum", "mismatch"], Cause::ImageInvalid),
    (&["failed checksum verification"], Cause::ImageInvalid),
    (&["image format", "not permitted"], Cause::ImageInvalid),
    (&["got http code 404"], Cause::ImageNotFound),
    (&["validation of image href", "404"], Cause::ImageNotFound),
    (&["validation of image href", "40"], Cause::ImageDenied),
    (&["validation of image href"], Cause::ImageUnavailable),
    (&["unable to connect to"], Cause::BmcUnreachable),
    (&["connection refused"], Cause::BmcUnreachable),
    (&["no route to host"], Cause::BmcUnreachable),
    (&["max retries exceeded"], Cause::BmcUnreachable),
];

/// The cause of a sentence.
pub fn cause(text: &str) -> Cause {
    let text = text.to_ascii_lowercase();
    WORDS
        .iter()
        .find(|(words, _)| words.iter().all(|word| text.contains(word)))
        .map_or(Cause::ProvisionerFailed, |(_, cause)| *cause)
}

/// The failure of something that Ironic was asked for.
pub fn failure(doing: &str, text: Option<&str>) -> Failure {
    match text {
        Some(text) => Failure::new(cause(text), format!("{doing}: Ironic says: {}", shown(text))),
        None => Failure::new(Cause::ProvisionerFailed, format!("{doing}: it failed, and Ironic does not say why")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_stand_behind_any_sign() {
        for (said, expected) in [
            ("\u{201c}https://u:s3cret@h/a\u{201d}", "\u{201c}https://"),
            ("\u{e9}://x", "\u{e9}"),
            ("://", "://"),
            ("see (http://h/a?sig=s3cret).", "see (http://h/a"),
        ] {
            let shown = shown(said);
            assert!(shown.starts_with(expected) && !shown.contains("s3cret"), "{shown}");
        }
    }

    #[test]
    fn sentences_of_ironic_have_causes() {
        let table = [
            (
                "Failed to get power state for node 1. Error: Redfish exception occurred. Error: HTTP GET https://b/redfish/v1/ returned code 401. Base.1.0: Unauthorized",
                Cause::BmcCredentialsRefused,
            ),
            (
                "Unable to connect to https://192.0.2.1/redfish/v1/Systems/1. Error: HTTPSConnectionPool: Max retries exceeded with url (Caused by SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed')))",
                Cause::BmcCertificateUntrusted,
            ),
            (
                "Unable to connect to https://192.0.2.1/redfish/v1. Error: [Errno 113] No route to host",
                Cause::BmcUnreachable,
            ),
            (
                "Failed to get power state for node 1. Error: HTTP GET http://b/redfish/v1/Systems/1 returned code 401. Base.1.18.NoValidSession: The request needs a valid session token",
                Cause::BmcCredentialsRefused,
            ),
            ("Timeout reached while waiting for callback for node 5", Cause::AgentSilent),
            (
                "Deploy step deploy.write_image failed: No suitable device was found for deployment using these hints",
                Cause::NoSuitableDisk,
            ),
            ("Image failed to verify: failed checksum verification", Cause::ImageInvalid),
            (
                "Validation of image href http://x/a failed, reason: Got HTTP code 404 instead of 200",
                Cause::ImageNotFound,
            ),
            (
                "Validation of image href http://x/a failed, reason: Got HTTP code 403 instead of 200",
                Cause::ImageDenied,
            ),
            ("Validation of image href http://x/a failed, reason: timed out", Cause::ImageUnavailable),
            ("Something of the weather", Cause::ProvisionerFailed),
        ];
        for (text, expected) in table {
            assert_eq!(cause(text), expected, "{text}");
        }
        let words: Vec<_> = WORDS.iter().flat_map(|(words, _)| words.iter()).collect();
        assert!(words.iter().all(|word| word.to_ascii_lowercase() == **word));
    }

    #[test]
    fn the_text_is_shown_as_ironics() {
        assert_eq!(failure("deploy the node", Some("x\ny")).message, "deploy the node: Ironic says: x y");
        let told = failure("x", Some("Unable to fetch (https://u:topsecret@h/a?token=alsosecret), now")).message;
        assert!(!told.contains("topsecret") && !told.contains("alsosecret") && told.contains("now"), "{told}");
        assert!(failure("deploy the node", None).message.contains("does not say why"));
    }
}
