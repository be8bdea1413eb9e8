//! Claims and hosts under writes that are late, lost, or of another process: no claim's work is ever on two hosts, no host is ever taken from a claim.
//!
//! The world has objects with versions, and writes that hold on one version only. A look is made from what a watch has shown at some time, its
//! writes may be carried out at once, later, or never, and it may not learn which.

use std::collections::BTreeSet;

use api::metal3::{BareMetalHost, BoundObject, HostClaim};
use host_claims::{Association, Choice, Data, Fact, Report, Search, Selector, Title};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::kit::{claim, host, with};

#[derive(Clone)]
struct Versioned<T>(T, u64);

#[derive(Clone)]
enum Write {
    Claim(usize, u64, Box<HostClaim>),
    Host(usize, u64, Value),
}

struct World {
    claims: Vec<Versioned<HostClaim>>,
    hosts: Vec<Versioned<BareMetalHost>>,
    /// What watches have shown: older states.
    past: Vec<Vec<Versioned<BareMetalHost>>>,
    late: Vec<Write>,
    /// Claims whose work was given to hosts that are there still, and whose they were then.
    begun: BTreeSet<(usize, String)>,
}

#[derive(Clone, Copy, Debug)]
enum Fate {
    /// Carried out, and known to be.
    Done,
    /// Not known: carried out now, later or never.
    Unknown(u8),
}

#[derive(Clone, Debug)]
enum Act {
    /// A claim is looked at, hosts being shown as they were so many changes ago.
    Look(usize, usize, [Fate; 4]),
    /// A late write arrives.
    Arrive(usize),
    /// A late write is lost.
    Lose(usize),
    /// Another kind of consumer takes a free host, or gives it back.
    Other(usize),
    /// A host fails, or is well again.
    Trouble(usize),
    /// A host is deleted and made anew.
    Renew(usize),
    /// Somebody gives a host away by hand, with what is on it.
    Give(usize),
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![3 => Just(Fate::Done), 1 => (0..3_u8).prop_map(Fate::Unknown)]
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => (0..3_usize, 0..4_usize, [fate(), fate(), fate(), fate()]).prop_map(|(c, lag, f)| Act::Look(c, lag, f)),
        3 => (0..8_usize).prop_map(Act::Arrive),
        1 => (0..8_usize).prop_map(Act::Lose),
        1 => (0..3_usize).prop_map(Act::Other),
        1 => (0..3_usize).prop_map(Act::Trouble),
        1 => (0..3_usize).prop_map(Act::Renew),
        1 => (0..3_usize).prop_map(Act::Give),
    ]
}

impl World {
    fn new() -> Self {
        let spec = || json!({"poweredOn": true, "image": {"url": "http://x"}});
        let claims = ["c", "d", "e"].map(|name| Versioned(claim(name, spec()), 0)).into();
        let hosts = ["a", "b", "z"].map(|name| Versioned(host(name), 0)).into();
        Self { claims, hosts, past: Vec::new(), late: Vec::new(), begun: BTreeSet::new() }
    }

    /// Carries a write out, if it still holds.
    fn carry_out(&mut self, write: Write) -> bool {
        match write {
            Write::Claim(at, version, new) if self.claims[at].1 == version => {
                self.claims[at] = Versioned(*new, version + 1);
                true
            }
            Write::Host(at, version, patch) if self.hosts[at].1 == version => {
                self.past.push(self.hosts.clone());
                let before = self.hosts[at].0.spec.clone();
                let new = with(&self.hosts[at].0, &patch);
                let taken = before.consumer_ref.is_some() && new.spec.consumer_ref.is_some();
                assert!(!taken || before.consumer_ref == new.spec.consumer_ref, "a host was taken from {before:?}");
                let given = before.image.is_none() && new.spec.image.is_some();
                if let Some(name) = new.spec.consumer_ref.as_ref().and_then(|by| by.name.clone()).filter(|_| given) {
                    self.begun.insert((at, name));
                }
                self.hosts[at] = Versioned(new, version + 1);
                true
            }
            _ => false,
        }
    }

    /// Sends a write; whether it is known to have been carried out.
    fn send(&mut self, write: Write, fate: Fate) -> bool {
        match fate {
            Fate::Done => self.carry_out(write),
            Fate::Unknown(0) => {
                self.carry_out(write);
                false
            }
            Fate::Unknown(1) => {
                self.late.push(write);
                false
            }
            Fate::Unknown(_) => false,
        }
    }

    fn set_status(&mut self, at: usize, report: &Report<'_>, fate: Fate) -> bool {
        let Versioned(old, version) = self.claims[at].clone();
        let Some(status) = host_claims::status(&old, report, "2026-01-01T00:00:00Z".parse().unwrap()) else {
            return true;
        };
        let mut new = old;
        new.status = Some(status);
        self.send(Write::Claim(at, version, Box::new(new)), fate)
    }

    /// One look, as the controller makes it: the host that is named is read, the others are as they were shown.
    fn look(&mut self, at: usize, lag: usize, fates: [Fate; 4]) {
        let mut fates = fates.into_iter();
        let observed = self.past.len().checked_sub(lag).and_then(|at| self.past.get(at)).unwrap_or(&self.hosts).clone();
        loop {
            let one = self.claims[at].0.clone();
            let named: Option<BoundObject> = one.status.as_ref().and_then(|status| status.bare_metal_host.clone());
            let is =
                |host: &BareMetalHost| named.as_ref().is_some_and(|n| host.metadata.name.as_deref() == Some(&n.name));
            let has_title = |host: &BareMetalHost| host_claims::title(host, &one) != Title::Foreign;
            let now = self.hosts.iter().find(|host| is(&host.0)).cloned();
            let mut holding: Vec<Versioned<BareMetalHost>> =
                observed.iter().filter(|host| has_title(&host.0) && !is(&host.0)).cloned().collect();
            holding.extend(now.clone().filter(|host| has_title(&host.0)));
            let held: Vec<&BareMetalHost> = holding.iter().map(|host| &host.0).collect();
            let Some(fate) = fates.next() else { return };
            let index =
                |host: &BareMetalHost| observed.iter().position(|h| h.0.metadata.name == host.metadata.name).unwrap();
            let version = |host: &BareMetalHost| {
                let among = holding.iter().chain(&now).find(|h| h.0.metadata.name == host.metadata.name);
                among.unwrap().1
            };
            let goes_on = match host_claims::association(&one, now.as_ref().map(|host| &host.0), &held) {
                Association::Bound(host) => {
                    let strays: Vec<_> =
                        host_claims::strays(host, &held).map(|stray| (index(stray), version(stray))).collect();
                    for (stray, version) in strays {
                        self.send(Write::Host(stray, version, json!({"spec": {"consumerRef": null}})), fate);
                    }
                    if !host_claims::is_recorded(&one) {
                        if !self.set_status(at, &Report::beginning(host), fate) {
                            return;
                        }
                        continue;
                    }
                    if let Some(spec) = host_claims::change(&one, host, &Data::default()) {
                        self.send(Write::Host(index(host), version(host), json!({"spec": spec})), fate);
                    }
                    let fact = Fact::yes("ConfigurationSynced", "");
                    self.set_status(at, &Report::with(host, fact, false), fate);
                    false
                }
                Association::TakeUp(host) => {
                    let place = BoundObject { namespace: "infra".into(), name: host.metadata.name.clone().unwrap() };
                    self.set_status(at, &Report::choosing(place), fate)
                }
                Association::Chosen(host) if host_claims::obstacle(host).is_none() => {
                    let patch = json!({"spec": {"consumerRef": host_claims::consumer(&one)}});
                    self.send(Write::Host(index(host), version(host), patch), fate)
                }
                Association::Chosen(_) | Association::Search => {
                    let (namespaces, selector) =
                        (BTreeSet::from(["infra".to_owned()]), Selector::of(&one.spec.host_selector).unwrap());
                    let search = Search { claim: &one, namespaces: &namespaces, selector: &selector };
                    match host_claims::choose(&search, observed.iter().map(|host| &host.0), |_| false) {
                        Choice::Host(place) => self.set_status(at, &Report::choosing(place), fate),
                        Choice::None(why) => {
                            self.set_status(at, &Report::without("NoBareMetalHost", why), fate);
                            false
                        }
                    }
                }
                Association::Lost => {
                    self.set_status(at, &Report::lost(&one), fate);
                    false
                }
            };
            if !goes_on {
                return;
            }
        }
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Look(claim, lag, fates) => self.look(claim, lag, fates),
            Act::Arrive(at) if at < self.late.len() => {
                let write = self.late.remove(at);
                self.carry_out(write);
            }
            Act::Lose(at) if at < self.late.len() => drop(self.late.remove(at)),
            Act::Arrive(_) | Act::Lose(_) => {}
            Act::Other(at) => {
                let Versioned(host, version) = self.hosts[at].clone();
                let kind = host.spec.consumer_ref.as_ref().and_then(|consumer| consumer.kind.clone());
                let patch = match kind.as_deref() {
                    None => json!({"spec": {"consumerRef": {"kind": "Metal3Machine", "name": "m"}}}),
                    Some("Metal3Machine") if host.spec.image.is_some() => return,
                    Some("Metal3Machine") => json!({"spec": {"consumerRef": null}}),
                    Some(_) => return,
                };
                self.carry_out(Write::Host(at, version, patch));
            }
            Act::Trouble(at) => {
                let Versioned(host, version) = self.hosts[at].clone();
                let well = host.status.as_ref().is_none_or(|status| status.error_message.is_empty());
                let patch = json!({"status": {"errorMessage": if well { "no" } else { "" }}});
                self.carry_out(Write::Host(at, version, patch));
            }
            Act::Give(at) => {
                let Versioned(host, version) = self.hosts[at].clone();
                if host.spec.image.is_some() {
                    self.past.push(self.hosts.clone());
                    let by = json!({"spec": {"consumerRef": {"kind": "Metal3Machine", "name": "m", "namespace": null, "uid": null, "apiVersion": null}}});
                    self.hosts[at] = Versioned(with(&host, &by), version + 1);
                }
            }
            Act::Renew(at) => {
                self.begun.retain(|(host, _)| *host != at);
                // With another uid and version: no write that was meant for the old one holds.
                let version = self.hosts[at].1 + 100;
                let name = self.hosts[at].0.metadata.name.clone().unwrap();
                self.past.push(self.hosts.clone());
                self.hosts[at] =
                    Versioned(with(&host(&name), &json!({"metadata": {"uid": format!("{name}-{version}")}})), version);
            }
        }
    }

    /// At every moment.
    fn is_sound(&self) {
        for Versioned(one, _) in &self.claims {
            let works =
                |host: &&Versioned<BareMetalHost>| host_claims::holds(&host.0, one) && host.0.spec.image.is_some();
            let count = self.hosts.iter().filter(works).count();
            assert!(count <= 1, "{:?} works on {count} hosts", one.metadata.name);
            let begun = self.begun.iter().filter(|(_, name)| Some(name) == one.metadata.name.as_ref()).count();
            assert!(begun <= 1, "work of {:?} was begun on {begun} hosts: {:?}", one.metadata.name, self.begun);
        }
        for Versioned(host, _) in &self.hosts {
            let ours = self.claims.iter().any(|one| host_claims::holds(host, &one.0));
            let given = host.spec.consumer_ref.as_ref().and_then(|by| by.kind.as_deref()) == Some("Metal3Machine");
            assert!(ours || given || host.spec.image.is_none(), "work on a host of nobody: {:?}", host.spec);
        }
    }
}

proptest! {
    #[test]
    fn no_claim_works_on_two_hosts_and_no_host_for_two_claims(acts in prop::collection::vec(act(), 1..60)) {
        let mut world = World::new();
        for act in acts {
            world.act(act);
            world.is_sound();
        }
        // Left alone, everything settles: no host names a claim that names another.
        for late in std::mem::take(&mut world.late) {
            world.carry_out(late);
            world.is_sound();
        }
        for _ in 0..6 {
            for at in 0..3 {
                world.look(at, 0, [Fate::Done; 4]);
                world.look(at, 0, [Fate::Done; 4]);
                world.is_sound();
            }
        }
        for one in &world.claims {
            let holding = world.hosts.iter().filter(|host| host_claims::holds(&host.0, &one.0)).count();
            prop_assert!(holding <= 1, "{:?} holds {holding} hosts", one.0.metadata.name);
        }
        let lost = |one: &HostClaim| one.condition("Associated").is_some_and(|found| found.reason == "MissingBareMetalHost");
        let free = world.hosts.iter().filter(|host| host_claims::obstacle(&host.0).is_none()).count();
        let waiting = world.claims.iter().filter(|one| one.0.condition("Associated").is_none_or(|c| c.status != "True") && !lost(&one.0)).count();
        prop_assert!(free == 0 || waiting == 0, "{waiting} claims wait, and {free} hosts are free");
    }
}
