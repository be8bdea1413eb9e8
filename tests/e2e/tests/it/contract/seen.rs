//! How the server is seen from outside: probes, metrics, the ready line, the service manager, `host watch` in a pipe.

use std::os::unix::net::UnixDatagram;
use std::process::Stdio;
use std::time::Duration;

use e2e::{Options, Running, World, agent_image, program};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

async fn asked(address: &str, path: &str) -> (u16, String) {
    // The first wins, which is the same one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let answer = reqwest::get(format!("http://{address}{path}")).await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

/// The sum of all series of the metric whose labels contain `labels`.
fn sum(text: &str, metric: &str, labels: &str) -> f64 {
    let samples = text.lines().filter(|line| line.starts_with(metric) && line.contains(labels));
    samples.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// What a life up to `provisioned` leaves in the metrics; `requests` is what the BMC says it was asked.
pub async fn metrics_tell_of_a_provisioned_host(world: &World, requests: u64) {
    let (code, text) = asked(&world.health_endpoint().to_string(), "/metrics").await;
    assert_eq!(code, 200);
    for line in [
        "metal3_provisioning_state_change_total{prev_state=\"registering\",new_state=\"inspecting\"} 1",
        "metal3_provisioning_state_change_total{prev_state=\"provisioning\",new_state=\"provisioned\"} 1",
        "metal3_operation_inspect_duration_seconds_count{namespace=\"default\",host=\"node-0\"} 1",
        "metal3_operation_provision_duration_seconds_count{namespace=\"default\",host=\"node-0\"} 1",
        "metal3_operation_register_duration_seconds_count{namespace=\"default\",host=\"node-0\"} 1",
        "metamorph_operations_total{type=\"provision\",phase=\"Succeeded\",cause=\"\"} 1",
        "metamorph_operations_total{type=\"inspect\",phase=\"Succeeded\",cause=\"\"} 1",
        "metamorph_hosts{state=\"provisioned\",operational_status=\"OK\"} 1",
        "metal3_reconcile_error_total 0",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
    super::monitoring::asks_for_what_there_is(&text);
    assert!(sum(&text, "metal3_reconcile_total", "host=\"node-0\"") >= 1.0, "{text}");
    for bytes in ["metamorph_bmc_answer_bytes_total", "metamorph_media_bytes_total"] {
        assert!(sum(&text, bytes, "") >= 1000.0, "{bytes}: {text}");
    }
    assert!(text.contains("metamorph_hosts_over_budget{state=\"inspecting\"} 0\n"), "{text}");
    let calls = sum(&text, "metamorph_bmc_calls_total", "outcome");
    // The power may have been looked at once more in between.
    assert!((requests as f64..=requests as f64 + 2.0).contains(&calls), "{calls} calls, the BMC counted {requests}");
    assert_eq!(asked(&world.health_endpoint().to_string(), "/readyz").await, (200, "ok".to_owned()));
    assert!(!world.server.logged().contains('\x1b'), "a log that is no terminal has colours");
}

#[tokio::test]
async fn an_operator_says_when_it_is_ready_and_when_it_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let (data, socket) = (folder.path().join("data"), folder.path().join("notify"));
    let mut serve = Command::new(program("metamorph").unwrap());
    serve.args(["api", "serve", "--api-listen", "127.0.0.1:0", "--data"]).arg(&data);
    let mut api = Running::start(serve, &folder.path().join("api.log")).unwrap();
    api.wait_logged("is up at", 30).await.unwrap();

    let manager = UnixDatagram::bind(&socket).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let notified = || {
        let mut text = [0; 64];
        let count = manager.recv(&mut text).unwrap();
        String::from_utf8_lossy(&text[..count]).into_owned()
    };
    let mut command = Command::new(program("metamorph").unwrap());
    command.arg("operator").arg("--kubeconfig").arg(data.join("kubeconfig")).env("NOTIFY_SOCKET", &socket);
    command.args(["--media-listen", "127.0.0.1:0", "--agent-listen", "127.0.0.1:0", "--health-listen", "127.0.0.1:0"]);
    command.arg("--agent-image").arg(agent_image().unwrap());
    let mut operator = Running::start(command, &folder.path().join("operator.log")).unwrap();
    operator.wait_logged("Metamorph is ready", 30).await.unwrap();
    assert_eq!(notified(), "READY=1");
    let logged = operator.logged();
    assert!(!logged.contains('\x1b'), "{logged}");
    let address = logged.lines().find_map(|line| line.trim().strip_prefix("health, metrics  http://")).unwrap();

    assert_eq!(asked(address, "/livez").await, (200, "ok".to_owned()));
    assert_eq!(asked(address, "/readyz").await, (200, "ok".to_owned()));
    let (_, text) = asked(address, "/readyz?verbose").await;
    assert!(text.contains("[+]hosts ok") && text.contains("[+]kubernetes ok"), "{text}");
    assert!(asked(address, "/metrics").await.1.contains("# TYPE metal3_reconcile_total counter"));
    assert_eq!(asked(address, "/").await.0, 404);

    api.stop().await.unwrap();
    let (code, text) = asked(address, "/readyz").await;
    assert!(code == 503 && text.contains("[-]kubernetes failed"), "{code} {text}");
    assert_eq!(asked(address, "/livez").await.0, 200, "a restart would not help");
    operator.stop().await.unwrap();
    assert_eq!(notified(), "STOPPING=1");
}

#[tokio::test]
async fn watching_hosts_in_a_pipe_tells_when_it_was_and_ends_with_its_reader() {
    let world = World::start(Options::one_fake()).await.unwrap();
    let mut child = Command::new(program("metamorph").unwrap())
        .args(["host", "watch", "--kubeconfig"])
        .arg(world.kubeconfig())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    world.apply_host("node-0", serde_json::json!({ "online": true })).await.unwrap();
    let mut seen = Vec::new();
    while !seen.iter().any(|line: &String| line.contains("inspecting")) {
        let line = tokio::time::timeout(Duration::from_secs(60), lines.next_line()).await.unwrap().unwrap();
        seen.push(line.unwrap_or_else(|| panic!("it ended after {seen:?}")));
    }
    let first = &seen[0];
    let (clock, rest) = first.split_once(' ').unwrap();
    assert!(clock.len() == 8 && clock.as_bytes()[2] == b':' && rest.starts_with("default/node-0  "), "{first}");
    drop(lines);
    // Its next line finds nobody.
    let status = tokio::time::timeout(Duration::from_secs(60), child.wait()).await.unwrap().unwrap();
    assert!(status.success(), "{status}");
}
