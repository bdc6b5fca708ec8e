//! The options of the store, with defaults that run. Each limit states its reason.
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ports::partitions::InstanceId;
use secrecy::SecretString;

use crate::connection::session::CommitWait;

/// Fewest connections for everything but commits, events and the relay.
const SERVICE_CONNECTIONS_MIN: usize = 2;

/// Options with which [`crate::Postgres::open`] opens the store.
#[derive(Clone)]
pub struct Options {
    /// `postgres://user:password@host:port/database?sslmode=…` or libpq's `key=value` form. Never logged, never part of an error.
    pub url: SecretString,
    /// The id of this service instance; a second live process with the same id is refused.
    pub instance: InstanceId,
    /// The address that this service listens on, shown to a process that finds the instance id held. [`crate::Postgres::announce`] changes it
    /// later.
    pub address: String,
    /// Number of partitions. Fixed at installation: a key must not change its partition while events of it are unsent.
    pub partitions: u32,
    /// Topics that only the service writes, to which `posthaste.publish` refuses events. A service stores them when it opens the store.
    pub internal_topics: Vec<String>,
    /// Whether opening applies missing migrations instead of refusing.
    pub migrate: bool,
    /// Whether a pooler in transaction mode (pgbouncer) is between client and server. Then no state is kept in a session: no LISTEN, no
    /// prepared statements and no session lock; the row in `instance` with its heartbeat is the lock.
    pub pooler: bool,
    /// Whether instances wake each other with LISTEN and NOTIFY. Never behind a pooler.
    pub notify: bool,
    /// Connections in all, without the one for the lock and the one for LISTEN. 16: the server's cores are busy with far fewer, and six
    /// instances still fit into the default of 100.
    pub pool: usize,
    /// Connections of the pool that commit orders. 3: one waits for its fsync, one fills its group, one is for a group that waits for a
    /// lock; more make the groups smaller, not faster.
    pub committers: usize,
    /// Connections of the pool that publish events of other services. Kept apart, because each may wait for a key that another transaction
    /// publishes events of. 2: one waits for its fsync while the other writes. A pool that is too small for them has none.
    pub event_connections: usize,
    /// Connections of the pool for leases and the relay, kept apart so that a slow list delays no renewal. 4: more gained little when
    /// measured.
    pub relay_connections: usize,
    /// Rounds of the relay that run at the same time: a round is one transaction for the claims and settlements of its partitions. 1: a second one
    /// only makes both smaller (measured).
    pub relay_rounds: usize,
    /// Most claims and settlements in one round. 128: above it the server spends far more on the rows than on the statement and the commit.
    pub relay_group_max: usize,
    /// Most rows that the claims of a round take together, in equal shares. 4,096: large batches cost less by themselves, because several
    /// connections work on them. A partition with more due rows than its share claims the rest by itself.
    pub relay_group_rows_max: u32,
    /// Most bytes of payload that the claims of a round take together, in equal shares; one row is always taken.
    pub relay_group_bytes_max: usize,
    /// Longest wait of a round of several requests for a locked row. Then each is repeated by itself, so that a lease row that stays locked
    /// delays the other partitions only by this time.
    pub relay_lock_timeout: Duration,
    /// Whether a settlement waits until it is on disk. It need not where the broker's watermark shows which batches are published: a
    /// settlement that a crash of the server undoes leaves its batch open, and the watermark settles it again. Without watermarks (delivery
    /// at least once) the batch would be sent again.
    pub flush_settlements: bool,
    /// Most commits, and most claims and settlements, that wait; one more is refused at once. 8,192 are some tenths of a second of work.
    pub queue_max: usize,
    /// Most idempotency keys whose release failed and is repeated. Beyond it the oldest is dropped, whose lock expires first. 1,024 are enough:
    /// once an outage lasts, creates cannot lock keys that would need a release.
    pub deferred_releases_max: usize,
    /// Most commits in one transaction: beyond 256 a group only adds latency.
    pub group_max: usize,
    /// Most time between the starts of two groups of commits, which are four times as far apart as the last group took. 5 ms bounds what a
    /// create waits for others.
    pub group_spacing_max: Duration,
    /// Most bytes of a group's events, so that one statement stays small compared with the server's memory. One commit is always taken.
    pub group_bytes_max: usize,
    /// Longest wait for a connection of the pool; then the call is refused.
    pub checkout_timeout: Duration,
    /// Longest wait for a new connection to one address of the host.
    pub connect_timeout: Duration,
    /// Longest run of one statement, after which the server cancels it. Below the 10 s after which an HTTP request is answered anyway.
    pub statement_timeout: Duration,
    /// Longest wait for a row lock within a statement.
    pub lock_timeout: Duration,
    /// Idle time of a connection before the operating system probes it, and the time between probes. With 2 s and three probes a cut
    /// network is detected in 8 s.
    pub keepalive: Duration,
    /// Longest time that sent bytes stay unacknowledged before the connection is closed.
    pub unacknowledged_timeout: Duration,
    /// Age of the heartbeat after which the holder of the instance id counts as dead, and is ended by a process that needs the id.
    pub dead_after: Duration,
    /// Time between two heartbeats of the holder of the instance id.
    pub heartbeat_interval: Duration,
    /// Longest time to determine whether a COMMIT without a reply took effect; then its outcome is returned as unknown.
    pub resolve_timeout: Duration,
    /// Least time between two NOTIFYs of this instance: a notifying commit takes a lock of the whole server.
    pub notify_interval: Duration,
    /// Daily partitions of the archive created ahead. 7 survive a sweep that fails over a long weekend.
    pub days_ahead: u32,
    /// Size of a day's archive in bytes from which its events are estimated before it is dropped, if it was ever analysed. 1 GiB is counted in
    /// seconds.
    pub archive_counted_bytes_max: u64,
    /// Threads that drive the connections, apart from the service's own, so that a burst on either side does not delay the other.
    pub threads: usize,
    /// Longest time in which adopting a table, and releasing it, tries again while transactions use the table. 60 s: longer transactions are
    /// forgotten ones, or the operator chooses another time.
    pub adopt_timeout: Duration,
    /// Longest wait for pending commits when the store closes.
    pub close_timeout: Duration,
    /// PEM file with the certificates that may sign the server's, for `sslmode=verify-full`. `sslrootcert` in the URL has precedence;
    /// without either the system's bundle is used.
    pub root_certificates: Option<PathBuf>,
    /// Receives the duration of each statement, by name.
    pub metrics: Option<Arc<telemetry::Metrics>>,
}

impl Options {
    /// The defaults, for a service with this instance id on this database.
    pub fn new(url: impl Into<SecretString>, instance: InstanceId) -> Self {
        let (ms, s) = (Duration::from_millis, Duration::from_secs);
        Self {
            url: url.into(),
            instance,
            address: String::new(),
            partitions: 64,
            internal_topics: Vec::new(),
            migrate: false,
            pooler: false,
            notify: true,
            pool: 16,
            committers: 3,
            event_connections: 2,
            relay_connections: 4,
            relay_rounds: 1,
            relay_group_max: 128,
            relay_group_rows_max: 4_096,
            relay_group_bytes_max: 64 * 1024 * 1024,
            relay_lock_timeout: ms(200),
            flush_settlements: true,
            queue_max: 8192,
            deferred_releases_max: 1024,
            group_max: 256,
            group_spacing_max: ms(5),
            group_bytes_max: 8 * 1024 * 1024,
            checkout_timeout: s(2),
            connect_timeout: s(3),
            statement_timeout: s(8),
            lock_timeout: s(4),
            keepalive: s(2),
            unacknowledged_timeout: s(8),
            dead_after: s(15),
            heartbeat_interval: s(3),
            resolve_timeout: s(6),
            notify_interval: ms(5),
            days_ahead: 7,
            archive_counted_bytes_max: 1 << 30,
            threads: 2,
            adopt_timeout: s(60),
            close_timeout: s(10),
            root_certificates: None,
            metrics: None,
        }
    }

    /// What the COMMIT of a settlement waits for.
    pub(crate) fn settle_commit(&self) -> CommitWait {
        if self.flush_settlements { CommitWait::Flush } else { CommitWait::None }
    }

    /// Connections for events of other services alone; `None` where the pool is too small, and commits and events share theirs.
    pub(crate) fn own_event_connections(&self) -> Option<usize> {
        let own = self.event_connections.max(1);
        (self.shared_connections() >= own + SERVICE_CONNECTIONS_MIN).then_some(own)
    }

    /// Connections of the pool for neither commits, events nor the relay; at least two.
    pub(crate) fn service_connections(&self) -> usize {
        self.shared_connections().saturating_sub(self.own_event_connections().unwrap_or(0)).max(SERVICE_CONNECTIONS_MIN)
    }

    /// Connections of the pool for neither commits nor the relay.
    fn shared_connections(&self) -> usize {
        self.pool.saturating_sub(self.committers.max(1) + self.relay_connections.max(1))
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
