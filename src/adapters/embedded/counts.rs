//! Running counts of rows and orders, so that nobody counts a million rows each second. Changes are gathered in memory and
//! written once for each commit, in the same transaction.
use std::collections::BTreeMap;

use domain::Status;
use rusqlite::{Connection, params};

use crate::error::Answer;

/// Changes of one partition's rows: PENDING, IN_FLIGHT, FAILED, PARKED, SENT.
pub(crate) type Rows = [i64; 5];

/// Codes of a row's status in the narrow table.
pub(crate) mod code {
    /// Ready.
    pub(crate) const PENDING: i64 = 0;
    /// Claimed.
    pub(crate) const IN_FLIGHT: i64 = 1;
    /// Waits for its time; also a suspect that waits for its trial.
    pub(crate) const FAILED: i64 = 2;
    /// Waits for a human, and its key with it.
    pub(crate) const PARKED: i64 = 3;
    /// Waits for a human, alone.
    pub(crate) const PARKED_ALONE: i64 = 4;
    /// Left; only in counts and views.
    pub(crate) const SENT: i64 = 5;
}

/// What a command, or a group of them, did to the counts.
#[derive(Default)]
pub(crate) struct Counts {
    rows: BTreeMap<u32, Rows>,
    orders: BTreeMap<Status, i64>,
}

impl Counts {
    /// So many rows of a partition entered (or, negative, left) a status.
    pub(crate) fn rows(&mut self, partition: u32, status: i64, change: i64) {
        let column = match status {
            code::PARKED | code::PARKED_ALONE => 3,
            code::SENT => 4,
            other => other as usize,
        };
        self.rows.entry(partition).or_default()[column] += change;
    }

    /// So many rows of a partition went from one status to another.
    pub(crate) fn moved(&mut self, partition: u32, from: i64, to: i64, rows: i64) {
        self.rows(partition, from, -rows);
        self.rows(partition, to, rows);
    }

    /// An order entered (or left) a status.
    pub(crate) fn order(&mut self, status: Status, change: i64) {
        *self.orders.entry(status).or_default() += change;
    }

    /// Takes over what another gathered.
    pub(crate) fn absorb(&mut self, other: Counts) {
        for (partition, changes) in other.rows {
            let sum = self.rows.entry(partition).or_default();
            sum.iter_mut().zip(changes).for_each(|(sum, change)| *sum += change);
        }
        for (status, change) in other.orders {
            *self.orders.entry(status).or_default() += change;
        }
    }

    /// Writes all changes.
    pub(crate) fn write(&self, sql: &Connection) -> Answer<()> {
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
