//! Ironic's root device hints as ours. What ours cannot say is refused: another disk would be overwritten.

use inventory::RootDeviceHints;
use serde_json::{Map, Value};

/// Longest value, in bytes.
const MAX_VALUE: usize = 512;

/// The hints that hold for a node: those of the instance, else those of the machine (`A:hardware.py`, `get_os_install_device`).
pub(super) fn of_node(node: &Value) -> Result<RootDeviceHints, String> {
    let named =
        |place: &str| node.get(place).and_then(|place| place.get("root_device")).filter(|hints| !hints.is_null());
    match named("instance_info").or_else(|| named("properties")) {
        None => Ok(RootDeviceHints::default()),
        Some(Value::Object(hints)) => translated(hints),
        Some(_) => Err("the node's root_device is no object".to_owned()),
    }
}

/// Translates hints (`A:device_hints.py`; oslo.utils' `specs_matcher` for the operators).
fn translated(hints: &Map<String, Value>) -> Result<RootDeviceHints, String> {
    let mut ours = RootDeviceHints::default();
    for (name, value) in hints {
        let text = match value {
            Value::String(text) if text.len() <= MAX_VALUE => text.trim().to_owned(),
            Value::Number(_) | Value::Bool(_) => value.to_string(),
            _ => return Err(format!("the root device hint {name} has no usable value")),
        };
        let place = match name.as_str() {
            "size" => {
                let least = text.strip_prefix(">=").or_else(|| text.strip_prefix("= ")).map(str::trim);
                let least = least.and_then(|size| size.parse().ok());
                ours.min_size_gigabytes = Some(least.ok_or_else(|| unknown(name, &text, "\">= GIB\""))?);
                continue;
            }
            "rotational" => {
                let word = text.to_ascii_lowercase();
                let truth = ["true", "1", "yes", "on"].contains(&word.as_str());
                if !truth && !["false", "0", "no", "off"].contains(&word.as_str()) {
                    return Err(unknown(name, &text, "true and false"));
                }
                ours.rotational = Some(truth);
                continue;
            }
            "model" | "vendor" => {
                let part =
                    text.strip_prefix("<in>").map(str::trim).filter(|part| !part.is_empty() && !part.contains('<'));
                let part = part.ok_or_else(|| unknown(name, &text, "\"<in> TEXT\""))?.to_owned();
                if name == "model" {
                    ours.model = Some(part)
                } else {
                    ours.vendor = Some(part)
                }
                continue;
            }
            "serial" => &mut ours.serial_number,
            "wwn" => &mut ours.wwn,
            "wwn_with_extension" => &mut ours.wwn_with_extension,
            "wwn_vendor_extension" => &mut ours.wwn_vendor_extension,
            "hctl" => &mut ours.hctl,
            "name" | "by_path" if ours.device_name.is_some() => {
                return Err("the root device hints have both name and by_path, of which one is served".to_owned());
            }
            "name" | "by_path" => &mut ours.device_name,
            _ => return Err(format!("the root device hint {name} is not served")),
        };
        *place = Some(equal(&text).ok_or_else(|| unknown(name, &text, "\"s== TEXT\""))?);
    }
    Ok(ours)
}

/// The text that a hint is to be equal to; `None` with another operator.
fn equal(text: &str) -> Option<String> {
    let word = text.split_whitespace().next().unwrap_or_default();
    let value = match word {
        "s==" | "==" => text.strip_prefix(word).unwrap_or_default().trim(),
        _ if word.starts_with(['<', '>', '=', '!'])
            || word.starts_with("s!")
            || word.starts_with("s<")
            || word.starts_with("s>") =>
        {
            return None;
        }
        _ => text,
    };
    (!value.is_empty()).then(|| value.to_owned())
}

fn unknown(name: &str, text: &str, known: &str) -> String {
    format!("the root device hint {name}={text:?} is not served: {known} is")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn hints(value: Value) -> Result<RootDeviceHints, String> {
        of_node(&json!({ "properties": { "root_device": value } }))
    }

    #[test]
    fn what_baremetal_operator_writes_is_understood() {
        let read = hints(json!({
            "size": ">= 20", "model": "<in> Fast", "vendor": "<in> Maker", "serial": "s== S1", "wwn": "0x5", "hctl": "s== 0:0:0:1",
            "rotational": "false", "by_path": "s== /dev/disk/by-path/x"
        }));
        let read = read.unwrap();
        assert_eq!((read.min_size_gigabytes, read.rotational), (Some(20), Some(false)));
        assert_eq!((read.model.as_deref(), read.serial_number.as_deref()), (Some("Fast"), Some("S1")));
        assert_eq!((read.wwn.as_deref(), read.device_name.as_deref()), (Some("0x5"), Some("/dev/disk/by-path/x")));
        let both = json!({ "instance_info": { "root_device": { "name": "/dev/sdb" } }, "properties": { "root_device": { "serial": "S1" } } });
        let both = of_node(&both).unwrap();
        assert_eq!(
            (both.device_name.as_deref(), both.serial_number),
            (Some("/dev/sdb"), None),
            "the instance's go before"
        );
        assert!(of_node(&json!({ "properties": {} })).unwrap().is_empty());
    }

    #[test]
    fn what_would_choose_another_disk_is_refused() {
        for bad in [
            json!({ "size": 20 }),
            json!({ "size": "<= 20" }),
            json!({ "model": "Fast" }),
            json!({ "model": "<or> a <or> b" }),
            json!({ "serial": "s!= S1" }),
            json!({ "serial": "<in> S" }),
            json!({ "serial": "s== " }),
            json!({ "rotational": "perhaps" }),
            json!({ "tran": "nvme" }),
            json!({ "name": "/dev/sda", "by_path": "/dev/disk/by-path/x" }),
            json!({ "wwn": ["0x5"] }),
            json!("size"),
        ] {
            assert!(hints(bad.clone()).is_err(), "{bad}");
        }
    }
}
