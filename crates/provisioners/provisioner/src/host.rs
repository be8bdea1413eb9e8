//! What a host can be asked, in small traits.
//!
//! Each call is idempotent and answers at once: done, working (with when to look again at the latest), waiting for something else, or failed for a
//! typed cause. Nothing waits inside a call for a machine to boot or an image to be written.
//!
//! Every provisioner has [`Manage`], [`Power`], [`Inspect`] and [`Deploy`]. The others are answered by a host that has them: which, its
//! [`crate::Capabilities`] say before anybody waits.

use api::metamorph::{CollectedLog, Erasure, StepsReport};
use async_trait::async_trait;
use diagnosis::{Evidence, TestMedium};
use inventory::Inspected;

use crate::{
    AdoptRequest, Attached, CleaningRequest, Deprovisioned, EraseRequest, EvidenceBudget, Finding, FirmwareFacts,
    HealthState, InspectRequest, LocateRequest, Outcome, PowerRequest, PrepareRequest, ProvisionRequest,
    RegisterRequest, Registered, ReleaseRequest, ServiceRequest, StepsRequest, Subscription, TestMediumRequest,
    Unsubscription, Verdict,
};

/// All that a host can be asked.
pub trait Host: Manage + Power + Inspect + Deploy {
    /// RAID, BIOS and firmware of an empty machine.
    fn prepare(&mut self) -> Option<&mut dyn Prepare> {
        None
    }

    /// BIOS and firmware of a machine in use.
    fn service(&mut self) -> Option<&mut dyn Service> {
        None
    }

    /// Erasing disks of a machine that nobody uses.
    fn erase(&mut self) -> Option<&mut dyn Erase> {
        None
    }

    /// Steps of the agent's hardware managers, on a machine that nobody uses.
    fn steps(&mut self) -> Option<&mut dyn Steps> {
        None
    }

    /// Systems that run from a medium.
    fn live_media(&mut self) -> Option<&mut dyn LiveMedia> {
        None
    }

    /// Methods of its own to put a system on a machine.
    fn custom_deploy(&mut self) -> Option<&mut dyn CustomDeploy> {
        None
    }

    /// Media beside the running system.
    fn data_images(&mut self) -> Option<&mut dyn DataImages> {
        None
    }

    /// Events of the BMC.
    fn events(&mut self) -> Option<&mut dyn Events> {
        None
    }

    /// What the firmware is.
    fn firmware(&mut self) -> Option<&mut dyn Firmware> {
        None
    }

    /// How the machine is.
    fn health(&mut self) -> Option<&mut dyn Health> {
        None
    }

    /// Why the machine does not do what it should.
    fn diagnose(&mut self) -> Option<&mut dyn Diagnose> {
        None
    }

    /// A test of what its BMC can read.
    fn test_media(&mut self) -> Option<&mut dyn TestMedia> {
        None
    }

    /// What its BMC and the system that works on it have written down.
    fn logs(&mut self) -> Option<&mut dyn Logs> {
        None
    }

    /// The light by which a person finds the server.
    fn locate(&mut self) -> Option<&mut dyn Locate> {
        None
    }
}

/// Registration, adoption and release.
#[async_trait]
pub trait Manage: Send {
    /// Checks access to the BMC.
    async fn register(&mut self, request: RegisterRequest) -> Outcome<Registered>;

    /// Takes over a machine that is provisioned already, without touching it.
    async fn adopt(&mut self, request: AdoptRequest) -> Outcome<()>;

    /// Lets go: ends work, ejects media, closes sessions. The machine's power is left alone.
    async fn release(&mut self, request: ReleaseRequest) -> Outcome<()>;
}

/// Power.
#[async_trait]
pub trait Power: Send {
    /// Whether the machine is on; `None` if that cannot be told. One cheap call.
    async fn power_state(&mut self) -> Outcome<Option<bool>>;

    /// Brings the machine to the wish; done when it is seen there. The result is the state seen.
    async fn set_power(&mut self, request: PowerRequest) -> Outcome<bool>;
}

/// Inspection.
#[async_trait]
pub trait Inspect: Send {
    /// Finds out what the machine is made of. With the mode `fast`, served where [`crate::Capabilities::fast_inspection`] says so, by its BMC alone: the
    /// machine is neither booted nor switched, whether it is on or off, and what the BMC does not list completely is named.
    async fn inspect(&mut self, request: InspectRequest) -> Outcome<Box<Inspected>>;
}

/// Deployment.
#[async_trait]
pub trait Deploy: Send {
    /// Writes the image to a disk and boots it.
    async fn provision(&mut self, request: ProvisionRequest) -> Outcome<()>;

    /// Removes what was provisioned.
    async fn deprovision(&mut self, request: CleaningRequest) -> Outcome<Deprovisioned>;
}

/// Erasing disks of a machine that nobody uses.
#[async_trait]
pub trait Erase: Send {
    /// Erases the disks that are meant. Done when it has come to its end, whatever has become of each disk: that is in the answer, the same for the same
    /// wish. A failure is for what keeps it from an end.
    async fn erase(&mut self, request: EraseRequest) -> Outcome<Erasure>;
}

/// Steps of the agent's hardware managers, on a machine that nobody uses.
#[async_trait]
pub trait Steps: Send {
    /// Lists the steps that there are, and runs those that are asked for, in order, up to the first that fails. Done when it has come to its end, whatever
    /// has become of each step: that is in the answer, the same for the same wish. No step is given to an agent twice for one wish, even if nobody knows
    /// what has become of it. A failure is for what keeps it from an end before any step was begun.
    async fn run_steps(&mut self, request: StepsRequest) -> Outcome<StepsReport>;
}

/// Systems that run from a medium ([`crate::Method::LiveIso`]).
#[async_trait]
pub trait LiveMedia: Send {
    /// Boots the image, each time the machine starts.
    async fn boot_live(&mut self, request: ProvisionRequest) -> Outcome<()>;

    /// What is wrong with the medium of a live system that runs, touching nothing: asked for after each look at the power of a machine that is on.
    async fn findings(&mut self) -> Outcome<Vec<Finding>> {
        Ok(Verdict::Done(Vec::new()))
    }
}

/// Methods of its own ([`crate::Method::Custom`]).
#[async_trait]
pub trait CustomDeploy: Send {
    /// Puts a system on the machine by the method that the request names.
    async fn deploy(&mut self, request: ProvisionRequest) -> Outcome<()>;
}

/// RAID, BIOS and firmware of an empty machine.
#[async_trait]
pub trait Prepare: Send {
    /// Brings them to the targets. A [`crate::Working`] that is `accepted` has taken the targets.
    async fn prepare(&mut self, request: PrepareRequest) -> Outcome<()>;

    /// Ends a preparation that is not wished any more; the machine is left as it is. Done at once where there is none.
    async fn abort(&mut self) -> Outcome<()>;
}

/// BIOS and firmware of a machine in use.
#[async_trait]
pub trait Service: Send {
    /// Brings them to the targets. A [`crate::Working`] that is `accepted` has taken the targets.
    async fn service(&mut self, request: ServiceRequest) -> Outcome<()>;

    /// Ends a service that is not wished any more; the machine is left as it is.
    async fn abort(&mut self) -> Outcome<()>;
}

/// Media beside the running system (DataImage).
#[async_trait]
pub trait DataImages: Send {
    /// Whether the medium at this URL can be put in: fails with what the BMC lacks, or has in its way. Changes nothing.
    async fn check(&mut self, url: String) -> Outcome<()>;

    /// The medium that is in.
    async fn attached(&mut self) -> Outcome<Attached>;

    /// Puts the medium at this URL in.
    async fn attach(&mut self, url: String) -> Outcome<()>;

    /// Takes it out.
    async fn detach(&mut self) -> Outcome<()>;
}

/// Events of the BMC (BMCEventSubscription).
#[async_trait]
pub trait Events: Send {
    /// Has the BMC send its events. The result is the subscription's id on the BMC: asked again, it is made anew only if the BMC has lost it.
    async fn subscribe(&mut self, subscription: Subscription) -> Outcome<String>;

    /// Ends the subscription; one that is not there has ended.
    async fn unsubscribe(&mut self, subscription: Unsubscription) -> Outcome<()>;
}

/// What the firmware is.
#[async_trait]
pub trait Firmware: Send {
    /// Reads it; with the bounds of settings, which are slow to get, only if they are asked for.
    async fn facts(&mut self, with_bounds: bool) -> Outcome<FirmwareFacts>;
}

/// How the machine is.
#[async_trait]
pub trait Health: Send {
    /// One cheap call.
    async fn state(&mut self) -> Outcome<HealthState>;
}

/// Why the machine does not do what it should.
#[async_trait]
pub trait Diagnose: Send {
    /// Reads what the machine, its BMC and the provisioner's own side say, until it has all or the budget is
    /// spent; changes nothing. A source that does not answer is in the answer, with why: a BMC that cannot be reached is evidence, and no failure of this call.
    /// No secret is in it. What the host says of its failure is left to the caller.
    async fn evidence(&mut self, budget: EvidenceBudget) -> Outcome<Box<Evidence>>;
}

/// Whether a machine's BMC reads what the provisioner serves.
#[async_trait]
pub trait TestMedia: Send {
    /// Has the BMC put a tiny medium, which nothing starts from, into a virtual drive that is empty, sees for a bounded time whether it is asked for, and takes it
    /// out again; boot source and power stay as they are. Done with how that has ended, the same for the same identity. Fails with [`crate::Cause::MachineInUse`]
    /// where the drive is anybody's, work is under way, or the machine runs a system and nobody has consented; then nothing was done.
    async fn test_medium(&mut self, request: TestMediumRequest) -> Outcome<Box<TestMedium>>;
}

/// What a machine's BMC, and the system that works on the machine, have written down.
#[async_trait]
pub trait Logs: Send {
    /// Reads it as it is now, whatever the machine does; changes nothing. A log that cannot be read is in the answer, with why. The lines are for whoever may
    /// see the host: no secret is in them.
    async fn collect(&mut self) -> Outcome<Vec<CollectedLog>>;
}

/// The light by which a person finds the server at its rack.
#[async_trait]
pub trait Locate: Send {
    /// Brings the light to the wish, whatever the machine does; nothing else of it is changed. Done when the machine shows it so: the answer is a clause that
    /// names the light. A machine that has no such light, or takes the order and does not follow, is a failure that says so.
    async fn switch_light(&mut self, request: LocateRequest) -> Outcome<String>;
}
