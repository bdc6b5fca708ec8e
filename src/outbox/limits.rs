//! Limits that every store keeps to, each with its value and the reason for it.
use std::time::Duration;

/// Most payload bytes of a batch: 16 MiB, so that a thousand large orders do not fill the memory. One row is always taken, however
/// large it is, and the row that crosses the limit is the last one.
pub const BATCH_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Divisor of the batch size for each death: a batch of 1,000 rows shrinks to 125, 15 and 1, so three deaths isolate a poison row.
pub const CLAIM_SHRINK: u32 = 8;

/// Deaths that make a row a suspect, which is claimed only as the single row of a trial. With [`CLAIM_SHRINK`] a row has by then been
/// claimed in small batches only.
pub const SUSPECT_DEATHS: u32 = 3;

/// Deaths in trials after which a row is parked as poison. Two, because one death may be a coincidence.
pub const TRIAL_DEATHS_MAX: u32 = 2;

/// Time between two trials of a row, and before the first one: 10 s, so that a service killed at random does not die in both.
pub const TRIAL_INTERVAL: Duration = Duration::from_secs(10);

/// Most characters of a stored failure reason: 256, so that a broker's long error text does not fill tables and headers.
pub const REASON_CHARS_MAX: usize = 256;

/// How far a member's heartbeat may lie ahead of the store's clock. The heartbeat of any instance sets one that lies further ahead to the present:
/// where the clock was set back by an hour, an instance that died just before would count as alive for that hour, and its partitions would have
/// no other owner. 1 s, so that small corrections of the clock cost no writes.
pub const HEARTBEAT_AHEAD_MAX: Duration = Duration::from_secs(1);

/// A member's heartbeat row is deleted after this many times its own `dead_after`: 1,000, so that operators still see an instance long
/// after it died, and renamed instances do not accumulate.
pub const INSTANCE_RETENTION_FACTOR: u32 = 1_000;
