//! `adopt`: publishes the rows that another service inserts into an outbox table of its own.
use posthaste::{AdoptMode, Config, TableAdoption, adopt_table, adoption_warning};
use serde_json::json;

use super::super::failure::Failure;
use super::super::output::format::OutputArguments;
use super::super::output::progress::spinner;
use super::super::output::{print_line, print_message};
use super::super::runtime::block_on;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The table, with its schema where the search path does not have it.
    #[arg(long)]
    table: String,
    /// The topic of an event; ${routedByValue} stands for the value of the column --route.
    #[arg(long, default_value = "outbox.event.${routedByValue}")]
    topic: String,
    /// Column with the id of the event.
    #[arg(long, value_name = "COLUMN", default_value = "id")]
    id: String,
    /// Column with the key, by which events keep their order.
    #[arg(long, value_name = "COLUMN", default_value = "aggregateid")]
    key: String,
    /// Column with the type of the event; a table without it has the value of --route as the type.
    #[arg(long = "type", value_name = "COLUMN", default_value = "type")]
    kind: String,
    /// Column whose value selects the topic.
    #[arg(long, value_name = "COLUMN", default_value = "aggregatetype")]
    route: String,
    /// Column with the value: json, jsonb, text, varchar or bytea.
    #[arg(long, value_name = "COLUMN", default_value = "payload")]
    payload: String,
    /// A column that becomes a header, under its own name or another one. May be repeated.
    #[arg(long = "header", value_name = "COLUMN[=NAME]")]
    headers: Vec<String>,
    /// Media type of the values [default: application/json, of bytea application/octet-stream].
    #[arg(long)]
    content_type: Option<String>,
    /// Stop publishing the table's rows.
    #[arg(long)]
    release: bool,
    /// Print the statements and change nothing.
    #[arg(long, conflicts_with = "release")]
    dry_run: bool,
    #[command(flatten)]
    output: OutputArguments,
}

impl Arguments {
    fn mode(&self) -> AdoptMode {
        match (self.dry_run, self.release) {
            (true, _) => AdoptMode::DryRun,
            (false, true) => AdoptMode::Release,
            (false, false) => AdoptMode::Adopt,
        }
    }

    fn adoption(&self) -> TableAdoption {
        let header = |text: &String| match text.split_once('=') {
            Some((column, name)) => (column.to_owned(), name.to_owned()),
            None => (text.clone(), text.clone()),
        };
        TableAdoption {
            table: self.table.clone(),
            topic: self.topic.clone(),
            id: self.id.clone(),
            key: self.key.clone(),
            event_type: self.kind.clone(),
            route: self.route.clone(),
            payload: self.payload.clone(),
            headers: self.headers.iter().map(header).collect(),
            content_type: self.content_type.clone(),
        }
    }
}

pub(crate) fn adopt(config: &Config, arguments: &Arguments) -> Result<u8, Failure> {
    let mode = arguments.mode();
    let progress = spinner("changing the table's trigger");
    let table = &arguments.table;
    let result = block_on(async {
        // Before the table is adopted: an error afterwards would report a failure that did not happen.
        let warning = if arguments.release { None } else { adoption_warning(config, table).await? };
        let statements = adopt_table(config, arguments.adoption(), mode).await.map_err(Failure::from)?;
        Ok::<_, Failure>((statements, warning))
    });
    progress.finish_and_clear();
    let (statements, warning) = result?;
    if let Some(warning) = warning {
        print_message(format_args!("posthaste: warning: {warning}"));
    }
    if arguments.output.is_json() {
        let adopted = mode == AdoptMode::Adopt;
        print_line(
            &json!({"table": table, "adopted": adopted, "dryRun": arguments.dry_run, "statements": statements})
                .to_string(),
        )?;
        return Ok(0);
    }
    match mode {
        AdoptMode::DryRun => statements.iter().try_for_each(|statement| print_line(&format!("{statement};")))?,
        AdoptMode::Adopt => print_message(format_args!(
            "{table} is adopted: rows that are inserted from now on are published to {}",
            arguments.topic
        )),
        AdoptMode::Release => print_message(format_args!("{table} is released: its rows are no longer published")),
    }
    Ok(0)
}
