//! Addresses that a server is given before it listens.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU8, Ordering};

use anyhow::Context;

/// `N` addresses on an IP address that is the caller's own: nobody else takes a port of it while its server is not up, or is down to be
/// started again.
///
/// # Errors
/// When there is no free port.
pub fn own_addresses<const N: usize>() -> anyhow::Result<[SocketAddr; N]> {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    free_addresses(Ipv4Addr::new(127, 128 | (high & 0x3f), low, NEXT.fetch_add(1, Ordering::Relaxed)))
}

/// `N` addresses of this IP address whose ports were free just now.
///
/// # Errors
/// When there is no free port.
pub fn free_addresses<const N: usize>(ip: Ipv4Addr) -> anyhow::Result<[SocketAddr; N]> {
    let mut listeners = Vec::new();
    for _ in 0..N {
        listeners.push(TcpListener::bind((ip, 0)).context("find a free port")?);
    }
    let mut addresses = [SocketAddr::from((ip, 0)); N];
    for (address, listener) in addresses.iter_mut().zip(&listeners) {
        *address = listener.local_addr()?;
    }
    Ok(addresses)
}
