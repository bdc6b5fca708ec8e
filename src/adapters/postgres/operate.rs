//! Operators' statements: they touch PENDING, FAILED and PARKED rows only, raise the partition's counter, and leave an audit row.
use std::collections::BTreeSet;
use std::time::Duration;

use ports::operators::{Audit, OperatorOutcome, RowFilter};
use ports::outbox::{RowId, RowStatus};
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::error::Answer;
use crate::lease;
use crate::row_view::{Question, status_of};
use crate::session::{Session, Transaction};
use crate::store::Core;
use crate::value::{Value, get};
use crate::waiting::{self, Move, code};

/// What an operator wants of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Due now.
    Retry,
    /// Parked, its key with it.
    Park,
}

/// A row that has not left.
struct Living {
    id: RowId,
    key: Uuid,
    status: i16,
    attempts: i32,
    deaths: i16,
    trial_deaths: i16,
    reason: bool,
}

/// Does it to one row.
pub(crate) async fn act(core: &Core, act: Act, id: RowId, audit: &Audit) -> Answer<OperatorOutcome> {
    let session = core.others().await?;
    let Some(partition) = partition_of(&session, id).await? else { return gone(&session, id).await };
    // The lease first: what is read after this is what stands there.
    let (transaction, _) = lease::lock(session, ports::partitions::PartitionNo(partition)).await?;
    let Some(row) = living(&transaction, partition, id).await? else {
        transaction.rollback().await?;
        return gone(&core.others().await?, id).await;
    };
    let allowed = match act {
        Act::Retry => row.status >= code::FAILED,
        Act::Park => row.status == code::PENDING || row.status == code::FAILED,
    };
    if !allowed {
        transaction.rollback().await?;
        return Ok(OperatorOutcome::WrongStatus(status_of(row.status)));
    }
    let (moved, action) = match act {
        Act::Retry => (due_now(&row), "retry"),
        Act::Park => (parked(&row, audit), "park"),
    };
    waiting::move_rows(&transaction, partition, &[moved]).await?;
    lease::raise(&transaction, partition).await?;
    write_down(&transaction, action, &[id], audit).await?;
    transaction.commit().await?;
    Ok(OperatorOutcome::Done(1))
}

/// Makes the first parked rows that a filter lets through due.
pub(crate) async fn redrive(core: &Core, filter: &RowFilter, limit: u32, audit: &Audit) -> Answer<OperatorOutcome> {
    let session = core.others().await?;
    let filter = RowFilter { status: Some(RowStatus::Parked), ..filter.clone() };
    let found = Question::of(&filter).rows(&session, limit).await?;
    let partitions: BTreeSet<u32> = found.iter().map(|view| view.partition.0).collect();
    let transaction = session.begin_transaction().await?;
    let mut done = Vec::new();
    // In one order, so that two redrives never wait for each other.
    for partition in partitions {
        lease::lock_in(&transaction, partition).await?;
        let mut moves = Vec::new();
        for view in found.iter().filter(|view| view.partition.0 == partition) {
            let row = living(&transaction, partition, view.id).await?;
            moves.extend(row.filter(|row| row.status > code::FAILED).map(|row| due_now(&row)));
        }
        if !moves.is_empty() {
            waiting::move_rows(&transaction, partition, &moves).await?;
            lease::raise(&transaction, partition).await?;
            done.extend(moves.into_iter().map(|one| one.id));
        }
    }
    write_down(&transaction, "redrive", &done, audit).await?;
    transaction.commit().await?;
    Ok(OperatorOutcome::Done(done.len() as u64))
}

/// How many parked rows a filter lets through.
pub(crate) async fn count_parked(core: &Core, filter: &RowFilter) -> Answer<OperatorOutcome> {
    let filter = RowFilter { status: Some(RowStatus::Parked), ..filter.clone() };
    Ok(OperatorOutcome::Done(Question::of(&filter).count(&core.others().await?).await?))
}

/// A parked row begins anew, but one that was convicted of deaths stays a suspect: it is tried alone before it may kill neighbours.
fn due_now(row: &Living) -> Move {
    let parked = row.status > code::FAILED;
    Move {
        status: code::FAILED,
        due_in: Some(Duration::ZERO),
        attempts: if parked { 0 } else { row.attempts },
        trial_deaths: if parked { 0 } else { row.trial_deaths },
        ..row.stays()
    }
}

fn parked(row: &Living, audit: &Audit) -> Move {
    // What made it fail says more than who parked it; that stands in the audit.
    let failure = (!row.reason).then(|| audit.parked());
    Move { status: code::PARKED, reason: failure, ..row.stays() }
}

impl Living {
    fn stays(&self) -> Move {
        Move {
            id: self.id,
            key: self.key,
            status: self.status,
            due_in: None,
            attempts: self.attempts,
            deaths: self.deaths,
            trial_deaths: self.trial_deaths,
            failure_type: None,
            reason: None,
        }
    }
}

/// By its event; a row whose event is gone waits or is parked.
async fn partition_of(session: &Session, id: RowId) -> Answer<Option<u32>> {
    let text = "SELECT coalesce((SELECT partition FROM outbox_event WHERE id = $1), (SELECT partition FROM outbox_waiting WHERE id = $1))";
    let rows = session.read(text, &[(&id, Type::INT8)]).await?;
    let partition = rows.first().map(|row| get::<Option<i32>>(row, 0)).transpose()?.flatten();
    Ok(partition.map(i32::unsigned_abs))
}

async fn living(transaction: &Transaction, partition: u32, id: RowId) -> Answer<Option<Living>> {
    let text = "SELECT key, status, attempts, deaths, trial_deaths, reason IS NOT NULL FROM outbox WHERE partition = $1 AND id = $2";
    let rows = transaction.query(text, &[(&(partition as i32), Type::INT4), (&id, Type::INT8)]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    Ok(Some(Living {
        id,
        key: get(row, 0)?,
        status: get(row, 1)?,
        attempts: get(row, 2)?,
        deaths: get(row, 3)?,
        trial_deaths: get(row, 4)?,
        reason: get(row, 5)?,
    }))
}

async fn gone(session: &Session, id: RowId) -> Answer<OperatorOutcome> {
    let text =
        "SELECT EXISTS (SELECT FROM outbox_event e CROSS JOIN LATERAL outbox_sent(e.partition, e.id) WHERE e.id = $1)";
    let rows = session.read(text, &[(&id, Type::INT8)]).await?;
    let sent = rows.first().map(|row| get::<bool>(row, 0)).transpose()?;
    Ok(if sent == Some(true) { OperatorOutcome::WrongStatus(RowStatus::Sent) } else { OperatorOutcome::Missing })
}

async fn write_down(transaction: &Transaction, action: &str, rows: &[RowId], audit: &Audit) -> Answer<()> {
    let rows = rows.to_vec();
    let values: [Value<'_>; 4] =
        [(&action, Type::TEXT), (&rows, Type::INT8_ARRAY), (&audit.operator, Type::TEXT), (&audit.reason, Type::TEXT)];
    let text = "INSERT INTO audit (action, row_id, who, why) SELECT $1, r, $3, $4 FROM unnest($2) AS r";
    transaction.query(text, &values).await.map(|_| ())
}
