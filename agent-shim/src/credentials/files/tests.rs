//! Tests of the files in the agent's home: what they say, and that the agent's own stay as they are.
use super::*;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};

fn known(host: &str, places: &[&str], placeholder: &str) -> KnownCredential {
    KnownCredential {
        name: placeholder.into(),
        hosts: vec![host.into(), format!("*.{host}"), "192.0.2.0/24".into()],
        places: places.iter().map(|place| (*place).to_owned()).collect(),
        placeholder: placeholder.into(),
        throughout: true,
        ..KnownCredential::default()
    }
}

fn homes(folder: &tempfile::TempDir) -> Homes {
    Homes {
        root: folder.path().to_owned(),
        home: "/home/agent".into(),
        program: "/opt/sallyport-shim".into(),
    }
}

fn read(folder: &tempfile::TempDir, path: &str) -> Option<String> {
    fs::read_to_string(folder.path().join(path)).ok()
}

#[test]
fn each_tool_finds_placeholders_of_the_hosts_that_are_named_one_by_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut api = known("api.example", &["bearer"], "ph-api");
    api.user = Some("bot".into());
    let mut index = known("index.example", &["basic"], "ph-index");
    index.ports = vec![8443];
    let (variables, warnings) = install(&homes(&folder), &[api, index]);
    assert!(warnings.is_empty(), "{warnings:?}");
    let home = |path: &str| read(&folder, &format!("home/agent/{path}")).unwrap();
    assert_eq!(
        home(".netrc"),
        "machine index.example login x-access-token password ph-index\n"
    );
    let npm = home(".npmrc");
    for line in [
        "//api.example/:_authToken=ph-api",
        "//index.example:8443/:username=x-access-token",
        "//index.example:8443/:_password=cGgtaW5kZXg=",
    ] {
        assert!(npm.lines().any(|own| own == line), "{line} in {npm}");
    }
    let docker: serde_json::Value = serde_json::from_str(&home(".docker/config.json")).unwrap();
    assert_eq!(
        docker["credHelpers"],
        serde_json::json!({"api.example": "sallyport", "index.example:8443": "sallyport"})
    );
    assert!(
        home(".config/gh/hosts.yml").starts_with("example:\n"),
        "the host of the API"
    );
    assert!(variables[CARGO].contains("cargo-credential-sallyport"));
    for path in [".netrc", ".npmrc"] {
        let mode = fs::metadata(folder.path().join("home/agent").join(path))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{path}");
    }
    for name in PROGRAMS {
        let link = fs::read_link(folder.path().join(LINKS).join(name)).unwrap();
        assert_eq!(link, Path::new("/opt/sallyport-shim"));
    }
}

#[test]
fn files_of_the_agents_own_stay_and_ours_follow_what_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home/agent");
    fs::create_dir_all(&home).unwrap();
    fs::write(home.join(".npmrc"), "registry=https://own.example\n").unwrap();
    let homes = homes(&folder);
    install(&homes, &[known("a.example", &["basic", "bearer"], "ph-1")]);
    assert_eq!(
        read(&folder, "home/agent/.npmrc").unwrap(),
        "registry=https://own.example\n"
    );
    assert!(read(&folder, "home/agent/.netrc").unwrap().contains("ph-1"));
    install(&homes, &[known("a.example", &["basic", "bearer"], "ph-2")]);
    assert!(
        read(&folder, "home/agent/.netrc").unwrap().contains("ph-2"),
        "ours is brought up to date"
    );
    fs::write(home.join(".netrc"), "machine b.example login x password y\n").unwrap();
    install(&homes, &[known("a.example", &["basic"], "ph-3")]);
    assert!(
        !read(&folder, "home/agent/.netrc").unwrap().contains("ph-"),
        "now it is the agent's"
    );
    install(&homes, &[]);
    assert_eq!(
        read(&folder, "home/agent/.docker/config.json"),
        None,
        "ours is gone with the credential"
    );
    assert!(home.join(".netrc").exists());
}

#[test]
fn the_systems_settings_of_git_are_kept_and_include_ours_once() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("etc")).unwrap();
    fs::write(folder.path().join("etc/gitconfig"), "[core]\n\tabbrev = 12\n").unwrap();
    fs::create_dir_all(folder.path().join("usr/local/bin")).unwrap();
    fs::write(folder.path().join("usr/local/bin/git"), "").unwrap();
    for _ in 0..2 {
        install(&homes(&folder), &[]);
    }
    let beside = read(&folder, "usr/local/etc/gitconfig").unwrap();
    assert!(beside.contains("path = /etc/sallyport/gitconfig"), "{beside}");
    let system = read(&folder, "etc/gitconfig").unwrap();
    assert!(system.starts_with("[core]\n\tabbrev = 12\n"));
    assert_eq!(system.matches("[include]").count(), 1, "{system}");
    let own = read(&folder, "etc/sallyport/gitconfig").unwrap();
    assert!(
        own.contains("helper = !'/opt/sallyport-shim' git-credential"),
        "{own}"
    );
}

#[test]
fn what_would_be_read_as_something_else_is_left_out_of_the_netrc() {
    let mut odd = known("a.example", &["basic"], "ph 1");
    assert_eq!(netrc(&[odd.clone()]), None);
    odd.placeholder = "ph-1".into();
    odd.user = Some("a b".into());
    assert_eq!(netrc(&[odd]), None);
}

#[test]
fn a_credential_that_not_every_request_may_show_is_left_to_helpers() {
    let folder = tempfile::tempdir().unwrap();
    let mut one = known("a.example", &["basic", "bearer"], "ph-1");
    one.throughout = false;
    install(&homes(&folder), &[one]);
    for path in [".netrc", ".npmrc", ".config/gh/hosts.yml"] {
        assert_eq!(read(&folder, &format!("home/agent/{path}")), None, "{path}");
    }
    assert!(
        read(&folder, "home/agent/.docker/config.json")
            .unwrap()
            .contains("a.example")
    );
}

#[test]
fn what_is_no_small_regular_file_is_the_agents_own_and_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home/agent");
    fs::create_dir_all(home.join(".docker")).unwrap();
    fs::create_dir_all(folder.path().join("etc")).unwrap();
    let pipe = |path: &Path| {
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, path, mode).unwrap();
    };
    pipe(&home.join(".netrc"));
    pipe(&folder.path().join("etc/gitconfig"));
    symlink("/dev/zero", home.join(".npmrc")).unwrap();
    let large = vec![b' '; 64 * 1024 + 1];
    fs::write(home.join(".docker/config.json"), &large).unwrap();
    let homes = homes(&folder);
    for known in [
        &[known("a.example", &["basic", "bearer"], "ph-1")][..],
        &[known("a.example", &["basic", "bearer"], "ph-2")],
        &[],
    ] {
        let (_, warnings) = install(&homes, known);
        assert_eq!(warnings.len(), 1, "of git's settings only: {warnings:?}");
        assert!(warnings[0].starts_with("git could not be set up"), "{warnings:?}");
        for path in [home.join(".netrc"), folder.path().join("etc/gitconfig")] {
            let kind = fs::symlink_metadata(&path).unwrap().file_type();
            assert!(kind.is_fifo(), "{}", path.display());
        }
        assert_eq!(
            fs::read_link(home.join(".npmrc")).unwrap(),
            Path::new("/dev/zero")
        );
        assert_eq!(fs::read(home.join(".docker/config.json")).unwrap(), large);
        assert_eq!(
            home.join(".config/gh/hosts.yml").exists(),
            !known.is_empty(),
            "the others are written, and taken away"
        );
    }
    let pipe_of_ours = folder.path().join("pipe");
    pipe(&pipe_of_ours);
    write(&pipe_of_ours, "x", PRIVATE).unwrap();
    let kind = fs::symlink_metadata(&pipe_of_ours).unwrap().file_type();
    assert!(kind.is_fifo(), "writing leaves it alone too");
}
