//! What the tests share.

use std::collections::BTreeSet;

use api::Time;
use api::metamorph::{DiscoveredMachine, DiscoveryPhase, HostDiscoverySpec};
use discovery::{Discovered, KnownHost, Place, Recorded, Rediscover, Rules, Shown, Situation, Spot, Verdict};

/// A spec with these ranges, and all else as the definition has it.
pub fn spec(ranges: &[&str]) -> HostDiscoverySpec {
    HostDiscoverySpec {
        ranges: ranges.iter().map(|text| (*text).to_owned()).collect(),
        interval_minutes: 60,
        credentials_name: "bmc".to_owned(),
        max_new_hosts: 32,
        max_pending_hosts: 128,
        ..HostDiscoverySpec::default()
    }
}

/// The `n`th place.
pub fn at(n: u8) -> Place {
    Place { ip: [192, 0, 2, n].into(), port: 443, tls: true }
}

/// The `n`th UUID.
pub fn uuid(n: u32) -> String {
    format!("4c4c4544-0035-5910-8052-{n:012x}")
}

/// A BMC with this UUID that proves this key.
pub fn shown(n: u32, key: Option<char>) -> Shown {
    Shown {
        vendor: "Contoso".into(),
        product: "Server".into(),
        uuid: Some(uuid(n)),
        redfish_version: "1.6.0".into(),
        key_sha256: key.map(|key| key.to_string().repeat(64)),
    }
}

/// All that a decision goes by.
pub struct World {
    pub spec: HostDiscoverySpec,
    pub hosts: Vec<KnownHost>,
    pub records: Vec<Recorded>,
    pub before: Vec<DiscoveredMachine>,
    pub elsewhere: Vec<DiscoveredMachine>,
    pub rediscover: Rediscover,
    /// Where was asked, if not everywhere.
    pub asked: Option<BTreeSet<Place>>,
    next: u32,
}

impl World {
    pub fn new() -> Self {
        Self {
            spec: spec(&["192.0.2.0/24"]),
            hosts: Vec::new(),
            records: Vec::new(),
            before: Vec::new(),
            elsewhere: Vec::new(),
            rediscover: Rediscover::default(),
            asked: None,
            next: 0,
        }
    }

    /// What is decided.
    pub fn judge(&self, found: &[(Place, Shown)]) -> Verdict {
        self.with(|situation| discovery::judge(situation, found))
    }

    /// The hosts that rules approve, by what is listed.
    pub fn awaiting(&self) -> Vec<String> {
        self.with(discovery::awaiting)
    }

    fn with<T>(&self, what: impl FnOnce(&Situation<'_>) -> T) -> T {
        let mut faults = Vec::new();
        let rules = Rules::compile(&self.spec.allow, &self.spec.deny, &mut faults);
        assert_eq!(faults, Vec::<String>::new());
        what(&Situation {
            namespace: "n",
            name: "rack",
            spec: &self.spec,
            rules: &rules,
            hosts: &self.hosts,
            records: &self.records,
            before: &self.before,
            elsewhere: &self.elsewhere.iter().collect::<Vec<_>>(),
            rediscover: &self.rediscover,
            now: Time("2026-01-01T00:00:00Z".parse().unwrap()),
            asked: self.asked.as_ref(),
        })
    }

    /// Decides, makes the hosts and keeps the status, as the controller does.
    pub fn scan(&mut self, found: &[(Place, Shown)]) -> Verdict {
        let mut verdict = self.judge(found);
        for new in verdict.make.clone() {
            let machine = &mut verdict.machines[new.machine];
            let uid = format!("uid-{}", self.next);
            self.next += 1;
            machine.host_uid = Some(uid.clone());
            let made = Discovered {
                by: "rack".into(),
                address: machine.address.clone(),
                identity: machine.uuid.as_deref().and_then(discovery::identity),
                key_sha256: machine.key_sha256.clone(),
                is_refused: false,
            };
            self.hosts.push(KnownHost {
                namespace: "n".into(),
                name: new.name,
                uid,
                discovered: Some(made),
                ..KnownHost::default()
            });
        }
        self.before = verdict.machines.clone();
        verdict
    }

    /// Approves a host.
    pub fn approve(&mut self, name: &str) {
        let host = self.hosts.iter_mut().find(|host| host.name == name).unwrap();
        host.is_managed = true;
        host.spots = vec![Spot::of(&host.discovered.as_ref().unwrap().address).unwrap()];
    }
}

/// The phase of the machine at this place.
pub fn phase(verdict: &Verdict, place: Place) -> DiscoveryPhase {
    verdict.machines.iter().find(|machine| machine.address == place.address()).unwrap().phase
}

/// A host that somebody has declared at this address.
pub fn declared(namespace: &str, name: &str, address: &str) -> KnownHost {
    KnownHost {
        namespace: namespace.into(),
        name: name.into(),
        uid: format!("{namespace}-{name}"),
        spots: Spot::of(address).into_iter().collect(),
        is_managed: true,
        discovered: None,
    }
}
