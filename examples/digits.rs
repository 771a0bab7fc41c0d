//! Private softmax regression on handwritten digits, four mechanisms at equal (ε, δ): the table and the figure in `docs/digits.md`.
//!
//! `cargo run --release --example digits [docs [plans]]` trains (less than two minutes on two cores), prints the table as Markdown, writes
//! `digits.svg` into the first folder and, given a second, every plan as JSON there.
//!
//! Every mechanism runs at its own best learning rate: the least mean test error over `TUNING_SEEDS` runs. The table is made of
//! `SEEDS` other runs. Neither the choice of the rate nor that of the setup is paid for in ε: this compares mechanisms.

mod figure;

use corrnoise::Plan;
use corrnoise::planner::account::Budget;
use corrnoise_testkit::digits::{
    Digits, Mean, Noise, Outcome, SETUP, Setup, in_parallel, prefix_noise, train,
};
use plotters::coord::Shift;
use plotters::prelude::*;
use std::path::Path;

const EPSILONS: [f64; 2] = [8.0, 2.0];
const DELTA: f64 = 1e-5;
/// The number of runs per mechanism, budget and learning rate.
const TUNING_SEEDS: u64 = 10;
/// The number of runs per entry of the table, with seeds of their own.
const SEEDS: u64 = 20;
const RATES: [f64; 9] = [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8];

/// The numbers of batches per epoch for independent noise in large batches: without amplification it does best there, so this
/// shows how much of the gap is left when it may have them, and twice the epochs. The least number is the whole dataset in every step.
const FEW_BATCHES: [usize; 3] = [1, 2, 4];
const LARGE_RATES: [f64; 7] = [1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4];

/// One entry of the table.
struct Entry {
    noise: Noise,
    epsilon: f64,
    rate: f64,
    error: Mean,
    prefix_noise: Vec<f64>,
}

fn main() -> Outcome<()> {
    let mut folders = std::env::args().skip(1);
    let folder = folders.next().unwrap_or_else(|| "docs".into());
    let plans = folders.next();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/data/digits.csv");
    let digits = Digits::parse(&std::fs::read_to_string(data)?)?;
    if let Some(folder) = &plans {
        std::fs::create_dir_all(folder)?;
    }
    let mut entries = Vec::new();
    for epsilon in EPSILONS {
        for noise in Noise::ALL {
            let plan = noise.plan(&SETUP, digits.train.len(), Budget::new(epsilon, DELTA)?)?;
            if let Some(folder) = &plans {
                let name = format!("digits-{}-{epsilon}.json", noise.name().replace(' ', "-"));
                plan.save(Path::new(folder).join(name))?;
            }
            let entry = measure(&digits, &SETUP, noise, &RATES, &plan, epsilon)?;
            eprintln!("ε = {epsilon}, {}: {} at rate {}", noise.name(), percent(entry.error), entry.rate);
            entries.push(entry);
        }
    }
    print!("{}", table(&entries));
    println!("{}", large_batches(&digits)?);
    draw(&entries, &Path::new(&folder).join("digits.svg"))
}

fn measure(
    digits: &Digits,
    setup: &Setup,
    noise: Noise,
    rates: &[f64],
    plan: &Plan,
    epsilon: f64,
) -> Outcome<Entry> {
    let tuning = TUNING_SEEDS as usize;
    let errors = in_parallel(rates.len() * tuning, |job| {
        train(digits, setup, plan, SEEDS + (job % tuning) as u64, rates[job / tuning])
    })?;
    let means = errors.chunks(tuning).map(|errors| Mean::of(errors).mean);
    let (best, _) = means.enumerate().min_by(|a, b| a.1.total_cmp(&b.1)).ok_or("no learning rates")?;
    let rate = rates[best];
    let errors = in_parallel(SEEDS as usize, |seed| train(digits, setup, plan, seed as u64, rate))?;
    Ok(Entry { noise, epsilon, rate, error: Mean::of(&errors), prefix_noise: prefix_noise(plan, 0)? })
}

/// Independent noise in large batches, as lines of the table.
fn large_batches(digits: &Digits) -> Outcome<String> {
    let mut text = String::new();
    let num_epochs = 2 * SETUP.num_epochs;
    for num_batches in FEW_BATCHES {
        let averaged_epochs = num_epochs / 2;
        let setup = Setup { num_batches, num_epochs, averaged_epochs, ..SETUP };
        let batch = digits.train.len().div_ceil(num_batches);
        text += &format!("| independent, batches of {batch}, {num_epochs} epochs |");
        for epsilon in EPSILONS {
            let noise = Noise::Independent;
            let plan = noise.plan(&setup, digits.train.len(), Budget::new(epsilon, DELTA)?)?;
            let entry = measure(digits, &setup, noise, &LARGE_RATES, &plan, epsilon)?;
            text += &format!(" {} | {} |", percent(entry.error), entry.rate);
        }
        text += "\n";
    }
    Ok(text)
}

fn percent(error: Mean) -> String {
    format!("{:.1} ± {:.1}%", 100.0 * error.mean, 100.0 * error.standard_error)
}

fn table(entries: &[Entry]) -> String {
    let mut text = String::from("| noise |");
    EPSILONS.iter().for_each(|epsilon| text += &format!(" ε = {epsilon} | rate |"));
    text += "\n|---|---|---|---|---|\n";
    for noise in Noise::ALL {
        text += &format!("| {} |", noise.name());
        for entry in entries.iter().filter(|entry| entry.noise == noise) {
            text += &format!(" {} | {} |", percent(entry.error), entry.rate);
        }
        text += "\n";
    }
    text
}

fn colour(noise: Noise) -> RGBColor {
    match noise {
        Noise::Independent => RGBColor(0, 0, 0),
        Noise::Banded => RGBColor(0, 70, 170),
        Noise::Blt => RGBColor(190, 60, 0),
        Noise::BandedInverse => RGBColor(20, 130, 60),
    }
}

/// Draws accuracy on the left, and the noise behind it on the right.
fn draw(entries: &[Entry], path: &Path) -> Outcome<()> {
    let root = figure::blank(path, (1000, 440))?;
    let (left, right) = root.split_horizontally(500);
    draw_accuracy(entries, &left)?;
    draw_noise(entries, &right)?;
    root.present()?;
    Ok(())
}

/// Draws bars of the mean, with two standard errors either way.
fn draw_accuracy(entries: &[Entry], area: &DrawingArea<SVGBackend<'_>, Shift>) -> Outcome<()> {
    let accuracy = |entry: &Entry| 100.0 * (1.0 - entry.error.mean);
    let floor = entries.iter().map(accuracy).fold(100.0, f64::min);
    let floor = 5.0 * ((floor - 3.0) / 5.0).floor();
    let width = Noise::ALL.len() as f64 + 1.0;
    let mut chart = ChartBuilder::on(area)
        .caption("test accuracy (%), δ = 1e-5", ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(50)
        .build_cartesian_2d(0.0..width * EPSILONS.len() as f64, floor..100.0)?;
    chart.configure_mesh().disable_x_mesh().disable_x_axis().light_line_style(WHITE).draw()?;
    for entry in entries {
        let group = EPSILONS.iter().position(|epsilon| *epsilon == entry.epsilon).unwrap_or(0);
        let place = Noise::ALL.iter().position(|noise| *noise == entry.noise).unwrap_or(0);
        let x = group as f64 * width + place as f64 + 0.5;
        let (mean, reach) = (accuracy(entry), 200.0 * entry.error.standard_error);
        let fill = colour(entry.noise).mix(0.75).filled();
        chart.draw_series([Rectangle::new([(x + 0.08, floor), (x + 0.92, mean)], fill)])?;
        let whisker = [(x + 0.5, mean - reach), (x + 0.5, mean + reach)];
        chart.draw_series([PathElement::new(whisker, BLACK.stroke_width(2))])?;
        let style = ("sans-serif", 13).into_text_style(area).pos(centred());
        let label = format!("{mean:.1}");
        chart.draw_series([Text::new(label, (x + 0.5, mean + reach + 0.6), style)])?;
    }
    for (group, epsilon) in EPSILONS.iter().enumerate() {
        let (x, _) = chart.backend_coord(&((group as f64 + 0.5) * width, floor));
        let style = ("sans-serif", 16).into_text_style(area).pos(centred());
        area.draw(&Text::new(format!("ε = {epsilon}"), (x, 425), style))?;
    }
    Ok(())
}

fn centred() -> plotters::style::text_anchor::Pos {
    use plotters::style::text_anchor::{HPos, Pos, VPos};
    Pos::new(HPos::Center, VPos::Bottom)
}

/// Draws one run's noise at the smaller ε; at the larger one it is the same but for a factor.
fn draw_noise(entries: &[Entry], area: &DrawingArea<SVGBackend<'_>, Shift>) -> Outcome<()> {
    let epsilon = EPSILONS[EPSILONS.len() - 1];
    let entries = || entries.iter().filter(|entry| entry.epsilon == epsilon);
    let all = entries().flat_map(|entry| &entry.prefix_noise).map(|noise| noise / SETUP.clip_norm);
    let (low, high) = all.fold((f64::INFINITY, 0.0_f64), |(low, high), x| (low.min(x), high.max(x)));
    let mut chart = ChartBuilder::on(area)
        .caption(format!("noise in the prefix sums, ε = {epsilon}"), ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(62)
        .build_cartesian_2d(0.0..SETUP.num_steps() as f64, (0.8 * low..1.2 * high).log_scale())?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_desc("step")
        .y_desc("root mean square / clip norm")
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| format!("{y}"))
        .label_style(("sans-serif", 13))
        .draw()?;
    for entry in entries() {
        let style = colour(entry.noise).stroke_width(2);
        let points = entry.prefix_noise.iter().enumerate();
        let points = points.map(|(step, noise)| ((step + 1) as f64, noise / SETUP.clip_norm));
        chart
            .draw_series(LineSeries::new(points, style))?
            .label(entry.noise.name())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 22, y)], style));
    }
    figure::legend(&mut chart, SeriesLabelPosition::LowerRight)?;
    Ok(())
}
