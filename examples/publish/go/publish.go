// A customer moves: the table and the event change together, or neither does.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
)

func main() {
	ctx := context.Background()
	connection, err := pgx.Connect(ctx, os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close(ctx)
	var id string
	err = pgx.BeginFunc(ctx, connection, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "CREATE TABLE IF NOT EXISTS customer (id text PRIMARY KEY, street text NOT NULL)"); err != nil {
			return err
		}
		change := "INSERT INTO customer VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET street = excluded.street"
		if _, err := tx.Exec(ctx, change, "go-1", "Main Street 12"); err != nil {
			return err
		}
		publish := "SELECT posthaste.publish($1::text, $2::text, $3::text, $4::jsonb, headers => $5::jsonb)::text"
		payload, headers := map[string]any{"customer": "go-1"}, map[string]any{"tenant": "blue"}
		return tx.QueryRow(ctx, publish, "customers", "go-1", "CustomerMoved", payload, headers).Scan(&id)
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("published", id)
}
