//! Files that are killed, damaged, and opened again.
use super::*;
use redb::{ReadableTable, TableDefinition};

const NUMBERS: TableDefinition<'_, u64, u64> = TableDefinition::new("numbers");

#[tokio::test]
async fn what_is_confirmed_is_there_after_opening_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.redb");
    let store = Store::open(&path).unwrap();
    let many = (0..500u64).map(|number| {
        let store = store.clone();
        tokio::spawn(async move {
            store
                .write(move |transaction| {
                    transaction.open_table(NUMBERS)?.insert(number, number)?;
                    Ok((Need::Durable, number))
                })
                .await
        })
    });
    for (number, done) in many.collect::<Vec<_>>().into_iter().enumerate() {
        assert_eq!(done.await.unwrap().unwrap(), number as u64);
    }
    drop(store);
    let store = reopened(&path).await;
    let count = store
        .read(|transaction| Ok(transaction.open_table(NUMBERS)?.iter()?.count()))
        .await
        .unwrap();
    assert_eq!(count, 500);
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// The old writer lets go of the file only when its thread has seen that all handles are gone.
async fn reopened(path: &Path) -> Store {
    loop {
        match Store::open(path) {
            Ok(store) => return store,
            Err(fault) if fault.to_string().contains("already open") => tokio::task::yield_now().await,
            Err(fault) => panic!("{fault}"),
        }
    }
}

#[tokio::test]
async fn a_failed_job_undoes_its_group_and_the_next_one_works() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("a.redb")).unwrap();
    let failed = store
        .write::<()>(|transaction| {
            transaction.open_table(NUMBERS)?.insert(1, 1)?;
            Err(redb::Error::Corrupted("a test".into()))
        })
        .await;
    assert!(matches!(failed, Err(StoreError::Use { .. })));
    store
        .write(|transaction| {
            assert!(transaction.open_table(NUMBERS)?.get(1)?.is_none());
            Ok((Need::Durable, ()))
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_file_opens_after_its_creation_was_killed_anywhere() {
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("whole.redb");
    drop(Store::open(&whole).unwrap());
    let bytes = std::fs::read(&whole).unwrap();
    for round in 0..200 {
        let path = folder.path().join(format!("{round}.redb"));
        let cut = bytes.len() * round / 200;
        std::fs::write(path.with_extension("new"), &bytes[..cut]).unwrap();
        let store = Store::open(&path).unwrap();
        store
            .write(|transaction| {
                transaction.open_table(NUMBERS)?.insert(1, 1)?;
                Ok((Need::Durable, ()))
            })
            .await
            .unwrap();
        drop(store);
        std::fs::remove_file(path).unwrap();
    }
}

/// A process of its own: makes the file and tells each number that is confirmed, until it is killed.
#[tokio::test]
async fn writes_until_it_is_killed() {
    let Some(path) = std::env::var_os("SALLYPORT_TEST_STORE") else {
        return;
    };
    let store = Store::open(Path::new(&path)).unwrap();
    let mut out = std::io::stdout();
    for number in 0.. {
        store
            .write(move |transaction| {
                transaction.open_table(NUMBERS)?.insert(number, number)?;
                Ok((Need::Durable, ()))
            })
            .await
            .unwrap();
        std::io::Write::write_all(&mut out, format!("confirmed {number}\n").as_bytes()).unwrap();
    }
}

#[tokio::test]
async fn a_process_killed_at_any_moment_leaves_a_file_that_opens_and_lacks_nothing_confirmed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.redb");
    let mut checked = 0;
    for round in 0..40u64 {
        if round % 2 == 0 {
            let _ = std::fs::remove_file(&path);
        }
        let mut child = tokio::process::Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "store::tests::writes_until_it_is_killed",
                "--nocapture",
            ])
            .env("SALLYPORT_TEST_STORE", &path)
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        // From before the file is there to some way into the writing.
        tokio::time::sleep(std::time::Duration::from_millis(round * 2)).await;
        child.start_kill().unwrap();
        let output = child.wait_with_output().await.unwrap();
        let told = String::from_utf8_lossy(&output.stdout);
        let confirmed = told
            .lines()
            .filter_map(|line| line.strip_prefix("confirmed ")?.parse::<u64>().ok())
            .max();
        let store = reopened(&path).await;
        let Some(confirmed) = confirmed else { continue };
        let known =
            store.read(move |transaction| Ok(transaction.open_table(NUMBERS)?.get(confirmed)?.is_some()));
        assert!(known.await.unwrap(), "round {round}: {confirmed} was confirmed");
        checked += 1;
    }
    assert!(checked > 0, "no process lived long enough to confirm anything");
}

#[tokio::test]
async fn a_file_that_is_none_is_refused_with_its_name_and_no_panic() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.redb");
    for bytes in [&b"not a database"[..], &[0u8; 8192]] {
        std::fs::write(&path, bytes).unwrap();
        let fault = Store::open(&path).unwrap_err().to_string();
        assert!(
            fault.contains("a.redb") && fault.contains("cannot be opened"),
            "{fault}"
        );
    }
    let nowhere = Store::open(&folder.path().join("none/a.redb"))
        .unwrap_err()
        .to_string();
    assert!(nowhere.contains("none/a.redb"), "{nowhere}");
}
