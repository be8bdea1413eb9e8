//! Deployment: an image on a disk, a live ISO, or a method of the agent's own.

use async_trait::async_trait;
use provisioner::{
    Cause, CleaningRequest, CustomDeploy, Deploy, Deprovisioned, Failure, LiveMedia, Method, Outcome, ProvisionRequest,
    Retry,
};
use serde_json::{Map, Value, json};

use crate::causes;
use crate::fault::Fault;
use crate::hints::root_device;
use crate::host::IronicHost;
use crate::image::{config_drive, deploy_interface, fault, image_fields, instance_capabilities, is_of};
use crate::journal::Kind;
use crate::names::instance_uuid;
use crate::node::{Node, State, Verb};
use crate::orders::Standing;
use crate::patch::Changes;
use crate::show::doing;
use crate::stop::{Step, answer};
use crate::way::Goal;

/// Priority of the step that a deploy method is, baremetal-operator's.
const METHOD_PRIORITY: u32 = 80;

fn wrong(text: String) -> Failure {
    let mut failure = Failure::new(Cause::InvalidRequest, format!("{}: {text}", doing(Kind::Provision)));
    failure.retry = Retry::AfterChange;
    failure
}

impl IronicHost {
    async fn deployed(&mut self, request: ProvisionRequest) -> Step<()> {
        self.leads()?;
        self.shared.memory.of(&self.context.key.uid, |live| live.attempt.ask());
        if let Some(fault) = fault(&request.method, &request.image) {
            return Err(wrong(fault).into());
        }
        let recorded = self.journal.data.on_machine();
        self.context.past.knows_before(request.wish.as_deref(), &recorded, doing(Kind::Provision))?;
        let is_first = self.journal.data.work.is_none();
        if !self.enter(Kind::Provision, request.wish.as_deref(), false).await? {
            return Ok(());
        }
        let (node, standing) = self.observe().await?;
        match standing {
            Some((order, Standing::Running)) => {
                if order.verb == Verb::Active && request.force_reboot && node.state() == State::DeployWait {
                    return Err(self.boot_again().await);
                }
                return Err(self.waits(&node).await);
            }
            Some((_, Standing::Failed)) => return Err(self.fail_with(&node, Kind::Provision).await),
            Some((order, Standing::Elsewhere)) => return Err(self.fail_lost(&node, &order, Kind::Provision).await),
            Some((order, Standing::Came)) if order.verb == Verb::Active => return self.finish(false).await,
            Some((_, Standing::Came | Standing::NotMade)) | None => {}
        }
        // A host that another controller has begun to provision: its deployment is this one, if it is of this image.
        if is_first && self.is_begun(&node, &request) {
            return Err(self.adopts_order(&node).await);
        }
        let node = self.advance(Goal::Available, node, true).await?;
        let drive = match (&request.config_drive, &request.method) {
            (Some(drive), Method::Disk | Method::Custom(_)) => Some(config_drive(drive).map_err(wrong)?),
            _ => None,
        };
        let node = self.describe_instance(&request, node).await?;
        self.validated(&node).await?;
        let mut with = Map::new();
        if let Some(drive) = drive {
            with.insert("configdrive".into(), drive);
        }
        if let Method::Custom(method) = &request.method {
            let step = json!({ "interface": "deploy", "step": method, "args": {}, "priority": METHOD_PRIORITY });
            with.insert("deploy_steps".into(), Value::Array(vec![step]));
        }
        Err(self.order(&node, Verb::Active, false, with).await)
    }

    fn is_begun(&self, node: &Node, request: &ProvisionRequest) -> bool {
        let deploys = matches!(node.state(), State::Deploying | State::DeployWait | State::DeployHold | State::Active);
        let ours =
            node.instance_uuid.as_deref().map(str::to_ascii_lowercase) == Some(instance_uuid(&self.context.key.uid));
        deploys && ours && is_of(&node.instance_info, &request.method, &request.image)
    }

    /// The deployment under way counts as ordered by the work under way.
    async fn adopts_order(&mut self, node: &Node) -> crate::stop::Stop {
        let made = node.created_at.clone();
        if let Some(work) = self.journal.running() {
            work.orders = work.orders.saturating_add(1);
            let (verb, number, from) = (Verb::Active, work.orders, "available".to_owned());
            work.order = Some(crate::orders::Order { verb, number, from, since: None, made, cleans: false });
        }
        self.journal.data.unwritten = None;
        if let Err(error) = self.record(provisioner::Purpose::Note).await {
            return error.into();
        }
        self.waits(node).await
    }

    /// What the node is deployed with.
    pub async fn describe_instance(&self, request: &ProvisionRequest, node: Node) -> Step<Node> {
        let pull_secret = request.pull_secret.as_ref().map(|secret| secret.0.as_str());
        let mut fields = image_fields(&request.method, &request.image, pull_secret);
        fields.push(("capabilities", Some(instance_capabilities(self.context.boot_mode))));
        fields.push(("root_device", Some(Value::Object(root_device(&request.root_device_hints)))));
        let mut changes = Changes::default();
        changes.members("instance_info", &node.instance_info, fields);
        let instance = instance_uuid(&self.context.key.uid);
        changes.field("instance_uuid", node.instance_uuid.clone().map(Value::from), Some(instance.into()));
        self.deploys_by(&request.method, &node, &mut changes);
        if !matches!(request.method, Method::Custom(_)) {
            changes.member("driver_info", &node.driver_info, "force_persistent_boot_device", Some("Default".into()));
        }
        self.change("describe what is deployed", node, changes).await
    }

    /// The deploy interface: one of ours is taken back where the type's own is meant, another's is left.
    pub fn deploys_by(&self, method: &Method, node: &Node, changes: &mut Changes) {
        let now = node.deploy_interface.clone();
        let is_ours = now.as_deref().is_some_and(|now| matches!(now, "ramdisk" | "custom-agent"));
        let wished = deploy_interface(method).filter(|_| self.capabilities.live_iso);
        if wished.is_some() || is_ours {
            changes.field("deploy_interface", now.map(Value::from), wished.map(Value::from));
        }
    }

    async fn validated(&mut self, node: &Node) -> Step<()> {
        let missing = match self.client()?.validate(&node.uuid).await {
            Ok(missing) => missing,
            Err(fault @ (Fault::Refused { .. } | Fault::NotFound(_))) => vec![fault.to_string()],
            Err(fault) => return Err(self.heed("have Ironic validate the node", fault)),
        };
        if missing.is_empty() {
            return Ok(());
        }
        let text = missing.join("; ");
        Err(self.fail(causes::failure("have Ironic validate the node", Some(&text))).await)
    }
}

#[async_trait]
impl Deploy for IronicHost {
    async fn provision(&mut self, request: ProvisionRequest) -> Outcome<()> {
        answer(self.deployed(request).await)
    }

    async fn deprovision(&mut self, request: CleaningRequest) -> Outcome<Deprovisioned> {
        answer(self.removed(request).await)
    }
}

#[async_trait]
impl LiveMedia for IronicHost {
    async fn boot_live(&mut self, request: ProvisionRequest) -> Outcome<()> {
        answer(self.deployed(request).await)
    }
}

#[async_trait]
impl CustomDeploy for IronicHost {
    async fn deploy(&mut self, request: ProvisionRequest) -> Outcome<()> {
        answer(self.deployed(request).await)
    }
}
