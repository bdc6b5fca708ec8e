//! The result of one check of `doctor`, and the line that sums all of them up.
use std::fmt::Display;
use std::time::Duration;

use serde_json::{Value, json};

use crate::cli::output::terminal::{TerminalFeatures, TextStyle};
use crate::cli::output::wrap::wrap;

/// Columns of `ok   ` and `BAD  `, below which a finding's further lines begin.
const INDENT: usize = 5;

/// The result of one check.
pub(super) struct Finding {
    pub(super) check: &'static str,
    pub(super) ok: bool,
    pub(super) detail: String,
    pub(super) latency: Option<Duration>,
    /// Whether an operator should know it although the check found no problem.
    pub(super) is_note: bool,
}

impl Finding {
    pub(super) fn new(check: &'static str, ok: bool, detail: impl Into<String>) -> Self {
        Self { check, ok, detail: detail.into(), latency: None, is_note: false }
    }

    /// The result of a check that could not be completed because of an error.
    pub(super) fn failed(check: &'static str, error: impl Display) -> Self {
        Self::new(check, false, error.to_string())
    }

    /// Information for an operator that is not a problem: it does not change the exit code.
    pub(super) fn note(check: &'static str, detail: impl Into<String>) -> Self {
        Self { is_note: true, ..Self::new(check, true, detail) }
    }

    pub(super) fn with_latency(self, latency: Duration) -> Self {
        Self { latency: Some(latency), ..self }
    }

    /// The finding as JSON; the latency is in milliseconds.
    pub(super) fn document(&self) -> Value {
        let latency = self.latency.map(|latency| latency.as_secs_f64() * 1e3);
        json!({"check": self.check, "ok": self.ok, "detail": self.detail, "latencyMs": latency})
    }

    /// The finding as text, broken between words.
    pub(super) fn line(&self, terminal: TerminalFeatures) -> String {
        let (sign, style) = match (self.ok, self.is_note) {
            (true, false) => ("ok", TextStyle::Success),
            (true, true) => ("note", TextStyle::Warning),
            (false, _) => ("BAD", TextStyle::Error),
        };
        // Texts of a server may contain control characters, which a terminal would obey.
        let detail = self.detail.replace(|c: char| c.is_control() && c != '\n', "\u{fffd}");
        let line = wrap(&format!("{sign:INDENT$}{}: {detail}", self.check), terminal.width, INDENT);
        line.replacen(sign, &terminal.styled(sign, style), 1)
    }
}

/// The number of checks, and of those that found a problem.
pub(super) fn summary(findings: &[Finding], terminal: TerminalFeatures) -> String {
    let checks = findings.len();
    match findings.iter().filter(|finding| !finding.ok).count() {
        0 => terminal.styled(&format!("{checks} checks, no problem"), TextStyle::Success),
        1 => terminal.styled(&format!("{checks} checks, 1 problem"), TextStyle::Error),
        problems => terminal.styled(&format!("{checks} checks, {problems} problems"), TextStyle::Error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_one_line_in_a_pipe_and_is_broken_between_words_on_a_terminal() {
        let finding = Finding::new("auth", false, "the development secret is public; set your own");
        let narrow = TerminalFeatures { width: Some(30), colour: false };
        let note = Finding::note("dead_letters", "2 wait");

        assert_eq!(finding.line(TerminalFeatures::PIPE), "BAD  auth: the development secret is public; set your own");
        assert_eq!(finding.line(narrow), "BAD  auth: the development\n     secret is public; set\n     your own");
        assert_eq!((note.line(TerminalFeatures::PIPE).as_str(), note.ok), ("note dead_letters: 2 wait", true));
    }

    #[test]
    fn the_last_line_counts_problems() {
        let finding = |ok| Finding::new("auth", ok, "");
        let cases = [
            (vec![finding(true), finding(true)], "2 checks, no problem"),
            (vec![finding(true), finding(false)], "2 checks, 1 problem"),
            (vec![finding(false), finding(false)], "2 checks, 2 problems"),
        ];
        for (findings, expected) in cases {
            assert_eq!(summary(&findings, TerminalFeatures::PIPE), expected);
        }
    }
}
