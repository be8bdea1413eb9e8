//! What a host's medium has for ironic-python-agent: its configuration, the server's certificate, and where the server is.
//!
//! It lies in files of the ramdisk's root, not in the kernel's arguments, which every process may read.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::IpAddr;

use boot_media::{HostFile, derive};
use provisioner::HostKey;
use url::{Host, Url};

use crate::keys::Key;

/// The name in the certificate that agents know the server by: `/etc/hosts` of the ramdisk leads from it to the server's addresses.
pub const SERVER_NAME: &str = "metamorph";
/// Below which path of the agent endpoint this agent's calls are.
pub const PREFIX: &str = "/ipa";
/// Most addresses that an agent is told.
const MAX_ADDRESSES: usize = 16;

/// A base address of the agent endpoint that the agent can use: its host is an IP address, as the name in the server's certificate is to lead to it.
fn usable(base: &str) -> Option<(IpAddr, Url)> {
    let mut url = Url::parse(base).ok().filter(|url| url.scheme() == "https")?;
    let address = match url.host()? {
        Host::Ipv4(address) => IpAddr::from(address),
        Host::Ipv6(address) => IpAddr::from(address),
        Host::Domain(_) => return None,
    };
    url.set_host(Some(SERVER_NAME)).ok()?;
    Some((address, url))
}

/// Why this agent cannot reach the server at these addresses, a sentence.
#[must_use]
pub fn unreachable(bases: &[String]) -> Option<String> {
    let none = !bases.iter().any(|base| usable(base).is_some());
    none.then(|| {
        "ironic-python-agent needs an IP address in the agent endpoint's address, as no name is resolved before it runs"
            .to_owned()
    })
}

/// The files of a host.
pub fn files(key: &HostKey, root: &Key, generation: u64, bases: &[String], image_authorities: &str) -> Vec<HostFile> {
    let usable: Vec<(IpAddr, Url)> = bases.iter().filter_map(|base| usable(base)).take(MAX_ADDRESSES).collect();
    let shard = derive::shard(derive::SHARD);
    let urls: BTreeSet<String> = usable
        .iter()
        .map(|(_, url)| {
            let base = url.as_str().trim_end_matches('/');
            format!("{base}{shard}{PREFIX}/{}/{generation}", key.uid)
        })
        .collect();
    let addresses: BTreeSet<IpAddr> = usable.iter().map(|(address, _)| *address).collect();
    let urls = urls.into_iter().collect::<Vec<_>>().join(",");
    let token = derive::credential(&root.secret, &key.uid, generation);
    let configuration = format!(
        "[DEFAULT]\napi_url = {urls}\nagent_token = {token}\ncafile = /run/metamorph/authorities.pem\n\
         insecure = false\nlookup_timeout = 1800\nmd5_enabled = false\n"
    );
    let mut hosts = "127.0.0.1 localhost\n::1 localhost\n".to_owned();
    for address in addresses {
        let _ = writeln!(hosts, "{address} {SERVER_NAME}");
    }
    let file = |path: &str, mode, text: String| HostFile { path: path.to_owned(), mode, bytes: text.into_bytes() };
    let mut files = vec![
        file("metamorph/ironic-python-agent.conf", 0o600, configuration),
        file("metamorph/server.pem", 0o644, format!("{}\n", root.certificate_pem.trim())),
        file("etc/hosts", 0o644, hosts),
    ];
    if !image_authorities.trim().is_empty() {
        files.push(file("metamorph/images.pem", 0o644, format!("{}\n", image_authorities.trim())));
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_name_leads_to_its_addresses_and_the_token_lies_in_no_argument() {
        let key = HostKey { namespace: "n".into(), name: "a".into(), uid: "u-1".into() };
        let root =
            Key { number: 1, secret: [7; 32], certificate_sha256: String::new(), certificate_pem: "PEM".to_owned() };
        let bases = [
            "https://192.0.2.1:8444/".to_owned(),
            "https://[2001:db8::1]:8444".to_owned(),
            "https://name:1".to_owned(),
        ];
        let files = files(&key, &root, 3, &bases, "CA");
        let text = |path: &str| {
            let file = files.iter().find(|file| file.path == path).unwrap();
            String::from_utf8(file.bytes.clone()).unwrap()
        };
        let conf = text("metamorph/ironic-python-agent.conf");
        assert!(conf.contains("api_url = https://metamorph:8444/shard/0/ipa/u-1/3\n"), "{conf}");
        assert!(conf.contains("agent_token = 3."), "{conf}");
        let hosts = text("etc/hosts");
        assert!(hosts.contains("192.0.2.1 metamorph\n") && hosts.contains("2001:db8::1 metamorph\n"), "{hosts}");
        assert_eq!((text("metamorph/server.pem"), text("metamorph/images.pem")), ("PEM\n".into(), "CA\n".into()));
        assert!(files.iter().any(|file| file.path.ends_with(".conf") && file.mode == 0o600));
        assert_eq!(unreachable(&bases), None);
        assert!(unreachable(&bases[2..]).is_some());
    }
}
