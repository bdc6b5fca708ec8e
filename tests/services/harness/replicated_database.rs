//! A PostgreSQL server of the test's own with an asynchronous standby. A fail-over kills the primary, promotes the standby, and makes a new
//! standby of it; clients keep one address.
use std::time::Duration;

use kit::wait::until;

use crate::harness::database::query;
use crate::harness::database_server::DatabaseServer;
use crate::harness::proxy::Proxy;

/// Longest until a server follows another one, or was promoted.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The primary, its standby, and the address of whichever is the primary.
pub struct ReplicatedDatabase {
    primary: DatabaseServer,
    standby: DatabaseServer,
    /// The connection from the standby to the primary.
    replication: Proxy,
    clients: Proxy,
}

impl ReplicatedDatabase {
    /// A new cluster, and a standby that follows it.
    pub fn start() -> Self {
        let primary = DatabaseServer::create(None);
        let (standby, replication) = follow(&primary);
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
        self.primary.kill();
        // Data that was held back must not reach the standby after all.
        self.replication.cut();
        let promoted = self.standby;
        until("the standby is promoted", TIMEOUT, || {
            // A promotion may last longer than its call waits, and a second call fails.
            drop(query(&promoted.url(), "SELECT pg_promote(true, 30)"));
            let in_recovery = query(&promoted.url(), "SELECT pg_is_in_recovery()").ok()?;
            (in_recovery == [["f"]]).then_some(())
        });
        let (standby, replication) = follow(&promoted);
        Self { primary: promoted, standby, replication, clients: self.clients }
    }

    /// Connects the services with the present primary.
    pub fn admit_services(&self) {
        self.clients.redirect(&self.primary.address());
        self.clients.cut();
    }
}

/// A standby of this server that has received everything so far, and the proxy through which it receives.
fn follow(primary: &DatabaseServer) -> (DatabaseServer, Proxy) {
    let replication = Proxy::to(&primary.address());
    let (_, port) = replication
        .address()
        .rsplit_once(':')
        .map(|(host, port)| (host.to_owned(), port.to_owned()))
        .expect("host and port");
    let standby = DatabaseServer::create(Some(&port));
    until("the standby follows", TIMEOUT, || {
        let states = query(&primary.url(), "SELECT state FROM pg_stat_replication").ok()?;
        (states == [["streaming"]]).then_some(())
    });
    (standby, replication)
}
