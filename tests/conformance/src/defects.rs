//! Proof that the suite can fail: defects seeded on purpose, each of which must turn its area red, while the same server
//! through the same layer without a defect is green there.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;
use futures::StreamExt as _;

use crate::case::File;
use crate::compare::Known;
use crate::hooks::Hooks;
use crate::layer::Defect;
use crate::report::{self, Outcome};
use crate::run::Runner;
use crate::target::Target;

/// How long a state may take to come that the defect may keep from coming.
const UNTIL: Duration = Duration::from_secs(4);

/// Defects under trial at once.
const AT_ONCE: usize = 3;

/// Cases that the way through the layer changes: HTTP/1, which it speaks, drops the spaces around a header's value, and
/// HTTP/2, which the servers speak, does not.
const NOT_THROUGH: [&str; 1] = ["apply/core/managed fields of an unusual agent"];

/// A defect, and the case that must see it.
struct Seeded {
    /// As it is printed.
    name: &'static str,
    /// `area/file/case`; the whole area is run.
    witness: &'static str,
    /// What the layer does.
    defect: Defect,
}

/// All of them, no two in one area.
const SEEDED: [Seeded; 12] = [
    seeded("a watch misses deletions", "watch/core/from a version", Defect::WatchMissesDeletions),
    seeded(
        "chunks of a list are of other moments",
        "lists/core/chunks are of one moment",
        Defect::ChunksOfOtherMoments,
    ),
    seeded("apply takes over without force", "apply/core/conflicts with another manager", Defect::ApplyTakesOver),
    seeded("the status moves the generation", "status-scale/things/status PATCH merges", Defect::StatusMovesGeneration),
    seeded("unknown fields stay", "pruning-defaulting/schema/unknown in spec", Defect::NothingPruned),
    seeded("a dry run writes", "dry-run/verbs/create", Defect::DryRunWrites),
    seeded("finalizers do not hold", "verbs/core/delete waits for finalizers", Defect::FinalizersIgnored),
    seeded(
        "roles grant more than their writer has",
        "authorization/rbac/a role may not be made beyond one's own",
        Defect::EscalationUnchecked,
    ),
    seeded("null in a merge patch removes nothing", "merge-patch/core/null removes", Defect::NullRemovesNothing),
    seeded("preconditions are ignored", "preconditions/delete/another uid", Defect::PreconditionsIgnored),
    seeded("rules of schemas are ignored", "cel/rules/create min above max", Defect::RulesIgnored),
    seeded("strictness is ignored", "field-validation/levels/custom create Strict", Defect::StrictnessIgnored),
];

const fn seeded(name: &'static str, witness: &'static str, defect: Defect) -> Seeded {
    Seeded { name, witness, defect }
}

impl Seeded {
    fn area(&self) -> &'static str {
        self.witness.split('/').next().unwrap_or_default()
    }
}

/// Runs the areas without a defect, then each area with its own; whether all cases agree without one, and with each
/// its witness and perhaps others do not. `only` these areas, or all of them if none is named.
pub async fn run(files: &[File], hooks: &Hooks, known: &[Known], only: &[String]) -> Result<bool> {
    let wanted = |s: &&Seeded| only.is_empty() || only.iter().any(|area| area == s.area());
    let seeded: Vec<&Seeded> = SEEDED.iter().filter(wanted).collect();
    let whole: Vec<&File> = files.iter().filter(|f| seeded.iter().any(|s| s.area() == f.area)).collect();
    let sound = outcomes(None, &whole, hooks, known).await?;
    let amiss: BTreeSet<&str> = red(&sound).map(|o| o.case.as_str()).collect();
    for outcome in red(&sound) {
        print!("{}", report::describe(outcome, 3));
    }
    println!("{:<42}{:<20}{:>6}{:>6}", "defect", "area", "cases", "red");
    println!("{:<42}{:<20}{:>6}{:>6}", "none", "all of these", sound.len(), amiss.len());
    let trials = futures::stream::iter(&seeded).map(|seeded| {
        let part: Vec<&File> = whole.iter().copied().filter(|f| f.area == seeded.area()).collect();
        async move { (seeded, outcomes(Some(seeded.defect), &part, hooks, known).await) }
    });
    let mut trials = trials.buffered(AT_ONCE);
    let mut good = amiss.is_empty();
    while let Some((seeded, found)) = trials.next().await {
        let found = found?;
        let red: Vec<&str> = red(&found).map(|o| o.case.as_str()).filter(|case| !amiss.contains(case)).collect();
        let seen = red.contains(&seeded.witness);
        let note = if seen { "" } else { "  not seen" };
        println!("{:<42}{:<20}{:>6}{:>6}{note}", seeded.name, seeded.area(), found.len(), red.len());
        good &= seen;
    }
    println!("{}", if good { "each defect is seen" } else { "a defect is not seen, or something is red without" });
    Ok(good)
}

fn red(outcomes: &[Outcome]) -> impl Iterator<Item = &Outcome> {
    outcomes.iter().filter(|o| !o.differences.is_empty() && !NOT_THROUGH.contains(&o.case.as_str()))
}

async fn outcomes(defect: Option<Defect>, files: &[&File], hooks: &Hooks, known: &[Known]) -> Result<Vec<Outcome>> {
    let target = Target::spoilt(defect).await?;
    let until = if defect.is_some() { UNTIL } else { crate::run::UNTIL };
    let answers = crate::ask(&Runner { target: &target, hooks, until }, files, crate::AT_ONCE).await;
    target.shutdown().await;
    crate::outcomes(files, &answers, known)
}
