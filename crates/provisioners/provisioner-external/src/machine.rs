//! What a worker is told of machines, and what it may write of its host's. Pure.

use api::metamorph::{HostReference, MachineRecordSpec};
use provisioner::{HostFacts, OtherMachine, RecordError};

/// A record as a worker sees it: what the machine has shown. The seal is the server's; what a provisioner remembers is its own, and comes with the call.
pub fn told(record: MachineRecordSpec) -> MachineRecordSpec {
    MachineRecordSpec { provisioner: None, seal: None, ..record }
}

/// Others' records as a worker sees them.
pub fn others_told(others: Vec<OtherMachine>) -> Vec<OtherMachine> {
    others.into_iter().map(|other| OtherMachine { record: told(other.record), ..other }).collect()
}

/// What a worker writes, beside what is recorded: of its own host and its address, and without a say in what is the server's.
///
/// # Errors
/// When it is of another host, or of an address that is not the host's.
pub fn taken(
    written: MachineRecordSpec,
    recorded: Option<MachineRecordSpec>,
    facts: &HostFacts,
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
    let own = || HostReference { name: key.name.clone(), uid: Some(key.uid.clone()) };
    let (before, host, provisioner, seal) = match recorded {
        Some(recorded) => (recorded.accepted, recorded.host, recorded.provisioner, recorded.seal),
        None => (None, own(), None, None),
    };
    // A new consent has no time: who writes one asks for it, and the host's annotation has to give it.
    let accepted = written.accepted.filter(|accepted| accepted.time.is_none()).or(before);
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
        assert_eq!(taken(asked, None, &facts()).unwrap().accepted, Some(consent));
        let elsewhere = MachineRecordSpec { bmc_address: "redfish://192.0.2.9".into(), ..sealed() };
        assert!(taken(elsewhere.clone(), Some(sealed()), &facts()).unwrap_err().why.contains("address"));
        assert!(taken(elsewhere.clone(), Some(elsewhere), &facts()).is_ok(), "an address that is recorded stays");
        let another = HostReference { name: "h".into(), uid: Some("v".into()) };
        assert!(taken(MachineRecordSpec { host: another, ..sealed() }, None, &facts()).is_err());
    }
}
