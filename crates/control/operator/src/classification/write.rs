//! What is written: labels of hosts, finalizers and status of classifications, Events.

use std::collections::{BTreeMap, BTreeSet};

use api::metal3::{BareMetalHost, HardwareClassification, annotation, finalizer, label};
use classification::{Class, Key, Trouble};
use futures::StreamExt as _;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Resource as _, ResourceExt as _};
use serde_json::json;
use terms::clean;

use super::All;
use super::watch::{Classifies as _, difference, reference};
use crate::events::Said;

/// Hosts that are written to at once.
const AT_ONCE: usize = 16;
/// Longest reason of a refusal that is shown, characters.
const MAX_WHY: usize = 200;
/// Most hosts that an Event names.
const NAMED: usize = 3;

/// How a write to a host has ended.
enum Written {
    /// It bears its labels: those that were changed.
    Bears(BTreeMap<String, Option<String>>),
    /// It is gone, or another of its name is there.
    Gone,
    /// It has not been written, and is tried again; why, where that is more than a moment's.
    Not(Option<(BTreeSet<String>, Trouble)>),
}

/// Hosts whose label of one class has come or gone.
#[derive(Default)]
struct Flips {
    matching: Vec<String>,
    others: Vec<String>,
}

impl All {
    /// Writes what the board says, as far as it is not there.
    pub(super) async fn write_all(&mut self) {
        if !self.is_in_step() {
            return;
        }
        let (hosts, mut classes) = (self.board.take_hosts(), self.board.take_classes());
        if !(self.context.settings.may_act)() {
            self.later.hosts.extend(hosts);
            self.later.classes.extend(classes);
            return;
        }
        let before = self.later.len();
        self.hold(&classes).await;
        let flips = self.label(hosts).await;
        classes.extend(self.board.take_classes());
        // Those that wait for their last label to go.
        let leaving = self.objects.iter().filter(|(_, object)| object.is_deleting() && object.is_held());
        classes.extend(leaving.map(|(key, _)| key.clone()));
        for (class, flips) in &flips {
            self.tell(class, flips).await;
        }
        for key in classes {
            let Some(object) = self.objects.get(&key).cloned() else { continue };
            let done =
                if object.is_deleting() { self.let_go(&key, object).await } else { self.report(&key, object).await };
            if let Err(error) = done {
                tracing::debug!(namespace = key.0, name = key.1, %error, "write to a HardwareClassification");
                self.later.classes.insert(key);
            }
        }
        self.later.ended(before);
    }

    fn api(&self, key: &Key) -> Api<HardwareClassification> {
        Api::namespaced(self.context.client.clone(), &key.0)
    }

    /// Classes get their finalizer before any host gets their label.
    async fn hold(&mut self, classes: &BTreeSet<Key>) {
        for key in classes {
            let Some(object) = self.objects.get(key).filter(|object| !object.is_held() && !object.is_deleting()) else {
                continue;
            };
            let mut all: Vec<&str> = object.finalizers().iter().map(String::as_str).collect();
            all.push(finalizer::CLASSIFICATION);
            let change = json!({ "metadata": { "uid": object.uid(), "resourceVersion": object.resource_version(),
                "finalizers": all } });
            match self.api(key).patch(&key.1, &PatchParams::default(), &Patch::Merge(change)).await {
                Ok(written) => self.wrote(key, written),
                Err(error) => {
                    tracing::debug!(namespace = key.0, name = key.1, %error, "put the finalizer on a HardwareClassification");
                    self.later.classes.insert(key.clone());
                    // Its hosts wait for it.
                    let hosts = self.board.hosts_of(&key.0).map(|host| (key.0.clone(), host.to_owned()));
                    self.later.hosts.extend(hosts);
                }
            }
        }
    }

    fn wrote(&mut self, key: &Key, mut written: HardwareClassification) {
        written.metadata.managed_fields = None;
        self.objects.insert(key.clone(), written);
    }

    /// Writes the labels of these hosts.
    async fn label(&mut self, hosts: BTreeSet<Key>) -> BTreeMap<Key, Flips> {
        let done: Vec<(Key, Written)> = {
            let all = &*self;
            let writes = futures::stream::iter(hosts).map(|key| async move {
                let written = all.label_one(&key).await;
                (key, written)
            });
            writes.buffer_unordered(AT_ONCE).collect().await
        };
        let mut flips: BTreeMap<Key, Flips> = BTreeMap::new();
        for (key, written) in done {
            match written {
                Written::Bears(changed) => {
                    self.board.settled(&key.0, &key.1);
                    self.trouble_is(&key, None);
                    for (name, value) in changed {
                        let Some(class) = name.strip_prefix(label::CLASS_PREFIX) else { continue };
                        let flips = flips.entry((key.0.clone(), class.to_owned())).or_default();
                        let to = if value.is_some() { &mut flips.matching } else { &mut flips.others };
                        to.push(key.1.clone());
                    }
                }
                Written::Gone => self.trouble_is(&key, None),
                Written::Not(trouble) => {
                    if trouble.is_some() {
                        self.trouble_is(&key, trouble);
                    }
                    self.later.hosts.insert(key);
                }
            }
        }
        flips
    }

    async fn label_one(&self, key: &Key) -> Written {
        let wanted = self.board.labels(&key.0, &key.1);
        if wanted.is_empty() {
            return Written::Bears(BTreeMap::new());
        }
        let hosts: Api<BareMetalHost> = Api::namespaced(self.context.client.clone(), &key.0);
        let of_host = reference::<BareMetalHost>(key);
        let (host, is_readable) = match self.context.hosts.get(&self.context.client, &of_host).await {
            Ok(Some(host)) => (host.metadata.clone(), true),
            Ok(None) => return Written::Gone,
            Err(error) => {
                tracing::debug!(namespace = key.0, host = key.1, %error, "read a host to be classified");
                if !matches!(error, kube::Error::SerdeError(_)) {
                    return Written::Not(None);
                }
                match hosts.get_metadata_opt(&key.1).await {
                    Ok(Some(host)) => (host.metadata, false),
                    Ok(None) => return Written::Gone,
                    Err(_) => return Written::Not(None),
                }
            }
        };
        // Another of that name has not been judged yet: it is news, which come.
        if self.board.uid(&key.0, &key.1) != host.uid.as_deref() {
            return Written::Gone;
        }
        let mut changes = difference(wanted, host.labels.as_ref().unwrap_or(&BTreeMap::new()));
        // A label without a finalizer would outlive its class.
        let is_held = |name: &str| {
            let class = name.strip_prefix(label::CLASS_PREFIX);
            class.is_none_or(|class| self.objects.get(&(key.0.clone(), class.to_owned())).is_some_and(|c| c.is_held()))
        };
        changes.retain(|name, value| value.is_none() || is_held(name));
        if !is_readable {
            // It is not judged by what is left of it; labels of classes that go leave it all the same.
            changes.retain(|name, value| value.is_none() && self.goes(&key.0, name));
        }
        if changes.is_empty() {
            return Written::Bears(changes);
        }
        let change = json!({ "metadata": { "uid": host.uid, "labels": changes } });
        let (params, patch) = (PatchParams::default(), Patch::Merge(change));
        let call = async { hosts.patch(&key.1, &params, &patch).await };
        let Err(error) = self.context.hosts.writing(&of_host, call).await else { return Written::Bears(changes) };
        tracing::debug!(namespace = key.0, host = key.1, %error, "write the labels of a host");
        match error {
            kube::Error::Api(status) if status.code == 404 => Written::Gone,
            kube::Error::Api(status) if matches!(status.code, 400 | 403 | 422) => {
                let is_removal = changes.values().all(Option::is_none);
                let why = clean(&status.message, MAX_WHY);
                Written::Not(Some((changes.into_keys().collect(), Trouble { is_removal, host: key.1.clone(), why })))
            }
            _ => Written::Not(None),
        }
    }

    /// Whether the class of this label is going, or gone: of the label of errors, all of them.
    fn goes(&self, namespace: &str, label: &str) -> bool {
        if label == label::CLASS_ERROR {
            return !self.board.is_lived_in(namespace);
        }
        let class = label.strip_prefix(label::CLASS_PREFIX);
        class.is_some_and(|class| self.board.class(namespace, class).is_none_or(|class| class.is_deleting))
    }

    /// Publishes what has come of it; of a class that goes, nothing.
    async fn tell(&self, key: &Key, flips: &Flips) {
        let Some(object) = self.objects.get(key).filter(|object| !object.is_deleting()) else { return };
        let mut all = Vec::new();
        if !flips.matching.is_empty() {
            let note = format!("{} now labelled", named(&flips.matching));
            all.push(Said { reason: "HostsMatch".to_owned(), note, warning: false });
        }
        if let Some(first) = flips.others.first() {
            let why = classification::reason(self.board.why(&key.0, &key.1, first).as_deref());
            let note = format!("{} not labelled any more; {first}: {why}", named(&flips.others));
            all.push(Said { reason: "HostsDoNotMatch".to_owned(), note, warning: false });
        }
        for said in all {
            if let Err(error) = self.context.recorder.publish(&said, &object.object_ref(&())).await {
                tracing::warn!(classification = key.1, reason = said.reason, %error, "publish an Event");
            }
        }
    }

    /// Writes which hosts do not match and why, and the status.
    async fn report(&mut self, key: &Key, object: HardwareClassification) -> Result<(), kube::Error> {
        let Some(class) = self.board.class(&key.0, &key.1) else { return Ok(()) };
        let counts = self.board.counts(&key.0, &key.1);
        let status = classification::status(class, &counts, self.trouble_of(key, class));
        let hosts = self.board.unmatched(&key.0, &key.1);
        let unmatched = classification::unmatched(class, hosts, counts.hosts.saturating_sub(counts.matched));
        let mut object = object;
        if object.annotations().get(annotation::UNMATCHED) != unmatched.as_ref() {
            let change = json!({ "metadata": { "uid": object.uid(), "resourceVersion": object.resource_version(),
                "annotations": { (annotation::UNMATCHED): unmatched } } });
            object = self.api(key).patch(&key.1, &PatchParams::default(), &Patch::Merge(change)).await?;
            self.wrote(key, object.clone());
        }
        if object.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let is_new_fault = status.error_message.is_some()
            && object.status.as_ref().is_none_or(|before| before.error_message != status.error_message);
        object.status = Some(status);
        let written = self.api(key).replace_status(&key.1, &PostParams::default(), &object).await?;
        if let Some(note) =
            written.status.as_ref().and_then(|status| status.error_message.clone()).filter(|_| is_new_fault)
        {
            let said = Said { reason: "ClassificationError".to_owned(), note, warning: true };
            if let Err(error) = self.context.recorder.publish(&said, &written.object_ref(&())).await {
                tracing::warn!(classification = key.1, %error, "publish an Event");
            }
        }
        self.wrote(key, written);
        Ok(())
    }

    /// The first host of the namespace that could not be given the class's label.
    fn trouble_of(&self, key: &Key, class: &Class) -> Option<&Trouble> {
        let of_namespace = self.troubles.iter().filter(|((namespace, _), _)| *namespace == key.0);
        of_namespace.map(|(_, trouble)| trouble).find(|(keys, _)| keys.contains(&class.key)).map(|(_, trouble)| trouble)
    }

    /// The labels of a host, be it readable or not.
    async fn labels_of(&self, key: &Key) -> Result<BTreeMap<String, String>, kube::Error> {
        if let Some(known) = self.context.hosts.known(&reference::<BareMetalHost>(key)) {
            return Ok(known.as_ref().map(|host| host.labels().clone()).unwrap_or_default());
        }
        let hosts: Api<BareMetalHost> = Api::namespaced(self.context.client.clone(), &key.0);
        let found = hosts.get_metadata_opt(&key.1).await?;
        Ok(found.and_then(|host| host.metadata.labels).unwrap_or_default())
    }

    /// Removes the finalizer, if no host bears a label any more that goes with the class.
    async fn let_go(&mut self, key: &Key, object: HardwareClassification) -> Result<(), kube::Error> {
        if !object.is_held() {
            return Ok(());
        }
        let own = format!("{}{}", label::CLASS_PREFIX, key.1);
        let hosts: Vec<Key> = self.board.hosts_of(&key.0).map(|host| (key.0.clone(), host.to_owned())).collect();
        for host in hosts {
            let labels = self.labels_of(&host).await?;
            let left = difference(self.board.labels(&host.0, &host.1), &labels);
            let ends = |name: &str| *name == own || name == label::CLASS_ERROR && self.goes(&key.0, name);
            if left.iter().any(|(name, value)| value.is_none() && ends(name)) {
                // The host is tried again; so is this.
                self.later.classes.insert(key.clone());
                let is_told =
                    self.board.class(&key.0, &key.1).is_some_and(|class| self.trouble_of(key, class).is_some());
                return if is_told { self.report(key, object).await } else { Ok(()) };
            }
        }
        let left: Vec<&str> =
            object.finalizers().iter().map(String::as_str).filter(|name| *name != finalizer::CLASSIFICATION).collect();
        let change = json!({ "metadata": { "uid": object.uid(), "resourceVersion": object.resource_version(),
            "finalizers": left } });
        match self.api(key).patch(&key.1, &PatchParams::default(), &Patch::Merge(change)).await {
            Ok(written) => self.wrote(key, written),
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// The first of these names, and how many more there are.
fn named(hosts: &[String]) -> String {
    let first = hosts.get(..NAMED.min(hosts.len())).unwrap_or_default().join(", ");
    match hosts.len().saturating_sub(NAMED) {
        0 if hosts.len() == 1 => format!("{first} is"),
        0 => format!("{first} are"),
        more => format!("{first} and {more} more are"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_names_a_few_hosts_and_counts_the_others() {
        let hosts = |count: usize| (1..=count).map(|number| format!("n{number}")).collect::<Vec<_>>();
        assert_eq!(named(&hosts(1)), "n1 is");
        assert_eq!(named(&hosts(3)), "n1, n2, n3 are");
        assert_eq!(named(&hosts(10_000)), "n1, n2, n3 and 9997 more are");
    }
}
