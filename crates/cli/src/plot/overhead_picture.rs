//! The picture of `bench`: noise time on the critical path over gradient time, of every way to run a form, on every device.

use super::canvas::{Align, BLACK, BLUE, Frame, GREY, Mark, ORANGE, PALE, Pen, Stroke, draw as draw_picture};
use super::colour_map::Rgb;
use super::log_chart::{Log, label};
use crate::failure::Result;
use crate::parse::Picture;

/// How the devices are told apart.
const MARKS: [(Mark, Rgb); 6] = [
    (Mark::Disc, BLACK),
    (Mark::Ring, BLUE),
    (Mark::Cross, ORANGE),
    (Mark::Ring, ORANGE),
    (Mark::Disc, BLUE),
    (Mark::Cross, BLACK),
];
/// Height of a row.
const ROW: f64 = 26.0;

/// Noise time over gradient time, by form and device.
pub struct Overheads<'a> {
    pub title: String,
    /// Names of the devices, each with whether its times are measured or predicted.
    pub devices: Vec<(&'a str, &'static str)>,
    /// Forms, or ways to run them, with a share per device; NaN where there is none.
    pub forms: Vec<(String, Vec<f64>)>,
}

/// Draws what was measured and predicted, and writes the picture.
pub fn draw(overheads: &Overheads<'_>, picture: &Picture) -> Result<()> {
    let height = 160.0 + ROW * overheads.forms.len() as f64 + 24.0 * overheads.devices.len() as f64;
    draw_picture(picture, (900, height as u32), |pen| paint(pen, overheads, height))
}

fn paint(pen: &mut dyn Pen, overheads: &Overheads<'_>, height: f64) {
    pen.text((30.0, 28.0), Align::Left, 20.0, BLACK, "Noise time on the critical path over gradient time");
    pen.text((30.0, 54.0), Align::Left, 13.0, GREY, &overheads.title);
    for (i, (device, source)) in overheads.devices.iter().enumerate() {
        let (mark, colour) = MARKS[i % MARKS.len()];
        let y = 84.0 + 24.0 * i as f64;
        pen.mark((40.0, y), mark, colour);
        pen.text((56.0, y), Align::Left, 13.0, BLACK, &format!("{device} ({source})"));
    }
    let inner = Frame {
        left: 190.0,
        top: 96.0 + 24.0 * overheads.devices.len() as f64,
        right: 860.0,
        bottom: height - 60.0,
    };
    let scale =
        Log::over(overheads.forms.iter().flat_map(|(_, shares)| known(shares).map(|share| 100.0 * share)))
            .padded(1.5);
    let at = |share: f64| inner.left + scale.place(100.0 * share) * (inner.right - inner.left);
    let thin = Stroke { colour: PALE, width: 1.0, dash: None };
    for tick in scale.ticks() {
        let x = at(tick / 100.0);
        pen.line(&[(x, inner.top), (x, inner.bottom)], thin);
        pen.text((x, inner.bottom + 15.0), Align::Centre, 12.0, BLACK, &format!("{} %", label(tick)));
    }
    pen.line(&[(inner.left, inner.bottom), (inner.right, inner.bottom)], Stroke { colour: BLACK, ..thin });
    for (i, (form, shares)) in overheads.forms.iter().enumerate() {
        let y = inner.top + ROW * (i as f64 + 0.5);
        pen.line(&[(inner.left, y), (inner.right, y)], thin);
        pen.text((inner.left - 12.0, y), Align::Right, 13.0, BLACK, form);
        for (share, (mark, colour)) in shares.iter().zip(MARKS.into_iter().cycle()) {
            if !share.is_nan() {
                pen.mark((at(*share), y), mark, colour);
            }
        }
    }
}

/// The shares that there are.
fn known(shares: &[f64]) -> impl Iterator<Item = f64> + '_ {
    shares.iter().copied().filter(|share| !share.is_nan())
}
