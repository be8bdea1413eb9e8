//! Keeps one worker's wake-ups flowing: connects, subscribes, asks its health, and begins anew when it breaks, or
//! hangs.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use provisioner::ObjectKey;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

use crate::carried::Carried;
use crate::convert;
use crate::flood::{Admitted, Limiter};
use crate::limits::SHORT;
use crate::link::{Live, Standing};
use crate::shared::Shared;
use crate::wire::v1;

/// How often a worker's health is asked.
const HEALTH_LOOK: Duration = Duration::from_secs(10);
/// The pause before a subscription that ended is made anew; it doubles up to [`MOST_PAUSE`] while subscriptions end early.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest, and how long a subscription has to last to count as one.
const MOST_PAUSE: Duration = Duration::from_secs(60);
/// So many looks in a row without any answer, and without a word in any call, and the worker counts as hanging.
const MISSES: u32 = 3;

/// Runs until its provisioner is gone.
pub async fn keep<R: Carried>(shared: Weak<Shared<R>>) {
    let mut limiter = Limiter::new(Instant::now());
    let (mut is_first, mut pause) = (true, PAUSE);
    loop {
        let Some(shared) = shared.upgrade() else { return };
        match shared.link.live().await {
            Ok(live) => {
                let begun = Instant::now();
                watch(&shared, &live, &mut limiter, &mut is_first).await;
                // Whoever was refused by the words of this one is looked at when another is subscribed to.
                is_first = false;
                drop(shared);
                // Each new connection wakes all hosts: one that breaks soon, again and again, does so ever more seldom.
                if begun.elapsed() >= MOST_PAUSE {
                    pause = PAUSE;
                }
                tokio::time::sleep(pause).await;
                pause = pause.saturating_mul(2).min(MOST_PAUSE);
            }
            Err(_) => {
                let next = shared.link.next_try().await;
                if shared.link.greets_nobody().await
                    && let Some(hangs) = &shared.hangs
                {
                    hangs.notify_one();
                }
                drop(shared);
                sleep_until(next.unwrap_or_else(|| Instant::now() + PAUSE)).await;
            }
        }
    }
}

fn wake_all<R: Carried>(shared: &Shared<R>) {
    let all: Vec<ObjectKey> = shared.those().known.values().cloned().collect();
    all.iter().for_each(|key| shared.waker.wake(key));
}

/// The stream of wake-ups on one connection, made anew when it ends.
struct Stream {
    open: Option<tonic::Streaming<v1::SubscribeResponse>>,
    /// When it is tried; never again with a worker that wakes nobody.
    next: Option<Instant>,
    begun: Instant,
    pause: Duration,
}

impl Stream {
    fn new() -> Self {
        let now = Instant::now();
        Self { open: None, next: Some(now), begun: now, pause: PAUSE }
    }

    /// Subscribes. All hosts are looked at unless it is the first time: what was sent in between is lost.
    async fn subscribe<R: Carried>(&mut self, shared: &Shared<R>, live: &Live<R>, is_first: &mut bool) {
        let request = v1::SubscribeRequest { version: live.known.version };
        self.begun = Instant::now();
        match timeout(SHORT, live.client().subscribe(request)).await {
            Ok(Ok(wake_ups)) => (self.open, self.next) = (Some(wake_ups.into_inner()), None),
            // It wakes nobody: hosts are looked at when their time comes.
            Ok(Err(status)) if status.code() == tonic::Code::Unimplemented => self.next = None,
            Ok(Err(_)) | Err(_) => {
                // What was said until it succeeds is lost as well.
                *is_first = false;
                return self.ended();
            }
        }
        if !std::mem::take(is_first) {
            wake_all(shared);
        }
    }

    /// It has ended, or could not be made.
    fn ended(&mut self) {
        if self.begun.elapsed() >= MOST_PAUSE {
            self.pause = PAUSE;
        }
        (self.open, self.next) = (None, Some(Instant::now() + self.pause));
        self.pause = self.pause.saturating_mul(2).min(MOST_PAUSE);
    }

    /// The next wake-up; `None` if the stream has ended.
    async fn message(&mut self) -> Option<v1::SubscribeResponse> {
        match &mut self.open {
            Some(wake_ups) => wake_ups.message().await.ok().flatten(),
            None => std::future::pending().await,
        }
    }
}

/// Forwards wake-ups, and asks the worker's health, while the connection lasts.
async fn watch<R: Carried>(shared: &Arc<Shared<R>>, live: &Live<R>, limiter: &mut Limiter, is_first: &mut bool) {
    let mut stream = Stream::new();
    let mut look = interval(HEALTH_LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut misses, mut heard, mut last_word) = (0, shared.heard.load(Ordering::Relaxed), Instant::now());
    while !live.is_over() {
        let due = stream.next;
        tokio::select! {
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                stream.subscribe(shared, live, is_first).await;
            }
            message = stream.message() => match message {
                Some(woken) => wake(shared, woken, limiter),
                None => stream.ended(),
            },
            _ = look.tick() => {
                let standing = live.standing().await;
                let said = shared.heard.load(Ordering::Relaxed);
                if standing == Standing::Silent && said == heard {
                    misses += 1;
                } else {
                    (misses, heard, last_word) = (0, said, Instant::now());
                }
                // One that is at work, and has no room for this question meanwhile, has for that as long as a call may take.
                let is_at_work = shared.is_at_work() && last_word.elapsed() < shared.deadline;
                if misses >= MISSES && !is_at_work && !live.is_over() {
                    tracing::warn!(provisioner = %shared.name, "the provisioner does not answer: it is connected to anew");
                    shared.link.give_up(live).await;
                    if let Some(hangs) = &shared.hangs {
                        hangs.notify_one();
                    }
                    return;
                }
                heed(shared, standing);
                if shared.gives_up_unread(live).await {
                    return;
                }
            }
        }
    }
}

/// Whether it takes new calls is what it says itself: one that says nothing is asked on, and its hosts say so.
fn heed<R: Carried>(shared: &Shared<R>, standing: Standing) {
    let drains = match standing {
        Standing::Silent => return,
        Standing::Drains => true,
        Standing::Serves => false,
    };
    if shared.link.drains() != drains {
        tracing::info!(provisioner = %shared.name, drains, "the provisioner has changed its mind about new calls");
        if !drains {
            wake_all(shared);
        }
    }
    shared.link.set_draining(drains);
}

fn wake<R: Carried>(shared: &Shared<R>, woken: v1::SubscribeResponse, limiter: &mut Limiter) {
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
        let mut those = shared.those();
        // It has no say in others' hosts.
        let Some(known) = those.known.get(&key.uid).filter(|known| **known == key).cloned() else { return };
        if woken.news {
            those.news.insert(key.uid);
        }
        known
    };
    shared.waker.wake(&known);
}
