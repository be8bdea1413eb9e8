//! The server's seal on MachineRecords: proof that this server wrote the content, and since when it has vouched for the record.
//!
//! Of two hosts whose records show one machine, the host with the older record has it. A tenant who may write MachineRecords could edit an old
//! one to show another tenant's machine. So the object's own age does not count: a sealed record is as old as its seal says, and one that is
//! unsealed, or was edited since, is younger than all sealed ones. The server's next write seals it from that moment on.
//!
//! The seal is HMAC-SHA256 (RFC 2104) over the record's place and everything in its spec but the provisioner's part, in a form in which an absent
//! field and one with its default are the same: a version that adds a field breaks no seal.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use api::Time;
use api::metal3::BareMetalHost;
use api::metamorph::{MachineRecord, MachineRecordSpec, RecordSeal};
use hmac::{Hmac, KeyInit, Mac};
use inventory::MachineEvidence;
use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::Value;
use sha2::Sha256;

/// The keys of a server, the newest first: it seals records with the newest, and accepts the seals of all.
#[derive(Clone)]
pub struct SealKeys(Vec<[u8; 32]>);

impl SealKeys {
    /// These keys.
    #[must_use]
    pub fn new(newest: [u8; 32], earlier: Vec<[u8; 32]>) -> Self {
        Self([vec![newest], earlier].concat())
    }

    /// The seal of a record as it stands, vouched for since `since`.
    #[must_use]
    pub fn seal(&self, record: &MachineRecord, since: Timestamp) -> Option<RecordSeal> {
        // Times of the Kubernetes API have no fractions.
        let since = Timestamp::from_second(since.as_second()).unwrap_or(since);
        let value = mac(self.0.first()?, &content(record, since)).finalize().into_bytes();
        Some(RecordSeal { since: Time(since), value: hex::encode(value) })
    }

    /// Since when one of these keys has sealed the record as it stands; `None` if none has.
    fn check(&self, record: &MachineRecord) -> Option<Timestamp> {
        let seal = record.spec.seal.as_ref()?;
        let found = hex::decode(&seal.value).ok()?;
        let content = content(record, seal.since.0);
        self.0.iter().any(|key| mac(key, &content).verify_slice(&found).is_ok()).then_some(seal.since.0)
    }
}

impl fmt::Debug for SealKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keys", self.0.len())
    }
}

/// Age of a record's claim to its machine; the lesser is the older.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Age {
    unsealed: bool,
    since: Option<Timestamp>,
    created: Option<Timestamp>,
    uid: Option<String>,
}

/// Seals records and checks their seals.
pub struct Seals {
    keys: SealKeys,
    /// By the object's uid: the version that was checked last, and since when it is sealed.
    known: Mutex<HashMap<String, (String, Option<Timestamp>)>>,
}

/// Most checked records that are remembered, deleted ones included.
const MOST_KNOWN: usize = 50_000;

impl Seals {
    /// With these keys.
    pub fn new(keys: SealKeys) -> Self {
        Self { keys, known: Mutex::default() }
    }

    /// Age of the host's claim by this record. An accepted machine is the host's since it was accepted. An unsealed record is as old as the API
    /// server says, so that editing it makes it no older. A host declared again under the name of the record's host has no older claim than
    /// itself: a host that has had the machine since must not lose it to an earlier tenant.
    pub fn age(&self, record: &MachineRecord, host: Option<&BareMetalHost>) -> Age {
        let accepted = record.spec.accepted.as_ref().and_then(|accepted| accepted.time.as_ref()).map(|time| time.0);
        let created = record.creation_timestamp().map(|time| time.0);
        let sealed = self.since(record);
        let again = host.filter(|host| host.uid() != record.spec.host.uid).and_then(ResourceExt::creation_timestamp);
        let since = accepted.max(sealed.or(created)).max(again.map(|time| time.0));
        Age { unsealed: sealed.is_none(), since, created, uid: record.uid() }
    }

    /// Since when the record is sealed; `None` if it is not, or was edited.
    pub fn since(&self, record: &MachineRecord) -> Option<Timestamp> {
        let (Some(uid), Some(version)) = (record.uid(), record.resource_version()) else {
            return self.keys.check(record);
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, since)) = known.get(&uid).filter(|(seen, _)| *seen == version) {
            return *since;
        }
        if known.len() >= MOST_KNOWN {
            known.clear();
        }
        let since = self.keys.check(record);
        known.insert(uid, (version, since));
        since
    }

    /// The seal of a record that this server is about to write, in place of `before` if there is one. The claim continues if that was sealed for the
    /// same host, and begins now otherwise; and so it does where a program that the server does not vouch for names something new of the machine: it
    /// could name another tenant's machine, and have it by the age of this record.
    pub fn seal(
        &self,
        record: &MachineRecord,
        before: Option<&MachineRecord>,
        vouched: bool,
        now: Timestamp,
    ) -> Option<RecordSeal> {
        let before = before.filter(|before| before.spec.host.uid == record.spec.host.uid);
        let before = before.filter(|before| vouched || !claims_more(&before.spec, &record.spec));
        let since = before.and_then(|before| self.since(before)).map_or(now, |since| since.min(now));
        self.keys.seal(record, since)
    }
}

/// Whether the record names anything of a machine that the one before did not name.
fn claims_more(before: &MachineRecordSpec, record: &MachineRecordSpec) -> bool {
    let none = MachineEvidence::default();
    let of = |evidence: &Option<MachineEvidence>| evidence.clone().unwrap_or_else(|| none.clone());
    machine_identity::pins_more(&before.pin, &record.pin)
        || machine_identity::names_more(&of(&before.bmc), &of(&record.bmc))
        || machine_identity::names_more(&of(&before.agent), &of(&record.agent))
}

fn mac(key: &[u8; 32], content: &[u8]) -> Hmac<Sha256> {
    // A key shorter than a block is padded with zeros (RFC 2104, 2).
    let mut block = [0; 64];
    block[..key.len()].copy_from_slice(key);
    let mut mac = Hmac::<Sha256>::new(&block.into());
    mac.update(content);
    mac
}

/// What is sealed.
fn content(record: &MachineRecord, since: Timestamp) -> Vec<u8> {
    let spec = MachineRecordSpec { provisioner: None, seal: None, ..record.spec.clone() };
    let spec = serde_json::to_value(spec).map(without_defaults).unwrap_or_default();
    let (namespace, name) = (record.namespace().unwrap_or_default(), record.name_any());
    serde_json::json!(["MachineRecord", namespace, name, since.as_second(), spec]).to_string().into_bytes()
}

/// The value without defaults, with sorted keys.
fn without_defaults(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.into_iter().map(|(key, value)| (key, without_defaults(value)));
            let mut kept: Vec<_> = kept.filter(|(_, value)| !is_default(value)).collect();
            kept.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(kept.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_defaults).collect()),
        other => other,
    }
}

fn is_default(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(value) => value.as_f64() == Some(0.0),
        Value::String(value) => value.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const KEY: [u8; 32] = [7; 32];

    fn seals() -> Seals {
        Seals::new(SealKeys::new(KEY, Vec::new()))
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn record(name: &str, version: &str, created: i64, serial: &str) -> MachineRecord {
        let value = json!({
            "apiVersion": "metamorph.metal3.io/v1alpha1",
            "kind": "MachineRecord",
            "metadata": {"name": name, "namespace": "n", "uid": name, "resourceVersion": version, "creationTimestamp": at(created)},
            "spec": {"host": {"name": name}, "bmcAddress": "b", "bmc": {"serialNumber": serial}},
        });
        serde_json::from_value(value).unwrap()
    }

    fn sealed(seals: &Seals, mut record: MachineRecord, before: Option<&MachineRecord>, now: i64) -> MachineRecord {
        record.spec.seal = seals.seal(&record, before, true, at(now));
        record
    }

    #[test]
    fn a_seal_breaks_with_every_edit_but_the_provisioners() {
        let seals = seals();
        let good = sealed(&seals, record("a", "1", 10, "S1"), None, 20);
        assert_eq!(seals.since(&good), Some(at(20)));
        let edits: [(&str, Value); 7] = [
            ("/spec/bmc/serialNumber", json!("S2")),
            ("/spec/bmcAddress", json!("c")),
            ("/spec/host/name", json!("z")),
            ("/spec/seal/since", json!("1970-01-01T00:00:01Z")),
            ("/spec/seal/value", json!("00")),
            ("/metadata/name", json!("b")),
            ("/metadata/namespace", json!("m")),
        ];
        for (index, (path, value)) in edits.into_iter().enumerate() {
            let mut edited = serde_json::to_value(&good).unwrap();
            *edited.pointer_mut(path).unwrap() = value;
            edited["metadata"]["resourceVersion"] = json!(format!("edit {index}"));
            assert_eq!(seals.since(&serde_json::from_value(edited).unwrap()), None, "{path}");
        }
        let mut worked = good.clone();
        worked.metadata.resource_version = Some("2".to_owned());
        worked.spec.provisioner = Some(api::metamorph::ProvisionerRecord::default());
        assert_eq!(seals.since(&worked), Some(at(20)));
        let other = Seals::new(SealKeys::new([8; 32], Vec::new()));
        assert_eq!(other.since(&good), None, "another server's");
        let rotated = Seals::new(SealKeys::new([8; 32], vec![KEY]));
        assert_eq!(rotated.since(&good), Some(at(20)), "an earlier key's");
    }

    #[test]
    fn a_claim_goes_on_where_it_was_sealed_and_begins_anew_where_it_was_not() {
        let seals = seals();
        let first = sealed(&seals, record("a", "1", 10, "S1"), None, 20);
        let grown = sealed(&seals, record("a", "2", 10, "S1 and more"), Some(&first), 90);
        assert_eq!(seals.since(&grown), Some(at(20)));
        let mut edited = grown.clone();
        edited.metadata.resource_version = Some("3".to_owned());
        edited.spec.bmc.as_mut().unwrap().serial_number = Some("S2".to_owned());
        assert_eq!(seals.since(&sealed(&seals, record("a", "4", 10, "S2"), Some(&edited), 100)), Some(at(100)));
        let back = sealed(&seals, record("a", "5", 10, "S1"), Some(&first), 5);
        assert_eq!(seals.since(&back), Some(at(5)), "a clock that was wrong makes nobody younger");
    }

    #[test]
    fn who_is_sealed_is_older_than_who_is_not() {
        let seals = seals();
        let accepted = |mut record: MachineRecord, second: i64| {
            let time = Some(Time(at(second)));
            record.spec.accepted = Some(api::metamorph::AcceptedMachine { time, ..Default::default() });
            record
        };
        let ordered = [
            sealed(&seals, record("sealed early", "1", 50, "S"), None, 60),
            sealed(&seals, accepted(record("accepted late", "1", 5, "S"), 70), None, 20),
            sealed(&seals, record("sealed late", "1", 1, "S"), None, 80),
            record("unsealed, of old", "1", 1, "S"),
            accepted(record("unsealed, of new", "1", 30, "S"), 1),
        ];
        for (index, pair) in ordered.windows(2).enumerate() {
            assert!(seals.age(&pair[0], None) < seals.age(&pair[1], None), "{index}");
        }
    }

    #[test]
    fn a_host_that_is_declared_again_has_no_older_claim_than_itself() {
        let seals = seals();
        let of = |uid: &str, mut record: MachineRecord| {
            record.spec.host.uid = Some(uid.to_owned());
            record
        };
        let mut host = BareMetalHost::new("a", api::metal3::BareMetalHostSpec::default());
        (host.metadata.uid, host.metadata.creation_timestamp) = (Some("first".to_owned()), Some(Time(at(10))));
        let sealed_first = sealed(&seals, of("first", record("a", "1", 10, "S")), None, 20);
        let between = sealed(&seals, of("x", record("b", "1", 30, "S")), None, 40);
        assert!(seals.age(&sealed_first, Some(&host)) < seals.age(&between, None));
        (host.metadata.uid, host.metadata.creation_timestamp) = (Some("again".to_owned()), Some(Time(at(50))));
        assert!(seals.age(&sealed_first, Some(&host)) > seals.age(&between, None));
        let taken_over = sealed(&seals, of("again", record("a", "2", 10, "S")), Some(&sealed_first), 60);
        assert_eq!(seals.since(&taken_over), Some(at(60)));
    }

    #[test]
    fn a_claim_begins_anew_where_a_program_that_is_not_vouched_for_names_something_new_of_the_machine() {
        let seals = seals();
        let first = sealed(&seals, record("a", "1", 10, "S-1"), None, 20);
        let since = |edit: fn(&mut MachineRecordSpec), vouched| {
            let mut written = record("a", "2", 10, "S-1");
            edit(&mut written.spec);
            written.spec.seal = seals.seal(&written, Some(&first), vouched, at(60));
            seals.keys.check(&written).unwrap().as_second()
        };
        assert_eq!(since(|_| {}, false), 20, "the same");
        assert_eq!(since(|spec| spec.bmc = None, false), 20, "less than before takes nothing");
        let edits: [fn(&mut MachineRecordSpec); 5] = [
            |spec| spec.bmc.as_mut().unwrap().serial_number = Some("CZJ0200312".into()),
            |spec| spec.bmc.as_mut().unwrap().system_uuid = Some("4c4c4544-0051-3510-8052-b4c04f4a3132".into()),
            |spec| spec.bmc.as_mut().unwrap().macs = vec!["3c:ec:ef:00:00:01".into()],
            |spec| spec.agent = Some(MachineEvidence { macs: vec!["3c:ec:ef:00:00:01".into()], ..Default::default() }),
            |spec| spec.pin.key_sha256 = Some("ab".repeat(32)),
        ];
        for (index, edit) in edits.into_iter().enumerate() {
            assert_eq!((since(edit, true), since(edit, false)), (20, 60), "{index}");
        }
    }

    #[test]
    fn a_field_that_says_nothing_is_none() {
        let bare = json!({"a": 1, "b": {"d": [{"f": "x"}]}});
        let full = json!({"z": null, "b": {"d": [{"f": "x", "g": ""}], "e": {}}, "a": 1, "c": [], "h": false, "i": 0});
        assert_eq!(without_defaults(full).to_string(), without_defaults(bare).to_string());
    }
}
