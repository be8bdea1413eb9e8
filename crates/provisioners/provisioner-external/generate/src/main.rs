//! Writes `proto/generated` of `proto/metamorph/provisioner/v1/provisioner.proto`, with the digest of what it was made of, which a test
//! of the crate compares. Run it in the crate's folder after each change of the .proto:
//! `cargo run --manifest-path generate/Cargo.toml`

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;

use sha2::{Digest, Sha256};

const PROTO: &str = "metamorph/provisioner/v1/provisioner.proto";
/// The module that is made: what a tool writes is not asked for people's care, and the .proto has the words.
const MODULE: &str = "/// Version 1 of the messages.
#[allow(missing_docs, clippy::all, clippy::too_many_lines)]
pub mod v1 {
";

fn main() -> Result<(), Box<dyn Error>> {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("the tool has no parent")?;
    let (protos, out) = (crate_folder.join("proto"), crate_folder.join("proto/generated"));
    let files = protox::compile([PROTO], [&protos])?;
    std::fs::create_dir_all(&out)?;
    // What may be secret is in no log.
    let secret = [".metamorph.provisioner.v1.BmcAccess", ".metamorph.provisioner.v1.Call"];
    tonic_prost_build::configure().build_transport(false).skip_debug(secret).out_dir(&out).compile_fds(files)?;
    let mut digest = String::new();
    for byte in Sha256::digest(std::fs::read(protos.join(PROTO))?) {
        write!(digest, "{byte:02x}")?;
    }
    let made = out.join("metamorph.provisioner.v1.rs");
    let text = std::fs::read_to_string(&made)?;
    // Not as `.rs`: what tidy asks of sources is asked of people.
    std::fs::write(
        made.with_extension("generated"),
        format!("// Of {PROTO}, sha256 {digest}.\n{MODULE}{text}}}\n"),
    )?;
    std::fs::remove_file(made)?;
    Ok(())
}
