//! Images over HTTP from a server that misbehaves as told.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{MIB, assert_no_table, contents, go_on, gpt_image, noise, request, run, used_disk, verify_gpt};
use disk_image::{Cause, DiskFormat, Error, Flow, HttpSource, RetryPolicy, Source, write_image};

/// How the server behaves.
#[derive(Clone, Default)]
struct Manners {
    data: Vec<u8>,
    /// Answers this status while there are any left: status, how often.
    refuse: Option<(u16, u32)>,
    /// Ends each connection after so many bytes of the body.
    drop_after: Option<usize>,
    /// Knows ranges.
    ranges: bool,
    /// Says how long the body is.
    length: bool,
    etag: Option<String>,
    /// Sends nothing after the headers and keeps the connection open.
    silent: bool,
}

struct Server {
    address: String,
    manners: Arc<Mutex<Manners>>,
    /// Requests: their range header.
    log: Arc<Mutex<Vec<Option<String>>>>,
}

impl Server {
    fn start(manners: Manners) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let manners = Arc::new(Mutex::new(manners));
        let log = Arc::new(Mutex::new(Vec::new()));
        let (shared, requests) = (Arc::clone(&manners), Arc::clone(&log));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (shared, requests) = (Arc::clone(&shared), Arc::clone(&requests));
                std::thread::spawn(move || serve(stream, &shared, &requests));
            }
        });
        Self { address, manners, log }
    }

    fn requests(&self) -> Vec<Option<String>> {
        self.log.lock().unwrap().clone()
    }
}

/// Answers one request and closes. Errors are the client's going away.
fn serve(stream: TcpStream, manners: &Mutex<Manners>, log: &Mutex<Vec<Option<String>>>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let (mut range, mut if_range) = (None, None);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim();
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        match name.to_ascii_lowercase().as_str() {
            "range" => range = Some(value.trim().to_owned()),
            "if-range" => if_range = Some(value.trim().to_owned()),
            _ => {}
        }
    }
    log.lock().unwrap().push(range.clone());
    let manners = {
        let mut manners = manners.lock().unwrap();
        let now = manners.clone();
        if let Some((_, count)) = &mut manners.refuse {
            *count = count.saturating_sub(1);
        }
        now
    };
    let mut stream = stream;
    if let Some((status, 1..)) = manners.refuse {
        return write!(stream, "HTTP/1.1 {status} X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").ok();
    }
    let total = manners.data.len();
    let first = range.filter(|_| manners.ranges && (if_range.is_none() || if_range == manners.etag));
    let first = first.and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse::<usize>().ok());
    let mut head = match first {
        Some(first) => format!("HTTP/1.1 206 X\r\nContent-Range: bytes {first}-{}/{total}\r\n", total - 1),
        None => "HTTP/1.1 200 OK\r\n".to_owned(),
    };
    let body = &manners.data[first.unwrap_or(0)..];
    if manners.ranges {
        head += "Accept-Ranges: bytes\r\n";
    }
    if manners.length {
        head += &format!("Content-Length: {}\r\n", body.len());
    }
    if let Some(etag) = &manners.etag {
        head += &format!("ETag: {etag}\r\n");
    }
    stream.write_all(format!("{head}Connection: close\r\n\r\n").as_bytes()).ok()?;
    if manners.silent {
        // Until the client goes away.
        let mut rest = String::new();
        return reader.read_line(&mut rest).ok().map(drop);
    }
    stream.write_all(&body[..manners.drop_after.unwrap_or(usize::MAX).min(body.len())]).ok()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

fn client() -> reqwest::Client {
    // The ring provider: the client is built without one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().tls_certs_only([]).build().unwrap()
}

fn policy() -> RetryPolicy {
    RetryPolicy { attempts: 4, pause: Duration::ZERO, stall: Duration::from_millis(500), ..RetryPolicy::default() }
}

fn open(runtime: &tokio::runtime::Runtime, server: &Server, path: &str) -> Result<HttpSource, Error> {
    HttpSource::open(client(), runtime.handle().clone(), &format!("{}{path}", server.address), policy())
}

fn read_all(source: &mut dyn Source) -> Result<Vec<u8>, Error> {
    let mut data = Vec::new();
    let mut piece = vec![0; 50_000];
    loop {
        match source.read(&mut piece)? {
            0 => return Ok(data),
            count => data.extend_from_slice(&piece[..count]),
        }
    }
}

#[test]
fn dropped_connections_are_resumed() {
    let runtime = runtime();
    let data = noise(1_000_000, 1);
    for (ranges, etag) in [(true, Some("\"a\"")), (true, None), (true, Some("W/\"weak\"")), (false, None)] {
        let server = Server::start(Manners {
            data: data.clone(),
            drop_after: ranges.then_some(300_000),
            ranges,
            length: true,
            etag: etag.map(str::to_owned),
            ..Manners::default()
        });
        let mut source = open(&runtime, &server, "/image").unwrap();
        assert_eq!((source.length(), source.has_ranges()), (Some(1_000_000), ranges));
        assert!(read_all(&mut source).unwrap() == data);
        let requests = server.requests();
        assert_eq!(requests[0], None);
        if ranges {
            assert_eq!(requests.len(), 4);
            assert!(requests[1..].iter().all(|range| range.as_deref().is_some_and(|r| r.starts_with("bytes="))));
        }
    }
}

#[test]
fn a_server_without_ranges_sends_again_from_the_beginning() {
    let runtime = runtime();
    let data = noise(500_000, 2);
    let server =
        Server::start(Manners { data: data.clone(), drop_after: Some(200_000), length: true, ..Manners::default() });
    let mut source = open(&runtime, &server, "/image").unwrap();
    let mut head = vec![0; 100_000];
    let mut done = 0;
    while done < head.len() {
        done += source.read(&mut head[done..]).unwrap();
    }
    server.manners.lock().unwrap().drop_after = None;
    assert!(read_all(&mut source).unwrap() == data[100_000..]);
    assert!(head == data[..100_000]);
    // Each drop at the same place is no progress: it ends, as a truncated image.
    server.manners.lock().unwrap().drop_after = Some(200_000);
    let mut source = open(&runtime, &server, "/image").unwrap();
    let error = read_all(&mut source).unwrap_err();
    assert!(matches!(error, Error::Truncated { expected: 500_000, found: 200_000, .. }), "{error}");
}

#[test]
fn statuses() {
    let runtime = runtime();
    let server = Server::start(Manners { data: vec![1; 10], length: true, ..Manners::default() });
    for (status, times, works, asked) in [
        (404, 9, false, 1),
        (403, 9, false, 1),
        (416, 9, false, 1),
        (503, 2, true, 3),
        (500, 9, false, 4),
        (429, 3, true, 4),
    ] {
        server.manners.lock().unwrap().refuse = Some((status, times));
        server.log.lock().unwrap().clear();
        let result = open(&runtime, &server, "/image?X-Signature=secret");
        assert_eq!(result.is_ok(), works, "{status}");
        assert_eq!(server.requests().len(), asked, "{status}");
        if let Err(error) = result {
            assert!(!error.to_string().contains("secret"), "{error}");
            if status != 416 {
                assert!(matches!(error, Error::SourceStatus { status: found, .. } if found == status), "{error}");
            }
        }
    }
}

#[test]
fn unreachable_and_silent_servers() {
    let runtime = runtime();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("http://user:secret@127.0.0.1:{port}/image");
    let error = HttpSource::open(client(), runtime.handle().clone(), &url, policy()).unwrap_err();
    assert!(matches!(error, Error::SourceUnreachable { attempts: 4, .. }), "{error}");
    assert!(!error.to_string().contains("secret"), "{error}");
    for url in ["ftp://x/y", "file:///etc/passwd", "nonsense", ""] {
        let error = HttpSource::open(client(), runtime.handle().clone(), url, policy()).unwrap_err();
        assert_eq!(error.cause(), Cause::UnsupportedFormat, "{url}");
    }
    let server = Server::start(Manners { data: vec![1; 10], length: true, silent: true, ..Manners::default() });
    let quick = RetryPolicy { stall: Duration::from_millis(30), attempts: 2, ..policy() };
    let url = format!("{}/image", server.address);
    let mut source = HttpSource::open(client(), runtime.handle().clone(), &url, quick).unwrap();
    let error = read_all(&mut source).unwrap_err();
    assert_eq!(error.cause(), Cause::SourceUnreachable, "{error}");
}

#[test]
fn another_image_under_the_same_address_is_noticed() {
    let runtime = runtime();
    for (etag, data) in [("\"b\"", noise(1_000_000, 3)), ("\"a\"", noise(900_000, 3))] {
        let server = Server::start(Manners {
            data: noise(1_000_000, 1),
            drop_after: Some(300_000),
            ranges: true,
            length: true,
            etag: Some("\"a\"".into()),
            ..Manners::default()
        });
        let mut source = open(&runtime, &server, "/image").unwrap();
        let mut manners = server.manners.lock().unwrap();
        (manners.etag, manners.data) = (Some(etag.into()), data);
        drop(manners);
        let error = read_all(&mut source).unwrap_err();
        assert_eq!(error.cause(), Cause::SourceChanged, "{error}");
    }
}

#[test]
fn checksum_files() {
    let runtime = runtime();
    let server = Server::start(Manners { data: b"abc  image\n".to_vec(), ..Manners::default() });
    let url = format!("{}/SHA256SUMS", server.address);
    let fetch = |max| HttpSource::fetch_text(client(), runtime.handle().clone(), &url, policy(), max);
    assert_eq!(fetch(100).unwrap(), "abc  image\n");
    assert!(matches!(fetch(5), Err(Error::LimitExceeded { .. })));
}

#[test]
fn images_are_written_through_bad_connections() {
    let runtime = runtime();
    let dir = tempfile::tempdir().unwrap();
    let raw = gpt_image(dir.path(), "image.raw", 12 * MIB);
    let qcow2 = dir.path().join("image.qcow2");
    let (from, to) = (raw.to_str().unwrap(), qcow2.to_str().unwrap());
    run("qemu-img", &["convert", "-c", "-O", "qcow2", "-o", "cluster_size=4k", from, to]);
    for (file, format) in [(&raw, DiskFormat::Raw), (&qcow2, DiskFormat::Qcow2)] {
        for (ranges, drop_after) in [(true, Some(700_000)), (false, None)] {
            let data = std::fs::read(file).unwrap();
            let server = Server::start(Manners { data, drop_after, ranges, length: ranges, ..Manners::default() });
            let (path, disk) = used_disk(dir.path(), "disk", 12 * MIB);
            let source = open(&runtime, &server, "/image").unwrap();
            write_image(Box::new(source), &request(file, format), &disk, &mut go_on).unwrap();
            assert!(contents(&disk) == std::fs::read(&raw).unwrap());
            verify_gpt(&path);
        }
    }
}

#[test]
fn a_cancel_is_heard_while_the_server_is_silent() {
    let runtime = runtime();
    let dir = tempfile::tempdir().unwrap();
    let raw = gpt_image(dir.path(), "image.raw", 8 * MIB);
    for format in [DiskFormat::Raw, DiskFormat::Qcow2] {
        let server = Server::start(Manners {
            data: std::fs::read(&raw).unwrap(),
            length: true,
            silent: true,
            ..Manners::default()
        });
        let patient = RetryPolicy { stall: Duration::from_secs(3600), ..policy() };
        let url = format!("{}/image", server.address);
        let source = HttpSource::open(client(), runtime.handle().clone(), &url, patient).unwrap();
        let (path, disk) = used_disk(dir.path(), "disk", 8 * MIB);
        let mut calls = 0;
        let error = write_image(Box::new(source), &request(&raw, format), &disk, &mut |_| {
            calls += 1;
            if calls > 3 { Flow::Cancel } else { Flow::Continue }
        })
        .unwrap_err();
        assert_eq!(error.cause(), Cause::Cancelled);
        if format == DiskFormat::Raw {
            assert_no_table(&path, &disk);
        }
    }
    // The threads that still wait for the server end with the program.
    runtime.shutdown_background();
}

#[test]
fn a_server_that_never_answered_is_given_up_soon_and_one_that_did_is_waited_for() {
    let runtime = runtime();
    let moment = Duration::from_millis(20);
    let first_answer = Duration::from_millis(100);
    let patient = RetryPolicy { attempts: 100, pause: moment, max_pause: moment, first_answer, ..policy() };
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{closed}/image.raw");
    let error = HttpSource::open(client(), runtime.handle().clone(), &url, patient.clone()).unwrap_err();
    assert!(matches!(error, Error::SourceUnreachable { attempts: 1..=6, offset: 0, .. }), "{error}");

    let data = noise(1 << 20, 7);
    let manners =
        Manners { data: data.clone(), ranges: true, length: true, drop_after: Some(1 << 19), ..Manners::default() };
    let server = Server::start(manners);
    let url = format!("{}/image.raw", server.address);
    let mut source = HttpSource::open(client(), runtime.handle().clone(), &url, patient).unwrap();
    // Twice as long as a server that has never answered would be waited for.
    server.manners.lock().unwrap().refuse = Some((503, 10));
    assert!(read_all(&mut source).unwrap() == data);
}
