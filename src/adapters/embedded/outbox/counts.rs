//! Running counts of rows and orders, because counting a million rows each second costs too much. Changes are collected in memory and
//! written once for each commit, in the same transaction.
use std::collections::BTreeMap;

use domain::Status;
use rusqlite::{Connection, params};

use crate::error::CommandResult;

/// Changes of one partition's rows: PENDING, IN_FLIGHT, FAILED, PARKED, SENT.
pub(crate) type StatusCounts = [i64; 5];

/// Codes of a row's status in the file: those of `outbox`, as SQLite's integers. Statements name them as numbers where a partial index decides
/// their plan: SQLite compares the index's condition with literals, not with parameters.
pub(crate) mod code {
    use outbox::status::code;

    /// Ready for its first attempt.
    pub(crate) const PENDING: i64 = code::PENDING as i64;
    /// Claimed, in an open batch.
    pub(crate) const IN_FLIGHT: i64 = code::IN_FLIGHT as i64;
    /// Waits until it is due; a suspect waits for its trial.
    pub(crate) const FAILED: i64 = code::FAILED as i64;
    /// Parked; its key waits with it.
    pub(crate) const PARKED: i64 = code::PARKED as i64;
    /// Parked; later rows of its key are still sent.
    pub(crate) const PARKED_ROW: i64 = code::PARKED_ROW as i64;
    /// Sent; only in counts and views.
    pub(crate) const SENT: i64 = code::SENT as i64;
}

/// Changes of the counts by one command or by a commit group.
#[derive(Default)]
pub(crate) struct CountChanges {
    rows: BTreeMap<u32, StatusCounts>,
    orders: BTreeMap<Status, i64>,
}

impl CountChanges {
    /// Adds rows of a partition to a status; a negative change removes them.
    pub(crate) fn add_rows(&mut self, partition: u32, status: i64, change: i64) {
        let column = match status {
            code::PARKED | code::PARKED_ROW => 3,
            code::SENT => 4,
            other => other as usize,
        };
        self.rows.entry(partition).or_default()[column] += change;
    }

    /// Moves rows of a partition from one status to another.
    pub(crate) fn move_rows(&mut self, partition: u32, from: i64, to: i64, rows: i64) {
        self.add_rows(partition, from, -rows);
        self.add_rows(partition, to, rows);
    }

    /// Adds an order to a status; a negative change removes one.
    pub(crate) fn add_orders(&mut self, status: Status, change: i64) {
        *self.orders.entry(status).or_default() += change;
    }

    /// Adds the changes that another command collected.
    pub(crate) fn merge(&mut self, other: CountChanges) {
        for (partition, changes) in other.rows {
            let sum = self.rows.entry(partition).or_default();
            sum.iter_mut().zip(changes).for_each(|(sum, change)| *sum += change);
        }
        for (status, change) in other.orders {
            *self.orders.entry(status).or_default() += change;
        }
    }

    /// Writes all changes into the file.
    pub(crate) fn write(&self, sql: &Connection) -> CommandResult<()> {
        let mut rows = sql.prepare_cached(
            "UPDATE outbox_count SET pending = pending + ?2, in_flight = in_flight + ?3, failed = failed + ?4,
               parked = parked + ?5, sent = sent + ?6 WHERE partition = ?1",
        )?;
        for (partition, [pending, in_flight, failed, parked, sent]) in &self.rows {
            rows.execute(params![partition, pending, in_flight, failed, parked, sent])?;
        }
        let mut orders = sql.prepare_cached("UPDATE order_count SET orders = orders + ?2 WHERE status = ?1")?;
        for (status, change) in &self.orders {
            orders.execute(params![status.as_str(), change])?;
        }
        Ok(())
    }
}
