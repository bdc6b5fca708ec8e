//! The options that choose the format of a command's output.
use clap::ValueEnum;

/// The format in which a command prints its data.
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

impl OutputFormat {
    pub(crate) fn is_json(self) -> bool {
        self == OutputFormat::Json
    }
}

impl From<OutputFormat> for bench::ReportFormat {
    fn from(format: OutputFormat) -> Self {
        match format {
            OutputFormat::Table => bench::ReportFormat::Text,
            OutputFormat::Json => bench::ReportFormat::JsonLines,
        }
    }
}

impl OutputArguments {
    /// The format that `--output` or `--json` selects.
    pub(crate) fn format(self) -> OutputFormat {
        if self.json { OutputFormat::Json } else { self.output }
    }

    pub(crate) fn is_json(self) -> bool {
        self.format().is_json()
    }
}
