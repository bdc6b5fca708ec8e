//! Abilities of stdout: its width, and colour.
use std::ffi::OsStr;
use std::io::{IsTerminal, stdout};

use clap::builder::styling::{AnsiColor, Color, Style};
use rustix::termios::tcgetwinsize;

/// Width and colour of the place to which a command prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Screen {
    /// Columns of the terminal; `None` where lines are never broken, as in a pipe.
    pub(crate) width: Option<usize>,
    /// Whether colours are shown.
    pub(crate) colour: bool,
}

/// The meaning of a text, which decides its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    /// A text in the terminal's own colour.
    Plain,
    /// As it should be: green.
    Good,
    /// In progress or waiting: yellow.
    Notice,
    /// A human must act: red.
    Bad,
    /// Less important than the rest: dim.
    Dim,
    /// The heading of a part: bold.
    Strong,
}

impl Screen {
    /// A screen without colour that breaks no line.
    #[cfg(test)]
    pub(crate) const PIPE: Self = Self { width: None, colour: false };

    /// The screen that stdout is.
    pub(crate) fn of_stdout() -> Self {
        let is_terminal = stdout().is_terminal();
        let variable = |name: &str| std::env::var_os(name);
        let colour = has_colour(is_terminal, variable("NO_COLOR").as_deref(), variable("TERM").as_deref());
        Self { width: if is_terminal { terminal_width() } else { None }, colour }
    }

    /// The text in the colour of its tone.
    pub(crate) fn paint(self, text: &str, tone: Tone) -> String {
        match style(tone) {
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

fn style(tone: Tone) -> Option<Style> {
    let colour = |colour: AnsiColor| Some(Style::new().fg_color(Some(Color::Ansi(colour))));
    match tone {
        Tone::Plain => None,
        Tone::Good => colour(AnsiColor::Green),
        Tone::Notice => colour(AnsiColor::Yellow),
        Tone::Bad => colour(AnsiColor::Red),
        Tone::Dim => Some(Style::new().dimmed()),
        Tone::Strong => Some(Style::new().bold()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_needs_a_terminal_and_no_refusal() {
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
    fn a_text_is_painted_only_where_colour_is_shown() {
        let colour = Screen { colour: true, ..Screen::PIPE };

        assert_eq!(colour.paint("PARKED", Tone::Bad), "\u{1b}[31mPARKED\u{1b}[0m");
        assert_eq!(colour.paint("text", Tone::Plain), "text");
        assert_eq!(Screen::PIPE.paint("PARKED", Tone::Bad), "PARKED");
    }
}
