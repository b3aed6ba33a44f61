//! Files of each tool, in the words of its manual.
use crate::preflight::testing::told;

#[test]
fn requirements_name_indices_repositories_and_archives() {
    let text = "\
--index-url https://${USER}:${PYTOKEN}@index.test/simple
--extra-index-url=https://extra.test/simple
# https://comment.test
requests==2.0  # https://other.test
lib @ git+https://git.test/acme/lib.git@v1
-e git+ssh://git@git.test/acme/tool.git#egg=tool
https://files.test/a/b-1.0.whl ; python_version > '3'
./local
";
    assert_eq!(
        told("requirements-dev.txt", text),
        [
            "sure a log-in in `PYTOKEN` for https://index.test @1",
            "sure python packages: GET https://index.test/simple @1",
            "sure python packages: GET https://extra.test/simple @2",
            "sure python packages: clone https://git.test/acme/lib.git @5",
            "sure python packages: clone ssh://git.test/acme/tool.git @6",
            "sure python packages: GET https://files.test/a/b-1.0.whl @7",
        ]
    );
    assert_eq!(
        told("requirements.txt", "requests\nflask>=2\n"),
        ["sure python packages from the registries of `python` @1"]
    );
}

#[test]
fn pyproject_of_each_tool_is_read() {
    let text = r#"
[project]
dependencies = ["flask", "lib @ https://files.test/lib.whl"]
[build-system]
requires = ["hatchling"]
[[tool.uv.index]]
url = "https://uv.test/simple"
[tool.uv.sources]
other = { git = "https://git.test/acme/other" }
"#;
    assert_eq!(
        told("pyproject.toml", text),
        [
            "sure python packages: GET https://uv.test/simple @7",
            "sure python packages: GET https://files.test/lib.whl @3",
            "sure python packages: clone https://git.test/acme/other @9",
            "sure python packages from the registries of `python` @3",
        ]
    );
    let text = r#"
[tool.poetry.dependencies]
python = "^3.12"
flask = "^3"
lib = { git = "https://git.test/acme/lib.git", branch = "main" }
[[tool.poetry.source]]
name = "own"
url = "https://own.test/simple"
priority = "primary"
"#;
    assert_eq!(
        told("pyproject.toml", text),
        [
            "sure python packages: GET https://own.test/simple @8",
            "sure python packages: clone https://git.test/acme/lib.git @5",
        ]
    );
}

#[test]
fn lock_files_are_read_with_their_sources() {
    let uv = r#"
[[package]]
name = "a"
source = { registry = "https://index.test/simple" }
sdist = { url = "https://files.test/a.tar.gz" }
wheels = [{ url = "https://files.test/a.whl" }]
[[package]]
name = "own"
source = { virtual = "." }
"#;
    assert_eq!(
        told("uv.lock", uv),
        [
            "sure python packages: GET https://files.test/a.tar.gz and 1 more path @5",
            "sure python packages: GET https://index.test/simple @4",
        ]
    );
    let poetry = r#"
[[package]]
name = "a"
[[package]]
name = "b"
[package.source]
type = "git"
url = "https://git.test/acme/b"
"#;
    assert_eq!(
        told("poetry.lock", poetry),
        [
            "sure python packages from the registries of `python` @2",
            "sure python packages: clone https://git.test/acme/b @8",
        ]
    );
    let pipfile = r#"{"_meta": {"sources": [{"url": "https://index.test/simple"}]},
        "default": {"b": {"git": "https://git.test/acme/b.git", "ref": "1"}}}"#;
    assert_eq!(
        told("Pipfile.lock", pipfile),
        [
            "sure python packages: GET https://index.test/simple @1",
            "sure python packages: clone https://git.test/acme/b.git @2",
        ]
    );
}

#[test]
fn configuration_files_name_indices() {
    assert_eq!(
        told(
            "pip.conf",
            "[global]\nindex-url = https://index.test/simple\nextra-index-url =\n    https://more.test/simple\n"
        ),
        [
            "sure python packages: GET https://index.test/simple @2",
            "sure python packages: GET https://more.test/simple @4",
        ]
    );
    assert_eq!(
        told(
            "setup.cfg",
            "[options]\ninstall_requires =\n    flask\ndependency_links =\n    https://old.test/x\n"
        ),
        [
            "sure python packages from the registries of `python` @3",
            "sure python packages: GET https://old.test/x @5",
        ]
    );
}
