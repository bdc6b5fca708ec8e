//! A list of named values, one on each line.
use super::table::printable;
use super::terminal::{TerminalFeatures, TextStyle};
use super::wrap::wrap;

/// Spaces before a field's name.
const INDENT: usize = 2;
/// Spaces between the longest name and the values.
const GAP: usize = 2;

/// Named values in the order in which they are printed.
#[derive(Debug, Default)]
pub(crate) struct FieldList(Vec<(&'static str, String)>);

impl FieldList {
    /// Adds a field after those that were added before; control characters of the value become spaces.
    pub(crate) fn add(&mut self, name: &'static str, value: impl ToString) {
        self.0.push((name, printable(&value.to_string())));
    }

    /// Adds a field if it has a value.
    pub(crate) fn add_some(&mut self, name: &'static str, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.add(name, value);
        }
    }

    /// The lines; values are wrapped between words at the width of the terminal.
    pub(crate) fn lines(&self, terminal: TerminalFeatures) -> Vec<String> {
        let longest = self.0.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
        let start = INDENT + longest + GAP;
        let width = terminal.width.map(|width| width.saturating_sub(start).max(1));
        let line = |(name, value): &(&'static str, String)| {
            let value = wrap(value, width, 0).replace('\n', &format!("\n{}", " ".repeat(start)));
            let padding = " ".repeat(longest - name.len() + GAP);
            format!("{}{}{padding}{value}", " ".repeat(INDENT), terminal.styled(name, TextStyle::Dim))
        };
        self.0.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_aligned_and_wrapped_between_words() {
        let mut fields = FieldList::default();
        fields.add("row", 6);
        fields.add_some("next attempt", None::<String>);
        fields.add("last failure reason", "the broker refused it");

        let terminal = TerminalFeatures { width: Some(36), colour: false };

        let expected = "  row                  6\n  last failure reason  the broker\n                       refused it";
        assert_eq!(fields.lines(terminal).join("\n"), expected);
    }
}
