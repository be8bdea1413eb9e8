//! Bodies that the server does not want: its answer reaches the client all the same, in both versions of HTTP.

use std::process::Command;

use crate::common::{Api, CONFIGMAPS};

/// The answer that curl gets: status and version.
fn upload(api: &Api, version: &str, bytes: usize, token: &str) -> String {
    let body = api.dir.path().join("body");
    std::fs::write(&body, vec![b' '; bytes]).unwrap();
    let out = Command::new("curl")
        .args(["--silent", "--insecure", "--show-error", "--max-time", "60", version, "--output", "/dev/null"])
        .args(["--write-out", "%{http_code} %{http_version}", "--header", "content-type: application/json"])
        .args(["--header", &format!("authorization: Bearer {token}"), "--header", "expect:", "--data-binary"])
        .arg(format!("@{}", body.display()))
        .arg(format!("https://{}{CONFIGMAPS}", api.server.local_addr()))
        .output()
        .unwrap();
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_sends_too_much_or_may_not_send_gets_an_answer() {
    let api = Api::start().await;
    let answers = tokio::task::spawn_blocking(move || {
        let token = api.server.admin_token().to_owned();
        let mut answers = Vec::new();
        for version in ["--http2", "--http1.1"] {
            for bytes in [4 << 20, 20 << 20] {
                answers.push(upload(&api, version, bytes, &token));
                answers.push(upload(&api, version, bytes, "wrong"));
            }
        }
        answers
    });
    let (two, one) = (["413 2", "401 2"], ["413 1.1", "401 1.1"]);
    assert_eq!(answers.await.unwrap(), [two, two, one, one].concat());
}
