//! Ironic's order to write an image as ours.

use agent_protocol::{
    Authorization, ChecksumType, ConfigDrive, DiskFormat, DiskMark, ImageProxy, ImageSource, SourceAddress, WriteImage,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use inventory::{RootDeviceHints, Storage};
use ipa_protocol::{ImageInfo, LookupConfig};
use url::Url;

/// Most addresses of an image.
const MAX_URLS: usize = 8;

/// Longest config drive, in bytes, as ironic-python-agent has it (`A:partition_utils.py`, `MAX_CONFIG_DRIVE_SIZE_MB`).
const MAX_DRIVE: u64 = 64 << 20;

/// The order in our terms; fails with a sentence.
pub(super) fn translated(
    image: &ImageInfo,
    (config, allowed_addresses): (&LookupConfig, Vec<String>),
    (root_device_hints, known): (RootDeviceHints, Vec<Storage>),
    mark: DiskMark,
) -> Result<WriteImage, String> {
    if image.is_partition() {
        return Err("the image is the content of a partition; whole-disk images alone are written: set image_type to whole-disk".to_owned());
    }
    if image.urls.is_empty() || image.urls.len() > MAX_URLS {
        return Err(format!("the image has {} addresses, of which 1 to {MAX_URLS} are served", image.urls.len()));
    }
    let format = format_of(image, config)?;
    let (checksum, checksum_type) = checksum(image, config)?;
    let authorization = authorization(image)?;
    let source = |url: &String| SourceAddress { url: url.clone(), authorization: authorization.clone() };
    let url = image.urls[0].clone();
    let proxy = proxy(image, &url)?;
    let several = image.urls.len() > 1;
    let image = ImageSource {
        format,
        checksum,
        checksum_type,
        compression: None,
        authorization: authorization.clone(),
        allowed_addresses,
        sources: if several { image.urls.iter().map(source).collect() } else { Vec::new() },
        checksum_sources: Vec::new(),
        proxy,
        url,
    };
    Ok(WriteImage { image, root_device_hints, mark, config_drive: None::<ConfigDrive>, known })
}

fn format_of(image: &ImageInfo, config: &LookupConfig) -> Result<DiskFormat, String> {
    let name = image.disk_format.as_deref().unwrap_or_default();
    let format = match name {
        "raw" => DiskFormat::Raw,
        "qcow2" => DiskFormat::Qcow2,
        "" => {
            return Err("the image's format is not told (image_disk_format), and it is never guessed from the content"
                .to_owned());
        }
        other => return Err(format!("images of the format {other:?} are not written; raw and qcow2 are")),
    };
    match &config.permitted_image_formats {
        Some(permitted) if !permitted.iter().any(|permitted| permitted == name) => {
            Err(format!("Ironic does not permit images of the format {name} ([conductor]permitted_image_formats)"))
        }
        _ => Ok(format),
    }
}

/// The digest, or the address of a file with it, and which it is.
fn checksum(image: &ImageInfo, config: &LookupConfig) -> Result<(String, ChecksumType), String> {
    let (text, algorithm) = match (&image.os_hash_value, &image.os_hash_algo, &image.checksum) {
        (Some(value), Some(algorithm), _) => (value.trim(), Some(algorithm.as_str())),
        (_, _, Some(checksum)) => (checksum.trim(), None),
        _ => return Err("the image has no checksum, and none is written without one".to_owned()),
    };
    let is_url = text.starts_with("http://") || text.starts_with("https://");
    let kind = match algorithm.map(str::to_ascii_lowercase).as_deref() {
        Some("sha256") => ChecksumType::Sha256,
        Some("sha512") => ChecksumType::Sha512,
        Some("md5") => ChecksumType::Md5,
        Some(other) => return Err(format!("the digest {other:?} is not served; sha256 and sha512 are")),
        // The file says by the digest's length which it is.
        None if is_url => ChecksumType::Auto,
        None => match text.len() {
            32 => ChecksumType::Md5,
            64 => ChecksumType::Sha256,
            128 => ChecksumType::Sha512,
            length => return Err(format!("the image's checksum has {length} characters, which no known digest has")),
        },
    };
    if kind == ChecksumType::Md5 && config.agent_md5_checksum_enable != Some(true) {
        return Err("the image's checksum is MD5, which Ironic does not allow ([agent]allow_md5_checksum)".to_owned());
    }
    Ok((text.to_owned(), kind))
}

/// What the image's server wants to see.
fn authorization(image: &ImageInfo) -> Result<Option<Authorization>, String> {
    if let Some(given) = &image.image_request_authorization {
        let bytes = STANDARD.decode(given.reveal()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let text = bytes.ok_or("image_request_authorization is not base64 of a text")?;
        return Ok(Some(Authorization(text)));
    }
    match image.image_server_auth_strategy.as_deref() {
        None | Some("noauth") => Ok(None),
        Some("http_basic") => {
            let user = image.image_server_user.as_deref().unwrap_or_default();
            let password = image.image_server_password.as_ref().map_or("", |password| password.reveal());
            Ok(Some(basic(user, password)))
        }
        Some(other) => Err(format!("the image server's authentication {other:?} is not served; http_basic is")),
    }
}

fn basic(user: &str, password: &str) -> Authorization {
    Authorization(format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))))
}

/// The proxy for the image's address.
fn proxy(image: &ImageInfo, url: &str) -> Result<Option<ImageProxy>, String> {
    let Some(proxies) = &image.proxies else { return Ok(None) };
    let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
    let Some(given) = proxies.get(scheme) else { return Ok(None) };
    let mut parsed = Url::parse(given.reveal()).map_err(|_| "the image's proxy is no URL".to_owned())?;
    let (user, password) = (parsed.username().to_owned(), parsed.password().unwrap_or_default().to_owned());
    if parsed.set_username("").is_err() || parsed.set_password(None).is_err() {
        return Err("the image's proxy has no host".to_owned());
    }
    let no_proxy = image.no_proxy.as_deref().unwrap_or_default().split(',').map(str::trim);
    Ok(Some(ImageProxy {
        url: parsed.to_string(),
        authorization: (!user.is_empty()).then(|| basic(&user, &password)),
        no_proxy: no_proxy.filter(|word| !word.is_empty()).map(str::to_owned).collect(),
    }))
}

/// The config drive's volume from Ironic's text: gzipped, in base64. An address is refused: what it serves has no checksum.
pub(super) fn config_volume(text: &str) -> Result<Vec<u8>, String> {
    use std::io::Read as _;
    let text = text.trim();
    if text.starts_with("http://") || text.starts_with("https://") {
        return Err("the config drive is an address, which is not read: have Ironic send its content".to_owned());
    }
    let packed: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let packed = STANDARD.decode(packed).map_err(|error| format!("the config drive is not base64: {error}"))?;
    let mut volume = Vec::new();
    let mut reader = flate2::read::GzDecoder::new(packed.as_slice()).take(MAX_DRIVE + 1);
    reader.read_to_end(&mut volume).map_err(|error| format!("the config drive is not gzip: {error}"))?;
    match volume.len() as u64 {
        0 => Err("the config drive is empty".to_owned()),
        length if length > MAX_DRIVE => Err(format!("the config drive has more than {} MiB", MAX_DRIVE >> 20)),
        _ => Ok(volume),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipa_protocol::Secret;
    use std::io::Write as _;

    fn image() -> ImageInfo {
        ImageInfo {
            id: "os.raw".into(),
            urls: vec!["http://i/os.raw".into()],
            disk_format: Some("raw".into()),
            os_hash_algo: Some("sha256".into()),
            os_hash_value: Some("a".repeat(64)),
            ..ImageInfo::default()
        }
    }

    fn order(image: &ImageInfo, config: &LookupConfig) -> Result<WriteImage, String> {
        translated(image, (config, Vec::new()), (RootDeviceHints::default(), Vec::new()), DiskMark::default())
    }

    #[test]
    fn a_whole_disk_image_is_written_as_it_is_told() {
        let config = LookupConfig::default();
        let plain = order(&image(), &config).unwrap();
        assert_eq!((plain.image.format, plain.image.checksum_type), (DiskFormat::Raw, ChecksumType::Sha256));
        assert!(plain.image.sources.is_empty() && plain.image.proxy.is_none() && plain.image.authorization.is_none());
        let mut rich = image();
        rich.urls.push("https://j/os.raw".into());
        rich.proxies = Some([("http".to_owned(), Secret::new("http://u:p@proxy:3128"))].into());
        rich.no_proxy = Some("10.0.0.0/8, .local".into());
        rich.image_server_auth_strategy = Some("http_basic".into());
        rich.image_server_user = Some("me".into());
        rich.image_server_password = Some(Secret::new("pw"));
        let rich = order(&rich, &config).unwrap().image;
        assert_eq!(rich.sources.len(), 2);
        let proxy = rich.proxy.unwrap();
        assert_eq!((proxy.url.as_str(), proxy.no_proxy.len()), ("http://proxy:3128/", 2));
        assert_eq!(proxy.authorization.unwrap().0, format!("Basic {}", STANDARD.encode("u:p")));
        assert_eq!(rich.authorization.unwrap().0, format!("Basic {}", STANDARD.encode("me:pw")));
        let mut token = image();
        token.image_request_authorization = Some(Secret::new(STANDARD.encode("Bearer t")));
        assert_eq!(order(&token, &config).unwrap().image.authorization.unwrap().0, "Bearer t");
    }

    #[test]
    fn what_the_writer_does_not_do_is_refused_in_a_sentence() {
        let permitted = LookupConfig { permitted_image_formats: Some(vec!["qcow2".into()]), ..LookupConfig::default() };
        let refused = |change: &dyn Fn(&mut ImageInfo), word: &str| {
            let mut image = image();
            change(&mut image);
            let why = order(&image, &LookupConfig::default()).unwrap_err();
            assert!(why.contains(word), "{why}");
        };
        refused(&|image| image.image_type = Some("partition".into()), "whole-disk");
        refused(&|image| image.disk_format = None, "never guessed");
        refused(&|image| image.disk_format = Some("vmdk".into()), "vmdk");
        refused(&|image| image.urls.clear(), "0 addresses");
        refused(&|image| image.os_hash_algo = Some("sha1".into()), "sha1");
        refused(&|image| (image.os_hash_value, image.checksum) = (None, None), "no checksum");
        refused(&|image| (image.os_hash_value, image.checksum) = (None, Some("a".repeat(32))), "MD5");
        refused(&|image| (image.os_hash_value, image.checksum) = (None, Some("a".repeat(40))), "40 characters");
        refused(&|image| image.image_server_auth_strategy = Some("kerberos".into()), "kerberos");
        assert!(order(&image(), &permitted).unwrap_err().contains("does not permit"));
        let md5 = LookupConfig { agent_md5_checksum_enable: Some(true), ..LookupConfig::default() };
        let mut old = image();
        (old.os_hash_value, old.checksum) = (None, Some("a".repeat(32)));
        assert_eq!(order(&old, &md5).unwrap().image.checksum_type, ChecksumType::Md5);
    }

    #[test]
    fn a_config_drive_is_unpacked_within_bounds() {
        let packed = |bytes: &[u8]| {
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            gzip.write_all(bytes).unwrap();
            STANDARD.encode(gzip.finish().unwrap())
        };
        let text = packed(b"a volume");
        let (first, rest) = text.split_at(5);
        assert_eq!(config_volume(&format!("{first}\n{rest}\n")).unwrap(), b"a volume");
        assert!(config_volume("http://x/drive").unwrap_err().contains("address"));
        assert!(config_volume("!").unwrap_err().contains("base64"));
        assert!(config_volume(&STANDARD.encode("plain")).unwrap_err().contains("gzip"));
        assert!(config_volume(&packed(b"")).unwrap_err().contains("empty"));
        let bomb = packed(&vec![0; (MAX_DRIVE + 1) as usize]);
        assert!(config_volume(&bomb).unwrap_err().contains("more than 64 MiB"));
    }
}
