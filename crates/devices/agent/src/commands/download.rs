//! Where an image is read: at one address after the other, by way of a proxy where the order says so, until one serves the bytes of the checksum.

use std::collections::VecDeque;

use addresses::{Allowed, without_secrets};
use agent_protocol::{ErrorCode, ImageSource, SourceAddress};
use disk_image::{Cause, Checksum, Compression, Error, HttpSource, MAX_CHECKSUM_FILE, RetryPolicy, WriteRequest};
use image_sources::{Login, Proxy, Route};
use reach::Reach;
use url::Url;

use super::failure::Failure;
use crate::text::cut;

/// Most addresses that are asked for one image.
const MAX_SOURCES: usize = 8;
/// Longest word on an address that did not serve, in bytes.
const MAX_TOLD: usize = 300;

/// An image that is about to be read, with everything needed to read it.
pub(super) struct Download<'a> {
    image: &'a ImageSource,
    /// As the host names it.
    url: Url,
    reach: Reach,
    handle: tokio::runtime::Handle,
    /// Addresses that have not been asked.
    left: VecDeque<SourceAddress>,
    /// Where it is read is more than the order's address.
    is_told: bool,
    /// Why earlier addresses do not serve.
    failed: Vec<String>,
}

/// A server that has answered with the image.
pub(super) struct Opened {
    pub(super) source: HttpSource,
    pub(super) address: SourceAddress,
    /// For people; empty where it is simply the order's address.
    pub(super) told: String,
}

impl<'a> Download<'a> {
    pub(super) fn new(
        image: &'a ImageSource,
        tls: rustls::ClientConfig,
        handle: tokio::runtime::Handle,
    ) -> Result<Self, Failure> {
        let url = url_of(&image.url)?;
        // Only a newer server sends ranges that do not parse: they allow nothing.
        let allowed = Allowed::new(image.allowed_addresses.iter().filter_map(|range| range.parse().ok()));
        let builder = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .http1_only()
            .connect_timeout(std::time::Duration::from_secs(15));
        let proxy = proxy(image)?;
        let reach = Reach::new(builder, &allowed, proxy.as_ref())
            .map_err(|error| Failure::internal(format!("setting up HTTP failed: {error}")))?;
        let itself = SourceAddress { url: image.url.clone(), authorization: image.authorization.clone() };
        let left: VecDeque<_> = match image.sources.as_slice() {
            [] => [itself].into(),
            sources => sources.iter().take(MAX_SOURCES).cloned().collect(),
        };
        let is_told = proxy.is_some() || !image.sources.is_empty();
        Ok(Self { image, url, reach, handle, left, is_told, failed: Vec::new() })
    }

    /// The write request and the image's bytes, from the first server that answers with them.
    pub(super) fn open(&mut self) -> Result<(WriteRequest, Opened), Failure> {
        let image = self.image;
        let compression = image.compression.unwrap_or_else(|| Compression::from_url(&image.url));
        let request = WriteRequest::new(image.format, compression, self.checksum()?);
        Ok((request, self.next()?))
    }

    /// The next server, after one has failed.
    pub(super) fn next_after(&mut self, failure: Failure) -> Result<Opened, Failure> {
        if self.left.is_empty() {
            return Err(self.all_of(failure));
        }
        self.note(&failure);
        self.next()
    }

    fn next(&mut self) -> Result<Opened, Failure> {
        loop {
            let Some(address) = self.left.pop_front() else {
                return Err(Failure::new(ErrorCode::ImageUnreachable, "reading the image: no address is left"));
            };
            match self.ask(&address) {
                Ok(opened) => return Ok(opened),
                Err(failure) if self.left.is_empty() => return Err(self.all_of(failure)),
                Err(failure) => self.note(&failure),
            }
        }
    }

    fn ask(&self, address: &SourceAddress) -> Result<Opened, Failure> {
        let url = url_of(&address.url)?;
        let (reach, handle, policy) = (self.reach.clone(), self.handle.clone(), RetryPolicy::default());
        let authorization = address.authorization.as_ref().map(|value| value.0.as_str());
        let source = HttpSource::open_with(reach, handle, &address.url, policy, authorization)
            .map_err(|error| self.failed("reading the image", address, &error))?;
        let told = match self.reach.via(&url) {
            _ if !self.is_told => String::new(),
            Some(proxy) => format!("{} by way of the proxy {proxy}", without_secrets(&url)),
            None => without_secrets(&url),
        };
        Ok(Opened { source, address: address.clone(), told })
    }

    fn note(&mut self, failure: &Failure) {
        tracing::warn!("{failure}; another address is asked");
        self.failed.push(cut(&failure.to_string(), MAX_TOLD).to_owned());
    }

    /// The last failure, with those before it.
    fn all_of(&self, last: Failure) -> Failure {
        if self.failed.is_empty() { last } else { last.after(&self.failed) }
    }

    /// Why earlier addresses did not serve, for people.
    pub(super) fn told(&mut self) -> Vec<String> {
        std::mem::take(&mut self.failed)
    }

    /// A token holds for some minutes. One that has run out is no word on the image: another order brings another token.
    pub(super) fn failed(&self, attempt: &str, address: &SourceAddress, error: &Error) -> Failure {
        match error {
            Error::SourceStatus { status: status @ (401 | 403), url } if address.authorization.is_some() => {
                let text = format!(
                    "{attempt}: {url} does not take the token that was given for it (HTTP status {status}), which may have run out"
                );
                Failure::new(ErrorCode::ImageUnreachable, text)
            }
            // Of several, which is not seen otherwise.
            error if self.is_told => {
                let from = Url::parse(&address.url).map(|url| without_secrets(&url)).unwrap_or_default();
                let attempt = if error.names_source() { attempt.to_owned() } else { format!("{attempt} from {from}") };
                Failure::of_image(&attempt, error)
            }
            error => Failure::of_image(attempt, error),
        }
    }

    /// The digest: given as such, or by a file that lists it.
    fn checksum(&mut self) -> Result<Checksum, Failure> {
        let image = self.image;
        let text = image.checksum.trim();
        if !(text.starts_with("http://") || text.starts_with("https://")) {
            let failed = |error| Failure::of_image("reading the image's checksum", &error);
            return Checksum::from_hex(text, image.checksum_type).map_err(failed);
        }
        let name = self.url.path_segments().and_then(|mut parts| parts.next_back()).unwrap_or_default();
        let asked: Vec<&str> = match image.checksum_sources.as_slice() {
            [] => vec![text],
            sources => sources.iter().take(MAX_SOURCES).map(String::as_str).collect(),
        };
        let mut failed = Vec::new();
        let mut last = None;
        for url in asked {
            let (reach, handle) = (self.reach.clone(), self.handle.clone());
            let read = HttpSource::fetch_text(reach, handle, url, RetryPolicy::default(), MAX_CHECKSUM_FILE)
                .and_then(|list| Checksum::from_file_text(&list, name, image.checksum_type));
            match read {
                Ok(checksum) => {
                    self.failed.append(&mut failed);
                    return Ok(checksum);
                }
                Err(error) => {
                    let failure = Failure::of_checksum_file(&error);
                    failed.push(cut(&failure.to_string(), MAX_TOLD).to_owned());
                    last = Some(failure);
                }
            }
        }
        let last = last.unwrap_or_else(|| Failure::internal("reading the image's checksum file: it has no address"));
        failed.pop();
        Err(if failed.is_empty() { last } else { last.after(&failed) })
    }
}

/// Whether the error may be the server's, and another server may serve what this one does not.
pub(super) fn is_of_source(error: &Error) -> bool {
    match error.cause() {
        Cause::SourceUnreachable
        | Cause::SourceNotAllowed
        | Cause::SourceStatus
        | Cause::SourceChanged
        | Cause::Truncated
        | Cause::ChecksumMismatch
        | Cause::ImageTooLarge
        | Cause::UnsupportedFormat
        | Cause::CorruptImage => true,
        Cause::ChecksumUnusable | Cause::DiskIo | Cause::NoSpace | Cause::Cancelled | Cause::Internal => false,
    }
}

fn url_of(text: &str) -> Result<Url, Failure> {
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    url.ok_or_else(|| Failure::new(ErrorCode::ImageInvalid, "the image's address is not an http or https URL"))
}

fn proxy(image: &ImageSource) -> Result<Option<Route>, Failure> {
    let Some(proxy) = &image.proxy else { return Ok(None) };
    let login = proxy.authorization.as_ref().map(|value| Login(value.0.clone()));
    let route = Proxy { url: proxy.url.clone(), login, no_proxy: proxy.no_proxy.clone() }.route();
    // Not by way of it would be elsewhere than ordered.
    route.map(Some).map_err(|fault| Failure::new(ErrorCode::ImageUnreachable, format!("reading the image: {fault}")))
}
