//! Times that lie in the future when a service opens the file: the clock was ahead for a while, and was corrected. While a service runs, its clock
//! never goes back.
use domain::Timestamp;
use rusqlite::{Connection, OptionalExtension, Statement, params};

use crate::broker::log_state::log_id;

/// Rows that one transaction changes: 1,000, so that many records of 1 MiB do not fill the write-ahead log.
const PAGE_ROWS: u32 = 1_000;

/// Makes every waiting row due at this time at the latest. A clock that was ahead for a while has left rows that would otherwise wait for as
/// long as it was wrong. Parked rows have no time and stay parked.
pub(crate) fn bound_due_times(sql: &Connection, latest: Timestamp) -> rusqlite::Result<()> {
    // `status >= 2` is the condition of the index.
    for bound in [
        "UPDATE outbox SET next_attempt_at = ?1 WHERE status >= 2 AND next_attempt_at > ?1",
        "UPDATE outbox_blocked SET next_attempt_at = ?1 WHERE next_attempt_at > ?1",
    ] {
        sql.execute(bound, [latest.millis()])?;
    }
    Ok(())
}

/// Sets the times of rows that a sweep deletes by age to `now` at the latest. The sweeps read each table from its oldest row on, so rows with a
/// time in the future would hold back all later ones. An archived row that was sent much later than its neighbours may keep its time: the sweep of
/// the archive passes it.
pub(crate) fn lower_recorded_times(sql: &Connection, now: Timestamp) -> rusqlite::Result<()> {
    for (table, id, time) in [
        ("idempotency_record", "id", "created_at"),
        ("processed_events", "id", "processed_at"),
        ("outbox_archive", "id", "sent_at"),
    ] {
        NewestRows::new(sql, table, id, time)?.lower(0, i64::MAX, now)?;
    }
    let mut log = NewestRows::new(sql, "log", "place", "appended_at")?;
    let mut partitions = sql.prepare("SELECT number FROM topic_partition WHERE next_offset > 0")?;
    let numbers: Vec<u32> = partitions.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    for number in numbers {
        log.lower(log_id(number, 0), log_id(number + 1, 0), now)?;
    }
    sql.execute("UPDATE group_offset SET seen_at = ?1 WHERE seen_at > ?1", [now.millis()])?;
    Ok(())
}

/// The rows of a table whose ids grow with time: those with a time in the future are the newest ones.
struct NewestRows<'a> {
    newest: Statement<'a>,
    page: Statement<'a>,
    lower: Statement<'a>,
}

impl<'a> NewestRows<'a> {
    fn new(sql: &'a Connection, table: &str, id: &str, time: &str) -> rusqlite::Result<Self> {
        let rows = format!("FROM {table} WHERE {id} >= ?1 AND {id} < ?2 ORDER BY {id} DESC");
        Ok(Self {
            newest: sql.prepare(&format!("SELECT {time} {rows} LIMIT 1"))?,
            page: sql.prepare(&format!("SELECT min({id}) FROM (SELECT {id} {rows} LIMIT {PAGE_ROWS})"))?,
            lower: sql
                .prepare(&format!("UPDATE {table} SET {time} = ?3 WHERE {id} >= ?1 AND {id} < ?2 AND {time} > ?3"))?,
        })
    }

    /// Lowers the times of the rows with ids from `first` to before `end`. Where the clock was right, it reads one row. It changes the oldest rows
    /// first: after an interruption the newest ones still have a time in the future, by which the next opening finds the rest.
    fn lower(&mut self, first: i64, mut end: i64, now: Timestamp) -> rusqlite::Result<()> {
        let (now, mut pages) = (now.millis(), Vec::new());
        loop {
            let newest: Option<i64> = self.newest.query_row(params![first, end], |row| row.get(0)).optional()?;
            if newest.is_none_or(|time| time <= now) {
                break;
            }
            let page_first: i64 = self.page.query_row(params![first, end], |row| row.get(0))?;
            pages.push((page_first, end));
            end = page_first;
        }
        for (page_first, end) in pages.into_iter().rev() {
            self.lower.execute(params![page_first, end, now])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::step_count::counted_store;

    fn add_records(sql: &Connection, first: u32, end: u32, processed_at: i64) {
        sql.execute(
            "WITH RECURSIVE n(number) AS (SELECT ?1 UNION ALL SELECT number + 1 FROM n WHERE number + 1 < ?2)
             INSERT INTO processed_events SELECT number, 'g', randomblob(16), 't', 0, number, ?3 FROM n",
            params![first, end, processed_at],
        )
        .unwrap();
    }

    #[test]
    fn only_times_ahead_are_lowered_in_several_pages() {
        let folder = tempfile::tempdir().unwrap();
        let (sql, steps) = counted_store(folder.path());
        let rows = 2 * PAGE_ROWS + PAGE_ROWS / 2;
        add_records(&sql, 0, rows, 100);
        add_records(&sql, rows, 2 * rows, 900);

        lower_recorded_times(&sql, Timestamp::from_millis(500)).unwrap();

        let count = |time: i64| -> u32 {
            let text = "SELECT count(*) FROM processed_events WHERE processed_at = ?1";
            sql.query_row(text, [time], |row| row.get(0)).unwrap()
        };
        assert_eq!([count(100), count(500)], [rows; 2]);
        let (result, steps) = steps.measure(|| lower_recorded_times(&sql, Timestamp::from_millis(600)));
        assert!(result.is_ok() && steps < 10_000, "{steps} steps without a time ahead");
    }
}
