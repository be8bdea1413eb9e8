//! The composed medium: determinism, range reads, structure as outside tools see it, HTTP.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use crate::common::{fake_assets, fake_assets_of, run};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use boot_media::serve::respond;
use boot_media::{Architecture, Assets, HostFile, HostFiles, Medium, ReadAt, iso, read_host_files};
use http_body_util::BodyExt;
use proptest::prelude::*;

fn host() -> HostFiles {
    let file = |path: &str, bytes: &[u8]| HostFile { path: path.into(), mode: 0o600, bytes: bytes.to_vec() };
    HostFiles {
        files: vec![file("metamorph/host.json", b"{\"token\":\"secret\"}"), file("metamorph/ca.pem", &[b'x'; 3000])],
        kernel_arguments: vec!["metamorph.test=1".into()],
    }
}

fn whole(medium: &Medium) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(medium.len()).unwrap()];
    medium.read_exact_at(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_medium_is_a_pure_function_of_its_inputs() {
    let (one, two) = (fake_assets(1), fake_assets(1));
    let a = Medium::compose(&Assets::open(one.path()).unwrap(), &host()).unwrap();
    let b = Medium::compose(&Assets::open(two.path()).unwrap(), &host()).unwrap();
    assert_eq!(a.etag(), b.etag());
    assert!(whole(&a) == whole(&b), "the same inputs gave other bytes");
    let mut changed = vec![host(), host(), host()];
    changed[0].files[0].bytes.push(b' ');
    changed[1].kernel_arguments.clear();
    changed[2].files[0].mode = 0o644;
    for host in changed {
        let other = Medium::compose(&Assets::open(one.path()).unwrap(), &host).unwrap();
        assert_ne!(other.etag(), a.etag());
        assert!(whole(&other) != whole(&a));
    }
    let third = fake_assets(2);
    let other = Medium::compose(&Assets::open(third.path()).unwrap(), &host()).unwrap();
    assert_ne!(other.etag(), a.etag());
    assert!(a.generated_bytes() < 80 << 10, "{} bytes of its own", a.generated_bytes());
}

#[test]
fn a_changed_asset_is_refused() {
    let folder = fake_assets(1);
    let path = folder.path().join("initramfs");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let error = Assets::open(folder.path()).unwrap_err();
    assert!(error.to_string().contains("its SHA-256"), "{error}");
    bytes.pop();
    std::fs::write(&path, &bytes).unwrap();
    assert!(Assets::open(folder.path()).unwrap_err().to_string().contains("its length"));
    std::fs::remove_file(&path).unwrap();
    assert!(Assets::open(folder.path()).unwrap_err().to_string().contains("agent-image build"));
}

#[test]
fn a_manifest_of_before_there_were_several_architectures_is_of_x86_64() {
    let folder = fake_assets(1);
    let path = folder.path().join("manifest.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let line = "  \"architecture\": \"x86_64\",\n";
    assert!(text.contains(line), "{text}");
    let digest = |folder: &std::path::Path| *Medium::compose(&Assets::open(folder).unwrap(), &host()).unwrap().digest();
    let now = digest(folder.path());
    std::fs::write(&path, text.replace(line, "")).unwrap();
    assert_eq!(Assets::open(folder.path()).unwrap().architecture(), Architecture::X86_64);
    assert_eq!(digest(folder.path()), now, "a boot that has begun keeps its medium");
    std::fs::write(&path, text.replace("x86_64", "aarch64")).unwrap();
    assert!(Assets::open(folder.path()).unwrap_err().to_string().contains("shimaa64.efi"));
}

#[test]
fn the_host_finds_its_files_by_ranges() {
    struct Counting<'a>(&'a Medium, Mutex<u64>);
    impl ReadAt for Counting<'_> {
        fn len(&self) -> u64 {
            self.0.len()
        }
        fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
            *self.1.lock().unwrap() += buffer.len() as u64;
            self.0.read_exact_at(offset, buffer)
        }
    }
    let folder = fake_assets(1);
    let medium = Medium::compose(&Assets::open(folder.path()).unwrap(), &host()).unwrap();
    let counting = Counting(&medium, Mutex::new(0));
    let mut found = read_host_files(&counting).unwrap();
    found.reverse(); // they stand sorted by path
    assert_eq!(found, host().files);
    assert!(*counting.1.lock().unwrap() < 20_000, "read {} bytes", counting.1.lock().unwrap());
}

/// What xorriso says of the medium, and the folder that it has taken it apart into.
fn by_xorriso(medium: &Medium, work: &Path) -> (String, PathBuf) {
    let (iso, out) = (work.join("medium.iso"), work.join("out"));
    std::fs::write(&iso, whole(medium)).unwrap();
    let report = run(Command::new("xorriso")
        .args(["-indev"])
        .arg(&iso)
        .args(["-report_el_torito", "plain", "-pvd_info", "-check_media", "--", "-osirrox", "on", "-extract", "/"])
        .arg(&out));
    (report, out)
}

#[test]
fn outside_tools_read_the_image() {
    for (architecture, names, console) in [
        (Architecture::X86_64, ["BOOTX64.EFI", "grubx64.efi", "mmx64.efi", "shimx64.efi"], "ttyS0"),
        (Architecture::Aarch64, ["BOOTAA64.EFI", "grubaa64.efi", "mmaa64.efi", "shimaa64.efi"], "ttyAMA0"),
    ] {
        outside_tools_read(architecture, names, console);
    }
}

fn outside_tools_read(architecture: Architecture, [fallback, grub, mok_manager, shim]: [&str; 4], console: &str) {
    let folder = fake_assets_of(architecture, 1);
    assert_eq!(Assets::open(folder.path()).unwrap().architecture(), architecture);
    let medium = Medium::compose(&Assets::open(folder.path()).unwrap(), &host()).unwrap();
    let work = tempfile::tempdir().unwrap();
    let (report, out) = by_xorriso(&medium, work.path());
    assert!(report.contains("El Torito boot img :   1  UEFI  y   none"), "{report}");
    assert!(report.contains("Volume Id    : METAMORPH"), "{report}");
    for name in ["vmlinuz", "initramfs"] {
        assert!(std::fs::read(out.join(name)).unwrap() == std::fs::read(folder.path().join(name)).unwrap(), "{name}");
    }
    assert!(out.join(".disk/info").exists());
    let config = std::fs::read_to_string(out.join("boot/grub/grub.cfg")).unwrap();
    assert!(config.contains("linux /vmlinuz ") && config.contains(" metamorph.test=1;"), "{config}");
    assert!(config.contains(&format!(" console=tty0 console={console},115200 ")), "{config}");
    let esp = out.join("efi.img");
    run(Command::new("fsck.vfat").arg("-n").arg(&esp));
    let listing = run(Command::new("mdir").arg("-i").arg(&esp).args(["-/", "-b", "::"]));
    for name in [fallback, grub, mok_manager] {
        assert!(listing.contains(&format!("::/EFI/BOOT/{name}")), "{listing}");
    }
    let copy = work.path().join("shim");
    run(Command::new("mcopy").arg("-i").arg(&esp).arg(format!("::/EFI/BOOT/{fallback}")).arg(&copy));
    assert!(std::fs::read(copy).unwrap() == std::fs::read(folder.path().join(shim)).unwrap());
    let files = work.path().join("files");
    std::fs::create_dir(&files).unwrap();
    let archive = out.join("host.cpio");
    let listing = run(Command::new("cpio").args(["-itv", "--quiet"]).stdin(std::fs::File::open(archive).unwrap()));
    assert!(listing.contains("-rw-------") && listing.contains("metamorph/host.json"), "{listing}");
}

/// What it is read for is whether it can be read: it must not start anything.
#[test]
fn a_test_medium_is_an_image_that_nothing_starts_from() {
    let medium = Medium::test("Metamorph: a test, of host n/a\n").unwrap();
    let again = Medium::test("Metamorph: a test, of host n/a\n").unwrap();
    assert!(medium.etag() == again.etag() && whole(&medium) == whole(&again));
    assert_ne!(Medium::test("another").unwrap().etag(), medium.etag());
    assert!(medium.len() < 4 << 20, "{}", medium.len());
    let work = tempfile::tempdir().unwrap();
    let (report, out) = by_xorriso(&medium, work.path());
    assert!(report.contains("Volume Id    : METAMORPH_TEST"), "{report}");
    assert!(!report.contains("El Torito boot img") && !report.contains("El Torito catalog"), "{report}");
    assert_eq!(std::fs::read_to_string(out.join("README.TXT")).unwrap(), "Metamorph: a test, of host n/a\n");
    assert!(!whole(&medium).windows(9).any(|window| window == b"EL TORITO"));
}

#[test]
fn our_reader_reads_an_image_of_another_writer() {
    let work = tempfile::tempdir().unwrap();
    let tree = work.path().join("tree/metamorph/deep");
    std::fs::create_dir_all(&tree).unwrap();
    std::fs::write(tree.join("A Long Name.json"), "hello").unwrap();
    let image = work.path().join("other.iso");
    run(Command::new("xorriso")
        .args(["-as", "mkisofs", "-quiet", "-R", "-o"])
        .arg(&image)
        .arg(work.path().join("tree")));
    let image = std::fs::read(image).unwrap();
    let extent = iso::find_file(&image, "metamorph/deep/A Long Name.json").unwrap();
    let start = usize::try_from(extent.offset).unwrap();
    assert_eq!(&image[start..start + 5], b"hello");
    assert_eq!(extent.len, 5);
}

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let pair = |(name, value): &(&str, &str)| {
        (HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap())
    };
    pairs.iter().map(pair).collect()
}

struct Answer {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
    served: Vec<(u64, u64)>,
}

async fn ask(medium: &Medium, method: Method, pairs: &[(&str, &str)]) -> Answer {
    let log = Arc::new(Mutex::new(Vec::new()));
    let keep = log.clone();
    let response = respond(medium, &method, &headers(pairs), move |start, len| keep.lock().unwrap().push((start, len)));
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes().to_vec();
    let served = log.lock().unwrap().clone();
    Answer { status: parts.status.as_u16(), headers: parts.headers, body, served }
}

#[tokio::test]
async fn http_serves_the_whole_a_range_and_refusals() {
    let folder = fake_assets(1);
    let medium = Medium::compose(&Assets::open(folder.path()).unwrap(), &host()).unwrap();
    let (bytes, total) = (whole(&medium), medium.len());

    let answer = ask(&medium, Method::GET, &[]).await;
    assert_eq!((answer.status, answer.body == bytes), (200, true));
    assert_eq!(answer.headers["content-length"], total.to_string());
    assert_eq!(answer.headers["accept-ranges"], "bytes");
    assert_eq!(answer.served, [(0, total)]);

    let answer = ask(&medium, Method::HEAD, &[("range", "bytes=5-9")]).await;
    assert_eq!((answer.status, answer.body.len()), (206, 0));
    assert_eq!(answer.headers["content-length"], "5");
    assert!(answer.served.is_empty(), "no body, no word");

    let answer = ask(&medium, Method::GET, &[("range", "bytes=32768-363000")]).await;
    assert_eq!((answer.status, answer.body == bytes[32768..363_001]), (206, true));
    assert_eq!(answer.headers["content-range"], format!("bytes 32768-363000/{total}"));
    assert_eq!(answer.served, [(32768, 330_233)]);

    let beyond = format!("bytes={total}-");
    let answer = ask(&medium, Method::GET, &[("range", &beyond)]).await;
    assert_eq!((answer.status, answer.body.len()), (416, 0));
    assert_eq!(answer.headers["content-range"], format!("bytes */{total}"));

    let same = ask(&medium, Method::GET, &[("range", "bytes=0-0"), ("if-range", medium.etag())]).await;
    let other = ask(&medium, Method::GET, &[("range", "bytes=0-0"), ("if-range", "\"older\"")]).await;
    assert_eq!((same.status, other.status), (206, 200));
    let unchanged = ask(&medium, Method::GET, &[("if-none-match", medium.etag())]).await;
    assert_eq!((unchanged.status, unchanged.body.len()), (304, 0));
    let put = ask(&medium, Method::PUT, &[]).await;
    assert_eq!((put.status, put.headers["allow"].clone()), (405, HeaderValue::from_static("GET, HEAD")));
}

#[tokio::test]
async fn a_connection_that_closes_early_is_logged_with_what_it_took() {
    let folder = fake_assets(1);
    let medium = Medium::compose(&Assets::open(folder.path()).unwrap(), &host()).unwrap();
    let log = Arc::new(Mutex::new(Vec::new()));
    let keep = log.clone();
    let served = move |start, len| keep.lock().unwrap().push((start, len));
    let mut body = respond(&medium, &Method::GET, &HeaderMap::new(), served).into_body();
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(log.lock().unwrap().is_empty(), "the answer has not ended");
    drop(body);
    assert_eq!(*log.lock().unwrap(), [(0, first.len() as u64)]);
}

/// What a client sees on the wire, where the HTTP library has its own ideas about lengths.
#[tokio::test]
async fn the_wire_carries_lengths_and_exact_bytes() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let folder = fake_assets(1);
    let medium = Medium::compose(&Assets::open(folder.path()).unwrap(), &host()).unwrap();
    let (bytes, total) = (whole(&medium), medium.len());
    let handler = axum::routing::any(move |method: Method, headers: HeaderMap| async move {
        respond(&medium, &method, &headers, |_, _| {})
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(axum::serve(listener, axum::Router::new().route("/media/{id}", handler)).into_future());
    let exchange = async |request: &str| {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let text = format!("{request}Host: x\r\nConnection: close\r\n\r\n");
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        let end = answer.windows(4).position(|part| part == b"\r\n\r\n").unwrap() + 4;
        (String::from_utf8(answer[..end].to_vec()).unwrap().to_lowercase(), answer[end..].to_vec())
    };
    let (head, body) = exchange("HEAD /media/x.iso HTTP/1.1\r\n").await;
    assert!(head.starts_with("http/1.1 200 ") && head.contains(&format!("\r\ncontent-length: {total}\r\n")), "{head}");
    assert!(body.is_empty());
    let (head, body) = exchange("GET /media/x.iso HTTP/1.1\r\nRange: bytes=1000-400999\r\n").await;
    assert!(head.starts_with("http/1.1 206 ") && head.contains("\r\ncontent-length: 400000\r\n"), "{head}");
    assert!(!head.contains("transfer-encoding"), "{head}");
    assert!(body == bytes[1000..401_000]);
    let (head, body) = exchange("GET /media/x.iso HTTP/1.1\r\nRange: bytes=99999999-\r\n").await;
    assert!(
        head.starts_with("http/1.1 416 ") && head.contains("\r\ncontent-length: 0\r\n") && body.is_empty(),
        "{head}"
    );
    server.abort();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_chunking_gives_the_same_bytes(sizes in prop::collection::vec(1_usize..300_000, 1..20), seed in 0_u64..2_000_000) {
        thread_local! {
            static MEDIUM: (Medium, Vec<u8>) = {
                let folder = fake_assets(1);
                let medium = Medium::compose(&Assets::open(folder.path()).unwrap(), &host()).unwrap();
                let bytes = whole(&medium);
                (medium, bytes)
            };
        }
        MEDIUM.with(|(medium, bytes)| {
            let mut offset = seed % (medium.len() + 10);
            for size in &sizes {
                let mut buffer = vec![0xAA; *size];
                let read = medium.read_at(offset, &mut buffer).unwrap();
                let start = usize::try_from(offset).unwrap().min(bytes.len());
                let end = (start + size).min(bytes.len());
                assert_eq!(read, end - start);
                assert!(buffer[..read] == bytes[start..end], "other bytes at {offset}");
                offset += read as u64;
            }
        });
    }
}
