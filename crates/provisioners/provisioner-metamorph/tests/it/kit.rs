//! A provisioner with a BMC; time is tokio's, which the tests pause.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::connect_info::MockConnectInfo;
use axum::http::{Request, StatusCode};
use bmc::{Connectors, Protocol};
use boot_media::assets::{INITRAMFS, KERNEL, Loaders, MANIFEST};
use boot_media::{Architecture, Assets, Manifest};
use http_body_util::BodyExt;
use inventory::{Cpu, HardwareDetails};
use provisioner::{
    BmcAccess, Failure, History, HostContext, HostFacts, HostKey, InspectRequest, Machine, Now, Provisioner, Record,
    Verdict,
};
use provisioner_kit::{MemoryMachine, paused_clock};
use provisioner_metamorph::{AgentImages, Bases, Key, KeyRing, MediaCertificates, NativeProvisioner, Settings, Timing};
use tokio::time::Instant;
use tower::ServiceExt;

use crate::fake::{Bmc, Fake, Wire};
use crate::memory::Memory;

pub const UID: &str = "5d0c1a1e-0000-4000-8000-000000000001";

/// An agent image folder that no machine could boot; its bytes depend on `seed`.
pub fn image(seed: u8) -> tempfile::TempDir {
    image_for(Architecture::X86_64, seed)
}

/// The same for machines of another architecture.
pub fn image_for(architecture: Architecture, seed: u8) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let Loaders { shim, grub, .. } = Loaders::of(architecture);
    for (name, len) in [(KERNEL, 90_001), (INITRAMFS, 150_003), (shim, 10_000), (grub, 40_007)] {
        std::fs::write(folder.path().join(name), vec![seed; len]).unwrap();
    }
    let manifest = Manifest::describe(folder.path(), "test", "test").unwrap();
    std::fs::write(folder.path().join(MANIFEST), manifest.to_json().unwrap()).unwrap();
    folder
}

pub fn assets(folder: &tempfile::TempDir) -> Assets {
    Assets::open(folder.path()).unwrap()
}

/// One host, and the server that looks after it; the server can be replaced, everything else outlives it.
pub struct Lab {
    pub bmc: Fake,
    pub journal: Memory,
    machine: Arc<MemoryMachine>,
    now: Now,
    pub network: Option<serde_json::Value>,
    /// `spec.architecture`.
    pub architecture: Option<String>,
    /// What the host's HardwareData says of it.
    pub found: Option<String>,
    pub server: NativeProvisioner,
}

/// The server's key of this number, with a certificate that has this digest.
pub fn key(number: u32, digest: &str) -> KeyRing {
    KeyRing::new(
        Key { number, secret: [7; 32], certificate_sha256: digest.repeat(32), certificate_pem: String::new() },
        vec![],
    )
}

pub fn settings() -> Settings {
    Settings {
        bases: Bases {
            media: vec!["http://192.0.2.1:6180".into()],
            agents: vec!["https://192.0.2.1:6385".into()],
            images: Some("http://192.0.2.1:6180/images".into()),
        },
        networks: vec![],
        media_certificates: MediaCertificates::default(),
        keys: key(1, "00"),
        image_authorities: Default::default(),
        kernel_arguments: String::new(),
        allowed: addresses::Allowed::default(),
        registries: Default::default(),
        may_act: Arc::new(|| true),
        provisioning_limit: provisioner_metamorph::PROVISIONING_LIMIT,
        other_masters: Vec::new(),
        timing: Timing::default(),
    }
}

impl Lab {
    pub fn new(image: &tempfile::TempDir) -> Self {
        let bmc = Fake::default();
        *bmc.state() = Bmc {
            on: true,
            override_ahead: Some(false),
            progress: Some("OSRunning".into()),
            critical: Some(vec![]),
            ..Bmc::default()
        };
        Self {
            server: server(&bmc, settings(), image),
            bmc,
            journal: Memory::default(),
            machine: Arc::default(),
            now: paused_clock(),
            network: None,
            architecture: None,
            found: None,
        }
    }

    /// Another server takes the place of the one that there is.
    pub fn restart(&mut self, settings: Settings, image: &tempfile::TempDir) {
        self.server = server(&self.bmc, settings, image);
    }

    /// The same, with images for several architectures.
    pub fn serve(&mut self, images: [&tempfile::TempDir; 2]) {
        let connect = Connectors::new().with(Protocol::Redfish, Wire(Arc::clone(&self.bmc.0)));
        let [first, second] = images.map(assets);
        self.server = NativeProvisioner::new(settings(), AgentImages::from(first).with(second).unwrap(), connect);
    }

    /// The same, with the image that was there before beside the new one.
    pub fn upgrade(&mut self, image: &tempfile::TempDir, earlier: &tempfile::TempDir) {
        let connect = Connectors::new().with(Protocol::Redfish, Wire(Arc::clone(&self.bmc.0)));
        let images = AgentImages::from(assets(image)).with_earlier(vec![assets(earlier)]);
        self.server = NativeProvisioner::new(settings(), images, connect);
    }

    /// The BMC reads the whole of a medium when it is inserted.
    pub fn bmc_reads_when_inserting(&self) {
        self.bmc.state().reader = Some(asked_from(self.server.media_router(), "192.0.2.7"));
    }

    /// One look at the host, as its controller takes it: an inspection is wanted.
    pub async fn inspect(&self) -> Result<Duration, Failure> {
        let facts = HostFacts {
            key: HostKey { namespace: "metal".into(), name: "node-0".into(), uid: UID.into() },
            address: "redfish-virtualmedia://192.0.2.7".into(),
            provisioning_id: UID.into(),
            boot_mode: api::metal3::BootMode::Uefi,
            agent_network: self.network.clone(),
            disable_power_off: false,
            architecture: self.architecture.clone(),
            hardware: self.found.clone().map(|arch| {
                let cpu = Some(Cpu { arch: Some(arch), ..Cpu::default() });
                Arc::new(HardwareDetails { cpu, ..HardwareDetails::default() })
            }),
            ..HostFacts::default()
        };
        let context = HostContext {
            facts: Arc::new(facts),
            bmc: Some(BmcAccess {
                address: "redfish-virtualmedia://192.0.2.7".into(),
                username: "root".into(),
                password: "calvin".to_owned().into(),
                disable_certificate_verification: false,
            }),
            record: Arc::clone(&self.journal.record) as Arc<dyn Record>,
            history: Arc::clone(&self.journal.history) as Arc<dyn History>,
            machine: Arc::clone(&self.machine) as Arc<dyn Machine>,
            now: Arc::clone(&self.now),
            may_act: Arc::new(|| true),
        };
        let mut host = self.server.host(context)?;
        match host.inspect(InspectRequest::default()).await? {
            Verdict::Working(working) => Ok(working.look_again),
            other => panic!("no agent has reported: {other:?}"),
        }
    }

    /// Looks at the host again and again for so long, as its controller does; the failures on the way.
    pub async fn look_for(&self, time: Duration) -> Vec<Failure> {
        let end = Instant::now() + time;
        let mut failures = Vec::new();
        while Instant::now() < end {
            let pause = match self.inspect().await {
                Ok(pause) => pause,
                Err(failure) => {
                    failures.push(failure);
                    Duration::from_secs(60)
                }
            };
            tokio::time::sleep(pause.max(Duration::from_millis(100))).await;
        }
        failures
    }

    /// What the media endpoint answers for a whole address, entity tag and bytes, if it has it.
    pub async fn read(&self, url: &str) -> Option<(String, Vec<u8>)> {
        read_from(asked_from(self.server.media_router(), "192.0.2.7"), url).await
    }
}

/// The routes as whoever has this address finds them.
pub fn asked_from(router: axum::Router, address: &str) -> axum::Router {
    router.layer(MockConnectInfo(SocketAddr::new(address.parse().unwrap(), 40_000)))
}

/// The whole of what is there, entity tag and bytes; `None` if nothing is.
pub async fn read_from(router: axum::Router, url: &str) -> Option<(String, Vec<u8>)> {
    let path = url.splitn(4, '/').nth(3).unwrap();
    let request = Request::get(format!("/{path}")).body(Body::empty()).unwrap();
    let answer = router.oneshot(request).await.unwrap();
    if answer.status() == StatusCode::NOT_FOUND {
        return None;
    }
    assert_eq!(answer.status(), StatusCode::OK);
    let tag = answer.headers()["etag"].to_str().unwrap().to_owned();
    Some((tag, answer.into_body().collect().await.unwrap().to_bytes().to_vec()))
}

fn server(bmc: &Fake, settings: Settings, image: &tempfile::TempDir) -> NativeProvisioner {
    NativeProvisioner::new(
        settings,
        assets(image).into(),
        Connectors::new().with(Protocol::Redfish, Wire(Arc::clone(&bmc.0))),
    )
}
