-- An event for each of 100,000 keys in one transaction.
SELECT cardinality(posthaste.publish_all(array_agg('customers'::text), array_agg('bulk-' || n), array_agg('CustomerMoved'::text),
  array_agg(convert_to('{"customer": "7", "street": "Main Street 12"}', 'UTF8')))) FROM generate_series(1, 100000) AS n;
