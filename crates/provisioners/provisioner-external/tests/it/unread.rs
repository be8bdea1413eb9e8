//! Workers that answer what they do not read, and those that are gone as soon as they have greeted.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::metamorph::MachineRecordSpec;
use async_trait::async_trait;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use provisioner::{Answer, Call, Cause, HostContext, OtherMachine, Provisioner as _, Verdict};
use provisioner_external::v1::ask_request::Message as ToWorker;
use provisioner_external::v1::ask_response::Message;
use provisioner_external::v1::provisioner_service_server::ProvisionerServiceServer;
use provisioner_external::{Connect, ExternalProvisioner, InMemory, Stream, v1};
use provisioner_kit::MemoryMachine;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, timeout};
use tonic::codegen::Service as _;

use crate::fixture::site;
use crate::scripted::{Declared, Process, Scripted, done, say};

fn on() -> Scripted {
    Scripted::new(|_, _, out| async move {
        say(&out, done("power", "true")).await;
    })
}

/// Answers each request without a look at it, and keeps it as it is.
#[derive(Clone)]
struct Unread {
    worker: Scripted,
    requests: Arc<Mutex<Vec<Incoming>>>,
}

impl hyper::service::Service<http::Request<Incoming>> for Unread {
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: http::Request<Incoming>) -> Self::Future {
        let (head, body) = request.into_parts();
        self.requests.lock().unwrap().push(body);
        let call = v1::AskRequest { message: Some(ToWorker::Call(v1::Call::default())) };
        let asked = if head.uri.path().ends_with("/Ask") { call.encode_to_vec() } else { Vec::new() };
        let mut message = vec![0];
        message.extend(u32::try_from(asked.len()).unwrap().to_be_bytes());
        message.extend(asked);
        let request = http::Request::from_parts(head, String::from_utf8(message).unwrap());
        ProvisionerServiceServer::new(self.worker.clone()).call(request)
    }
}

/// Its process: it gives no room for anything that is sent to it.
struct Careless {
    worker: Scripted,
    begun: AtomicUsize,
    ended: Arc<AtomicUsize>,
}

#[async_trait]
impl Connect for Careless {
    async fn connect(&self) -> Result<Box<dyn Stream>, String> {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        self.begun.fetch_add(1, Ordering::SeqCst);
        let ended = Arc::clone(&self.ended);
        let service = Unread { worker: self.worker.clone(), requests: Arc::default() };
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(0_u32).max_concurrent_streams(10_000_u32);
        let connection = builder.serve_connection(TokioIo::new(theirs), service);
        tokio::spawn(async move {
            drop(connection.await);
            ended.fetch_add(1, Ordering::SeqCst);
        });
        Ok(Box::new(ours))
    }
}

/// What it does not read, passwords among it, would be kept for it.
#[tokio::test(start_paused = true)]
async fn one_that_answers_what_it_does_not_read_is_connected_to_anew_and_nothing_is_kept_for_it() {
    let process = Arc::new(Careless { worker: on(), begun: AtomicUsize::new(0), ended: Arc::default() });
    let mut entry = site("acme");
    entry.calls = 1;
    let acme = ExternalProvisioner::new(entry, Arc::clone(&process) as Arc<dyn Connect>);
    let host = Declared::new("h");
    let mut given_up = 0;
    for _ in 0..180 {
        match host.ask(&acme, Call::PowerState).await {
            Ok(Verdict::Done(Answer::Power(Some(true)))) => {}
            Err(failure) if failure.message.contains("answers what it does not read") => given_up += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(given_up, 2, "after each 66 requests that it has not read");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(process.begun.load(Ordering::SeqCst), 3);
    assert_eq!(process.ended.load(Ordering::SeqCst), 2, "a connection that is given up ends");
}

/// Whoever has greeted, and is gone before that is heard.
struct Gone(InMemory);

#[async_trait]
impl Connect for Gone {
    async fn connect(&self) -> Result<Box<dyn Stream>, String> {
        let (ours, between) = tokio::io::duplex(1 << 20);
        let (mut asks, mut hears) = tokio::io::split(between);
        let (mut says, mut asked) = tokio::io::split(self.0.connect().await?);
        let forwards = tokio::spawn(async move { tokio::io::copy(&mut asks, &mut asked).await });
        tokio::spawn(async move {
            let mut said = Vec::new();
            while let Ok(Ok(1..)) = timeout(Duration::from_secs(1), says.read_buf(&mut said)).await {}
            // All that it says comes at once, and then nothing more.
            hears.write_all(&said).await.unwrap();
            hears.shutdown().await.unwrap();
            forwards.abort();
        });
        Ok(Box::new(ours))
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_is_gone_as_soon_as_it_has_greeted_does_not_count_as_connected() {
    let process = Process::start(on());
    let acme = ExternalProvisioner::new(site("acme"), Arc::new(Gone(process.connect.clone())));
    acme.greet().await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!acme.standing().0);
}

/// A host among machines whose records fill most of a message.
fn crowded(name: &'static str) -> HostContext {
    let record = MachineRecordSpec { bmc_address: "x".repeat((4 << 20) - (8 << 10)), ..MachineRecordSpec::default() };
    let machine = MemoryMachine::default();
    machine.add_other(OtherMachine {
        host: "ns/other".into(),
        exists: true,
        is_older: true,
        is_near: false,
        is_there: false,
        is_sealed: false,
        record,
    });
    HostContext { machine: Arc::new(machine), ..Declared::new(name).context() }
}

/// Answers to questions are kept until they are read: there is an end to that, and to their call, which leaves room to others.
#[tokio::test(start_paused = true)]
async fn a_call_that_does_not_read_long_answers_ends_after_a_minute_and_what_was_kept_for_it_is_dropped() {
    let worker = Scripted::new(|call, mut incoming, out| async move {
        let reads = call.host.is_some_and(|host| host.name == "reads");
        for question in 1..=40 {
            say(&out, Message::ReadOthers(v1::Question { question })).await;
            if reads {
                let answer = incoming.message().await.unwrap().unwrap().message;
                assert!(matches!(answer, Some(ToWorker::Answered(answered)) if answered.question == question));
            }
        }
        if reads {
            say(&out, done("power", "true")).await;
        } else {
            std::future::pending().await
        }
    });
    let process = Process::start(worker);
    let acme = ExternalProvisioner::new(site("acme"), Arc::new(process.connect.clone()));
    let ask = async |name| provisioner::ask(acme.host(crowded(name)).unwrap().as_mut(), Call::PowerState).await;
    for connections in [1, 2] {
        let began = Instant::now();
        let failure = ask("does-not-read").await.unwrap_err();
        let says = "it has not read the answers to its earlier questions, in this call or others, within 60 s";
        assert!(failure.cause == Cause::ProvisionerUnavailable && failure.message.contains(says), "{failure}");
        let took = began.elapsed();
        assert!((Duration::from_secs(60)..Duration::from_secs(62)).contains(&took), "{took:?}");
        assert_eq!(ask("reads").await, Ok(Verdict::Done(Answer::Power(Some(true)))), "twice the room, and all of it");
        assert_eq!(process.connections.load(Ordering::SeqCst), connections + 1);
    }
}
