//! Two masters of one machine: what another one has is not touched, and who cannot be asked decides nothing on a machine that is the host's already.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::metal3::{BareMetalHost, ProvisioningState as State};
use async_trait::async_trait;
use jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams};
use provisioner::{OtherMaster, Sought};
use scenarios::plant::Plant;
use scenarios::{Site, address, is};
use serde_json::json;

/// Longest way from one state to the next, in seconds.
const LONGEST: u32 = 4 * 3600;
const SILENT: &str = "the Ironic \"one\" cannot be asked (Ironic at http://192.0.2.1 cannot be reached)";

/// Somebody who says this of each machine.
#[derive(Default)]
struct Other {
    says: Mutex<Option<Result<&'static str, &'static str>>>,
    asked: Mutex<Vec<Sought>>,
}

impl Other {
    fn says(&self, what: Option<Result<&'static str, &'static str>>) {
        *self.says.lock().unwrap() = what;
    }
}

#[async_trait]
impl OtherMaster for Other {
    async fn holds(&self, sought: &Sought, _: Timestamp) -> Result<Option<String>, String> {
        self.asked.lock().unwrap().push(sought.clone());
        match *self.says.lock().unwrap() {
            None => Ok(None),
            Some(Ok(holder)) => Ok(Some(holder.to_owned())),
            Some(Err(why)) => Err(why.to_owned()),
        }
    }
}

fn beside(site: &Site) -> (Plant, Arc<Other>) {
    let other = Arc::new(Other::default());
    (Plant::new(site.weather.clone()).among(vec![Arc::clone(&other) as Arc<dyn OtherMaster>]), other)
}

fn says(words: &'static str) -> impl Fn(&BareMetalHost) -> bool {
    move |host| host.status.as_ref().is_some_and(|status| status.error_message.contains(words))
}

async fn image(site: &Site, url: Option<&str>) {
    let image =
        url.map(|url| json!({"url": url, "checksum": "00".repeat(32), "checksumType": "sha256", "format": "raw"}));
    let change = json!({"spec": {"image": image}});
    site.hosts().patch("a", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
}

#[test]
fn nothing_is_done_to_a_machine_that_another_has_until_it_is_let_go() {
    scenarios::run(31, async |site| {
        let (plant, other) = beside(&site);
        other.says(Some(Ok("the Ironic \"one\" as the node \"default~a\", which is at its BMC")));
        let server = plant.serve(&site);
        site.create_host("a").await;
        let held = site.wait("a", LONGEST, says("the Ironic \"one\" as the node \"default~a\"")).await;
        let status = held.status.unwrap();
        assert!(status.error_message.contains("provisioner \"ironic\""), "what to do: {}", status.error_message);
        assert!(status.provisioning.id.is_empty());
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert_eq!(plant.effects(), [""; 0]);
        let sought = other.asked.lock().unwrap()[0].clone();
        assert_eq!((sought.address, sought.boot_mac.as_deref()), (address("a"), Some("02:00:00:00:00:01")));
        // Whoever removes the node there need do no more here.
        other.says(None);
        site.wait("a", LONGEST, is(State::Available)).await;
        server.kill();
    });
}

#[test]
fn before_the_first_effect_it_must_be_known_that_nobody_else_has_the_machine() {
    scenarios::run(32, async |site| {
        let (plant, other) = beside(&site);
        other.says(Some(Err(SILENT)));
        let server = plant.serve(&site);
        site.create_host("a").await;
        site.wait("a", LONGEST, says("for the first time")).await;
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert_eq!(plant.effects(), [""; 0]);
        // A host that was never registered can go all the same.
        site.hosts().delete("a", &DeleteParams::default()).await.unwrap();
        site.gone_but_for_its_secret("a", LONGEST).await;
        assert_eq!(plant.effects(), [""; 0]);
        server.kill();
    });
}

#[test]
fn a_machine_that_is_the_hosts_already_is_worked_on_while_the_other_is_silent() {
    scenarios::run(33, async |site| {
        let (plant, other) = beside(&site);
        let server = plant.serve(&site);
        site.create_host("a").await;
        site.wait("a", LONGEST, is(State::Available)).await;
        other.says(Some(Err(SILENT)));
        image(&site, Some("http://192.0.2.8/i")).await;
        site.wait("a", LONGEST, is(State::Provisioned)).await;
        assert_eq!(plant.image().as_deref(), Some("http://192.0.2.8/i"));
        // One that says that it has it is believed, whose host it ever was.
        other.says(Some(Ok("the Ironic \"one\" as the node \"x\", which is at its BMC")));
        let before = plant.effects();
        image(&site, None).await;
        site.wait("a", LONGEST, says("the Ironic \"one\" as the node \"x\"")).await;
        tokio::time::sleep(Duration::from_secs(3600)).await;
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert_eq!(plant.effects(), before, "it would switch it back");
        other.says(None);
        site.wait("a", LONGEST, is(State::Available)).await;
        assert_eq!(plant.image(), None);
        server.kill();
    });
}

#[test]
fn a_host_whose_machine_another_has_goes_and_leaves_it_as_it_is() {
    scenarios::run(34, async |site| {
        let (plant, other) = beside(&site);
        let server = plant.serve(&site);
        site.create_host("a").await;
        site.wait("a", LONGEST, is(State::Available)).await;
        image(&site, Some("http://192.0.2.8/i")).await;
        site.wait("a", LONGEST, is(State::Provisioned)).await;
        other.says(Some(Ok("the Ironic \"one\" as the node \"x\", which is at its BMC")));
        let before = plant.effects();
        site.hosts().delete("a", &DeleteParams::default()).await.unwrap();
        site.gone("a", LONGEST).await;
        assert_eq!((plant.effects(), plant.image().as_deref()), (before, Some("http://192.0.2.8/i")));
        server.kill();
    });
}
