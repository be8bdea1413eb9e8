//! Decompressing single clusters.

use flate2::{Decompress, FlushDecompress};
use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

use super::header::ClusterCompression;
use crate::error::Error;

/// Largest window of a zstd frame, as a power of two: a cluster has 2 MiB at most.
const WINDOW_LOG: u32 = 24;

/// A decoder that is used again for each cluster.
pub(super) enum ClusterDecoder {
    Zlib(Decompress),
    Zstd(Decoder<'static>),
}

impl ClusterDecoder {
    pub(super) fn new(compression: ClusterCompression) -> Result<Self, Error> {
        Ok(match compression {
            // Raw deflate, without zlib's header.
            ClusterCompression::Zlib => Self::Zlib(Decompress::new(false)),
            ClusterCompression::Zstd => {
                let mut decoder = Decoder::new().map_err(|_| Error::Pipeline { stage: "decompress" })?;
                decoder
                    .set_parameter(DParameter::WindowLogMax(WINDOW_LOG))
                    .map_err(|_| Error::Pipeline { stage: "decompress" })?;
                Self::Zstd(decoder)
            }
        })
    }

    /// Fills `cluster` from `data`, which may have unrelated bytes at its end. `guest` (byte on the disk) is for errors.
    pub(super) fn decode(&mut self, data: &[u8], cluster: &mut [u8], guest: u64) -> Result<(), Error> {
        let result = match self {
            Self::Zlib(decoder) => inflate(decoder, data, cluster),
            Self::Zstd(decoder) => unzstd(decoder, data, cluster),
        };
        result.map_err(|reason| Error::corrupt(format!("the qcow2 cluster for byte {guest} of the disk {reason}")))
    }
}

fn inflate(decoder: &mut Decompress, data: &[u8], cluster: &mut [u8]) -> Result<(), String> {
    decoder.reset(false);
    let result = decoder.decompress(data, cluster, FlushDecompress::Finish);
    let filled = decoder.total_out();
    match result {
        Ok(_) if filled == cluster.len() as u64 => Ok(()),
        Ok(_) => Err(format!("decompresses to {filled} bytes")),
        Err(e) => Err(format!("does not decompress: {e}")),
    }
}

fn unzstd(decoder: &mut Decoder<'static>, data: &[u8], cluster: &mut [u8]) -> Result<(), String> {
    decoder.reinit().map_err(|e| format!("does not decompress: {e}"))?;
    let mut input = InBuffer::around(data);
    let mut output = OutBuffer::around(cluster);
    while output.pos() < output.capacity() {
        let before = (input.pos(), output.pos());
        let hint = decoder.run(&mut input, &mut output).map_err(|e| format!("does not decompress: {e}"))?;
        if output.pos() < output.capacity() && (hint == 0 || before == (input.pos(), output.pos())) {
            return Err(format!("decompresses to {} bytes", output.pos()));
        }
    }
    Ok(())
}
