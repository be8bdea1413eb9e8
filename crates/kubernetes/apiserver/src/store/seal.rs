//! Encryption of Secrets before they reach the file, its log or backups. The keys are in their own file, one per
//! line: an id and 32 bytes in Base64. The first key encrypts, all keys decrypt. To rotate, insert a new first line
//! and restart the server, which encrypts everything with it; then remove the old line.
//!
//! A sealed body is `\0sealed1`, the length of the key id and the id, a nonce, and the AES-256-GCM ciphertext with
//! its tag. The associated data names the row, so no row can be substituted for another.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use rusqlite::types::Type;
use rusqlite::{Connection, params};

use super::sqlite::{sql, unsql};

/// Prefix of sealed bodies. No other body begins with a zero byte.
const MARK: &[u8] = b"\0sealed1";
/// Storage name of the sealed resource.
const SEALED: &str = "secrets";
/// Longest key id, in bytes.
const MAX_ID: usize = 64;
/// Largest key file, in bytes.
const MAX_FILE: u64 = 64 << 10;

/// The keys cannot be used. The store is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file could not be read or created.
    #[error("the file of encryption keys {} could not be {what}", path.display())]
    File {
        /// "read" or "made".
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The store needs keys, but the file is missing.
    #[error(
        "the store's Secrets are encrypted and the file of keys {} is missing: put it back from where you keep it; without it \
         the Secrets cannot be read",
        path.display()
    )]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// A line is not a valid key.
    #[error("line {line} of the file of encryption keys {} {why}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        why: &'static str,
    },
    /// The store uses a key that is not in the file.
    #[error(
        "the store has Secrets encrypted with the key {id:?}, which is not in {}: add its line again, after the first",
        path.display()
    )]
    Unknown {
        /// The key's id.
        id: String,
        /// The file.
        path: PathBuf,
    },
    /// A key does not decrypt what was encrypted under its id.
    #[error(
        "the key {id:?} in {} is not the one that the store's Secrets were encrypted with, or the store is damaged: put \
         the right file back",
        path.display()
    )]
    Wrong {
        /// The key's id.
        id: String,
        /// The file.
        path: PathBuf,
    },
}

/// A body that cannot be decrypted.
#[derive(Debug, thiserror::Error)]
#[error("a Secret could not be decrypted: its key is not there, or the row is damaged")]
struct Unreadable;

/// The row of a body: storage name, namespace as stored, name, revision.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) resource: &'a str,
    pub(super) ns: &'a str,
    pub(super) name: &'a str,
    pub(super) rev: u64,
}

impl Place<'_> {
    fn bound(&self) -> Vec<u8> {
        let Self { resource, ns, name, rev } = self;
        format!("{resource}\0{ns}\0{name}\0{rev}").into_bytes()
    }
}

/// The keys.
pub(super) struct Keyring {
    path: PathBuf,
    keys: Vec<(String, LessSafeKey)>,
}

impl Keyring {
    /// Reads the keys. Creates the file with a first key unless the store `needs` existing ones.
    pub(super) fn open(path: &Path, needs: bool) -> Result<Self, KeyError> {
        let file = |what: &'static str| move |source| KeyError::File { what, path: path.to_owned(), source };
        match std::fs::metadata(path) {
            Ok(found) if found.len() > MAX_FILE => {
                return Err(file("read")(std::io::Error::other("it is larger than 64 KiB")));
            }
            Ok(_) => {}
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(file("read")(error)),
            Err(_) if needs => return Err(KeyError::Missing { path: path.to_owned() }),
            Err(_) => make(path).map_err(file("made"))?,
        }
        let text = std::fs::read_to_string(path).map_err(file("read"))?;
        let mut keys: Vec<(String, LessSafeKey)> = Vec::new();
        for (at, line) in text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty() && !l.starts_with('#')) {
            let wrong = |why| KeyError::Line { path: path.to_owned(), line: at + 1, why };
            let (id, key) = line.trim().split_once(' ').ok_or(wrong("has no id and key with a space between them"))?;
            if id.len() > MAX_ID || keys.iter().any(|(known, _)| known == id) {
                return Err(wrong("has an id that is too long or there twice"));
            }
            let key = STANDARD.decode(key.trim()).map_err(|_| wrong("has a key that is no Base64"))?;
            let key = UnboundKey::new(&AES_256_GCM, &key).map_err(|_| wrong("has a key that is not of 32 bytes"))?;
            keys.push((id.to_owned(), LessSafeKey::new(key)));
        }
        if keys.is_empty() {
            return Err(KeyError::Line { path: path.to_owned(), line: 1, why: "and all others have no key" });
        }
        Ok(Self { path: path.to_owned(), keys })
    }

    /// A random key without a file, for tables in memory.
    pub(super) fn of_memory() -> Result<Self, KeyError> {
        let path = PathBuf::from("in memory");
        let wrong = KeyError::Line { path: path.clone(), line: 1, why: "has a key that is not of 32 bytes" };
        let key = UnboundKey::new(&AES_256_GCM, &rand::random::<[u8; 32]>()).map_err(|_| wrong)?;
        Ok(Self { path, keys: vec![("memory".to_owned(), LessSafeKey::new(key))] })
    }

    /// Encrypts a body for storage.
    pub(super) fn seal(&self, place: Place<'_>, body: &Bytes) -> rusqlite::Result<Bytes> {
        let failed = || rusqlite::Error::ToSqlConversionFailure(Box::new(Unreadable));
        let Some((id, key)) = self.keys.first().filter(|_| place.resource == SEALED) else { return Ok(body.clone()) };
        let nonce: [u8; NONCE_LEN] = rand::random();
        let mut text = body.to_vec();
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(place.bound()), &mut text)
            .map_err(|_| failed())?;
        let length = u8::try_from(id.len()).map_err(|_| failed())?;
        Ok([MARK, &[length], id.as_bytes(), &nonce, &text].concat().into())
    }

    /// Decrypts a stored body.
    pub(super) fn unseal(&self, place: Place<'_>, stored: &[u8]) -> rusqlite::Result<Bytes> {
        if !stored.starts_with(MARK) {
            return Ok(Bytes::copy_from_slice(stored));
        }
        let failed = || rusqlite::Error::FromSqlConversionFailure(0, Type::Blob, Box::new(Unreadable));
        let id = id_of(stored).ok_or_else(failed)?;
        let (_, key) = self.keys.iter().find(|(known, _)| known.as_bytes() == id).ok_or_else(failed)?;
        let rest = stored.get(MARK.len() + 1 + id.len()..).ok_or_else(failed)?;
        let (nonce, text) = rest.split_at_checked(NONCE_LEN).ok_or_else(failed)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| failed())?;
        let mut text = text.to_vec();
        let length = key.open_in_place(nonce, Aad::from(place.bound()), &mut text).map_err(|_| failed())?.len();
        text.truncate(length);
        Ok(text.into())
    }

    fn is_newest(&self, stored: &[u8]) -> bool {
        let first = self.keys.first().map(|(id, _)| id.as_bytes());
        stored.starts_with(MARK) && id_of(stored) == first
    }
}

/// The id of a sealed body's key.
fn id_of(stored: &[u8]) -> Option<&[u8]> {
    let length = usize::from(*stored.get(MARK.len())?);
    stored.get(MARK.len() + 1..MARK.len() + 1 + length)
}

/// Creates the file with one key, atomically.
fn make(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    let (id, key): ([u8; 4], [u8; 32]) = (rand::random(), rand::random());
    let id: String = id.iter().map(|b| format!("{b:02x}")).collect();
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let new = path.with_extension("new");
    let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    writeln!(
        file,
        "# Keys of the embedded API's Secrets. Without them the Secrets of the store and of its backups are lost:"
    )?;
    writeln!(file, "# keep a copy, but not beside the backups. The first key encrypts, all decrypt.")?;
    writeln!(file, "{id} {}", STANDARD.encode(key))?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    std::fs::File::open(folder)?.sync_all()
}

/// Whether the store has sealed rows.
pub(super) fn has_sealed(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row(
        "SELECT EXISTS (SELECT 1 FROM rows WHERE resource=?1 AND substr(body, 1, length(?2))=?2)",
        params![SEALED, MARK],
        |row| row.get(0),
    )
}

/// A stored row.
type Found = (u64, String, String, Vec<u8>);

/// Why sealed rows could not be encrypted anew.
pub(super) enum NotReencrypted {
    /// A row cannot be decrypted with these keys.
    Key(KeyError),
    /// The database failed.
    Failed(rusqlite::Error),
}

impl From<rusqlite::Error> for NotReencrypted {
    fn from(error: rusqlite::Error) -> Self {
        Self::Failed(error)
    }
}

/// Verifies that every sealed row can be decrypted, then encrypts all others with the first key. True if some were in
/// clear text.
pub(super) fn reencrypt(connection: &mut Connection, keys: &Keyring) -> Result<bool, NotReencrypted> {
    let transaction = connection.transaction()?;
    let mut clear = false;
    let mut old: Vec<Found> = Vec::new();
    {
        let mut statement = transaction.prepare("SELECT rev, ns, name, body FROM rows WHERE resource=?1")?;
        let mut rows = statement.query([SEALED])?;
        while let Some(row) = rows.next()? {
            let found: Found = (unsql(row.get(0)?), row.get(1)?, row.get(2)?, row.get(3)?);
            let (rev, ns, name, body) = &found;
            let place = Place { resource: SEALED, ns, name, rev: *rev };
            if keys.unseal(place, body).is_err() {
                let id = String::from_utf8_lossy(id_of(body).unwrap_or_default()).into_owned();
                let (path, known) = (keys.path.clone(), keys.keys.iter().any(|(k, _)| *k == id));
                let why = if known { KeyError::Wrong { id, path } } else { KeyError::Unknown { id, path } };
                return Err(NotReencrypted::Key(why));
            }
            clear |= !body.starts_with(MARK);
            if !keys.is_newest(body) {
                old.push(found);
            }
        }
    }
    for (rev, ns, name, body) in old {
        let place = Place { resource: SEALED, ns: &ns, name: &name, rev };
        let sealed = keys.seal(place, &keys.unseal(place, &body)?)?;
        transaction.execute("UPDATE rows SET body=?1 WHERE rev=?2", params![&sealed[..], sql(rev)])?;
    }
    transaction.commit()?;
    Ok(clear)
}
