//! What a worker is told of machines, and what it may write of its host's. Pure.

use api::metamorph::{HostReference, MachineRecordSpec};
use provisioner::{HostFacts, OtherMachine, RecordError};

/// A record as a worker sees it: what the machine has shown. The seal is the server's; what a provisioner remembers is its own, and comes with the call.
pub fn told(record: MachineRecordSpec) -> MachineRecordSpec {
    MachineRecordSpec { provisioner: None, seal: None, ..record }
}

/// Others' records as a worker sees them: without the names of hosts of other namespaces.
pub fn others_told(others: Vec<OtherMachine>) -> Vec<OtherMachine> {
    let one = |other: OtherMachine| {
        let record = told(other.record);
        let host = if other.is_near { record.host } else { HostReference::default() };
        OtherMachine { record: MachineRecordSpec { host, ..record }, ..other }
    };
    others.into_iter().map(one).collect()
}

/// What a worker writes, beside what is recorded: of its own host and its address, and without a say in what is the server's. Another machine is
/// accepted by the annotation of the host alone, and by a write that is `answered`.
///
/// # Errors
/// When it is of another host, or of an address that is not the host's, or accepts a machine that the host does not accept.
pub fn taken(
    written: MachineRecordSpec,
    recorded: Option<MachineRecordSpec>,
    facts: &HostFacts,
    answered: bool,
) -> Result<MachineRecordSpec, RecordError> {
    let refused = |why: &str| Err(RecordError::new("the machine", why));
    let key = &facts.key;
    if written.host.name != key.name || written.host.uid.as_ref().is_some_and(|uid| *uid != key.uid) {
        return refused("the provisioner has written it of another host");
    }
    let is_known = recorded.as_ref().is_some_and(|recorded| recorded.bmc_address == written.bmc_address);
    if written.bmc_address != facts.address && !is_known {
        return refused("the provisioner has written it of an address that is not the host's");
    }
    // A host that was declared again is the one of its record from now on.
    let host = HostReference { name: key.name.clone(), uid: Some(key.uid.clone()) };
    let (before, provisioner, seal) = match recorded {
        Some(recorded) => (recorded.accepted, recorded.provisioner, recorded.seal),
        None => (None, None, None),
    };
    // A new consent has no time: who writes one asks for it, and the host's annotation has to give it.
    let news = written.accepted.filter(|accepted| accepted.time.is_none());
    let given = facts.accept_machine.as_deref().map(str::trim);
    if news.as_ref().is_some_and(|news| !answered || given != Some(news.fingerprint.as_str())) {
        return refused("the host's annotation does not accept the machine that the provisioner accepts");
    }
    let accepted = news.or(before);
    Ok(MachineRecordSpec { host, accepted, provisioner, seal, ..written })
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::Time;
    use api::metamorph::{AcceptedMachine, ProvisionerRecord, RecordSeal};
    use provisioner::HostKey;

    fn sealed() -> MachineRecordSpec {
        let seal = RecordSeal { since: Time(jiff::Timestamp::UNIX_EPOCH), value: "proof".into() };
        let provisioner = ProvisionerRecord { name: "metamorph".into(), ..ProvisionerRecord::default() };
        let host = HostReference { name: "h".into(), uid: Some("u".into()) };
        let bmc_address = "redfish://192.0.2.1".to_owned();
        MachineRecordSpec {
            host,
            bmc_address,
            provisioner: Some(provisioner),
            seal: Some(seal),
            ..MachineRecordSpec::default()
        }
    }

    fn taken(
        written: MachineRecordSpec,
        recorded: Option<MachineRecordSpec>,
        facts: &HostFacts,
    ) -> Result<MachineRecordSpec, RecordError> {
        super::taken(written, recorded, facts, true)
    }

    fn facts() -> HostFacts {
        let key = HostKey { namespace: "n".into(), name: "h".into(), uid: "u".into() };
        HostFacts { key, address: "redfish://192.0.2.1".into(), ..HostFacts::default() }
    }

    #[test]
    fn a_worker_sees_what_machines_have_shown_and_no_more() {
        let shown = told(sealed());
        assert!(shown.seal.is_none() && shown.provisioner.is_none() && shown.bmc_address == sealed().bmc_address);
    }

    #[test]
    fn a_worker_writes_of_its_host_alone_and_leaves_what_is_the_servers() {
        let old = AcceptedMachine {
            fingerprint: "f".into(),
            time: Some(Time(jiff::Timestamp::UNIX_EPOCH)),
            ..AcceptedMachine::default()
        };
        let forged = MachineRecordSpec { seal: None, provisioner: None, accepted: Some(old), ..sealed() };
        assert_eq!(taken(forged, Some(sealed()), &facts()), Ok(sealed()), "an age is not made up");
        let consent = AcceptedMachine { fingerprint: "f".into(), ..AcceptedMachine::default() };
        let asked = MachineRecordSpec { accepted: Some(consent.clone()), ..told(sealed()) };
        let given = HostFacts { accept_machine: Some(" f\n".into()), ..facts() };
        assert_eq!(taken(asked, None, &given).unwrap().accepted, Some(consent));
        let elsewhere = MachineRecordSpec { bmc_address: "redfish://192.0.2.9".into(), ..sealed() };
        assert!(taken(elsewhere.clone(), Some(sealed()), &facts()).unwrap_err().why.contains("address"));
        assert!(taken(elsewhere.clone(), Some(elsewhere), &facts()).is_ok(), "an address that is recorded stays");
        let another = HostReference { name: "h".into(), uid: Some("v".into()) };
        assert!(taken(MachineRecordSpec { host: another, ..sealed() }, None, &facts()).is_err());
    }

    #[test]
    fn a_machine_is_accepted_by_the_hosts_annotation_and_not_by_a_worker() {
        let consent = AcceptedMachine { fingerprint: "f".into(), ..AcceptedMachine::default() };
        let accepts = || MachineRecordSpec { accepted: Some(consent.clone()), ..told(sealed()) };
        let refused = |given: Option<&str>, answered| {
            let facts = HostFacts { accept_machine: given.map(ToOwned::to_owned), ..facts() };
            super::taken(accepts(), Some(sealed()), &facts, answered).unwrap_err().why.contains("annotation")
        };
        assert!(refused(None, true) && refused(Some("g"), true), "it is the host's annotation that accepts");
        assert!(refused(Some("f"), false), "a consent is used up by a write that is answered");
    }

    #[test]
    fn hosts_of_other_namespaces_are_not_named() {
        let other = |is_near| OtherMachine {
            host: "of another namespace".into(),
            exists: true,
            is_older: true,
            is_near,
            is_there: true,
            is_sealed: true,
            record: sealed(),
        };
        let told = others_told(vec![other(true), other(false)]);
        assert_eq!(told.iter().map(|other| other.record.host.name.as_str()).collect::<Vec<_>>(), ["h", ""]);
        assert_eq!(told[1].record.host.uid, None);
    }

    #[test]
    fn a_host_that_was_declared_again_is_the_one_of_its_record() {
        let earlier = HostReference { name: "h".into(), uid: Some("earlier".into()) };
        let recorded = MachineRecordSpec { host: earlier, ..sealed() };
        let written = MachineRecordSpec { host: HostReference { name: "h".into(), uid: None }, ..sealed() };
        assert_eq!(taken(written, Some(recorded), &facts()).unwrap().host.uid.as_deref(), Some("u"));
    }
}
