//! What a larger batch buys, with and without amplification: the figure in `docs/batch-size.md`.
//!
//! `cargo run --release --example batch_size [docs]` computes it anew (a few minutes) and writes `batch-size.tsv` and `batch-size.svg` into
//! the folder. n = 2048 steps over N = 4096 examples, so that batches of B make B/2 epochs; max loss of the average gradient's prefix
//! sums, per coordinate, for clip norm 1 and δ = 1e-6: four mechanisms at ε = 1 and ε = 10.

mod figure;

use corrnoise::planner::account::{Budget, Search, Subsampled, gdp_mu_of_budget};
use corrnoise::planner::optimize::{Objective, Problem, toeplitz, unobserved};
use corrnoise::planner::{Participation, Schedule, Workload, calibrate_bands};
use corrnoise_testkit::batch_size::{DATASET, HEADER, Row, STEPS};
use figure::Outcome;
use plotters::prelude::*;
use std::path::Path;

const DELTA: f64 = 1e-6;

/// A line of the figure: its name, value and colour, and whether it is dashed.
type Line = (&'static str, fn(&Row) -> f64, RGBColor, bool);
fn main() -> Outcome<()> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "docs".into());
    let table = Path::new(&folder).join("batch-size.tsv");
    let mut text = String::from(HEADER);
    let mut rows = Vec::new();
    for epsilon in [1.0, 10.0] {
        for power in 0..=12 {
            let row = compute(Budget::new(epsilon, DELTA)?, 1 << power)?;
            println!("{row}");
            text += &format!("{row}\n");
            rows.push(row);
        }
    }
    std::fs::write(table, text)?;
    draw(&rows, &Path::new(&folder).join("batch-size.svg"))
}

fn compute(budget: Budget, batch: u64) -> Outcome<Row> {
    let mu = gdp_mu_of_budget(budget)?;
    // The number of batches per epoch; with one or two examples per step no example takes part twice.
    let separation = ((DATASET / batch) as usize).min(STEPS);
    let participation = Participation::Cyclic { separation, max_participations: STEPS / separation };
    let problem =
        Problem { num_steps: STEPS, workload: Workload::Prefix, participation, objective: Objective::Max };
    let average = |loss: f64| loss / batch as f64;
    let root = (STEPS as f64).sqrt();
    let epochs = (STEPS / separation) as f64;
    let (banded_bands, banded) = toeplitz::best_bands(&problem, separation, &mut unobserved())?;
    let poisson = |blocks: usize| -> Outcome<f64> {
        let prob = (batch as f64 * blocks as f64 / DATASET as f64).min(1.0);
        let rounds = STEPS.div_ceil(blocks) as u64;
        let sampled = Subsampled::calibrated(budget, prob, rounds, Search::Fine)?.noise_multiplier;
        Ok(sampled.min((rounds as f64).sqrt() / mu))
    };
    let (strategy, sampling) = calibrate_bands(&problem, DATASET, batch, budget, STEPS)?;
    let bands = strategy.num_bands();
    let blocks = match Schedule::Sampling(sampling).participation(STEPS)? {
        Participation::Cyclic { separation, .. } => separation,
        _ => 1,
    };
    let stream = Problem { participation: Participation::Single, ..problem };
    Ok(Row {
        epsilon: budget.epsilon,
        batch,
        independent: average(root * epochs.sqrt() / mu),
        independent_sampled: average(root * poisson(1)?),
        banded: average(banded.loss / mu),
        banded_bands,
        banded_sampled: average(stream.loss(&strategy)?.0 * poisson(blocks)?),
        banded_sampled_bands: bands,
    })
}

/// Two panels, readable without colour: marks and dashes tell the lines apart.
fn draw(rows: &[Row], path: &Path) -> Outcome<()> {
    let root = figure::blank(path, (1000, 460))?;
    for (panel, epsilon) in root.split_evenly((1, 2)).iter().zip([1.0, 10.0]) {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.epsilon == epsilon).collect();
        let losses =
            rows.iter().flat_map(|r| [r.independent, r.independent_sampled, r.banded, r.banded_sampled]);
        let (low, high) = losses.fold((f64::INFINITY, 0.0_f64), |(low, high), x| (low.min(x), high.max(x)));
        let mut chart = ChartBuilder::on(panel)
            .caption(format!("ε = {epsilon}, δ = 1e-6"), ("sans-serif", 20))
            .margin(12)
            .margin_right(28)
            .x_label_area_size(42)
            .y_label_area_size(62)
            .build_cartesian_2d(
                (1.0..4096.0_f64).log_scale().base(2.0),
                (0.7 * low..1.5 * high).log_scale(),
            )?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .x_desc("batch size B")
            .y_desc("max loss of the average gradient's prefix sums")
            .x_label_formatter(&|x| format!("{x:.0}"))
            .y_label_formatter(&|y| format!("{y}"))
            .label_style(("sans-serif", 13))
            .draw()?;
        let lines: [Line; 4] = [
            ("independent", |r| r.independent, RGBColor(0, 0, 0), false),
            ("independent, Poisson sampling", |r| r.independent_sampled, RGBColor(120, 120, 120), true),
            ("banded", |r| r.banded, RGBColor(0, 70, 170), false),
            ("banded, block-cyclic Poisson", |r| r.banded_sampled, RGBColor(190, 60, 0), true),
        ];
        for (i, (name, value, colour, dashed)) in lines.into_iter().enumerate() {
            let points: Vec<(f64, f64)> = rows.iter().map(|row| (row.batch as f64, value(row))).collect();
            let style = colour.stroke_width(2);
            let series = if dashed {
                chart.draw_series(DashedLineSeries::new(points.clone(), 7, 4, style))?
            } else {
                chart.draw_series(LineSeries::new(points.clone(), style))?
            };
            series.label(name).legend(move |(x, y)| {
                let mark = Circle::new(
                    (x + 11, y),
                    4,
                    if dashed { colour.stroke_width(1) } else { colour.filled() },
                );
                EmptyElement::at((0, 0)) + PathElement::new([(x, y), (x + 22, y)], style) + mark
            });
            let marks = points.into_iter().map(|point| {
                let size = 3 + (i as i32 % 2);
                Circle::new(point, size, if dashed { colour.stroke_width(1) } else { colour.filled() })
            });
            chart.draw_series(marks)?;
        }
        figure::legend(&mut chart, SeriesLabelPosition::UpperRight)?;
    }
    root.present()?;
    Ok(())
}
