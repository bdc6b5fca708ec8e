//! `publish`: the SQL function for writers in other languages compared with plain INSERTs into a bare table, in turns on one database, and a bulk of
//! 100,000 keys in one transaction.
use serde_json::json;

use crate::error::Error;
use crate::load::figures::{median, ratio, rounded};
use crate::plan::Bench;
use crate::program::{BrokerUse, Program};
use crate::store::pgbench::{self, PgbenchScript, RunLimit};
use crate::store::throwaway::with_data;

/// Connections of each comparison: few, and as many as the service has clients by default.
const CONNECTIONS: [usize; 2] = [4, 64];

const BARE_TABLE: PgbenchScript =
    PgbenchScript { name: "bare_table.sql", text: include_str!("publish/bare_table.sql") };
const INSERT: PgbenchScript = PgbenchScript { name: "insert.sql", text: include_str!("publish/insert.sql") };
const PUBLISH: PgbenchScript = PgbenchScript { name: "publish.sql", text: include_str!("publish/publish.sql") };
const BULK_INSERT: PgbenchScript =
    PgbenchScript { name: "bulk_insert.sql", text: include_str!("publish/bulk_insert.sql") };
const BULK_PUBLISH: PgbenchScript =
    PgbenchScript { name: "bulk_publish.sql", text: include_str!("publish/bulk_publish.sql") };

/// Measures on data of its own, which no service relays meanwhile.
pub(crate) async fn publish<P: Program>(bench: &Bench<'_, P>) -> Result<(), Error> {
    Box::pin(with_data(bench.program, BrokerUse::StoreOnly, async |data| {
        // Scripts are one transaction each, so their rate is that of the transactions.
        let rate = async |script: &PgbenchScript, clients, limit| {
            let missing = || Error::new("pgbench is not on the PATH: install PostgreSQL's programs");
            pgbench::rate(data, script, clients, limit).await?.ok_or_else(missing)
        };
        rate(&BARE_TABLE, 1, RunLimit::Transactions(1)).await?;
        for connections in CONNECTIONS {
            let (mut published, mut inserted) = (Vec::new(), Vec::new());
            for round in 1..=bench.plan.rounds {
                bench.reporter.progress(&format!("publish with {connections} connections, round {round} of {}", bench.plan.rounds));
                inserted.push(rate(&INSERT, connections, RunLimit::Time(bench.plan.time)).await?);
                published.push(rate(&PUBLISH, connections, RunLimit::Time(bench.plan.time)).await?);
            }
            bench.reporter.report(
                "publish",
                &json!({
                    "connections": connections, "publishedPerS": median(&published).round(), "roundsPerS": rounded(&published),
                    "insertedPerS": median(&inserted).round(), "publishedToInserted": ratio(&published, &inserted),
                }),
            )?;
        }
        bench.reporter.progress("publish: a bulk of 100,000 keys");
        let bulk_insert = 1.0 / rate(&BULK_INSERT, 1, RunLimit::Transactions(1)).await?;
        let bulk_new = 1.0 / rate(&BULK_PUBLISH, 1, RunLimit::Transactions(1)).await?;
        let bulk_known = 1.0 / rate(&BULK_PUBLISH, 1, RunLimit::Transactions(1)).await?;
        let seconds = |time: f64| (time * 1_000.0).round() / 1_000.0;
        bench.reporter.report(
            "publish-bulk",
            &json!({
                "keys": 100_000, "newKeysS": seconds(bulk_new), "knownKeysS": seconds(bulk_known), "insertedS": seconds(bulk_insert),
            }),
        )
    }))
    .await
}
