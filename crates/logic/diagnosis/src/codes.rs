//! The codes of causes, in one table: what each means, who puts it right, and what to do. Names are stable: they stand in objects and in alerts.

use serde::{Deserialize, Serialize};

/// Who can put a cause right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Fixer {
    /// Whoever writes the host's objects.
    Configuration,
    /// Whoever runs the network.
    Network,
    /// Whoever makes and serves the image.
    Image,
    /// Whoever looks after the BMC: its settings, its firmware, a reset of it.
    #[serde(rename = "BMC")]
    Bmc,
    /// Whoever replaces parts.
    Hardware,
    /// Whoever runs this program.
    Metamorph,
}

impl Fixer {
    /// Its name, as objects show it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Configuration => "Configuration",
            Self::Network => "Network",
            Self::Image => "Image",
            Self::Bmc => "BMC",
            Self::Hardware => "Hardware",
            Self::Metamorph => "Metamorph",
        }
    }
}

/// The link of the chain from the host's objects to the running system that a cause is about, in order: of two causes of the same certainty the
/// earlier link goes first, because what follows cannot work without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// The host's objects.
    Configuration,
    /// This program.
    Own,
    /// The way to the BMC.
    Access,
    /// Power.
    Power,
    /// Heat and fans.
    Thermal,
    /// Memory.
    Memory,
    /// Processors.
    Processor,
    /// Cards.
    Card,
    /// Virtual drives and the medium.
    Media,
    /// The way from reset to the operating system.
    Boot,
    /// The agent's way back.
    Agent,
    /// The image.
    Image,
    /// Disks.
    Disk,
    /// Firmware and settings.
    Firmware,
    /// The BMC itself.
    Bmc,
}

macro_rules! codes {
    ($($code:ident, $group:ident, $fixer:ident, $meaning:literal, $advice:literal;)*) => {
        /// What is wrong, by class.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Code { $(#[doc = $meaning] $code,)* }

        impl Code {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$code,)*];

            /// Its name.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$code => stringify!($code),)* }
            }

            /// Its link of the chain.
            #[must_use]
            pub const fn group(self) -> Group {
                match self { $(Self::$code => Group::$group,)* }
            }

            /// Who puts it right.
            #[must_use]
            pub const fn fixer(self) -> Fixer {
                match self { $(Self::$code => Fixer::$fixer,)* }
            }

            /// What it means, a sentence.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$code => $meaning,)* }
            }

            /// What to do; `{part}` stands for the part.
            #[must_use]
            pub const fn advice(self) -> &'static str {
                match self { $(Self::$code => $advice,)* }
            }
        }
    };
}

codes! {
    // The host's objects.
    SecretInvalid, Configuration, Configuration, "The Secret with the BMC's credentials is missing or incomplete", "create the Secret that spec.bmc.credentialsName names, with username and password";
    BmcAddressInvalid, Configuration, Configuration, "The BMC's address cannot be read, or its scheme is not served", "correct spec.bmc.address";
    AnotherMachine, Configuration, Configuration, "The machine at this address is not the one that this host is known to be", "correct spec.bmc.address or the cables, or accept the machine by the annotation metamorph.metal3.io/accept-machine";
    MachineNotRecognized, Configuration, Bmc, "The BMC does not show which machine it belongs to", "have the BMC show the machine's UUID, serial number or MAC addresses";
    MachineInUse, Configuration, Configuration, "The machine runs something that this host does not ask for", "let the host ask for what the machine runs, or deprovision it where it was provisioned";
    HintsFitNone, Configuration, Configuration, "No disk fits the root device hints or the image", "compare spec.rootDeviceHints with the disks of the host's HardwareData";
    DiskOfAnotherOwner, Configuration, Configuration, "A disk carries the mark of another owner", "name that owner in the annotation metamorph.metal3.io/overwrite-owner if its data may go";
    RequestInvalid, Configuration, Configuration, "What the host asks for is wrong in itself", "correct what the message names";
    NotServed, Configuration, Configuration, "The host's provisioner does not serve what is asked for", "take the wish back, or choose another provisioner";
    // This program.
    RecordUnavailable, Own, Metamorph, "The host's record cannot be written or read", "look at the Kubernetes API and at the rights of this server";
    ProvisionerUnavailable, Own, Metamorph, "What the provisioner works with does not answer or has failed", "look at the provisioner's own server and its log";
    BootKeyRemoved, Own, Metamorph, "The key that the agent's boot was derived from has been removed", "nothing: a new boot is begun";
    OwnFault, Own, Metamorph, "This program has a fault", "report the message with the server's log";
    // The way to the BMC.
    BmcNameUnknown, Access, Configuration, "The name in the BMC's address has no address", "correct the name in spec.bmc.address, or its entry in DNS";
    BmcConnectionRefused, Access, Configuration, "The port at the BMC's address is closed", "check address and port in spec.bmc.address, and that the BMC's Redfish service is switched on";
    BmcNoRoute, Access, Network, "There is no way from this server to the BMC's address", "check routes and firewalls between this server and the BMC's network";
    BmcTimeout, Access, Network, "Nothing answers at the BMC's address in time", "check the address, the BMC's cable, and firewalls between; a BMC that answers a ping and nothing more needs a reset";
    BmcConnectionReset, Access, Bmc, "The BMC breaks connections off", "wait for the BMC to finish starting; if it goes on, reset the BMC";
    BmcAuthorityUnknown, Access, Configuration, "Nobody whom this server trusts has signed the BMC's certificate", "give the server the authority's certificate, or give the BMC a certificate of one it knows";
    BmcCertificateExpired, Access, Bmc, "The BMC's certificate has expired", "give the BMC a new certificate";
    BmcCertificateNotYetValid, Access, Bmc, "The BMC's certificate is not valid yet", "set the clocks of BMC and server; then renew the certificate if it was made with a wrong one";
    BmcCertificateWrongName, Access, Configuration, "The BMC's certificate is for another name than its address", "use a name of the certificate in spec.bmc.address, or give the BMC a certificate for this name";
    BmcCertificateChanged, Access, Configuration, "The BMC shows another certificate than the one it is recognised by", "make sure that it is the same BMC; then accept the new certificate";
    BmcTlsFailed, Access, Bmc, "The BMC and this server do not agree on TLS", "update the BMC's firmware: it may know no current version of TLS";
    BmcNotRedfish, Access, Configuration, "What answers at the BMC's address is no Redfish service", "correct scheme, port and path of spec.bmc.address";
    BmcStarting, Access, Bmc, "The BMC puts requests off: it starts, or is overloaded", "wait some minutes; if it goes on, reset the BMC";
    BmcUnreachable, Access, Network, "The BMC cannot be reached", "check address, cable and firewalls";
    BmcRefusedCall, Access, Bmc, "The BMC answers a call with an error", "read the BMC's answer; update its firmware if it is about something that it should have";
    CredentialsWrong, Access, Configuration, "The BMC refuses user or password", "correct the Secret that spec.bmc.credentialsName names";
    AccountLocked, Access, Bmc, "The BMC has locked the account, as after several wrong passwords", "correct the Secret if its password is wrong, then wait for the lock to end or unlock the account on the BMC";
    AccountDisabled, Access, Bmc, "The account is switched off on the BMC", "enable the account on the BMC";
    PrivilegeMissing, Access, Bmc, "The account may not do what is needed", "give the account the role Administrator, or at least ConfigureComponents and Login";
    PasswordChangeRequired, Access, Bmc, "The BMC wants the account's password changed first", "change the password on the BMC, and then in the Secret";
    SessionLimit, Access, Bmc, "The BMC has no session left", "end sessions of others on the BMC, or reset it";
    WrongDriver, Access, Configuration, "The BMC has no computer system at the address, or speaks too old a version", "correct the path of spec.bmc.address, or choose another scheme";
    SystemNotFound, Access, Configuration, "The BMC has another computer system than the address names", "correct the path of spec.bmc.address, or leave it out where the BMC has one system";
    SystemNotNamed, Access, Configuration, "The BMC is in charge of several systems, and the address names none of them", "add the system's path to spec.bmc.address, as /redfish/v1/Systems/ID";
    NoVirtualMedia, Access, Bmc, "The BMC has no virtual media that take a URL", "update the BMC's firmware, or choose a provisioner that boots from the network";
    LicenseMissing, Access, Bmc, "The BMC lacks the licence for what is needed, or it has expired", "install a licence that has virtual media";
    // Power.
    PowerInputLost, Power, Hardware, "A power supply has no input", "check the cable and the circuit of {part}";
    PowerSupplyFailed, Power, Hardware, "A power supply has failed", "replace {part}";
    PowerRedundancyLost, Power, Hardware, "The power supplies are not redundant any more", "look for the supply that has failed or is not plugged in";
    PowerCapped, Power, Bmc, "The limit of power keeps the machine from what it needs", "raise the limit of power on the BMC, or in its rack manager";
    PowerOnBlocked, Power, Bmc, "The BMC does not let the machine come on", "read what it says it waits for, and grant it";
    ChassisOpen, Power, Hardware, "The chassis is open", "close it, and clear the BMC's record of it";
    ResetNotAllowed, Power, Bmc, "The BMC does not take the kind of reset that is needed", "update the BMC's firmware, or switch the machine by hand once";
    PowerStuck, Power, Bmc, "The power does not follow the BMC's orders", "reset the BMC; if that does not help, take the machine from the mains for a minute";
    VoltageFailed, Power, Hardware, "A voltage is outside its bounds", "have the board or the supply of {part} replaced";
    // Heat and fans.
    FanFailed, Thermal, Hardware, "A fan has failed", "replace {part}";
    OverTemperature, Thermal, Hardware, "It is too hot", "check fans, air and the room at {part}";
    // Memory and processors.
    MemoryMissing, Memory, Hardware, "A memory module that was there is not seen any more", "reseat {part}, and replace it if it stays away";
    MemoryFailed, Memory, Hardware, "A memory module has failed", "replace {part}";
    MemoryUncorrectable, Memory, Hardware, "A memory module has errors that cannot be corrected", "replace {part}";
    MemoryCorrectable, Memory, Hardware, "A memory module has errors that were corrected", "watch {part}; reseat or replace it if their number grows";
    ProcessorMissing, Processor, Hardware, "A processor that was there is not seen any more", "reseat {part}, and replace it if it stays away";
    ProcessorFailed, Processor, Hardware, "A processor has failed or reports errors", "replace {part} or the board";
    ProcessorThrottled, Processor, Hardware, "A processor is slowed down", "check cooling and limits of power of {part}";
    // Cards.
    NetworkPortMissing, Card, Hardware, "A network port that was there is not seen any more", "reseat the card of {part}, and replace it if it stays away";
    PcieDeviceMissing, Card, Hardware, "A card that was there is not seen any more", "reseat {part}, and replace it if it stays away";
    PcieDeviceFailed, Card, Hardware, "A card has failed", "reseat {part}, and replace it if it fails again";
    PcieLinkDegraded, Card, Hardware, "A card has fewer lanes or less speed than it could have", "reseat {part}";
    HardwareFailed, Card, Hardware, "The machine says that a part has failed, and not which", "see the machine's console and its BMC's pages";
    // Virtual drives and the medium.
    MediaSlotInUse, Media, Bmc, "The virtual drive holds a medium of somebody else", "eject it on the BMC, or close the console that it comes from";
    MediumNotInserted, Media, Bmc, "The medium is not in the virtual drive any more", "look whether somebody ejects it; reset the BMC if it drops media by itself";
    MediaCertificateRefused, Media, Configuration, "The BMC does not trust the certificate of this server's media", "give the BMC the authority's certificate, or serve media by HTTP";
    MediaUnreachable, Media, Network, "The BMC cannot reach this server's media", "check that the BMC's network can reach the media address and its port";
    MediumNeverRead, Media, Network, "Nobody has read the medium", "check that the BMC's network can reach the media address, and that the machine tries to boot from the virtual drive";
    MediumStalled, Media, Network, "The reading of the medium has come to a stand", "check the network between BMC and this server, and its rate";
    // The way from reset to the operating system.
    StuckInMemoryInit, Boot, Hardware, "The machine stays in the initialization of its memory", "see the console; reseat memory, and try with half of it";
    StuckInPciInit, Boot, Hardware, "The machine stays in the enumeration of its cards", "see the console; remove cards that were added last";
    StuckInProcessorInit, Boot, Hardware, "The machine stays in the initialization of its processors", "see the console; reset the firmware's settings";
    StuckInPost, Boot, Hardware, "The machine stays in its self-test", "see the console for what it waits for";
    StuckInSetup, Boot, Configuration, "The machine stands in the firmware's setup", "leave the setup at the console";
    StuckInOsStart, Boot, Image, "The firmware has started a boot loader, and no system runs", "see the console; check that the boot loader fits the architecture and the boot mode";
    BootOverrideIgnored, Boot, Bmc, "The firmware has booted something else than was asked for", "update BIOS and BMC, and check that the boot mode is the host's";
    NoBootDevice, Boot, Configuration, "The firmware finds nothing to boot", "check boot order and boot mode, and that the image has a boot loader for it";
    SecureBootRefused, Boot, Image, "Secure Boot refuses the boot loader", "sign the boot loader with a key that the firmware knows, or set bootMode to UEFI";
    // The agent's way back.
    LinkDown, Agent, Network, "A network port has no link", "check cable, module and switch port of {part}";
    AgentNoAddress, Agent, Network, "The agent's ports have no address", "check DHCP and VLAN of the port, or give the host network data";
    ServerNameUnknownOnHost, Agent, Network, "The agent cannot resolve this server's name", "check the DNS servers that the host is given";
    ServerUnreachableFromHost, Agent, Network, "The agent cannot reach this server", "check routes and firewalls from the host's network to this server's agent address";
    ServerCertificateRefusedByHost, Agent, Configuration, "The agent does not trust this server's certificate", "check the machine's clock, and what ends TLS between";
    AgentSilent, Agent, Network, "The agent does not call back, and nothing says why", "see the machine's console; check the network of its ports";
    // The image.
    ImageNotFound, Image, Image, "The image is not where the host says", "correct spec.image.url or its checksum's";
    ImageDenied, Image, Image, "The image's server does not let it be read", "correct the credentials for the image's server or registry";
    ImageDigestMismatch, Image, Image, "The image is not what its checksum says", "correct spec.image.checksum, or replace the image";
    ImageInvalid, Image, Image, "The image is not what was declared", "check format, size and checksum of the image";
    ImageUnavailable, Image, Image, "The image's server does not answer or has a fault", "look at the image's server";
    ImageNameUnknown, Image, Configuration, "The name of the image's server has no address", "correct spec.image.url, or DNS";
    ImageTlsRefused, Image, Configuration, "The certificate of the image's server is not trusted", "give this server the authority's certificate";
    ImageUnreachableFromHost, Image, Network, "The agent cannot reach the image's server", "check routes and firewalls from the host's network to the image's server";
    ImageTooLarge, Image, Configuration, "The image does not fit on the disk", "choose a larger disk by spec.rootDeviceHints, or a smaller image";
    // Disks.
    DriveFailed, Disk, Hardware, "A disk has failed", "replace {part}";
    DriveFailurePredicted, Disk, Hardware, "A disk says that it will fail", "replace {part} soon";
    DriveWornOut, Disk, Hardware, "A disk has used up its life", "replace {part}";
    DriveMediaErrors, Disk, Hardware, "A disk has sectors that cannot be read or written", "replace {part}";
    DriveMissing, Disk, Hardware, "A disk that was there is not seen any more", "reseat {part}, and replace it if it stays away";
    DriveForeign, Disk, Configuration, "A disk belongs to an array of another controller", "import or clear the foreign configuration of {part}";
    DriveNotErased, Disk, Hardware, "A disk could not be erased as asked for", "see the HostOperation for the disk; replace it, or ask for another method";
    VolumeDegraded, Disk, Hardware, "A logical disk has lost a member, or does not work", "replace the failed disk of {part}, and let it be rebuilt";
    StorageControllerFailed, Disk, Hardware, "A storage controller has failed", "replace {part}, or its cables and battery";
    // Firmware and settings.
    FirmwareUpdateFailed, Firmware, Bmc, "An update of firmware has failed", "read the task's messages: wrong model, missing dependency or a damaged file";
    BiosSettingsRefused, Firmware, Configuration, "The firmware has refused settings", "compare the host's HostFirmwareSettings with its FirmwareSchema";
    RaidTaskFailed, Firmware, Configuration, "The controller has not made the logical disks", "compare spec.raid with what the controller and its disks can do";
    TaskStuck, Firmware, Bmc, "A task of the BMC does not go on", "clear the BMC's queue of jobs, or reset the BMC";
    // The BMC itself.
    BmcClockWrong, Bmc, Bmc, "The BMC's clock is wrong", "set the BMC's clock, best by NTP";
    BmcLogFull, Bmc, Bmc, "A log of the BMC is full", "save and clear the log";
    BmcUnhealthy, Bmc, Bmc, "The BMC says that it is not well", "reset the BMC; have the board replaced if it stays so";
}

/// The table as Markdown.
#[must_use]
pub fn table() -> String {
    let mut page = String::from("| code | what it means | who fixes it | what to do |\n|---|---|---|---|\n");
    for code in Code::ALL {
        let advice = code.advice().replace("{part}", "the part");
        page.push_str(&format!(
            "| `{}` | {} | {} | {advice} |\n",
            code.as_str(),
            code.meaning(),
            code.fixer().as_str()
        ));
    }
    page
}
