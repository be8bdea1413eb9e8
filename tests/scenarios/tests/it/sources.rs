//! Mirrors and proxies of images, as ConfigMaps and flags name them.

use std::time::Duration;

use api::metal3::{BareMetalHost, ProvisioningState as State};
use api::metamorph::{HostOperation, OperationType};
use image_sources::{Login, Proxy};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use operator::ImageDefaults;
use scenarios::plant::Plant;
use scenarios::{Site, is};
use serde_json::{Value, json};
use tokio::time::sleep;

/// Longest way from one state to the next, in seconds.
const LONGEST: u32 = 4 * 3600;
const OWN: &str = "metamorph-system";

fn says(words: &'static str) -> impl Fn(&BareMetalHost) -> bool {
    move |host| host.status.as_ref().is_some_and(|status| status.error_message.contains(words))
}

async fn wish(site: &Site, image: Value) {
    let change = json!({"spec": {"image": image}});
    site.hosts().patch("a", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
}

fn image() -> Value {
    json!({"url": "http://192.0.2.9/disk.raw", "checksum": "00".repeat(32), "format": "raw"})
}

/// The ConfigMap of this namespace, from now on; none without data.
async fn configure(site: &Site, namespace: &str, data: Option<Value>) {
    let maps: Api<ConfigMap> = Api::namespaced(site.observer(), namespace);
    // There may be none.
    let _ = maps.delete("metamorph-images", &DeleteParams::default()).await;
    if let Some(data) = data {
        let map = json!({"metadata": {"name": "metamorph-images"}, "data": data});
        maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
    }
}

fn yaml(text: &str) -> Option<Value> {
    Some(json!({"images.yaml": text}))
}

async fn put_secret(site: &Site, namespace: &str, (kind, of): (&str, &str)) {
    let secrets: Api<Secret> = Api::namespaced(site.observer(), namespace);
    let _ = secrets.delete("login", &DeleteParams::default()).await;
    let secret = json!({"metadata": {"name": "login"}, "type": kind,
        "stringData": {"username": "u", "password": "hunter2", "proxy": of}});
    secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
}

/// What the newest operation says of the write.
async fn written(site: &Site) -> String {
    let operations: Api<HostOperation> = Api::default_namespaced(site.observer());
    let mut all = operations.list(&ListParams::default()).await.unwrap().items;
    all.retain(|operation| operation.spec.operation == OperationType::Provision);
    all.sort_by_key(ResourceExt::name_any);
    assert!(!serde_json::to_string(&all).unwrap().contains("hunter2"));
    let status = all.pop().unwrap().status.unwrap();
    let step = status.steps.into_iter().find(|step| step.name == "write-image").unwrap();
    step.message.unwrap_or_default()
}

/// The host is provisioned anew; what the write says.
async fn provisioned(site: &Site) -> String {
    site.wait("a", LONGEST, is(State::Provisioned)).await;
    let told = written(site).await;
    wish(site, Value::Null).await;
    site.wait("a", LONGEST, is(State::Available)).await;
    told
}

#[test]
fn faults_in_the_settings_of_images_hold_the_host_with_a_sentence_until_they_are_right() {
    scenarios::run(72, async |site| {
        let plant = Plant::new(site.weather.clone());
        let server = plant.serve(&site);
        site.create_host("a").await;
        site.wait("a", LONGEST, is(State::Available)).await;
        configure(&site, "default", yaml("proxies: {}")).await;
        wish(&site, image()).await;
        for (data, fault) in [
            (yaml("proxies: {}"), "images.yaml: proxies: unknown field `proxies`"),
            (
                Some(json!({"mirrors.yaml": "mirrors: []"})),
                "it has the key mirrors.yaml, and images.yaml alone is read",
            ),
            (yaml("mirrors: [{prefix: 'http://192.0.2.9', blocked: true}]"), "blocks what is below http://192.0.2.9"),
            (yaml("proxy: {url: 'http://u:hunter2@proxy.example'}"), "has a user in its URL"),
            (yaml("proxy: {url: 'http://169.254.169.254'}"), "metadata service"),
        ] {
            configure(&site, "default", data).await;
            let host = site.wait("a", 3600, says(fault)).await;
            assert!(!serde_json::to_string(&host).unwrap().contains("hunter2"), "{host:?}");
        }
        assert!(!plant.effects().iter().any(|effect| effect.starts_with("write ")), "{:#?}", plant.effects());
        configure(&site, "default", yaml("mirrors: [{prefix: 'http://elsewhere.example', blocked: true}]")).await;
        provisioned(&site).await;
        server.kill();
    });
}

#[test]
fn the_password_of_a_secret_goes_to_the_proxy_that_it_names() {
    scenarios::run(74, async |site| {
        let plant = Plant::new(site.weather.clone());
        let server = plant.serve(&site);
        site.create_host("a").await;
        site.wait("a", LONGEST, is(State::Available)).await;
        configure(&site, "default", yaml("proxy: {url: 'http://proxy.example:3128', secretName: login}")).await;
        wish(&site, image()).await;
        site.wait("a", 3600, says("the Secret login of the images' proxy in namespace default: there is none")).await;
        for (kind, of, fault) in [
            ("Opaque", "http://proxy.example:3128", "another type than kubernetes.io/basic-auth"),
            ("kubernetes.io/basic-auth", "http://other.example:3128", "its key proxy is not http://proxy.example:3128"),
        ] {
            put_secret(&site, "default", (kind, of)).await;
            let host = site.wait("a", 3600, says(fault)).await;
            assert!(!serde_json::to_string(&host).unwrap().contains("hunter2"), "{host:?}");
        }
        assert!(!plant.effects().iter().any(|effect| effect.starts_with("write ")), "{:#?}", plant.effects());
        put_secret(&site, "default", ("kubernetes.io/basic-auth", "http://proxy.example:3128")).await;
        let told = provisioned(&site).await;
        assert!(told.contains("by way of the proxy http://proxy.example:3128, signed in"), "{told}");
        server.kill();
    });
}

#[test]
fn a_namespaces_settings_come_before_the_servers_and_these_before_its_flags() {
    scenarios::run(73, async |mut site| {
        let namespaces: Api<Namespace> = Api::all(site.observer());
        let own = json!({"metadata": {"name": OWN}});
        namespaces.create(&PostParams::default(), &serde_json::from_value(own).unwrap()).await.unwrap();
        let login = Some(Login::basic("u", "hunter2").unwrap());
        let flag = Proxy { url: "http://flag.example:3128".into(), login, no_proxy: vec![] };
        site.images = ImageDefaults { own_namespace: Some(OWN.into()), proxy: Some(flag), login_for_agents: true };
        let plant = Plant::new(site.weather.clone());
        let server = plant.serve(&site);
        site.create_host("a").await;
        site.wait("a", LONGEST, is(State::Available)).await;
        let own = "proxy: {url: 'http://own.example:3128'}\nmirrors: [{prefix: 'http://192.0.2.9', locations: ['http://192.0.2.10']}]";
        let (direct, none) = ("proxy: {direct: true}", "proxy: {url: 'http://near.example:3128'}\nmirrors: []");
        let (itself, mirror) = ("http://192.0.2.9/disk.raw", "http://192.0.2.10:80/disk.raw");
        for (near, far, from, says) in [
            (None, None, itself, Some("the proxy http://flag.example:3128, signed in")),
            (None, yaml(own), mirror, Some("the proxy http://own.example:3128")),
            (yaml(direct), yaml(own), mirror, None),
            (yaml(none), yaml(own), itself, Some("the proxy http://near.example:3128")),
            (yaml(direct), None, itself, None),
        ] {
            configure(&site, "default", near).await;
            configure(&site, OWN, far).await;
            // What was read a moment ago counts for some seconds.
            sleep(Duration::from_secs(60)).await;
            wish(&site, image()).await;
            site.wait("a", LONGEST, is(State::Provisioned)).await;
            assert_eq!(plant.image().as_deref(), Some(from));
            let told = provisioned(&site).await;
            match says {
                Some(says) => assert!(told.contains(says), "{told}"),
                None => assert!(!told.contains("proxy"), "{told}"),
            }
        }
        server.kill();
    });
}

#[test]
fn the_servers_own_login_goes_to_agents_where_that_is_said_and_nowhere_else() {
    scenarios::run(75, async |mut site| {
        let namespaces: Api<Namespace> = Api::all(site.observer());
        let own = json!({"metadata": {"name": OWN}});
        namespaces.create(&PostParams::default(), &serde_json::from_value(own).unwrap()).await.unwrap();
        let login = Some(Login::basic("u", "hunter2").unwrap());
        let flag = Proxy { url: "http://flag.example:3128".into(), login, no_proxy: vec![] };
        site.images = ImageDefaults { own_namespace: Some(OWN.into()), proxy: Some(flag), login_for_agents: false };
        let plant = Plant::new(site.weather.clone());
        let server = plant.serve(&site);
        site.create_host("a").await;
        site.wait("a", LONGEST, is(State::Available)).await;
        wish(&site, image()).await;
        site.wait("a", 3600, says("the proxy http://flag.example:3128, whose user and password are the server's own"))
            .await;
        put_secret(&site, OWN, ("kubernetes.io/basic-auth", "http://own.example:3128")).await;
        let own = "proxy: {url: 'http://own.example:3128', secretName: login}";
        configure(&site, OWN, yaml(own)).await;
        site.wait("a", 3600, says("the proxy http://own.example:3128, whose user and password are the server's own"))
            .await;
        assert!(!plant.effects().iter().any(|effect| effect.starts_with("write ")), "{:#?}", plant.effects());
        configure(&site, OWN, yaml(&own.replace('}', ", agents: true}"))).await;
        let told = provisioned(&site).await;
        assert!(told.contains("by way of the proxy http://own.example:3128, signed in"), "{told}");
        server.kill();
    });
}

#[test]
fn a_host_in_the_servers_own_namespace_gets_no_more_of_its_login_than_others() {
    scenarios::run(76, async |mut site| {
        site.images = ImageDefaults { own_namespace: Some("default".into()), ..ImageDefaults::default() };
        let plant = Plant::new(site.weather.clone());
        let server = plant.serve(&site);
        site.create_host("a").await;
        site.wait("a", LONGEST, is(State::Available)).await;
        put_secret(&site, "default", ("kubernetes.io/basic-auth", "http://own.example:3128")).await;
        let own = "proxy: {url: 'http://own.example:3128', secretName: login}";
        configure(&site, "default", yaml(own)).await;
        wish(&site, image()).await;
        site.wait("a", 3600, says("the proxy http://own.example:3128, whose user and password are the server's own"))
            .await;
        configure(&site, "default", yaml(&own.replace('}', ", agents: true}"))).await;
        let told = provisioned(&site).await;
        assert!(told.contains("by way of the proxy http://own.example:3128, signed in"), "{told}");
        server.kill();
    });
}
