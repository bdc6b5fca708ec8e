//! Files of the repository: found once, read as text, parsed on demand.
use std::path::{Path, PathBuf};

/// A parsed Rust file.
pub(crate) struct SourceFile {
    /// Path from the workspace's root, with slashes.
    pub(crate) path: String,
    /// The file as it stands on disk, for checks of lines and comments.
    pub(crate) text: String,
    /// The syntax tree of `text`; the spans hold line numbers.
    pub(crate) tree: syn::File,
}

impl SourceFile {
    /// Parses one file. Panics with the path when it is not valid Rust.
    pub(crate) fn parse(path: &str, text: &str) -> Self {
        let tree = syn::parse_file(text).unwrap_or_else(|error| panic!("{path}: {error}"));
        Self { path: path.to_owned(), text: text.to_owned(), tree }
    }

    /// Whether the file belongs to tests, benches or the test kit and is not shipped.
    pub(crate) fn is_test(&self) -> bool {
        self.path.starts_with("tests/") || self.path.contains("/tests/") || self.path.contains("benches/")
    }
}

/// The workspace's root folder.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// A whole text file. Panics with its path when it cannot be read.
pub(crate) fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Collects files below a folder whose names end with `ending`, except hidden folders, build output and runtime data.
pub(crate) fn files(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("a folder entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("a UTF-8 name").to_owned();
        if path.is_dir() {
            if !name.starts_with('.') && !name.starts_with("target") && name != "data" {
                files(&path, ending, found);
            }
        } else if name.ends_with(ending) {
            found.push(path);
        }
    }
}

/// Path from the root and text of every file with this ending, in path order.
pub(crate) fn texts(ending: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    files(&root(), ending, &mut found);
    found.sort();
    let relative = |path: &PathBuf| path.strip_prefix(root()).expect("below the root").display().to_string();
    found.iter().map(|path| (relative(path), read(path))).collect()
}

/// Path and text of every Rust file of the workspace.
pub(crate) fn sources() -> Vec<(String, String)> {
    texts(".rs")
}

/// Every Rust file of the workspace, parsed.
pub(crate) fn parsed() -> Vec<SourceFile> {
    sources().iter().map(|(path, text)| SourceFile::parse(path, text)).collect()
}

/// Shipped sources: path and text up to the inline tests, without comment lines.
pub(crate) fn production_code() -> Vec<(String, String)> {
    let shipped = |path: &str| (path.starts_with("src/") || path.starts_with("actors/")) && !path.contains("/tests/");
    let code = |text: String| {
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
    };
    sources().into_iter().filter(|(path, _)| shipped(path)).map(|(path, text)| (path, code(text))).collect()
}

/// Paths of all files of the repository, from the root.
pub(crate) fn paths() -> Vec<String> {
    let mut found = Vec::new();
    files(&root(), "", &mut found);
    found.iter().map(|path| path.strip_prefix(root()).expect("below the root").display().to_string()).collect()
}

/// Whether an item is compiled for tests only: `#[cfg(test)]`, or `test` and further conditions.
pub(crate) fn is_test_only(attributes: &[syn::Attribute]) -> bool {
    let is_test = |meta: &syn::MetaList| {
        let condition = meta.tokens.to_string().replace(' ', "");
        meta.path.is_ident("cfg") && (condition == "test" || condition.starts_with("all(test,"))
    };
    attributes.iter().any(|attribute| attribute.meta.require_list().is_ok_and(is_test))
}
