//! What holds for every host, every answer and every time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::kit::{self, Secret, World, created, hardware, held_off, image};
use api::metal3::{
    BareMetalHost, BootFormat, CredentialsStatus, CustomDeploy, DataImage, ErrorType, HardwareRaidVolume,
    HostUpdatePolicy, InspectionMode, OperationMetric, OperationalStatus, ProvisioningState as State, Raid,
    SecretReference, UpdatePolicy, annotation, finalizer,
};
use api::metamorph::EraseOptions;
use host_lifecycle::{
    Action, Next, Outcome, Retry, Settings, Standing, Step, back_off, decide, diagram, standing,
    wished_root_device_hints,
};
use inventory::RootDeviceHints;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};

const URLS: [&str; 3] = ["https://images.example/a.raw", "https://images.example/b.qcow2", "nonsense"];

/// A coin for each weight: the percentage of throws that are true.
fn coins<const N: usize>(weights: [u8; N]) -> impl Strategy<Value = [bool; N]>
where
    [u8; N]: Arbitrary + Copy,
{
    any::<[u8; N]>()
        .prop_map(move |throws| std::array::from_fn(|i| u16::from(255 - throws[i]) * 100 < u16::from(weights[i]) * 256))
}

fn state() -> impl Strategy<Value = State> {
    select(State::ALL.to_vec())
}

fn error_type() -> impl Strategy<Value = Option<ErrorType>> {
    prop_oneof![
        3 => Just(None),
        4 => select(vec![
            ErrorType::ProvisionedRegistration,
            ErrorType::Registration,
            ErrorType::Inspection,
            ErrorType::Preparation,
            ErrorType::Provisioning,
            ErrorType::PowerManagement,
            ErrorType::Servicing,
        ])
        .prop_map(Some),
    ]
}

fn operational() -> impl Strategy<Value = OperationalStatus> {
    select(vec![
        OperationalStatus::Unknown,
        OperationalStatus::Ok,
        OperationalStatus::Ok,
        OperationalStatus::Discovered,
        OperationalStatus::Error,
        OperationalStatus::Delayed,
        OperationalStatus::Detached,
        OperationalStatus::Servicing,
    ])
}

fn secret() -> impl Strategy<Value = Secret> {
    prop_oneof![
        5 => (1u32..4).prop_map(Secret::Version),
        1 => Just(Secret::Missing),
        1 => Just(Secret::Forbidden),
        1 => Just(Secret::Empty),
    ]
}

fn credentials() -> impl Strategy<Value = CredentialsStatus> {
    prop_oneof![
        1 => Just(CredentialsStatus::default()),
        4 => (1u32..4).prop_map(|version| CredentialsStatus {
            credentials: Some(SecretReference {
                name: Some("worker-0-bmc".into()),
                namespace: Some("metal".into()),
            }),
            credentials_version: Some(version.to_string()),
        }),
    ]
}

fn url() -> impl Strategy<Value = Option<&'static str>> {
    prop_oneof![1 => Just(None), 3 => select(URLS.to_vec()).prop_map(Some)]
}

fn annotations() -> impl Strategy<Value = Vec<(String, String)>> {
    let one = select(vec![
        (annotation::PAUSED.to_owned(), ""),
        (annotation::DETACHED.to_owned(), ""),
        (annotation::DETACHED.to_owned(), r#"{"force":true}"#),
        (annotation::DETACHED.to_owned(), r#"{"deleteAction":"delay"}"#),
        (annotation::STATUS.to_owned(), r#"{"provisioning":{"state":"provisioned","ID":"x"}}"#),
        (annotation::STATUS.to_owned(), r#"{"provisioning":{"state":"deleting"}}"#),
        (annotation::STATUS.to_owned(), "{{{"),
        (annotation::REBOOT.to_owned(), ""),
        (annotation::REBOOT.to_owned(), r#"{"mode":"hard","force":true}"#),
        (annotation::REBOOT.to_owned(), "\u{0}"),
        (held_off(), ""),
        (annotation::INSPECT.to_owned(), ""),
        (annotation::INSPECT.to_owned(), ""),
        (annotation::INSPECT.to_owned(), "disabled"),
        (annotation::HARDWARE_DETAILS.to_owned(), r#"{"ramMebibytes":1}"#),
        (annotation::HARDWARE_DETAILS.to_owned(), "[]"),
        (annotation::OVERWRITE_OWNER.to_owned(), "someone"),
        (annotation::DIAGNOSE.to_owned(), ""),
        (annotation::ERASE.to_owned(), "r/u"),
        (annotation::STEPS.to_owned(), "r/u"),
    ]);
    proptest::collection::vec(one.prop_map(|(k, v)| (k, v.to_owned())), 0..3)
}

/// Any host in any state with any past, not only such as can come about.
fn world() -> impl Strategy<Value = World> {
    let past = (
        state(),
        error_type(),
        operational(),
        0i64..12,
        0i64..8,
        0i64..100_000,
        coins([50, 90, 25, 50, 80, 30, 20, 50]),
    );
    let facts = (credentials(), credentials(), url(), url());
    let wishes = (
        url(),
        coins([20, 15, 30, 20, 20, 20, 20, 30, 20, 50]),
        prop_oneof![3 => Just(None), 1 => Just(Some(InspectionMode::Disabled))],
    );
    (past, facts, wishes, secret(), annotations(), beside()).prop_map(
        |(past, facts, wishes, secret, annotations, beside)| {
            let mut world = World::new();
            give_beside(&mut world, beside);
            world.secret = secret;
            world.settings.served.custom_deploy = wishes.1[9];
            give_past(&mut world, past);
            give_facts(&mut world, facts);
            give_wishes(&mut world, wishes);
            for (key, value) in annotations {
                world.annotate(&key, &value);
            }
            // For as long as its annotation is there, a request asks for it.
            world.erase = Some(EraseOptions::default());
            world.settings.served.erase = true;
            world.steps = Some(vec![]);
            world.settings.served.steps = true;
            world
        },
    )
}

/// What the provisioner serves beside the basics, and the objects beside the host.
fn beside() -> impl Strategy<Value = ([bool; 7], [bool; 9])> {
    // In most worlds nothing is served, as by the native provisioner.
    let served = prop_oneof![
        1 => Just([false; 7]),
        1 => coins([60, 60, 60, 60, 60, 60, 20]),
    ];
    (served, coins([40, 40, 40, 20, 40, 60, 60, 50, 50]))
}

fn give_beside(world: &mut World, (served, there): ([bool; 7], [bool; 9])) {
    let [raid, settings, updates, servicing, media, diagnosis, images] = served;
    world.settings.served.software_raid = raid;
    let mine = &mut world.settings.served;
    (mine.hardware_raid, mine.firmware_settings, mine.firmware_updates) = (raid, settings, updates);
    (mine.service, mine.data_images, mine.diagnose) = (servicing, media, diagnosis);
    if images {
        mine.boot_images = vec![BootFormat::Iso];
    }
    let [volumes, made, bios, wrong, flash, policy, medium, attached, deleted] = there;
    let one = |level: &str| {
        let volume = HardwareRaidVolume { level: level.into(), ..HardwareRaidVolume::default() };
        Raid { hardware_raid_volumes: Some(vec![volume]), software_raid_volumes: None }
    };
    if raid && volumes {
        world.host.spec.raid = Some(one("1"));
    }
    if raid && made {
        let mut status = world.status();
        status.provisioning.raid = Some(one(if wrong { "1" } else { "0" }));
        world.host.status = Some(status);
    }
    if settings && bios {
        world.wish_setting(if wrong { "Nonsense" } else { "LogicalProc" }, "Disabled");
    }
    if updates && flash {
        world.wish_update(if wrong { "toaster" } else { "bios" }, "https://firmware.example/1");
    }
    if policy {
        let mut object: HostUpdatePolicy = created(HostUpdatePolicy::new);
        object.spec.firmware_settings = Some(if wrong { UpdatePolicy::OnPreparing } else { UpdatePolicy::OnReboot });
        object.spec.firmware_updates = Some(UpdatePolicy::OnReboot);
        world.update_policy = Some(object);
    }
    if medium {
        let mut object: DataImage = created(DataImage::new);
        object.spec.url = "https://media.example/a.iso".into();
        if attached {
            let url = format!("https://media.example/{}.iso", if wrong { "a" } else { "b" });
            world.medium = Some(url.clone());
            object.metadata.finalizers = Some(vec![finalizer::DATA_IMAGE.into()]);
            object.status = Some(api::metal3::DataImageStatus {
                attached_image: Some(api::metal3::AttachedImage { url }),
                ..api::metal3::DataImageStatus::default()
            });
        }
        if deleted && attached {
            object.metadata.deletion_timestamp = Some(api::Time(world.now));
        }
        world.data_image = Some(object);
    }
}

type Past = (State, Option<ErrorType>, OperationalStatus, i64, i64, i64, [bool; 8]);

fn give_past(world: &mut World, (state, error, operational, errors, failures, age, flags): Past) {
    let [no_status, finalized, deleting, on, known, edited, adopting, machine_on] = flags;
    if finalized {
        world.host.metadata.finalizers = Some(vec![finalizer::HOST.into()]);
    }
    if deleting {
        world.delete();
    }
    world.machine_on = machine_on;
    if no_status && state == State::None {
        world.host.status = None;
        return;
    }
    let now = world.now;
    let then = api::Time(now - Duration::from_secs(age.unsigned_abs()));
    let mut status = world.status();
    status.provisioning.state = state;
    status.operational_status = operational;
    status.error_type = error;
    status.error_message = error.map(|_| "it broke".to_owned()).unwrap_or_default();
    status.error_count = errors;
    status.provisioning_fail_count = failures;
    status.powered_on = on;
    status.last_updated = Some(then.clone());
    status.conditions.push(Condition {
        last_transition_time: then.clone(),
        message: String::new(),
        observed_generation: Some(1),
        reason: "NotProvisioned".into(),
        status: "False".into(),
        type_: "Ready".into(),
    });
    if known {
        status.provisioning.id = "4c4c4544-0000-1000-8000-000000000001".into();
        status.hardware = Some(Arc::new(hardware()));
        world.hardware_data = Some(Arc::new(hardware()));
        world.host.spec.architecture = (!edited).then(|| "x86_64".to_owned());
    }
    let end = (!adopting).then(|| then.clone());
    status.operation_history.register = OperationMetric { start: Some(then), end };
    world.host.status = Some(status);
    if edited {
        world.edit(|_| {});
    }
}

type Facts = (CredentialsStatus, CredentialsStatus, Option<&'static str>, Option<&'static str>);

fn give_facts(world: &mut World, (good, tried, there, attempted): Facts) {
    let Some(status) = world.host.status.as_mut() else { return };
    status.good_credentials = good;
    status.tried_credentials = tried;
    if matches!(status.provisioning.state, State::Provisioned | State::ExternallyProvisioned | State::Deprovisioning) {
        status.provisioning.image = there.map(image).unwrap_or_default();
    }
    status.last_attempted_image = attempted.map(image);
}

fn give_wishes(world: &mut World, wishes: (Option<&'static str>, [bool; 10], Option<InspectionMode>)) {
    let (url, [offline, external, no_bmc, keep_on, hints, method, no_mac, no_name, profile, _], inspection) = wishes;
    let spec = &mut world.host.spec;
    spec.image = url.map(image);
    spec.online = !offline;
    spec.externally_provisioned = Some(external);
    spec.disable_power_off = Some(keep_on);
    spec.inspection_mode = inspection;
    if no_bmc && no_name {
        spec.bmc = None;
    }
    if no_mac {
        spec.boot_mac_address = None;
    }
    if hints {
        let serial = RootDeviceHints { serial_number: Some("abc".into()), ..RootDeviceHints::default() };
        spec.root_device_hints = Some(serial);
    }
    if method {
        spec.custom_deploy = Some(CustomDeploy { method: "burn".into() });
    }
    if profile && no_name {
        spec.hardware_profile = Some("nobody's".into());
    }
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        2 => any::<[bool; 2]>().prop_map(|[id, on]| Outcome::Registered {
            id: if id { "an-id".into() } else { String::new() },
            powered_on: on.then_some(true),
        }),
        1 => any::<bool>().prop_map(|on| Outcome::Recognized {
            id: "an-id".into(),
            powered_on: on.then_some(true),
            image: Box::new(image("http://i/1")),
            root_device_hints: None,
        }),
        3 => Just(Outcome::Done),
        1 => Just(Outcome::Erased(Box::default())),
        1 => Just(Outcome::Stepped(Box::default())),
        2 => any::<bool>().prop_map(Outcome::Power),
        1 => any::<bool>().prop_map(|on| Outcome::PowerTold { on, message: "it is to be known".into() }),
        2 => Just(Outcome::Inspected(Box::new(hardware().into()))),
        1 => Just(Outcome::Accepted { look_again: Duration::from_secs(3) }),
        1 => any::<u64>().prop_map(|s| Outcome::Busy { message: "full".into(), look_again: Duration::from_secs(s) }),
        1 => Just(Outcome::NeedsRegistration),
        1 => Just(Outcome::NeedsImage),
        1 => any::<bool>().prop_map(|some| Outcome::Firmware(Box::new(if some {
            World::new().facts()
        } else {
            host_lifecycle::FirmwareFacts::default()
        }))),
        1 => "\\PC{0,40}".prop_map(|finding| Outcome::Diagnosed { finding: finding.repeat(200) }),
        1 => Just(Outcome::Blocked { message: "A Secret is missing".into() }),
        2 => any::<u64>().prop_map(|s| Outcome::Working { look_again: Duration::from_secs(s) }),
        2 => ("\\PC{0,40}", any::<bool>()).prop_map(|(message, later)| Outcome::Failed {
            message: message.repeat(200),
            retry: if later { Retry::Later } else { Retry::AfterChange },
        }),
    ]
}

/// The transitions as the diagram shows them.
fn transitions() -> BTreeSet<(String, String)> {
    diagram()
        .lines()
        .filter_map(|line| line.trim().split_once(" --> "))
        .filter(|(from, to)| *from != "[*]" && !to.starts_with("[*]"))
        .map(|(from, to)| (from.to_owned(), to.split(':').next().unwrap_or_default().to_owned()))
        .collect()
}

fn transition(from: State, to: State) -> (String, String) {
    (format!("{from:?}"), format!("{to:?}"))
}

fn restores(world: &World) -> bool {
    let status = world.status();
    let was_never_registered =
        status.provisioning.id.is_empty() && matches!(world.state(), State::None | State::Registering);
    world.annotated(annotation::STATUS) && (status.last_updated.is_none() || was_never_registered)
}

fn is_provisioned(state: State) -> bool {
    matches!(state, State::Provisioned | State::ExternallyProvisioned)
}

/// The destructive and the costly calls are made in their own states only.
fn call_is_allowed(world: &World, action: &Action) -> bool {
    let (state, deleting) = (world.state(), world.host.is_deleting());
    match action {
        Action::Provision => state == State::Provisioning && !deleting,
        Action::Deprovision { .. } => state == State::Deprovisioning,
        Action::Erase { .. } => state == State::Deprovisioning && !deleting && world.annotated(annotation::ERASE),
        Action::RunSteps { .. } => state == State::Deprovisioning && !deleting && world.annotated(annotation::STEPS),
        Action::Inspect { .. } => state == State::Inspecting && !deleting,
        Action::Adopt => matches!(state, State::Provisioned | State::ExternallyProvisioned) && !deleting,
        Action::SetPower(_) | Action::ReadPower => matches!(
            state,
            State::Available
                | State::Ready
                | State::Provisioned
                | State::ExternallyProvisioned
                | State::PoweringOffBeforeDelete
        ),
        Action::Release => deleting || world.annotated(annotation::DETACHED),
        Action::Prepare { targets, .. } => {
            let served = &world.settings.served;
            state == State::Preparing
                && !deleting
                && served.prepares()
                && (targets.raid.is_none() || served.raid())
                && (targets.settings.is_none() || served.firmware_settings)
                && (targets.updates.is_empty() || served.firmware_updates)
        }
        Action::Service { targets, .. } => {
            let policy = world.update_policy.as_ref().map(|object| object.spec.clone()).unwrap_or_default();
            let allows = |policy: Option<UpdatePolicy>, wished: bool| !wished || policy == Some(UpdatePolicy::OnReboot);
            let served = &world.settings.served;
            is_provisioned(state)
                && !deleting
                && served.service
                && targets.raid.is_none()
                && allows(policy.firmware_settings, targets.settings.is_some())
                && allows(policy.firmware_updates, !targets.updates.is_empty())
        }
        Action::AttachMedia { .. } | Action::DetachMedia => {
            is_provisioned(state)
                && !deleting
                && world.settings.served.data_images
                && !world.status().powered_on
                && world.host.spec.online
        }
        Action::CheckMedia { .. } | Action::LookAtMedia => {
            is_provisioned(state) && !deleting && world.settings.served.data_images
        }
        Action::RefreshFacts => {
            let available = matches!(state, State::Preparing | State::Available | State::Ready);
            !deleting && world.settings.served.prepares() && (available || is_provisioned(state))
        }
        Action::Diagnose => !deleting && world.settings.served.diagnose && world.annotated(annotation::DIAGNOSE),
        Action::Register { .. } => !matches!(state, State::None | State::Unmanaged | State::Deleting),
    }
}

/// A person takes away whatever stands in the way of provisioning.
fn clear_the_way(world: &mut World) {
    world.secret = Secret::Version(1);
    world.settings.max_provisioning_retries = 0;
    world.next = Next::Now;
    world.host.metadata.annotations = None;
    world.boot_image = None;
    // What was wished of the firmware by somebody whose machine is another.
    world.update_policy = None;
    world.data_image = None;
    let fresh = kit::new_host().spec;
    world.edit(|spec| {
        *spec = fresh;
        spec.image = Some(image(URLS[0]));
    });
}

/// A machine is recognized as what its host asks for, or, where its power is not seen, as what it has asked for before.
fn of_the_host(outcome: Outcome, host: &BareMetalHost) -> Outcome {
    match outcome {
        Outcome::Recognized { id, powered_on: Some(on), .. } => Outcome::Recognized {
            id,
            powered_on: Some(on),
            image: Box::new(host.spec.image.clone().unwrap_or_default()),
            root_device_hints: wished_root_device_hints(host).map(Box::new),
        },
        other => other,
    }
}

/// So many cases, unless `PROPTEST_CASES` says how many.
fn cases(number: u32) -> u32 {
    if std::env::var_os("PROPTEST_CASES").is_some() { Config::default().cases } else { number }
}

proptest! {
    #![proptest_config(Config { cases: cases(3000), failure_persistence: None, ..Config::default() })]

    #[test]
    fn one_step_keeps_every_rule(mut world in world(), outcome in outcome()) {
        let (before, status) = (world.state(), world.status());
        let outcome = of_the_host(outcome, &world.host);
        let paused = world.annotated(annotation::PAUSED);
        let restored = restores(&world);
        let decided = world.decide();
        prop_assert_eq!(&decided, &world.decide(), "the same view is decided differently");
        let change = match &decided {
            Step::Change(change) => {
                if paused {
                    prop_assert!(change.is_empty(world.host.status.as_ref()));
                    prop_assert_eq!(change.next, Next::Wait);
                }
                (**change).clone()
            }
            Step::Act(action) => {
                prop_assert!(!paused, "a paused host is worked on");
                prop_assert!(call_is_allowed(&world, action), "{:?} in {:?}", action, before);
                world.conclude(action, outcome.clone())
            }
        };
        prop_assert!(change.status.error_count >= 0 && change.status.provisioning_fail_count >= 0);
        prop_assert!(change.status.error_message.len() <= 4096 && change.status.conditions.len() <= 6);
        prop_assert!(change.events.iter().all(|e| e.message.len() <= 1024));
        if let Next::After(wait) = change.next {
            prop_assert!(!wait.is_zero() && wait <= Duration::from_secs(24 * 3600));
        }
        let in_error = change.status.operational_status == OperationalStatus::Error;
        if change.status != status && !restored {
            prop_assert_eq!(change.status.last_updated.clone().map(|t| t.0), Some(world.now));
            prop_assert!(!in_error || change.status.error_type.is_some() || status.error_type.is_none());
        }
        let after = change.status.provisioning.state;
        if after != before && !restored {
            prop_assert!(transitions().contains(&transition(before, after)), "{:?} to {:?}", before, after);
        }
        if after == State::Provisioning && before != after && !restored {
            prop_assert!(world.host.spec.online && !world.host.is_deleting());
            prop_assert!(world.host.spec.image.is_some() || world.host.spec.custom_deploy.is_some());
        }
        let failed = matches!(outcome, Outcome::Failed { .. }) || change.status.error_type.is_some();
        world.apply(change);
        if let Step::Act(action) = &decided
            && !failed
        {
            let again = world.conclude(action, outcome);
            prop_assert!(!again.status_differs(world.host.status.as_ref()), "{:?}\n{:?}", again.status, world.status());
            prop_assert!(again.events.is_empty() && again.hardware_data.is_none(), "{:?}", again.events);
        }
    }

    #[test]
    fn nothing_is_decided_for_a_host_that_is_as_declared(mut world in world()) {
        // Credentials are no part of the object.
        if let (Some(status), Secret::Version(_)) = (world.host.status.as_mut(), &world.secret) {
            status.good_credentials = status.tried_credentials.clone();
        }
        if let Standing::AsDeclared(what) = standing(&world.host) {
            match world.decide() {
                Step::Act(Action::ReadPower | Action::Register { .. } | Action::Diagnose) => {}
                // What is wished of the firmware stands in other objects.
                Step::Act(Action::RefreshFacts | Action::Service { .. }) => {}
                Step::Act(Action::AttachMedia { .. } | Action::DetachMedia) => {}
                Step::Act(Action::CheckMedia { .. } | Action::LookAtMedia) => {}
                Step::Act(action) => prop_assert!(false, "{what}, and {action:?} is called"),
                Step::Change(change) => {
                    let to = change.status.provisioning.state;
                    prop_assert!(to == world.state() || restores(&world), "{what}, and it goes to {to:?}");
                }
            }
        }
    }

    #[test]
    fn a_host_at_rest_is_as_declared(mut world in world()) {
        world.host.metadata.deletion_timestamp = None;
        world.unannotate(annotation::PAUSED);
        for _ in 0..80 {
            let called = world.step();
            match world.next {
                Next::Now => {}
                Next::Gone | Next::Wait => return Ok(()),
                Next::After(wait) => {
                    let rests = |step: &Action| *step == Action::ReadPower;
                    let again = matches!(world.decide(), Step::Act(step) if rests(&step));
                    if called.as_ref().is_some_and(rests) && again && !world.in_error() {
                        let found = standing(&world.host);
                        prop_assert!(matches!(found, Standing::AsDeclared(_)), "{:?} after {:?}", found, world.calls);
                        return Ok(());
                    }
                    world.pass(wait);
                }
            }
        }
    }

    #[test]
    fn what_waits_has_nothing_left_to_write(mut world in world()) {
        for _ in 0..40 {
            if matches!(world.decide(), Step::Act(_)) {
                break;
            }
            world.step();
            match world.next {
                Next::Gone => return Ok(()),
                Next::After(_) | Next::Wait => {
                    if let Step::Change(again) = world.decide() {
                        prop_assert!(again.is_empty(world.host.status.as_ref()), "{:?}", again);
                    }
                    return Ok(());
                }
                Next::Now => {}
            }
        }
        prop_assert!(matches!(world.decide(), Step::Act(_)), "changes without end: {:?}", world.states);
    }

    #[test]
    fn a_deletion_ends(mut world in world()) {
        world.delete();
        world.unannotate(annotation::PAUSED);
        if world.host.annotation(annotation::DETACHED).is_some_and(|v| v.contains("delay")) {
            world.unannotate(annotation::DETACHED);
        }
        prop_assert!(world.run_until(|w| w.gone), "{:?} {:?} {:?}", world.states, world.calls, world.next);
        prop_assert!(!world.calls.contains(&Action::Provision));
    }

    #[test]
    fn a_deletion_ends_even_if_every_call_fails(mut world in world(), later in any::<bool>(), blocked in any::<bool>()) {
        world.delete();
        world.unannotate(annotation::PAUSED);
        world.unannotate(annotation::DETACHED);
        let retry = if later { Retry::Later } else { Retry::AfterChange };
        for _ in 0..60 {
            world.step_with(|_, _| {
                let message = "dead".to_owned();
                if blocked { Outcome::Blocked { message } } else { Outcome::Failed { message, retry } }
            });
            match world.next {
                Next::After(wait) => world.pass(wait),
                Next::Gone => return Ok(()),
                Next::Now => {}
                Next::Wait => prop_assert!(false, "waits for an edit"),
            }
        }
        prop_assert!(false, "{:?} {:?}", world.states, world.status());
    }

    #[test]
    fn every_host_gets_provisioned_once_nothing_stands_in_the_way(
        mut world in world(),
        outcomes in proptest::collection::vec(outcome(), 0..12),
    ) {
        world.host.metadata.deletion_timestamp = None;
        if matches!(world.state(), State::PoweringOffBeforeDelete | State::Deleting) {
            // Ways of no return.
            return Ok(());
        }
        for outcome in outcomes {
            world.step_with(|_, _| outcome.clone());
            if let Next::After(wait) = world.next {
                world.pass(wait);
            }
        }
        clear_the_way(&mut world);
        let there = |w: &World| {
            w.state() == State::Provisioned && !w.in_error() && w.status().powered_on && w.next != Next::Now
        };
        prop_assert!(world.run_until(there), "{:?} {:?} {:?}", world.states, world.calls, world.status());
        prop_assert_eq!(world.status().error_count, 0);
    }

    #[test]
    fn without_an_edit_a_failure_is_over_when_its_cause_is(
        outcomes in proptest::collection::vec(outcome(), 1..25),
    ) {
        let mut world = World::new();
        world.settings.max_provisioning_retries = 0;
        world.host.spec.image = Some(image(URLS[0]));
        for outcome in outcomes {
            world.step_with(|_, _| outcome.clone());
            match world.next {
                Next::After(wait) => world.pass(wait),
                // A resync, or whatever else wakes hosts.
                Next::Wait => world.pass(Duration::from_secs(24 * 3600)),
                Next::Now | Next::Gone => {}
            }
        }
        let there = |w: &World| w.state() == State::Provisioned && !w.in_error() && w.status().powered_on;
        prop_assert!(world.run_until(there), "{:?} {:?} {:?}", world.states, world.calls, world.status());
        prop_assert!(!world.gone);
    }

    #[test]
    fn waits_grow_and_are_bounded(uid in "\\PC{0,40}", unit in 0u64..100_000_000, n in 0u32..2_000_000) {
        let unit = Duration::from_millis(unit);
        let (this, next) = (back_off(unit, &uid, n), back_off(unit, &uid, n.saturating_add(1)));
        prop_assert!(this <= next && next <= Duration::from_secs(24 * 3600));
        let full = unit * (1 << n.min(9));
        prop_assert!(this <= full);
        prop_assert!(this >= (full / 2).min(Duration::from_secs(24 * 3600)));
    }
}

proptest! {
    #![proptest_config(Config { cases: cases(600), failure_persistence: None, ..Config::default() })]

    #[test]
    fn what_is_accepted_is_handed_over_once(mut world in world()) {
        for _ in 0..40 {
            let decided = world.decide();
            let handed = match &decided {
                Step::Act(Action::Prepare { targets, .. } | Action::Service { targets, .. }) => (**targets).clone(),
                _ => {
                    world.step();
                    match world.next {
                        Next::Gone | Next::Wait => return Ok(()),
                        Next::After(wait) => world.pass(wait),
                        Next::Now => {}
                    }
                    continue;
                }
            };
            world.step_with(|_, _| Outcome::Accepted { look_again: Duration::from_secs(1) });
            let preparing = world.state() == State::Preparing;
            let ended = if preparing { ErrorType::Preparation } else { ErrorType::Servicing };
            prop_assert!(world.status().error_type != Some(ended), "{:?}", world.status());
            match world.decide() {
                Step::Act(Action::Prepare { targets, .. } | Action::Service { targets, .. }) => {
                    // Where volumes may be made, it is the same wish until it is done.
                    let mut again = (*targets).clone();
                    if let (Some(again), Some(before)) = (&mut again.raid, &handed.raid) {
                        again.present.clone_from(&before.present);
                    }
                    let same = world.settings.served.raid() && preparing && again == handed;
                    prop_assert!(targets.is_empty() || same, "{:?} after {:?}", targets, handed);
                }
                Step::Act(Action::Diagnose | Action::Register { .. }) => {}
                other => prop_assert!(false, "{:?} after {:?}", other, handed),
            }
            return Ok(());
        }
    }

    #[test]
    fn where_nothing_is_served_nothing_beside_the_host_is_touched(mut world in world()) {
        world.settings.served = host_lifecycle::Served::default();
        world.data_image = None;
        for _ in 0..40 {
            let called = world.step();
            let new = |action: &Action| {
                !matches!(
                    action,
                    Action::Register { .. } | Action::Adopt | Action::Inspect { .. } | Action::ReadPower | Action::SetPower(_)
                        | Action::Provision | Action::Deprovision { .. } | Action::Release
                )
            };
            prop_assert!(!called.as_ref().is_some_and(new), "{:?}", called);
            prop_assert_eq!(world.child_writes, 0);
            if let Next::After(wait) = world.next {
                world.pass(wait);
            }
        }
    }
}

#[test]
fn every_transition_is_used_and_no_other() {
    let mut runner = TestRunner::deterministic();
    let (worlds, outcomes) = (world(), outcome());
    let mut used = BTreeSet::new();
    for _ in 0..12_000 {
        let mut world = worlds.new_tree(&mut runner).unwrap().current();
        if world.annotated(annotation::STATUS) {
            continue;
        }
        for turn in 0..6 {
            let before = world.state();
            let answer = of_the_host(outcomes.new_tree(&mut runner).unwrap().current(), &world.host);
            world.step_with(|world, action| if turn % 2 == 0 { world.sound(action) } else { answer });
            if world.state() != before {
                used.insert(transition(before, world.state()));
            }
        }
    }
    assert_eq!(used, transitions());
}

#[test]
fn the_wait_after_the_first_failure_is_one_to_two_units() {
    let unit = Settings::default().backoff_unit;
    let waits: BTreeSet<_> = (0..50).map(|n| back_off(unit, &format!("uid-{n}"), 1)).collect();
    assert!(waits.iter().all(|w| (60..=120).contains(&w.as_secs())));
    assert!(waits.len() > 40, "hosts that fail together are retried together");
}

#[test]
fn a_clock_that_goes_back_does_not_stop_retries() {
    let mut world = World::at_rest(Some(URLS[0]));
    world.until(|a| *a == Action::ReadPower);
    world.fail("Nothing answers");
    world.now = "2020-01-01T00:00:00Z".parse().unwrap();
    match decide(&world.view()) {
        Step::Change(change) => assert!(matches!(change.next, Next::After(wait) if wait.as_secs() <= 120)),
        Step::Act(action) => panic!("{action:?} is not made to wait"),
    }
}
