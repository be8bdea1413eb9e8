//! A machine is booted with the agent image of its architecture, or not at all.

use std::time::Duration;

use boot_media::Architecture;
use inventory::{Cpu, HardwareDetails, Inspected};
use provisioner::{Cause, Provisioner as _};
use provisioner_metamorph::AgentImages;

use crate::kit::{Lab, assets, image, image_for};

/// What a BMC lists whose processors are these.
fn listed(arch: &str) -> Inspected {
    let cpu = Cpu { arch: Some(arch.to_owned()), ..Cpu::default() };
    Inspected::from(HardwareDetails { cpu: Some(cpu), ..HardwareDetails::default() })
}

/// The byte that the image on the medium is made of, which was put in last.
async fn booted_with(lab: &Lab) -> u8 {
    let medium = lab.bmc.inserted().pop().unwrap();
    let bytes = lab.read(&medium).await.unwrap().1;
    *[1, 2].iter().find(|seed| bytes.windows(64).any(|part| part == [**seed; 64])).unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_image_is_that_of_the_machines_architecture() {
    let (x86, arm) = (image(1), image_for(Architecture::Aarch64, 2));
    // What spec, HardwareData and BMC say, in the order of their weight; who says nothing leaves it to the next.
    for (spec, found, bmc, seed) in [
        (Some("aarch64"), None, None, 2),
        (Some("arm64"), Some("x86_64"), Some("x86_64"), 2),
        (Some("amd64"), Some("aarch64"), Some("aarch64"), 1),
        (None, Some("aarch64"), Some("x86_64"), 2),
        (None, None, Some("aarch64"), 2),
        (None, Some(""), None, 1),
        (None, None, None, 1),
    ] {
        let mut lab = Lab::new(&x86);
        lab.serve([&x86, &arm]);
        lab.architecture = spec.map(ToOwned::to_owned);
        lab.found = found.map(ToOwned::to_owned);
        lab.bmc.state().hardware = bmc.map(|arch| Ok(listed(arch)));
        lab.inspect().await.unwrap();
        assert_eq!(booted_with(&lab).await, seed, "{spec:?} {found:?} {bmc:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_boot_goes_on_with_its_image_after_a_restart_whatever_the_host_says_by_then() {
    let (x86, arm) = (image(1), image_for(Architecture::Aarch64, 2));
    let mut lab = Lab::new(&x86);
    lab.serve([&x86, &arm]);
    lab.architecture = Some("aarch64".into());
    lab.inspect().await.unwrap();
    let before = lab.read(&lab.bmc.inserted()[0]).await.unwrap();
    lab.serve([&x86, &arm]);
    lab.architecture = None;
    lab.inspect().await.unwrap();
    assert_eq!(lab.read(&lab.bmc.inserted()[0]).await.unwrap(), before);
    assert_eq!(lab.bmc.resets(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_machine_without_an_image_is_not_touched_and_the_host_says_why() {
    for (spec, found, bmc, says) in [
        (Some("aarch64"), None, None, "spec.architecture is aarch64"),
        (Some("sparc64"), None, None, "spec.architecture is sparc64"),
        (None, Some("arm64"), None, "the host's HardwareData says arm64"),
        (None, None, Some("aarch64"), "the BMC says that its processors are aarch64"),
    ] {
        let mut lab = Lab::new(&image(1));
        lab.architecture = spec.map(ToOwned::to_owned);
        lab.found = found.map(ToOwned::to_owned);
        lab.bmc.state().hardware = bmc.map(|arch| Ok(listed(arch)));
        let failure = lab.inspect().await.unwrap_err();
        assert_eq!(failure.cause, Cause::NotServed, "{failure:?}");
        assert!(failure.message.contains(says) && failure.message.contains("for x86_64 only"), "{failure:?}");
        assert!(failure.advice.unwrap().contains("spec.architecture"));
        assert_eq!((lab.bmc.inserted().len(), lab.bmc.resets()), (0, 0), "{says}");
        // An image for it is all that is missing.
        if spec != Some("sparc64") {
            lab.serve([&image(1), &image_for(Architecture::Aarch64, 2)]);
            lab.inspect().await.unwrap();
            assert_eq!(booted_with(&lab).await, 2);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn where_the_architecture_was_a_guess_the_agents_silence_says_so() {
    let mut lab = Lab::new(&image(1));
    for (told, guessed) in [(None, true), (Some("x86_64".to_owned()), false)] {
        lab.architecture = told;
        let failures = lab.look_for(Duration::from_secs(3600)).await;
        let silent = failures.iter().find(|failure| failure.cause == Cause::AgentSilent).unwrap();
        assert_eq!(silent.message.contains("if it is not x86_64, set spec.architecture"), guessed, "{silent:?}");
        lab = Lab::new(&image(1));
    }
}

#[test]
fn what_is_served_is_what_there_are_images_for() {
    let (x86, arm) = (image(1), image_for(Architecture::Aarch64, 2));
    let mut lab = Lab::new(&x86);
    let served = |lab: &Lab| lab.server.capabilities(&Default::default()).architectures;
    assert_eq!(served(&lab), ["x86_64"]);
    lab.serve([&arm, &x86]);
    assert_eq!(served(&lab), ["aarch64", "x86_64"]);
    let twice = AgentImages::from(assets(&x86)).with(assets(&image(3)));
    assert_eq!(twice.unwrap_err(), Architecture::X86_64);
}
