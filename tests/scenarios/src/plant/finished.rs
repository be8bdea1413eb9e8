//! What the agent's work leaves on the machine.

use agent_protocol::{Action, DiskMark, ErrorCode, ImageProxy, Outcome, WriteSummary};
use inventory::{Devices, ErasedDisk, HardwareDetails, Nic, Storage};

use super::Standing;

/// Work is done: what it leaves, and what is said of it.
pub(super) fn finished(machine: &mut Standing, disks: &[Storage], nics: &[Nic], action: &Action) -> Outcome {
    let foreign = |mark: &DiskMark| {
        let owner = machine.disk.as_ref().map(|(_, owner)| owner);
        // Who has put the system there may have left no mark.
        owner.is_some_and(|owner| !owner.is_empty() && *owner != mark.owner && mark.consent.as_ref() != Some(owner))
    };
    let failed = |code, message: &str, untouched| {
        Outcome::Failed(agent_protocol::CommandError { code, message: message.to_owned(), untouched })
    };
    let refused = || failed(ErrorCode::ForeignOwner, "the disk is another owner's", true);
    match action {
        Action::Inspect => {
            let (storage, nics) = (disks.to_vec(), nics.to_vec());
            let hardware = HardwareDetails { storage, nics, ..HardwareDetails::default() };
            Outcome::Inspected {
                hardware: Box::new(hardware),
                marks: vec![],
                uefi: true,
                secure_boot: false,
                links: Vec::new(),
                devices: Box::new(Devices { pci: Some(Vec::new()), ..Devices::default() }),
            }
        }
        Action::WriteImage(write) if foreign(&write.mark) => refused(),
        Action::WriteImage(_) if machine.bad_writes > 0 => {
            machine.bad_writes -= 1;
            failed(ErrorCode::ImageUnreachable, "the image cannot be read: connection reset", false)
        }
        Action::WriteImage(_) if machine.missing_images > 0 => {
            machine.missing_images -= 1;
            failed(ErrorCode::ImageNotFound, "the image's server answered 404", true)
        }
        Action::WriteImage(write) => {
            let from = write.image.sources.first().map_or(&write.image.url, |source| &source.url);
            machine.disk = Some((from.clone(), write.mark.owner.clone()));
            let signed_in = |proxy: &ImageProxy| if proxy.authorization.is_some() { ", signed in" } else { "" };
            let by = |proxy: &ImageProxy| format!("{from} by way of the proxy {}{}", proxy.url, signed_in(proxy));
            let source = write.image.proxy.as_ref().map(by).unwrap_or_default();
            let digest = "sha256:12".to_owned();
            Outcome::Written(WriteSummary { disk: "/dev/vda".into(), source, digest, ..WriteSummary::default() })
        }
        Action::WipeDisks(wipe) if foreign(&wipe.mark) => refused(),
        Action::WipeDisks(wipe)
            if !inventory::absent(wipe.expected.as_deref().unwrap_or_default(), disks, &wipe.named).is_empty() =>
        {
            failed(ErrorCode::NoDisk, "a disk that the inspection found is absent", true)
        }
        Action::WipeDisks(_) => {
            machine.disk = None;
            Outcome::Wiped { disks: vec!["/dev/vda".into()], left: vec![] }
        }
        Action::EraseDisks(erase) if foreign(&erase.mark) => refused(),
        Action::EraseDisks(erase) => {
            machine.disk = None;
            let erased = |disk| ErasedDisk { result: erase.method.aim(), ..ErasedDisk::of(disk) };
            Outcome::Erased { disks: disks.iter().map(erased).collect() }
        }
        Action::ListSteps | Action::RunStep(_) => refused(),
        Action::Leave { .. } => Outcome::Leaving,
    }
}
