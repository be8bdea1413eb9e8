//! What provisioners can do, as a table for people: a row a capability, with what it means, and a column a provisioner.
//!
//! A capability that is new has to be given a row here, or this does not compile; its name is the one that programs declare it by.

use api::metal3::BootFormat;
use host_lifecycle::Served;

/// A column of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Whose it is.
    pub title: String,
    /// What that can do; `None` if that is for it to declare.
    pub served: Option<Served>,
}

/// Names and meanings, in the order of [`values`].
const MEANINGS: [(&str, &str); 28] = [
    ("liveIso", "boots live ISOs (`spec.image.format: live-iso`)"),
    ("liveIsoConfig", "gives a live ISO user data, network data and metadata, as a config drive has them"),
    ("hardwareRaid", "makes RAID volumes by a controller (`spec.raid.hardwareRAIDVolumes`)"),
    ("softwareRaid", "makes RAID volumes by software (`spec.raid.softwareRAIDVolumes`)"),
    ("firmwareSettings", "reads and sets settings of the firmware (HostFirmwareSettings)"),
    ("firmwareComponents", "reads versions of the firmware (HostFirmwareComponents)"),
    ("firmwareUpdates", "updates the firmware (HostFirmwareComponents)"),
    ("service", "changes firmware of a provisioned host that is rebooted, where its HostUpdatePolicy allows it"),
    ("fastInspection", "inspects without a boot of the machine (`spec.inspectionMode: fast`)"),
    ("erase", "erases disks on request (HostOperation of the type Erase)"),
    ("steps", "lists and runs steps of its agent's hardware managers (HostOperation of the type Steps)"),
    ("customDeploy", "has deploy methods of its own (`spec.customDeploy`)"),
    ("dataImages", "puts media in beside the running system (DataImage)"),
    ("events", "has BMCs send their events (BMCEventSubscription)"),
    ("health", "reports the machine's health (condition Healthy)"),
    ("diagnose", "finds out why a machine does not do what it should (HostDiagnosis)"),
    (
        "testMedium",
        "has a BMC read a tiny medium, to see whether it reaches the server (HostOperation of the type Diagnose, `spec.diagnose.testMedium`)",
    ),
    ("logs", "reads what BMC and agent have written down (HostOperation of the type CollectLogs)"),
    ("locate", "switches the light by which a server is found at its rack (HostOperation of the type Locate)"),
    ("bootImages", "works with boot images that others build (PreprovisioningImage); without, it brings its own"),
    ("legacyBoot", "boots by BIOS (`spec.bootMode: legacy`)"),
    ("secureBoot", "boots by UEFI with Secure Boot, and switches it (`spec.bootMode: UEFISecureBoot`)"),
    ("needsBootMac", "needs `spec.bootMACAddress`"),
    ("imageFormats", "forms of an image that it writes to a disk (`spec.image.format`)"),
    ("imageSchemes", "schemes of the URLs that it reads images from (`spec.image.url`)"),
    ("provesIdentity", "compares each machine with what it has shown before, and refuses another"),
    ("marksDisks", "marks the disks that it has written, and refuses those with another's mark"),
    ("architectures", "architectures of the machines that it boots (`spec.architecture`)"),
];

fn yes(is: bool) -> String {
    if is { "yes" } else { "–" }.to_owned()
}

/// Those of a list, or this word for an empty one.
fn list<'a>(all: impl IntoIterator<Item = &'a str>, none: &str) -> String {
    let all: Vec<String> = all.into_iter().map(|one| format!("`{one}`")).collect();
    if all.is_empty() { none.to_owned() } else { all.join(", ") }
}

/// What a cell of each row says.
fn values(served: &Served) -> [String; MEANINGS.len()] {
    // All are named: one that is new is missed by the compiler.
    let Served {
        live_iso,
        live_iso_config,
        hardware_raid,
        software_raid,
        firmware_settings,
        firmware_components,
        firmware_updates,
        service,
        fast_inspection,
        erase,
        steps,
        custom_deploy,
        data_images,
        events,
        health,
        diagnose,
        test_medium,
        logs,
        locate,
        boot_images,
        legacy_boot,
        secure_boot,
        needs_boot_mac,
        image_formats,
        image_schemes,
        proves_identity,
        marks_disks,
        architectures,
    } = served;
    let boot_images = boot_images.iter().map(|format| match format {
        BootFormat::Iso => "iso",
        BootFormat::Initrd => "initrd",
    });
    [
        yes(*live_iso),
        yes(*live_iso_config),
        yes(*hardware_raid),
        yes(*software_raid),
        yes(*firmware_settings),
        yes(*firmware_components || *firmware_updates),
        yes(*firmware_updates),
        yes(*service),
        yes(*fast_inspection),
        yes(*erase),
        yes(*steps),
        yes(*custom_deploy),
        yes(*data_images),
        yes(*events),
        yes(*health),
        yes(*diagnose),
        yes(*test_medium),
        yes(*logs),
        yes(*locate),
        list(boot_images, "–"),
        yes(*legacy_boot),
        yes(*secure_boot),
        yes(*needs_boot_mac),
        list(image_formats.iter().map(|format| format.as_str()), "any"),
        list(image_schemes.iter().map(String::as_str), "any"),
        yes(*proves_identity),
        yes(*marks_disks),
        list(architectures.iter().map(String::as_str), "any"),
    ]
}

/// The table as Markdown.
#[must_use]
pub fn capability_table(columns: &[Column]) -> String {
    let mut page = String::from("| capability | what it means |");
    for column in columns {
        page.push_str(&format!(" {} |", column.title));
    }
    page.push_str("\n|---|---|");
    page.push_str(&"---|".repeat(columns.len()));
    page.push('\n');
    let cells: Vec<_> = columns.iter().map(|column| column.served.as_ref().map(values)).collect();
    for (row, (name, meaning)) in MEANINGS.iter().enumerate() {
        page.push_str(&format!("| `{name}` | {meaning} |"));
        for cells in &cells {
            let cell = cells.as_ref().and_then(|cells| cells.get(row)).map_or("as declared", String::as_str);
            page.push_str(&format!(" {cell} |"));
        }
        page.push('\n');
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_is_of_the_capability_that_programs_declare_by_its_name() {
        let (names, none) = (serde_json::to_value(Served::default()).unwrap(), values(&Served::default()));
        let names = names.as_object().unwrap();
        assert_eq!(names.len(), MEANINGS.len());
        for (row, (name, _)) in MEANINGS.iter().enumerate() {
            // What alone is declared so shows in its own row; updates imply that versions are read.
            let one = match &names[*name] {
                serde_json::Value::Bool(_) => serde_json::json!({ *name: true }),
                _ => match *name {
                    "bootImages" => serde_json::json!({ *name: ["iso"] }),
                    "imageFormats" => serde_json::json!({ *name: ["raw"] }),
                    _ => serde_json::json!({ *name: ["x"] }),
                },
            };
            let found = values(&serde_json::from_value(one).unwrap());
            let differ: Vec<usize> = (0..none.len()).filter(|at| found[*at] != none[*at]).collect();
            let wanted = if *name == "firmwareUpdates" { vec![row - 1, row] } else { vec![row] };
            assert_eq!(differ, wanted, "{name}");
        }
    }

    #[test]
    fn a_column_says_what_its_provisioner_can_do_or_that_it_declares_that_itself() {
        let served = Served { live_iso: true, image_schemes: vec!["http".into(), "oci".into()], ..Served::default() };
        let title = |text: &str| text.to_owned();
        let page = capability_table(&[
            Column { title: title("one"), served: Some(served) },
            Column { title: title("other"), served: None },
        ]);
        let line = |start: &str| page.lines().find(|line| line.starts_with(start)).unwrap().to_owned();
        assert_eq!(line("| capability"), "| capability | what it means | one | other |");
        assert!(line("| `liveIso`").ends_with("| yes | as declared |"));
        assert!(line("| `imageSchemes`").ends_with("| `http`, `oci` | as declared |"));
        assert!(line("| `logs`").ends_with("| – | as declared |"));
        assert!(page.lines().all(|line| line.matches(" | ").count() == 3 || line.starts_with("|---")));
    }
}
