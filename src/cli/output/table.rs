//! Tables: a header, columns whose content stays on one line, and at most one that is wrapped between words to fit the terminal.
use comfy_table::{Attribute, Cell, CellAlignment, Color, ColumnConstraint, ContentArrangement, Table, Width, presets};

use super::terminal::{TerminalFeatures, TextStyle};

/// Spaces between two columns.
const GAP: usize = 2;
/// Fewest characters of a line in a column that is wrapped.
const WRAPPED_WIDTH_MIN: usize = 16;

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableColumn {
    header: &'static str,
    right_aligned: bool,
    wrapped: bool,
    /// Where the terminal is too narrow, the column with the highest value is left out first; a column with 0 always stays.
    drop_priority: u8,
}

impl TableColumn {
    /// A column of texts that are never wrapped.
    pub(crate) const fn text(header: &'static str) -> Self {
        Self { header, right_aligned: false, wrapped: false, drop_priority: 0 }
    }

    /// A right-aligned column of numbers.
    pub(crate) const fn number(header: &'static str) -> Self {
        Self { right_aligned: true, ..Self::text(header) }
    }

    /// A column of sentences, which are wrapped between words.
    pub(crate) const fn wrapped(header: &'static str) -> Self {
        Self { wrapped: true, ..Self::text(header) }
    }

    /// The same column, left out where the terminal is too narrow for it and the columns of lower drop priority.
    pub(crate) const fn drop_priority(self, drop_priority: u8) -> Self {
        Self { drop_priority, ..self }
    }
}

/// The content of one cell.
#[derive(Clone, Debug)]
pub(crate) struct TableCell {
    text: String,
    style: TextStyle,
}

impl TableCell {
    /// A cell with a style; control characters of the text become spaces.
    pub(crate) fn styled(text: impl ToString, style: TextStyle) -> Self {
        Self { text: printable(&text.to_string()), style }
    }
}

impl<T: ToString> From<T> for TableCell {
    fn from(text: T) -> Self {
        Self::styled(text, TextStyle::Plain)
    }
}

/// A row of cells from anything that has a text.
macro_rules! table_row {
    ($($cell:expr),+ $(,)?) => {
        vec![$($crate::cli::output::table::TableCell::from($cell)),+]
    };
}
pub(crate) use table_row;

/// The table as lines, without a line break at its end.
pub(crate) fn table(columns: &[TableColumn], rows: &[Vec<TableCell>], terminal: TerminalFeatures) -> String {
    let widths: Vec<usize> = (0..columns.len()).map(|index| width(columns, rows, index)).collect();
    let shown = fitting_columns(columns, &widths, terminal.width);
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    if terminal.colour {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    match terminal.width {
        // The last column's gap lies outside of the terminal.
        Some(width) => {
            table.set_content_arrangement(ContentArrangement::Dynamic);
            table.set_width(u16::try_from(width + GAP).unwrap_or(u16::MAX));
        }
        None => {
            table.set_content_arrangement(ContentArrangement::Disabled);
        }
    }
    table.set_header(shown.iter().map(|index| Cell::new(columns[*index].header).add_attribute(Attribute::Bold)));
    for row in rows {
        table.add_row(shown.iter().map(|index| cell(&row[*index])));
    }
    for (position, index) in shown.iter().enumerate() {
        let column = &columns[*index];
        let Some(drawn) = table.column_mut(position) else { continue };
        drawn.set_padding((0, GAP as u16));
        if column.right_aligned {
            drawn.set_cell_alignment(CellAlignment::Right);
        }
        let minimum = Width::Fixed((min_width(column, widths[*index]) + GAP) as u16);
        drawn.set_constraint(match column.wrapped {
            true => ColumnConstraint::LowerBoundary(minimum),
            false => ColumnConstraint::ContentWidth,
        });
    }
    table.trim_fmt()
}

/// The indices of the columns that fit: those with the highest drop priority are left out until the others fit.
fn fitting_columns(columns: &[TableColumn], widths: &[usize], terminal_width: Option<usize>) -> Vec<usize> {
    let mut shown: Vec<usize> = (0..columns.len()).collect();
    let Some(terminal_width) = terminal_width else { return shown };
    let needed = |shown: &[usize]| {
        let widths = shown.iter().map(|index| min_width(&columns[*index], widths[*index]) + GAP);
        widths.sum::<usize>().saturating_sub(GAP)
    };
    while needed(&shown) > terminal_width {
        let highest = shown
            .iter()
            .copied()
            .filter(|index| columns[*index].drop_priority > 0)
            .max_by_key(|index| columns[*index].drop_priority);
        let Some(highest) = highest else { break };
        shown.retain(|index| *index != highest);
    }
    shown
}

fn min_width(column: &TableColumn, width: usize) -> usize {
    if column.wrapped { width.min(WRAPPED_WIDTH_MIN.max(column.header.len())) } else { width }
}

/// The widest text of a column, its header included.
fn width(columns: &[TableColumn], rows: &[Vec<TableCell>], index: usize) -> usize {
    let cells = rows.iter().map(|row| row[index].text.chars().count());
    cells.chain([columns[index].header.len()]).max().unwrap_or_default()
}

fn cell(cell: &TableCell) -> Cell {
    let drawn = Cell::new(&cell.text);
    match cell.style {
        TextStyle::Plain => drawn,
        TextStyle::Success => drawn.fg(Color::DarkGreen),
        TextStyle::Warning => drawn.fg(Color::DarkYellow),
        TextStyle::Error => drawn.fg(Color::DarkRed),
        TextStyle::Dim => drawn.add_attribute(Attribute::Dim),
        TextStyle::Bold => drawn.add_attribute(Attribute::Bold),
    }
}

/// The text on one line, without the control characters by which it could change the terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [TableColumn; 4] = [
        TableColumn::number("ID"),
        TableColumn::text("STATUS"),
        TableColumn::text("KEY").drop_priority(1),
        TableColumn::wrapped("REASON"),
    ];

    fn rows() -> Vec<Vec<TableCell>> {
        let parked = TableCell::styled("PARKED", TextStyle::Error);
        vec![
            vec![
                7.into(),
                parked,
                "a-key-of-some-length".into(),
                "the broker refused it because it is too large".into(),
            ],
            table_row![1_234, "SENT", "short", ""],
        ]
    }

    #[test]
    fn a_table_in_a_pipe_has_a_header_and_one_line_for_each_row() {
        let text = table(&COLUMNS, &rows(), TerminalFeatures::PIPE);

        assert_eq!(
            text,
            "  ID  STATUS  KEY                   REASON\n   \
               7  PARKED  a-key-of-some-length  the broker refused it because it is too large\n\
             1234  SENT    short"
        );
    }

    #[test]
    fn a_narrow_table_wraps_sentences_between_words() {
        let text = table(&COLUMNS, &rows(), TerminalFeatures { width: Some(60), colour: false });

        assert_eq!(
            text,
            "  ID  STATUS  KEY                   REASON\n   \
               7  PARKED  a-key-of-some-length  the broker refused it\n                                    \
                                                because it is too large\n\
             1234  SENT    short"
        );
    }

    #[test]
    fn a_column_that_does_not_fit_is_left_out_by_its_drop_priority() {
        let text = table(&COLUMNS, &rows(), TerminalFeatures { width: Some(40), colour: false });

        assert_eq!(
            text,
            "  ID  STATUS  REASON\n   \
               7  PARKED  the broker refused it\n              \
                          because it is too large\n\
             1234  SENT"
        );
        assert!(text.lines().all(|line| line.chars().count() <= 40));
    }

    #[test]
    fn text_styles_are_colours_only_where_the_terminal_shows_them() {
        let text = table(&COLUMNS, &rows(), TerminalFeatures { width: None, colour: true });

        assert!(text.contains("\u{1b}[38;5;1mPARKED"), "{text:?}");
        assert!(!table(&COLUMNS, &rows(), TerminalFeatures::PIPE).contains('\u{1b}'));
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let rows = [table_row!["1", "SENT", "\u{1b}[31mred\n", "x"]];
        assert!(table(&COLUMNS, &rows, TerminalFeatures::PIPE).contains(" [31mred"));
    }
}
