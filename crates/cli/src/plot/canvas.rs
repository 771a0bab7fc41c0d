//! A small pen on top of `plotters`, which draws the same picture as SVG and as PNG and writes it to a file.

use super::colour_map::Rgb;
use crate::failure::{Failure, Result};
use crate::parse::{Picture, PictureFormat};
use corrnoise::file::{Access, write_anywhere};
use plotters::backend::{BitMapBackend, DrawingBackend, SVGBackend};
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::{Circle, PathElement, Rectangle, Text};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontStyle, IntoFont, RGBColor, ShapeStyle, register_font};

/// DejaVu Sans, cut to the characters that are used here.
const FONT: &[u8] = include_bytes!("../../assets/DejaVuSans-subset.ttf");
const FAMILY: &str = "sans-serif";
/// Pixels of a PNG per unit; an SVG has no pixels.
const PNG_SCALE: u32 = 2;

pub const BLACK: Rgb = Rgb(0x20, 0x20, 0x20);
pub const GREY: Rgb = Rgb(0x70, 0x70, 0x70);
pub const PALE: Rgb = Rgb(0xdd, 0xdd, 0xdd);
/// Dark and light in print as well: blue, orange.
pub const BLUE: Rgb = Rgb(0x00, 0x3f, 0x88);
pub const ORANGE: Rgb = Rgb(0xd9, 0x7a, 0x00);

/// A rectangle: left, top, right, bottom.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    pub left: f64,
    pub top: f64,
    pub right: f64,
    pub bottom: f64,
}

/// Where a text's point lies in it.
#[derive(Clone, Copy, Debug)]
pub enum Align {
    Left,
    Centre,
    Right,
}

/// How a line is drawn.
#[derive(Clone, Copy, Debug)]
pub struct Stroke {
    pub colour: Rgb,
    pub width: f64,
    /// Drawn and left out, in turns; none for a solid line.
    pub dash: Option<(f64, f64)>,
}

/// What marks a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mark {
    Disc,
    Ring,
    Cross,
}

/// Draws; what fails is said at the end.
pub trait Pen {
    fn fill(&mut self, frame: Frame, colour: Rgb);
    fn line(&mut self, points: &[(f64, f64)], stroke: Stroke);
    fn mark(&mut self, at: (f64, f64), mark: Mark, colour: Rgb);
    /// Text whose vertical middle is at the point.
    fn text(&mut self, at: (f64, f64), align: Align, size: f64, colour: Rgb, text: &str);
}

struct Canvas<'a, B: DrawingBackend> {
    area: &'a DrawingArea<B, Shift>,
    scale: f64,
    /// How much lower, in font sizes, a text must be drawn for its middle to be in the middle: bitmaps count the whole line.
    sink: f64,
    failed: Option<String>,
}

impl<B: DrawingBackend> Canvas<'_, B> {
    fn at(&self, (x, y): (f64, f64)) -> (i32, i32) {
        ((x * self.scale).round() as i32, (y * self.scale).round() as i32)
    }

    fn keep(&mut self, outcome: std::result::Result<(), DrawingAreaErrorKind<B::ErrorType>>) {
        if let Err(error) = outcome {
            self.failed.get_or_insert_with(|| error.to_string());
        }
    }

    fn style(&self, colour: Rgb, width: f64) -> ShapeStyle {
        let width = (width * self.scale).round().max(1.0) as u32;
        ShapeStyle { color: rgb(colour).to_rgba(), filled: false, stroke_width: width }
    }

    fn disc(&mut self, at: (f64, f64), radius: f64, colour: Rgb) {
        let style = ShapeStyle { filled: true, ..self.style(colour, 1.0) };
        let outcome = self.area.draw(&Circle::new(self.at(at), (radius * self.scale) as u32, style));
        self.keep(outcome);
    }

    fn path(&mut self, points: &[(f64, f64)], style: ShapeStyle) {
        let points: Vec<(i32, i32)> = points.iter().map(|point| self.at(*point)).collect();
        let outcome = self.area.draw(&PathElement::new(points, style));
        self.keep(outcome);
    }
}

fn rgb(colour: Rgb) -> RGBColor {
    RGBColor(colour.0, colour.1, colour.2)
}

impl<B: DrawingBackend> Pen for Canvas<'_, B> {
    fn fill(&mut self, frame: Frame, colour: Rgb) {
        let corners = [self.at((frame.left, frame.top)), self.at((frame.right, frame.bottom))];
        let outcome = self.area.draw(&Rectangle::new(corners, rgb(colour).filled()));
        self.keep(outcome);
    }

    fn line(&mut self, points: &[(f64, f64)], stroke: Stroke) {
        let style = self.style(stroke.colour, stroke.width);
        match stroke.dash {
            None => self.path(points, style),
            Some((on, off)) => dashes(points, on, off).iter().for_each(|dash| self.path(dash, style)),
        }
    }

    fn mark(&mut self, (x, y): (f64, f64), mark: Mark, colour: Rgb) {
        let size = 4.0;
        let style = self.style(colour, 1.5);
        match mark {
            Mark::Disc => self.disc((x, y), size, colour),
            Mark::Ring => {
                self.disc((x, y), size, colour);
                self.disc((x, y), 0.6 * size, Rgb(0xff, 0xff, 0xff));
            }
            Mark::Cross => {
                self.path(&[(x - size, y - size), (x + size, y + size)], style);
                self.path(&[(x - size, y + size), (x + size, y - size)], style);
            }
        }
    }

    fn text(&mut self, at: (f64, f64), align: Align, size: f64, colour: Rgb, text: &str) {
        let horizontal = match align {
            Align::Left => HPos::Left,
            Align::Centre => HPos::Center,
            Align::Right => HPos::Right,
        };
        let style = (FAMILY, size * self.scale)
            .into_font()
            .color(&rgb(colour))
            .pos(Pos::new(horizontal, VPos::Center));
        let outcome =
            self.area.draw(&Text::new(text.to_owned(), self.at((at.0, at.1 + self.sink * size)), style));
        self.keep(outcome);
    }
}

/// Cuts a line into dashes by its length.
fn dashes(points: &[(f64, f64)], on: f64, off: f64) -> Vec<Vec<(f64, f64)>> {
    let mut dashes: Vec<Vec<(f64, f64)>> = Vec::new();
    let (mut drawing, mut rest) = (true, on);
    let mut dash: Vec<(f64, f64)> = points.first().copied().into_iter().collect();
    for pair in points.windows(2) {
        let (mut from, to) = (pair[0], pair[1]);
        loop {
            let length = (to.0 - from.0).hypot(to.1 - from.1);
            if length <= rest {
                rest -= length;
                dash.push(to);
                break;
            }
            let share = rest / length;
            from = (from.0 + share * (to.0 - from.0), from.1 + share * (to.1 - from.1));
            dash.push(from);
            if drawing {
                dashes.push(std::mem::take(&mut dash));
            }
            drawing = !drawing;
            rest = if drawing { on } else { off };
            dash = vec![from];
        }
    }
    if drawing && dash.len() > 1 {
        dashes.push(dash);
    }
    dashes
}

/// Draws a picture of the given size and writes it; the file appears whole or not at all.
pub fn draw(picture: &Picture, size: (u32, u32), paint: impl FnOnce(&mut dyn Pen)) -> Result<()> {
    let refuse = |error: &dyn std::fmt::Display| {
        Failure::input(format!("cannot draw {}: {error}", picture.path.display()))
    };
    register_font(FAMILY, FontStyle::Normal, FONT).map_err(|_| refuse(&"the embedded font is damaged"))?;
    let bytes = match picture.format {
        PictureFormat::Svg => {
            let mut text = String::new();
            let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
            paint_on(area, (1.0, 0.0), paint).map_err(|error| refuse(&error))?;
            text.into_bytes()
        }
        PictureFormat::Png => {
            let size = (size.0 * PNG_SCALE, size.1 * PNG_SCALE);
            let mut pixels = vec![0; 3 * size.0 as usize * size.1 as usize];
            let area = BitMapBackend::with_buffer(&mut pixels, size).into_drawing_area();
            paint_on(area, (f64::from(PNG_SCALE), 0.17), paint).map_err(|error| refuse(&error))?;
            super::png::encode(&pixels, size)
        }
    };
    write_anywhere(&picture.path, Access::Usual, |file| {
        file.write_all(&bytes).map_err(|error| Failure::io("write", &picture.path, error))
    })
}

fn paint_on<B: DrawingBackend>(
    area: DrawingArea<B, Shift>,
    (scale, sink): (f64, f64),
    paint: impl FnOnce(&mut dyn Pen),
) -> std::result::Result<(), String> {
    area.fill(&RGBColor(255, 255, 255)).map_err(|error| error.to_string())?;
    let mut canvas = Canvas { area: &area, scale, sink, failed: None };
    paint(&mut canvas);
    let failed = canvas.failed.take();
    area.present().map_err(|error| error.to_string())?;
    failed.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dashes_have_their_length_and_turn_corners() {
        let dashes = dashes(&[(0.0, 0.0), (10.0, 0.0), (10.0, 10.0)], 6.0, 3.0);
        assert_eq!(dashes[0], [(0.0, 0.0), (6.0, 0.0)]);
        assert_eq!(dashes[1], [(9.0, 0.0), (10.0, 0.0), (10.0, 5.0)]);
        assert_eq!(dashes[2], [(10.0, 8.0), (10.0, 10.0)]);
    }
}
