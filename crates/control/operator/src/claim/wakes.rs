//! Which claims to look at when other objects change.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use api::metal3::{BareMetalHost, HostClaim, HostDeployPolicy, condition};
use host_claims::Role;
use kube::ResourceExt as _;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher::Event;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

use super::claims::Claims;
use crate::news::Novelty;

/// Hosts that become free within this time wake the waiting claims once.
const GATHER: Duration = Duration::from_millis(500);

type Key = ObjectRef<HostClaim>;

/// A digest of the parts of a host that matter to claims.
struct Summary {
    digest: u64,
    consumer: Option<Key>,
}

fn summarize(host: &BareMetalHost) -> Summary {
    let mut hash = DefaultHasher::new();
    let metadata = &host.metadata;
    (&metadata.labels, &metadata.annotations, metadata.deletion_timestamp.is_some(), metadata.generation)
        .hash(&mut hash);
    if let Some(status) = &host.status {
        (host.state(), status.powered_on, &status.provisioning.image.url, status.error_message.is_empty())
            .hash(&mut hash);
        status.error_type.map(|error| error.as_str()).hash(&mut hash);
        status.provisioning.custom_deploy.as_ref().map(|deploy| &deploy.method).hash(&mut hash);
    }
    Summary { digest: hash.finish(), consumer: consumer(host) }
}

/// The claim that the host names.
fn consumer(host: &BareMetalHost) -> Option<Key> {
    let reference = host.spec.consumer_ref.as_ref()?;
    let ours = reference.kind.as_deref() == Some("HostClaim")
        && reference.api_version.as_deref().is_some_and(|version| version.starts_with("metal3.io/"));
    let name = reference.name.as_deref().filter(|_| ours)?;
    Some(ObjectRef::new(name).within(reference.namespace.as_deref().unwrap_or_default()))
}

/// Enqueues all claims without a host.
pub fn waiting(all: &Claims, woken: &UnboundedSender<Key>) {
    for claim in all.store.state() {
        if claim.condition(condition::ASSOCIATED).is_none_or(|found| found.status != "True") {
            let _ = woken.send(ObjectRef::from_obj(claim.as_ref()));
        }
    }
}

/// What of a policy decides whom it admits: which object it is, its spec, and whether it goes.
type Stand = (Option<String>, Option<i64>, bool);

/// Tells events of policies that may admit others than before from those that cannot, such as of their annotations.
#[derive(Default)]
pub struct Policies {
    seen: HashMap<ObjectRef<HostDeployPolicy>, Stand>,
    /// What a list that is under way has shown.
    listed: HashMap<ObjectRef<HostDeployPolicy>, Stand>,
    /// One list has ended.
    known: bool,
}

impl Policies {
    /// Whether waiting claims are to be looked at because of this event.
    pub fn is_news(&mut self, event: &Event<HostDeployPolicy>) -> bool {
        match event {
            Event::Apply(policy) => {
                let (key, stand) = stand(policy);
                // Without a generation, no two are the same.
                let is_counted = stand.1.is_some();
                self.seen.insert(key, stand.clone()) != Some(stand) || !is_counted
            }
            Event::Delete(policy) => self.seen.remove(&ObjectRef::from_obj(policy)).is_some(),
            Event::Init => {
                self.listed.clear();
                false
            }
            Event::InitApply(policy) => {
                self.listed.extend([stand(policy)]);
                false
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listed);
                let is_new = !self.known || self.seen != listed;
                self.seen = listed;
                self.known = true;
                is_new
            }
        }
    }
}

fn stand(policy: &HostDeployPolicy) -> (ObjectRef<HostDeployPolicy>, Stand) {
    let metadata = &policy.metadata;
    (ObjectRef::from_obj(policy), (metadata.uid.clone(), metadata.generation, metadata.deletion_timestamp.is_some()))
}

/// Enqueues the claims that news about hosts and Secrets concern, for as long as the controller runs.
pub async fn forward(all: Arc<Claims>, woken: UnboundedSender<Key>) {
    let mut news = all.host.news.listen();
    let mut seen: HashMap<ObjectRef<BareMetalHost>, Summary> = HashMap::new();
    let mut freed: Option<Instant> = None;
    let wake = |key: Option<Key>| {
        if let Some(key) = key {
            // This fails only once the controller has ended.
            let _ = woken.send(key);
        }
    };
    loop {
        let until = freed.unwrap_or_else(Instant::now);
        let novelty = tokio::select! {
            novelty = news.recv() => novelty,
            () = tokio::time::sleep_until(until), if freed.is_some() => {
                freed = None;
                waiting(&all, &woken);
                continue;
            }
        };
        match novelty {
            None => return,
            Some(Novelty::Host(host)) => {
                let new = summarize(&host);
                let before = seen.get(&ObjectRef::from_obj(host.as_ref()));
                if before.is_some_and(|before| before.digest == new.digest && before.consumer == new.consumer) {
                    continue;
                }
                wake(
                    before.and_then(|before| before.consumer.clone()).filter(|key| Some(key) != new.consumer.as_ref()),
                );
                wake(new.consumer.clone());
                if host_claims::obstacle(&host).is_none() {
                    freed = freed.or_else(|| Some(Instant::now() + GATHER));
                }
                seen.insert(ObjectRef::from_obj(host.as_ref()), new);
            }
            Some(Novelty::HostGone(host)) => {
                let before = seen.remove(&ObjectRef::from_obj(host.as_ref()));
                wake(before.and_then(|before| before.consumer));
            }
            Some(Novelty::Secret(namespace, name)) => of_secret(&all, &namespace, &name, &wake),
            Some(Novelty::Facts(..) | Novelty::FactsListed) => {}
            Some(Novelty::Listed) => {
                all.store.state().iter().for_each(|claim| wake(Some(ObjectRef::from_obj(claim.as_ref()))))
            }
        }
    }
}

/// Claims that name the Secret.
fn of_secret(all: &Claims, namespace: &str, name: &str, wake: &impl Fn(Option<Key>)) {
    for claim in all.store.state() {
        if claim.namespace().as_deref() == Some(namespace)
            && Role::ALL.iter().any(|role| role.named(&claim).is_ok_and(|named| named == Some(name)))
        {
            wake(Some(ObjectRef::from_obj(claim.as_ref())));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn policy(name: &str, metadata: &Value) -> HostDeployPolicy {
        let mut object =
            json!({"metadata": {"name": name, "namespace": "infra", "uid": name, "generation": 1}, "spec": {}});
        for (key, value) in metadata.as_object().unwrap() {
            object["metadata"][key] = value.clone();
        }
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn claims_are_looked_at_when_a_policy_may_admit_others_and_not_at_its_annotations() {
        let mut policies = Policies::default();
        let (plain, noted) = (json!({}), json!({"annotations": {"a": "1"}, "resourceVersion": "7"}));
        assert!(!policies.is_news(&Event::Init));
        assert!(!policies.is_news(&Event::InitApply(policy("a", &plain))));
        assert!(policies.is_news(&Event::InitDone), "the first list");
        for metadata in [&noted, &plain, &noted] {
            assert!(!policies.is_news(&Event::Apply(policy("a", metadata))), "{metadata}");
        }
        for metadata in [
            json!({"generation": 2}),
            json!({"generation": 2, "deletionTimestamp": "2026-01-01T00:00:00Z"}),
            json!({"generation": 2, "uid": "another"}),
        ] {
            assert!(policies.is_news(&Event::Apply(policy("a", &metadata))), "{metadata}");
            assert!(!policies.is_news(&Event::Apply(policy("a", &metadata))), "{metadata}");
        }
        assert!(policies.is_news(&Event::Apply(policy("b", &plain))));
        assert!(policies.is_news(&Event::Delete(policy("b", &plain))));
        // A watch that begins anew lists them all.
        for (listed, is_news) in [(json!({"generation": 2, "uid": "another"}), false), (json!({"generation": 3}), true)]
        {
            policies.is_news(&Event::Init);
            policies.is_news(&Event::InitApply(policy("a", &listed)));
            assert_eq!(policies.is_news(&Event::InitDone), is_news, "{listed}");
        }
    }
}
