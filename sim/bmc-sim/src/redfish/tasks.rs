//! The task service: actions that are answered before they are done.

use axum::http::header;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{answer::Answer, collection::collection};

/// Most tasks kept; the oldest are dropped first.
const MAX_TASKS: usize = 256;
/// Type of a task's resource.
pub const TASK_TYPE: &str = "#Task.v1_7_4.Task";

struct Task {
    id: u64,
    name: String,
    started: Timestamp,
    ended: Option<(Timestamp, Answer)>,
}

impl Task {
    fn resource(&self) -> Value {
        let mut body = json!({
            "@odata.type": TASK_TYPE,
            "@odata.id": format!("/redfish/v1/TaskService/Tasks/{}", self.id),
            "Id": self.id.to_string(),
            "Name": self.name,
            "TaskMonitor": monitor(self.id),
            "StartTime": self.started.to_string(),
            "TaskState": "Running",
            "TaskStatus": "OK",
            "PercentComplete": 0,
            "Messages": [],
        });
        if let Some((at, answer)) = &self.ended {
            let well = answer.status < 400;
            body["TaskState"] = json!(if well { "Completed" } else { "Exception" });
            body["TaskStatus"] = json!(if well { "OK" } else { "Critical" });
            body["PercentComplete"] = json!(100);
            body["EndTime"] = json!(at.to_string());
            let messages = answer.body.as_ref().map(|body| &body["error"]["@Message.ExtendedInfo"]);
            if let Some(messages) = messages.filter(|messages| messages.is_array()) {
                body["Messages"] = messages.clone();
            }
        }
        body
    }
}

fn monitor(id: u64) -> String {
    format!("/redfish/v1/TaskService/TaskMonitors/{id}")
}

/// The tasks of one BMC.
#[derive(Default)]
pub struct Tasks {
    last: u64,
    tasks: Vec<Task>,
}

impl Tasks {
    /// Begins a task; returns its number and the answer for the client: 202 with the monitor's address.
    pub fn begin(&mut self, name: &str, now: Timestamp) -> (u64, Answer) {
        self.last += 1;
        let task = Task { id: self.last, name: name.to_owned(), started: now, ended: None };
        let answer = Self::accepted(&task);
        self.tasks.push(task);
        if self.tasks.len() > MAX_TASKS {
            self.tasks.remove(0);
        }
        (self.last, answer)
    }

    fn accepted(task: &Task) -> Answer {
        let mut answer = Answer::resource(task.resource());
        answer.status = 202;
        answer.with(header::LOCATION, monitor(task.id)).with(header::RETRY_AFTER, "1")
    }

    /// Ends a task with its action's answer.
    pub fn end(&mut self, id: u64, answer: Answer, now: Timestamp) {
        if let Some(task) = self.tasks.iter_mut().find(|task| task.id == id) {
            task.ended = Some((now, answer));
        }
    }

    /// The collection.
    #[must_use]
    pub fn collection(&self) -> Value {
        let path = "/redfish/v1/TaskService/Tasks";
        let members = self.tasks.iter().map(|task| format!("{path}/{}", task.id));
        collection(path, "TaskCollection", "Task Collection", members)
    }

    /// A task's resource.
    #[must_use]
    pub fn task(&self, id: &str) -> Option<Answer> {
        let task = self.tasks.iter().find(|task| task.id.to_string() == id)?;
        Some(Answer::resource(task.resource()))
    }

    /// The answer of a task's monitor: 202 while it runs, then the action's answer.
    #[must_use]
    pub fn monitor(&self, id: &str) -> Option<Answer> {
        let task = self.tasks.iter().find(|task| task.id.to_string() == id)?;
        Some(task.ended.as_ref().map_or_else(|| Self::accepted(task), |(_, answer)| answer.clone()))
    }
}
