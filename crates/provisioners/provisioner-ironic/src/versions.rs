//! Versions of Ironic's API ("microversions"), of which one is chosen for each Ironic.

/// The oldest that is enough, as for baremetal-operator 0.14: 1.87 brought servicing, 1.86 firmware components.
pub const NEEDED: u32 = 89;
/// `GET …/vmedia`.
pub const VIRTUAL_MEDIA: u32 = 93;
/// `disable_power_off` of a node.
pub const POWER_OFF: u32 = 95;
/// `health` of a node.
pub const HEALTH: u32 = 109;
/// A deployment that waits for its agent can be aborted.
pub const ABORT: u32 = 110;

/// Versions that are asked for, the newest first: those that bring something that is used.
const KNOWN: [u32; 5] = [ABORT, HEALTH, POWER_OFF, VIRTUAL_MEDIA, NEEDED];

/// The version to ask an Ironic for whose newest is `maximum`, such as `1.115`; `None` if it has none that is enough.
pub fn choose(maximum: &str) -> Option<u32> {
    let (major, minor) = maximum.trim().split_once('.')?;
    let (major, minor) = (major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?);
    // A later major version would be another API.
    if major != 1 {
        return None;
    }
    KNOWN.into_iter().find(|known| *known <= minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_that_both_know_is_chosen() {
        let table = [
            ("1.115", Some(110)),
            ("1.110", Some(110)),
            ("1.109", Some(109)),
            ("1.108", Some(95)),
            ("1.94", Some(93)),
            ("1.92", Some(89)),
            ("1.89", Some(89)),
            ("1.88", None),
            ("1.1", None),
            ("2.120", None),
            ("", None),
            ("1", None),
            ("1.x", None),
            ("-1.110", None),
        ];
        for (maximum, chosen) in table {
            assert_eq!(choose(maximum), chosen, "{maximum}");
        }
    }
}
