-- A plain INSERT, one transaction each.
\set key random(1, 100000)
INSERT INTO bench_bare (topic, key, type, payload)
  VALUES ('customers', 'customer-' || :key, 'CustomerMoved', convert_to('{"customer": "7", "street": "Main Street 12"}', 'UTF8'));
