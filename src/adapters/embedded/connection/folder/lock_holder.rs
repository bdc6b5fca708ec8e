//! Which process has locked a folder. Linux lists the locks of all processes.
use std::path::Path;

/// The process that has locked a folder itself, with its name: `process 4711 (flock)`.
pub(crate) fn lock_holder(folder: &Path) -> String {
    let Some(pid) = locking_process(folder) else { return "another process".into() };
    match std::fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(name) => format!("process {pid} ({})", name.trim_end()),
        Err(_) => format!("process {pid}"),
    }
}

#[cfg(target_os = "linux")]
fn locking_process(folder: &Path) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    process_in(&std::fs::read_to_string("/proc/locks").ok()?, folder.metadata().ok()?.ino())
}

#[cfg(not(target_os = "linux"))]
fn locking_process(_: &Path) -> Option<u32> {
    None
}

/// The process that holds a lock of this inode; `None` where several do, which may be on other file systems. Lines of waiting processes have an
/// arrow before the kind of the lock.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
fn process_in(locks: &str, inode: u64) -> Option<u32> {
    let holder = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (&[_, "FLOCK", _, _, pid, file], _) = fields.split_first_chunk()? else { return None };
        let is_inode = file.rsplit(':').next() == Some(inode.to_string().as_str());
        pid.parse::<u32>().ok().filter(|_| is_inode)
    };
    let mut holders = locks.lines().filter_map(holder);
    let first = holders.next()?;
    holders.all(|pid| pid == first).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_that_holds_the_lock_of_an_inode_is_found() {
        let locks = "1: POSIX  ADVISORY  WRITE 7 08:02:131 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 4711 08:02:131 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 12 08:02:131 0 EOF\n\
                     3: FLOCK  ADVISORY  READ 5 08:02:132 0 EOF\n\
                     4: FLOCK  ADVISORY  READ 6 08:02:132 0 EOF\n";

        assert_eq!([131, 132, 31].map(|inode| process_in(locks, inode)), [Some(4711), None, None]);
    }
}
