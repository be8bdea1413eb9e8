//! BMCs that end connections when they please: which requests reached them, and what is learned of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use crate::kit::{Bmc, PASSWORD, SYSTEM, local};
use bmc::{Address, BmcRegistry, Credentials};
use redfish::{BootMode, BootTarget, Client, Inserted, Request, Tls, Transport};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const URL: &str = "http://192.0.2.1/media/0123456789.iso";

/// When a BMC ends a connection without having said so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    Never,
    /// Right after its first answer.
    AfterAnAnswer,
    /// When the second request has arrived, which is not looked at.
    AtTheSecondRequest,
}

/// The BMC in memory behind sockets of its own.
struct Wire {
    at: SocketAddr,
    connections: Arc<AtomicU32>,
    /// Requests that arrived and were not looked at.
    lost: Arc<AtomicU32>,
}

async fn wire(bmc: Arc<Bmc>, ends: Ends) -> Wire {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let (connections, lost) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let counts = (Arc::clone(&connections), Arc::clone(&lost));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            counts.0.fetch_add(1, SeqCst);
            tokio::spawn(serve(stream, Arc::clone(&bmc), ends, Arc::clone(&counts.1)));
        }
    });
    Wire { at, connections, lost }
}

async fn serve(mut stream: TcpStream, bmc: Arc<Bmc>, ends: Ends, lost: Arc<AtomicU32>) {
    for answered in 0.. {
        let Some(request) = read(&mut stream).await else { return };
        if answered > 0 && ends == Ends::AtTheSecondRequest {
            lost.fetch_add(1, SeqCst);
            return;
        }
        let answer = bmc.send(&request).await.unwrap();
        let mut text = format!("HTTP/1.1 {} X\r\nContent-Length: {}\r\n", answer.status, answer.body.len());
        for (name, value) in &answer.headers {
            text.push_str(&format!("{name}: {}\r\n", value.to_str().unwrap()));
        }
        text.push_str("\r\n");
        stream.write_all(&[text.as_bytes(), &answer.body].concat()).await.unwrap();
        if ends == Ends::AfterAnAnswer {
            return;
        }
    }
}

/// One request, as small as our client's are.
async fn read(stream: &mut TcpStream) -> Option<Request> {
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let text = String::from_utf8(bytes[..head].to_vec()).unwrap();
    let mut lines = text.lines();
    let mut words = lines.next().unwrap().split(' ');
    let (method, path) = (words.next().unwrap().parse().unwrap(), words.next().unwrap().to_owned());
    let mut request = Request::new(method, &path, None);
    let mut length = 0;
    for line in lines.filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(": ").unwrap();
        if name.eq_ignore_ascii_case("content-length") {
            length = value.parse().unwrap();
        }
        request.headers.insert(name.parse::<http::HeaderName>().unwrap(), value.parse().unwrap());
    }
    while bytes.len() < head + length {
        stream.read_buf(&mut bytes).await.ok()?;
    }
    request.body = (length > 0).then(|| bytes[head..].to_vec());
    Some(request)
}

fn client(at: SocketAddr, registry: &BmcRegistry) -> Client {
    let address = Address::parse(&format!("redfish-virtualmedia+http://{at}{SYSTEM}")).unwrap();
    let credentials = Credentials::new("root", PASSWORD.to_owned().into()).unwrap();
    Client::connect(address, credentials, &Tls::default(), registry, local()).unwrap()
}

/// What is done to boot a machine into the agent.
async fn trip(client: &Client) {
    client.sweep(&[]).await.unwrap();
    client.system().await.unwrap();
    assert_eq!(client.insert_media(URL).await.unwrap(), Inserted::Now);
    client.set_boot_once(BootTarget::Cd, BootMode::Uefi).await.unwrap();
    client.restart().await.unwrap();
    client.eject_media().await.unwrap();
    client.close().await.unwrap();
}

/// It has kept its connections until now.
#[tokio::test]
async fn a_sign_in_that_was_lost_with_its_connection_is_made_again() {
    let bmc = Bmc::generic();
    let wire = wire(Arc::clone(&bmc), Ends::AtTheSecondRequest).await;
    let registry = BmcRegistry::new();
    let client = client(wire.at, &registry);
    client.channel().note_reuse(true);
    trip(&client).await;
    assert_eq!((wire.lost.load(SeqCst), bmc.session_count()), (1, 0));
}

#[tokio::test]
async fn a_bmc_that_ends_connections_without_a_word_is_driven_all_the_same() {
    for ends in [Ends::Never, Ends::AfterAnAnswer, Ends::AtTheSecondRequest] {
        let bmc = Bmc::generic();
        let wire = wire(Arc::clone(&bmc), ends).await;
        let registry = BmcRegistry::new();
        for _ in 0..2 {
            trip(&client(wire.at, &registry)).await;
            let log = bmc.take_log();
            let posts: Vec<_> = log.iter().filter(|line| line.starts_with("POST")).collect();
            assert_eq!(posts.len(), 4, "{ends:?}: sign-in, insertion, reset and ejection once each: {posts:?}");
            assert_eq!(bmc.session_count(), 0, "{ends:?}");
        }
        // One request was lost, a read: what it taught holds for the BMC's next client, too.
        let lost = wire.lost.load(SeqCst);
        assert_eq!(lost, u32::from(ends == Ends::AtTheSecondRequest), "{ends:?}");
        let connections = wire.connections.load(SeqCst);
        if ends == Ends::Never {
            assert!(connections <= 3, "{connections} connections for two clients of a BMC that keeps them");
        }
    }
}
