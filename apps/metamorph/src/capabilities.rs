//! What each provisioner can do with hosts, as a page: each is asked what it says of a host with each scheme of address.

use api::metal3::bmc_drivers;
use provisioner::{Capabilities, Column, HostFacts, Provisioner, capability_table};
use provisioner_fixture::FixtureProvisioner;
use provisioner_ironic::{Ironic, IronicProvisioner, Request, Response, Site, Transport, TransportError};
use std::sync::Arc;

/// Capabilities, and the schemes of the addresses with which a provisioner has them.
type Group = (Capabilities, Vec<&'static str>);

/// An address of this scheme, which nobody calls.
fn address(scheme: &str) -> String {
    format!("{scheme}://bmc.invalid/redfish/v1/Systems/1")
}

/// A host whose BMC has an address of this scheme.
fn host(scheme: &str) -> HostFacts {
    HostFacts { address: address(scheme), ..HostFacts::default() }
}

/// What a provisioner can do, by the schemes whose addresses it takes, each answer once.
fn groups(asked: &dyn Provisioner, fault: impl Fn(&str) -> Option<String>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let schemes = bmc_drivers().map(|driver| driver.scheme);
    for scheme in schemes.filter(|scheme| fault(&address(scheme)).is_none()) {
        let served = asked.capabilities(&host(scheme));
        match groups.iter_mut().find(|(known, _)| *known == served) {
            Some((_, schemes)) => schemes.push(scheme),
            None => groups.push((served, vec![scheme])),
        }
    }
    groups
}

/// Ironic is not asked: which of its drivers an address stands for is known beforehand.
struct Unasked;

#[async_trait::async_trait]
impl Transport for Unasked {
    async fn send(&self, _: &Request) -> Result<Response, TransportError> {
        Err(TransportError::Unreachable("it is not asked".to_owned()))
    }

    fn endpoint(&self) -> String {
        "http://ironic.invalid".to_owned()
    }
}

fn columns() -> Vec<Column> {
    let named = |name: &str| format!("`{name}`");
    let mut columns =
        vec![Column { title: named(provisioner_metamorph::NAME), served: Some(provisioner_metamorph::capabilities()) }];
    let ironic = IronicProvisioner::new(Vec::new());
    for (served, schemes) in groups(&ironic, provisioner_ironic::address_fault) {
        // Metal³'s schemes of Redfish have long names.
        let schemes = match schemes.as_slice() {
            [one] => named(one),
            _ if schemes.iter().all(|scheme| !matches!(*scheme, "ipmi" | "libvirt")) => "Redfish".to_owned(),
            several => several.iter().map(|one| named(one)).collect::<Vec<_>>().join(", "),
        };
        columns.push(Column { title: format!("`ironic`, {schemes}"), served: Some(served) });
    }
    let site = Site { fakes: true, ..Site::new("fakes") };
    let fakes = IronicProvisioner::new(vec![Ironic { site, transport: Arc::new(Unasked) }]);
    let served = Some(fakes.capabilities(&host("redfish")));
    columns.push(Column { title: "`ironic`, with `fakes: true`".to_owned(), served });
    let fixture = FixtureProvisioner::new(provisioner_fixture::Machines::default());
    let served = Some(fixture.capabilities(&host("redfish")));
    columns.push(Column { title: named(provisioner_fixture::NAME), served });
    columns.push(Column { title: "a program of your own".to_owned(), served: None });
    columns
}

/// Which schemes are served by whom.
fn schemes() -> String {
    let mut page = String::from("| scheme | `metamorph` | `ironic`: hardware type, boot interface |\n|---|---|---|\n");
    for driver in bmc_drivers() {
        let (scheme, address) = (driver.scheme, address(driver.scheme));
        let native =
            provisioner_metamorph::address_fault(&address).map_or_else(|| "yes".to_owned(), |why| format!("no: {why}"));
        let ironic = match provisioner_ironic::hardware(&address) {
            Ok((driver, Some(boot))) => format!("`{driver}`, `{boot}`"),
            Ok((driver, None)) => format!("`{driver}`"),
            Err(why) => format!("no: {why}"),
        };
        page.push_str(&format!("| `{scheme}` | {native} | {ironic} |\n"));
    }
    page
}

/// What a BMC may lack, with what is advised then.
fn lacking() -> String {
    let mut page = String::from("| capability | what to do where it is missing |\n|---|---|\n");
    for capability in bmc::Capability::ALL {
        let lacking = bmc::Lacking::new(capability, "");
        page.push_str(&format!("| {capability} | {} |\n", lacking.advice));
    }
    page
}

/// The page, without its heading.
pub fn page() -> String {
    format!(
        "Names are those by which [programs](../external-provisioners.md) declare capabilities. Of a host that asks for what its provisioner cannot do, admission warns, and its registration ends in an \
         error that says so ([how one is chosen](../provisioners.md)).\n\n{}\nOf `metamorph`'s architectures, a server boots those that it has agent images for. Where these have [ironic-python-agent](../agent-ipa.md), it has neither `marksDisks`, `secureBoot` nor `erase`, and no `oci`.\n\n\
         ## Schemes of `spec.bmc.address`\n\nRedfish's may have the suffix `+http` or `+https`. `fixture` takes any address.\n\n{}\n\
         ## What a BMC may lack\n\n`metamorph` speaks to all BMCs alike, and each shows what it has when it is first reached: what needs more fails with what was looked for.\n\n{}",
        capability_table(&columns()),
        schemes(),
        lacking(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_a_column_for_each_answer_and_a_row_for_each_scheme() {
        let page = page();
        let head = page.lines().find(|line| line.starts_with("| capability |")).unwrap();
        let columns = [
            "`metamorph`",
            "`ironic`, Redfish",
            "`ironic`, `ipmi`",
            "`ironic`, `libvirt`",
            "`ironic`, with",
            "`fixture`",
            "a program",
        ];
        let mut rest = head;
        for column in columns {
            let at = rest.find(column).unwrap_or_else(|| panic!("{column} is not next in {head}"));
            rest = &rest[at + column.len()..];
        }
        let row = |start: &str| page.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{start}"));
        assert!(
            row("| `hardwareRaid`").ends_with("| – | yes | – | – | – | yes | as declared |"),
            "{}",
            row("| `hardwareRaid`")
        );
        assert!(row("| `needsBootMac`").ends_with("| – | – | – | yes | – | – | as declared |"));
        assert!(row("| `ipmi`").contains("| no: ") && row("| `ipmi`").ends_with("| `ipmi`, `ipxe` |"));
        assert!(row("| `redfish-virtualmedia`").ends_with("| yes | `redfish`, `redfish-virtual-media` |"));
        assert!(row("| virtual media").contains("licensed"));
    }
}
