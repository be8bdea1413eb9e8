//! Which labels classes may give, whose a label of a host is, and what is to be written.
//!
//! A host's annotation says which labels its classes have given it, with their values. A label that is there with another value, or that the annotation does
//! not have, is somebody else's: it is neither overwritten nor removed. Labels and annotation are written at once, so that a label whose class is gone is
//! found whenever the next look comes, without a finalizer.

use std::collections::BTreeMap;

use api::metal3::label;

/// Longest annotation that is read, bytes (Kubernetes' limit for all annotations of an object).
const MAX_LEDGER: usize = 256 << 10;

/// Domains whose labels have owners: these, and all below them.
const OWNED: [(&str, &str); 4] = [
    ("kubernetes.io", "Kubernetes"),
    ("k8s.io", "Kubernetes"),
    ("x-k8s.io", "Kubernetes' projects, such as Cluster API,"),
    ("metal3.io", "Metal³ and this program"),
];
/// Labels without a domain that have owners.
const TAKEN: [&str; 3] = [label::CLASS_ERROR, label::ERROR_DETECT, label::ENVIRONMENT];

/// Why a class may not give a label of this key; `None` if it may.
#[must_use]
pub fn refused(key: &str) -> Option<String> {
    if let Some(wrong) = names::qualified_name(key).into_iter().next() {
        return Some(wrong);
    }
    if TAKEN.contains(&key) {
        return Some("the label has a meaning to Metal³ and to this program: choose another key".to_owned());
    }
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let is_of = |owned: &str| domain.strip_suffix(owned).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    let (owned, owner) = OWNED.iter().find(|(owned, _)| is_of(owned))?;
    Some(format!("labels of {owned} are those of {owner}: choose a domain of your own, or none"))
}

/// Whether a label of this key can be one that a class has given.
fn may_be_given(key: &str) -> bool {
    matches!(key, label::FLAVOR | label::ROLE) || refused(key).is_none()
}

/// Labels with their values.
pub type Labels = BTreeMap<String, String>;

/// The labels that classes have given a host, by the class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger(BTreeMap<String, Labels>);

impl Ledger {
    /// What the annotation says. One that cannot be read says nothing, so that no label is taken for a class's; keys that no class can give are left out.
    #[must_use]
    pub fn read(annotation: Option<&str>) -> Self {
        let text = annotation.filter(|text| text.len() <= MAX_LEDGER).unwrap_or("{}");
        let mut all: BTreeMap<String, Labels> = serde_json::from_str(text).unwrap_or_default();
        all.values_mut().for_each(|labels| labels.retain(|key, _| may_be_given(key)));
        all.retain(|_, labels| !labels.is_empty());
        Self(all)
    }

    /// The annotation; `None` if there is nothing to say.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        if self.0.is_empty() {
            return None;
        }
        serde_json::to_string(&self.0).ok()
    }

    /// Whether a class has given the label this value.
    #[must_use]
    pub fn has_given(&self, key: &str, value: &str) -> bool {
        self.0.values().any(|labels| labels.get(key).is_some_and(|given| given == value))
    }

    /// The class that has given the label.
    #[must_use]
    pub fn giver(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(_, labels)| labels.contains_key(key)).map(|(class, _)| class.as_str())
    }

    fn of(&self, class: &str) -> impl Iterator<Item = (&String, &String)> {
        self.0.get(class).into_iter().flatten()
    }

    fn note(&mut self, class: &str, key: &str, value: &str) {
        self.0.entry(class.to_owned()).or_default().insert(key.to_owned(), value.to_owned());
    }
}

/// How a class stands to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stand {
    /// It gives its labels.
    Gives,
    /// It leaves the labels as they are: it is a preview, or nobody can judge by it.
    Keeps,
    /// It gives none.
    Drops,
}

/// A class before a host.
#[derive(Clone, Copy, Debug)]
pub struct Wish<'a> {
    /// Its name.
    pub class: &'a str,
    /// Its labels.
    pub labels: &'a Labels,
    /// How it stands to the host.
    pub stand: Stand,
}

/// A label that a host does not get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The class that would give it.
    pub class: String,
    /// Its key.
    pub key: String,
    /// The value that it would have.
    pub wanted: String,
    /// The value that it has, or is to have.
    pub found: String,
    /// The class that gives that value; `None` if somebody else does.
    pub by: Option<String>,
}

/// What is to be written to a host, and what cannot be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Labels that change: their values, or `None` for those that go.
    pub changes: BTreeMap<String, Option<String>>,
    /// What the annotation is to say.
    pub ledger: Ledger,
    /// Labels that the host does not get.
    pub conflicts: Vec<Conflict>,
}

struct Claim<'a> {
    class: &'a str,
    value: &'a str,
    keeps: bool,
}

/// What is to be written to a host with these labels, of which classes have given those of the ledger. `wishes` are all classes of its namespace, the eldest
/// first: of two that give a label different values the elder one has it. Labels of classes that are not among them go.
#[must_use]
pub fn plan(wishes: &[Wish<'_>], ledger: &Ledger, is: &Labels) -> Plan {
    let mut plan = Plan::default();
    let mut claims: BTreeMap<&str, Claim<'_>> = BTreeMap::new();
    for wish in wishes {
        let keeps = wish.stand == Stand::Keeps;
        let labels: Vec<(&String, &String)> = match wish.stand {
            Stand::Gives => wish.labels.iter().collect(),
            Stand::Keeps => ledger.of(wish.class).collect(),
            Stand::Drops => Vec::new(),
        };
        for (key, value) in labels {
            match claims.get(key.as_str()) {
                None => drop(claims.insert(key, Claim { class: wish.class, value, keeps })),
                Some(elder) if elder.value != value && !keeps => plan.conflicts.push(Conflict {
                    class: wish.class.to_owned(),
                    key: key.clone(),
                    wanted: value.clone(),
                    found: elder.value.to_owned(),
                    by: Some(elder.class.to_owned()),
                }),
                Some(_) => {}
            }
        }
    }
    for (key, claim) in &claims {
        let found = is.get(*key);
        let is_ours = found.is_none_or(|found| ledger.has_given(key, found));
        if claim.keeps {
            plan.ledger.note(claim.class, key, claim.value);
        } else if is_ours {
            if found.is_none_or(|found| found != claim.value) {
                plan.changes.insert((*key).to_owned(), Some(claim.value.to_owned()));
            }
            plan.ledger.note(claim.class, key, claim.value);
        } else if let Some(found) = found.filter(|found| *found != claim.value) {
            plan.conflicts.push(Conflict {
                class: claim.class.to_owned(),
                key: (*key).to_owned(),
                wanted: claim.value.to_owned(),
                found: found.clone(),
                by: None,
            });
        }
    }
    for (key, value) in ledger.0.values().flatten() {
        if !claims.contains_key(key.as_str()) && is.get(key) == Some(value) {
            plan.changes.insert(key.clone(), None);
        }
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_others_are_refused() {
        for (key, is) in [
            ("gpu", true),
            ("example.com/gpu", true),
            ("notkubernetes.io/gpu", true),
            ("kubernetes.io/arch", false),
            ("node-role.kubernetes.io/worker", false),
            ("topology.k8s.io/x", false),
            ("cluster.x-k8s.io/cluster-name", false),
            ("infrastructure.cluster.x-k8s.io/failure-domain", false),
            ("metal3.io/x", false),
            ("hardwareclassification.metal3.io/x", false),
            ("metamorph.metal3.io/flavor", false),
            ("metamorph.metal3.io/error-type", false),
            ("environment.metal3.io", false),
            ("hardwareclassification-error", false),
            ("error-detect", false),
            ("", false),
            ("a b", false),
            ("KUBERNETES.IO/x", false),
        ] {
            assert_eq!(refused(key).is_none(), is, "{key}: {:?}", refused(key));
        }
    }

    fn labels(all: &[(&str, &str)]) -> Labels {
        all.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn an_annotation_that_somebody_has_spoilt_gives_nothing_away() {
        for text in ["", "[]", "{\"a\":1}", "{\"a\":{\"k\":7}}", "nonsense"] {
            assert_eq!(Ledger::read(Some(text)), Ledger::default(), "{text}");
        }
        let forged = r#"{"a":{"kubernetes.io/arch":"x","cluster.x-k8s.io/cluster-name":"y"}}"#;
        assert_eq!(Ledger::read(Some(forged)), Ledger::default());
        let is = labels(&[("kubernetes.io/arch", "x")]);
        assert_eq!(plan(&[], &Ledger::read(Some(forged)), &is), Plan::default());
    }

    #[test]
    fn what_somebody_else_has_set_stays_and_is_told() {
        let wanted = labels(&[("gpu", "true")]);
        let gives = [Wish { class: "c", labels: &wanted, stand: Stand::Gives }];
        let theirs = plan(&gives, &Ledger::default(), &labels(&[("gpu", "no")]));
        assert!(theirs.changes.is_empty() && theirs.ledger == Ledger::default());
        assert_eq!((theirs.conflicts[0].found.as_str(), &theirs.conflicts[0].by), ("no", &None));
        // The same value: it is theirs, and stays when the class goes.
        let same = plan(&gives, &Ledger::default(), &labels(&[("gpu", "true")]));
        assert_eq!(same, Plan::default());
        // A label of ours that they have changed is theirs from then on.
        let given = Ledger::read(Some(r#"{"c":{"gpu":"true"}}"#));
        let changed = plan(&[], &given, &labels(&[("gpu", "no")]));
        assert_eq!(changed, Plan::default());
        assert_eq!(plan(&[], &given, &labels(&[("gpu", "true")])).changes, [("gpu".to_owned(), None)].into());
    }

    #[test]
    fn of_two_classes_the_elder_has_the_label_and_the_younger_is_told() {
        let (one, two) = (labels(&[("size", "large")]), labels(&[("size", "small"), ("x", "y")]));
        let wishes = |stand| {
            [Wish { class: "old", labels: &one, stand }, Wish { class: "young", labels: &two, stand: Stand::Gives }]
        };
        let both = plan(&wishes(Stand::Gives), &Ledger::default(), &Labels::new());
        assert_eq!(both.changes["size"].as_deref(), Some("large"));
        assert_eq!((both.conflicts[0].class.as_str(), both.conflicts[0].by.as_deref()), ("young", Some("old")));
        // The elder one goes: the younger takes the label over.
        let is = labels(&[("size", "large"), ("x", "y")]);
        let after = plan(&wishes(Stand::Drops), &both.ledger, &is);
        assert_eq!(after.changes, [("size".to_owned(), Some("small".to_owned()))].into());
        assert!(after.conflicts.is_empty());
        // A preview of the elder one keeps what it has given.
        let kept = plan(&wishes(Stand::Keeps), &both.ledger, &is);
        assert!(kept.changes.is_empty() && kept.conflicts.len() == 1);
        assert_eq!(kept.ledger, both.ledger);
    }
}
