//! How far the medium of a host's DataImage is, as its status says.

use api::metal3::DataImageStatus;

use crate::power_wish::is_about_to_boot;
use crate::view::View;

/// Beginnings of errors that hold up no reboot: the machine was asked, and nothing was attempted.
pub(crate) const CANNOT: &str = "It cannot be attached at the next reboot: ";
pub(crate) const UNSEEN: &str = "Whether it is still attached cannot be seen: ";
pub(crate) const LOST: &str = "It is not attached any more: ";
/// Beginning of a message that is no failure.
pub(crate) const WAITS: &str = "It waits for the next reboot of the host (annotation reboot.metal3.io): ";
/// What a machine that is never off says of it.
pub(crate) const KEPT_ON: &str = "Media are changed while the machine is off, which spec.disablePowerOff of the host forbids — set that to false, and reboot the host (annotation reboot.metal3.io)";
/// Address of the medium that is in; empty if none is.
pub(crate) fn attached(status: &DataImageStatus) -> &str {
    status.attached_image.as_ref().map(|image| image.url.as_str()).unwrap_or_default()
}

/// Whether nothing was attempted that the machine would have to wait for.
pub(crate) fn holds_up_nothing(message: &str) -> bool {
    [CANNOT, UNSEEN, LOST, WAITS, KEPT_ON].iter().any(|beginning| message.starts_with(beginning))
}

/// Why the machine stays off, if its data image keeps it off, a sentence.
pub(crate) fn holds_off(view: &View<'_>) -> Option<String> {
    let image = view.children.data_image.filter(|_| is_about_to_boot(view) && view.settings.served.data_images)?;
    let status = image.status.clone().unwrap_or_default();
    let error = status.error.as_ref().filter(|error| error.count > 0 && !holds_up_nothing(&error.message))?;
    let wished = if image.metadata.deletion_timestamp.is_some() { "" } else { image.spec.url.as_str() };
    (wished != attached(&status)).then(|| {
        format!(
            "The machine stays off until its data image is as wished: {} — correct spec.url of the DataImage, or delete it",
            error.message
        )
    })
}
