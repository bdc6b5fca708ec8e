// A customer moves: the table and the event change together, or neither does.
const { Client } = require("pg");

async function main(url) {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    await client.query("BEGIN");
    await client.query("CREATE TABLE IF NOT EXISTS customer (id text PRIMARY KEY, street text NOT NULL)");
    await client.query(
      "INSERT INTO customer VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET street = excluded.street",
      ["node-1", "Main Street 12"],
    );
    const { rows } = await client.query(
      "SELECT posthaste.publish($1::text, $2::text, $3::text, $4::jsonb, headers => $5::jsonb) AS id",
      ["customers", "node-1", "CustomerMoved", { customer: "node-1" }, { tenant: "blue" }],
    );
    await client.query("COMMIT");
    console.log("published", rows[0].id);
  } catch (error) {
    await client.query("ROLLBACK");
    throw error;
  } finally {
    await client.end();
  }
}

main(process.argv[2]).catch((error) => {
  console.error(error);
  process.exit(1);
});
