//! Root device hints as Ironic writes them (`pkg/provisioner/ironic/devicehints` of baremetal-operator).

use inventory::RootDeviceHints;
use serde_json::{Map, Value};

/// The hints as a node's `root_device`; empty for none.
pub fn root_device(hints: &RootDeviceHints) -> Map<String, Value> {
    let mut found = Map::new();
    let mut add = |name: &str, operator: &str, value: &Option<String>| {
        if let Some(value) = value.as_ref().filter(|value| !value.is_empty()) {
            found.insert(name.to_owned(), format!("{operator} {value}").into());
        }
    };
    let by_path = hints.device_name.as_ref().is_some_and(|name| name.starts_with("/dev/disk/by-path/"));
    add(if by_path { "by_path" } else { "name" }, "s==", &hints.device_name);
    add("hctl", "s==", &hints.hctl);
    add("model", "<in>", &hints.model);
    add("vendor", "<in>", &hints.vendor);
    add("serial", "s==", &hints.serial_number);
    add("wwn", "s==", &hints.wwn);
    add("wwn_with_extension", "s==", &hints.wwn_with_extension);
    add("wwn_vendor_extension", "s==", &hints.wwn_vendor_extension);
    if let Some(size) = hints.min_size_gigabytes.filter(|size| *size != 0) {
        found.insert("size".into(), format!(">= {size}").into());
    }
    if let Some(rotational) = hints.rotational {
        found.insert("rotational".into(), rotational.to_string().into());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_written_with_their_operators() {
        let text = |name: &str| Some(name.to_owned());
        let hints = RootDeviceHints {
            device_name: text("/dev/sda"),
            hctl: text("0:0:0:0"),
            model: text("FAST"),
            vendor: text("ACME"),
            serial_number: text("S1"),
            min_size_gigabytes: Some(40),
            wwn: text("0x1"),
            wwn_with_extension: text("0x12"),
            wwn_vendor_extension: text("0x2"),
            rotational: Some(false),
        };
        let expected = r#"{"name":"s== /dev/sda","hctl":"s== 0:0:0:0","model":"<in> FAST","vendor":"<in> ACME","serial":"s== S1","wwn":"s== 0x1","wwn_with_extension":"s== 0x12","wwn_vendor_extension":"s== 0x2","size":">= 40","rotational":"false"}"#;
        assert_eq!(Value::Object(root_device(&hints)).to_string(), expected);
        let by_path = RootDeviceHints { device_name: text("/dev/disk/by-path/pci-0"), ..RootDeviceHints::default() };
        assert_eq!(Value::Object(root_device(&by_path)).to_string(), r#"{"by_path":"s== /dev/disk/by-path/pci-0"}"#);
        assert!(root_device(&RootDeviceHints::default()).is_empty());
    }
}
