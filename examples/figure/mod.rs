//! What the figures of several examples share: the font, and how a legend looks.

use plotters::coord::{CoordTranslate, Shift};
use plotters::prelude::*;
use std::path::Path;

/// A result whose error any example can pass on.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// An empty drawing in a file, white, with the font that `sans-serif` stands for.
pub fn blank(path: &Path, size: (u32, u32)) -> Outcome<DrawingArea<SVGBackend<'_>, Shift>> {
    const FONT: &[u8] = include_bytes!("../../crates/cli/assets/DejaVuSans-subset.ttf");
    plotters::style::register_font("sans-serif", FontStyle::Normal, FONT)
        .map_err(|_| "the font is damaged")?;
    let root = SVGBackend::new(path, size).into_drawing_area();
    root.fill(&WHITE)?;
    Ok(root)
}

/// Draws the legend of all series that have a label.
pub fn legend<'a, C: CoordTranslate>(
    chart: &mut ChartContext<'a, SVGBackend<'a>, C>,
    position: SeriesLabelPosition,
) -> Outcome<()> {
    chart
        .configure_series_labels()
        .position(position)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.4))
        .label_font(("sans-serif", 14))
        .draw()?;
    Ok(())
}
