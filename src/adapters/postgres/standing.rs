//! Why an event stands where it stands.
use std::sync::Arc;

use ports::broker::Position;
use ports::operators::{RowDiagnosis, RowSelector};
use ports::outbox::RowId;
use ports::partitions::InstanceId;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::error::Answer;
use crate::row_view;
use crate::session::Session;
use crate::value::{event_uuid, get, order_uuid};

/// Everything known about one event, or about the row that speaks for a key.
pub(crate) async fn standing(session: &Session, whose: RowSelector) -> Answer<Option<RowDiagnosis>> {
    let Some(id) = row_of(session, whose).await? else { return Ok(None) };
    let Some(row) = row_view::find(session, id).await? else { return Ok(None) };
    let head = match row.sent_at {
        Some(_) => None,
        None => first_living(session, order_uuid(row.key), true).await?.filter(|head| *head < id),
    };
    let head = match head {
        Some(head) => row_view::find(session, head).await?,
        None => None,
    };
    let values: [_; 2] = [(&(row.partition.0 as i32) as _, Type::INT4), (&id as _, Type::INT8)];
    let text = "SELECT l.owner, l.epoch, coalesce((SELECT deaths FROM outbox WHERE partition = $1 AND id = $2),
           (SELECT deaths FROM outbox_sent($1, $2)), 0)::int4 FROM outbox_lease l WHERE l.partition = $1";
    let rows = session.read(text, &values).await?;
    let lease =
        rows.first().ok_or_else(|| crate::error::broken(format!("partition {} has no lease row", row.partition)))?;
    let owner = get::<Option<String>>(lease, 0)?.map(|name| InstanceId(name.into()));
    let (epoch, deaths) = (get::<i64>(lease, 1)? as u64, get::<i32>(lease, 2)?.unsigned_abs());
    let (sent_to, by_fallback) = sent(session, id).await?;
    Ok(Some(RowDiagnosis { row, head, owner, epoch, deaths, sent_to, by_fallback }))
}

async fn row_of(session: &Session, whose: RowSelector) -> Answer<Option<RowId>> {
    match whose {
        RowSelector::Event(event) => {
            let text = "SELECT id FROM outbox_event WHERE event_id = $1";
            first(session, text, event_uuid(event)).await
        }
        RowSelector::Key(key) => match first_living(session, order_uuid(key), false).await? {
            Some(id) => Ok(Some(id)),
            None => {
                let text = "SELECT e.id FROM outbox_event e CROSS JOIN LATERAL outbox_sent(e.partition, e.id) WHERE e.key = $1 ORDER BY e.id DESC LIMIT 1";
                first(session, text, order_uuid(key)).await
            }
        },
    }
}

/// The first row of a key that has not left; `blocking` leaves out those that are parked alone.
async fn first_living(session: &Session, key: Uuid, blocking: bool) -> Answer<Option<RowId>> {
    let text = if blocking {
        "SELECT e.id FROM outbox_event e JOIN outbox q ON q.partition = e.partition AND q.id = e.id
         WHERE e.key = $1 AND q.status <= 3 ORDER BY e.id LIMIT 1"
    } else {
        "SELECT e.id FROM outbox_event e JOIN outbox q ON q.partition = e.partition AND q.id = e.id
         WHERE e.key = $1 ORDER BY e.id LIMIT 1"
    };
    first(session, text, key).await
}

async fn first(session: &Session, text: &str, id: Uuid) -> Answer<Option<RowId>> {
    let rows = session.read(text, &[(&id, Type::UUID)]).await?;
    rows.first().map(|row| get(row, 0)).transpose()
}

async fn sent(session: &Session, id: RowId) -> Answer<(Option<Position>, bool)> {
    let text = "SELECT coalesce(a.topic, e.topic), a.topic_partition, a.topic_offset, a.by_fallback
         FROM outbox_event e CROSS JOIN LATERAL outbox_sent(e.partition, e.id) a WHERE e.id = $1";
    let rows = session.read(text, &[(&id, Type::INT8)]).await?;
    let Some(row) = rows.first() else { return Ok((None, false)) };
    let topic: Arc<str> = get::<&str>(row, 0)?.into();
    let (partition, offset): (Option<i32>, Option<i64>) = (get(row, 1)?, get(row, 2)?);
    let position = partition.zip(offset).map(|(partition, offset)| Position {
        topic,
        partition: partition.unsigned_abs(),
        offset: offset as u64,
    });
    Ok((position, get(row, 3)?))
}
