//! The check of tables that have far more dead rows than live ones.
use postgres::DeadRows;

/// So many dead rows are usual between two runs of autovacuum, which looks at a database once a minute: several thousand events a second.
const DEAD_ROWS_MAX: u64 = 500_000;
/// A table must also have more dead rows than this multiple of its live ones: a large backlog has many dead rows too, and reading the live ones
/// costs more than reading the dead ones.
const DEAD_PER_LIVE_MAX: u64 = 10;

/// Whether no table has far more dead rows than live ones, and a sentence that names the tables that have.
pub(super) fn dead_rows(tables: &[DeadRows]) -> (bool, String) {
    let is_bloated =
        |table: &&DeadRows| table.dead > DEAD_ROWS_MAX && table.dead > table.live.saturating_mul(DEAD_PER_LIVE_MAX);
    let shown: Vec<String> = tables.iter().filter(is_bloated).map(describe).collect();
    let detail = match shown.is_empty() {
        true => "no table of the outbox has far more dead rows than live ones".to_owned(),
        false => format!(
            "claims read dead rows: {}; see xmin and slots for what holds back VACUUM, and whether autovacuum is on",
            shown.join(", ")
        ),
    };
    (shown.is_empty(), detail)
}

fn describe(DeadRows { table, dead, live, since_vacuum }: &DeadRows) -> String {
    let vacuumed =
        since_vacuum.map_or_else(|| "never vacuumed".to_owned(), |age| format!("vacuumed {} s ago", age.as_secs()));
    format!("{table} has {dead} dead and {live} live rows and was {vacuumed}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn table_with_far_more_dead_rows_than_live_ones_is_named() {
        let day = Some(Duration::from_secs(86_400));
        let cases = [
            (500_000, 64, None, None),
            (500_001, 64, None, Some("outbox_lease has 500001 dead and 64 live rows and was never vacuumed")),
            (3_000_000, 300_000, day, None),
            (3_000_001, 300_000, day, Some("was vacuumed 86400 s ago")),
            (u64::MAX, u64::MAX, day, None),
        ];
        for (dead, live, since_vacuum, found) in cases {
            let (ok, detail) = dead_rows(&[DeadRows { table: "outbox_lease".into(), dead, live, since_vacuum }]);
            assert_eq!(ok, found.is_none(), "{detail}");
            assert!(found.is_none_or(|part| detail.contains(part)), "{detail}");
        }
    }
}
