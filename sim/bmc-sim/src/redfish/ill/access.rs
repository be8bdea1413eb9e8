//! Ailments that requests meet: of the account, of sessions, of a BMC that starts, of media.

use super::super::answer::Answer;
use crate::{
    ailments::{Ailment, Ailments},
    redfish::request::Request,
};

/// The answer to a request that an ailment keeps from being handled; `signed_in` if it comes with valid credentials.
#[must_use]
pub fn refusal(ailments: &Ailments, request: &Request, signed_in: bool) -> Option<Answer> {
    if ailments.has(Ailment::BmcStarting) {
        let text = "The service is starting and takes requests in 30 seconds.";
        let answer = Answer::error(503, "ServiceTemporarilyUnavailable", text, &["30"]);
        return Some(answer.with(axum::http::header::RETRY_AFTER, "30"));
    }
    let reading = matches!(request.method.as_str(), "GET" | "HEAD");
    let own_session = request.path.starts_with("/redfish/v1/SessionService/Sessions/");
    let account = request.path.starts_with("/redfish/v1/AccountService/Accounts/1");
    if signed_in && ailments.has(Ailment::PasswordChangeRequired) && !own_session && !account {
        let text = "The password of this account must be changed before anything else is done.";
        return Some(Answer::error(403, "PasswordChangeRequired", text, &["/redfish/v1/AccountService/Accounts/1"]));
    }
    if signed_in && ailments.has(Ailment::PrivilegeTooSmall) && !reading && !own_session {
        let text = "The account does not have the privileges that this request needs.";
        return Some(Answer::error(403, "InsufficientPrivilege", text, &[]));
    }
    None
}

/// The answer to a sign-in that an ailment keeps from succeeding.
#[must_use]
pub fn sign_in(ailments: &Ailments) -> Option<Answer> {
    if ailments.has(Ailment::AccountLocked) {
        let text = "The account is locked out after too many failed sign-ins.";
        return Some(Answer::error(
            401,
            "ResourceAtUriUnauthorized",
            text,
            &["/redfish/v1/SessionService/Sessions", "the account is locked"],
        ));
    }
    ailments.has(Ailment::SessionLimit).then(|| {
        let text = "All sessions that the service can hold are open.";
        Answer::error(503, "SessionLimitExceeded", text, &[])
    })
}

/// The answer to the insertion of a medium that cannot be read.
#[must_use]
pub fn medium(ailments: &Ailments, image: &str) -> Option<Answer> {
    let why = match () {
        () if ailments.has(Ailment::MediaUnreachable) => "the connection timed out",
        () if ailments.has(Ailment::MediaCertificate) => {
            "the certificate of the server is not trusted (unable to get local issuer certificate)"
        }
        () => return None,
    };
    let text = format!("The service failed to establish a connection with the URI of the image: {why}.");
    Some(Answer::error(400, "CouldNotEstablishConnection", text, &[image]))
}
