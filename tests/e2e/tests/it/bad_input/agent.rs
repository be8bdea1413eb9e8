//! Agents that never report, and machines that lose theirs.

use std::net::SocketAddr;

use api::metal3::ProvisioningState;
use e2e::{Options, World};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};

#[tokio::test]
async fn a_machine_that_does_not_read_its_medium_is_told_from_a_silent_agent() {
    let world = World::start(Options::one_fake().with(&["--agent-boot-timeout", "3"])).await.unwrap();
    // The BMC takes the medium, and then cannot read it any more.
    let fault = json!({ "method": "POST", "path": "*ComputerSystem.Reset", "action": { "type": "hold" } });
    world.sim.post("/machines/node-0/faults", fault).await.unwrap();
    world.apply_host("node-0", json!({})).await.unwrap();
    world.sim.wait_held("node-0", 60).await.unwrap();
    world.sim.settings("node-0", json!({ "media": { "fail": true } })).await.unwrap();
    world.sim.post("/machines/node-0/resume", json!({})).await.unwrap();
    let says = ["nothing has read the medium", "BMC reaches"];
    let before = world.expect_error("node-0", "inspection error", &says).await.unwrap();
    world.expect_cause("node-0", "Inspect", "AgentSilent").await.unwrap();
    world.sim.settings("node-0", json!({ "media": { "fail": false } })).await.unwrap();
    world.expect_recovery(&before, ProvisioningState::Available).await.unwrap();
}

#[tokio::test]
async fn a_bmc_that_refuses_the_medium_is_told_to_look_for_its_server() {
    let world = World::start(Options::one_fake()).await.unwrap();
    world.sim.settings("node-0", json!({ "media": { "fail": true } })).await.unwrap();
    world.apply_host("node-0", json!({})).await.unwrap();
    let says = ["insert the medium", "400", "check that the BMC reaches http://"];
    let before = world.expect_error("node-0", "inspection error", &says).await.unwrap();
    world.expect_cause("node-0", "Inspect", "BmcRefused").await.unwrap();
    world.sim.settings("node-0", json!({ "media": { "fail": false } })).await.unwrap();
    world.expect_recovery(&before, ProvisioningState::Available).await.unwrap();
}

/// An address at which nobody listens yet.
async fn closed_address() -> (SocketAddr, tokio::net::TcpSocket) {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    (socket.local_addr().unwrap(), socket)
}

/// Passes connections on, byte by byte.
async fn forward(listener: TcpListener, to: SocketAddr) {
    while let Ok((mut from, _)) = listener.accept().await {
        tokio::spawn(async move {
            if let Ok(mut there) = TcpStream::connect(to).await {
                let _ = tokio::io::copy_bidirectional(&mut from, &mut there).await;
            }
        });
    }
}

#[tokio::test]
async fn an_agent_that_cannot_reach_the_server_is_waited_for_and_booted_again() {
    let (address, socket) = closed_address().await;
    let options = Options::one_fake().with(&["--agent-boot-timeout", "4", "--agent-host", &address.to_string()]);
    let world = World::start(options).await.unwrap();
    world.apply_host("node-0", json!({})).await.unwrap();
    let says = ["of the medium have been read", &address.to_string(), "preprovisioningNetworkDataName"];
    let before = world.expect_error("node-0", "inspection error", &says).await.unwrap();
    world.expect_cause("node-0", "Inspect", "AgentSilent").await.unwrap();
    tokio::spawn(forward(socket.listen(64).unwrap(), world.agent_endpoint()));
    world.expect_recovery(&before, ProvisioningState::Available).await.unwrap();
}
