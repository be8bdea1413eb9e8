//! Messages in the shape that Ironic 39 and ironic-python-agent 13 give them.

use ipa_protocol::{
    CommandList, CommandRequest, CommandStatus, ExecuteStep, InspectionData, LookupAnswer, MAX_COMMAND_BYTES,
    MAX_INSPECTION_BYTES, MAX_LOOKUP_BYTES, MAX_RESULT_BYTES, PrepareImage, StepDone, StepKind, StepsAnswer, read,
};
use serde_json::Value;

#[test]
fn a_lookups_answer() {
    let answer: LookupAnswer =
        read("the lookup's answer", include_bytes!("../fixtures/lookup.json"), MAX_LOOKUP_BYTES).unwrap();
    assert_eq!(answer.node.uuid, "8a1d0c6e-1f6a-4a2c-9d55-3f0f6f4b7a11");
    assert_eq!(answer.node.properties["root_device"]["serial"], "s== disk-1");
    assert_eq!(answer.config.heartbeat_timeout, 300);
    assert!(answer.config.token().is_some() && answer.config.agent_skip_bmc_detect);
    assert_eq!(answer.config.tls_min_version.as_deref(), Some("1.3"));
    let shown = format!("{answer:?}");
    assert!(!shown.contains("0123456789abcdef") && !shown.contains("192.0.2.1/os.raw"), "{shown}");
}

#[test]
fn commands_and_their_results() {
    let list: CommandList =
        read("the commands", include_bytes!("../fixtures/commands.json"), MAX_RESULT_BYTES).unwrap();
    let [listed, mismatch, done, last] = list.commands.as_slice() else { panic!("{list:?}") };
    let steps = StepsAnswer::from_value(StepKind::Clean, listed.command_result.as_ref().unwrap()).unwrap();
    assert_eq!(steps.steps["GenericHardwareManager"][0].step, "erase_devices");
    assert_eq!(steps.versions["generic_hardware_manager"], "1.2");
    assert!(StepsAnswer::from_value(StepKind::Deploy, listed.command_result.as_ref().unwrap()).is_err());
    assert_eq!(mismatch.command_status, CommandStatus::VersionMismatch);
    assert_eq!(mismatch.command_error.as_ref().unwrap().text(), "1.1 and 1.2");
    let done = StepDone::from_value(StepKind::Clean, done.command_result.as_ref().unwrap()).unwrap();
    assert_eq!(done.step["step"], "erase_devices_metadata");
    assert_eq!(last.command_status, CommandStatus::Running);
    let written = serde_json::to_value(&list).unwrap();
    let original: Value = serde_json::from_slice(include_bytes!("../fixtures/commands.json")).unwrap();
    assert_eq!(written, original, "what is written is what was read");
}

#[test]
fn an_order_to_write_an_image() {
    let original: Value = serde_json::from_slice(include_bytes!("../fixtures/execute_deploy_step.json")).unwrap();
    let order: CommandRequest =
        read("the order", include_bytes!("../fixtures/execute_deploy_step.json"), MAX_COMMAND_BYTES).unwrap();
    assert_eq!(order.name, StepKind::Deploy.execute_command());
    assert_eq!(StepKind::of_extension(order.parts().unwrap().0), Some(StepKind::Deploy));
    let step = ExecuteStep::from_params(StepKind::Deploy, order.params).unwrap();
    assert_eq!(Value::Object(step.to_params(StepKind::Deploy)), original["params"]);
    assert_eq!((step.name(), step.arg("nothing")), (Some("write_image"), None));
    let image: PrepareImage = serde_json::from_value(step.step["args"].clone()).unwrap();
    assert!(!image.image_info.is_partition());
    assert_eq!(image.configdrive.as_ref().unwrap().reveal(), "H4sIAAAA");
    assert_eq!(image.image_info.others.keys().collect::<Vec<_>>(), ["root_mb"]);
    let shown = format!("{step:?} {image:?}");
    assert!(!shown.contains("H4sI") && !shown.contains("user:pw"), "{shown}");
}

#[test]
fn inspection_data() {
    let bytes = include_bytes!("../fixtures/inspection.json");
    let data: InspectionData = read("the inspection data", bytes, MAX_INSPECTION_BYTES).unwrap();
    assert_eq!(data.inventory.interfaces[0].lldp.as_ref().unwrap()[1], (2, "0545746831".to_owned()));
    assert_eq!(data.others.keys().collect::<Vec<_>>(), ["numa_topology"]);
    let written = serde_json::to_value(&data).unwrap();
    let original: Value = serde_json::from_slice(bytes).unwrap();
    assert_eq!(written["inventory"], original["inventory"], "each field is there, null where nothing is known");
    assert_eq!(read::<InspectionData>("it", &serde_json::to_vec(&data).unwrap(), 1 << 20).unwrap(), data);
}
