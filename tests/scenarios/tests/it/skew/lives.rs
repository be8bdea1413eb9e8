//! Five lives of a host, as steps: what is wished, and how it is known that it has come about. A wish that is told again changes nothing.

use std::time::Duration;

use api::metal3::{BareMetalHost, OperationalStatus, ProvisioningState as State};
use kube::api::{DeleteParams, Patch, PatchParams};
use scenarios::Site;
use serde_json::{Value, json};

/// The longest way of a step, in looks.
const LONGEST: u32 = 3600;
/// From look to look.
const LOOK: Duration = Duration::from_secs(4);

pub struct Life {
    pub name: &'static str,
    /// So many writes fail.
    pub bad_writes: u32,
    pub steps: &'static [(Wish, Arrived)],
}

#[derive(Clone, Copy, Debug)]
pub enum Wish {
    /// The host is declared, with this in its spec.
    Declared(&'static str),
    /// It is changed so (a merge patch).
    Changed(&'static str),
    Deleted,
}

#[derive(Clone, Copy, Debug)]
pub enum Arrived {
    Available,
    /// With this image.
    Provisioned(&'static str),
    Detached,
    Gone,
}

const A: &str = "http://192.0.2.8/a";
const B: &str = "http://192.0.2.8/b";
const NO_IMAGE: Wish = Wish::Changed(r#"{"spec": {"image": null}}"#);
const IMAGE_A: Wish = Wish::Changed(
    r#"{"spec": {"image": {"url": "http://192.0.2.8/a", "format": "raw", "checksumType": "sha256",
        "checksum": "0000000000000000000000000000000000000000000000000000000000000000"}}}"#,
);
const IMAGE_B: Wish = Wish::Changed(
    r#"{"spec": {"image": {"url": "http://192.0.2.8/b", "format": "raw", "checksumType": "sha256",
        "checksum": "1111111111111111111111111111111111111111111111111111111111111111"}}}"#,
);

pub const LIVES: [Life; 5] = [
    Life {
        name: "whole",
        bad_writes: 0,
        steps: &[
            (Wish::Declared("{}"), Arrived::Available),
            (IMAGE_A, Arrived::Provisioned(A)),
            (NO_IMAGE, Arrived::Available),
            (Wish::Deleted, Arrived::Gone),
        ],
    },
    Life {
        name: "uncleaned",
        bad_writes: 0,
        steps: &[
            (Wish::Declared(r#"{"automatedCleaningMode": "disabled"}"#), Arrived::Available),
            (IMAGE_A, Arrived::Provisioned(A)),
            (NO_IMAGE, Arrived::Available),
        ],
    },
    Life {
        name: "failed-write",
        bad_writes: 1,
        steps: &[
            (Wish::Declared("{}"), Arrived::Available),
            (IMAGE_A, Arrived::Provisioned(A)),
            (NO_IMAGE, Arrived::Available),
        ],
    },
    Life {
        name: "detached",
        bad_writes: 0,
        steps: &[
            (Wish::Declared("{}"), Arrived::Available),
            (IMAGE_A, Arrived::Provisioned(A)),
            (
                Wish::Changed(r#"{"metadata": {"annotations": {"baremetalhost.metal3.io/detached": ""}}}"#),
                Arrived::Detached,
            ),
            (
                Wish::Changed(r#"{"metadata": {"annotations": {"baremetalhost.metal3.io/detached": null}}}"#),
                Arrived::Provisioned(A),
            ),
            (NO_IMAGE, Arrived::Available),
        ],
    },
    Life {
        name: "other-image",
        bad_writes: 0,
        steps: &[
            (Wish::Declared("{}"), Arrived::Available),
            (IMAGE_A, Arrived::Provisioned(A)),
            (IMAGE_B, Arrived::Provisioned(B)),
            (NO_IMAGE, Arrived::Available),
        ],
    },
];

impl Wish {
    async fn apply(self, site: &Site) {
        let hosts = site.hosts();
        let change = |text: &str| Patch::Merge(serde_json::from_str::<Value>(text).unwrap());
        match self {
            Self::Declared(spec) => {
                if hosts.get_opt("a").await.unwrap().is_none() {
                    site.create_host("a").await;
                }
                let spec: Value = serde_json::from_str(spec).unwrap();
                let spec = Patch::Merge(json!({ "spec": spec }));
                hosts.patch("a", &PatchParams::default(), &spec).await.map(drop)
            }
            Self::Changed(text) => hosts.patch("a", &PatchParams::default(), &change(text)).await.map(drop),
            Self::Deleted => match hosts.get_opt("a").await.unwrap() {
                Some(_) => hosts.delete("a", &DeleteParams::default()).await.map(drop),
                None => Ok(()),
            },
        }
        .unwrap();
    }
}

impl Arrived {
    fn is(self, host: Option<&BareMetalHost>) -> bool {
        let status = host.and_then(|host| host.status.as_ref());
        let operational = status.map(|status| status.operational_status);
        let state = host.map(BareMetalHost::state);
        match self {
            Self::Available => state == Some(State::Available) && operational == Some(OperationalStatus::Ok),
            Self::Provisioned(url) => {
                let image = status.map(|status| status.provisioning.image.url.as_str());
                state == Some(State::Provisioned) && operational == Some(OperationalStatus::Ok) && image == Some(url)
            }
            Self::Detached => operational == Some(OperationalStatus::Detached),
            Self::Gone => host.is_none(),
        }
    }

    /// Waits for it; the host as it is, if that lasts too long.
    async fn waited(self, site: &Site) -> Result<(), String> {
        let mut last = None;
        for _ in 0..LONGEST {
            last = site.hosts().get_opt("a").await.unwrap();
            if self.is(last.as_ref()) {
                return Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
        Err(format!("never {self:?}: {}", serde_json::to_string(&last).unwrap()))
    }
}

/// Goes on with a life from this step, with a pause after each; `begun` is told of each.
pub async fn go_on(
    life: &Life,
    from: usize,
    site: &Site,
    pause: Duration,
    mut begun: impl FnMut(usize),
) -> Result<(), String> {
    for (number, (wish, arrived)) in life.steps.iter().enumerate().skip(from) {
        begun(number);
        wish.apply(site).await;
        arrived.waited(site).await.map_err(|why| format!("step {number}: {why}"))?;
        tokio::time::sleep(pause).await;
    }
    Ok(())
}
