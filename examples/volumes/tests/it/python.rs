//! The worker in Python (`examples/volumes/python`), as a child process: `make test-provisioners`, which has it built.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use provisioner_external::check::{Checked, Numbered, real_time};
use provisioner_external::{
    Connect, External, Known, Patience, Program, Reached, Site, Supervised, supervise, unix_socket,
};
use provisioner_kit::{capabilities_of, run};
use tokio::time::sleep;
use volumes::volume::scenarios;
use volumes::{Phase, StorageVolumeStatus, Volume};

use crate::world::World;

/// The worker, kept running over this folder.
fn started(folder: &Path) -> (Supervised, Site, Arc<dyn Connect>) {
    std::fs::write(folder.join(".volumes"), "").unwrap();
    let built = std::env::var_os("METAMORPH_PROVISIONERS");
    let built = PathBuf::from(built.expect("METAMORPH_PROVISIONERS names what tests/provisioners/build has built"));
    let program = Program {
        path: built.join("files-python"),
        arguments: Vec::new(),
        environment: BTreeMap::from([
            ("VOLUMES_FOLDER".to_owned(), folder.to_str().unwrap().to_owned()),
            ("VOLUMES_STEP_MEBIBYTES".to_owned(), "1".to_owned()),
        ]),
        user: None,
        group: None,
    };
    let program_of = supervise("files", &program, Patience::default()).unwrap();
    let connect: Arc<dyn Connect> = Arc::new(unix_socket(program_of.socket.clone(), None));
    (program_of, Site::new("files", Reached::Started(program)), connect)
}

/// Asks until it greets.
async fn greeted(site: &Site, connect: &Arc<dyn Connect>) -> Arc<Known<Volume>> {
    let external = External::<Volume>::new(site.clone(), Arc::clone(connect));
    for _ in 0..60 {
        match external.greet().await {
            Ok(known) => return known,
            Err(_) => sleep(Duration::from_millis(500)).await,
        }
    }
    panic!("it does not greet: {:?}", external.greet().await);
}

/// What lies in a folder, hidden or not.
fn names(folder: &Path) -> Vec<String> {
    let all = std::fs::read_dir(folder).map(|all| all.map(|one| one.unwrap().file_name().into_string().unwrap()));
    all.map(Iterator::collect).unwrap_or_default()
}

#[test]
fn the_worker_in_python_passes_every_scenario() {
    let folder = tempfile::tempdir().unwrap();
    let (_worker, site, connect) = started(folder.path());
    let real = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let known = real.block_on(greeted(&site, &connect));
    drop(real);
    let paused = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let report = paused.block_on(async {
        let machines = Numbered::from(known.check_address.clone().unwrap(), 1, connect).unwrap();
        let checked = Checked::<Volume>::new(site, known, Box::new(machines), Some(real_time()));
        run(&checked, &scenarios(&capabilities_of(&checked))).await
    });
    assert!(report.violations.is_empty(), "{report}");
    assert!(report.left_out.iter().all(|name| name.contains("forgotten")), "{:?}", report.left_out);
}

#[tokio::test]
async fn the_controller_makes_grows_and_erases_a_file_by_it() {
    let folder = tempfile::tempdir().unwrap();
    let (_worker, site, connect) = started(folder.path());
    greeted(&site, &connect).await;
    let world = World::start().await;
    let _controller = world.controller(site, connect);
    world.create("a", 2).await;
    let status = world.ready("a", 2).await.status.unwrap();
    let place = folder.path().join("default/a");
    let data = std::fs::metadata(place.join("data")).unwrap();
    assert_eq!(data.len(), 2 << 20);
    let identity: serde_json::Value =
        serde_json::from_slice(&std::fs::read(place.join("volume.json")).unwrap()).unwrap();
    assert_eq!(identity["id"], status.id.as_str());
    // What is erased is the content, not only the name: another name of the file shows it.
    std::fs::write(place.join("data"), vec![7; 2 << 20]).unwrap();
    let kept = folder.path().join("kept");
    std::fs::hard_link(place.join("data"), &kept).unwrap();
    world.resize("a", 3).await;
    world.ready("a", 3).await;
    let grown = std::fs::read(&kept).unwrap();
    assert!(grown.len() == 3 << 20 && grown[..2 << 20].iter().all(|byte| *byte == 7), "growing keeps the content");
    world.delete("a").await;
    world.gone("a").await;
    assert_eq!(names(&folder.path().join("default")), Vec::<String>::new());
    let erased = std::fs::read(&kept).unwrap();
    assert!(erased.len() == 3 << 20 && erased.iter().all(|byte| *byte == 0));
}

#[tokio::test]
async fn killed_while_it_makes_and_while_it_erases_it_goes_on_from_what_lies_there() {
    let folder = tempfile::tempdir().unwrap();
    let (worker, site, connect) = started(folder.path());
    greeted(&site, &connect).await;
    let world = World::start().await;
    let _controller = world.controller(site, connect);
    world.create("a", 32).await;
    let is_at = |what: &'static str| {
        move |status: &StorageVolumeStatus| status.phase == Phase::Working && status.message.contains(what)
    };
    world.wait("a", "it is being made", is_at("make the volume")).await;
    // Whoever supervises it kills one that hangs, and starts it again.
    worker.hangs().notify_one();
    world.ready("a", 32).await;
    let data = folder.path().join("default/a/data");
    std::fs::write(&data, vec![7; 32 << 20]).unwrap();
    let kept = folder.path().join("kept");
    std::fs::hard_link(&data, &kept).unwrap();
    world.delete("a").await;
    world.wait("a", "it is being erased", is_at("erase the volume")).await;
    worker.hangs().notify_one();
    world.gone("a").await;
    assert!(std::fs::read(&kept).unwrap().iter().all(|byte| *byte == 0));
    assert_eq!(names(&folder.path().join("default")), Vec::<String>::new());
}
