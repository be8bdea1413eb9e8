//! Causes across hosts: «38 hosts, one cause: the image server».
//!
//! Each host's causes are put together by their code and by what hosts of that code have in common ([`Bond`]): the image's server, the BMCs' network, the
//! machines' model, the switch, the Secret, the part number. What that is for a host is told by whoever asks ([`Site`]); where it is not known, the code alone
//! counts. A bond is where to look first, and no proof that it is what has failed.
//!
//! Causes in the background are not counted. A host counts once in a group, whatever number of its parts has failed.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::Serialize;
use terms::clean;

use crate::codes::{Code, Fixer, Group};

/// Most groups that are kept; hosts of further ones are counted in [`Overview::beyond`].
pub const MAX_GROUPS: usize = 1000;
/// Longest text of a group, characters.
const MAX_TEXT: usize = 300;
/// Longest code, name of a host or of what hosts have in common, characters.
const MAX_NAME: usize = 320;

/// What hosts that show the same code may have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Bond {
    /// The server of the image.
    ImageServer,
    /// The image itself.
    Image,
    /// The network of the BMCs.
    BmcNetwork,
    /// Maker and model of the machine.
    Model,
    /// The Secret with the BMC's credentials.
    Credentials,
    /// The switch that the machine's ports tell of.
    Switch,
    /// The part number.
    PartNumber,
}

impl Bond {
    /// What it is called in a sentence.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::ImageServer => "image server",
            Self::Image => "image",
            Self::BmcNetwork => "BMCs in",
            Self::Model => "model",
            Self::Credentials => "Secret",
            Self::Switch => "switch",
            Self::PartNumber => "part number",
        }
    }
}

impl Code {
    /// What the hosts that show it are compared by. `None`: nothing of a host says more than the code.
    #[must_use]
    pub const fn bond(self) -> Option<Bond> {
        match self {
            Self::SecretInvalid | Self::CredentialsWrong => Some(Bond::Credentials),
            Self::ImageDenied
            | Self::ImageUnavailable
            | Self::ImageNameUnknown
            | Self::ImageTlsRefused
            | Self::ImageUnreachableFromHost => Some(Bond::ImageServer),
            Self::SecureBootRefused | Self::StuckInOsStart => Some(Bond::Image),
            _ => match (self.group(), self.fixer()) {
                (Group::Image, _) => Some(Bond::Image),
                (Group::Access | Group::Media, Fixer::Network) => Some(Bond::BmcNetwork),
                (Group::Agent, Fixer::Network) => Some(Bond::Switch),
                (Group::Memory | Group::Processor | Group::Card | Group::Disk, Fixer::Hardware) => {
                    Some(Bond::PartNumber)
                }
                // Supplies without input share a circuit, which nobody here knows.
                (Group::Power | Group::Thermal, Fixer::Hardware) | (Group::Configuration | Group::Own, _) => None,
                _ => Some(Bond::Model),
            },
        }
    }
}

/// What a host may have in common with others, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// Host and port of the image's server.
    pub image_server: Option<String>,
    /// Address of the image, without secrets.
    pub image: Option<String>,
    /// Network or domain of the BMC's address.
    pub bmc_network: Option<String>,
    /// Maker and model.
    pub model: Option<String>,
    /// Namespace and name of the Secret with the BMC's credentials.
    pub credentials: Option<String>,
    /// Switches that its ports tell of.
    pub switch: Option<String>,
}

impl Site {
    fn of(&self, bond: Bond, part_number: Option<&str>) -> Option<String> {
        let known = match bond {
            Bond::ImageServer => self.image_server.as_deref(),
            Bond::Image => self.image.as_deref(),
            Bond::BmcNetwork => self.bmc_network.as_deref(),
            Bond::Model => self.model.as_deref(),
            Bond::Credentials => self.credentials.as_deref(),
            Bond::Switch => self.switch.as_deref(),
            Bond::PartNumber => part_number,
        };
        known.map(|known| clean(known, MAX_NAME)).filter(|known| !known.is_empty())
    }
}

/// One cause of a host, as its object tells it: any of its texts may be anybody's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Its class; of another version perhaps.
    pub code: String,
    /// What the class means.
    pub meaning: String,
    /// Who puts it right.
    pub fixer: String,
    /// What to do.
    pub advice: String,
    /// How sure it is.
    pub certainty: String,
    /// It does not explain the error.
    pub background: bool,
    /// Part number of the part that it is about.
    pub part_number: Option<String>,
}

/// What hosts have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Common {
    /// By what they were compared.
    pub by: Bond,
    /// What it is.
    pub name: String,
}

/// Hosts with one cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Shared {
    /// The class.
    pub code: String,
    /// What they have in common beside it, if that is known.
    pub common: Option<Common>,
    /// What the class means.
    pub meaning: String,
    /// Who puts it right.
    pub fixer: String,
    /// What to do.
    pub advice: String,
    /// Hosts, in order of their names.
    pub hosts: BTreeSet<String>,
    /// Of how many it is the best explanation.
    pub first: usize,
    /// Of how many it is certain.
    pub certain: usize,
    /// When the first of them was diagnosed.
    pub since: Option<Timestamp>,
    /// When the last was.
    pub until: Option<Timestamp>,
}

/// The causes of many hosts, put together.
#[derive(Clone, Debug, Default)]
pub struct Overview {
    groups: BTreeMap<(String, Option<Common>), Shared>,
    /// Causes that had no room.
    beyond: usize,
}

impl Overview {
    /// Adds a host that was diagnosed at this time, with its causes, the best explanation first. False: none of them explains its error.
    pub fn add(&mut self, host: &str, site: &Site, causes: &[Told], at: Option<Timestamp>) -> bool {
        let host = clean(host, MAX_NAME);
        let mut explained = false;
        for told in causes.iter().filter(|told| !told.background) {
            let is_first = !explained;
            explained = true;
            self.count(&host, site, told, is_first, at);
        }
        explained
    }

    fn count(&mut self, host: &str, site: &Site, told: &Told, is_first: bool, at: Option<Timestamp>) {
        let code = clean(&told.code, MAX_NAME);
        let known = Code::ALL.iter().find(|known| known.as_str() == code);
        let bond = known.and_then(|known| known.bond());
        let common = bond.and_then(|by| Some(Common { by, name: site.of(by, told.part_number.as_deref())? }));
        let key = (code.clone(), common.clone());
        if !self.groups.contains_key(&key) && self.groups.len() >= MAX_GROUPS {
            self.beyond = self.beyond.saturating_add(1);
            return;
        }
        let shared = self.groups.entry(key).or_insert_with(|| Shared {
            code,
            common,
            meaning: clean(&told.meaning, MAX_TEXT),
            fixer: clean(&told.fixer, MAX_TEXT),
            // What is said of one part is not said of the others'.
            advice: known
                .map_or_else(|| clean(&told.advice, MAX_TEXT), |known| known.advice().replace("{part}", "the part")),
            hosts: BTreeSet::new(),
            first: 0,
            certain: 0,
            since: None,
            until: None,
        });
        shared.since = [shared.since, at].into_iter().flatten().min();
        shared.until = shared.until.max(at);
        if shared.hosts.insert(host.to_owned()) {
            shared.certain += usize::from(told.certainty == "Certain");
        }
        shared.first += usize::from(is_first);
    }

    /// Causes that are in none of the groups, because there are too many.
    #[must_use]
    pub const fn beyond(&self) -> usize {
        self.beyond
    }

    /// The groups: most hosts first, of the same number the one that explains more of them.
    #[must_use]
    pub fn groups(self) -> Vec<Shared> {
        let mut groups: Vec<Shared> = self.groups.into_values().collect();
        groups.sort_by_key(|group| {
            let size = std::cmp::Reverse((group.hosts.len(), group.first));
            (size, group.code.clone(), group.common.clone())
        });
        groups
    }
}
