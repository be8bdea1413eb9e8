//! Architectures of machines that this program boots.

use serde::{Deserialize, Serialize};

/// An architecture for which an agent image can be built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Architecture {
    /// 64-bit x86.
    #[default]
    #[serde(rename = "x86_64")]
    X86_64,
    /// 64-bit Arm.
    #[serde(rename = "aarch64")]
    Aarch64,
}

impl Architecture {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::X86_64, Self::Aarch64];

    /// As the kernel and `spec.architecture` name it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }

    /// By the kernel's name or Go's; `None` for others.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|architecture| same_architecture(architecture.as_str(), name))
    }
}

impl std::fmt::Display for Architecture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether two names are of one architecture: the kernel's (`x86_64`, `aarch64`) and Go's (`amd64`, `arm64`) are both in use.
#[must_use]
pub fn same_architecture(one: &str, other: &str) -> bool {
    fn kernels(name: &str) -> String {
        match name.to_ascii_lowercase().as_str() {
            "amd64" => "x86_64".to_owned(),
            "arm64" => "aarch64".to_owned(),
            other => other.to_owned(),
        }
    }
    kernels(one) == kernels(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_families_of_names_are_known() {
        for (name, known) in [
            ("x86_64", Some(Architecture::X86_64)),
            ("AMD64", Some(Architecture::X86_64)),
            ("aarch64", Some(Architecture::Aarch64)),
            ("arm64", Some(Architecture::Aarch64)),
            ("arm", None),
            ("", None),
        ] {
            assert_eq!(Architecture::named(name), known, "{name}");
        }
        for architecture in Architecture::ALL {
            assert_eq!(serde_json::to_value(architecture).unwrap(), architecture.as_str());
        }
    }
}
