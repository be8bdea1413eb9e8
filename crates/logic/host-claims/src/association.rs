//! Which host belongs to the claim.

use api::metal3::{BareMetalHost, BoundObject, HostClaim, condition};

use crate::selector::Selector;
use crate::synchronize::wants_work;

/// Reason of the condition Associated when a host that was the claim's no longer is (upstream's `MissingBareMetalHostReason`).
pub(crate) const MISSING: &str = "MissingBareMetalHost";

/// Reason of the condition Synchronized as long as nothing was written to a host (ours).
pub(crate) const NOT_ASSOCIATED: &str = "NotAssociated";

/// Reasons of the condition Provisioned of a claim on whose host something is, or may be.
pub(crate) const WORKS: [&str; 2] = ["Provisioning", "Deprovisioning"];

/// Relation of a claim to hosts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Association<'a> {
    /// Each names the other.
    Bound(&'a BareMetalHost),
    /// The host names the claim and [may be its own](title); the claim must name the host before anything else is done with it.
    TakeUp(&'a BareMetalHost),
    /// The claim names the host, which nobody uses.
    Chosen(&'a BareMetalHost),
    /// There is no host.
    Search,
    /// The host that the claim names, and that was given its work, is no longer the claim's. The claim gets no other: its work may still run there.
    Lost,
}

/// What a host that names a claim is to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Title {
    /// The claim's: the claim names it as well.
    Own,
    /// The claim's, if a policy of its namespace admits the claim.
    IfAdmitted,
    /// Somebody else's, whatever it says: it is left alone.
    Foreign,
}

/// Judges whether a host that names the claim may be its own. Whoever may write hosts in some namespace can have them name any claim, so that
/// alone proves nothing: the claim's status must name the host, or the host must be one that the claim's search could find, in use or not. And it
/// must know the claim's uid, or, of a claim that names no host (it was moved or restored without its status), be where the claim itself points:
/// in its own namespace, or in the one that `spec.hostSelector.inNamespace` names.
#[must_use]
pub fn title(host: &BareMetalHost, claim: &HostClaim) -> Title {
    if !holds(host, claim) {
        return Title::Foreign;
    }
    let named = claim.status.as_ref().and_then(|status| status.bare_metal_host.as_ref());
    let knows = !is_of_another_life(host, claim);
    if named == Some(&place(host)) {
        return if knows { Title::Own } else { Title::IfAdmitted };
    }
    let selector = &claim.spec.host_selector;
    let is_meant = Selector::of(selector).is_ok_and(|read| read.matches(host.metadata.labels.as_ref()));
    let pointed = selector.in_namespace.as_deref().filter(|namespace| !namespace.is_empty());
    let namespace = host.metadata.namespace.as_deref();
    let is_near = match pointed {
        Some(_) if namespace == pointed => true,
        Some(_) => return Title::Foreign,
        None => namespace == claim.metadata.namespace.as_deref(),
    };
    if is_meant && (knows || (named.is_none() && is_near)) { Title::IfAdmitted } else { Title::Foreign }
}

/// Judges by the claim, the host that its status names, and the hosts that name the claim and are its own by their [title].
#[must_use]
pub fn association<'a>(
    claim: &HostClaim,
    named: Option<&'a BareMetalHost>,
    holding: &[&'a BareMetalHost],
) -> Association<'a> {
    let names_one = claim.status.as_ref().is_some_and(|status| status.bare_metal_host.is_some());
    let is_held = |host: &BareMetalHost| holding.iter().any(|held| place(held) == place(host));
    if let Some(host) = named.filter(|host| names_one && holds(host, claim) && is_held(host)) {
        return Association::Bound(host);
    }
    // Also if another host names the claim: a late write of an earlier choice.
    if names_one && is_lost(claim) {
        return Association::Lost;
    }
    // The host's reference outweighs the claim's status, which the claim's owner may be able to write.
    if let Some(host) = holding.iter().min_by_key(|host| place(host)) {
        return Association::TakeUp(host);
    }
    match named {
        Some(host) if names_one && host.spec.consumer_ref.is_none() && !was_bound(claim) => Association::Chosen(host),
        _ => Association::Search,
    }
}

/// Those of the claim's hosts that have no work, although it has another: a delayed write of an earlier choice.
pub fn strays<'a>(
    claimed: &BareMetalHost,
    holding: &'a [&'a BareMetalHost],
) -> impl Iterator<Item = &'a BareMetalHost> + 'a {
    let claimed = place(claimed);
    holding.iter().copied().filter(move |host| place(host) != claimed && is_idle(host))
}

/// Whether the host is asked for no work.
#[must_use]
pub fn is_idle(host: &BareMetalHost) -> bool {
    host.spec.image.as_ref().is_none_or(|image| image.url.is_empty()) && host.spec.custom_deploy.is_none()
}

/// Whether the host's consumer is the claim, by group, kind, namespace and name.
#[must_use]
pub fn holds(host: &BareMetalHost, claim: &HostClaim) -> bool {
    let Some(consumer) = &host.spec.consumer_ref else { return false };
    let group = consumer.api_version.as_deref().unwrap_or_default().split_once('/').map(|(group, _)| group);
    group == Some("metal3.io")
        && consumer.kind.as_deref() == Some("HostClaim")
        && consumer.name == claim.metadata.name
        && consumer.namespace == claim.metadata.namespace
}

/// Whether the host names a claim of this name with another uid, or with none, which proves as little. That claim was deleted without giving
/// the host back, or was moved here from another cluster.
#[must_use]
pub fn is_of_another_life(host: &BareMetalHost, claim: &HostClaim) -> bool {
    let named = host.spec.consumer_ref.as_ref().and_then(|consumer| consumer.uid.as_deref());
    named.is_none_or(|uid| Some(uid) != claim.metadata.uid.as_deref())
}

/// Namespace and name.
pub(crate) fn place(host: &BareMetalHost) -> BoundObject {
    BoundObject {
        namespace: host.metadata.namespace.clone().unwrap_or_default(),
        name: host.metadata.name.clone().unwrap_or_default(),
    }
}

/// Whether the claim's status records a host that may have been given work: if the claim loses it, it gets no other. Recorded before anything but
/// the consumer is written to the host.
#[must_use]
pub fn is_recorded(claim: &HostClaim) -> bool {
    was_bound(claim) && was_given(claim)
}

fn was_given(claim: &HostClaim) -> bool {
    claim.condition(condition::SYNCHRONIZED).is_some_and(|found| found.reason != NOT_ASSOCIATED)
}

fn was_bound(claim: &HostClaim) -> bool {
    claim.condition(condition::ASSOCIATED).is_some_and(|found| found.status == "True")
}

/// Whether the claim had a host, and its work may run there.
fn is_lost(claim: &HostClaim) -> bool {
    let said = claim.condition(condition::ASSOCIATED).is_some_and(|found| found.reason == MISSING);
    said || (is_recorded(claim) && (wants_work(claim) || may_run(claim)))
}

/// Whether something of an earlier wish may run on the claim's host, by what was last seen of it.
fn may_run(claim: &HostClaim) -> bool {
    claim
        .condition(condition::PROVISIONED)
        .is_some_and(|found| found.status == "True" || WORKS.contains(&found.reason.as_str()))
}
