//! The migrations' texts, and databases of earlier versions.
use crate::support::{Database, PARTITIONS};

/// Every migration with its name, in its order.
pub const MIGRATIONS: [(&str, &str); 14] = [
    ("orders_outbox_and_inbox", include_str!("../../../../../migrations/postgres/V1__orders_outbox_and_inbox.sql")),
    ("redriven_dead_letters", include_str!("../../../../../migrations/postgres/V2__redriven_dead_letters.sql")),
    ("open_batch_in_the_lease", include_str!("../../../../../migrations/postgres/V3__open_batch_in_the_lease.sql")),
    ("store_timeline", include_str!("../../../../../migrations/postgres/V4__store_timeline.sql")),
    ("debezium_types", include_str!("../../../../../migrations/postgres/V5__debezium_types.sql")),
    ("last_attempts", include_str!("../../../../../migrations/postgres/V6__last_attempts.sql")),
    ("events_of_any_service", include_str!("../../../../../migrations/postgres/V7__events_of_any_service.sql")),
    ("publish_from_sql", include_str!("../../../../../migrations/postgres/V8__publish_from_sql.sql")),
    ("webhooks", include_str!("../../../../../migrations/postgres/V9__webhooks.sql")),
    (
        "detours_end_with_their_last_message",
        include_str!("../../../../../migrations/postgres/V10__detours_end_with_their_last_message.sql"),
    ),
    (
        "publish_with_fewer_expressions",
        include_str!("../../../../../migrations/postgres/V11__publish_with_fewer_expressions.sql"),
    ),
    ("contract_checksum", include_str!("../../../../../migrations/postgres/V12__contract_checksum.sql")),
    (
        "archive_index_of_wide_batches",
        include_str!("../../../../../migrations/postgres/V13__archive_index_of_wide_batches.sql"),
    ),
    (
        "narrow_batches_by_their_first_id",
        include_str!("../../../../../migrations/postgres/V14__narrow_batches_by_their_first_id.sql"),
    ),
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
