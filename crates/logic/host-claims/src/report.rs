//! What a claim's status says.

use api::Time;
use api::metal3::{
    BareMetalHost, BoundObject, HostClaim, HostClaimStatus, ProvisioningState as State, annotation, condition,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::association::{MISSING, NOT_ASSOCIATED, is_recorded, place};
use crate::synchronize::wants_work;

/// Longest message of a condition, bytes, of which the API takes 32,768.
const MAX_MESSAGE: usize = 4096;

/// What a condition says. Reasons are upstream's where it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// Whether it is true.
    pub holds: bool,
    /// In CamelCase, for programs.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

impl Fact {
    /// True.
    pub fn yes(reason: &'static str, message: impl Into<String>) -> Self {
        Self { holds: true, reason, message: message.into() }
    }

    /// False.
    pub fn no(reason: &'static str, message: impl Into<String>) -> Self {
        Self { holds: false, reason, message: message.into() }
    }
}

/// Contents of a claim's status.
#[derive(Clone, Debug, PartialEq)]
pub struct Report<'a> {
    /// Whether it has a host.
    pub associated: Fact,
    /// Whether the host's spec is as it asks for.
    pub synchronized: Fact,
    /// The host that its status names.
    pub named: Option<BoundObject>,
    /// The host that is its own.
    pub host: Option<&'a BareMetalHost>,
    /// Whether there is HardwareData of the host.
    pub hardware_data: bool,
}

impl<'a> Report<'a> {
    /// A claim without a host.
    #[must_use]
    pub fn without(reason: &'static str, message: impl Into<String>) -> Self {
        let synchronized = Fact::no(NOT_ASSOCIATED, "There is no BareMetalHost");
        Self { associated: Fact::no(reason, message), synchronized, named: None, host: None, hardware_data: false }
    }

    /// A claim that is about to be given this host.
    #[must_use]
    pub fn choosing(named: BoundObject) -> Self {
        let message = format!("BareMetalHost {named} is being claimed");
        Self { named: Some(named), ..Self::without("Associating", message) }
    }

    /// A claim that is being deleted: what is waited for, and the host that it still has.
    #[must_use]
    pub fn leaving(claim: &HostClaim, message: impl Into<String>, host: Option<&'a BareMetalHost>) -> Self {
        let named = claim.status.as_ref().and_then(|status| status.bare_metal_host.clone());
        Self { named: host.map(place).or(named), host, ..Self::without("HostClaimDeleting", message) }
    }

    /// A claim with this host.
    #[must_use]
    pub fn with(host: &'a BareMetalHost, synchronized: Fact, hardware_data: bool) -> Self {
        let named = place(host);
        let associated = Fact::yes("BareMetalHostAssociated", format!("BareMetalHost {named} is this claim's"));
        Self { associated, synchronized, named: Some(named), host: Some(host), hardware_data }
    }

    /// A claim to whose host only its consumer has been written so far.
    #[must_use]
    pub fn beginning(host: &'a BareMetalHost) -> Self {
        let message = format!("BareMetalHost {} is being brought to what the claim asks for", place(host));
        Self::with(host, Fact::no("Synchronizing", message), false)
    }

    /// A claim without a host that is paused: what it names stays named.
    #[must_use]
    pub fn paused(claim: &HostClaim) -> Self {
        let named = claim.status.as_ref().and_then(|status| status.bare_metal_host.clone());
        let message =
            format!("The claim is paused (annotation {}): no BareMetalHost is given to it", annotation::PAUSED);
        Self { named, ..Self::without("HostClaimPaused", message) }
    }

    /// A claim whose host cannot be read: what it names stays named, and one that may have been given work stays so.
    #[must_use]
    pub fn unclear(claim: &HostClaim, message: impl Into<String>) -> Self {
        let named = claim.status.as_ref().and_then(|status| status.bare_metal_host.clone());
        let message = message.into();
        if !is_recorded(claim) {
            return Self { named, ..Self::without("BareMetalHostUnreadable", message) };
        }
        let which = named.as_ref().map(ToString::to_string).unwrap_or_default();
        let associated = Fact::yes("BareMetalHostAssociated", format!("BareMetalHost {which} is this claim's"));
        let synchronized = Fact::no("BareMetalHostUnreadable", message);
        Self { associated, synchronized, named, host: None, hardware_data: false }
    }

    /// A claim whose host was deleted or names another consumer.
    #[must_use]
    pub fn lost(claim: &HostClaim) -> Self {
        let named = claim.status.as_ref().and_then(|status| status.bare_metal_host.clone());
        let which = named.as_ref().map(ToString::to_string).unwrap_or_default();
        let message = format!(
            "BareMetalHost {which} was this claim's and is gone, or names another consumer. No other is given to it, because its work may still \
             run there: delete the claim and make it anew"
        );
        Self { named, ..Self::without(MISSING, message) }
    }
}

/// The status, with the time of its conditions' transitions and of its own writing; `None` if it says nothing new.
#[must_use]
pub fn status(claim: &HostClaim, report: &Report<'_>, now: Timestamp) -> Option<HostClaimStatus> {
    let old = claim.status.clone().unwrap_or_default();
    let mut new = old.clone();
    new.bare_metal_host = report.named.clone();
    new.hardware_data = report.host.filter(|_| report.hardware_data).map(place);
    new.powered_on = report.host.and_then(|host| host.status.as_ref()).map(|status| status.powered_on);
    let provisioned = provisioned(claim, report.host);
    let ready = ready(claim, [&report.associated, &report.synchronized, &provisioned]);
    for (kind, fact) in [
        (condition::ASSOCIATED, &report.associated),
        (condition::SYNCHRONIZED, &report.synchronized),
        (condition::PROVISIONED, &provisioned),
        (condition::READY, &ready),
    ] {
        set(&mut new.conditions, claim, (kind, fact), now);
    }
    if new == old {
        return None;
    }
    new.last_updated = Some(Time(now));
    Some(new)
}

/// The message, cut with a note if it is too long for a condition: names in a claim may have any length.
fn cut(message: &str) -> String {
    if message.len() <= MAX_MESSAGE {
        return message.to_owned();
    }
    let end = message.floor_char_boundary(MAX_MESSAGE);
    format!("{}… The rest is left out: the message is too long for a condition", message.get(..end).unwrap_or_default())
}

fn set(conditions: &mut Vec<Condition>, claim: &HostClaim, (kind, fact): (&str, &Fact), now: Timestamp) {
    let value = if fact.holds { "True" } else { "False" };
    let old = conditions.iter().position(|condition| condition.type_ == kind);
    let since = old.and_then(|at| conditions.get(at)).filter(|old| old.status == value);
    let condition = Condition {
        last_transition_time: since.map_or(Time(now), |old| old.last_transition_time.clone()),
        message: cut(&fact.message),
        observed_generation: claim.metadata.generation,
        reason: fact.reason.to_owned(),
        status: value.to_owned(),
        type_: kind.to_owned(),
    };
    match old.and_then(|at| conditions.get_mut(at)) {
        Some(old) => *old = condition,
        None => conditions.push(condition),
    }
}

/// Whether what the claim asks for is on the host. Only the host reports why its work fails: its messages name BMCs, which the claim must not see.
fn provisioned(claim: &HostClaim, host: Option<&BareMetalHost>) -> Fact {
    let Some(host) = host else { return Fact::no("NotProvisioned", "There is no BareMetalHost") };
    let (place, state) = (place(host), host.state());
    let status = host.status.as_ref();
    let method = |deploy: Option<&api::metal3::CustomDeploy>| {
        deploy.map(|deploy| deploy.method.clone()).filter(|method| !method.is_empty())
    };
    let wanted = claim.spec.image.as_ref().map(|image| image.url.as_str()).unwrap_or_default();
    let is_wanted = status.is_some_and(|status| {
        status.provisioning.image.url == wanted
            && method(status.provisioning.custom_deploy.as_ref()) == method(claim.spec.custom_deploy.as_ref())
    });
    let trouble = status
        .and_then(|status| status.error_type)
        .map(|error| format!("; it is in error ({}), of which its own status tells more", error.as_str()));
    let trouble = trouble.unwrap_or_default();
    let is = if state.as_str().is_empty() { "new" } else { state.as_str() };
    match state {
        State::Provisioned if wants_work(claim) && is_wanted => {
            Fact::yes("Provisioned", format!("BareMetalHost {place} is provisioned{trouble}"))
        }
        State::Provisioning => Fact::no("Provisioning", format!("BareMetalHost {place} is being provisioned{trouble}")),
        State::Deprovisioning | State::Provisioned => {
            Fact::no("Deprovisioning", format!("BareMetalHost {place} has something else on it: it is {is}{trouble}"))
        }
        _ if !wants_work(claim) => {
            Fact::no("NotProvisioned", format!("The claim asks for no image; BareMetalHost {place} is {is}{trouble}"))
        }
        State::Available | State::Ready if !claim.spec.powered_on => Fact::no(
            "NotProvisioned",
            format!("BareMetalHost {place} is {is}; it is provisioned once spec.poweredOn is true{trouble}"),
        ),
        _ => Fact::no("NotProvisioned", format!("BareMetalHost {place} is {is}{trouble}")),
    }
}

/// Ready, the sum of the others: a claim that asks for no image is ready without Provisioned.
fn ready(claim: &HostClaim, all: [&Fact; 3]) -> Fact {
    if claim.is_deleting() {
        return Fact::no("HostClaimDeleting", all[0].message.clone());
    }
    let empty = !wants_work(claim) && all[2].reason == "NotProvisioned";
    let asked = if empty { &all[..2] } else { &all[..] };
    match asked.iter().find(|fact| !fact.holds) {
        Some(fact) => Fact::no(fact.reason, fact.message.clone()),
        None => Fact::yes("Ready", all[if empty { 0 } else { 2 }].message.clone()),
    }
}
