//! Rotation: what is current, what is kept, and what a crash leaves.
use super::*;

fn names(folder: &Path) -> (String, String) {
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    (read(CERTIFICATE), read(KEY))
}

#[test]
fn a_rotation_makes_another_current_one_and_keeps_the_one_before() {
    let folder = tempfile::tempdir().unwrap();
    let all = Authorities::open(folder.path(), &[]).unwrap();
    let first = all.current();
    let second = rotate(folder.path(), &[]).unwrap();
    assert_eq!(
        all.current().fingerprint(),
        first.fingerprint(),
        "until it is read anew"
    );
    all.reload().unwrap();
    assert_eq!(all.current().fingerprint(), second);
    assert_eq!(
        all.of(Some(first.fingerprint())).fingerprint(),
        first.fingerprint()
    );
    let third = rotate(folder.path(), &[]).unwrap();
    let again = Authorities::open(folder.path(), &[]).unwrap();
    assert_eq!(again.current().fingerprint(), third);
    for one in [first.fingerprint(), second.as_str(), third.as_str()] {
        assert_eq!(again.of(Some(one)).fingerprint(), one);
    }
    assert_eq!(again.of(Some("unheard of")).fingerprint(), third);
    retire(folder.path()).unwrap();
    again.reload().unwrap();
    assert_eq!(again.of(Some(&second)).fingerprint(), third);
    retire(folder.path()).unwrap();
}

/// Every order of files that a killed rotation can leave.
#[test]
fn a_rotation_that_was_cut_is_either_done_or_not() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let first = Authorities::open(folder, &[]).unwrap().current();
    let before = names(folder);
    let (next_certificate, next_key) = (folder.join(NEXT_CERTIFICATE), folder.join(NEXT_KEY));
    std::fs::write(&next_key, "half a k").unwrap();
    assert_eq!(
        Authorities::open(folder, &[]).unwrap().current().fingerprint(),
        first.fingerprint()
    );
    let next = Authority::make(&next_certificate, &next_key, &[]).unwrap();
    assert_eq!(
        Authorities::open(folder, &[]).unwrap().current().fingerprint(),
        first.fingerprint()
    );
    assert_eq!(names(folder), before);
    assert!(!next_key.exists() && !next_certificate.exists());
    let next_again = Authority::make(&next_certificate, &next_key, &[]).unwrap();
    std::fs::rename(&next_key, folder.join(KEY)).unwrap();
    let done = Authorities::open(folder, &[]).unwrap().current();
    assert_eq!(done.fingerprint(), next_again.fingerprint());
    assert_ne!(done.fingerprint(), next.fingerprint());
    let again = Authority::load(&folder.join(CERTIFICATE), &folder.join(KEY)).unwrap();
    assert_eq!(again.fingerprint(), done.fingerprint());
}

#[test]
fn the_names_that_an_authority_may_vouch_for_are_kept_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let permitted = ["corp.test".to_owned(), "example.test".to_owned()];
    let first = Authorities::open(folder.path(), &permitted).unwrap().current();
    assert_eq!(first.permitted(), permitted);
    let again = Authorities::open(folder.path(), &[]).unwrap().current();
    assert_eq!(again.permitted(), permitted);
    for (host, may) in [
        ("corp.test", true),
        ("git.corp.test", true),
        ("evilcorp.test", false),
        ("other.test", false),
        ("192.0.2.1", false),
    ] {
        assert_eq!(
            again.permits(&sallyport_policy::Host::parse(host).unwrap()),
            may,
            "{host}"
        );
    }
    rotate(folder.path(), &[]).unwrap();
    let open = Authorities::open(folder.path(), &[]).unwrap().current();
    assert!(open.permits(&sallyport_policy::Host::parse("192.0.2.1").unwrap()));
}
