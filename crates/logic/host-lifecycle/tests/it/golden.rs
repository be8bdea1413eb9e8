//! Whole lives as text: what is decided, what is answered, what is written.
//!
//! `GOLDEN=write cargo test -p host-lifecycle --test it golden` writes the transcripts anew; read the difference before keeping it.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use crate::kit::{Secret, World, failed, image};
use api::metal3::annotation;
use host_lifecycle::{Action, Change, Next, Outcome, Step};

/// A world that writes down what happens in it.
struct Scene {
    world: World,
    text: String,
}

impl Scene {
    fn new(title: &str) -> Self {
        Self { world: World::new(), text: format!("# {title}\n") }
    }

    fn says(&mut self, what: &str) {
        let _ = writeln!(self.text, "\n* {what}");
    }

    /// Steps at this instant; `answer` may answer a call in the machine's stead.
    fn play(&mut self, mut answer: impl FnMut(&Action) -> Option<Outcome>) {
        for _ in 0..40 {
            let change = match self.world.decide() {
                Step::Change(change) => *change,
                Step::Act(action) => {
                    let outcome = answer(&action).unwrap_or_else(|| self.world.sound(&action));
                    let _ = writeln!(self.text, "  call {action:?} -> {}", brief(&outcome));
                    self.world.conclude(&action, outcome)
                }
            };
            self.note(&change);
            self.world.apply(change);
            if self.world.next != Next::Now {
                return;
            }
        }
        panic!("does not come to rest:\n{}", self.text);
    }

    fn sound(&mut self) {
        self.play(|_| None);
    }

    fn pass(&mut self, seconds: u64) {
        self.world.pass(Duration::from_secs(seconds));
        self.says(&format!("{seconds} s pass"));
    }

    fn note(&mut self, change: &Change) {
        let old = self.world.host.status.clone();
        if change.status_differs(old.as_ref()) {
            let s = &change.status;
            let state = s.provisioning.state.as_str();
            let _ = write!(self.text, "  status \"{state}\" {:?} on={}", s.operational_status, s.powered_on);
            if let Some(kind) = s.error_type {
                let _ = write!(self.text, ", {} ({}): {}", kind.as_str(), s.error_count, s.error_message);
            }
            if s.provisioning_fail_count > 0 {
                let _ = write!(self.text, ", failed attempts {}", s.provisioning_fail_count);
            }
            self.text.push('\n');
        }
        for event in &change.events {
            let kind = if event.warning { "warning" } else { "event" };
            let _ = writeln!(self.text, "  {kind} {}: {}", event.reason, event.message);
        }
        if change.add_finalizer {
            self.text.push_str("  finalizer added\n");
        }
        if let Some(architecture) = &change.set_architecture {
            let _ = writeln!(self.text, "  spec.architecture = {architecture}");
        }
        if change.hardware_data.is_some() {
            self.text.push_str("  HardwareData written\n");
        }
        for key in &change.remove_annotations {
            let _ = writeln!(self.text, "  annotation {key} removed");
        }
        if change.next != Next::Now {
            let _ = writeln!(self.text, "  next: {:?}", change.next);
        }
    }

    /// Compares with the file, or writes it.
    fn close(mut self, name: &str) {
        let _ = writeln!(self.text, "\nstatus writes: {}", self.world.status_writes);
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
        if std::env::var_os("GOLDEN").is_some() {
            std::fs::write(&path, &self.text).unwrap();
            return;
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(self.text, kept, "{} differs; see the head of golden.rs", path.display());
    }
}

fn brief(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Inspected(_) => "Inspected".to_owned(),
        other => format!("{other:?}"),
    }
}

#[test]
fn whole_life() {
    let mut scene = Scene::new("From nothing to a provisioned node, and back to nothing");
    scene.says("a person creates the host with an image");
    scene.world.host.spec.image = Some(image("https://images.example/debian.qcow2"));
    let mut looks = 0;
    scene.play(|action| {
        looks += 1;
        let slow = matches!(action, Action::Inspect { .. }) && looks == 2;
        slow.then_some(Outcome::Working { look_again: Duration::from_secs(5) })
    });
    scene.pass(5);
    scene.sound();
    scene.says("a person asks for one reboot");
    scene.world.annotate(annotation::REBOOT, r#"{"mode":"hard"}"#);
    scene.sound();
    scene.pass(60);
    scene.sound();
    scene.says("a person sets another image");
    scene.world.edit(|spec| spec.image = Some(image("https://images.example/other.raw")));
    scene.sound();
    scene.says("a person removes the image and wants the host off");
    scene.world.edit(|spec| {
        spec.image = None;
        spec.online = false;
    });
    scene.sound();
    scene.says("a person deletes the host");
    scene.world.delete();
    scene.sound();
    scene.close("whole-life.txt");
}

#[test]
fn trouble() {
    let mut scene = Scene::new("Trouble, and how each ends");
    scene.says("a person creates the host before its Secret");
    scene.world.host.spec.image = Some(image("https://images.example/debian.qcow2"));
    scene.world.secret = Secret::Missing;
    scene.sound();
    scene.says("the Secret comes, with a wrong password");
    scene.world.secret = Secret::Version(1);
    scene.play(|_| Some(failed("The BMC refused user admin")));
    scene.says("the password is corrected; inspection finds no agent");
    scene.world.secret = Secret::Version(2);
    scene.play(|a| matches!(a, Action::Inspect { .. }).then(|| failed("No agent reported within 600 s")));
    scene.pass(30);
    scene.sound();
    scene.pass(90);
    scene.says("inspection works; the image's digest does not match");
    let digest = |a: &Action| (*a == Action::Provision).then(|| failed("The digest does not match"));
    scene.play(digest);
    scene.pass(120);
    scene.play(digest);
    scene.pass(240);
    scene.says("the image server has the right file again");
    scene.sound();
    scene.says("the BMC stops answering");
    scene.play(|_| Some(failed("Nothing answers at 192.0.2.1")));
    scene.pass(120);
    scene.says("it is back");
    scene.sound();
    scene.says("a person deletes the host while the BMC is dead");
    scene.world.delete();
    for _ in 0..14 {
        scene.play(|_| Some(failed("Nothing answers at 192.0.2.1")));
        match scene.world.next {
            Next::After(time) => scene.pass(time.as_secs() + 1),
            _ => break,
        }
    }
    assert!(scene.world.gone, "{}", scene.text);
    scene.close("trouble.txt");
}

#[test]
fn the_diagram_in_the_docs_is_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/states.mmd");
    if std::env::var_os("GOLDEN").is_some() {
        std::fs::write(&path, host_lifecycle::diagram()).unwrap();
    }
    assert_eq!(host_lifecycle::diagram(), std::fs::read_to_string(&path).unwrap_or_default());
}
