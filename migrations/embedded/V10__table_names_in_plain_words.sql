-- Why: some names of tables, and the columns `who` and `why`, were words of this repository only. No row is rewritten.
-- Version 10.
ALTER TABLE heartbeat RENAME TO store_probe;
ALTER TABLE member RENAME TO relay_instance;
ALTER TABLE mark RENAME TO idempotency_record;
ALTER TABLE detour RENAME TO retry_route;
ALTER TABLE lane RENAME TO producer_session;
ALTER TABLE redriven_letter RENAME TO redriven_dead_letter;
ALTER TABLE redriven_dead_letter RENAME COLUMN who TO operator;
ALTER TABLE redriven_dead_letter RENAME COLUMN why TO reason;
ALTER TABLE audit RENAME TO outbox_audit;
ALTER TABLE outbox_audit RENAME COLUMN who TO operator;
ALTER TABLE outbox_audit RENAME COLUMN why TO reason;
