//! Workers that hang, break off, lie, talk without end, or are none: the host's loop goes on, and says why.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use provisioner::{
    Answer, Call, Cause, Failure, PowerWish, Provisioner as _, Purpose, RegisterRequest, Retry, Verdict, Waiting,
};
use provisioner_external::v1::ask_request::Message as ToWorker;
use provisioner_external::v1::ask_response::Message;
use provisioner_external::v1::provisioner_service_server::ProvisionerService as _;
use provisioner_external::{Connect, ExternalProvisioner, Stream, v1};
use tokio::time::Instant;

use crate::fixture::{fixture, machines, site};
use crate::scripted::{Declared, Process, Scripted, done, say};

fn acme(process: &Process) -> ExternalProvisioner {
    ExternalProvisioner::new(site("acme"), Arc::new(process.connect.clone()))
}

/// Asks a worker with this script for the power.
async fn failure(worker: Scripted) -> Failure {
    let process = Process::start(worker);
    Declared::new("h").ask(&acme(&process), Call::PowerState).await.unwrap_err()
}

fn is_unavailable(failure: &Failure, says: &str) {
    assert_eq!((failure.cause, failure.retry), (Cause::ProvisionerUnavailable, Retry::Waiting), "{failure}");
    assert!(failure.message.contains("\"acme\"") && failure.message.contains(says), "{failure}");
    assert!(failure.advice.as_ref().is_some_and(|advice| advice.contains("asked again")), "{failure:?}");
}

#[tokio::test(start_paused = true)]
async fn one_that_hangs_is_given_up_after_the_deadline_and_holds_up_nobody_else() {
    let process = Process::start(Scripted::new(|call, _, out| async move {
        if call.name == "powerState" {
            std::future::pending::<()>().await;
        }
        say(&out, done("health", "{\"level\": null, \"power_failure\": false}")).await;
    }));
    let acme = acme(&process);
    let (hung, other) = (Declared::new("hung"), Declared::new("other"));
    let began = Instant::now();
    let quick = async {
        let answer = other.ask(&acme, Call::Health).await;
        assert!(matches!(answer, Ok(Verdict::Done(Answer::Health(_)))), "{answer:?}");
        assert!(began.elapsed() < Duration::from_secs(1));
    };
    let (failure, ()) = tokio::join!(hung.ask(&acme, Call::PowerState), quick);
    is_unavailable(&failure.unwrap_err(), "powerState, it has not answered within 120 s");
    assert_eq!(began.elapsed().as_secs(), 120);
}

#[tokio::test(start_paused = true)]
async fn one_that_breaks_off_is_asked_again_and_a_new_process_answers() {
    let times = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&times);
    let process = Arc::new(tokio::sync::OnceCell::<Process>::new());
    let dies = Arc::clone(&process);
    let started = Process::start(Scripted::new(move |_, _, out| {
        let (counted, dies) = (Arc::clone(&counted), Arc::clone(&dies));
        async move {
            match counted.fetch_add(1, Ordering::SeqCst) {
                0 => dies.get().unwrap().dies().await,
                1 => drop(out),
                _ => {
                    say(&out, done("power", "true")).await;
                }
            }
        }
    }));
    assert!(process.set(started).is_ok());
    let acme = acme(process.get().unwrap());
    let host = Declared::new("h");
    is_unavailable(&host.ask(&acme, Call::PowerState).await.unwrap_err(), "powerState, it broke off");
    is_unavailable(&host.ask(&acme, Call::PowerState).await.unwrap_err(), "without a verdict");
    assert_eq!(host.ask(&acme, Call::PowerState).await, Ok(Verdict::Done(Answer::Power(Some(true)))));
    assert_eq!(process.get().unwrap().connections.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn the_first_verdict_counts_and_what_comes_after_it_is_not_heard() {
    let process = Process::start(Scripted::new(|_, _, out| async move {
        say(&out, done("power", "true")).await;
        say(&out, done("power", "false")).await;
        let content = v1::RecordContent { provisioner: "acme".into(), version: 1, data: b"{}".into() };
        let write = v1::WriteRecord {
            question: 1,
            expected_revision: 0,
            content: Some(content),
            purpose: v1::Purpose::Note.into(),
        };
        say(&out, Message::WriteRecord(write)).await;
    }));
    let host = Declared::new("h");
    assert_eq!(host.ask(&acme(&process), Call::PowerState).await, Ok(Verdict::Done(Answer::Power(Some(true)))));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(host.record.writes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_is_no_answer_is_said_to_be_none() {
    let failed = |failure: &Failure, says: &str| {
        assert_eq!(failure.cause, Cause::ProvisionerFailed, "{failure}");
        assert!(failure.message.contains(says), "{failure}");
    };
    let answered = |answer: &'static str, value: &'static str| {
        Scripted::new(move |_, _, out| async move {
            say(&out, done(answer, value)).await;
        })
    };
    failed(&failure(answered("health", "{\"level\": null, \"power_failure\": false}")).await, "as if something else");
    failed(&failure(answered("power", "\"hidden\"")).await, "not understood");
    failed(&failure(answered("levitated", "")).await, "\"levitated\"");
    let empty = Scripted::new(|_, _, out| async move {
        let _ = out.send(Ok(v1::AskResponse { message: None })).await;
    });
    failed(&failure(empty).await, "does not know");
    let large = Scripted::new(|_, _, out| async move {
        let text: &'static str = Box::leak("x".repeat(5 << 20).into_boxed_str());
        say(&out, done("power", text)).await;
    });
    failed(&failure(large).await, "bytes at once");
    let endless = Scripted::new(|_, _, out| async move {
        let note = || Message::Note(v1::Note { kind: 0, text: "a difference".into() });
        while say(&out, note()).await {}
    });
    failed(&failure(endless).await, "more than 1000 things");
    let purpose = Scripted::new(|_, _, out| async move {
        let content = v1::RecordContent { provisioner: "acme".into(), version: 1, data: b"{}".into() };
        let write = v1::WriteRecord { question: 1, expected_revision: 0, content: Some(content), purpose: 0 };
        say(&out, Message::WriteRecord(write)).await;
    });
    failed(&failure(purpose).await, "what it records something for");
}

#[tokio::test(start_paused = true)]
async fn one_that_is_another_or_too_new_is_not_used() {
    let worker = |edit: fn(&mut v1::HelloResponse)| {
        let mut worker = Scripted::new(|_, _, out| async move {
            say(&out, done("power", "true")).await;
        });
        edit(&mut worker.hello);
        worker
    };
    is_unavailable(
        &failure(worker(|hello| (hello.lowest_version, hello.highest_version) = (2, 3))).await,
        "it speaks versions 2 to 3 of the contract, and this server version 1: update this server",
    );
    is_unavailable(
        &failure(worker(|hello| hello.name = "another\u{1b}[2J".into())).await,
        "it says that it is \"another [2J\"",
    );
    is_unavailable(&failure(worker(|hello| hello.id_prefix = "metal-".into())).await, "its ids begin with \"metal-\"");
    is_unavailable(&failure(worker(|hello| hello.capabilities = b"[".into())).await, "its capabilities");
    let process = Process::start(worker(|hello| hello.highest_version = 2));
    let answer = Declared::new("h").ask(&acme(&process), Call::PowerState).await;
    assert_eq!(answer, Ok(Verdict::Done(Answer::Power(Some(true)))), "one version apart is understood");
}

#[tokio::test(start_paused = true)]
async fn an_id_is_the_workers_own_and_stays() {
    for (id, says) in [
        ("metal-7", Some("does not begin with")),
        ("acme-", Some("does not begin with")),
        ("acme-\\u001b", Some("characters")),
        ("acme-7", None),
    ] {
        let value: &'static str = Box::leak(format!("{{\"id\": \"{id}\", \"powered_on\": null}}").into_boxed_str());
        let process = Process::start(Scripted::new(move |_, _, out| async move {
            say(&out, done("registered", value)).await;
        }));
        let answer = Declared::new("h").ask(&acme(&process), Call::Register(RegisterRequest::default())).await;
        match (answer, says) {
            (Ok(Verdict::Done(Answer::Registered(registered))), None) => assert_eq!(registered.id, "acme-7"),
            (Err(failure), Some(says)) => assert!(failure.message.contains(says), "{failure}"),
            (answer, _) => panic!("{id}: {answer:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn lies_about_progress_are_not_shown() {
    let percents = Arc::new(AtomicUsize::new(0));
    let process = Process::start(Scripted::new(move |_, _, out| {
        let percents = Arc::clone(&percents);
        async move {
            let percent = [50, 20, 4_000_000_000][percents.fetch_add(1, Ordering::SeqCst)];
            let look_again = Some(prost_types::Duration { seconds: -7, nanos: 0 });
            let working =
                v1::Working { step: "work\r\n\u{7}".into(), percent: Some(percent), look_again, ..Default::default() };
            say(&out, Message::Verdict(v1::Verdict { verdict: Some(v1::verdict::Verdict::Working(working)) })).await;
        }
    }));
    let (acme, host) = (acme(&process), Declared::new("h"));
    let mut shown = Vec::new();
    for _ in 0..3 {
        match host.ask(&acme, Call::SetPower(PowerWish::On.into())).await {
            Ok(Verdict::Working(working)) => {
                assert_eq!(working.step, "work");
                assert_eq!(working.look_again, Duration::from_secs(10));
                shown.push(working.percent.unwrap());
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(shown, [50, 50, 100]);
}

#[tokio::test(start_paused = true)]
async fn a_record_is_written_under_the_workers_own_name_and_revision_only() {
    let process = Process::start(Scripted::new(|call, mut incoming, out| async move {
        let mut refused = Vec::new();
        for (question, provisioner, expected_revision) in [(1, "metamorph", 0), (2, "acme", 7), (3, "acme", 0)] {
            let content =
                v1::RecordContent { provisioner: provisioner.into(), version: 1, data: b"{\"step\": 1}".into() };
            let write = v1::WriteRecord {
                question,
                expected_revision,
                content: Some(content),
                purpose: v1::Purpose::Intent.into(),
            };
            say(&out, Message::WriteRecord(write)).await;
            let answer = incoming.message().await.unwrap().unwrap().message;
            let Some(ToWorker::RecordWritten(written)) = answer else { panic!("{answer:?}") };
            assert_eq!((written.question, written.leads), (question, true));
            refused.push(matches!(written.result, Some(v1::record_written::Result::Refused(_))));
        }
        assert_eq!(refused, [true, true, false]);
        assert_eq!(call.recorded.unwrap().revision, 0);
        say(&out, done("power", "null")).await;
    }));
    let host = Declared::new("h");
    assert_eq!(host.ask(&acme(&process), Call::PowerState).await, Ok(Verdict::Done(Answer::Power(None))));
    let writes = host.record.writes();
    assert_eq!(writes.len(), 1);
    assert_eq!((writes[0].purpose, writes[0].content.provisioner.as_str()), (Purpose::Intent, "acme"));
}

#[tokio::test(start_paused = true)]
async fn more_calls_than_it_may_have_wait_for_room() {
    let process = Process::start(Scripted::new(|_, _, out| async move {
        tokio::time::sleep(Duration::from_secs(2)).await;
        say(&out, done("power", "true")).await;
    }));
    let mut entry = site("acme");
    entry.calls = 1;
    let acme = ExternalProvisioner::new(entry, Arc::new(process.connect.clone()));
    let (one, two) = (Declared::new("one"), Declared::new("two"));
    let (first, second) = tokio::join!(one.ask(&acme, Call::PowerState), two.ask(&acme, Call::PowerState));
    assert_eq!(first, Ok(Verdict::Done(Answer::Power(Some(true)))));
    assert!(
        matches!(&second, Ok(Verdict::Waiting(Waiting::Busy { reason, .. })) if reason.contains("acme")),
        "{second:?}"
    );
    assert_eq!(two.ask(&acme, Call::PowerState).await, first, "the place is free again");
}

pub struct Nowhere(pub AtomicUsize);

#[async_trait]
impl Connect for Nowhere {
    async fn connect(&self) -> Result<Box<dyn Stream>, String> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Err("the socket /run/acme.sock: nobody listens".into())
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_is_not_there_is_looked_for_less_and_less_often() {
    let nowhere = Arc::new(Nowhere(AtomicUsize::new(0)));
    let acme = ExternalProvisioner::new(site("acme"), Arc::clone(&nowhere) as Arc<dyn Connect>);
    acme.close().await;
    assert_eq!(nowhere.0.load(Ordering::SeqCst), 0, "the server's end does not wait for who was never connected");
    let host = Declared::new("h");
    let began = Instant::now();
    let mut tries = Vec::new();
    for _ in 0..1200 {
        let before = nowhere.0.load(Ordering::SeqCst);
        is_unavailable(&host.ask(&acme, Call::PowerState).await.unwrap_err(), "nobody listens");
        if nowhere.0.load(Ordering::SeqCst) > before {
            tries.push(began.elapsed().as_millis() / 100);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let pauses: Vec<u128> = tries.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(pauses, [10, 20, 40, 80, 160, 300, 300], "tenths of a second");
}

#[tokio::test(start_paused = true)]
async fn what_is_shown_to_people_is_fit_for_them_and_does_not_flood_the_api() {
    let process = Process::start(Scripted::new(|_, _, out| async move {
        for number in 1..=200 {
            let status = serde_json::json!({ "phase": "Running", "message": "wipe\u{1b}[2J\u{202e}" });
            let entry =
                serde_json::json!({ "number": number, "id": "x\r\n", "operation": "Inspect", "status": status });
            say(&out, Message::Tell(v1::Tell { entry: entry.to_string().into(), soon: false })).await;
        }
        let hardware = "{\"hardware\": {\"systemVendor\": {\"manufacturer\": \"Evil\\u001b[2J\"}}}";
        say(&out, done("inspected", hardware)).await;
    }));
    let host = Declared::new("h");
    let answer = host.ask(&acme(&process), Call::Inspect(provisioner::InspectRequest::default())).await;
    let Ok(Verdict::Done(Answer::Inspected(found))) = answer else { panic!("{answer:?}") };
    assert_eq!(found.hardware.system_vendor.unwrap().manufacturer.as_deref(), Some("Evil [2J"));
    let told = host.history.all();
    assert_eq!((told.len(), told[0].id.as_str(), told[0].status.message.as_deref()), (64, "x", Some("wipe [2J ")));
}

#[tokio::test(start_paused = true)]
async fn one_that_asks_without_a_pause_waits_for_its_answers_and_gets_them_all() {
    let process = Process::start(Scripted::new(|_, mut incoming, out| async move {
        for question in 1..=900 {
            say(&out, Message::StillWanted(v1::Question { question })).await;
            let answer = incoming.message().await.unwrap().unwrap().message;
            let Some(ToWorker::Answered(answered)) = answer else { panic!("{answer:?}") };
            assert_eq!(answered.question, question);
        }
        say(&out, done("power", "true")).await;
    }));
    let (acme, host) = (acme(&process), Declared::new("h"));
    let mut took = Vec::new();
    for _ in 0..2 {
        let began = Instant::now();
        assert_eq!(host.ask(&acme, Call::PowerState).await, Ok(Verdict::Done(Answer::Power(Some(true)))));
        took.push(began.elapsed());
    }
    assert!(took[0] < Duration::from_millis(100), "what is honest does not wait: {took:?}");
    let expected = Duration::from_millis(3900)..Duration::from_millis(4200);
    assert!(expected.contains(&took[1]), "1000 at once, and the 800 others 200 a second: {took:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_not_asked_of_it_by_its_entry_is_refused_with_a_sentence() {
    let process = Process::start(Scripted::new(|_, _, out| async move {
        say(&out, done("power", "true")).await;
    }));
    let mut entry = site("acme");
    entry.namespaces = vec!["theirs".into()];
    let elsewhere = ExternalProvisioner::new(entry, Arc::new(process.connect.clone()));
    let failure = Declared::new("h").ask(&elsewhere, Call::PowerState).await.unwrap_err();
    assert_eq!((failure.cause, failure.retry), (Cause::NotServed, Retry::AfterChange), "{failure}");
    let mut entry = site("acme");
    entry.schemes = vec!["ipmi".into()];
    let other = ExternalProvisioner::new(entry, Arc::new(process.connect.clone()));
    let failure = Declared::new("h").ask(&other, Call::PowerState).await.unwrap_err();
    assert_eq!(failure.cause, Cause::BmcAddressInvalid, "{failure}");
    assert!(failure.message.contains("scheme redfish"), "{failure}");
}

#[tokio::test(start_paused = true)]
async fn a_worker_hears_that_its_server_does_not_lead_any_more_and_that_nobody_waits() {
    let (heard, mut hears) = tokio::sync::mpsc::unbounded_channel::<&'static str>();
    let process = Process::start(Scripted::new(move |call, mut incoming, out| {
        let heard = heard.clone();
        async move {
            assert!(call.leads);
            while let Ok(Some(said)) = incoming.message().await {
                if let Some(ToWorker::Leadership(v1::Leadership { leads: false })) = said.message {
                    heard.send("it does not lead").unwrap();
                }
            }
            heard.send("nobody waits").unwrap();
            drop(out);
        }
    }));
    let acme = acme(&process);
    let leads = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let asked = Arc::clone(&leads);
    let mut context = Declared::new("h").context();
    context.may_act = Arc::new(move || asked.load(Ordering::SeqCst));
    let mut host = provisioner::Provisioner::host(&acme, context).unwrap();
    let asking = provisioner::ask(host.as_mut(), Call::PowerState);
    let began = Instant::now();
    let watched = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        leads.store(false, Ordering::SeqCst);
        assert_eq!(hears.recv().await, Some("it does not lead"));
        assert!(began.elapsed() <= Duration::from_millis(3200), "{:?}", began.elapsed());
    };
    tokio::select! {
        answer = asking => panic!("{answer:?}"),
        () = watched => {}
    }
    assert_eq!(hears.recv().await, Some("nobody waits"), "the call was dropped");
    assert!(began.elapsed() < Duration::from_secs(4));
}

/// Programs from before there were kinds name none.
#[tokio::test(start_paused = true)]
async fn who_names_no_kind_means_hosts_and_another_kind_is_refused_on_both_sides() {
    let hello = |kind: &str| {
        let kind = kind.to_owned();
        tonic::Request::new(v1::HelloRequest { kind, ..v1::HelloRequest::default() })
    };
    let worker = fixture(machines());
    for kind in ["", "host"] {
        assert_eq!(worker.hello(hello(kind)).await.unwrap().into_inner().kind, "host");
    }
    let refused = worker.hello(hello("volume")).await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.message()),
        (tonic::Code::FailedPrecondition, "it provisions hosts, and not volumes")
    );
    for (kind, expected) in [("", None), ("host", None), ("volume", Some("it provisions volumes, and not hosts"))] {
        let mut scripted = Scripted::new(|_, _, _| async {});
        scripted.hello.kind = kind.to_owned();
        let process = Process::start(scripted);
        let refused = acme(&process).greet().await.err();
        let as_expected = match (&refused, expected) {
            (Some(failure), Some(said)) => failure.message.contains(said),
            (found, expected) => found.is_none() && expected.is_none(),
        };
        assert!(as_expected, "{kind}: {refused:?}");
    }
}
