//! Commands that print a document: configuration, schemas, OpenAPI, completions, manual pages.
use std::path::Path;

use app::contract::{self, LATEST, READABLE_MIN};
use clap::{Args, Command, CommandFactory, Subcommand};
use clap_complete::Shell;
use posthaste::Environment;
use posthaste::config::{self, MaskedSetting};

use super::super::failure::Failure;
use super::super::help;
use super::super::output::format::OutputArguments;
use super::super::output::print_line;

#[derive(Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print every key with its value and the layer that set it; secrets are masked. Checks the configuration as `serve` does.
    Print {
        #[command(flatten)]
        output: OutputArguments,
    },
    /// Print a JSON Schema of the file that --config takes.
    Schema,
}

pub(crate) fn config(file: Option<&Path>, environment: &Environment, command: &ConfigCommand) -> Result<u8, Failure> {
    match command {
        ConfigCommand::Print { output } => {
            posthaste::check_config(file, environment).into_valid()?;
            for MaskedSetting { key, value, origin } in config::masked_settings(file, environment)? {
                if output.is_json() {
                    print_line(&serde_json::json!({"key": key, "value": value, "origin": origin}).to_string())?;
                } else {
                    print_line(&format!("{key} = {}  # {origin}", toml_string(&value)))?;
                }
            }
        }
        ConfigCommand::Schema => print_line(&format!("{:#}", config::schema()))?,
    }
    Ok(0)
}

/// A basic string of TOML. JSON has the same escapes, and leaves only one character unescaped that TOML does not accept.
fn toml_string(text: &str) -> String {
    serde_json::json!(text).to_string().replace('\u{7f}', "\\u007f")
}

#[derive(Subcommand)]
pub(crate) enum SchemaCommand {
    /// Print the JSON Schema of the events' values, of this version and all earlier ones.
    Show {
        /// The version; by default the newest.
        #[arg(long, default_value_t = LATEST)]
        version: u32,
        /// Print the request body that registers it: POST it to REGISTRY/subjects/TOPIC-value/versions.
        #[arg(long)]
        registry: bool,
    },
}

pub(crate) fn schema(SchemaCommand::Show { version, registry }: &SchemaCommand) -> Result<u8, Failure> {
    let unknown = || Failure::new(format!("there is no version {version}; there are {READABLE_MIN} to {LATEST}"));
    let schema = contract::schema(*version).ok_or_else(unknown)?;
    print_line(&match registry {
        true => serde_json::json!({"schemaType": "JSON", "schema": schema.to_string()}).to_string(),
        false => format!("{schema:#}"),
    })?;
    Ok(0)
}

pub(crate) fn openapi() -> Result<u8, Failure> {
    print_line(&api::openapi_json())?;
    Ok(0)
}

#[derive(Args)]
pub(crate) struct CompletionArguments {
    /// The shell; `man` prints the manual pages of the program and of all its commands.
    #[arg(value_parser = ["bash", "elvish", "fish", "powershell", "zsh", "man"])]
    shell: String,
}

pub(crate) fn completions<A: CommandFactory>(arguments: &CompletionArguments) -> Result<u8, Failure> {
    let mut command = A::command();
    let mut text = Vec::new();
    match arguments.shell.parse::<Shell>() {
        Ok(shell) => clap_complete::generate(shell, &mut command, "posthaste", &mut text),
        Err(_) => {
            // Otherwise each command has a page for its `help`.
            let mut command = command.disable_help_subcommand(true);
            command.build();
            manual(&command, &mut text)?;
        }
    }
    print_line(String::from_utf8_lossy(&text).trim_end())?;
    Ok(0)
}

/// The page of a command, then those of its subcommands: pages refer to each other, and options are on the subcommands' pages.
fn manual(command: &Command, text: &mut Vec<u8>) -> std::io::Result<()> {
    let page = clap_mangen::Man::new(command.clone());
    page.render_title(text)?;
    page.render_name_section(text)?;
    page.render_synopsis_section(text)?;
    page.render_description_section(text)?;
    page.render_options_section(text)?;
    if command.has_subcommands() {
        page.render_subcommands_section(text)?;
    }
    let name = command.get_display_name().unwrap_or(command.get_name());
    text.extend(help::manual_sections(name).into_bytes());
    // The page of a command has no version of its own.
    if command.get_version().is_some() {
        page.render_version_section(text)?;
    }
    command.get_subcommands().filter(|command| !command.is_hide_set()).try_for_each(|command| manual(command, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_values_are_read_back_unchanged() {
        for text in ["/data", "C:\\data \"x\"", "a\u{200b}\u{1}\u{7f}\u{85}\n\té", ""] {
            let read: toml::Table = toml::from_str(&format!("key = {}", toml_string(text))).expect("TOML");
            assert_eq!(read["key"].as_str(), Some(text));
        }
    }
}
