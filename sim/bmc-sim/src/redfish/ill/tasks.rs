//! A task of an update of firmware that has failed, or is under way (schema Task).

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::super::{answer::Answer, tasks::TASK_TYPE};
use crate::{
    ailments::Ailment,
    bmc::{Bmc, lock},
};

const LIST: &str = "/redfish/v1/TaskService/Tasks";
/// Its id, beyond those of the simulator's own tasks.
const ID: &str = "900001";

fn exists(bmc: &Bmc) -> bool {
    bmc.settings.borrow().ailments.any(&[Ailment::TaskFailed, Ailment::TaskRunning])
}

/// Adds it to the collection.
pub fn list(bmc: &Bmc, mut tasks: Value) -> Value {
    if exists(bmc)
        && let Some(members) = tasks["Members"].as_array_mut()
    {
        members.push(json!({ "@odata.id": format!("{LIST}/{ID}") }));
        tasks["Members@odata.count"] = json!(tasks["Members"].as_array().map(Vec::len));
    }
    tasks
}

/// The task itself.
#[must_use]
pub fn task(bmc: &Bmc, id: &str) -> Option<Answer> {
    if id != ID || !exists(bmc) {
        return None;
    }
    let started = *lock(&bmc.ailing);
    let mut body = json!({
        "@odata.type": TASK_TYPE,
        "@odata.id": format!("{LIST}/{ID}"),
        "Id": ID,
        "Name": "Firmware Update of BIOS",
        "StartTime": started.to_string(),
        "TaskState": "Running",
        "TaskStatus": "OK",
        "PercentComplete": 35,
        "Messages": [],
    });
    if bmc.settings.borrow().ailments.has(Ailment::TaskFailed) {
        let text = "The image of the firmware was not accepted: its signature is not valid.";
        body["TaskState"] = json!("Exception");
        body["TaskStatus"] = json!("Critical");
        body["EndTime"] = json!((started + SignedDuration::from_secs(1)).to_string());
        body["Messages"] = json!([{
            "@odata.type": "#Message.v1_1_2.Message", "MessageId": "Update.1.0.VerificationFailed", "Message": text,
            "MessageArgs": ["BIOS", "/redfish/v1/UpdateService"], "MessageSeverity": "Critical",
            "Resolution": "Use an image that the maker has signed for this machine.",
        }]);
    }
    Some(Answer::resource(body))
}
