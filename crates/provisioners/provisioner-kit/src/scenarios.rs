//! The scenarios that every provisioner passes: each call that its host has, and everything that may happen to it.

use api::metal3::{HardwareRaidVolume, Image, InspectionMode, Raid, SoftwareRaidVolume};
use api::metamorph::AgentStep;
use inventory::EraseMethod;
use provisioner::{
    AdoptRequest, Call, Capabilities, Cause, CleaningRequest, ConfigDrive, Deployed, EraseRequest, EvidenceBudget,
    FirmwareTargets, FirmwareUpdate, InspectRequest, LocateRequest, Method, PowerWish, PrepareRequest,
    ProvisionRequest, RegisterRequest, ReleaseRequest, SecretText, ServiceRequest, Setting, StepsRequest, Subscription,
    TestMediumRequest, Unsubscription,
};

use crate::condition::{Condition, FOREIGN_OWNER};
use crate::process::SECRETS;
use crate::scenario::{Class, Expected, Interruption, Scenario, Step};
use crate::stories::Story;
use crate::trail::Effect;

/// The image that `name` stands for.
fn image(name: &str) -> Image {
    Image {
        url: format!("http://192.0.2.9/{name}.raw"),
        checksum: Some("00".repeat(32)),
        format: Some(api::metal3::DiskFormat::Raw),
        ..Image::default()
    }
}

fn provision(name: &str, method: Method) -> Call {
    let drive = ConfigDrive { meta_data: "{}".to_owned(), network_data: None, user_data: Some(SECRETS[1].to_owned()) };
    let image = match method {
        Method::LiveIso => Image { format: Some(api::metal3::DiskFormat::LiveIso), ..image(name) },
        _ => image(name),
    };
    Call::Provision(Box::new(ProvisionRequest {
        wish: Some(format!("provision {name}")),
        attempt: 1,
        method,
        image,
        pull_secret: Some(SecretText(SECRETS[2].to_owned())),
        config_drive: Some(drive),
        ..ProvisionRequest::default()
    }))
}

fn deployed(name: &str) -> Deployed {
    Deployed { image: Some(image(name)), ..Deployed::default() }
}

fn deprovision(wish: &str, clean: bool) -> Call {
    let wish = Some(format!("deprovision {wish}"));
    Call::Deprovision(Box::new(CleaningRequest { wish, deployed: deployed("a"), clean, ..CleaningRequest::default() }))
}

fn erase(wish: &str) -> Call {
    let wish = Some(format!("erase {wish}"));
    Call::Erase(Box::new(EraseRequest { wish, method: EraseMethod::Overwrite, ..EraseRequest::default() }))
}

/// Steps that a provisioner which has any is tested with: it is to have one of this name, which changes the machine.
fn run_steps(wish: &str) -> Call {
    let wish = Some(format!("steps {wish}"));
    let step = AgentStep { step: "set_label".to_owned(), interface: "deploy".to_owned(), args: None };
    Call::RunSteps(Box::new(StepsRequest { wish, steps: vec![step], ..StepsRequest::default() }))
}

/// Names of stories.
const TEST: &str = "test what its BMC can read";
const TEST_IN_USE: &str = "test what the BMC of a machine in use can read";

fn test_medium(in_use: bool) -> Call {
    Call::TestMedium(TestMediumRequest { identity: "test-1".to_owned(), in_use })
}

fn inspect(wish: &str) -> Call {
    Call::Inspect(InspectRequest { wish: Some(format!("inspect {wish}")), ..InspectRequest::default() })
}

fn fast_inspect(wish: &str) -> Call {
    let (wish, mode) = (Some(format!("inspect {wish}")), Some(InspectionMode::Fast));
    Call::Inspect(InspectRequest { wish, mode, ..InspectRequest::default() })
}

fn firmware(caps: &Capabilities, value: i64) -> FirmwareTargets {
    let mut targets = FirmwareTargets::default();
    if caps.firmware_settings {
        targets.settings.insert("BootDelay".to_owned(), Setting::Number(value));
    }
    if caps.firmware_updates {
        let url = format!("http://192.0.2.9/bios-{value}.bin");
        targets.updates.push(FirmwareUpdate { component: "bios".to_owned(), url });
    }
    targets
}

fn prepare(caps: &Capabilities, wish: &str) -> Call {
    let volume = HardwareRaidVolume { level: "1".to_owned(), ..HardwareRaidVolume::default() };
    let raid = caps.hardware_raid.then(|| Raid { hardware_raid_volumes: Some(vec![volume]), ..Raid::default() });
    let volume = SoftwareRaidVolume { level: "1".to_owned(), ..SoftwareRaidVolume::default() };
    let by_software = || Raid { software_raid_volumes: Some(vec![volume]), ..Raid::default() };
    let raid = raid.or_else(|| caps.software_raid.then(by_software));
    let (wish, firmware) = (Some(format!("prepare {wish}")), firmware(caps, 7));
    Call::Prepare(Box::new(PrepareRequest { wish, raid, firmware, unprepared: true, ..PrepareRequest::default() }))
}

fn service(caps: &Capabilities, wish: &str) -> Call {
    let (wish, firmware) = (Some(format!("service {wish}")), firmware(caps, 9));
    Call::Service(Box::new(ServiceRequest { wish, firmware, unprepared: true, restart: false }))
}

/// What a host of these capabilities can be asked, with what comes before.
fn stories(caps: &Capabilities) -> Vec<Story> {
    let register = Step::of(Call::Register(RegisterRequest::default()), None);
    let inspected = vec![register.clone(), Step::of(inspect("first"), None)];
    let mut provisioned = inspected.clone();
    provisioned.push(Step::of(provision("a", Method::Disk), Some(Effect::Write)));
    let power = |wish: PowerWish| Step::of(Call::SetPower(wish.into()), None);
    let on = power(PowerWish::On);
    let mut all = Vec::new();
    let mut add =
        |name, before: &[Step], step: Step, works| all.push(Story { name, before: before.to_vec(), step, works });
    let only = std::slice::from_ref(&register);
    let powered = [register.clone(), on];
    add("register", &[], register.clone(), false);
    let adopt = AdoptRequest { deployed: deployed("a"), restart: false };
    add("adopt", only, Step::of(Call::Adopt(adopt), None), false);
    add("look at the power", only, Step::of(Call::PowerState, None), false);
    let switch = |wish| Step { effect: Some(Effect::Power), ..power(wish) };
    add("power on", only, switch(PowerWish::On), false);
    add("power off", &powered, switch(PowerWish::SoftOff), false);
    add("cut the power", &powered, switch(PowerWish::HardOff), false);
    add("inspect", only, Step::of(inspect("a"), None), true);
    if caps.fast_inspection {
        add("inspect by the BMC", only, Step::of(fast_inspect("fast"), None), true);
        let listed = [register.clone(), Step::of(fast_inspect("first"), None)];
        let step = Step::of(provision("a", Method::Disk), Some(Effect::Write));
        add("provision what the BMC has listed", &listed, step, true);
    }
    add("provision", &inspected, Step::of(provision("a", Method::Disk), Some(Effect::Write)), true);
    add("provision anew", &provisioned, Step::of(provision("b", Method::Disk), Some(Effect::Write)), true);
    add("deprovision", &provisioned, Step::of(deprovision("a", true), Some(Effect::Wipe)), true);
    add("deprovision without cleaning", &provisioned, Step::of(deprovision("a", false), None), true);
    if caps.erase {
        add("erase", &inspected, Step::of(erase("a"), Some(Effect::Wipe)), true);
    }
    if caps.steps {
        add("run steps", &inspected, Step::of(run_steps("a"), Some(Effect::Configure)), true);
        let list = StepsRequest { wish: Some("steps list".to_owned()), ..StepsRequest::default() };
        add("list steps", &inspected, Step::of(Call::RunSteps(Box::new(list)), None), false);
    }
    if caps.test_medium {
        add(TEST, &inspected, Step::of(test_medium(false), None), false);
        add(TEST_IN_USE, &provisioned, Step::of(test_medium(true), None), false);
    }
    add("release", &inspected, Step::of(Call::Release(ReleaseRequest::default()), None), false);
    if caps.live_iso {
        add("boot a live ISO", &inspected, Step::of(provision("live", Method::LiveIso), Some(Effect::Write)), true);
    }
    if caps.custom_deploy {
        let custom = provision("custom", Method::Custom("install_everything".to_owned()));
        add("deploy by a method of its own", &inspected, Step::of(custom, Some(Effect::Write)), true);
    }
    if caps.prepares() {
        let step = Step::of(prepare(caps, "a"), Some(Effect::Configure));
        add("prepare", &inspected, Step { expected: Expected::Accepted, ..step }, true);
        add("read the firmware", &inspected, Step::of(Call::FirmwareFacts { bounds: true }, None), false);
    }
    if caps.service {
        let step = Step::of(service(caps, "a"), Some(Effect::Configure));
        // A service begins on a machine that is off and about to be switched on: one that runs is not restarted for it.
        let off = [provisioned.clone(), vec![power(PowerWish::HardOff)]].concat();
        add("service", &off, Step { expected: Expected::Accepted, ..step }, true);
    }
    optional(caps, &provisioned, &mut add);
    all
}

/// Calls of hosts that have them, and that are answered at once.
fn optional(caps: &Capabilities, provisioned: &[Step], add: &mut impl FnMut(&'static str, &[Step], Step, bool)) {
    let with = |step: &Step| [provisioned, std::slice::from_ref(step)].concat();
    if caps.data_images {
        let attach = Step::of(Call::AttachImage { url: "http://192.0.2.9/data.iso".to_owned() }, Some(Effect::Media));
        let check = Call::CheckImage { url: "http://192.0.2.9/data.iso".to_owned() };
        add("check a medium", provisioned, Step::of(check, None), false);
        add("attach a medium", provisioned, attach.clone(), false);
        add("look at the medium", &with(&attach), Step::of(Call::AttachedImage, None), false);
        add("detach a medium", &with(&attach), Step::of(Call::DetachImage, Some(Effect::Media)), false);
    }
    if caps.events {
        let destination = "https://192.0.2.9/events".to_owned();
        let identity = "subscription-1".to_owned();
        let headers = [("Authorization".to_owned(), SecretText(SECRETS[2].to_owned()))].into();
        let subscription = Subscription {
            identity: identity.clone(),
            destination: destination.clone(),
            headers,
            ..Subscription::default()
        };
        let subscribe = Step::of(Call::Subscribe(subscription), Some(Effect::Events));
        add("subscribe", provisioned, subscribe.clone(), false);
        // The id is not known where the answer was lost.
        let known = Unsubscription { id: String::new(), identity, destination };
        let unsubscribe = Step::of(Call::Unsubscribe(known), Some(Effect::Events));
        add("unsubscribe", &with(&subscribe), unsubscribe, false);
        let unknown = Unsubscription { id: "not-there".to_owned(), ..Unsubscription::default() };
        add("unsubscribe what is not there", provisioned, Step::of(Call::Unsubscribe(unknown), None), false);
    }
    if caps.health {
        add("ask for its health", provisioned, Step::of(Call::Health, None), false);
    }
    if caps.diagnose {
        add("diagnose", provisioned, Step::of(Call::Diagnose(EvidenceBudget::default()), None), false);
    }
    if caps.logs {
        add("collect its logs", provisioned, Step::of(Call::CollectLogs, None), false);
    }
    if caps.locate {
        let light = |lit| Step::of(Call::Locate(LocateRequest { lit }), Some(Effect::Locate));
        add("light it", provisioned, light(true), false);
        add("switch its light off", &with(&light(true)), light(false), false);
    }
}

/// All scenarios for a host of these capabilities.
#[must_use]
pub fn scenarios(caps: &Capabilities) -> Vec<Scenario> {
    let capabilities = "says what it has".to_owned();
    let mut all = vec![Scenario { name: capabilities, class: Class::Capabilities, steps: Vec::new() }];
    let stories = stories(caps);
    for story in &stories {
        story.everywhere(&mut all);
    }
    cancelled(caps, &stories, &mut all);
    forced(&stories, &mut all);
    released(&stories, &mut all);
    identity(caps, &stories, &mut all);
    tested(caps, &stories, &mut all);
    all
}

fn named<'a>(stories: &'a [Story], name: &str) -> Option<&'a Story> {
    stories.iter().find(|story| story.name == name)
}

/// Work that is not wanted any more.
fn cancelled(caps: &Capabilities, stories: &[Story], all: &mut Vec<Scenario>) {
    let inspect_anew = || (inspect("other"), None);
    let provision_b = || (provision("b", Method::Disk), Some(Effect::Write));
    let clean = || (deprovision("other", true), Some(Effect::Wipe));
    let withdrawn = || {
        let wish = Some("deprovision other".to_owned());
        (Call::Deprovision(Box::new(CleaningRequest { wish, empty: true, ..CleaningRequest::default() })), None)
    };
    let mut ways = vec![
        ("inspect", "an image is wanted", provision_b()),
        ("inspect", "another inspection is wanted", inspect_anew()),
        ("inspect", "the BMC is to be asked instead", (fast_inspect("a"), None)),
        ("inspect by the BMC", "the agent is to look instead", (inspect("fast"), None)),
        ("inspect by the BMC", "an image is wanted", provision_b()),
        ("provision", "the image is taken back", clean()),
        ("provision", "another image is wanted", provision_b()),
        ("provision anew", "the image is taken back", clean()),
        ("deprovision", "an image is wanted", provision_b()),
        ("deprovision without cleaning", "cleaning is wanted", clean()),
        ("erase", "it is withdrawn", withdrawn()),
        ("erase", "it is to be wiped", clean()),
        ("erase", "an image is wanted", provision_b()),
        ("run steps", "it is withdrawn", withdrawn()),
        ("run steps", "it is to be wiped", clean()),
        ("run steps", "an image is wanted", provision_b()),
        ("prepare", "an image is wanted", provision_b()),
        ("prepare", "another inspection is wanted", inspect_anew()),
        ("boot a live ISO", "the image is taken back", clean()),
        ("service", "the image is taken back", clean()),
    ];
    if caps.service {
        ways.push(("service", "it is aborted", (Call::AbortService, None)));
    }
    for (name, why, (call, effect)) in ways {
        let Some(story) = named(stories, name) else { continue };
        all.push(story.cancelled(why, call, effect));
    }
}

/// Work whose machine somebody wants to be booted anew.
fn forced(stories: &[Story], all: &mut Vec<Scenario>) {
    for name in ["inspect", "provision", "provision anew", "boot a live ISO", "deploy by a method of its own"] {
        let Some(story) = named(stories, name) else { continue };
        all.push(
            story.scenario(Class::Forced, "booted anew by force", |step| step.interruption = Interruption::Forced),
        );
    }
}

/// A machine that is let go in the middle of work.
fn released(stories: &[Story], all: &mut Vec<Scenario>) {
    for story in stories.iter().filter(|story| story.works) {
        for (name, force) in [("let go", false), ("let go by force", true)] {
            all.push(story.scenario(Class::Released, name, |step| {
                let release = Call::Release(ReleaseRequest { force });
                step.interruption = Interruption::CancelledBy(Box::new(release), None);
            }));
        }
    }
}

/// A machine that is not the host's.
fn identity(caps: &Capabilities, stories: &[Story], all: &mut Vec<Scenario>) {
    // Its light would lead somebody to another's server.
    if let Some(story) = named(stories, "light it").filter(|_| caps.proves_identity) {
        all.push(story.refused("another machine answers", Condition::Another, Cause::AnotherMachine));
    }
    for story in stories.iter().filter(|story| story.works) {
        let destroys = story.step.effect.is_some();
        if caps.proves_identity && destroys {
            all.push(story.refused("another machine answers", Condition::Another, Cause::AnotherMachine));
        }
        let wipes_or_writes = matches!(story.name, "provision" | "deprovision" | "erase");
        if caps.marks_disks && wipes_or_writes {
            all.push(story.refused("the disk is another's", Condition::Foreign, Cause::ForeignOwner));
            all.push(story.scenario(Class::Identity, "the disk is another's, with consent", |step| {
                step.machine = vec![Condition::Foreign];
                consent(&mut step.call);
            }));
        }
    }
}

/// A medium that is only to be read: who reads it, and whose drive and machine it must not go into.
fn tested(caps: &Capabilities, stories: &[Story], all: &mut Vec<Scenario>) {
    for story in [TEST, TEST_IN_USE].into_iter().filter_map(|name| named(stories, name)) {
        all.push(story.scenario(Class::Plain, "its BMC reads nothing", |step| step.machine = vec![Condition::Unread]));
        all.push(story.refused("somebody's medium is in the drive", Condition::Occupied, Cause::MachineInUse));
        if caps.proves_identity {
            all.push(story.refused("another machine answers", Condition::Another, Cause::AnotherMachine));
        }
        // It is let go while the medium is in.
        let release = Call::Release(ReleaseRequest::default());
        all.push(story.scenario(Class::Released, "let go", |step| {
            step.interruption = Interruption::CancelledBy(Box::new(release), None);
        }));
    }
    if let Some(story) = named(stories, TEST_IN_USE) {
        all.push(story.scenario(Class::Identity, "nobody has consented", |step| {
            (step.call, step.expected) = (test_medium(false), Expected::Refused(Cause::MachineInUse));
        }));
    }
}

fn consent(call: &mut Call) {
    let owner = Some(FOREIGN_OWNER.to_owned());
    match call {
        Call::Provision(request) => request.overwrite_owner = owner,
        Call::Deprovision(request) => request.overwrite_owner = owner,
        Call::Erase(request) => request.overwrite_owner = owner,
        _ => {}
    }
}
