//! Which host a claim may have, and which of several it gets.

use std::collections::BTreeSet;

use api::metal3::{
    BareMetalHost, BoundObject, HostClaim, OperationalStatus, ProvisioningState as State, annotation, label,
};

use crate::association::place;
use crate::selector::Selector;

/// What a host is searched with.
pub struct Search<'a> {
    /// The claim.
    pub claim: &'a HostClaim,
    /// Namespaces whose policies admit the claim.
    pub namespaces: &'a BTreeSet<String>,
    /// What the hosts' labels must be.
    pub selector: &'a Selector,
}

/// Result of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// This host.
    Host(BoundObject),
    /// None can be had; why, a sentence.
    None(String),
}

/// Why a host of an admitted namespace is not available, as a clause about several hosts.
#[must_use]
pub fn obstacle(host: &BareMetalHost) -> Option<&'static str> {
    let spec = &host.spec;
    let status = host.status.as_ref();
    let is = |operational| status.is_some_and(|status| status.operational_status == operational);
    Some(match () {
        () if spec.consumer_ref.is_some() => "in use",
        () if host.is_deleting() => "being deleted",
        () if host.annotation(annotation::PAUSED).is_some() => "paused",
        () if host.annotation(annotation::DETACHED).is_some() || is(OperationalStatus::Detached) => "detached",
        // Upstream gives it away, which removes the image of a user who named no consumer.
        () if spec.image.as_ref().is_some_and(|image| !image.url.is_empty()) || spec.custom_deploy.is_some() => {
            "to be provisioned by somebody who is no claim"
        }
        () if spec.externally_provisioned == Some(true) => "provisioned by somebody else",
        () if !matches!(host.state(), State::Available | State::Ready) => "not available yet",
        () if status.is_some_and(|status| !status.error_message.is_empty() || status.error_type.is_some()) => {
            "in error"
        }
        () => return None,
    })
}

impl Search<'_> {
    /// Whether the host is one that the claim asks for and may have, in use or not.
    fn concerns(&self, host: &BareMetalHost) -> bool {
        let wanted = self.claim.spec.host_selector.in_namespace.as_deref().filter(|namespace| !namespace.is_empty());
        let namespace = host.metadata.namespace.as_deref().unwrap_or_default();
        self.namespaces.contains(namespace) && wanted.is_none_or(|wanted| wanted == namespace)
    }

    /// Whether the claim can have the host as it is.
    #[must_use]
    pub fn suits(&self, host: &BareMetalHost) -> bool {
        self.concerns(host) && self.selector.matches(host.metadata.labels.as_ref()) && obstacle(host).is_none()
    }
}

/// Chooses a host: of the preferred failure domain before any other, then the first by namespace and name. `promised` hosts are about to get
/// another claim.
pub fn choose<'a>(
    search: &Search<'_>,
    hosts: impl IntoIterator<Item = &'a BareMetalHost>,
    promised: impl Fn(&BareMetalHost) -> bool,
) -> Choice {
    if search.namespaces.is_empty() {
        let namespace = search.claim.metadata.namespace.as_deref().unwrap_or_default();
        return Choice::None(format!(
            "No HostDeployPolicy admits the HostClaims of namespace {namespace}: whoever looks after the hosts makes one in theirs, or corrects the one that is there (an Event InvalidPolicy tells of one that cannot be read)"
        ));
    }
    let mut best: Option<(bool, BoundObject)> = None;
    let (mut obstacles, mut seen, mut others) = (BTreeSet::new(), false, false);
    let domain = search.claim.spec.failure_domain.as_deref().filter(|domain| !domain.is_empty());
    for host in hosts.into_iter().filter(|host| search.concerns(host)) {
        seen = true;
        let labels = host.metadata.labels.as_ref();
        if !search.selector.matches(labels) {
            others = true;
            continue;
        }
        if let Some(why) = obstacle(host) {
            obstacles.insert(why);
            continue;
        }
        if promised(host) {
            obstacles.insert("in use");
            continue;
        }
        let found = labels.and_then(|labels| labels.get(label::FAILURE_DOMAIN)).map(String::as_str);
        let candidate = (domain.is_some() && found != domain, place(host));
        if best.as_ref().is_none_or(|best| candidate < *best) {
            best = Some(candidate);
        }
    }
    match best {
        Some((_, place)) => Choice::Host(place),
        None => Choice::None(why(search, seen, others, &obstacles)),
    }
}

/// Why nothing was found, without numbers: they would change all the time while many claims wait.
fn why(search: &Search<'_>, seen: bool, others: bool, obstacles: &BTreeSet<&'static str>) -> String {
    let wanted = search.claim.spec.host_selector.in_namespace.as_deref().filter(|namespace| !namespace.is_empty());
    if let Some(wanted) = wanted.filter(|wanted| !search.namespaces.contains(*wanted)) {
        return format!(
            "No HostDeployPolicy of namespace {wanted}, which spec.hostSelector.inNamespace names, admits this HostClaim"
        );
    }
    if !seen {
        return "There is no BareMetalHost where this HostClaim may have one".to_owned();
    }
    if obstacles.is_empty() && others {
        return "No BareMetalHost that this HostClaim may have has the labels that spec.hostSelector asks for"
            .to_owned();
    }
    let all: Vec<&str> = obstacles.iter().copied().collect();
    let beside = if others { "; others have not the labels that spec.hostSelector asks for" } else { "" };
    format!(
        "Of the BareMetalHosts that will do none can be had, they are {}{beside}: the claim waits",
        all.join(", or ")
    )
}
