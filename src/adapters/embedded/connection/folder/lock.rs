//! The lock of the data folder. The operating system releases it when its process ends, so a stale lock file blocks nothing.
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::connection::folder::lock_holder::lock_holder;
use crate::connection::open_error::OpenError;
use crate::connection::settings::FILE;
use crate::options::Options;

/// Name of the lock file in the data folder.
const LOCK_FILE: &str = "posthaste.lock";

/// Bytes of a lock file that are read: more than this program writes.
const TEXT_BYTES_MAX: u64 = 64 * 1024;

/// A held lock; dropping it releases the folder.
#[derive(Debug)]
pub(crate) struct FolderLock {
    file: File,
    /// The locked folders themselves, this one first: a lock file can be deleted. `None` where a folder cannot be locked.
    folders: Vec<Option<File>>,
    instance: String,
    folder: PathBuf,
    address: String,
    installation: Option<String>,
}

impl FolderLock {
    /// Locks the folder without waiting.
    ///
    /// # Errors
    /// [`OpenError::Held`] or [`OpenError::Locked`] where another process holds the folder, with that process as far as it is known. An error of the
    /// operating system where the lock file cannot be written.
    pub(crate) fn acquire(options: &Options) -> Result<Self, OpenError> {
        let path = options.folder.join(LOCK_FILE);
        let folders =
            locked_folders(&options.folder).iter().map(|folder| lock_folder(folder)).collect::<Result<Vec<_>, _>>()?;
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let file = opened.map_err(|error| OpenError::from_io(&path, &error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(held_error(&path, &options.folder)),
            Err(TryLockError::Error(error)) => return Err(OpenError::from_io(&path, &error)),
        }
        let io_error = |error: std::io::Error| OpenError::from_io(&path, &error);
        let installation = read_field(&text_of(&file).map_err(io_error)?, "installation");
        let folder = options.folder.canonicalize().unwrap_or_else(|_| options.folder.clone());
        let (instance, address) = (options.instance.to_string(), options.address.clone());
        let mut lock = Self { file, folders, instance, folder, address, installation };
        lock.write().map_err(io_error)?;
        Ok(lock)
    }

    /// The lock file, if the lock depends on it: where the folder itself is locked, a deleted file releases nothing.
    pub(crate) fn needed_file(&self) -> Option<PathBuf> {
        let is_folder_locked = matches!(self.folders.first(), Some(Some(_)));
        (!is_folder_locked).then(|| self.folder.join(LOCK_FILE))
    }

    /// The installation that a service recorded in this folder: its data is there, or was lost.
    pub(crate) fn installation(&self) -> Option<&str> {
        self.installation.as_deref()
    }

    /// Records the installation of the folder's data, so that a later opening recognises lost data.
    pub(crate) fn record_installation(&mut self, installation: &str) -> std::io::Result<()> {
        self.installation = Some(installation.to_owned());
        self.write()
    }

    /// Writes this process as the holder into the lock file.
    pub(crate) fn write_holder(&mut self, address: &str) -> std::io::Result<()> {
        self.address = address.to_owned();
        self.write()
    }

    /// Overwrites the text and then cuts the rest of a longer one: a process that is killed meanwhile loses no line of the new text, and a full disk
    /// none of the former. Readers take the first line of a name.
    fn write(&mut self) -> std::io::Result<()> {
        let installation = self.installation.as_ref().map(|name| format!("installation={name}\n")).unwrap_or_default();
        let (pid, folder) = (std::process::id(), self.folder.display());
        let holder = format!("instance={}\npid={pid}\nfolder={folder}\naddress={}\n", self.instance, self.address);
        let text = installation + &holder;
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(text.as_bytes())?;
        self.file.set_len(text.len() as u64)
    }
}

/// The installation that a service recorded in a folder.
///
/// # Errors
/// [`OpenError::Io`] or [`OpenError::NotReadable`]: the lock file cannot be read.
pub(crate) fn recorded_installation(folder: &Path) -> Result<Option<String>, OpenError> {
    let path = folder.join(LOCK_FILE);
    match File::open(&path).and_then(|file| text_of(&file)) {
        Ok(text) => Ok(read_field(&text, "installation")),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(OpenError::from_read(&path, &error)),
    }
}

fn text_of(file: &File) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    file.take(TEXT_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The value of a line `name=value`, unless it is empty.
fn read_field(text: &str, name: &str) -> Option<String> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    value.filter(|value| !value.is_empty()).map(str::to_owned)
}

/// The folders that a service locks: its own, and the one of the service with the same database if its own has only a link to it.
fn locked_folders(folder: &Path) -> Vec<PathBuf> {
    let own = folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf());
    let database = own.join(FILE).canonicalize().ok().filter(|target| target.file_name() == Some(FILE.as_ref()));
    let linked = database.and_then(|target| target.parent().map(Path::to_path_buf)).filter(|linked| *linked != own);
    [own].into_iter().chain(linked).collect()
}

/// Locks a folder itself. `None` where that is not possible: Windows opens no folder as a file, and NFS locks only what is open for writing.
fn lock_folder(folder: &Path) -> Result<Option<File>, OpenError> {
    let Ok(opened) = File::open(folder) else { return Ok(None) };
    match opened.try_lock() {
        Ok(()) => Ok(Some(opened)),
        Err(TryLockError::WouldBlock) => {
            let path = folder.join(LOCK_FILE);
            if may_be_locked(&path) {
                return Err(held_error(&path, folder));
            }
            Err(OpenError::Locked { folder: folder.to_path_buf(), holder: lock_holder(folder) })
        }
        Err(TryLockError::Error(_)) => Ok(None),
    }
}

/// Whether a process may have locked a file. `false` where it is missing, or its lock is free.
fn may_be_locked(path: &Path) -> bool {
    match File::open(path) {
        Ok(file) => file.try_lock().is_err(),
        Err(error) => error.kind() != ErrorKind::NotFound,
    }
}

/// The error that names the holder. A holder writes its name right after it locks, so an empty file is read again.
fn held_error(path: &Path, folder: &Path) -> OpenError {
    let mut text = String::new();
    for _ in 0..5 {
        // A holder that cannot be read is reported as unknown; the refusal does not depend on it.
        text = File::open(path).and_then(|file| text_of(&file)).unwrap_or_default();
        if text.contains("address=") {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let field = |name: &str| read_field(&text, name).unwrap_or_else(|| "unknown".into());
    let folder = read_field(&text, "folder").map_or_else(|| folder.to_path_buf(), PathBuf::from);
    OpenError::Held { instance: field("instance"), pid: field("pid"), folder, address: field("address") }
}
