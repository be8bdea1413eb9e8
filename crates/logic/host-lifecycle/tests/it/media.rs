//! Data images: what each look at the BMC says of one, and whose it is before its host has come to rest.

use api::metal3::{DataImage, ProvisioningState as State, annotation, finalizer};
use host_lifecycle::{Action, ChildWrite, Next, Outcome, Retry, Step};
use serde_json::{Value, json};

use crate::kit::{World, created};
use crate::prepares::served;

const URL: &str = "https://images.example/a.raw";
const ISO: &str = "https://media.example/a.iso";
const OTHER: &str = "https://media.example/b.iso";
const CANNOT: &str = "It cannot be attached at the next reboot: ";
const UNSEEN: &str = "Whether it is still attached cannot be seen: ";
const WAITS: &str = "It waits for the next reboot of the host (annotation reboot.metal3.io): ";

/// A DataImage for this medium, which its host holds, with another attached, and this error.
fn image(wished: &str, attached: &str, count: i64, message: &str) -> DataImage {
    let mut image: DataImage = created(DataImage::new);
    image.spec.url = wished.into();
    image.metadata.finalizers = Some(vec![finalizer::DATA_IMAGE.into()]);
    let status = json!({"attachedImage": {"url": attached}, "error": {"count": count, "message": message}});
    image.status = Some(serde_json::from_value(status).unwrap());
    image
}

fn deleted(mut image: DataImage) -> DataImage {
    image.metadata.deletion_timestamp = Some(api::Time("2026-01-01T00:00:00Z".parse().unwrap()));
    image
}

fn failed() -> Outcome {
    Outcome::Failed { message: "no answer".into(), retry: Retry::Later }
}

fn seen(url: &str) -> Outcome {
    Outcome::Medium(Some(url.into()))
}

/// What is said: the beginning of its message with its count, and the medium that counts as attached then.
type Said<'a> = (&'a str, i64, &'a str);

#[test]
fn each_look_at_a_medium_says_what_is_news() {
    let attached_then = format!("{WAITS}the image of spec.url is attached then");
    let goes_then = format!("{WAITS}the data image is detached then, and goes");
    let lost = "It is not attached any more: the BMC shows no such medium";
    let (look, check) = (Action::LookAtMedia, Action::CheckMedia { url: ISO.into() });
    let cannot = format!("{CANNOT}no answer");
    let unseen = format!("{UNSEEN}no answer");
    let rows: Vec<(DataImage, &Action, Outcome, Option<Said<'_>>)> = vec![
        (image(ISO, ISO, 0, ""), &look, seen(ISO), None),
        (image(ISO, ISO, 0, ""), &look, Outcome::Done, None),
        (image(OTHER, ISO, 0, ""), &look, seen(ISO), Some((&attached_then, 0, ISO))),
        (image(OTHER, ISO, 0, ""), &look, Outcome::Done, Some((&attached_then, 0, ISO))),
        (image(OTHER, ISO, 0, &attached_then), &look, Outcome::Done, None),
        (deleted(image(ISO, ISO, 0, "")), &look, seen(ISO), Some((&goes_then, 0, ISO))),
        (deleted(image(ISO, ISO, 0, "")), &look, Outcome::Done, Some((&goes_then, 0, ISO))),
        (deleted(image(ISO, "", 0, "")), &look, seen(ISO), Some((&goes_then, 0, ISO))),
        (deleted(image(ISO, "", 0, "")), &look, Outcome::Done, Some((&goes_then, 0, ISO))),
        // Not wished and not there: nothing is lost.
        (image(ISO, "", 0, ""), &look, seen(OTHER), None),
        (image(ISO, ISO, 0, ""), &look, seen(OTHER), Some((lost, 1, ""))),
        (image(OTHER, ISO, 0, ""), &look, Outcome::Medium(None), Some((lost, 1, ""))),
        // Of an attempt that has failed, the medium's loss alone says more.
        (image(ISO, ISO, 2, "the slot is taken"), &look, Outcome::Medium(None), Some((lost, 1, ""))),
        (image(ISO, ISO, 2, "the slot is taken"), &look, failed(), None),
        (image(ISO, "", 2, "the slot is taken"), &check, failed(), None),
        (image(ISO, "", 1, &unseen), &check, failed(), Some((&cannot, 1, ""))),
        (image(ISO, "", 0, "noted by somebody"), &check, failed(), Some((&cannot, 1, ""))),
        (image(ISO, "", 1, &cannot), &check, failed(), None),
        (image(ISO, ISO, 0, ""), &look, failed(), Some((&unseen, 1, ISO))),
        // What could not be done, or seen, can be; what was lost stays told.
        (image(ISO, "", 1, &cannot), &check, Outcome::Done, Some(("", 0, ""))),
        (image(ISO, ISO, 1, &unseen), &look, seen(ISO), Some(("", 0, ISO))),
        (image(ISO, "", 1, lost), &check, Outcome::Done, None),
        (image(ISO, "", 0, ""), &check, Outcome::Done, None),
    ];
    let mut world = served(Some(URL));
    for (number, (image, action, outcome, expected)) in rows.into_iter().enumerate() {
        world.data_image = Some(image);
        let change = world.conclude(action, outcome);
        let Some((beginning, count, attached)) = expected else {
            assert!(change.is_empty(world.host.status.as_ref()), "row {number}: {change:?}");
            continue;
        };
        let [ChildWrite::DataImage(status)] = change.children.as_slice() else {
            panic!("row {number}: {:?}", change.children);
        };
        let error = status.error.clone().unwrap();
        let there = status.attached_image.clone().unwrap_or_default().url;
        assert_eq!((error.count, there.as_str()), (count, attached), "row {number}");
        assert!(error.message.starts_with(beginning) && error.message.is_empty() == beginning.is_empty(), "{number}");
        if beginning.starts_with(WAITS) {
            assert_eq!(error.message, beginning, "row {number}");
        }
        let event = change.events.first().map(|event| (event.reason, event.warning));
        let expected = match beginning {
            "" => None,
            _ if beginning.starts_with(WAITS) => Some(("DataImageWaits", false)),
            _ => Some(("DataImageError", true)),
        };
        assert_eq!(event, expected, "row {number}");
    }
}

#[test]
fn a_provisioner_that_has_forgotten_the_machine_is_told_of_it_before_it_looks_at_media() {
    let mut world = served(Some(URL));
    world.data_image = Some(image(ISO, ISO, 0, ""));
    let change = world.conclude(&Action::LookAtMedia, Outcome::NeedsRegistration);
    assert!(change.children.is_empty() && change.status.good_credentials == Default::default());
}

#[test]
fn without_a_medium_wished_or_attached_the_bmc_is_not_asked() {
    let mut world = served(Some(URL));
    world.data_image = Some(image("", "", 0, ""));
    world.pass(world.settings.facts_poll * 2);
    world.converge();
    assert!(!world.calls.contains(&Action::LookAtMedia), "{:?}", world.calls);
    world.data_image = Some(image(ISO, ISO, 0, ""));
    world.converge();
    assert!(world.calls.contains(&Action::LookAtMedia), "{:?}", world.calls);
}

/// A host in this state, whose provisioner attaches media.
fn at(state: State) -> World {
    let mut world = World::new();
    world.settings.served.data_images = true;
    world.host.spec.image = Some(crate::kit::image(URL));
    assert!(world.run_until(|world| world.state() == state), "{:?}", world.states);
    world
}

fn writes(step: Step) -> Vec<ChildWrite> {
    match step {
        Step::Change(change) => change.children,
        Step::Act(_) => Vec::new(),
    }
}

#[test]
fn a_data_image_is_its_host_s_from_the_beginning_and_goes_from_a_host_without_a_system() {
    let loose = |image: DataImage| DataImage { metadata: created(DataImage::new).metadata, ..image };
    for state in [State::Inspecting, State::Preparing, State::Available, State::Provisioning] {
        let mut world = at(state);
        world.data_image = Some(loose(image(ISO, "", 0, "")));
        assert_eq!(writes(world.decide()), [ChildWrite::HoldDataImage], "{state:?}");
        world.data_image = Some(image(ISO, "", 0, ""));
        assert_eq!(writes(world.decide()), [], "{state:?}");
        world.data_image = Some(deleted(image(ISO, "", 0, "")));
        assert_eq!(writes(world.decide()), [ChildWrite::ReleaseDataImage], "{state:?}");
        // Nothing is to be let go twice, and what others hold is theirs.
        world.data_image = Some(deleted(loose(image(ISO, "", 0, ""))));
        assert_eq!(writes(world.decide()), [], "{state:?}");
        if state != State::Available {
            world.data_image = Some(deleted(image(ISO, ISO, 0, "")));
            assert_eq!(writes(world.decide()), [], "{state:?}");
        }
    }
    let mut world = at(State::Registering);
    world.data_image = Some(loose(image(ISO, "", 0, "")));
    assert_eq!(writes(world.decide()), []);
}

#[test]
fn a_detached_host_holds_its_data_image_until_that_is_deleted() {
    let mut world = served(Some(URL));
    world.annotate(annotation::DETACHED, "");
    world.converge();
    world.data_image = Some(image(ISO, ISO, 0, ""));
    assert_eq!(writes(world.decide()), []);
    world.data_image = Some(deleted(image(ISO, ISO, 0, "")));
    assert_eq!(writes(world.decide()), [ChildWrite::ReleaseDataImage]);
}

/// What `Progressing` says of a host that is off, with this DataImage.
fn progressing(world: &World, status: &Value) -> String {
    let mut status = serde_json::from_value(status.clone()).unwrap();
    host_lifecycle::renew_conditions(&world.view(), &mut status);
    let found = status.conditions.iter().find(|condition| condition.type_ == "Progressing").unwrap();
    found.message.clone()
}

#[test]
fn a_machine_is_kept_off_by_an_attempt_that_has_failed_and_by_nothing_else() {
    let stays_off = "The machine stays off until its data image is as wished: the slot is taken";
    let mut world = served(Some(URL));
    world.host.status.as_mut().unwrap().powered_on = false;
    let off = serde_json::to_value(world.status()).unwrap();
    let mut on = off.clone();
    on["poweredOn"] = true.into();
    let mut detached = off.clone();
    detached["operationalStatus"] = "detached".into();
    let keeps = |world: &World, status: &Value| progressing(world, status).starts_with(stays_off);
    world.data_image = Some(image(ISO, "", 1, "the slot is taken"));
    assert!(keeps(&world, &off), "{}", progressing(&world, &off));
    assert!(!keeps(&world, &on) && !keeps(&world, &detached));
    let here = world.host.status.as_mut().unwrap();
    here.powered_on = true;
    assert!(!keeps(&world, &off), "it runs");
    world.host.status.as_mut().unwrap().powered_on = false;
    world.settings.served.data_images = false;
    assert!(!keeps(&world, &off), "nobody attaches it");
    world.settings.served.data_images = true;
    for (count, message) in [(0, "the slot is taken".to_owned()), (1, format!("{CANNOT}no"))] {
        world.data_image = Some(image(ISO, "", count, &message));
        assert!(!progressing(&world, &off).contains("stays off"), "{count} {message}");
    }
    world.data_image = Some(image(ISO, ISO, 1, "the slot is taken"));
    assert!(!keeps(&world, &off), "it is as wished");
    assert_eq!(world.next, Next::After(world.settings.steady_state_poll));
}
