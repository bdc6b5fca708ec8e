//! Adopts an outbox table of another service: a trigger publishes each row that is inserted, and neither table nor writers change. The
//! columns and their defaults are those of Debezium's outbox event router:
//! <https://debezium.io/documentation/reference/stable/transformations/outbox-event-router.html>.
use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use crate::connection::connector::Connector;
use crate::connection::session::SYNTAX_SETTINGS;
use crate::publish::adopt_error::AdoptError;
use crate::publish::new_event::{EventRefusal, NewEvent};
use crate::publish::table_change;
use crate::publish::target_table::{AdoptedColumn, PublishFunction, TargetTable};
use crate::publish::trigger_function::{self, ROUTE, literal};
use crate::store::options::Options;

/// Mapping of the columns of a table to the events that its rows become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdoptedTable {
    /// The table, with its schema where the search path does not have it.
    pub table: String,
    /// The topic of an event; `${routedByValue}` stands for the value of `route`.
    pub topic: String,
    /// Column with the id of the event.
    pub id: String,
    /// Column with the key of the record.
    pub key: String,
    /// Column with the type of the event. A table without it has the value of `route` as the type.
    pub event_type: String,
    /// Column whose value selects the topic.
    pub route: String,
    /// Column with the value of the record.
    pub payload: String,
    /// Columns that become headers, each with the header's name.
    pub headers: Vec<(String, String)>,
    /// Media type of the values; by default `application/json`, and `application/octet-stream` where the column is `bytea`.
    pub content_type: Option<String>,
}

impl Default for AdoptedTable {
    fn default() -> Self {
        Self {
            table: "outbox".into(),
            topic: format!("outbox.event.{ROUTE}"),
            id: "id".into(),
            key: "aggregateid".into(),
            event_type: "type".into(),
            route: "aggregatetype".into(),
            payload: "payload".into(),
            headers: Vec::new(),
            content_type: None,
        }
    }
}

/// The statements that adopt the table, in their order; [`adopt`] runs them in one transaction.
///
/// # Errors
/// [`AdoptError`] names the option, the right or the system to correct.
pub async fn adoption_statements(options: &Options, adoption: &AdoptedTable) -> Result<Vec<String>, AdoptError> {
    let connection = Connector::new(Arc::new(options.clone()))?.connect("adopt").await?;
    read(&connection.client, plan(&connection.client, adoption)).await.map(|(_, statements)| statements)
}

/// Adopts the table, or changes how it was adopted. Rows that it has already are not published. Not cancel-safe: a dropped call
/// may still commit.
///
/// # Errors
/// [`AdoptError`] names the option, the right or the system to correct.
pub async fn adopt(options: &Options, adoption: &AdoptedTable) -> Result<Vec<String>, AdoptError> {
    let connection = Connector::new(Arc::new(options.clone()))?.connect("adopt").await?;
    let (table, statements) = read(&connection.client, plan(&connection.client, adoption)).await?;
    run(&connection.client, &table.name, &statements, options.adopt_timeout).await?;
    Ok(statements)
}

/// Ends the adoption of a table: its rows are no longer published. Changes nothing where the table is not adopted. Returns the statements.
/// Not cancel-safe: a dropped call may still commit.
///
/// # Errors
/// [`AdoptError`] names the option, the right or the system to correct.
pub async fn release_adopted(options: &Options, table: &str) -> Result<Vec<String>, AdoptError> {
    let connection = Connector::new(Arc::new(options.clone()))?.connect("adopt").await?;
    let table = read(&connection.client, TargetTable::find(&connection.client, table)).await?;
    let mut statements = vec![format!("DROP TRIGGER IF EXISTS posthaste_adopted ON {}", table.name)];
    if !table.function_is_shared {
        statements.push(format!("DROP FUNCTION IF EXISTS {}()", table.function));
    }
    run(&connection.client, &table.name, &statements, options.adopt_timeout).await?;
    Ok(statements)
}

/// Runs queries in one transaction, whose settings are ours behind a pooler too. After an error the connection ends, and the transaction with it.
async fn read<T>(client: &Client, queries: impl Future<Output = Result<T, AdoptError>>) -> Result<T, AdoptError> {
    client.batch_execute(&format!("BEGIN; {SYNTAX_SETTINGS}")).await?;
    let result = queries.await?;
    client.batch_execute("COMMIT").await?;
    Ok(result)
}

async fn run(client: &Client, table: &str, statements: &[String], limit: Duration) -> Result<(), AdoptError> {
    let Err(error) = table_change::apply(client, table, statements, limit).await else { return Ok(()) };
    if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) {
        return Err(AdoptError::InUse { table: table.to_owned(), users: table_change::users(client, table).await? });
    }
    Err(AdoptError::of_statement(error, table))
}

async fn plan(client: &Client, adoption: &AdoptedTable) -> Result<(TargetTable, Vec<String>), AdoptError> {
    check_event(adoption).map_err(AdoptError::Refused)?;
    let table = TargetTable::find(client, &adoption.table).await?;
    let publish = table.publish_function(&adoption.id);
    table.check_owner(client, publish).await?;
    if table.internal_topics.contains(&adoption.topic) {
        return Err(AdoptError::Refused(EventRefusal::InternalTopic(adoption.topic.clone())));
    }
    let route = table.text(&adoption.route, "route")?;
    let lacks_event_type =
        adoption.event_type == AdoptedTable::default().event_type && !table.columns.contains_key(&adoption.event_type);
    let type_column = if lacks_event_type { &adoption.route } else { &adoption.event_type };
    let (payload, content_type) = payload(&table, adoption)?;
    let mut arguments = vec![
        trigger_function::topic(&adoption.topic, route),
        table.text(&adoption.key, "key")?.to_owned(),
        table.text(type_column, "type")?.to_owned(),
        payload,
        headers(&table, &adoption.headers)?,
        literal(&content_type),
        event_id(&table, &adoption.id)?,
    ];
    if publish == PublishFunction::DerivedId {
        arguments.push(trigger_function::id_is_derived(table.text(&adoption.id, "id")?));
    }
    let as_text = [&adoption.id, &adoption.key, &adoption.route, type_column].into_iter();
    let as_text: BTreeSet<_> = as_text.chain(adoption.headers.iter().map(|(column, _)| column)).collect();
    let settings = table.output_settings(&as_text);
    let type_check = table.type_check(&as_text.into_iter().chain([&adoption.payload]).collect());
    let (function, publish, name) = (&table.function, table.publish(publish), &table.name);
    let arguments = arguments.join(", ");
    // Not between dollar quotes, which the name of a column's type may contain.
    let body = literal(&format!(" BEGIN {type_check}; PERFORM {publish}({arguments}); RETURN NULL; END "));
    let statements = vec![
        format!(
            "CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER \
             SET search_path = pg_catalog, pg_temp{settings} AS {body}"
        ),
        // A trigger fires without this right. With it, any role could publish by a trigger on a table of its own.
        format!("REVOKE ALL ON FUNCTION {function}() FROM PUBLIC"),
        // OR REPLACE needs the right TRIGGER only, as the first adoption does; DROP TRIGGER needs the ownership of the table.
        format!(
            "CREATE OR REPLACE TRIGGER posthaste_adopted AFTER INSERT ON {name} FOR EACH ROW EXECUTE FUNCTION {function}()"
        ),
    ];
    Ok((table, statements))
}

/// Checks what is the same in every row, by an event whose other values are legal: the server refuses the same.
fn check_event(adoption: &AdoptedTable) -> Result<(), EventRefusal> {
    let topic = adoption.topic.replace(ROUTE, "x");
    let mut event = NewEvent::new(&topic, "x", "x", b"");
    for (_, name) in &adoption.headers {
        event = event.header(name, "");
    }
    if let Some(content_type) = &adoption.content_type {
        event = event.content_type(content_type);
    }
    event.check()
}

/// The value of a row as bytes, and its media type. A NULL is an empty value.
fn payload(table: &TargetTable, adoption: &AdoptedTable) -> Result<(String, String), AdoptError> {
    let AdoptedColumn { kind, built_in, value_expression, text_expression, .. } =
        table.column(&adoption.payload, "payload")?;
    let (value, usual) = match &**kind {
        foreign if !built_in => return Err(AdoptError::PayloadType(foreign.to_owned())),
        "bytea" => (format!("coalesce({value_expression}, ''::bytea)"), "application/octet-stream"),
        "json" | "jsonb" | "text" | "character varying" | "character" => {
            (format!("convert_to(coalesce({text_expression}, ''), 'UTF8')"), "application/json")
        }
        other => return Err(AdoptError::PayloadType(other.to_owned())),
    };
    Ok((value, adoption.content_type.clone().unwrap_or_else(|| usual.to_owned())))
}

/// The headers of a row: a NULL gives none.
fn headers(table: &TargetTable, headers: &[(String, String)]) -> Result<String, AdoptError> {
    if headers.is_empty() {
        return Ok("NULL".into());
    }
    let mut pairs = Vec::new();
    for (column, name) in headers {
        pairs.push(format!("{}, {}", literal(name), table.text(column, "header")?));
    }
    Ok(format!("jsonb_strip_nulls(jsonb_build_object({}))", pairs.join(", ")))
}

/// The id of a row: a UUID as it is, of everything else one that is derived from the table and the id.
fn event_id(table: &TargetTable, column: &str) -> Result<String, AdoptError> {
    let AdoptedColumn { value_expression, text_expression, .. } = table.column(column, "id")?;
    Ok(match table.publish_function(column) {
        PublishFunction::AnyEvent => value_expression.clone(),
        PublishFunction::DerivedId => trigger_function::derived_id(&table.own_schema, &table.name, text_expression),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_with_which_each_insert_would_fail_are_refused() {
        let with_header = |name: &str| AdoptedTable { headers: vec![("c".into(), name.into())], ..Default::default() };
        let with_topic = |topic: &str| AdoptedTable { topic: topic.into(), ..Default::default() };
        let refused = [
            with_header("ce_tenant"),
            with_header("content-type"),
            with_header("a b"),
            with_topic("my topic.${routedByValue}"),
            with_topic(""),
            AdoptedTable { content_type: Some("ä".into()), ..Default::default() },
        ];

        for adoption in refused {
            assert!(check_event(&adoption).is_err(), "{adoption:?}");
        }
        for adoption in [with_header("tenant"), with_header("traceparent"), with_topic("${routedByValue}")] {
            assert_eq!(check_event(&adoption), Ok(()), "{adoption:?}");
        }
    }
}
