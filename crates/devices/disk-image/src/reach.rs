//! From where an image may be read: not from this machine itself, its link or a cloud's metadata service, unless that is allowed. Looked at is the
//! address to which a connection is about to be made: of the URL, of each redirect, and of each name once it is resolved.

use std::error::Error as StdError;
use std::net::IpAddr;

use addresses::{Allowed, NotAllowed, without_secrets};
use reqwest::ClientBuilder;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use url::{Host, Url};

use crate::error::Error;

/// Most redirects that are followed.
const MAX_REDIRECTS: usize = 10;
/// Most causes of an error that are looked through.
const MAX_CAUSES: usize = 16;

/// A client that connects to local addresses only if they are allowed. IP addresses in the URL itself are checked by [`check`].
pub fn guarded(builder: ClientBuilder, allowed: &Allowed) -> ClientBuilder {
    let (names, hops) = (allowed.clone(), allowed.clone());
    let redirects = Policy::custom(move |attempt| match of_url(attempt.url(), &hops) {
        Err(refused) => attempt.error(refused),
        Ok(()) if attempt.previous().len() > MAX_REDIRECTS => attempt.error("it is redirected too often"),
        // It would go on with the authorization of the first request.
        Ok(()) if attempt.previous().last().is_some_and(|before| loses_tls(before, attempt.url())) => {
            attempt.error("it is redirected to the same server without TLS")
        }
        Ok(()) => attempt.follow(),
    });
    builder.dns_resolver(Guard(names)).redirect(redirects)
}

/// Checks whether an image may be read from this URL, as far as possible without resolving names.
///
/// # Errors
/// One of the cause [`crate::Cause::SourceNotAllowed`].
pub fn check(url: &Url, allowed: &Allowed) -> Result<(), Error> {
    of_url(url, allowed).map_err(|refused| not_allowed(url, refused))
}

/// The error for a URL whose address, or that of a redirect, is not allowed.
pub(crate) fn not_allowed(url: &Url, refused: NotAllowed) -> Error {
    Error::SourceUnreachable { url: without_secrets(url), attempts: 1, offset: 0, source: Box::new(refused) }
}

fn loses_tls(before: &Url, next: &Url) -> bool {
    let at = |url: &Url| (url.host_str().map(ToOwned::to_owned), url.port_or_known_default());
    before.scheme() == "https" && next.scheme() != "https" && at(before) == at(next)
}

fn of_url(url: &Url, allowed: &Allowed) -> Result<(), NotAllowed> {
    match url.host() {
        Some(Host::Ipv4(address)) => allowed.check(IpAddr::V4(address)),
        Some(Host::Ipv6(address)) => allowed.check(IpAddr::V6(address)),
        Some(Host::Domain(_)) | None => Ok(()),
    }
}

/// The refusal behind an error of a [`guarded`] client, if there is one.
pub(crate) fn refusal(error: &reqwest::Error) -> Option<NotAllowed> {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    for _ in 0..MAX_CAUSES {
        let refused = cause?.downcast_ref::<NotAllowed>();
        if refused.is_some() {
            return refused.copied();
        }
        cause = cause?.source();
    }
    None
}

/// Resolves names with the system's resolver, and keeps the allowed addresses.
struct Guard(Allowed);

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let allowed = self.0.clone();
        Box::pin(async move {
            let found: Vec<_> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let good: Addrs = Box::new(allowed.among(found)?.into_iter());
            Ok(good)
        })
    }
}
