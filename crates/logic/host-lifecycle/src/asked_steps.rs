//! Steps of hardware managers that a request asks for: what is wrong with the wish, and how it has ended by what was reported.

use api::metamorph::{AgentStep, MAX_ASKED_STEPS, OfferedStep, RanStep, StepResult, StepsReport};

/// Most names that a message has.
const MAX_NAMED: usize = 12;

/// Longest name of a step or an interface, in bytes.
const MAX_NAME: usize = 128;

/// What is wrong with the steps that are asked for, a clause.
pub(crate) fn fault(steps: &[AgentStep]) -> Option<String> {
    if steps.len() > MAX_ASKED_STEPS {
        return Some(format!("it asks for {} steps, at most {MAX_ASKED_STEPS} are run for one request", steps.len()));
    }
    let is_name = |name: &str| !name.is_empty() && name.len() <= MAX_NAME && name.chars().all(terms::is_printable);
    if !steps.iter().all(|step| is_name(&step.step) && is_name(&step.interface)) {
        return Some(format!("a step needs a name and an interface of at most {MAX_NAME} bytes (spec.steps)"));
    }
    steps.iter().find_map(|step| Some(format!("the step {}: {}", step.describe(), step.arguments().err()?)))
}

/// How it has ended: what is done, or what is not.
///
/// # Errors
/// Not all that was asked for is done.
pub(crate) fn ended(asked: &[AgentStep], report: &StepsReport) -> Result<String, String> {
    if let Some(why) = &report.given_up {
        return Err(format!("it was given up: {why}{}", so_far(&report.ran)));
    }
    let open = report.ran.iter().find(|ran| ran.result != StepResult::Done);
    match open {
        Some(ran) => Err(format!("{}{}", told(ran), so_far(&report.ran))),
        None if report.ran.len() < asked.len() => {
            Err(format!("{} of {} steps are told of, and all of these are done", report.ran.len(), asked.len()))
        }
        None if asked.is_empty() => Ok(listed(report)),
        None => Ok(format!("{} steps are done: {}", report.ran.len(), names(&report.ran))),
    }
}

fn told(ran: &RanStep) -> String {
    let what = match ran.result {
        StepResult::Failed => "has failed",
        StepResult::Begun => "was given to the agent, and what has become of it is not known: it is not given again",
        StepResult::NotBegun => "was not begun",
        StepResult::Done => "is done",
    };
    let words = if ran.message.is_empty() { String::new() } else { format!(": {}", ran.message) };
    format!("the step {} ({}) {what}{words}", ran.step, ran.interface)
}

fn so_far(ran: &[RanStep]) -> String {
    let done = ran.iter().filter(|ran| ran.result == StepResult::Done).count();
    if ran.is_empty() { String::new() } else { format!(" ({done} of {} steps are done)", ran.len()) }
}

fn names(ran: &[RanStep]) -> String {
    ran.iter().take(MAX_NAMED).map(|ran| ran.step.as_str()).collect::<Vec<_>>().join(", ")
}

fn listed(report: &StepsReport) -> String {
    let more = usize::try_from(report.omitted.unwrap_or(0)).unwrap_or(usize::MAX);
    let all = report.offered.len().saturating_add(more);
    if all == 0 {
        return "the agent lists no steps".to_owned();
    }
    let name = |offered: &OfferedStep| format!("{} ({})", offered.step, offered.interface);
    let named = report.offered.iter().take(MAX_NAMED).map(name).collect::<Vec<_>>().join(", ");
    let rest = if all > MAX_NAMED.min(report.offered.len()) { " and others" } else { "" };
    format!("the agent lists {all} steps (status.stepsReport.offered): {named}{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(name: &str) -> AgentStep {
        AgentStep { step: name.into(), interface: "deploy".into(), args: None }
    }

    fn ran(name: &str, result: StepResult) -> RanStep {
        RanStep {
            step: name.into(),
            interface: "deploy".into(),
            result,
            message: "its words".into(),
            ..RanStep::default()
        }
    }

    fn report(ran: Vec<RanStep>) -> StepsReport {
        StepsReport { ran, ..StepsReport::default() }
    }

    #[test]
    fn a_wish_is_looked_at_before_a_machine_is_booted_for_it() {
        assert_eq!(fault(&[]), None);
        assert_eq!(fault(&vec![step("a"); MAX_ASKED_STEPS]), None);
        assert!(fault(&vec![step("a"); MAX_ASKED_STEPS + 1]).unwrap().contains("17 steps"));
        assert!(fault(&[step("a"), step("")]).unwrap().contains("name"));
        assert!(fault(&[AgentStep { interface: String::new(), ..step("a") }]).is_some());
        assert!(fault(&[step(&"ü".repeat(65))]).is_some() && fault(&[step("a\u{1b}")]).is_some());
        let args = AgentStep { args: Some("[]".into()), ..step("b") };
        assert!(fault(&[step("a"), args]).unwrap().starts_with("the step b (deploy): its arguments"));
    }

    #[test]
    fn it_is_done_when_each_step_is_told_to_be() {
        use StepResult::{Begun, Done, Failed, NotBegun};
        let asked = [step("a"), step("b")];
        let rows = [
            (report(vec![ran("a", Done), ran("b", Done)]), Ok("2 steps are done: a, b")),
            (report(vec![ran("a", Done)]), Err("1 of 2 steps are told of")),
            (report(vec![]), Err("0 of 2 steps are told of")),
            (
                report(vec![ran("a", Failed), ran("b", NotBegun)]),
                Err("the step a (deploy) has failed: its words (0 of 2"),
            ),
            (
                report(vec![ran("a", Done), ran("b", Begun)]),
                Err("the step b (deploy) was given to the agent, and what"),
            ),
            (report(vec![ran("a", Done), ran("b", NotBegun)]), Err("the step b (deploy) was not begun")),
        ];
        for (report, wanted) in rows {
            match (ended(&asked, &report), wanted) {
                (Ok(said), Ok(text)) => assert_eq!(said, text),
                (Err(said), Err(text)) => assert!(said.starts_with(text), "{said}"),
                (said, wanted) => panic!("{said:?}, and not {wanted:?}"),
            }
        }
        let given_up = StepsReport { given_up: Some("there is no x".into()), ..report(vec![]) };
        assert_eq!(ended(&asked, &given_up).unwrap_err(), "it was given up: there is no x");
    }

    #[test]
    fn a_list_is_told_in_a_sentence() {
        let offered =
            |name: &str| OfferedStep { step: name.into(), interface: "raid".into(), ..OfferedStep::default() };
        let list = StepsReport { offered: vec![offered("a"), offered("b")], ..StepsReport::default() };
        assert_eq!(
            ended(&[], &list).unwrap(),
            "the agent lists 2 steps (status.stepsReport.offered): a (raid), b (raid)"
        );
        let more = StepsReport { omitted: Some(9), ..list };
        assert!(ended(&[], &more).unwrap().ends_with("and others"));
        assert_eq!(ended(&[], &StepsReport::default()).unwrap(), "the agent lists no steps");
    }
}
