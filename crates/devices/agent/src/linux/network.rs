//! Configures the agent's network: rtnetlink for links, addresses and routes, and DHCP where configured.

use std::io;
use std::net::IpAddr;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use agent_protocol::{AgentNetwork, BondLink, NetworkAddress, NetworkPlan, Route};

use super::interfaces;
use crate::machine::NetworkError;
use crate::net::dhcp::Lease;
use crate::net::netlink::Request;
use crate::net::rtnetlink::{self, Socket};
use crate::net::{Interface, Operation, lease_forever, operations};
use crate::text::chain;
use crate::tree::Tree;

/// How long the interfaces that the configuration names are waited for.
const APPEAR: Duration = Duration::from_secs(30);
const STEP: Duration = Duration::from_millis(200);

/// How often the log repeats that a lease is awaited.
const NOTICE: Duration = Duration::from_secs(15);

/// Metric of routes that came with a lease, plus the interface's index: of two default routes the first interface's counts.
const LEASE_METRIC: u32 = 1024;

/// Most name servers: the C library's resolver reads three.
const MAX_SERVERS: usize = 3;

pub(super) fn configure(tree: &Tree, network: &AgentNetwork) -> Result<(), NetworkError> {
    let kernel = Kernel::open(tree)?;
    kernel.up("lo");
    match network {
        AgentNetwork::Dhcp => dhcp_everywhere(tree),
        AgentNetwork::Static { data } => {
            let plan = data.plan()?;
            let steps = wait_for_interfaces(tree, &plan)?;
            write_servers(tree, &plan.name_servers);
            static_network(tree, &kernel, &steps)
        }
    }
}

/// Waits for every interface that the plan names, and returns the plan's operations.
fn wait_for_interfaces(tree: &Tree, plan: &NetworkPlan) -> Result<Vec<Operation>, NetworkError> {
    let end = Instant::now() + APPEAR;
    loop {
        match operations(plan, &interfaces(tree)) {
            Err(NetworkError::NoInterface { .. }) if Instant::now() < end => std::thread::sleep(STEP),
            result => return result,
        }
    }
}

fn static_network(tree: &Tree, kernel: &Kernel, steps: &[Operation]) -> Result<(), NetworkError> {
    let (mut leases, mut addresses) = (Vec::new(), 0);
    for step in steps {
        match step {
            Operation::Dhcp { name } => leases.push(name.clone()),
            step => kernel.run(step)?,
        }
        addresses += usize::from(matches!(step, Operation::Address { .. }));
    }
    if leases.is_empty() {
        return Ok(());
    }
    let (sender, receiver) = mpsc::channel();
    for name in leases {
        spawn_dhcp(tree, name, sender.clone());
    }
    if addresses == 0 {
        wait_for_lease(&receiver, || {});
    }
    Ok(())
}

/// Requests a lease on every interface, including later ones; returns with the first lease.
fn dhcp_everywhere(tree: &Tree) -> Result<(), NetworkError> {
    let (sender, receiver) = mpsc::channel();
    let mut known: Vec<Interface> = Vec::new();
    let mut look = || {
        for interface in interfaces(tree) {
            if !known.contains(&interface) {
                spawn_dhcp(tree, interface.name.clone(), sender.clone());
                known.push(interface);
            }
        }
    };
    look();
    wait_for_lease(&receiver, look);
    Ok(())
}

fn wait_for_lease(receiver: &mpsc::Receiver<String>, mut meanwhile: impl FnMut()) {
    let mut notice = Instant::now() + NOTICE;
    loop {
        match receiver.recv_timeout(Duration::from_secs(1)) {
            Ok(name) => return tracing::info!("{name} has a lease"),
            Err(mpsc::RecvTimeoutError::Timeout) => meanwhile(),
            // no DHCP thread is left; the interfaces may come back
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                std::thread::sleep(Duration::from_secs(1));
                meanwhile();
            }
        }
        if Instant::now() >= notice {
            tracing::warn!("no DHCP server has answered yet; still asking");
            notice = Instant::now() + NOTICE;
        }
    }
}

/// A thread that brings an interface up, gets a lease and keeps it.
fn spawn_dhcp(tree: &Tree, name: String, leased: mpsc::Sender<String>) {
    let tree = tree.clone();
    std::thread::spawn(move || {
        loop {
            if let Err(error) = dhcp(&tree, &name, &leased) {
                tracing::warn!("{}", chain(&error));
            }
            std::thread::sleep(Duration::from_secs(5));
        }
    });
}

fn dhcp(tree: &Tree, name: &str, leased: &mpsc::Sender<String>) -> Result<(), NetworkError> {
    let kernel = Kernel::open(tree)?;
    kernel.run(&Operation::Up { name: name.to_owned() })?;
    while tree.number(&format!("sys/class/net/{name}/carrier")) != Some(1) {
        std::thread::sleep(STEP);
    }
    let failed = |source| NetworkError::Kernel { action: format!("reading the hardware address of {name}"), source };
    let mac = tree.text(&format!("sys/class/net/{name}/address"));
    let mac = mac.as_deref().and_then(rtnetlink::mac_bytes).ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
    let Err(error) = lease_forever(name, mac, &mut |lease| match apply(tree, &kernel, name, lease) {
        Ok(()) => drop(leased.send(name.to_owned())),
        Err(error) => tracing::error!("using the lease of {name} failed: {}", chain(&error)),
    });
    Err(NetworkError::Kernel { action: error.to_string(), source: error.source })
}

fn apply(tree: &Tree, kernel: &Kernel, name: &str, lease: &Lease) -> Result<(), NetworkError> {
    let Some(address) = lease.address else { return Ok(()) };
    tracing::info!("{name} has {address}/{} for {} s", lease.prefix, lease.seconds);
    if let Some(mtu) = lease.mtu {
        kernel.run(&Operation::Mtu { name: name.to_owned(), mtu })?;
    }
    kernel.run(&Operation::Address { name: name.to_owned(), address: address.into(), prefix: lease.prefix })?;
    let index = kernel.index(name)?;
    for (destination, prefix, gateway) in lease.routes.iter().copied() {
        let mask = u32::MAX.checked_shl(32 - u32::from(lease.prefix)).unwrap_or(0);
        let onlink = (u32::from(gateway) ^ u32::from(address)) & mask != 0;
        // a next hop of 0.0.0.0 means that the destination is on this link: the address has made that route
        if gateway.is_unspecified() {
            continue;
        }
        let route = Route { destination: destination.into(), prefix, gateway: gateway.into() };
        let request = rtnetlink::add_route(index, route, LEASE_METRIC + index, onlink);
        kernel.request(request, || format!("adding a route through {gateway} on {name}"))?;
    }
    let servers: Vec<IpAddr> = lease.name_servers.iter().map(|server| IpAddr::from(*server)).collect();
    if !servers.is_empty() {
        write_servers(tree, &servers);
    }
    Ok(())
}

fn write_servers(tree: &Tree, servers: &[IpAddr]) {
    let text: String = servers.iter().take(MAX_SERVERS).map(|server| format!("nameserver {server}\n")).collect();
    let path = tree.path("etc/resolv.conf");
    let write = || -> io::Result<()> {
        std::fs::create_dir_all(tree.path("etc"))?;
        std::fs::write(&path, text)
    };
    if let Err(error) = write() {
        tracing::warn!("writing {} failed: {error}", path.display());
    }
}

/// The kernel's interfaces, by name.
struct Kernel<'a> {
    tree: &'a Tree,
    socket: Socket,
}

impl<'a> Kernel<'a> {
    fn open(tree: &'a Tree) -> Result<Self, NetworkError> {
        let failed = |source| NetworkError::Kernel { action: "opening a socket to the kernel".to_owned(), source };
        Ok(Self { tree, socket: Socket::open().map_err(failed)? })
    }

    fn index(&self, name: &str) -> Result<u32, NetworkError> {
        let index = self.tree.number(&format!("sys/class/net/{name}/ifindex"));
        index.and_then(|index| u32::try_from(index).ok()).ok_or_else(|| NetworkError::Kernel {
            action: format!("finding the interface {name}"),
            source: io::ErrorKind::NotFound.into(),
        })
    }

    fn request(&self, request: Request, action: impl FnOnce() -> String) -> Result<(), NetworkError> {
        self.socket.request(request).map_err(|source| NetworkError::Kernel { action: action(), source })
    }

    /// Sets an interface up that may be missing.
    fn up(&self, name: &str) {
        if let Err(error) = self.run(&Operation::Up { name: name.to_owned() }) {
            tracing::debug!("{}", chain(&error));
        }
    }

    /// Removes a link of this name that an earlier attempt (or a driver on its own) created; hardware devices stay.
    fn make_way(&self, name: &str) -> Result<(), NetworkError> {
        let base = format!("sys/class/net/{name}");
        if self.tree.exists(&base) && !self.tree.exists(&format!("{base}/device")) {
            self.request(rtnetlink::delete(self.index(name)?), || format!("removing the older link {name}"))?;
        }
        Ok(())
    }

    fn run(&self, step: &Operation) -> Result<(), NetworkError> {
        if let Operation::Bond { name, .. } | Operation::Vlan { name, .. } = step {
            self.make_way(name)?;
        }
        let request = match step {
            Operation::Down { name } => rtnetlink::set_up(self.index(name)?, false),
            Operation::Up { name } => rtnetlink::set_up(self.index(name)?, true),
            Operation::Mtu { name, mtu } => rtnetlink::set_mtu(self.index(name)?, *mtu),
            Operation::Bond { name, mode, miimon, xmit_hash_policy, mac } => {
                let bond = BondLink {
                    ports: Vec::new(),
                    mode: *mode,
                    miimon: *miimon,
                    xmit_hash_policy: xmit_hash_policy.clone(),
                    mac: mac.clone(),
                };
                rtnetlink::add_bond(name, &bond)
            }
            Operation::Join { name, bond } => rtnetlink::set_master(self.index(name)?, self.index(bond)?),
            Operation::Vlan { name, parent, vlan, mac } => {
                rtnetlink::add_vlan(name, self.index(parent)?, *vlan, mac.as_deref())
            }
            Operation::Address { name, address, prefix } => {
                let address = NetworkAddress { address: *address, prefix: *prefix };
                rtnetlink::add_address(self.index(name)?, address)
            }
            Operation::Route { name, destination, prefix, gateway, onlink } => {
                let route = Route { destination: *destination, prefix: *prefix, gateway: *gateway };
                rtnetlink::add_route(self.index(name)?, route, 0, *onlink)
            }
            Operation::Dhcp { .. } => return Ok(()),
        };
        self.request(request, || format!("network step {step:?}"))?;
        tracing::debug!("network: {step:?}");
        Ok(())
    }
}
