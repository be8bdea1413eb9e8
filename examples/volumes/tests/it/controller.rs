//! The controller on the embedded Kubernetes API, with a worker in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use kube::ResourceExt as _;
use provisioner::{MayAct, Purpose, Record as _, RecordContent};
use provisioner_external::{Connect, InMemory, Stream};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use volumes::record::StatusRecord;
use volumes::{Phase, kind};

use crate::memory::{Memory, Shelf, Stored, served, site};
use crate::world::World;

fn controller(world: &World, shelf: &Shelf) -> JoinHandle<()> {
    world.controller(site("memory"), Arc::new(served(Memory::new(shelf))))
}

fn theirs() -> Stored {
    Stored { id: "memory-theirs".into(), owner: "another-object".into(), size: 9, doing: None }
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_made_grows_and_is_erased_before_its_object_goes() {
    let (world, shelf) = (World::start().await, Shelf::default());
    let _controller = controller(&world, &shelf);
    world.create("a", 4).await;
    let made = world.ready("a", 4).await;
    let status = made.status.clone().unwrap();
    assert_eq!((status.provisioner.as_str(), made.finalizers()), ("memory", [kind::FINALIZER.to_owned()].as_slice()));
    assert_eq!(Some(status.id), shelf.get("a").map(|stored| stored.id));
    world.resize("a", 9).await;
    world.ready("a", 9).await;
    world.delete("a").await;
    let says =
        |status: &volumes::StorageVolumeStatus| status.message.starts_with("the deletion waits: remove the volume");
    world.wait("a", "the deletion says what it waits for", says).await;
    world.gone("a").await;
    assert_eq!((shelf.get("a"), shelf.log()), (None, vec!["make a".into(), "grow a".into(), "remove a".into()]));
}

#[tokio::test(start_paused = true)]
async fn whenever_the_controller_and_its_worker_are_killed_nothing_is_done_twice() {
    let world = World::start().await;
    for moment in 0..20 {
        let (shelf, name) = (Shelf::default(), format!("a{moment}"));
        let killed_after = Duration::from_millis(300 * moment);
        let first = controller(&world, &shelf);
        world.create(&name, 4).await;
        sleep(killed_after).await;
        first.abort();
        let second = controller(&world, &shelf);
        world.ready(&name, 4).await;
        world.delete(&name).await;
        sleep(killed_after).await;
        second.abort();
        let third = controller(&world, &shelf);
        world.gone(&name).await;
        third.abort();
        assert_eq!(shelf.log(), [format!("make {name}"), format!("remove {name}")], "killed after {killed_after:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_is_anothers_is_neither_taken_nor_erased() {
    let (world, shelf) = (World::start().await, Shelf::default());
    let _controller = controller(&world, &shelf);
    shelf.put("a", Some(theirs()));
    world.create("a", 4).await;
    let refused = |status: &volumes::StorageVolumeStatus| status.message.contains("the volume of another-object");
    world.wait("a", "it is refused", refused).await;
    world.delete("a").await;
    world.gone("a").await;
    // One that was made, and in whose place another's lies now.
    world.create("b", 4).await;
    world.ready("b", 4).await;
    let ours = shelf.put("b", Some(theirs()));
    world.delete("b").await;
    let waits = |status: &volumes::StorageVolumeStatus| {
        status.phase == Phase::Failed
            && status.message.starts_with("the deletion waits: what lies there is the volume of another-object")
    };
    world.wait("b", "the deletion waits", waits).await;
    assert_eq!(shelf.put("b", ours), Some(theirs()));
    world.gone("b").await;
    assert_eq!((shelf.get("a"), shelf.get("b")), (Some(theirs()), None));
    assert_eq!(shelf.log(), ["make b", "remove b"]);
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_is_gone_is_not_made_again_as_an_empty_one() {
    let (world, shelf) = (World::start().await, Shelf::default());
    let _controller = controller(&world, &shelf);
    world.create("a", 4).await;
    world.ready("a", 4).await;
    shelf.put("a", None);
    world.resize("a", 5).await;
    let says = |status: &volumes::StorageVolumeStatus| status.message.contains("no empty one is made in its place");
    world.wait("a", "it says so", says).await;
    world.delete("a").await;
    world.gone("a").await;
    assert_eq!(shelf.log(), ["make a"]);
}

/// A worker that is away while the door is closed.
struct Door {
    is_open: Arc<AtomicBool>,
    behind: InMemory,
}

#[async_trait]
impl Connect for Door {
    async fn connect(&self) -> Result<Box<dyn Stream>, String> {
        if self.is_open.load(Ordering::SeqCst) { self.behind.connect().await } else { Err("the door is closed".into()) }
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_waits_for_a_worker_that_is_away_and_says_so() {
    let (world, shelf) = (World::start().await, Shelf::default());
    let first = controller(&world, &shelf);
    world.create("a", 4).await;
    world.ready("a", 4).await;
    first.abort();
    let is_open = Arc::new(AtomicBool::new(false));
    let door = Door { is_open: Arc::clone(&is_open), behind: served(Memory::new(&shelf)) };
    let _second = world.controller(site("memory"), Arc::new(door));
    world.delete("a").await;
    let says = |status: &volumes::StorageVolumeStatus| {
        status.message.starts_with("the deletion waits: ask the provisioner \"memory\": the door is closed")
    };
    world.wait("a", "it says what it waits for", says).await;
    assert!(shelf.get("a").is_some());
    is_open.store(true, Ordering::SeqCst);
    world.gone("a").await;
    assert_eq!(shelf.get("a"), None);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_is_refused_with_a_sentence() {
    let (world, shelf) = (World::start().await, Shelf::default());
    let _controller = controller(&world, &shelf);
    world.create("a", 4).await;
    world.ready("a", 4).await;
    for (change, said) in [
        (json!({ "spec": { "sizeMebibytes": 3 } }), "a volume does not shrink"),
        (json!({ "spec": { "provisioner": "other" } }), "a volume stays with its provisioner"),
        (json!({ "spec": { "sizeMebibytes": 0 } }), "greater than or equal to 1"),
    ] {
        let refused = world.patch("a", change).await.unwrap_err().to_string();
        assert!(refused.contains(said), "{refused}");
    }
    let spec = volumes::StorageVolumeSpec { size_mebibytes: 1, provisioner: Some("other".into()) };
    let other = volumes::StorageVolume::new("b", spec);
    world.api.create(&kube::api::PostParams::default(), &other).await.unwrap();
    let says = |status: &volumes::StorageVolumeStatus| {
        status.message == "choose a provisioner: there is no \"other\"; this server has memory"
    };
    world.wait("b", "it says which there are", says).await;
    world.delete("b").await;
    world.gone("b").await;
}

#[tokio::test(start_paused = true)]
async fn an_intent_is_of_the_object_that_was_decided_on_and_a_note_is_not_lost() {
    let world = World::start().await;
    let decided = world.create("a", 4).await;
    let may_act: MayAct = Arc::new(|| true);
    let record = StatusRecord::new(world.api.clone(), decided.clone(), Arc::clone(&may_act));
    let content = |n: u64| RecordContent { provisioner: "memory".into(), version: 1, data: json!({ "n": n }) };
    assert_eq!(record.write(0, content(1), Purpose::Intent).await, Ok(1));
    // A label is nothing that was decided on.
    world.patch("a", json!({ "metadata": { "labels": { "of": "somebody" } } })).await.unwrap();
    assert_eq!(record.write(1, content(2), Purpose::Intent).await, Ok(2));
    assert!(record.write(1, content(9), Purpose::Note).await.unwrap_err().why.contains("revision 2 is there"));
    assert_eq!(record.still_wanted().await, Ok(()));
    world.resize("a", 8).await;
    let refused = record.write(2, content(3), Purpose::Intent).await.unwrap_err();
    assert!(refused.why.contains("has changed") && record.still_wanted().await.is_err(), "{refused}");
    assert_eq!(record.write(2, content(3), Purpose::Note).await, Ok(3));
    // Another process has written.
    let other = StatusRecord::new(world.api.clone(), world.api.get("a").await.unwrap(), Arc::clone(&may_act));
    assert_eq!(other.write(3, content(4), Purpose::Note).await, Ok(4));
    assert!(record.write(3, content(9), Purpose::Note).await.unwrap_err().why.contains("revision 4 is there"));
    // Another object of this name.
    world.delete("a").await;
    world.gone("a").await;
    world.create("a", 4).await;
    assert!(other.write(4, content(9), Purpose::Note).await.unwrap_err().why.contains("another object"));
    assert_eq!(world.api.get("a").await.unwrap().status, None);
    let idle = StatusRecord::new(world.api.clone(), world.api.get("a").await.unwrap(), Arc::new(|| false));
    assert!(idle.write(0, content(1), Purpose::Intent).await.unwrap_err().not_leading);
}
