//! Requirements of `cargo package`: each crate has a description, and contains every file that it is built from.
use std::path::{Component, Path, PathBuf};

use crate::source::{files, read, root, sources};

/// Manifests of the crates that a service of others may depend on.
fn published() -> Vec<(PathBuf, toml::Table)> {
    let mut manifests = Vec::new();
    files(&root(), "Cargo.toml", &mut manifests);
    let tables = manifests.into_iter().map(|path| {
        let table: toml::Table = read(&path).parse().expect("TOML");
        (path, table)
    });
    tables.filter(|(_, table)| table["package"].get("publish").and_then(toml::Value::as_bool) != Some(false)).collect()
}

#[test]
fn published_crates_say_what_they_are() {
    let published = published();
    assert!(published.len() >= 15, "{published:?}");
    for (path, table) in published {
        for key in ["description", "documentation", "keywords", "license", "rust-version"] {
            assert!(table["package"].get(key).is_some(), "{} has no {key}", path.display());
        }
    }
}

/// The path without its `..` steps, which it takes as text: through a symbolic link they lead elsewhere.
fn plain(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut plain, component| {
        match component {
            Component::ParentDir => drop(plain.pop()),
            component => plain.push(component),
        }
        plain
    })
}

#[test]
fn crates_are_built_from_files_of_their_own_folder() {
    let mut included = 0;
    for (path, text) in sources().into_iter().filter(|(path, _)| !path.contains("tests/")) {
        let file = root().join(&path);
        let is_crate = |folder: &&Path| folder.join("Cargo.toml").is_file();
        let own = file.ancestors().skip(1).find(is_crate).expect("a crate");
        for argument in text.split(concat!("include_", "str!(\"")).skip(1).filter_map(|rest| rest.split('"').next()) {
            let target = plain(&file.parent().expect("a folder").join(argument));
            assert!(target.starts_with(own), "{path} includes {argument}, which is not in the package of its crate");
            included += 1;
        }
    }
    assert!(included > 10, "{included}");
}
