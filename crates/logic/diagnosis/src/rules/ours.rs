//! What our own side has seen: the agent's way back, the image, calls that failed; and the BMC itself.

use Certainty::{Certain, Likely, Possible};
use Code as C;

use super::words::has;
use crate::codes::Code;
use crate::evidence::{AgentFacts, ImageFault, LinkState, PartKind, ProbeOutcome, Reading};
use crate::hit::{Case, Certainty, Component, Hit, Phase};

/// Seconds of the BMC's clock beyond which it is wrong: certificates and logs are of no use then.
const SKEW: u64 = 300;

pub(super) fn judge(case: &Case<'_>, hits: &mut Vec<Hit>) {
    if let Reading::Read(agent) = &case.evidence.ours.agent {
        links(agent, hits);
        probes(agent, hits);
        lines(agent, hits);
        if agent.addresses.as_ref().is_some_and(Vec::is_empty) {
            hits.push(Hit::new("agent.no-address", C::AgentNoAddress, Likely, "None of its ports has an address"));
        }
        if agent.heard.is_none() && agent.started.is_some() {
            let text = "The agent was started and was not heard";
            hits.push(Hit::new("agent.silent", C::AgentSilent, Possible, text).at(agent.started));
        }
    }
    image(case, hits);
    manager(case, hits);
    if let Reading::Read(calls) = &case.evidence.ours.calls {
        for call in calls {
            let text = format!("{}: {}", call.call, call.text);
            match call.status {
                Some(502..=504) => hits.push(Hit::new("calls.busy", C::BmcStarting, Possible, text).at(call.at)),
                Some(400..) => hits.push(Hit::new("calls.refused", C::BmcRefusedCall, Possible, text).at(call.at)),
                _ => hits.push(Hit::new("calls.unanswered", C::BmcUnreachable, Possible, text).at(call.at)),
            }
        }
    }
}

fn links(agent: &AgentFacts, hits: &mut Vec<Hit>) {
    let known: Vec<_> = agent.links.iter().filter(|(_, state)| *state != LinkState::Unknown).collect();
    if known.is_empty() || known.iter().any(|(_, state)| *state == LinkState::Up) {
        return;
    }
    for (mac, _) in known {
        let component = Component { kind: PartKind::NetworkPort, slot: mac.clone(), part_number: None, serial: None };
        let text = format!("The agent sees no link at {mac}, nor at any other port");
        hits.push(Hit::new("agent.links", C::LinkDown, Certain, text).of(Some(component)));
    }
}

fn probes(agent: &AgentFacts, hits: &mut Vec<Hit>) {
    for probe in &agent.probes {
        let text = format!("The agent tried {} ({}): {}", probe.target, probe.address, probe.text);
        let image = probe.target == "image";
        let (rule, code) = match (probe.outcome, image) {
            (ProbeOutcome::NoName, false) => ("agent.dns", C::ServerNameUnknownOnHost),
            (ProbeOutcome::Tls, false) => ("agent.tls", C::ServerCertificateRefusedByHost),
            (ProbeOutcome::NoRoute | ProbeOutcome::Refused | ProbeOutcome::TimedOut, false) => {
                ("agent.server", C::ServerUnreachableFromHost)
            }
            (ProbeOutcome::NoName, true) => ("agent.image-dns", C::ImageNameUnknown),
            (ProbeOutcome::Tls, true) => ("agent.image-tls", C::ImageTlsRefused),
            (ProbeOutcome::NoRoute | ProbeOutcome::Refused | ProbeOutcome::TimedOut, true) => {
                ("agent.image", C::ImageUnreachableFromHost)
            }
            (ProbeOutcome::Status, true) => ("agent.image-status", C::ImageUnavailable),
            (ProbeOutcome::Reached | ProbeOutcome::Other | ProbeOutcome::Status, _) => continue,
        };
        hits.push(Hit::new(rule, code, Certain, text).at(probe.at));
    }
}

/// Words of the agent's last lines.
fn lines(agent: &AgentFacts, hits: &mut Vec<Hit>) {
    for line in &agent.lines {
        let text = format!("The agent wrote: {line}");
        if has(line, &["no dhcpoffers", "no lease", "no dhcp answer", "dhcp: no answer"]) {
            hits.push(Hit::new("agent.dhcp", C::AgentNoAddress, Likely, text));
        } else if has(line, &["i/o error", "input/output error", "medium error", "unrecovered read error"]) {
            hits.push(Hit::new("agent.io-error", C::DriveMediaErrors, Likely, text));
        }
    }
}

fn image(case: &Case<'_>, hits: &mut Vec<Hit>) {
    let Reading::Read(image) = &case.evidence.ours.image else { return };
    let (rule, code) = match image.fault {
        ImageFault::NotFound => ("image.not-found", C::ImageNotFound),
        ImageFault::Denied => ("image.denied", C::ImageDenied),
        ImageFault::Unavailable => ("image.unavailable", C::ImageUnavailable),
        ImageFault::NoName => ("image.name", C::ImageNameUnknown),
        ImageFault::Tls => ("image.tls", C::ImageTlsRefused),
        ImageFault::Digest => ("image.digest", C::ImageDigestMismatch),
        ImageFault::Format => ("image.format", C::ImageInvalid),
        ImageFault::TooLarge => ("image.too-large", C::ImageTooLarge),
        ImageFault::None | ImageFault::Other => return,
    };
    hits.push(Hit::new(rule, code, Certain, format!("The image's server {}: {}", image.host, image.text)));
}

fn manager(case: &Case<'_>, hits: &mut Vec<Hit>) {
    let Reading::Read(manager) = &case.evidence.manager else { return };
    if let Some(skew) = manager.clock_skew_seconds.filter(|skew| skew.unsigned_abs() > SKEW) {
        let code = C::BmcClockWrong;
        hits.push(
            Hit::new("manager.clock", code, Possible, format!("The BMC's clock differs by {skew} seconds")).minor(),
        );
    }
    for log in &manager.full_logs {
        hits.push(Hit::new("manager.log-full", C::BmcLogFull, Possible, format!("The log {log} is full")).minor());
    }
    if manager.health == Some(terms::HealthLevel::Critical) {
        let certainty = if case.phase == Phase::Registration { Likely } else { Possible };
        hits.push(Hit::new("manager.health", C::BmcUnhealthy, certainty, "The Manager's Health is Critical"));
    }
}
