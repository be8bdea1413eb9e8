//! What a node is deployed with (`getInstanceUpdateOpts` of baremetal-operator): `instance_info`, the deploy interface, the config drive.

use api::metal3::{BootMode, Image};
use oci_registry::{PullSecret, Reference};
use provisioner::{ConfigDrive, Method};
use secrecy::ExposeSecret;
use serde_json::{Map, Value, json};

/// Fields of `instance_info` that say which image it is. All are written, or removed, with each deployment.
const IMAGE_FIELDS: [&str; 7] = [
    "boot_iso",
    "image_source",
    "image_checksum",
    "image_os_hash_algo",
    "image_os_hash_value",
    "image_disk_format",
    "image_pull_secret",
];

/// A value that serialises to a text.
fn text<T: serde::Serialize>(value: Option<&T>) -> Option<String> {
    serde_json::to_value(value?).ok()?.as_str().map(ToOwned::to_owned)
}

fn is_oci(image: &Image) -> bool {
    image.url.starts_with("oci://")
}

/// What is wrong with the wish, a sentence.
pub fn fault(method: &Method, image: &Image) -> Option<String> {
    let checksum = image.checksum.as_deref().unwrap_or_default();
    match method {
        Method::Custom(name) if name.is_empty() => Some("spec.customDeploy names no method".to_owned()),
        Method::Custom(_) => None,
        _ if image.url.is_empty() => Some("spec.image.url is empty".to_owned()),
        Method::LiveIso => None,
        Method::Disk if is_oci(image) && !checksum.is_empty() => Some(
            "spec.image.checksum is set, and an image in a registry has its digest in the registry: remove it"
                .to_owned(),
        ),
        Method::Disk if !is_oci(image) && checksum.is_empty() => {
            Some("spec.image.checksum is not set, and Ironic writes no image without one".to_owned())
        }
        Method::Disk => None,
    }
}

/// The image fields of `instance_info`; nothing: the field is removed.
pub fn image_fields(method: &Method, image: &Image, pull_secret: Option<&str>) -> Vec<(&'static str, Option<Value>)> {
    let mut fields = Map::new();
    let mut set = |name: &str, value: Option<String>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            fields.insert(name.to_owned(), value.into());
        }
    };
    if *method == Method::LiveIso {
        set("boot_iso", Some(image.url.clone()));
    } else if !image.url.is_empty() {
        set("image_source", Some(image.url.clone()));
        set("image_disk_format", text(image.format.as_ref()));
        set("image_pull_secret", pull_secret.and_then(|config| pull_login(config, &image.url)));
        let algorithm = text(image.checksum_type.as_ref()).filter(|name| !name.is_empty() && name != "auto");
        let checksum = image.checksum.clone();
        match algorithm {
            _ if is_oci(image) => {}
            // Ironic finds out which it is.
            None => set("image_checksum", checksum),
            Some(algorithm) => {
                set("image_os_hash_algo", Some(algorithm));
                set("image_os_hash_value", checksum);
            }
        }
    }
    IMAGE_FIELDS.into_iter().map(|name| (name, fields.remove(name))).collect()
}

/// Whether a node's `instance_info` is of this image.
pub fn is_of(info: &Map<String, Value>, method: &Method, image: &Image) -> bool {
    let compared = |name: &str| !matches!(name, "image_pull_secret" | "image_disk_format");
    image_fields(method, image, None)
        .into_iter()
        .all(|(name, wished)| !compared(name) || info.get(name).filter(|value| !value.is_null()) == wished.as_ref())
}

/// The deploy interface; nothing: the hardware type's own.
pub const fn deploy_interface(method: &Method) -> Option<&'static str> {
    match method {
        Method::Disk => None,
        Method::LiveIso => Some("ramdisk"),
        Method::Custom(_) => Some("custom-agent"),
    }
}

/// `properties.capabilities` with this boot mode, and all else that is in it.
pub fn capabilities(now: Option<&Value>, mode: BootMode) -> String {
    let mode = match mode {
        BootMode::Uefi => "boot_mode:uefi",
        BootMode::UefiSecureBoot => "boot_mode:uefi,secure_boot:true",
        BootMode::Legacy => "boot_mode:bios",
    };
    let others = now.and_then(Value::as_str).unwrap_or_default().split(',');
    let others =
        others.filter(|item| !item.is_empty() && !item.starts_with("boot_mode:") && !item.starts_with("secure_boot:"));
    others.chain([mode]).collect::<Vec<_>>().join(",")
}

/// `instance_info.capabilities`.
pub fn instance_capabilities(mode: BootMode) -> Value {
    if mode == BootMode::UefiSecureBoot { json!({ "secure_boot": "true" }) } else { json!({}) }
}

/// The config drive as Ironic builds it.
///
/// # Errors
/// Which document is none, without its text: it may be secret.
pub fn config_drive(drive: &ConfigDrive) -> Result<Value, String> {
    let read = |name: &str, text: &str| -> Result<Value, String> {
        let read: Value = serde_json::from_str(text).map_err(|error| {
            format!("the {name} are no JSON document: line {}, column {}", error.line(), error.column())
        })?;
        if read.is_object() { Ok(read) } else { Err(format!("the {name} are no JSON object")) }
    };
    let mut made = json!({ "meta_data": read("meta data", &drive.meta_data)? });
    if let Some(network) = drive.network_data.as_ref().filter(|text| !text.is_empty()) {
        made["network_data"] = read("network data", network)?;
    }
    if let Some(user) = drive.user_data.as_ref().filter(|text| !text.is_empty()) {
        made["user_data"] = user.clone().into();
    }
    Ok(made)
}

/// `user:password` for the image's registry; `None` where the Secret has none for it, or cannot be used.
fn pull_login(config: &str, url: &str) -> Option<String> {
    let reference = Reference::parse(url).ok()?;
    let secret = PullSecret::find(config, &reference).ok()??;
    Some(secret.user_info().expose_secret().to_owned())
}

#[cfg(test)]
mod tests {
    use api::metal3::{ChecksumType, DiskFormat};

    use super::*;

    fn disk() -> Image {
        let (url, checksum) = ("http://192.0.2.9/a.raw".to_owned(), Some("ab".to_owned()));
        Image { url, checksum, format: Some(DiskFormat::Raw), ..Image::default() }
    }

    fn shown(method: &Method, image: &Image) -> String {
        let fields = image_fields(method, image, None).into_iter();
        let set: Map<String, Value> = fields.filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
        Value::Object(set).to_string()
    }

    #[test]
    fn an_image_is_described_as_baremetal_operator_does() {
        let auto = r#"{"image_source":"http://192.0.2.9/a.raw","image_checksum":"ab","image_disk_format":"raw"}"#;
        assert_eq!(shown(&Method::Disk, &disk()), auto);
        let typed = Image { checksum_type: Some(ChecksumType::Sha256), ..disk() };
        let expected = r#"{"image_source":"http://192.0.2.9/a.raw","image_os_hash_algo":"sha256","image_os_hash_value":"ab","image_disk_format":"raw"}"#;
        assert_eq!(shown(&Method::Disk, &typed), expected);
        assert_eq!(shown(&Method::LiveIso, &disk()), r#"{"boot_iso":"http://192.0.2.9/a.raw"}"#);
        assert_eq!(shown(&Method::Custom("x".into()), &Image::default()), "{}");
        let oci = Image { url: "oci://r.example/a:1".into(), ..Image::default() };
        assert_eq!(shown(&Method::Disk, &oci), r#"{"image_source":"oci://r.example/a:1"}"#);
        for (method, image) in [(Method::Disk, disk()), (Method::LiveIso, disk())] {
            let info: Map<String, Value> = image_fields(&method, &image, None)
                .into_iter()
                .filter_map(|(name, value)| Some((name.to_owned(), value?)))
                .collect();
            assert!(
                is_of(&info, &method, &image)
                    && !is_of(&info, &method, &Image { url: "http://x".into(), ..image.clone() })
            );
            assert!(!is_of(&Map::new(), &method, &image));
        }
    }

    #[test]
    fn what_ironic_would_refuse_later_is_refused_before() {
        assert_eq!(fault(&Method::Disk, &disk()), None);
        assert!(fault(&Method::Disk, &Image { checksum: None, ..disk() }).unwrap().contains("checksum"));
        assert!(fault(&Method::Disk, &Image { url: "oci://a/b".into(), ..disk() }).unwrap().contains("registry"));
        assert!(fault(&Method::LiveIso, &Image::default()).unwrap().contains("url"));
        assert_eq!(fault(&Method::Custom("x".into()), &Image::default()), None);
    }

    #[test]
    fn the_login_of_the_images_registry_alone_is_sent() {
        let config = r#"{"auths": {"https://r.example/v2/": {"auth": "dTpw"}, "other.example": {"username": "a", "password": "b"}}}"#;
        assert_eq!(pull_login(config, "oci://r.example/a:1").unwrap(), "u:p");
        assert_eq!(pull_login(config, "oci://other.example/a:1").unwrap(), "a:b");
        assert_eq!(pull_login(config, "oci://third.example/a:1"), None);
        let teams = r#"{"auths": {"r.example/a": {"auth": "YTpi"}, "r.example/b": {"auth": "dTpw"}}}"#;
        assert_eq!(pull_login(teams, "oci://r.example/b/image").unwrap(), "u:p", "that of the repository");
        assert_eq!(pull_login(config, "https://r.example/a.raw"), None);
        assert_eq!(pull_login("no json", "oci://r.example/a"), None);
    }

    #[test]
    fn the_boot_mode_replaces_the_one_that_is_there_and_nothing_else() {
        let now = json!("cpu_vt:true,boot_mode:bios,secure_boot:true,cpu_aes:true");
        assert_eq!(capabilities(Some(&now), BootMode::Uefi), "cpu_vt:true,cpu_aes:true,boot_mode:uefi");
        assert_eq!(capabilities(None, BootMode::UefiSecureBoot), "boot_mode:uefi,secure_boot:true");
        assert_eq!(capabilities(Some(&json!(7)), BootMode::Legacy), "boot_mode:bios");
    }

    #[test]
    fn a_config_drive_that_is_none_is_refused_without_its_text() {
        let drive = |meta: &str, network: Option<&str>| ConfigDrive {
            meta_data: meta.into(),
            network_data: network.map(Into::into),
            user_data: Some("#cloud-config".into()),
        };
        let made = config_drive(&drive(r#"{"name": "a"}"#, Some(r#"{"links": []}"#))).unwrap();
        assert_eq!(
            made,
            json!({"meta_data": {"name": "a"}, "network_data": {"links": []}, "user_data": "#cloud-config"})
        );
        for (meta, network) in [("secret", None), ("[]", None), ("{}", Some("secret"))] {
            let fault = config_drive(&drive(meta, network)).unwrap_err();
            assert!(!fault.contains("secret"), "{fault}");
        }
    }
}
