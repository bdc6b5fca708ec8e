//! Figures as text or JSON lines on stdout. The run ends when their reader has closed the pipe.
use std::io::{ErrorKind, Write, stderr, stdout};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use crate::error::Error;

/// Interval between two frames of the spinner.
const TICK: Duration = Duration::from_millis(100);

/// The format in which figures are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportFormat {
    /// A line for each figure, for people.
    Text,
    /// A JSON object for each scenario, on a line of its own.
    JsonLines,
}

/// Prints figures and progress.
pub(crate) struct Reporter {
    /// `bench` or `chaos`.
    command: &'static str,
    format: ReportFormat,
    /// The step that is measured now, on a terminal.
    step: ProgressBar,
}

impl Reporter {
    pub(crate) fn new(command: &'static str, format: ReportFormat) -> Self {
        let step = ProgressBar::new_spinner();
        // The template is a constant, so it is valid; otherwise the spinner has its default form.
        if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix}: {msg}, {elapsed}") {
            step.set_style(style);
        }
        step.set_prefix(command);
        Self { command, format, step }
    }

    /// Prints the figures of one scenario.
    pub(crate) fn report(&self, scenario: &str, figures: &Value) -> Result<(), Error> {
        self.step.suspend(|| self.print(scenario, figures))
    }

    fn print(&self, scenario: &str, figures: &Value) -> Result<(), Error> {
        if self.format == ReportFormat::JsonLines {
            return print_line(&json!({(self.command): scenario, "figures": figures}).to_string());
        }
        print_line(scenario)?;
        for (name, value) in figures.as_object().into_iter().flatten() {
            print_line(&format!("  {name}: {value}"))?;
        }
        Ok(())
    }

    /// Shows the current step on stderr: a line for each step, or one that changes on a terminal.
    pub(crate) fn progress(&self, step: &str) {
        if self.step.is_hidden() {
            // A step that cannot be shown changes no figure.
            let _ = writeln!(stderr().lock(), "{}: {step}", self.command);
            return;
        }
        self.step.reset_elapsed();
        self.step.set_message(step.to_owned());
        self.step.enable_steady_tick(TICK);
    }
}

fn print_line(text: &str) -> Result<(), Error> {
    match writeln!(stdout().lock(), "{text}") {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Error::output_closed()),
        written => written.map_err(Error::from),
    }
}
