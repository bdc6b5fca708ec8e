//! Reads and changes of operators: rows of the outbox, the audit log, and the ledger of redriven dead letters.
mod audit_log;
mod outbox_operators;
mod redrive_ledger;
mod webhooks;
