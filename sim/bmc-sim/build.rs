//! Turns the recorded Redfish tree in `data/` into a table that is compiled into the simulator.

#![allow(clippy::print_stdout, reason = "so does a build script talk to cargo")]

use std::{env, error::Error, fmt::Write as _, fs, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("data/dmtf-generic");
    println!("cargo::rerun-if-changed={}", root.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(&root)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".json") {
            names.push(name);
        }
    }
    names.sort();
    let mut table = String::from("static RECORDED: &[(&str, &str)] = &[\n");
    for name in names {
        let path = name.trim_end_matches(".json").replace('_', "/");
        writeln!(table, "    ({path:?}, include_str!({:?})),", root.join(&name))?;
    }
    table.push_str("];\n");
    fs::write(PathBuf::from(env::var("OUT_DIR")?).join("recorded.rs"), table)?;
    Ok(())
}
