//! Why correlated noise: the noise in the sum of all gradients so far, independent against correlated, at one ε. The picture in README.
//!
//! `cargo run --release --example prefix_error [docs]` writes `prefix-error.svg` into the folder. One pass over a dataset in 1,000
//! batches, ε = 2, δ = 1e-6, clip norm 1, no amplification for either: independent noise, and a BLT with four buffers. Thick lines are
//! standard deviations, thin ones the noise of one coordinate as the engine makes it.

mod figure;

use corrnoise::planner::account::Budget;
use corrnoise::planner::optimize::{Objective, Problem, blt, unobserved};
use corrnoise::planner::{
    Adjacency, Factorization, Goal, Participation, PrivacyUnit, Schedule, Strategy, Terms, Workload,
    calibrate,
};
use corrnoise::{Key, Mechanism, Plan, Shard};
use figure::Outcome;
use plotters::prelude::*;
use std::path::Path;

const STEPS: usize = 1000;
const BUDGET: Budget = Budget { epsilon: 2.0, delta: 1e-6 };

/// One mechanism: the standard deviation of every prefix sum's noise, and the noise of one coordinate.
struct Line {
    name: &'static str,
    colour: RGBColor,
    stddev: Vec<f64>,
    sample: Vec<f64>,
}

fn main() -> Outcome<()> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "docs".into());
    let independent = Factorization::new(Strategy::Identity, STEPS)?;
    let best = blt::optimize(&Problem::streaming(STEPS, Objective::Max), 4, &mut unobserved())?;
    let lines = [
        line("independent noise", RGBColor(0, 0, 0), &independent)?,
        line("correlated noise (BLT, 4 buffers)", RGBColor(190, 60, 0), &best.factorization)?,
    ];
    for line in &lines {
        println!("{}: standard deviation {:.1} after {STEPS} steps", line.name, line.stddev[STEPS - 1]);
    }
    draw(&lines, &Path::new(&folder).join("prefix-error.svg"))
}

fn line(name: &'static str, colour: RGBColor, strategy: &Factorization) -> Outcome<Line> {
    let terms = Terms {
        schedule: Schedule::Participation(Participation::Single),
        adjacency: Adjacency::ZeroOut,
        unit: PrivacyUnit::Example,
        clip_norm: 1.0,
    };
    let plan = calibrate(strategy, &terms, &Workload::Prefix, &Goal::Budget(BUDGET))?;
    let squares = strategy.per_query_error_squared(&Workload::Prefix)?;
    let stddev = squares.iter().map(|square| plan.stddev() * square.sqrt()).collect();
    Ok(Line { name, colour, stddev, sample: sample(&plan)? })
}

/// The noise in every prefix sum of one coordinate. The key is public, so that the picture can be made again.
fn sample(plan: &Plan) -> Outcome<Vec<f64>> {
    let key = Key::from_bytes(*b"published, for this example only", "prefix error");
    let mut noise = Mechanism::cpu(plan, key, Shard::whole(1)?)?;
    // A gradient of zero that is never cleared: what has been added so far is the prefix sum's noise.
    let mut sum = [0.0_f32];
    (0..STEPS)
        .map(|_| {
            noise.add_to(&mut sum)?;
            Ok(f64::from(sum[0]))
        })
        .collect()
}

fn draw(lines: &[Line], path: &Path) -> Outcome<()> {
    let root = figure::blank(path, (820, 400))?;
    let most = 1.15 * lines.iter().flat_map(|line| &line.stddev).fold(0.0_f64, |most, x| most.max(*x));
    let mut chart = ChartBuilder::on(&root)
        .margin(14)
        .margin_right(28)
        .x_label_area_size(42)
        .y_label_area_size(56)
        .build_cartesian_2d(0.0..STEPS as f64, -most..most)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_desc("steps")
        .y_desc("noise in the sum of gradients so far")
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| format!("{y:.0}"))
        .label_style(("sans-serif", 13))
        .draw()?;
    let points = |values: &[f64], sign: f64| -> Vec<(f64, f64)> {
        values.iter().enumerate().map(|(t, value)| ((t + 1) as f64, sign * value)).collect()
    };
    for line in lines {
        let (thick, thin) = (line.colour.stroke_width(3), line.colour.mix(0.55).stroke_width(1));
        chart.draw_series(LineSeries::new(points(&line.sample, 1.0), thin))?;
        chart.draw_series(LineSeries::new(points(&line.stddev, -1.0), thick))?;
        chart
            .draw_series(LineSeries::new(points(&line.stddev, 1.0), thick))?
            .label(line.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 22, y)], thick));
    }
    figure::legend(&mut chart, SeriesLabelPosition::UpperLeft)?;
    root.present()?;
    Ok(())
}
