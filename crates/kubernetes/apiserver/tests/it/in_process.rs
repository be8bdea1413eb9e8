//! The server in process: kube's client asks it without a socket, and a paused clock is the only one.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use apiserver::Reviewer;
use apiserver::in_process::{Disk, ExecutorClock, Identity, InProcess, Setup};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{
    DeleteParams, DynamicObject, ListParams, ObjectMeta, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube::core::{ApiResource, Status};
use kube::{Api, Client, Error, ResourceExt as _};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::common;

/// Where the clock of every run begins.
const BEGIN: &str = "2026-01-01T00:00:00Z";

/// A disk with Metal³'s definitions, made once.
fn prepared() -> &'static Disk {
    static PREPARED: OnceLock<Disk> = OnceLock::new();
    PREPARED.get_or_init(|| {
        let made = std::thread::spawn(|| {
            paused(async {
                let disk = Disk::new().unwrap();
                let server = start(&disk, 1).await;
                for file in common::upstream() {
                    server.apply_crd_yaml(&std::fs::read_to_string(file).unwrap()).await.unwrap();
                }
                server.install(common::widgets()).await.unwrap();
                server.shutdown().await;
                disk
            })
        });
        made.join().unwrap()
    })
}

fn paused<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(work)
}

async fn start(disk: &Disk, seed: u64) -> InProcess {
    let clock = Arc::new(ExecutorClock::starting_at(BEGIN.parse().unwrap()));
    InProcess::start(Setup { disk: disk.clone(), clock, seed, reviewers: vec![] }).await.unwrap()
}

fn client(server: &InProcess) -> Client {
    Client::new(server.caller(Identity::administrator()), "default")
}

fn hosts(client: Client) -> Api<DynamicObject> {
    Api::default_namespaced_with(client, &kind("metal3.io", "v1alpha1", "BareMetalHost", "baremetalhosts"))
}

fn kind(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    let api_version = format!("{group}/{version}");
    ApiResource { group: group.into(), version: version.into(), api_version, kind: kind.into(), plural: plural.into() }
}

fn host(name: &str) -> DynamicObject {
    let object = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": {"name": name},
        "spec": {"online": true, "bootMACAddress": "00:00:00:00:00:01"}});
    serde_json::from_value(object).unwrap()
}

fn map(name: &str, value: &str) -> ConfigMap {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    ConfigMap { metadata, data: Some([("k".to_owned(), value.to_owned())].into()), ..ConfigMap::default() }
}

/// The answer that a call was refused with.
fn refused<T: std::fmt::Debug>(outcome: Result<T, Error>) -> Status {
    match outcome {
        Err(Error::Api(status)) => *status,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn a_host_is_created_watched_changed_and_deleted() {
    let disk = prepared().copy().unwrap();
    paused(async {
        let server = start(&disk, 2).await;
        let hosts = hosts(client(&server));
        tokio::time::advance(Duration::from_secs(90)).await;
        let mut made = host("a");
        made.metadata.finalizers = Some(vec!["example.com/hold".to_owned()]);
        let made = hosts.create(&PostParams::default(), &made).await.unwrap();
        assert_eq!(made.creation_timestamp().unwrap().0.to_string(), "2026-01-01T00:01:30Z");
        let version = made.resource_version().unwrap();
        let stream = hosts.watch(&WatchParams::default(), &version).await.unwrap();
        let mut stream = Box::pin(stream);
        // Two changes from the same version: the second is refused.
        let mut first = made.clone();
        first.data["spec"]["online"] = json!(false);
        let after = hosts.replace("a", &PostParams::default(), &first).await.unwrap();
        assert!(after.resource_version() > Some(version));
        assert_eq!(after.metadata.generation, Some(2));
        let conflict = refused(hosts.replace("a", &PostParams::default(), &made).await);
        assert_eq!((conflict.code, conflict.reason.as_str()), (409, "Conflict"));
        // Status by merge patch, spec by apply.
        let status = Patch::Merge(json!({"status": {"poweredOn": true, "errorMessage": "",
            "operationalStatus": "OK", "provisioning": {"state": "available", "ID": ""}}}));
        hosts.patch_status("a", &PatchParams::default(), &status).await.unwrap();
        let mut wanted = host("a");
        wanted.data["spec"] = json!({"description": "mine"});
        let applied = hosts.patch("a", &PatchParams::apply("test"), &Patch::Apply(&wanted)).await.unwrap();
        assert_eq!(applied.data["spec"]["description"], "mine");
        wanted.data["spec"] = json!({"online": true});
        let conflict = refused(hosts.patch("a", &PatchParams::apply("test"), &Patch::Apply(&wanted)).await);
        assert_eq!(conflict.code, 409, "{}", conflict.message);
        // What keeps it from going.
        tokio::time::advance(Duration::from_secs(30)).await;
        hosts.delete("a", &DeleteParams::default()).await.unwrap();
        let going = hosts.get("a").await.unwrap();
        assert_eq!(going.metadata.deletion_timestamp.unwrap().0.to_string(), "2026-01-01T00:02:00Z");
        let let_go = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        hosts.patch("a", &PatchParams::default(), &let_go).await.unwrap();
        assert_eq!(refused(hosts.get("a").await).code, 404);
        let mut events = Vec::new();
        while events.len() < 5 {
            match stream.next().await.unwrap().unwrap() {
                WatchEvent::Modified(object) => events.push(("modified", object.metadata.deletion_timestamp.is_some())),
                WatchEvent::Deleted(_) => events.push(("deleted", true)),
                other => panic!("{other:?}"),
            }
        }
        let wanted =
            [("modified", false), ("modified", false), ("modified", false), ("modified", true), ("deleted", true)];
        assert_eq!(events, wanted);
        server.shutdown().await;
        let rest = stream.next().await;
        assert!(rest.is_none(), "an orderly end ends watches: {rest:?}");
    });
}

#[test]
fn time_stands_still_while_the_server_works() {
    let disk = prepared().copy().unwrap();
    paused(async {
        let began = Instant::now();
        let server = start(&disk, 3).await;
        let hosts = hosts(client(&server));
        let create = |n: usize| {
            let hosts = &hosts;
            async move { hosts.create(&PostParams::default(), &host(&format!("h{n}"))).await.unwrap() }
        };
        futures::stream::iter(0..100).map(create).buffer_unordered(20).collect::<Vec<_>>().await;
        // More than a page: the rest is read and encoded while it is sent.
        let listed = hosts.list(&ListParams::default()).await.unwrap();
        assert_eq!(listed.items.len(), 100);
        let secrets: Api<Secret> = Api::default_namespaced(client(&server));
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "b"}});
        secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
        assert_eq!(secrets.get("s").await.unwrap().data.unwrap()["a"].0, b"b");
        server.shutdown().await;
        assert_eq!(began.elapsed(), Duration::ZERO);
    });
}

#[test]
fn an_hour_passes_at_once_and_all_that_waits_for_it_happens() {
    let disk = prepared().copy().unwrap();
    paused(async {
        let clock = Arc::new(ExecutorClock::starting_at(BEGIN.parse().unwrap()));
        let setup = Setup { disk: disk.clone(), clock: clock.clone(), seed: 4, reviewers: vec![] };
        let server = InProcess::start(setup).await.unwrap();
        let began = Instant::now();
        let events: Api<Event> = Api::default_namespaced(client(&server));
        let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "default"},
            "involvedObject": {"namespace": "default"}});
        let event = events.create(&PostParams::default(), &serde_json::from_value(event).unwrap()).await.unwrap();
        let maps: Api<ConfigMap> = Api::default_namespaced(client(&server));
        let first = maps.create(&PostParams::default(), &map("a", "1")).await.unwrap();
        let first = first.resource_version().unwrap();
        // A watch tells each minute how far it is, a last time just before its end, and ends when it was said to.
        let params = WatchParams::default().timeout(150);
        let mut stream = Box::pin(maps.watch(&params, &first).await.unwrap());
        let mut delays = Vec::new();
        while let Some(event) = stream.next().await {
            assert!(matches!(event, Ok(WatchEvent::Bookmark(_))), "{event:?}");
            delays.push(began.elapsed().as_secs());
        }
        assert_eq!((delays, began.elapsed().as_secs()), (vec![60, 120, 148], 150));
        // Of what is older than five minutes nothing is kept.
        for value in ["2", "3"] {
            maps.replace("a", &PostParams::default(), &map("a", value)).await.unwrap();
        }
        assert!(maps.watch(&params, &first).await.unwrap().boxed().next().await.unwrap().is_ok());
        tokio::time::sleep(Duration::from_secs(400)).await;
        let server = restarted(server, Setup { disk, clock, seed: 5, reviewers: vec![] }).await;
        let maps: Api<ConfigMap> = Api::default_namespaced(client(&server));
        let gone = maps.watch(&params, &first).await.unwrap().boxed().next().await.unwrap().unwrap();
        assert!(matches!(&gone, WatchEvent::Error(status) if status.code == 410), "{gone:?}");
        let events: Api<Event> = Api::default_namespaced(client(&server));
        tokio::time::sleep_until(began + Duration::from_secs(3599)).await;
        assert_eq!(events.get("e").await.unwrap().uid(), event.uid());
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert_eq!(refused(events.get("e").await).code, 404);
    });
}

/// Another server on the disk of one that ends in order, with the time going on.
async fn restarted(server: InProcess, setup: Setup) -> InProcess {
    server.shutdown().await;
    InProcess::start(setup).await.unwrap()
}

#[test]
fn what_a_killed_server_had_committed_the_next_one_has() {
    let disk = prepared().copy().unwrap();
    paused(async {
        let server = start(&disk, 6).await;
        let taken = InProcess::start(Setup {
            disk: disk.clone(),
            clock: Arc::new(clock::SystemClock),
            seed: 1,
            reviewers: vec![],
        });
        let error = taken.await.err().unwrap().to_string();
        assert!(error.contains("in use"), "{error}");
        let maps: Api<ConfigMap> = Api::default_namespaced(client(&server));
        let made = maps.create(&PostParams::default(), &map("a", "1")).await.unwrap();
        let mut stream = Box::pin(maps.watch(&WatchParams::default(), "0").await.unwrap());
        // One of several writes that are under way when it is killed; those done are there, the others are not.
        let writes: Vec<_> = (0..20)
            .map(|n| {
                let maps = maps.clone();
                tokio::spawn(
                    async move { maps.create(&PostParams::default(), &map(&format!("w{n}"), "1")).await.is_ok() },
                )
            })
            .collect();
        let mut seen = 0;
        while seen < 6 {
            match stream.next().await.unwrap().unwrap() {
                WatchEvent::Added(_) => seen += 1,
                WatchEvent::Bookmark(_) => {}
                other => panic!("{other:?}"),
            }
        }
        let copy = disk.copy().unwrap();
        drop(server);
        let mut acknowledged = 0;
        for write in writes {
            acknowledged += usize::from(write.await.unwrap());
        }
        assert!(matches!(maps.get("a").await, Err(Error::Service(_))));
        // What was told before it broke off, and then no clean end.
        let rest: Vec<_> = stream.collect().await;
        assert!(rest.last().unwrap().is_err(), "{rest:?}");
        let server = start(&disk, 7).await;
        let maps: Api<ConfigMap> = Api::default_namespaced(client(&server));
        let there = maps.list(&ListParams::default()).await.unwrap().items;
        let (of_a, others): (Vec<_>, Vec<_>) = there.iter().partition(|m| m.name_any() == "a");
        assert_eq!(of_a[0].uid(), made.uid());
        let others = others.iter().filter(|m| m.name_any().starts_with('w')).count();
        assert!(others >= acknowledged && others >= 5, "{others} of {acknowledged} acknowledged");
        // A watcher of before goes on where it was.
        let stream = maps.watch(&WatchParams::default(), &made.resource_version().unwrap()).await.unwrap();
        let events: Vec<_> = stream.take(others).try_collect().await.unwrap();
        assert!(events.iter().all(|event| matches!(event, WatchEvent::Added(_))));
        // The copy was made before, and is a disk of its own.
        let other = start(&copy, 8).await;
        let maps: Api<ConfigMap> = Api::default_namespaced(client(&other));
        assert_eq!(maps.get("a").await.unwrap().uid(), made.uid());
        maps.delete("a", &DeleteParams::default()).await.unwrap();
        let maps: Api<ConfigMap> = Api::default_namespaced(client(&server));
        maps.get("a").await.unwrap();
    });
}

/// All that a run leaves behind, as text.
fn run(seed: u64) -> String {
    let disk = prepared().copy().unwrap();
    paused(async {
        let server = start(&disk, seed).await;
        let client = client(&server);
        let namespaces: Api<Namespace> = Api::all(client.clone());
        for name in ["one", "two"] {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            namespaces.create(&PostParams::default(), &serde_json::from_value(namespace).unwrap()).await.unwrap();
        }
        let all = hosts(client.clone());
        let writes = (0..20).map(|n| {
            let all = all.clone();
            tokio::spawn(async move {
                let mut one = host("");
                (one.metadata.name, one.metadata.generate_name) = (None, Some("h-".to_owned()));
                let made = all.create(&PostParams::default(), &one).await.unwrap();
                tokio::time::sleep(Duration::from_millis(n * 37 % 100)).await;
                if n % 3 == 0 {
                    all.delete(&made.name_any(), &DeleteParams::default()).await.unwrap();
                }
            })
        });
        futures::future::join_all(writes.collect::<Vec<_>>()).await.into_iter().for_each(|write| write.unwrap());
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "one");
        let owner = all.list(&ListParams::default()).await.unwrap().items.remove(0);
        let mut owned = map("owned", "1");
        let reference = json!([{"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "name": "gone",
            "uid": owner.uid().unwrap()}]);
        owned.metadata.owner_references = serde_json::from_value(reference).unwrap();
        maps.create(&PostParams::default(), &owned).await.unwrap();
        namespaces.delete("two", &DeleteParams::default()).await.unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(refused(maps.get("owned").await).code, 404, "garbage is collected");
        assert_eq!(refused(namespaces.get("two").await).code, 404, "a namespace ends");
        let mut lists = String::new();
        for (group, version, name, plural) in [
            ("metal3.io", "v1alpha1", "BareMetalHost", "baremetalhosts"),
            ("", "v1", "ConfigMap", "configmaps"),
            ("", "v1", "ServiceAccount", "serviceaccounts"),
            ("", "v1", "Namespace", "namespaces"),
            ("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles"),
        ] {
            let mut kind = kind(group, version, name, plural);
            kind.api_version = if group.is_empty() { version.to_owned() } else { kind.api_version };
            let objects: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
            let listed = objects.list(&ListParams::default()).await.unwrap();
            lists.push_str(&serde_json::to_string_pretty(&listed).unwrap());
        }
        lists
    })
}

#[test]
fn a_seed_makes_the_same_run_again() {
    let (first, again, other) = (run(11), run(11), run(12));
    let differs = first.lines().zip(again.lines()).find(|(a, b)| a != b);
    assert_eq!(differs, None);
    assert_eq!(first, again);
    assert_ne!(first, other);
}

#[test]
fn rights_reviewers_and_leases_count_here_too() {
    let disk = prepared().copy().unwrap();
    paused(async {
        let reviewer = Reviewer {
            name: "no.example.com".to_owned(),
            group: "metal3.io".to_owned(),
            version: "v1alpha1".to_owned(),
            resource: "baremetalhosts".to_owned(),
            deletes: false,
            beside: None,
            namespace: true,
            review: Arc::new(|asked: &Value, beside: &[Value]| {
                let [namespace] = beside else { panic!("{beside:?}") };
                assert_eq!(
                    (&namespace["kind"], &namespace["metadata"]["name"]),
                    (&json!("Namespace"), &json!("default"))
                );
                let allowed = asked["request"]["object"]["metadata"]["name"] != "bad";
                json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                    "response": {"uid": asked["request"]["uid"], "allowed": allowed, "status": {"message": "not that one"}}})
            }),
        };
        let clock = Arc::new(ExecutorClock::starting_at(BEGIN.parse().unwrap()));
        let server = InProcess::start(Setup { disk, clock, seed: 9, reviewers: vec![reviewer] }).await.unwrap();
        let all = hosts(client(&server));
        all.create(&PostParams::default(), &host("good")).await.unwrap();
        let error = refused(all.create(&PostParams::default(), &host("bad")).await);
        assert!(error.code == 400 && error.message.contains("not that one"), "{error:?}");
        let somebody = Client::new(server.caller(Identity::user("somebody", &["people"])), "default");
        let error = refused(hosts(somebody).list(&ListParams::default()).await);
        assert!(error.code == 403 && error.message.contains("somebody"), "{error:?}");
        let nobody = Client::new(server.caller(Identity::by_token()), "default");
        assert_eq!(refused(hosts(nobody).list(&ListParams::default()).await).code, 403);
        let token = http::Request::get("/version").header("authorization", format!("Bearer {}", server.admin_token()));
        let request = token.body(String::new()).unwrap();
        let answer = tower::ServiceExt::oneshot(server.caller(Identity::by_token()), request).await.unwrap();
        assert_eq!(answer.status(), 200);
        // Two who want to lead: one of them takes over, the other is told that it came late.
        let leases: Api<Lease> = Api::default_namespaced(client(&server));
        let metadata = ObjectMeta { name: Some("leader".to_owned()), ..ObjectMeta::default() };
        let lease = leases.create(&PostParams::default(), &Lease { metadata, spec: None }).await.unwrap();
        let take = |holder: &str| {
            let spec = LeaseSpec {
                holder_identity: Some(holder.to_owned()),
                renew_time: Some(MicroTime("2026-01-01T00:00:01.000002Z".parse().unwrap())),
                ..LeaseSpec::default()
            };
            Lease { spec: Some(spec), ..lease.clone() }
        };
        let (one, other) = (take("one"), take("other"));
        let params = PostParams::default();
        let (one, other) =
            tokio::join!(leases.replace("leader", &params, &one), leases.replace("leader", &params, &other));
        assert!(one.is_ok() != other.is_ok());
        assert_eq!(refused(if one.is_ok() { other } else { one }).code, 409);
    });
}

/// What a reviewer refuses cannot be had by writing in another version that is served.
#[test]
fn a_reviewer_sees_requests_in_every_version() {
    let disk = prepared().copy().unwrap();
    paused(async {
        let reviewer = Reviewer {
            name: "no.example.com".to_owned(),
            group: "metal3.io".to_owned(),
            version: "v1alpha1".to_owned(),
            resource: "baremetalhosts".to_owned(),
            deletes: false,
            beside: None,
            namespace: false,
            review: Arc::new(|asked: &Value, _: &[Value]| {
                let object = &asked["request"]["object"];
                let allowed = object["metadata"]["name"] != "bad";
                json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                    "response": {"uid": asked["request"]["uid"], "allowed": allowed,
                        "status": {"message": format!("not that {}", object["apiVersion"])}}})
            }),
        };
        let clock = Arc::new(ExecutorClock::starting_at(BEGIN.parse().unwrap()));
        let server = InProcess::start(Setup { disk, clock, seed: 9, reviewers: vec![reviewer] }).await.unwrap();
        let of = kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions");
        let definitions: Api<DynamicObject> = Api::all_with(client(&server), &of);
        let mut definition = definitions.get("baremetalhosts.metal3.io").await.unwrap();
        let versions = definition.data["spec"]["versions"].as_array_mut().unwrap();
        let mut other = versions[0].clone();
        (other["name"], other["storage"]) = (json!("v1beta9"), json!(false));
        versions.push(other);
        definitions.replace("baremetalhosts.metal3.io", &PostParams::default(), &definition).await.unwrap();
        let of = kind("metal3.io", "v1beta9", "BareMetalHost", "baremetalhosts");
        let all: Api<DynamicObject> = Api::default_namespaced_with(client(&server), &of);
        let in_it = |name: &str| {
            let mut made = host(name);
            made.types.as_mut().unwrap().api_version = "metal3.io/v1beta9".to_owned();
            made
        };
        all.create(&PostParams::default(), &in_it("good")).await.unwrap();
        let error = refused(all.create(&PostParams::default(), &in_it("bad")).await);
        assert!(error.message.contains("not that \"metal3.io/v1alpha1\""), "{error:?}");
    });
}

/// A reviewer that wants to is asked of deletions, one by one and of all, and sees what else there is at that moment.
#[test]
fn a_reviewer_sees_deletions_and_what_is_beside() {
    let disk = prepared().copy().unwrap();
    paused(async {
        let reviewer = Reviewer {
            name: "kept.example.com".to_owned(),
            group: "metal3.io".to_owned(),
            version: "v1alpha1".to_owned(),
            resource: "hostnetworkattachments".to_owned(),
            deletes: true,
            beside: Some(("metal3.io".to_owned(), "baremetalhosts".to_owned())),
            namespace: false,
            review: Arc::new(|asked: &Value, beside: &[Value]| {
                let name = &asked["request"]["oldObject"]["metadata"]["name"];
                let named = beside.iter().filter(|host| host["spec"]["description"] == *name).count();
                json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                    "response": {"uid": asked["request"]["uid"], "allowed": named == 0,
                        "status": {"message": format!("{} by {named} of {}", asked["request"]["operation"], beside.len())}}})
            }),
        };
        let clock = Arc::new(ExecutorClock::starting_at(BEGIN.parse().unwrap()));
        let server = InProcess::start(Setup { disk, clock, seed: 9, reviewers: vec![reviewer] }).await.unwrap();
        let of = kind("metal3.io", "v1alpha1", "HostNetworkAttachment", "hostnetworkattachments");
        let all: Api<DynamicObject> = Api::default_namespaced_with(client(&server), &of);
        for name in ["free", "used"] {
            let object = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "HostNetworkAttachment",
                "metadata": {"name": name}, "spec": {"nativeVLAN": 7}});
            all.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
        }
        let mut user = host("user");
        user.data["spec"]["description"] = json!("used");
        let hosts = hosts(client(&server));
        hosts.create(&PostParams::default(), &user).await.unwrap();
        let patch = Patch::Merge(json!({"spec": {"nativeVLAN": 8}}));
        all.patch("free", &PatchParams::default(), &patch).await.unwrap();
        let error = refused(all.patch("used", &PatchParams::default(), &patch).await);
        assert!(error.message.contains("\"UPDATE\" by 1 of 1"), "{error:?}");
        let error = refused(all.delete("used", &DeleteParams::default()).await);
        assert!(error.message.contains("\"DELETE\" by 1 of 1"), "{error:?}");
        assert!(all.delete_collection(&DeleteParams::default(), &ListParams::default()).await.is_err());
        assert!(all.get_opt("used").await.unwrap().is_some());
        hosts.delete("user", &DeleteParams::default()).await.unwrap();
        all.delete("used", &DeleteParams::default()).await.unwrap();
    });
}

#[test]
fn a_server_is_there_in_milliseconds() {
    let began = std::time::Instant::now();
    prepared();
    println!("a disk with all definitions: {:.1} ms", began.elapsed().as_secs_f64() * 1e3);
    let (mut copied, mut started, mut served) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
    const RUNS: u32 = 20;
    for seed in 0..RUNS {
        let began = std::time::Instant::now();
        let disk = prepared().copy().unwrap();
        copied += began.elapsed();
        paused(async {
            let began = std::time::Instant::now();
            let server = start(&disk, seed.into()).await;
            started += began.elapsed();
            let began = std::time::Instant::now();
            hosts(client(&server)).create(&PostParams::default(), &host("a")).await.unwrap();
            served += began.elapsed();
        });
    }
    let each = |all: Duration| all.as_secs_f64() * 1e3 / f64::from(RUNS);
    println!(
        "copied in {:.1} ms, started in {:.1} ms, first host in {:.1} ms",
        each(copied),
        each(started),
        each(served)
    );
}

#[test]
fn what_another_server_left_is_stored_as_it_is() {
    paused(async {
        let server = start(&prepared().copy().unwrap(), 1).await;
        let left = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
            "metadata": {"name": "a", "namespace": "default", "uid": "00000000-0000-4000-8000-000000000007", "generation": 3,
                "creationTimestamp": "2025-01-01T00:00:00Z", "finalizers": ["example.org/f"], "resourceVersion": "9"},
            "spec": {"online": true}, "status": {"errorMessage": "e"}});
        server.put_as_left(left.clone()).await.unwrap();
        let again = server.put_as_left(left.clone()).await.unwrap_err().to_string();
        assert!(again.starts_with("a was refused"), "{again}");
        let found = serde_json::to_value(hosts(client(&server)).get("a").await.unwrap()).unwrap();
        for field in ["uid", "generation", "creationTimestamp", "finalizers"] {
            assert_eq!(found["metadata"][field], left["metadata"][field], "{field}");
        }
        assert_ne!(found["metadata"]["resourceVersion"], "9");
        assert_eq!((&found["spec"], &found["status"]), (&left["spec"], &left["status"]));
        let unknown = server.put_as_left(json!({"apiVersion": "x/v1", "kind": "X", "metadata": {"name": "x"}})).await;
        assert!(unknown.unwrap_err().to_string().contains("not served"));
    });
}
