-- Why: endpoints of other systems subscribe to topics, and operators see what was delivered to them.
-- Version 7.
CREATE TABLE webhook (id BLOB PRIMARY KEY, version INTEGER NOT NULL, document TEXT NOT NULL) WITHOUT ROWID;
-- The latest deliveries of each webhook; the numbers grow.
CREATE TABLE webhook_delivery (number INTEGER PRIMARY KEY AUTOINCREMENT, webhook BLOB NOT NULL, document TEXT NOT NULL);
CREATE INDEX webhook_delivery_by_webhook ON webhook_delivery (webhook, number);
