//! The way to the BMC: connection, certificate, service root without a password, sign-in, account.

use diagnosis::{Access, Account, Answer, Certificate, Connection, Contact, License, Message, Reading, ServiceRoot};
use jiff::Timestamp;
use serde_json::Value;
use sha2::{Digest, Sha256};
use terms::json_values_at_most;
use tokio::time::timeout;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use bmc::{BmcError, ErrorKind};

use super::facts::time_at;
use super::reader::{MAX_MEMBERS, Reader, WHAT};
use crate::exchange::PASSWORD_DUE;
use crate::json::{MAX_VALUES, flag, link_at, word};
use crate::message::ErrorBody;
use crate::resources::Root;
use crate::state::Auth;
use crate::transport::TransportError;
use terms::clean;

const ROOT: &str = "/redfish/v1/";
const SIGN_IN: &str = "POST /redfish/v1/SessionService/Sessions";
/// Most names of a certificate.
const MAX_NAMES: usize = 16;
/// Most licences.
const MAX_LICENSES: usize = 8;

/// What was found of the way.
pub(super) struct Found {
    pub seen: Access,
    /// The service root as answered.
    pub root: Value,
    /// Nothing more can be read: `true` if the BMC answers, and does not let this server in.
    pub closed: Option<bool>,
}

impl Reader<'_> {
    /// Knocks, and signs in.
    pub async fn access(&mut self) -> Found {
        let origin = self.client.address().origin();
        let address = origin.split_once("://").map_or(origin.as_str(), |(_, rest)| rest).to_owned();
        let mut seen = Access { address, ..Access::default() };
        let (connection, root) = self.knock(&mut seen).await;
        let answers = connection.contact == Contact::Answered && connection.status.is_none_or(|status| status < 500);
        seen.connection = Reading::Read(connection);
        if !answers {
            return Found { seen, root, closed: Some(false) };
        }
        if root.is_object() {
            seen.root = Reading::Read(self.service(&root));
        }
        let closed = self.enter(&root).await.then_some(true);
        Found { seen, root, closed }
    }

    /// Signs in where nobody has, unless the last sign-in was refused: then that is the evidence, and the account is not brought nearer to its lock. A password
    /// that would go with each request goes to the BMC that is meant alone. `true`: there is no way in.
    async fn enter(&mut self, root: &Value) -> bool {
        let core = &self.client.core;
        let (auth, refused) = {
            let state = core.state();
            (state.auth.clone(), state.refused_sign_in.clone())
        };
        if let Some((status, body)) = refused {
            self.known_refusal(status, &body, false);
            return true;
        }
        let shown = root.is_object().then(|| Root::read(root));
        match auth {
            Some(Auth::Session { .. }) => false,
            Some(Auth::Basic) => {
                let known = core.state().root.replace(shown.unwrap_or_else(Root::hidden));
                let proved = core.is_the_one_meant(WHAT);
                core.state().root = known.filter(|_| proved.is_ok());
                proved.inspect_err(|error| self.refused(error)).is_err()
            }
            None => {
                if shown.is_some() {
                    core.state().root = shown;
                }
                self.signed_in = true;
                match timeout(self.left(), core.authorize(WHAT)).await {
                    Ok(Ok(_)) => false,
                    Ok(Err(error)) => {
                        self.refused(&error);
                        true
                    }
                    Err(_) => {
                        self.note(self.of_sign_in(None, Vec::new(), true));
                        true
                    }
                }
            }
        }
    }

    fn of_sign_in(&self, status: Option<u16>, messages: Vec<Message>, is_new: bool) -> Answer {
        let at = is_new.then_some(self.budget.now);
        Answer { call: SIGN_IN.to_owned(), at, status, messages, sign_in: true, needed: true }
    }

    /// Puts what was met on the way into the evidence.
    pub fn finish_access(&mut self, seen: &mut Access) {
        seen.answers = std::mem::take(&mut self.answers);
        if let Some(stranger) = self.stranger.take() {
            seen.connection = Reading::Read(stranger);
        }
        let (account, licenses) = self.late.take().unwrap_or_default();
        seen.account = account;
        if let Reading::Read(root) = &mut seen.root {
            root.licenses = licenses;
            root.systems = std::mem::take(&mut self.systems);
            (root.system_known, root.virtual_media) = (self.system_known, self.has_media);
        }
    }

    /// The service root, without credentials.
    async fn knock(&mut self, seen: &mut Access) -> (Connection, Value) {
        self.count();
        let left = self.left();
        let core = &self.client.core;
        let answer = match timeout(left, core.glance(WHAT, ROOT, None)).await {
            Ok(answer) => answer,
            Err(_) => {
                let text = format!("no answer within {} s", left.as_secs());
                return (Connection { contact: Contact::TimedOut, status: None, text, tries: 1 }, Value::Null);
            }
        };
        let of = |contact, status, text: String| Connection { contact, status, text, tries: 1 };
        let response = match answer {
            Ok(response) => response,
            Err((error, fault)) => {
                let contact = contact(&fault);
                if matches!(fault, TransportError::Certificate { .. } | TransportError::Tls { .. }) {
                    let shown = timeout(self.left(), core.transport.shown_certificate()).await.ok().flatten();
                    let none = || Reading::NotAvailable("none was shown".to_owned());
                    seen.certificate = shown.and_then(|der| certificate(&der)).map_or_else(none, Reading::Read);
                }
                return (of(contact, None, error.found), Value::Null);
            }
        };
        let status = response.status;
        // Whoever answers is unknown: what it says is bounded before it is read.
        let sound = json_values_at_most(&response.body) <= MAX_VALUES;
        let value =
            if sound { serde_json::from_slice::<Value>(&response.body).unwrap_or_default() } else { Value::Null };
        match status {
            200 if value.get("RedfishVersion").is_some() || value.get("Systems").is_some() => {
                (of(Contact::Answered, Some(status), "the service root was answered".to_owned()), value)
            }
            // By the standard the root needs no authentication; some BMCs require it.
            401 | 403 => {
                (of(Contact::Answered, Some(status), "the service root is not shown to all".to_owned()), Value::Null)
            }
            429 | 500.. => {
                let told = self.messages(&value);
                let text = told.first().map(|message| message.text.clone()).unwrap_or_default();
                let (call, at) = (format!("GET {ROOT}"), Some(self.budget.now));
                self.note(Answer { call, at, status: Some(status), messages: told, sign_in: false, needed: true });
                (of(Contact::Answered, Some(status), text), Value::Null)
            }
            _ => {
                let text = format!("GET {ROOT} was answered {status}, which is no Redfish service");
                (of(Contact::NoRedfish, Some(status), text), Value::Null)
            }
        }
    }

    /// The answer by which a sign-in was refused.
    pub fn refused(&mut self, error: &BmcError) {
        let refused = self.client.core.state().refused_sign_in.clone();
        match (error.kind, refused) {
            (ErrorKind::AnotherBmc, _) => {
                let text = self.clean(&error.found);
                self.stranger = Some(Connection { contact: Contact::NotThePinned, status: None, text, tries: 1 });
            }
            (_, Some((status, body))) => self.known_refusal(status, &body, true),
            _ => {
                let message = Message { text: self.clean(&error.found), ..Message::default() };
                self.note(self.of_sign_in(error.status(), vec![message], true));
            }
        }
    }

    fn known_refusal(&mut self, status: u16, body: &ErrorBody, is_new: bool) {
        // The session was made, and is good for a new password alone.
        if status < 400 {
            let account = Account { password_change_required: Some(body.has(PASSWORD_DUE)), ..Account::default() };
            self.late = Some((Reading::Read(account), Reading::default()));
        }
        let told = self.told(body);
        self.note(self.of_sign_in(Some(status), told, is_new));
    }

    /// The messages of an answer, without secrets: a BMC may repeat what it was sent.
    fn told(&self, body: &ErrorBody) -> Vec<Message> {
        let some = |text: &str| Some(self.clean(text)).filter(|text| !text.is_empty());
        let message = |message: &crate::message::Message| Message {
            id: self.clean(&message.key),
            args: message.args.iter().map(|arg| self.clean(arg)).collect(),
            text: self.clean(&message.text),
            severity: some(&message.severity),
            resolution: some(&message.resolution),
        };
        body.messages.iter().map(message).collect()
    }

    fn service(&self, root: &Value) -> ServiceRoot {
        let text = |field: &str| self.text(root, field);
        ServiceRoot {
            vendor: text("Vendor"),
            product: text("Product"),
            redfish_version: text("RedfishVersion"),
            ..ServiceRoot::default()
        }
    }

    /// The account that this server signs in with.
    pub async fn account(&mut self, root: &Value) -> Reading<Account> {
        let Some(service) = link_at(root, "AccountService") else {
            return Reading::NotAvailable("the BMC has no AccountService".to_owned());
        };
        // The collection is where the standard has it (DSP0268, AccountService), which saves a call.
        let path = format!("{}/Accounts", service.trim_end_matches('/'));
        let members = match self.members("Accounts", &path, 4).await {
            Ok(members) => members,
            Err(miss) => return miss.reading(),
        };
        let own = self.client.core.credentials.username().to_owned();
        let account = members.into_iter().map(|(_, account)| account);
        let Some(account) = account.take(MAX_MEMBERS).find(|account| word(account, "UserName") == Some(&own)) else {
            return Reading::NotAvailable("the BMC does not show the account".to_owned());
        };
        Reading::Read(Account {
            locked: flag(&account, "Locked"),
            enabled: flag(&account, "Enabled"),
            role: self.text(&account, "RoleId"),
            password_change_required: flag(&account, "PasswordChangeRequired"),
            ..Account::default()
        })
    }

    /// The BMC's licences.
    pub async fn licenses(&mut self, root: &Value) -> Reading<Vec<License>> {
        let Some(service) = link_at(root, "LicenseService") else {
            return Reading::NotAvailable("the BMC has no LicenseService".to_owned());
        };
        let path = format!("{}/Licenses", service.trim_end_matches('/'));
        match self.members("Licenses", &path, 4).await {
            Ok(members) => {
                let license = |license: &Value| License {
                    name: self.text(license, "Name").unwrap_or_default(),
                    kind: self.text(license, "LicenseType"),
                    expires: time_at(license, "ExpirationDate"),
                };
                Reading::Read(members.iter().take(MAX_LICENSES).map(|(_, value)| license(value)).collect())
            }
            Err(miss) => miss.reading(),
        }
    }
}

/// How a connection ended.
fn contact(fault: &TransportError) -> Contact {
    let says = |text: &str, words: &[&str]| words.iter().any(|word| text.contains(word));
    match fault {
        TransportError::Connect { detail } => {
            let detail = detail.to_ascii_lowercase();
            match () {
                () if says(&detail, &["refused"]) => Contact::Refused,
                // The words of the C library and of this client.
                () if says(&detail, &["lookup", "name has no address", "name or service", "not known"]) => {
                    Contact::NameNotFound
                }
                () if says(&detail, &["unreachable", "no route"]) => Contact::Unreachable,
                () if says(&detail, &["timed out"]) => Contact::TimedOut,
                () if says(&detail, &["reset", "ended", "broken pipe"]) => Contact::Reset,
                () => Contact::Other,
            }
        }
        TransportError::Certificate { detail } => match () {
            () if says(detail, &["unknown issuer", "self-signed"]) => Contact::UnknownAuthority,
            () if says(detail, &["expired"]) => Contact::Expired,
            () if says(detail, &["not valid yet"]) => Contact::NotYetValid,
            () if says(detail, &["not made out"]) => Contact::WrongName,
            () => Contact::Handshake,
        },
        TransportError::Tls { .. } | TransportError::NoCommonTls { .. } => Contact::Handshake,
        TransportError::Dropped { .. } => Contact::Reset,
        TransportError::Unconnected { .. } | TransportError::Timeout { .. } => Contact::TimedOut,
        TransportError::Protocol { .. } => Contact::NoHttp,
        TransportError::TooLarge | TransportError::NotAllowed { .. } | TransportError::NotLeading { .. } => {
            Contact::Other
        }
    }
}

/// What a certificate says of itself; `None` if it is none.
fn certificate(der: &[u8]) -> Option<Certificate> {
    let (_, parsed) = X509Certificate::from_der(der).ok()?;
    let at = |second: i64| Timestamp::from_second(second).ok();
    let alternative = parsed.subject_alternative_name().ok().flatten();
    let names = alternative.map(|names| names.value.general_names.as_slice()).unwrap_or_default();
    let name = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some(clean(name, 200)),
        GeneralName::IPAddress(bytes) => match bytes.len() {
            4 => <[u8; 4]>::try_from(*bytes).ok().map(|bytes| std::net::Ipv4Addr::from(bytes).to_string()),
            16 => <[u8; 16]>::try_from(*bytes).ok().map(|bytes| std::net::Ipv6Addr::from(bytes).to_string()),
            _ => None,
        },
        _ => None,
    };
    Some(Certificate {
        subject: clean(&parsed.subject().to_string(), 200),
        issuer: clean(&parsed.issuer().to_string(), 200),
        not_before: at(parsed.validity().not_before.timestamp()),
        not_after: at(parsed.validity().not_after.timestamp()),
        names: names.iter().take(MAX_NAMES).filter_map(name).collect(),
        sha256: hex::encode(Sha256::digest(der)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_ends_in_one_of_the_known_ways() {
        let connect = |detail: &str| TransportError::Connect { detail: detail.to_owned() };
        let certificate = |detail: &str| TransportError::Certificate { detail: detail.to_owned() };
        for (fault, found) in [
            (connect("Connection refused (os error 111)"), Contact::Refused),
            (connect("failed to lookup address information: Name or service not known"), Contact::NameNotFound),
            (connect("No route to host (os error 113)"), Contact::Unreachable),
            (connect("Network is unreachable (os error 101)"), Contact::Unreachable),
            (connect("Connection reset by peer (os error 104)"), Contact::Reset),
            (certificate("it is signed by an unknown issuer, or self-signed"), Contact::UnknownAuthority),
            (certificate("it has expired"), Contact::Expired),
            (certificate("it is not valid yet; check the clocks of BMC and server"), Contact::NotYetValid),
            (certificate("it is not made out for this address"), Contact::WrongName),
            (TransportError::Unconnected { seconds: 3 }, Contact::TimedOut),
            (TransportError::Timeout { seconds: 3 }, Contact::TimedOut),
            (TransportError::Protocol { detail: "x".into() }, Contact::NoHttp),
        ] {
            assert_eq!(contact(&fault), found, "{fault}");
        }
    }

    #[test]
    fn a_certificate_tells_whom_it_is_for_and_until_when() {
        let rcgen::CertifiedKey { cert, .. } =
            rcgen::generate_simple_self_signed(vec!["bmc.example".into(), "192.0.2.7".into()]).unwrap();
        let read = certificate(cert.der()).unwrap();
        assert_eq!(read.names, ["bmc.example", "192.0.2.7"]);
        assert!(read.not_before < read.not_after && read.sha256.len() == 64, "{read:?}");
        assert_eq!(certificate(b"nonsense"), None);
    }
}
