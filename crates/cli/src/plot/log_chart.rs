//! A chart of lines on two logarithmic axes.

use super::canvas::{Align, BLACK, Frame, GREY, Mark, PALE, Pen, Stroke};

/// A logarithmic scale of positive values.
#[derive(Clone, Copy, Debug)]
pub struct Log {
    low: f64,
    high: f64,
}

impl Log {
    /// A scale that holds all positive values, and at least a decade.
    pub fn over(values: impl IntoIterator<Item = f64>) -> Log {
        let (mut low, mut high) = (f64::INFINITY, 0.0_f64);
        for value in values.into_iter().filter(|value| *value > 0.0 && value.is_finite()) {
            low = low.min(value);
            high = high.max(value);
        }
        if high == 0.0 {
            (low, high) = (1.0, 1.0);
        }
        let missing = (10.0 / (high / low)).max(1.0).sqrt();
        Log { low: low / missing, high: high * missing }
    }

    /// A little room on both sides.
    pub fn padded(self, factor: f64) -> Log {
        Log { low: self.low / factor, high: self.high * factor }
    }

    /// Between 0 and 1.
    pub fn place(&self, value: f64) -> f64 {
        (value / self.low).ln() / (self.high / self.low).ln()
    }

    /// Where to put labels: powers of ten, thinned to at most eight; with 2 and 5 where there are few.
    pub fn ticks(&self) -> Vec<f64> {
        let (first, last) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        let every = ((last - first) / 8 + 1).max(1);
        let decades = last - first;
        let factors: &[f64] = if decades <= 2 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let all = (first..=last)
            .step_by(every as usize)
            .flat_map(|power| factors.iter().map(move |f| f * 10_f64.powi(power)));
        all.filter(|tick| (self.low * 0.999_999..=self.high * 1.000_001).contains(tick)).collect()
    }
}

/// A line of a chart.
pub struct Series<'a> {
    pub name: &'a str,
    pub points: Vec<(f64, f64)>,
    pub stroke: Stroke,
    pub mark: Option<Mark>,
}

/// Draws a chart with two logarithmic axes; the frame is everything, labels included.
pub fn chart(pen: &mut dyn Pen, frame: Frame, titles: [&str; 3], series: &[Series<'_>]) {
    let [title, x_title, y_title] = titles;
    let all = || series.iter().flat_map(|series| series.points.iter().copied());
    let x = Log::over(all().map(|point| point.0));
    let y = Log::over(all().map(|point| point.1)).padded(1.3);
    let legend_top = frame.top + 52.0;
    let inner = Frame {
        left: frame.left + 62.0,
        top: legend_top + 20.0 * series.len() as f64 + 8.0,
        right: frame.right - 20.0,
        bottom: frame.bottom - 48.0,
    };
    pen.text((frame.left, frame.top + 12.0), Align::Left, 16.0, BLACK, title);
    pen.text((frame.left, frame.top + 34.0), Align::Left, 12.0, GREY, y_title);
    let at_x = |value: f64| inner.left + x.place(value) * (inner.right - inner.left);
    let at_y = |value: f64| inner.bottom - y.place(value) * (inner.bottom - inner.top);
    let thin = Stroke { colour: PALE, width: 1.0, dash: None };
    for tick in x.ticks() {
        pen.line(&[(at_x(tick), inner.top), (at_x(tick), inner.bottom)], thin);
        pen.text((at_x(tick), inner.bottom + 14.0), Align::Centre, 12.0, BLACK, &label(tick));
    }
    for tick in y.ticks() {
        pen.line(&[(inner.left, at_y(tick)), (inner.right, at_y(tick))], thin);
        pen.text((inner.left - 7.0, at_y(tick)), Align::Right, 12.0, BLACK, &label(tick));
    }
    let axis = Stroke { colour: BLACK, width: 1.0, dash: None };
    pen.line(&[(inner.left, inner.top), (inner.left, inner.bottom), (inner.right, inner.bottom)], axis);
    pen.text((0.5 * (inner.left + inner.right), inner.bottom + 34.0), Align::Centre, 12.0, GREY, x_title);
    for (i, series) in series.iter().enumerate() {
        let height = legend_top + 20.0 * i as f64 + 6.0;
        let sample = [(inner.left, height), (inner.left + 44.0, height)];
        pen.line(&sample, series.stroke);
        series
            .mark
            .into_iter()
            .for_each(|mark| pen.mark((inner.left + 22.0, height), mark, series.stroke.colour));
        pen.text((inner.left + 54.0, height), Align::Left, 12.0, BLACK, series.name);
        let points: Vec<_> = series
            .points
            .iter()
            .filter(|(a, b)| *a > 0.0 && *b > 0.0)
            .map(|(a, b)| (at_x(*a), at_y(*b)))
            .collect();
        pen.line(&points, series.stroke);
        if let Some(mark) = series.mark {
            spaced(&points, 14.0).into_iter().for_each(|at| pen.mark(at, mark, series.stroke.colour));
        }
    }
}

/// Points that are some way apart, so that marks do not run into each other.
fn spaced(points: &[(f64, f64)], distance: f64) -> Vec<(f64, f64)> {
    let mut kept: Vec<(f64, f64)> = Vec::new();
    for point in points {
        if kept.last().is_none_or(|last| (last.0 - point.0).hypot(last.1 - point.1) >= distance) {
            kept.push(*point);
        }
    }
    kept
}

/// A power of ten, or a short number.
pub fn label(value: f64) -> String {
    let power = value.abs().log10().round() as i32;
    let is_power = (value.abs() / 10_f64.powi(power) - 1.0).abs() < 1e-9;
    if is_power && !(-2..=3).contains(&power) {
        let digits = power.to_string().chars().map(superscript).collect::<String>();
        return format!("{}10{digits}", if value < 0.0 { "−" } else { "" });
    }
    let text = match value.abs() {
        0.0 => "0".into(),
        size if !(1e-3..1e5).contains(&size) => format!("{value:.0e}"),
        // As many digits as the value has, up to three that count.
        size => {
            let digits = (2 - size.log10().floor() as i32).clamp(0, 5) as usize;
            let text = format!("{value:.digits$}");
            if text.contains('.') {
                text.trim_end_matches('0').trim_end_matches('.').to_owned()
            } else {
                text
            }
        }
    };
    text.replace('-', "−")
}

fn superscript(digit: char) -> char {
    match digit {
        '-' => '⁻',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        digit => char::from_u32(0x2070 + digit as u32 - '0' as u32).unwrap_or(digit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_short() {
        let labels: Vec<String> =
            [1.0, 1000.0, 1e5, 1e-12, -0.25, 0.02, 20.0, 1.234, -1e-4].into_iter().map(label).collect();
        assert_eq!(labels, ["1", "1000", "10⁵", "10⁻¹²", "−0.25", "0.02", "20", "1.23", "−10⁻⁴"]);
    }

    #[test]
    fn scales_hold_what_they_were_made_for() {
        let scale = Log::over([3.0, 0.0, 900.0, f64::NAN]);
        assert!(scale.place(3.0).abs() < 1e-12 && (scale.place(900.0) - 1.0).abs() < 1e-12);
        assert_eq!(scale.ticks(), [10.0, 100.0]);
        assert!(Log::over([1.0, 1.0]).ticks().len() >= 2);
        assert!(Log::over([]).ticks().len() >= 2);
    }
}
