//! Media beside the running system (`…/vmedia`).
//!
//! Ironic gives the BMC an address of its own for a medium, so what the BMC shows does not tell which it is: the URL is recorded before it is put in.

use async_trait::async_trait;
use provisioner::{Attached, Cause, DataImages, Failure, Outcome, Purpose, Retry};
use url::Url;

use crate::causes;
use crate::host::{IronicHost, SOON};
use crate::node::Node;
use crate::stop::{Step, Stop, answer};
use crate::versions;

impl IronicHost {
    async fn checked(&self, url: &str) -> Step<()> {
        self.leads()?;
        let text = match Url::parse(url) {
            Ok(read) if matches!(read.scheme(), "http" | "https") && read.host().is_some() => None,
            Ok(_) => Some("Ironic reads media by http and https only".to_owned()),
            Err(error) => Some(format!("its URL cannot be read: {error}")),
        };
        if let Some(text) = text {
            let mut failure = Failure::new(Cause::InvalidRequest, format!("put the medium in: {text}"));
            failure.retry = Retry::AfterChange;
            return Err(failure.into());
        }
        let version = self.client()?.version().await.map_err(|fault| self.heed("ask Ironic for its version", fault))?;
        if version < versions::VIRTUAL_MEDIA {
            let text = format!(
                "put the medium in: this Ironic has the API version 1.{version}, and shows no media before 1.93"
            );
            return Err(Failure::new(Cause::NotServed, text).advise("upgrade it, or remove the DataImage").into());
        }
        self.fresh().await.map(drop)
    }

    /// The node while nobody works on it, and whether a medium is in.
    async fn medium(&self) -> Step<(Node, bool)> {
        self.leads()?;
        let node = self.fresh().await?;
        if let Some(by) = node.reservation.as_ref().filter(|by| !by.is_empty()) {
            return Err(self.locked("look at the media", &format!("locked by {}", crate::fault::clean(by))));
        }
        let media = self.client()?.media(&node.uuid).await.map_err(|fault| self.heed("look at the media", fault))?;
        let is_in = media.iter().any(|medium| medium["inserted"].as_bool().unwrap_or(false));
        Ok((node, is_in))
    }

    async fn shown_medium(&self) -> Step<Attached> {
        let (_, is_in) = self.medium().await?;
        Ok(match (&self.journal.data.medium, is_in) {
            (_, false) => Attached::Nothing,
            (Some(url), true) => Attached::Url(url.clone()),
            (None, true) => Attached::Something,
        })
    }

    /// Ironic was told to bring the drive to this, and it is not there: what has failed, or nothing if it was not told.
    fn failed_medium(&self, node: &Node, wished: Option<&str>, restart: &str) -> Option<Failure> {
        let told = self.shared.memory.of(&self.context.key.uid, |live| live.medium.take());
        let is_same = told.as_ref().is_some_and(|told| told.as_deref() == wished);
        is_same.then(|| causes::failure(restart, node.error()))
    }

    async fn attach_medium(&mut self, url: String) -> Step<()> {
        let (node, is_in) = self.medium().await?;
        if is_in && self.journal.data.medium.as_deref() == Some(url.as_str()) {
            self.shared.memory.of(&self.context.key.uid, |live| live.medium = None);
            return Ok(());
        }
        if let Some(failure) = self.failed_medium(&node, Some(&url), "put the medium in") {
            return Err(failure.into());
        }
        if is_in {
            // Another one: it is taken out first, so that what is in is always the one that is recorded.
            return Err(self.take_out(&node).await);
        }
        if self.journal.data.medium.as_deref() != Some(url.as_str()) {
            self.journal.data.medium = Some(url.clone());
            self.record(Purpose::Intent).await?;
        }
        let client = self.client()?;
        client.ordered(self.now(), &node.uuid);
        self.still().await?;
        client.attach(&node.uuid, &url).await.map_err(|fault| self.heed("put the medium in", fault))?;
        self.shared.memory.of(&self.context.key.uid, |live| live.medium = Some(Some(url)));
        Err(Stop::working("Ironic puts the medium in", self.soon(SOON)))
    }

    async fn take_out(&self, node: &Node) -> Stop {
        let client = match self.client() {
            Ok(client) => client,
            Err(failure) => return failure.into(),
        };
        client.ordered(self.now(), &node.uuid);
        if let Err(stop) = self.still().await {
            return stop;
        }
        match client.detach(&node.uuid).await {
            Ok(()) => {
                self.shared.memory.of(&self.context.key.uid, |live| live.medium = Some(None));
                Stop::working("Ironic takes the medium out", self.soon(SOON))
            }
            Err(fault) => self.heed("take the medium out", fault),
        }
    }

    async fn detach_medium(&mut self) -> Step<()> {
        let (node, is_in) = self.medium().await?;
        if is_in {
            return Err(match self.failed_medium(&node, None, "take the medium out") {
                Some(failure) => failure.into(),
                None => self.take_out(&node).await,
            });
        }
        self.shared.memory.of(&self.context.key.uid, |live| live.medium = None);
        if self.journal.data.medium.take().is_some() {
            self.record(Purpose::Note).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl DataImages for IronicHost {
    async fn check(&mut self, url: String) -> Outcome<()> {
        answer(self.checked(&url).await)
    }

    async fn attached(&mut self) -> Outcome<Attached> {
        answer(self.shown_medium().await)
    }

    async fn attach(&mut self, url: String) -> Outcome<()> {
        answer(self.attach_medium(url).await)
    }

    async fn detach(&mut self) -> Outcome<()> {
        answer(self.detach_medium().await)
    }
}
