//! Images in a real registry, Debian's `docker-registry`: open, with tokens that it verifies, and with passwords alone.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::metal3::ProvisioningState as State;
use axum::Router;
use axum::extract::{RawQuery, State as Shared};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::get;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use e2e::{DiskImage, Options, Running, World};
use rcgen::{CertificateParams, KeyPair};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::process::Command;

const USER: &str = "puller";
const PASSWORD: &str = "hunter2-of-the-registry";
/// That password, by bcrypt.
const HTPASSWD: &str = "puller:$2b$04$0v59zjLwKqKOPZ1qr5DDX.qMpnIA2TxdnvKsgrSNlJiUZ94yt/t.6";

/// A registry, and where it listens.
struct Registry {
    process: Running,
    address: String,
}

impl Registry {
    /// Starts one on what is stored in this folder, with this part of its configuration.
    async fn start(folder: &Path, name: &str, auth: Value) -> Self {
        let mut config = json!({
            "version": "0.1",
            "log": {"level": "info"},
            "storage": {"filesystem": {"rootdirectory": folder.join("store")}},
            "http": {"addr": "127.0.0.1:0", "secret": "of this test"},
        });
        if !auth.is_null() {
            config["auth"] = auth;
        }
        let file = folder.join(format!("{name}.yml"));
        // JSON is YAML.
        std::fs::write(&file, config.to_string()).unwrap();
        let mut command = Command::new("docker-registry");
        command.arg("serve").arg(file);
        let process =
            Running::start(command, &folder.join(format!("{name}.log"))).expect("make setup installs docker-registry");
        process.wait_logged("listening on ", 60).await.unwrap();
        let logged = process.logged();
        let address = logged.split("listening on ").nth(1).unwrap();
        let address = address.split('"').next().unwrap().to_owned();
        Self { process, address }
    }

    fn url(&self) -> String {
        format!("oci://{}/team/os:stable", self.address)
    }
}

/// Pushes the file as an artifact of one layer with this title, by skopeo from a layout (image-spec, `image-layout.md`).
async fn push(folder: &Path, registry: &Registry, bytes: &[u8], title: &str) {
    let layout = folder.join("layout");
    let blobs = layout.join("blobs/sha256");
    let _ = std::fs::remove_dir_all(&layout);
    std::fs::create_dir_all(&blobs).unwrap();
    let keep = |bytes: &[u8]| {
        let digest = hex::encode(Sha256::digest(bytes));
        std::fs::write(blobs.join(&digest), bytes).unwrap();
        json!({"digest": format!("sha256:{digest}"), "size": bytes.len()})
    };
    let (mut layer, mut config) = (keep(bytes), keep(b"{}"));
    layer["mediaType"] = json!("application/zstd");
    layer["annotations"] = json!({"org.opencontainers.image.title": title});
    config["mediaType"] = json!("application/vnd.oci.empty.v1+json");
    let kind = "application/vnd.oci.image.manifest.v1+json";
    let manifest = json!({"schemaVersion": 2, "mediaType": kind, "config": config, "layers": [layer]});
    let mut entry = keep(manifest.to_string().as_bytes());
    entry["mediaType"] = json!(kind);
    std::fs::write(layout.join("index.json"), json!({"schemaVersion": 2, "manifests": [entry]}).to_string()).unwrap();
    std::fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
    let (from, to) = (format!("oci:{}", layout.display()), format!("docker://{}/team/os:stable", registry.address));
    let mut skopeo = Command::new("skopeo");
    skopeo.args(["--insecure-policy", "copy", "--dest-tls-verify=false", &from, &to]).env("HOME", folder);
    let output = skopeo.kill_on_drop(true).output().await.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}; {}", registry.process.tail());
}

/// What a token service was asked: query and `Authorization`.
type Asked = Arc<Mutex<Vec<(String, String)>>>;

/// A token service that signs for whoever shows the password, with a key of its own (distribution, "Token Authentication Implementation").
struct Tokens {
    realm: String,
    /// Its certificate, in PEM.
    certificate: String,
    asked: Asked,
}

impl Tokens {
    async fn start() -> Self {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(["tokens".to_owned()]).unwrap().self_signed(&key).unwrap();
        let pkcs8 = key.serialize_der();
        let (pem, der) = (certificate.pem(), STANDARD.encode(certificate.der()));
        let asked = Asked::default();
        let answer = async move |Shared(asked): Shared<Asked>, RawQuery(query): RawQuery, headers: HeaderMap| {
            let given = headers.get("authorization").map_or("", |value| value.to_str().unwrap()).to_owned();
            asked.lock().unwrap().push((query.unwrap_or_default(), given.clone()));
            if given != format!("Basic {}", STANDARD.encode(format!("{USER}:{PASSWORD}"))) {
                return Err(StatusCode::UNAUTHORIZED);
            }
            let encode = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
            let header = encode(json!({"typ": "JWT", "alg": "ES256", "x5c": [der]}));
            let access = json!([{"type": "repository", "name": "team/os", "actions": ["pull"]}]);
            let claims = encode(
                json!({"iss": "tokens", "sub": USER, "aud": "registry", "exp": 4_102_444_800_u64, "nbf": 0, "iat": 0,
                "jti": "1", "access": access}),
            );
            let random = SystemRandom::new();
            let signer = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &pkcs8, &random).unwrap();
            let signed = signer.sign(&random, format!("{header}.{claims}").as_bytes()).unwrap();
            let token = format!("{header}.{claims}.{}", URL_SAFE_NO_PAD.encode(signed));
            Ok(json!({"token": token}).to_string())
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let realm = format!("http://{}/token", listener.local_addr().unwrap());
        let router = Router::new().route("/token", get(answer)).with_state(Arc::clone(&asked));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { realm, certificate: pem, asked }
    }
}

async fn pull_secret(world: &World, registry: &Registry) {
    let config = json!({"auths": {&registry.address: {"username": USER, "password": PASSWORD}}}).to_string();
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "pull"},
        "type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": config}});
    world.kubectl(&["apply", "-f", "-"], &secret.to_string()).await.unwrap();
}

#[tokio::test]
async fn a_machine_is_provisioned_from_a_real_registry_open_and_with_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let image = DiskImage::small().unwrap();
    let packed = zstd::encode_all(image.bytes.as_slice(), 3).unwrap();
    let open = Registry::start(folder, "open", Value::Null).await;
    push(folder, &open, &packed, "disk.raw.zst").await;
    let tokens = Tokens::start().await;
    let bundle = folder.join("tokens.pem");
    std::fs::write(&bundle, &tokens.certificate).unwrap();
    let auth =
        json!({"token": {"realm": tokens.realm, "service": "registry", "issuer": "tokens", "rootcertbundle": bundle}});
    let guarded = Registry::start(folder, "guarded", auth).await;
    let plain = ["--http-registry", open.address.as_str(), "--http-registry", guarded.address.as_str()];
    let world = World::start(Options::one_fake().with(&plain)).await.unwrap();

    // Nobody is asked for a password.
    world.apply_host("node-0", json!({"image": {"url": open.url()}})).await.unwrap();
    world.wait_state("node-0", 180, State::Provisioned).await.unwrap();
    world.sim.wait("node-0", 60, "booted from its disk", |machine| machine["running"] == "disk").await.unwrap();
    let digest = format!("sha256:{}", hex::encode(Sha256::digest(&packed)));
    let operations = world.operations("node-0").await.unwrap();
    let shown = operations.iter().filter_map(|operation| operation.status.as_ref()?.image.clone()).next_back().unwrap();
    assert_eq!((shown.url, shown.layer), (open.url(), digest));

    // The registry verifies the token that the agent shows, and the token service has seen the password; nobody else has.
    pull_secret(&world, &guarded).await;
    world
        .patch("node-0", json!({"spec": {"image": {"url": guarded.url(), "ociAuthSecretName": "pull"}}}))
        .await
        .unwrap();
    let newer = |host: &api::metal3::BareMetalHost| {
        host.state() == State::Provisioned
            && host.status.as_ref().is_some_and(|status| status.provisioning.image.url == guarded.url())
    };
    world.wait("node-0", 240, "provisioned anew", newer).await.unwrap();
    let asked = tokens.asked.lock().unwrap().clone();
    assert!(
        !asked.is_empty() && asked.iter().all(|(query, _)| query.contains("repository%3Ateam%2Fos%3Apull")),
        "{asked:?}"
    );
    let blobs = guarded.process.logged();
    assert!(blobs.contains("/v2/team/os/blobs/sha256:"), "{}", guarded.process.tail());
    for text in [
        blobs,
        world.server.logged(),
        world.kubectl(&["get", "bmh,hostoperations,machinerecords,events", "-o", "yaml"], "").await.unwrap(),
    ] {
        assert!(!text.contains(PASSWORD) && !text.contains("eyJ0eXAi"), "a secret is shown");
    }
}

#[tokio::test]
async fn a_registry_that_takes_passwords_alone_is_refused_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let file = folder.join("htpasswd");
    std::fs::write(&file, HTPASSWD).unwrap();
    let guarded = Registry::start(folder, "guarded", json!({"htpasswd": {"realm": "all", "path": file}})).await;
    let world = World::start(Options::one_fake().with(&["--http-registry", &guarded.address])).await.unwrap();
    pull_secret(&world, &guarded).await;
    let image = json!({"url": guarded.url(), "ociAuthSecretName": "pull"});
    world.apply_host("node-0", json!({"image": image})).await.unwrap();
    let says = ["takes user and password alone", "token service", &guarded.address];
    let host = world.expect_error("node-0", "provisioning error", &says).await.unwrap();
    assert!(!host.to_string().contains(PASSWORD));
    world.expect_cause("node-0", "Provision", "InvalidRequest").await.unwrap();
    let machine = world.sim.now("node-0").await.unwrap();
    assert_ne!(machine["running"], "disk", "{machine}");
}

/// tinyproxy, which wants a user; where it listens, and where it says what it does.
struct Proxy {
    _process: Running,
    url: String,
    log: PathBuf,
}

impl Proxy {
    async fn start(folder: &Path) -> Self {
        let log = folder.join("proxy.log");
        // Another program may take the port in between.
        for attempt in 0..10 {
            let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            let file = folder.join("tinyproxy.conf");
            let (port, said) = (address.port(), log.display());
            let settings = format!(
                "Port {port}\nListen 127.0.0.1\nTimeout 60\nBasicAuth {USER} {PASSWORD}\nLogLevel Info\nLogFile \"{said}\"\n"
            );
            std::fs::write(&file, settings).unwrap();
            let mut command = Command::new("tinyproxy");
            command.arg("-d").arg("-c").arg(&file);
            let process = Running::start(command, &folder.join(format!("proxy-{attempt}.out")))
                .expect("make setup installs tinyproxy-bin");
            for _ in 0..200 {
                if tokio::net::TcpStream::connect(address).await.is_ok() {
                    return Self { _process: process, url: format!("http://{address}"), log };
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        panic!("tinyproxy does not start");
    }
}

/// Nobody resolves the registry that the host names; its mirror is a real one, and so is the proxy by way of which server and agent ask it.
#[tokio::test]
async fn an_image_of_a_registry_out_of_reach_is_read_from_its_mirror_by_way_of_a_proxy() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let image = DiskImage::small().unwrap();
    let packed = zstd::encode_all(image.bytes.as_slice(), 3).unwrap();
    let mirror = Registry::start(folder, "mirror", Value::Null).await;
    push(folder, &mirror, &packed, "disk.raw.zst").await;
    let proxy = Proxy::start(folder).await;
    let login = folder.join("login");
    std::fs::write(&login, format!("{USER}:{PASSWORD}\n")).unwrap();
    let login = login.to_str().unwrap();
    let mut flags = vec!["--http-registry", &mirror.address, "--image-proxy", &proxy.url];
    flags.extend(["--image-proxy-login", login, "--image-proxy-login-for-agents"]);
    let world = World::start(Options::one_fake().with(&flags)).await.unwrap();
    let rules = json!({"mirrors": [
        {"prefix": "oci://registry.invalid", "locations": [format!("oci://{}", mirror.address)], "fallback": false, "tags": true},
    ]});
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "metamorph-images"},
        "data": {"images.yaml": rules.to_string()}});
    world.kubectl(&["apply", "-f", "-"], &map.to_string()).await.unwrap();
    world.apply_host("node-0", json!({"image": {"url": "oci://registry.invalid/team/os:stable"}})).await.unwrap();
    world.wait_state("node-0", 180, State::Provisioned).await.unwrap();
    world.sim.wait("node-0", 60, "booted from its disk", |machine| machine["running"] == "disk").await.unwrap();
    let operations = serde_json::to_string(&world.operations("node-0").await.unwrap()).unwrap();
    let layer = format!("http://{}/v2/team/os/blobs/sha256:{}", mirror.address, hex::encode(Sha256::digest(&packed)));
    assert!(operations.contains(&format!("read from {layer} by way of the proxy {}", proxy.url)), "{operations}");
    let carried = std::fs::read_to_string(&proxy.log).unwrap();
    for part in ["manifests/stable", "blobs/sha256:"] {
        let asked = format!("GET http://{}/v2/team/os/{part}", mirror.address);
        assert!(carried.contains(&asked), "{asked}: {carried}");
    }
    let encoded = STANDARD.encode(format!("{USER}:{PASSWORD}"));
    for text in [
        operations,
        mirror.process.logged(),
        world.server.logged(),
        world.kubectl(&["get", "bmh,hostoperations,machinerecords,events", "-o", "yaml"], "").await.unwrap(),
    ] {
        assert!(!text.contains(PASSWORD) && !text.contains(&encoded), "a secret is shown");
    }
}
