//! What the host wishes of its machine's power.

use api::metal3::{BareMetalHost, BareMetalHostStatus, ProvisioningState as State};

use crate::annotations::{self, Reboot};
use crate::view::View;

/// The reboot annotations that count: on an available host, only those with `force`.
pub(crate) fn reboot(view: &View<'_>) -> Reboot {
    wish(view.host)
}

fn wish(host: &BareMetalHost) -> Reboot {
    let forced_only = matches!(host.state(), State::Available | State::Ready);
    let mut wish = annotations::reboot(host, forced_only);
    if host.spec.disable_power_off == Some(true) {
        // Such a host can be restarted, not kept off.
        wish.held_off = false;
    }
    wish
}

/// Whether the host should run now.
pub(crate) fn wanted_on(view: &View<'_>, reboot: &Reboot) -> bool {
    view.host.spec.online && !reboot.once && !reboot.held_off
}

/// Whether the machine is to be on, and no restart is asked for.
pub(crate) fn is_to_run(view: &View<'_>) -> bool {
    wanted_on(view, &reboot(view))
}

/// Whether the machine is off and is to be on.
pub(crate) fn is_about_to_boot(view: &View<'_>) -> bool {
    !view.status().powered_on && is_to_run(view)
}

/// Whether the power last seen is the one wished for, and no restart is asked for.
pub(crate) fn is_as_wished(host: &BareMetalHost, status: &BareMetalHostStatus) -> bool {
    let reboot = wish(host);
    !reboot.once && status.powered_on == (host.spec.online && !reboot.held_off)
}
