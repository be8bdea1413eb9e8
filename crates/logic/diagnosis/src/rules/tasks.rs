//! What tasks and jobs of the BMC have come to.

use Certainty::{Certain, Possible};
use Code as C;

use super::words::has;
use crate::codes::Code;
use crate::evidence::{Reading, Task, TaskKind};
use crate::hit::{Case, Certainty, Hit};

pub(super) fn judge(case: &Case<'_>, hits: &mut Vec<Hit>) {
    let Reading::Read(tasks) = &case.evidence.tasks else { return };
    for task in tasks {
        let state = task.state.as_deref().unwrap_or_default();
        // `Exception`, `Killed`, `Cancelled` (DSP0268, Task); `Failed`, `CompletedWithErrors` (vendors' jobs).
        if has(state, &["exception", "killed", "fail", "witherrors"]) {
            failed(case, task, state, hits);
        } else if has(state, &["suspended", "interrupted", "stuck"]) {
            let text = format!("Task {} ({}) is {state}", task.id, task.name);
            hits.push(Hit::new("tasks.stuck", C::TaskStuck, Possible, text).at(task.started).minor());
        }
    }
}

fn failed(case: &Case<'_>, task: &Task, state: &str, hits: &mut Vec<Hit>) {
    let (rule, code) = match task.kind {
        TaskKind::Firmware => ("tasks.firmware", C::FirmwareUpdateFailed),
        TaskKind::Bios => ("tasks.bios", C::BiosSettingsRefused),
        TaskKind::Raid => ("tasks.raid", C::RaidTaskFailed),
        TaskKind::VirtualMedia => ("tasks.media", C::MediaUnreachable),
        TaskKind::Other => return,
    };
    let message = task.messages.iter().find(|message| !message.text.is_empty());
    let said = message.map(|message| format!(": {} {}", message.id, message.text)).unwrap_or_default();
    let ended = task.ended.or(task.started);
    let fresh = case.is_since_good(ended);
    let text = format!("Task {} ({}) ended as {state}{said}", task.id, task.name);
    let mut hit = Hit::new(rule, code, if fresh { Certain } else { Possible }, text).at(ended);
    hit.past = !fresh;
    hits.push(hit.advise(task.messages.iter().find_map(|message| message.resolution.as_ref())));
}
