//! DHCP for IPv4: getting a lease on one interface and keeping it.
//!
//! A plain UDP socket bound to the interface suffices: requests are broadcasts, and they ask for broadcast answers (RFC 2131, 4.1), which Linux
//! accepts on an interface without an address.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};
use thiserror::Error;

use super::dhcp::{Kind, Lease, Question, decode, encode};

const CLIENT_PORT: u16 = 68;
const SERVER_PORT: u16 = 67;

/// Largest answer read.
const MAX_ANSWER: usize = 4096;

/// Waits for an answer: first and longest.
const FIRST_WAIT: Duration = Duration::from_secs(2);
const LONGEST_WAIT: Duration = Duration::from_secs(16);

/// Why DHCP cannot be used on an interface.
#[derive(Debug, Error)]
#[error("DHCP on {interface}: {action} failed")]
pub struct DhcpError {
    /// Interface.
    pub interface: String,
    /// What was attempted.
    pub action: &'static str,
    /// Why.
    pub source: io::Error,
}

/// Gets a lease and renews it for ever: calls `apply` with each lease. Returns only on an error of the socket.
///
/// # Errors
/// [`DhcpError`].
pub fn lease_forever(
    interface: &str,
    mac: [u8; 6],
    apply: &mut dyn FnMut(&Lease),
) -> Result<std::convert::Infallible, DhcpError> {
    let error = |action| move |source| DhcpError { interface: interface.to_owned(), action, source };
    let socket = open(interface).map_err(error("opening a socket"))?;
    let mut held: Option<(Lease, Instant)> = None;
    loop {
        let lease = match &held {
            Some((lease, until)) => renew(&socket, mac, lease, *until).map_err(error("asking for more time"))?,
            None => Some(acquire(&socket, mac).map_err(error("asking for an address"))?),
        };
        held = lease.map(|lease| {
            apply(&lease);
            let until = Instant::now() + Duration::from_secs(lease.seconds.into());
            std::thread::sleep(Duration::from_secs(lease.renewal.into()));
            (lease, until)
        });
    }
}

fn open(interface: &str) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.bind_device(Some(interface.as_bytes()))?;
    socket.set_broadcast(true)?;
    socket.set_reuse_address(true)?;
    socket.bind(&SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, CLIENT_PORT).into())?;
    Ok(socket.into())
}

/// Sends a question and waits for an answer of one of these kinds.
fn ask(
    socket: &UdpSocket,
    question: &Question<'_>,
    wait: Duration,
    kinds: &[Kind],
) -> io::Result<Option<(Kind, Lease)>> {
    let target = SocketAddrV4::new(Ipv4Addr::BROADCAST, SERVER_PORT);
    match socket.send_to(&encode(question), target) {
        // the link is down just now
        Err(error) if matches!(error.kind(), io::ErrorKind::NetworkDown | io::ErrorKind::NetworkUnreachable) => {
            std::thread::sleep(wait);
            return Ok(None);
        }
        sent => sent?,
    };
    let end = Instant::now() + wait;
    let mut buffer = [0; MAX_ANSWER];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        socket.set_read_timeout(Some(left))?;
        match socket.recv(&mut buffer) {
            Ok(length) => {
                let answer = decode(&buffer[..length], question.transaction, question.mac);
                if let Some(answer) = answer.filter(|(kind, _)| kinds.contains(kind)) {
                    return Ok(Some(answer));
                }
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                return Ok(None);
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::NetworkDown) => {}
            Err(error) => return Err(error),
        }
    }
}

fn acquire(socket: &UdpSocket, mac: [u8; 6]) -> io::Result<Lease> {
    let mut wait = FIRST_WAIT;
    loop {
        let transaction = rand::random();
        let discover = Question { kind: Kind::Discover, transaction, mac, wanted: None, renew: false };
        if let Some((_, offer)) = ask(socket, &discover, wait, &[Kind::Offer])? {
            let request = Question { kind: Kind::Request, wanted: Some(&offer), ..discover };
            match ask(socket, &request, wait, &[Kind::Ack, Kind::Nak])? {
                Some((Kind::Ack, lease)) => return Ok(lease),
                _ => tracing::debug!("the offer of {:?} was not confirmed", offer.address),
            }
        }
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}

/// Asks for an extension until the server grants or refuses it, or the lease ends; `None` means to start over.
fn renew(socket: &UdpSocket, mac: [u8; 6], lease: &Lease, until: Instant) -> io::Result<Option<Lease>> {
    let transaction = rand::random();
    let question = Question { kind: Kind::Request, transaction, mac, wanted: Some(lease), renew: true };
    while Instant::now() < until {
        match ask(socket, &question, LONGEST_WAIT, &[Kind::Ack, Kind::Nak])? {
            Some((Kind::Ack, lease)) => return Ok(Some(lease)),
            Some(_) => return Ok(None),
            None => {}
        }
    }
    Ok(None)
}
