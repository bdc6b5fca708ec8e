//! Whether the files of an open store are still at their paths. SQLite writes through open descriptors, also to a file that was deleted or moved: its
//! commits succeed, and are lost when the process ends.
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The files that were at some paths when the store was opened. Systems without inode numbers know none.
#[derive(Default)]
pub(crate) struct DataFiles(Vec<(PathBuf, FileIdentity)>);

/// The device and the inode of a file. Both stay its own while the file is open, even if it is deleted.
#[derive(PartialEq, Eq)]
struct FileIdentity {
    device: u64,
    inode: u64,
}

impl DataFiles {
    /// The files at these paths; those that do not exist are left out.
    pub(crate) fn new(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        let paths = paths.into_iter().map(|path| std::path::absolute(&path).unwrap_or(path));
        Self(paths.filter_map(|path| identity(&path).ok().flatten().map(|identity| (path, identity))).collect())
    }

    /// The first path at which its file is no longer. A path that cannot be examined for another reason counts as unchanged.
    pub(crate) fn first_moved(&self) -> Option<&Path> {
        let is_moved = |(path, opened): &&(PathBuf, FileIdentity)| match identity(path) {
            Ok(found) => found.as_ref() != Some(opened),
            Err(error) => matches!(
                error.kind(),
                ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::StaleNetworkFileHandle
            ),
        };
        self.0.iter().find(is_moved).map(|(path, _)| path.as_path())
    }
}

#[cfg(unix)]
fn identity(path: &Path) -> std::io::Result<Option<FileIdentity>> {
    use std::os::unix::fs::MetadataExt;
    let file = path.metadata()?;
    Ok(Some(FileIdentity { device: file.dev(), inode: file.ino() }))
}

#[cfg(not(unix))]
fn identity(_path: &Path) -> std::io::Result<Option<FileIdentity>> {
    Ok(None)
}
