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
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue, LOCATION};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Proxy, RequestBuilder, Response};
use url::Url;

pub use faults::{Lost, Refused, not_allowed, refused_by_proxy};

/// Most redirects that are followed.
const MAX_REDIRECTS: usize = 10;
/// Longest address that is redirected to, in bytes.
const MAX_URL: usize = 8192;

/// A client, and what it may call.
#[derive(Clone)]
pub struct Reach {
    client: Client,
    /// `None` for a client of tests, which calls everything.
    allowed: Option<Allowed>,
    proxy: Option<Route>,
    /// No redirect leads from TLS to anything without.
    keeps_tls: bool,
}

impl std::fmt::Debug for Reach {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reach").field("allowed", &self.allowed).field("proxy", &self.proxy).finish_non_exhaustive()
    }
}

impl From<Client> for Reach {
    /// A client that calls whatever it is told to, itself.
    fn from(client: Client) -> Self {
        Self { client, allowed: None, proxy: None, keeps_tls: false }
    }
}

impl Reach {
    /// A client of this builder that calls local addresses only if they are allowed, by way of this proxy.
    ///
    /// # Errors
    /// If HTTP cannot be set up.
    pub fn new(builder: ClientBuilder, allowed: &Allowed, proxy: Option<&Route>) -> Result<Self, reqwest::Error> {
        let builder = builder.no_proxy().dns_resolver(Guard(allowed.clone())).redirect(Policy::none());
        let builder = match proxy {
            None => builder,
            Some(proxy) => builder.proxy(by(proxy.clone())),
        };
        let (client, allowed) = (builder.build()?, Some(allowed.clone()));
        Ok(Self { client, allowed, proxy: proxy.cloned(), keeps_tls: false })
    }

    /// The same, following no redirect from TLS to an address without: for what nothing else vouches for.
    #[must_use]
    pub fn keeping_tls(self) -> Self {
        Self { keeps_tls: true, ..self }
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

    /// One request, to what [`Reach::check`] lets pass; a redirect is an answer like others.
    pub fn get(&self, url: Url) -> RequestBuilder {
        self.client.get(url)
    }

    /// The answer at this address, or where it is redirected to: not to what may not be called, and not to the same server without TLS, by
    /// whichever port. The authorization is for this server alone: from the first redirect to another on, nobody is shown it. (The client's own redirects show it to a
    /// server that redirects to itself.)
    ///
    /// # Errors
    /// See [`Lost`].
    pub async fn follow(
        &self,
        url: &Url,
        headers: &HeaderMap,
        authorization: Option<&HeaderValue>,
    ) -> Result<Response, Lost> {
        let mut at = url.clone();
        let mut authorization = authorization;
        for _ in 0..=MAX_REDIRECTS {
            self.check(&at).map_err(Lost::NotAllowed)?;
            let mut request = self.client.get(at.clone()).headers(headers.clone());
            if let Some(value) = authorization {
                request = request.header(AUTHORIZATION, value.clone());
            }
            let response = request.send().await.map_err(Lost::Http)?;
            if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
                return Ok(response);
            }
            let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
            let next = location.filter(|text| text.len() <= MAX_URL).and_then(|text| at.join(text).ok());
            let next = next.filter(|next| matches!(next.scheme(), "http" | "https") && next.has_host());
            let next = next.ok_or(Lost::Redirected("it is redirected to no address"))?;
            if self.keeps_tls && at.scheme() == "https" && next.scheme() != "https" {
                return Err(Lost::Redirected("it is redirected to an address without TLS"));
            }
            if loses_tls(&at, &next) {
                return Err(Lost::Redirected("it is redirected to the same server without TLS"));
            }
            if next.origin() != at.origin() {
                authorization = None;
            }
            at = next;
        }
        Err(Lost::Redirected("it is redirected too often"))
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

fn loses_tls(before: &Url, next: &Url) -> bool {
    before.scheme() == "https" && next.scheme() != "https" && before.host_str() == next.host_str()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_is_lost_by_whichever_port_of_the_same_server() {
        for (before, next, lost) in [
            ("https://i.example/a", "http://i.example/a", true),
            ("https://i.example/a", "http://i.example:8080/b", true),
            ("https://i.example:8443/a", "http://I.example/b", true),
            ("https://i.example/a", "https://i.example:8443/a", false),
            ("https://i.example/a", "http://store.example/a", false),
            ("http://i.example/a", "http://i.example:8080/a", false),
        ] {
            assert_eq!(loses_tls(&Url::parse(before).unwrap(), &Url::parse(next).unwrap()), lost, "{before} {next}");
        }
    }
}
