//! A world in memory: it applies changes the way a controller does, and answers calls the way a sound machine does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::metal3::{
    BareMetalHost, BareMetalHostSpec, BareMetalHostStatus, Bmc, DataImage, FirmwareComponent, FirmwareSchema,
    HostFirmwareComponents, HostFirmwareSettings, HostUpdatePolicy, Image, OperationalStatus, PreprovisioningImage,
    PreprovisioningImageStatus, ProvisioningState as State, Raid, SecretStatus, SettingSchema, annotation, finalizer,
};
use api::metamorph::{AgentStep, EraseOptions, Erasure, OfferedStep, RanStep, StepResult, StepsReport};
use host_lifecycle::{
    Action, BUDGET_EXCEEDED, Change, ChildWrite, Children, Credentials, FirmwareFacts, FirmwareSetting, HealthHeard,
    Heard, Next, Outcome, PowerWish, Retry, Settings, Step, Targets, View, answered, conclude, decide,
};
use inventory::{Cpu, ErasedDisk, HardwareDetails};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, OwnerReference};

/// When the world begins.
pub const BEGIN: &str = "2026-01-01T00:00:00Z";

/// What can be read of the BMC's Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Secret {
    Missing,
    Forbidden,
    Empty,
    Version(u32),
}

/// Host, Secret, machine and clock.
pub struct World {
    pub host: BareMetalHost,
    pub hardware_data: Option<Arc<HardwareDetails>>,
    pub secret: Secret,
    /// Versions under which it holds the same.
    pub same: Vec<String>,
    pub settings: Settings,
    pub now: Timestamp,
    pub machine_on: bool,
    /// What was last heard of its health.
    pub health: HealthHeard,
    /// The machine has shown that it lives.
    pub news: bool,
    /// A request asks for the host's rebuild.
    pub rebuild: bool,
    /// What a request asks to be erased, and what was told of it.
    pub erase: Option<EraseOptions>,
    pub erasure: Option<Erasure>,
    pub steps: Option<Vec<AgentStep>>,
    pub stepped: Option<StepsReport>,
    /// An Event was told for it.
    pub told_late: bool,
    /// What has been heard of the work under way.
    pub step: Option<(String, Option<u8>)>,
    pub waited: Option<Timestamp>,
    pub gone: bool,
    pub firmware_settings: Option<HostFirmwareSettings>,
    pub firmware_schema: Option<FirmwareSchema>,
    /// When the firmware was last read.
    pub firmware_read: Option<Timestamp>,
    /// Generations of the wishes for which it was.
    pub firmware_tried: Option<[Option<i64>; 2]>,
    pub media_seen: Option<Timestamp>,
    pub firmware_components: Option<HostFirmwareComponents>,
    pub update_policy: Option<HostUpdatePolicy>,
    pub boot_image: Option<PreprovisioningImage>,
    pub data_image: Option<DataImage>,
    /// The firmware's settings, as the machine has them.
    pub bios: BTreeMap<String, String>,
    /// Its BMC shows no settings.
    pub hides_bios: bool,
    /// Version of its BIOS.
    pub bios_version: &'static str,
    /// What they may be, where the firmware says.
    pub allowed: BTreeMap<String, Vec<String>>,
    /// RAID volumes, as the machine has them.
    pub raid: Option<Raid>,
    /// Updates made, in order.
    pub flashed: Vec<String>,
    /// The medium that the machine is shown.
    pub medium: Option<String>,
    /// Writes to the objects beside the host, but for those of their owners.
    pub child_writes: u32,
    /// Writes of the host's status.
    pub status_writes: u32,
    /// Calls made, in order.
    pub calls: Vec<Action>,
    /// Reasons of Events, in order.
    pub events: Vec<&'static str>,
    /// States passed through, in order.
    pub states: Vec<State>,
    /// The last thing said about when to look again.
    pub next: Next,
}

/// What a sound machine is made of.
pub fn hardware() -> HardwareDetails {
    HardwareDetails {
        cpu: Some(Cpu { arch: Some("x86_64".into()), count: Some(8), ..Cpu::default() }),
        ram_mebibytes: Some(16384),
        ..HardwareDetails::default()
    }
}

pub fn image(url: &str) -> Image {
    Image { url: url.into(), checksum: Some("ab".repeat(16)), ..Image::default() }
}

pub fn failed(message: &str) -> Outcome {
    Outcome::Failed { message: message.into(), retry: Retry::Later }
}

/// A host as a person creates it.
pub fn new_host() -> BareMetalHost {
    let mut host = BareMetalHost::new(
        "worker-0",
        BareMetalHostSpec {
            online: true,
            bmc: Some(Bmc {
                address: "redfish-virtualmedia://192.0.2.1/redfish/v1/Systems/1".into(),
                credentials_name: "worker-0-bmc".into(),
                disable_certificate_verification: None,
            }),
            boot_mac_address: Some("00:11:22:33:44:55".into()),
            ..BareMetalHostSpec::default()
        },
    );
    host.metadata.namespace = Some("metal".into());
    host.metadata.uid = Some("6f1f3f0e-4e5e-4d7e-9a55-000000000001".into());
    host.metadata.generation = Some(1);
    host
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let object = serde_json::to_string(&self.host).unwrap_or_default();
        write!(f, "{object} {:?} machine_on={} data={}", self.secret, self.machine_on, self.hardware_data.is_some())
    }
}

impl World {
    pub fn new() -> Self {
        Self {
            host: new_host(),
            hardware_data: None,
            secret: Secret::Version(1),
            same: Vec::new(),
            settings: Settings::default(),
            now: BEGIN.parse().unwrap(),
            machine_on: false,
            health: HealthHeard::Unasked,
            news: false,
            rebuild: false,
            erase: None,
            erasure: None,
            steps: None,
            stepped: None,
            step: None,
            told_late: false,
            waited: None,
            gone: false,
            firmware_settings: None,
            firmware_schema: None,
            firmware_read: None,
            firmware_tried: None,
            media_seen: None,
            firmware_components: None,
            update_policy: None,
            boot_image: None,
            data_image: None,
            bios: [("BootMode", "Uefi"), ("LogicalProc", "Enabled")].map(|(n, v)| (n.into(), v.into())).into(),
            hides_bios: false,
            bios_version: "1.0",
            allowed: BTreeMap::new(),
            raid: None,
            flashed: Vec::new(),
            medium: None,
            child_writes: 0,
            status_writes: 0,
            calls: Vec::new(),
            events: Vec::new(),
            states: Vec::new(),
            next: Next::Now,
        }
    }

    /// A world whose host has come to rest: available, or provisioned with the image of this URL.
    pub fn at_rest(url: Option<&str>) -> Self {
        let mut world = Self::new();
        world.host.spec.image = url.map(image);
        world.converge();
        let state = if url.is_some() { State::Provisioned } else { State::Available };
        assert_eq!(world.state(), state);
        world.calls.clear();
        world.events.clear();
        world.states.clear();
        world.status_writes = 0;
        world
    }

    /// Message of a condition.
    pub fn message(&self, kind: &str) -> String {
        let status = self.status();
        status.conditions.iter().find(|c| c.type_ == kind).map(|c| c.message.clone()).unwrap_or_default()
    }

    pub fn state(&self) -> State {
        self.host.state()
    }

    pub fn status(&self) -> BareMetalHostStatus {
        self.host.status.clone().unwrap_or_default()
    }

    pub fn view(&self) -> View<'_> {
        let name = "worker-0-bmc";
        let credentials = match &self.secret {
            Secret::Missing => Credentials::Missing { name },
            Secret::Forbidden => Credentials::Forbidden { name },
            Secret::Empty => Credentials::Invalid { name, what: "has no password".into() },
            Secret::Version(version) => {
                let resource_version = ["0", "1", "2", "3", "4"][*version as usize];
                Credentials::Present { name, namespace: "metal", resource_version, same: &self.same }
            }
        };
        View {
            host: &self.host,
            hardware_data: self.hardware_data.as_ref(),
            children: Children {
                firmware_settings: self.firmware_settings.as_ref(),
                firmware_schema: self.firmware_schema.as_ref(),
                firmware_components: self.firmware_components.as_ref(),
                update_policy: self.update_policy.as_ref(),
                boot_image: self.boot_image.as_ref(),
                network_data_version: Some("1"),
                data_image: self.data_image.as_ref(),
            },
            credentials,
            firmware_read: self.firmware_read,
            firmware_tried: self.firmware_tried == Some(self.generations()),
            media_seen: self.media_seen,
            health: self.health,
            news: self.news,
            rebuild: self.rebuild,
            erase: self.erase.as_ref().filter(|_| self.annotated(annotation::ERASE)),
            steps: self.steps.as_deref().filter(|_| self.annotated(annotation::STEPS)),
            heard: Heard {
                step: self.step.as_ref().map(|(step, percent)| (step.as_str(), *percent)),
                waited: self.waited,
                told_late: self.told_late,
            },
            settings: &self.settings,
            now: self.now,
        }
    }

    fn generations(&self) -> [Option<i64>; 2] {
        let settings = self.firmware_settings.as_ref().and_then(|object| object.metadata.generation);
        [settings, self.firmware_components.as_ref().and_then(|object| object.metadata.generation)]
    }

    pub fn decide(&self) -> Step {
        decide(&self.view())
    }

    pub fn conclude(&self, action: &Action, outcome: Outcome) -> Change {
        conclude(&self.view(), action, outcome)
    }

    /// A person edits the spec.
    pub fn edit(&mut self, change: impl FnOnce(&mut BareMetalHostSpec)) {
        change(&mut self.host.spec);
        self.host.metadata.generation = self.host.metadata.generation.map(|g| g + 1);
    }

    pub fn annotate(&mut self, key: &str, value: &str) {
        self.host.metadata.annotations.get_or_insert_default().insert(key.into(), value.into());
    }

    pub fn unannotate(&mut self, key: &str) {
        self.host.metadata.annotations.get_or_insert_default().remove(key);
    }

    pub fn annotated(&self, key: &str) -> bool {
        self.host.annotation(key).is_some()
    }

    /// A person deletes the host.
    pub fn delete(&mut self) {
        self.host.metadata.deletion_timestamp = Some(api::Time(self.now));
    }

    pub fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    /// Writes what a change says, as a controller does.
    pub fn apply(&mut self, change: Change) {
        let before = self.state();
        if let Some(details) = change.hardware_data {
            self.hardware_data = Some(Arc::new(details.hardware));
        }
        if let Some(report) = change.steps {
            self.stepped = Some(*report);
        }
        if let Some(erasure) = change.erasure {
            self.erasure = Some(*erasure);
        }
        for write in change.children {
            let owner = matches!(
                write,
                ChildWrite::OwnFirmwareSettings | ChildWrite::OwnFirmwareComponents | ChildWrite::OwnUpdatePolicy
            );
            self.child_writes += u32::from(!owner);
            self.write_child(write);
        }
        if self.host.status.clone().unwrap_or_default() != change.status {
            // What the API server keeps is what was written as JSON.
            let text = serde_json::to_string(&change.status).unwrap();
            self.host.status = Some(serde_json::from_str(&text).unwrap());
            self.status_writes += 1;
        }
        if let Some(architecture) = change.set_architecture {
            self.edit(|spec| spec.architecture = Some(architecture));
        }
        for key in change.remove_annotations {
            assert!(self.annotated(&key), "{key} is not there");
            self.unannotate(&key);
        }
        if let Some(answer) = change.answer {
            let value = answered(self.host.annotation(annotation::REQUEST).unwrap(), answer);
            self.annotate(annotation::REQUEST, &value);
        }
        if change.add_finalizer {
            self.host.metadata.finalizers.get_or_insert_default().push(finalizer::HOST.into());
        }
        self.told_late |= change.events.iter().any(|event| event.reason == BUDGET_EXCEEDED);
        self.told_late &= self.state() == before;
        self.events.extend(change.events.iter().map(|e| e.reason));
        self.next = change.next;
        if change.next == Next::Gone {
            self.host.metadata.finalizers = None;
            self.gone = true;
        }
        if self.state() != before {
            self.states.push(self.state());
        }
    }

    fn write_child(&mut self, write: ChildWrite) {
        let owner = OwnerReference { uid: self.host.metadata.uid.clone().unwrap(), ..OwnerReference::default() };
        match write {
            ChildWrite::OwnFirmwareSettings => {
                let object = self.firmware_settings.get_or_insert_with(|| created(HostFirmwareSettings::new));
                object.metadata.owner_references = Some(vec![owner]);
            }
            ChildWrite::OwnFirmwareComponents => {
                let object = self.firmware_components.get_or_insert_with(|| created(HostFirmwareComponents::new));
                object.metadata.owner_references = Some(vec![owner]);
            }
            ChildWrite::OwnUpdatePolicy => {
                let object = self.update_policy.as_mut().expect("there is a policy");
                object.metadata.owner_references = Some(vec![owner]);
            }
            ChildWrite::FirmwareSchema { name, spec } => {
                let mut schema = FirmwareSchema::new(&name, stored(&*spec));
                let object = self.firmware_settings.get_or_insert_with(|| created(HostFirmwareSettings::new));
                let uid = object.metadata.uid.clone().unwrap();
                schema.metadata.owner_references = Some(vec![OwnerReference { uid, ..owner }]);
                // As the API: what is there keeps its content and age.
                let there = self.firmware_schema.take().filter(|there| there.metadata.name == schema.metadata.name);
                let made = there.and_then(|there| there.metadata.creation_timestamp);
                schema.metadata.creation_timestamp = Some(made.unwrap_or(api::Time(self.now)));
                self.firmware_schema = Some(schema);
            }
            ChildWrite::FirmwareSettings(status) => {
                let object = self.firmware_settings.get_or_insert_with(|| created(HostFirmwareSettings::new));
                object.status = Some(stored(&*status));
            }
            ChildWrite::FirmwareComponents(status) => {
                let object = self.firmware_components.get_or_insert_with(|| created(HostFirmwareComponents::new));
                object.status = Some(stored(&*status));
            }
            ChildWrite::BootImage(spec) => {
                let image = self.boot_image.get_or_insert_with(|| created(PreprovisioningImage::new));
                image.spec = stored(&*spec);
                image.metadata.generation = image.metadata.generation.map(|g| g + 1);
                image.metadata.finalizers = Some(vec![finalizer::BOOT_IMAGE.into()]);
                self.build_image();
            }
            ChildWrite::HoldDataImage => {
                let image = self.data_image.as_mut().expect("there is a data image");
                image.metadata.finalizers = Some(vec![finalizer::DATA_IMAGE.into()]);
            }
            ChildWrite::DataImage(status) => {
                self.data_image.as_mut().expect("there is a data image").status = Some(stored(&*status));
            }
            ChildWrite::ReleaseBootImage => {
                self.boot_image.as_mut().expect("there is an image").metadata.finalizers = None;
            }
            ChildWrite::ReleaseDataImage => {
                let image = self.data_image.as_mut().expect("there is a data image");
                image.metadata.finalizers = None;
                if image.metadata.deletion_timestamp.is_some() {
                    self.data_image = None;
                }
            }
        }
    }

    /// Somebody builds the image that is asked for.
    pub fn build_image(&mut self) {
        let now = self.now;
        let image = self.boot_image.as_mut().expect("an image is asked for");
        image.status = Some(PreprovisioningImageStatus {
            architecture: image.spec.architecture.clone(),
            format: image.spec.accept_formats.first().copied(),
            image_url: Some("https://images.example/agent.iso".into()),
            network_data: image
                .spec
                .network_data_name
                .clone()
                .map(|name| SecretStatus { name: Some(name), version: Some("1".into()) }),
            conditions: vec![Condition {
                last_transition_time: api::Time(now),
                message: String::new(),
                observed_generation: image.metadata.generation,
                reason: "ImageSuccess".into(),
                status: "True".into(),
                type_: "Ready".into(),
            }],
            ..PreprovisioningImageStatus::default()
        });
    }

    /// A person wishes a setting of the firmware.
    pub fn wish_setting(&mut self, name: &str, value: &str) {
        let object = self.firmware_settings.get_or_insert_with(|| created(HostFirmwareSettings::new));
        object
            .spec
            .settings
            .insert(name.into(), k8s_openapi::apimachinery::pkg::util::intstr::IntOrString::String(value.into()));
        object.metadata.generation = object.metadata.generation.map(|g| g + 1);
    }

    /// A person wishes an update of the firmware.
    pub fn wish_update(&mut self, component: &str, url: &str) {
        let object = self.firmware_components.get_or_insert_with(|| created(HostFirmwareComponents::new));
        object.spec.updates.push(api::metal3::FirmwareUpdate { component: component.into(), url: url.into() });
        object.metadata.generation = object.metadata.generation.map(|g| g + 1);
    }

    /// What the machine's firmware shows.
    pub fn facts(&self) -> FirmwareFacts {
        let versions = [("bios", self.bios_version), ("bmc", "2.0")];
        let component = |(name, version): (&str, &str)| FirmwareComponent {
            component: name.into(),
            initial_version: version.into(),
            current_version: Some(version.into()),
            ..FirmwareComponent::default()
        };
        let setting = |(name, value): (&String, &String)| {
            let allowable_values = self.allowed.get(name).cloned().unwrap_or_default();
            let attribute_type = (!allowable_values.is_empty()).then(|| "Enumeration".to_owned());
            let schema = SettingSchema { attribute_type, allowable_values, ..SettingSchema::default() };
            (name.clone(), FirmwareSetting { value: value.clone(), schema })
        };
        FirmwareFacts {
            settings: (!self.hides_bios).then(|| self.bios.iter().map(setting).collect()),
            components: versions.map(component).into(),
        }
    }

    /// The machine becomes what is wished.
    pub fn make(&mut self, targets: &Targets) {
        if let Some(raid) = &targets.raid {
            self.raid = Some(raid.wished.clone());
        }
        if let Some(settings) = &targets.settings {
            let wished = settings.wished.iter();
            self.bios.extend(wished.map(|(name, value)| (name.clone(), host_lifecycle::setting_text(value))));
        }
        self.flashed.extend(targets.updates.iter().map(|update| update.url.clone()));
    }

    /// What a sound machine answers.
    pub fn sound(&mut self, action: &Action) -> Outcome {
        match action {
            Action::Register { .. } => Outcome::Registered {
                id: "4c4c4544-0000-1000-8000-000000000001".into(),
                powered_on: Some(self.machine_on),
            },
            Action::Inspect { .. } => {
                self.machine_on = true;
                Outcome::Inspected(Box::new(hardware().into()))
            }
            Action::Provision => {
                self.machine_on = true;
                Outcome::Done
            }
            Action::ReadPower => Outcome::Power(self.machine_on),
            Action::SetPower(wish) => {
                // A host that must not be powered off is restarted instead.
                let kept = self.host.spec.disable_power_off == Some(true);
                self.machine_on = *wish == PowerWish::On || kept;
                Outcome::Power(self.machine_on)
            }
            Action::Prepare { targets, .. } | Action::Service { targets, .. } => {
                self.make(targets);
                Outcome::Done
            }
            Action::RefreshFacts => Outcome::Firmware(Box::new(self.facts())),
            Action::AttachMedia { url } => {
                self.medium = Some(url.clone());
                Outcome::Done
            }
            Action::DetachMedia => {
                self.medium = None;
                Outcome::Done
            }
            Action::CheckMedia { .. } => Outcome::Done,
            Action::LookAtMedia => Outcome::Medium(self.medium.clone()),
            Action::Diagnose => Outcome::Diagnosed { finding: "A fan has failed".into() },
            Action::Deprovision { empty: true, .. } => Outcome::Untouched,
            Action::Deprovision { clean: true, .. } => Outcome::Wiped,
            Action::Erase { options, .. } => {
                let disk =
                    ErasedDisk { name: "/dev/sda".into(), result: options.method.aim(), ..ErasedDisk::default() };
                Outcome::Erased(Box::new(Erasure { disks: vec![disk], given_up: None }))
            }
            Action::RunSteps { steps, .. } => {
                let ran = |step: &AgentStep| RanStep {
                    step: step.step.clone(),
                    interface: step.interface.clone(),
                    result: StepResult::Done,
                    ..RanStep::default()
                };
                let offered =
                    vec![OfferedStep { step: "flash".into(), interface: "deploy".into(), ..OfferedStep::default() }];
                let ran = steps.iter().map(ran).collect();
                Outcome::Stepped(Box::new(StepsReport { offered, ran, ..StepsReport::default() }))
            }
            Action::Adopt | Action::Deprovision { .. } | Action::Release => Outcome::Done,
        }
    }

    /// One step, with this answer if a call is made.
    pub fn step_with(&mut self, answer: impl FnOnce(&mut Self, &Action) -> Outcome) -> Option<Action> {
        match self.decide() {
            Step::Change(change) => {
                self.apply(*change);
                None
            }
            Step::Act(action) => {
                let outcome = answer(self, &action);
                if action == Action::RefreshFacts {
                    self.firmware_read = Some(self.now);
                    self.firmware_tried = Some(self.generations());
                }
                let of_media = matches!(action, Action::CheckMedia { .. } | Action::LookAtMedia);
                if of_media || matches!(action, Action::AttachMedia { .. } | Action::DetachMedia) {
                    self.media_seen = Some(self.now);
                }
                self.calls.push(action.clone());
                let change = self.conclude(&action, outcome);
                self.apply(change);
                Some(action)
            }
        }
    }

    /// One step on a sound machine.
    pub fn step(&mut self) -> Option<Action> {
        self.step_with(Self::sound)
    }

    /// Steps on a sound machine until there is nothing to do at this instant.
    pub fn converge(&mut self) {
        for _ in 0..60 {
            self.step();
            if self.next != Next::Now {
                return;
            }
        }
        panic!("does not come to rest: {:?}, {:?}", self.states, self.calls);
    }

    /// Steps until the call that `wanted` picks is due; the clock goes forward as asked.
    pub fn until(&mut self, wanted: impl Fn(&Action) -> bool) -> Action {
        for _ in 0..60 {
            if let Step::Act(action) = self.decide()
                && wanted(&action)
            {
                return action;
            }
            self.step();
            if let Next::After(time) = self.next {
                self.pass(time);
            }
        }
        panic!("the call is never made: {:?}", self.calls);
    }

    /// Steps until `wanted` holds or 60 steps were made; the clock goes forward as asked.
    pub fn run_until(&mut self, wanted: impl Fn(&Self) -> bool) -> bool {
        for _ in 0..60 {
            if wanted(self) {
                return true;
            }
            self.step();
            match self.next {
                Next::After(time) => self.pass(time),
                Next::Wait => self.pass(Duration::from_secs(600)),
                Next::Now | Next::Gone => {}
            }
        }
        wanted(self)
    }

    /// Fails the call that is due.
    pub fn fail(&mut self, message: &str) {
        let message = message.to_owned();
        let action = self.step_with(move |_, _| failed(&message));
        assert!(action.is_some(), "no call is due in {:?}", self.state());
    }

    pub fn in_error(&self) -> bool {
        self.status().operational_status == OperationalStatus::Error || self.status().error_type.is_some()
    }

    pub fn condition(&self, kind: &str) -> (String, String) {
        let status = self.status();
        let found = status.conditions.iter().find(|c| c.type_ == kind).unwrap();
        (found.status.clone(), found.reason.clone())
    }
}

/// What the API server keeps is what was written as JSON.
fn stored<T: serde::Serialize + serde::de::DeserializeOwned>(value: &T) -> T {
    serde_json::from_str(&serde_json::to_string(value).unwrap()).unwrap()
}

/// An object beside the host, as it is created.
pub fn created<T: serde::Serialize + serde::de::DeserializeOwned, S: Default>(new: impl Fn(&str, S) -> T) -> T {
    let mut object = serde_json::to_value(new("worker-0", S::default())).unwrap();
    object["metadata"]["generation"] = 1.into();
    object["metadata"]["uid"] = format!("uid of the {}", object["kind"].as_str().unwrap()).into();
    serde_json::from_value(object).unwrap()
}

/// Reboot annotation with a key of its own.
pub fn held_off() -> String {
    format!("{}/maintenance", annotation::REBOOT)
}
