//! The rights that `metamorph rbac` prints: an operator does a host's whole life under them, is refused nothing, and uses each.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use api::metal3::{BareMetalHost, ProvisioningState, finalizer};
use e2e::{DiskImage, ImageServer, Running, Sim, agent_image, machine, program};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::discovery;
use crate::keys::keys;

const ACCOUNT: &str = "system:serviceaccount:metamorph-system:metamorph";

/// An API without controllers, and what is said to it by its administrator.
struct Cluster {
    folder: tempfile::TempDir,
    _api: Running,
}

impl Cluster {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut serve = Command::new(program("metamorph").unwrap());
        serve.args(["api", "serve", "--api-listen", "127.0.0.1:0", "--data"]).arg(folder.path().join("data"));
        serve.arg("--api-audit-log").arg(folder.path().join("audit"));
        let api = Running::start(serve, &folder.path().join("api.log")).unwrap();
        api.wait_logged("is up at", 30).await.unwrap();
        Self { folder, _api: api }
    }

    fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("data/kubeconfig")
    }

    async fn kubectl(&self, arguments: &[&str], input: &str) -> String {
        let mut command = Command::new("kubectl");
        command.arg("--kubeconfig").arg(self.kubeconfig()).args(arguments).env("HOME", self.folder.path());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).await.unwrap();
        let output = child.wait_with_output().await.unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    async fn apply(&self, object: &Value) {
        self.kubectl(&["apply", "-f", "-"], &object.to_string()).await;
    }

    /// A token of a service account.
    async fn token_of(&self, namespace: &str, account: &str) -> String {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
        let asked = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": { "expirationSeconds": 3600 } });
        let answer = self.kubectl(&["create", "--raw", &path, "-f", "-"], &asked.to_string()).await;
        serde_json::from_str::<Value>(&answer).unwrap()["status"]["token"].as_str().unwrap().to_owned()
    }

    /// A kubeconfig of the operator's service account.
    async fn kubeconfig_of_account(&self) -> PathBuf {
        let token = self.token_of("metamorph-system", "metamorph").await;
        let mut config: Value = serde_saphyr::from_str(&std::fs::read_to_string(self.kubeconfig()).unwrap()).unwrap();
        config["users"][0]["user"] = json!({ "token": token });
        let file = self.folder.path().join("account");
        std::fs::write(&file, config.to_string()).unwrap();
        file
    }

    async fn client(&self) -> Client {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let file = Kubeconfig::read_from(self.kubeconfig()).unwrap();
        Client::try_from(Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap()).unwrap()
    }

    /// What the account has asked for: group, resource and verb; and what it was refused.
    fn asked(&self) -> (BTreeSet<String>, BTreeSet<String>) {
        let (mut asked, mut refused) = (BTreeSet::new(), BTreeSet::new());
        for line in std::fs::read_to_string(self.folder.path().join("audit")).unwrap().lines() {
            let Ok(event) = serde_json::from_str::<Value>(line) else { continue };
            let object = &event["objectRef"];
            if event["user"]["username"] != ACCOUNT || object["resource"].is_null() {
                continue;
            }
            let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
            let resource =
                [text("resource"), text("subresource")].iter().filter(|t| !t.is_empty()).cloned().collect::<Vec<_>>();
            let scope = if text("namespace") == "metamorph-system" { "own " } else { "" };
            let right =
                format!("{scope}{}/{} {}", text("apiGroup"), resource.join("/"), event["verb"].as_str().unwrap());
            if event["responseStatus"]["code"] == 403 {
                refused.insert(right.clone());
            }
            asked.insert(right);
        }
        (asked, refused)
    }
}

/// The rights of the manifests, written as [`Cluster::asked`] writes them.
fn given(manifests: &str) -> BTreeSet<String> {
    let mut given = BTreeSet::new();
    for document in manifests.split("---\n").filter(|text| !text.trim().is_empty()) {
        let object: Value = serde_saphyr::from_str(document).unwrap();
        let scope = if object["kind"] == "Role" { "own " } else { "" };
        // What is for others: readers of metrics.
        if object["metadata"]["name"] == "metamorph-metrics-reader" {
            continue;
        }
        for rule in object["rules"].as_array().into_iter().flatten() {
            for verb in rule["verbs"].as_array().unwrap() {
                let (group, resource) =
                    (rule["apiGroups"][0].as_str().unwrap(), rule["resources"][0].as_str().unwrap());
                given.insert(format!("{scope}{group}/{resource} {}", verb.as_str().unwrap()));
            }
        }
    }
    given
}

async fn wait(api: &Api<BareMetalHost>, name: &str, what: impl Fn(&BareMetalHost) -> bool + Send, log: &Running) {
    let condition = |host: Option<&BareMetalHost>| host.is_some_and(&what);
    let waited = kube::runtime::wait::await_condition(api.clone(), name, condition);
    let waited = tokio::time::timeout(std::time::Duration::from_secs(60), waited).await;
    assert!(matches!(waited, Ok(Ok(_))), "{name}: {}", log.tail());
}

/// Starts an operator, with webhook and metrics at these ports.
fn operator(kubeconfig: &Path, folder: &Path, secured: Option<[u16; 2]>) -> Running {
    let mut command = Command::new(program("metamorph").unwrap());
    command.arg("operator").arg("--kubeconfig").arg(kubeconfig).args([
        "--retry-after",
        "1",
        "--power-poll",
        "1",
        "--provisioner",
        "metamorph,fixture",
    ]);
    command.args(["--media-listen", "127.0.0.1:0", "--agent-listen", "127.0.0.1:0", "--health-listen", "127.0.0.1:0"]);
    command.args(["--allow-address", "127.0.0.0/8"]);
    if let Some([webhook, metrics]) = secured {
        command.args(["--webhook-listen", &format!("127.0.0.1:{webhook}")]);
        command.args(["--webhook-url", &format!("https://127.0.0.1:{webhook}")]);
        command.args(["--metrics-listen", &format!("127.0.0.1:{metrics}"), "--metrics-host", "127.0.0.1"]);
    }
    command.arg("--agent-image").arg(agent_image().unwrap());
    Running::start(command, &folder.join("operator.log")).unwrap()
}

/// A host with its Secret, and what only some hosts meet: HardwareData of its name, operations that are too many, one of somebody else.
async fn declare(cluster: &Cluster, sim: &Sim, hosts: &Api<BareMetalHost>) {
    let machine = sim.machine("node-0");
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "bmc" },
        "stringData": { "username": machine["username"], "password": machine["password"] } });
    cluster.apply(&secret).await;
    let host = json!({ "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
        "metadata": { "name": "node-0", "labels": { "for": "claims" } }, "spec": { "online": true, "bootMACAddress": machine["mac"],
            "bmc": { "address": sim.address("node-0"), "credentialsName": "bmc" } } });
    cluster.apply(&host).await;
    let uid = hosts.get("node-0").await.unwrap().uid().unwrap();
    let owner = json!([{ "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "name": "node-0", "uid": uid, "controller": true }]);
    let operation = |number: usize, owner: &Value| {
        json!({ "apiVersion": "metamorph.metal3.io/v1alpha1", "kind": "HostOperation",
            "metadata": { "name": format!("node-0-{number:03}-inspect"), "ownerReferences": owner,
                "labels": { api::metal3::label::HOST: "node-0" } },
            "spec": { "type": "Inspect", "host": { "name": "node-0", "uid": uid } } })
    };
    for number in 1..=21 {
        cluster.apply(&operation(number, &owner)).await;
        let name = format!("node-0-{number:03}-inspect");
        let status = json!({ "status": { "phase": "Cancelled" } }).to_string();
        cluster
            .kubectl(&["patch", "hostoperation", &name, "--subresource=status", "--type=merge", "-p", &status], "")
            .await;
    }
    cluster.apply(&operation(22, &json!([]))).await;
}

/// Hosts of machines in memory, whose provisioner serves firmware: the objects of the first are there already, and nobody owns them; the second has none, and
/// shares the first one's schema.
async fn declare_firmware(cluster: &Cluster, hosts: &Api<BareMetalHost>, log: &Running) {
    for (kind, spec) in [
        ("HostFirmwareSettings", json!({ "settings": {} })),
        ("HostFirmwareComponents", json!({ "updates": [] })),
        ("HostUpdatePolicy", json!({ "firmwareSettings": "onReboot" })),
    ] {
        let object =
            json!({ "apiVersion": "metal3.io/v1alpha1", "kind": kind, "metadata": { "name": "firm-1" }, "spec": spec });
        cluster.apply(&object).await;
    }
    for (number, name) in [(1, "firm-1"), (2, "firm-2")] {
        let host = json!({ "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": { "name": name,
                "annotations": { "metamorph.metal3.io/provisioner": "fixture" } },
            "spec": { "online": false, "bootMACAddress": format!("00:00:00:00:00:0{number}"), "inspectionMode": "disabled",
                "bmc": { "address": format!("redfish-virtualmedia+http://127.0.0.1:9/redfish/v1/Systems/{name}"), "credentialsName": "bmc" } } });
        cluster.apply(&host).await;
        wait(hosts, name, |host| host.state() == ProvisioningState::Available, log).await;
    }
    let why = json!({ "apiVersion": "metamorph.metal3.io/v1alpha1", "kind": "HostOperation", "metadata": { "name": "why" },
        "spec": { "type": "Diagnose", "host": { "name": "firm-1" } } });
    cluster.apply(&why).await;
    let ended = ["wait", "hostoperation", "why", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=60s"];
    cluster.kubectl(&ended, "").await;
}

/// A claim of another namespace has the host for a while, with a Secret that changes; there is a switch, and an image that baremetal-operator has left.
async fn claimed(cluster: &Cluster, hosts: &Api<BareMetalHost>, image: &Value, server: &Running) {
    let metal = |kind: &str, metadata: Value, spec: Value| json!({ "apiVersion": "metal3.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec });
    let data = |text: &str| {
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "cloud", "namespace": "tenant" },
            "stringData": { "userData": text } })
    };
    let switch = json!({ "address": "192.0.2.9", "macAddress": "00:11:22:33:44:55", "deviceType": "x" });
    let admitted = json!({ "hostClaimNamespaces": { "names": ["tenant"] } });
    let wish = json!({ "poweredOn": true, "image": image, "userData": { "name": "cloud" },
        "hostSelector": { "matchLabels": { "for": "claims" } } });
    for object in [
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "tenant" } }),
        data("one"),
        metal("BareMetalSwitch", json!({ "name": "switch" }), switch),
        metal("PreprovisioningImage", json!({ "name": "left", "finalizers": [finalizer::BOOT_IMAGE] }), json!({})),
        metal("HostDeployPolicy", json!({ "name": "tenants" }), admitted),
        metal("HostClaim", json!({ "name": "claim", "namespace": "tenant" }), wish),
    ] {
        cluster.apply(&object).await;
    }
    wait(hosts, "node-0", |host| host.state() == ProvisioningState::Provisioned, server).await;
    cluster.kubectl(&["wait", "-n", "tenant", "--for=condition=Ready", "hostclaim/claim", "--timeout=60s"], "").await;
    cluster.kubectl(&["wait", "--for=condition=Valid=false", "baremetalswitch/switch", "--timeout=60s"], "").await;
    cluster.kubectl(&["delete", "preprovisioningimage", "left", "--timeout=60s"], "").await;
    cluster.apply(&data("two")).await;
    let copy = format!("-l={}", api::metal3::label::CLAIM);
    let two = "--for=jsonpath={.data.userData}=dHdv";
    cluster.kubectl(&["wait", two, "secret", &copy, "--timeout=60s"], "").await;
    cluster.kubectl(&["delete", "-n", "tenant", "hostclaim", "claim", "--timeout=120s"], "").await;
    wait(hosts, "node-0", |host| host.state() == ProvisioningState::Available, server).await;
}

/// A class that the host matches, for a while.
async fn classified(cluster: &Cluster, hosts: &Api<BareMetalHost>, server: &Running) {
    let wanted = json!({ "hardwareCharacteristics": { "nic": { "maximumCount": 1000 } } });
    let class = json!({ "apiVersion": "metal3.io/v1alpha1", "kind": "HardwareClassification", "metadata": { "name": "any" }, "spec": wanted });
    cluster.apply(&class).await;
    let label = format!("{}any", api::metal3::label::CLASS_PREFIX);
    wait(hosts, "node-0", |host| host.labels().contains_key(&label), server).await;
    let counted = "--for=jsonpath={.status.profileMatchStatus}=matched";
    cluster.kubectl(&["wait", counted, "hardwareclassification/any", "--timeout=60s"], "").await;
    cluster.kubectl(&["delete", "hardwareclassification", "any", "--timeout=60s"], "").await;
    let rules = json!([{ "name": "any", "expression": "hardware.nics.size() < 1000" }]);
    let class = json!({ "apiVersion": "metamorph.metal3.io/v1alpha1", "kind": "HostClass", "metadata": { "name": "any" },
        "spec": { "rules": rules, "result": { "flavor": "any" } } });
    cluster.apply(&class).await;
    wait(hosts, "node-0", |host| host.labels().contains_key(api::metal3::label::FLAVOR), server).await;
    cluster.kubectl(&["wait", "--for=condition=Applied", "hostclass/any", "--timeout=60s"], "").await;
    cluster.kubectl(&["delete", "hostclass", "any", "--timeout=60s"], "").await;
    wait(hosts, "node-0", |host| !host.labels().contains_key(api::metal3::label::FLAVOR), server).await;
}

/// A medium that the next reboot attaches, and a subscription to the BMC's events.
async fn beside(cluster: &Cluster, url: &str) {
    let destination = "https://events.example/hook";
    for (kind, name, spec) in [
        ("DataImage", "node-0", json!({ "url": url })),
        ("BMCEventSubscription", "events", json!({ "hostName": "node-0", "destination": destination })),
    ] {
        let object =
            json!({ "apiVersion": "metal3.io/v1alpha1", "kind": kind, "metadata": { "name": name }, "spec": spec });
        cluster.apply(&object).await;
    }
    let made = "--for=jsonpath={.status.subscriptionID}";
    cluster.kubectl(&["wait", made, "bmceventsubscription/events", "--timeout=60s"], "").await;
}

/// Metrics are read by whom a binding allows it, with the certificate that the operator keeps in a Secret, and by nobody else.
async fn scraped(cluster: &Cluster, port: u16) {
    for name in ["prometheus", "guest"] {
        let metadata = json!({ "name": name, "namespace": "default" });
        cluster.apply(&json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata })).await;
    }
    let group = "rbac.authorization.k8s.io";
    let binding = json!({ "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": { "name": "prometheus" },
        "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": "metamorph-metrics-reader" },
        "subjects": [{ "kind": "ServiceAccount", "name": "prometheus", "namespace": "default" }] });
    cluster.apply(&binding).await;
    let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(cluster.client().await, "metamorph-system");
    let all = secrets.list(&kube::api::ListParams::default()).await.unwrap().items;
    let kept = all.into_iter().find(|secret| secret.name_any().starts_with("metamorph-metrics-certificate-")).unwrap();
    let certificate = reqwest::Certificate::from_pem(&kept.data.unwrap()["tls.crt"].0).unwrap();
    let client = reqwest::Client::builder().no_proxy().tls_certs_only([certificate]).build().unwrap();
    let read = async |token: Option<String>| {
        let mut request = client.get(format!("https://127.0.0.1:{port}/metrics"));
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    let (code, text) = read(Some(cluster.token_of("default", "prometheus").await)).await;
    assert!(
        code == 200 && text.contains("metal3_reconcile_total") && text.contains("metamorph_build_info"),
        "{code}: {text}"
    );
    let (code, text) = read(Some(cluster.token_of("default", "guest").await)).await;
    assert!(code == 403 && text.contains("system:serviceaccount:default:guest"), "{code}: {text}");
    assert_eq!(read(None).await.0, 401);
    assert_eq!(read(Some("prometheus".to_owned())).await.0, 401);
}

/// A port that nobody listens on.
fn port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[tokio::test]
async fn an_operator_is_refused_nothing_and_uses_each_of_its_rights() {
    uses_each_right(true).await;
}

#[tokio::test]
async fn so_does_one_without_webhook_and_metrics() {
    uses_each_right(false).await;
}

async fn uses_each_right(secured: bool) {
    let cluster = Cluster::start().await;
    let mut rbac = Command::new(program("metamorph").unwrap());
    rbac.arg("rbac").args(secured.then_some(["--webhook", "--metrics"]).into_iter().flatten());
    let printed = rbac.output().await.unwrap();
    let secured = secured.then(|| [port(), port()]);
    let manifests = String::from_utf8(printed.stdout).unwrap();
    cluster.kubectl(&["apply", "-f", "-"], &manifests).await;
    let sim = Sim::start(cluster.folder.path(), &[machine("node-0")], false).await.unwrap();
    let images = ImageServer::start().await.unwrap();
    let hosts: Api<BareMetalHost> = Api::default_namespaced(cluster.client().await);
    declare(&cluster, &sim, &hosts).await;

    // Kinds that are not there are asked for as well, but not watched.
    let upstream = concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/model/api/crds/upstream");
    cluster.kubectl(&["apply", "-f", upstream], "").await;
    cluster.kubectl(&["wait", "--for=condition=established", "crd", "--all"], "").await;
    cluster.kubectl(&["annotate", "bmh", "node-0", "baremetalhost.metal3.io/paused="], "").await;
    let mut server = operator(&cluster.kubeconfig_of_account().await, cluster.folder.path(), secured);
    // No boot is under way: the earlier key goes as soon as there is another.
    server.wait_logged("the BareMetalHosts are watched", 60).await.unwrap();
    keys(&cluster.kubeconfig(), "rotate").await;
    server.wait_logged("deleted a key that no boot needs any more", 60).await.unwrap();
    cluster.kubectl(&["annotate", "bmh", "node-0", "baremetalhost.metal3.io/paused-"], "").await;
    let state = |wanted| move |host: &BareMetalHost| host.state() == wanted;
    wait(&hosts, "node-0", state(ProvisioningState::Available), &server).await;
    declare_firmware(&cluster, &hosts, &server).await;
    // HardwareData is made by the first inspection and replaced by one that finds something else.
    cluster
        .kubectl(
            &["patch", "hardwaredata", "node-0", "--type=merge", "-p", r#"{"spec":{"hardware":{"hostname":"x"}}}"#],
            "",
        )
        .await;
    let request = json!({ "apiVersion": "metamorph.metal3.io/v1alpha1", "kind": "HostOperation", "metadata": { "name": "look" },
        "spec": { "type": "Inspect", "host": { "name": "node-0" } } });
    cluster.kubectl(&["create", "-f", "-"], &request.to_string()).await;
    let succeeded = "--for=jsonpath={.status.phase}=Succeeded";
    cluster.kubectl(&["wait", succeeded, "hostoperation/look", "--timeout=120s"], "").await;
    let good = DiskImage::small().unwrap();
    let url = images.put("disk.raw", good.bytes.clone());
    let image = json!({ "url": url, "checksum": good.sha256, "checksumType": "sha256", "format": "raw" });
    claimed(&cluster, &hosts, &image, &server).await;
    classified(&cluster, &hosts, &server).await;
    let folder = tempfile::tempdir().unwrap();
    let undeclared = Sim::start(folder.path(), &[machine("found")], false).await.unwrap();
    let kubectl = async |arguments: &[&str], input: &str| cluster.kubectl(arguments, input).await;
    discovery::finds(kubectl, &undeclared.machine("found"), &server).await;
    let image = json!({ "spec": { "online": true, "image": image } });
    cluster.kubectl(&["patch", "bmh", "node-0", "--type=merge", "-p", &image.to_string()], "").await;
    wait(&hosts, "node-0", state(ProvisioningState::Provisioned), &server).await;
    beside(&cluster, &images.put("tools.iso", vec![0; 4096])).await;
    // The same Event a second time is counted up, not made anew.
    for _ in 0..2 {
        for online in [false, true] {
            let wish = json!({ "spec": { "online": online } }).to_string();
            cluster.kubectl(&["patch", "bmh", "node-0", "--type=merge", "-p", &wish], "").await;
            let is = move |host: &BareMetalHost| host.status.as_ref().is_some_and(|s| s.powered_on == online);
            wait(&hosts, "node-0", is, &server).await;
        }
    }
    let attached = "--for=jsonpath={.status.attachedImage.url}";
    cluster.kubectl(&["wait", attached, "dataimage/node-0", "--timeout=60s"], "").await;
    cluster.kubectl(&["delete", "bmceventsubscription", "events", "--timeout=60s"], "").await;
    // An agent that has still to be told to leave is heard for an hour: its key stays.
    keys(&cluster.kubeconfig(), "rotate").await;
    let listed = keys(&cluster.kubeconfig(), "list").await;
    assert!(listed.lines().count() == 3 && listed.contains("3    ") && listed.contains("earlier"), "{listed}");
    if let Some([_, metrics]) = secured {
        scraped(&cluster, metrics).await;
    }
    cluster.kubectl(&["delete", "bmh", "node-0", "--timeout=60s"], "").await;
    server.stop().await.unwrap();

    let (asked, refused) = cluster.asked();
    assert!(refused.is_empty(), "refused: {refused:?}");
    let given = given(&manifests);
    let missing: Vec<_> = asked.difference(&given).collect();
    assert!(missing.is_empty(), "asked for and not given: {missing:?}");
    // An apply that makes an object is asked for as a patch, and checked as a creation, too.
    let by_apply = "admissionregistration.k8s.io/validatingwebhookconfigurations create".to_owned();
    let superfluous: Vec<_> = given.difference(&asked).filter(|right| **right != by_apply).collect();
    assert!(superfluous.is_empty(), "given and never used: {superfluous:?}");
}
