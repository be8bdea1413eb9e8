//! Upstream's demo hosts (`examples/demo-hosts.yaml`): the name decides how far a host comes.

use provisioner::{Cause, Failure, Retry, Verdict, Working};

/// Where a host ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Registration.
    Register,
    /// Inspection.
    Inspect,
    /// Preparation.
    Prepare,
    /// Provisioning.
    Provision,
}

/// What a host of this name is answered at this stage, if that is not the usual.
pub fn answer<T>(name: &str, stage: Stage) -> Option<Result<Verdict<T>, Failure>> {
    let stays = |what: &str| Some(Ok(Verdict::working(format!("{what}, for ever: the host's name asks for it"), 5)));
    let fails = |cause, text: &str| {
        let mut failure = Failure::new(cause, text).advise("the host's name asks for this; name it otherwise");
        failure.retry = Retry::Later;
        Some(Err(failure))
    };
    match (stage, name) {
        (Stage::Register, "demo-registration-error") => fails(Cause::BmcRefused, "register the host: it is refused"),
        (Stage::Register, "demo-registering") => stays("registering"),
        (Stage::Inspect, "demo-inspecting") => stays("inspecting"),
        (Stage::Prepare, "demo-preparing-error") => fails(Cause::HardwareFailed, "prepare the host: it fails"),
        (Stage::Prepare, "demo-preparing") => stays("preparing"),
        (Stage::Provision, "demo-validation-error") => {
            fails(Cause::InvalidRequest, "provision the host: what is declared is not valid")
        }
        (Stage::Provision, "demo-provisioning") => {
            let working = Working { percent: Some(50), ..Working::default() };
            let step = "writing the image, for ever: the host's name asks for it".to_owned();
            Some(Ok(Verdict::Working(Working { step, look_again: std::time::Duration::from_secs(5), ..working })))
        }
        _ => None,
    }
}
