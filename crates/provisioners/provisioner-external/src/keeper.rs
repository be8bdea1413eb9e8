//! Keeps one worker's wake-ups flowing: connects, subscribes, asks its health, and begins anew when it breaks.

use std::sync::{Arc, Weak};
use std::time::Duration;

use provisioner::HostKey;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

use crate::convert;
use crate::flood::{Admitted, Limiter};
use crate::limits::SHORT;
use crate::link::Live;
use crate::shared::Shared;
use crate::wire::v1;

/// How often a worker's health is asked.
const HEALTH_LOOK: Duration = Duration::from_secs(10);
/// The pause between two subscriptions of one that breaks at once.
const PAUSE: Duration = Duration::from_secs(1);

/// Runs until its provisioner is gone.
pub async fn keep(shared: Weak<Shared>) {
    let mut limiter = Limiter::new(Instant::now());
    let mut is_first = true;
    loop {
        let Some(shared) = shared.upgrade() else { return };
        match shared.link.live().await {
            Ok(live) => {
                if !std::mem::take(&mut is_first) {
                    // What was sent in between is lost.
                    wake_all(&shared);
                }
                watch(&shared, &live, &mut limiter).await;
                drop(shared);
                tokio::time::sleep(PAUSE).await;
            }
            Err(_) => {
                let next = shared.link.next_try().await;
                drop(shared);
                sleep_until(next.unwrap_or_else(|| Instant::now() + PAUSE)).await;
            }
        }
    }
}

fn wake_all(shared: &Shared) {
    let all: Vec<HostKey> = shared.hosts().known.values().cloned().collect();
    all.iter().for_each(|key| shared.waker.wake(key));
}

/// Forwards wake-ups while the connection lasts.
async fn watch(shared: &Arc<Shared>, live: &Live, limiter: &mut Limiter) {
    let subscribed =
        timeout(SHORT, live.client().subscribe(v1::SubscribeRequest { version: live.known.version })).await;
    let mut wake_ups = match subscribed {
        Ok(Ok(wake_ups)) => Some(wake_ups.into_inner()),
        // It wakes nobody: hosts are looked at when their time comes. Its health is asked all the same.
        Ok(Err(status)) if status.code() == tonic::Code::Unimplemented => None,
        Ok(Err(_)) | Err(_) => return,
    };
    let mut look = interval(HEALTH_LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut misses = 0;
    loop {
        let next = async {
            match &mut wake_ups {
                Some(wake_ups) => wake_ups.message().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            message = next => match message {
                Ok(Some(woken)) => wake(shared, woken, limiter),
                Ok(None) | Err(_) => return,
            },
            _ = look.tick() => {
                let serves = live.serves().await;
                if shared.link.drains() == serves {
                    tracing::info!(provisioner = %shared.name, serves, "the provisioner has changed its mind about new calls");
                    if serves {
                        wake_all(shared);
                    }
                }
                shared.link.set_draining(!serves);
                misses = if serves { 0 } else { misses + 1 };
                // One that does not even say so is connected to anew.
                if misses > 0 && live.is_over() {
                    return;
                }
            }
        }
    }
}

fn wake(shared: &Shared, woken: v1::SubscribeResponse, limiter: &mut Limiter) {
    match limiter.admit(Instant::now()) {
        Admitted::Yes => {}
        Admitted::FirstDropped => {
            tracing::warn!(provisioner = %shared.name, "the provisioner wakes hosts too often: more than 50 a second are dropped");
            return;
        }
        Admitted::Dropped => return,
    }
    let Some(key) = woken.host.map(convert::key_read) else { return };
    let known = {
        let mut hosts = shared.hosts();
        // It has no say in others' hosts.
        let Some(known) = hosts.known.get(&key.uid).filter(|known| **known == key).cloned() else { return };
        if woken.news {
            hosts.news.insert(key.uid);
        }
        known
    };
    shared.waker.wake(&known);
}
