//! Why the BMC cannot be reached, does not let the server in, or is not what the address says.

use Certainty::{Certain, Likely, Possible};
use Code as C;

use super::words::{has, message_key};
use crate::codes::Code;
use crate::evidence::{Access, Answer, Contact, Message, Reading, ServiceRoot};
use crate::hit::{Case, Certainty, Hit, Phase};

pub(super) fn judge(case: &Case<'_>, hits: &mut Vec<Hit>) {
    if let Reading::Read(access) = &case.evidence.access {
        connection(access, hits);
        answers(access, hits);
        account(access, hits);
        if let Reading::Read(root) = &access.root {
            service(case, root, hits);
        }
    }
}

fn connection(access: &Access, hits: &mut Vec<Hit>) {
    let Reading::Read(connection) = &access.connection else { return };
    let (rule, code) = match connection.contact {
        Contact::NameNotFound => ("access.name", C::BmcNameUnknown),
        Contact::Refused => ("access.refused", C::BmcConnectionRefused),
        Contact::Unreachable => ("access.no-route", C::BmcNoRoute),
        Contact::TimedOut => ("access.timeout", C::BmcTimeout),
        Contact::Reset => ("access.reset", C::BmcConnectionReset),
        Contact::UnknownAuthority => ("access.authority", C::BmcAuthorityUnknown),
        Contact::Expired => ("access.expired", C::BmcCertificateExpired),
        Contact::NotYetValid => ("access.not-yet-valid", C::BmcCertificateNotYetValid),
        Contact::WrongName => ("access.wrong-name", C::BmcCertificateWrongName),
        Contact::NotThePinned => ("access.pinned", C::BmcCertificateChanged),
        Contact::Handshake => ("access.handshake", C::BmcTlsFailed),
        Contact::NoHttp => ("access.no-http", C::BmcNotRedfish),
        Contact::NoRedfish => ("access.no-redfish", C::BmcNotRedfish),
        Contact::Answered if matches!(connection.status, Some(502..=504)) => ("access.starting", C::BmcStarting),
        Contact::Answered if connection.status == Some(404) => ("access.no-root", C::BmcNotRedfish),
        Contact::Answered | Contact::Other => return,
    };
    let mut said = format!("GET /redfish/v1 at {}: {}", access.address, connection.text);
    if let (Contact::Expired | Contact::NotYetValid | Contact::WrongName, Reading::Read(shown)) =
        (connection.contact, &access.certificate)
    {
        let time = |at: Option<jiff::Timestamp>| at.map_or_else(|| "?".to_owned(), |at| at.to_string());
        let names = shown.names.join(", ");
        said = format!(
            "{said}; the certificate is for {names}, from {} to {}",
            time(shown.not_before),
            time(shown.not_after)
        );
    }
    hits.push(Hit::new(rule, code, Certain, said));
}

/// Keys of messages, and what each means (DSP2065: Base; vendors' own).
const MESSAGES: [(&str, &str, Code); 16] = [
    ("PasswordChangeRequired", "access.password-change", C::PasswordChangeRequired),
    ("PasswordChangeRequiredByPolicy", "access.password-change", C::PasswordChangeRequired),
    ("SYS519", "access.password-change", C::PasswordChangeRequired),
    ("AccountLockedOut", "access.locked", C::AccountLocked),
    ("AccountLocked", "access.locked", C::AccountLocked),
    ("LoginFailureDelayed", "access.locked", C::AccountLocked),
    ("AccountDisabled", "access.disabled", C::AccountDisabled),
    ("InsufficientPrivilege", "access.privilege", C::PrivilegeMissing),
    ("NotEnoughPrivilege", "access.privilege", C::PrivilegeMissing),
    ("SYS407", "access.privilege", C::PrivilegeMissing),
    ("SessionLimitExceeded", "access.sessions", C::SessionLimit),
    ("RAC0218", "access.sessions", C::SessionLimit),
    ("MaxSessionsReached", "access.sessions", C::SessionLimit),
    ("LicenseKeyRequired", "access.license", C::LicenseMissing),
    ("InsufficientLicense", "access.license", C::LicenseMissing),
    ("LicenseRequired", "access.license", C::LicenseMissing),
];

fn by_message(message: &Message) -> Option<(&'static str, Code)> {
    let key = message_key(&message.id);
    let known = MESSAGES.iter().find(|(id, ..)| *id == key).map(|(_, rule, code)| (*rule, *code));
    let by_text = || {
        let text = message.text.as_str();
        if has(text, &["locked"]) {
            Some(("access.locked", C::AccountLocked))
        } else if has(text, &["license", "licence"]) {
            Some(("access.license", C::LicenseMissing))
        } else if has(text, &["maximum number of sessions", "maximum number of user sessions"]) {
            Some(("access.sessions", C::SessionLimit))
        } else {
            None
        }
    };
    known.or_else(by_text)
}

fn answers(access: &Access, hits: &mut Vec<Hit>) {
    for answer in &access.answers {
        let refused = answer.status.is_some_and(|status| status >= 400);
        // What a look has asked for beside, provisioning does not need: its refusal explains no failure.
        let beside = !answer.needed && !answer.sign_in;
        let mut typed = false;
        for message in answer.messages.iter().filter(|_| refused) {
            if let Some((rule, code)) = by_message(message) {
                typed = true;
                let certainty = if beside { Possible } else { Certain };
                let mut hit = Hit::new(rule, code, certainty, said(answer, Some(message)));
                hit.past = beside;
                hits.push(hit.at(answer.at).advise(message.resolution.as_ref()));
            }
        }
        let message = answer.messages.first();
        // What the messages say is more than the status: it goes first.
        let (rule, code, certainty) = match answer.status {
            // Where it was not asked with the password, a session has ended, or the account may not read it.
            Some(401) if !answer.sign_in => ("access.session", C::PrivilegeMissing, Possible),
            Some(401) if !typed => ("access.password", C::CredentialsWrong, Certain),
            Some(401) => ("access.password", C::CredentialsWrong, Likely),
            Some(403) => ("access.forbidden", C::PrivilegeMissing, Likely),
            Some(502..=504) => ("access.busy", C::BmcStarting, Likely),
            _ => continue,
        };
        let certainty = if beside { Possible } else { certainty };
        let mut hit = Hit::new(rule, code, certainty, said(answer, message)).at(answer.at);
        hit.past = beside;
        hits.push(hit);
    }
}

fn said(answer: &Answer, message: Option<&Message>) -> String {
    let status = answer.status.map_or_else(|| "no answer".to_owned(), |status| format!("HTTP {status}"));
    let text = message.map(|message| format!(": {} {}", message.id, message.text)).unwrap_or_default();
    format!("{} answered {status}{text}", answer.call)
}

fn account(access: &Access, hits: &mut Vec<Hit>) {
    let Reading::Read(account) = &access.account else { return };
    let mut found = |yes: bool, rule, code, certainty, text: &str| {
        if yes {
            hits.push(Hit::new(rule, code, certainty, format!("ManagerAccount: {text}")));
        }
    };
    found(account.locked == Some(true), "access.account-locked", C::AccountLocked, Certain, "Locked is true");
    found(account.enabled == Some(false), "access.account-disabled", C::AccountDisabled, Certain, "Enabled is false");
    let change = account.password_change_required == Some(true);
    found(
        change,
        "access.account-password-change",
        C::PasswordChangeRequired,
        Certain,
        "PasswordChangeRequired is true",
    );
    let reader = account.role.as_deref().is_some_and(|role| has(role, &["readonly", "none"]));
    found(reader, "access.account-role", C::PrivilegeMissing, Likely, "RoleId may read alone");
    let full = account.sessions.zip(account.max_sessions).is_some_and(|(open, most)| most > 0 && open >= most);
    found(full, "access.account-sessions", C::SessionLimit, Likely, "as many sessions are open as may be");
}

fn service(case: &Case<'_>, root: &ServiceRoot, hits: &mut Vec<Hit>) {
    let product = [root.vendor.as_deref(), root.product.as_deref(), root.redfish_version.as_deref()];
    let product = product.into_iter().flatten().collect::<Vec<_>>().join(" ");
    let registers = matches!(case.phase, Phase::Registration | Phase::Inspection | Phase::Disks);
    if let ([only], Some(false)) = (root.systems.as_slice(), root.system_known) {
        let text = format!("The only member of Systems is {only}");
        hits.push(Hit::new("access.other-system", C::SystemNotFound, Certain, text));
    } else if root.systems.len() > 1 && root.system_known == Some(false) {
        let text = format!("Systems has {} members: {}", root.systems.len(), root.systems.join(", "));
        hits.push(Hit::new("access.multi-system", C::SystemNotNamed, Certain, text));
    } else if root.system_known == Some(false) {
        hits.push(Hit::new("access.no-system", C::WrongDriver, Likely, format!("Systems has no member ({product})")));
    }
    if root.virtual_media == Some(false) && registers {
        let text = format!("No virtual drive takes a URL ({product})");
        hits.push(Hit::new("access.no-virtual-media", C::NoVirtualMedia, Likely, text));
    }
    let Reading::Read(licenses) = &root.licenses else { return };
    for license in licenses {
        let over = license.expires.zip(case.evidence.taken).is_some_and(|(expires, taken)| expires < taken);
        if over || license.kind.as_deref().is_some_and(|kind| has(kind, &["expired"])) {
            let certainty = if root.virtual_media == Some(false) { Certain } else { Possible };
            let text = format!("The licence {} has expired", license.name);
            hits.push(Hit::new("access.license-expired", C::LicenseMissing, certainty, text).minor());
        }
    }
}
