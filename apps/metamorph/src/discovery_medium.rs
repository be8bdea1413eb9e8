//! `discovery medium`: where the medium of a HostDiscovery is, which any machine may boot to report itself, and the image as a file.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use api::metamorph::{DiscoveryMediumAt, HostDiscovery};
use kube::Api;
use terms::clean;
use url::Url;

use crate::probe::{self, Question};
use crate::report_args::DiscoveryMediumOptions;
use crate::{client, say, stop};

/// Largest image that is written. A medium has less than 100 MiB.
const MAX_IMAGE: u64 = 2 << 30;
/// Longest address that is printed, characters.
const MAX_URL: usize = 512;

/// Prints the addresses, or fetches the image.
pub async fn run(options: DiscoveryMediumOptions) -> anyhow::Result<()> {
    let client = client::connect(options.kubeconfig.as_deref()).await?;
    let namespace = options.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
    let name = format!("{namespace}/{}", options.name);
    let all: Api<HostDiscovery> = Api::namespaced(client, &namespace);
    let found = all.get(&options.name).await.with_context(|| format!("read the HostDiscovery {name}"))?;
    let offered = offered(&found, options.architecture.as_deref());
    let media = offered.with_context(|| format!("find the medium of the HostDiscovery {name}"))?;
    ensure!(
        media.iter().any(|medium| !medium.urls.is_empty()),
        "the server offers no address of it yet: try again in a minute"
    );
    let Some(path) = &options.out else { return say::out(&listed(&media)) };
    let [medium] = media.as_slice() else {
        bail!("there are media for {}: name one by --architecture", architectures(&media));
    };
    let authorities = match &options.media_ca {
        Some(file) => std::fs::read_to_string(file).with_context(|| format!("read {} (--media-ca)", file.display()))?,
        None => String::new(),
    };
    let (bytes, from) = fetch(medium, path, &authorities).await?;
    say::note(&format!("{} has the medium for {}: {bytes} bytes, of {from}", path.display(), medium.architecture));
    Ok(())
}

/// The media that machines can boot now.
fn offered(found: &HostDiscovery, architecture: Option<&str>) -> anyhow::Result<Vec<DiscoveryMediumAt>> {
    let Some(wanted) = &found.spec.medium else { bail!("it offers none: its spec.medium is not set") };
    let status = found.status.clone().unwrap_or_default();
    let current: Vec<DiscoveryMediumAt> =
        status.media.into_iter().filter(|medium| medium.revision == wanted.revision).collect();
    if current.is_empty() {
        let why = status.conditions.iter().find(|condition| condition.type_ == "Ready");
        let why = why.map(|condition| format!(" ({})", clean(&condition.message, MAX_URL))).unwrap_or_default();
        bail!("the server does not offer revision {} of it yet{why}", wanted.revision);
    }
    let is_meant = |medium: &&DiscoveryMediumAt| architecture.is_none_or(|wanted| medium.architecture == wanted);
    let media: Vec<DiscoveryMediumAt> = current.iter().filter(is_meant).cloned().collect();
    ensure!(
        !media.is_empty(),
        "there is none for {}, the server has agent images for {}",
        architecture.unwrap_or_default(),
        architectures(&current)
    );
    Ok(media)
}

fn architectures(media: &[DiscoveryMediumAt]) -> String {
    media.iter().map(|medium| clean(&medium.architecture, 32)).collect::<Vec<_>>().join(" and ")
}

/// An architecture and an address a line.
fn listed(media: &[DiscoveryMediumAt]) -> String {
    let of = |medium: &DiscoveryMediumAt| {
        let architecture = clean(&medium.architecture, 32);
        medium.urls.iter().map(|url| format!("{architecture} {}\n", clean(url, MAX_URL))).collect::<String>()
    };
    media.iter().map(of).collect()
}

/// Writes the image into a new file, from the first address that gives it: how many bytes, and which address.
async fn fetch(medium: &DiscoveryMediumAt, path: &Path, authorities: &str) -> anyhow::Result<(u64, String)> {
    ensure!(!path.exists(), "{} is there already: nothing is overwritten (--out)", path.display());
    // Before anybody is called: it is no address's fault.
    let mut file = Half::create(path)?;
    let mut failed = Vec::new();
    for text in &medium.urls {
        let shown = clean(text, MAX_URL);
        let fetched = tokio::select! {
            fetched = fetch_from(text, &mut file, authorities) => fetched,
            // What there is of it goes with the file under way.
            signal = stop::stop_signal() => {
                signal?;
                bail!("stopped: nothing is written");
            }
        };
        match fetched {
            Ok(bytes) => {
                file.finish(path)?;
                return Ok((bytes, shown));
            }
            Err(error) => failed.push(format!("{shown}: {error:#}")),
        }
    }
    bail!("the medium cannot be fetched: {}", failed.join("; "))
}

async fn fetch_from(text: &str, file: &mut Half, authorities: &str) -> anyhow::Result<u64> {
    let url = Url::parse(text).context("read the address")?;
    let mut opened =
        probe::open(&Question { authorities, by_itself: true, ..Question::get(&url) }).await.map_err(told)?;
    if let Some(fault) = opened.answer.certificate.as_ref().and_then(|certificate| certificate.fault.as_ref()) {
        bail!("its certificate is not trusted: {fault} (--media-ca)");
    }
    ensure!(opened.answer.status == 200, "it answers {}", opened.answer.status);
    file.begin()?;
    let mut bytes: u64 = 0;
    while let Some(data) = opened.next().await.map_err(told)? {
        bytes = bytes.saturating_add(data.len() as u64);
        ensure!(bytes <= MAX_IMAGE, "it has more than {MAX_IMAGE} bytes");
        file.write(&data)?;
    }
    Ok(bytes)
}

fn told(trouble: probe::Trouble) -> anyhow::Error {
    anyhow::anyhow!("{trouble}")
}

/// A file under way, beside the one that it becomes. Dropped before, it leaves nothing.
struct Half {
    file: File,
    path: Option<PathBuf>,
}

impl Half {
    fn create(whole: &Path) -> anyhow::Result<Self> {
        let mut name = whole.file_name().context("it has to be the name of a file (--out)")?.to_owned();
        name.push(".part");
        let path = whole.with_file_name(name);
        // Of a run that was killed one may be left; somebody else may have put a link there.
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let file = match file {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                bail!("{} is there already, of a run that was killed or of one that goes on: delete it", path.display())
            }
            Err(error) => {
                return Err(error).with_context(|| format!("make the new file {} (--out)", path.display()));
            }
        };
        Ok(Self { file, path: Some(path) })
    }

    /// Anew: another address may have given a part.
    fn begin(&mut self) -> anyhow::Result<()> {
        self.file.set_len(0).and_then(|()| self.file.rewind()).context("write the image")
    }

    fn write(&mut self, data: &[u8]) -> anyhow::Result<()> {
        self.file.write_all(data).context("write the image")
    }

    fn finish(mut self, whole: &Path) -> anyhow::Result<()> {
        self.file.sync_all().context("write the image")?;
        let Some(path) = self.path.as_ref() else { return Ok(()) };
        ensure!(!whole.exists(), "{} was made meanwhile: nothing is overwritten (--out)", whole.display());
        std::fs::rename(path, whole).with_context(|| format!("make {}", whole.display()))?;
        self.path = None;
        Ok(())
    }
}

impl Drop for Half {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // Nobody can be told; the name says that it is no whole image.
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use api::metamorph::{DiscoveryMedium, HostDiscoverySpec, HostDiscoveryStatus};
    use axum::Router;
    use axum::http::StatusCode;
    use axum::routing::get;

    use super::*;

    fn at(architecture: &str, revision: u32, urls: &[&str]) -> DiscoveryMediumAt {
        DiscoveryMediumAt {
            architecture: architecture.to_owned(),
            revision,
            urls: urls.iter().map(|url| (*url).to_owned()).collect(),
        }
    }

    fn discovery(media: Vec<DiscoveryMediumAt>) -> HostDiscovery {
        let medium = Some(DiscoveryMedium { revision: 2, ..DiscoveryMedium::default() });
        let mut found = HostDiscovery::new("rack", HostDiscoverySpec { medium, ..HostDiscoverySpec::default() });
        found.status = Some(HostDiscoveryStatus { media, ..HostDiscoveryStatus::default() });
        found
    }

    #[test]
    fn media_of_the_revision_that_is_wanted_are_told() {
        let both =
            discovery(vec![at("x86_64", 2, &["http://a/1", "https://a/\u{1b}1"]), at("aarch64", 2, &["http://a/2"])]);
        let media = offered(&both, None).unwrap();
        assert_eq!(listed(&media), "x86_64 http://a/1\nx86_64 https://a/ 1\naarch64 http://a/2\n");
        assert_eq!(listed(&offered(&both, Some("aarch64")).unwrap()), "aarch64 http://a/2\n");
        let one = discovery(vec![at("x86_64", 2, &["http://a/1"])]);
        assert!(offered(&one, Some("aarch64")).unwrap_err().to_string().contains("agent images for x86_64"));
        let old = discovery(vec![at("x86_64", 1, &["http://a/1"])]);
        assert!(offered(&old, None).unwrap_err().to_string().contains("does not offer revision 2 of it yet"));
        let mut none = old;
        none.spec.medium = None;
        assert!(offered(&none, None).unwrap_err().to_string().contains("spec.medium is not set"));
    }

    #[tokio::test]
    async fn the_image_is_fetched_whole_or_not_at_all() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let short = || async {
            let pieces = [Ok(vec![0_u8; 10]), Err(std::io::Error::other("it breaks off"))];
            axum::body::Body::from_stream(futures::stream::iter(pieces))
        };
        let gone = || async { StatusCode::NOT_FOUND };
        let router = Router::new().route("/good", get(|| async { vec![7_u8; 100_000] })).route("/short", get(short));
        let router = router.route("/gone", get(gone));
        tokio::spawn(async move { axum::serve(listener, router).await });
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rack.iso");
        let of = |names: &[&str]| {
            let urls: Vec<String> = names.iter().map(|name| format!("{base}/{name}")).collect();
            at("x86_64", 1, &urls.iter().map(String::as_str).collect::<Vec<_>>())
        };
        let failed = fetch(&of(&["gone", "short"]), &path, "").await.unwrap_err().to_string();
        assert!(failed.contains("it answers 404") && failed.contains("/short: no answer by HTTP"), "{failed}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let (bytes, from) = fetch(&of(&["gone", "good"]), &path, "").await.unwrap();
        assert_eq!((bytes, from), (100_000, format!("{base}/good")));
        assert_eq!(std::fs::read(&path).unwrap(), vec![7; 100_000]);
        let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
        let again = fetch(&of(&["good"]), &path, "").await.unwrap_err().to_string();
        assert!(again.contains("nothing is overwritten"), "{again}");
    }
}
