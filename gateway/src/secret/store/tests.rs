//! Tests of the local store: what is kept, what is noticed, and keys that change.
use super::*;

fn value(text: &str) -> Value {
    Value::new(text.as_bytes().to_vec())
}

#[test]
fn what_is_set_is_read_back_after_reopening_and_nothing_lies_in_clear() {
    let folder = tempfile::tempdir().unwrap();
    let store = SecretStore::open(folder.path()).unwrap();
    store.set("forge", value("open sesame")).unwrap();
    store.set("forge", value("shut sesame")).unwrap();
    store.set("model.key-1", value("0123456789")).unwrap();
    let again = SecretStore::open(folder.path()).unwrap();
    assert_eq!(again.names().unwrap(), ["forge", "model.key-1"]);
    assert_eq!(again.value("forge").unwrap().unwrap().bytes(), b"shut sesame");
    assert!(again.remove("forge").unwrap());
    assert!(!again.remove("forge").unwrap());
    assert!(store.value("forge").unwrap().is_none());
    for file in std::fs::read_dir(folder.path()).unwrap() {
        let file = file.unwrap();
        assert_eq!(
            file.metadata().unwrap().permissions().mode() & 0o777,
            0o600,
            "{file:?}"
        );
        let content = std::fs::read(file.path()).unwrap();
        assert!(
            !content.windows(10).any(|window| window == b"0123456789"),
            "{file:?}"
        );
    }
}

#[test]
fn a_foreign_key_is_named_and_nothing_is_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    SecretStore::open(folder.path())
        .unwrap()
        .set("forge", value("open sesame"))
        .unwrap();
    let before = std::fs::read(folder.path().join("secrets.enc")).unwrap();
    std::fs::write(folder.path().join("secrets.key"), [7; 32]).unwrap();
    let error = SecretStore::open(folder.path()).unwrap_err();
    assert!(matches!(error, StoreError::Sealed(_)), "{error}");
    assert_eq!(std::fs::read(folder.path().join("secrets.enc")).unwrap(), before);
}

#[test]
fn any_changed_byte_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let store = SecretStore::open(folder.path()).unwrap();
    store.set("forge", value("open sesame")).unwrap();
    let path = folder.path().join("secrets.enc");
    let whole = std::fs::read(&path).unwrap();
    for at in 0..whole.len() {
        let mut torn = whole.clone();
        torn[at] ^= 1;
        std::fs::write(&path, torn).unwrap();
        assert!(
            matches!(store.value("forge"), Err(StoreError::Sealed(_))),
            "byte {at}"
        );
    }
    std::fs::write(&path, &whole[..20]).unwrap();
    assert!(matches!(
        store.set("other", value("open sesame")),
        Err(StoreError::Sealed(_))
    ));
    assert_eq!(std::fs::read(&path).unwrap(), whole[..20]);
}

#[test]
fn a_missing_key_is_not_made_anew_over_secrets() {
    let folder = tempfile::tempdir().unwrap();
    SecretStore::open(folder.path())
        .unwrap()
        .set("forge", value("open sesame"))
        .unwrap();
    std::fs::remove_file(folder.path().join("secrets.key")).unwrap();
    assert!(matches!(
        SecretStore::open(folder.path()),
        Err(StoreError::Key { .. })
    ));
    std::fs::write(folder.path().join("secrets.key"), b"short").unwrap();
    assert!(matches!(
        SecretStore::open(folder.path()),
        Err(StoreError::Key { .. })
    ));
}

#[test]
fn names_and_sizes_are_checked() {
    let folder = tempfile::tempdir().unwrap();
    let store = SecretStore::open(folder.path()).unwrap();
    assert!(matches!(
        store.set("../x", value("open sesame")),
        Err(StoreError::Name(_))
    ));
    assert!(matches!(
        store.set("", value("open sesame")),
        Err(StoreError::Name(_))
    ));
    assert!(matches!(
        store.set("x", value("short")),
        Err(StoreError::Size { given: 5 })
    ));
    let long = Value::new(vec![b'x'; super::super::LONGEST_VALUE + 1]);
    assert!(matches!(store.set("x", long), Err(StoreError::Size { .. })));
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let error = SecretStore::open(Path::new("/proc/nothing"))
        .unwrap_err()
        .to_string();
    assert!(error.contains("/proc/nothing"), "{error}");
}

const CHEAP: Cost = Cost {
    memory_kib: 64,
    passes: 1,
    lanes: 1,
};
const PHRASE: &[u8] = b"correct horse battery";

fn with_passphrase(folder: &Path, text: &[u8]) -> Result<SecretStore, StoreError> {
    let keys = Keys {
        passphrase: Some(Passphrase::given(text)),
        file: None,
    };
    SecretStore::open_with(folder, keys)
}

fn locked(folder: &Path) {
    let store = SecretStore::open(folder).unwrap();
    store.set("forge", value("open sesame")).unwrap();
    let new = NewKey::Passphrase(Passphrase::new(PHRASE).unwrap(), CHEAP);
    store.rekey(new).unwrap();
}

#[test]
fn a_store_moves_under_a_passphrase_and_back_with_everything_in_it() {
    let folder = tempfile::tempdir().unwrap();
    locked(folder.path());
    assert!(
        !folder.path().join("secrets.key").exists(),
        "the old key opens nothing any more"
    );
    let store = with_passphrase(folder.path(), b"correct horse battery\n").unwrap();
    assert_eq!(store.value("forge").unwrap().unwrap().bytes(), b"open sesame");
    store.set("model", value("0123456789")).unwrap();
    assert!(store.key_in_words().unwrap().contains("Argon2id with 64 KiB"));
    let again = NewKey::Passphrase(Passphrase::new(b"another long phrase").unwrap(), CHEAP);
    store.rekey(again).unwrap();
    let store = with_passphrase(folder.path(), b"another long phrase").unwrap();
    store.rekey(NewKey::File).unwrap();
    let store = SecretStore::open(folder.path()).unwrap();
    assert_eq!(store.names().unwrap(), ["forge", "model"]);
    assert!(!folder.path().join("secrets.key.next").exists());
}

#[test]
fn a_wrong_passphrase_and_none_are_told_apart_and_overwrite_nothing() {
    let folder = tempfile::tempdir().unwrap();
    locked(folder.path());
    let path = folder.path().join("secrets.enc");
    let before = std::fs::read(&path).unwrap();
    let wrong = with_passphrase(folder.path(), b"correct horse batterx").unwrap_err();
    assert!(matches!(wrong, StoreError::Passphrase(_)), "{wrong}");
    let none = SecretStore::open(folder.path()).unwrap_err();
    assert!(matches!(none, StoreError::Locked(_)), "{none}");
    assert!(none.to_string().contains("--passphrase-file"), "{none}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
    assert!(
        !folder.path().join("secrets.key").exists(),
        "no key is made beside it"
    );
    assert!(matches!(Passphrase::new(b"short"), Err(StoreError::Short)));
}

#[test]
fn any_changed_byte_of_a_locked_store_is_noticed_and_its_head_cannot_ask_for_too_much() {
    let folder = tempfile::tempdir().unwrap();
    locked(folder.path());
    let path = folder.path().join("secrets.enc");
    let whole = std::fs::read(&path).unwrap();
    for at in (0..whole.len()).step_by(3) {
        let mut torn = whole.clone();
        torn[at] ^= 1;
        std::fs::write(&path, torn).unwrap();
        assert!(with_passphrase(folder.path(), PHRASE).is_err(), "byte {at}");
    }
    let text = String::from_utf8_lossy(&whole).replace(r#""memory_kib":64"#, r#""memory_kib":4000000000"#);
    std::fs::write(&path, text.as_bytes()).unwrap();
    assert!(matches!(
        with_passphrase(folder.path(), PHRASE),
        Err(StoreError::Sealed(_))
    ));
}

#[test]
fn a_change_of_key_files_that_was_interrupted_is_brought_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let opens = |what: &str| {
        let store = SecretStore::open(folder.path()).unwrap();
        assert_eq!(
            store.value("forge").unwrap().unwrap().bytes(),
            b"open sesame",
            "{what}"
        );
        assert!(!path("secrets.key.next").exists(), "{what}");
    };
    let store = SecretStore::open(folder.path()).unwrap();
    store.set("forge", value("open sesame")).unwrap();
    let (old_key, old) = (
        std::fs::read(path("secrets.key")).unwrap(),
        std::fs::read(path("secrets.enc")).unwrap(),
    );
    store.rekey(NewKey::File).unwrap();
    let (new_key, new) = (
        std::fs::read(path("secrets.key")).unwrap(),
        std::fs::read(path("secrets.enc")).unwrap(),
    );
    assert!(old_key != new_key && old != new);
    let lay = |key: &[u8], next: &[u8], data: &[u8]| {
        std::fs::write(path("secrets.key"), key).unwrap();
        std::fs::write(path("secrets.key.next"), next).unwrap();
        std::fs::write(path("secrets.enc"), data).unwrap();
    };
    lay(&old_key, &new_key, &old);
    opens("the new key lies there, nothing was sealed with it");
    lay(&old_key, &new_key, &new);
    assert_eq!(
        store.value("forge").unwrap().unwrap().bytes(),
        b"open sesame",
        "a reader meanwhile"
    );
    opens("everything was sealed with the new key");
    assert_eq!(std::fs::read(path("secrets.key")).unwrap(), new_key);
    lay(&old_key, &new_key, &new);
    std::fs::remove_file(path("secrets.key")).unwrap();
    opens("the old key is gone already");
}

#[test]
fn a_key_file_may_lie_elsewhere() {
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let keys = || Keys {
        file: Some(elsewhere.path().join("key")),
        passphrase: None,
    };
    let store = SecretStore::open_with(folder.path(), keys()).unwrap();
    store.set("forge", value("open sesame")).unwrap();
    store.rekey(NewKey::File).unwrap();
    assert!(!folder.path().join("secrets.key").exists());
    let again = SecretStore::open_with(folder.path(), keys()).unwrap();
    assert_eq!(again.names().unwrap(), ["forge"]);
}

#[test]
fn only_what_is_there_is_rotated_and_only_to_something_else() {
    let folder = tempfile::tempdir().unwrap();
    let store = SecretStore::open(folder.path()).unwrap();
    store.set("forge", value("open sesame")).unwrap();
    assert!(matches!(
        store.rotate("other", value("open sesame")),
        Err(StoreError::Unknown(_))
    ));
    assert!(matches!(
        store.rotate("forge", value("open sesame")),
        Err(StoreError::Same(_))
    ));
    store.rotate("forge", value("shut sesame")).unwrap();
    assert_eq!(store.value("forge").unwrap().unwrap().bytes(), b"shut sesame");
}
