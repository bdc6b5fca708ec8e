//! `posthaste chaos` that is killed: the services that it started end with it.
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use kit::wait::until;

use crate::harness::backend::Backend;
use crate::harness::process::command;

/// Start of the command and of its service on a busy machine.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// The services among the child processes of a process.
fn services_of(pid: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").expect("the system lists its processes").map_while(Result::ok);
    let pids = processes.filter_map(|process| process.file_name().to_str()?.parse().ok());
    pids.filter(|child| parent_of(*child) == Some(pid) && arguments(*child).iter().any(|text| text == "serve"))
        .collect()
}

/// The parent of a process; none once it has ended.
fn parent_of(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

/// The arguments of a process; none once it has ended.
fn arguments(pid: u32) -> Vec<String> {
    let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split_terminator('\0').map(str::to_owned).collect()
}

/// Whether a process runs. One that has ended may stay in the table of processes until its new parent has read its exit status.
fn is_running(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists() && !arguments(pid).is_empty()
}

#[test]
fn services_of_a_killed_chaos_run_end_with_it() {
    let (backend, folder) = (Backend::new(), tempfile::tempdir().expect("a folder"));
    let mut chaos = command(&backend, &["chaos", "--time", "1h", "--interval", "1h"]);
    // The data of the run stay behind when it is killed.
    chaos.env("TMPDIR", folder.path()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut chaos = chaos.spawn().expect("the program runs");
    let service = until("a service runs", WAIT_MAX, || services_of(chaos.id()).pop());

    chaos.kill().expect("it runs");
    chaos.wait().expect("it has ended");

    until("the service has ended", WAIT_MAX, || (!is_running(service)).then_some(()));
}
