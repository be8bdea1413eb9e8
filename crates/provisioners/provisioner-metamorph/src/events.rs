//! Subscriptions to the BMC's events (BMCEventSubscription).
//!
//! A subscription is recorded before it is made, with those that looked like it then: after a lost answer, one that looks like it, was not there
//! before and is no other object's is taken for it. Nothing else is ever adopted or ended.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use bmc::{Bmc, BmcError, ErrorKind, EventDestination};
use boot_media::derive;
use jiff::Timestamp;
use provisioner::{Cause, Events, Failure, Outcome, Purpose, Retry, Subscription, Unsubscription, Verdict};
use sha2::{Digest as _, Sha256};

use crate::data::Data;
use crate::failures::of_bmc;
use crate::host::NativeHost;
use crate::identity::Effect;
use crate::remembered::Subscribed;

/// What tells the subscription by which this server itself hears of a machine from those of users, which are told apart by uids.
pub const OWN: &str = "metamorph";
/// Most subscriptions of a host, beside this server's own.
const MAX_SUBSCRIPTIONS: usize = 32;
/// Most bytes of all subscriptions of a host as JSON, a quarter of what the record may have.
const MAX_BYTES: usize = 16 << 10;
/// Most bytes of the ids of others that are remembered beside one.
const MAX_OTHERS: usize = 2 << 10;
/// Longest pause before a BMC is asked again for a subscription that it does not show.
const LONGEST_PAUSE: Duration = Duration::from_hours(24);
/// So often one after another access is refused to what ends the subscriptions of a host that is deleted, and no more: each may be a sign-in.
const MAX_REFUSED: u32 = 2;
/// Longest time for ending the subscriptions of a host that is deleted.
const END_TIME: Duration = Duration::from_secs(60);

#[async_trait]
impl Events for NativeHost {
    async fn subscribe(&mut self, subscription: Subscription) -> Outcome<String> {
        self.check_destination(&subscription.destination)?;
        self.subscribes(&subscription).await
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
    /// Makes a subscription to a destination that this server lets a BMC send events to, or sees that it is there.
    pub async fn subscribes(&self, subscription: &Subscription) -> Outcome<String> {
        let Subscription { identity, destination, context, headers } = subscription;
        let headers: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (name.as_str(), value.0.as_str())).collect();
        let wanted = EventDestination { url: destination, context, headers: &headers };
        let (bmc, _) = self.proven(Effect::Power).await?;
        let events = events(bmc.as_ref())?;
        let mut before = self.journal.data().subscriptions.get(identity).cloned();
        if let Some(known) = &before {
            if known.destination != *destination || known.context != recorded(identity, context) {
                // The object was made again under its identity, from a backup for instance.
                self.end(bmc.as_ref(), identity, known).await?;
                before = None;
            } else if known.id.is_empty() {
                if let Some(id) = self.found(bmc.as_ref(), &wanted, known).await? {
                    return self.subscribed(identity, id).await;
                }
            } else if events.has(&known.id, destination).await.map_err(of_bmc)? {
                return Ok(Verdict::Done(known.id.clone()));
            }
        }
        let now = (self.context.now)();
        let asked = before.map_or(Ok(0), |known| asked(&known, now))?;
        let known = Subscribed {
            id: String::new(),
            destination: destination.clone(),
            context: recorded(identity, context),
            others: others(events.like(&wanted).await.map_err(of_bmc)?)?,
            asked: asked.saturating_add(1),
            asked_at: Some(now),
        };
        let data = self.with_room_for(events, identity, &known).await?;
        self.journal.write(data, Purpose::Intent).await?;
        let made = match events.subscribe(&wanted).await {
            Err(error) if is_definite(&error) => {
                let mut data = self.journal.data();
                data.subscriptions.remove(identity);
                self.journal.write(data, Purpose::Note).await?;
                return Err(of_bmc(error));
            }
            made => made.map_err(of_bmc)?,
        };
        let id = match made {
            Some(id) => Some(id),
            None => self.found(bmc.as_ref(), &wanted, &known).await?,
        };
        match id {
            Some(id) => self.subscribed(identity, id).await,
            None => Err(not_shown(known.asked)),
        }
    }

    /// Records the id.
    async fn subscribed(&self, identity: &str, id: String) -> Outcome<String> {
        let mut data = self.journal.data();
        for (other, known) in &mut data.subscriptions {
            if other == identity {
                (known.id, known.others) = (id.clone(), Vec::new());
            } else if known.id == id {
                // BMCs give ids again: the one that had it is lost.
                known.id.clear();
            }
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

    /// Whether this server lets a BMC send events there. It checks an address; of a name, the BMC's network decides.
    fn check_destination(&self, destination: &str) -> Result<(), Failure> {
        const ANOTHER: &str = "delete the BMCEventSubscription, and create one with another spec.destination";
        // Parsers differ in what a backslash is, and so in which host is meant.
        let served = url::Url::parse(destination).ok().filter(|_| !destination.contains('\\'));
        let served = served.filter(|url| matches!(url.scheme(), "http" | "https"));
        if served.is_none() {
            return Err(refuse(
                "BMCs send events to addresses of http and https, and this destination is none",
                ANOTHER,
            ));
        }
        match self.local(destination) {
            Some(refused) => Err(refuse(
                &refused.to_string(),
                &refused.advice("spec.destination (delete the BMCEventSubscription, and create another)"),
            )),
            None => Ok(()),
        }
    }

    /// What is recorded of the host, with this subscription; fails if there is no room for it. Room is made by those that the BMC does not have any
    /// more: their objects may be gone, too.
    async fn with_room_for(
        &self,
        events: &dyn bmc::Events,
        identity: &str,
        known: &Subscribed,
    ) -> Result<Data, Failure> {
        let mut data = self.journal.data();
        data.subscriptions.insert(identity.to_owned(), known.clone());
        if lacks_room(&data).is_none() {
            return Ok(data);
        }
        for (other, known) in data.subscriptions.clone() {
            let lost = other != identity
                && !known.id.is_empty()
                && !events.has(&known.id, &known.destination).await.map_err(of_bmc)?;
            if lost {
                data.subscriptions.remove(&other);
            }
        }
        lacks_room(&data).map_or(Ok(data), Err)
    }

    /// Ends all subscriptions of a host that is being deleted. What the BMC does with them holds up no deletion.
    pub async fn subscriptions_go(&self, bmc: &dyn Bmc) {
        let ends = async {
            let (mut first, mut refused) = (None, 0);
            for (identity, known) in self.journal.data().subscriptions {
                match self.end_on_bmc(bmc, &identity, &known).await {
                    Ok(()) => {
                        refused = 0;
                        self.journal.note(|data| drop(data.subscriptions.remove(&identity)));
                    }
                    Err(failure) => {
                        // What the BMC has against one order it need not have against the next. Where it has refused access it may be the password.
                        refused += u32::from(failure.cause == Cause::BmcCredentialsRefused);
                        let goes_on = matches!(failure.cause, Cause::BmcRefused | Cause::BmcCredentialsRefused);
                        let failure = first.get_or_insert(failure);
                        if !goes_on || refused >= MAX_REFUSED {
                            return Err(failure.clone());
                        }
                    }
                }
            }
            first.map_or(Ok(()), Err)
        };
        let why = match tokio::time::timeout(END_TIME, ends).await {
            Ok(Ok(())) => return,
            Ok(Err(failure)) => failure.message,
            Err(_) => format!("the BMC has not ended them within {} s", END_TIME.as_secs()),
        };
        let left: Vec<String> = self.journal.data().subscriptions.into_values().map(|known| known.id).collect();
        tracing::warn!(host = %self.context.key.name, ids = left.join(", "), "the host is deleted, and its subscriptions to events may be left on its BMC: {why}");
    }

    /// Ends a subscription, and records that.
    async fn end(&self, bmc: &dyn Bmc, identity: &str, known: &Subscribed) -> Result<(), Failure> {
        self.end_on_bmc(bmc, identity, known).await?;
        let mut data = self.journal.data();
        if data.subscriptions.remove(identity).is_some() {
            self.journal.write(data, Purpose::Note).await?;
        }
        Ok(())
    }

    /// The context of this server's own subscription, which the record does not tell: by whichever key it was made. `None` where that key is gone.
    fn own_context(&self, known: &Subscribed) -> Option<String> {
        let made = |secret: &[u8; 32]| derive::events(secret, self.uid()).1;
        self.shared.settings.keys.find_made(made, |context| recorded(OWN, context) == known.context)
    }

    /// Ends a subscription.
    async fn end_on_bmc(&self, bmc: &dyn Bmc, identity: &str, known: &Subscribed) -> Result<(), Failure> {
        // A BMC that has no events any more has no subscriptions.
        if let Ok(events) = bmc.events() {
            let context = if identity == OWN { self.own_context(known) } else { Some(known.context.clone()) };
            let id = match context {
                _ if !known.id.is_empty() => Some(known.id.clone()),
                Some(context) => {
                    let wanted = EventDestination { url: &known.destination, context: &context, headers: &[] };
                    self.found(bmc, &wanted, known).await?
                }
                None => {
                    tracing::warn!(host = %self.context.key.name, "the server's own subscription to events, whose id is not known, may be left on the BMC: the key that it was made with is gone");
                    None
                }
            };
            if let Some(id) = id {
                self.still_wanted().await?;
                events.unsubscribe(&id, &known.destination).await.map_err(of_bmc)?;
            }
        }
        Ok(())
    }
}

/// The context as the record has it: this server's own is secret, and many may read records.
fn recorded(identity: &str, context: &str) -> String {
    if identity == OWN { format!("sha256:{}", hex::encode(Sha256::digest(context))) } else { context.to_owned() }
}

fn events(bmc: &dyn Bmc) -> Result<&dyn bmc::Events, Failure> {
    bmc.events().map_err(|lacking| of_bmc(lacking.keeps_from("subscribe to the BMC's events")))
}

fn refuse(why: &str, advice: &str) -> Failure {
    let mut failure =
        Failure::new(Cause::InvalidRequest, format!("subscribe to the BMC's events: {why}")).advise(advice);
    failure.retry = Retry::AfterChange;
    failure
}

/// How often the BMC was asked for this one lately; fails while it is not to be asked again. One that takes each request and shows nothing would have
/// as many subscriptions as there were looks.
fn asked(known: &Subscribed, now: Timestamp) -> Result<u32, Failure> {
    let since = known.asked_at.and_then(|asked| Duration::try_from(now.duration_since(asked)).ok());
    match since {
        Some(since) if since < pause(known.asked) => Err(not_shown(known.asked)),
        Some(since) if since <= 2 * LONGEST_PAUSE => Ok(known.asked),
        _ => Ok(0),
    }
}

/// How long a BMC is left alone that was asked so often for a subscription: not at all, then two, four, eight minutes.
fn pause(asked: u32) -> Duration {
    if asked < 2 { Duration::ZERO } else { Duration::from_mins(1 << (asked - 1).min(12)).min(LONGEST_PAUSE) }
}

fn not_shown(asked: u32) -> Failure {
    let times = if asked == 1 { "once".to_owned() } else { format!("{asked} times") };
    let text = format!("subscribe to the BMC's events: the BMC was asked {times}, and does not show the subscription");
    let minutes = pause(asked).as_secs() / 60;
    let again = if minutes < 2 {
        "it is tried again".to_owned()
    } else {
        format!("it is tried again {minutes} minutes after the last time")
    };
    Failure::new(Cause::BmcRefused, text).advise(format!("look for a newer firmware of the BMC; {again}"))
}

/// Ids of the subscriptions that are there already and look alike: all of them, as none may be taken for the new one.
fn others(like: Vec<String>) -> Result<Vec<String>, Failure> {
    if like.iter().map(String::len).sum::<usize>() <= MAX_OTHERS {
        return Ok(like);
    }
    let why = format!("the BMC has {} subscriptions to this destination with this context already", like.len());
    Err(refuse(&why, "delete those at the BMC that nobody needs"))
}

/// Why the host's subscriptions cannot be recorded.
fn lacks_room(data: &Data) -> Option<Failure> {
    let advice = "delete a BMCEventSubscription of this host; those of which the object is gone are to be deleted at the BMC (EventService/Subscriptions)";
    let of_users = data.subscriptions.keys().filter(|identity| *identity != OWN).count();
    if of_users > MAX_SUBSCRIPTIONS {
        return Some(refuse(&format!("the host has {MAX_SUBSCRIPTIONS} subscriptions, and no more"), advice));
    }
    let bytes = serde_json::to_vec(&data.subscriptions).map_or(usize::MAX, |text| text.len());
    (bytes > MAX_BYTES).then(|| {
        let why = format!("the subscriptions of the host have more than {MAX_BYTES} bytes, which its record keeps");
        refuse(&why, &format!("make it anew with a shorter spec.destination or spec.context; or {advice}"))
    })
}

/// Whether the BMC has refused, so that there is no subscription.
fn is_definite(error: &BmcError) -> bool {
    match error.kind {
        ErrorKind::Rejected { status } => (400..500).contains(&status) && status != 408,
        kind => matches!(kind, ErrorKind::NotFound | ErrorKind::Unsupported | ErrorKind::Unauthorized),
    }
}
