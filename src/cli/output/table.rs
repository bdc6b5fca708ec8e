//! Tables: a header, columns that keep their content whole, and at most one that is broken between words to fit the screen.
use comfy_table::{Attribute, Cell, CellAlignment, Color, ColumnConstraint, ContentArrangement, Table, Width, presets};

use super::screen::{Screen, Tone};

/// Spaces between two columns.
const GAP: usize = 2;
/// Fewest characters of a line in a column that is broken between words.
const PROSE_MIN: usize = 16;

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableColumn {
    header: &'static str,
    right: bool,
    prose: bool,
    /// Where the screen is too narrow, the column with the highest rank is left out first; a column of rank 0 always stays.
    rank: u8,
}

impl TableColumn {
    /// A column of texts that are never broken.
    pub(crate) const fn text(header: &'static str) -> Self {
        Self { header, right: false, prose: false, rank: 0 }
    }

    /// A column of numbers, to the right.
    pub(crate) const fn number(header: &'static str) -> Self {
        Self { right: true, ..Self::text(header) }
    }

    /// A column of sentences, which are broken between words.
    pub(crate) const fn prose(header: &'static str) -> Self {
        Self { prose: true, ..Self::text(header) }
    }

    /// The same column, left out where the screen is too narrow for it and for the columns of lower ranks.
    pub(crate) const fn rank(self, rank: u8) -> Self {
        Self { rank, ..self }
    }
}

/// The content of one cell.
#[derive(Clone, Debug)]
pub(crate) struct TableCell {
    text: String,
    tone: Tone,
}

impl TableCell {
    /// A cell whose colour says what its text means.
    pub(crate) fn toned(text: impl ToString, tone: Tone) -> Self {
        Self { text: printable(&text.to_string()), tone }
    }
}

impl<T: ToString> From<T> for TableCell {
    fn from(text: T) -> Self {
        Self::toned(text, Tone::Plain)
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
pub(crate) fn table(columns: &[TableColumn], rows: &[Vec<TableCell>], screen: Screen) -> String {
    let widths: Vec<usize> = (0..columns.len()).map(|index| width(columns, rows, index)).collect();
    let shown = shown(columns, &widths, screen.width);
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    if screen.colour {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    match screen.width {
        // The last column's gap lies outside of the screen.
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
    for (place, index) in shown.iter().enumerate() {
        let column = &columns[*index];
        let Some(drawn) = table.column_mut(place) else { continue };
        drawn.set_padding((0, GAP as u16));
        if column.right {
            drawn.set_cell_alignment(CellAlignment::Right);
        }
        let least = Width::Fixed((least_width(column, widths[*index]) + GAP) as u16);
        drawn.set_constraint(match column.prose {
            true => ColumnConstraint::LowerBoundary(least),
            false => ColumnConstraint::ContentWidth,
        });
    }
    table.trim_fmt()
}

/// The columns that fit: those with the highest ranks are left out until the rest does.
fn shown(columns: &[TableColumn], widths: &[usize], screen: Option<usize>) -> Vec<usize> {
    let mut shown: Vec<usize> = (0..columns.len()).collect();
    let Some(screen) = screen else { return shown };
    let needed = |shown: &[usize]| {
        let widths = shown.iter().map(|index| least_width(&columns[*index], widths[*index]) + GAP);
        widths.sum::<usize>().saturating_sub(GAP)
    };
    while needed(&shown) > screen {
        let highest =
            shown.iter().copied().filter(|index| columns[*index].rank > 0).max_by_key(|index| columns[*index].rank);
        let Some(highest) = highest else { break };
        shown.retain(|index| *index != highest);
    }
    shown
}

fn least_width(column: &TableColumn, width: usize) -> usize {
    if column.prose { width.min(PROSE_MIN.max(column.header.len())) } else { width }
}

/// The widest text of a column, its header included.
fn width(columns: &[TableColumn], rows: &[Vec<TableCell>], index: usize) -> usize {
    let cells = rows.iter().map(|row| row[index].text.chars().count());
    cells.chain([columns[index].header.len()]).max().unwrap_or_default()
}

fn cell(cell: &TableCell) -> Cell {
    let drawn = Cell::new(&cell.text);
    match cell.tone {
        Tone::Plain => drawn,
        Tone::Good => drawn.fg(Color::DarkGreen),
        Tone::Notice => drawn.fg(Color::DarkYellow),
        Tone::Bad => drawn.fg(Color::DarkRed),
        Tone::Dim => drawn.add_attribute(Attribute::Dim),
        Tone::Strong => drawn.add_attribute(Attribute::Bold),
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
        TableColumn::text("KEY").rank(1),
        TableColumn::prose("REASON"),
    ];

    fn rows() -> Vec<Vec<TableCell>> {
        let parked = TableCell::toned("PARKED", Tone::Bad);
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
        let text = table(&COLUMNS, &rows(), Screen::PIPE);

        assert_eq!(
            text,
            "  ID  STATUS  KEY                   REASON\n   \
               7  PARKED  a-key-of-some-length  the broker refused it because it is too large\n\
             1234  SENT    short"
        );
    }

    #[test]
    fn a_narrow_table_breaks_sentences_between_words() {
        let text = table(&COLUMNS, &rows(), Screen { width: Some(60), colour: false });

        assert_eq!(
            text,
            "  ID  STATUS  KEY                   REASON\n   \
               7  PARKED  a-key-of-some-length  the broker refused it\n                                    \
                                                because it is too large\n\
             1234  SENT    short"
        );
    }

    #[test]
    fn a_column_that_does_not_fit_is_left_out_by_its_rank() {
        let text = table(&COLUMNS, &rows(), Screen { width: Some(40), colour: false });

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
    fn tones_are_colours_only_where_the_screen_shows_them() {
        let text = table(&COLUMNS, &rows(), Screen { width: None, colour: true });

        assert!(text.contains("\u{1b}[38;5;1mPARKED"), "{text:?}");
        assert!(!table(&COLUMNS, &rows(), Screen::PIPE).contains('\u{1b}'));
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let rows = [table_row!["1", "SENT", "\u{1b}[31mred\n", "x"]];
        assert!(table(&COLUMNS, &rows, Screen::PIPE).contains(" [31mred"));
    }
}
