//! What a worker may say of its server, and what the server does about one that says what is not so; hosts that are deleted, or whose entry was edited.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use provisioner::{
    Answer, Call, Cause, Failure, InspectRequest, Outcome, Provisioner, ReleaseRequest, Retry, Verdict, Waiting,
};
use provisioner_external::v1::ask_request::Message as ToWorker;
use provisioner_external::v1::ask_response::Message;
use provisioner_external::{ExternalProvisioner, v1};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use tonic::Status;

use crate::fixture::site;
use crate::hostile::Nowhere;
use crate::scripted::{Declared, Describes, Process, Scripted, done, say};

fn acme(process: &Process) -> ExternalProvisioner {
    ExternalProvisioner::new(site("acme"), Arc::new(process.connect.clone()))
}

fn failed(cause: &str) -> Message {
    let failure = v1::Failure { cause: cause.into(), message: "do it: no".into(), ..v1::Failure::default() };
    Message::Verdict(v1::Verdict { verdict: Some(v1::verdict::Verdict::Failure(failure)) })
}

fn on() -> Scripted {
    Scripted::new(|_, _, out| async move {
        say(&out, done("power", "true")).await;
    })
}

fn is_on(outcome: &Outcome<Answer>) -> bool {
    *outcome == Ok(Verdict::Done(Answer::Power(Some(true))))
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_deleted_waits_for_a_worker_that_is_away_and_not_for_one_that_is_there() {
    let process = Process::start(Scripted::new(|_, _, out| async move { drop(out) }));
    let away = ExternalProvisioner::new(site("acme"), Arc::new(Nowhere(AtomicUsize::new(0))));
    // One that breaks off counts: the machine may be dead for which it does.
    for (acme, retry) in [(acme(&process), Retry::Waiting), (away, Retry::Held)] {
        let host = Declared::new("h");
        let deleted = host.ask_so(&acme, Call::PowerState, |facts| facts.deleting = true).await;
        let failure = deleted.unwrap_err();
        assert_eq!((failure.cause, failure.retry), (Cause::ProvisionerUnavailable, retry), "{failure}");
    }
}

/// The way out of waiting: whoever detaches a host by force waits for nobody.
#[tokio::test(start_paused = true)]
async fn a_host_is_let_go_by_force_whatever_the_worker_says_of_it() {
    let release = || Call::Release(ReleaseRequest { force: true });
    // Held: the host goes without it, and an Event says so.
    let goes = |outcome: Outcome<Answer>| outcome.is_err_and(|failure| failure.retry == Retry::Held);
    let away = ExternalProvisioner::new(site("acme"), Arc::new(Nowhere(AtomicUsize::new(0))));
    for deleting in [false, true] {
        let host = Declared::new("h");
        let outcome = host.ask_so(&away, release(), |facts| facts.deleting = deleting).await;
        assert!(goes(outcome), "nobody is there");
        let unforced = host.ask_so(&away, Call::Release(ReleaseRequest::default()), |facts| facts.deleting = deleting);
        assert!(unforced.await.is_err());
    }
    // One that is there has a minute, whatever it says and however late it wants to be asked again.
    let working = v1::Working {
        step: "later".into(),
        look_again: Some(prost_types::Duration { seconds: 1800, nanos: 0 }),
        ..v1::Working::default()
    };
    let working = Message::Verdict(v1::Verdict { verdict: Some(v1::verdict::Verdict::Working(working)) });
    let mut final_failure =
        v1::Failure { cause: "BmcUnreachable".into(), message: "do it: no".into(), ..v1::Failure::default() };
    final_failure.set_retry(v1::Retry::AfterChange);
    let final_failure = Message::Verdict(v1::Verdict { verdict: Some(v1::verdict::Verdict::Failure(final_failure)) });
    for (answer, said) in [(failed("BmcUnreachable"), "do it: no"), (final_failure, "do it: no"), (working, "later")] {
        let process = Process::start(Scripted::new(move |_, _, out| {
            let answer = answer.clone();
            async move {
                say(&out, answer).await;
            }
        }));
        let (theirs, host) = (acme(&process), Declared::new("h"));
        let begun = Instant::now();
        let ended = forced(&host, &theirs).await;
        let told = ended.as_ref().is_err_and(|failure| failure.message.ends_with(said));
        assert!(goes(ended.clone()) && told, "{ended:?}");
        let (least, most) = (Duration::from_secs(60), Duration::from_secs(62));
        assert!((least..most).contains(&begun.elapsed()), "{:?}", begun.elapsed());
        let is_asked = |outcome: Outcome<Answer>| matches!(outcome, Ok(Verdict::Working(_)));
        assert!(is_asked(host.ask(&theirs, release()).await), "another time has a minute of its own");
        // So has one that is forced after it was not any more.
        tokio::time::sleep(Duration::from_secs(50)).await;
        let unforced = host.ask(&theirs, Call::Release(ReleaseRequest::default())).await;
        assert!(!goes(unforced));
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(is_asked(host.ask(&theirs, release()).await));
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert!(is_asked(host.ask(&theirs, release()).await), "the annotation was removed meanwhile");
        // The wish is taken back, the host goes on, and it is wished anew.
        tokio::time::sleep(Duration::from_secs(50)).await;
        let _ = host.ask(&theirs, Call::PowerState).await;
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(is_asked(host.ask(&theirs, release()).await), "it has a minute of its own");
    }
    // One that hangs has no longer than that.
    let process = Process::start(Scripted::new(|_, _, out| async move {
        tokio::time::sleep(Duration::from_secs(3600)).await;
        drop(out);
    }));
    let (hanging, host, begun) = (acme(&process), Declared::new("h"), Instant::now());
    assert!(goes(forced(&host, &hanging).await));
    assert!(begun.elapsed() <= Duration::from_secs(61), "{:?}", begun.elapsed());
}

/// Asks until there is an end, each time a little later than the worker is to be asked.
async fn forced(host: &Declared, provisioner: &ExternalProvisioner) -> Outcome<Answer> {
    for _ in 0..100 {
        match host.ask(provisioner, Call::Release(ReleaseRequest { force: true })).await {
            Ok(Verdict::Working(working)) => tokio::time::sleep(working.look_again + Duration::from_millis(3)).await,
            ended => return ended,
        }
    }
    panic!("it is asked without an end")
}

/// It has something refused, and says for ever that this keeps it from letting the host go.
#[tokio::test(start_paused = true)]
async fn a_refusal_that_a_worker_provokes_keeps_no_host_that_is_let_go_by_force() {
    let process = Process::start(Scripted::new(|_, mut incoming, out| async move {
        say(&out, Message::StillWanted(v1::Question { question: 1 })).await;
        let _ = incoming.message().await;
        say(&out, failed("RecordUnavailable")).await;
    }));
    let (acme, host, begun) = (acme(&process), Declared::new("h"), Instant::now());
    host.record.unwanted(Some("the host is paused"));
    let ended = forced(&host, &acme).await.unwrap_err();
    assert!(ended.retry == Retry::Held && ended.cause != Cause::RecordUnavailable, "{ended}");
    assert!(begun.elapsed() <= Duration::from_secs(62), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_list_that_was_edited_leaves_no_registered_host_with_its_disks_as_they_are() {
    let process = Process::start(on());
    let mut entry = site("acme");
    entry.schemes = vec!["ipmi".into()];
    let other = ExternalProvisioner::new(entry, Arc::new(process.connect.clone()));
    let host = Declared::new("h");
    assert!(host.ask(&other, Call::PowerState).await.is_err());
    let registered = |facts: &mut provisioner::HostFacts| facts.provisioning_id = "acme-7".into();
    assert!(is_on(&host.ask_so(&other, Call::PowerState, registered).await), "it goes on with the one that has it");
    let mut entry = site("acme");
    entry.namespaces = vec!["theirs".into()];
    let elsewhere = ExternalProvisioner::new(entry, Arc::new(process.connect.clone()));
    let failure = host.ask_so(&elsewhere, Call::PowerState, registered).await.unwrap_err();
    assert_eq!((failure.cause, failure.retry), (Cause::NotServed, Retry::Held), "it waits for the list: {failure}");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_says_nothing_yet_hears_that_its_server_does_not_lead_any_more() {
    let heard = Arc::new(Notify::new());
    let mut worker = on();
    worker.hears_first = Some(Arc::clone(&heard));
    let process = Process::start(worker);
    let (acme, leads) = (acme(&process), Arc::new(AtomicBool::new(true)));
    let asked = Arc::clone(&leads);
    let mut context = Declared::new("h").context();
    context.may_act = Arc::new(move || asked.load(Ordering::SeqCst));
    let mut host = acme.host(context).unwrap();
    let began = Instant::now();
    let watched = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        leads.store(false, Ordering::SeqCst);
        heard.notified().await;
    };
    tokio::select! {
        answer = provisioner::ask(host.as_mut(), Call::PowerState) => panic!("{answer:?}"),
        () = watched => {}
    }
    assert!(began.elapsed() <= Duration::from_millis(3200), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_a_worker_says_of_its_server_counts_only_if_it_is_so() {
    for cause in ["NotLeading", "RecordUnavailable"] {
        let process = Process::start(Scripted::new(move |_, _, out| async move {
            say(&out, failed(cause)).await;
        }));
        let (acme, host) = (acme(&process), Declared::new("h"));
        let failure = host.ask(&acme, Call::PowerState).await.unwrap_err();
        assert_eq!(failure.cause, Cause::ProvisionerFailed, "{failure}");
        assert!(failure.message.contains("it says that") && failure.message.contains("do it: no"), "{failure}");
    }
    let process = Process::start(Scripted::new(|_, _, out| async move {
        say(&out, failed("NotLeading")).await;
    }));
    let mut context = Declared::new("h").context();
    context.may_act = Arc::new(|| false);
    let acme = acme(&process);
    let mut host = acme.host(context).unwrap();
    let failure = provisioner::ask(host.as_mut(), Call::PowerState).await.unwrap_err();
    assert_eq!(failure.cause, Cause::NotLeading, "it is so");
}

#[tokio::test(start_paused = true)]
async fn permission_is_given_for_what_is_still_wanted() {
    let process = Process::start(Scripted::new(|_, mut incoming, out| async move {
        let mut granted = Vec::new();
        for (question, effect) in [(1, v1::Effect::Media), (2, v1::Effect::Write), (3, v1::Effect::Unspecified)] {
            let asked = v1::MayAct { question, effect: effect.into(), detail: String::new() };
            say(&out, Message::MayAct(asked)).await;
            let answer = incoming.message().await.unwrap().unwrap().message;
            let Some(ToWorker::Answered(answered)) = answer else { panic!("{answer:?}") };
            granted.push(matches!(answered.result, Some(v1::answered::Result::Granted(true))));
        }
        assert_eq!(granted, [true, false, false]);
        say(&out, failed("NotLeading")).await;
    }));
    let (acme, host) = (acme(&process), Declared::new("h"));
    host.record.unwanted(Some("the host is paused"));
    let failure = host.ask(&acme, Call::PowerState).await.unwrap_err();
    assert_eq!(failure.cause, Cause::RecordUnavailable, "a refusal is told as one, whatever the worker takes it for");
}

#[tokio::test(start_paused = true)]
async fn no_room_is_found_at_the_beginning_of_a_call_or_not_at_all() {
    let late = Arc::new(AtomicBool::new(false));
    let is_late = Arc::clone(&late);
    let process = Process::start(Scripted::new(move |_, _, out| {
        let is_late = is_late.load(Ordering::SeqCst);
        async move {
            if is_late {
                say(&out, Message::Note(v1::Note { kind: 0, text: "begun".into() })).await;
            }
            let _ = out.send(Err(Status::resource_exhausted("no thread"))).await;
        }
    }));
    let (acme, host) = (acme(&process), Declared::new("h"));
    let answer = host.ask(&acme, Call::PowerState).await;
    assert!(matches!(answer, Ok(Verdict::Waiting(Waiting::Busy { .. }))), "{answer:?}");
    late.store(true, Ordering::SeqCst);
    assert_eq!(host.ask(&acme, Call::PowerState).await.unwrap_err().cause, Cause::ProvisionerUnavailable);
}

#[tokio::test(start_paused = true)]
async fn work_is_not_numbered_out_of_sight() {
    let process = Process::start(Scripted::new(|_, _, out| async move {
        let entry = serde_json::json!({ "number": 999_999_999, "id": "x", "operation": "Inspect", "status": { "phase": "Running" } });
        say(&out, Message::Tell(v1::Tell { entry: entry.to_string().into(), soon: false })).await;
        say(&out, done("inspected", "{\"hardware\": {}}")).await;
    }));
    let host = Declared::new("h");
    let failure = host.ask(&acme(&process), Call::Inspect(InspectRequest::default())).await.unwrap_err();
    assert!(failure.cause == Cause::ProvisionerFailed && failure.message.contains("1 to 1000000"), "{failure}");
    assert!(host.history.all().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_machine_is_written_of_within_bounds() {
    let process = Process::start(Scripted::new(|_, _, out| async move {
        let record = format!("{{\"host\": {{\"name\": \"{}\"}}}}", "x".repeat(64 << 10));
        say(&out, Message::WriteMachine(v1::WriteMachine { question: 1, record: record.into() })).await;
    }));
    let failure = Declared::new("h").ask(&acme(&process), Call::PowerState).await.unwrap_err();
    assert!(failure.cause == Cause::ProvisionerFailed && failure.message.contains("of a machine"), "{failure}");
}

#[tokio::test(start_paused = true)]
async fn a_worker_is_told_of_its_own_hosts_end_alone_and_vouches_for_no_machine() {
    let worker = on();
    let forgotten = Arc::clone(&worker.forgotten);
    let process = Process::start(worker);
    let (acme, mine, theirs) = (acme(&process), Declared::new("mine"), Declared::new("theirs"));
    assert!(!acme.vouches(), "a claim keeps its age by this server's word, and not by a worker's");
    assert!(is_on(&mine.ask(&acme, Call::PowerState).await));
    acme.forget(&theirs.key());
    acme.forget(&mine.key());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(*forgotten.lock().unwrap(), ["mine"]);
}

#[tokio::test(start_paused = true)]
async fn one_that_hangs_is_not_taken_for_one_that_ends_and_is_connected_to_anew() {
    let worker = on();
    let hangs = Arc::clone(&worker.hangs);
    let process = Process::start(worker);
    let (hung, host) = (Arc::new(Notify::new()), Declared::new("h"));
    let acme = ExternalProvisioner::started(site("acme"), Arc::new(process.connect.clone()), Arc::clone(&hung));
    let _wake_ups = acme.subscribe();
    assert!(is_on(&host.ask(&acme, Call::PowerState).await));
    let away = |failure: Failure| assert_eq!(failure.cause, Cause::ProvisionerUnavailable, "{failure}");
    hangs.store(true, Ordering::SeqCst);
    let began = Instant::now();
    away(host.ask(&acme, Call::PowerState).await.unwrap_err());
    assert!(
        began.elapsed() < Duration::from_secs(160),
        "nothing is waited for beyond the deadline: {:?}",
        began.elapsed()
    );
    assert!(timeout(Duration::from_secs(60), hung.notified()).await.is_ok(), "who has started it hears of it");
    away(host.ask(&acme, Call::PowerState).await.unwrap_err());
    hangs.store(false, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(is_on(&host.ask(&acme, Call::PowerState).await));
    assert!(acme.standing().0);
}

#[tokio::test(start_paused = true)]
async fn one_that_is_at_work_and_answers_nothing_else_meanwhile_does_not_hang() {
    let busy = Arc::new(AtomicBool::new(false));
    let at_work = Arc::clone(&busy);
    let mut worker = Scripted::new(move |_, _, out| {
        let at_work = Arc::clone(&at_work);
        async move {
            at_work.store(true, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_secs(100)).await;
            at_work.store(false, Ordering::SeqCst);
            say(&out, done("power", "true")).await;
        }
    });
    worker.hangs = busy;
    let process = Process::start(worker);
    let (hung, host) = (Arc::new(Notify::new()), Declared::new("h"));
    let acme = ExternalProvisioner::started(site("acme"), Arc::new(process.connect.clone()), Arc::clone(&hung));
    let _wake_ups = acme.subscribe();
    for _ in 0..3 {
        assert!(is_on(&host.ask(&acme, Call::PowerState).await));
    }
    assert!(timeout(Duration::ZERO, hung.notified()).await.is_err(), "it would be killed");
    assert_eq!(process.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn one_that_takes_connections_and_greets_nobody_hangs() {
    let worker = on();
    worker.hangs.store(true, Ordering::SeqCst);
    let process = Process::start(worker);
    let hung = Arc::new(Notify::new());
    let acme = ExternalProvisioner::started(site("acme"), Arc::new(process.connect.clone()), Arc::clone(&hung));
    let _wake_ups = acme.subscribe();
    assert!(timeout(Duration::from_secs(30), hung.notified()).await.is_err(), "it may be about to begin");
    assert!(timeout(Duration::from_secs(90), hung.notified()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn one_that_takes_no_connection_for_minutes_hangs() {
    let hung = Arc::new(Notify::new());
    let nowhere = Arc::new(Nowhere(AtomicUsize::new(0)));
    let acme = ExternalProvisioner::started(site("acme"), nowhere, Arc::clone(&hung));
    let _wake_ups = acme.subscribe();
    assert!(timeout(Duration::from_secs(290), hung.notified()).await.is_err(), "it may be about to begin");
    assert!(timeout(Duration::from_secs(60), hung.notified()).await.is_ok());
}

/// A host that waits for what its worker cannot do hears of one that can.
#[tokio::test(start_paused = true)]
async fn what_an_earlier_process_could_not_do_is_not_refused_of_a_new_one() {
    let worker = on();
    let makes_raid = Arc::clone(&worker.makes_raid);
    let process = Process::start(worker);
    let (acme, host, other) = (acme(&process), Declared::new("h"), Declared::new("other"));
    assert!(is_on(&host.ask(&acme, Call::PowerState).await));
    let facts = host.context().facts;
    let dies = async || {
        process.dies().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(is_on(&other.ask(&acme, Call::PowerState).await));
    };
    dies().await;
    assert!(!acme.capabilities(&facts).hardware_raid, "it greets as before");
    makes_raid.store(true, Ordering::SeqCst);
    dies().await;
    assert!(acme.capabilities(&facts).hardware_raid, "before the host is asked about");
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_of_a_workers_words_is_bounded() {
    let process = Process::start(Scripted::new(|_, _, out| async move {
        let status = serde_json::json!({ "phase": "Running", "message": "x".repeat(130 << 10) });
        let entry = serde_json::json!({ "number": 1, "id": "x", "operation": "Inspect", "status": status });
        say(&out, Message::Tell(v1::Tell { entry: entry.to_string().into(), soon: false })).await;
    }));
    let host = Declared::new("h");
    let failure = host.ask(&acme(&process), Call::Inspect(InspectRequest::default())).await.unwrap_err();
    assert!(failure.cause == Cause::ProvisionerFailed && failure.message.contains("of one work"), "{failure}");
    assert!(host.history.all().is_empty());
    let mut worker = on();
    worker.hello.capabilities = format!("{{\"architectures\": [{}\"x\"]}}", "\"x\",".repeat(5000)).into();
    let process = Process::start(worker);
    let failure = Declared::new("h").ask(&acme(&process), Call::PowerState).await.unwrap_err();
    assert!(failure.message.contains("its capabilities: it is longer"), "{failure}");
}

#[tokio::test(start_paused = true)]
async fn one_that_says_in_hundreds_of_values_what_it_can_do_is_not_used() {
    let mut worker = on();
    worker.hello.capabilities = format!("{{\"architectures\": [{}\"\"]}}", "\"\",".repeat(300)).into();
    let process = Process::start(worker);
    let failure = Declared::new("h").ask(&acme(&process), Call::PowerState).await.unwrap_err();
    assert!(failure.message.contains("its capabilities: it has too many values"), "{failure}");
}

#[tokio::test(start_paused = true)]
async fn one_that_does_not_say_what_it_can_do_with_a_host_is_asked_that_once_a_connection() {
    let long = format!("{{\"architectures\": [\"{}\"]}}", "x".repeat(17 << 10));
    for (describes, most) in [(Describes::Never, 11), (Describes::So(long), 1)] {
        let worker = on();
        *worker.describes.lock().unwrap() = describes;
        let described = Arc::clone(&worker.described);
        let process = Process::start(worker);
        let (acme, host, began) = (acme(&process), Declared::new("h"), Instant::now());
        for _ in 0..3 {
            assert!(is_on(&host.ask(&acme, Call::PowerState).await));
        }
        assert!(began.elapsed() < Duration::from_secs(most), "{:?}", began.elapsed());
        assert_eq!(described.load(Ordering::SeqCst), 1);
        assert!(acme.capabilities(&host.context().facts).health, "what it has said of all counts");
    }
}

/// What it does for one host and not for all must not be refused because nothing was asked of that host yet.
#[tokio::test(start_paused = true)]
async fn what_it_can_do_with_a_host_is_asked_before_it_is_asked_for_anything() {
    let worker = on();
    *worker.describes.lock().unwrap() = Describes::So("{\"hardwareRaid\": true}".into());
    let described = Arc::clone(&worker.described);
    let process = Process::start(worker);
    let (acme, host) = (acme(&process), Declared::new("h"));
    assert!(is_on(&Declared::new("another").ask(&acme, Call::PowerState).await), "it is connected");
    let facts = host.context().facts;
    assert!(!acme.capabilities(&facts).hardware_raid, "of all it has not said so");
    let mut wakes = acme.subscribe();
    acme.learn(&facts);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(acme.capabilities(&facts).hardware_raid);
    assert_eq!(wakes.recv().await.map(|woken| woken.key), Some(host.key()), "whoever waits is woken");
    acme.learn(&facts);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(described.load(Ordering::SeqCst), 2, "once for each");
}

/// One that is too busy to say it is asked again when it may answer, whether or not anything is asked of the host.
#[tokio::test(start_paused = true)]
async fn what_it_does_not_say_of_a_host_in_time_is_asked_again() {
    let worker = on();
    let describes = Arc::clone(&worker.describes);
    let process = Process::start(worker);
    let (acme, host) = (acme(&process), Declared::new("h"));
    assert!(is_on(&Declared::new("another").ask(&acme, Call::PowerState).await), "it is connected");
    *describes.lock().unwrap() = Describes::Never;
    let facts = host.context().facts;
    let mut wakes = acme.subscribe();
    acme.learn(&facts);
    tokio::time::sleep(Duration::from_secs(11)).await;
    *describes.lock().unwrap() = Describes::So("{\"hardwareRaid\": true}".into());
    // When it may answer, and when it has.
    for _ in 0..2 {
        let woken = async { while wakes.recv().await.map(|woken| woken.key) != Some(host.key()) {} };
        timeout(Duration::from_secs(120), woken).await.unwrap();
        acme.learn(&facts);
    }
    assert!(acme.capabilities(&facts).hardware_raid);
}

#[tokio::test(start_paused = true)]
async fn what_it_has_said_of_a_host_counts_no_more_when_it_does_not_say_so_again() {
    let worker = on();
    let describes = Arc::clone(&worker.describes);
    *describes.lock().unwrap() = Describes::So("{\"hardwareRaid\": true}".into());
    let process = Process::start(worker);
    let (acme, host) = (acme(&process), Declared::new("h"));
    let facts = host.context().facts;
    assert!(is_on(&host.ask(&acme, Call::PowerState).await));
    assert!(acme.capabilities(&facts).hardware_raid);
    *describes.lock().unwrap() = Describes::Never;
    process.dies().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(is_on(&host.ask(&acme, Call::PowerState).await));
    assert!(!acme.capabilities(&facts).hardware_raid);
}

/// They are counted by name.
#[tokio::test(start_paused = true)]
async fn a_cause_that_nobody_knows_is_told_as_another() {
    let process = Process::start(Scripted::new(|_, _, out| async move {
        for (number, cause) in [(1, "AgentSilent"), (2, "slot 3 does not answer")] {
            let status = serde_json::json!({ "phase": "Failed", "error": { "cause": cause, "message": "no" } });
            let entry = serde_json::json!({ "number": number, "id": "x", "operation": "Inspect", "status": status });
            say(&out, Message::Tell(v1::Tell { entry: entry.to_string().into(), soon: false })).await;
        }
        say(&out, done("power", "true")).await;
    }));
    let host = Declared::new("h");
    assert!(is_on(&host.ask(&acme(&process), Call::PowerState).await));
    let told: Vec<String> = host.history.all().into_iter().map(|told| told.status.error.unwrap().cause).collect();
    assert_eq!(told, ["AgentSilent", "Other"]);
}
