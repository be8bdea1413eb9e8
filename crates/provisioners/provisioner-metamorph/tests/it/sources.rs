//! Images of mirrors and by way of proxies, and how many are read at once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use addresses::Allowed;
use agent_protocol::{Action, AgentState, Compression, Outcome as AgentOutcome, Progress, WriteImage, WriteSummary};
use api::metal3::{DiskFormat, Image};
use image_sources::{Login, Proxy, Rule, Sources};
use oci_registry::{Answer, Digest, Registries, Request, Transport, TransportError};
use provisioner::{Cause, Method, ProvisionRequest, Record as _, Retry, SecretText, Verdict, Waiting};
use secrecy::ExposeSecret as _;
use serde_json::json;

use crate::common::{Agent, World, image};

fn rule(prefix: &str, locations: &[&str], fallback: bool) -> Rule {
    let locations = locations.iter().map(|location| (*location).to_owned()).collect();
    Rule { prefix: prefix.into(), locations, fallback, blocked: false, tags: false }
}

fn blocked(prefix: &str) -> Rule {
    Rule { blocked: true, ..rule(prefix, &[], true) }
}

/// The rule, with mirrors that say what names stand for.
fn believed(rule: Rule) -> Rule {
    Rule { tags: true, ..rule }
}

fn mirrored(request: ProvisionRequest, mirrors: Vec<Rule>) -> ProvisionRequest {
    ProvisionRequest { sources: Sources { mirrors, ..request.sources }, ..request }
}

fn proxy(url: &str) -> Proxy {
    Proxy {
        url: url.into(),
        login: Some(Login::basic("u", "hunter2").unwrap()),
        no_proxy: vec![".direct.example".into(), "10.0.0.0/8".into()],
    }
}

/// The order that the agent is given.
async fn ordered(world: &World, asked: &ProvisionRequest) -> (agent_protocol::Command, WriteImage, Agent) {
    world.host().provision(asked.clone()).await.unwrap();
    let agent = Agent::new(world.journal.latest_boot().unwrap().generation, "boot-1");
    agent.say(world).await;
    world.host().provision(asked.clone()).await.unwrap();
    let command = agent.given(world).await;
    let Action::WriteImage(write) = command.action.clone() else { panic!("{command:?}") };
    (command, *write, agent)
}

#[tokio::test(start_paused = true)]
async fn the_agent_is_told_of_mirrors_and_proxy_and_what_it_chose_is_shown() {
    let world = World::new();
    let mut asked = mirrored(
        image(),
        vec![
            rule("http://192.0.2.9", &["http://192.0.2.10/a", "https://m.example"], true),
            believed(rule("https://sums.example/x", &["http://192.0.2.10/sums"], false)),
        ],
    );
    asked.image.url = "http://192.0.2.9/os/disk.raw.zst".into();
    asked.image.checksum = Some("https://sums.example/x/SHA256SUMS".into());
    asked.sources.proxy = Some(proxy("http://proxy.example:3128"));
    let (command, write, agent) = ordered(&world, &asked).await;
    let urls: Vec<&str> = write.image.sources.iter().map(|source| source.url.as_str()).collect();
    let mirrors = ["http://192.0.2.10:80/a/os/disk.raw.zst", "https://m.example:443/os/disk.raw.zst"];
    assert_eq!(urls, [mirrors[0], mirrors[1], "http://192.0.2.9/os/disk.raw.zst"]);
    assert_eq!(write.image.url, "http://192.0.2.9/os/disk.raw.zst");
    assert_eq!(write.image.compression, Some(Compression::Zstd));
    assert_eq!(write.image.checksum_sources, ["http://192.0.2.10:80/sums/SHA256SUMS"]);
    let by = write.image.proxy.unwrap();
    assert_eq!((by.url.as_str(), by.no_proxy.len()), ("http://proxy.example:3128", 2));
    assert_eq!(by.authorization.unwrap().0, "Basic dTpodW50ZXIy");
    // What it tells is shown while it writes, and afterwards.
    let told = format!("{} by way of the proxy http://proxy.example:3128\u{1b}", mirrors[1]);
    let progress = Progress { bytes: 5_000_000, source: told.clone(), ..Progress::default() };
    *agent.state.lock().unwrap() = AgentState::Running { command: command.id.clone(), progress };
    agent.say(&world).await;
    let Verdict::Working(working) = world.host().provision(asked.clone()).await.unwrap() else { panic!("not working") };
    let shown = told.trim_end_matches('\u{1b}');
    assert!(working.step.ends_with(&format!("5 MB from {shown}")), "{working:?}");
    let (digest, warnings) = ("sha256:12".to_owned(), vec!["the first mirror has none".to_owned()]);
    let summary =
        WriteSummary { disk: "/dev/vda".into(), source: told.clone(), digest, warnings, ..WriteSummary::default() };
    agent.finished(&command, AgentOutcome::Written(summary));
    agent.say(&world).await;
    world.host().provision(asked).await.unwrap();
    let (_, status) = world.journal.all().pop().unwrap();
    let step = status.steps.iter().find(|step| step.name == "write-image").unwrap();
    let message = step.message.clone().unwrap_or_default();
    assert!(
        message.contains(&format!("read from {shown}")) && message.contains("warning: the first mirror"),
        "{message}"
    );
    // The password is in what the agent is given alone.
    let all = format!("{:?} {:?}", world.journal.all(), world.journal.record.current());
    assert!(!all.contains("dTpo") && !all.contains("hunter2") && !format!("{command:?}").contains("dTpo"), "{all}");
}

#[tokio::test(start_paused = true)]
async fn an_image_without_mirrors_and_proxy_is_ordered_as_ever() {
    let world = World::new();
    let asked = mirrored(image(), vec![rule("http://elsewhere.example", &["http://192.0.2.10"], false)]);
    let (_, write, _) = ordered(&world, &asked).await;
    let order = serde_json::to_value(&write.image).unwrap();
    assert_eq!(order["url"], "http://192.0.2.9/disk.raw");
    for field in ["sources", "checksumSources", "proxy", "compression"] {
        assert!(order.get(field).is_none(), "{order}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_must_not_be_read_is_refused_before_the_machine_is_touched() {
    let with = |change: &dyn Fn(&mut ProvisionRequest)| {
        let mut asked = image();
        change(&mut asked);
        asked
    };
    let block = |of: &str, prefix: &str| {
        let mut asked = mirrored(image(), vec![blocked(prefix)]);
        if of == "checksum" {
            asked.image.checksum = Some("https://sums.example/SHA256SUMS".into());
        } else if of != "url" {
            asked.image = Image { url: of.into(), ..Image::default() };
        }
        asked
    };
    for (asked, says, retry) in [
        (block("url", "http://192.0.2.9"), "blocks what is below http://192.0.2.9", Retry::Waiting),
        (block("checksum", "https://sums.example"), "blocks what is below https://sums.example", Retry::Waiting),
        (block("oci://r.example/os:1", "oci://r.example"), "blocks what is below oci://r.example", Retry::Waiting),
        (
            mirrored(image(), vec![rule("http://192.0.2.9", &["http://127.0.0.1:81"], true)]),
            "(ConfigMap metamorph-images)",
            Retry::Waiting,
        ),
        (
            with(&|asked| asked.sources.proxy = Some(proxy("http://169.254.169.254"))),
            "metadata service",
            Retry::Waiting,
        ),
        (with(&|asked| asked.sources.proxy = Some(proxy("http://localhost:3128"))), "loopback", Retry::Waiting),
        (with(&|asked| asked.sources.proxy = Some(proxy("socks5://p.example"))), "no URL", Retry::Waiting),
        (
            with(&|asked| {
                let none = vec!["a b".to_owned()];
                asked.sources.proxy = Some(Proxy { no_proxy: none, ..proxy("http://p.example") });
            }),
            "noProxy",
            Retry::Waiting,
        ),
    ] {
        let world = World::new();
        let failure = world.host().provision(asked).await.unwrap_err();
        assert_eq!((failure.cause, failure.retry), (Cause::InvalidRequest, retry), "{failure:?}");
        assert!(failure.text().contains(says), "{}", failure.text());
        assert_eq!(world.calls(), [""; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_live_iso_is_read_by_its_bmc_or_not_at_all() {
    let live = |rules: Vec<Rule>| {
        let mut asked = mirrored(image(), rules);
        asked.method = Method::LiveIso;
        asked.image.format = Some(DiskFormat::LiveIso);
        asked.image.url = "http://192.0.2.9/live.iso".into();
        asked
    };
    for (rule, says) in [
        (blocked("http://192.0.2.9"), "blocks"),
        (rule("http://192.0.2.9", &["http://192.0.2.10"], false), "no fallback"),
    ] {
        let world = World::new();
        let failure = world.host().live_media().unwrap().boot_live(live(vec![rule])).await.unwrap_err();
        assert!(failure.text().contains(says) && failure.retry == Retry::Waiting, "{failure:?}");
        assert_eq!(world.calls(), [""; 0]);
    }
    let world = World::new();
    let fallback = live(vec![rule("http://192.0.2.9", &["http://192.0.2.10"], true)]);
    if let Err(failure) = world.host().live_media().unwrap().boot_live(fallback).await {
        assert!(!failure.text().contains("mirror"), "{failure:?}");
    }
}

/// An agent that was booted before the upgrade reads no image where it is not to be read.
#[tokio::test(start_paused = true)]
async fn an_agent_of_an_earlier_version_gets_no_image_of_mirrors() {
    let world = World::new();
    let mut asked = image();
    asked.sources.proxy = Some(proxy("http://proxy.example:3128"));
    world.host().provision(asked.clone()).await.unwrap();
    let agent = Agent { protocol: 3, ..Agent::new(world.journal.latest_boot().unwrap().generation, "boot-1") };
    agent.say(&world).await;
    let failure = world.host().provision(asked.clone()).await.unwrap_err();
    assert!(failure.text().contains("protocol 3"), "{}", failure.text());
    assert_eq!(agent.say(&world).await.1.command, None);
}

/// Two registries, each with a token service of its own; what each was shown.
#[derive(Clone, Default)]
struct Shelves(Arc<Mutex<BTreeMap<String, Shelf>>>);

#[derive(Default)]
struct Shelf {
    manifests: BTreeMap<String, Vec<u8>>,
    /// Who may pull: the value of `Authorization`; empty for everybody.
    user: String,
    away: bool,
    shown: Vec<String>,
    proxies: Vec<String>,
}

impl Shelves {
    fn push(&self, registry: &str, path: &str, content: &str) -> Digest {
        let layer = Digest::of(content.as_bytes());
        let descriptor = json!({"mediaType": "application/zstd", "digest": layer, "size": content.len(),
            "annotations": {"org.opencontainers.image.title": "disk.raw.zst"}});
        let bytes = json!({"schemaVersion": 2, "layers": [descriptor]}).to_string().into_bytes();
        let mut all = self.0.lock().unwrap();
        let shelf = all.entry(registry.to_owned()).or_default();
        let repository = path.rsplit_once('/').unwrap().0;
        shelf.manifests.insert(format!("{repository}/{}", Digest::of(&bytes)), bytes.clone());
        shelf.manifests.insert(path.to_owned(), bytes);
        layer
    }

    fn shelf<T>(&self, registry: &str, change: impl FnOnce(&mut Shelf) -> T) -> T {
        change(self.0.lock().unwrap().entry(registry.to_owned()).or_default())
    }

    fn world(&self) -> World {
        World::with(Registries::new(self.clone(), Allowed::default(), []))
    }
}

#[async_trait::async_trait]
impl Transport for Shelves {
    async fn get(&self, request: Request<'_>) -> Result<Answer, TransportError> {
        let host = request.url.host_str().unwrap().to_owned();
        let given = request.authorization.map(|given| given.expose_secret().to_owned()).unwrap_or_default();
        let answer = |status, body: &[u8]| Ok(Answer { status, body: body.to_vec(), ..Answer::default() });
        let mut all = self.0.lock().unwrap();
        let registry = host.strip_prefix("auth.").unwrap_or(&host).to_owned();
        let shelf = all.get_mut(&registry).unwrap();
        shelf.shown.push(given.clone());
        shelf.proxies.push(request.proxy.map(ToString::to_string).unwrap_or_default());
        if shelf.away {
            return Err(TransportError::Lost("no connection".into()));
        }
        if host.starts_with("auth.") {
            let token = format!("{{\"token\":\"of-{registry}\"}}");
            return if given == shelf.user { answer(200, token.as_bytes()) } else { answer(401, b"") };
        }
        if given != format!("Bearer of-{registry}") {
            let challenge = format!("Bearer realm=\"https://auth.{registry}/token\"");
            return Ok(Answer { status: 401, challenges: vec![challenge], ..Answer::default() });
        }
        match shelf.manifests.get(request.url.path()) {
            Some(bytes) => answer(200, bytes),
            None => answer(404, b""),
        }
    }
}

/// An image of a registry with a mirror, and users for both.
fn of_registry(fallback: bool) -> ProvisionRequest {
    let config = json!({"auths": {
        "r.example": {"username": "u", "password": "hunter2"},
        "m.example": {"username": "m", "password": "mirror-password"},
    }});
    ProvisionRequest {
        wish: Some("wish".into()),
        image: Image { url: "oci://r.example/team/os:1".into(), ..Image::default() },
        pull_secret: Some(SecretText(config.to_string())),
        sources: Sources {
            mirrors: vec![believed(rule("oci://r.example", &["oci://m.example/cache"], fallback))],
            proxy: Some(Proxy { login: None, ..proxy("http://proxy.example:3128") }),
            ..Sources::default()
        },
        ..ProvisionRequest::default()
    }
}

const ORIGIN_USER: &str = "Basic dTpodW50ZXIy";
const MIRROR_USER: &str = "Basic bTptaXJyb3ItcGFzc3dvcmQ=";

fn both(shelves: &Shelves) -> Digest {
    let layer = shelves.push("r.example", "/v2/team/os/manifests/1", "one");
    shelves.push("m.example", "/v2/cache/team/os/manifests/1", "one");
    shelves.shelf("r.example", |shelf| shelf.user = ORIGIN_USER.into());
    shelves.shelf("m.example", |shelf| shelf.user = MIRROR_USER.into());
    layer
}

#[tokio::test(start_paused = true)]
async fn a_registrys_mirror_is_asked_first_and_each_sees_its_own_user_alone() {
    let shelves = Shelves::default();
    let layer = both(&shelves);
    let world = shelves.world();
    let (_, write, _) = ordered(&world, &of_registry(true)).await;
    let sources: Vec<_> = write
        .image
        .sources
        .iter()
        .map(|source| (source.url.as_str(), source.authorization.clone().unwrap().0))
        .collect();
    let (mirror, origin) = (
        format!("https://m.example/v2/cache/team/os/blobs/{layer}"),
        format!("https://r.example/v2/team/os/blobs/{layer}"),
    );
    assert_eq!(
        sources,
        [(mirror.as_str(), "Bearer of-m.example".to_owned()), (origin.as_str(), "Bearer of-r.example".to_owned())]
    );
    assert_eq!((write.image.checksum.as_str(), write.image.authorization), (layer.hex(), None));
    for (registry, foreign) in [("m.example", ORIGIN_USER), ("r.example", MIRROR_USER)] {
        shelves.shelf(registry, |shelf| {
            let foreign_token =
                format!("Bearer of-{}", if registry == "m.example" { "r.example" } else { "m.example" });
            assert!(shelf.shown.iter().all(|shown| shown != foreign && *shown != foreign_token), "{:?}", shelf.shown);
            assert!(shelf.proxies.iter().all(|proxy| proxy == "http://proxy.example:3128"), "{:?}", shelf.proxies);
        });
    }
}

#[tokio::test(start_paused = true)]
async fn where_a_mirror_is_away_the_registry_itself_is_asked_unless_it_must_not_be() {
    let shelves = Shelves::default();
    let layer = both(&shelves);
    shelves.shelf("m.example", |shelf| shelf.away = true);
    let world = shelves.world();
    let (_, write, _) = ordered(&world, &of_registry(true)).await;
    assert_eq!(write.image.sources.len(), 1);
    assert_eq!(write.image.sources[0].url, format!("https://r.example/v2/team/os/blobs/{layer}"));
    // Without fallback the registry is not even asked for a token.
    shelves.shelf("r.example", |shelf| shelf.shown.clear());
    let failure = shelves.world().host().provision(of_registry(false)).await.unwrap_err();
    assert_eq!(failure.cause, Cause::ImageUnavailable);
    assert!(failure.text().contains("m.example/cache/team/os:1") && !failure.text().contains("hunter2"), "{failure:?}");
    shelves.shelf("r.example", |shelf| assert_eq!(shelf.shown, [""; 0]));
    // Where neither serves, both are told.
    shelves.shelf("r.example", |shelf| shelf.manifests.clear());
    let failure = shelves.world().host().provision(of_registry(true)).await.unwrap_err();
    assert_eq!(failure.cause, Cause::ImageNotFound);
    let text = failure.text();
    assert!(
        text.contains("r.example/team/os:1") && text.contains("of its mirrors: m.example/cache/team/os:1"),
        "{text}"
    );
}

/// The tag was followed at the registry; its mirror has another image by that name, and serves none of the recorded digest.
#[tokio::test(start_paused = true)]
async fn a_mirror_that_does_not_serve_the_digest_is_left_out() {
    let shelves = Shelves::default();
    let layer = both(&shelves);
    let world = shelves.world();
    shelves.shelf("m.example", |shelf| shelf.away = true);
    world.host().provision(of_registry(true)).await.unwrap();
    shelves.shelf("m.example", |shelf| {
        shelf.away = false;
        let other = shelf.manifests.values().next().unwrap().iter().rev().copied().collect::<Vec<u8>>();
        shelf.manifests.values_mut().for_each(|bytes| bytes.clone_from(&other));
    });
    let agent = Agent::new(world.journal.latest_boot().unwrap().generation, "boot-1");
    agent.say(&world).await;
    world.host().provision(of_registry(true)).await.unwrap();
    let command = agent.given(&world).await;
    let Action::WriteImage(write) = command.action else { panic!("{command:?}") };
    assert_eq!(write.image.sources.len(), 1);
    assert!(write.image.sources[0].url.starts_with("https://r.example/") && write.image.checksum == layer.hex());
}

/// The mirror has another image by the tag.
#[tokio::test(start_paused = true)]
async fn a_mirror_does_not_choose_what_a_tag_is_unless_its_rule_says_so() {
    let of = |fallback: bool, tags: bool, url: &str| {
        let mut asked = of_registry(fallback);
        asked.sources.mirrors[0].tags = tags;
        asked.image.url = url.into();
        asked
    };
    let shelves = Shelves::default();
    let layer = both(&shelves);
    let other = shelves.push("m.example", "/v2/cache/team/os/manifests/1", "other");
    shelves.push("m.example", "/v2/cache/team/os/manifests/2", "one");
    let world = shelves.world();
    let (_, write, _) = ordered(&world, &of(true, false, "oci://r.example/team/os:1")).await;
    assert_eq!(write.image.checksum, layer.hex());
    assert!(write.image.sources[0].url.starts_with("https://m.example/"), "the bytes are read there: {write:?}");
    let (_, write, _) = ordered(&shelves.world(), &of(true, true, "oci://r.example/team/os:1")).await;
    assert_eq!(write.image.checksum, other.hex());
    // Where the registry itself must not be asked, nobody is.
    shelves.shelf("m.example", |shelf| shelf.shown.clear());
    let world = shelves.world();
    let failure = world.host().provision(of(false, false, "oci://r.example/team/os:1")).await.unwrap_err();
    assert!(failure.retry == Retry::Waiting && failure.text().contains("`tags: true`"), "{failure:?}");
    assert_eq!(world.calls(), [""; 0]);
    shelves.shelf("m.example", |shelf| assert_eq!(shelf.shown, [""; 0]));
    // A digest says itself what it is.
    let manifest = shelves.shelf("m.example", |shelf| Digest::of(&shelf.manifests["/v2/cache/team/os/manifests/2"]));
    let by_digest = of(false, false, &format!("oci://r.example/team/os@{manifest}"));
    let (_, write, _) = ordered(&shelves.world(), &by_digest).await;
    assert_eq!(write.image.checksum, layer.hex());
}

#[tokio::test(start_paused = true)]
async fn a_checksum_file_is_read_at_its_own_address_unless_its_rule_says_so() {
    let of = |fallback: bool| {
        let mut asked = mirrored(image(), vec![rule("https://sums.example", &["http://192.0.2.10/sums"], fallback)]);
        asked.image.checksum = Some("https://sums.example/SHA256SUMS".into());
        asked
    };
    let (_, write, _) = ordered(&World::new(), &of(true)).await;
    assert_eq!(write.image.checksum_sources, [""; 0]);
    assert_eq!(write.image.checksum, "https://sums.example/SHA256SUMS");
    let world = World::new();
    let failure = world.host().provision(of(false)).await.unwrap_err();
    assert!(failure.retry == Retry::Waiting && failure.text().contains("`tags: true`"), "{failure:?}");
    assert_eq!(world.calls(), [""; 0]);
}

/// What the agent is given can be read by whoever may write hosts.
#[tokio::test(start_paused = true)]
async fn a_login_of_the_servers_own_goes_to_no_agent() {
    let by_proxy = |no_proxy: &[&str]| {
        let mut asked = image();
        let no_proxy = no_proxy.iter().map(|entry| (*entry).to_owned()).collect();
        asked.sources.proxy = Some(Proxy { no_proxy, ..proxy("http://proxy.example:3128") });
        asked.sources.login_withheld = true;
        asked
    };
    let world = World::new();
    let failure = world.host().provision(by_proxy(&[])).await.unwrap_err();
    assert_eq!(failure.retry, Retry::Waiting);
    for part in ["the server's own", "`agents: true`", "--image-proxy-login-for-agents"] {
        assert!(failure.text().contains(part), "{}", failure.text());
    }
    assert_eq!(world.calls(), [""; 0]);
    // What is read without the proxy needs none.
    let (_, write, _) = ordered(&World::new(), &by_proxy(&["192.0.2.0/24"])).await;
    assert_eq!(write.image.proxy.unwrap().authorization, None);
    let mut listed = by_proxy(&["192.0.2.0/24"]);
    listed.image.checksum = Some("https://sums.example/SHA256SUMS".into());
    let failure = World::new().host().provision(listed).await.unwrap_err();
    assert!(failure.text().contains("the server's own"), "{failure:?}");
    // The same in a registry, whose mirror may be read without the proxy.
    let shelves = Shelves::default();
    both(&shelves);
    let of = |no_proxy: Vec<String>| {
        let mut asked = of_registry(true);
        asked.sources.proxy = Some(Proxy { no_proxy, ..proxy("http://proxy.example:3128") });
        asked.sources.login_withheld = true;
        asked
    };
    let failure = shelves.world().host().provision(of(vec![])).await.unwrap_err();
    assert!(failure.text().contains("the server's own"), "{failure:?}");
    let (_, write, _) = ordered(&shelves.world(), &of(vec!["m.example".into()])).await;
    assert_eq!(write.image.proxy.unwrap().authorization, None);
}

#[tokio::test(start_paused = true)]
async fn settings_with_a_fault_hold_back_an_order_and_no_image_that_is_being_written() {
    let mut faulty = image();
    faulty.sources.fault = Some("read the ConfigMap metamorph-images in namespace ns: it is none".into());
    let world = World::new();
    let failure = world.host().provision(faulty.clone()).await.unwrap_err();
    assert!(failure.retry == Retry::Waiting && failure.text().contains("it is none"), "{failure:?}");
    assert_eq!(world.calls(), [""; 0]);
    world.host().provision(image()).await.unwrap();
    let agent = Agent::new(world.journal.latest_boot().unwrap().generation, "boot-1");
    agent.say(&world).await;
    // The agent has not got it yet.
    assert!(world.host().provision(faulty.clone()).await.unwrap_err().text().contains("it is none"));
    world.host().provision(image()).await.unwrap();
    let command = agent.given(&world).await;
    let forbidden = mirrored(image(), vec![blocked("http://192.0.2.9")]);
    *agent.state.lock().unwrap() = AgentState::Running { command: command.id.clone(), progress: Progress::default() };
    agent.say(&world).await;
    for asked in [&faulty, &forbidden] {
        assert!(matches!(world.host().provision(asked.clone()).await.unwrap(), Verdict::Working(_)));
    }
    agent
        .finished(&command, AgentOutcome::Written(WriteSummary { disk: "/dev/vda".into(), ..WriteSummary::default() }));
    agent.say(&world).await;
    for asked in [&faulty, &forbidden, &faulty] {
        assert!(matches!(world.host().provision(asked.clone()).await.unwrap(), Verdict::Working(_)));
    }
    let left = agent.given(&world).await;
    agent.finished(&left, AgentOutcome::Leaving);
    agent.say(&world).await;
    assert_eq!(world.host().provision(faulty).await.unwrap(), Verdict::Done(()));
}

#[tokio::test(start_paused = true)]
async fn a_plain_registrys_password_goes_by_no_proxy_that_a_configmap_alone_names() {
    let shelves = Shelves::default();
    both(&shelves);
    let world = |plain: &str| World::with(Registries::new(shelves.clone(), Allowed::default(), [plain.to_owned()]));
    let mut asked = of_registry(true);
    asked.sources.proxy_unnamed = true;
    for plain in ["r.example", "m.example"] {
        let failure = world(plain).host().provision(asked.clone()).await.unwrap_err();
        let text = failure.text();
        assert!(failure.retry == Retry::Waiting && text.contains("--http-registry") && text.contains(plain), "{text}");
    }
    for registry in ["r.example", "m.example"] {
        shelves.shelf(registry, |shelf| assert_eq!(shelf.shown, [""; 0]));
    }
    // Over TLS the proxy sees none, and one that a Secret names may.
    ordered(&world("other.example"), &asked).await;
    asked.sources.proxy_unnamed = false;
    ordered(&world("r.example"), &asked).await;
}

/// The registry has thrown the image away, and the mirror that has it is away for a while.
#[tokio::test(start_paused = true)]
async fn what_a_tag_named_is_not_forgotten_while_a_registry_that_may_have_it_is_away() {
    let shelves = Shelves::default();
    let layer = both(&shelves);
    let world = shelves.world();
    let asked = of_registry(true);
    world.host().provision(asked.clone()).await.unwrap();
    let agent = Agent::new(world.journal.latest_boot().unwrap().generation, "boot-1");
    agent.say(&world).await;
    shelves.shelf("m.example", |shelf| shelf.away = true);
    shelves.shelf("r.example", |shelf| shelf.manifests.clear());
    world.host().provision(asked.clone()).await.unwrap_err();
    shelves.push("r.example", "/v2/team/os/manifests/1", "two");
    shelves.shelf("m.example", |shelf| shelf.away = false);
    let again = ProvisionRequest { attempt: 2, ..asked };
    // The host hears of the failure first.
    world.host().provision(again.clone()).await.unwrap_err();
    world.host().provision(again).await.unwrap();
    let (_, status) = world.journal.all().pop().unwrap();
    assert_eq!(status.image.unwrap().layer, layer.to_string());
}

/// A host holds its place from its boot until its image is written: that many images are read at once, and no more.
#[tokio::test(start_paused = true)]
async fn as_many_images_are_read_at_once_as_hosts_may_be_worked_on_and_whoever_waits_is_told() {
    let world = World::limited(1);
    let mut woken = world.wake_ups();
    let (command, _, agent) = ordered(&world, &image()).await;
    let others = [world.beside("ns", "uid-1"), world.beside("other", "uid-2")];
    let waits = async |other: &World| match other.host().provision(image()).await.unwrap() {
        Verdict::Waiting(Waiting::Busy { reason, .. }) => {
            assert!(reason.contains("1 hosts are worked on") && reason.contains("--provisioning-limit"), "{reason}");
        }
        verdict => panic!("{verdict:?}"),
    };
    world.calls();
    for other in &others {
        waits(other).await;
    }
    // While the image is read, and when it is on the disk.
    let progress = Progress { bytes: 1 << 20, ..Progress::default() };
    *agent.state.lock().unwrap() = AgentState::Running { command: command.id.clone(), progress };
    agent.say(&world).await;
    world.host().provision(image()).await.unwrap();
    waits(&others[1]).await;
    agent
        .finished(&command, AgentOutcome::Written(WriteSummary { disk: "/dev/vda".into(), ..WriteSummary::default() }));
    agent.say(&world).await;
    world.host().provision(image()).await.unwrap();
    waits(&others[0]).await;
    assert_eq!(world.calls().iter().filter(|call| *call == "Restart").count(), 0, "nobody else was booted");
    let left = agent.given(&world).await;
    agent.finished(&left, AgentOutcome::Leaving);
    agent.say(&world).await;
    while woken.try_recv().is_ok() {}
    assert_eq!(world.host().provision(image()).await.unwrap(), Verdict::Done(()));
    // One of them is woken for the place, and gets it.
    let key = woken.recv().await.unwrap().key;
    let next = others.iter().find(|other| other.uid == key.uid).expect("one that waits is woken");
    assert!(matches!(next.host().provision(image()).await.unwrap(), Verdict::Working(_)));
}
