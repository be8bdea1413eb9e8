//! Which verb brings a node from where it is to where work begins. Pure.
//!
//! Ironic's machine is drawn in `ironic/common/states.py`. What it works on itself is waited for; what waits for an agent is aborted; failures are
//! left by `manage`, or by `deleted` where a system is on the machine.

use crate::node::{Node, State, Verb};

/// Where work begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// To be inspected or cleaned.
    Manageable,
    /// To be deployed.
    Available,
}

/// What leads there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// It is there.
    There,
    /// This verb is next.
    Put(Verb),
    /// It has to leave maintenance first.
    LeaveMaintenance,
    /// Ironic is at work on it.
    Wait,
    /// Nothing can be ordered, for a fault or in a state that does not end by itself.
    Faulty,
    /// Its BMC has not been verified.
    Register,
    /// A system is on the machine, and is to stay there.
    Deployed,
}

/// The next step on the way. With `removes`, a system that is on the machine may be removed.
pub fn way(goal: Goal, node: &Node, removes: bool, aborts_deployments: bool) -> Way {
    let state = node.state();
    let next = match state {
        State::Enroll => return Way::Register,
        State::Manageable if goal == Goal::Manageable => None,
        State::Available if goal == Goal::Available => None,
        State::Manageable => Some(Verb::Provide),
        State::Available | State::InspectFailed | State::CleanFailed | State::AdoptFailed => Some(Verb::Manage),
        State::InspectWait | State::CleanHold => Some(Verb::Abort),
        // Automated cleaning ends by itself; steps that somebody has ordered are broken off.
        State::CleanWait if node.target_provision_state.as_deref() == Some("available") => return Way::Wait,
        State::CleanWait => Some(Verb::Abort),
        state if state.holds_lock() => return Way::Wait,
        state if state.is_deployed() && !removes => return Way::Deployed,
        State::DeployHold | State::ServiceWait | State::ServiceHold | State::ServiceFailed => Some(Verb::Abort),
        State::DeployWait if aborts_deployments => Some(Verb::Abort),
        State::DeployWait | State::DeployFailed | State::Active | State::Error | State::Rescue => Some(Verb::Deleted),
        _ => return Way::Faulty,
    };
    if node.lasting_fault().is_some() {
        return Way::Faulty;
    }
    // Aborting is allowed in maintenance, and what is aborted may have caused it; but not of a service that has failed (`_do_abort`).
    if node.maintenance && (next != Some(Verb::Abort) || state == State::ServiceFailed) {
        return Way::LeaveMaintenance;
    }
    next.map_or(Way::There, Way::Put)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn node(state: &str, target: Option<&str>) -> Node {
        Node { provision_state: state.into(), target_provision_state: target.map(Into::into), ..Node::default() }
    }

    /// Where a verb leads (`ironic/common/states.py`), with the state at which it comes to rest if nothing fails.
    fn after(state: State, verb: Verb) -> &'static str {
        match (state, verb) {
            (State::Available, Verb::Manage)
            | (State::InspectFailed | State::CleanFailed | State::AdoptFailed, Verb::Manage) => "manageable",
            (State::Manageable, Verb::Provide) => "available",
            (State::InspectWait, Verb::Abort) => "inspect failed",
            (State::CleanWait | State::CleanHold, Verb::Abort) => "clean failed",
            (State::DeployWait | State::DeployHold, Verb::Abort) => "deploy failed",
            (State::ServiceWait | State::ServiceHold, Verb::Abort) => "service failed",
            (State::ServiceFailed, Verb::Abort) => "active",
            (State::Active | State::DeployWait | State::DeployFailed | State::Error | State::Rescue, Verb::Deleted) => {
                "available"
            }
            other => panic!("the machine has no {other:?}"),
        }
    }

    #[test]
    fn from_every_state_each_goal_is_reached_by_verbs_that_the_state_allows() {
        for goal in [Goal::Manageable, Goal::Available] {
            for (removes, aborts) in [(true, true), (true, false), (false, true)] {
                for (start, _) in STATES {
                    let mut at = node(start, None);
                    let mut seen = HashSet::new();
                    loop {
                        assert!(seen.insert(at.provision_state.clone()), "{start} goes in a circle");
                        match way(goal, &at, removes, aborts) {
                            Way::Put(verb) => at = node(after(at.state(), verb), None),
                            Way::There => break,
                            Way::Deployed => {
                                assert!(!removes && at.state().is_deployed(), "{start}");
                                break;
                            }
                            Way::Wait => {
                                assert!(at.state().holds_lock(), "{start}");
                                break;
                            }
                            Way::Faulty => {
                                assert_eq!(at.state(), State::Other, "{start}");
                                break;
                            }
                            Way::Register => {
                                assert_eq!(start, "enroll");
                                break;
                            }
                            Way::LeaveMaintenance => panic!("{start} is not in maintenance"),
                        }
                    }
                }
            }
        }
    }

    const STATES: [(&str, ()); 27] = [
        ("enroll", ()),
        ("verifying", ()),
        ("manageable", ()),
        ("available", ()),
        ("inspecting", ()),
        ("inspect wait", ()),
        ("inspect failed", ()),
        ("cleaning", ()),
        ("clean wait", ()),
        ("clean hold", ()),
        ("clean failed", ()),
        ("deploying", ()),
        ("wait call-back", ()),
        ("deploy hold", ()),
        ("deploy failed", ()),
        ("active", ()),
        ("deleting", ()),
        ("error", ()),
        ("adopting", ()),
        ("adopt failed", ()),
        ("servicing", ()),
        ("service wait", ()),
        ("service hold", ()),
        ("service failed", ()),
        ("rescue", ()),
        ("unrescue failed", ()),
        ("of another version", ()),
    ];

    #[test]
    fn cleaning_that_ironic_began_itself_is_waited_for() {
        assert_eq!(way(Goal::Available, &node("clean wait", Some("available")), true, true), Way::Wait);
        assert_eq!(way(Goal::Available, &node("clean wait", Some("manageable")), true, true), Way::Put(Verb::Abort));
    }

    #[test]
    fn maintenance_is_left_unless_ironic_has_a_fault_of_its_own() {
        let mut at = Node { maintenance: true, fault: Some("clean failure".into()), ..node("clean failed", None) };
        assert_eq!(way(Goal::Manageable, &at, true, true), Way::LeaveMaintenance);
        at.fault = Some("power failure".into());
        assert_eq!(way(Goal::Manageable, &at, true, true), Way::Faulty);
        at.provision_state = "manageable".into();
        assert_eq!(way(Goal::Manageable, &at, true, true), Way::Faulty, "nothing can be ordered there");
        at.fault = None;
        assert_eq!(way(Goal::Manageable, &at, true, true), Way::LeaveMaintenance);
    }
}
