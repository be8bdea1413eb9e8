//! A BMC that an emulated machine asks by registers of its own (KCS): OpenIPMI's `ipmi_sim`, to which QEMU sends what is written to them. It knows nothing of
//! Redfish; it tells where the machine's BMC is on the network.
//!
//! Its configuration is described in ipmi_lan(5), its commands in ipmi_sim_cmd(5).

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::{Running, own_addresses};

/// What it says first to a machine: the version of its protocol (`VM_CMD_VERSION`, 1, and the end of a command, in OpenIPMI's `lanserv/serial_ipmi.c`).
const GREETING: [u8; 3] = [0xff, 1, 0xa1];

/// A management controller with a channel for its network and one for the machine.
const COMMANDS: &str = "mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02\nmc_enable 0x20\n";

/// The BMC as a process.
pub struct LocalBmc {
    process: Running,
    address: SocketAddr,
    _folder: TempDir,
}

impl LocalBmc {
    /// Starts one that says that its network is at this address, with this MAC address.
    ///
    /// # Errors
    /// When it does not listen.
    pub async fn start(ip: Ipv4Addr, mac: &str) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("make a folder")?;
        let path = |name: &str| folder.path().join(name);
        let [address] = own_addresses()?;
        // It starts a program that prints its network's settings, with what it wants to know behind: `#` ends the command before that.
        let network = format!(
            "ip_addr:{ip}\nip_addr_src:static\nmac_addr:{mac}\nsubnet_mask:255.0.0.0\ndefault_gw_ip_addr:0.0.0.0\n\
             default_gw_mac_addr:00:00:00:00:00:00\nbackup_gw_ip_addr:0.0.0.0\nbackup_gw_mac_addr:00:00:00:00:00:00\n"
        );
        let (said, port) = (path("network"), address.port());
        let configuration = format!(
            "name \"bmc\"\nset_working_mc 0x20\n  startlan 1\n    priv_limit admin\n    lan_config_program \"cat {} #\"\n  endlan\n  \
             serial 15 {} {port} codec VM\n",
            said.display(),
            address.ip()
        );
        for (name, text) in [("network", network.as_str()), ("lan.conf", &configuration), ("commands", COMMANDS)] {
            std::fs::write(path(name), text).with_context(|| format!("write the BMC's file {name}"))?;
        }
        let mut command = Command::new("ipmi_sim");
        // No console, and nothing that is kept.
        command.args(["-n", "-p", "-c"]).arg(path("lan.conf")).arg("-f").arg(path("commands"));
        command.arg("-s").arg(folder.path()).stdout(Stdio::null());
        let process = Running::start(command, &path("log"))?;
        let mut bmc = Self { process, address, _folder: folder };
        bmc.greets().await?;
        Ok(bmc)
    }

    /// Where machines connect to it.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The end of its log.
    #[must_use]
    pub fn tail(&self) -> String {
        self.process.tail()
    }

    /// Waits until it speaks. It has one connection at a time: this one is closed again.
    async fn greets(&mut self) -> anyhow::Result<()> {
        for _ in 0..200 {
            ensure!(self.process.is_running(), "ipmi_sim has ended; {}", self.tail());
            if let Ok(mut stream) = TcpStream::connect(self.address).await {
                let mut said = [0; GREETING.len()];
                let read = tokio::time::timeout(Duration::from_secs(10), stream.read_exact(&mut said)).await;
                read.context("wait for ipmi_sim to speak")?.context("read what ipmi_sim says")?;
                ensure!(said == GREETING, "ipmi_sim says {said:02x?} in place of {GREETING:02x?}");
                return Ok(());
            }
            // It says nowhere else that it listens; a bounded number of tries on a real event.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        bail!("ipmi_sim does not listen at {}; {}", self.address, self.tail())
    }
}
