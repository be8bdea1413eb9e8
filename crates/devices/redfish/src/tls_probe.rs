//! After a handshake without a common version or cipher suite, finds out what the old BMC supports.
//!
//! Sends a ClientHello (RFC 5246, section 7.4.1.2) that offers TLS 1.0 to 1.2 and the cipher suites of their time; the ServerHello names the server's
//! choice. The connection ends there, and no secret has been sent.

use std::fmt::Write as _;
use std::time::Duration;

use bmc::HostName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Time for question and answer.
const LIMIT: Duration = Duration::from_secs(5);
/// Longest record that is read, bytes (RFC 5246, section 6.2.1).
const MAX_RECORD: usize = 1 << 14;

/// The offered cipher suites and their names (IANA's registry "TLS Cipher Suites").
const SUITES: &[(u16, &str)] = &[
    (0xc030, "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"),
    (0xc02f, "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
    (0xc02c, "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"),
    (0xc02b, "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"),
    (0xc028, "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384"),
    (0xc027, "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256"),
    (0xc014, "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA"),
    (0xc013, "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA"),
    (0xc00a, "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA"),
    (0xc009, "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA"),
    (0x009f, "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384"),
    (0x009e, "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256"),
    (0x006b, "TLS_DHE_RSA_WITH_AES_256_CBC_SHA256"),
    (0x0067, "TLS_DHE_RSA_WITH_AES_128_CBC_SHA256"),
    (0x0039, "TLS_DHE_RSA_WITH_AES_256_CBC_SHA"),
    (0x0033, "TLS_DHE_RSA_WITH_AES_128_CBC_SHA"),
    (0x009d, "TLS_RSA_WITH_AES_256_GCM_SHA384"),
    (0x009c, "TLS_RSA_WITH_AES_128_GCM_SHA256"),
    (0x003d, "TLS_RSA_WITH_AES_256_CBC_SHA256"),
    (0x003c, "TLS_RSA_WITH_AES_128_CBC_SHA256"),
    (0x0035, "TLS_RSA_WITH_AES_256_CBC_SHA"),
    (0x002f, "TLS_RSA_WITH_AES_128_CBC_SHA"),
    (0x000a, "TLS_RSA_WITH_3DES_EDE_CBC_SHA"),
    (0x0005, "TLS_RSA_WITH_RC4_128_SHA"),
    (0x0004, "TLS_RSA_WITH_RC4_128_MD5"),
];

/// The server's choice, as text; `None` if it does not answer within five seconds.
pub async fn ask(mut stream: TcpStream, host: &HostName) -> Option<String> {
    let asked = async {
        stream.write_all(&hello(host)).await.ok()?;
        let mut head = [0; 5];
        stream.read_exact(&mut head).await.ok()?;
        let length = usize::from(u16::from_be_bytes([head[3], head[4]]));
        // An alert (type 21) is no offer.
        if head[0] != 22 || length > MAX_RECORD {
            return None;
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.ok()?;
        choice(&body)
    };
    timeout(LIMIT, asked).await.ok().flatten()
}

/// Version and cipher suite of a ServerHello (RFC 5246, section 7.4.1.3).
fn choice(body: &[u8]) -> Option<String> {
    let word = |at: usize| Some(u16::from_be_bytes([*body.get(at)?, *body.get(at + 1)?]));
    if *body.first()? != 2 {
        return None;
    }
    let session = usize::from(*body.get(38)?);
    let suite = word(39 + session)?;
    let mut text = match word(4)? {
        0x0300 => "SSL 3.0".to_owned(),
        0x0301 => "TLS 1.0".to_owned(),
        0x0302 => "TLS 1.1".to_owned(),
        0x0303 => "TLS 1.2".to_owned(),
        other => format!("the version {other:#06x}"),
    };
    let name = SUITES.iter().find(|(number, _)| *number == suite).map(|(_, name)| *name);
    // Writing to a String never fails.
    let _ = match name {
        Some(name) => write!(text, " with {name}"),
        None => write!(text, " with the cipher suite {suite:#06x}"),
    };
    Some(text)
}

/// Bytes with their number in front, in two bytes. All that is sent here is short.
fn counted(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    [&length.to_be_bytes(), bytes].concat()
}

/// The greeting, as one record.
fn hello(host: &HostName) -> Vec<u8> {
    let extension = |number: u16, body: &[u8]| [&number.to_be_bytes()[..], &counted(body)].concat();
    let mut extensions = Vec::new();
    if let HostName::Dns(name) = host {
        extensions.extend(extension(0, &counted(&[&[0][..], &counted(name.as_bytes())].concat())));
    }
    // Groups: x25519, secp256r1, secp384r1, secp521r1. Points: uncompressed.
    extensions.extend(extension(10, &counted(&[0, 0x1d, 0, 0x17, 0, 0x18, 0, 0x19])));
    extensions.extend(extension(11, &[1, 0]));
    // Signatures: RSA and ECDSA with SHA-256, SHA-384, SHA-512, SHA-1.
    extensions.extend(extension(13, &counted(&[4, 1, 5, 1, 6, 1, 2, 1, 4, 3, 5, 3, 6, 3, 2, 3])));
    let suites: Vec<u8> = SUITES.iter().flat_map(|(number, _)| number.to_be_bytes()).collect();
    let mut body = vec![3, 3];
    // The value does not matter: no handshake follows.
    body.extend([0x6d; 32]);
    body.push(0);
    body.extend(counted(&suites));
    body.extend([1, 0]);
    body.extend(counted(&extensions));
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX).to_be_bytes();
    let handshake = [&[1], &length[1..], &body].concat();
    [&[22, 3, 1][..], &counted(&handshake)].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_server_hello_is_no_offer() {
        for body in [&[][..], &[2], &[1; 80], &[2; 38]] {
            assert_eq!(choice(body), None);
        }
        let mut hello = vec![2, 0, 0, 38, 3, 2];
        hello.extend([9; 32]);
        hello.extend([0, 0x12, 0x34, 0]);
        assert_eq!(choice(&hello).unwrap(), "TLS 1.1 with the cipher suite 0x1234");
    }
}
