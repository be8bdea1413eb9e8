//! Power: resets of the types that the BMC allows; a machine that already has the requested state counts as success.

use std::time::Duration;

use bmc::{BmcError, ErrorKind};
use serde_json::{Value, json};

use crate::client::Client;
use crate::exchange::{Fault, answer_lost, never_sent};
use crate::json::words;
use crate::quirks::Quirks;
use crate::resources::{PowerState, System};

/// A power state read so recently need not be read again before a restart.
const FRESH: Duration = Duration::from_secs(10);

/// The reset that only toggles.
const BUTTON: &str = "PushPowerButton";

/// The meaning of a refused reset.
enum Refused {
    /// Nothing to do.
    Moot,
    /// Retry after this time.
    ForNow(Duration),
    /// It is refused.
    ForGood,
}

/// What the machine's state reveals of a reset whose answer was lost.
enum Lost {
    /// It was carried out.
    Done,
    /// It was not.
    Not,
    /// It does not show it.
    Unreported,
}

/// `ResetType` of `ComputerSystem.Reset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetType {
    /// Switch on.
    On,
    /// Switch off at once.
    ForceOff,
    /// Ask the operating system to shut down.
    GracefulShutdown,
    /// Ask the operating system to restart.
    GracefulRestart,
    /// Reset at once; whether a machine that is off stays off or is switched on depends on the BMC: see [`Client::restart`].
    ForceRestart,
    /// Off and on.
    PowerCycle,
}

impl ResetType {
    const fn as_str(self) -> &'static str {
        match self {
            Self::On => "On",
            Self::ForceOff => "ForceOff",
            Self::GracefulShutdown => "GracefulShutdown",
            Self::GracefulRestart => "GracefulRestart",
            Self::ForceRestart => "ForceRestart",
            Self::PowerCycle => "PowerCycle",
        }
    }

    /// Types with the same effect, for BMCs that do not offer the type itself.
    const fn substitutes(self) -> &'static [&'static str] {
        match self {
            Self::On => &["ForceOn", "PushPowerButton"],
            Self::ForceOff | Self::GracefulRestart => &[],
            // A short press of the button is the manual way to request a shutdown.
            Self::GracefulShutdown => &["PushPowerButton"],
            Self::ForceRestart => &["PowerCycle"],
            Self::PowerCycle => &["ForceRestart"],
        }
    }

    const fn what(self) -> &'static str {
        match self {
            Self::On => "switch the machine on",
            Self::ForceOff => "switch the machine off",
            Self::GracefulShutdown => "shut the machine down",
            Self::GracefulRestart | Self::ForceRestart | Self::PowerCycle => "restart the machine",
        }
    }

    /// The power state that means there is nothing to do.
    const fn goal(self) -> Option<PowerState> {
        match self {
            Self::On => Some(PowerState::On),
            Self::ForceOff | Self::GracefulShutdown => Some(PowerState::Off),
            Self::GracefulRestart | Self::ForceRestart | Self::PowerCycle => None,
        }
    }

    /// The error of what comes before the order, or of one that has not been carried out; where the answer to an earlier one was `lost`, that may have been.
    fn unmade(self, lost: bool, error: BmcError) -> BmcError {
        if lost {
            return error;
        }
        if self.goal().is_none() { unmade(error) } else { BmcError { unmade: true, ..error } }
    }
}

/// The error of an order that was not given, so that it is given again: nothing shows of a restart whether it was made, and such a kind would say that it may have
/// been. What is left comes of orders that may have been carried out, too: the field tells the two apart.
fn unmade(error: BmcError) -> BmcError {
    let kind = match error.kind {
        ErrorKind::Timeout | ErrorKind::Protocol => ErrorKind::Unreachable,
        ErrorKind::Rejected { status: status @ (502 | 504) } => ErrorKind::Busy { status },
        kind => kind,
    };
    BmcError { kind, unmade: true, ..error }
}

/// Whether the order may be carried out, by what came back: nothing, or what cannot be read, or a gateway's answer in the BMC's place; or by its task, which does
/// not tell.
fn may_be_made(fault: &Fault) -> bool {
    let is_untold = fault.kind() == ErrorKind::Unanswered;
    let is_no_word = fault.kind().is_refusal() && !fault.kind().is_definite_refusal();
    is_untold || !never_sent(fault) && (answer_lost(fault) || is_no_word)
}

/// What is told of a restart that has failed so, and of the order to switch on that has failed after it: the first, unless the second may be carried out.
fn of_both(restart: BmcError, on: BmcError) -> BmcError {
    if on.kind == ErrorKind::Unanswered { on } else { restart }
}

impl Client {
    /// Sends a reset: one request. Returns when the BMC has accepted it; [`Client::power_state`] tells whether the machine follows.
    /// Succeeds if the machine already has the state.
    ///
    /// # Errors
    /// [`BmcError`]; `Unsupported` when the BMC offers neither this type nor one with the same effect, `Unanswered` when it may have been carried out and nothing shows it.
    pub async fn reset(&self, kind: ResetType) -> Result<(), BmcError> {
        self.reset_as(kind, kind.goal().is_none()).await
    }

    /// Switches the machine on in a restart's place: what may have been carried out is told as of a restart.
    async fn start(&self) -> Result<(), BmcError> {
        self.reset_as(ResetType::On, true).await
    }

    /// `once`: whoever asks for it must not ask again where it may have been carried out.
    async fn reset_as(&self, kind: ResetType, once: bool) -> Result<(), BmcError> {
        let what = kind.what();
        let (system, allowed) = self.before_a_reset(what).await.map_err(|error| kind.unmade(false, error))?;
        let name = self.reset_name(what, &allowed, kind)?;
        let target = match &system.reset.target {
            Some(target) => target.clone(),
            None => format!("{}/Actions/ComputerSystem.Reset", system.path.trim_end_matches('/')),
        };
        let (mut waits, mut lost) = (0, false);
        loop {
            let seen = self.core.state().power_seen;
            // The button toggles: it must not be pressed if the machine already has the state.
            if name == BUTTON {
                let seen = self.read_system(what).await.map_err(|error| kind.unmade(lost, error))?;
                match seen.power_state {
                    state if Some(state) == kind.goal() => return Ok(()),
                    PowerState::Unknown => return Err(self.only_a_button(what)),
                    _ => {}
                }
            }
            let fault = match self.send_reset(what, &target, (&name, kind), once).await {
                Ok(()) => return Ok(()),
                Err(fault) => fault,
            };
            let before = system.last_reset.as_ref().filter(|_| seen.is_some());
            if kind.goal().is_none() && may_be_made(&fault) {
                return match self.after_a_lost_answer(what, kind, before, false).await {
                    Ok(Lost::Done) => Ok(()),
                    // It is not made again, also where the BMC did not answer to the look either.
                    _ => Err(self.untold(what, fault)),
                };
            }
            if answer_lost(&fault) && !lost {
                match self.after_a_lost_answer(what, kind, before, name == BUTTON).await {
                    Ok(Lost::Done) => return Ok(()),
                    Ok(Lost::Not) => lost = true,
                    Err(error) if !once => return Err(error),
                    Ok(Lost::Unreported) | Err(_) => return Err(self.unanswered(what, fault)),
                }
                continue;
            }
            let refused = match self.refused(what, kind, &fault, waits).await {
                Err(_) if once && lost => return Err(self.unanswered(what, fault)),
                refused => refused.map_err(|error| kind.unmade(lost, error))?,
            };
            match refused {
                Refused::Moot => return Ok(()),
                Refused::ForGood if once && (lost || may_be_made(&fault)) => return Err(self.untold(what, fault)),
                Refused::ForGood if never_sent(&fault) => {
                    return Err(BmcError { unmade: !lost, ..unmade(fault.into()) });
                }
                Refused::ForGood => return Err(fault.into()),
                Refused::ForNow(wait) => self.core.options.pacer.wait(wait).await,
            }
            waits += 1;
        }
    }

    /// Interprets a refused reset.
    async fn refused(&self, what: &str, kind: ResetType, fault: &Fault, waits: u32) -> Result<Refused, BmcError> {
        let (Some(status @ (400 | 409)), Some(body)) = (fault.status(), fault.body()) else {
            return Ok(Refused::ForGood);
        };
        let self_test = Quirks::busy_with_self_test(body);
        if kind.goal().is_none() && !self_test {
            return Ok(Refused::ForGood);
        }
        let seen = self.read_system(what).await?.power_state;
        match kind.goal() {
            Some(goal) if seen == goal => return Ok(Refused::Moot),
            // The power state is unknown. A conflict with switching off can only mean that the machine is off.
            Some(PowerState::Off) if seen == PowerState::Unknown && (status == 409 || Quirks::is_off(body)) => {
                return Ok(Refused::Moot);
            }
            Some(_) if seen == PowerState::Unknown && Quirks::is_there_already(body) => return Ok(Refused::Moot),
            // A machine that is off is switched on, not restarted.
            None if seen == PowerState::Off => return Ok(Refused::ForGood),
            _ => {}
        }
        let quirks = self.core.state().quirks.clone();
        let conflicts = kind == ResetType::On && status == 409 && quirks.power_on_conflicts_for_a_while();
        let wait = self.core.options.ready.wait(waits).filter(|_| self_test || conflicts);
        Ok(wait.map_or(Refused::ForGood, Refused::ForNow))
    }

    /// Reads the machine's state after a reset whose answer was lost.
    async fn after_a_lost_answer(
        &self,
        what: &str,
        kind: ResetType,
        last_reset: Option<&String>,
        toggles: bool,
    ) -> Result<Lost, BmcError> {
        let now = self.read_system(what).await?;
        Ok(match (kind.goal(), now.power_state) {
            (Some(goal), seen) if seen == goal => Lost::Done,
            (Some(PowerState::On), PowerState::PoweringOn) | (Some(PowerState::Off), PowerState::PoweringOff) => {
                Lost::Done
            }
            (Some(_), PowerState::Unknown) => Lost::Unreported,
            // The change may be in progress: a second press of the button would undo it.
            (Some(_), _) if toggles => Lost::Unreported,
            (Some(_), _) => Lost::Not,
            // A machine that is off now is switched on rather than restarted, see `restart`.
            (None, PowerState::Off) => Lost::Unreported,
            // Since 1.12 of 2020, and with few: when it was last reset. That it was not since proves nothing: a system that was asked to restart takes its
            // time, and some BMCs tell when their chassis' power changed last, which a warm restart does not move.
            (None, _) => match (last_reset, &now.last_reset) {
                (Some(before), Some(after)) if before != after => Lost::Done,
                _ => Lost::Unreported,
            },
        })
    }

    fn only_a_button(&self, what: &str) -> BmcError {
        let found = "the BMC offers only the power button, which toggles, and does not tell whether the machine is on";
        self.core
            .error(ErrorKind::Unsupported, what, found)
            .advise("switch the machine by hand, or update the BMC's firmware")
    }

    /// The error of an order that may have been carried out. A task that does not tell says more itself.
    fn untold(&self, what: &str, fault: Fault) -> BmcError {
        if fault.kind() == ErrorKind::Unanswered { fault.into() } else { self.unanswered(what, fault) }
    }

    fn unanswered(&self, what: &str, fault: Fault) -> BmcError {
        let lost = if answer_lost(&fault) { "the answer was lost, and " } else { "" };
        let error = BmcError::from(fault);
        let found = format!("{lost}the BMC does not show whether it was done: {}", error.found);
        self.core.error(ErrorKind::Unanswered, what, found).caused_by(error)
    }

    /// Restarts the machine, or starts it if it is off: one request if its power was read within the last ten seconds, else two. If the BMC offers no
    /// restart, switches off, waits until the machine is off, and switches on.
    ///
    /// # Errors
    /// [`BmcError`]; `unmade` where the machine has certainly been neither restarted nor started.
    pub async fn restart(&self) -> Result<(), BmcError> {
        // What was to switch the machine on is part of a restart, and told as one.
        self.start_anew().await.map_err(|error| if error.unmade { unmade(error) } else { error })
    }

    async fn start_anew(&self) -> Result<(), BmcError> {
        let what = "restart the machine";
        let seen = self.core.state().power_seen;
        let state = match seen {
            Some((state, at)) if at.elapsed() < FRESH => state,
            _ => self.read_system(what).await.map_err(unmade)?.power_state,
        };
        // Whichever is sent: what is read for it fails before anything is.
        self.before_a_reset(what).await.map_err(unmade)?;
        if state == PowerState::Off {
            return self.start().await;
        }
        let error = match self.reset(ResetType::ForceRestart).await {
            Err(error) if error.kind == ErrorKind::Unsupported => return self.off_and_on(what).await,
            Err(error) if error.kind == ErrorKind::Unanswered || matches!(error.status(), Some(400 | 409)) => error,
            other => return other,
        };
        let off = error.found.to_ascii_lowercase();
        let off = ["is off", "powered off", "off already", "already off"].iter().any(|words| off.contains(words));
        let seen = match self.read_system(what).await {
            Ok(seen) => seen.power_state,
            // It may have been made.
            Err(_) if error.kind == ErrorKind::Unanswered => return Err(error),
            // It was refused.
            Err(other) => return Err(unmade(other)),
        };
        match seen {
            // It went off in between, perhaps on its way through the restart: then no failure of the order to switch on says that it was not made.
            PowerState::Off => {
                let on = self.start().await;
                on.map_err(|on| if error.kind == ErrorKind::Unanswered { error } else { on })
            }
            // The state is unknown (null, empty, contradictory): most likely the machine is off. Switching on a running machine is harmless, and if
            // that is refused too, the first error is the better one to report.
            PowerState::Unknown if error.kind != ErrorKind::Unanswered => {
                self.start().await.map_err(|on| of_both(error, on))
            }
            _ if off => self.start().await.map_err(|on| of_both(error, on)),
            _ => Err(error),
        }
    }

    /// Asks the operating system to restart. If the BMC cannot ask, restarts the machine, see [`Client::restart`]: the power is never switched off if
    /// the BMC offers any restart.
    ///
    /// # Errors
    /// [`BmcError`].
    pub async fn graceful_restart(&self) -> Result<(), BmcError> {
        match self.reset(ResetType::GracefulRestart).await {
            Err(error) if error.kind == ErrorKind::Unsupported || matches!(error.status(), Some(400 | 409 | 501)) => {
                self.restart().await
            }
            other => other,
        }
    }

    async fn off_and_on(&self, what: &str) -> Result<(), BmcError> {
        self.reset(ResetType::ForceOff).await?;
        let mut waited = Duration::ZERO;
        for attempt in 0.. {
            if self.read_system(what).await?.power_state == PowerState::Off {
                return self.start().await;
            }
            let Some(wait) = self.core.options.power.wait(attempt) else { break };
            self.core.options.pacer.wait(wait).await;
            waited += wait;
        }
        let found = format!("the machine is not off {} s after the BMC was told to switch it off", waited.as_secs());
        Err(self
            .core
            .error(ErrorKind::Timeout, what, found)
            .advise("look at the machine's front panel and the BMC's log"))
    }

    async fn send_reset(
        &self,
        what: &str,
        target: &str,
        (name, kind): (&str, ResetType),
        once: bool,
    ) -> Result<(), Fault> {
        let sent = self.core.post(what, target, &json!({ "ResetType": name })).await;
        {
            // Whatever the answer, the power state is unknown now.
            let mut state = self.core.state();
            state.power_seen = None;
            let system = state.system.as_ref().map(|system| system.path.clone());
            if let Some(path) = system {
                state.etags.remove(&path);
            }
        }
        if !once {
            return self.core.finish(what, sent?).await;
        }
        let end = match self.core.finish_once(what, sent?).await {
            Ok(None) => return Ok(()),
            Ok(Some(end)) => end,
            // The BMC has accepted it: what it says, or does not, when it is asked for its task does not take that back, unless the task was stopped.
            Err(Fault::Other(error)) if !matches!(error.kind, ErrorKind::Unanswered | ErrorKind::Rejected { .. }) => {
                return Err(self.unanswered(what, error.into()).into());
            }
            Err(fault) => return Err(fault),
        };
        // A machine that was to be switched on shows it, be it seconds later; of a restart, the caller sees what there is to see.
        if kind.goal().is_some() {
            for attempt in 0.. {
                let shown = self.after_a_lost_answer(what, kind, None, name == BUTTON).await;
                if matches!(shown, Ok(Lost::Done)) {
                    return Ok(());
                }
                let is_off = matches!(shown, Ok(Lost::Not));
                match self.core.options.power.wait(attempt).filter(|_| is_off) {
                    Some(wait) => self.core.options.pacer.wait(wait).await,
                    None if is_off => return Err(self.core.ended_badly(what, &end).into()),
                    None => break,
                }
            }
        }
        Err(self.core.perhaps_done(what, &end).into())
    }

    /// The system, and the types of resets that the BMC allows; signed in, so that the reset itself is one request.
    async fn before_a_reset(&self, what: &str) -> Result<(System, Vec<String>), BmcError> {
        let system = self.known_system(what).await?;
        let allowed = self.reset_allowed(what, &system).await?;
        self.core.authorize(what).await?;
        Ok((system, allowed))
    }

    /// The type's name, or that of one with the same effect, as the BMC spells it.
    fn reset_name(&self, what: &str, allowed: &[String], kind: ResetType) -> Result<String, BmcError> {
        // A BMC without a list of allowed types is sent the type itself.
        if allowed.is_empty() {
            return Ok(kind.as_str().to_owned());
        }
        let names = std::iter::once(kind.as_str()).chain(kind.substitutes().iter().copied());
        let found = names.filter_map(|name| allowed.iter().find(|offered| offered.eq_ignore_ascii_case(name))).next();
        found.cloned().ok_or_else(|| {
            let found =
                format!("the BMC offers {}, and nothing that does the same as {}", allowed.join(", "), kind.as_str());
            self.core.error(ErrorKind::Unsupported, what, terms::clean(&found, 400))
        })
    }

    async fn reset_allowed(&self, what: &str, system: &System) -> Result<Vec<String>, BmcError> {
        let Some(info) = system.reset.info.as_ref().filter(|_| system.reset.allowed.is_empty()) else {
            return Ok(system.reset.allowed.clone());
        };
        let known = self.core.state().reset_allowed.clone();
        if let Some(allowed) = known {
            return Ok(allowed);
        }
        let allowed = match self.core.get(what, info).await {
            Ok(reply) => action_info(&reply.value),
            Err(fault) if fault.status().is_some() => Vec::new(),
            Err(fault) => return Err(fault.into()),
        };
        self.core.state().reset_allowed = Some(allowed.clone());
        Ok(allowed)
    }
}

/// `AllowableValues` of the parameter `ResetType` (schema ActionInfo).
fn action_info(value: &Value) -> Vec<String> {
    let Some(Value::Array(parameters)) = value.get("Parameters") else { return Vec::new() };
    let reset =
        parameters.iter().take(32).find(|parameter| parameter.get("Name").and_then(Value::as_str) == Some("ResetType"));
    words(reset.and_then(|parameter| parameter.get("AllowableValues")))
}
