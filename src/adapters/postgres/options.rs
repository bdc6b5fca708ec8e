//! What the store may be told, with defaults that run. Every bound has its reason.
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ports::partitions::InstanceId;
use secrecy::SecretString;

/// How the store is opened.
#[derive(Clone)]
pub struct Options {
    /// `postgres://user:password@host:port/database?sslmode=…` or libpq's `key=value` form. Never logged, never part of an error.
    pub url: SecretString,
    /// The name of this service; a second living one of the same name is refused.
    pub instance: InstanceId,
    /// Where this service listens, told to whoever finds the name held. May be told later: [`crate::Postgres::announce`].
    pub address: String,
    /// Shares of keys. Fixed at installation: a key must not change its partition while its events wait.
    pub partitions: u32,
    /// Whether to bring the schema up to date while opening, instead of refusing.
    pub migrate: bool,
    /// A pooler in transaction mode (pgbouncer) stands before the server: nothing may rest on a session, so no LISTEN, no prepared
    /// statements and no session lock. The instance's heartbeat row is its lock then.
    pub pooler: bool,
    /// Whether instances wake each other with LISTEN and NOTIFY. Never behind a pooler.
    pub wakes: bool,
    /// Connections in all, one for the lock and one for LISTEN not counted. 16: the server's cores are busy with far fewer, and six
    /// instances still fit into the default of 100.
    pub pool: usize,
    /// Of these, connections that commit orders. 3: one waits for its fsync, one fills its group, one for a group that waits for a row
    /// lock; more make the groups smaller, not quicker.
    pub committers: usize,
    /// Of these, connections for leases and for the relay, kept apart so that a heavy list delays no renewal. 4: measured, more gain little.
    pub relays: usize,
    /// Commits that may wait; one more is refused at once. Some tenths of a second's work.
    pub queue: usize,
    /// Most commits in one transaction: beyond this a group only adds latency.
    pub group_max: usize,
    /// Most bytes of a group's events, so that one statement stays small beside the server's memory. One commit always goes.
    pub group_bytes_max: usize,
    /// Longest wait for a connection of the pool; then the call is refused.
    pub wait_within: Duration,
    /// Longest wait for a new connection.
    pub connect_within: Duration,
    /// Longest run of one statement; the server ends it then. Below the 10 s after which a client is answered anyway.
    pub statement_within: Duration,
    /// Longest wait for a row lock within a statement.
    pub lock_within: Duration,
    /// How long a connection may say nothing before the operating system asks whether it is there, and how long between questions.
    /// Two seconds and three questions: a cut wire is noticed in eight.
    pub keepalive: Duration,
    /// How long sent bytes may stay unacknowledged before the connection is given up.
    pub unacknowledged_within: Duration,
    /// A holder of the instance's name that has said nothing for so long is taken for dead, and ended by whoever needs the name.
    pub dead_after: Duration,
    /// How often the holder says that it lives.
    pub beat_every: Duration,
    /// How long an unanswered COMMIT is looked into before its outcome is told as unknown.
    pub find_out_within: Duration,
    /// Least time between two NOTIFYs of this instance: a notifying commit takes a lock of the whole server.
    pub wake_every: Duration,
    /// Days of the archive made ahead. A week survives a sweep that fails over a long weekend.
    pub days_ahead: u32,
    /// Threads that drive the connections, apart from the service's own, so that a burst of neither holds the other's answers up.
    pub threads: usize,
    /// Longest wait when closing.
    pub close_within: Duration,
    /// PEM file with the certificates that may sign the server's, for `sslmode=verify-full`. `sslrootcert` in the URL comes first; without
    /// either the system's bundle is used.
    pub root_certificates: Option<PathBuf>,
    /// Where durations of statements are told, by name.
    pub metrics: Option<Arc<telemetry::Metrics>>,
}

impl Options {
    /// The defaults, for a service of this name on this database.
    pub fn new(url: impl Into<SecretString>, instance: InstanceId) -> Self {
        let (ms, s) = (Duration::from_millis, Duration::from_secs);
        Self {
            url: url.into(),
            instance,
            address: String::new(),
            partitions: 64,
            migrate: false,
            pooler: false,
            wakes: true,
            pool: 16,
            committers: 3,
            relays: 4,
            queue: 8192,
            group_max: 256,
            group_bytes_max: 8 * 1024 * 1024,
            wait_within: s(2),
            connect_within: s(3),
            statement_within: s(8),
            lock_within: s(4),
            keepalive: s(2),
            unacknowledged_within: s(8),
            dead_after: s(15),
            beat_every: s(3),
            find_out_within: s(6),
            wake_every: ms(5),
            days_ahead: 7,
            threads: 2,
            close_within: s(10),
            root_certificates: None,
            metrics: None,
        }
    }

    /// Connections for everything that is neither a commit nor the relay's.
    pub(crate) fn others(&self) -> usize {
        self.pool.saturating_sub(self.committers.max(1) + self.relays.max(1)).max(2)
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("instance", &self.instance)
            .field("pooler", &self.pooler)
            .finish_non_exhaustive()
    }
}
