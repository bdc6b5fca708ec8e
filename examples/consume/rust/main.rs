//! Consumes a topic until it is stopped, and prints the result of each record. The database is one that `posthaste migrate up` has prepared.
//! Run it: `cargo run -p posthaste-postgres --example inbox_consumer localhost:9092 postgres://user@localhost/crm customers`.
#![allow(clippy::print_stdout, reason = "an example shows what happens")]
mod inbox_consumer;

#[tokio::main]
async fn main() -> Result<(), inbox_consumer::ConsumerFailure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [servers, database, topic] = &arguments[..] else {
        return Err("arguments: servers of Kafka, URL of PostgreSQL, topic".into());
    };
    let mut consumer = inbox_consumer::InboxConsumer::open(servers, database, topic, "crm").await?;
    loop {
        if let Some(consumed) = consumer.consume_next().await? {
            println!("{consumed:?}");
        }
    }
}
