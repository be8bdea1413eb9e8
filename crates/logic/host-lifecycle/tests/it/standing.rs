//! Whether a host is as it is declared, case by case. That it agrees with what is decided is a property.

use crate::kit::{World, held_off, image};
use api::metal3::{ErrorType, OperationalStatus, ProvisioningState as State, annotation};
use host_lifecycle::{Standing, standing};
use inventory::RootDeviceHints;

const URL: &str = "https://images.example/debian.qcow2";

type Case = (&'static str, Option<&'static str>, fn(&mut World), &'static str);

/// `=` as declared, `~` not yet, `!` needs a change; then a part of the words.
const CASES: &[Case] = &[
    ("at rest without an image", None, |_| {}, "=available"),
    ("at rest with its image", Some(URL), |_| {}, "=provisioned with https://images.example/debian.qcow2"),
    ("another image is wished", Some(URL), |w| w.edit(|s| s.image = Some(image("https://images.example/b"))), "~"),
    ("its image is no longer wished", Some(URL), |w| w.edit(|s| s.image = None), "~"),
    ("an image is wished", None, |w| w.edit(|s| s.image = Some(image(URL))), "~"),
    ("an edit that nobody has looked at", None, |w| w.edit(|s| s.description = Some("x".into())), "~"),
    ("declared off, seen on", Some(URL), |w| set(w, |w| w.host.spec.online = false), "~"),
    ("seen off, declared on", Some(URL), |w| power(w, false), "~"),
    ("a restart is asked for", Some(URL), |w| w.annotate(annotation::REBOOT, ""), "~"),
    ("held off and on", Some(URL), |w| w.annotate(&held_off(), ""), "~"),
    (
        "held off and off",
        Some(URL),
        |w| {
            w.annotate(&held_off(), "");
            power(w, false);
        },
        "=provisioned",
    ),
    ("a profile that nobody knows", None, |w| set(w, |w| w.host.spec.hardware_profile = Some("nobody's".into())), "~"),
    ("another inspection is asked for", None, |w| w.annotate(annotation::INSPECT, ""), "~"),
    (
        "other hints",
        None,
        |w| {
            set(w, |w| {
                w.host.spec.root_device_hints =
                    Some(RootDeviceHints { model: Some("x".into()), ..RootDeviceHints::default() });
            })
        },
        "~",
    ),
    (
        "an image for a host that is declared off",
        None,
        |w| {
            set(w, |w| {
                w.host.spec.image = Some(image(URL));
                w.host.spec.online = false;
            });
            power(w, false);
        },
        "=available; the image is written when spec.online is true",
    ),
    (
        "the checksum was edited afterwards",
        Some(URL),
        |w| {
            set(w, |w| {
                w.host.spec.image.as_mut().unwrap().checksum = Some("de".repeat(16));
            })
        },
        "=which writes nothing anew",
    ),
    ("work failed and is tried again", None, |w| error(w, State::Inspecting, ErrorType::Inspection), "~it broke"),
    (
        "the image failed, and is deprovisioned",
        None,
        |w| error(w, State::Provisioning, ErrorType::Provisioning),
        "~it broke",
    ),
    ("the image is refused", None, |w| error(w, State::Available, ErrorType::Provisioning), "!it broke"),
    (
        "the image was refused, and is edited",
        None,
        |w| {
            error(w, State::Available, ErrorType::Provisioning);
            w.edit(|s| s.image = Some(image(URL)));
        },
        "~",
    ),
    ("power fails", Some(URL), |w| error(w, State::Provisioned, ErrorType::PowerManagement), "~it broke"),
    (
        "held by the brake",
        None,
        |w| {
            w.host.status.as_mut().unwrap().operational_status = OperationalStatus::Delayed;
        },
        "~",
    ),
    ("paused at rest", Some(URL), |w| w.annotate(annotation::PAUSED, ""), "=; paused"),
    (
        "paused on its way",
        Some(URL),
        |w| {
            w.annotate(annotation::PAUSED, "");
            w.edit(|s| s.image = None);
        },
        "!paused",
    ),
    ("to be detached", Some(URL), |w| w.annotate(annotation::DETACHED, ""), "~"),
    (
        "detached",
        Some(URL),
        |w| {
            w.annotate(annotation::DETACHED, "");
            w.host.status.as_mut().unwrap().operational_status = OperationalStatus::Detached;
        },
        "=detached",
    ),
    (
        "to be taken back",
        Some(URL),
        |w| {
            w.host.status.as_mut().unwrap().operational_status = OperationalStatus::Detached;
        },
        "~",
    ),
    ("being deleted", None, World::delete, "~being deleted"),
    (
        "somebody else's, and not yet taken over",
        None,
        |w| {
            set(w, |w| w.host.spec.externally_provisioned = Some(true));
            let status = w.host.status.as_mut().unwrap();
            status.provisioning.state = State::ExternallyProvisioned;
            status.operation_history.register.end = None;
        },
        "~",
    ),
    (
        "somebody else's",
        None,
        |w| {
            set(w, |w| w.host.spec.externally_provisioned = Some(true));
            w.host.status.as_mut().unwrap().provisioning.state = State::ExternallyProvisioned;
        },
        "=provisioned by somebody else",
    ),
    ("without a status", None, |w| w.host.status = None, "~"),
];

/// An edit that the controller has looked at.
fn set(world: &mut World, change: impl FnOnce(&mut World)) {
    change(world);
    let generation = world.host.metadata.generation;
    for condition in &mut world.host.status.as_mut().unwrap().conditions {
        condition.observed_generation = generation;
    }
}

fn power(world: &mut World, on: bool) {
    world.host.status.as_mut().unwrap().powered_on = on;
}

fn error(world: &mut World, state: State, kind: ErrorType) {
    let status = world.host.status.as_mut().unwrap();
    status.provisioning.state = state;
    status.operational_status = OperationalStatus::Error;
    status.error_type = Some(kind);
    status.error_message = "it broke".into();
}

/// Nothing is under way, and somebody wonders why: the condition says which of his own wishes it is.
#[test]
fn a_host_at_rest_says_which_wish_holds_another_up() {
    let progressing = |world: &World| {
        let said = world.status().conditions.iter().find(|c| c.type_ == "Progressing").unwrap().clone();
        (said.reason, said.message)
    };
    let mut world = World::at_rest(None);
    world.edit(|spec| (spec.online, spec.image) = (false, Some(image("https://images.example/a.raw"))));
    world.converge();
    assert_eq!(progressing(&world), ("NotProgressing".into(), "The image is written when spec.online is true".into()));
    world.edit(|spec| spec.online = true);
    world.converge();
    assert_eq!((world.state(), progressing(&world).1.as_str()), (State::Provisioned, "Nothing is under way"));
    world.annotate("reboot.metal3.io/fence", "");
    world.converge();
    assert!(!world.machine_on);
    assert!(
        progressing(&world).1.contains("kept off by the annotation reboot.metal3.io/fence"),
        "{:?}",
        progressing(&world)
    );
    world.unannotate("reboot.metal3.io/fence");
    world.converge();
    assert_eq!((world.machine_on, progressing(&world).1.as_str()), (true, "Nothing is under way"));
}

#[test]
fn each_case_is_told_as_it_is() {
    for (what, url, change, wanted) in CASES {
        let mut world = World::at_rest(*url);
        change(&mut world);
        let (sign, words) = match standing(&world.host) {
            Standing::AsDeclared(words) => ('=', words),
            Standing::NotYet(words) => ('~', words),
            Standing::NeedsChange(words) => ('!', words),
        };
        let (wanted_sign, part) = (wanted.chars().next().unwrap(), &wanted[1..]);
        assert!(sign == wanted_sign && words.contains(part), "{what}: {sign}{words}, not {wanted}");
    }
}

#[test]
fn a_host_without_a_bmc_is_as_declared_when_it_is_known() {
    let mut world = World::new();
    world.host.spec.bmc = None;
    assert!(matches!(standing(&world.host), Standing::NotYet(_)));
    world.converge();
    assert!(matches!(standing(&world.host), Standing::AsDeclared(what) if what.contains("no spec.bmc")));
}
