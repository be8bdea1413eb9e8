//! `host add`: prints Secret and BareMetalHost for a server, after the server's own checks.

use std::io::Read;
use std::net::Ipv6Addr;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use api::metal3::BareMetalHost;
use bmc::{Address, Credentials};
use serde_json::{Map, Value, json};

use crate::cli::HostAdd;
use crate::say;

/// Longest password file that is read, bytes.
const MAX_PASSWORD: u64 = 64 << 10;

/// Prints both objects as YAML documents.
pub fn print(add: &HostAdd) -> anyhow::Result<()> {
    let password = match (&add.password, &add.password_file) {
        (Some(password), _) => password.clone(),
        (None, Some(file)) => read_password(file)?,
        (None, None) => bail!("give --password or --password-file"),
    };
    let mut text = String::new();
    for object in objects(add, &password)? {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(&object).context("write YAML")?);
    }
    say::out(&text)
}

fn read_password(file: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    if file == Path::new("-") {
        let read = std::io::stdin().take(MAX_PASSWORD).read_to_string(&mut text);
        read.context("read the password from standard input")?;
    } else {
        let attempt = || format!("read the password from {}", file.display());
        let opened = std::fs::File::open(file).with_context(attempt)?;
        opened.take(MAX_PASSWORD).read_to_string(&mut text).with_context(attempt)?;
    }
    let password = text.trim_end_matches(['\r', '\n']).to_owned();
    if password.is_empty() { bail!("the password is empty") } else { Ok(password) }
}

/// A bare host name or address means Redfish virtual media over HTTPS. The system stays open: the server uses the BMC's only one, since its path
/// differs between vendors.
fn full_address(address: &str) -> String {
    let address = address.trim();
    if address.contains("://") {
        return address.to_owned();
    }
    let v6 = address.parse::<Ipv6Addr>().is_ok();
    let host = if v6 { format!("[{address}]") } else { address.trim_end_matches('/').to_owned() };
    format!("redfish-virtualmedia+https://{host}")
}

/// Checks that need no server.
fn check(add: &HostAdd, password: &str) -> anyhow::Result<()> {
    if let Some(wrong) = names::dns_1123_subdomain(&add.name).first() {
        bail!("\"{}\" cannot be the name of a host: {wrong}", add.name);
    }
    Address::parse(&full_address(&add.address)).context("use --address")?;
    Credentials::new(&add.user, password.to_owned().into()).context("use --user and the password")?;
    if let Some(mac) = &add.boot_mac {
        let pairs: Vec<&str> = mac.split(':').collect();
        let hex = |pair: &&str| pair.len() == 2 && pair.bytes().all(|b| b.is_ascii_hexdigit());
        ensure!(
            pairs.len() == 6 && pairs.iter().all(hex),
            "--boot-mac {mac} is no hardware address; write it as 00:1b:21:aa:bb:cc"
        );
        let first = pairs.first().and_then(|pair| u8::from_str_radix(pair, 16).ok()).unwrap_or(1);
        let zero = pairs.iter().all(|pair| *pair == "00");
        ensure!(
            first & 1 == 0 && !zero,
            "--boot-mac {mac} is the address of a group or of nobody, not of an interface"
        );
    }
    image(add)
}

fn image(add: &HostAdd) -> anyhow::Result<()> {
    let (Some(url), Some(checksum)) = (&add.image_url, &add.image_checksum) else { return Ok(()) };
    let is_web = |text: &str| text.starts_with("http://") || text.starts_with("https://");
    ensure!(is_web(url), "--image-url {url}: only http:// and https:// are served");
    if is_web(checksum) {
        return Ok(());
    }
    let hex = checksum.bytes().all(|b| b.is_ascii_hexdigit());
    ensure!(
        hex && matches!(checksum.len(), 32 | 64 | 128),
        "--image-checksum {checksum} is neither a URL nor a digest (MD5, SHA-256 or SHA-512 in hexadecimal)"
    );
    Ok(())
}

fn objects(add: &HostAdd, password: &str) -> anyhow::Result<[Value; 2]> {
    check(add, password)?;
    let secret_name = format!("{}-bmc-secret", add.name);
    let metadata = |name: &str| {
        let mut metadata = Map::from_iter([("name".to_owned(), Value::from(name))]);
        if let Some(namespace) = &add.namespace {
            metadata.insert("namespace".to_owned(), Value::from(namespace.as_str()));
        }
        Value::Object(metadata)
    };
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": metadata(&secret_name), "type": "Opaque",
        "stringData": { "username": add.user, "password": password },
    });
    let mut bmc = json!({ "address": full_address(&add.address), "credentialsName": secret_name });
    if add.disable_certificate_verification {
        bmc["disableCertificateVerification"] = Value::from(true);
    }
    let mut spec = json!({ "online": !add.offline, "bmc": bmc });
    if let Some(mac) = &add.boot_mac {
        spec["bootMACAddress"] = Value::from(mac.to_ascii_lowercase());
    }
    if let Some(mode) = &add.boot_mode {
        spec["bootMode"] = Value::from(mode.as_str());
    }
    if let (Some(url), Some(checksum)) = (&add.image_url, &add.image_checksum) {
        spec["image"] = json!({ "url": url, "checksum": checksum, "checksumType": "auto" });
        if let Some(format) = &add.image_format {
            spec["image"]["format"] = Value::from(format.as_str());
        }
    }
    let host = json!({ "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": metadata(&add.name), "spec": spec });
    let typed: BareMetalHost = serde_json::from_value(host.clone()).context("make the BareMetalHost")?;
    if let Err(violations) = host_lifecycle::validate(&typed) {
        let all: Vec<String> = violations.iter().map(ToString::to_string).collect();
        bail!("the host would be refused: {}", all.join("; "));
    }
    Ok([secret, host])
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    const DIGEST: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn parsed(name: &str, address: &str, arguments: &[&str]) -> HostAdd {
        let line = ["metamorph", "host", "add", name, "--address", address, "--user", "u", "--password", "p"];
        match crate::cli::Cli::parse_from(line.iter().chain(arguments)).command {
            crate::cli::Command::Host(crate::cli::HostCommand::Add(add)) => add,
            _ => panic!("not host add"),
        }
    }

    fn add(arguments: &[&str]) -> HostAdd {
        parsed("n0", "192.0.2.7", arguments)
    }

    #[test]
    fn what_it_prints_is_a_bare_metal_host() {
        let add =
            add(&["--image-url", "http://i/x.qcow2", "--image-checksum", DIGEST, "--boot-mac", "AA:BB:CC:00:11:22"]);
        let [secret, host] = objects(&add, "p").unwrap();
        let host: BareMetalHost = serde_json::from_value(host).unwrap();
        let bmc = host.spec.bmc.unwrap();
        assert_eq!(secret["metadata"]["name"], bmc.credentials_name);
        assert_eq!(host.spec.image.unwrap().url, "http://i/x.qcow2");
        assert_eq!(host.spec.boot_mac_address.as_deref(), Some("aa:bb:cc:00:11:22"));
    }

    #[test]
    fn the_system_is_left_to_discovery_unless_it_is_named() {
        for (given, address) in [
            ("192.0.2.7", "redfish-virtualmedia+https://192.0.2.7"),
            ("bmc.example:8443", "redfish-virtualmedia+https://bmc.example:8443"),
            ("2001:db8::7", "redfish-virtualmedia+https://[2001:db8::7]"),
            ("[2001:db8::7]:8443", "redfish-virtualmedia+https://[2001:db8::7]:8443"),
            ("192.0.2.7/redfish/v1/Systems/2", "redfish-virtualmedia+https://192.0.2.7/redfish/v1/Systems/2"),
            (
                "redfish-virtualmedia+http://b/redfish/v1/Systems/x",
                "redfish-virtualmedia+http://b/redfish/v1/Systems/x",
            ),
        ] {
            let [_, host] = objects(&parsed("n0", given, &[]), "p").unwrap();
            assert_eq!(host["spec"]["bmc"]["address"], address);
            let path = Address::parse(address).unwrap().system_path().map(ToOwned::to_owned);
            assert_eq!(path.is_some(), address.contains("Systems"), "{path:?}");
        }
    }

    #[test]
    fn what_the_server_would_refuse_is_refused_here() {
        let image = |url, checksum| add(&["--image-url", url, "--image-checksum", checksum]);
        for (wrong, says) in [
            (parsed("Node 0", "192.0.2.7", &[]), "cannot be the name of a host"),
            (parsed("n0", "http://192.0.2.7", &[]), "--address"),
            (parsed("n0", "ipmi://192.0.2.7", &[]), "ipmi"),
            (parsed("n0", "", &[]), "--address"),
            (parsed("n0", "user:secret@192.0.2.7", &[]), "Secret"),
            (parsed("n0", "192.0.2.7:99999", &[]), "99999"),
            (add(&["--boot-mac", "aa:bb:cc"]), "no hardware address"),
            (add(&["--boot-mac", "aabb.ccdd.eeff"]), "no hardware address"),
            (add(&["--boot-mac", "01:00:5e:00:00:01"]), "group"),
            (image("ftp://i/x", DIGEST), "only http:// and https://"),
            (image("http://i/x", "abc"), "neither a URL nor a digest"),
            (image("http://i/x", "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"), "neither"),
        ] {
            let error = format!("{:#}", objects(&wrong, "p").unwrap_err());
            assert!(error.contains(says), "{says}: {error}");
        }
    }

    #[test]
    fn a_namespace_is_one() {
        let line = ["metamorph", "host", "add", "n0", "--address", "b", "--user", "u", "--password", "p", "-n", "a.b"];
        assert!(crate::cli::Cli::try_parse_from(line).is_err());
    }
}
