-- Why: endpoints of other systems subscribe to topics, and operators see what was delivered to them.
CREATE TABLE webhook (id uuid PRIMARY KEY, version bigint NOT NULL, document text NOT NULL);
-- The latest deliveries of each webhook; the numbers grow.
CREATE TABLE webhook_delivery (
  webhook uuid NOT NULL REFERENCES webhook ON DELETE CASCADE, number bigint GENERATED ALWAYS AS IDENTITY, document text NOT NULL,
  PRIMARY KEY (webhook, number)
);
