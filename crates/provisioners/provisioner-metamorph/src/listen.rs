//! Listening to the events of a host's BMC where the host is to be heard ([`provisioner::HostFacts::listens`]): by a stream, else by a subscription of this server's own.
//!
//! The subscription is recorded as those of users are, and ended with the host, when it is not to be heard any more, and when a stream does without it. Where neither can be had the
//! looks that are made anyway tell the same, later.

use std::sync::Arc;
use std::time::Duration;

use bmc::{Bmc, HealthLevel};
use boot_media::derive;
use provisioner::{Failure, Subscription, Unsubscription};

use crate::ear::{Ear, Means, Secrets};
use crate::events::OWN;
use crate::host::NativeHost;

/// How often the BMC is asked whether it still has the subscription.
const CHECKED_EVERY: Duration = Duration::from_mins(10);

impl NativeHost {
    /// Listens to this BMC's events, or not any more, as the host says. It fails nothing: what cannot be had now is tried again at a later look.
    pub async fn listens(&mut self, bmc: &Arc<dyn Bmc>, health: Option<HealthLevel>) {
        if let Err(failure) = self.hears(bmc, health).await {
            tracing::info!(host = %self.context.key.name, "its BMC's events are not heard: {}", failure.message);
        }
    }

    async fn hears(&mut self, bmc: &Arc<dyn Bmc>, health: Option<HealthLevel>) -> Result<(), Failure> {
        if self.context.deleting {
            return Ok(());
        }
        match self.context.listens {
            None => return Ok(()),
            Some(true) if bmc.events().is_ok() => {}
            Some(_) => return self.listens_no_more().await,
        }
        let (token, context) = derive::events(&self.shared.settings.keys.current().secret, self.uid());
        let secrets = Secrets { token, context };
        let (means, is_due) = {
            let mut slot = self.live.ear();
            if slot.as_ref().is_none_or(|ear| !ear.is_at(bmc, &secrets)) {
                // The one before is gone before the new one begins: a BMC may have room for one stream alone.
                *slot = None;
                let ears = &self.shared.ears;
                *slot = Some(Ear::new(ears, self.context.key.clone(), Arc::clone(bmc), secrets.clone()));
            }
            let Some(ear) = slot.as_mut() else { return Ok(()) };
            let heard = ear.heard();
            heard.saw(health);
            let means = heard.means();
            (means, means == Means::NoStream && ear.is_due(CHECKED_EVERY))
        };
        match means {
            Means::NoStream if is_due => self.subscribes_itself(secrets).await,
            Means::Stream => self.own_subscription_goes().await,
            Means::NoStream | Means::Unknown => Ok(()),
        }
    }

    /// Makes the subscription, or sees that it is there.
    async fn subscribes_itself(&mut self, secrets: Secrets) -> Result<(), Failure> {
        // The context is secret: where there is a way that nobody reads, it is taken.
        let bases = &self.bases.media;
        let Some(base) = bases.iter().find(|base| base.starts_with("https:")).or_else(|| bases.first()) else {
            return Ok(());
        };
        let destination = format!("{base}{}", derive::events_path(&secrets.token));
        let context = secrets.context;
        let wanted = Subscription { identity: OWN.to_owned(), destination, context, headers: Default::default() };
        self.subscribes(&wanted).await.map(|_| ())
    }

    /// Closes the ear, and ends the subscription if there is one.
    pub async fn listens_no_more(&mut self) -> Result<(), Failure> {
        *self.live.ear() = None;
        self.own_subscription_goes().await
    }

    async fn own_subscription_goes(&mut self) -> Result<(), Failure> {
        if !self.journal.data().subscriptions.contains_key(OWN) {
            return Ok(());
        }
        let ends = Unsubscription { identity: OWN.to_owned(), id: String::new(), destination: String::new() };
        provisioner::Events::unsubscribe(self, ends).await.map(|_| ())
    }
}
