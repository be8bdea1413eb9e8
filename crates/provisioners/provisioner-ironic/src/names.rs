//! Names that stand in records and annotations.

/// Name of this provisioner.
pub const NAME: &str = "ironic";

/// Name of a host's node in Ironic: baremetal-operator's, so that either finds the other's.
pub fn node_name(namespace: &str, name: &str) -> String {
    format!("{namespace}~{name}")
}

/// Whether an id has the form of a node's UUID.
pub fn is_uuid(id: &str) -> bool {
    let groups: Vec<&str> = id.split('-').collect();
    groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12])
        && groups.iter().all(|group| group.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// The UUID that Ironic is told as that of the instance: the host's uid, or one derived from it where it is none.
pub fn instance_uuid(uid: &str) -> String {
    if is_uuid(uid) {
        return uid.to_ascii_lowercase();
    }
    uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, uid.as_bytes()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_has_a_uuid_whatever_the_uid_is() {
        let uid = "7A1B3C4D-0000-4000-8000-0123456789ab";
        assert_eq!(instance_uuid(uid), uid.to_ascii_lowercase());
        let made = instance_uuid("uid-of-node-0");
        assert!(is_uuid(&made) && made == instance_uuid("uid-of-node-0") && made != instance_uuid("uid-of-node-1"));
        assert!(
            !is_uuid("temporary-fake-id") && !is_uuid("") && !is_uuid("fixture-7a1b3c4d-0000-4000-8000-0123456789ab")
        );
    }
}
