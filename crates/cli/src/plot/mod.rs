//! Pictures for SVG and PNG alike: what `inspect` and `bench` draw, from charts and heat maps on one canvas.
//!
//! Axes and legends are drawn here rather than by a chart library: logarithmic scales get one label per decade, and every line is told
//! apart by its dashes or marks as well as by its colour, so that a grey print can be read.

mod canvas;
mod colour_map;
mod heat_map;
mod log_chart;
pub mod noise_comparison;
pub mod overhead_picture;
mod png;
pub mod strategy_picture;
