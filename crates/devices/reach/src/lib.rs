//! HTTP to the addresses that outsiders name: images, registries, and what these redirect to.
//!
//! **What is called** is looked at where a connection is about to be made: the URL, each redirect, and each name once it is resolved. This machine
//! itself, its link and a cloud's metadata service are not called, unless [`Allowed`] names them.
//!
//! **By way of a proxy** the one connection that this machine makes is to the proxy, whose address is looked at in the same way. Of what the proxy is
//! asked for, addresses that are written as such, and `localhost`, are looked at here; names are resolved by the proxy, which reaches what *it* may
//! reach: its own rules count then. No environment variable names a proxy.

mod faults;

use addresses::{Allowed, NotAllowed};
use image_sources::Route;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::HeaderValue;
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Proxy, RequestBuilder};
use url::Url;

pub use faults::{Refused, not_allowed, refused_by_proxy};

/// Most redirects that are followed.
const MAX_REDIRECTS: usize = 10;

/// A client, and what it may call.
#[derive(Clone)]
pub struct Reach {
    client: Client,
    /// `None` for a client of tests, which calls everything.
    allowed: Option<Allowed>,
    proxy: Option<Route>,
}

impl std::fmt::Debug for Reach {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reach").field("allowed", &self.allowed).field("proxy", &self.proxy).finish_non_exhaustive()
    }
}

impl From<Client> for Reach {
    /// A client that calls whatever it is told to, itself.
    fn from(client: Client) -> Self {
        Self { client, allowed: None, proxy: None }
    }
}

/// Whether redirects are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redirects {
    /// Where they may lead: not to what may not be called, and not to the same server without TLS.
    Followed,
    /// They are answers like others.
    Told,
}

impl Reach {
    /// A client of this builder that calls local addresses only if they are allowed, by way of this proxy.
    ///
    /// # Errors
    /// If HTTP cannot be set up.
    pub fn new(
        builder: ClientBuilder,
        allowed: &Allowed,
        proxy: Option<&Route>,
        redirects: Redirects,
    ) -> Result<Self, reqwest::Error> {
        let policy = match redirects {
            Redirects::Told => Policy::none(),
            Redirects::Followed => followed(allowed.clone()),
        };
        let builder = builder.no_proxy().dns_resolver(Guard(allowed.clone())).redirect(policy);
        let builder = match proxy {
            None => builder,
            Some(proxy) => builder.proxy(by(proxy.clone())),
        };
        Ok(Self { client: builder.build()?, allowed: Some(allowed.clone()), proxy: proxy.cloned() })
    }

    /// The proxy by way of which this URL is read.
    #[must_use]
    pub fn via(&self, url: &Url) -> Option<&Route> {
        self.proxy.as_ref().filter(|proxy| proxy.carries(url))
    }

    /// Whether this URL, and the proxy that carries it, may be called, as far as that can be told without resolving names: to be asked before
    /// [`Reach::get`].
    ///
    /// # Errors
    /// [`NotAllowed`].
    pub fn check(&self, url: &Url) -> Result<(), NotAllowed> {
        let Some(allowed) = &self.allowed else { return Ok(()) };
        allowed.check_url(url)?;
        self.via(url).map_or(Ok(()), |proxy| allowed.check_url(proxy.url()))
    }

    /// A request.
    pub fn get(&self, url: Url) -> RequestBuilder {
        self.client.get(url)
    }
}

fn by(route: Route) -> Proxy {
    let login = route.login().and_then(|login| HeaderValue::from_str(&login.0).ok());
    let proxy = Proxy::custom(move |url| route.carries(url).then(|| route.url().clone()));
    match login {
        None => proxy,
        Some(mut login) => {
            login.set_sensitive(true);
            proxy.custom_http_auth(login)
        }
    }
}

fn followed(allowed: Allowed) -> Policy {
    Policy::custom(move |attempt| match allowed.check_url(attempt.url()) {
        Err(refused) => attempt.error(refused),
        Ok(()) if attempt.previous().len() > MAX_REDIRECTS => attempt.error("it is redirected too often"),
        // It would go on with the authorization of the first request.
        Ok(()) if attempt.previous().last().is_some_and(|before| loses_tls(before, attempt.url())) => {
            attempt.error("it is redirected to the same server without TLS")
        }
        Ok(()) => attempt.follow(),
    })
}

fn loses_tls(before: &Url, next: &Url) -> bool {
    let at = |url: &Url| (url.host_str().map(ToOwned::to_owned), url.port_or_known_default());
    before.scheme() == "https" && next.scheme() != "https" && at(before) == at(next)
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
