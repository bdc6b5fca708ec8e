//! What operators read and change: rows of the outbox, and the ledger of redriven dead letters.
mod outbox_operators;
mod redrive_ledger;
