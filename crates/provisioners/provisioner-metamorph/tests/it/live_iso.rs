//! Live ISOs: what is asked of the BMC, in which order, and what becomes of the medium.

use std::time::Duration;

use api::metal3::{BootMode, CleaningMode, DiskFormat, Image};
use api::metamorph::{OperationPhase, StepPhase};
use bmc::{BiosSeen, Capability, ErrorKind, PowerAction, SecureBootSeen};
use inventory::BmcPin;
use provisioner::{
    AdoptRequest, Cause, CleaningRequest, Deployed, Failure, Finding, FirmwareTargets, Method, Outcome, PowerWish,
    ProvisionRequest, RegisterRequest, ReleaseRequest, Retry, ServiceRequest, Setting, Verdict,
};
use provisioner_metamorph::KeyRing;

use crate::common::{LEFT, World, image, key, pass};
use crate::fake::unsent;

const ISO: &str = "http://192.0.2.9/rescue.iso";
/// All that is asked of a BMC whose machine is on when a live ISO is to be booted on it.
const WAY: [&str; 4] = ["HardOff", "put http://192.0.2.9/rescue.iso in CD1", "boot each time", "On"];

fn request(url: &str) -> ProvisionRequest {
    let image = Image { url: url.into(), format: Some(DiskFormat::LiveIso), ..Image::default() };
    ProvisionRequest {
        method: Method::LiveIso,
        image,
        wish: Some(format!("live {url}")),
        ..ProvisionRequest::default()
    }
}

fn deployed() -> Deployed {
    Deployed { image: Some(request(ISO).image), method: Method::LiveIso, ..Deployed::default() }
}

async fn boot(world: &World, url: &str) -> Outcome<()> {
    world.host().live_media().expect("it is served").boot_live(request(url)).await
}

/// Looks until it is booted or fails.
async fn booted(world: &World) -> Result<(), Failure> {
    for _ in 0..20 {
        if boot(world, ISO).await? == Verdict::Done(()) {
            return Ok(());
        }
        pass(1).await;
    }
    panic!("{:?}", world.calls());
}

/// A machine that runs its live system; nobody has looked at it since.
async fn live() -> World {
    let mut world = World::new();
    booted(&world).await.unwrap();
    world.calls();
    world.restart();
    world
}

fn medium(world: &World) -> Option<String> {
    world.bmc.lock().unwrap().medium.clone()
}

async fn power(world: &World, wish: PowerWish) -> Outcome<bool> {
    world.host().set_power(wish.into()).await
}

/// What is told of the machine beside its power.
async fn found(world: &World) -> Option<Finding> {
    match world.host().live_media().unwrap().findings().await.unwrap() {
        Verdict::Done(found) => found.into_iter().next(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn it_goes_in_while_the_machine_is_off_and_is_booted_each_time() {
    let world = World::new();
    booted(&world).await.unwrap();
    assert_eq!(world.calls(), WAY);
    let (_, status) = world.journal.all().pop().unwrap();
    assert_eq!(status.phase, OperationPhase::Succeeded);
    let named: Vec<&str> = status.steps.iter().map(|step| step.name.as_str()).collect();
    let steps = ["insert-live-iso", "boot-live-iso", "switch-off-for-live-iso", "switch-on-to-live-iso"];
    assert_eq!(named, steps);
    // Asked again, by this process or another, it is done.
    let mut world = world;
    for _ in 0..2 {
        assert_eq!(boot(&world, ISO).await.unwrap(), Verdict::Done(()));
        world.restart();
    }
    assert_eq!((world.calls(), medium(&world).as_deref()), (vec![], Some(ISO)));
    // A machine that is off already is not cut.
    let world = World::new();
    world.bmc.lock().unwrap().on = false;
    booted(&world).await.unwrap();
    assert_eq!(world.calls(), WAY[1..]);
}

/// Some BMCs go on showing what was ejected: the machine would start what is on its disk.
#[tokio::test(start_paused = true)]
async fn it_goes_in_though_the_drive_shows_it_before() {
    let world = World::new();
    world.bmc.lock().unwrap().medium = Some(ISO.into());
    booted(&world).await.unwrap();
    assert_eq!(world.calls(), WAY);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_dies_between_two_looks_leaves_the_next_one_where_it_was() {
    let mut world = World::new();
    for _ in 0..10 {
        if boot(&world, ISO).await.unwrap() == Verdict::Done(()) {
            break;
        }
        pass(1).await;
        world.restart();
    }
    let calls = world.calls();
    assert_eq!(calls.iter().filter(|call| call.as_str() == "HardOff" || call.as_str() == "On").count(), 2, "{calls:?}");
    assert_eq!(calls.iter().filter(|call| call.starts_with("put ")).count(), 1, "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn addresses_that_no_bmc_is_sent_to_are_refused_before_anything_is_done() {
    let world = World::new();
    let long = format!("http://192.0.2.9/{}", "x".repeat(4096));
    for url in ["ftp://192.0.2.9/a.iso", "oci://192.0.2.9/a", "http://192.0.2.9\\@127.0.0.1/a.iso", &long] {
        let failure = boot(&world, url).await.unwrap_err();
        assert_eq!((failure.cause, failure.retry), (Cause::InvalidRequest, Retry::AfterChange), "{url}");
    }
    for url in ["http://127.0.0.1:6443/x.iso", "http://localhost/x.iso", "http://169.254.169.254/latest.iso"] {
        let failure = boot(&world, url).await.unwrap_err();
        assert!(failure.cause == Cause::InvalidRequest && failure.text().contains("spec.image.url"), "{failure:?}");
    }
    assert_eq!((world.calls(), world.journal.all().len()), (vec![], 0));
}

#[tokio::test(start_paused = true)]
async fn what_the_bmc_lacks_is_told_before_the_machine_is_touched() {
    for lacks in [Capability::DataDrive, Capability::BootDevice] {
        let world = World::new();
        world.bmc.lock().unwrap().lacks = Some(lacks);
        let failure = boot(&world, ISO).await.unwrap_err();
        assert!(failure.message.starts_with("boot the live ISO"), "{failure:?}");
        assert_eq!(world.calls(), [""; 0]);
    }
    let world = World::new();
    boot(&world, ISO).await.unwrap();
    world.bmc.lock().unwrap().shows_another = true;
    assert_eq!(boot(&world, ISO).await.unwrap_err().cause, Cause::AnotherMachine);
    assert_eq!(world.calls(), ["HardOff"], "the machine that was there");
}

#[tokio::test(start_paused = true)]
async fn where_the_power_is_never_cut_it_is_reset_once() {
    for hides_power in [false, true] {
        let mut world = World::new();
        world.disable_power_off = !hides_power;
        world.bmc.lock().unwrap().hides_power = hides_power;
        booted(&world).await.unwrap();
        assert_eq!(world.calls(), [WAY[1], WAY[2], "Restart"], "{hides_power}");
        // A reset whose answer was lost may have been made: it is not made again.
        let mut world2 = World::new();
        world2.disable_power_off = !hides_power;
        {
            let mut bmc = world2.bmc.lock().unwrap();
            (bmc.hides_power, bmc.loses_restart) = (hides_power, true);
        }
        let failure = boot(&world2, ISO).await.unwrap_err();
        assert_eq!((failure.cause, failure.retry), (Cause::BmcUnreachable, Retry::Waiting), "{failure:?}");
        world2.restart();
        booted(&world2).await.unwrap();
        let calls = world2.calls();
        assert_eq!(calls.iter().filter(|call| *call == "Restart").count(), 1, "{calls:?}");
        // One that was refused is.
        world = World::new();
        world.disable_power_off = true;
        world.bmc.lock().unwrap().refuses_restart = true;
        boot(&world, ISO).await.unwrap_err();
        world.bmc.lock().unwrap().refuses_restart = false;
        booted(&world).await.unwrap();
    }
}

/// Nothing has happened, be it that the BMC could not be reached in time.
#[tokio::test(start_paused = true)]
async fn a_reset_that_was_not_sent_is_made_when_the_bmc_is_there_again() {
    let mut world = World::new();
    world.disable_power_off = true;
    world.bmc.lock().unwrap().fails_restart = Some(unsent);
    for _ in 0..3 {
        assert_eq!(boot(&world, ISO).await.unwrap_err().retry, Retry::Waiting);
        pass(10).await;
    }
    world.bmc.lock().unwrap().fails_restart = None;
    world.calls();
    booted(&world).await.unwrap();
    let calls = world.calls();
    assert_eq!(calls.iter().filter(|call| *call == "Restart").count(), 1, "{calls:?}");
}

/// What a gateway answers in the BMC's place, and what cannot be read, is no refusal: its system may be running.
#[tokio::test(start_paused = true)]
async fn a_reset_that_a_gateway_answers_for_is_not_made_again() {
    for kind in [ErrorKind::Rejected { status: 502 }, ErrorKind::Protocol] {
        let mut world = World::new();
        world.disable_power_off = true;
        world.bmc.lock().unwrap().answers_restart = Some(kind);
        assert_eq!(boot(&world, ISO).await.unwrap_err().retry, Retry::Waiting, "{kind:?}");
        world.bmc.lock().unwrap().answers_restart = None;
        booted(&world).await.unwrap();
        assert_eq!(world.calls(), [WAY[1], WAY[2], "Restart"], "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_bmc_that_never_puts_it_in_is_told_and_nothing_is_booted() {
    let world = World::new();
    world.bmc.lock().unwrap().never_reads_data = true;
    let mut failure = None;
    for _ in 0..200 {
        match boot(&world, ISO).await {
            Ok(_) => pass(10).await,
            Err(found) => {
                failure = Some(found);
                break;
            }
        }
    }
    let failure = failure.unwrap();
    assert!(failure.message.contains("600 s after the BMC was asked, it is not in its drive"), "{failure:?}");
    let calls = world.calls();
    assert!(calls.iter().filter(|call| call.starts_with("put ")).count() == 1 && !calls.contains(&"On".into()));
    // It has begun nothing: a deprovisioning wipes nothing, and takes the order back.
    let done = world.host().deprovision(CleaningRequest { clean: true, ..CleaningRequest::default() }).await.unwrap();
    assert!(matches!(done, Verdict::Working(_)), "by a host that nobody has registered, anything may have been done");
}

#[tokio::test(start_paused = true)]
async fn nothing_of_it_is_wiped_before_it_is_to_go_in_and_all_after() {
    for (looks, is_refused) in [(0, false), (1, true), (1, false), (2, false)] {
        let mut world = World::new();
        world.provisioning_id = String::new();
        world.host().register(RegisterRequest::default()).await.unwrap();
        world.provisioning_id = "owner-1".into();
        world.host().power_state().await.unwrap();
        {
            // The firmware may boot it as soon as it is in, whenever that is.
            let mut bmc = world.bmc.lock().unwrap();
            (bmc.refuses_medium, bmc.never_reads_data) = (is_refused, looks == 1 && !is_refused);
        }
        for _ in 0..=looks {
            let _ = boot(&world, ISO).await;
            pass(1).await;
        }
        let calls = world.calls();
        assert_eq!(calls.contains(&"On".to_owned()), looks == 2, "{calls:?}");
        let begun = looks > 0 && !is_refused;
        let wish = Some("gone".to_owned());
        let verdict = world
            .host()
            .deprovision(CleaningRequest { clean: true, wish, ..CleaningRequest::default() })
            .await
            .unwrap();
        let untouched = matches!(verdict, Verdict::Done(done) if done.untouched);
        assert_eq!(untouched, !begun, "{looks}: {verdict:?}");
        assert_ne!(medium(&world).as_deref(), Some(ISO), "{looks}");
    }
}

/// A host that does not want its ISO any more while the BMC still reads it, for minutes.
async fn comes_late() -> World {
    let world = World::new();
    world.host().register(RegisterRequest::default()).await.unwrap();
    world.bmc.lock().unwrap().insertion = Duration::from_secs(300);
    while !world.bmc.lock().unwrap().log.iter().any(|call| call.starts_with("put ")) {
        assert!(matches!(boot(&world, ISO).await.unwrap(), Verdict::Working(_)));
    }
    assert_eq!(world.calls(), WAY[..2]);
    world
}

#[tokio::test(start_paused = true)]
async fn one_that_comes_late_is_out_before_the_host_goes_on() {
    for (dies, way) in
        [(false, "clean"), (true, "clean"), (false, "off"), (true, "off"), (false, "gone"), (true, "gone")]
    {
        let mut world = comes_late().await;
        if dies {
            world.restart();
        }
        world.deleting = way == "gone";
        let mut looks = 0;
        loop {
            let request = CleaningRequest { clean: way == "clean", ..CleaningRequest::default() };
            let is_over = match way {
                "gone" => world.host().release(ReleaseRequest::default()).await.unwrap() == Verdict::Done(()),
                _ => matches!(world.host().deprovision(request).await.unwrap(), Verdict::Done(_)),
            };
            let calls = world.bmc.lock().unwrap().log.clone();
            if is_over || calls.iter().any(|call| call.starts_with("insert ")) {
                assert!(calls.contains(&"empty CD1".to_owned()), "{way} {dies}: {calls:?}");
                break;
            }
            assert!(looks < 60, "{way} {dies}: {calls:?}");
            looks += 1;
            pass(10).await;
        }
        assert!(looks > 20, "{way} {dies}: it went on after {looks} looks");
        pass(600).await;
        assert_ne!(medium(&world).as_deref(), Some(ISO), "{way} {dies}");
    }
    // Nor does another ISO go in beside it, and one that never comes is not waited for without end.
    for never in [false, true] {
        let world = comes_late().await;
        world.bmc.lock().unwrap().loading.take_if(|_| never);
        world.bmc.lock().unwrap().insertion = if never { Duration::ZERO } else { Duration::from_secs(300) };
        let other = "http://192.0.2.9/other.iso";
        let mut looks = 0;
        while boot(&world, other).await.unwrap() != Verdict::Done(()) {
            assert!(looks < 120, "{:?}", world.calls());
            looks += 1;
            pass(10).await;
        }
        assert_eq!(medium(&world).as_deref(), Some(other), "{never}");
    }
    // By force it is not waited for at all.
    let world = comes_late().await;
    let released = world.host().release(ReleaseRequest { force: true }).await.unwrap();
    assert_eq!(released, Verdict::Done(()));
}

/// Cables are changed while the ISO is put in: what was seen before that is no proof of the machine that would be started.
#[tokio::test(start_paused = true)]
async fn a_machine_that_is_swapped_while_its_iso_is_put_in_is_not_started() {
    for (is_first, may_cut) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut world = World::new();
        world.host().register(RegisterRequest::default()).await.unwrap();
        if !is_first {
            booted(&world).await.unwrap();
            for _ in 0..2 {
                power(&world, PowerWish::HardOff).await.unwrap();
            }
            world.bmc.lock().unwrap().medium = None;
            world.restart();
        }
        world.disable_power_off = !may_cut;
        world.bmc.lock().unwrap().insertion = Duration::from_secs(30);
        world.calls();
        let swap = async {
            while world.bmc.lock().unwrap().loading.is_none() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            world.bmc.lock().unwrap().shows_another = true;
        };
        let starts = async {
            for _ in 0..5 {
                if is_first {
                    boot(&world, ISO).await.map(|_| ())?;
                } else {
                    power(&world, PowerWish::On).await.map(|_| ())?;
                }
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
            Ok::<(), Failure>(())
        };
        let (result, ()) = tokio::join!(starts, swap);
        assert_eq!(result.expect_err("it was started").cause, Cause::AnotherMachine, "{is_first} {may_cut}");
        let calls = world.calls();
        assert!(!calls.iter().any(|call| call == "On" || call == "Restart"), "{is_first} {may_cut}: {calls:?}");
    }
}

/// Whatever it has booted, it is not what was ordered. What is recorded is one more order to switch it off.
#[tokio::test(start_paused = true)]
async fn a_machine_that_somebody_switches_on_while_its_iso_is_put_in_is_switched_off_again() {
    let world = World::new();
    world.bmc.lock().unwrap().insertion = Duration::from_secs(30);
    let switch = async {
        while world.bmc.lock().unwrap().loading.is_none() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        world.bmc.lock().unwrap().on = true;
    };
    let (result, ()) = tokio::join!(booted(&world), switch);
    result.unwrap();
    // The start in between may have used up the boot source.
    assert_eq!(world.calls(), [&WAY[..3], &["HardOff", "boot each time", "On"]].concat());
    let off = world.journal.last().1.steps.into_iter().find(|step| step.name == "switch-off-for-live-iso").unwrap();
    assert_eq!((off.attempt, off.phase), (Some(2), StepPhase::Done));
}

/// No agent shows on which machine a live ISO is booted.
#[tokio::test(start_paused = true)]
async fn a_machine_that_nothing_tells_from_others_boots_none() {
    let unpinned = || BmcPin { service_uuid: None, key_sha256: None };
    for (is_registered, is_pinned) in [(true, false), (false, false), (true, true), (false, true)] {
        let mut world = World::new();
        {
            let mut bmc = world.bmc.lock().unwrap();
            (bmc.nameless, bmc.macs) = (true, Some(Ok(Vec::new())));
            bmc.pin = Some(unpinned()).filter(|_| !is_pinned);
        }
        if is_registered {
            world.host().register(RegisterRequest::default()).await.unwrap();
        }
        if is_pinned {
            booted(&world).await.unwrap();
            continue;
        }
        for _ in 0..2 {
            let failure = boot(&world, ISO).await.unwrap_err();
            assert_eq!(failure.cause, Cause::MachineUnknown, "{failure:?}");
            assert!(failure.text().contains("certificate (https)"), "{failure:?}");
        }
        assert_eq!(world.calls(), [""; 0]);
        // An agent shows it: an image for its disk is on its way.
        world.restart();
        world.host().provision(image()).await.unwrap();
        assert_eq!(world.calls(), ["insert", "boot once", "Restart"]);
    }
    // One that has told, and does not any more.
    let mut world = World::new();
    world.bmc.lock().unwrap().pin = Some(unpinned());
    booted(&world).await.unwrap();
    for _ in 0..2 {
        power(&world, PowerWish::HardOff).await.unwrap();
    }
    world.restart();
    world.calls();
    {
        let mut bmc = world.bmc.lock().unwrap();
        (bmc.nameless, bmc.macs) = (true, Some(Ok(Vec::new())));
    }
    assert_eq!(power(&world, PowerWish::On).await.unwrap_err().cause, Cause::MachineUnknown);
    assert_eq!(world.calls(), [""; 0]);
}

/// Its disks could be wiped by a mark alone, and a live ISO leaves none.
#[tokio::test(start_paused = true)]
async fn a_machine_that_was_accepted_in_anothers_place_boots_none_that_could_not_be_wiped_after() {
    let mut world = World::new();
    world.host().register(RegisterRequest::default()).await.unwrap();
    world.accepts_machine().await;
    let failure = boot(&world, ISO).await.unwrap_err();
    assert_eq!((failure.cause, failure.retry), (Cause::InvalidRequest, Retry::AfterChange), "{failure:?}");
    let advice = failure.advice.unwrap();
    assert!(advice.contains("spec.automatedCleaningMode") && advice.contains("image for its disk"), "{advice}");
    assert_eq!(world.calls(), [""; 0]);
    // One that may go unwiped.
    world.cleaning = CleaningMode::Disabled;
    booted(&world).await.unwrap();
    assert_eq!(world.calls(), WAY);
}

/// Record and status may be of different times: one of them was restored from a backup.
#[tokio::test(start_paused = true)]
async fn a_start_is_with_what_the_hosts_status_names() {
    let other = "http://192.0.2.9/other.iso";
    let off_and_on = async |world: &World| {
        for wish in [PowerWish::HardOff, PowerWish::HardOff, PowerWish::On, PowerWish::On] {
            power(world, wish).await.unwrap();
        }
        assert_eq!(power(world, PowerWish::On).await.unwrap(), Verdict::Done(true));
        world.calls()
    };
    for (status, goes_in) in [(Some(other), Some(other)), (Some(ISO), None), (None, None)] {
        let mut world = live().await;
        let image = status.map(|url| request(url).image);
        let method = if image.is_some() { Method::LiveIso } else { Method::Disk };
        world.deployed = Some(Deployed { image, method, ..Deployed::default() });
        let mut expected = vec!["HardOff".to_owned()];
        if status != Some(ISO) {
            expected.extend(["empty CD1".to_owned(), "boot normally".to_owned()]);
        }
        expected.extend(goes_in.map(|url| format!("put {url} in CD1")));
        expected.extend(status.map(|_| "boot each time".to_owned()));
        expected.push("On".to_owned());
        assert_eq!(off_and_on(&world).await, expected, "{status:?}");
        assert_eq!(medium(&world).as_deref(), status);
        // From then on the record says the same.
        (world.deployed, world.bmc.lock().unwrap().on) = (None, true);
        let again = off_and_on(&world).await;
        assert_eq!(again.iter().filter(|call| call.starts_with("boot each")).count(), usize::from(status.is_some()));
        assert_eq!(medium(&world).as_deref(), status);
    }
    // What was never this server's to know is let alone.
    let mut world = live().await;
    world.deployed = Some(Deployed { externally: true, ..deployed() });
    off_and_on(&world).await;
    assert_eq!(medium(&world).as_deref(), Some(ISO));
}

/// The record was deleted; the status tells of the ISO.
#[tokio::test(start_paused = true)]
async fn one_without_a_record_is_started_taken_out_and_kept_like_any_other() {
    let lost = async || {
        let mut world = live().await;
        world.journal.record.delete();
        world.restart();
        world.deployed = Some(deployed());
        world
    };
    let theirs = || Some("http://elsewhere/theirs.iso".to_owned());
    // It is started with it, also after the BMC has lost it.
    let world = lost().await;
    for wish in [PowerWish::HardOff, PowerWish::HardOff] {
        power(&world, wish).await.unwrap();
    }
    world.bmc.lock().unwrap().medium = None;
    for _ in 0..2 {
        power(&world, PowerWish::On).await.unwrap();
    }
    assert_eq!(world.calls(), WAY);
    // Its loss is told.
    let world = lost().await;
    world.host().power_state().await.unwrap();
    assert_eq!(found(&world).await, None);
    world.bmc.lock().unwrap().medium = theirs();
    pass(300).await;
    assert!(found(&world).await.is_some());
    // A host that is let go keeps it, one that is deleted or given back does not; what is somebody else's stays, and what the BMC does not show.
    for (way, there, stays) in [
        ("let go", Some(ISO.to_owned()), true),
        ("deleted", Some(ISO.to_owned()), false),
        ("given back", Some(ISO.to_owned()), false),
        ("deleted", theirs(), true),
        ("given back", theirs(), true),
        ("hidden", theirs(), true),
    ] {
        let mut world = lost().await;
        world.bmc.lock().unwrap().medium.clone_from(&there);
        world.bmc.lock().unwrap().hides_media = way == "hidden";
        world.deleting = way == "deleted";
        if matches!(way, "given back" | "hidden") {
            // A host that is being deprovisioned is not adopted again.
            let off = CleaningRequest { deployed: deployed(), ..CleaningRequest::default() };
            while world.host().deprovision(off.clone()).await.unwrap() != LEFT {
                pass(1).await;
            }
        } else {
            world.host().release(ReleaseRequest::default()).await.unwrap();
        }
        assert_eq!(medium(&world), there.filter(|_| stays), "{way}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_start_that_is_ordered_is_with_it() {
    let world = live().await;
    assert_eq!(power(&world, PowerWish::HardOff).await.unwrap(), Verdict::working("waiting for the power to go", 1));
    power(&world, PowerWish::HardOff).await.unwrap();
    assert_eq!(world.calls(), ["HardOff"]);
    for lost in [false, true] {
        if lost {
            world.bmc.lock().unwrap().medium = None;
        }
        power(&world, PowerWish::On).await.unwrap();
        assert_eq!(power(&world, PowerWish::On).await.unwrap(), Verdict::Done(true));
        let expected = if lost { WAY[1..].to_vec() } else { WAY[2..].to_vec() };
        assert_eq!(world.calls(), expected);
        // A machine that is on is left alone.
        power(&world, PowerWish::On).await.unwrap();
        assert_eq!(world.calls(), [""; 0]);
        power(&world, PowerWish::HardOff).await.unwrap();
        power(&world, PowerWish::HardOff).await.unwrap();
        world.calls();
    }
    world.bmc.lock().unwrap().medium = Some("http://elsewhere/theirs.iso".into());
    let failure = power(&world, PowerWish::On).await.unwrap_err();
    assert!(failure.message.contains("another medium"), "{failure:?}");
    assert_eq!(world.calls(), [""; 0]);
    // What is never cut is restarted with it.
    let mut world = live().await;
    world.disable_power_off = true;
    for _ in 0..2 {
        world.host().power_state().await.unwrap();
        world.calls();
        world.bmc.lock().unwrap().medium = None;
        assert_eq!(power(&world, PowerWish::SoftOff).await.unwrap(), Verdict::Done(true));
        assert_eq!(world.calls(), [WAY[1], WAY[2], "SoftRestart"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_running_machine_is_looked_into_now_and_then_and_its_loss_is_told() {
    let world = live().await;
    let looks =
        |world: &World| world.bmc.lock().unwrap().log.iter().filter(|line| *line == "look at the drive").count();
    for _ in 0..30 {
        assert_eq!(world.host().power_state().await.unwrap(), Verdict::Done(Some(true)));
        assert_eq!(found(&world).await, None);
        pass(60).await;
    }
    assert_eq!((looks(&world), world.calls()), (6, vec![]), "half an hour");
    for (instead, words) in
        [(None, "its drive is empty"), (Some("http://elsewhere/a.iso"), "another medium is in its drive")]
    {
        world.bmc.lock().unwrap().medium = instead.map(Into::into);
        pass(300).await;
        for _ in 0..3 {
            // The power is told all the same.
            assert_eq!(world.host().power_state().await.unwrap(), Verdict::Done(Some(true)));
            let found = found(&world).await;
            assert!(found.as_ref().is_some_and(|finding| finding.message.contains(words)), "{found:?}");
        }
    }
    // Off, it says so: it is given its medium when it is switched on.
    world.bmc.lock().unwrap().on = false;
    assert_eq!(world.host().power_state().await.unwrap(), Verdict::Done(Some(false)));
    assert_eq!(found(&world).await, None);
    (world.bmc.lock().unwrap().on, world.bmc.lock().unwrap().medium) = (true, Some(ISO.into()));
    pass(300).await;
    assert_eq!(world.host().power_state().await.unwrap(), Verdict::Done(Some(true)));
    assert_eq!(found(&world).await, None);
    assert_eq!(world.calls(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_boot_source_that_is_kept_for_one_start_is_told_once() {
    let mut world = World::new();
    world.bmc.lock().unwrap().keeps_override_once = true;
    booted(&world).await.unwrap();
    for _ in 0..2 {
        world.restart();
        for wish in [PowerWish::HardOff, PowerWish::HardOff, PowerWish::On, PowerWish::On] {
            power(&world, wish).await.unwrap();
        }
    }
    assert_eq!(world.calls().iter().filter(|call| *call == "boot each time").count(), 3, "before each start");
    let told = world.machine.said_to_boot_once();
    assert!(told.len() == 1 && told[0].contains("restarts by itself"), "{told:?}");
    let (_, status) = world.journal.all().pop().unwrap();
    let text = status.steps.iter().find_map(|step| step.message.clone().filter(|text| text.contains("by itself")));
    assert!(text.is_some(), "{status:?}");
}

#[tokio::test(start_paused = true)]
async fn it_stays_with_a_host_that_is_let_go_and_goes_with_one_that_is_deleted() {
    let mut world = live().await;
    for _ in 0..2 {
        world.host().release(ReleaseRequest::default()).await.unwrap();
        assert_eq!((world.calls(), medium(&world).as_deref()), (vec![], Some(ISO)), "its system may be reading it");
    }
    world.deleting = true;
    world.host().release(ReleaseRequest::default()).await.unwrap();
    assert_eq!((world.calls(), medium(&world)), (vec!["empty CD1".to_owned(), "boot normally".to_owned()], None));
    // One that was never booted goes when its host is let go.
    let world = World::new();
    world.bmc.lock().unwrap().drops_orders = 0;
    world.bmc.lock().unwrap().ignores = vec![PowerAction::On];
    boot(&world, ISO).await.unwrap();
    world.bmc.lock().unwrap().never_reads_data = true;
    boot(&world, ISO).await.unwrap();
    world.calls();
    world.host().release(ReleaseRequest { force: true }).await.unwrap();
    assert_eq!(world.calls()[..2], ["call off CD1", "boot normally"]);
}

#[tokio::test(start_paused = true)]
async fn another_medium_is_left_while_it_may_still_come() {
    let mut world = World::new();
    world.bmc.lock().unwrap().never_reads_data = true;
    while !world.calls().iter().any(|call| call.starts_with("put ")) {
        assert!(matches!(boot(&world, ISO).await.unwrap(), Verdict::Working(_)));
        pass(1).await;
    }
    let theirs = "http://elsewhere/theirs.iso";
    world.bmc.lock().unwrap().medium = Some(theirs.into());
    world.deleting = true;
    let released = world.host().release(ReleaseRequest::default()).await.unwrap();
    assert!(matches!(released, Verdict::Working(_)), "{released:?}");
    assert_eq!(medium(&world).as_deref(), Some(theirs));
    world.bmc.lock().unwrap().medium = Some(ISO.into());
    assert_eq!(world.host().release(ReleaseRequest::default()).await.unwrap(), Verdict::Done(()));
    assert_eq!(medium(&world), None);
}

/// A BMC that reads it refuses what it is asked meanwhile, which would be taken for a refusal of it.
#[tokio::test(start_paused = true)]
async fn one_that_another_process_has_asked_for_is_waited_for() {
    let mut world = World::new();
    world.bmc.lock().unwrap().never_reads_data = true;
    while !world.calls().iter().any(|call| call.starts_with("put ")) {
        assert!(matches!(boot(&world, ISO).await.unwrap(), Verdict::Working(_)));
        pass(1).await;
    }
    world.restart();
    world.bmc.lock().unwrap().refuses_medium = true;
    for _ in 0..59 {
        let waiting = boot(&world, ISO).await.unwrap();
        assert!(matches!(waiting, Verdict::Working(_)), "{waiting:?}");
        assert!(!world.calls().iter().any(|call| call.starts_with("put ")));
        pass(10).await;
    }
    // It is asked for again when its time is over.
    world.bmc.lock().unwrap().never_reads_data = false;
    let mut refused = None;
    for _ in 0..5 {
        pass(10).await;
        refused = boot(&world, ISO).await.err().or(refused);
    }
    assert_eq!(refused.map(|failure| failure.cause), Some(Cause::BmcRefused));
}

#[tokio::test(start_paused = true)]
async fn it_is_out_before_an_agent_is_booted_and_after_a_machine_is_switched_off() {
    let world = live().await;
    let clean = CleaningRequest { clean: true, deployed: deployed(), ..CleaningRequest::default() };
    world.host().deprovision(clean).await.unwrap();
    assert_eq!(world.calls(), ["empty CD1", "boot normally", "insert", "boot once", "Restart"]);
    let world = live().await;
    let off = CleaningRequest { deployed: deployed(), ..CleaningRequest::default() };
    while world.host().deprovision(off.clone()).await.unwrap() != LEFT {
        pass(1).await;
    }
    assert_eq!(world.calls(), ["HardOff", "empty CD1", "boot normally"]);
    // What somebody else has put in is left.
    let world = live().await;
    world.bmc.lock().unwrap().medium = Some("http://elsewhere/theirs.iso".into());
    while world.host().deprovision(off.clone()).await.unwrap() != LEFT {
        pass(1).await;
    }
    assert_eq!(medium(&world).as_deref(), Some("http://elsewhere/theirs.iso"));
}

#[tokio::test(start_paused = true)]
async fn a_data_image_never_takes_its_drive() {
    for second_drive in [false, true] {
        let world = live().await;
        {
            let mut bmc = world.bmc.lock().unwrap();
            (bmc.second_drive, bmc.medium) = (second_drive, None);
        }
        let tools = "http://192.0.2.9/tools.iso";
        let checked = world.host().data_images().unwrap().check(tools.into()).await;
        let attached = world.host().data_images().unwrap().attach(tools.into()).await;
        for answer in [checked, attached] {
            match answer {
                Ok(_) => assert!(second_drive),
                Err(failure) => assert!(!second_drive && failure.message.contains("live ISO"), "{failure:?}"),
            }
        }
        let bmc = world.bmc.lock().unwrap();
        assert_eq!((bmc.medium.is_none(), bmc.data.is_some()), (true, second_drive));
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_adopted_without_a_record_is_started_with_it_and_touched_by_nothing_else() {
    let world = World::new();
    world.host().register(RegisterRequest { deployed: deployed(), ..RegisterRequest::default() }).await.unwrap();
    world.host().adopt(AdoptRequest { deployed: deployed(), restart: false }).await.unwrap();
    world.host().power_state().await.unwrap();
    assert!(found(&world).await.unwrap().message.contains("its drive is empty"));
    assert_eq!(world.calls(), [""; 0]);
    for wish in [PowerWish::HardOff, PowerWish::HardOff, PowerWish::On, PowerWish::On] {
        power(&world, wish).await.unwrap();
    }
    assert_eq!(world.calls(), WAY);
    // One with a system on its disk is not.
    let world = World::new();
    let disk = Deployed { method: Method::Disk, ..deployed() };
    world.host().adopt(AdoptRequest { deployed: disk, restart: false }).await.unwrap();
    for wish in [PowerWish::HardOff, PowerWish::HardOff, PowerWish::On, PowerWish::On] {
        power(&world, wish).await.unwrap();
    }
    assert_eq!(world.calls(), ["HardOff", "On"]);
}

#[tokio::test(start_paused = true)]
async fn secure_boot_is_as_the_host_wishes_before_anything_else() {
    let mut world = World::new();
    world.boot_mode = BootMode::UefiSecureBoot;
    {
        let mut bmc = world.bmc.lock().unwrap();
        bmc.secure_boot = Some(SecureBootSeen { enable: Some(false), current: Some(false), setup_mode: false });
        bmc.takes_secure_boot = true;
    }
    booted(&world).await.unwrap();
    assert_eq!(world.calls(), [["secure boot true", "Restart"].as_slice(), &WAY].concat());
}

#[tokio::test(start_paused = true)]
async fn the_agents_medium_is_taken_out_and_somebody_elses_left() {
    // The agent of an attempt to write a disk image is there.
    let world = World::new();
    world.booted().await;
    world.calls();
    booted(&world).await.unwrap();
    assert_eq!(world.calls(), ["HardOff", "eject", WAY[1], WAY[2], WAY[3]]);
    for has_agent in [false, true] {
        let world = World::new();
        if has_agent {
            world.booted().await;
        }
        world.bmc.lock().unwrap().medium = Some("http://elsewhere/theirs.iso".into());
        let failure = booted(&world).await.unwrap_err();
        assert!(failure.message.contains("another medium"), "{failure:?}");
        assert_eq!(medium(&world).as_deref(), Some("http://elsewhere/theirs.iso"));
    }
}

/// The record of its boot, or the key that its address was derived from, may be gone.
#[tokio::test(start_paused = true)]
async fn an_agents_medium_is_known_without_its_boot() {
    for without in ["record", "key"] {
        let mut world = World::new();
        world.booted().await;
        let agents = medium(&world).unwrap();
        match without {
            "record" => world.journal.record.delete(),
            _ => world.keys = KeyRing::new(key(2), vec![]),
        }
        world.restart();
        // What is somebody else's is none, and no proof that the agent's is out for good.
        world.bmc.lock().unwrap().medium = Some("http://elsewhere/media/theirs.iso".into());
        let failure = booted(&world).await.unwrap_err();
        assert!(failure.message.contains("another medium"), "{failure:?}");
        world.bmc.lock().unwrap().medium = Some(agents);
        // The failure of an operation is told once more.
        boot(&world, ISO).await.unwrap_err();
        world.calls();
        booted(&world).await.unwrap();
        assert_eq!(world.calls()[..2], ["eject", WAY[1]], "{without}");
    }
}

/// A BMC that restarts hides the drive that it is in, and shows another one, which is empty.
#[tokio::test(start_paused = true)]
async fn an_agents_medium_is_not_out_because_an_empty_drive_stands_in_for_its_own() {
    let world = World::new();
    world.booted().await;
    let agents = medium(&world);
    world.bmc.lock().unwrap().stands_in = true;
    let failure = booted(&world).await.unwrap_err();
    assert_eq!((failure.cause, medium(&world)), (Cause::BmcRefused, agents), "{failure:?}");
    world.bmc.lock().unwrap().stands_in = false;
    // The failure of an operation is told once more.
    boot(&world, ISO).await.unwrap_err();
    world.calls();
    booted(&world).await.unwrap();
    assert_eq!(
        (world.calls()[..2].to_vec(), medium(&world).as_deref()),
        (vec!["eject".to_owned(), WAY[1].to_owned()], Some(ISO))
    );
}

#[tokio::test(start_paused = true)]
async fn a_start_for_settings_of_the_firmware_is_with_it() {
    let world = live().await;
    let named = |value: &str| [("BootDelay".to_owned(), value.to_owned())].into();
    {
        let mut bmc = world.bmc.lock().unwrap();
        bmc.bios = Some(BiosSeen { current: named("5"), ..BiosSeen::default() });
        (bmc.on, bmc.medium, bmc.applies_bios) = (false, None, true);
    }
    let settings = [("BootDelay".to_owned(), Setting::Text("7".into()))].into();
    let firmware = FirmwareTargets { settings, ..FirmwareTargets::default() };
    let request = ServiceRequest { wish: Some("w".into()), firmware, unprepared: true, restart: false };
    let mut verdict = world.host().service().unwrap().service(request.clone()).await.unwrap();
    assert_eq!(world.calls(), [WAY[1], WAY[2], "set BootDelay=7", "On"]);
    for _ in 0..5 {
        if verdict != Verdict::Done(()) {
            pass(10).await;
            verdict = world.host().service().unwrap().service(request.clone()).await.unwrap();
        }
    }
    assert_eq!((verdict, world.calls()), (Verdict::Done(()), vec![]));
}

/// Looks until the BMC is asked to put it in.
async fn asked(world: &World) -> Outcome<()> {
    for _ in 0..20 {
        let looked = boot(world, ISO).await;
        if world.calls().iter().any(|call| call.starts_with("put ")) {
            return looked;
        }
        pass(1).await;
    }
    panic!("it is never asked for")
}

/// Else it would come in when nobody knows of it any more.
#[tokio::test(start_paused = true)]
async fn one_that_ran_out_of_its_time_is_called_off_before_it_is_given_up() {
    let world = World::new();
    {
        let mut bmc = world.bmc.lock().unwrap();
        (bmc.never_reads_data, bmc.loses_call_off) = (true, true);
    }
    assert!(matches!(asked(&world).await, Ok(Verdict::Working(_))));
    pass(601).await;
    for _ in 0..2 {
        assert_eq!(boot(&world, ISO).await.unwrap_err().cause, Cause::BmcUnreachable);
        assert_eq!(world.calls(), ["call off CD1"]);
    }
    world.bmc.lock().unwrap().loses_call_off = false;
    let failure = boot(&world, ISO).await.unwrap_err();
    assert!(failure.message.contains("600 s after the BMC was asked, it is not in its drive"), "{failure:?}");
    assert_eq!(world.calls(), ["call off CD1"]);
}

/// It is in the drive that the BMC does not show for a moment, as in the middle of a restart.
#[tokio::test(start_paused = true)]
async fn one_whose_drive_is_hidden_for_a_look_is_neither_forgotten_nor_put_in_again() {
    let mut world = live().await;
    for _ in 0..2 {
        power(&world, PowerWish::HardOff).await.unwrap();
    }
    world.calls();
    world.bmc.lock().unwrap().hides_drives = true;
    let Verdict::Working(waits) = power(&world, PowerWish::On).await.unwrap() else { panic!("it was started") };
    assert!(waits.step.contains("does not show the drive"), "{waits:?}");
    world.deleting = true;
    let released = world.host().release(ReleaseRequest::default()).await.unwrap();
    assert!(matches!(released, Verdict::Working(_)), "{released:?}");
    assert_eq!(world.calls(), [""; 0]);
    world.deleting = false;
    world.bmc.lock().unwrap().hides_drives = false;
    for _ in 0..2 {
        power(&world, PowerWish::On).await.unwrap();
    }
    assert_eq!(world.calls(), WAY[2..]);
}

/// The BMC refuses the second request because it is at work on the first, whose answer was lost.
#[tokio::test(start_paused = true)]
async fn one_whose_answer_was_lost_is_known_although_the_host_turns_away_before_it_is_asked_for_again() {
    let mut world = World::new();
    world.bmc.lock().unwrap().loses_answers = true;
    assert_eq!(asked(&world).await.unwrap_err().cause, Cause::BmcUnreachable);
    {
        let mut bmc = world.bmc.lock().unwrap();
        (bmc.loses_answers, bmc.refuses_medium) = (false, true);
    }
    world.journal.turn_after_intent();
    assert_eq!(boot(&world, ISO).await.unwrap_err().cause, Cause::RecordUnavailable);
    assert_eq!(world.calls(), [""; 0], "it was recorded, and not asked for");
    world.journal.record.unwanted(None);
    assert_eq!(boot(&world, ISO).await.unwrap_err().cause, Cause::BmcRefused);
    assert_eq!(world.calls(), [WAY[1]]);
    // It comes in after all, and goes.
    world.deleting = true;
    let released = world.host().release(ReleaseRequest::default()).await.unwrap();
    assert!(matches!(released, Verdict::Working(_)), "{released:?}");
    world.bmc.lock().unwrap().medium = Some(ISO.into());
    assert_eq!(world.host().release(ReleaseRequest::default()).await.unwrap(), Verdict::Done(()));
    assert_eq!(medium(&world), None);
}
