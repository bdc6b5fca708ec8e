//! The options that choose the format of a command's output.
use clap::ValueEnum;

/// The form in which a command prints its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// Tables and sentences, for people.
    Table,
    /// JSON, for programs; lists print one object a line.
    Json,
}

/// The format options that every command with data has.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct OutputArguments {
    /// The format of the output.
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "table")]
    output: OutputFormat,
    /// Print JSON, as `-o json`.
    #[arg(long)]
    json: bool,
}

impl OutputArguments {
    /// Whether the output is JSON.
    pub(crate) fn is_json(self) -> bool {
        self.json || self.output == OutputFormat::Json
    }
}
