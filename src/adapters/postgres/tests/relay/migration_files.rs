//! The migrations' texts, and databases of earlier versions.
#[path = "../../schema/migration_files.rs"]
mod files;

pub(crate) use files::FILES;

use crate::support::{Database, PARTITIONS};

/// A database that has the migrations up to this one and no later.
pub async fn database_of_version(version: usize) -> Database {
    let database = Database::empty().await;
    let client = database.client().await;
    let applied =
        "CREATE TABLE posthaste_migration (version integer PRIMARY KEY, name text NOT NULL, checksum text NOT NULL,
         applied_at timestamptz NOT NULL DEFAULT clock_timestamp())";
    client.batch_execute(applied).await.unwrap();
    // Where the tables are: a role with the name of the schema `posthaste` would find that one first.
    client.batch_execute("SET search_path = public").await.unwrap();
    for file in &FILES[..version] {
        client.batch_execute(file.text).await.unwrap();
        let record = "INSERT INTO posthaste_migration VALUES ($1, $2, $3)";
        let number = i32::try_from(file.version).unwrap();
        client.execute(record, &[&number, &file.name, &file.checksum]).await.unwrap();
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
