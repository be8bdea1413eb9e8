//! The formats that have names (`library/format.go`).

/// A named format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    pub(crate) name: &'static str,
}

const NAMES: [&str; 13] = [
    "dns1123Label",
    "dns1123Subdomain",
    "dns1035Label",
    "qualifiedName",
    "dns1123LabelPrefix",
    "dns1123SubdomainPrefix",
    "dns1035LabelPrefix",
    "labelValue",
    "uri",
    "uuid",
    "byte",
    "date",
    "datetime",
];

impl Format {
    pub(crate) fn named(name: &str) -> Option<Self> {
        NAMES.iter().find(|n| **n == name).map(|name| Self { name })
    }

    /// The size that counts for the cost of validation: the length of upstream's pattern.
    pub(crate) fn max_regex_size(self) -> u64 {
        match self.name {
            "dns1123Label" | "dns1035Label" | "dns1123LabelPrefix" | "dns1035LabelPrefix" => 30,
            "labelValue" => 40,
            "uuid" => 70,
            "byte" => 84,
            "uri" => 1103,
            "date" | "datetime" => 71,
            _ => 60,
        }
    }
}
