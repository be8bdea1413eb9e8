//! Why the power does not do what is asked of it.

use Certainty::{Certain, Likely, Possible};
use Code as C;

use super::words::has;
use crate::codes::Code;
use crate::evidence::{PartKind, Reading};
use crate::hit::{Case, Certainty, Hit, Phase};

/// Seconds after which power that does not follow is stuck.
const STUCK: u64 = 120;

pub(super) fn judge(case: &Case<'_>, hits: &mut Vec<Hit>) {
    let Reading::Read(power) = &case.evidence.power else { return };
    let off = case.is_off();
    if let Some(state) = power.intrusion.as_deref().filter(|state| has(state, &["intrusion", "tampering", "open"])) {
        let certainty = if off { Likely } else { Possible };
        hits.push(
            Hit::new("power.intrusion", C::ChassisOpen, certainty, format!("The intrusion sensor says {state}"))
                .minor(),
        );
    }
    if let Some(why) = power.blocked.as_deref() {
        hits.push(Hit::new("power.blocked", C::PowerOnBlocked, Certain, format!("The BMC says: {why}")));
    }
    if let Some(cap) = &power.cap {
        let beyond = cap.limit_watts.zip(cap.drawn_watts).is_some_and(|(limit, drawn)| limit > 0 && drawn >= limit);
        let switches = cap.exception.as_deref().is_some_and(|exception| has(exception, &["hardpoweroff"]));
        if beyond || (switches && off) {
            let text = format!(
                "{} W are drawn, the limit is {} W",
                cap.drawn_watts.unwrap_or(0),
                cap.limit_watts.unwrap_or(0)
            );
            hits.push(Hit::new("power.cap", C::PowerCapped, if off { Likely } else { Possible }, text));
        }
    }
    if power.redundancy.as_deref().is_some_and(|health| has(health, &["critical", "warning", "lost"])) {
        hits.push(
            Hit::new("power.redundancy", C::PowerRedundancyLost, Possible, "The redundancy of supplies is lost")
                .minor(),
        );
    }
    if let Some(order) = power.orders.last() {
        let refused = order.status.is_some_and(|status| (400..500).contains(&status));
        let listed = power.allowable_resets.contains(&order.reset);
        if refused && !power.allowable_resets.is_empty() && !listed {
            let text = format!("{} was refused; the BMC takes {}", order.reset, power.allowable_resets.join(", "));
            hits.push(Hit::new("power.reset-type", C::ResetNotAllowed, Certain, text).at(order.at));
        }
        let taken = order.status.is_none_or(|status| status < 400);
        if let Some(seconds) = order.not_followed_seconds.filter(|seconds| *seconds >= STUCK && taken) {
            let text = format!("{} was taken, and {seconds} seconds later the power has not followed", order.reset);
            let certainty = if case.phase == Phase::Power { Likely } else { Possible };
            hits.push(Hit::new("power.stuck", C::PowerStuck, certainty, text).at(order.at));
        }
    }
    supplies(case, off, hits);
}

/// Supplies are judged with the power's state: a machine that is on has what it needs.
fn supplies(case: &Case<'_>, off: bool, hits: &mut Vec<Hit>) {
    let Reading::Read(parts) = &case.evidence.parts else { return };
    for part in parts.iter().filter(|part| part.kind == PartKind::PowerSupply && part.input_good == Some(false)) {
        let certainty = if off { Certain } else { Likely };
        let text = format!("{} has no input", part.slot);
        hits.push(Hit::new("power.input", C::PowerInputLost, certainty, text).of(Some(part.into())));
    }
}
