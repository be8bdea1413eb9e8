//! What is kept of a life: each moment at which objects changed, with the objects and the machine as they were.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use scenarios::plant::Standing;
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Serialize, Deserialize)]
pub struct Recorded {
    /// All objects, each version once.
    pub objects: Vec<Value>,
    pub moments: Vec<Moment>,
    /// The machine at the life's end.
    pub end: Standing,
}

#[derive(Serialize, Deserialize)]
pub struct Moment {
    /// The step under way.
    pub step: usize,
    pub at: jiff::Timestamp,
    /// Indices of the objects.
    pub objects: Vec<usize>,
    pub machine: Standing,
}

impl Recorded {
    pub fn read(file: &Path) -> Self {
        let mut text = Vec::new();
        GzDecoder::new(fs::File::open(file).unwrap()).read_to_end(&mut text).unwrap();
        serde_json::from_slice(&text).unwrap()
    }

    pub fn write(&self, file: &Path) {
        let mut packed = GzEncoder::new(Vec::new(), Compression::best());
        packed.write_all(&serde_json::to_vec(self).unwrap()).unwrap();
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, packed.finish().unwrap()).unwrap();
    }
}
