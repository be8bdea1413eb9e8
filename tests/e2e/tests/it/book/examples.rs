//! Each example is admitted as it is: by the embedded API with the real definitions and admission, strictly and without a warning; kinds that it
//! does not serve are read by Kubernetes' own types, which have to give back the very document.

use std::collections::BTreeSet;
use std::path::Path;

use e2e::{Options, World};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// An example's documents.
fn documents(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    let all: Vec<Value> =
        serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(!all.is_empty() && text.starts_with("# "), "{} says what it is for, and holds something", path.display());
    all
}

/// What does not come back as it was given is a field that the kind does not have, or a value of another type.
fn is<K: DeserializeOwned + Serialize>(document: &Value) {
    let typed: K = serde_json::from_value(document.clone()).unwrap();
    assert_eq!(&serde_json::to_value(&typed).unwrap(), document);
}

#[tokio::test]
async fn each_example_is_admitted_strictly_and_without_a_warning() {
    let world = World::start(Options::one_fake().with(&["--provisioner", "metamorph,fixture"])).await.unwrap();
    world.kubectl(&["create", "namespace", "metamorph-system"], "").await.ok();
    let mut admitted = BTreeSet::new();
    let folder = super::root().join("examples");
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|ending| ending != "yaml") {
            continue;
        }
        for document in documents(&path) {
            let kind = document["kind"].as_str().unwrap().to_owned();
            println!("{} {kind}", path.display());
            match kind.as_str() {
                "Deployment" => is::<Deployment>(&document),
                "Job" => is::<Job>(&document),
                "PersistentVolumeClaim" => is::<PersistentVolumeClaim>(&document),
                // What is in a namespace is not admitted before the namespace is there. All else is asked, and not kept: nobody is at the
                // addresses of the examples.
                "Namespace" => drop(world.kubectl(&["apply", "-f", "-"], &document.to_string()).await.unwrap()),
                _ => {
                    let strictly =
                        ["apply", "--dry-run=server", "--validate=strict", "--warnings-as-errors", "-f", "-"];
                    world.kubectl(&strictly, &document.to_string()).await.unwrap();
                }
            }
            admitted.insert(format!("{} {kind}", path.file_stem().unwrap().to_str().unwrap()));
        }
    }
    let readme = std::fs::read_to_string(folder.join("README.md")).unwrap();
    let files: BTreeSet<&str> = admitted.iter().filter_map(|name| name.split(' ').next()).collect();
    let unnamed: Vec<_> = files.iter().filter(|file| !readme.contains(&format!("({file}.yaml)"))).collect();
    assert!(unnamed.is_empty(), "examples/README.md does not name {unnamed:?}");
    assert!(admitted.contains("host BareMetalHost") && files.len() >= 8, "{admitted:?}");
}

#[tokio::test]
async fn an_example_that_is_wrong_would_be_seen() {
    let world = World::start(Options::one_fake()).await.unwrap();
    let strictly = ["apply", "--dry-run=server", "--validate=strict", "--warnings-as-errors", "-f", "-"];
    let host = std::fs::read_to_string(super::root().join("examples/host.yaml")).unwrap();
    for (from, to) in [
        ("online: true", "onlin: true"),
        ("redfish-virtualmedia+https://", "ipmi://"),
        ("  online: true", "  online: true\n  raid: {softwareRAIDVolumes: [{level: \"1\"}]}"),
    ] {
        let wrong = host.replace(from, to);
        assert_ne!(wrong, host);
        world.kubectl(&strictly, &wrong).await.unwrap_err();
    }
    let job = documents(&super::root().join("examples/provision-job.yaml")).pop().unwrap();
    let mut wrong = job;
    wrong["spec"]["templat"] = Value::Null;
    assert!(std::panic::catch_unwind(|| is::<Job>(&wrong)).is_err());
}
