//! Machines that nobody has declared, found by the real programs on loopback.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use api::metal3::{BareMetalHost, ProvisioningState, annotation};
use api::metamorph::{DiscoveryPhase as Phase, HostDiscovery, HostDiscoveryStatus};
use e2e::{DiskImage, Options, Running, World};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

fn discovery(name: &str, spec: &Value) -> String {
    json!({ "apiVersion": "metamorph.metal3.io/v1alpha1", "kind": "HostDiscovery", "metadata": { "name": name }, "spec": spec })
        .to_string()
}

/// The port of a simulated machine's BMC.
pub fn port_of(machine: &Value) -> u16 {
    machine["redfish"].as_str().unwrap().rsplit(':').next().unwrap().trim_end_matches('/').parse().unwrap()
}

/// The status as soon as it is as wanted.
pub async fn wait(
    world: &World,
    name: &str,
    seconds: u64,
    wanted: impl Fn(&HostDiscoveryStatus) -> bool + Send,
) -> HostDiscoveryStatus {
    let all: Api<HostDiscovery> = Api::default_namespaced(world.client.clone());
    let is = |one: Option<&HostDiscovery>| one.and_then(|one| one.status.as_ref()).is_some_and(&wanted);
    let waited = kube::runtime::wait::await_condition(all.clone(), name, is);
    match tokio::time::timeout(Duration::from_secs(seconds), waited).await {
        Ok(Ok(Some(one))) => one.status.unwrap(),
        other => panic!("{name} is not as wanted: {other:?}: {:?}; {}", all.get(name).await, world.server.tail()),
    }
}

/// The status after another scan, which a change of the spec has begun.
async fn scan(world: &World, most: u32) -> HostDiscoveryStatus {
    let change = json!({ "spec": { "maxNewHosts": most } }).to_string();
    world.kubectl(&["patch", "hostdisc", "rack", "--type=merge", "-p", &change], "").await.unwrap();
    let all: Api<HostDiscovery> = Api::default_namespaced(world.client.clone());
    let generation = all.get("rack").await.unwrap().metadata.generation;
    wait(world, "rack", 90, |status| status.observed_generation == generation).await
}

async fn hosts(world: &World) -> Vec<BareMetalHost> {
    world.hosts().list(&ListParams::default()).await.unwrap().items
}

#[tokio::test]
async fn a_machine_that_nobody_declared_is_found_approved_inspected_and_provisioned() {
    let mut world = World::start(Options::one_fake()).await.unwrap();
    let machine = world.sim.machine("node-0");
    let login = |password: &Value| json!({ "username": machine["username"], "password": password });
    world.apply_secret("login", login(&json!("not-the-password"))).await.unwrap();
    let spec = json!({ "ranges": ["127.0.0.1"], "ports": [port_of(&machine)], "scheme": "http", "intervalMinutes": 5,
        "credentialsName": "login" });
    world.kubectl(&["apply", "-f", "-"], &discovery("rack", &spec)).await.unwrap();
    let status = wait(&world, "rack", 60, |status| status.pending == 1).await;
    let found = &status.machines[0];
    assert_eq!((found.phase, found.product.as_str()), (Phase::Found, "Virtual BMC"));
    let name = found.host.clone().unwrap();
    world.wait_state(&name, 30, ProvisioningState::Unmanaged).await.unwrap();
    assert_eq!(world.sim.now("node-0").await.unwrap()["sessions"], 0, "nobody has signed in");

    // A password that is refused is tried once, for as long as another scan takes.
    world.annotate(&name, &format!("{}=true", annotation::APPROVE)).await.unwrap();
    let error_count = |host: &BareMetalHost| host.status.as_ref().map_or(0, |status| status.error_count);
    world.wait(&name, 60, "refused", |host| error_count(host) == 1).await.unwrap();
    scan(&world, 30).await;
    assert_eq!(error_count(&world.hosts().get(&name).await.unwrap()), 1);
    world.apply_secret("login", login(&machine["password"])).await.unwrap();
    let host = world.wait_state(&name, 60, ProvisioningState::Available).await.unwrap();
    assert!(host.status.unwrap().hardware.is_some_and(|found| !found.nics.is_empty()));
    let image = world.image("disk.raw", DiskImage::small().unwrap());
    world.patch(&name, json!({ "spec": { "online": true, "image": image } })).await.unwrap();
    world.wait_state(&name, 60, ProvisioningState::Provisioned).await.unwrap();

    // It starts again, and so does the server: the next scan finds the same machine.
    world.sim.post("/machines/node-0/power", json!({ "action": "ForceRestart" })).await.unwrap();
    world.server.kill().await.unwrap();
    world.start_server_again().await.unwrap();
    let status = scan(&world, 31).await;
    assert_eq!((status.machines[0].phase, status.pending), (Phase::Approved, 0));
    assert_eq!(hosts(&world).await.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), [name]);
}

#[tokio::test]
async fn what_cannot_be_used_is_refused_before_it_is_stored_and_what_is_unwise_is_warned_of() {
    let world = World::start(Options::one_fake()).await.unwrap();
    let refused = async |spec: Value| {
        let applied = world.kubectl(&["apply", "-f", "-"], &discovery("bad", &spec)).await;
        format!("{:#}", applied.unwrap_err())
    };
    for (spec, said) in [
        (json!({ "ranges": ["10.0.0.0/8"] }), "more than 4096 addresses"),
        (json!({ "ranges": ["bmc.example"] }), "is no range"),
        (json!({ "ranges": [] }), "ranges"),
        (json!({ "ranges": ["192.0.2.1"], "deny": ["serial == 'x'"] }), "spec.deny[0] is no expression"),
        (json!({ "ranges": ["192.0.2.1"], "intervalMinutes": 1 }), "intervalMinutes"),
        (json!({ "ranges": ["192.0.2.1"], "approval": "Automatic" }), "spec.allow has no rule"),
        (json!({ "ranges": ["192.0.2.1"], "naming": { "prefix": "A_" } }), "prefix"),
    ] {
        let found = refused(spec.clone()).await;
        assert!(found.contains(said), "{spec}: {found}");
    }
    let unwise = json!({ "ranges": ["192.0.2.1"], "scheme": "http", "suspended": true });
    let warned = world.kubectl(&["apply", "--warnings-as-errors", "-f", "-"], &discovery("unwise", &unwise)).await;
    assert!(format!("{:#}", warned.unwrap_err()).contains("in the clear"));
}

/// BMCs at all addresses of 127.0.0.0/8, by one listener; counts connections.
#[derive(Default)]
struct Counted {
    now: AtomicUsize,
    most: AtomicUsize,
    all: AtomicUsize,
}

/// How the BMC at this address behaves.
async fn answer(mut stream: TcpStream, counted: Arc<Counted>) {
    let now = counted.now.fetch_add(1, Ordering::SeqCst) + 1;
    counted.most.fetch_max(now, Ordering::SeqCst);
    counted.all.fetch_add(1, Ordering::SeqCst);
    let SocketAddr::V4(at) = stream.local_addr().unwrap() else { panic!("no IPv4") };
    let [_, _, third, fourth] = at.ip().octets();
    let mut request = vec![0; 4096];
    let length = stream.read(&mut request).await.unwrap_or(0);
    let request = String::from_utf8_lossy(&request[..length]).to_lowercase();
    assert!(!request.contains("authorization") && !request.contains("x-auth-token"), "{request}");
    let root = |uuid: &str, vendor: &str| {
        json!({ "RedfishVersion": "1.6.0", "UUID": uuid, "Vendor": vendor, "Product": "p" }).to_string()
    };
    let uuid = format!("4c4c4544-0035-5910-8052-0000000000{fourth:02x}");
    let ok =
        |body: &str| format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
    let text = match (third, fourth) {
        (0, 1..=44) => ok(&root(&uuid, "Contoso")),
        // Hostile ones: too much, without an end, another's place, another's UUID, a terminal's escapes, nothing readable.
        (0, 45) => ok(&"x".repeat(1 << 20)),
        (0, 46) => {
            let mut endless = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned();
            while stream.write_all(endless.as_bytes()).await.is_ok() {
                endless = format!("1000\r\n{}\r\n", " ".repeat(4096));
            }
            String::new()
        }
        (0, 47) => format!(
            "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:{}/redfish/v1/\r\nContent-Length: 0\r\n\r\n",
            at.port()
        ),
        (0, 48) => ok(&root("4c4c4544-0035-5910-8052-000000000001", "Contoso")),
        (0, 49) => ok(&root(&uuid, "\u{1b}[2J\u{202e}evil")),
        (0, 50) => ok("{\"RedfishVersion\":"),
        // Silent: it takes the request, and says nothing.
        (1, 1..=20) => {
            let _ = stream.read(&mut [0]).await;
            String::new()
        }
        _ => String::new(),
    };
    let _ = stream.write_all(text.as_bytes()).await;
    let _ = stream.shutdown().await;
    // Until the other side has closed, too.
    let _ = stream.read(&mut [0]).await;
    counted.now.fetch_sub(1, Ordering::SeqCst);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_addresses_with_fifty_bmcs_are_asked_within_a_minute_over_at_most_64_connections() {
    let world = World::start(Options::one_fake()).await.unwrap();
    let counted = Arc::new(Counted::default());
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let counting = Arc::clone(&counted);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream, Arc::clone(&counting)));
        }
    });
    let begun = Instant::now();
    let spec = json!({ "ranges": ["127.9.0.0/22"], "ports": [port], "scheme": "http", "maxNewHosts": 40 });
    world.kubectl(&["apply", "-f", "-"], &discovery("network", &spec)).await.unwrap();
    let status = wait(&world, "network", 90, |status| status.last_scan.is_some()).await;
    let took = begun.elapsed();
    let scan = status.last_scan.clone().unwrap();
    println!("1022 addresses in {took:?}, at most {} connections", counted.most.load(Ordering::SeqCst));
    assert_eq!((scan.asked, scan.answered), (1022, 46));
    assert!(took < Duration::from_secs(60), "{took:?}");
    assert!(counted.most.load(Ordering::SeqCst) <= 64, "{}", counted.most.load(Ordering::SeqCst));
    assert_eq!(counted.all.load(Ordering::SeqCst), 1022, "each place once");
    let at = |n: u8| {
        let address = format!("redfish-virtualmedia+http://127.9.0.{n}:{port}");
        status.machines.iter().find(|machine| machine.address == address)
    };
    // Over HTTP nothing tells the two with one UUID apart: neither is a host.
    assert_eq!((at(1).unwrap().phase, at(48).unwrap().phase), (Phase::Contradiction, Phase::Contradiction));
    assert_eq!(at(49).unwrap().vendor, "[2J evil");
    assert!([45, 46, 47, 50].iter().all(|n| at(*n).is_none()));
    assert_eq!((hosts(&world).await.len(), status.pending), (40, 40));
    assert!(scan.left_out.iter().any(|said| said.contains("maxNewHosts")), "{:?}", scan.left_out);
}

/// A HostDiscovery that finds this machine, and has a dismissed one again: all that the operator does for it.
pub async fn finds(kubectl: impl AsyncFn(&[&str], &str) -> String, machine: &Value, log: &Running) {
    let spec = json!({ "ranges": ["127.0.0.1"], "ports": [port_of(machine)], "scheme": "http" });
    kubectl(&["apply", "-f", "-"], &discovery("rack", &spec)).await;
    let pending = ["wait", "hostdisc/rack", "--for=jsonpath={.status.pending}=1", "--timeout=60s"];
    kubectl(&pending, "").await;
    kubectl(&["annotate", "hostdisc", "rack", &format!("{}=all", annotation::REDISCOVER)], "").await;
    log.wait_logged("have their hosts made again", 60).await.unwrap();
    kubectl(&["delete", "bmh", "-l", "metamorph.metal3.io/discovered=true", "--timeout=60s"], "").await;
}
