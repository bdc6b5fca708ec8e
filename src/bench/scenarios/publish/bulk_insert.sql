-- A row for each of 100,000 keys in one transaction.
INSERT INTO bench_bare (topic, key, type, payload)
  SELECT 'customers', 'bulk-' || n, 'CustomerMoved', convert_to('{"customer": "7", "street": "Main Street 12"}', 'UTF8')
  FROM generate_series(1, 100000) AS n;
