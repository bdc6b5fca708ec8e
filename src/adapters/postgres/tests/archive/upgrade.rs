//! Migration V13: batches archived before and after it are found by the ids of their events, narrow and wide ones.
use postgres::{Options, Postgres};
use tokio_postgres::Client;

use crate::relay::migration_files::database_of_version;

/// The last migration of the version with the index over the spans of all batches.
const EARLIER: usize = 12;

/// Batches of partition 1 with their first and last ids: spans of 0, 1,023 and 1,024 ids, and one around them all.
const SPANS: [(i64, i64); 4] = [(5_000, 5_000), (6_000, 7_023), (8_000, 9_024), (4_000, 20_000)];

/// Archives the batches of [`SPANS`], with ids moved by `by`. Batches of partition 2 have the same spans.
async fn archive(client: &Client, by: i64, sent_at: &str) {
    for (number, (first, last)) in (1_i64..).zip(SPANS) {
        let text = format!(
            "INSERT INTO outbox_archive (partition, token, owner, sent_at, events, first_id, last_id, ids)
             SELECT p, {token}, 'a', {sent_at}, 2, {first}, {last}, ARRAY[{first}, {last}] FROM generate_series(1, 2) p",
            token = by + number,
            first = by + first,
            last = by + last,
        );
        client.batch_execute(&text).await.unwrap();
    }
}

/// The token of the batch by which an event of partition 1 has left.
async fn sent(client: &Client, id: i64) -> Option<i64> {
    let row = client.query_opt("SELECT token FROM outbox_sent(1, $1)", &[&id]).await.unwrap();
    row.map(|row| row.get(0))
}

async fn expect_all_found(client: &Client, by: i64) {
    for (number, (first, last)) in (1_i64..).zip(SPANS) {
        assert_eq!(
            (sent(client, by + first).await, sent(client, by + last).await),
            (Some(by + number), Some(by + number))
        );
    }
    assert_eq!(
        (sent(client, by + 5_001).await, sent(client, by + 6_500).await, sent(client, by + 8_500).await),
        (None, None, None)
    );
}

/// The number of indexes over wide spans that tables of the archive have, and whether they are all valid.
async fn indexes(client: &Client) -> (i64, bool) {
    let text = "SELECT count(*), bool_and(x.indisvalid) FROM pg_index x WHERE x.indpred IS NOT NULL
        AND x.indrelid IN (SELECT relid FROM pg_partition_tree('outbox_archive'))";
    let row = client.query_one(text, &[]).await.unwrap();
    (row.get(0), row.get(1))
}

#[tokio::test]
async fn batches_are_found_whenever_they_were_archived_and_however_wide_they_are() {
    let database = database_of_version(EARLIER).await;
    let client = database.client().await;
    client
        .batch_execute("CREATE TABLE outbox_archive_20200101 PARTITION OF outbox_archive FOR VALUES FROM ('2020-01-01 00:00Z') TO ('2020-01-02 00:00Z')")
        .await
        .unwrap();
    archive(&client, 0, "'2020-01-01 12:00Z'").await;
    archive(&client, 100_000, "clock_timestamp()").await;
    expect_all_found(&client, 0).await;

    let _store = Postgres::open(Options { migrate: true, ..database.options("a") }).await.unwrap();

    archive(&client, 200_000, "clock_timestamp()").await;
    for by in [0, 100_000, 200_000] {
        expect_all_found(&client, by).await;
    }
    let tables: i64 =
        client.query_one("SELECT count(*) FROM pg_partition_tree('outbox_archive')", &[]).await.unwrap().get(0);
    assert_eq!(indexes(&client).await, (tables, true), "one in each table, of the days created since too");
}
