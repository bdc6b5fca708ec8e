"""A customer moves: the table and the event change together, or neither does."""
import sys

import psycopg
from psycopg.types.json import Jsonb

with psycopg.connect(sys.argv[1]) as connection:  # one transaction; it commits at the end of the block
    connection.execute("CREATE TABLE IF NOT EXISTS customer (id text PRIMARY KEY, street text NOT NULL)")
    connection.execute(
        "INSERT INTO customer VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET street = excluded.street",
        ("python-1", "Main Street 12"),
    )
    event_id = connection.execute(
        "SELECT posthaste.publish(%s::text, %s::text, %s::text, %s::jsonb, headers => %s::jsonb)",
        ("customers", "python-1", "CustomerMoved", Jsonb({"customer": "python-1"}), Jsonb({"tenant": "blue"})),
    ).fetchone()[0]
    print("published", event_id)
