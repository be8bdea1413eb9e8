//! Clients within the process of a server on the network: what they do is what others see, and few of their requests are under way at once.

use apiserver::Identity;
use bytes::Bytes;
use futures::channel::mpsc;
use futures::{StreamExt as _, poll};
use http_body_util::StreamBody;
use hyper::body::Frame;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api as Objects, ObjectMeta, PostParams, WatchEvent, WatchParams};
use serde_json::json;
use tower::ServiceExt as _;

use crate::common::Api;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn map(name: &str) -> ConfigMap {
    ConfigMap { metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }, ..ConfigMap::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_is_a_client_like_others_until_the_server_stops() {
    let api = Api::start().await;
    let client = kube::Client::new(api.server.caller(Identity::administrator()), "default");
    let maps: Objects<ConfigMap> = Objects::default_namespaced(client);
    let mut seen = Box::pin(maps.watch(&WatchParams::default(), "0").await.unwrap());
    maps.create(&PostParams::default(), &map("ours")).await.unwrap();
    api.get(&format!("{MAPS}/ours")).await.expect(200);
    api.post(MAPS, &json!({"metadata": {"name": "theirs"}})).await.expect(201);
    let mut names = Vec::new();
    while names.len() < 2 {
        if let WatchEvent::Added(map) = seen.next().await.unwrap().unwrap()
            && map.metadata.name.as_deref() != Some("kube-root-ca.crt")
        {
            names.extend(map.metadata.name);
        }
    }
    assert_eq!(names, ["ours", "theirs"]);
    let log = std::fs::read_to_string(api.dir.path().join("audit.log")).unwrap();
    let lines = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let made = lines.into_iter().find(|line| line["verb"] == "create" && line["requestURI"] == MAPS).unwrap();
    assert_eq!((&made["user"]["username"], &made["sourceIPs"]), (&json!("admin"), &json!(["127.0.0.1"])));
    let nobody = kube::Client::new(api.server.caller(Identity::user("nobody", &[])), "default");
    let refused = Objects::<ConfigMap>::default_namespaced(nobody).get("ours").await;
    assert!(matches!(refused, Err(kube::Error::Api(error)) if error.code == 403));
    api.server.shutdown().await;
    assert!(matches!(maps.get("ours").await, Err(kube::Error::Service(_))));
    // A watch ends with the server, and in order.
    assert!(seen.all(|event| std::future::ready(event.is_ok())).await);
}

/// Uploads of which nothing comes hold their places.
#[tokio::test(flavor = "multi_thread")]
async fn few_requests_are_under_way_and_the_others_wait_in_order() {
    let api = Api::start().await;
    let caller = api.server.caller(Identity::administrator()).at_most(2);
    let slow = |name: &str| {
        let (sender, parts) = mpsc::unbounded::<Result<Frame<Bytes>, std::io::Error>>();
        let request = http::Request::post(MAPS).header("content-type", "application/json");
        let request = request.body(StreamBody::new(parts)).unwrap();
        let text = Bytes::from(json!({"metadata": {"name": name}}).to_string());
        (sender, text, Box::pin(caller.clone().oneshot(request)))
    };
    let ((first, text, mut answer), (_second, _, mut hanging)) = (slow("first"), slow("second"));
    assert!(poll!(&mut answer).is_pending() && poll!(&mut hanging).is_pending());
    let get = http::Request::get("/version").body(http_body_util::Empty::<Bytes>::new()).unwrap();
    let mut waiting = Box::pin(caller.clone().oneshot(get));
    assert!(poll!(&mut waiting).is_pending(), "both places are taken");
    first.unbounded_send(Ok(Frame::data(text))).unwrap();
    drop(first);
    assert_eq!(answer.await.unwrap().status(), 201);
    assert_eq!(waiting.await.unwrap().status(), 200);
    // A client that gives up gives its place back.
    let ((third, text, mut answer), (_fourth, _, mut waiting)) = (slow("third"), slow("fourth"));
    assert!(poll!(&mut answer).is_pending() && poll!(&mut waiting).is_pending());
    drop(hanging);
    third.unbounded_send(Ok(Frame::data(text))).unwrap();
    drop(third);
    assert_eq!(answer.await.unwrap().status(), 201);
}
