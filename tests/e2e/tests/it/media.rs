//! Where BMCs read media.

use api::metal3::ProvisioningState;
use e2e::{Options, World};
use serde_json::json;

/// A BMC that takes media over HTTPS alone (it refuses the first insertion, which is over HTTP) boots its machine from there.
#[tokio::test]
async fn a_bmc_that_refuses_http_reads_over_https() {
    let world = World::start(Options::one_fake().with(&["--media-tls-listen", "127.0.0.1:0"])).await.unwrap();
    let refusal = json!({ "method": "POST", "path": "*VirtualMedia.InsertMedia", "count": 1,
        "action": { "type": "status", "status": 400 } });
    world.sim.post("/machines/node-0/faults", refusal).await.unwrap();
    world.apply_host("node-0", json!({})).await.unwrap();
    world.wait_state("node-0", 60, ProvisioningState::Available).await.unwrap();
    let machine = world.sim.now("node-0").await.unwrap();
    assert!(machine["medium"]["url"].as_str().unwrap().starts_with("https://127.0.0.1:"), "{machine}");
    // The certificate is the same after a restart: a BMC that was given it goes on trusting it.
    let secret = ["get", "secrets", "-n", "metamorph-system", "-o", "jsonpath={.items[*].data}"];
    let before = world.kubectl(&secret, "").await.unwrap();
    assert!(before.contains("tls.crt"), "{before}");
    let mut world = world;
    world.restart_with(&[]).await.unwrap();
    assert_eq!(world.kubectl(&secret, "").await.unwrap(), before);
}
