//! Whether an operator wants what a command is about to do. `--yes` says so beforehand; whoever sits at a terminal is asked.
use std::io::{BufRead, IsTerminal, Write, stderr, stdin};

use super::Failure;

/// What every redrive is told, of parked rows and of dead letters alike.
#[derive(clap::Args)]
pub(crate) struct Terms {
    /// Say how many match and change nothing.
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Do it without asking.
    #[arg(long)]
    pub(super) yes: bool,
    /// Why; kept with what was done.
    #[arg(long, default_value = "")]
    pub(super) reason: String,
    /// What was done, as a JSON object.
    #[arg(long)]
    pub(super) json: bool,
}

/// Goes on after a yes. Where nobody can be asked, nothing is done.
pub(super) fn given(yes: bool, question: &str) -> Result<(), Failure> {
    if yes {
        Ok(())
    } else if somebody_is_there() {
        put(question, &mut stdin().lock(), &mut stderr().lock())
    } else {
        Err(Failure::new("nothing was changed; repeat with --yes to do it"))
    }
}

/// Goes on unless somebody says no: for what names the one row that it changes, so that scripts always could do without `--yes`.
pub(super) fn not_denied(yes: bool, question: &str) -> Result<(), Failure> {
    given(yes || !somebody_is_there(), question)
}

/// The question goes to stderr, because stdout may be data for another program.
fn somebody_is_there() -> bool {
    stdin().is_terminal() && stderr().is_terminal()
}

fn put(question: &str, answers: &mut impl BufRead, shown: &mut impl Write) -> Result<(), Failure> {
    write!(shown, "{question} [y/N] ")?;
    shown.flush()?;
    let mut answer = String::new();
    answers.read_line(&mut answer)?;
    let yes = ["y", "yes"].iter().any(|yes| answer.trim().eq_ignore_ascii_case(yes));
    if yes { Ok(()) } else { Err(Failure::new("nothing was changed")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_yes_is_a_yes() {
        let cases = [
            ("y\n", true),
            ("yes\n", true),
            (" Y \n", true),
            ("n\n", false),
            ("\n", false),
            ("", false),
            ("yep\n", false),
        ];
        for (answer, yes) in cases {
            let mut shown = Vec::new();
            let put = put("Send 3 rows on their way?", &mut answer.as_bytes(), &mut shown);
            assert_eq!(put.is_ok(), yes, "{answer:?}");
            assert_eq!(String::from_utf8_lossy(&shown), "Send 3 rows on their way? [y/N] ");
        }
    }
}
