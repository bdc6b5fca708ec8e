-- The same by the function that writers in other languages call.
\set key random(1, 100000)
SELECT posthaste.publish(topic => 'customers', key => 'customer-' || :key, type => 'CustomerMoved',
  payload => convert_to('{"customer": "7", "street": "Main Street 12"}', 'UTF8'));
