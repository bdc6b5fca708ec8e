//! Ends the service together with the program that started it. A program that is killed cannot end its children itself.
use crate::cli::failure::Failure;

/// Makes the kernel kill this process when the process `parent` ends, however it ends. Call it on the main thread. Only Linux can do it, and it
/// watches the thread that started this process: the parent starts services on its main thread.
///
/// # Errors
/// The parent has ended already, or the kernel refuses.
#[cfg(target_os = "linux")]
pub(super) fn end_with_parent(parent: u32) -> Result<(), Failure> {
    use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

    set_parent_process_death_signal(Some(Signal::KILL)).map_err(Failure::new)?;
    // The signal is sent for a parent that ends from now on.
    let present = getppid().map(Pid::as_raw_pid);
    if present.and_then(|pid| u32::try_from(pid).ok()) == Some(parent) {
        return Ok(());
    }
    Err(Failure::new(format!("the process {parent}, which started this service, has ended")))
}

/// Does nothing: this system sends no signal when a parent ends.
#[cfg(not(target_os = "linux"))]
pub(super) fn end_with_parent(_parent: u32) -> Result<(), Failure> {
    Ok(())
}
