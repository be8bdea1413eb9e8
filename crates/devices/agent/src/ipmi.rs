//! Where a BMC says it is, by IPMI over the machine's own interface to it.
//!
//! Source: Intelligent Platform Management Interface specification 2.0 (revision 1.1 with errata 7): 22.24 Get Channel Info, 23.2 Get LAN Configuration
//! Parameters with table 23-4. Only these two commands are sent: they change nothing. The answers are read as hostile input.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use agent_protocol::{AddressSource, LanChannel, MAX_CHANNELS, MAX_IPV6, MAX_SAID};

/// A BMC that takes commands.
pub trait Ipmi {
    /// Sends a request and returns the answer's bytes, of which the first is the completion code.
    ///
    /// # Errors
    /// No answer, in a bounded time.
    fn ask(&mut self, function: u8, command: u8, data: &[u8]) -> io::Result<Vec<u8>>;
}

/// Network functions.
const APPLICATION: u8 = 0x06;
const TRANSPORT: u8 = 0x0c;
const GET_CHANNEL_INFO: u8 = 0x42;
const GET_LAN_PARAMETER: u8 = 0x02;
/// Medium of a channel: IEEE 802.3.
const ETHERNET: u8 = 4;
/// Channels that a BMC may have beside the system's own.
const CHANNELS: std::ops::RangeInclusive<u8> = 1..=11;
/// The channel that BMCs without channel information have for their network.
const USUAL: u8 = 1;

/// Parameters of table 23-4.
const ADDRESS: u8 = 3;
const SOURCE: u8 = 4;
const MAC: u8 = 5;
const NETMASK: u8 = 6;
const VLAN: u8 = 20;
const FAMILIES: u8 = 51;
const IPV6_STATUS: u8 = 55;
const IPV6_STATIC: u8 = 56;
const IPV6_DYNAMIC: u8 = 59;

/// What a BMC says of its network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Its channels.
    pub channels: Vec<LanChannel>,
    /// What it would not say, a sentence each.
    pub said: Vec<String>,
}

/// Asks a BMC for the addresses of its network channels. Ends at the first request that is not answered: each costs seconds.
pub fn network(bmc: &mut dyn Ipmi) -> Found {
    let mut found = Found::default();
    let mut asked = Asked { bmc, silent: None };
    let (mut lans, mut answered) = (Vec::new(), false);
    for channel in CHANNELS {
        match asked.ask(APPLICATION, GET_CHANNEL_INFO, &[channel]) {
            Answer::Data(data) => {
                answered = true;
                if data.first().is_some_and(|number| number & 0x0f == channel)
                    && data.get(1).is_some_and(|medium| medium & 0x7f == ETHERNET)
                {
                    lans.push(channel);
                }
            }
            Answer::Refused(_) => {}
            Answer::Silent => break,
        }
    }
    if !answered {
        lans.push(USUAL);
    }
    if lans.len() > MAX_CHANNELS {
        found.said.push(format!("the BMC has {} network channels, {MAX_CHANNELS} are looked at", lans.len()));
    }
    for channel in lans.into_iter().take(MAX_CHANNELS) {
        match asked.channel(channel) {
            Ok(one) if one.ipv4.is_none() && one.ipv6.is_empty() && one.mac.is_none() => {}
            Ok(one) => found.channels.push(one),
            Err(code) => found
                .said
                .push(format!("the BMC refuses the address of its channel {channel} (completion code {code:02X}h)")),
        }
    }
    if let Some(error) = asked.silent {
        found.said.push(format!("the BMC does not answer by its local interface: {error}"));
    }
    found.said.truncate(MAX_SAID);
    found
}

/// What has come of a request.
enum Answer {
    /// The data behind the completion code.
    Data(Vec<u8>),
    /// The completion code.
    Refused(u8),
    /// None, now or before.
    Silent,
}

struct Asked<'a> {
    bmc: &'a mut dyn Ipmi,
    silent: Option<String>,
}

impl Asked<'_> {
    fn ask(&mut self, function: u8, command: u8, data: &[u8]) -> Answer {
        if self.silent.is_some() {
            return Answer::Silent;
        }
        match self.bmc.ask(function, command, data) {
            Ok(answer) => match answer.split_first() {
                Some((0, data)) => Answer::Data(data.to_vec()),
                Some((code, _)) => Answer::Refused(*code),
                None => Answer::Refused(0xff),
            },
            Err(error) => {
                self.silent = Some(error.to_string());
                Answer::Silent
            }
        }
    }

    /// A parameter's data behind its revision.
    fn parameter(&mut self, channel: u8, parameter: u8, set: u8) -> Result<Vec<u8>, u8> {
        match self.ask(TRANSPORT, GET_LAN_PARAMETER, &[channel, parameter, set, 0]) {
            Answer::Data(data) => Ok(data.get(1..).unwrap_or_default().to_vec()),
            Answer::Refused(code) => Err(code),
            Answer::Silent => Ok(Vec::new()),
        }
    }

    /// A parameter that a BMC need not have.
    fn optional(&mut self, channel: u8, parameter: u8, set: u8) -> Vec<u8> {
        self.parameter(channel, parameter, set).unwrap_or_default()
    }

    fn channel(&mut self, channel: u8) -> Result<LanChannel, u8> {
        let address = self.parameter(channel, ADDRESS, 0)?;
        let source = match self.optional(channel, SOURCE, 0).first().map(|byte| byte & 0x0f) {
            Some(1) => AddressSource::Static,
            Some(2) => AddressSource::Dhcp,
            Some(3 | 4) => AddressSource::Other,
            _ => AddressSource::Unknown,
        };
        let mac = self.optional(channel, MAC, 0).first_chunk::<6>().filter(|mac| **mac != [0; 6]).map(mac_text);
        let netmask = ipv4(&self.optional(channel, NETMASK, 0));
        let vlan = self.optional(channel, VLAN, 0).first_chunk::<2>().and_then(vlan);
        // Families in use: 0 is IPv4 alone; a BMC without this parameter has no IPv6.
        let has_ipv6 = self.optional(channel, FAMILIES, 0).first().is_some_and(|families| matches!(families, 1 | 2));
        let ipv6 = if has_ipv6 { self.ipv6(channel) } else { Vec::new() };
        Ok(LanChannel { channel, source, ipv4: ipv4(&address), netmask, mac, vlan, ipv6 })
    }

    fn ipv6(&mut self, channel: u8) -> Vec<IpAddr> {
        let counts = self.optional(channel, IPV6_STATUS, 0);
        let mut found = Vec::new();
        for (parameter, count) in [IPV6_STATIC, IPV6_DYNAMIC].into_iter().zip(counts) {
            for set in (0..count).take(MAX_IPV6) {
                let data = self.optional(channel, parameter, set);
                if let Some(address) = ipv6(parameter, set, &data)
                    && found.len() < MAX_IPV6
                    && !found.contains(&address)
                {
                    found.push(address);
                }
            }
        }
        found
    }
}

fn ipv4(data: &[u8]) -> Option<Ipv4Addr> {
    data.first_chunk::<4>().filter(|bytes| **bytes != [0; 4]).map(|bytes| Ipv4Addr::from(*bytes))
}

fn mac_text(mac: &[u8; 6]) -> String {
    mac.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

/// Twelve bits of number, and whether it is in use.
fn vlan([low, high]: &[u8; 2]) -> Option<u16> {
    (high & 0x80 != 0).then(|| (u16::from(high & 0x0f) << 8) | u16::from(*low))
}

/// Set selector, source (with a bit of a static address that is enabled), 16 bytes of address, length of its prefix, status: 0 is active.
fn ipv6(parameter: u8, set: u8, data: &[u8]) -> Option<IpAddr> {
    let (&[selector, source], rest) = data.split_first_chunk::<2>()?;
    let (address, rest) = rest.split_first_chunk::<16>()?;
    let is_enabled = parameter != IPV6_STATIC || source & 0x80 != 0;
    let is_active = rest.get(1) == Some(&0);
    let address = Ipv6Addr::from(*address);
    let is_usable = !address.is_unspecified() && !address.is_multicast() && !address.is_unicast_link_local();
    (selector == set && is_enabled && is_active && is_usable).then_some(IpAddr::V6(address))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Answers by request, as recorded; all else is refused as unknown.
    #[derive(Default)]
    struct Recorded {
        answers: BTreeMap<(u8, u8, Vec<u8>), Vec<u8>>,
        asked: usize,
        silent: bool,
    }

    impl Recorded {
        fn says(mut self, function: u8, command: u8, data: &[u8], answer: &str) -> Self {
            self.answers.insert((function, command, data.to_vec()), hex::decode(answer).unwrap());
            self
        }

        fn lan(self, parameter: u8, set: u8, answer: &str) -> Self {
            self.says(0x0c, 2, &[1, parameter, set, 0], answer)
        }
    }

    impl Ipmi for Recorded {
        fn ask(&mut self, function: u8, command: u8, data: &[u8]) -> io::Result<Vec<u8>> {
            self.asked += 1;
            if self.silent {
                return Err(io::Error::other("no answer within 5 s"));
            }
            Ok(self.answers.get(&(function, command, data.to_vec())).cloned().unwrap_or(vec![0xcc]))
        }
    }

    /// As OpenIPMI's `ipmi_sim` 2.0.33 answers, with a network by its `lan_config_program`.
    fn recorded() -> Recorded {
        Recorded::default()
            .says(6, 0x42, &[1], "0001040180f21b000000")
            .lan(3, 0, "00117f000001")
            .lan(4, 0, "001101")
            .lan(5, 0, "0011525400aabbcc")
            .lan(6, 0, "0011ff000000")
            .lan(20, 0, "00110000")
            .lan(51, 0, "80")
    }

    #[test]
    fn a_recorded_bmc_tells_where_it_is() {
        let found = network(&mut recorded());
        let [one] = found.channels.as_slice() else { panic!("{found:?}") };
        assert_eq!((one.channel, one.source, one.ipv4), (1, AddressSource::Static, Some(Ipv4Addr::LOCALHOST)));
        assert_eq!((one.mac.as_deref(), one.vlan), (Some("52:54:00:aa:bb:cc"), None));
        assert_eq!((one.netmask, one.ipv6.len(), found.said.len()), (Some([255, 0, 0, 0].into()), 0, 0));
    }

    #[test]
    fn a_vlan_and_ipv6_are_told_where_they_are_in_use() {
        let address = |set: &str, source: &str, last: &str, status: &str| {
            format!("0011{set}{source}20010db80000000000000000000000{last}40{status}")
        };
        let mut bmc = recorded()
            .lan(20, 0, "00116480")
            .lan(51, 0, "001102")
            .lan(55, 0, "00110202ff")
            .lan(56, 0, &address("00", "80", "01", "00"))
            // Not enabled; another set than was asked for; not active; link-local.
            .lan(56, 1, &address("01", "00", "02", "00"))
            .lan(59, 0, &address("05", "02", "03", "00"))
            .lan(59, 1, &address("01", "02", "04", "03"));
        let found = network(&mut bmc);
        assert_eq!(found.channels[0].vlan, Some(100));
        let expected: Vec<IpAddr> = vec!["2001:db8::1".parse().unwrap()];
        assert_eq!(found.channels[0].ipv6, expected);
    }

    #[test]
    fn a_bmc_without_channel_information_has_the_usual_channel() {
        let mut bmc = Recorded::default().lan(3, 0, "0011c0000207");
        assert_eq!(network(&mut bmc).channels[0].ipv4, Some([192, 0, 2, 7].into()));
        let found = network(&mut Recorded::default());
        assert!(found.channels.is_empty() && found.said[0].contains("CCh"), "{found:?}");
    }

    #[test]
    fn a_bmc_that_is_silent_is_asked_once() {
        let mut bmc = Recorded { silent: true, ..recorded() };
        let found = network(&mut bmc);
        assert_eq!(bmc.asked, 1);
        assert!(found.said.iter().any(|said| said.contains("no answer within 5 s")), "{found:?}");
        assert!(found.channels.is_empty());
    }

    /// Answers the same bytes to everything.
    struct Same(Vec<u8>, usize);

    impl Ipmi for Same {
        fn ask(&mut self, _: u8, _: u8, _: &[u8]) -> io::Result<Vec<u8>> {
            self.1 += 1;
            Ok(self.0.clone())
        }
    }

    proptest! {
        #[test]
        fn no_answer_makes_it_fail_or_go_on_for_ever(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let mut bmc = Same(bytes, 0);
            let found = network(&mut bmc);
            prop_assert!(found.channels.len() <= MAX_CHANNELS && bmc.1 <= 11 + MAX_CHANNELS * (7 + 2 * MAX_IPV6));
            prop_assert!(found.channels.iter().all(|channel| channel.ipv6.len() <= MAX_IPV6));
        }
    }
}
