//! Registration: the host's node, found or made, described, and its BMC verified.
//!
//! **Whose a node is.** The node of the host's id comes first, if it has the host's name and BMC, or the host's own record names it: an id in a status may be
//! another host's. Without one, a node of the host's name is taken if it is at the host's BMC. A node that somebody else has named, at the same BMC or
//! with the same MAC address, is nobody's to take: that is a failure, and it names the node.
//!
//! **Whether the machine is in use** is asked where the host has no status that a server has written ([`crate::used`]).

use api::metal3::{BootFormat, BootMode, CleaningMode};
use api::metamorph::MachineRecordSpec;
use jiff::{SignedDuration, Timestamp};
use provisioner::{BmcAccess, Cause, Failure, OtherMachine, Purpose, RegisterRequest, Registered, Retry};
use provisioning_plan::in_use::Recorded;
use secrecy::ExposeSecret;
use serde_json::{Map, Value};

use crate::causes;
use crate::client::Place;
use crate::driver::Address;
use crate::fault::Fault;
use crate::host::{IronicHost, LATER, SOON};
use crate::image::capabilities;
use crate::journal::{Ports, Verified};
use crate::names::{instance_uuid, is_uuid, node_name};
use crate::node::{Node, State, Verb};
use crate::patch::Changes;
use crate::stop::{Step, Stop};
use crate::used::Use;
use crate::versions;

const DOING: &str = "register the host with Ironic";
/// How often an Ironic that does not reach the BMC is told user and password again.
const TOLD: SignedDuration = SignedDuration::from_mins(10);
/// Ports that were seen so long ago, seconds, are looked at again.
const SEEN: i64 = 60;

fn unserved(text: String) -> Failure {
    let mut failure = Failure::new(Cause::NotServed, format!("{DOING}: {text}"));
    failure.retry = Retry::AfterChange;
    failure
}

impl IronicHost {
    /// Registers the host.
    pub async fn registered(&mut self, request: RegisterRequest) -> Step<Registered> {
        self.leads()?;
        let address = self.address()?;
        let Some(access) = self.context.bmc.clone() else {
            let text = format!("{DOING}: user and password of its BMC are not known");
            return Err(Failure::new(Cause::InvalidRequest, text).into());
        };
        let version = self.client()?.version().await.map_err(|fault| self.heed(DOING, fault))?;
        self.suits(&address, version)?;
        self.locate(&address, &request).await?;
        let found = self.find(&address, &request).await?;
        if let Use::By(failure) = self.in_use(&request, found.as_ref()) {
            return Err(failure.into());
        }
        let (node, is_new) = match found {
            Some(node) => {
                // Another machine is no more the host's by a new address than by a new node.
                if !address.is_of(&node.driver_info) {
                    // Of a node that Ironic has never reached it has no machine: hosts that were declared with each other's addresses are corrected.
                    self.is_alone(&address, |place| place.is_verified).await?;
                    self.is_nobodys(&address, |other| other.is_there).await?;
                }
                (self.describe_node(node, &address, &access, &request).await?, false)
            }
            None => {
                self.is_same_ironic()?;
                self.is_alone(&address, |_| true).await?;
                self.is_nobodys(&address, |_| true).await?;
                (self.make(&address, &access, &request).await?, true)
            }
        };
        self.keep(&node, &request).await?;
        if !node.state().holds_lock() {
            self.make_ports(&node, is_new).await?;
        }
        let registered = self.verified(node, &request, &address, &access).await?;
        self.is_recorded_here(&access).await?;
        Ok(registered)
    }

    /// The record names the address at which the host has its machine, and not one that was corrected since: it would keep others from a machine that is theirs.
    /// What a machine has shown of itself was seen at the recorded one.
    async fn is_recorded_here(&self, access: &BmcAccess) -> Step<()> {
        let Some(record) = self.context.machine.recorded().await.map_err(Failure::from)? else { return Ok(()) };
        let is_here = record.bmc_address == access.address;
        if is_here || record.bmc.is_some() || record.agent.is_some() {
            return Ok(());
        }
        let corrected = MachineRecordSpec { bmc_address: access.address.clone(), ..record };
        self.context.machine.record(corrected).await.map_err(Failure::from)?;
        Ok(())
    }

    /// The Ironic that has the host's node: a host that comes with an id and without a record is looked for on all of them, before a node is made anew.
    async fn locate(&mut self, address: &Address, request: &RegisterRequest) -> Step<()> {
        if self.journal.data.ironic.is_some() || !is_uuid(&self.uuid()) || self.shared.ironics.len() < 2 {
            return Ok(());
        }
        let shared = std::sync::Arc::clone(&self.shared);
        let first = self.one()?.site.name.clone();
        if self.find(address, request).await?.is_some() {
            return Ok(());
        }
        for one in shared.ironics.iter().filter(|one| one.site.name != first) {
            let name = one.site.name.clone();
            self.journal.data.ironic = Some(name.clone());
            let found = self.find(address, request).await;
            self.journal.data.ironic = None;
            if found?.is_some() {
                self.journal.data.ironic = Some(name);
                break;
            }
        }
        Ok(())
    }

    /// Whether the recorded Ironic is where it was: another one at the new address may not know of a node that still works.
    fn is_same_ironic(&self) -> Result<(), Failure> {
        let one = self.one()?;
        let Some(before) = self.journal.data.endpoint.as_ref().filter(|before| **before != one.client.endpoint())
        else {
            return Ok(());
        };
        let text = format!(
            "{DOING}: the Ironic \"{}\" is at {} now and was at {before}, and does not have the host's node",
            one.site.name,
            one.client.endpoint()
        );
        let mut failure = Failure::new(Cause::ProvisionerUnavailable, text)
            .advise("give an Ironic with another database another name in the file of --ironics, or detach the host by force and attach it again");
        failure.retry = Retry::Held;
        Err(failure)
    }

    /// No other node that `counts` is at the host's BMC.
    async fn is_alone(&self, address: &Address, counts: impl Fn(&Place) -> bool + Send) -> Step<()> {
        let places = self.client()?.places(self.now()).await;
        let places = places.map_err(|fault| self.heed("look for other nodes at the host's BMC", fault))?;
        let known = self.uuid();
        let Some(other) =
            places.into_iter().find(|place| place.uuid != known && counts(place) && address.may_be(&place.bmcs))
        else {
            return Ok(());
        };
        let text = format!("{DOING}: the node {} is at its BMC", other.shown);
        Err(Failure::new(Cause::AnotherMachine, text)
            .advise("remove that node from Ironic if nobody needs it, or correct spec.bmc.address")
            .into())
    }

    /// A node is made of what a host says, before its BMC is reached: no machine of another host's that `counts` is taken from it so.
    async fn is_nobodys(&self, address: &Address, counts: impl Fn(&OtherMachine) -> bool + Send) -> Step<()> {
        let others = self.context.machine.others().await.map_err(Failure::from)?;
        let mac = self.context.boot_mac.as_ref().map(|mac| mac.to_ascii_lowercase().replace('-', ":"));
        let is_at = |record: &MachineRecordSpec| {
            Address::parse(&record.bmc_address, false).is_ok_and(|theirs| address.may_be_of(&theirs))
        };
        // A host whose record is of this address gives way to nobody who came later; one of another address says nothing of this machine.
        let recorded = self.context.machine.recorded().await.map_err(Failure::from)?;
        let is_new = !recorded.as_ref().is_some_and(is_at);
        let is_here = |other: &&OtherMachine| {
            let record = &other.record;
            let evidence = [&record.bmc, &record.agent];
            let has_mac = |mac: &String| evidence.into_iter().flatten().any(|seen| seen.macs.contains(mac));
            other.exists
                && counts(other)
                && (is_new || other.is_older)
                && (is_at(record) || mac.as_ref().is_some_and(has_mac))
        };
        let Some(other) = others.iter().find(is_here) else { return Ok(()) };
        let text =
            format!("{DOING}: its BMC's or its boot MAC address is that of the machine of the host {}", other.host);
        let mut failure = Failure::new(Cause::AnotherMachine, text)
            .advise("correct spec.bmc.address or spec.bootMACAddress, or delete the other host first");
        failure.retry = Retry::Held;
        Err(failure.into())
    }

    fn suits(&self, address: &Address, version: u32) -> Result<(), Failure> {
        let (driver, scheme) = (address.driver, &address.scheme);
        let site = &self.one()?.site;
        if self.context.boot_mode == BootMode::UefiSecureBoot && !driver.secure_boot && !site.fakes {
            return Err(unserved(format!(
                "spec.bootMode is UEFISecureBoot, which Ironic's driver for {scheme} does not switch"
            )));
        }
        if !driver.iso && !site.provisioning_network {
            return Err(unserved(format!(
                "a machine with the scheme {scheme} boots over the network, and the Ironic \"{}\" has none for it",
                site.name
            )));
        }
        if driver.needs_mac && self.context.boot_mac.is_none() {
            return Err(unserved(format!("spec.bootMACAddress is not set, which the scheme {scheme} needs")));
        }
        if self.context.disable_power_off && version < versions::POWER_OFF {
            let found =
                format!("this Ironic has the API version 1.{version}, which cannot keep power from being cut (1.95)");
            return Err(unserved(format!("spec.disablePowerOff is set, and {found}")));
        }
        Ok(())
    }

    async fn get(&self, ident: &str) -> Step<Option<Node>> {
        match self.client()?.node(ident).await {
            Ok(node) => Ok(Some(node)),
            Err(Fault::NotFound(_)) => Ok(None),
            Err(fault) => Err(self.heed("look for the node", fault)),
        }
    }

    async fn find(&self, address: &Address, request: &RegisterRequest) -> Step<Option<Node>> {
        let uuid = self.uuid();
        if is_uuid(&uuid)
            && let Some(node) = self.get(&uuid).await?
        {
            if !self.is_own(&node) {
                return Err(self.another(&node).into());
            }
            self.may_take(&node, request)?;
            return Ok(Some(node));
        }
        let name = node_name(&self.context.key.namespace, &self.context.key.name);
        if let Some(node) = self.get(&name).await? {
            if !address.is_of(&node.driver_info) {
                let text = format!("{DOING}: the node {} has its name, and another BMC", node.shown());
                return Err(Failure::new(Cause::AnotherMachine, text)
                    .advise("remove that node from Ironic if nobody needs it, or correct spec.bmc.address")
                    .into());
            }
            is_nobodys(&node)?;
            self.may_take(&node, request)?;
            return Ok(Some(node));
        }
        let Some(mac) = self.context.boot_mac.as_ref().filter(|mac| !mac.is_empty()) else { return Ok(None) };
        let ports = self.client()?.ports("address", &mac.to_ascii_lowercase()).await;
        let ports = ports.map_err(|fault| self.heed("look for a node with the boot MAC address", fault))?;
        let Some(owner) = ports.into_iter().find_map(|port| port.node_uuid) else { return Ok(None) };
        let Some(node) = self.get(&owner).await? else { return Ok(None) };
        // One that Ironic has found by itself has no name yet.
        let is_here = node.driver_info.is_empty() || address.is_of(&node.driver_info);
        if node.state() == State::Enroll && node.name.as_ref().is_none_or(String::is_empty) && is_here {
            is_nobodys(&node)?;
            return Ok(Some(node));
        }
        let text = format!("{DOING}: its boot MAC address {mac} is that of the node {}", node.shown());
        Err(Failure::new(Cause::AnotherMachine, text)
            .advise("correct spec.bootMACAddress, or remove that node from Ironic")
            .into())
    }

    /// Whether nothing runs on the host's node that the host does not have. Where it says what it asks for, [`crate::used`] tells.
    fn may_take(&self, node: &Node, request: &RegisterRequest) -> Result<(), Failure> {
        if request.asks_for.is_some() || request.restored.is_some() || !self.context.provisioning_id.is_empty() {
            return Ok(());
        }
        let known = request.deployed.image.is_some() || request.deployed.externally;
        let ours =
            node.instance_uuid.as_deref().map(str::to_ascii_lowercase) == Some(instance_uuid(&self.context.key.uid));
        if node.state().is_deployed() && !known && !ours {
            let text = format!(
                "{DOING}: {} of {}, and nothing is provisioned on this host by its status",
                node.doing(),
                node.shown()
            );
            let mut failure = Failure::new(Cause::MachineInUse, text);
            failure.retry = Retry::AfterChange;
            return Err(failure);
        }
        Ok(())
    }

    /// What is recorded before anything is made: which Ironic, and the node's id.
    async fn keep_id(&mut self, uuid: &str) -> Step<()> {
        let one = self.one()?;
        let (name, endpoint) = (one.site.name.clone(), one.client.endpoint());
        let before = self.journal.data.clone();
        self.journal.data.ironic = Some(name);
        self.journal.data.endpoint = Some(endpoint);
        self.journal.data.owner = Some(self.context.key.uid.clone());
        self.journal.data.node = Some(uuid.to_owned());
        if self.journal.data != before {
            self.record(Purpose::Note).await?;
        }
        Ok(())
    }

    async fn make(&mut self, address: &Address, access: &BmcAccess, request: &RegisterRequest) -> Step<Node> {
        let known = self.uuid();
        let uuid = if is_uuid(&known) { known } else { uuid::Uuid::new_v4().to_string() };
        let is_new = self.context.provisioning_id.is_empty() && self.journal.data.number == 0;
        if is_new && !request.has_past && request.deployed.image.is_none() && !request.deployed.externally {
            self.journal.data.unwritten = Some(self.context.key.uid.clone());
        }
        self.keep_id(&uuid).await?;
        self.leads()?;
        let mut fields = Map::new();
        let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
        set("uuid", uuid.clone().into());
        set("name", node_name(&self.context.key.namespace, &self.context.key.name).into());
        set("driver", address.driver.driver.into());
        for (field, value) in address.interfaces(false) {
            set(field, value.into());
        }
        let mut info = self.bmc_info(address, access);
        info.extend(self.agent_image(address).into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
        set("driver_info", Value::Object(info));
        let mut properties =
            Map::from_iter([("capabilities".to_owned(), capabilities(None, self.context.boot_mode).into())]);
        if let Some(architecture) = &self.context.architecture {
            properties.insert("cpu_arch".into(), architecture.clone().into());
        }
        set("properties", Value::Object(properties));
        set("automated_clean", (self.context.cleaning != CleaningMode::Disabled).into());
        if self.context.disable_power_off {
            set("disable_power_off", true.into());
        }
        if let Some(network) = &self.context.agent_network {
            set("network_data", network.clone());
        }
        let client = self.client()?;
        client.ordered(self.now(), &uuid);
        match client.create(&fields).await {
            Ok(node) => Ok(node),
            // Another process has made it, or somebody a node with its name: the next look tells.
            Err(fault @ Fault::Refused { status: 409, .. }) => match self.find(address, request).await? {
                Some(_) => Err(Stop::working(format!("{DOING}: {fault}"), self.soon(SOON))),
                None => Err(self.heed("make the node", fault)),
            },
            Err(fault) => Err(self.heed("make the node", fault)),
        }
    }

    fn bmc_info(&self, address: &Address, access: &BmcAccess) -> Map<String, Value> {
        let mut info =
            address.info(&access.username, access.password.expose_secret(), access.disable_certificate_verification);
        let external = self.one().ok().and_then(|one| one.site.external_url_v6.clone());
        if let Some(url) = external.filter(|_| address.is_v6()) {
            info.insert("external_http_url".into(), url.into());
        }
        info
    }

    /// What is booted for Ironic's agent; without a wish, what Ironic is configured with.
    fn agent_image(&self, address: &Address) -> Vec<(&'static str, Option<Value>)> {
        let (mut kernel, mut ramdisk, mut iso, mut parameters) = (None, None, None, None);
        let site = self.one().ok().map(|one| one.site.clone());
        match &self.context.agent_image {
            Some(image) if image.kind == BootFormat::Iso && address.driver.iso => iso = Some(image.url.clone()),
            Some(image) if image.kind == BootFormat::Initrd => {
                let own = site.as_ref().and_then(|site| site.ramdisk.as_ref()).map(|(kernel, _)| kernel.clone());
                kernel = image.kernel_url.clone().or(own);
                ramdisk = Some(image.url.clone());
                // What Ironic is configured with stays.
                parameters = image.kernel_parameters.as_ref().map(|more| format!("%default% {more}"));
            }
            _ => match site {
                Some(site) if address.driver.iso && site.iso.is_some() => iso = site.iso,
                Some(site) => (kernel, ramdisk) = site.ramdisk.unzip(),
                None => {}
            },
        }
        [
            ("deploy_kernel", kernel),
            ("deploy_ramdisk", ramdisk),
            ("deploy_iso", iso),
            ("kernel_append_params", parameters),
        ]
        .map(|(name, value)| (name, value.map(Value::from)))
        .into()
    }

    async fn describe_node(
        &self,
        node: Node,
        address: &Address,
        access: &BmcAccess,
        request: &RegisterRequest,
    ) -> Step<Node> {
        let moved = !address.is_of(&node.driver_info) || node.driver.as_deref() != Some(address.driver.driver);
        if node.state().is_at_work() {
            if request.credentials_changed || moved {
                let text = format!(
                    "{DOING}: its address or its credentials are changed when Ironic has done its work ({})",
                    node.doing()
                );
                return Err(Stop::working(text, self.soon(LATER)));
            }
            return Ok(node);
        }
        let mut changes = self.differing(&node, address, access);
        self.with_network(&node, &mut changes);
        if request.credentials_changed || request.restart || moved {
            self.with_credentials(&node, address, access, &mut changes);
        }
        let cleans = self.context.cleaning != CleaningMode::Disabled;
        changes.field("automated_clean", node.automated_clean.map(Value::from), Some(cleans.into()));
        self.change("describe the node", node, changes).await
    }

    /// User and password, which Ironic does not show.
    fn with_credentials(&self, node: &Node, address: &Address, access: &BmcAccess, changes: &mut Changes) {
        for (key, value) in self.bmc_info(address, access) {
            if ["_username", "_password"].iter().any(|secret| key.ends_with(secret)) {
                changes.member("driver_info", &node.driver_info, &key, Some(value));
            }
        }
    }

    /// The node is as the host wishes, before work begins on it: what has been changed since its registration is told to Ironic.
    /// Only work brings the agent's network along (`carries_network`).
    pub async fn up_to_date(&self, node: Node, carries_network: bool) -> Step<Node> {
        let (address, access) = (self.address()?, self.context.bmc.clone());
        let Some(access) = access.filter(|_| {
            let is_here = address.is_of(&node.driver_info);
            let is_driven = node.driver.as_deref() == Some(address.driver.driver) || is_free(&node);
            is_here && is_driven && !node.state().is_at_work()
        }) else {
            return Ok(node);
        };
        let mut changes = self.differing(&node, &address, &access);
        if carries_network {
            self.with_network(&node, &mut changes);
        }
        self.change("describe the node", node, changes).await
    }

    /// Tells an Ironic that does not reach the BMC user and password again, now and then: its database may have been restored from a time before they were
    /// changed. It fails nothing.
    pub async fn retell_credentials(&self, node: &Node) {
        let (now, uid) = (self.now(), &self.context.key.uid);
        let is_told = |told: Timestamp| now.duration_since(told).abs() < TOLD;
        let Ok(address) = self.address() else { return };
        let access =
            self.context.bmc.as_ref().filter(|_| address.is_of(&node.driver_info) && !node.state().is_at_work());
        let Some(access) = access.filter(|_| !self.shared.memory.of(uid, |live| live.told.is_some_and(is_told))) else {
            return;
        };
        let mut changes = Changes::default();
        self.with_credentials(node, &address, access, &mut changes);
        match self.change("tell Ironic user and password of the BMC again", node.clone(), changes).await {
            Ok(_) => self.shared.memory.of(uid, |live| live.told = Some(now)),
            Err(stop) => tracing::debug!(host = %self.context.key.name, ?stop, "user and password are not told again"),
        }
    }

    /// What differs of the node from what the host wishes, except for user, password, the agent's network, and what each work decides.
    fn differing(&self, node: &Node, address: &Address, access: &BmcAccess) -> Changes {
        let mut changes = Changes::default();
        let name = node_name(&self.context.key.namespace, &self.context.key.name);
        changes.field("name", node.name.clone().map(Value::from), Some(name.into()));
        if node.driver.as_deref() != Some(address.driver.driver) {
            changes.field("driver", node.driver.clone().map(Value::from), Some(address.driver.driver.into()));
            for (field, value) in address.interfaces(false) {
                changes.field(field, None, Some(value.into()));
            }
        } else if let Some(boot) = address.driver.boot.filter(|_| is_free(node)) {
            // Ironic changes no interface of a node that is in use.
            changes.field("boot_interface", node.boot_interface.clone().map(Value::from), Some(boot.into()));
        }
        let info = self.bmc_info(address, access);
        let is_secret = |key: &str| ["_username", "_password"].iter().any(|secret| key.ends_with(secret));
        let is_same = address.is_of(&node.driver_info);
        for (key, value) in info.iter().filter(|(key, _)| !is_secret(key)) {
            // Another form of the same address is left: it may be baremetal-operator's.
            let is_place = key.ends_with("_address") || key.ends_with("_port") || key.ends_with("_system_id");
            if !(is_place && is_same) {
                changes.member("driver_info", &node.driver_info, key, Some(value.clone()));
            }
        }
        let stale = |key: &&String| {
            ["ipmi_", "redfish_", "external_http_url"].iter().any(|family| key.starts_with(family))
                && !info.contains_key(*key)
        };
        for key in node.driver_info.keys().filter(stale) {
            changes.member("driver_info", &node.driver_info, key, None);
        }
        changes.members("driver_info", &node.driver_info, self.agent_image(address));
        let modes = capabilities(node.properties.get("capabilities"), self.context.boot_mode);
        changes.member("properties", &node.properties, "capabilities", Some(modes.into()));
        if let Some(architecture) = &self.context.architecture {
            changes.member("properties", &node.properties, "cpu_arch", Some(architecture.clone().into()));
        }
        if node.disable_power_off.unwrap_or(false) != self.context.disable_power_off {
            changes.field("disable_power_off", None, Some(self.context.disable_power_off.into()));
        }
        changes
    }

    /// The agent's network.
    fn with_network(&self, node: &Node, changes: &mut Changes) {
        let network = Some(node.network_data.clone()).filter(|network| !network.is_empty()).map(Value::Object);
        changes.field("network_data", network, self.context.agent_network.clone());
    }

    async fn keep(&mut self, node: &Node, request: &RegisterRequest) -> Step<()> {
        let is_new = self.context.provisioning_id.is_empty() && self.journal.data.number == 0;
        if is_new && (node.state().is_deployed() || request.has_past) {
            self.journal.data.unwritten = None;
        }
        self.keep_id(&node.uuid.clone()).await
    }

    /// The ports that the node is to have: of the boot MAC address, and of the interfaces that inspection has found.
    fn wished_ports(&self) -> Vec<(String, bool)> {
        let found = self.context.hardware.iter().flat_map(|hardware| hardware.nics.iter());
        let mut wished: Vec<(String, bool)> = found
            .filter_map(|nic| Some((nic.mac.as_ref()?.to_ascii_lowercase(), nic.pxe.unwrap_or(false))))
            .filter(|(mac, _)| !mac.is_empty())
            .collect();
        if let Some(mac) = self.boot_mac() {
            wished.retain(|(known, _)| *known != mac);
            wished.push((mac, true));
        }
        wished.sort_unstable();
        wished.dedup_by(|a, b| a.0 == b.0);
        wished
    }

    fn boot_mac(&self) -> Option<String> {
        self.context.boot_mac.as_ref().filter(|mac| !mac.is_empty()).map(|mac| mac.to_ascii_lowercase())
    }

    /// Makes the ports that are missing. A node that was made just now has none, and those that were seen a moment ago are there.
    async fn make_ports(&self, node: &Node, is_new: bool) -> Step<()> {
        let (uid, now, boot) = (&self.context.key.uid, self.now(), self.boot_mac());
        let wished = Ports { node: node.uuid.clone(), made: node.created_at.clone(), all: self.wished_ports() };
        let is_there = |(there, at): &(Ports, Timestamp)| {
            *there == wished && (0..SEEN).contains(&now.duration_since(*at).as_secs())
        };
        if wished.all.is_empty() || self.shared.memory.of(uid, |live| live.ports.as_ref().is_some_and(is_there)) {
            return Ok(());
        }
        let client = self.client()?;
        let known = if is_new {
            Vec::new()
        } else {
            client.ports("node_uuid", &node.uuid).await.map_err(|fault| self.heed("read the node's ports", fault))?
        };
        for (mac, pxe) in wished.all.clone() {
            if known.iter().any(|port| port.address.eq_ignore_ascii_case(&mac)) {
                continue;
            }
            self.leads()?;
            match client.create_port(&node.uuid, &mac, pxe).await {
                Ok(()) => {}
                Err(Fault::Refused { status: 409, text }) => {
                    let others = client.ports("address", &mac).await.map_err(|fault| self.heed("read ports", fault))?;
                    let other = others.into_iter().filter_map(|port| port.node_uuid).find(|other| *other != node.uuid);
                    if boot.as_ref() != Some(&mac) {
                        // The machine boots by another one: only that one has to be its own.
                        tracing::warn!(host = %self.context.key.name, mac, "the node gets no port of this address: {text}");
                        continue;
                    }
                    if let Some(other) = other {
                        let text = format!(
                            "{DOING}: its MAC address {mac} is that of the node {}",
                            crate::fault::clean(&other)
                        );
                        return Err(Failure::new(Cause::AnotherMachine, text)
                            .advise("correct spec.bootMACAddress, or remove that node from Ironic")
                            .into());
                    }
                    return Err(Stop::working(format!("make a port: {text}"), self.soon(SOON)));
                }
                Err(fault) => return Err(self.heed("make a port", fault)),
            }
        }
        self.shared.memory.of(uid, |live| live.ports = Some((wished, now)));
        Ok(())
    }

    /// Consent was given to destroy what the machine runs: work may remove it.
    async fn gives_away(&mut self, node: &Node, request: &RegisterRequest) -> Step<()> {
        let uid = Some(self.context.key.uid.clone());
        if request.asks_for.is_none() || request.deployed.externally || self.journal.data.given_away == uid {
            return Ok(());
        }
        if matches!(self.on_machine(Some(node), false), Recorded::Runs(_)) {
            self.journal.data.given_away = uid;
            self.record(Purpose::Note).await?;
        }
        Ok(())
    }

    /// The BMC of a node that Ironic has verified before lets itself be asked with the new credentials.
    async fn answers(&self, node: &Node) -> Step<()> {
        let fault = match self.client()?.asks_bmc(&node.uuid).await {
            Ok(()) => return Ok(()),
            Err(fault) => fault,
        };
        if let Fault::Refused { text, .. } | Fault::NotFound(text) = &fault {
            let is_bmcs = matches!(
                causes::cause(text),
                Cause::BmcCredentialsRefused | Cause::BmcUnreachable | Cause::BmcCertificateUntrusted
            );
            // What a BMC does not serve tells that it answers.
            if !is_bmcs && !fault.is_without(&node.uuid) {
                return Ok(());
            }
        }
        Err(self.heed("have Ironic ask the BMC with the new credentials", fault))
    }

    async fn verified(
        &mut self,
        node: Node,
        request: &RegisterRequest,
        address: &Address,
        access: &BmcAccess,
    ) -> Step<Registered> {
        let uid = &self.context.key.uid.clone();
        match node.state() {
            State::Verifying => Err(Stop::working("Ironic looks at the BMC", self.soon(SOON))),
            State::Enroll => {
                let waits = node.target_provision_state.as_deref() == Some("manageable");
                let with = Verified::with(access);
                let told = self.shared.memory.of(uid, |live| live.verifying.as_ref() == Some(&with));
                match node.error() {
                    // With these very credentials; it is tried again when the host says so.
                    Some(error) if told => {
                        self.shared.memory.of(uid, |live| live.verifying = None);
                        Err(causes::failure("have Ironic look at the BMC", Some(error)).of("BMC").into())
                    }
                    None if waits => Err(Stop::working("Ironic looks at the BMC", self.soon(SOON))),
                    _ => {
                        // Another node may have come to be at this BMC since this one was made.
                        self.is_alone(address, |place| place.is_tried).await?;
                        let stop = self.nudge(&node, Verb::Manage).await;
                        let told = matches!(stop, Stop::Working(_)).then_some(with);
                        self.shared.memory.of(uid, |live| live.verifying = told);
                        Err(stop)
                    }
                }
            }
            _ => {
                self.shared.memory.of(uid, |live| live.verifying = None);
                if request.credentials_changed {
                    self.answers(&node).await?;
                }
                let recognized = match self.in_use(request, Some(&node)) {
                    Use::By(failure) | Use::Perhaps(failure) => return Err(failure.into()),
                    Use::Recognized => true,
                    Use::GoOn => {
                        self.gives_away(&node, request).await?;
                        false
                    }
                };
                let given = &self.context.provisioning_id;
                let id = if given.is_empty() { node.uuid.clone() } else { given.clone() };
                Ok(Registered { id, powered_on: node.is_on(), recognized })
            }
        }
    }
}

/// Whether Ironic changes its driver and its interfaces.
fn is_free(node: &Node) -> bool {
    matches!(node.state(), State::Enroll | State::Manageable | State::Available)
}

/// A node that belongs to a tenant of Ironic's is not taken.
fn is_nobodys(node: &Node) -> Result<(), Failure> {
    let set = |who: &Option<String>| who.clone().filter(|who| !who.is_empty());
    let Some(who) = set(&node.owner).or_else(|| set(&node.lessee)) else { return Ok(()) };
    let text =
        format!("{DOING}: the node {} belongs to the tenant {} of Ironic", node.shown(), crate::fault::clean(&who));
    Err(Failure::new(Cause::AnotherMachine, text).advise("remove owner and lessee from that node if it is this host's"))
}
