-- Why: HTTP endpoints of other systems subscribe to topics, and operators see the deliveries.

-- `webhook`: a row is a subscription; `document` is its JSON.
CREATE TABLE webhook (id uuid PRIMARY KEY, version bigint NOT NULL, document text NOT NULL);
-- `webhook_delivery`: a row is one of the latest deliveries of a webhook. A later delivery has a larger number.
CREATE TABLE webhook_delivery (
  webhook uuid NOT NULL REFERENCES webhook ON DELETE CASCADE, number bigint GENERATED ALWAYS AS IDENTITY, document text NOT NULL,
  PRIMARY KEY (webhook, number)
);
