//! Finds a service's endpoint in the API's own objects: EndpointSlices, else Endpoints. There is no cluster DNS here.

use serde_json::Value;

use crate::object::Object;
use crate::objects::Objects;
use crate::selectors::Selector;
use crate::store::Stored;

/// EndpointSlices looked at.
const MAX_SLICES: usize = 100;

/// Address and port of a ready endpoint of the service's port.
pub async fn endpoint(objects: &Objects, ns: &str, name: &str, port: u16) -> Result<(String, u16), String> {
    let service = named(objects, ("", "services"), ns, name).await?;
    let service = service.ok_or_else(|| format!("service \"{name}\" not found"))?;
    let spec = service.get("spec").cloned().unwrap_or_default();
    let kind = spec.get("type").and_then(Value::as_str).unwrap_or("ClusterIP");
    if !matches!(kind, "ClusterIP" | "LoadBalancer" | "NodePort") {
        return Err(format!("unsupported service type {kind:?}"));
    }
    let ports = spec.get("ports").and_then(Value::as_array).cloned().unwrap_or_default();
    let found = ports.iter().find(|p| p.get("port").and_then(Value::as_u64) == Some(u64::from(port)));
    let Some(found) = found else { return Err(format!("no service port {port} found for service \"{name}\"")) };
    let port_name = found.get("name").and_then(Value::as_str).unwrap_or_default();
    let mut places = Vec::new();
    for slice in slices(objects, ns, name).await? {
        of_slice(&slice, port_name, &mut places);
    }
    if places.is_empty()
        && let Some(endpoints) = named(objects, ("", "endpoints"), ns, name).await?
    {
        of_endpoints(&endpoints, port_name, &mut places);
    }
    if places.is_empty() {
        return Err(format!("no endpoints available for service \"{name}\""));
    }
    let at = rand::random_range(0..places.len());
    Ok(places.swap_remove(at))
}

async fn named(objects: &Objects, kind: (&str, &str), ns: &str, name: &str) -> Result<Option<Object>, String> {
    let catalog = objects.registry.catalog();
    let Some(resource) = catalog.find(kind.0, "v1", kind.1) else { return Ok(None) };
    let stored = objects.stored(&resource.key(ns, name)).await.map_err(|e| e.message)?;
    stored.map(|s| objects.load(resource, &s).map_err(|e| e.message)).transpose()
}

/// Boxed: lists may need webhooks, and these bring the caller here.
fn slices<'a>(
    objects: &'a Objects,
    ns: &'a str,
    service: &'a str,
) -> futures::future::BoxFuture<'a, Result<Vec<Object>, String>> {
    Box::pin(async move {
        let catalog = objects.registry.catalog();
        let Some(resource) = catalog.find("discovery.k8s.io", "v1", "endpointslices") else { return Ok(Vec::new()) };
        let selector = format!("kubernetes.io/service-name={service}");
        let selector = Selector::parse(&selector, "", resource).map_err(|e| e.message)?;
        let (_, rows) = objects.select(resource, ns, &selector).await.map_err(|e| e.message)?;
        let rows = rows.into_iter().take(MAX_SLICES);
        Ok(rows.filter_map(|row| objects.load(resource, &Stored { rev: row.rev, tail: row.body }).ok()).collect())
    })
}

fn port_of(ports: Option<&Value>, name: &str) -> Option<u16> {
    let same = |p: &&Value| p.get("name").and_then(Value::as_str).unwrap_or_default() == name;
    let found = ports?.as_array()?.iter().find(same)?;
    u16::try_from(found.get("port")?.as_u64()?).ok()
}

fn of_slice(slice: &Object, port_name: &str, places: &mut Vec<(String, u16)>) {
    let Some(port) = port_of(slice.get("ports"), port_name) else { return };
    for endpoint in slice.get("endpoints").and_then(Value::as_array).into_iter().flatten() {
        if endpoint.pointer("/conditions/ready") == Some(&Value::Bool(false)) {
            continue;
        }
        if let Some(address) = endpoint.pointer("/addresses/0").and_then(Value::as_str) {
            places.push((address.to_owned(), port));
        }
    }
}

fn of_endpoints(endpoints: &Object, port_name: &str, places: &mut Vec<(String, u16)>) {
    for subset in endpoints.get("subsets").and_then(Value::as_array).into_iter().flatten() {
        let Some(port) = port_of(subset.get("ports"), port_name) else { continue };
        for address in subset.get("addresses").and_then(Value::as_array).into_iter().flatten() {
            if let Some(ip) = address.get("ip").and_then(Value::as_str) {
                places.push((ip.to_owned(), port));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::Backend;
    use serde_json::json;

    async fn put(backend: &Backend, group: &str, plural: &str, object: Value) {
        let catalog = backend.registry.catalog();
        let resource = catalog.find(group, "v1", plural).unwrap();
        let Value::Object(object) = object else { return };
        let key = resource.key("n", crate::object::name(&object));
        backend.put(resource, key, object, None, None).await.unwrap();
    }

    #[tokio::test]
    async fn ready_endpoints_of_slices_come_before_those_of_endpoints() {
        let (backend, _dir) = Backend::for_tests();
        let found = async || endpoint(&backend, "n", "s", 443).await;
        assert_eq!(found().await.unwrap_err(), "service \"s\" not found");
        let ports = json!([{"name": "https", "port": 443}]);
        put(
            &backend,
            "",
            "services",
            json!({"metadata": {"name": "s"}, "spec": {"type": "ClusterIP", "ports": ports}}),
        )
        .await;
        assert_eq!(endpoint(&backend, "n", "s", 1).await.unwrap_err(), "no service port 1 found for service \"s\"");
        assert_eq!(found().await.unwrap_err(), "no endpoints available for service \"s\"");
        let ports = json!([{"name": "https", "port": 9443}, {"name": "other", "port": 1}]);
        let subsets = json!([{"addresses": [{"ip": "10.0.0.1"}], "ports": ports}]);
        put(&backend, "", "endpoints", json!({"metadata": {"name": "s"}, "subsets": subsets})).await;
        assert_eq!(found().await.unwrap(), ("10.0.0.1".to_owned(), 9443));
        let slice = json!({"metadata": {"name": "s-1", "labels": {"kubernetes.io/service-name": "s"}},
            "ports": [{"name": "https", "port": 8443}],
            "endpoints": [{"addresses": ["10.0.0.2"], "conditions": {"ready": false}},
                {"addresses": ["10.0.0.3"], "conditions": {"ready": true}}]});
        put(&backend, "discovery.k8s.io", "endpointslices", slice).await;
        assert_eq!(found().await.unwrap(), ("10.0.0.3".to_owned(), 8443));
    }
}
