//! The addresses on which this server listens, and those under which BMCs and servers reach it.

use std::net::{IpAddr, SocketAddr, TcpListener};

use anyhow::{Context, bail};
use provisioner_metamorph::{Bases, NetworkRule};
use url::Url;

use crate::cli::Endpoints;
use crate::flags::HostPort;

/// The bound sockets.
pub struct Listeners {
    /// Media over HTTP.
    pub media: TcpListener,
    /// Media over HTTPS.
    pub media_tls: Option<TcpListener>,
    /// Agents.
    pub agents: TcpListener,
}

impl Listeners {
    /// Binds what the flags name.
    pub fn bind(endpoints: &Endpoints) -> anyhow::Result<Self> {
        Ok(Self {
            media: bind(endpoints.media_listen, "boot media")?,
            media_tls: endpoints.media_tls_listen.map(|address| bind(address, "boot media over HTTPS")).transpose()?,
            agents: bind(endpoints.agent_listen, "agents")?,
        })
    }
}

/// Base addresses: the default ones, and those for some hosts.
pub struct Addresses {
    /// The default.
    pub bases: Bases,
    /// Rules for some hosts.
    pub networks: Vec<NetworkRule>,
}

impl Addresses {
    /// As the flags say, completed by the listeners' ports.
    pub fn of(endpoints: &Endpoints, listeners: &Listeners) -> anyhow::Result<Self> {
        let text = |hosts: &[HostPort]| hosts.iter().map(ToString::to_string).collect::<Vec<_>>();
        let media = media_bases(&text(&endpoints.media_host), listeners)?;
        let images = media.first().map(|base| format!("{base}/images"));
        let bases = Bases { images, media, agents: agent_bases(&text(&endpoints.agent_host), listeners)? };
        let mut networks = endpoints.networks.clone();
        for rule in &mut networks {
            if !rule.bases.media.is_empty() {
                rule.bases.media = media_bases(&rule.bases.media, listeners)?;
            }
            if !rule.bases.agents.is_empty() {
                rule.bases.agents = agent_bases(&rule.bases.agents, listeners)?;
            }
            if let Some(images) = &mut rule.bases.images {
                *images = whole(images, &["http", "https"]).context("read images= of --network")?;
            }
        }
        Ok(Self { bases, networks })
    }

    /// Hosts of all media addresses over HTTPS, for the certificate.
    pub fn tls_hosts(&self) -> Vec<String> {
        let media = self.networks.iter().map(|rule| &rule.bases.media).chain([&self.bases.media]).flatten();
        let secure = media.filter_map(|base| Url::parse(base).ok()).filter(|url| url.scheme() == "https");
        secure.filter_map(|url| Some(url.host_str()?.trim_matches(['[', ']']).to_owned())).collect()
    }
}

/// HTTP addresses first: over HTTP no BMC has to trust a certificate.
fn media_bases(hosts: &[String], listeners: &Listeners) -> anyhow::Result<Vec<String>> {
    if hosts.is_empty() {
        let mut bases = vec![format!("http://{}", reached_at(None, &listeners.media)?)];
        if let Some(listener) = &listeners.media_tls {
            bases.push(format!("https://{}", reached_at(None, listener)?));
        }
        return Ok(bases);
    }
    let (mut plain, mut secure) = (Vec::new(), Vec::new());
    for host in hosts {
        if host.contains("://") {
            let base = whole(host, &["http", "https"]).context("read a media address")?;
            if base.starts_with("https:") {
                secure.push(base)
            } else {
                plain.push(base)
            }
            continue;
        }
        plain.push(whole(&format!("http://{}", reached_at(Some(host), &listeners.media)?), &["http"])?);
        if let Some(listener) = &listeners.media_tls {
            let bare = Url::parse(plain.last().map_or("", String::as_str)).ok();
            let bare = bare.and_then(|url| Some(url.host_str()?.to_owned())).context("read a media host")?;
            secure.push(format!("https://{}", reached_at(Some(&bare), listener)?));
        }
    }
    plain.append(&mut secure);
    Ok(plain)
}

fn agent_bases(hosts: &[String], listeners: &Listeners) -> anyhow::Result<Vec<String>> {
    if hosts.is_empty() {
        return Ok(vec![format!("https://{}", reached_at(None, &listeners.agents)?)]);
    }
    let base = |host: &String| match host.contains("://") {
        true => whole(host, &["https"]).context("read an agent address"),
        false => whole(&format!("https://{}", reached_at(Some(host), &listeners.agents)?), &["https"]),
    };
    hosts.iter().map(base).collect()
}

/// A base address as given, without a trailing slash.
fn whole(text: &str, schemes: &[&str]) -> anyhow::Result<String> {
    let url = Url::parse(text).with_context(|| format!("{text:?} is no address"))?;
    let plain = url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
    if !schemes.contains(&url.scheme()) || !plain || url.host().is_none() {
        bail!("{text:?} is no base address; write {}://host[:port]", schemes.join(":// or "));
    }
    Ok(text.trim_end_matches('/').to_owned())
}

fn bind(address: SocketAddr, what: &str) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind(address).with_context(|| format!("listen for {what} on {address}"))?;
    listener.set_nonblocking(true).with_context(|| format!("listen for {what} on {address}"))?;
    Ok(listener)
}

/// `host:port` under which other machines reach the listener.
pub fn reached_at(host: Option<&str>, listener: &TcpListener) -> anyhow::Result<String> {
    let local = listener.local_addr().context("ask for the listener's address")?;
    let host = match host {
        Some(host) => host.to_owned(),
        None if local.ip().is_unspecified() => default_route_address(local.ip())?.to_string(),
        None => local.ip().to_string(),
    };
    let has_port = host.matches(':').count() == 1 || host.contains("]:");
    let bare_v6 = host.contains(':') && !host.starts_with('[') && !has_port;
    Ok(match (has_port, bare_v6) {
        (true, _) => host,
        (false, true) => format!("[{host}]:{}", local.port()),
        (false, false) => format!("{host}:{}", local.port()),
    })
}

/// The address that this machine would use for outgoing connections: that of the default route. Sends nothing.
fn default_route_address(unspecified: IpAddr) -> anyhow::Result<IpAddr> {
    let attempt = "find this machine's own address; name it with --media-host and --agent-host";
    let socket = std::net::UdpSocket::bind((unspecified, 0)).context(attempt)?;
    // Addresses for documentation (RFC 5737, RFC 3849): a route is chosen, no packet leaves.
    let there = if unspecified.is_ipv4() { "192.0.2.1:9" } else { "[2001:db8::1]:9" };
    socket.connect(there).context(attempt)?;
    Ok(socket.local_addr().context(attempt)?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn addresses(arguments: &[&str]) -> anyhow::Result<(Addresses, [u16; 3])> {
        let fixed = [
            "metamorph",
            "up",
            "--media-listen",
            "127.0.0.1:0",
            "--agent-listen",
            "127.0.0.1:0",
            "--media-tls-listen",
            "127.0.0.1:0",
        ];
        let cli = crate::cli::Cli::try_parse_from(fixed.iter().chain(arguments))?;
        let crate::cli::Command::Up(up) = cli.command else { panic!("up") };
        let listeners = Listeners::bind(&up.endpoints)?;
        let port = |listener: &TcpListener| listener.local_addr().unwrap().port();
        let ports = [port(&listeners.media), port(listeners.media_tls.as_ref().unwrap()), port(&listeners.agents)];
        Ok((Addresses::of(&up.endpoints, &listeners)?, ports))
    }

    #[test]
    fn addresses_are_completed_by_the_listeners_ports() {
        let (found, [plain, secure, agents]) = addresses(&[]).unwrap();
        assert_eq!(found.bases.media, [format!("http://127.0.0.1:{plain}"), format!("https://127.0.0.1:{secure}")]);
        assert_eq!(found.bases.agents, [format!("https://127.0.0.1:{agents}")]);
        assert_eq!(found.bases.images, Some(format!("http://127.0.0.1:{plain}/images")));
        assert_eq!(found.tls_hosts(), ["127.0.0.1"]);

        let rule =
            "bmc=fd00::/8,media=fd00::5,media=https://media.example/,agent=10.1.0.5:7000,images=http://10.1.0.5/os/";
        let (found, [plain, secure, _]) =
            addresses(&["--media-host", "192.0.2.1:80", "--media-host", "2001:db8::1", "--network", rule]).unwrap();
        let expected = [
            "http://192.0.2.1:80".to_owned(),
            format!("http://[2001:db8::1]:{plain}"),
            format!("https://192.0.2.1:{secure}"),
            format!("https://[2001:db8::1]:{secure}"),
        ];
        assert_eq!(found.bases.media, expected);
        let bases = &found.networks[0].bases;
        let expected = [
            format!("http://[fd00::5]:{plain}"),
            format!("https://[fd00::5]:{secure}"),
            "https://media.example".to_owned(),
        ];
        assert_eq!(bases.media, expected);
        assert_eq!(bases.agents, ["https://10.1.0.5:7000"]);
        assert_eq!(bases.images.as_deref(), Some("http://10.1.0.5/os"));
        let mut hosts = found.tls_hosts();
        hosts.sort_unstable();
        assert_eq!(hosts, ["192.0.2.1", "2001:db8::1", "fd00::5", "media.example"]);
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for bad in [
            &["--media-host", "a b"][..],
            &["--media-host", "http://user@h"],
            &["--agent-host", "http://h"],
            &["--network", "bmc=10.0.0.0/8,images=h"],
            &["--network", "bmc=10.0.0.0/8,media=ftp://h"],
            &["--network", "media=h"],
            &["--media-key", "x"],
        ] {
            assert!(addresses(bad).is_err(), "{bad:?}");
        }
    }
}
