//! A PostgreSQL server of the test's own, which the test may kill and start again.
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::harness::service_control::required_variable;

/// Marks a folder of throwaway services: the scripts change no other folder.
const MARKER_FILE: &str = ".posthaste-services";

/// A server in a folder of its own. Dropped, it is stopped, and its folder is deleted.
pub struct DatabaseServer {
    folder: PathBuf,
    port: String,
}

impl DatabaseServer {
    /// A new cluster, or a standby of the server on this port.
    pub fn create(primary_port: Option<&str>) -> Self {
        let name = format!("database-{:08x}", rand::random::<u32>());
        let folder = Path::new(&required_variable("POSTHASTE_TEST_SERVICES")).join(name);
        std::fs::create_dir(&folder).expect("the folder of the services is writable");
        std::fs::write(folder.join(MARKER_FILE), "").expect("the marker file is written");
        let mut server = Self { folder, port: String::new() };
        let mut command = server.script("service.sh");
        command
            .args(["create", "postgres"])
            .arg(&server.folder)
            .envs(primary_port.map(|port| ("POSTHASTE_STANDBY_OF", port)));
        assert!(command.status().expect("the script runs").success(), "a PostgreSQL server did not start");
        let port = std::fs::read_to_string(server.folder.join("postgres/port")).expect("it has a port");
        server.port = port.trim().to_owned();
        server
    }

    /// The host and port on which it listens.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The address of its database.
    pub fn url(&self) -> String {
        format!("postgres://posthaste@{}/postgres", self.address())
    }

    /// Sends SIGKILL to the server and its processes: what is not on disk is lost.
    pub fn kill(&self) {
        self.run("kill");
    }

    /// Starts the server again on its data, and returns when it responds.
    pub fn start(&self) {
        self.run("start");
    }

    fn run(&self, verb: &str) {
        let status = self.script("service.sh").args([verb, "postgres"]).arg(&self.folder).status();
        assert!(status.expect("the script runs").success(), "{verb} of a PostgreSQL server");
    }

    fn script(&self, name: &str) -> Command {
        let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/services").join(name));
        command.stdout(Stdio::null());
        command
    }
}

impl Drop for DatabaseServer {
    fn drop(&mut self) {
        // Files that remain are deleted together with the folder of all services.
        let _ = self.script("down.sh").arg(&self.folder).status();
    }
}
