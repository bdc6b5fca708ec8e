//! The features of the terminal at stdout: width and colour.
use std::ffi::OsStr;
use std::io::{IsTerminal, stdout};

use clap::builder::styling::{AnsiColor, Color, Style};
use rustix::termios::tcgetwinsize;

/// Width and colour support of stdout, which may be a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TerminalFeatures {
    /// Columns of the terminal; `None` where lines are not wrapped, as in a pipe.
    pub(crate) width: Option<usize>,
    /// Whether colours are shown.
    pub(crate) colour: bool,
}

/// The style of a text by its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextStyle {
    /// The terminal's default colour.
    Plain,
    /// Done, or healthy: green.
    Success,
    /// In progress, or waiting without an operator's help: yellow.
    Warning,
    /// An operator must act: red.
    Error,
    /// Less important than the rest: dim.
    Dim,
    /// The heading of a part.
    Bold,
}

impl TerminalFeatures {
    /// Stdout that is a pipe: no colour, and no line is wrapped.
    #[cfg(test)]
    pub(crate) const PIPE: Self = Self { width: None, colour: false };

    /// Detects the features of this process's stdout, which NO_COLOR and TERM restrict.
    pub(crate) fn of_stdout() -> Self {
        let is_terminal = stdout().is_terminal();
        let variable = |name: &str| std::env::var_os(name);
        let colour = has_colour(is_terminal, variable("NO_COLOR").as_deref(), variable("TERM").as_deref());
        Self { width: if is_terminal { terminal_width() } else { None }, colour }
    }

    /// The text between the escape sequences of its style; unchanged where colours are not shown.
    pub(crate) fn styled(self, text: &str, style: TextStyle) -> String {
        match ansi_style(style) {
            Some(style) if self.colour => format!("{}{text}{}", style.render(), style.render_reset()),
            Some(_) | None => text.to_owned(),
        }
    }
}

/// The columns of the terminal at stdout, if it has a size.
fn terminal_width() -> Option<usize> {
    let size = tcgetwinsize(stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Colours are for terminals, unless NO_COLOR is set to a text (<https://no-color.org>) or the terminal has none.
fn has_colour(is_terminal: bool, no_color: Option<&OsStr>, term: Option<&OsStr>) -> bool {
    is_terminal && no_color.is_none_or(OsStr::is_empty) && term.is_none_or(|term| term != "dumb")
}

fn ansi_style(style: TextStyle) -> Option<Style> {
    let colour = |colour: AnsiColor| Some(Style::new().fg_color(Some(Color::Ansi(colour))));
    match style {
        TextStyle::Plain => None,
        TextStyle::Success => colour(AnsiColor::Green),
        TextStyle::Warning => colour(AnsiColor::Yellow),
        TextStyle::Error => colour(AnsiColor::Red),
        TextStyle::Dim => Some(Style::new().dimmed()),
        TextStyle::Bold => Some(Style::new().bold()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_needs_a_terminal_and_respects_no_color() {
        let cases = [
            (true, None, Some("xterm"), true),
            (true, None, None, true),
            (true, Some(""), Some("xterm"), true),
            (true, Some("1"), Some("xterm"), false),
            (true, None, Some("dumb"), false),
            (false, None, Some("xterm"), false),
        ];
        for (is_terminal, no_color, term, expected) in cases {
            let actual = has_colour(is_terminal, no_color.map(OsStr::new), term.map(OsStr::new));
            assert_eq!(actual, expected, "{is_terminal} {no_color:?} {term:?}");
        }
    }

    #[test]
    fn text_is_coloured_only_where_colour_is_shown() {
        let colour = TerminalFeatures { colour: true, ..TerminalFeatures::PIPE };

        assert_eq!(colour.styled("PARKED", TextStyle::Error), "\u{1b}[31mPARKED\u{1b}[0m");
        assert_eq!(colour.styled("text", TextStyle::Plain), "text");
        assert_eq!(TerminalFeatures::PIPE.styled("PARKED", TextStyle::Error), "PARKED");
    }
}
