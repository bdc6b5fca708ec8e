//! `migrate`: brings the store's schema up to date and creates missing topics, or shows their state.
use std::path::Path;

use app::contract::rfc3339;
use clap::Args;
use posthaste::config::BrokerKind;
use posthaste::{Config, Migration, RedisInstallation, SchemaState};
use serde_json::json;
use telemetry::logging;

use super::super::failure::Failure;
use super::super::output::format::OutputArguments;
use super::super::output::progress::spinner;
use super::super::output::{pluralize, print_line, print_message};
use super::super::runtime::block_on;

#[derive(Args)]
pub(crate) struct Arguments {
    /// up (default) applies missing migrations and creates missing topics; status only shows the state. Exit 1 if a newer program wrote the store.
    #[arg(value_parser = ["up", "status"], default_value = "up")]
    verb: String,
    /// Show what would be done.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    output: OutputArguments,
}

impl Arguments {
    fn is_read_only(&self) -> bool {
        self.dry_run || self.verb == "status"
    }
}

pub(crate) fn migrate(config: &Config, arguments: &Arguments) -> Result<u8, Failure> {
    block_on(async {
        if arguments.is_read_only() {
            let code = report(posthaste::schema_state(config).await?, arguments)?;
            if creates_topics(config) {
                print_message(format_args!("`migrate up` also creates missing topics"));
            }
            return Ok(code);
        }
        logging::init_brief_on_stderr("warn").map_err(Failure::new)?;
        let progress = spinner("applying migrations");
        let schema = posthaste::migrate(config).await;
        progress.finish_and_clear();
        let code = report(schema?, arguments)?;
        if let Some(adopted) = posthaste::check_adopted_tables(config).await.filter(|check| !check.ok) {
            print_message(format_args!("{}", adopted.detail));
        }
        // The schema is reported before the broker is used: if the broker fails, the operator still sees the applied migrations.
        for name in posthaste::create_missing_topics(config).await? {
            print_message(format_args!("topic {name} was created"));
        }
        if creates_topics(config) {
            print_message(format_args!("every topic exists"));
        }
        Ok(code)
    })
}

fn creates_topics(config: &Config) -> bool {
    config.broker.kind == BrokerKind::Kafka && config.broker.create_topics
}

/// Reports the state of the schema, or the change that was made, and returns the exit code.
fn report(schema: SchemaState, arguments: &Arguments) -> Result<u8, Failure> {
    match schema {
        SchemaState::Migrations(migrations) => report_migrations(migrations, arguments),
        SchemaState::EmbeddedFile { folder, version, newest } => report_file(&folder, version, newest, arguments),
        SchemaState::RedisInstallation(installation) => report_installation(installation, arguments),
    }
}

fn report_migrations(mut migrations: Vec<Migration>, arguments: &Arguments) -> Result<u8, Failure> {
    if arguments.dry_run {
        migrations.retain(|migration| migration.applied_at.is_none());
    }
    for migration in &migrations {
        print_line(&migration_line(migration, arguments))?;
    }
    if migrations.is_empty() {
        print_message(format_args!("nothing to do: the schema is up to date"));
    } else if !arguments.is_read_only() {
        let applied = pluralize(migrations.len() as u64, "migration was", "migrations were");
        print_message(format_args!("the schema is up to date now: {applied} applied"));
    }
    Ok(0)
}

fn migration_line(migration: &Migration, arguments: &Arguments) -> String {
    let Migration { version, name, applied_at } = migration;
    let applied_at = applied_at.map(rfc3339);
    if arguments.output.is_json() {
        return json!({"version": version, "name": name, "appliedAt": applied_at}).to_string();
    }
    match applied_at {
        _ if !arguments.is_read_only() => format!("V{version} {name}  applied"),
        Some(at) => format!("V{version} {name}  applied {at}"),
        None if arguments.dry_run => format!("V{version} {name}  would be applied"),
        None => format!("V{version} {name}  pending: posthaste migrate up, with this configuration"),
    }
}

fn report_file(folder: &Path, version: Option<u32>, newest: u32, arguments: &Arguments) -> Result<u8, Failure> {
    let shown = folder.display();
    if arguments.output.is_json() {
        let document = json!({"store": "embedded", "path": shown.to_string(), "version": version, "known": newest});
        print_line(&document.to_string())?;
    }
    let sentence = match version {
        None => {
            format!(
                "there is no store in {shown} yet: the service creates it at its first start, with schema version {newest}"
            )
        }
        Some(newer) if newer > newest => {
            return Err(Failure::new(format!(
                "the store in {shown} has schema version {newer}, this program supports at most {newest}: run the newer program"
            )));
        }
        Some(version) if version == newest => format!("the store in {shown} has schema version {version}: up to date"),
        Some(older) => format!(
            "the store in {shown} has schema version {older}: the service migrates it to {newest} at its next start"
        ),
    };
    report_sentence(&sentence, arguments)
}

fn report_installation(installation: RedisInstallation, arguments: &Arguments) -> Result<u8, Failure> {
    if arguments.output.is_json() {
        let (existed, created) =
            (installation == RedisInstallation::Existed, installation == RedisInstallation::Created);
        print_line(&json!({"store": "redis", "installed": existed, "created": created}).to_string())?;
    }
    report_sentence(
        match installation {
            RedisInstallation::Existed => "a Redis store has no migrations, and its installation exists: nothing to do",
            RedisInstallation::Created => "a Redis store has no migrations; its installation was created",
            RedisInstallation::Missing => {
                "a Redis store has no migrations; its installation does not exist yet: `migrate up` or the service's first start creates it"
            }
        },
        arguments,
    )
}

/// Prints the sentence to stdout if it is the command's only output; otherwise to stderr, as a message.
fn report_sentence(sentence: &str, arguments: &Arguments) -> Result<u8, Failure> {
    if arguments.is_read_only() && !arguments.output.is_json() {
        print_line(sentence)?;
    } else {
        print_message(format_args!("{sentence}"));
    }
    Ok(0)
}
