//! Subscriptions to the BMC's events (BMCEventSubscription).
//!
//! A subscription is recorded before it is made, with those that looked like it then: after a lost answer, one that looks like it, was not there
//! before and is no other object's is taken for it. Nothing else is ever adopted or ended.

use std::collections::BTreeSet;

use async_trait::async_trait;
use bmc::{Bmc, EventDestination};
use provisioner::{Cause, Events, Failure, Outcome, Purpose, Retry, Subscription, Unsubscription, Verdict};

use crate::failures::of_bmc;
use crate::host::NativeHost;
use crate::identity::Effect;
use crate::remembered::Subscribed;

/// Most subscriptions of a host.
const MAX_SUBSCRIPTIONS: usize = 32;
/// Most others that are remembered beside one.
const MAX_OTHERS: usize = 32;

#[async_trait]
impl Events for NativeHost {
    async fn subscribe(&mut self, subscription: Subscription) -> Outcome<String> {
        let Subscription { identity, destination, context, headers } = &subscription;
        let headers: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (name.as_str(), value.0.as_str())).collect();
        let wanted = EventDestination { url: destination, context, headers: &headers };
        let (bmc, _) = self.proven(Effect::Power).await?;
        let events = events(bmc.as_ref())?;
        if let Some(known) = self.journal.data().subscriptions.get(identity).cloned() {
            if known.destination != *destination || known.context != *context {
                // The object was made again under its identity, from a backup for instance.
                self.end(bmc.as_ref(), identity, &known).await?;
            } else if known.id.is_empty() {
                if let Some(id) = self.found(bmc.as_ref(), &wanted, &known).await? {
                    return self.subscribed(identity, id).await;
                }
            } else if events.has(&known.id, destination).await.map_err(of_bmc)? {
                return Ok(Verdict::Done(known.id));
            }
        }
        let others = events.like(&wanted).await.map_err(of_bmc)?;
        let mut data = self.journal.data();
        if data.subscriptions.len() >= MAX_SUBSCRIPTIONS && !data.subscriptions.contains_key(identity) {
            let text =
                format!("subscribe to the BMC's events: the host has {MAX_SUBSCRIPTIONS} subscriptions, and no more");
            let mut failure =
                Failure::new(Cause::InvalidRequest, text).advise("delete a BMCEventSubscription of this host");
            failure.retry = Retry::AfterChange;
            return Err(failure);
        }
        let known = Subscribed {
            id: String::new(),
            destination: destination.clone(),
            context: context.clone(),
            others: others.into_iter().take(MAX_OTHERS).collect(),
        };
        data.subscriptions.insert(identity.clone(), known.clone());
        self.journal.write(data, Purpose::Intent).await?;
        let made = events.subscribe(&wanted).await.map_err(of_bmc)?;
        let id = match made {
            Some(id) => Some(id),
            None => self.found(bmc.as_ref(), &wanted, &known).await?,
        };
        match id {
            Some(id) => self.subscribed(identity, id).await,
            None => Err(Failure::new(
                Cause::BmcRefused,
                "subscribe to the BMC's events: the BMC has taken the subscription, and does not show it",
            )
            .advise("look for a newer firmware of the BMC; it is tried again")),
        }
    }

    async fn unsubscribe(&mut self, ends: Unsubscription) -> Outcome<()> {
        let known = self.journal.data().subscriptions.get(&ends.identity).cloned();
        // One that another server has made is known by its object alone.
        let known = known.or_else(|| {
            let theirs =
                Subscribed { id: ends.id.clone(), destination: ends.destination.clone(), ..Subscribed::default() };
            Some(theirs).filter(|theirs| !theirs.id.is_empty() && !theirs.destination.is_empty())
        });
        let Some(known) = known else { return Ok(Verdict::Done(())) };
        let (bmc, _) = self.proven(Effect::Power).await?;
        self.end(bmc.as_ref(), &ends.identity, &known).await?;
        Ok(Verdict::Done(()))
    }
}

impl NativeHost {
    /// Records the id.
    async fn subscribed(&self, identity: &str, id: String) -> Outcome<String> {
        let mut data = self.journal.data();
        if let Some(known) = data.subscriptions.get_mut(identity) {
            (known.id, known.others) = (id.clone(), Vec::new());
        }
        self.journal.write(data, Purpose::Note).await?;
        Ok(Verdict::Done(id))
    }

    /// The subscription that was made without an answer, if there is one.
    async fn found(
        &self,
        bmc: &dyn Bmc,
        wanted: &EventDestination<'_>,
        known: &Subscribed,
    ) -> Result<Option<String>, Failure> {
        let data = self.journal.data();
        let claimed: BTreeSet<&str> = data.subscriptions.values().map(|other| other.id.as_str()).collect();
        let like = events(bmc)?.like(wanted).await.map_err(of_bmc)?;
        let mut new = like.into_iter().filter(|id| !known.others.contains(id) && !claimed.contains(id.as_str()));
        Ok(new.next())
    }

    /// Ends a subscription, and records that.
    async fn end(&self, bmc: &dyn Bmc, identity: &str, known: &Subscribed) -> Result<(), Failure> {
        // A BMC that has no events any more has no subscriptions.
        if let Ok(events) = bmc.events() {
            let id = if known.id.is_empty() {
                let wanted = EventDestination { url: &known.destination, context: &known.context, headers: &[] };
                self.found(bmc, &wanted, known).await?
            } else {
                Some(known.id.clone())
            };
            if let Some(id) = id {
                events.unsubscribe(&id, &known.destination).await.map_err(of_bmc)?;
            }
        }
        let mut data = self.journal.data();
        if data.subscriptions.remove(identity).is_some() {
            self.journal.write(data, Purpose::Note).await?;
        }
        Ok(())
    }
}

fn events(bmc: &dyn Bmc) -> Result<&dyn bmc::Events, Failure> {
    bmc.events().map_err(|lacking| of_bmc(lacking.keeps_from("subscribe to the BMC's events")))
}
