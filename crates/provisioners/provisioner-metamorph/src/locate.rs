//! The light by which a person finds the server: switched at its BMC.
//!
//! Nothing else of the machine changes, and nothing is recorded: the light is what the BMC shows. It leads somebody to a server who may open it, so the machine has
//! to be the host's as for a change of its power. While the firmware applies settings, the BMC is left alone.

use std::time::Duration;

use async_trait::async_trait;
use provisioner::{Cause, Failure, Locate, LocateRequest, Outcome, Verdict};
use tokio::time::timeout;

use crate::failures::of_bmc;
use crate::host::NativeHost;
use crate::identity::Effect;

/// Time for all that may be tried at a BMC.
const WITHIN: Duration = Duration::from_secs(120);
/// Seconds between looks at a BMC that is left alone.
const LOOK_AGAIN: u64 = 15;

#[async_trait]
impl Locate for NativeHost {
    async fn switch_light(&mut self, request: LocateRequest) -> Outcome<String> {
        if self.live.timers().firmware.is_some() {
            let step = "the firmware applies settings: the BMC is left alone meanwhile";
            return Ok(Verdict::working(step, LOOK_AGAIN));
        }
        let (bmc, _) = self.proven(Effect::Power).await?;
        let what = if request.lit { "switch the locating light on" } else { "switch the locating light off" };
        let light = bmc.location_indicator().map_err(|lacking| of_bmc(lacking.keeps_from(what)))?;
        match timeout(WITHIN, light.switch(request.lit)).await {
            Ok(switched) => switched.map(Verdict::Done).map_err(of_bmc),
            Err(_) => {
                let text = format!("{what}: the BMC has not come to an end within {} s", WITHIN.as_secs());
                Err(Failure::new(Cause::BmcBusy, text).advise("look at the server, and ask again"))
            }
        }
    }
}
