//! Asks an operator at a terminal for confirmation before a command changes something; `--yes` skips the question.
use std::io::{BufRead, IsTerminal, Write, stderr, stdin};

use super::failure::Failure;
use super::output::format::OutputArguments;

/// The options of every redrive, of parked rows and of dead letters.
#[derive(clap::Args)]
pub(crate) struct RedriveOptions {
    /// Count what matches, list the first ones, and change nothing.
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Most of them in a second; without it, as fast as they are answered.
    #[arg(long, value_name = "PER_SECOND", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) rate: Option<u32>,
    /// Do not ask for confirmation; required without a terminal.
    #[arg(short, long)]
    pub(super) yes: bool,
    #[command(flatten)]
    pub(super) output: OutputArguments,
}

/// Continues after a yes. Without a terminal to ask at, the command fails.
pub(super) fn require(yes: bool, question: &str) -> Result<(), Failure> {
    if yes {
        Ok(())
    } else if is_interactive() {
        ask(question, &mut stdin().lock(), &mut stderr().lock())
    } else {
        Err(Failure::new("nothing was changed; repeat with --yes to do it"))
    }
}

/// Asks only at a terminal. For commands that name the one row they change, which scripts run without `--yes`.
pub(super) fn require_if_interactive(yes: bool, question: &str) -> Result<(), Failure> {
    require(yes || !is_interactive(), question)
}

/// Stdout may be data for another program, so the question goes to stderr.
fn is_interactive() -> bool {
    stdin().is_terminal() && stderr().is_terminal()
}

fn ask(question: &str, input: &mut impl BufRead, output: &mut impl Write) -> Result<(), Failure> {
    write!(output, "{question} [y/N] ")?;
    output.flush()?;
    let mut reply = String::new();
    input.read_line(&mut reply)?;
    let yes = ["y", "yes"].iter().any(|yes| reply.trim().eq_ignore_ascii_case(yes));
    if yes { Ok(()) } else { Err(Failure::new("nothing was changed")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_y_and_yes_confirm() {
        let cases = [
            ("y\n", true),
            ("yes\n", true),
            (" Y \n", true),
            ("n\n", false),
            ("\n", false),
            ("", false),
            ("yep\n", false),
        ];
        for (reply, confirmed) in cases {
            let mut output = Vec::new();
            let result = ask("Retry 3 rows?", &mut reply.as_bytes(), &mut output);
            assert_eq!(result.is_ok(), confirmed, "{reply:?}");
            assert_eq!(String::from_utf8_lossy(&output), "Retry 3 rows? [y/N] ");
        }
    }
}
