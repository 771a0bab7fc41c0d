//! Heat maps: a matrix as colours, with a bar that says which colour is how much.

use super::axes::label;
use super::{Align, BLACK, Frame, GREY, PALE, Pen, Stroke, colour};

/// Cells along a side at most; of a larger matrix a cell shows the entry of its block that is largest in size.
const MAX_CELLS: usize = 96;
/// Decades of sizes that are told apart.
const DECADES: f64 = 4.0;

/// A matrix to draw; absent entries and zeros are left white.
pub struct Matrix<'a> {
    pub rows: usize,
    pub columns: usize,
    pub entry: Box<dyn Fn(usize, usize) -> f64 + 'a>,
}

/// Colours by size, on a logarithmic scale of either sign.
struct Scale {
    largest: f64,
    smallest: f64,
    signed: bool,
}

impl Scale {
    fn of(cells: &[Vec<f64>]) -> Scale {
        let values = || cells.iter().flatten().copied().filter(|value| *value != 0.0);
        let largest = values().fold(0.0_f64, |most, value| most.max(value.abs()));
        let least = values().fold(f64::INFINITY, |least, value| least.min(value.abs()));
        let smallest = least.max(largest / 10_f64.powf(DECADES)).min(largest / 10.0);
        Scale { largest, smallest, signed: values().any(|value| value < 0.0) }
    }

    /// Between 0 and 1.
    fn place(&self, value: f64) -> f64 {
        let size =
            ((value.abs() / self.smallest).max(1.0).ln() / (self.largest / self.smallest).ln()).min(1.0);
        match self.signed {
            false => size,
            // Sizes from the smallest on keep clear of the grey of zero.
            true => 0.5 + value.signum() * (0.06 + 0.44 * size),
        }
    }

    fn ticks(&self) -> Vec<f64> {
        let powers = |from: f64, to: f64| {
            let (first, last) = (from.log10().ceil() as i32, to.log10().floor() as i32);
            (first..=last).map(|power| 10_f64.powi(power)).collect::<Vec<_>>()
        };
        let mut ticks = powers(self.smallest * 0.999, self.largest * 1.001);
        if ticks.len() < 2 {
            ticks = vec![self.smallest, self.largest];
        }
        if self.signed {
            ticks = ticks.iter().map(|tick| -tick).rev().chain(ticks.iter().copied()).collect();
        }
        ticks
    }
}

/// Draws a matrix under its title, with a colour bar to the right.
pub fn heat_map(pen: &mut dyn Pen, frame: Frame, title: &str, note: &str, matrix: &Matrix<'_>) {
    pen.text((frame.left, frame.top + 12.0), Align::Left, 16.0, BLACK, title);
    pen.text((frame.left, frame.top + 34.0), Align::Left, 12.0, GREY, note);
    let cells = pooled(matrix);
    let scale = Scale::of(&cells);
    let (rows, columns) = (cells.len(), cells[0].len());
    let (top, bar_width) = (frame.top + 52.0, 96.0);
    let unit = ((frame.right - frame.left - bar_width - 34.0) / columns as f64)
        .min((frame.bottom - 30.0 - top) / rows as f64);
    // Whole units where they are large enough: edges that fall between pixels would show as a grid.
    let unit = if unit > 1.0 { (2.0 * unit).floor() / 2.0 } else { unit };
    let left = frame.left + 34.0;
    let inner = Frame { left, top, right: left + unit * columns as f64, bottom: top + unit * rows as f64 };
    for (r, row) in cells.iter().enumerate() {
        let mut c = 0;
        while c < columns {
            let colour = (row[c] != 0.0).then(|| colour::map(scale.place(row[c])));
            let run = row[c..]
                .iter()
                .take_while(|v| (**v != 0.0).then(|| colour::map(scale.place(**v))) == colour)
                .count();
            if let Some(colour) = colour {
                let edge = |i: usize| inner.left + unit * i as f64;
                let (above, below) = (inner.top + unit * r as f64, inner.top + unit * (r + 1) as f64);
                pen.fill(Frame { left: edge(c), top: above, right: edge(c + run), bottom: below }, colour);
            }
            c += run;
        }
    }
    outline(pen, inner, PALE);
    let end = (matrix.columns - 1).to_string();
    pen.text((inner.left, inner.bottom + 13.0), Align::Left, 12.0, BLACK, "0");
    pen.text((inner.right, inner.bottom + 13.0), Align::Right, 12.0, BLACK, &end);
    pen.text((inner.left - 6.0, inner.top + 7.0), Align::Right, 12.0, BLACK, "0");
    pen.text(
        (inner.left - 6.0, inner.bottom - 7.0),
        Align::Right,
        12.0,
        BLACK,
        &(matrix.rows - 1).to_string(),
    );
    let bar =
        Frame { left: inner.right + 22.0, top: inner.top, right: inner.right + 40.0, bottom: inner.bottom };
    colour_bar(pen, bar, &scale);
}

fn colour_bar(pen: &mut dyn Pen, bar: Frame, scale: &Scale) {
    let height = bar.bottom - bar.top;
    let steps = 128;
    for i in 0..steps {
        let place = |i: i32| bar.bottom - height * f64::from(i) / f64::from(steps);
        let colour = colour::map((f64::from(i) + 0.5) / f64::from(steps));
        pen.fill(
            Frame { left: bar.left, top: place(i + 1).round(), right: bar.right, bottom: place(i).round() },
            colour,
        );
    }
    outline(pen, bar, GREY);
    for tick in scale.ticks() {
        let y = bar.bottom - height * scale.place(tick);
        pen.line(&[(bar.right, y), (bar.right + 4.0, y)], Stroke { colour: BLACK, width: 1.0, dash: None });
        pen.text((bar.right + 8.0, y), Align::Left, 12.0, BLACK, &label(tick));
    }
}

fn outline(pen: &mut dyn Pen, frame: Frame, colour: super::Rgb) {
    let corners = [
        (frame.left, frame.top),
        (frame.right, frame.top),
        (frame.right, frame.bottom),
        (frame.left, frame.bottom),
        (frame.left, frame.top),
    ];
    pen.line(&corners, Stroke { colour, width: 1.0, dash: None });
}

/// The matrix in at most [`MAX_CELLS`] cells a side.
fn pooled(matrix: &Matrix<'_>) -> Vec<Vec<f64>> {
    let cut = |len: usize| {
        let cells = len.min(MAX_CELLS);
        (0..cells).map(|i| i * len / cells..(i + 1) * len / cells).collect::<Vec<_>>()
    };
    let (rows, columns) = (cut(matrix.rows), cut(matrix.columns));
    let cell = |rows: &std::ops::Range<usize>, columns: &std::ops::Range<usize>| {
        let entries = rows.clone().flat_map(|r| columns.clone().map(move |c| (r, c)));
        let larger = |most: f64, value: f64| if value.abs() > most.abs() { value } else { most };
        entries.map(|(r, c)| (matrix.entry)(r, c)).fold(0.0, larger)
    };
    rows.iter().map(|rows| columns.iter().map(|columns| cell(rows, columns)).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_show_the_largest_entry_with_its_sign() {
        let matrix = Matrix {
            rows: 300,
            columns: 3,
            entry: Box::new(|r, c| if r == 299 && c == 1 { -7.0 } else { 1.0 }),
        };
        let cells = pooled(&matrix);
        assert_eq!((cells.len(), cells[0].len()), (MAX_CELLS, 3));
        assert_eq!(cells[MAX_CELLS - 1], [1.0, -7.0, 1.0]);
        let scale = Scale::of(&cells);
        assert!(scale.signed && scale.place(-7.0) == 0.0 && scale.place(7.0) == 1.0);
        assert!(scale.place(-1.0) < 0.5 && scale.place(1.0) > 0.5);
    }
}
