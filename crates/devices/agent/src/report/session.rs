//! The agent's reaction to directives: fencing, execution at most once, and leaving only after the acknowledgement. No IO.

use std::collections::VecDeque;

use agent_protocol::{
    Action, AgentState, Command, CommandError, CommandId, Directive, ErrorCode, Leave, Outcome, Progress,
};

/// Outcomes remembered, so that a repeated command is answered and not run again.
const MAX_REMEMBERED: usize = 32;

/// What to do after a directive.
#[derive(Debug, PartialEq)]
pub enum Next {
    /// Report again when something happens.
    Nothing,
    /// Report at once.
    Report,
    /// Start this command; the state says already that it runs.
    Start(Box<Command>),
    /// Leave the machine.
    Leave(Leave),
}

/// State of the conversation.
#[derive(Debug)]
pub struct Session {
    boot_id: String,
    state: AgentState,
    /// How to leave, if the current outcome is [`Outcome::Leaving`].
    leaving: Option<Leave>,
    remembered: VecDeque<(CommandId, Outcome)>,
}

impl Session {
    /// An idle agent of this boot.
    #[must_use]
    pub fn new(boot_id: impl Into<String>) -> Self {
        Self { boot_id: boot_id.into(), state: AgentState::Idle, leaving: None, remembered: VecDeque::new() }
    }

    /// The state to report.
    #[must_use]
    pub fn state(&self) -> &AgentState {
        &self.state
    }

    /// The running command is this far.
    pub fn progress(&mut self, now: Progress) {
        if let AgentState::Running { progress, .. } = &mut self.state {
            *progress = now;
        }
    }

    /// The running command has ended.
    pub fn finish(&mut self, outcome: Outcome) {
        if let AgentState::Running { command, .. } = &self.state {
            let command = command.clone();
            self.conclude(command, outcome);
        }
    }

    fn conclude(&mut self, command: CommandId, outcome: Outcome) {
        self.remembered.retain(|(id, _)| *id != command);
        self.remembered.push_back((command.clone(), outcome.clone()));
        if self.remembered.len() > MAX_REMEMBERED {
            self.remembered.pop_front();
        }
        self.state = AgentState::Finished { command, outcome };
    }

    /// Handles the server's answer to the last report.
    pub fn receive(&mut self, directive: Directive) -> Next {
        if let (AgentState::Finished { command, outcome }, Some(id)) = (&self.state, &directive.acknowledged)
            && command == id
        {
            let left = *outcome == Outcome::Leaving;
            self.state = AgentState::Idle;
            if let Some(how) = self.leaving.take().filter(|_| left) {
                return Next::Leave(how);
            }
        }
        match directive.command {
            Some(command) => self.command(command),
            None => Next::Nothing,
        }
    }

    fn command(&mut self, command: Command) -> Next {
        match &self.state {
            // one at a time: the server sees the running command and sends its next one again
            AgentState::Running { .. } => return Next::Nothing,
            AgentState::Finished { command: finished, .. } if *finished == command.id => return Next::Nothing,
            _ => {}
        }
        self.leaving = None;
        if command.id.boot_id != self.boot_id {
            let message = format!(
                "the command is for the boot {}, this machine has booted anew since ({})",
                command.id.boot_id, self.boot_id
            );
            self.conclude(
                command.id,
                Outcome::Failed(CommandError { code: ErrorCode::Refused, message, untouched: false }),
            );
            return Next::Report;
        }
        if let Action::Leave { how } = command.action {
            self.leaving = Some(how);
            self.conclude(command.id, Outcome::Leaving);
            return Next::Report;
        }
        if let Some((id, outcome)) = self.remembered.iter().find(|(id, _)| *id == command.id).cloned() {
            self.state = AgentState::Finished { command: id, outcome };
            return Next::Report;
        }
        self.state = AgentState::Running { command: command.id.clone(), progress: Progress::default() };
        Next::Start(Box::new(command))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(operation: &str) -> CommandId {
        CommandId { operation: operation.into(), step: "s".into(), attempt: 1, boot_id: "boot".into() }
    }

    fn order(operation: &str, action: Action) -> Directive {
        Directive { acknowledged: None, command: Some(Command { id: id(operation), action }) }
    }

    fn acknowledge(operation: &str) -> Directive {
        Directive { acknowledged: Some(id(operation)), command: None }
    }

    fn leave(operation: &str) -> Directive {
        order(operation, Action::Leave { how: Leave::Reboot })
    }

    #[test]
    fn a_command_runs_once_however_often_it_is_sent() {
        let mut session = Session::new("boot");
        assert!(matches!(session.receive(order("a", Action::Inspect)), Next::Start(_)));
        assert_eq!(session.receive(order("a", Action::Inspect)), Next::Nothing);
        assert_eq!(session.receive(order("b", Action::Inspect)), Next::Nothing, "one at a time");
        session.finish(Outcome::Wiped { disks: vec![], left: vec![] });
        assert_eq!(session.receive(order("a", Action::Inspect)), Next::Nothing);
        assert_eq!(session.receive(acknowledge("b")), Next::Nothing);
        assert!(matches!(session.state(), AgentState::Finished { .. }), "another's acknowledgement does not count");
        assert_eq!(session.receive(acknowledge("a")), Next::Nothing);
        assert_eq!(*session.state(), AgentState::Idle);
        assert_eq!(session.receive(order("a", Action::Inspect)), Next::Report, "told again, not run again");
        assert!(matches!(session.state(), AgentState::Finished { outcome: Outcome::Wiped { .. }, .. }));
    }

    #[test]
    fn leaving_waits_for_its_acknowledgement() {
        let mut session = Session::new("boot");
        assert_eq!(session.receive(leave("l")), Next::Report);
        assert_eq!(session.receive(leave("l")), Next::Nothing);
        assert_eq!(session.receive(Directive::default()), Next::Nothing);
        assert_eq!(session.receive(acknowledge("l")), Next::Leave(Leave::Reboot));
    }

    #[test]
    fn a_new_wish_takes_the_place_of_an_unacknowledged_leave() {
        let mut session = Session::new("boot");
        session.receive(leave("l"));
        assert!(matches!(session.receive(order("a", Action::Inspect)), Next::Start(_)));
        session.finish(Outcome::Wiped { disks: vec![], left: vec![] });
        assert_eq!(session.receive(acknowledge("a")), Next::Nothing, "it stays");
    }

    #[test]
    fn an_acknowledgement_and_a_new_command_come_together() {
        let mut session = Session::new("boot");
        session.receive(order("a", Action::Inspect));
        session.finish(Outcome::Wiped { disks: vec![], left: vec![] });
        let both = Directive { acknowledged: Some(id("a")), ..order("b", Action::Inspect) };
        assert!(matches!(session.receive(both), Next::Start(command) if command.id == id("b")));
    }

    #[test]
    fn a_command_for_another_boot_is_refused() {
        let mut session = Session::new("later");
        assert_eq!(session.receive(leave("l")), Next::Report);
        let AgentState::Finished { outcome: Outcome::Failed(error), .. } = session.state() else { panic!() };
        assert_eq!(error.code, ErrorCode::Refused);
        assert_eq!(session.receive(acknowledge("l")), Next::Nothing, "it does not leave");
    }
}
