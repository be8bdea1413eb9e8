//! The Service `default/kubernetes` with its Endpoints and EndpointSlice: this server's own address. They are
//! reconciled every ten seconds, as upstream, so a client's changes and deletions are reverted.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::fields::Scope;
use crate::fields::views::Views;
use crate::object::{self, Object};
use crate::status::{ApiError, ApiResult};
use crate::store::WriteError;
use crate::verbs::{Backend, prepare, write_failed};

const EVERY: Duration = Duration::from_secs(10);
const NAMESPACE: &str = "default";
const NAME: &str = "kubernetes";

/// Reconciles the objects until the server stops.
pub async fn keep(backend: Arc<Backend>, address: SocketAddr) {
    let (mut right, mut looked) = (Right::default(), None);
    loop {
        tokio::select! {
            () = backend.stop.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
        // What was right is right while nothing at all is written.
        let revision = backend.store.revision();
        if looked == Some(revision) {
            continue;
        }
        match reconcile(&backend, address, &mut right).await {
            Ok(()) => looked = right.iter().all(Option::is_some).then_some(revision),
            Err(error) => tracing::warn!(%error, "the Service of this server could not be looked after"),
        }
    }
}

/// Revisions at which the objects were last found to be right: until one is written again, it need not be decoded.
type Right = [Option<u64>; 3];

/// Creates or repairs the objects.
pub async fn ensure(backend: &Backend, address: SocketAddr) -> ApiResult<()> {
    reconcile(backend, address, &mut Right::default()).await
}

async fn reconcile(backend: &Backend, address: SocketAddr, right: &mut Right) -> ApiResult<()> {
    let catalog = backend.registry.catalog();
    for ((group, plural, wanted), right) in wanted(address).into_iter().zip(right) {
        let resource = catalog.find(group, "v1", plural).ok_or_else(ApiError::unknown_path)?;
        let Value::Object(mut wanted) = wanted else { continue };
        let key = resource.key(NAMESPACE, NAME);
        let old = backend.stored(&key).await?;
        if let Some(old) = &old {
            if *right == Some(old.rev) {
                continue;
            }
            let mut object = backend.load(resource, old)?;
            if object::is_deleting(&object) || !overlay(&mut object, wanted) {
                *right = Some(old.rev);
                continue;
            }
            wanted = object;
        } else {
            let (manager, views, now) = (super::SERVER, Views::none(), backend.given.now());
            Scope { resource, catalog: &catalog, sub: "", manager, views, now }.update(None, &mut wanted);
            // Not validated like a client's object: upstream's rules allow no loopback address in Endpoints.
            prepare::create(resource, &mut wanted, &backend.given);
        }
        match backend.put(resource, key, wanted, old.as_ref(), None).await {
            // Another client changed it in the meantime: the next round checks it again.
            Ok(_) | Err(WriteError::Conflict) => {}
            Err(error) => return Err(write_failed(error)),
        }
    }
    Ok(())
}

/// Sets the managed members of a present object. True if any of them changed.
fn overlay(object: &mut Object, wanted: Object) -> bool {
    let mut changed = false;
    for (key, value) in wanted {
        match key.as_str() {
            "metadata" => {}
            "spec" => {
                let spec = object::child(object, "spec");
                for member in ["ports", "type"] {
                    let value = value.get(member).cloned().unwrap_or_default();
                    changed |= spec.insert(member.to_owned(), value.clone()) != Some(value);
                }
            }
            _ => changed |= object.insert(key, value.clone()) != Some(value),
        }
    }
    changed
}

/// Group, plural and content of the three objects.
fn wanted(address: SocketAddr) -> [(&'static str, &'static str, Value); 3] {
    let (ip, port) = (address.ip().to_canonical(), address.port());
    let labels = |labels: Value| json!({"labels": labels, "name": NAME, "namespace": NAMESPACE});
    let ports = json!([{"name": "https", "port": port, "protocol": "TCP"}]);
    // Headless, for lack of a virtual IP: the Service's name resolves to the server's address.
    let spec = json!({"clusterIP": "None", "clusterIPs": ["None"], "internalTrafficPolicy": "Cluster",
        "ipFamilies": [if ip.is_ipv4() { "IPv4" } else { "IPv6" }], "ipFamilyPolicy": "SingleStack",
        "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}],
        "sessionAffinity": "None", "type": "ClusterIP"});
    [
        (
            "",
            "services",
            json!({"metadata": labels(json!({"component": "apiserver", "provider": "kubernetes"})), "spec": spec}),
        ),
        (
            "",
            "endpoints",
            json!({"metadata": labels(json!({"endpointslice.kubernetes.io/skip-mirror": "true"})),
                "subsets": [{"addresses": [{"ip": ip.to_string()}], "ports": ports}]}),
        ),
        (
            "discovery.k8s.io",
            "endpointslices",
            json!({"metadata": labels(json!({"kubernetes.io/service-name": NAME})),
                "addressType": if ip.is_ipv4() { "IPv4" } else { "IPv6" },
                "endpoints": [{"addresses": [ip.to_string()], "conditions": {"ready": true}}], "ports": ports}),
        ),
    ]
}

/// The address at which clients reach this server: the one it listens on, or for a wildcard the first non-loopback IP
/// of `names`, else loopback.
pub fn reachable(listening: SocketAddr, names: &[String]) -> SocketAddr {
    if !listening.ip().is_unspecified() {
        return listening;
    }
    let named = names.iter().find_map(|name| name.parse::<IpAddr>().ok().filter(|ip| !ip.is_loopback()));
    let home = if listening.is_ipv6() {
        IpAddr::V6(std::net::Ipv6Addr::LOCALHOST)
    } else {
        IpAddr::V4(std::net::Ipv4Addr::LOCALHOST)
    };
    SocketAddr::new(named.unwrap_or(home), listening.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    #[tokio::test]
    async fn the_service_follows_the_address_and_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("s.db"), &dir.path().join("keys")).unwrap();
        let backend = Backend::on(store);
        super::super::ensure_namespaces(&backend).await.unwrap();
        let catalog = backend.registry.catalog();
        let endpoints = catalog.find("", "v1", "endpoints").unwrap();
        let ip = async || {
            let stored = backend.stored(&endpoints.key(NAMESPACE, NAME)).await.unwrap().unwrap();
            let object = Value::Object(backend.load(endpoints, &stored).unwrap());
            object.pointer("/subsets/0/addresses/0/ip").unwrap().as_str().unwrap().to_owned()
        };
        ensure(&backend, "127.0.0.1:7443".parse().unwrap()).await.unwrap();
        assert_eq!(ip().await, "127.0.0.1");
        let revision = backend.store.revision();
        ensure(&backend, "127.0.0.1:7443".parse().unwrap()).await.unwrap();
        assert_eq!(backend.store.revision(), revision, "what is right is not written again");
        ensure(&backend, "192.0.2.7:7443".parse().unwrap()).await.unwrap();
        assert_eq!(ip().await, "192.0.2.7");
        let change = crate::change::Change::by_controller(crate::route::Verb::Delete, "test");
        backend.remove(&change, endpoints, NAMESPACE, NAME, &Default::default()).await.unwrap();
        let mut right = Right::default();
        // The second time it is known to be right, the third time it has been changed.
        for changed in [false, false, true] {
            if changed {
                let stored = backend.stored(&endpoints.key(NAMESPACE, NAME)).await.unwrap().unwrap();
                let mut object = backend.load(endpoints, &stored).unwrap();
                object.insert("subsets".to_owned(), json!([]));
                backend.put(endpoints, endpoints.key(NAMESPACE, NAME), object, Some(&stored), None).await.unwrap();
            }
            reconcile(&backend, "192.0.2.7:7443".parse().unwrap(), &mut right).await.unwrap();
            assert_eq!(ip().await, "192.0.2.7");
        }
    }

    #[test]
    fn a_wildcard_is_no_address_to_publish() {
        let names = ["host.example".to_owned(), "192.0.2.1".to_owned()];
        let any = "0.0.0.0:1".parse().unwrap();
        assert_eq!(reachable(any, &names).to_string(), "192.0.2.1:1");
        assert_eq!(reachable(any, &[]).to_string(), "127.0.0.1:1");
    }
}
