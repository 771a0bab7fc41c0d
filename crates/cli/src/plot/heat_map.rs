//! Heat maps: a matrix as colours, with a bar that says which colour is how much.

use super::canvas::{Align, BLACK, Frame, GREY, PALE, Pen, Stroke};
use super::colour_map::{self, Rgb};
use super::log_chart::label;

/// Cells along a side at most; of a larger matrix a cell shows the entry of its block that is largest in size.
const MAX_CELLS: usize = 96;
/// Where colours end, relative to the largest entry: noise is made in f32, and what is smaller than this (2⁻²⁴) is lost in the
/// rounding of a sum that the largest entry is part of. Entries of a computed inverse that should be zero lie far below.
pub const NOISE_LEVEL: f64 = 1.0 / (1 << 24) as f64;
/// Most labels of one sign on a colour bar.
const MAX_TICKS: usize = 5;
/// The share of the map that the smallest entries keep clear of white.
const PALEST: f64 = 0.1;

/// A matrix to draw; zeros, and entries below [`NOISE_LEVEL`], are left white.
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
        let sizes = || cells.iter().flatten().map(|value| value.abs()).filter(|size| *size > 0.0);
        let largest = sizes().fold(0.0, f64::max);
        let level = largest * NOISE_LEVEL;
        let least = sizes().filter(|size| *size >= level).fold(f64::INFINITY, f64::min);
        let signed = cells.iter().flatten().any(|value| *value <= -level && *value != 0.0);
        Scale { largest, smallest: least.min(largest / 10.0), signed }
    }

    /// From −1, the largest below zero, to 1, the largest above; 0 for what has no colour.
    fn place(&self, value: f64) -> f64 {
        let size = value.abs();
        if size == 0.0 || size < self.largest * NOISE_LEVEL {
            return 0.0;
        }
        let share = ((size / self.smallest).max(1.0).ln() / (self.largest / self.smallest).ln()).min(1.0);
        value.signum() * (PALEST + (1.0 - PALEST) * share)
    }

    fn colour(&self, value: f64) -> Option<Rgb> {
        let place = self.place(value);
        (place != 0.0).then(|| colour_map::map(place))
    }

    /// The place at the lower end of the colour bar; the upper end is 1.
    fn lowest(&self) -> f64 {
        if self.signed { -1.0 } else { 0.0 }
    }

    /// Powers of ten on both sides, thinned, and zero.
    fn ticks(&self) -> Vec<f64> {
        let (first, last) =
            ((self.smallest * 0.999).log10().ceil() as i32, (self.largest * 1.001).log10().floor() as i32);
        let every = (last - first).max(0) as usize / MAX_TICKS + 1;
        let mut ticks: Vec<f64> =
            (first..=last).rev().step_by(every).map(|power| 10_f64.powi(power)).collect();
        if ticks.len() < 2 {
            ticks = vec![self.largest, self.smallest];
        }
        let mut below: Vec<f64> = ticks.iter().rev().map(|tick| -tick).collect();
        below.truncate(if self.signed { below.len() } else { 0 });
        ticks.into_iter().chain([0.0]).chain(below).collect()
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
            let colour = scale.colour(row[c]);
            let run = row[c..].iter().take_while(|value| scale.colour(**value) == colour).count();
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
        let share = (f64::from(i) + 0.5) / f64::from(steps);
        let colour = colour_map::map(scale.lowest() + share * (1.0 - scale.lowest()));
        pen.fill(
            Frame { left: bar.left, top: place(i + 1).round(), right: bar.right, bottom: place(i).round() },
            colour,
        );
    }
    outline(pen, bar, GREY);
    for tick in scale.ticks() {
        let y = bar.bottom - height * (scale.place(tick) - scale.lowest()) / (1.0 - scale.lowest());
        pen.line(&[(bar.right, y), (bar.right + 4.0, y)], Stroke { colour: BLACK, width: 1.0, dash: None });
        pen.text((bar.right + 8.0, y), Align::Left, 12.0, BLACK, &label(tick));
    }
}

fn outline(pen: &mut dyn Pen, frame: Frame, colour: Rgb) {
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
        assert!(scale.signed && scale.place(-7.0) == -1.0 && scale.place(7.0) == 1.0);
        assert!(scale.place(-1.0) < 0.0 && scale.place(1.0) > 0.0);
    }

    #[test]
    fn colours_end_at_noise_level() {
        // What rounding leaves of an inverse, on both sides of zero, and an entry that counts.
        let cells = vec![vec![2.0, 0.0, 0.0], vec![-0.5, 2.0, 0.0], vec![-3e-17, 1e-6, 2.0]];
        let scale = Scale::of(&cells);
        assert_eq!((scale.smallest, scale.largest, scale.signed), (1e-6, 2.0, true));
        assert_eq!([scale.colour(-3e-17), scale.colour(1e-8), scale.colour(0.0)], [None; 3]);
        assert!(scale.colour(1e-6).is_some() && scale.colour(-0.5).is_some());
        assert!(scale.place(1e-6) >= PALEST);
        let ticks = scale.ticks();
        assert!(ticks.contains(&0.0) && ticks.contains(&1.0) && ticks.contains(&-1.0), "{ticks:?}");
        assert!(ticks.windows(2).all(|pair| pair[0] > pair[1]), "{ticks:?}");
        assert!(ticks.iter().all(|tick| *tick == 0.0 || tick.abs() >= 0.9e-6), "{ticks:?}");
        // Without an entry below zero, half of the map is left out.
        let positive = Scale::of(&[vec![1.0, 0.25], vec![-1e-17, 1.0]]);
        assert!(!positive.signed && positive.lowest() == 0.0);
    }
}
