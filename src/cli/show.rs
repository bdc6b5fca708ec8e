//! Commands that only print: config, schemas, OpenAPI, completions, manual pages.
use std::path::Path;

use app::contract::{self, LATEST, READABLE_MIN};
use clap::{Args, Command, CommandFactory, Subcommand};
use clap_complete::Shell;
use posthaste::{Environment, config};

use super::{Failure, line};

#[derive(Subcommand)]
pub(crate) enum ConfigVerb {
    /// Every key with its value and where it comes from; secrets masked. Checks as `serve` does.
    Print {
        /// One JSON object a line.
        #[arg(long)]
        json: bool,
    },
    /// A JSON Schema of the file that --config takes.
    Schema,
}

pub(crate) fn config(file: Option<&Path>, environment: &Environment, verb: &ConfigVerb) -> Result<u8, Failure> {
    match verb {
        ConfigVerb::Print { json } => {
            for (key, value, origin) in config::masked(file, environment)? {
                if *json {
                    line(&serde_json::json!({"key": key, "value": value, "origin": origin}).to_string())?;
                } else {
                    line(&format!("{key} = {value:?}  # {origin}"))?;
                }
            }
        }
        ConfigVerb::Schema => line(&format!("{:#}", config::schema()))?,
    }
    Ok(0)
}

#[derive(Subcommand)]
pub(crate) enum SchemaVerb {
    /// The JSON Schema of the events' values, of this version and all before it.
    Show {
        /// Which; without it the newest.
        #[arg(long, default_value_t = LATEST)]
        version: u32,
        /// As the body that registers it: POST it to REGISTRY/subjects/TOPIC-value/versions.
        #[arg(long)]
        registry: bool,
    },
}

pub(crate) fn schema(SchemaVerb::Show { version, registry }: &SchemaVerb) -> Result<u8, Failure> {
    let none = || Failure::new(format!("there is no version {version}; there are {READABLE_MIN} to {LATEST}"));
    let schema = contract::schema(*version).ok_or_else(none)?;
    line(&match registry {
        true => serde_json::json!({"schemaType": "JSON", "schema": schema.to_string()}).to_string(),
        false => format!("{schema:#}"),
    })?;
    Ok(0)
}

pub(crate) fn openapi() -> Result<u8, Failure> {
    line(&api::openapi_json())?;
    Ok(0)
}

#[derive(Args)]
pub(crate) struct CompletionArguments {
    /// Which shell; `man` prints the manual pages, that of the program and then those of all its commands.
    #[arg(value_parser = ["bash", "elvish", "fish", "powershell", "zsh", "man"])]
    shell: String,
}

pub(crate) fn completions<A: CommandFactory>(arguments: &CompletionArguments) -> Result<u8, Failure> {
    let mut command = A::command();
    let mut text = Vec::new();
    match arguments.shell.parse::<Shell>() {
        Ok(shell) => clap_complete::generate(shell, &mut command, "posthaste", &mut text),
        Err(_) => {
            // Otherwise each command would have a page for its `help`.
            let mut command = command.disable_help_subcommand(true);
            command.build();
            manual(&command, &mut text)?;
        }
    }
    line(String::from_utf8_lossy(&text).trim_end())?;
    Ok(0)
}

/// The page of a command and then those of its own, because options stand there, and one page refers to another.
fn manual(command: &Command, text: &mut Vec<u8>) -> std::io::Result<()> {
    clap_mangen::Man::new(command.clone()).render(text)?;
    command.get_subcommands().filter(|verb| !verb.is_hide_set()).try_for_each(|verb| manual(verb, text))
}
