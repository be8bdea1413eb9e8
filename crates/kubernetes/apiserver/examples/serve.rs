//! Serves the embedded API from a folder until it is killed or its standard input ends: `serve FOLDER [ADDRESS]`.
//! Writes `FOLDER/kubeconfig`, then prints the address.

use std::io::Read as _;
use std::net::SocketAddr;
use std::path::PathBuf;

use apiserver::{Config, Server};

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let data_dir = PathBuf::from(arguments.next().ok_or("usage: serve FOLDER [ADDRESS]")?);
    let listen: SocketAddr = arguments.next().unwrap_or_else(|| "127.0.0.1:0".to_owned()).parse()?;
    let audit_log = std::env::var_os("AUDIT_LOG").map(PathBuf::from);
    let config = Config { data_dir: data_dir.clone(), listen, extra_sans: vec![], audit_log, reviewers: vec![] };
    let server = Server::start(config).await?;
    std::fs::write(data_dir.join("kubeconfig"), server.admin_kubeconfig())?;
    {
        use std::io::Write as _;
        let mut out = std::io::stdout();
        writeln!(out, "{}", server.local_addr())?;
        out.flush()?;
    }
    let ended = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    let _ = ended.await;
    server.shutdown().await;
    Ok(())
}
