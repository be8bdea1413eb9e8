//! Which claims to look at when other objects change.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use api::metal3::{BareMetalHost, HostClaim, condition};
use host_claims::Role;
use kube::ResourceExt as _;
use kube::runtime::reflector::ObjectRef;
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
