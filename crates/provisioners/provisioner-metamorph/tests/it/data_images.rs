//! Data images: in which drive, and when they go.

use provisioner::{Attached, Cause, CleaningRequest, DataImages, Host, InspectRequest, ReleaseRequest, Verdict};

use crate::common::{World, pass};

const URL: &str = "http://192.0.2.9/tools.iso";

fn images(host: &mut Box<dyn Host>) -> &mut dyn DataImages {
    host.data_images().expect("the native provisioner has them")
}

async fn attach(world: &World, url: &str) -> provisioner::Outcome<()> {
    images(&mut world.host()).attach(url.into()).await
}

async fn attached(world: &World) -> Attached {
    match images(&mut world.host()).attached().await.unwrap() {
        Verdict::Done(attached) => attached,
        other => panic!("{other:?}"),
    }
}

fn drives(world: &World) -> (Option<String>, Option<String>) {
    let bmc = world.bmc.lock().unwrap();
    (bmc.medium.clone(), bmc.data.clone())
}

#[tokio::test(start_paused = true)]
async fn it_is_put_in_changed_and_taken_out_whoever_comes_after() {
    for second_drive in [true, false] {
        let mut world = World::new();
        world.bmc.lock().unwrap().second_drive = second_drive;
        let expected = |url: &str| if second_drive { (None, Some(url.into())) } else { (Some(url.into()), None) };
        assert_eq!(attached(&world).await, Attached::Nothing);
        assert_eq!(attach(&world, URL).await.unwrap(), Verdict::Done(()));
        assert_eq!(drives(&world), expected(URL));
        world.restart();
        assert_eq!(attached(&world).await, Attached::Url(URL.into()));
        world.calls();
        assert_eq!(attach(&world, URL).await.unwrap(), Verdict::Done(()));
        assert_eq!(world.calls().len(), 0, "it is in");
        let other = "http://192.0.2.9/other.iso";
        assert_eq!(attach(&world, other).await.unwrap(), Verdict::Done(()));
        assert_eq!(drives(&world), expected(other));
        world.restart();
        assert_eq!(images(&mut world.host()).detach().await.unwrap(), Verdict::Done(()));
        assert_eq!((drives(&world), attached(&world).await), ((None, None), Attached::Nothing));
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_bmc_has_lost_is_seen_and_what_somebody_else_put_in_is_left() {
    let world = World::new();
    world.bmc.lock().unwrap().second_drive = true;
    attach(&world, URL).await.unwrap();
    world.bmc.lock().unwrap().data = None;
    assert_eq!(attached(&world).await, Attached::Nothing);
    world.bmc.lock().unwrap().data = Some("http://elsewhere/rescue.iso".into());
    assert_eq!(attached(&world).await, Attached::Nothing);
    world.calls();
    images(&mut world.host()).detach().await.unwrap();
    assert_eq!((world.calls().len(), drives(&world).1.as_deref()), (0, Some("http://elsewhere/rescue.iso")));
}

/// It is put in again before the machine is switched on.
#[tokio::test(start_paused = true)]
async fn what_the_bmc_has_lost_is_seen_at_once_by_another_process() {
    let mut world = World::new();
    attach(&world, URL).await.unwrap();
    world.bmc.lock().unwrap().medium = None;
    world.restart();
    assert_eq!(attached(&world).await, Attached::Nothing);
    assert_eq!(attach(&world, URL).await.unwrap(), Verdict::Done(()));
    assert_eq!(drives(&world).0.as_deref(), Some(URL));
}

#[tokio::test(start_paused = true)]
async fn one_drive_that_is_taken_is_told_before_anybody_waits() {
    let world = World::new();
    world.bmc.lock().unwrap().medium = Some("http://elsewhere/rescue.iso".into());
    let failure = images(&mut world.host()).check(URL.into()).await.unwrap_err();
    assert!(failure.cause == Cause::BmcRefused && failure.message.contains("a medium is in it already"), "{failure:?}");
    assert!(attach(&world, URL).await.is_err());
    assert_eq!(drives(&world).0.as_deref(), Some("http://elsewhere/rescue.iso"));
    let long = format!("http://192.0.2.9/{}", "x".repeat(4096));
    for url in ["ftp://192.0.2.9/a.iso", "oci://192.0.2.9/a", "", "http://192.0.2.9\\@127.0.0.1/a.iso", &long] {
        let failure = images(&mut world.host()).check(url.into()).await.unwrap_err();
        assert_eq!(failure.cause, Cause::InvalidRequest, "{url}: {failure:?}");
    }
    // The BMC is not sent where the server itself is.
    let failure = images(&mut world.host()).check("http://127.0.0.1:6443/x.iso".into()).await.unwrap_err();
    assert!(failure.cause == Cause::InvalidRequest && failure.text().contains("--allow-address"), "{failure:?}");
}

#[tokio::test(start_paused = true)]
async fn another_machine_gets_none() {
    let world = World::new();
    attach(&world, URL).await.unwrap();
    world.calls();
    world.bmc.lock().unwrap().shows_another = true;
    for failure in [
        attach(&world, "http://192.0.2.9/other.iso").await.unwrap_err(),
        images(&mut world.host()).detach().await.unwrap_err(),
    ] {
        assert_eq!(failure.cause, Cause::AnotherMachine);
    }
    assert_eq!(world.calls().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn it_is_out_before_an_agent_is_booted_and_when_the_machine_is_given_back() {
    for second_drive in [true, false] {
        let world = World::new();
        world.bmc.lock().unwrap().second_drive = second_drive;
        attach(&world, URL).await.unwrap();
        world.calls();
        world.booted().await;
        let calls = world.calls();
        let drive = if second_drive { "empty CD2" } else { "empty CD1" };
        assert_eq!(calls[..2], [drive.to_owned(), "insert".to_owned()], "{calls:?}");
        assert_eq!(attached(&world).await, Attached::Nothing);
    }
    let world = World::new();
    attach(&world, URL).await.unwrap();
    let request = CleaningRequest::default();
    for _ in 0..5 {
        if matches!(world.host().deprovision(request.clone()).await.unwrap(), Verdict::Done(_)) {
            break;
        }
    }
    assert_eq!((drives(&world), attached(&world).await), ((None, None), Attached::Nothing));
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_let_go_and_not_deleted_keeps_it() {
    let mut world = World::new();
    // It goes into the drive that an agent's medium has been in, and another process lets the host go.
    world.booted().await;
    world.bmc.lock().unwrap().medium = None;
    world.restart();
    attach(&world, URL).await.unwrap();
    world.host().release(ReleaseRequest::default()).await.unwrap();
    assert_eq!(drives(&world).0.as_deref(), Some(URL));
    assert_eq!(attached(&world).await, Attached::Url(URL.into()));
}

/// It would come in when nobody knows of it any more, and be booted in place of the agent.
#[tokio::test(start_paused = true)]
async fn one_that_is_withdrawn_while_the_bmc_still_reads_it_is_waited_for() {
    let world = World::new();
    {
        let mut bmc = world.bmc.lock().unwrap();
        (bmc.second_drive, bmc.never_reads_data) = (true, true);
    }
    assert!(matches!(attach(&world, URL).await.unwrap(), Verdict::Working(_)));
    assert!(matches!(images(&mut world.host()).detach().await.unwrap(), Verdict::Working(_)));
    world.calls();
    assert!(matches!(attach(&world, "http://192.0.2.9/other.iso").await.unwrap(), Verdict::Working(_)));
    assert_eq!(world.calls().len(), 0, "the BMC is not asked for another one meanwhile");
    // It comes in after all, and goes.
    world.bmc.lock().unwrap().data = Some(URL.into());
    assert_eq!(images(&mut world.host()).detach().await.unwrap(), Verdict::Done(()));
    assert_eq!(drives(&world), (None, None));
}

/// Somebody else's, or one that an iDRAC still shows: no word of ours ejects it, and ours is not forgotten.
#[tokio::test(start_paused = true)]
async fn another_medium_in_its_drive_is_left_there_while_it_may_still_come() {
    let mut world = World::new();
    {
        let mut bmc = world.bmc.lock().unwrap();
        (bmc.second_drive, bmc.never_reads_data) = (true, true);
    }
    assert!(matches!(attach(&world, URL).await.unwrap(), Verdict::Working(_)));
    let rescue = "http://elsewhere/rescue.iso";
    world.bmc.lock().unwrap().data = Some(rescue.into());
    world.restart();
    assert!(matches!(images(&mut world.host()).detach().await.unwrap(), Verdict::Working(_)));
    assert!(matches!(attach(&world, "http://192.0.2.9/other.iso").await.unwrap(), Verdict::Working(_)));
    assert_eq!(drives(&world).1.as_deref(), Some(rescue));
    // Ours comes in after all, and goes.
    world.bmc.lock().unwrap().data = Some(URL.into());
    assert_eq!(images(&mut world.host()).detach().await.unwrap(), Verdict::Done(()));
    assert_eq!(drives(&world), (None, None));
    // One that never comes is forgotten in the end, and the other one is still not touched.
    assert!(matches!(attach(&world, URL).await.unwrap(), Verdict::Working(_)));
    world.bmc.lock().unwrap().data = Some(rescue.into());
    pass(601).await;
    assert_eq!(images(&mut world.host()).detach().await.unwrap(), Verdict::Done(()));
    assert_eq!((drives(&world).1.as_deref(), attached(&world).await), (Some(rescue), Attached::Nothing));
}

/// The process that has asked the BMC is gone. Whoever comes after it forgets nothing that may come in.
#[tokio::test(start_paused = true)]
async fn one_that_may_still_come_is_waited_for_by_whatever_ends_it() {
    for force in [false, true] {
        let mut world = World::new();
        {
            let mut bmc = world.bmc.lock().unwrap();
            (bmc.second_drive, bmc.never_reads_data) = (true, true);
        }
        assert!(matches!(attach(&world, URL).await.unwrap(), Verdict::Working(_)));
        world.restart();
        world.deleting = true;
        assert!(matches!(images(&mut world.host()).attached().await.unwrap(), Verdict::Working(_)));
        let request = || ReleaseRequest { force };
        world.calls();
        let released = world.host().release(request()).await.unwrap();
        assert_eq!(matches!(released, Verdict::Done(())), force, "{released:?}");
        if force {
            assert!(world.calls().contains(&"call off CD2".to_owned()), "the BMC may end its reading");
            continue;
        }
        world.bmc.lock().unwrap().data = Some(URL.into());
        assert_eq!(world.host().release(request()).await.unwrap(), Verdict::Done(()));
        assert_eq!(drives(&world), (None, None));
    }
}

/// It was heard, or was not: it is asked for again. A BMC that refuses that while it reads has not refused what it was asked for first.
#[tokio::test(start_paused = true)]
async fn one_whose_answer_was_lost_is_asked_for_again_and_not_forgotten() {
    let mut world = World::new();
    {
        let mut bmc = world.bmc.lock().unwrap();
        (bmc.second_drive, bmc.loses_answers) = (true, true);
    }
    attach(&world, URL).await.unwrap_err();
    {
        let mut bmc = world.bmc.lock().unwrap();
        (bmc.loses_answers, bmc.refuses_medium) = (false, true);
    }
    world.calls();
    pass(60).await;
    let failure = attach(&world, URL).await.unwrap_err();
    assert!(failure.cause == Cause::BmcRefused && world.calls().iter().any(|call| call.starts_with("put ")));
    assert!(matches!(attach(&world, URL).await.unwrap(), Verdict::Working(_)));
    world.restart();
    assert!(matches!(images(&mut world.host()).detach().await.unwrap(), Verdict::Working(_)));
    // It comes in after all, and goes.
    world.bmc.lock().unwrap().data = Some(URL.into());
    assert_eq!(images(&mut world.host()).detach().await.unwrap(), Verdict::Done(()));
    assert_eq!(drives(&world), (None, None));
}

/// A BMC that reads one refuses another: what was refused then would be taken for what it was asked for first.
#[tokio::test(start_paused = true)]
async fn one_that_another_process_has_asked_for_is_not_asked_for_again_while_it_may_come() {
    for hides_media in [false, true] {
        let mut world = World::new();
        {
            let mut bmc = world.bmc.lock().unwrap();
            (bmc.second_drive, bmc.never_reads_data, bmc.hides_media) = (true, true, hides_media);
        }
        assert!(matches!(attach(&world, URL).await.unwrap(), Verdict::Working(_)));
        world.restart();
        world.calls();
        assert!(matches!(attach(&world, URL).await.unwrap(), Verdict::Working(_)));
        assert_eq!(world.calls().len(), 0);
        if hides_media {
            // Nothing is seen of it: another waits for it as well, and so does its end.
            assert!(matches!(attach(&world, "http://192.0.2.9/other.iso").await.unwrap(), Verdict::Working(_)));
            assert!(matches!(images(&mut world.host()).detach().await.unwrap(), Verdict::Working(_)));
            assert_eq!(world.calls().len(), 0);
            pass(601).await;
            assert_eq!(images(&mut world.host()).detach().await.unwrap(), Verdict::Done(()));
            assert_eq!(world.calls(), ["empty CD2"]);
            continue;
        }
        world.bmc.lock().unwrap().data = Some(URL.into());
        assert_eq!(attach(&world, URL).await.unwrap(), Verdict::Done(()));
        assert_eq!(world.calls().len(), 0);
    }
}

/// The machine is off meanwhile: its host hears of it, and more than once.
#[tokio::test(start_paused = true)]
async fn one_that_never_comes_in_is_a_failure_in_the_end() {
    let world = World::new();
    {
        let mut bmc = world.bmc.lock().unwrap();
        (bmc.second_drive, bmc.never_reads_data) = (true, true);
    }
    for _ in 0..2 {
        assert!(matches!(attach(&world, URL).await.unwrap(), Verdict::Working(_)));
        let mut failure = None;
        for _ in 0..100 {
            pass(10).await;
            if let Err(found) = attach(&world, URL).await {
                failure = Some(found);
                break;
            }
        }
        let failure = failure.expect("it is asked for for ever, and nobody hears of it");
        assert!(failure.text().contains("reaches its server"), "{}", failure.text());
    }
}

fn recorded(world: &World) -> bool {
    world.journal.content().is_some_and(|content| content.data.get("dataMedium").is_some())
}

/// It is in by the BMC's word: it is not put in once more, least of all into the drive that the machine boots from.
#[tokio::test(start_paused = true)]
async fn one_that_the_bmc_does_not_show_stays_in_its_drive() {
    for restarted in [false, true] {
        let mut world = World::new();
        {
            let mut bmc = world.bmc.lock().unwrap();
            (bmc.second_drive, bmc.hides_media) = (true, true);
        }
        assert_eq!(attach(&world, URL).await.unwrap(), Verdict::Done(()));
        if restarted {
            world.restart();
        }
        world.calls();
        assert_eq!(attach(&world, URL).await.unwrap(), Verdict::Done(()));
        assert_eq!((world.calls().len(), drives(&world)), (0, (None, Some(URL.into()))), "restarted: {restarted}");
        assert_eq!(attached(&world).await, Attached::Something);
    }
}

/// Whether the BMC has heard of it is not known: it is asked for again in the drive that is recorded for it, which is emptied before. What it refuses then is known all the same.
#[tokio::test(start_paused = true)]
async fn one_that_may_be_in_a_drive_that_shows_nothing_is_put_in_anew_and_in_no_other() {
    let put = format!("put {URL} in CD2");
    for minutes in [1, 11] {
        let world = World::new();
        {
            let mut bmc = world.bmc.lock().unwrap();
            (bmc.second_drive, bmc.hides_media, bmc.loses_answers) = (true, true, true);
        }
        attach(&world, URL).await.unwrap_err();
        {
            // It has been heard.
            let mut bmc = world.bmc.lock().unwrap();
            (bmc.loses_answers, bmc.refuses_medium, bmc.data) = (false, true, Some(URL.into()));
        }
        world.calls();
        pass(60 * minutes).await;
        let failure = attach(&world, URL).await.unwrap_err();
        assert_eq!((failure.cause, recorded(&world)), (Cause::BmcRefused, true), "{minutes}: {failure:?}");
        assert_eq!(world.calls(), ["call off CD2", put.as_str()], "{minutes}");
        world.bmc.lock().unwrap().refuses_medium = false;
        pass(601).await;
        assert_eq!(attach(&world, URL).await.unwrap(), Verdict::Done(()));
        assert_eq!(world.calls(), ["call off CD2", put.as_str()], "{minutes}: a refusal is no word that it is in");
        assert_eq!(images(&mut world.host()).detach().await.unwrap(), Verdict::Done(()));
        assert_eq!((drives(&world), recorded(&world)), ((None, None), false));
    }
    // Where the BMC shows that it has lost it, and does not take it again, nothing is forgotten, and the drive stays the same.
    let world = World::new();
    world.bmc.lock().unwrap().second_drive = true;
    assert_eq!(attach(&world, URL).await.unwrap(), Verdict::Done(()));
    {
        let mut bmc = world.bmc.lock().unwrap();
        (bmc.data, bmc.refuses_medium) = (None, true);
    }
    world.calls();
    attach(&world, URL).await.unwrap_err();
    assert_eq!((world.calls(), recorded(&world)), (vec![put], true));
    // One that nothing was known of is.
    let world = World::new();
    world.bmc.lock().unwrap().refuses_medium = true;
    attach(&world, URL).await.unwrap_err();
    assert!(!recorded(&world));
}

/// It is in the drive that the BMC does not show for a moment, as in the middle of a restart.
#[tokio::test(start_paused = true)]
async fn one_whose_drive_is_hidden_for_a_look_is_neither_forgotten_nor_put_into_another() {
    let mut world = World::new();
    world.bmc.lock().unwrap().second_drive = true;
    assert_eq!(attach(&world, URL).await.unwrap(), Verdict::Done(()));
    world.bmc.lock().unwrap().hides_drives = true;
    world.calls();
    for restarted in [false, true] {
        if restarted {
            world.restart();
        }
        assert!(matches!(images(&mut world.host()).attached().await.unwrap(), Verdict::Working(_)));
        for url in [URL, "http://192.0.2.9/other.iso"] {
            assert!(matches!(attach(&world, url).await.unwrap(), Verdict::Working(_)), "{url}");
        }
        assert!(matches!(images(&mut world.host()).detach().await.unwrap(), Verdict::Working(_)));
        assert!(recorded(&world) && world.calls().is_empty(), "restarted: {restarted}");
    }
    assert!(matches!(world.host().inspect(InspectRequest::default()).await.unwrap(), Verdict::Working(_)));
    assert!(!world.calls().contains(&"insert".to_owned()), "the agent would be booted beside it");
    world.bmc.lock().unwrap().hides_drives = false;
    assert_eq!(attached(&world).await, Attached::Url(URL.into()));
    assert_eq!(images(&mut world.host()).detach().await.unwrap(), Verdict::Done(()));
    assert_eq!((drives(&world), recorded(&world)), ((None, None), false));
    // A host is let go all the same, by force.
    let mut world = World::new();
    assert_eq!(attach(&world, URL).await.unwrap(), Verdict::Done(()));
    (world.deleting, world.bmc.lock().unwrap().hides_drives) = (true, true);
    let released = world.host().release(ReleaseRequest::default()).await.unwrap();
    assert!(matches!(released, Verdict::Working(_)), "{released:?}");
    assert_eq!(world.host().release(ReleaseRequest { force: true }).await.unwrap(), Verdict::Done(()));
}

/// Else it would come in when nobody knows of it any more.
#[tokio::test(start_paused = true)]
async fn one_that_ran_out_of_its_time_is_called_off_before_it_is_given_up() {
    let world = World::new();
    {
        let mut bmc = world.bmc.lock().unwrap();
        (bmc.second_drive, bmc.never_reads_data, bmc.loses_call_off) = (true, true, true);
    }
    assert!(matches!(attach(&world, URL).await.unwrap(), Verdict::Working(_)));
    pass(601).await;
    world.calls();
    for _ in 0..2 {
        assert_eq!(attach(&world, URL).await.unwrap_err().cause, Cause::BmcUnreachable);
        assert_eq!(world.calls(), ["call off CD2"]);
    }
    world.bmc.lock().unwrap().loses_call_off = false;
    let failure = attach(&world, URL).await.unwrap_err();
    assert!(failure.text().contains("reaches its server"), "{}", failure.text());
    assert_eq!(world.calls(), ["call off CD2"]);
    // So is one that another is to go in for.
    assert!(matches!(attach(&world, URL).await.unwrap(), Verdict::Working(_)));
    pass(601).await;
    world.calls();
    assert!(matches!(attach(&world, "http://192.0.2.9/other.iso").await.unwrap(), Verdict::Working(_)));
    assert_eq!(world.calls(), ["call off CD2", "put http://192.0.2.9/other.iso in CD2"]);
}
