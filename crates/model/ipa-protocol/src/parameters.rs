//! What the agent is told when it starts: kernel parameters, and `parameters.txt` of a medium, which goes before them
//! (`A:utils.py`, `get_agent_params`; `A:config.py`).

use std::collections::BTreeMap;
use std::time::Duration;

use thiserror::Error;

use crate::{MAX_PARAMETERS_BYTES, Secret};

/// Most parameters.
const MAX_PARAMETERS: usize = 512;

/// Most addresses in a list of them.
const MAX_URLS: usize = 8;

/// Parameters by name. `Debug` shows names alone: the token is one of the values.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Parameters(BTreeMap<String, String>);

/// Why parameters were not read or written.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ParametersError {
    /// Too many bytes or parameters.
    #[error("the parameters are longer than {MAX_PARAMETERS_BYTES} bytes, or more than {MAX_PARAMETERS}")]
    TooLong,
    /// A command line cannot carry it.
    #[error(
        "the kernel parameter {name:?} cannot be written: name and value have no blanks, control characters or quotes"
    )]
    NotWritable {
        /// Its name.
        name: String,
    },
}

impl std::fmt::Debug for Parameters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Parameters").field(&self.0.keys().collect::<Vec<_>>()).finish()
    }
}

impl Parameters {
    /// Reads `name=value` between blanks, from `/proc/cmdline` or `parameters.txt`. Words without `=` are passed over, and of a name that comes
    /// twice the last value counts.
    ///
    /// # Errors
    /// [`ParametersError::TooLong`].
    pub fn parse(text: &str) -> Result<Self, ParametersError> {
        if text.len() > MAX_PARAMETERS_BYTES {
            return Err(ParametersError::TooLong);
        }
        let mut found = BTreeMap::new();
        for (name, value) in text.split_whitespace().filter_map(|word| word.split_once('=')) {
            found.insert(name.to_owned(), value.to_owned());
        }
        if found.len() > MAX_PARAMETERS { Err(ParametersError::TooLong) } else { Ok(Self(found)) }
    }

    /// These, and over them `others`.
    #[must_use]
    pub fn overridden_by(mut self, others: Self) -> Self {
        self.0.extend(others.0);
        self
    }

    /// Sets one.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        self.0.insert(name.to_owned(), value.into());
    }

    /// One of them.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// All, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// As words of a command line.
    ///
    /// # Errors
    /// [`ParametersError::NotWritable`].
    pub fn to_command_line(&self) -> Result<String, ParametersError> {
        self.written(" ")
    }

    /// As `parameters.txt` (`I:drivers/modules/image_utils.py`).
    ///
    /// # Errors
    /// [`ParametersError::NotWritable`].
    pub fn to_file(&self) -> Result<String, ParametersError> {
        self.written("\n")
    }

    fn written(&self, between: &str) -> Result<String, ParametersError> {
        let is_sound = |text: &str| !text.chars().any(|c| c.is_whitespace() || c.is_control() || c == '"');
        let words = self.0.iter().map(|(name, value)| {
            if is_sound(name) && is_sound(value) && !name.is_empty() && !name.contains('=') {
                Ok(format!("{name}={value}"))
            } else {
                Err(ParametersError::NotWritable { name: name.chars().take(64).collect() })
            }
        });
        Ok(words.collect::<Result<Vec<_>, _>>()?.join(between))
    }

    /// `ipa-api-url`: addresses of Ironic, to be tried in order, without a slash at their end. Neither `mdns` nor what is no HTTP address is one.
    #[must_use]
    pub fn api_urls(&self) -> Vec<String> {
        self.urls("ipa-api-url")
    }

    /// `ipa-inspection-callback-url`: where inspection data go.
    #[must_use]
    pub fn inspection_urls(&self) -> Vec<String> {
        self.urls("ipa-inspection-callback-url")
    }

    fn urls(&self, name: &str) -> Vec<String> {
        let given = self.get(name).unwrap_or_default().split(',').map(|url| url.trim().trim_end_matches('/'));
        let is_http = |url: &&str| url.starts_with("http://") || url.starts_with("https://");
        given.filter(is_http).take(MAX_URLS).map(str::to_owned).collect()
    }

    /// `ipa-agent-token`: the token, if it is on the medium.
    #[must_use]
    pub fn token(&self) -> Option<Secret> {
        self.get("ipa-agent-token").filter(|token| token.len() >= crate::MIN_TOKEN).map(Secret::new)
    }

    /// `ipa-insecure`: certificates of Ironic and of image servers are not verified.
    #[must_use]
    pub fn insecure(&self) -> bool {
        self.is_true("ipa-insecure")
    }

    /// `ipa-ignore-bootloader-failure`.
    #[must_use]
    pub fn ignores_bootloader_failure(&self) -> bool {
        self.is_true("ipa-ignore-bootloader-failure")
    }

    /// Words that count as true (oslo.config's `Boolean`).
    fn is_true(&self, name: &str) -> bool {
        let value = self.get(name).unwrap_or_default().to_ascii_lowercase();
        ["1", "true", "on", "yes"].contains(&value.as_str())
    }

    /// `ipa-inspection-collectors`: what inspection is to collect, `default` without the parameter.
    #[must_use]
    pub fn collectors(&self) -> Vec<String> {
        let given = self.get("ipa-inspection-collectors").unwrap_or("default");
        given.split(',').map(str::trim).filter(|name| !name.is_empty()).take(32).map(str::to_owned).collect()
    }

    /// Whether the agent is to inspect the machine by itself (`A:inspector.py`, `inspect`).
    #[must_use]
    pub fn inspects(&self) -> bool {
        !self.inspection_urls().is_empty()
            || (self.get("ipa-inspection-collectors").is_some_and(|names| !names.is_empty())
                && !self.api_urls().is_empty())
    }

    /// `BOOTIF`: hardware address of the interface that the machine was booted by, lower case with colons.
    #[must_use]
    pub fn boot_mac(&self) -> Option<String> {
        let given = self.get("BOOTIF")?;
        let mac = if given.contains('-') { given.split_once('-')?.1.replace('-', ":") } else { given.to_owned() };
        Some(mac.to_ascii_lowercase())
    }

    /// Whether the agent was booted from virtual media.
    #[must_use]
    pub fn is_virtual_media(&self) -> bool {
        self.get("boot_method") == Some("vmedia")
    }

    /// `ipa-global-request-id`, which goes into `X-OpenStack-Request-ID`; letters, digits and `-` alone.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        let is_id = |id: &&str| id.len() <= 64 && id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        self.get("ipa-global-request-id").filter(is_id)
    }

    /// Port of the agent's API, and the port that Ironic is told (`ipa-listen-port`, `ipa-advertise-port`). Where the first is 0 the system gives
    /// one, of many agents on one machine for instance; Ironic is told that one unless another is named (none).
    #[must_use]
    pub fn ports(&self) -> (u16, Option<u16>) {
        let port = |name: &str| self.get(name).and_then(|port| port.parse::<u16>().ok());
        let advertised = port("ipa-advertise-port").filter(|port| *port != 0);
        match port("ipa-listen-port") {
            Some(0) => (0, advertised),
            listen => (listen.unwrap_or(crate::AGENT_PORT), Some(advertised.unwrap_or(crate::AGENT_PORT))),
        }
    }

    /// `ipa-lookup-timeout`: how long a node is looked for, 600 s without the parameter, a day at most.
    #[must_use]
    pub fn lookup_timeout(&self) -> Duration {
        let seconds = self.get("ipa-lookup-timeout").and_then(|seconds| seconds.parse().ok()).unwrap_or(600);
        Duration::from_secs(seconds).min(Duration::from_secs(86_400))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_read_and_a_medium_goes_before_it() {
        let line = "BOOT_IMAGE=/vmlinuz quiet ipa-api-url=http://a:6385/,mdns,https://b ipa-insecure=1 BOOTIF=01-52-54-00-AB-cd-ef \
                    ipa-agent-token=short boot_method=vmedia ipa-global-request-id=req-1";
        let read = Parameters::parse(line).unwrap();
        assert_eq!(read.api_urls(), ["http://a:6385", "https://b"]);
        assert_eq!(read.boot_mac().as_deref(), Some("52:54:00:ab:cd:ef"));
        assert!(read.insecure() && read.is_virtual_media() && read.token().is_none() && !read.inspects());
        assert_eq!((read.request_id(), read.ports()), (Some("req-1"), (9999, Some(9999))));
        let token = "t".repeat(43);
        let medium =
            Parameters::parse(&format!("ipa-agent-token={token}\nipa-insecure=0\nipa-lookup-timeout=9\n")).unwrap();
        let both = read.overridden_by(medium);
        assert!(both.token().is_some_and(|found| found.is(&token)) && !both.insecure());
        assert_eq!(both.lookup_timeout(), Duration::from_secs(9));
        assert!(!format!("{both:?}").contains(&token));
    }

    #[test]
    fn ironic_is_told_the_port_that_it_reaches() {
        let ports = |line: &str| Parameters::parse(line).unwrap().ports();
        assert_eq!(ports("ipa-listen-port=0"), (0, None), "the one that the system gives");
        assert_eq!(ports("ipa-listen-port=0 ipa-advertise-port=8000"), (0, Some(8000)));
        assert_eq!(ports("ipa-listen-port=8000"), (8000, Some(9999)), "as ironic-python-agent has it");
        assert_eq!(ports("ipa-listen-port=x ipa-advertise-port=0"), (9999, Some(9999)));
    }

    #[test]
    fn what_asks_for_inspection_is_told_from_what_does_not() {
        let inspects = |line: &str| Parameters::parse(line).unwrap().inspects();
        assert!(inspects("ipa-inspection-callback-url=http://a/v1/continue_inspection"));
        assert!(inspects("ipa-api-url=http://a ipa-inspection-collectors=default,logs"));
        assert!(!inspects("ipa-api-url=http://a") && !inspects("ipa-inspection-collectors=default"));
    }

    #[test]
    fn what_a_command_line_cannot_carry_is_not_written() {
        let mut wanted = Parameters::default();
        wanted.set("a", "1");
        wanted.set("b", "x=y");
        assert_eq!(wanted.to_command_line().unwrap(), "a=1 b=x=y");
        assert_eq!(wanted.to_file().unwrap(), "a=1\nb=x=y");
        for (name, value) in [("c", "two words"), ("c", "a\nb"), ("c", "a\"b"), ("c d", "1"), ("", "1"), ("c=d", "1")] {
            let mut bad = wanted.clone();
            bad.set(name, value);
            assert!(bad.to_command_line().is_err(), "{name}={value}");
        }
        let many: String = (0..=MAX_PARAMETERS).map(|number| format!("p{number}=1 ")).collect();
        assert_eq!(Parameters::parse(&many), Err(ParametersError::TooLong));
        assert_eq!(Parameters::parse(&"x".repeat(MAX_PARAMETERS_BYTES + 1)), Err(ParametersError::TooLong));
    }
}
