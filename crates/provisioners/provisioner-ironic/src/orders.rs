//! What a node's state says of an order that was recorded before it was made. Pure.
//!
//! The order may not have reached Ironic, because this process was killed in between; and Ironic may have lost the node since, and have another one
//! under the same id. Both are seen by what was recorded with the order: the node's state, when it came into it, and when the node was made. Ironic's times count
//! seconds: an order that came to its end within the second in which the node had come into its state before is taken for one that was not made. It is
//! then made again, which only matters to a process that was killed meanwhile; one that lives remembers that its order was accepted.

use serde::{Deserialize, Serialize};

use crate::node::{Node, State, Verb};

/// An order, as it is recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Order {
    /// What is ordered.
    pub verb: Verb,
    /// Counts the orders of a work, from 1.
    pub number: u32,
    /// State of the node before.
    pub from: String,
    /// Since when it had been in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// When the node was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<String>,
    /// Its disks are cleaned by it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cleans: bool,
}

/// What has become of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has not reached Ironic.
    NotMade,
    /// It is carried out.
    Running,
    /// It came to its end.
    Came,
    /// It failed.
    Failed,
    /// The node is somewhere else: Ironic has lost it since, or somebody has ordered something else.
    Elsewhere,
}

impl Order {
    /// An order to a node that is so.
    pub fn of(verb: Verb, number: u32, node: &Node, cleans: bool) -> Self {
        let (from, since, made) =
            (node.provision_state.clone(), node.provision_updated_at.clone(), node.created_at.clone());
        Self { verb, number, from, since, made, cleans }
    }

    /// Whether nothing is deployed when it has come to its end.
    pub const fn removes(&self) -> bool {
        matches!(self.verb, Verb::Deleted | Verb::Provide)
    }

    /// Whether it is the same order to a node that is still the same.
    pub fn is_same(&self, other: &Self) -> bool {
        *self == Self { number: self.number, ..other.clone() }
    }

    /// What has become of it. `accepted`: this process knows that Ironic took it.
    pub fn standing(&self, node: &Node, accepted: bool) -> Standing {
        // A node out of a list does not tell; what is concluded of it is concluded again of the node itself.
        if node.created_at.is_some() && node.created_at != self.made {
            return Standing::Elsewhere;
        }
        let unchanged = node.provision_state == self.from && node.provision_updated_at == self.since;
        if unchanged && !accepted {
            return Standing::NotMade;
        }
        match (self.verb, node.state()) {
            // A step on the way: where it leads is seen by the node.
            (Verb::Manage | Verb::Abort | Verb::Adopt, _) => Standing::Came,
            (Verb::Active, State::Deploying | State::DeployWait | State::DeployHold)
            | (Verb::Inspect, State::Inspecting | State::InspectWait)
            | (Verb::Provide | Verb::Clean, State::Cleaning | State::CleanWait | State::CleanHold)
            | (Verb::Deleted, State::Deleting | State::Cleaning | State::CleanWait | State::CleanHold)
            | (Verb::Service, State::Servicing | State::ServiceWait | State::ServiceHold) => Standing::Running,
            (Verb::Active | Verb::Service, State::Active)
            | (Verb::Inspect | Verb::Clean, State::Manageable)
            | (Verb::Provide | Verb::Deleted, State::Available) => Standing::Came,
            (Verb::Active, State::DeployFailed)
            | (Verb::Inspect, State::InspectFailed)
            | (Verb::Provide | Verb::Clean, State::CleanFailed)
            | (Verb::Deleted, State::CleanFailed | State::Error)
            | (Verb::Service, State::ServiceFailed) => Standing::Failed,
            _ => Standing::Elsewhere,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(state: &str, second: u32) -> Node {
        Node {
            provision_state: state.into(),
            provision_updated_at: Some(format!("2026-01-01T00:00:{second:02}+00:00")),
            created_at: Some("2026-01-01T00:00:00+00:00".into()),
            ..Node::default()
        }
    }

    #[test]
    fn an_order_stands_as_the_node_shows() {
        let order = Order::of(Verb::Active, 1, &node("available", 5), false);
        assert_eq!(order.standing(&node("available", 5), false), Standing::NotMade);
        assert_eq!(order.standing(&node("deploying", 5), false), Standing::Running);
        assert_eq!(order.standing(&node("wait call-back", 7), false), Standing::Running);
        assert_eq!(order.standing(&node("active", 9), false), Standing::Came);
        assert_eq!(order.standing(&node("deploy failed", 9), false), Standing::Failed);
        assert_eq!(order.standing(&node("available", 9), false), Standing::Elsewhere, "somebody has removed it");
    }

    #[test]
    fn a_node_that_was_made_anew_has_lost_the_order() {
        let order = Order::of(Verb::Inspect, 1, &node("manageable", 5), false);
        let mut anew = node("manageable", 9);
        assert_eq!(order.standing(&anew, false), Standing::Came);
        anew.created_at = Some("2026-01-01T00:00:08+00:00".into());
        assert_eq!(order.standing(&anew, true), Standing::Elsewhere);
    }

    #[test]
    fn what_was_accepted_was_made_though_the_node_looks_as_before() {
        let order = Order::of(Verb::Clean, 1, &node("manageable", 5), true);
        assert_eq!(order.standing(&node("manageable", 5), false), Standing::NotMade);
        assert_eq!(order.standing(&node("manageable", 5), true), Standing::Came);
    }

    #[test]
    fn the_same_order_is_not_recorded_twice() {
        let first = Order::of(Verb::Active, 1, &node("available", 5), false);
        assert!(first.is_same(&Order::of(Verb::Active, 2, &node("available", 5), false)));
        assert!(!first.is_same(&Order::of(Verb::Active, 2, &node("available", 6), false)));
    }
}
