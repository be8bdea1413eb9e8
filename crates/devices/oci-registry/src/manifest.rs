//! Manifests and indexes (image-spec, `manifest.md` and `image-index.md`): which of them, and which of their layers, is the disk image.
//!
//! Docker's own media types have the same structure and are read the same way (`distribution/manifest/schema2`, `manifestlist`).

use std::fmt;

use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use terms::{Compression, DiskFormat, json_values_at_most, same_architecture};

use crate::digest::Digest;
use crate::error::Error;

/// Most manifests of an index that are looked at.
pub const MAX_MANIFESTS: usize = 256;
/// Most layers of a manifest.
pub const MAX_LAYERS: usize = 256;
/// Most values of a document.
const MAX_VALUES: usize = 50_000;
/// Most architectures that are named in a message.
const MAX_NAMED: usize = 16;
/// Most characters of an architecture.
const MAX_ARCHITECTURE: usize = 16;

/// `Accept` of a request for a manifest.
pub(crate) const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.docker.distribution.manifest.v2+json";
/// The config of an artifact that has none (image-spec, "Guidance for an Empty Descriptor").
const EMPTY: &str = "application/vnd.oci.empty.v1+json";
const TITLE: &str = "org.opencontainers.image.title";

/// The blob that is a disk image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiskLayer {
    /// The manifest that it is a layer of, which may be one of an index.
    pub manifest: Digest,
    /// The blob.
    pub blob: Digest,
    /// Its size in bytes, as the manifest says.
    pub size: u64,
    /// How it is compressed.
    pub compression: Compression,
    /// What it is, if annotation, media type or title say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<DiskFormat>,
}

/// A descriptor, of what is used.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    #[serde(default)]
    media_type: String,
    pub digest: Digest,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    platform: Option<Platform>,
    #[serde(default, deserialize_with = "annotations")]
    annotations: Annotations,
}

#[derive(Clone, Debug, Deserialize)]
struct Platform {
    #[serde(default)]
    architecture: String,
}

/// The annotations that are used.
#[derive(Clone, Debug, Default)]
struct Annotations {
    title: Option<String>,
    disktype: Option<String>,
}

/// Of any number of annotations, those two.
fn annotations<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Annotations, D::Error> {
    struct Two;
    impl<'de> Visitor<'de> for Two {
        type Value = Annotations;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("annotations")
        }
        fn visit_unit<E: serde::de::Error>(self) -> Result<Annotations, E> {
            Ok(Annotations::default())
        }
        fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Annotations, M::Error> {
            let mut found = Annotations::default();
            while let Some(key) = map.next_key::<String>()? {
                match key.as_str() {
                    TITLE => found.title = Some(map.next_value()?),
                    "disktype" => found.disktype = Some(map.next_value()?),
                    _ => drop(map.next_value::<IgnoredAny>()?),
                }
            }
            Ok(found)
        }
    }
    deserializer.deserialize_any(Two)
}

/// A list of so many at most.
fn bounded<'de, D: Deserializer<'de>, const MOST: usize>(deserializer: D) -> Result<Option<Vec<Descriptor>>, D::Error> {
    struct List<const MOST: usize>;
    impl<'de, const MOST: usize> Visitor<'de> for List<MOST> {
        type Value = Option<Vec<Descriptor>>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of descriptors")
        }
        fn visit_unit<E: serde::de::Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }
        fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> Result<Self::Value, S::Error> {
            let mut all = Vec::new();
            while let Some(descriptor) = seq.next_element()? {
                if all.len() == MOST {
                    return Err(serde::de::Error::custom("too many descriptors"));
                }
                all.push(descriptor);
            }
            Ok(Some(all))
        }
    }
    deserializer.deserialize_any(List::<MOST>)
}

/// What a manifest or index holds. Which of the two it is, is told by its content, as both of its lists have names of their own.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    #[serde(default)]
    schema_version: u64,
    #[serde(default)]
    artifact_type: Option<String>,
    #[serde(default)]
    config: Option<Config>,
    #[serde(default, deserialize_with = "bounded::<_, MAX_MANIFESTS>")]
    manifests: Option<Vec<Descriptor>>,
    #[serde(default, deserialize_with = "bounded::<_, MAX_LAYERS>")]
    layers: Option<Vec<Descriptor>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Config {
    #[serde(default)]
    media_type: String,
}

/// An index, or a manifest.
#[derive(Clone, Debug)]
pub(crate) enum Manifest {
    /// Of several.
    Index(Index),
    /// Of layers.
    Layers(Layers),
}

/// The manifests of an index.
#[derive(Clone, Debug)]
pub(crate) struct Index(Vec<Descriptor>);

/// A manifest's layers.
#[derive(Clone, Debug)]
pub(crate) struct Layers {
    /// Artifacts say so, by their type or an empty config.
    is_artifact: bool,
    layers: Vec<Descriptor>,
}

fn nonsense(what: &str) -> Error {
    Error::Nonsense { who: "the registry", what: what.to_owned() }
}

impl Manifest {
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Error> {
        if json_values_at_most(bytes) > MAX_VALUES {
            return Err(nonsense("serves a manifest of too many values"));
        }
        let document: Document = serde_json::from_slice(bytes).map_err(|_| {
            nonsense(&format!(
                "serves a manifest that is none of OCI's, or has more than {MAX_MANIFESTS} manifests or {MAX_LAYERS} layers"
            ))
        })?;
        if document.schema_version != 2 {
            return Err(nonsense("serves a manifest of another version than 2"));
        }
        match (document.manifests, document.layers) {
            (Some(manifests), None) => Ok(Self::Index(Index(manifests))),
            (None, Some(layers)) => {
                let has_type = document.artifact_type.is_some_and(|kind| !kind.is_empty());
                let is_empty = document.config.is_some_and(|config| config.media_type == EMPTY);
                Ok(Self::Layers(Layers { is_artifact: has_type || is_empty, layers }))
            }
            (Some(_), Some(_)) => Err(nonsense("serves a manifest that is an index, too")),
            (None, None) => Err(nonsense("serves a manifest without layers")),
        }
    }
}

/// A manifest of an index that may be the machine's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub digest: Digest,
    /// `disktype`, where it is known.
    pub format: Option<DiskFormat>,
}

impl Index {
    /// Those for this architecture, the best first: by what an agent writes most directly, as Ironic orders them.
    pub(crate) fn candidates(&self, architecture: &str) -> Result<Vec<Candidate>, Error> {
        let of = |descriptor: &Descriptor| {
            let named = descriptor.platform.as_ref().map(|platform| platform.architecture.clone());
            named.filter(|named| !named.is_empty())
        };
        let fits =
            |descriptor: &&Descriptor| of(descriptor).is_none_or(|named| same_architecture(&named, architecture));
        let fitting: Vec<&Descriptor> = self.0.iter().filter(fits).collect();
        if fitting.is_empty() {
            let found: Vec<String> = self.0.iter().filter_map(of).collect();
            return Err(Error::Architecture { wanted: architecture.to_owned(), found: in_words(&found) });
        }
        let mut ranked: Vec<(u8, Candidate)> = fitting
            .into_iter()
            .filter_map(|descriptor| {
                let (rank, format) = match descriptor.annotations.disktype.as_deref() {
                    Some("raw") => (1, Some(DiskFormat::Raw)),
                    Some("applehv") => (2, Some(DiskFormat::Raw)),
                    Some("qcow2") => (3, Some(DiskFormat::Qcow2)),
                    Some("qemu") => (4, Some(DiskFormat::Qcow2)),
                    None | Some("") => (100, None),
                    Some(_) => return None,
                };
                Some((rank, Candidate { digest: descriptor.digest.clone(), format }))
            })
            .collect();
        ranked.sort_by_key(|(rank, _)| *rank);
        if ranked.is_empty() {
            let what = format!(
                "has disks for {architecture} of other types only than raw, applehv, qcow2 and qemu (annotation disktype)"
            );
            return Err(Error::NoDiskImage { what });
        }
        Ok(ranked.into_iter().map(|(_, candidate)| candidate).collect())
    }
}

impl Layers {
    /// The layer that is the disk image.
    pub(crate) fn disk(&self, manifest: &Digest, format: Option<DiskFormat>) -> Result<DiskLayer, Error> {
        let none = |what: String| Error::NoDiskImage { what };
        let (position, layer) = match self.layers.as_slice() {
            [] => return Err(none("has no layer".to_owned())),
            [only] if is_tree(&only.media_type) || !(self.is_artifact || format.is_some() || only.is_disk()) => {
                return Err(none("is a container, whose only layer is no disk image".to_owned()));
            }
            [only] => (1, only),
            all => {
                let disks: Vec<_> = all.iter().enumerate().filter(|(_, layer)| layer.is_disk()).collect();
                match disks.as_slice() {
                    [] => return Err(none(format!("has {} layers, and none says that it is a disk image", all.len()))),
                    [(index, layer)] => (index + 1, *layer),
                    several => {
                        let named: Vec<String> = several
                            .iter()
                            .take(MAX_NAMED)
                            .map(|(index, layer)| format!("layer {} ({})", index + 1, layer.digest))
                            .collect();
                        return Err(none(format!("has several disk images: {}", named.join(", "))));
                    }
                }
            }
        };
        let unsupported = |what: &str| Error::Unsupported { what: format!("{position} ({}) {what}", layer.digest) };
        let file = layer.file();
        let by_type = compression_of_type(&layer.media_type).map_err(unsupported)?;
        let by_title = file.compression.map_err(unsupported)?;
        let compression = match (by_type, by_title) {
            (None, None) => Compression::None,
            (Some(one), None) | (None, Some(one)) => one,
            (Some(one), Some(other)) if one == other => one,
            _ => return Err(unsupported("is compressed in one way by its media type and in another by its title")),
        };
        let format = format.or_else(|| format_of_type(&layer.media_type)).or(file.format);
        if let Some(other) = format.filter(|format| !matches!(format, DiskFormat::Raw | DiskFormat::Qcow2)) {
            return Err(unsupported(&format!("is of the format {}", other.as_str())));
        }
        if format == Some(DiskFormat::Qcow2) && compression != Compression::None {
            return Err(unsupported("is a qcow2 image that is compressed as a whole"));
        }
        Ok(DiskLayer { manifest: manifest.clone(), blob: layer.digest.clone(), size: layer.size, compression, format })
    }
}

/// What the name of a file says.
struct File {
    format: Option<DiskFormat>,
    compression: Result<Option<Compression>, &'static str>,
}

impl Descriptor {
    /// What the title says: a file name with its endings.
    fn file(&self) -> File {
        let title = self.annotations.title.as_deref().unwrap_or_default().to_ascii_lowercase();
        let mut endings = title.rsplit('.');
        let last = endings.next().unwrap_or_default();
        let compression = match last {
            "gz" => Ok(Some(Compression::Gzip)),
            "zst" | "zstd" => Ok(Some(Compression::Zstd)),
            "xz" => Ok(Some(Compression::Xz)),
            "bz2" => Ok(Some(Compression::Bzip2)),
            "lz4" | "lzma" | "zip" | "7z" | "br" => Err("is compressed in a way that is not read"),
            _ => Ok(None),
        };
        let inner = if compression == Ok(None) { last } else { endings.next().unwrap_or_default() };
        let format = match inner {
            "raw" | "img" | "dd" => Some(DiskFormat::Raw),
            "qcow2" => Some(DiskFormat::Qcow2),
            "vmdk" => Some(DiskFormat::Vmdk),
            "vdi" => Some(DiskFormat::Vdi),
            "iso" => Some(DiskFormat::LiveIso),
            _ => None,
        };
        File { format, compression }
    }

    /// Whether it says that it is a disk image, among layers that may be anything.
    fn is_disk(&self) -> bool {
        !is_tree(&self.media_type) && (self.file().format.is_some() || format_of_type(&self.media_type).is_some())
    }
}

/// A layer of files, of which containers are made.
fn is_tree(media_type: &str) -> bool {
    let base = media_type.split('+').next().unwrap_or_default();
    base.ends_with(".tar") || base.ends_with(".tar.gzip") || base.ends_with("/tar") || base.ends_with("/x-tar")
}

/// What a media type says of the disk's format. Registered is none; these are in use.
fn format_of_type(media_type: &str) -> Option<DiskFormat> {
    let base = media_type.split(['+', ';']).next().unwrap_or_default();
    let name = base.rsplit('/').next().unwrap_or_default();
    let named = |word: &str| name.split(['.', '-', '_']).any(|part| part == word);
    if named("qcow2") {
        Some(DiskFormat::Qcow2)
    } else if named("raw") {
        Some(DiskFormat::Raw)
    } else if named("vmdk") {
        Some(DiskFormat::Vmdk)
    } else {
        None
    }
}

/// `application/zstd`, `…+gzip` and the like.
fn compression_of_type(media_type: &str) -> Result<Option<Compression>, &'static str> {
    let base = media_type.split(';').next().unwrap_or_default().trim();
    let last = base.rsplit(['/', '+']).next().unwrap_or_default().to_ascii_lowercase();
    Ok(Some(match last.strip_prefix("x-").unwrap_or(&last) {
        "gzip" | "gz" => Compression::Gzip,
        "zstd" | "zst" => Compression::Zstd,
        "xz" => Compression::Xz,
        "bzip2" | "bz2" => Compression::Bzip2,
        "lz4" | "lzma" | "zip" | "7z-compressed" | "brotli" | "encrypted" => {
            return Err("is compressed or encrypted in a way that is not read");
        }
        _ => return Ok(None),
    }))
}

/// Architectures as they may be shown: names that could be anything are counted.
fn in_words(found: &[String]) -> String {
    let is_name = |name: &&String| {
        name.len() <= MAX_ARCHITECTURE && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    let mut names: Vec<&str> = found.iter().filter(is_name).map(String::as_str).collect();
    names.sort_unstable();
    names.dedup();
    let shown = names.len().min(MAX_NAMED);
    let others = names.len() - shown + usize::from(found.iter().any(|name| !is_name(&name)));
    names.truncate(shown);
    match (names.is_empty(), others) {
        (true, 0) => "no architecture".to_owned(),
        (true, _) => "architectures of no known name".to_owned(),
        (false, 0) => names.join(", "),
        (false, others) => format!("{} and {others} more", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
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
            ("application/vnd.example.disk.qcow2", "", C::None, Some(DiskFormat::Qcow2)),
            ("application/x-xz", "", C::Xz, None),
            ("application/gzip; charset=binary", "disk", C::Gzip, None),
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

    /// A qcow2 file is read at many places: what is compressed as a whole would have to be stored first.
    #[test]
    fn a_qcow2_image_is_not_compressed_as_a_whole() {
        for (media_type, title) in [
            ("application/zstd", "podman-machine.x86_64.qemu.qcow2.zst"),
            ("application/vnd.example.disk.qcow2+zstd", ""),
        ] {
            let refused = disk(&manifest(true, json!([layer(1, media_type, title)]))).unwrap_err();
            assert!(refused.contains("as a whole"), "{refused}");
        }
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
            (
                manifest(true, json!([layer(1, "application/zstd", "a.raw.gz")])),
                "in one way by its media type".to_owned(),
            ),
            (manifest(true, json!([layer(1, OCTETS, "a.vmdk")])), "of the format vmdk".to_owned()),
            (json!({"schemaVersion": 1, "layers": []}), "another version".to_owned()),
            (json!({"schemaVersion": 2}), "without layers".to_owned()),
            (json!({"schemaVersion": 2, "layers": [], "manifests": []}), "an index, too".to_owned()),
            (json!({"schemaVersion": 2, "layers": [{"digest": "md5:1"}]}), "none of OCI's".to_owned()),
        ] {
            let error = disk(&value).unwrap_err();
            assert!(error.contains(&what), "{value}: {error}");
        }
        let found =
            disk(&manifest(true, json!([layer(1, "text/plain", "README"), layer(2, OCTETS, "a.raw")]))).unwrap();
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
}
