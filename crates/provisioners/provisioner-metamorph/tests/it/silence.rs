//! The agent is silent: what the BMC shows tells why, and the obvious is tried once more.

use std::time::Duration;

use provisioner::{Cause, Failure, Retry};

use bmc::LogEntry;
use tokio::time::Instant;

use crate::fake::{Bmc, unconfirmed};
use crate::kit::{Lab, image};

/// A boot whose agent never reports, on a BMC that `disturb` makes odd after each reset; the first failure, if there is one in time.
async fn silent(lab: &Lab, disturb: impl Fn(&mut Bmc)) -> Failure {
    let mut resets = 0;
    for _ in 0..400 {
        match lab.inspect().await {
            Ok(pause) => {
                if lab.bmc.resets() > resets {
                    resets = lab.bmc.resets();
                    disturb(&mut lab.bmc.state());
                }
                tokio::time::sleep(pause).await;
            }
            Err(failure) => return failure,
        }
    }
    panic!("no failure")
}

#[tokio::test(start_paused = true)]
async fn the_cause_of_a_silence_is_told_after_one_more_attempt_at_the_same_address() {
    type Disturb = fn(&mut Bmc);
    let cases: [(Disturb, &str, &str); 4] = [
        (|bmc| bmc.medium = None, "the medium is no longer in the BMC's drive", "who took it out"),
        (|bmc| bmc.on = false, "the machine is off", "front panel"),
        (|_| {}, "the machine has not restarted", "reset the machine by hand"),
        (|bmc| bmc.override_ahead = Some(false), "nothing has read the medium since", "check that the BMC reaches"),
    ];
    for (disturb, found, advice) in cases {
        let lab = Lab::new(&image(1));
        let failure = silent(&lab, disturb).await;
        assert_eq!(failure.cause, Cause::AgentSilent);
        assert!(failure.message.contains(found) && failure.message.contains("a second time"), "{failure}");
        assert!(failure.message.contains("OSRunning"), "{failure}");
        assert!(failure.advice.as_deref().is_some_and(|a| a.contains(advice)), "{failure}");
        assert_eq!(lab.bmc.resets(), 2, "{found}");
        let (inserted, journal) = (lab.bmc.inserted(), lab.journal.all());
        assert!(inserted.iter().all(|url| *url == inserted[0]), "{inserted:?}");
        assert_eq!((journal.len(), journal[0].1.boot.as_ref().unwrap().generation), (1, 1));
    }
}

/// The BMC often knows why a machine does not start. Where the medium is, it knows as well, and that is nobody else's business.
#[tokio::test(start_paused = true)]
async fn the_newest_critical_entries_of_the_bmcs_log_are_told_at_the_end() {
    let lab = Lab::new(&image(1));
    lab.inspect().await.unwrap();
    let url = lab.bmc.inserted().remove(0);
    let name = url.rsplit('/').next().unwrap().to_owned();
    let entry = |created: &str, message: &str| LogEntry {
        created: Some(created.into()),
        severity: Some("Critical".into()),
        message: message.into(),
    };
    lab.bmc.state().critical = Some(vec![
        entry("2026-11-22T10:00:00Z", &format!("Virtual media {url} lost, {} too, {}", name, &name[..20])),
        entry("2026-11-22T09:00:00Z", &format!("DIMM 4: uncorrectable memory error {}", "x".repeat(400))),
        entry("2019-01-01T00:00:00Z", "Fan 1 failed"),
    ]);
    let failure = silent(&lab, |_| {}).await;
    let text = failure.text();
    assert!(text.contains("\"Virtual media [hidden] lost, [hidden] too, [hidden]\" (2026-11-22T10:00:00Z)"), "{text}");
    assert!(text.contains("DIMM 4: uncorrectable memory error") && !text.contains(&"x".repeat(161)), "{text}");
    assert!(!text.contains("Fan 1") && !text.contains(&name[..16]), "{text}");
    let read = lab.bmc.state().log.iter().filter(|line| *line == "read the log").count();
    assert_eq!(read, 1, "when the failure is told, not at the first silence");
}

/// Of one that does not answer to the look for it, an error is seen, and the boot goes on: the machine may be on its way.
#[tokio::test(start_paused = true)]
async fn a_bmc_that_is_gone_after_a_reset_that_was_not_confirmed_is_told_soon_and_the_boot_waited_for() {
    let lab = Lab::new(&image(1));
    lab.bmc.state().fails_restart = Some(unconfirmed);
    let begun = Instant::now();
    let failure = silent(&lab, |bmc| bmc.is_gone = true).await;
    assert_eq!(
        (failure.cause, failure.retry, lab.bmc.resets()),
        (Cause::BmcUnreachable, Retry::Waiting, 1),
        "{failure}"
    );
    assert!(failure.message.contains("the reset was not confirmed (the task"), "{failure}");
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    lab.bmc.state().is_gone = false;
    let pause = lab.inspect().await.unwrap();
    assert!(pause <= Duration::from_secs(15), "{pause:?}");
    assert_eq!((lab.bmc.resets(), lab.journal.all().len()), (1, 1), "the same boot of the same operation");
}

/// A machine that stays off was not reset: it is switched on, and nobody waits for its agent until the time for a boot is over. What fails of that ends no boot.
#[tokio::test(start_paused = true)]
async fn a_machine_that_stays_off_after_a_reset_that_was_not_confirmed_is_switched_on_soon() {
    let lab = Lab::new(&image(1));
    lab.bmc.state().fails_restart = Some(unconfirmed);
    let begun = Instant::now();
    lab.inspect().await.unwrap();
    let shown = |on: bool, loses_on: bool| {
        let mut bmc = lab.bmc.state();
        (bmc.on, bmc.loses_on) = (on, loses_on);
    };
    shown(false, true);
    let starts = || lab.bmc.state().log.iter().filter(|line| *line == "On").count();
    while starts() == 0 {
        tokio::time::sleep(lab.inspect().await.unwrap()).await;
        assert!(begun.elapsed() < Duration::from_secs(90), "{:?}", begun.elapsed());
    }
    shown(false, false);
    while !lab.bmc.state().on {
        tokio::time::sleep(lab.inspect().await.unwrap()).await;
        assert!(begun.elapsed() < Duration::from_secs(180), "{:?}", begun.elapsed());
    }
    tokio::time::sleep(lab.inspect().await.unwrap()).await;
    assert_eq!((starts(), lab.bmc.resets(), lab.bmc.inserted().len()), (2, 1, 1));
    assert_eq!(lab.journal.all().len(), 1, "the same boot of the same operation");
}

/// Without its medium it would start what is on its disk, which may be a system that was withdrawn; without the override it is set once more.
#[tokio::test(start_paused = true)]
async fn a_machine_that_is_off_is_switched_on_for_the_agent_if_it_starts_from_its_medium() {
    type Disturb = fn(&mut Bmc);
    let cases: [(Disturb, bool); 2] =
        [(|bmc| bmc.medium = None, false), (|bmc| bmc.override_ahead = Some(false), true)];
    for (disturb, starts) in cases {
        let lab = Lab::new(&image(1));
        lab.bmc.state().fails_restart = Some(unconfirmed);
        let begun = Instant::now();
        lab.inspect().await.unwrap();
        lab.bmc.state().on = false;
        disturb(&mut lab.bmc.state());
        lab.bmc.state().log.clear();
        while begun.elapsed() < Duration::from_secs(300) {
            tokio::time::sleep(lab.inspect().await.unwrap()).await;
        }
        let orders: Vec<String> =
            lab.bmc.state().log.iter().filter(|line| ["boot once", "On"].contains(&line.as_str())).cloned().collect();
        assert_eq!(orders, if starts { vec!["boot once", "On"] } else { vec![] });
        let message = lab.journal.all()[0].1.message.clone().unwrap_or_default();
        assert!(starts || message.contains("the medium is not seen in its drive any more"), "{message}");
    }
}

/// One that is on its way through the restart may be off for a moment: nothing is done to it.
#[tokio::test(start_paused = true)]
async fn a_machine_that_is_off_for_a_moment_in_its_restart_is_let_alone() {
    let lab = Lab::new(&image(1));
    lab.bmc.state().fails_restart = Some(unconfirmed);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(600) {
        let pause = lab.inspect().await.unwrap();
        lab.bmc.state().on = !(15..25).contains(&begun.elapsed().as_secs());
        tokio::time::sleep(pause.min(Duration::from_secs(5))).await;
    }
    assert_eq!((lab.bmc.resets(), lab.bmc.state().log.contains(&"On".to_owned())), (1, false));
}

/// What came of a reset may be all that says why the machine has not restarted; nobody says that the BMC took it.
#[tokio::test(start_paused = true)]
async fn what_came_of_a_reset_that_was_not_confirmed_is_told_at_the_end() {
    let lab = Lab::new(&image(1));
    lab.bmc.state().fails_restart = Some(unconfirmed);
    let failure = silent(&lab, |_| {}).await;
    assert_eq!((failure.cause, lab.bmc.resets()), (Cause::AgentSilent, 2), "{failure}");
    let text = failure.text();
    assert!(text.contains("the machine has not restarted; the reset was not confirmed: the task"), "{text}");
    assert!(text.contains("licence missing") && !text.contains("accepted the reset"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_bmc_that_forgets_the_override_is_found_out_by_reading_it_back() {
    let lab = Lab::new(&image(1));
    lab.bmc.state().forgets_override = true;
    let failure = silent(&lab, |_| {}).await;
    assert!(failure.message.contains("accepted the boot override and did not keep it"), "{failure}");
    let looks = lab.bmc.state().log.iter().filter(|line| *line == "look at the boot").count();
    assert_eq!(looks, 3, "at each silence, and after the second override");
}

#[tokio::test(start_paused = true)]
async fn a_bmc_that_has_read_a_medium_is_not_told_to_reach_it() {
    // It looked into the medium when it was inserted, and the machine booted something else.
    let lab = Lab::new(&image(1));
    lab.bmc_reads_when_inserting();
    let failure = silent(&lab, |bmc| bmc.override_ahead = Some(false)).await;
    let advice = failure.advice.unwrap();
    assert!(advice.contains("the BMC reaches http://192.0.2.1:6180; check that the firmware's boot order"), "{advice}");
    // It read the medium and refused it.
    let lab = Lab::new(&image(1));
    lab.bmc_reads_when_inserting();
    lab.bmc.state().refuses_medium = true;
    let failure = lab.inspect().await.unwrap_err();
    assert!(failure.message.contains("it reaches http://192.0.2.1:6180 and has read"), "{failure}");
    assert!(!failure.text().contains("check that the BMC reaches"), "{failure}");
    // It refused it without a look.
    let lab = Lab::new(&image(1));
    lab.bmc.state().refuses_medium = true;
    let failure = lab.inspect().await.unwrap_err();
    assert!(failure.text().contains("check that the BMC reaches http://192.0.2.1:6180"), "{failure}");
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_has_read_its_system_is_not_reset_under_it() {
    let lab = Lab::new(&image(1));
    lab.inspect().await.unwrap();
    let url = lab.bmc.inserted().remove(0);
    // The test's image is small: it is read again and again, as firmware does.
    for _ in 0..8 {
        lab.read(&url).await.unwrap();
    }
    let failures = lab.look_for(Duration::from_secs(1230)).await;
    assert_eq!((failures.len(), lab.bmc.resets()), (1, 1), "{failures:?}");
    assert!(failures[0].message.contains("has read its system"), "{failures:?}");
    assert!(failures[0].text().contains("its network reach https://192.0.2.1:6385"), "{failures:?}");
}
