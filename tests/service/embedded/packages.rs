//! The files that `make install` and the Debian package install work on the machine.
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::harness::backend::Backend;
use crate::harness::process::finish;

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs a command that must succeed, and returns its standard output.
#[track_caller]
fn succeed(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {status}\n{}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).expect("output is UTF-8")
}

fn has_program(name: &str) -> bool {
    Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// The program without its debugging information, which is most of a test build. Without `strip` it is copied as it is.
fn stripped_program(folder: &Path) -> PathBuf {
    let program = folder.join("posthaste");
    fs::copy(env!("CARGO_BIN_EXE_posthaste"), &program).expect("a copy");
    // Only makes the package smaller.
    let _ = Command::new("strip").arg(&program).status();
    program
}

/// The pages and completions below the `share` folder of an installation, for the commands that the program has.
fn assert_manual_and_completions(share: &Path, completions: [&str; 3]) {
    for page in ["posthaste", "posthaste-serve", "posthaste-outbox", "posthaste-outbox-why", "posthaste-token-mint"] {
        let file = share.join(format!("man/man1/{page}.1.gz"));
        let text = succeed(Command::new("gzip").arg("-dc").arg(&file));
        let titles: Vec<&str> = text.lines().filter(|line| line.starts_with(".TH ")).collect();
        assert!(titles.len() == 1 && titles[0].starts_with(&format!(".TH {page} 1 ")), "{page}: {titles:?}");
        assert!(text.starts_with(".ie ") && text.contains("\n.SH OPTIONS\n"), "{page}: {text}");
    }
    let pages = fs::read_dir(share.join("man/man1")).expect("pages").map(|page| page.expect("a page").file_name());
    let others: Vec<_> = pages.filter(|page| !page.to_string_lossy().starts_with("posthaste")).collect();
    assert!(others.is_empty(), "pages of sections: {others:?}");
    for file in completions {
        let text = fs::read_to_string(share.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(text.contains("redrive"), "{file} does not complete the commands");
    }
}

/// The installed documents below this folder, recursively.
fn documents_below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let of = |path: PathBuf| if path.is_dir() { documents_below(&path) } else { vec![path] };
    entries.flat_map(of).filter(|path| path.extension().is_some_and(|ending| ending == "md")).collect()
}

/// The documents are there, with those that they link to. Links to sources lead to a place only in the repository.
fn assert_documents(share: &Path) {
    let documents = documents_below(&share.join("doc/posthaste"));
    for name in ["posthaste/README.md", "docs/decisions/relay/cycles.md"] {
        assert!(documents.iter().any(|path| path.ends_with(name)), "no {name}: {documents:?}");
    }
    for document in documents {
        let text = fs::read_to_string(&document).expect("a document");
        let links = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
        let internal = links.filter(|link| !link.is_empty() && !link.contains("://"));
        for link in internal.filter(|link| !["rs", "py"].iter().any(|ending| link.ends_with(&format!(".{ending}")))) {
            assert!(document.with_file_name(link).exists(), "{} links to {link}", document.display());
        }
    }
}

#[test]
fn installation_has_the_program_its_manual_completions_documents_and_unit() {
    let staging = TempDir::new().expect("a folder");
    let script = repository().join("docker/package/install.sh");
    let program = stripped_program(staging.path());
    succeed(Command::new(script).arg(&program).arg("/opt/posthaste").env("DESTDIR", staging.path().join("root")));
    let prefix = staging.path().join("root/opt/posthaste");

    let version = succeed(Command::new(prefix.join("bin/posthaste")).arg("--version"));
    assert!(version.contains(env!("CARGO_PKG_VERSION")), "{version}");
    assert_manual_and_completions(
        &prefix.join("share"),
        [
            "bash-completion/completions/posthaste",
            "zsh/site-functions/_posthaste",
            "fish/vendor_completions.d/posthaste.fish",
        ],
    );
    let unit = fs::read_to_string(prefix.join("lib/systemd/system/posthaste.service")).expect("a unit");
    assert!(unit.contains("\nExecStart=/opt/posthaste/bin/posthaste serve --config /etc/posthaste/"), "{unit}");
    assert!(unit.contains(" file:/opt/posthaste/share/doc/posthaste/README.md\n"), "{unit}");
    assert_documents(&prefix.join("share"));
}

/// A folder that `dpkg --root` can install into, with a package database and users of its own.
struct DebianRoot(TempDir);

impl DebianRoot {
    fn new() -> Self {
        let root = TempDir::new().expect("a folder");
        for folder in ["var/lib/dpkg/info", "var/lib/dpkg/updates", "etc"] {
            fs::create_dir_all(root.path().join(folder)).expect("a folder");
        }
        for file in ["var/lib/dpkg/status", "etc/passwd", "etc/group", "etc/shadow", "etc/gshadow"] {
            fs::write(root.path().join(file), "").expect("a file");
        }
        Self(root)
    }

    fn path(&self, below: &str) -> PathBuf {
        self.0.path().join(below)
    }

    /// Runs dpkg with the scripts of the package, in this root. They run outside of it, with `DPKG_ROOT`: the root has no shell.
    #[track_caller]
    fn dpkg(&self, arguments: &[&str]) {
        let options = ["--force-script-chrootless", "--force-depends", "--force-confold", "--log=/dev/null"];
        let root = format!("--root={}", self.0.path().display());
        // Neither the program nor its users belong to root outside a test that root runs.
        let is_root = succeed(Command::new("id").arg("-u")).trim() == "0";
        let mut command = if is_root { Command::new("dpkg") } else { Command::new("fakeroot") };
        if !is_root {
            command.args(["dpkg", "--force-not-root"]);
        }
        succeed(command.arg(root).args(options).args(arguments));
    }
}

#[test]
fn debian_package_installs_upgrades_and_purges_in_a_root_of_its_own() {
    let is_root = succeed(Command::new("id").arg("-u")).trim() == "0";
    let needed = if is_root { &["dpkg-deb", "dpkg", "useradd"][..] } else { &["dpkg-deb", "dpkg", "fakeroot"] };
    if let Some(missing) = needed.iter().find(|name| **name != "useradd" && !has_program(name)) {
        eprintln!("skipped: {missing} is not installed");
        return;
    }
    let (root, folder) = (DebianRoot::new(), TempDir::new().expect("a folder"));
    let program = stripped_program(folder.path());
    let script = repository().join("docker/package/deb.sh");
    let package =
        succeed(Command::new(script).arg(&program).arg(folder.path()).env("POSTHASTE_DEB_COMPRESSION", "none"));
    let package = package.trim();

    root.dpkg(&["--install", package]);

    assert_manual_and_completions(
        &root.path("usr/share"),
        [
            "bash-completion/completions/posthaste",
            "zsh/vendor-completions/_posthaste",
            "fish/vendor_completions.d/posthaste.fish",
        ],
    );
    let users = fs::read_to_string(root.path("etc/passwd")).expect("users");
    assert!(users.starts_with("posthaste:") && users.lines().count() == 1, "{users}");
    let unit = fs::read_to_string(root.path("usr/lib/systemd/system/posthaste.service")).expect("a unit");
    assert!(unit.contains("\nExecStart=/usr/bin/posthaste serve") && unit.contains("\nUser=posthaste\n"), "{unit}");
    assert!(unit.contains(" file:/usr/share/doc/posthaste/README.md\n"), "{unit}");
    assert_documents(&root.path("usr/share"));
    let (secret, configuration) = (root.path("etc/posthaste/hs256_secret"), root.path("etc/posthaste/posthaste.toml"));
    assert_eq!(fs::metadata(&secret).expect("a secret").permissions(), Permissions::from_mode(0o100_600));
    assert_service_starts(&root, &secret, &configuration);

    let (first_secret, changed) =
        (fs::read(&secret).expect("a secret"), "[log]\nformat = \"json\"\nlevel = \"warn\"\n");
    fs::write(&configuration, changed).expect("the administrator's change");
    root.dpkg(&["--install", package]);
    assert_eq!(fs::read_to_string(&configuration).expect("configuration"), changed, "an upgrade keeps changes");
    assert_eq!(fs::read(&secret).expect("a secret"), first_secret, "an upgrade keeps the secret");

    root.dpkg(&["--remove", "posthaste"]);
    assert!(!root.path("usr/bin/posthaste").exists() && configuration.exists() && secret.exists());
    root.dpkg(&["--purge", "posthaste"]);
    assert!(!configuration.exists() && !secret.exists());
}

/// The installed program accepts the installed configuration and secret.
fn assert_service_starts(root: &DebianRoot, secret: &Path, configuration: &Path) {
    let data = root.path("var/lib/posthaste");
    let mut check = Command::new(root.path("usr/bin/posthaste"));
    check
        .args(["config", "print", "--config"])
        .arg(configuration)
        .env("POSTHASTE__AUTH__HS256_SECRET_FILE", secret)
        .env("POSTHASTE__STORE__PATH", &data);
    let (code, stdout, stderr) = finish(&mut check);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("http.listen = \"0.0.0.0:8080\""), "{stdout}");
    let mut mint = Command::new(root.path("usr/bin/posthaste"));
    mint.args(["token", "mint"]).env("POSTHASTE__AUTH__HS256_SECRET_FILE", secret);
    assert!(succeed(&mut mint).starts_with("eyJ"));
}

#[test]
fn configuration_of_the_kubernetes_manifests_is_accepted() {
    let backend = Backend::new();
    let secrets = TempDir::new().expect("a folder");
    let secret = |name: &str, value: &str| {
        let file = secrets.path().join(name);
        fs::write(&file, value).expect("a file");
        file
    };
    let mut check = Command::new(env!("CARGO_BIN_EXE_posthaste"));
    check
        .args(["config", "print", "--config"])
        .arg(repository().join("docker/kubernetes/posthaste.toml"))
        .current_dir(backend.data_folder().parent().expect("a folder"))
        .env("POSTHASTE__AUTH__HS256_SECRET_FILE", secret("hs256_secret", &"s".repeat(32)))
        .env("POSTHASTE__STORE__URL_FILE", secret("store_url", "postgres://posthaste@postgres/posthaste"))
        .env("POSTHASTE__REDIS__URL_FILE", secret("redis_url", "redis://redis:6379"));

    let (code, stdout, stderr) = finish(&mut check);

    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("store.kind = \"postgres\"") && stdout.contains("broker.kind = \"kafka\""), "{stdout}");
}
