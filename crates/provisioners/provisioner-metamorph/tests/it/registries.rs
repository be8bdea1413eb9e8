//! Images in registries: followed once a wish, and read with a token alone.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use addresses::Allowed;
use agent_protocol::{Action, AgentState, Compression, ErrorCode, Outcome as AgentOutcome, WriteImage, WriteSummary};
use api::metal3::{DiskFormat, Image};
use oci_registry::{Answer, Digest, Registries, Request, Transport, TransportError};
use provisioner::{Cause, Failure, ProvisionRequest, Retry, SecretText, Verdict};
use secrecy::ExposeSecret as _;
use serde_json::json;

use crate::common::{Agent, World};

const URL: &str = "oci://registry.example/team/os:stable";
const USER: &str = "Basic dTpodW50ZXIy";

/// A registry with a token service, on which a tag can be moved.
#[derive(Clone, Default)]
struct Shelf(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    tags: BTreeMap<String, Vec<u8>>,
    manifests: BTreeMap<String, Vec<u8>>,
    tokens: usize,
    asked: Vec<String>,
    /// It answers this instead.
    broken: Option<Answer>,
}

impl Shelf {
    /// A disk image of this content has this tag from now on; its layer.
    fn push(&self, tag: &str, content: &str) -> Digest {
        self.push_as(tag, content, "disk.raw.zst")
    }

    fn push_as(&self, tag: &str, content: &str, title: &str) -> Digest {
        let layer = Digest::of(content.as_bytes());
        let media_type = if title.ends_with(".zst") { "application/zstd" } else { "application/octet-stream" };
        let descriptor = json!({"mediaType": media_type, "digest": layer, "size": content.len(),
            "annotations": {"org.opencontainers.image.title": title}});
        let manifest = json!({"schemaVersion": 2, "artifactType": "application/vnd.example", "layers": [descriptor]});
        let bytes = manifest.to_string().into_bytes();
        let mut kept = self.0.lock().unwrap();
        kept.manifests.insert(Digest::of(&bytes).to_string(), bytes.clone());
        kept.tags.insert(tag.to_owned(), bytes);
        layer
    }

    fn world(&self) -> World {
        World::with(Registries::new(self.clone(), Allowed::default(), []))
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap().asked)
    }

    fn breaks(&self, answer: Option<Answer>) {
        self.0.lock().unwrap().broken = answer;
    }
}

#[async_trait::async_trait]
impl Transport for Shelf {
    async fn get(&self, request: Request<'_>) -> Result<Answer, TransportError> {
        let mut kept = self.0.lock().unwrap();
        let given = request.authorization.map(|given| given.expose_secret().to_owned()).unwrap_or_default();
        kept.asked.push(format!("{} {given}", request.url));
        if let Some(answer) = &kept.broken {
            return Ok(answer.clone());
        }
        let answer = |status, body: &[u8]| Answer { status, body: body.to_vec(), ..Answer::default() };
        if request.url.host_str() == Some("auth.example") {
            if given != USER {
                return Ok(answer(401, b""));
            }
            kept.tokens += 1;
            return Ok(answer(200, format!("{{\"token\":\"t{}\"}}", kept.tokens).as_bytes()));
        }
        if given != format!("Bearer t{}", kept.tokens) {
            let challenge = "Bearer realm=\"https://auth.example/token\",service=\"registry.example\"".to_owned();
            return Ok(Answer { challenges: vec![challenge], ..answer(401, b"") });
        }
        let name = request.url.path().strip_prefix("/v2/team/os/manifests/").unwrap_or_default();
        let found = kept.tags.get(name).or_else(|| kept.manifests.get(name));
        Ok(found.map_or_else(|| answer(404, b""), |bytes| answer(200, bytes)))
    }
}

fn request(wish: &str) -> ProvisionRequest {
    let config = json!({"auths": {"registry.example": {"username": "u", "password": "hunter2"}}});
    ProvisionRequest {
        wish: Some(wish.to_owned()),
        image: Image { url: URL.into(), ..Image::default() },
        pull_secret: Some(SecretText(config.to_string())),
        ..ProvisionRequest::default()
    }
}

async fn provision(world: &World, wish: &str) -> Result<Verdict<()>, Failure> {
    world.host().provision(request(wish)).await
}

/// The order that the agent is given, which it begins.
async fn ordered(world: &World, asked: ProvisionRequest, agent: &Agent) -> (agent_protocol::Command, WriteImage) {
    agent.say(world).await;
    world.host().provision(asked).await.unwrap();
    let command = agent.given(world).await;
    let Action::WriteImage(write) = command.action.clone() else { panic!("{command:?}") };
    (command, *write)
}

#[tokio::test(start_paused = true)]
async fn what_a_tag_named_when_the_work_began_is_what_each_attempt_writes() {
    let shelf = Shelf::default();
    let first = shelf.push("stable", "one");
    let mut world = shelf.world();
    provision(&world, "wish").await.unwrap();
    let agent = Agent::new(world.journal.latest_boot().unwrap().generation, "boot-1");
    let (command, write) = ordered(&world, request("wish"), &agent).await;
    assert_eq!(write.image.url, format!("https://registry.example/v2/team/os/blobs/{first}"));
    assert_eq!(write.image.checksum, first.hex());
    assert_eq!((write.image.format, write.image.compression), (DiskFormat::Raw, Some(Compression::Zstd)));
    let token = write.image.authorization.clone().unwrap().0;
    let (_, status) = world.journal.all().pop().unwrap();
    let shown = status.image.unwrap();
    let of_manifest = Digest::of(&shelf.0.lock().unwrap().tags["stable"]).to_string();
    assert_eq!((shown.url.as_str(), shown.digest, shown.layer), (URL, of_manifest, first.to_string()));
    let order = serde_json::to_string(&command).unwrap();
    assert!(token.starts_with("Bearer t") && !order.contains("hunter2") && !order.contains("dTpodW"), "{order}");
    // While the agent has the order, nobody is asked.
    shelf.asked();
    provision(&world, "wish").await.unwrap();
    assert_eq!(shelf.asked(), [""; 0]);
    // The tag is moved, the attempt fails, and the server is another one.
    let second = shelf.push("stable", "two");
    let lost =
        agent_protocol::CommandError { code: ErrorCode::ImageUnreachable, message: "lost".into(), untouched: false };
    agent.finished(&command, AgentOutcome::Failed(lost));
    agent.say(&world).await;
    let failure = provision(&world, "wish").await.unwrap_err();
    assert!(failure.cause == Cause::ImageUnavailable && failure.text().contains("registry"), "{failure:?}");
    world.restart();
    // The agent has been told that its outcome is known, and waits.
    *agent.state.lock().unwrap() = AgentState::Idle;
    let failure = provision(&world, "wish").await.unwrap_err();
    assert_eq!(failure.cause, Cause::ImageUnavailable, "the host may not have heard of it");
    let (command, write) = ordered(&world, request("wish"), &agent).await;
    assert_eq!(write.image.checksum, first.hex());
    assert_ne!(write.image.authorization.unwrap().0, token, "each order has a token of its own");
    assert!(!shelf.asked().iter().any(|asked| asked.contains("/manifests/stable")), "the tag was followed again");
    agent
        .finished(&command, AgentOutcome::Written(WriteSummary { disk: "/dev/vda".into(), ..WriteSummary::default() }));
    agent.say(&world).await;
    provision(&world, "wish").await.unwrap();
    let left = agent.given(&world).await;
    agent.finished(&left, AgentOutcome::Leaving);
    agent.say(&world).await;
    assert_eq!(provision(&world, "wish").await.unwrap(), Verdict::Done(()));
    // What is provisioned is looked at no more; another wish follows the tag again.
    shelf.asked();
    assert_eq!(provision(&world, "wish").await.unwrap(), Verdict::Done(()));
    assert_eq!(shelf.asked(), [""; 0]);
    provision(&world, "another").await.unwrap();
    let shown = world.journal.all().pop().unwrap().1.image.unwrap();
    assert_eq!(shown.layer, second.to_string());
}

/// What nothing names would be written as it is, whatever it is.
#[tokio::test(start_paused = true)]
async fn a_layer_that_does_not_say_what_it_is_needs_the_hosts_word() {
    let shelf = Shelf::default();
    shelf.push_as("stable", "one", "disk");
    let world = shelf.world();
    let failure = provision(&world, "wish").await.unwrap_err();
    assert!(failure.cause == Cause::ImageInvalid && failure.text().contains("spec.image.format"), "{failure:?}");
    assert_eq!(world.calls(), [""; 0]);
    let mut asked = request("another");
    asked.image.format = Some(api::metal3::DiskFormat::Raw);
    world.host().provision(asked).await.unwrap();
    // Nor is a word taken that no agent can keep.
    let shelf = Shelf::default();
    shelf.push("stable", "one");
    let mut asked = request("wish");
    asked.image.format = Some(api::metal3::DiskFormat::Qcow2);
    let failure = shelf.world().host().provision(asked).await.unwrap_err();
    assert!(failure.cause == Cause::ImageInvalid && failure.text().contains("as a whole"), "{failure:?}");
}

/// The registry has thrown away what the tag named.
#[tokio::test(start_paused = true)]
async fn a_pinned_manifest_that_is_gone_is_let_go() {
    let shelf = Shelf::default();
    shelf.push("stable", "one");
    let world = shelf.world();
    world.host().provision(request("wish")).await.unwrap();
    let second = shelf.push("stable", "two");
    shelf.0.lock().unwrap().manifests.retain(|_, bytes| String::from_utf8_lossy(bytes).contains(second.as_str()));
    let agent = Agent::new(world.journal.latest_boot().unwrap().generation, "boot-1");
    agent.say(&world).await;
    let failure = world.host().provision(request("wish")).await.unwrap_err();
    assert!(failure.cause == Cause::ImageNotFound && failure.text().contains("next attempt"), "{failure:?}");
    let again = ProvisionRequest { attempt: 2, ..request("later") };
    let (_, write) = ordered(&world, again, &agent).await;
    assert_eq!(write.image.checksum, second.hex());
}

/// A host whose attempt has failed is deprovisioned and begins anew, and its wish is another one.
#[tokio::test(start_paused = true)]
async fn later_attempts_of_a_host_write_what_the_first_one_found() {
    let asked = |wish: &str, attempt| ProvisionRequest { attempt, ..request(wish) };
    let shelf = Shelf::default();
    let first = shelf.push("stable", "one");
    let world = shelf.world();
    world.host().provision(asked("first", 1)).await.unwrap();
    let agent = Agent::new(world.journal.latest_boot().unwrap().generation, "boot-1");
    let fails = async |wish: &str, attempt| {
        let (command, write) = ordered(&world, asked(wish, attempt), &agent).await;
        let lost = agent_protocol::CommandError {
            code: ErrorCode::ImageUnreachable,
            message: "lost".into(),
            untouched: false,
        };
        agent.finished(&command, AgentOutcome::Failed(lost));
        agent.say(&world).await;
        assert!(world.host().provision(asked(wish, attempt)).await.is_err());
        write.image.checksum
    };
    assert_eq!(fails("first", 1).await, first.hex());
    let second = shelf.push("stable", "two");
    assert_eq!(fails("second", 2).await, first.hex(), "the tag was followed again");
    // Where the first attempt for a new wish finds nothing out, the next one does not go by an earlier wish.
    shelf.breaks(Some(Answer { status: 503, ..Answer::default() }));
    assert!(world.host().provision(asked("new", 1)).await.is_err());
    shelf.breaks(None);
    assert_eq!(fails("new, later", 2).await, second.hex());
}

#[tokio::test(start_paused = true)]
async fn what_a_registry_refuses_is_told_before_the_machine_is_touched() {
    let said = |status, challenge: &str| {
        let challenges = Some(challenge.to_owned()).filter(|text| !text.is_empty()).into_iter().collect();
        Some(Answer { status, challenges, ..Answer::default() })
    };
    for (answer, cause, retry, says) in [
        (said(403, ""), Cause::ImageDenied, Retry::Later, "HTTP 403"),
        (said(404, ""), Cause::ImageNotFound, Retry::Later, "no such image"),
        (said(429, ""), Cause::ImageUnavailable, Retry::Later, "no more requests"),
        (said(401, "Basic realm=\"r\""), Cause::InvalidRequest, Retry::Later, "no token service"),
        (said(401, "Bearer realm=\"https://127.0.0.1/t\""), Cause::InvalidRequest, Retry::AfterChange, "not called"),
        (said(200, ""), Cause::ImageInvalid, Retry::Later, "none of OCI's"),
    ] {
        let shelf = Shelf::default();
        shelf.breaks(answer);
        let world = shelf.world();
        let failure = provision(&world, "wish").await.unwrap_err();
        assert_eq!((failure.cause, failure.retry), (cause, retry), "{failure:?}");
        let text = failure.text();
        assert!(text.contains(says) && text.contains("registry.example/team/os:stable"), "{text}");
        assert!(!format!("{text} {failure:?} {:?}", world.journal.all()).contains("hunter2"), "{text}");
        assert_eq!(world.calls(), [""; 0]);
        let (_, status) = world.journal.all().pop().unwrap();
        assert_eq!(status.error.unwrap().cause, cause.as_str());
    }
    let shelf = Shelf::default();
    shelf.push("stable", "one");
    let world = shelf.world();
    for (secret, says) in [("hunter2", "config.json"), ("{\"auths\":{}}", "no entry for registry.example")] {
        let asked = ProvisionRequest { pull_secret: Some(SecretText(secret.into())), ..request("wish") };
        let failure = world.host().provision(asked).await.unwrap_err();
        assert_eq!((failure.cause, failure.retry), (Cause::InvalidRequest, Retry::Waiting));
        let text = failure.text();
        assert!(text.contains(says) && text.contains("ociAuthSecretName") && !text.contains("hunter2"), "{text}");
    }
    for url in ["oci://docker.io/debian", "oci://registry.example/Upper", "oci://user:hunter2@registry.example/os"] {
        let asked = ProvisionRequest { image: Image { url: url.into(), ..Image::default() }, ..request("wish") };
        let failure = world.host().provision(asked).await.unwrap_err();
        assert_eq!((failure.cause, failure.retry), (Cause::InvalidRequest, Retry::AfterChange));
        assert!(!failure.text().contains("hunter2"), "{failure:?}");
    }
    assert_eq!((world.calls(), shelf.asked()), (vec![], vec![]));
}
