//! A consumer with an inbox: the effect of an event, the event that follows from it, and the inbox row of the event commit in one PostgreSQL
//! transaction. The broker delivers at least once; when it delivers an event again, the inbox has its id, and the effect happens once.
use std::time::Duration;

use postgres::{NewEvent, publish};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Headers, Message};
use tokio_postgres::{Client, NoTls};

const TABLES: &str = "CREATE TABLE IF NOT EXISTS customer_moves (customer text PRIMARY KEY, moves bigint NOT NULL);
    CREATE TABLE IF NOT EXISTS inbox (consumer text, event_id text, consumed_at timestamptz NOT NULL DEFAULT now(),
      PRIMARY KEY (consumer, event_id))";
const INBOX_INSERT: &str = "INSERT INTO inbox (consumer, event_id) VALUES ($1, $2) ON CONFLICT DO NOTHING";
const EFFECT_UPSERT: &str = "INSERT INTO customer_moves VALUES ($1, 1)
    ON CONFLICT (customer) DO UPDATE SET moves = customer_moves.moves + 1 RETURNING moves";

/// Longest wait for a record.
const POLL: Duration = Duration::from_millis(200);

/// Why the consumer stopped.
pub type ConsumerFailure = Box<dyn std::error::Error + Send + Sync>;

/// The result of consuming a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Consumed {
    /// Its effect is committed.
    New,
    /// It was consumed before, and nothing was changed.
    Duplicate,
    /// It has no id of an event, so it is not from an outbox.
    WithoutEventId,
    /// No record could be read, or this one could not be acknowledged; the broker then delivers it again. The client reconnects by itself.
    Interrupted(KafkaError),
}

/// A member of the group `consumer` on one topic.
pub struct InboxConsumer {
    group: String,
    kafka: BaseConsumer,
    database: Client,
}

impl InboxConsumer {
    /// Connects to both servers and creates the tables. `read_committed`: records of aborted batches are not seen.
    pub async fn open(servers: &str, database: &str, topic: &str, group: &str) -> Result<Self, ConsumerFailure> {
        let kafka: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", servers)
            .set("group.id", group)
            .set("isolation.level", "read_committed")
            .set("enable.auto.commit", "false")
            .set("auto.offset.reset", "earliest")
            .create()?;
        kafka.subscribe(&[topic])?;
        let (client, connection) = tokio_postgres::connect(database, NoTls).await?;
        tokio::spawn(connection);
        client.batch_execute(TABLES).await?;
        Ok(Self { group: group.to_owned(), kafka, database: client })
    }

    /// Consumes the next record; `None` if none arrives within a moment.
    ///
    /// # Errors
    /// Returns the error of the database, or an error of Kafka after which no call can succeed.
    pub async fn consume_next(&mut self) -> Result<Option<Consumed>, ConsumerFailure> {
        // The client blocks while it waits.
        let Some(message) = tokio::task::block_in_place(|| self.kafka.poll(POLL)) else { return Ok(None) };
        let message = match message {
            Ok(message) => message,
            Err(error @ KafkaError::MessageConsumptionFatal(_)) => return Err(error.into()),
            Err(error) => return Ok(Some(Consumed::Interrupted(error))),
        };
        let consumed = match header(&message, "ce_id") {
            None => Consumed::WithoutEventId,
            Some(event_id) => {
                let customer = String::from_utf8_lossy(message.key().unwrap_or_default()).into_owned();
                apply(&mut self.database, &self.group, event_id, &customer).await?
            }
        };
        // Only now: after a crash before this line the broker delivers the record again, and the inbox recognises it.
        match self.kafka.commit_message(&message, CommitMode::Sync) {
            Ok(()) => Ok(Some(consumed)),
            Err(error) => Ok(Some(Consumed::Interrupted(error))),
        }
    }
}

/// Commits the inbox row, the effect and the following event together, or none of them.
async fn apply(
    database: &mut Client,
    group: &str,
    event_id: &str,
    customer: &str,
) -> Result<Consumed, ConsumerFailure> {
    let transaction = database.transaction().await?;
    if transaction.execute(INBOX_INSERT, &[&group, &event_id]).await? == 0 {
        return Ok(Consumed::Duplicate);
    }
    let moves: i64 = transaction.query_one(EFFECT_UPSERT, &[&customer]).await?.get(0);
    let payload = format!("{{\"moves\": {moves}}}");
    publish(&transaction, &NewEvent::new("customer.moves", customer, "CustomerMoveCounted", payload.as_bytes()))
        .await?;
    transaction.commit().await?;
    Ok(Consumed::New)
}

fn header<'a>(message: &'a BorrowedMessage<'_>, name: &str) -> Option<&'a str> {
    let header = message.headers()?.iter().find(|header| header.key == name)?;
    std::str::from_utf8(header.value?).ok()
}
