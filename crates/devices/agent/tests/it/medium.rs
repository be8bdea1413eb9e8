//! A simulator's machine: its configuration comes from the medium by ranges, its network goes into a file.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::machine_root;
use agent::fake::FakeMachine;
use agent::machine::{Facts, Medium as _, MediumError, Network};
use agent_protocol::{AgentNetwork, HostConfig, NetworkData, PROTOCOL_VERSION};
use axum::Router;
use axum::http::{HeaderMap, Method};
use axum::routing::any;
use boot_media::assets::{INITRAMFS, KERNEL, Loaders, MANIFEST};
use boot_media::{Architecture, Assets, HostFile, HostFiles, Manifest, Medium, serve};

fn config(protocol: u32) -> HostConfig {
    HostConfig {
        protocol,
        host: "uid".into(),
        host_name: "ns/n".into(),
        generation: 1,
        token: "t".into(),
        endpoints: vec!["https://127.0.0.1:1".into()],
        server_certificate_sha256: "00".repeat(32),
        image_ca_pem: String::new(),
        network: AgentNetwork::Dhcp,
    }
}

/// Serves a medium with this configuration; counts the bytes.
async fn medium(host: Option<&HostConfig>, served: Arc<AtomicU64>) -> (String, u64) {
    let folder = tempfile::tempdir().unwrap();
    let Loaders { shim, grub, .. } = Loaders::of(Architecture::X86_64);
    for name in [KERNEL, INITRAMFS, shim, grub] {
        std::fs::write(folder.path().join(name), vec![7; 3 << 20]).unwrap();
    }
    let manifest = Manifest::describe(folder.path(), "test", "test").unwrap();
    std::fs::write(folder.path().join(MANIFEST), manifest.to_json().unwrap()).unwrap();
    let file = |config: &HostConfig| HostFile {
        path: "metamorph/host.json".into(),
        mode: 0o600,
        bytes: serde_json::to_vec(config).unwrap(),
    };
    let host = HostFiles { files: host.map(file).into_iter().collect(), kernel_arguments: Vec::new() };
    let medium = Medium::compose(&Assets::open(folder.path()).unwrap(), &host).unwrap();
    let length = medium.len();
    let medium = Arc::new(Mutex::new(medium));
    let answer = async move |method: Method, headers: HeaderMap| {
        let served = served.clone();
        let medium = medium.lock().unwrap();
        serve::respond(&medium, &method, &headers, move |_, bytes| {
            served.fetch_add(bytes, Ordering::Relaxed);
        })
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().route("/m.iso", any(answer));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (format!("http://{address}/m.iso"), length)
}

async fn read(url: String) -> Result<HostConfig, MediumError> {
    let handle = tokio::runtime::Handle::current();
    tokio::task::spawn_blocking(move || {
        let folder = machine_root();
        FakeMachine::new(folder.path(), url, handle).host_config()
    })
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_configuration_is_read_by_ranges() {
    let served = Arc::new(AtomicU64::new(0));
    let (url, length) = medium(Some(&config(PROTOCOL_VERSION)), served.clone()).await;
    assert!(read(url).await.unwrap() == config(PROTOCOL_VERSION));
    let served = served.load(Ordering::Relaxed);
    assert!(served > 0 && served < length / 20, "{served} of {length} bytes were read");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_medium_without_or_with_another_configuration_is_told() {
    let served = Arc::new(AtomicU64::new(0));
    let (url, _) = medium(None, served.clone()).await;
    assert!(matches!(read(url).await, Err(MediumError::Lacks { .. })));
    let (url, _) = medium(Some(&config(PROTOCOL_VERSION + 1)), served).await;
    assert!(matches!(read(url).await, Err(MediumError::Version { .. })));
    assert!(matches!(read("http://127.0.0.1:1/m.iso".into()).await, Err(MediumError::Read { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_network_is_written_down() {
    let folder = machine_root();
    let device = folder.path().join("sys/class/net/eno1/device");
    std::fs::create_dir_all(device).unwrap();
    for (name, text) in [("address", "52:54:00:00:00:0a\n"), ("type", "1\n")] {
        std::fs::write(folder.path().join("sys/class/net/eno1").join(name), text).unwrap();
    }
    let machine = FakeMachine::new(folder.path(), "http://127.0.0.1:1/", tokio::runtime::Handle::current());
    let text = r#"{"links":[{"id":"a","type":"phy","ethernet_mac_address":"52:54:00:00:00:0A"},
          {"id":"v","type":"vlan","vlan_link":"a","vlan_id":7}],
        "networks":[{"type":"ipv4","link":"v","ip_address":"10.1.2.3/24","gateway":"10.1.2.1"}],
        "services":[{"type":"dns","address":"10.0.0.53"}]}"#;
    let data = NetworkData::from_json(text).unwrap().0;
    machine.configure(&AgentNetwork::Static { data }).unwrap();
    let written: serde_json::Value =
        serde_json::from_slice(&std::fs::read(machine.tree().path("network.json")).unwrap()).unwrap();
    let steps: Vec<&str> =
        written["operations"].as_array().unwrap().iter().map(|step| step["do"].as_str().unwrap()).collect();
    assert_eq!(steps, ["up", "vlan", "up", "address", "route"]);
    assert_eq!(written["nameServers"][0], "10.0.0.53");
    assert_eq!(machine.addresses()[0].1.to_string(), "10.1.2.3");
    machine.configure(&AgentNetwork::Dhcp).unwrap();
    let text = std::fs::read_to_string(folder.path().join("network.json")).unwrap();
    assert!(text.contains("dhcp") && text.contains("eno1"), "{text}");
}
