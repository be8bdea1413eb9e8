//! Which manifest and layer is taken.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn digest(n: u32) -> String {
    format!("sha256:{n:064x}")
}

fn layer(n: u32, media_type: &str, title: &str) -> Value {
    json!({"mediaType": media_type, "digest": digest(n), "size": 7, "annotations": {TITLE: title}})
}

fn manifest(artifact: bool, layers: Value) -> Value {
    let config = if artifact { EMPTY } else { "application/vnd.oci.image.config.v1+json" };
    json!({"schemaVersion": 2, "config": {"mediaType": config, "digest": digest(99), "size": 2}, "layers": layers})
}

fn read(value: &Value) -> Result<Manifest, Error> {
    Manifest::read(value.to_string().as_bytes())
}

fn disk_as(value: &Value, format: Option<DiskFormat>) -> Result<DiskLayer, String> {
    let Manifest::Layers(layers) = read(value).map_err(|error| error.to_string())? else { panic!("an index") };
    layers.disk(&digest(100).parse().unwrap(), format).map_err(|error| error.to_string())
}

fn disk(value: &Value) -> Result<DiskLayer, String> {
    disk_as(value, None)
}

const OCTETS: &str = "application/octet-stream";
const TAR: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

#[test]
fn the_only_layer_of_an_artifact_is_the_disk_image() {
    use Compression as C;
    for (media_type, title, compression, format) in [
        (OCTETS, "", C::None, None),
        (OCTETS, "disk.raw", C::None, Some(DiskFormat::Raw)),
        (OCTETS, "disk.img.gz", C::Gzip, Some(DiskFormat::Raw)),
        (OCTETS, "disk.QCOW2", C::None, Some(DiskFormat::Qcow2)),
        ("application/zstd", "disk.raw.zst", C::Zstd, Some(DiskFormat::Raw)),
        ("application/zstd", "podman-machine.x86_64.qemu.qcow2.zst", C::Zstd, Some(DiskFormat::Qcow2)),
        ("application/x-xz", "", C::Xz, None),
        ("application/gzip; charset=binary", "disk", C::Gzip, None),
        ("application/vnd.example.disk.qcow2+zstd", "", C::Zstd, Some(DiskFormat::Qcow2)),
        ("application/x-raw-disk-image", "x.bz2", C::Bzip2, Some(DiskFormat::Raw)),
    ] {
        let found = disk(&manifest(true, json!([layer(1, media_type, title)]))).unwrap();
        assert_eq!((found.compression, found.format), (compression, format), "{media_type} {title}");
        assert_eq!((found.blob.to_string(), found.manifest.to_string(), found.size), (digest(1), digest(100), 7));
    }
    // An artifact by its type alone; a manifest that an index calls a disk; and one whose title does.
    let mut typed = manifest(false, json!([layer(1, OCTETS, "")]));
    assert!(disk_as(&typed, Some(DiskFormat::Raw)).is_ok());
    typed["artifactType"] = json!("application/vnd.example");
    assert!(disk(&typed).is_ok());
    assert!(disk(&manifest(false, json!([layer(1, OCTETS, "a.raw")]))).is_ok());
}

#[test]
fn what_is_no_disk_image_is_told() {
    let disks = json!([layer(1, OCTETS, "a.raw"), layer(2, "text/plain", "README"), layer(3, OCTETS, "b.qcow2")]);
    for (value, what) in [
        (manifest(true, json!([])), "has no layer".to_owned()),
        (manifest(false, json!([layer(1, TAR, "")])), "is a container".to_owned()),
        (manifest(true, json!([layer(1, TAR, "a.raw")])), "is a container".to_owned()),
        (manifest(false, json!([layer(1, OCTETS, "")])), "is a container".to_owned()),
        (manifest(false, json!([layer(1, TAR, ""), layer(2, TAR, "")])), "2 layers, and none".to_owned()),
        (manifest(true, disks), format!("several disk images: layer 1 ({}), layer 3 ({})", digest(1), digest(3))),
        (manifest(true, json!([layer(1, OCTETS, "a.raw.lz4")])), format!("layer 1 ({}) is compressed", digest(1))),
        (manifest(true, json!([layer(1, "application/zip", "a.raw")])), "not read".to_owned()),
        (manifest(true, json!([layer(1, "application/zstd", "a.raw.gz")])), "in one way by its media type".to_owned()),
        (manifest(true, json!([layer(1, OCTETS, "a.vmdk")])), "of the format vmdk".to_owned()),
        (json!({"schemaVersion": 1, "layers": []}), "another version".to_owned()),
        (json!({"schemaVersion": 2}), "without layers".to_owned()),
        (json!({"schemaVersion": 2, "layers": [], "manifests": []}), "an index, too".to_owned()),
        (json!({"schemaVersion": 2, "layers": [{"digest": "md5:1"}]}), "none of OCI's".to_owned()),
    ] {
        let error = disk(&value).unwrap_err();
        assert!(error.contains(&what), "{value}: {error}");
    }
    let found = disk(&manifest(true, json!([layer(1, "text/plain", "README"), layer(2, OCTETS, "a.raw")]))).unwrap();
    assert_eq!(found.blob.to_string(), digest(2));
}

fn entry(n: u32, architecture: &str, disktype: &str) -> Value {
    json!({"digest": digest(n), "size": 1, "platform": {"architecture": architecture, "os": "linux"}, "annotations": {"disktype": disktype, "x": [1]}})
}

fn candidates(manifests: Value) -> Result<Vec<u32>, String> {
    let Manifest::Index(index) = read(&json!({"schemaVersion": 2, "manifests": manifests})).unwrap() else {
        panic!("no index")
    };
    let found = index.candidates("x86_64").map_err(|error| error.to_string())?;
    Ok(found.iter().map(|found| u32::from_str_radix(&found.digest.hex()[32..], 16).unwrap()).collect())
}

#[test]
fn of_an_index_the_machines_architecture_and_the_most_direct_disk_is_taken() {
    let all = json!([
        entry(1, "arm64", "raw"), entry(2, "amd64", "qemu"), entry(3, "x86_64", "hyperv"), entry(4, "amd64", ""),
        entry(5, "", "applehv"), entry(6, "AMD64", "qcow2"), entry(7, "x86_64", "raw"), {"digest": digest(8)},
    ]);
    assert_eq!(candidates(all), Ok(vec![7, 5, 6, 2, 4, 8]));
    let error = candidates(json!([entry(1, "arm64", "raw"), entry(2, "s390x", "raw"), entry(3, "arm64", "qcow2")]))
        .unwrap_err();
    assert!(error.contains("is for arm64, s390x, and none of it for x86_64"), "{error}");
    let error = candidates(json!([entry(1, "<script>", "raw"), entry(2, "arm64", "raw")])).unwrap_err();
    assert!(error.contains("arm64 and 1 more") && !error.contains("script"), "{error}");
    assert!(candidates(json!([])).unwrap_err().contains("no architecture"));
    assert!(candidates(json!([entry(1, "amd64", "hyperv")])).unwrap_err().contains("other types"));
}

#[test]
fn lists_and_values_are_bounded() {
    let many: Vec<Value> = (0..=MAX_LAYERS as u32).map(|n| layer(n, OCTETS, "")).collect();
    assert!(read(&manifest(true, json!(many))).is_err());
    assert!(read(&manifest(true, json!(many[1..]))).is_ok());
    assert!(read(&json!({"schemaVersion": 2, "manifests": many})).is_err());
    let values = format!("{{\"schemaVersion\":2,\"layers\":[],\"x\":[{}1]}}", "1,".repeat(MAX_VALUES));
    assert!(Manifest::read(values.as_bytes()).unwrap_err().to_string().contains("too many values"));
}

proptest! {
    /// No text of a manifest is repeated but its digests.
    #[test]
    fn whatever_a_manifest_says_is_not_repeated(media in "[a-z/+.-]{0,20}", title in "[a-z.]{0,12}", artifact: bool, count in 0..4_usize) {
        let layers: Vec<Value> = (0..count as u32).map(|n| layer(n, &format!("{media}SENTINEL"), &format!("SENTINEL{title}"))).collect();
        if let Err(error) = disk(&manifest(artifact, json!(layers))) {
            prop_assert!(!error.to_uppercase().contains("SENTINEL"), "{}", error);
        }
    }

    #[test]
    fn bytes_of_any_kind_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Manifest::read(&bytes);
    }
}
