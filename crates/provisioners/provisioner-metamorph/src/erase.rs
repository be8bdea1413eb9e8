//! Erasing: the agent erases and reports each disk; what is recorded of that is the answer, however often it is asked for.
//!
//! The order is recorded before the agent gets it, with the password that drives have while they are erased: a drive that the power leaves locked is opened
//! by the next agent. An agent's report is not taken as it comes: it is bounded, counts for no more than was asked for, and each disk that is meant has to be
//! in it. An agent of a protocol that has no erasing gets no order (`boot.rs`).

use agent_protocol::{Action, DrivePassword, EraseDisks, Outcome as AgentOutcome};
use api::metamorph::{Erasure, OperationPhase, OperationType};
use async_trait::async_trait;
use inventory::{EraseResult, ErasedDisk, RootDeviceHints, Storage, absent};
use provisioner::{Cause, CleaningRequest, Deprovisioned, Erase, EraseRequest, Failure, Method, Outcome, Verdict};
use provisioning_plan::steps::{self, Step, Work};

use crate::commands::Ran;
use crate::failures::not_yet_its_own;
use crate::host::NativeHost;
use crate::identity::Effect;
use crate::journal::Operation;
use crate::record::{done, succeed};
use crate::remembered::WriteNews;

/// Most of the record that a report takes, bytes of JSON.
const MAX_REPORT: usize = 32 << 10;
/// Most disks that a message names.
const MAX_NAMED: usize = 4;
/// Advice where a disk is not erased as asked for.
const ADVICE: &str = "status.erasure.disks tells of each disk why; put it right and ask again, or destroy the disk";
/// Evidence where there is nothing to report.
const NONE: &str = "the agent has reported no disk at all";

#[async_trait]
impl Erase for NativeHost {
    async fn erase(&mut self, request: EraseRequest) -> Outcome<Erasure> {
        self.settle_with_journal().await;
        let wish = request.wish.as_deref();
        if let Some(erasure) = self.recorded_erasure(wish) {
            return Ok(Verdict::Done(erasure));
        }
        self.live.attempt().rests();
        self.unheard(OperationType::Erase, wish, request.restart)?;
        self.nothing_ends("erase the disks")?;
        let mut operation = self.open(Work::Erase, wish).await?;
        let result = self.erase_steps(&mut operation, &request).await;
        self.closing(&mut operation, result).await
    }
}

impl NativeHost {
    /// The report of the newest operation, if that has erased for this very wish.
    fn recorded_erasure(&self, wish: Option<&str>) -> Option<Erasure> {
        let newest = self
            .journal
            .newest()
            .filter(|newest| newest.operation == OperationType::Erase && newest.phase.is_final() && wish.is_some())?;
        newest.status.erasure.filter(|_| newest.wish.as_deref() == wish)
    }

    /// Whether nothing but an erase is to be ended: by the record, the newest operation is one, of this very round of the host's, and nothing is
    /// provisioned. Whatever asks for a deprovisioning then, nobody has asked for more disks to be wiped than those that were to be erased. Before an erase
    /// has been recorded, the host's word counts ([`CleaningRequest::empty`]), unless the record says that an image was being written, or removed.
    pub fn ends_erase(&self, request: &CleaningRequest) -> bool {
        let is_deployed = request.deployed.image.is_some() || request.deployed.method != Method::Disk;
        if is_deployed {
            return false;
        }
        let Some(newest) = self.journal.newest() else { return request.empty };
        let by_record = match (&newest.wish, &request.wish) {
            // An erase's begins with when the host began, which is all of a deprovisioning's.
            (Some(erase), Some(wish)) => erase.split(' ').next() == Some(wish),
            _ => true,
        };
        match newest.operation {
            OperationType::Erase | OperationType::Steps => by_record || request.empty,
            OperationType::Provision => request.empty && self.journal.is_unwritten(),
            OperationType::Deprovision => request.empty && newest.phase == OperationPhase::Succeeded,
            _ => request.empty,
        }
    }

    /// Ends an erase that is not wanted any more, its medium and the agent that may be at work; no disk is touched. What a drive does by itself goes on.
    pub async fn erase_withdrawn(&self) -> Outcome<Deprovisioned> {
        let newest = self.journal.newest();
        if let Some(working) = self.step_runs_on() {
            return Ok(working);
        }
        // Ended before, its agent may not have been told yet.
        let is_ended =
            |phase| phase == OperationPhase::Cancelled && self.journal.latest_boot().is_some_and(|boot| boot.retired);
        let works = newest.as_ref().is_some_and(|newest| !newest.phase.is_final() || is_ended(newest.phase));
        let is_erase = newest.as_ref().is_none_or(|newest| newest.operation == OperationType::Erase);
        let why = if is_erase {
            "the erase was withdrawn: what is not erased yet is left as it is"
        } else {
            "it was withdrawn: a step that was given to the agent runs to its end, and none follows"
        };
        match self.journal.let_go(why, self.withdrawn_steps()).await {
            Err(error) if self.context.deleting && !error.not_leading => {
                tracing::warn!(host = %self.context.key.name, %error, "end the erase");
            }
            other => other?,
        }
        if works {
            self.shared.hub.let_go(self.uid());
            // A data image may be in the drive by now.
            let is_in = self.journal.latest_boot().is_some() && self.journal.data().data_medium.is_none();
            if self.context.bmc.is_some() && is_in && !self.live.timers().ejected {
                let (bmc, _) = self.proven(Effect::Boot).await?;
                self.medium_goes(bmc.as_ref(), false).await?;
                self.live.timers().ejected = true;
            }
            self.shared.media.withdraw(self.uid());
        }
        Ok(Verdict::Done(Deprovisioned { untouched: true, ..Deprovisioned::default() }))
    }

    async fn erase_steps(&self, operation: &mut Operation, request: &EraseRequest) -> Outcome<Erasure> {
        let boot_id = match self.ensure_agent(operation).await?.done() {
            Ok(boot_id) => boot_id,
            Err(not_yet) => return Ok(not_yet),
        };
        if !steps::given(&Step::EraseDisks.recorded(operation.status()), &boot_id) {
            self.proven(Effect::Destroy).await?;
            let record = self.agent_proof(&boot_id, true).await?;
            if record.accepted.is_some_and(|accepted| accepted.requires_mark) {
                return Err(not_yet_its_own("erase the disks"));
            }
        }
        let mut mark = self.mark(request.overwrite_owner.as_ref());
        operation.name().clone_into(&mut mark.operation);
        let expected = self.disks_expected().0;
        let order = EraseDisks {
            mark,
            method: request.method,
            disks: request.disks.clone(),
            expected: expected.clone(),
            password: self.drive_password(),
        };
        match self.run(operation, Step::EraseDisks, &boot_id, Action::EraseDisks(Box::new(order))).await? {
            Ran::Working(working) => Ok(Verdict::Working(working)),
            Ran::Finished(id, AgentOutcome::Erased { disks }) => {
                let erasure = Erasure { disks: judged(disks, request, expected.as_deref()), given_up: None };
                let text = told(&erasure.disks);
                let is_reached = erasure.disks.iter().all(|disk| disk.result >= request.method.aim());
                operation.set_erasure(erasure.clone());
                done(operation, Step::EraseDisks, &text)?;
                if is_reached {
                    if request.disks.is_empty() {
                        operation.tells(WriteNews::Wiped);
                    }
                    succeed(operation, &text).await?;
                } else {
                    let failure = Failure::new(Cause::NotErased, text).advise(ADVICE);
                    operation.finish(Err(&failure)).await.map_err(Failure::from)?;
                }
                self.shared.hub.acknowledge(self.uid(), &id);
                Ok(Verdict::Done(erasure))
            }
            Ran::Finished(id, outcome) => Err(self.unexpected(&id, &outcome)),
        }
    }

    /// The password that drives have while they are erased: the recorded one, or another that the next intent records.
    fn drive_password(&self) -> DrivePassword {
        let known = self.journal.data().drive_password;
        DrivePassword(known.unwrap_or_else(|| {
            // No namespace has a blank in its name, so this is nobody's proof.
            let derived = self.shared.settings.keys.claim("drive password", &self.context.key.uid, self.uid());
            let made = format!("Metamorph-{}", derived.get(..22).unwrap_or(&derived));
            self.journal.note(|data| data.drive_password = Some(made.clone()));
            made
        }))
    }
}

/// An agent's report, as far as it counts: no disk has more than was asked for, and those that are meant and are not in it are not done.
fn judged(reported: Vec<ErasedDisk>, request: &EraseRequest, expected: Option<&[Storage]>) -> Vec<ErasedDisk> {
    let most = request.method.aim();
    let mut disks: Vec<ErasedDisk> =
        reported.into_iter().map(|disk| ErasedDisk { result: disk.result.min(most), ..disk }).collect();
    let seen: Vec<Storage> = disks.iter().map(as_storage).collect();
    let unheard = "the agent has not reported it";
    let expected = expected.unwrap_or_default();
    if request.disks.is_empty() {
        let missing = absent(expected, &seen, &RootDeviceHints::default());
        disks.extend(missing.into_iter().map(|disk| ErasedDisk::not_done(disk, unheard)));
    }
    for selector in &request.disks {
        // The agent's words name it, or those of the inspection.
        let is_seen = seen.iter().any(|disk| selector.names(disk))
            || expected.iter().any(|disk| selector.names(disk) && disks.iter().any(|report| report.is_of(disk)));
        if !is_seen {
            let name = selector.describe();
            disks.push(ErasedDisk { name, evidence: unheard.to_owned(), ..ErasedDisk::default() });
        }
    }
    if disks.is_empty() {
        disks.push(ErasedDisk { name: "(no disk)".to_owned(), evidence: NONE.to_owned(), ..ErasedDisk::default() });
    }
    fitting(disks)
}

fn as_storage(disk: &ErasedDisk) -> Storage {
    Storage {
        name: Some(disk.name.clone()),
        serial_number: disk.serial_number.clone(),
        wwn: disk.wwn.clone(),
        ..Storage::default()
    }
}

/// The report, so that the record has room for it: the evidence becomes shorter, and of disks for which no room is left nothing is claimed.
fn fitting(mut disks: Vec<ErasedDisk>) -> Vec<ErasedDisk> {
    let size = |disks: &[ErasedDisk]| serde_json::to_vec(disks).map_or(usize::MAX, |json| json.len());
    for most in [240, 120, 60, 0] {
        if size(&disks) <= MAX_REPORT {
            return disks;
        }
        for disk in &mut disks {
            disk.evidence = disk.evidence.chars().take(most).collect();
        }
    }
    // What is not done comes first: it must be seen.
    disks.sort_by_key(|disk| disk.result);
    let all = disks.len();
    while size(&disks) > MAX_REPORT - 512 && disks.pop().is_some() {}
    if disks.len() < all {
        let text = format!("the record has no room for the reports of {} disks", all - disks.len());
        disks.push(ErasedDisk { name: "(others)".to_owned(), evidence: text, ..ErasedDisk::default() });
    }
    disks
}

/// What has become of the disks, in a sentence.
fn told(disks: &[ErasedDisk]) -> String {
    let counted = [
        (EraseResult::Purged, "purged"),
        (EraseResult::Cleared, "cleared"),
        (EraseResult::MetadataRemoved, "without tables and signatures"),
        (EraseResult::NotDone, "not done"),
    ];
    let counts: Vec<String> = counted
        .into_iter()
        .map(|(result, words)| (disks.iter().filter(|disk| disk.result == result).count(), words))
        .filter(|(count, _)| *count > 0)
        .map(|(count, words)| format!("{count} {words}"))
        .collect();
    let open: Vec<String> = disks
        .iter()
        .filter(|disk| disk.result == EraseResult::NotDone)
        .take(MAX_NAMED)
        .map(|disk| format!("{}: {}", disk.name, disk.evidence))
        .collect();
    let open = if open.is_empty() { String::new() } else { format!(" ({})", open.join("; ")) };
    format!("disks: {}{open}", counts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use inventory::{DiskSelector, EraseMethod};

    fn storage(serial: &str) -> Storage {
        Storage { name: Some(format!("/dev/{serial}")), serial_number: Some(serial.into()), ..Storage::default() }
    }

    fn report(serial: &str, result: EraseResult) -> ErasedDisk {
        ErasedDisk { result, evidence: "because".into(), ..ErasedDisk::of(&storage(serial)) }
    }

    fn results(disks: &[ErasedDisk]) -> Vec<(&str, EraseResult)> {
        disks.iter().map(|disk| (disk.serial_number.as_deref().unwrap_or(&disk.name), disk.result)).collect()
    }

    #[test]
    fn a_disk_that_an_agent_does_not_report_is_not_done() {
        use EraseResult::{NotDone, Purged};
        let request = EraseRequest { method: EraseMethod::Purge, ..EraseRequest::default() };
        let known = [storage("a"), storage("b")];
        let judged_all = judged(vec![report("a", Purged)], &request, Some(&known));
        assert_eq!(results(&judged_all), [("a", Purged), ("b", NotDone)]);
        assert_eq!(results(&judged(vec![], &request, Some(&known))), [("a", NotDone), ("b", NotDone)]);
        // Of a machine without a disk nothing is claimed.
        assert_eq!(results(&judged(vec![], &request, None)), [("(no disk)", NotDone)]);
        assert_eq!(results(&judged(vec![], &request, Some(&[]))), [("(no disk)", NotDone)]);
        let named = DiskSelector { serial_number: Some("b".into()), wwn: None };
        let request = EraseRequest { disks: vec![named], ..request };
        assert_eq!(results(&judged(vec![report("b", Purged)], &request, Some(&known))), [("b", Purged)]);
        let other = judged(vec![report("a", Purged)], &request, None);
        assert_eq!(results(&other), [("a", Purged), ("serial number b", NotDone)]);
    }

    #[test]
    fn nothing_counts_for_more_than_was_asked_for() {
        use EraseResult::{Cleared, MetadataRemoved, NotDone, Purged};
        for (method, most) in
            [(EraseMethod::Metadata, MetadataRemoved), (EraseMethod::Overwrite, Cleared), (EraseMethod::Purge, Purged)]
        {
            let request = EraseRequest { method, ..EraseRequest::default() };
            let all = [NotDone, MetadataRemoved, Cleared, Purged];
            let reported = all.iter().map(|result| report("a", *result)).collect();
            let found: Vec<EraseResult> = judged(reported, &request, None).iter().map(|disk| disk.result).collect();
            assert_eq!(found, all.map(|result| result.min(most)), "{method:?}");
        }
    }

    #[test]
    fn a_long_report_fits_and_claims_nothing_of_what_it_leaves_out() {
        let long = |number: usize, result| ErasedDisk {
            name: format!("{number:0128}"),
            evidence: "e".repeat(240),
            method: Some("m".repeat(128)),
            serial_number: Some(format!("{number:0128}")),
            wwn: Some(format!("{number:0128}")),
            result,
        };
        for count in [1, 40, 60, 512] {
            let result = |number| if number == count - 1 { EraseResult::NotDone } else { EraseResult::Purged };
            let fitted = fitting((0..count).map(|number| long(number, result(number))).collect());
            assert!(serde_json::to_vec(&fitted).unwrap().len() <= MAX_REPORT, "{count}");
            let is_whole = fitted.len() == count;
            let last = fitted.last().unwrap();
            assert!(is_whole || last.result == EraseResult::NotDone && last.name == "(others)", "{count}");
            let wanted = format!("{:0128}", count - 1);
            assert!(fitted.iter().any(|disk| disk.name == wanted), "what is not done is kept");
        }
    }
}
