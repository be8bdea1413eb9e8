//! Whether the BMC can be reached, what its certificate is, whom it lets in, and what it is.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Message, Reading};

/// The way to the BMC.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Access {
    /// Host and port that were asked, as the host's address names them; without user, path and query.
    pub address: String,
    /// What became of a request of the service root, which asks for no password.
    pub connection: Reading<Connection>,
    /// The certificate that the BMC has shown, whether it was trusted or not.
    pub certificate: Reading<Certificate>,
    /// What the BMC has answered to the sign-in and to the first calls after it, oldest first.
    pub answers: Vec<Answer>,
    /// The account that was used.
    pub account: Reading<Account>,
    /// What the service is (schema ServiceRoot, and the Manager that is behind it).
    pub root: Reading<ServiceRoot>,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Contact {
    /// An HTTP answer came, whatever its status.
    Answered,
    /// The name has no address.
    NameNotFound,
    /// The port is closed.
    Refused,
    /// There is no way to the address.
    Unreachable,
    /// Nothing came back in time.
    TimedOut,
    /// The connection was opened and broken off.
    Reset,
    /// TLS: nobody whom this server trusts has signed the certificate.
    UnknownAuthority,
    /// TLS: the certificate has expired.
    Expired,
    /// TLS: the certificate is not valid yet.
    NotYetValid,
    /// TLS: the certificate is for another name.
    WrongName,
    /// TLS: another certificate or key than the one that the host is recognised by.
    NotThePinned,
    /// TLS: no agreement on version or ciphers, or another fault of the handshake.
    Handshake,
    /// Something answers that is no HTTP.
    NoHttp,
    /// HTTP answers, and no Redfish service is behind it.
    NoRedfish,
    /// Something else; the text says what.
    #[default]
    #[serde(other)]
    Other,
}

/// What became of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Connection {
    /// How it ended.
    pub contact: Contact,
    /// HTTP status, if an answer came.
    pub status: Option<u16>,
    /// What was found, a sentence.
    pub text: String,
    /// How often it was tried.
    pub tries: u32,
}

/// A certificate (RFC 5280).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Certificate {
    /// Subject, as text.
    pub subject: String,
    /// Issuer, as text.
    pub issuer: String,
    /// Valid from.
    pub not_before: Option<Timestamp>,
    /// Valid until.
    pub not_after: Option<Timestamp>,
    /// Names and addresses that it is for.
    pub names: Vec<String>,
    /// Digest (SHA-256) of the certificate, hexadecimal.
    pub sha256: String,
}

/// What the BMC has answered to one call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Answer {
    /// Method and path without query: `POST /redfish/v1/SessionService/Sessions`.
    pub call: String,
    /// When.
    pub at: Option<Timestamp>,
    /// HTTP status; `None` if no answer came.
    pub status: Option<u16>,
    /// `@Message.ExtendedInfo` of the answer, or of its `error`.
    pub messages: Vec<Message>,
    /// It is the answer to the account's user and password: to the sign-in, or to a request that carried them.
    pub sign_in: bool,
    /// Nothing is provisioned without what was asked for: the service root, a session, the system, its virtual drives.
    pub needed: bool,
}

/// The account that the server signs in with (schema ManagerAccount, and AccountService).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Account {
    /// `Locked`.
    pub locked: Option<bool>,
    /// `Enabled`.
    pub enabled: Option<bool>,
    /// `RoleId`.
    pub role: Option<String>,
    /// `PasswordChangeRequired`.
    pub password_change_required: Option<bool>,
    /// Sessions that are open.
    pub sessions: Option<u32>,
    /// Most sessions that may be open.
    pub max_sessions: Option<u32>,
}

/// What the service is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceRoot {
    /// `Vendor`.
    pub vendor: Option<String>,
    /// `Product`.
    pub product: Option<String>,
    /// `RedfishVersion`.
    pub redfish_version: Option<String>,
    /// Ids of the members of Systems.
    pub systems: Vec<String>,
    /// Whether the host's address names one of them, or there is no other.
    pub system_known: Option<bool>,
    /// Whether it has virtual media that a URL can be put into.
    pub virtual_media: Option<bool>,
    /// Its licences (schema License, or the vendor's).
    pub licenses: Reading<Vec<License>>,
}

/// A licence of the BMC.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct License {
    /// Its name.
    pub name: String,
    /// `LicenseType` or the vendor's word: `Production`, `Trial`, `Expired`.
    pub kind: Option<String>,
    /// Valid until.
    pub expires: Option<Timestamp>,
}
