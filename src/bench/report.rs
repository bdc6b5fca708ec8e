//! Figures as text or JSON lines on stdout; a reader that closed the pipe ends the program.
use std::io::{ErrorKind, Write, stdout};

use serde_json::{Value, json};

use crate::error::Error;

/// Form of the figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Text,
    JsonLines,
}

/// Prints figures and progress.
pub(crate) struct Reporter {
    style: Style,
}

impl Reporter {
    pub(crate) fn new(style: Style) -> Self {
        Self { style }
    }

    /// Prints the figures of one scenario.
    pub(crate) fn report(&self, scenario: &str, figures: &Value) -> Result<(), Error> {
        if self.style == Style::JsonLines {
            return print_line(&json!({"bench": scenario, "figures": figures}).to_string());
        }
        print_line(scenario)?;
        for (name, value) in figures.as_object().into_iter().flatten() {
            print_line(&format!("  {name}: {value}"))?;
        }
        Ok(())
    }

    /// Prints on stderr what is measured now.
    pub(crate) fn progress(&self, step: &str) {
        eprintln!("bench: {step}");
    }
}

fn print_line(text: &str) -> Result<(), Error> {
    match writeln!(stdout().lock(), "{text}") {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        written => written.map_err(Error::from),
    }
}
