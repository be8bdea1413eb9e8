//! What is written for HostClasses: labels of hosts with the annotation that says whose they are, status of classes, Events.

use std::collections::BTreeSet;
use std::sync::PoisonError;

use api::Time;
use api::metal3::{BareMetalHost, annotation};
use api::metamorph::{HostClass, HostClassStatus};
use classification::Key;
use classification::host_class::{Ledger, Plan};
use futures::StreamExt as _;
use kube::Resource as _;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use terms::clean;

use super::host_class::Classes;
use super::watch::{Classifies as _, reference};
use crate::events::Said;

/// Hosts that are written to at once.
const AT_ONCE: usize = 16;
/// Longest reason of a refusal that is shown, characters.
const MAX_WHY: usize = 200;
/// What rules may cost before others in this process have their turn.
const PART: u64 = 200_000;
/// So many such parts, and then what has come meanwhile is heard, the end of the process included.
const PARTS: usize = 64;
/// Hosts that are looked at before others have their turn.
const LOOKS: usize = 256;

/// How a write to a host has ended.
enum Written {
    /// It bears its labels.
    Bears,
    /// It is gone, or cannot be read.
    Gone,
    /// It has not been written, and is tried again; by the classes that this concerns why, unless somebody else was faster.
    Not(Option<(BTreeSet<String>, String)>),
}

impl Classes {
    /// Judges what is to be judged, and writes what comes of it, as far as it is not there; if much is to be judged, a part of that, and writes nothing yet.
    pub(super) async fn write_all(&mut self) {
        if !self.is_in_step() {
            return;
        }
        let mut parts = 0;
        while self.board.judge(PART) {
            parts += 1;
            if parts == PARTS {
                return;
            }
            tokio::task::yield_now().await;
        }
        if !(self.context.settings.may_act)() {
            let (hosts, classes) = (self.board.take_hosts(), self.board.take_classes());
            self.later.hosts.extend(hosts);
            self.later.classes.extend(classes);
            return;
        }
        let hosts = self.board.take_hosts();
        for (number, (namespace, host)) in hosts.iter().enumerate() {
            self.board.refresh(namespace, host);
            if number % LOOKS == LOOKS - 1 {
                tokio::task::yield_now().await;
            }
        }
        self.tell_detection(&hosts);
        let before = self.later.len();
        self.label(hosts).await;
        for key in self.board.take_classes() {
            let Some(object) = self.objects.get(&key).cloned() else { continue };
            if let Err(error) = self.report(&key, object).await {
                tracing::debug!(namespace = key.0, name = key.1, %error, "write to a HostClass");
                self.later.classes.insert(key);
            }
            tokio::task::yield_now().await;
        }
        self.later.ended(before);
    }

    fn tell_detection(&mut self, hosts: &BTreeSet<Key>) {
        for key in hosts {
            match self.board.detection(&key.0, &key.1) {
                Some(said) => drop(self.detecting.insert(key.clone(), said)),
                None => drop(self.detecting.remove(key)),
            }
        }
        let mut told = self.context.detecting_classes.lock().unwrap_or_else(PoisonError::into_inner);
        if told.as_ref() != Some(&self.detecting) {
            *told = Some(self.detecting.clone());
        }
    }

    /// Writes the labels of these hosts.
    async fn label(&mut self, hosts: BTreeSet<Key>) {
        let done: Vec<(Key, Written)> = {
            let all = &*self;
            let writes = futures::stream::iter(hosts).map(|key| async move {
                let written = all.label_one(&key).await;
                (key, written)
            });
            writes.buffer_unordered(AT_ONCE).collect().await
        };
        for (key, written) in done {
            match written {
                Written::Bears | Written::Gone => {
                    self.trouble_is(&key, None);
                }
                Written::Not(trouble) => {
                    if let Some(trouble) = trouble {
                        let gone =
                            trouble.0.iter().any(|class| !self.objects.contains_key(&(key.0.clone(), class.clone())));
                        let why = trouble.1.clone();
                        if self.trouble_is(&key, Some(trouble)) && gone {
                            self.tell_host(&key, why).await;
                        }
                    }
                    self.later.hosts.insert(key);
                }
            }
        }
    }

    /// Tells by an Event of the host that a label stays on it whose class is gone: there is no status to say it.
    async fn tell_host(&self, key: &Key, why: String) {
        tracing::warn!(namespace = key.0, host = key.1, why, "labels of a HostClass that is gone are not removed");
        let host = self.context.hosts.store().and_then(|store| store.get(&reference::<BareMetalHost>(key)));
        let Some(host) = host else { return };
        let said = Said { reason: "HostClassLabelsNotRemoved".to_owned(), note: why, warning: true };
        if let Err(error) = self.context.recorder.publish(&said, &host.object_ref(&())).await {
            tracing::warn!(host = key.1, %error, "publish an Event");
        }
    }

    async fn label_one(&self, key: &Key) -> Written {
        let hosts: Api<BareMetalHost> = Api::namespaced(self.context.client.clone(), &key.0);
        let of_host = reference::<BareMetalHost>(key);
        let host = match self.context.hosts.get(&self.context.client, &of_host).await {
            Ok(Some(host)) => host,
            Ok(None) => return Written::Gone,
            Err(error) => {
                tracing::debug!(namespace = key.0, host = key.1, %error, "read a host to be classified");
                // Of one that cannot be read nothing is known, its labels included: it keeps them until it can be.
                let is_unreadable = matches!(error, kube::Error::SerdeError(_));
                return if is_unreadable { Written::Gone } else { Written::Not(None) };
            }
        };
        // Another of that name has not been judged yet: it is news, which come.
        let Some(Plan { changes, ledger, .. }) = self.board.plan(&key.0, &host) else { return Written::Gone };
        let (text, is) = (ledger.text(), host.annotation(annotation::HOST_CLASSES));
        if changes.is_empty() && text.as_deref() == is {
            return Written::Bears;
        }
        let mut change = json!({ "metadata": { "uid": host.metadata.uid, "resourceVersion": host.metadata.resource_version,
            "annotations": { (annotation::HOST_CLASSES): text } } });
        if !changes.is_empty() {
            change["metadata"]["labels"] = json!(changes);
        }
        let (params, patch) = (PatchParams::default(), Patch::Merge(change));
        let call = async { hosts.patch(&key.1, &params, &patch).await };
        let Err(error) = self.context.hosts.writing(&of_host, call).await else { return Written::Bears };
        tracing::debug!(namespace = key.0, host = key.1, %error, "write the labels of a host");
        match error {
            kube::Error::Api(status) if status.code == 404 => Written::Gone,
            // Somebody else has written in between.
            kube::Error::Api(status) if status.code == 409 => Written::Not(None),
            // A refusal, or a webhook of hosts that does not answer (500): by that the labels may be missing for long.
            error => {
                let before = Ledger::read(is);
                let keys = changes.keys();
                let classes = keys.flat_map(|key| ledger.giver(key).or_else(|| before.giver(key)));
                let what = match &error {
                    kube::Error::Api(status) => status.message.clone(),
                    other => other.to_string(),
                };
                let why = format!("the labels of BareMetalHost {}: {}", key.1, clean(&what, MAX_WHY));
                Written::Not(Some((classes.map(ToOwned::to_owned).collect(), why)))
            }
        }
    }

    /// Writes the status of a class.
    async fn report(&mut self, key: &Key, mut object: HostClass) -> Result<(), kube::Error> {
        let of_namespace = self.troubles.iter().filter(|((namespace, _), _)| *namespace == key.0);
        let mut refused = of_namespace.map(|(_, trouble)| trouble).filter(|(classes, _)| classes.contains(&key.1));
        let refused = refused.next().map(|(_, why)| why.as_str());
        let now = Time(self.context.settings.clock.now());
        let known = (object.status.as_ref(), refused);
        let Some(status) = self.board.status(&key.0, &key.1, known, &now) else { return Ok(()) };
        if object.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let fault = fault(&status).filter(|fault| object.status.as_ref().and_then(self::fault) != Some(fault));
        let fault = fault.map(ToOwned::to_owned);
        object.status = Some(status);
        let api: Api<HostClass> = Api::namespaced(self.context.client.clone(), &key.0);
        let mut written = api.replace_status(&key.1, &PostParams::default(), &object).await?;
        written.metadata.managed_fields = None;
        if let Some(note) = fault {
            let said = Said { reason: "HostClassNotAccepted".to_owned(), note, warning: true };
            if let Err(error) = self.context.recorder.publish(&said, &written.object_ref(&())).await {
                tracing::warn!(class = key.1, %error, "publish an Event");
            }
        }
        self.objects.insert(key.clone(), written);
        Ok(())
    }
}

/// Why nobody is judged by the class, if so.
fn fault(status: &HostClassStatus) -> Option<&str> {
    let all = &status.conditions;
    let accepted = all.iter().find(|condition| condition.kind == "Accepted" && condition.status == "False");
    accepted.map(|condition| condition.message.as_str())
}
