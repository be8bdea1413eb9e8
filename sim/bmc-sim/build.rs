//! Turns the Redfish resources in `data/` into tables that are compiled into the simulator.

#![allow(clippy::print_stdout, reason = "so does a build script talk to cargo")]

use std::{env, error::Error, fmt::Write as _, fs, path::PathBuf};

/// Each table's name and the folder of the resources in it.
const TABLES: [(&str, &str); 2] = [("RECORDED", "dmtf-generic"), ("SERVICES", "services")];

fn main() -> Result<(), Box<dyn Error>> {
    let mut text = String::new();
    for (table, folder) in TABLES {
        let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("data").join(folder);
        println!("cargo::rerun-if-changed={}", root.display());
        let mut names = Vec::new();
        for entry in fs::read_dir(&root)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name.ends_with(".json") {
                names.push(name);
            }
        }
        names.sort();
        writeln!(text, "static {table}: &[(&str, &str)] = &[")?;
        for name in names {
            let path = name.trim_end_matches(".json").replace('_', "/");
            writeln!(text, "    ({path:?}, include_str!({:?})),", root.join(&name))?;
        }
        text.push_str("];\n");
    }
    fs::write(PathBuf::from(env::var("OUT_DIR")?).join("recorded.rs"), text)?;
    Ok(())
}
