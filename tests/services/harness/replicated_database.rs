//! A PostgreSQL server of the test's own with an asynchronous standby. A fail-over kills the primary, promotes the standby, and makes a new
//! standby of it; clients keep one address.
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use kit::wait::until;

use crate::harness::database::query;
use crate::harness::proxy::Proxy;
use crate::harness::service_control::required_variable;

/// Longest until a server has started, follows another one, or was promoted.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Marks a folder of throwaway services: the scripts change no other folder.
const MARK: &str = ".posthaste-services";

/// The primary, its standby, and the address of whichever is the primary.
pub struct ReplicatedDatabase {
    primary: ReplicatedServer,
    standby: ReplicatedServer,
    /// The connection from the standby to the primary.
    replication: Proxy,
    clients: Proxy,
}

/// A server in a folder of its own. Dropped, it is stopped, and its folder is deleted.
struct ReplicatedServer {
    folder: PathBuf,
    port: String,
}

impl ReplicatedDatabase {
    /// A new cluster, and a standby that follows it.
    pub fn start() -> Self {
        let primary = ReplicatedServer::create(None);
        let (standby, replication) = ReplicatedServer::follow(&primary);
        let clients = Proxy::to(&primary.address());
        Self { primary, standby, replication, clients }
    }

    /// The database's address for services: the present primary.
    pub fn url(&self) -> String {
        format!("postgres://posthaste@{}/postgres", self.clients.address())
    }

    /// Rows of a statement on the primary, each column as text.
    pub fn rows(&self, statement: &str) -> Vec<Vec<String>> {
        until(statement, TIMEOUT, || query(&self.primary.url(), statement).ok())
    }

    /// Holds back what the standby receives: it falls behind.
    pub fn stall_replication(&self) {
        self.replication.stall();
    }

    /// Sends SIGKILL to the primary and promotes the standby. Services reach no server until [`ReplicatedDatabase::admit_services`].
    pub fn fail_over(self) -> Self {
        self.primary.run("kill");
        // Data that was held back must not reach the standby after all.
        self.replication.cut();
        let promoted = self.standby;
        until("the standby is promoted", TIMEOUT, || {
            let done = query(&promoted.url(), "SELECT pg_promote(true, 30)").ok()?;
            (done == [["t"]]).then_some(())
        });
        let (standby, replication) = ReplicatedServer::follow(&promoted);
        Self { primary: promoted, standby, replication, clients: self.clients }
    }

    /// Connects the services with the present primary.
    pub fn admit_services(&self) {
        self.clients.redirect(&self.primary.address());
        self.clients.cut();
    }
}

impl ReplicatedServer {
    /// A new cluster, or a standby of the server on this port.
    fn create(primary_port: Option<&str>) -> Self {
        let name = format!("replicated-{:08x}", rand::random::<u32>());
        let folder = Path::new(&required_variable("POSTHASTE_TEST_SERVICES")).join(name);
        std::fs::create_dir(&folder).expect("the folder of the services is writable");
        std::fs::write(folder.join(MARK), "").expect("the mark is written");
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

    /// A standby of this server that has received everything so far, and the proxy through which it receives.
    fn follow(&self) -> (ReplicatedServer, Proxy) {
        let replication = Proxy::to(&self.address());
        let (_, port) = replication
            .address()
            .rsplit_once(':')
            .map(|(host, port)| (host.to_owned(), port.to_owned()))
            .expect("host and port");
        let standby = ReplicatedServer::create(Some(&port));
        until("the standby follows", TIMEOUT, || {
            let states = query(&self.url(), "SELECT state FROM pg_stat_replication").ok()?;
            (states == [["streaming"]]).then_some(())
        });
        (standby, replication)
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn url(&self) -> String {
        format!("postgres://posthaste@{}/postgres", self.address())
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

impl Drop for ReplicatedServer {
    fn drop(&mut self) {
        // What remains is deleted together with the folder of all services.
        let _ = self.script("down.sh").arg(&self.folder).status();
    }
}
