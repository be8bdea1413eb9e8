//! A registry of images with a token service, scripted, on which a tag can be moved.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use addresses::Allowed;
use async_trait::async_trait;
use oci_registry::{Answer, Digest, Registries, Request, Transport, TransportError};
use secrecy::ExposeSecret as _;
use serde_json::json;

/// Where it is.
pub const REGISTRY: &str = "registry.example";
/// The repository that it has.
pub const REPOSITORY: &str = "team/os";
/// `u` with the password `p`.
const USER: &str = "Basic dTpw";

/// The registry.
#[derive(Clone, Default)]
pub struct Shelf(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    tags: BTreeMap<String, Vec<u8>>,
    manifests: BTreeMap<String, Vec<u8>>,
    tokens: usize,
    followed: usize,
}

impl Shelf {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This tag names a disk image of this content from now on. Address of its layer.
    pub fn push(&self, tag: &str, content: &str) -> String {
        let layer = Digest::of(content.as_bytes());
        let descriptor = json!({"mediaType": "application/octet-stream", "digest": layer, "size": content.len(),
            "annotations": {"org.opencontainers.image.title": "disk.raw"}});
        let manifest = json!({"schemaVersion": 2, "artifactType": "application/vnd.example", "layers": [descriptor]});
        let bytes = manifest.to_string().into_bytes();
        let mut kept = self.lock();
        kept.manifests.insert(Digest::of(&bytes).to_string(), bytes.clone());
        kept.tags.insert(tag.to_owned(), bytes);
        format!("https://{REGISTRY}/v2/{REPOSITORY}/blobs/{layer}")
    }

    /// How often a tag was followed.
    pub fn followed(&self) -> usize {
        self.lock().followed
    }

    /// What a server is told of it.
    pub fn registries(&self) -> Registries {
        Registries::new(self.clone(), Allowed::default(), [])
    }
}

#[async_trait]
impl Transport for Shelf {
    async fn get(&self, request: Request<'_>) -> Result<Answer, TransportError> {
        let mut kept = self.lock();
        let given = request.authorization.map(|given| given.expose_secret().to_owned()).unwrap_or_default();
        let answer = |status, body: &[u8]| Answer { status, body: body.to_vec(), ..Answer::default() };
        if request.url.path() == "/token" {
            if given != USER {
                return Ok(answer(401, b""));
            }
            kept.tokens += 1;
            return Ok(answer(200, format!("{{\"token\":\"t{}\"}}", kept.tokens).as_bytes()));
        }
        if given != format!("Bearer t{}", kept.tokens) {
            let challenges = vec!["Bearer realm=\"https://registry.example/token\"".to_owned()];
            return Ok(Answer { challenges, ..answer(401, b"") });
        }
        let name = request.url.path().rsplit('/').next().unwrap_or_default();
        kept.followed += usize::from(kept.tags.contains_key(name));
        let found = kept.tags.get(name).or_else(|| kept.manifests.get(name));
        Ok(found.map_or_else(|| answer(404, b""), |bytes| answer(200, bytes)))
    }
}
