//! The lock of the data folder. The operating system releases it when its process ends, so a stale lock file blocks nothing.
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::connection::open_error::OpenError;
use crate::options::Options;

/// A held lock; dropping it releases the folder.
#[derive(Debug)]
pub(crate) struct FolderLock {
    file: File,
    instance: String,
    folder: PathBuf,
}

impl FolderLock {
    /// Locks the folder without waiting.
    ///
    /// # Errors
    /// [`OpenError::Held`] names the holder.
    pub(crate) fn acquire(options: &Options) -> Result<Self, OpenError> {
        let path = options.folder.join("posthaste.lock");
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let file = opened.map_err(|error| OpenError::from_io(&path, &error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(held_error(&path, &options.folder)),
            Err(TryLockError::Error(error)) => return Err(OpenError::from_io(&path, &error)),
        }
        let folder = options.folder.canonicalize().unwrap_or_else(|_| options.folder.clone());
        let mut lock = Self { file, instance: options.instance.to_string(), folder };
        lock.write_holder(&options.address).map_err(|error| OpenError::from_io(&path, &error))?;
        Ok(lock)
    }

    /// Writes this process as the holder into the lock file.
    pub(crate) fn write_holder(&mut self, address: &str) -> std::io::Result<()> {
        let (pid, folder) = (std::process::id(), self.folder.display());
        let text = format!("instance={}\npid={pid}\nfolder={folder}\naddress={address}\n", self.instance);
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(text.as_bytes())
    }
}

/// The error that names the holder. A holder writes its name right after it locks, so an empty file is read again.
fn held_error(path: &Path, folder: &Path) -> OpenError {
    let mut text = String::new();
    for _ in 0..5 {
        text.clear();
        // A holder that cannot be read is reported as unknown; the refusal does not depend on it.
        let _ = File::open(path).and_then(|mut file| file.read_to_string(&mut text));
        if text.contains("address=") {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        line.filter(|value| !value.is_empty()).unwrap_or("unknown").to_string()
    };
    let folder = match field("folder") {
        known if known != "unknown" => PathBuf::from(known),
        _ => folder.to_path_buf(),
    };
    OpenError::Held { instance: field("instance"), pid: field("pid"), folder, address: field("address") }
}
