//! Deviations of real BMCs, one named predicate per observed fault, selected by the BMC's identity.
//!
//! Faults that an error answer reveals (a refused parameter, a missing field) are handled where they occur, for every vendor; this module has
//! those that must be known beforehand.

use crate::message::ErrorBody;

/// The vendor of the BMC and the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quirks {
    maker: Option<Maker>,
    model: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Maker {
    Ami,
    AsrockRack,
    Cisco,
    Dell,
    Hpe,
    Lenovo,
    Supermicro,
}

impl Quirks {
    /// From the service root's `Vendor` and `Product`, and the system's `Manufacturer` and `Model`; any may be empty.
    #[must_use]
    pub fn of(vendor: &str, product: &str, manufacturer: &str, model: &str) -> Self {
        // The system's vendor is more reliable than the BMC's: many boards carry another company's BMC firmware.
        let maker = [manufacturer, vendor, product].into_iter().find_map(|name| {
            let name = name.to_ascii_lowercase();
            let starts = |word: &str| name.starts_with(word);
            Some(match () {
                () if starts("dell") || name.contains("dell remote access") => Maker::Dell,
                () if starts("hpe") || starts("hp ") || name == "hp" || starts("hewlett") => Maker::Hpe,
                () if starts("supermicro") || starts("super micro") || name == "smci" => Maker::Supermicro,
                () if starts("lenovo") => Maker::Lenovo,
                () if starts("cisco") => Maker::Cisco,
                () if starts("asrock") => Maker::AsrockRack,
                () if starts("ami") || starts("american megatrends") => Maker::Ami,
                () => return None,
            })
        });
        Self { maker, model: model.to_owned() }
    }

    fn is(&self, makers: &[Maker]) -> bool {
        self.maker.is_some_and(|maker| makers.contains(&maker))
    }

    /// Dell iDRAC: `Inserted` stays true, and `Image` set, after an eject. Never trust it: always eject before an insertion.
    #[must_use]
    pub fn inserted_is_stale(&self) -> bool {
        self.is(&[Maker::Dell])
    }

    /// Supermicro X11 and X12: `InsertMedia` refuses `Inserted` and `WriteProtected`.
    #[must_use]
    pub fn insert_takes_only_the_image(&self) -> bool {
        self.is(&[Maker::Supermicro])
    }

    /// Supermicro X11 and X12: virtual media are a USB CD, which boots by the target `UsbCd` where it is offered. The exception is the model
    /// ARS-111GL-NHR, which offers it but boots by `Cd`.
    #[must_use]
    pub fn virtual_cd_is_usb_cd(&self) -> bool {
        self.is(&[Maker::Supermicro]) && !self.model.contains("ARS-111GL-NHR")
    }

    /// Dell iDRAC: `IndicatorLED` is `Lit` while nobody looks for the server; `Blinking` is for finding it, and `Off` is not taken (Dell,
    /// iDRAC-Redfish-Scripting, `SetChassisIndicatorLedREDFISH.py`).
    #[must_use]
    pub fn led_rests_lit(&self) -> bool {
        self.is(&[Maker::Dell])
    }

    /// AMI MegaRAC and ASRock Rack: a boot change is refused, or half done, unless target, enabled and mode are in the same PATCH.
    #[must_use]
    pub fn boot_change_needs_all_fields(&self) -> bool {
        self.is(&[Maker::Ami, Maker::AsrockRack])
    }

    /// Dell iDRAC 10: switching on answers 409 with ActionParameterValueConflict for up to a minute after the power went off.
    #[must_use]
    pub fn power_on_conflicts_for_a_while(&self) -> bool {
        self.is(&[Maker::Dell])
    }

    /// Lenovo: after the operating system has set the firmware's boot order, a boot override to the disk restores old entries and
    /// the machine loops: no override to the disk there.
    #[must_use]
    pub fn disk_override_restores_old_entries(&self) -> bool {
        self.is(&[Maker::Lenovo])
    }

    /// Lenovo XClarity Controller: drives named RDOC hold uploads, and drives named Remote hold media of a console. They take no image by address;
    /// drives named EXT do ("XClarity Controller REST API guide", virtual media).
    #[must_use]
    pub fn takes_no_image_by_address(&self, drive: &str) -> bool {
        let name = drive.to_ascii_lowercase();
        self.is(&[Maker::Lenovo]) && (name.starts_with("rdoc") || name.starts_with("remote"))
    }

    /// HPE iLO 6 writes the EUI-64 of an NVMe drive from its last byte on: the makers' numbers (00-25-38 of Samsung, 8C-E3-8E of Kioxia) stand at the end.
    #[must_use]
    pub fn swaps_eui(&self) -> bool {
        self.is(&[Maker::Hpe])
    }

    /// Dell iDRAC: the registry of messages with the prefix IDRAC is in the file resource `Messages`.
    #[must_use]
    pub fn registry_file(&self, registry: &str) -> Option<&'static str> {
        (self.is(&[Maker::Dell]) && registry.eq_ignore_ascii_case("IDRAC")).then_some("Messages")
    }

    /// HPE iLO: while the machine starts, a change answers 400 UnableToModifyDuringSystemPOST; it works some seconds later. The same key means the
    /// same from other vendors. InvalidOperationForSystemState may also mean that the machine already has the state (argument "Power is off"), which
    /// does not pass.
    #[must_use]
    pub fn busy_with_self_test(body: &ErrorBody) -> bool {
        body.has("UnableToModifyDuringSystemPOST")
            || (body.has("InvalidOperationForSystemState") && !Self::is_there_already(body) && !Self::is_off(body))
    }

    /// Dell iDRAC while it starts: 400 with SWC0700 ("iDRAC is not ready"), or 503 with SYS518 and the Base registry's
    /// ServiceTemporarilyUnavailable, to reads and changes. Other vendors use other messages.
    #[must_use]
    pub fn is_not_ready(body: &ErrorBody) -> bool {
        ["SWC0700", "SYS518", "ServiceTemporarilyUnavailable"].iter().any(|key| body.has(key))
            || ["idrac", "bmc", "controller", "service"].iter().any(|who| body.says(&format!("{who} is not ready")))
    }

    /// A change of power is refused because the machine already has the state.
    #[must_use]
    pub fn is_there_already(body: &ErrorBody) -> bool {
        body.says("already")
    }

    /// A restart is refused because the machine is off, whatever power state the BMC reports.
    #[must_use]
    pub fn is_off(body: &ErrorBody) -> bool {
        ["power is off", "is off", "powered off", "off already", "already off"].iter().any(|words| body.says(words))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_maker_wins() {
        assert!(Quirks::of("AMI", "", "Supermicro", "X12").insert_takes_only_the_image());
        assert!(Quirks::of("AMI", "AMI Redfish Server", "", "").boot_change_needs_all_fields());
        assert!(
            Quirks::of("Dell", "Integrated Dell Remote Access Controller", "Dell Inc.", "R750").inserted_is_stale()
        );
        assert!(!Quirks::of("", "", "Supermicro", "ARS-111GL-NHR").virtual_cd_is_usb_cd());
        assert_eq!(Quirks::of("", "", "Contoso", "3500").maker, None);
        let lenovo = Quirks::of("Lenovo", "", "", "");
        assert!(lenovo.takes_no_image_by_address("RDOC1") && lenovo.takes_no_image_by_address("Remote4"));
        assert!(!lenovo.takes_no_image_by_address("EXT1") && !Quirks::default().takes_no_image_by_address("Remote1"));
    }
}
