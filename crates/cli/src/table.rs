//! Tables for people: columns as wide as what they hold, words to the left and numbers to the right, within the screen's width.

use crate::output::Output;
use crate::wrap::{lines, words};

/// Columns of space between two columns of text.
const GAP: usize = 2;
/// Words are not squeezed into less than this.
const LEAST_WORDS: usize = 24;

/// Rows of text under headings.
pub struct Table {
    headings: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// How a column may be set.
struct Column {
    /// Numbers are aligned to the right and never broken.
    numeric: bool,
    natural: usize,
    /// Enough for every cell on one line, with its heading on several.
    unbroken: usize,
    least: usize,
}

impl Table {
    pub fn new<S: Into<String>>(headings: impl IntoIterator<Item = S>) -> Table {
        Table { headings: headings.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// The table as text; headings in bold on a terminal.
    ///
    /// Where the screen is too narrow, headings and then long texts take several lines. If that is not enough, columns that
    /// have no room follow in a second block, which begins with the same names of rows.
    pub fn render(&self, output: &Output<'_>) -> String {
        let columns: Vec<Column> = (0..self.headings.len()).map(|column| self.column(column)).collect();
        let blocks = self.blocks(&columns, output.screen.width).into_iter();
        let text = blocks.map(|shown| {
            let widths = widths(&shown, &columns, output.screen.width);
            self.block(&shown, &widths, &columns, output)
        });
        text.collect::<Vec<_>>().join("\n")
    }

    fn cells(&self, column: usize) -> impl Iterator<Item = &str> {
        self.rows.iter().filter_map(move |row| row.get(column)).map(String::as_str)
    }

    fn column(&self, column: usize) -> Column {
        let longest_word = |text: &str| words(text).iter().map(|word| width(word)).fold(0, usize::max);
        let heading = &self.headings[column];
        let numeric = self.cells(column).all(is_number);
        let widest = self.cells(column).map(width).fold(0, usize::max);
        let unbroken = widest.max(longest_word(heading));
        let cells = match numeric {
            true => widest,
            false => self.cells(column).map(longest_word).fold(LEAST_WORDS, usize::max).min(widest),
        };
        let least = cells.max(longest_word(heading));
        Column { numeric, natural: widest.max(width(heading)), unbroken, least }
    }

    /// The columns of each block. The first ones, up to the first with a heading, name the rows of every block.
    fn blocks(&self, columns: &[Column], width: usize) -> Vec<Vec<usize>> {
        let names = 0..self.headings.iter().position(|heading| !heading.is_empty()).map_or(1, |at| at + 1);
        let names = names.start..names.end.min(columns.len());
        let needed = |shown: &[usize]| {
            shown.iter().map(|column| columns[*column].least).sum::<usize>() + GAP * (shown.len() - 1)
        };
        let mut blocks: Vec<Vec<usize>> = vec![names.clone().collect()];
        for column in names.end..columns.len() {
            let mut longer = blocks.pop().unwrap_or_default();
            longer.push(column);
            // A block has one column beside its names at least: what is wider than the screen must be shown somewhere.
            if needed(&longer) > width && longer.len() > names.len() + 1 {
                longer.pop();
                blocks.push(longer);
                longer = names.clone().chain([column]).collect();
            }
            blocks.push(longer);
        }
        blocks
    }

    fn block(&self, shown: &[usize], widths: &[usize], columns: &[Column], output: &Output<'_>) -> String {
        let set = |row: &[String], is_heading: bool| -> Vec<String> {
            let text = |column: &usize| row.get(*column).map_or("", String::as_str);
            let cells: Vec<Vec<String>> =
                shown.iter().zip(widths).map(|(column, width)| lines(text(column), *width, 0)).collect();
            let height = cells.iter().map(Vec::len).fold(1, usize::max);
            let line = |at: usize| {
                let cell = |(i, cell): (usize, &Vec<String>)| {
                    // Headings stand on what they head, other texts begin together.
                    let skipped = if is_heading { height - cell.len() } else { 0 };
                    let text = at.checked_sub(skipped).and_then(|at| cell.get(at)).map_or("", String::as_str);
                    let (width, numeric) = (widths[i], columns[shown[i]].numeric);
                    if numeric { format!("{text:>width$}") } else { format!("{text:<width$}") }
                };
                let gap = " ".repeat(GAP);
                cells.iter().enumerate().map(cell).collect::<Vec<_>>().join(&gap).trim_end().to_owned()
            };
            (0..height).map(line).collect()
        };
        let headings = set(&self.headings, true).into_iter().map(|line| output.paint("1", &line));
        let rows = self.rows.iter().flat_map(|row| set(row, false));
        headings.chain(rows).fold(String::new(), |all, line| all + &line + "\n")
    }
}

/// Natural widths if they fit; otherwise the widest column that can gives way, one by one: headings first, then texts.
fn widths(shown: &[usize], columns: &[Column], width: usize) -> Vec<usize> {
    let mut widths: Vec<usize> = shown.iter().map(|column| columns[*column].natural).collect();
    for limit in [|column: &Column| column.unbroken, |column: &Column| column.least] {
        while widths.iter().sum::<usize>() + GAP * (widths.len() - 1) > width {
            let can_give_way = |i: &usize| widths[*i] > limit(&columns[shown[*i]]);
            let Some(widest) = (0..widths.len()).filter(can_give_way).max_by_key(|i| widths[*i]) else {
                break;
            };
            widths[widest] -= 1;
        }
    }
    widths
}

fn width(text: &str) -> usize {
    console::measure_text_width(text)
}

/// Numbers, with a unit or without.
fn is_number(cell: &str) -> bool {
    cell.is_empty() || cell == "-" || cell.starts_with(|c: char| c.is_ascii_digit() || "+-<~∞".contains(c))
}

/// Four significant digits, in the notation that is shorter to read.
pub fn short(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 || (1e-3..1e6).contains(&size) {
        let digits = if size >= 1000.0 {
            1
        } else if size >= 100.0 {
            2
        } else if size >= 1.0 {
            4
        } else {
            5
        };
        format!("{value:.digits$}")
    } else {
        format!("{value:.3e}")
    }
}

/// Bytes in the unit that fits.
pub fn bytes(count: f64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB", "PB"];
    let power = if count < 1000.0 { 0 } else { ((count.log10() / 3.0) as usize).min(units.len() - 1) };
    let value = count / 1000_f64.powi(power as i32);
    if value < 10.0 && power > 0 {
        format!("{value:.1} {}", units[power])
    } else {
        format!("{value:.0} {}", units[power])
    }
}

/// A time in the unit that fits, from nanoseconds to years.
pub fn seconds(time: f64) -> String {
    const MINUTE: f64 = 60.0;
    const HOUR: f64 = 60.0 * MINUTE;
    const DAY: f64 = 24.0 * HOUR;
    const YEAR: f64 = 365.25 * DAY;
    // Twice a unit, rather than once: "119 s" is read more easily than "2.0 min".
    let (value, unit) = match time {
        t if t >= 2.0 * YEAR => (t / YEAR, "years"),
        t if t >= 2.0 * DAY => (t / DAY, "days"),
        t if t >= 2.0 * HOUR => (t / HOUR, "h"),
        t if t >= 2.0 * MINUTE => (t / MINUTE, "min"),
        t if t >= 1.0 => (t, "s"),
        t if t >= 1e-3 => (1e3 * t, "ms"),
        t if t >= 1e-6 => (1e6 * t, "µs"),
        t => (1e9 * t, "ns"),
    };
    let digits = if value >= 100.0 { 0 } else { 1 + usize::from(value < 10.0) };
    if value < 1e6 { format!("{value:.digits$} {unit}") } else { format!("{value:.1e} {unit}") }
}

/// A count and its noun: "1 normal", "2 normals".
pub fn counted(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// Four digits that count, without zeros at the end.
pub fn digits(value: f64) -> String {
    let text = format!("{value:.3e}");
    text.parse::<f64>().map_or(text, |rounded| rounded.to_string())
}

/// A share of a whole, with two digits that mean something.
pub fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    match percent {
        p if p >= 100.0 => format!("{p:.0} %"),
        p if p >= 1.0 => format!("{p:.1} %"),
        p if p >= 0.1 => format!("{p:.2} %"),
        p if p >= 0.01 => format!("{p:.3} %"),
        0.0 => "0 %".into(),
        p if p >= 1e-4 => format!("{p:.4} %"),
        p => format!("{p:.1e} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Screen;

    fn rendered(table: &Table, width: usize) -> String {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        table.render(&Output::new(&mut stdout, &mut stderr, false, Screen { colour: false, width }))
    }

    fn example() -> Table {
        let mut table = Table::new(["", "name", "how it is chosen", "of bandwidth", "ε"]);
        table.row(["*", "banded-opt:10", "10 blocks that take turns, Poisson", "48.2 %", "2.0000"]);
        table.row(["", "identity", "cyclic", "7 %", "2.0000"]);
        table
    }

    #[test]
    fn what_fits_is_set_in_lines_of_its_own() {
        let expected = "   name           how it is chosen                    of bandwidth       ε\n\
                        *  banded-opt:10  10 blocks that take turns, Poisson        48.2 %  2.0000\n   \
                        identity       cyclic                                       7 %  2.0000\n";
        assert_eq!(rendered(&example(), 80), expected);
    }

    #[test]
    fn texts_and_headings_give_way_before_columns_do() {
        let text = rendered(&example(), 62);
        assert!(text.lines().all(|line| width(line) <= 62), "{text}");
        assert_eq!(text.lines().filter(|line| line.contains("2.0000")).count(), 2, "{text}");
        assert!(text.contains("10 blocks that take") && !text.contains("turns, Poisson  "), "{text}");
    }

    #[test]
    fn what_has_no_room_follows_under_the_same_names() {
        let text = rendered(&example(), 44);
        assert!(text.lines().all(|line| width(line) <= 44), "{text}");
        assert_eq!(text.matches("banded-opt:10").count(), 2, "{text}");
        for cell in ["48.2 %", "10 blocks that take turns,", "Poisson", "2.0000"] {
            assert!(text.contains(cell), "{text}");
        }
    }

    #[test]
    fn times_have_sensible_units() {
        let cases = [
            (2.5e-8, "25.0 ns"),
            (0.0011, "1.10 ms"),
            (51.3, "51.3 s"),
            (119.0, "119 s"),
            (159.0, "2.65 min"),
            (14_599.0, "4.06 h"),
            (9_258_050.0, "107 days"),
            (1e9, "31.7 years"),
            (1e20, "3.2e12 years"),
        ];
        for (time, expected) in cases {
            assert_eq!(seconds(time), expected);
        }
    }

    #[test]
    fn nouns_follow_their_counts() {
        assert_eq!(
            [counted(1, "normal"), counted(0, "row"), counted(3, "step")],
            ["1 normal", "0 rows", "3 steps"]
        );
        assert_eq!([digits(1.0 / 3.0), digits(0.5), digits(1e-9)], ["0.3333", "0.5", "0.000000001"]);
    }
}
