//! Publishes in a transaction of the caller, by the functions that writers in other languages use too (docs/publish.md).
use domain::EventId;
use tokio_postgres::Transaction;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

use crate::connection::sql_value::SqlValue;
use crate::publish::new_event::{EventRefusal, NewEvent};

const BATCH_TYPES: [Type; 7] = [
    Type::TEXT_ARRAY,
    Type::TEXT_ARRAY,
    Type::TEXT_ARRAY,
    Type::BYTEA_ARRAY,
    Type::TEXT_ARRAY,
    Type::TEXT_ARRAY,
    Type::UUID_ARRAY,
];

/// The schema of the functions, unless another installation of the database has it.
const SCHEMA: &str = "posthaste";

/// The error of a publication: no event was written.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// The event breaks a rule. Nothing was sent, and the transaction continues.
    #[error("the event is refused: {0}")]
    Refused(#[from] EventRefusal),
    /// The functions do not exist, or this role may not execute them: the schema is older than version 8, or the role lacks
    /// `posthaste_publisher`.
    #[error(
        "posthaste.publish cannot be called: {0}; run `posthaste migrate up` and grant posthaste_publisher to this role"
    )]
    NotInstalled(tokio_postgres::Error),
    /// The database failed or refused; the transaction has ended in failure. After a serialization failure (40001) or a deadlock (40P01)
    /// the caller repeats its transaction.
    #[error(transparent)]
    Database(tokio_postgres::Error),
}

impl From<tokio_postgres::Error> for PublishError {
    fn from(error: tokio_postgres::Error) -> Self {
        let missing = [SqlState::INVALID_SCHEMA_NAME, SqlState::UNDEFINED_FUNCTION, SqlState::INSUFFICIENT_PRIVILEGE];
        match error.code() {
            Some(code) if missing.contains(code) => PublishError::NotInstalled(error),
            _ => PublishError::Database(error),
        }
    }
}

/// The functions of one installation.
///
/// ```no_run
/// # async fn example(client: &mut tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use postgres::{NewEvent, publish};
///
/// let transaction = client.transaction().await?;
/// transaction.execute("UPDATE customer SET street = 'Main Street 12' WHERE id = '7'", &[]).await?;
/// let moved = NewEvent::new("customers", "7", "CustomerMoved", br#"{"street": "Main Street 12"}"#);
/// publish(&transaction, &moved).await?;
/// transaction.commit().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct EventPublisher {
    publish_text: String,
    publish_all_text: String,
}

impl Default for EventPublisher {
    fn default() -> Self {
        Self::in_schema(SCHEMA)
    }
}

impl EventPublisher {
    /// The functions in a schema: the one that `SELECT functions FROM installation` names, where two installations share a database.
    pub fn in_schema(schema: &str) -> Self {
        let schema = format!("\"{}\"", schema.replace('"', "\"\""));
        Self {
            publish_text: format!("SELECT {schema}.publish($1, $2, $3, $4::bytea, $5::text::jsonb, $6, $7)"),
            publish_all_text: format!(
                "SELECT {schema}.publish_all($1, $2, $3, $4::bytea[], $5::text[]::jsonb[], $6, $7)"
            ),
        }
    }

    /// The statement that publishes events from arrays of their parts.
    pub(crate) fn batch_text(&self) -> &str {
        &self.publish_all_text
    }

    /// The arrays with their types: topics, keys, types, payloads, headers, content types, ids.
    pub(crate) fn batch_values(arrays: [&(dyn ToSql + Sync); 7]) -> [SqlValue<'_>; 7] {
        std::array::from_fn(|index| (arrays[index], BATCH_TYPES[index].clone()))
    }

    /// Publishes an event when the transaction commits, and returns its id. It locks the key until then: publish late in a long transaction.
    /// Not cancel-safe: after a cancelled call the caller rolls its transaction back.
    ///
    /// # Errors
    /// See [`PublishError`]; after every one but a refusal the transaction can only be rolled back.
    pub async fn publish(&self, transaction: &Transaction<'_>, event: &NewEvent<'_>) -> Result<EventId, PublishError> {
        event.check()?;
        let headers = event.headers_json();
        let NewEvent { topic, key, event_type, payload, content_type, event_id, .. } = event;
        let parameters: [SqlValue<'_>; 7] = [
            (topic, Type::TEXT),
            (key, Type::TEXT),
            (event_type, Type::TEXT),
            (payload, Type::BYTEA),
            (&headers, Type::TEXT),
            (content_type, Type::TEXT),
            (event_id, Type::UUID),
        ];
        let row = transaction.query_typed_one(&self.publish_text, &parameters).await?;
        Ok(event_id_from(row.try_get(0)?))
    }

    /// Publishes events in one statement, those of a key in their order, and returns their ids. The keys are locked in one order, so that
    /// batches do not deadlock with each other. Not cancel-safe, as [`EventPublisher::publish`].
    ///
    /// # Errors
    /// As [`EventPublisher::publish`]; nothing is sent if one of the events is refused.
    pub async fn publish_all(
        &self,
        transaction: &Transaction<'_>,
        events: &[NewEvent<'_>],
    ) -> Result<Vec<EventId>, PublishError> {
        events.iter().try_for_each(NewEvent::check)?;
        let column = |field: fn(&NewEvent<'_>) -> String| events.iter().map(field).collect::<Vec<_>>();
        let topics = column(|event| event.topic.to_owned());
        let keys = column(|event| event.key.to_owned());
        let event_types = column(|event| event.event_type.to_owned());
        let content_types = column(|event| event.content_type.to_owned());
        let payloads: Vec<&[u8]> = events.iter().map(|event| event.payload).collect();
        let headers: Vec<Option<String>> = events.iter().map(NewEvent::headers_json).collect();
        let event_ids: Vec<Option<Uuid>> = events.iter().map(|event| event.event_id).collect();
        let parameters =
            Self::batch_values([&topics, &keys, &event_types, &payloads, &headers, &content_types, &event_ids]);
        let row = transaction.query_typed_one(&self.publish_all_text, &parameters).await?;
        Ok(row.try_get::<_, Vec<Uuid>>(0)?.into_iter().map(event_id_from).collect())
    }
}

fn event_id_from(uuid: Uuid) -> EventId {
    EventId::from_bytes(uuid.into_bytes())
}

/// Publishes an event by the functions of the schema `posthaste`; see [`EventPublisher::publish`]. Not cancel-safe, as that method.
///
/// # Errors
/// [`PublishError::Refused`] leaves the transaction usable; after every other error it can only be rolled back.
pub async fn publish(transaction: &Transaction<'_>, event: &NewEvent<'_>) -> Result<EventId, PublishError> {
    EventPublisher::default().publish(transaction, event).await
}

/// Publishes events in one statement by the functions of the schema `posthaste`; see [`EventPublisher::publish_all`]. Not cancel-safe, as that
/// method.
///
/// # Errors
/// [`PublishError::Refused`] leaves the transaction usable; after every other error it can only be rolled back.
pub async fn publish_all(transaction: &Transaction<'_>, events: &[NewEvent<'_>]) -> Result<Vec<EventId>, PublishError> {
    EventPublisher::default().publish_all(transaction, events).await
}
