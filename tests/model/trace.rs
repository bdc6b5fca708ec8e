//! Counterexamples as readable text: one line for each step, with the state of the store and the broker after it.
use std::fmt;

use crate::invariants::Violation;
use crate::state::broker::TransactionStatus;
use crate::state::store::RowStatus;
use crate::state::system::System;
use crate::successors::Label;

/// A step and the state after it.
#[derive(Debug)]
pub struct Step {
    pub label: Label,
    pub system: System,
}

/// A shortest path to a violation.
#[derive(Debug)]
pub struct Counterexample {
    pub violation: Violation,
    pub steps: Vec<Step>,
}

impl fmt::Display for Counterexample {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{} after {} steps:", self.violation, self.steps.len())?;
        for (number, Step { label, system }) in self.steps.iter().enumerate() {
            writeln!(out, "{:>3}. {:<90} {}", number + 1, label.to_string(), Summary(system))?;
        }
        Ok(())
    }
}

/// Rows, leases, transactions and logs on one line.
struct Summary<'a>(&'a System);

impl fmt::Display for Summary<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("rows")?;
        for row in &self.0.store.rows {
            match row.status {
                RowStatus::InFlight => write!(out, " InFlight/{}", row.token)?,
                status => write!(out, " {status:?}")?,
            }
        }
        for lease in &self.0.store.leases {
            let owner = lease.owner.map_or("-".to_owned(), |owner| owner.to_string());
            write!(out, " | lease {owner} epoch {} counter {}", lease.epoch, lease.counter)?;
            if lease.open_batch != 0 {
                write!(out, " open {} under id {:?}", lease.open_batch, lease.transactional_id)?;
            }
        }
        let transactions = self.0.broker.transactions.iter().zip(&self.0.broker.watermarks).enumerate();
        for (id, (transaction, watermarks)) in transactions {
            if transaction.status != TransactionStatus::Absent || watermarks.iter().any(|watermark| *watermark != 0) {
                write!(out, " | id {id} {:?} {:?} watermarks {watermarks:?}", transaction.status, transaction.tokens)?;
            }
        }
        for (key, log) in self.0.broker.logs.iter().enumerate().filter(|(_, log)| log[0].is_some()) {
            write!(out, " | key {key}:")?;
            for record in log.iter().flatten() {
                let mark = if self.0.broker.is_record_committed(record) { "" } else { "?" };
                write!(out, " {}{mark}", record.event)?;
            }
        }
        Ok(())
    }
}
