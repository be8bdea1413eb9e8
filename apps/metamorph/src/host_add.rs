//! `host add`: prints Secret and BareMetalHost for a server.

use std::io::Read;
use std::path::Path;

use anyhow::{Context, bail};
use serde_json::{Map, Value, json};

use crate::cli::HostAdd;

/// Prints both objects as YAML documents.
#[allow(clippy::print_stdout)] // The command's purpose.
pub fn print(add: &HostAdd) -> anyhow::Result<()> {
    let password = match (&add.password, &add.password_file) {
        (Some(password), _) => password.clone(),
        (None, Some(file)) => read_password(file)?,
        (None, None) => bail!("give --password or --password-file"),
    };
    for object in objects(add, &password)? {
        print!("---\n{}", serde_saphyr::to_string(&object).context("write YAML")?);
    }
    Ok(())
}

fn read_password(file: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    if file == Path::new("-") {
        std::io::stdin().read_to_string(&mut text).context("read the password from standard input")?;
    } else {
        text = std::fs::read_to_string(file).with_context(|| format!("read the password from {}", file.display()))?;
    }
    let password = text.trim_end_matches(['\r', '\n']).to_owned();
    if password.is_empty() { bail!("the password is empty") } else { Ok(password) }
}

/// A bare host name or address means Redfish virtual media over HTTPS at the first system.
fn full_address(address: &str) -> String {
    if address.contains("://") {
        address.to_owned()
    } else {
        format!("redfish-virtualmedia+https://{address}/redfish/v1/Systems/1")
    }
}

fn objects(add: &HostAdd, password: &str) -> anyhow::Result<[Value; 2]> {
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
    Ok([secret, host])
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn add(arguments: &[&str]) -> HostAdd {
        let line = ["metamorph", "host", "add", "n0", "--address", "192.0.2.7", "--user", "u", "--password", "p"];
        match crate::cli::Cli::parse_from(line.iter().chain(arguments)).command {
            crate::cli::Command::Host(crate::cli::HostCommand::Add(add)) => add,
            _ => panic!("not host add"),
        }
    }

    #[test]
    fn what_it_prints_is_a_bare_metal_host() {
        let add =
            add(&["--image-url", "http://i/x.qcow2", "--image-checksum", "abc", "--boot-mac", "AA:BB:CC:00:11:22"]);
        let [secret, host] = objects(&add, "p").unwrap();
        let host: api::metal3::BareMetalHost = serde_json::from_value(host).unwrap();
        let bmc = host.spec.bmc.unwrap();
        assert_eq!(bmc.address, "redfish-virtualmedia+https://192.0.2.7/redfish/v1/Systems/1");
        assert_eq!(secret["metadata"]["name"], bmc.credentials_name);
        assert_eq!(host.spec.image.unwrap().url, "http://i/x.qcow2");
        assert_eq!(host.spec.boot_mac_address.as_deref(), Some("aa:bb:cc:00:11:22"));
    }
}
