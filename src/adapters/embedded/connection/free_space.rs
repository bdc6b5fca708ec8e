//! Writes a file into the folder of the store and removes it: whether the file system has space and inodes left, which SQLite does not report.
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::Path;

/// Creates a file of this size in the folder, syncs it, and removes it.
pub(crate) fn write_test_file(folder: &Path, bytes: usize) -> std::io::Result<()> {
    let path = folder.join("posthaste.room");
    let written = File::create(&path).and_then(|mut file| {
        file.write_all(&vec![0; bytes])?;
        file.sync_all()
    });
    // A file that could not be removed is overwritten by the next one.
    let _ = std::fs::remove_file(&path);
    written
}

/// Whether the file system has no space or inodes left, or the quota is used up.
pub(crate) fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}
