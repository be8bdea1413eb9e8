//! Addresses and node ports of stored Services: noted at the start, and assigned where an earlier version of this
//! server stored a Service without them.

use crate::selectors::Selector;
use crate::status::{ApiError, ApiResult};
use crate::store::{Stored, WriteError};
use crate::verbs::{Backend, write_failed};

/// Notes what all Services have, then assigns what others lack.
pub async fn ensure(backend: &Backend) -> ApiResult<()> {
    let catalog = backend.registry.catalog();
    let services = catalog.find("", "v1", "services").ok_or_else(ApiError::unknown_path)?;
    let rows = backend.select(services, "", &Selector::default()).await?.1;
    for row in &rows {
        backend.allocator.see(&services.storage, &row.ns, &row.name, row.rev, Some(&row.body));
    }
    for row in rows {
        let stored = Stored { rev: row.rev, tail: row.body };
        let before = backend.load(services, &stored)?;
        let mut object = before.clone();
        let claim = match backend.allocator.claim(services, &mut object, Some(&before), false) {
            Ok(claim) if object != before => claim,
            Ok(_) => continue,
            Err(error) => {
                let (ns, name, why) = (&row.ns, &row.name, &error.message);
                tracing::warn!(ns, name, why, "a Service lacks an address or node port and could not be given one");
                continue;
            }
        };
        let written = backend.put(services, services.key(&row.ns, &row.name), object, Some(&stored), None).await;
        drop(claim);
        match written {
            Ok(_) | Err(WriteError::Conflict) => {}
            Err(error) => return Err(write_failed(error)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Object;
    use serde_json::{Value, json};

    #[tokio::test]
    async fn a_service_stored_without_an_address_gets_one_and_keeps_it() {
        let (backend, _dir) = Backend::for_tests();
        crate::controllers::ensure_namespaces(&backend).await.unwrap();
        let catalog = backend.registry.catalog();
        let services = catalog.find("", "v1", "services").unwrap();
        let key = services.key("default", "s");
        let mut object = Object::new();
        object.insert("metadata".into(), json!({"name": "s", "namespace": "default"}));
        object.insert("spec".into(), json!({"type": "NodePort", "ports": [{"port": 1, "protocol": "TCP"}]}));
        backend.put(services, key.clone(), object, None, None).await.unwrap();
        let mut found = Vec::new();
        for _ in 0..2 {
            ensure(&backend).await.unwrap();
            let stored = backend.stored(&key).await.unwrap().unwrap();
            let spec = Value::Object(backend.load(services, &stored).unwrap())["spec"].clone();
            assert!(spec["clusterIP"].as_str().is_some_and(|ip| ip.starts_with("10.96.")), "{spec}");
            assert!(spec["ports"][0]["nodePort"].as_i64().is_some_and(|port| port >= 30_000), "{spec}");
            found.push((stored.rev, spec));
        }
        assert_eq!(found[0], found[1]);
    }
}
