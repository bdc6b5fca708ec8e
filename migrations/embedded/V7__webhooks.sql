-- Why: HTTP endpoints of other systems subscribe to topics, and operators see the deliveries.
-- Version 7.

-- `webhook`: a row is a subscription; `document` is its JSON.
CREATE TABLE webhook (id BLOB PRIMARY KEY, version INTEGER NOT NULL, document TEXT NOT NULL) WITHOUT ROWID;
-- `webhook_delivery`: a row is one of the latest deliveries of a webhook. A later delivery has a larger number.
CREATE TABLE webhook_delivery (number INTEGER PRIMARY KEY AUTOINCREMENT, webhook BLOB NOT NULL, document TEXT NOT NULL);
CREATE INDEX webhook_delivery_by_webhook ON webhook_delivery (webhook, number);
