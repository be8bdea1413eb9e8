//! Which fields of a node a BMC address becomes (`pkg/hardwareutils/bmc` of baremetal-operator at 02aa505: 23 schemes).

use serde_json::{Map, Value};

/// Longest address that is looked at, bytes.
const MAX_ADDRESS: usize = 2048;

/// What a scheme stands for.
#[derive(Debug, PartialEq, Eq)]
pub struct Driver {
    /// Hardware type.
    pub driver: &'static str,
    /// BIOS, management, power and vendor interface, where they are not the type's own.
    pub own: Option<&'static str>,
    /// How it boots; nothing: the type's own.
    pub boot: Option<&'static str>,
    /// How volumes are made; nothing: the type's own.
    pub raid: Option<&'static str>,
    /// How firmware is updated.
    pub firmware: Option<&'static str>,
    /// How it is inspected by its BMC alone.
    pub fast: Option<&'static str>,
    /// How it is inspected otherwise; nothing: the type's own.
    pub inspect: Option<&'static str>,
    /// Deploy interfaces are named: live ISOs and deploy methods of one's own are served.
    pub deploys: bool,
    /// It switches Secure Boot.
    pub secure_boot: bool,
    /// It boots an ISO image of the agent, and needs no network for that.
    pub iso: bool,
    /// It needs `spec.bootMACAddress`.
    pub needs_mac: bool,
    /// It is reached by Redfish.
    pub redfish: bool,
}

const IPMI: Driver = Driver {
    driver: "ipmi",
    own: None,
    boot: Some("ipxe"),
    raid: Some("no-raid"),
    firmware: None,
    fast: None,
    inspect: Some("agent"),
    deploys: true,
    secure_boot: false,
    iso: false,
    needs_mac: false,
    redfish: false,
};
const LIBVIRT: Driver = Driver { needs_mac: true, ..IPMI };
const REDFISH: Driver = Driver {
    driver: "redfish",
    raid: Some("redfish"),
    firmware: Some("redfish"),
    fast: Some("redfish"),
    secure_boot: true,
    redfish: true,
    ..IPMI
};
const REDFISH_MEDIA: Driver = Driver { boot: Some("redfish-virtual-media"), iso: true, ..REDFISH };
const REDFISH_HTTPS: Driver = Driver { boot: Some("redfish-https"), iso: true, ..REDFISH };
const IDRAC: Driver = Driver { driver: "idrac", own: Some("idrac-redfish"), raid: Some("idrac-redfish"), ..REDFISH };
const IDRAC_MEDIA: Driver = Driver { boot: Some("idrac-redfish-virtual-media"), iso: true, ..IDRAC };
/// Ironic's own hardware that does nothing, whatever the scheme: to try an Ironic with.
const FAKE: Driver = Driver {
    driver: "fake-hardware",
    own: None,
    boot: None,
    raid: None,
    firmware: None,
    fast: None,
    inspect: None,
    deploys: false,
    secure_boot: false,
    iso: true,
    needs_mac: false,
    redfish: false,
};

/// An address that a node can be made with.
#[derive(Debug, PartialEq, Eq)]
pub struct Address {
    /// What its scheme stands for.
    pub driver: &'static Driver,
    /// Its scheme, in lower case.
    pub scheme: String,
    /// `host[:port]`.
    authority: String,
    host: String,
    port: Option<u16>,
    path: String,
    privilege: Option<String>,
    secure: bool,
}

fn driver_of(scheme: &str) -> Option<(&'static Driver, bool)> {
    let (base, suffix) = scheme.split_once('+').map_or((scheme, None), |(base, suffix)| (base, Some(suffix)));
    let secure = match suffix {
        None | Some("https") => true,
        Some("http") => false,
        Some(_) => return None,
    };
    let driver = match base {
        "ipmi" if suffix.is_none() => &IPMI,
        "libvirt" if suffix.is_none() => &LIBVIRT,
        "redfish" | "ilo5-redfish" => &REDFISH,
        "redfish-virtualmedia" | "ilo5-virtualmedia" => &REDFISH_MEDIA,
        "redfish-uefihttp" => &REDFISH_HTTPS,
        "idrac-redfish" => &IDRAC,
        "idrac-virtualmedia" => &IDRAC_MEDIA,
        _ => return None,
    };
    Some((driver, secure))
}

fn host_fault(host: &str) -> Option<String> {
    if host.parse::<std::net::IpAddr>().is_ok() {
        return None;
    }
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let fits = host.len() <= 253 && host.strip_suffix('.').unwrap_or(host).split('.').all(label);
    (!fits).then(|| format!("the host {host:?} in the BMC address is neither a DNS name nor an IP address"))
}

impl Address {
    /// Reads `spec.bmc.address`; `fakes` has it stand for Ironic's hardware that does nothing.
    ///
    /// # Errors
    /// What is wrong with it, a sentence.
    pub fn parse(text: &str, fakes: bool) -> Result<Self, String> {
        let text = text.trim();
        if text.is_empty() {
            return Err("the BMC address is empty".to_owned());
        }
        if text.len() > MAX_ADDRESS {
            return Err(format!("the BMC address has {} bytes; at most {MAX_ADDRESS} are accepted", text.len()));
        }
        if let Some(bad) = text.chars().find(|c| !c.is_ascii_graphic()) {
            return Err(format!("the BMC address contains the character {bad:?}; remove or percent-encode it"));
        }
        // Without a scheme it is IPMI.
        let (scheme, rest) = text.split_once("://").unwrap_or(("ipmi", text));
        let scheme = scheme.to_ascii_lowercase();
        let Some((driver, secure)) = driver_of(&scheme) else {
            return Err(format!("the BMC address has the scheme {scheme:?}, for which Ironic has no driver here"));
        };
        let driver = if fakes { &FAKE } else { driver };
        let (rest, _) = rest.split_once('#').unwrap_or((rest, ""));
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let split = rest.find('/').unwrap_or(rest.len());
        let (authority, path) = rest.split_at(split);
        if authority.contains('@') {
            return Err("the BMC address contains a user or password; put them into the Secret that spec.bmc.credentialsName names".to_owned());
        }
        let (host, port) = split_port(authority)?;
        if host.is_empty() {
            return Err("the BMC address names no host".to_owned());
        }
        if let Some(fault) = host_fault(&host) {
            return Err(fault);
        }
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let privilege = pairs.into_iter().find(|(key, _)| *key == "privilegelevel").map(|(_, value)| value.to_owned());
        let (authority, path) = (authority.to_owned(), path.to_owned());
        Ok(Self { driver, scheme, authority, host, port, path, privilege, secure })
    }

    /// What all addresses of one machine have in common.
    pub fn key(&self) -> String {
        let default = if self.is_ipmi() {
            623
        } else if self.secure {
            443
        } else {
            80
        };
        let port = self.port.unwrap_or(default);
        let system = self.system().map(|path| path.trim_matches('/')).filter(|path| !path.is_empty());
        format!("{}:{port}{}", same_host(&self.host), system.map(|path| format!("/{path}")).unwrap_or_default())
    }

    fn is_ipmi(&self) -> bool {
        self.scheme == "ipmi" || self.scheme == "libvirt"
    }

    fn system(&self) -> Option<&str> {
        let trimmed = self.path.trim_matches('/');
        let is_named = !trimmed.is_empty() && trimmed != "redfish/v1" || self.scheme.starts_with("redfish-uefihttp");
        is_named.then_some(self.path.as_str()).filter(|_| !self.is_ipmi())
    }

    /// `driver_info` without user and password.
    pub fn place(&self) -> Map<String, Value> {
        let mut info = Map::new();
        if self.is_ipmi() {
            info.insert("ipmi_address".into(), self.host.clone().into());
            info.insert("ipmi_port".into(), self.port.unwrap_or(623).to_string().into());
            info.insert("ipmi_priv_level".into(), self.privilege.as_deref().unwrap_or("ADMINISTRATOR").into());
            return info;
        }
        let scheme = if self.secure { "https" } else { "http" };
        info.insert("redfish_address".into(), format!("{scheme}://{}", self.authority).into());
        if let Some(system) = self.system() {
            info.insert("redfish_system_id".into(), system.into());
        }
        info
    }

    /// `driver_info` whole.
    pub fn info(&self, user: &str, password: &str, any_certificate: bool) -> Map<String, Value> {
        let family = if self.is_ipmi() { "ipmi" } else { "redfish" };
        let mut info = self.place();
        info.insert(format!("{family}_username"), user.into());
        info.insert(format!("{family}_password"), password.into());
        if any_certificate {
            info.insert(format!("{family}_verify_ca"), false.into());
        }
        info
    }

    /// Whether a node with this `driver_info` is at the same BMC, and behind it the same system.
    pub fn is_of(&self, info: &Map<String, Value>) -> bool {
        let ours = bmcs(&self.place());
        !ours.is_empty() && ours.iter().all(|bmc| bmcs(info).contains(bmc))
    }

    /// Whether a node with these BMCs may be the same machine: the BMC is the same, and no other system behind it is named.
    pub fn may_be(&self, others: &[Bmc]) -> bool {
        bmcs(&self.place()).iter().any(|ours| others.iter().any(|other| ours.may_be(other)))
    }

    /// The same of another address.
    pub fn may_be_of(&self, other: &Self) -> bool {
        self.may_be(&bmcs(&other.place()))
    }

    /// Whether its BMC is an IPv6 address.
    pub fn is_v6(&self) -> bool {
        self.host.parse::<std::net::Ipv6Addr>().is_ok()
    }

    /// The interfaces of a node, by the names of its fields.
    pub fn interfaces(&self, fast: bool) -> Vec<(&'static str, &'static str)> {
        let driver = self.driver;
        let inspect = driver.fast.filter(|_| fast).or(driver.inspect);
        [
            ("bios_interface", driver.own),
            ("boot_interface", driver.boot),
            ("firmware_interface", driver.firmware),
            ("inspect_interface", inspect),
            ("management_interface", driver.own),
            ("power_interface", driver.own),
            ("raid_interface", driver.raid),
            ("vendor_interface", driver.own),
        ]
        .into_iter()
        .filter_map(|(field, value)| Some((field, value?)))
        .collect()
    }
}

/// A BMC as a `driver_info` names it, in one form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bmc {
    /// `ipmi`, `redfish`, or how else it is reached.
    family: String,
    host: String,
    port: u16,
    /// It is the port that all have.
    is_usual: bool,
    /// The system behind it; nothing: the only one.
    system: Option<String>,
}

impl Bmc {
    fn may_be(&self, other: &Self) -> bool {
        if self.host != other.host {
            return false;
        }
        if self.family != other.family {
            // Simulators have many BMCs at one address, at ports of their own.
            return self.is_usual && other.is_usual;
        }
        let systems = self.system.as_ref().zip(other.system.as_ref());
        self.port == other.port && systems.is_none_or(|(ours, theirs)| ours == theirs)
    }
}

fn same_host(host: &str) -> String {
    let host = host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.').to_ascii_lowercase();
    host.parse::<std::net::IpAddr>().map_or(host, |address| address.to_canonical().to_string())
}

/// The BMCs that a `driver_info` names (`redfish_address`, `ipmi_address`, and those of Ironic's other drivers).
pub fn bmcs(info: &Map<String, Value>) -> Vec<Bmc> {
    let mut found = Vec::new();
    for (key, value) in info {
        let (Some(family), Some(text)) = (key.strip_suffix("_address"), value.as_str()) else { continue };
        let text = text.trim();
        let (scheme, rest) = text.split_once("://").unwrap_or(("https", text));
        let authority = rest.split('/').next().unwrap_or_default();
        // An IPv6 address without brackets has no port.
        let bare = authority.parse::<std::net::Ipv6Addr>().is_ok();
        let Ok((host, port)) = (if bare { Ok((authority.to_owned(), None)) } else { split_port(authority) }) else {
            continue;
        };
        if host.is_empty() {
            continue;
        }
        let usual = match (family, scheme) {
            ("ipmi", _) => 623,
            (_, "http") => 80,
            _ => 443,
        };
        let named = info.get(&format!("{family}_port")).map(|port| port.to_string().replace('"', ""));
        let port = port.or_else(|| named?.parse().ok()).unwrap_or(usual);
        let system = info.get("redfish_system_id").and_then(Value::as_str).filter(|_| family == "redfish");
        let system = system.map(|path| path.trim_matches('/').to_owned()).filter(|path| !path.is_empty());
        let (family, is_usual) = (family.to_owned(), port == usual);
        found.push(Bmc { family, host: same_host(&host), port, is_usual, system });
    }
    found
}

fn split_port(authority: &str) -> Result<(String, Option<u16>), String> {
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (host, after) =
            rest.split_once(']').ok_or_else(|| format!("the host in {authority:?} has no closing bracket"))?;
        let port = match after {
            "" => None,
            after => Some(
                after
                    .strip_prefix(':')
                    .ok_or_else(|| format!("after the host in {authority:?} only a port may stand"))?,
            ),
        };
        (host, port)
    } else {
        match authority.split_once(':') {
            Some((_, port)) if port.contains(':') => {
                return Err(format!("the IPv6 address {authority:?} has to stand in brackets"));
            }
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        }
    };
    let number = match port {
        None | Some("") => None,
        Some(port) => match port.parse::<u16>() {
            Ok(number) if number > 0 => Some(number),
            _ => return Err(format!("the port {port:?} in the BMC address is not a number from 1 to 65535")),
        },
    };
    Ok((host.to_owned(), number))
}

/// Hardware type and boot interface of the nodes that are made for such an address; the interface is nothing where it is the type's own.
///
/// # Errors
/// What is wrong with the address, a sentence.
pub fn hardware(address: &str) -> Result<(&'static str, Option<&'static str>), String> {
    Address::parse(address, false).map(|address| (address.driver.driver, address.driver.boot))
}

/// What is wrong with an address, if anything.
#[must_use]
pub fn address_fault(address: &str) -> Option<String> {
    Address::parse(address, false).err()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(address: &str) -> Vec<String> {
        let address = Address::parse(address, false).unwrap();
        let fields = address.interfaces(false);
        let value = |name: &str| fields.iter().find(|(field, _)| *field == name).map_or("-", |(_, value)| *value);
        let mut shown = vec![address.driver.driver.to_owned()];
        shown.extend(
            ["boot", "raid", "firmware", "bios", "inspect"].map(|name| value(&format!("{name}_interface")).to_owned()),
        );
        shown.push(address.driver.fast.unwrap_or("-").to_owned());
        shown
    }

    #[test]
    fn each_scheme_has_the_interfaces_that_baremetal_operator_gives_it() {
        let table = [
            ("ipmi://h", "ipmi ipxe no-raid - - agent -"),
            ("h:623", "ipmi ipxe no-raid - - agent -"),
            ("libvirt://h:6230", "ipmi ipxe no-raid - - agent -"),
            ("redfish://h/s", "redfish ipxe redfish redfish - agent redfish"),
            ("ilo5-redfish://h/s", "redfish ipxe redfish redfish - agent redfish"),
            ("idrac-redfish://h/s", "idrac ipxe idrac-redfish redfish idrac-redfish agent redfish"),
            ("redfish-virtualmedia://h/s", "redfish redfish-virtual-media redfish redfish - agent redfish"),
            ("ilo5-virtualmedia://h/s", "redfish redfish-virtual-media redfish redfish - agent redfish"),
            (
                "idrac-virtualmedia://h/s",
                "idrac idrac-redfish-virtual-media idrac-redfish redfish idrac-redfish agent redfish",
            ),
            ("redfish-uefihttp://h/s", "redfish redfish-https redfish redfish - agent redfish"),
        ];
        let mut schemes = 0;
        for (address, expected) in table {
            assert_eq!(shown(address).join(" "), expected, "{address}");
            schemes += usize::from(address.contains("://"));
            if expected.contains("redfish") {
                for suffix in ["+http", "+https"] {
                    assert_eq!(
                        shown(&address.replacen("://", &format!("{suffix}://"), 1)).join(" "),
                        expected,
                        "{address}"
                    );
                    schemes += 1;
                }
            }
        }
        assert_eq!(schemes, 23);
    }

    #[test]
    fn driver_info_is_baremetal_operators() {
        let info = |address: &str, any: bool| {
            Value::Object(Address::parse(address, false).unwrap().info("u", "p", any)).to_string()
        };
        assert_eq!(
            info("ipmi://192.0.2.1?privilegelevel=OPERATOR", false),
            r#"{"ipmi_address":"192.0.2.1","ipmi_port":"623","ipmi_priv_level":"OPERATOR","ipmi_username":"u","ipmi_password":"p"}"#
        );
        assert_eq!(
            info("redfish-virtualmedia+http://[2001:db8::1]:8000/redfish/v1/Systems/1", true),
            r#"{"redfish_address":"http://[2001:db8::1]:8000","redfish_system_id":"/redfish/v1/Systems/1","redfish_username":"u","redfish_password":"p","redfish_verify_ca":false}"#
        );
        assert_eq!(
            info("redfish://bmc.example/redfish/v1/", false),
            r#"{"redfish_address":"https://bmc.example","redfish_username":"u","redfish_password":"p"}"#
        );
        let https = Address::parse("redfish-uefihttp://h", false).unwrap();
        assert_eq!(https.place()["redfish_system_id"], "", "always named");
    }

    #[test]
    fn an_address_that_cannot_be_used_is_refused_with_what_is_wrong() {
        for (address, word) in [
            ("", "empty"),
            ("ilo4://h", "ilo4"),
            ("ipmi+http://h", "ipmi+http"),
            ("redfish+ftp://h", "ftp"),
            ("redfish://", "no host"),
            ("redfish://u:p@h/x", "Secret"),
            ("redfish://h:0/", "port"),
            ("redfish://h:99999/", "port"),
            ("redfish://2001:db8::1/", "brackets"),
            ("redfish://[2001:db8::1/", "bracket"),
            ("redfish://[2001:db8::1]x/", "port"),
            ("redfish://a_b/", "DNS"),
            ("redfish://h/\u{7}", "character"),
        ] {
            let fault = address_fault(address).unwrap_or_else(|| panic!("{address:?} is accepted"));
            assert!(fault.contains(word), "{address:?}: {fault}");
        }
        assert!(address_fault(&format!("redfish://{}/", "a".repeat(4000))).is_some());
    }

    #[test]
    fn a_node_is_at_the_same_bmc_whatever_the_form_of_its_port() {
        let ipmi = Address::parse("ipmi://h", false).unwrap();
        for (info, same) in [
            (serde_json::json!({"ipmi_address": "h", "ipmi_port": 623}), true),
            (serde_json::json!({"ipmi_address": "h", "ipmi_port": "623"}), true),
            (serde_json::json!({"ipmi_address": "h"}), true),
            (serde_json::json!({"ipmi_address": "h", "ipmi_port": "6230"}), false),
            (serde_json::json!({"ipmi_address": "g"}), false),
            (serde_json::json!({"redfish_address": "https://h"}), false),
        ] {
            assert_eq!(ipmi.is_of(info.as_object().unwrap()), same, "{info}");
        }
        let redfish = Address::parse("redfish://h/redfish/v1/Systems/1", false).unwrap();
        let at = |system: &str| serde_json::json!({"redfish_address": "https://h", "redfish_system_id": system});
        assert!(redfish.is_of(at("/redfish/v1/Systems/1").as_object().unwrap()));
        assert!(!redfish.is_of(at("/redfish/v1/Systems/2").as_object().unwrap()));
        let same = ["redfish://h/redfish/v1/Systems/1", "idrac-virtualmedia+https://H:443/redfish/v1/Systems/1"];
        let with_slash = at("/redfish/v1/Systems/1/");
        assert!(redfish.is_of(with_slash.as_object().unwrap()));
        let keys = same.map(|address| Address::parse(address, false).unwrap().key());
        assert_eq!(keys[0], keys[1]);
        let slash = Address::parse("redfish://h/redfish/v1/Systems/1/", false).unwrap();
        assert_eq!(slash.key(), keys[0]);
    }

    #[test]
    fn a_node_may_be_the_same_machine_however_its_bmc_is_named() {
        let ours = Address::parse("redfish-virtualmedia://192.0.2.7/redfish/v1/Systems/1", false).unwrap();
        for (info, same) in [
            (
                serde_json::json!({"redfish_address": "https://192.0.2.7:443/", "redfish_system_id": "/redfish/v1/Systems/1/"}),
                true,
            ),
            (serde_json::json!({"redfish_address": "192.0.2.7"}), true),
            (
                serde_json::json!({"redfish_address": "https://192.0.2.7", "redfish_system_id": "/redfish/v1/Systems/2"}),
                false,
            ),
            (serde_json::json!({"redfish_address": "https://192.0.2.7:8443"}), false),
            (serde_json::json!({"ipmi_address": "192.0.2.7", "ipmi_port": 623}), true),
            (serde_json::json!({"ipmi_address": "192.0.2.7", "ipmi_port": "6230"}), false),
            (serde_json::json!({"ilo_address": "192.0.2.7"}), true),
            (serde_json::json!({"redfish_address": "https://192.0.2.8"}), false),
            (serde_json::json!({}), false),
        ] {
            assert_eq!(ours.may_be(&bmcs(info.as_object().unwrap())), same, "{info}");
        }
        let six = Address::parse("ipmi://[2001:db8::0:1]", false).unwrap();
        assert!(six.may_be(&bmcs(serde_json::json!({"ipmi_address": "2001:DB8::1"}).as_object().unwrap())));
    }
}
