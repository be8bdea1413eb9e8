//! What a BMC lacks is told without asking it, and the address's scheme chooses who speaks to it.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bmc::{
    Bmc, BmcError, BootDevice, BootStanding, Capability, Connector, Connectors, ErrorKind, Lacking, Power, PowerAction,
    Protocol, Sight, Target, capabilities,
};
use inventory::BmcPin;

/// What ipmitool can do: chassis power, and the boot device; no media.
struct Ipmi;

#[async_trait]
impl Bmc for Ipmi {
    async fn begin(&self, _stale: &[String]) -> Result<Sight, BmcError> {
        self.look().await
    }
    async fn look(&self) -> Result<Sight, BmcError> {
        Ok(Sight::default())
    }
    async fn macs(&self) -> Result<Vec<String>, BmcError> {
        Ok(Vec::new())
    }
    fn pin(&self) -> BmcPin {
        BmcPin::default()
    }
    fn calls(&self) -> u32 {
        0
    }
    fn session(&self) -> Option<String> {
        None
    }
    async fn close(&self) {}
    fn power(&self) -> &dyn Power {
        self
    }
    fn boot_device(&self) -> Result<&dyn BootDevice, Lacking> {
        Ok(self)
    }
}

#[async_trait]
impl Power for Ipmi {
    async fn change(&self, _action: PowerAction) -> Result<(), BmcError> {
        Ok(())
    }
}

#[async_trait]
impl BootDevice for Ipmi {
    async fn once_from_medium(&self) -> Result<(), BmcError> {
        Ok(())
    }
    async fn normally(&self) -> Result<(), BmcError> {
        Ok(())
    }
    async fn standing(&self) -> Result<BootStanding, BmcError> {
        Ok(BootStanding::default())
    }
}

#[test]
fn what_a_protocol_does_not_have_its_bmcs_lack() {
    let (has, lacks) = capabilities(&Ipmi);
    assert_eq!(has, [Capability::BootDevice]);
    assert!(lacks.iter().any(|lacking| lacking.capability == Capability::VirtualMedia), "{lacks:?}");
    let error = BmcError::from(Ipmi.virtual_media().err().unwrap());
    assert_eq!(error.kind, ErrorKind::Unsupported);
    assert!(error.kind.is_refusal() && !error.is_transient());
    assert!(error.to_string().contains("virtual media") && error.to_string().contains("protocol"), "{error}");
    assert!(error.advice.contains("spec.bmc.address"), "{}", error.advice);
}

/// Notes what it is to connect to.
#[derive(Clone, Default)]
struct Noting(Arc<Mutex<Vec<Target>>>);

impl Connector for Noting {
    fn connect(&self, target: Target) -> Result<Arc<dyn Bmc>, BmcError> {
        self.0.lock().unwrap().push(target);
        Ok(Arc::new(Ipmi))
    }
}

fn target(address: &str) -> Result<Target, BmcError> {
    Target::parse(address, "admin", "secret-word".to_owned().into())
}

#[test]
fn the_scheme_chooses_the_connector() {
    let noting = Noting::default();
    let connectors = Connectors::new().with(Protocol::Redfish, noting.clone());
    for scheme in ["redfish", "idrac-virtualmedia+http"] {
        connectors.connect(target(&format!("{scheme}://h/redfish/v1/Systems/1")).unwrap()).unwrap();
    }
    let asked = noting.0.lock().unwrap();
    assert_eq!(asked.iter().map(|t| t.address.origin()).collect::<Vec<_>>(), ["https://h", "http://h"]);
    assert!(!format!("{asked:?}").contains("secret-word"), "a target's Debug shows no password");
}

#[test]
fn a_protocol_that_nobody_speaks_is_refused_by_its_name() {
    let error = Connectors::new().connect(target("redfish://h").unwrap()).err().unwrap();
    assert_eq!(error.kind, ErrorKind::Address);
    assert!(error.to_string().contains("Redfish") && error.advice.contains("spec.bmc.address"), "{error}");
}

#[test]
fn what_cannot_be_used_is_told_before_anybody_connects() {
    let error = target("ipmi://192.0.2.1").unwrap_err();
    assert_eq!(error.kind, ErrorKind::Address);
    assert!(error.to_string().contains("\"ipmi\" is known but not served"), "{error}");
    let error = Target::parse("redfish://h", "admin", "two\nlines".to_owned().into()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unauthorized);
    assert!(error.advice.contains("Secret") && !error.to_string().contains("two"), "{error}");
}
