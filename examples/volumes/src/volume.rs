//! Volumes as a kind of resource: what travels between the controller and a worker, and what the kit asks of one.

use std::sync::Arc;

use async_trait::async_trait;
use provisioner::{Asked, Cause, Context, ObjectKey, Provides, Resource};
use provisioner_external::check::Checkable;
use provisioner_external::{Carried, Exchange, External, v1};
use provisioner_kit::{Condition, Effect, Scenario, Step, Story, Tested};
use serde::{Deserialize, Serialize};

/// A StorageVolume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Volume;

/// What is known of one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeFacts {
    /// Which.
    pub key: ObjectKey,
    /// What its provisioner knows it by; empty before it is made.
    #[serde(default)]
    pub id: String,
    /// The object is being deleted.
    #[serde(default)]
    pub deleting: bool,
}

/// A size that is wished.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// MiB.
    pub size_mebibytes: u64,
    /// Another attempt after one that failed.
    #[serde(default)]
    pub restart: bool,
}

/// That it should be gone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removal {
    /// Another attempt after one that failed.
    #[serde(default)]
    pub restart: bool,
}

/// What a volume is asked. What is wished is a state, so that a call needs no identity beside its object's uid: one that is repeated finds it so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "call", content = "request", rename_all = "camelCase")]
pub enum VolumeCall {
    /// Makes it, if it never was; done with what is there. A volume that was made and is gone is not made again.
    Make(Size),
    /// Makes it larger, if it is smaller.
    Grow(Size),
    /// Erases and removes it. Done also where there is none, and none was made.
    Remove(Removal),
}

/// What that gives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", content = "value", rename_all = "camelCase")]
pub enum VolumeAnswer {
    /// It is gone.
    Done,
    /// It is there.
    Volume(VolumeState),
}

/// A volume that is there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeState {
    /// What its provisioner knows it by, for ever.
    pub id: String,
    /// MiB.
    pub size_mebibytes: u64,
}

/// What can be asked of a volume beside [`VolumeCall::Make`] and [`VolumeCall::Remove`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeCapabilities {
    /// [`VolumeCall::Grow`].
    #[serde(default)]
    pub grow: bool,
}

impl Asked for VolumeCall {
    fn name(&self) -> &'static str {
        match self {
            Self::Make(_) => "make",
            Self::Grow(_) => "grow",
            Self::Remove(_) => "remove",
        }
    }
}

impl Resource for Volume {
    const KIND: &'static str = "volume";
    const VERSION: u32 = 1;
    type Facts = VolumeFacts;
    type Call = VolumeCall;
    type Answer = VolumeAnswer;
    type Capabilities = VolumeCapabilities;
    type Context = Context<Self>;
    type Provisioner = dyn Provides<Self>;

    fn key(facts: &VolumeFacts) -> &ObjectKey {
        &facts.key
    }
}

#[async_trait]
impl Carried for Volume {
    const THING: &'static str = "volume";

    fn unknown() -> VolumeCapabilities {
        VolumeCapabilities { grow: true }
    }
    fn id(facts: &VolumeFacts) -> &str {
        &facts.id
    }
    fn given_id(answer: &VolumeAnswer) -> Option<&str> {
        if let VolumeAnswer::Volume(volume) = answer { Some(&volume.id) } else { None }
    }
    fn is_leaving(facts: &VolumeFacts) -> bool {
        facts.deleting
    }
    /// A worker's volumes are all found by its own means.
    fn address(_: &VolumeFacts) -> &str {
        ""
    }
    fn received(common: Context<Self>, _: v1::Call, _: &Arc<Exchange>) -> Context<Self> {
        common
    }
}

impl Tested for Volume {
    type World = ();
    type Access = ();

    /// A worker's volumes are found by name.
    fn declared(key: ObjectKey, address: String) -> (VolumeFacts, ()) {
        (VolumeFacts { key: ObjectKey { name: address, ..key }, ..VolumeFacts::default() }, ())
    }
    fn context((): &(), (): (), common: Context<Self>) -> Context<Self> {
        common
    }
    fn fits(call: &VolumeCall, answer: &VolumeAnswer) -> bool {
        match (call, answer) {
            (VolumeCall::Remove(_), VolumeAnswer::Done) => true,
            (VolumeCall::Make(size) | VolumeCall::Grow(size), VolumeAnswer::Volume(volume)) => {
                !volume.id.is_empty() && volume.size_mebibytes >= size.size_mebibytes
            }
            _ => false,
        }
    }
    fn restart(call: &mut VolumeCall) {
        match call {
            VolumeCall::Make(size) | VolumeCall::Grow(size) => size.restart = true,
            VolumeCall::Remove(removal) => removal.restart = true,
        }
    }
    fn learn(facts: &mut VolumeFacts, answer: &VolumeAnswer) {
        if let VolumeAnswer::Volume(volume) = answer {
            facts.id.clone_from(&volume.id);
        }
    }
    fn lets_go(call: &VolumeCall) -> bool {
        matches!(call, VolumeCall::Remove(_))
    }
}

impl Checkable for Volume {
    fn adapter(external: External<Self>) -> Arc<dyn Provides<Self>> {
        Arc::new(external)
    }
}

/// The scenarios that each provisioner of volumes passes.
#[must_use]
pub fn scenarios(capabilities: &VolumeCapabilities) -> Vec<Scenario<Volume>> {
    let size = |size_mebibytes| Size { size_mebibytes, restart: false };
    let make = Step::of(VolumeCall::Make(size(4)), Some(Effect::Write));
    let grow = Step::of(VolumeCall::Grow(size(7)), Some(Effect::Configure));
    let gone = VolumeCall::Remove(Removal::default());
    let remove = Step::of(gone.clone(), Some(Effect::Wipe));
    let made = vec![make.clone()];
    let mut stories = vec![
        Story { name: "make", before: Vec::new(), step: make, works: true },
        Story { name: "remove", before: made.clone(), step: remove, works: true },
        Story { name: "remove what never was", before: Vec::new(), step: Step::of(gone.clone(), None), works: false },
    ];
    if capabilities.grow {
        stories.push(Story { name: "grow", before: made, step: grow, works: true });
    }
    let mut all = Vec::new();
    for story in &stories {
        story.everywhere(&mut all);
        if !story.works {
            continue;
        }
        all.push(story.refused("it is another's", Condition::Foreign, Cause::ForeignOwner));
        if story.name != "make" {
            all.push(story.refused("another has its name", Condition::Another, Cause::AnotherMachine));
        }
        if story.name != "remove" {
            all.push(story.cancelled("it is deleted", gone.clone(), Some(Effect::Wipe)));
        }
    }
    all
}
