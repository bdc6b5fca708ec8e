//! The table that is adopted, as the catalogues of the database describe it: its columns, and the function that its trigger calls.
use std::collections::{BTreeMap, BTreeSet};

use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};

use crate::connection::sql_value::SqlValue;
use crate::publish::adopt_error::AdoptError;
use crate::publish::{output_settings, trigger_function};

/// The function of a table: the one that its trigger calls, unless the trigger of another adopted table calls it as well; otherwise a new one that
/// no other table has. A table that was restored from a dump has another OID than the one in the name of its function. The last column: whether a
/// trigger of another table calls it.
const FUNCTION: &str =
    "WITH called AS (SELECT p.proname::text AS name, t.tgrelid = to_regclass($1) AS here, t.tgname = 'posthaste_adopted' AS adopted
       FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
       WHERE t.tgparentid = 0 AND starts_with(p.proname::text, 'outbox_adopted_')
         AND p.pronamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('installation'))),
     own AS (SELECT name FROM called WHERE here AND adopted AND name NOT IN (SELECT name FROM called WHERE adopted AND NOT here)),
     unused AS (SELECT n, concat('outbox_adopted_', to_regclass($1)::oid, CASE WHEN n > 1 THEN concat('_', n) END) AS name
       FROM generate_series(1, (SELECT count(*) + 1 FROM called)) n)
     SELECT quote_ident(f.name), f.name IN (SELECT name FROM called WHERE NOT here)
       FROM (SELECT name, 0 AS n FROM own UNION ALL SELECT name, n FROM unused WHERE name NOT IN (SELECT name FROM called WHERE NOT here)) f
       ORDER BY f.n LIMIT 1";

/// The function by which the trigger publishes a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PublishFunction {
    /// The one of all publishers: an event whose id exists is a repetition.
    AnyEvent,
    /// One that also refuses a derived id that belongs to another event.
    DerivedId,
}

/// A table of the database.
pub(crate) struct TargetTable {
    /// Schema and name, quoted.
    pub(crate) name: String,
    /// The function that publishes its rows, quoted with the schema of the installation.
    pub(crate) function: String,
    /// Whether the trigger of another table calls this function too.
    pub(crate) function_is_shared: bool,
    /// The schema of the installation, quoted.
    pub(crate) own_schema: String,
    /// The schema of the functions that publish, quoted.
    functions: String,
    /// Topics that only the service writes, as the service that started last stored them.
    pub(crate) internal_topics: Vec<String>,
    pub(crate) columns: BTreeMap<String, AdoptedColumn>,
    /// Per column the built-in types that are part of its type.
    part_types: BTreeMap<String, Vec<String>>,
}

/// A column, and how the trigger's function reads it.
pub(crate) struct AdoptedColumn {
    pub(crate) kind: String,
    /// Whether its type is PostgreSQL's own. Only a superuser can give such a type a user-defined cast to text.
    pub(crate) built_in: bool,
    pub(crate) value_expression: String,
    pub(crate) text_expression: String,
    /// The condition that its type has changed.
    type_has_changed: String,
}

impl AdoptedColumn {
    /// Reads a row of `outbox_columns_read`: the name of the column, and the column.
    fn read(row: &Row) -> Result<(String, Self), tokio_postgres::Error> {
        let column = Self {
            kind: row.try_get(1)?,
            built_in: row.try_get(2)?,
            value_expression: row.try_get(3)?,
            text_expression: row.try_get(4)?,
            type_has_changed: row.try_get(5)?,
        };
        Ok((row.try_get(0)?, column))
    }
}

impl TargetTable {
    pub(crate) async fn find(client: &Client, name: &str) -> Result<Self, AdoptError> {
        // The schema of the tables need not be the first of the search path: see `own_schema`.
        let functions =
            "SELECT quote_ident(i.functions), quote_ident(n.nspname), i.internal_topics FROM installation i, pg_class c
             JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass('installation')";
        let installation =
            client.query_typed_opt(functions, &[]).await.map_err(|error| AdoptError::of_statement(error, name))?;
        let installation = installation.ok_or(AdoptError::NotInstalled)?;
        let functions: Option<String> = installation.try_get(0)?;
        let own_schema: String = installation.try_get(1)?;
        let internal_topics = installation.try_get(2)?;
        let table = "SELECT format('%I.%I', n.nspname, c.relname), c.relname = 'outbox'
               AND c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('installation'))
             FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass($1) AND c.relkind IN ('r', 'p')";
        let found = client.query_typed_opt(table, &[(&name, Type::TEXT)]).await?;
        let found = found.ok_or_else(|| AdoptError::NoTable(name.to_owned()))?;
        let name: String = found.try_get(0)?;
        if found.try_get(1)? {
            return Err(AdoptError::OwnTable(name));
        }
        // Migration V16 has this function and rewrites earlier triggers' functions by it.
        let columns = format!(
            "SELECT name, type, built_in, value_expression, text_expression, type_has_changed
             FROM {own_schema}.outbox_columns_read(to_regclass($1))"
        );
        let columns = client.query_typed(&columns, &[(&name, Type::TEXT)]).await?;
        let part_types = client.query_typed(output_settings::PART_TYPES, &[(&name, Type::TEXT)]).await?;
        let function = client.query_typed_one(FUNCTION, &[(&name, Type::TEXT)]).await?;
        Ok(Self {
            function: format!("{own_schema}.{}", function.try_get::<_, String>(0)?),
            function_is_shared: function.try_get(1)?,
            name,
            own_schema,
            functions: functions.ok_or(AdoptError::NotInstalled)?,
            internal_topics,
            columns: columns.iter().map(AdoptedColumn::read).collect::<Result<_, _>>()?,
            part_types: part_types
                .iter()
                .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
                .collect::<Result<_, tokio_postgres::Error>>()?,
        })
    }

    /// The function by which the trigger publishes rows with this column as the id.
    pub(crate) fn publish_function(&self, id: &str) -> PublishFunction {
        match self.columns.get(id) {
            Some(column) if !column.built_in || column.kind != "uuid" => PublishFunction::DerivedId,
            Some(_) | None => PublishFunction::AnyEvent,
        }
    }

    /// Schema and name of a function that publishes, quoted.
    fn publish_parts(&self, function: PublishFunction) -> (&str, &'static str) {
        match function {
            PublishFunction::AnyEvent => (&self.functions, "publish"),
            PublishFunction::DerivedId => (&self.own_schema, "outbox_publish_adopted"),
        }
    }

    /// The name of a function that publishes, with its schema.
    pub(crate) fn publish(&self, function: PublishFunction) -> String {
        let (schema, name) = self.publish_parts(function);
        format!("{schema}.{name}")
    }

    /// Checks that the owner of the trigger's function, as which it runs, may publish.
    pub(crate) async fn check_owner(&self, client: &Client, function: PublishFunction) -> Result<(), AdoptError> {
        let (schema, name) = self.publish_parts(function);
        let own = format!("{}()", self.function);
        // Not by to_regprocedure, which fails for a role without USAGE on the schema.
        let may_publish = "SELECT o.rolname::text, has_schema_privilege(o.oid, n.oid, 'USAGE') AND has_function_privilege(o.oid, p.oid, 'EXECUTE')
             FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
             JOIN pg_roles o ON o.oid = coalesce((SELECT proowner FROM pg_proc WHERE oid = to_regprocedure($1)), current_user::regrole)
             WHERE quote_ident(n.nspname) = $2 AND p.proname = $3
               AND oidvectortypes(p.proargtypes) IN ('text, text, text, bytea, jsonb, text, uuid', 'text, text, text, bytea, jsonb, text, uuid, boolean')";
        let values: [SqlValue<'_>; 3] = [(&own, Type::TEXT), (&schema, Type::TEXT), (&name, Type::TEXT)];
        let found = client.query_typed_opt(may_publish, &values).await?;
        let found = found.ok_or(AdoptError::NotInstalled)?;
        if found.try_get(1)? { Ok(()) } else { Err(AdoptError::MayNotPublish { role: found.try_get(0)? }) }
    }

    pub(crate) fn column(&self, column: &str, purpose: &'static str) -> Result<&AdoptedColumn, AdoptError> {
        self.columns.get(column).ok_or_else(|| {
            let columns = self.columns.keys().cloned().collect();
            AdoptError::NoColumn { column: column.to_owned(), purpose, columns }
        })
    }

    /// The text of a column in the trigger's function.
    pub(crate) fn text(&self, column: &str, purpose: &'static str) -> Result<&str, AdoptError> {
        Ok(&self.column(column, purpose)?.text_expression)
    }

    /// The statement that refuses a row after one of these columns has got another type.
    pub(crate) fn type_check(&self, columns: &BTreeSet<&String>) -> String {
        let read = columns.iter().filter_map(|column| self.columns.get(*column));
        trigger_function::type_check(read.map(|column| &*column.type_has_changed))
    }

    /// The clauses of the trigger's function for the settings that change the texts of these columns.
    pub(crate) fn output_settings(&self, columns: &BTreeSet<&String>) -> String {
        let types = columns.iter().filter_map(|column| self.part_types.get(*column)).flatten();
        output_settings::clauses(&types.map(String::as_str).collect())
    }
}
