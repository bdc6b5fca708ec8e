//! The migrations' texts, and databases of earlier versions.
use crate::support::{Database, PARTITIONS};

/// The name and the text of the migration whose file is named by its version and its name.
macro_rules! migration {
    ($version:literal, $name:literal) => {
        ($name, include_str!(concat!("../../../../../migrations/postgres/V", $version, "__", $name, ".sql")))
    };
}

/// Every migration with its name, in its order.
pub const MIGRATIONS: [(&str, &str); 14] = [
    migration!(1, "orders_outbox_and_inbox"),
    migration!(2, "redriven_dead_letters"),
    migration!(3, "open_batch_in_the_lease"),
    migration!(4, "store_timeline"),
    migration!(5, "debezium_types"),
    migration!(6, "last_attempts"),
    migration!(7, "events_of_any_service"),
    migration!(8, "publish_from_sql"),
    migration!(9, "webhooks"),
    migration!(10, "detours_end_with_their_last_message"),
    migration!(11, "publish_with_fewer_expressions"),
    migration!(12, "contract_checksum"),
    migration!(13, "archive_index_of_wide_batches"),
    migration!(14, "narrow_batches_by_their_first_id"),
];

/// A database that has the migrations up to this one and no later.
pub async fn database_of_version(version: usize) -> Database {
    let database = Database::empty().await;
    let client = database.client().await;
    let applied =
        "CREATE TABLE posthaste_migration (version integer PRIMARY KEY, name text NOT NULL, checksum text NOT NULL,
         applied_at timestamptz NOT NULL DEFAULT clock_timestamp())";
    client.batch_execute(applied).await.unwrap();
    for (number, (name, text)) in (1_i32..).zip(&MIGRATIONS[..version]) {
        client.batch_execute(text).await.unwrap();
        let record = "INSERT INTO posthaste_migration VALUES ($1, $2, encode(sha256($3), 'hex'))";
        client.execute(record, &[&number, name, &text.as_bytes()]).await.unwrap();
        if number == 1 {
            let install = format!(
                "INSERT INTO installation (partitions) VALUES ({PARTITIONS});
                 INSERT INTO outbox_lease (partition) SELECT generate_series(0, {PARTITIONS} - 1)"
            );
            client.batch_execute(&install).await.unwrap();
        }
    }
    database
}
