//! Diagnosing a row: its status, the row it waits behind, its partition's owner, its position in the broker.
use std::sync::Arc;

use ports::broker::Position;
use ports::operators::{RecordLocation, RowDiagnosis, RowSelector};
use ports::outbox::RowId;
use ports::partitions::InstanceId;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::connection::session::PooledSession;
use crate::connection::sql_value::{event_uuid, get, key_group};
use crate::connection::statement_error::StatementResult;
use crate::operators::row_query;

/// Selects the first unsent row of a key, without rows that are parked alone.
const FIRST_BLOCKING: &str =
    "SELECT e.id FROM outbox_event e JOIN outbox q ON q.partition = e.partition AND q.id = e.id
         WHERE e.key = $1 AND q.status <= 3 ORDER BY e.id LIMIT 1";

const FIRST_UNSENT: &str = "SELECT e.id FROM outbox_event e JOIN outbox q ON q.partition = e.partition AND q.id = e.id
         WHERE e.key = $1 ORDER BY e.id LIMIT 1";

const LAST_SENT: &str = "SELECT e.id FROM outbox_event e CROSS JOIN LATERAL outbox_sent(e.partition, e.id)
         WHERE e.key = $1 ORDER BY e.id DESC LIMIT 1";

/// Diagnoses one event, or the first unsent row of a key (its latest row if all were sent).
pub(crate) async fn diagnose(session: &PooledSession, selector: RowSelector) -> StatementResult<Option<RowDiagnosis>> {
    let Some(id) = find_row_id(session, selector).await? else { return Ok(None) };
    let Some(row) = row_query::find(session, id).await? else { return Ok(None) };
    let head = match row.sent_at {
        Some(_) => None,
        None => find_id(session, FIRST_BLOCKING, key_group(&row.key)).await?.filter(|head| *head < id),
    };
    let head = match head {
        Some(head) => row_query::find(session, head).await?,
        None => None,
    };
    let values: [_; 2] = [(&(row.partition.0 as i32) as _, Type::INT4), (&id as _, Type::INT8)];
    let text = "SELECT l.owner, l.epoch, coalesce((SELECT deaths FROM outbox WHERE partition = $1 AND id = $2),
           (SELECT deaths FROM outbox_sent($1, $2)), 0)::int4 FROM outbox_lease l WHERE l.partition = $1";
    let rows = session.query(text, &values).await?;
    let lease = rows.first().ok_or_else(|| {
        crate::connection::statement_error::broken(format!("partition {} has no row in outbox_lease", row.partition))
    })?;
    let owner = get::<Option<String>>(lease, 0)?.map(|name| InstanceId(name.into()));
    let (epoch, deaths) = (get::<i64>(lease, 1)? as u64, get::<i32>(lease, 2)?.unsigned_abs());
    let (sent_to, by_fallback) = sent_to(session, id).await?;
    Ok(Some(RowDiagnosis { row, head, owner, epoch, deaths, sent_to, by_fallback }))
}

async fn find_row_id(session: &PooledSession, selector: RowSelector) -> StatementResult<Option<RowId>> {
    match selector {
        RowSelector::Event(event) => {
            let text = "SELECT id FROM outbox_event WHERE event_id = $1";
            find_id(session, text, event_uuid(event)).await
        }
        RowSelector::Key(key) => match find_id(session, FIRST_UNSENT, key_group(&key)).await? {
            Some(id) => Ok(Some(id)),
            None => find_id(session, LAST_SENT, key_group(&key)).await,
        },
    }
}

async fn find_id(session: &PooledSession, text: &str, id: Uuid) -> StatementResult<Option<RowId>> {
    let rows = session.query(text, &[(&id, Type::UUID)]).await?;
    rows.first().map(|row| get(row, 0)).transpose()
}

async fn sent_to(session: &PooledSession, id: RowId) -> StatementResult<(Option<RecordLocation>, bool)> {
    let text = "SELECT coalesce(a.topic, e.topic), a.topic_partition, a.topic_offset, a.by_fallback
         FROM outbox_event e CROSS JOIN LATERAL outbox_sent(e.partition, e.id) a WHERE e.id = $1";
    let rows = session.query(text, &[(&id, Type::INT8)]).await?;
    let Some(row) = rows.first() else { return Ok((None, false)) };
    let topic: Arc<str> = get::<&str>(row, 0)?.into();
    let (partition, offset): (Option<i32>, Option<i64>) = (get(row, 1)?, get(row, 2)?);
    let position = partition.zip(offset).map(|(partition, offset)| Position {
        topic: Arc::clone(&topic),
        partition: partition.unsigned_abs(),
        offset: offset as u64,
    });
    let by_fallback = get(row, 3)?;
    Ok((Some(RecordLocation::new(&topic, position, by_fallback)), by_fallback))
}
