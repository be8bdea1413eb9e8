//! How a client behaves: its waits, the BMC that it expects, and what it may call.

use std::sync::Arc;
use std::time::Duration;

use addresses::Allowed;
use bmc::{Backoff, Pacer, TokioPacer};
use inventory::BmcPin;

/// How a client behaves.
#[derive(Clone)]
pub struct ClientOptions {
    /// `Context` of the sessions: `metamorph/<server id>`. A later process of the same server recognises left-over sessions by it.
    pub context: String,
    /// Waits before a deferred request (503, 429) is repeated, if the BMC names no time.
    pub busy: Backoff,
    /// Waits before a request is repeated, or its result checked again, while the BMC starts or is slow, the machine is in its self-test, or a
    /// machine that has just been off may not come on yet (iDRAC: up to a minute).
    pub ready: Backoff,
    /// The longest total wait for one request that the BMC defers; beyond it, the request fails with an error that includes the time that the BMC
    /// asks for.
    pub patience: Duration,
    /// The longest total wait for a BMC within ten minutes, over all requests: a BMC that defers each request would keep its host busy for hours.
    pub patience_in_all: Duration,
    /// Waits before an insertion is repeated while the eject before it still runs (Dell: 3 × 3 s).
    pub eject: Backoff,
    /// Waits between looks at a task; then it counts as stuck.
    pub task: Backoff,
    /// Waits between looks at the power, when a restart has to be done as off and on.
    pub power: Backoff,
    /// How to wait.
    pub pacer: Arc<dyn Pacer>,
    /// The expected BMC, as far as it is known: no other BMC is sent the password.
    pub pin: BmcPin,
    /// Local addresses that may be called.
    pub allowed: Allowed,
}

impl ClientOptions {
    /// Defaults for the server with this id.
    #[must_use]
    pub fn new(server_id: &str) -> Self {
        let seconds = Duration::from_secs;
        Self {
            context: format!("metamorph/{server_id}"),
            busy: Backoff { first: seconds(1), factor: 3, most: seconds(5), attempts: 2 },
            ready: Backoff { first: seconds(5), factor: 2, most: seconds(10), attempts: 6 },
            patience: seconds(60),
            patience_in_all: seconds(180),
            eject: Backoff { first: seconds(3), factor: 2, most: seconds(12), attempts: 4 },
            task: Backoff { first: Duration::from_millis(500), factor: 2, most: seconds(5), attempts: 26 },
            power: Backoff { first: seconds(1), factor: 2, most: seconds(5), attempts: 12 },
            pacer: Arc::new(TokioPacer),
            pin: BmcPin::default(),
            allowed: Allowed::default(),
        }
    }
}
