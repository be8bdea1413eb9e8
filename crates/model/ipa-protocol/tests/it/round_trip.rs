//! What is written is read as it was, unknown fields beside it or not.

use std::collections::BTreeMap;

use ipa_protocol::{
    CommandFault, CommandResult, CommandStatus, Disk, ExecuteStep, Heartbeat, ImageInfo, InstallBootloader, Interface,
    Inventory, LookupConfig, Parameters, Secret, Step, StepDone, StepKind, StepsAnswer,
};
use proptest::option::of;
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// Written, with a field that nobody knows, and read again.
fn again<T: Serialize + DeserializeOwned>(value: &T, add_unknown: bool) -> T {
    let mut json = serde_json::to_value(value).unwrap();
    if add_unknown {
        json["a field of tomorrow"] = json!({ "deep": [1, null] });
    }
    serde_json::from_value(json).unwrap()
}

fn text() -> impl Strategy<Value = String> {
    "\\PC{0,12}"
}

fn maybe() -> impl Strategy<Value = Option<String>> {
    of(text())
}

fn kind() -> impl Strategy<Value = StepKind> {
    prop_oneof![Just(StepKind::Clean), Just(StepKind::Deploy), Just(StepKind::Service)]
}

fn object() -> impl Strategy<Value = Map<String, Value>> {
    prop::collection::btree_map("[a-z]{1,8}", (text(), any::<i64>(), any::<bool>()), 0..4).prop_map(|map| {
        map.into_iter().map(|(key, (text, number, truth))| (key, json!([text, number, truth, null]))).collect()
    })
}

fn interface() -> impl Strategy<Value = Interface> {
    (
        text(),
        maybe(),
        maybe(),
        any::<bool>(),
        of(prop::collection::vec((0_u16..128, "[0-9a-f]{0,8}"), 0..3)),
        of(any::<i64>()),
    )
        .prop_map(|(name, mac_address, ipv4_address, has_carrier, lldp, speed_mbps)| Interface {
            name,
            mac_address,
            ipv4_address,
            has_carrier,
            lldp,
            speed_mbps,
            ..Interface::default()
        })
}

fn disk() -> impl Strategy<Value = Disk> {
    (text(), of(any::<i64>()), of(any::<bool>()), maybe(), maybe())
        .prop_map(|(name, size, rotational, wwn, tran)| Disk { name, size, rotational, wwn, tran, ..Disk::default() })
}

fn step() -> impl Strategy<Value = Step> {
    (text(), any::<i64>(), text(), any::<bool>(), of(any::<bool>())).prop_map(
        |(step, priority, interface, reboot_requested, abortable)| Step {
            step,
            priority,
            interface,
            reboot_requested,
            abortable,
            argsinfo: None,
        },
    )
}

proptest! {
    #[test]
    fn heartbeats(callback_url in text(), token in maybe(), ca in maybe(), unknown in any::<bool>()) {
        let agent_token = token.map(Secret::new);
        let sent = Heartbeat { callback_url, agent_token, agent_verify_ca: ca, ..Heartbeat::default() };
        prop_assert_eq!(again(&sent, unknown), sent);
    }

    #[test]
    fn configs(timeout: u64, token in maybe(), formats in of(prop::collection::vec(text(), 0..3)), unknown: bool) {
        let sent = LookupConfig {
            heartbeat_timeout: timeout,
            agent_token: token.map(Secret::new),
            permitted_image_formats: formats,
            ..LookupConfig::default()
        };
        prop_assert_eq!(again(&sent, unknown), sent);
    }

    #[test]
    fn inventories(interfaces in prop::collection::vec(interface(), 0..3), disks in prop::collection::vec(disk(), 0..3), unknown: bool) {
        let sent = Inventory { interfaces, disks, ..Inventory::default() };
        prop_assert_eq!(again(&sent, unknown), sent);
    }

    #[test]
    fn results(
        id in text(), name in text(), fault in of((text(), any::<u16>(), text(), text())), result in of(object()), unknown: bool,
        status in prop_oneof![Just(CommandStatus::Running), Just(CommandStatus::Succeeded), Just(CommandStatus::Failed),
            Just(CommandStatus::VersionMismatch)],
    ) {
        let sent = CommandResult {
            id,
            command_name: name,
            command_status: status,
            command_error: fault.map(|(kind, code, message, details)| CommandFault { kind, code, message, details }),
            command_result: result.map(Value::Object),
        };
        prop_assert_eq!(again(&sent, unknown), sent);
    }

    #[test]
    fn steps(
        kind in kind(), by_manager in prop::collection::btree_map(text(), prop::collection::vec(step(), 0..3), 0..3),
        versions in prop::collection::btree_map(text(), text(), 0..3), args in object(),
    ) {
        let listed = StepsAnswer { steps: by_manager, versions: versions.clone() };
        prop_assert_eq!(&StepsAnswer::from_value(kind, &listed.to_value(kind)).unwrap(), &listed);
        let mut order = ExecuteStep::new("deploy", "a_step", args);
        order.versions = Some(versions);
        order.ports = vec![json!({ "address": "x" })];
        let read = ExecuteStep::from_params(kind, order.to_params(kind)).unwrap();
        prop_assert_eq!(&read, &order);
        let done = StepDone { result: Value::Null, step: read.step };
        prop_assert_eq!(&StepDone::from_value(kind, &done.to_value(kind)).unwrap(), &done);
    }

    #[test]
    fn images(
        id in text(), urls in prop::collection::vec(text(), 0..3), checksum in maybe(), drive in maybe(),
        proxies in of(prop::collection::btree_map(text(), text(), 0..2)), root_mb in of(any::<i64>()),
    ) {
        let mut others = Map::new();
        others.insert("root_mb".to_owned(), json!(root_mb));
        let proxies = proxies.map(|map| map.into_iter().map(|(key, value)| (key, Secret::new(value))).collect::<BTreeMap<_, _>>());
        let sent = ImageInfo { id, urls, checksum, configdrive: drive.map(Secret::new), proxies, others, ..ImageInfo::default() };
        prop_assert_eq!(again(&sent, false), sent);
    }

    #[test]
    fn boot_loaders(root in maybe(), mode in maybe(), ignore in of(any::<bool>()), unknown: bool) {
        let sent = InstallBootloader { root_uuid: root, target_boot_mode: mode, ignore_bootloader_failure: ignore, ..InstallBootloader::default() };
        prop_assert_eq!(again(&sent, unknown), sent);
    }

    #[test]
    fn parameters(given in prop::collection::btree_map("[a-z-]{1,12}", "[!#-~]{0,12}", 0..8)) {
        let mut wanted = Parameters::default();
        for (name, value) in &given {
            wanted.set(name, value.clone());
        }
        prop_assert_eq!(&Parameters::parse(&wanted.to_command_line().unwrap()).unwrap(), &wanted);
        prop_assert_eq!(&Parameters::parse(&wanted.to_file().unwrap()).unwrap(), &wanted);
    }

    #[test]
    fn any_text_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Parameters::parse(&String::from_utf8_lossy(&bytes));
        let _ = ipa_protocol::api_error(&bytes);
        let _ = ipa_protocol::read::<CommandResult>("it", &bytes, 1000);
        let _ = ipa_protocol::read::<ipa_protocol::InspectionData>("it", &bytes, 1000);
    }
}
