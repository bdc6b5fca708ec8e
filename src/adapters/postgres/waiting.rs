//! The small table of rows that are FAILED or PARKED. A key's head is the first of its rows there that blocks: rows of the key before it
//! may go, rows behind it wait, so the order of a key survives whatever happens to a row in its middle.
use std::time::Duration;

use ports::outbox::RowId;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::error::Answer;
use crate::session::Transaction;
use crate::value::{Value, seconds};

/// Codes of a row's status in the narrow table.
pub(crate) mod code {
    /// Ready.
    pub(crate) const PENDING: i16 = 0;
    /// Claimed.
    pub(crate) const IN_FLIGHT: i16 = 1;
    /// Waits for its time; also a suspect that waits for its trial.
    pub(crate) const FAILED: i16 = 2;
    /// Waits for a human, and its key with it.
    pub(crate) const PARKED: i16 = 3;
    /// Waits for a human, alone.
    pub(crate) const PARKED_ALONE: i16 = 4;
}

/// Deaths that make a row a suspect.
pub(crate) const SUSPECT_DEATHS: i16 = 3;

/// Most characters of a reason.
pub(crate) const REASON_MAX: usize = 256;

/// What becomes of one row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Move {
    pub(crate) id: RowId,
    pub(crate) key: Uuid,
    pub(crate) status: i16,
    /// From now; only for FAILED.
    pub(crate) due_in: Option<Duration>,
    pub(crate) attempts: i32,
    pub(crate) deaths: i16,
    pub(crate) trial_deaths: i16,
    /// Instead of what stands there.
    pub(crate) failure_type: Option<&'static str>,
    /// Instead of what stands there.
    pub(crate) reason: Option<String>,
}

const MOVE: &str = "WITH u AS MATERIALIZED (SELECT * FROM unnest($2::int8[], $3::uuid[], $4::int2[], $5::float8[], $6::int4[], $7::int2[],
         $8::int2[], $9::text[], $10::text[]) AS u (id, key, status, due_in, attempts, deaths, trial_deaths, failure_type, reason)),
     o AS (UPDATE outbox o SET status = u.status, next_attempt_at = statement_timestamp() + make_interval(secs => u.due_in),
         attempts = u.attempts, deaths = u.deaths, trial_deaths = u.trial_deaths,
         failure_type = coalesce(u.failure_type, o.failure_type), reason = coalesce(u.reason, o.reason)
       FROM u WHERE o.partition = $1 AND o.id = u.id),
     gone AS (DELETE FROM outbox_waiting w USING u WHERE u.status < 2 AND w.partition = $1 AND w.key = u.key AND w.id = u.id)
     INSERT INTO outbox_waiting AS w (partition, key, id, due, blocks, suspect)
     SELECT $1, u.key, u.id, statement_timestamp() + make_interval(secs => u.due_in), u.status < 4, u.status = 2 AND u.deaths >= 3
     FROM u WHERE u.status >= 2
     ON CONFLICT (partition, key, id) DO UPDATE SET due = excluded.due, blocks = excluded.blocks, suspect = excluded.suspect";

/// Moves rows of a partition whose lease the transaction has in its hand, and keeps the small table true.
pub(crate) async fn move_rows(transaction: &Transaction, partition: u32, moves: &[Move]) -> Answer<()> {
    if moves.is_empty() {
        return Ok(());
    }
    let ids: Vec<i64> = moves.iter().map(|one| one.id).collect();
    let keys: Vec<Uuid> = moves.iter().map(|one| one.key).collect();
    let statuses: Vec<i16> = moves.iter().map(|one| one.status).collect();
    let due: Vec<Option<f64>> = moves.iter().map(|one| one.due_in.map(seconds)).collect();
    let attempts: Vec<i32> = moves.iter().map(|one| one.attempts).collect();
    let deaths: Vec<i16> = moves.iter().map(|one| one.deaths).collect();
    let trials: Vec<i16> = moves.iter().map(|one| one.trial_deaths).collect();
    let types: Vec<Option<&str>> = moves.iter().map(|one| one.failure_type).collect();
    let reasons: Vec<Option<String>> = moves.iter().map(|one| one.reason.as_deref().map(cut)).collect();
    let values: [Value<'_>; 10] = [
        (&(partition as i32), Type::INT4),
        (&ids, Type::INT8_ARRAY),
        (&keys, Type::UUID_ARRAY),
        (&statuses, Type::INT2_ARRAY),
        (&due, Type::FLOAT8_ARRAY),
        (&attempts, Type::INT4_ARRAY),
        (&deaths, Type::INT2_ARRAY),
        (&trials, Type::INT2_ARRAY),
        (&types, Type::TEXT_ARRAY),
        (&reasons, Type::TEXT_ARRAY),
    ];
    transaction.query(MOVE, &values).await.map(|_| ())
}

/// At most so many characters, and none that the server cannot store.
pub(crate) fn cut(reason: &str) -> String {
    reason.chars().filter(|character| *character != '\0').take(REASON_MAX).collect()
}
