-- The baseline of `posthaste bench publish`: a table with the same texts and nothing else.
CREATE TABLE IF NOT EXISTS bench_bare (id bigserial PRIMARY KEY, topic text, key text, type text, payload bytea);
