//! Tables for people: columns as wide as what they hold, words to the left and numbers to the right.

use crate::output::Output;

/// Rows of text under headings.
pub struct Table {
    headings: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new<S: Into<String>>(headings: impl IntoIterator<Item = S>) -> Table {
        Table { headings: headings.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// The table as text; headings in bold on a terminal.
    pub fn render(&self, output: &Output<'_>) -> String {
        let columns = self.headings.len();
        let cells = |column: usize| self.rows.iter().filter_map(move |row| row.get(column));
        let width = |column: usize| {
            let own = self.headings[column].chars().count();
            cells(column).map(|cell| cell.chars().count()).fold(own, usize::max)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let numeric: Vec<bool> =
            (0..columns).map(|column| cells(column).all(|cell| is_number(cell))).collect();
        let line = |row: &[String]| {
            let cell = |(column, text): (usize, &String)| {
                let (width, text) = (widths[column], text.as_str());
                if numeric[column] { format!("{text:>width$}") } else { format!("{text:<width$}") }
            };
            row.iter().enumerate().map(cell).collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        let mut text = output.paint("1", &line(&self.headings));
        for row in &self.rows {
            text.push('\n');
            text.push_str(&line(row));
        }
        text.push('\n');
        text
    }
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

/// Seconds in the unit that fits.
pub fn seconds(time: f64) -> String {
    let (value, unit) = match time {
        t if t >= 1.0 => (t, "s"),
        t if t >= 1e-3 => (1e3 * t, "ms"),
        t if t >= 1e-6 => (1e6 * t, "µs"),
        t => (1e9 * t, "ns"),
    };
    let digits = if value >= 100.0 { 0 } else { 1 + usize::from(value < 10.0) };
    format!("{value:.digits$} {unit}")
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
