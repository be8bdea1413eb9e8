//! kubectl as the client: the one that is installed, and Debian 12's old one.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::{self, Api};

/// A kubectl with its kubeconfig.
struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    home: PathBuf,
}

struct Output {
    good: bool,
    out: String,
    err: String,
}

impl Kubectl {
    fn new(program: PathBuf, api: &Api) -> Self {
        let kubeconfig = api.dir.path().join("kubeconfig");
        std::fs::write(&kubeconfig, api.server.admin_kubeconfig()).unwrap();
        Self { program, kubeconfig, home: api.dir.path().to_owned() }
    }

    /// A kubeconfig that knows the server and nobody's credentials.
    fn bare(&self) -> PathBuf {
        let whole = std::fs::read_to_string(&self.kubeconfig).unwrap();
        let kept = |line: &&str| !line.contains("client-certificate-data") && !line.contains("client-key-data");
        let bare: Vec<&str> =
            whole.lines().filter(kept).map(|l| if l.trim() == "user:" { "  user: {}" } else { l }).collect();
        let path = self.home.join("kubeconfig-bare");
        std::fs::write(&path, bare.join("\n")).unwrap();
        path
    }

    async fn try_run(&self, arguments: &str, input: &str) -> Output {
        let mut command = Command::new(&self.program);
        command
            .args(arguments.split_whitespace())
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", &self.home)
            .env("KUBE_EDITOR", "sed -i s/192.0.2.1/192.0.2.2/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let input = input.to_owned();
        let done = tokio::task::spawn_blocking(move || {
            let mut child = command.spawn().expect("kubectl must be installed");
            child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
            child.wait_with_output().unwrap()
        });
        let output = done.await.unwrap();
        Output {
            good: output.status.success(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    async fn run_with(&self, arguments: &str, input: &str) -> String {
        let output = self.try_run(arguments, input).await;
        assert!(output.good, "kubectl {arguments}: {}{}", output.out, output.err);
        output.out
    }

    async fn run(&self, arguments: &str) -> String {
        self.run_with(arguments, "").await
    }
}

const HOST: &str = "apiVersion: metal3.io/v1alpha1
kind: BareMetalHost
metadata:
  name: host-1
  namespace: default
spec:
  online: true
  bmc:
    address: redfish-virtualmedia://192.0.2.1/redfish/v1/Systems/1
    credentialsName: host-1-bmc
";

fn old() -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kubectl-1.20.sh");
    let output = Command::new(&script).stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{} failed", script.display());
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_installed_kubectl() {
    tour(PathBuf::from("kubectl"), true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_1_20() {
    let program = tokio::task::spawn_blocking(old).await.unwrap();
    tour(program, false).await;
}

async fn tour(program: PathBuf, modern: bool) {
    let api = Api::start().await;
    let kubectl = Kubectl::new(program, &api);
    let folder = common::upstream()[0].parent().unwrap().display().to_string();
    let applied = kubectl.run(&format!("apply -f {folder}")).await;
    assert!(applied.contains("customresourcedefinition.apiextensions.k8s.io/baremetalhosts.metal3.io created"));
    kubectl.run("wait --for condition=established --timeout=10s crd/baremetalhosts.metal3.io").await;
    let resources = kubectl.run("api-resources").await;
    assert!(resources.lines().any(|l| l.starts_with("baremetalhosts") && l.contains("bmh")), "{resources}");
    apply(&kubectl, modern).await;
    change(&kubectl).await;
    core(&kubectl).await;
    rights(&kubectl, modern).await;
    events(&kubectl, &api, modern).await;
    watch(&kubectl).await;
    cascades(&kubectl).await;
    assert!(kubectl.run("delete bmh host-1 --cascade").await.contains("deleted"));
    assert!(!kubectl.try_run("get bmh host-1", "").await.good);
    kubectl.run("delete ns two --timeout=20s").await;
}

async fn apply(kubectl: &Kubectl, modern: bool) {
    assert_eq!(kubectl.run_with("apply -f -", HOST).await, "baremetalhost.metal3.io/host-1 created\n");
    assert_eq!(kubectl.run_with("apply -f -", HOST).await, "baremetalhost.metal3.io/host-1 unchanged\n");
    let off = HOST.replace("online: true", "online: false");
    let diff = kubectl.try_run("diff -f -", &off).await;
    assert!(
        !diff.good && diff.out.contains("-  online: true") && diff.out.contains("+  online: false"),
        "{}{}",
        diff.out,
        diff.err
    );
    assert_eq!(kubectl.run_with("apply -f -", &off).await, "baremetalhost.metal3.io/host-1 configured\n");
    assert!(kubectl.run_with("apply --dry-run=server -f -", HOST).await.contains("(server dry run)"));
    let typo = HOST.replace("online:", "onlin:");
    let refused = kubectl.try_run("apply -f -", &typo).await;
    assert!(!refused.good && refused.err.contains("unknown field") && refused.err.contains("onlin"), "{}", refused.err);
    let wrong = HOST.replace("online: true", "online: sometimes");
    let refused = kubectl.try_run("apply --validate=false -f -", &wrong).await;
    assert!(refused.err.contains("spec.online in body must be of type boolean: \"string\""), "{}", refused.err);
    let explained = kubectl.run("explain bmh.spec.bmc").await;
    assert!(explained.contains("credentialsName") && explained.contains("address"), "{explained}");
    assert!(kubectl.run("explain secret.stringData").await.contains("map[string]string"));
    let wide = kubectl.run("get bmh -o wide").await;
    assert!(
        wide.starts_with("NAME ") && wide.contains("host-1") && wide.contains("redfish-virtualmedia://192.0.2.1"),
        "{wide}"
    );
    assert!(kubectl.run("get bmh host-1 -o yaml").await.contains("online: false"));
    if modern {
        kubectl.run("wait --for=jsonpath={.spec.online}=false --timeout=10s bmh/host-1").await;
    }
}

/// What becomes of the objects that a deleted one owns.
async fn cascades(kubectl: &Kubectl) {
    for (how, stays) in [("orphan", true), ("foreground", false), ("background", false)] {
        let uid = kubectl.run("get bmh host-1 -o jsonpath={.metadata.uid}").await;
        let owner = format!("{{apiVersion: metal3.io/v1alpha1, kind: BareMetalHost, name: host-1, uid: {uid}}}");
        let owned = format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {how}, ownerReferences: [{owner}]}}\n");
        kubectl.run_with("apply -f -", &owned).await;
        assert!(kubectl.run(&format!("delete bmh host-1 --cascade={how}")).await.contains("deleted"));
        if how == "background" {
            // It may be gone before this asks, which the old one takes for an error.
            kubectl.try_run("wait --for=delete --timeout=10s cm/background", "").await;
        }
        // What is deleted in the foreground goes after all that it owned.
        assert_eq!(kubectl.try_run(&format!("get cm {how}"), "").await.good, stays, "{how}");
        kubectl.run_with("apply --server-side -f -", HOST).await;
    }
    assert_eq!(kubectl.run("get cm orphan -o jsonpath={.metadata.ownerReferences}").await, "");
    let applied = kubectl.run_with("apply --server-side --field-manager=other -f -", HOST).await;
    assert_eq!(applied, "baremetalhost.metal3.io/host-1 serverside-applied\n");
    let other = HOST.replace("online: true", "online: false");
    let refused = kubectl.try_run("apply --server-side -f -", &other).await;
    assert!(!refused.good && refused.err.contains("conflict with \"other\""), "{}", refused.err);
    kubectl.run_with("apply --server-side --force-conflicts -f -", &other).await;
}

async fn change(kubectl: &Kubectl) {
    assert!(kubectl.run("label bmh host-1 rack=a").await.contains("labeled"));
    assert!(kubectl.run("annotate bmh host-1 note=b").await.contains("annotated"));
    assert!(kubectl.run("get bmh -l rack=a").await.contains("host-1"));
    assert!(!kubectl.run("get bmh -l rack=b").await.contains("host-1"));
    assert!(kubectl.run("edit bmh host-1").await.contains("edited"));
    assert!(kubectl.run("get bmh host-1 -o jsonpath={.spec.bmc.address}").await.contains("192.0.2.2"));
    kubectl.run(r#"patch bmh host-1 --type=merge -p {"spec":{"description":"x"}}"#).await;
    kubectl.run(r#"patch bmh host-1 --type=json -p [{"op":"remove","path":"/spec/description"}]"#).await;
    let described = kubectl.run("describe bmh host-1").await;
    assert!(described.contains("rack=a") && described.contains("Credentials Name:  host-1-bmc"), "{described}");
}

async fn core(kubectl: &Kubectl) {
    kubectl.run("create secret generic s --from-literal=username=admin --from-literal=password=secret").await;
    assert!(kubectl.run("get secret s").await.contains("Opaque"));
    assert_eq!(kubectl.run("get secret s -o jsonpath={.data.username}").await, "YWRtaW4=");
    kubectl.run("create configmap c --from-literal=a=b").await;
    kubectl.run("create serviceaccount robot").await;
    kubectl.run("create namespace two").await;
    kubectl.run("-n two create configmap c --from-literal=a=b").await;
    let manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: d}\ndata: {a: '1', b: '2'}\n";
    kubectl.run_with("apply -f -", manifest).await;
    kubectl.run_with("apply -f -", &manifest.replace(", b: '2'", "")).await;
    assert_eq!(kubectl.run("get cm d -o jsonpath={.data}").await, "{\"a\":\"1\"}");
    assert!(kubectl.run("get cm -A").await.contains("two "));
    assert!(kubectl.run("describe secret s").await.contains("password:  6 bytes"));
    assert!(kubectl.run("get ns").await.contains("kube-system"));
    kubectl.run("delete cm --all").await;
    assert!(kubectl.run("version").await.contains("Server Version"));
}

async fn rights(kubectl: &Kubectl, modern: bool) {
    assert_eq!(kubectl.run("auth can-i delete bmh --all-namespaces").await, "yes\n");
    let robot = "--as system:serviceaccount:default:robot";
    let refused = kubectl.try_run(&format!("auth can-i get secrets {robot}"), "").await;
    assert!(!refused.good && refused.out == "no\n", "{}{}", refused.out, refused.err);
    kubectl.run("create role reader --verb=get,list --resource=configmaps,baremetalhosts.metal3.io").await;
    kubectl.run("create rolebinding reader --role=reader --serviceaccount=default:robot").await;
    assert_eq!(kubectl.run(&format!("auth can-i list bmh {robot}")).await, "yes\n");
    let listed = kubectl.run(&format!("auth can-i --list {robot}")).await;
    let line = listed.lines().find(|l| l.starts_with("baremetalhosts.metal3.io")).unwrap_or_default();
    assert!(line.contains("[get list]"), "{listed}");
    assert!(kubectl.run(&format!("get bmh host-1 {robot}")).await.contains("host-1"));
    let refused = kubectl.try_run(&format!("delete bmh host-1 {robot}"), "").await;
    assert!(!refused.good && refused.err.contains("(Forbidden)") && refused.err.contains("host-1"), "{}", refused.err);
    if modern {
        let token = kubectl.run("create token robot --duration=10m").await;
        assert_eq!(token.trim().split('.').count(), 3, "{token}");
        let with = format!("--kubeconfig={} --token={}", kubectl.bare().display(), token.trim());
        assert!(kubectl.run(&format!("auth whoami {with}")).await.contains("system:serviceaccount:default:robot"));
        assert!(kubectl.run(&format!("get bmh host-1 {with}")).await.contains("host-1"));
        let refused = kubectl.try_run(&format!("get secrets {with}"), "").await;
        assert!(!refused.good && refused.err.contains("system:serviceaccount:default:robot"), "{}", refused.err);
    }
}

async fn events(kubectl: &Kubectl, api: &Api, modern: bool) {
    let uid = kubectl.run("get bmh host-1 -o jsonpath={.metadata.uid}").await;
    let now = kubectl.run("get bmh host-1 -o jsonpath={.metadata.creationTimestamp}").await;
    let event = serde_json::json!({"metadata": {"name": "host-1.1", "namespace": "default"}, "reason": "Registered",
        "message": "Registered new host", "type": "Normal", "count": 1, "firstTimestamp": now, "lastTimestamp": now,
        "source": {"component": "tests"}, "involvedObject": {"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
        "name": "host-1", "namespace": "default", "uid": uid}});
    api.post("/api/v1/namespaces/default/events", &event).await.expect(201);
    assert!(kubectl.run("describe bmh host-1").await.contains("Registered new host"));
    let listed = kubectl.run("get events").await;
    assert!(listed.contains("baremetalhost/host-1") && listed.contains("LAST SEEN"), "{listed}");
    if modern {
        assert!(kubectl.run("events").await.contains("Registered new host"));
    }
}

async fn watch(kubectl: &Kubectl) {
    let mut child = Command::new(&kubectl.program)
        .args(["get", "bmh", "-w"])
        .env("KUBECONFIG", &kubectl.kubeconfig)
        .env("HOME", &kubectl.home)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let out = child.stdout.take().unwrap();
    let (lines, mut read) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        use std::io::BufRead as _;
        for line in std::io::BufReader::new(out).lines().map_while(Result::ok) {
            let _ = lines.send(line);
        }
    });
    assert!(read.recv().await.unwrap().starts_with("NAME"));
    assert!(read.recv().await.unwrap().contains("false"));
    kubectl.run(r#"patch bmh host-1 --type=merge -p {"spec":{"online":true}}"#).await;
    assert!(read.recv().await.unwrap().contains("true"));
    child.kill().unwrap();
    child.wait().unwrap();
}
