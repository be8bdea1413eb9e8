//! Secrets in the file: encrypted, readable with the right keys only, and encrypted again when keys change.

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::*;

const WORD: &str = "correct-horse-battery-staple";

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn open(&self) -> Result<Store, String> {
        Store::open(&self.at("s.db"), &self.at("keys")).map_err(|error| error.to_string())
    }

    /// Whether the word occurs in any file of the folder other than the key file.
    fn files_with(&self, word: &str) -> Vec<String> {
        let files = std::fs::read_dir(self.dir.path()).unwrap().map(|f| f.unwrap().path());
        let matches =
            |path: &PathBuf| std::fs::read(path).unwrap().windows(word.len()).any(|found| found == word.as_bytes());
        files.filter(matches).map(|p| p.file_name().unwrap().to_string_lossy().into_owned()).collect()
    }

    fn key_line(&self, id: &str) -> String {
        format!("{id} {}\n", STANDARD.encode(rand::random::<[u8; 32]>()))
    }
}

fn secret(name: &str) -> Key {
    Key { resource: "secrets".into(), ns: "a".into(), name: name.into() }
}

async fn write(store: &Store, key: Key, expect: Expect) -> u64 {
    let op = Op::Put(Bytes::from(format!("{{\"password\":\"{WORD}\"}}")));
    store.write(Write { key, expect, op, guard: None }).await.unwrap()
}

async fn reads(store: &Store, name: &str) -> bool {
    let row = store.get(&secret(name)).await.unwrap().unwrap();
    String::from_utf8_lossy(&row.body).contains(WORD)
}

#[tokio::test]
async fn secrets_are_nowhere_in_clear_text_and_are_read_in_every_way() {
    let place = Place::new();
    let store = place.open().unwrap();
    let first = write(&store, secret("x"), Expect::Absent).await;
    write(&store, secret("x"), Expect::Rev(first)).await;
    let body = Bytes::from_static(WORD.as_bytes());
    let gone = write(&store, secret("y"), Expect::Absent).await;
    store
        .write(Write { key: secret("y"), expect: Expect::Rev(gone), op: Op::Delete(body), guard: None })
        .await
        .unwrap();
    backup(&place.at("s.db"), &place.at("saved")).unwrap();
    assert_eq!(place.files_with(WORD), Vec::<String>::new());
    store.close().await;
    assert_eq!(place.files_with(WORD), Vec::<String>::new());
    // Nothing is cached now: all of this comes from the file.
    let store = place.open().unwrap();
    assert!(reads(&store, "x").await);
    let of = |at| ListQuery { resource: "secrets".into(), ns: None, after: None, at, limit: 9, pick: None };
    for at in [None, Some(first)] {
        let rows = store.list(of(at)).await.unwrap().rows;
        assert!(rows.len() == 1 && rows[0].body.ends_with(b"staple\"}"), "{at:?}");
    }
    assert!(store.at_revision(first).await.unwrap().unwrap().ends_with(b"staple\"}"));
    for resource in ["secrets", ""] {
        let (events, _) = store.events_after(&resource.into(), 0).await.unwrap();
        assert!(events.len() == 4 && events.iter().all(|e| String::from_utf8_lossy(&e.body).contains(WORD)));
    }
    store.close().await;
    // A restored backup needs the same keys.
    restore(&place.at("s.db"), &place.at("saved")).unwrap();
    assert!(reads(&place.open().unwrap(), "x").await);
}

#[tokio::test]
async fn what_was_stored_in_clear_text_is_encrypted_at_the_next_start() {
    let place = Place::new();
    let store = place.open().unwrap();
    write(&store, Key { resource: "things".into(), ..secret("x") }, Expect::Absent).await;
    store.close().await;
    // Rows of an earlier program version, many of them superseded or deleted.
    let file = rusqlite::Connection::open(place.at("s.db")).unwrap();
    file.execute_batch(
        "UPDATE rows SET resource='secrets'; UPDATE current SET resource='secrets'; PRAGMA user_version=2;",
    )
    .unwrap();
    drop(file);
    assert_eq!(place.files_with(WORD), ["s.db"]);
    let store = place.open().unwrap();
    assert!(reads(&store, "x").await);
    store.close().await;
    assert_eq!(place.files_with(WORD), Vec::<String>::new());
}

#[tokio::test]
async fn keys_are_rotated_and_a_store_without_its_keys_is_left_alone() {
    let place = Place::new();
    let store = place.open().unwrap();
    write(&store, secret("x"), Expect::Absent).await;
    store.close().await;
    let first = std::fs::read_to_string(place.at("keys")).unwrap();
    let before = std::fs::read(place.at("s.db")).unwrap();
    let id = first.lines().last().unwrap().split(' ').next().unwrap().to_owned();
    let refused = |text: Option<&str>| {
        match text {
            Some(text) => std::fs::write(place.at("keys"), text).unwrap(),
            None => std::fs::remove_file(place.at("keys")).unwrap(),
        }
        place.open().err().unwrap()
    };
    assert!(refused(None).contains("is missing: put it back"));
    assert!(!place.at("keys").exists(), "no new key hides that the old one is lost");
    assert!(
        refused(Some(&place.key_line("other"))).contains(&format!("encrypted with the key {id:?}, which is not in"))
    );
    assert!(
        refused(Some(&place.key_line(&id))).contains("is not the one that the store's Secrets were encrypted with")
    );
    assert!(refused(Some("nonsense")).contains("line 1 of the file of encryption keys"));
    assert!(refused(Some("a bm8=")).contains("has a key that is not of 32 bytes"));
    assert!(refused(Some("# nothing\n")).contains("have no key"));
    assert_eq!(std::fs::read(place.at("s.db")).unwrap(), before, "nothing was written by the starts that failed");
    let second = place.key_line("second");
    std::fs::write(place.at("keys"), format!("{second}{first}")).unwrap();
    let store = place.open().unwrap();
    assert!(reads(&store, "x").await);
    store.close().await;
    // Everything is encrypted with the new key, so the old one can be removed.
    std::fs::write(place.at("keys"), second).unwrap();
    assert!(reads(&place.open().unwrap(), "x").await);
}

#[tokio::test]
async fn a_row_does_not_stand_for_another() {
    let place = Place::new();
    let store = place.open().unwrap();
    for name in ["x", "y"] {
        write(&store, secret(name), Expect::Absent).await;
    }
    store.close().await;
    let file = rusqlite::Connection::open(place.at("s.db")).unwrap();
    file.execute_batch("UPDATE rows SET body=(SELECT body FROM rows WHERE name='y') WHERE name='x'").unwrap();
    drop(file);
    assert!(place.open().err().unwrap().contains("or the store is damaged"));
}
