//! Why a request of a [`crate::Reach`] has no answer, in words of this program.

use std::error::Error as StdError;

use addresses::NotAllowed;
use image_sources::Route;

/// Most causes of an error that are looked through.
const MAX_CAUSES: usize = 16;
/// How errors of hyper-util's tunnels begin; their type is not public.
const TUNNEL: &str = "tunnel error: ";

fn causes(error: &reqwest::Error) -> impl Iterator<Item = &(dyn StdError + 'static)> {
    let mut next: Option<&(dyn StdError + 'static)> = Some(error);
    std::iter::from_fn(move || {
        let this = next?;
        next = this.source();
        Some(this)
    })
    .take(MAX_CAUSES)
}

/// Why there is no answer.
#[derive(Debug)]
pub enum Lost {
    /// An address that is not called.
    NotAllowed(NotAllowed),
    /// A redirect that is not followed, a clause.
    Redirected(&'static str),
    /// The request failed.
    Http(reqwest::Error),
}

/// The refused address behind an error, if there is one.
#[must_use]
pub fn not_allowed(error: &reqwest::Error) -> Option<NotAllowed> {
    causes(error).find_map(|cause| cause.downcast_ref::<NotAllowed>()).copied()
}

/// What a proxy did in place of carrying a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The proxy, as people write it.
    pub proxy: String,
    /// What it did, a clause.
    pub what: String,
    /// Asking again leads to the same.
    pub for_good: bool,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the proxy {} {}", self.proxy, self.what)
    }
}

impl StdError for Refused {}

impl Refused {
    /// The proxy wants to be signed in to (407), and got a login or none.
    #[must_use]
    pub fn unauthorized(proxy: &Route) -> Self {
        let what = match proxy.login() {
            None => "wants user and password (407), and none are set for it",
            Some(_) => "does not take the user and password that are set for it (407)",
        };
        Self { proxy: proxy.to_string(), what: what.to_owned(), for_good: true }
    }
}

/// What the proxy did, if the error is of the way to it or of its answer; `None` for errors of the server behind it, and of TLS with that.
#[must_use]
pub fn refused_by_proxy(error: &reqwest::Error, proxy: &Route) -> Option<Refused> {
    let refused = |what: &str| Refused { proxy: proxy.to_string(), what: what.to_owned(), for_good: false };
    let told = causes(error).map(ToString::to_string);
    let tunnel = told.filter_map(|text| text.strip_prefix(TUNNEL).map(ToOwned::to_owned)).next();
    match tunnel.as_deref() {
        // There is a way through the proxy: what fails is beyond it.
        None if error.url().is_some_and(|url| url.scheme() == "https") => return None,
        // The way to the proxy, which is looked at below.
        None | Some("failed to create underlying connection") => {}
        Some("proxy authorization required") => return Some(Refused::unauthorized(proxy)),
        Some("unsuccessful") => return Some(refused("refuses to connect to that server (CONNECT)")),
        Some("unexpected end of file" | "io error establishing tunnel") => {
            return Some(refused("ended the connection in place of an answer (CONNECT)"));
        }
        Some(_) => return Some(refused("answers what is no answer (CONNECT)")),
    }
    if causes(error).any(|cause| cause.to_string() == "dns error") {
        return Some(refused("cannot be reached: its name is not resolved"));
    }
    let io = causes(error).filter_map(|cause| cause.downcast_ref::<std::io::Error>()).last();
    match io {
        // The first connection is to the proxy; TLS is spoken with the server behind it.
        Some(io) if error.is_connect() && io.get_ref().is_none_or(|inner| !inner.is::<rustls::Error>()) => {
            Some(refused(&format!("cannot be reached: {}", io.kind())))
        }
        _ => None,
    }
}
