//! The picture of a strategy: `C`, `C⁻¹`, their first columns, and the noise in every released value.

use super::canvas::{Align, BLACK, BLUE, Frame, GREY, Mark, ORANGE, Pen, Stroke, draw as draw_picture};
use super::heat_map::{Matrix, NOISE_LEVEL, heat_map};
use super::log_chart::{Series, chart};
use super::noise_comparison::Comparison;
use crate::failure::Result;
use crate::inspect::Inspected;
use crate::parse::{Picture, participation_name, workload_name};
use crate::table::counted;
use corrnoise::planner::{Estimator, Factorization, LowerTriangular, Strategy, Tree};
use std::collections::HashMap;

const SIZE: (u32, u32) = (1160, 1060);
/// Steps whose matrix is drawn whole; of more, the first of them.
const WHOLE: usize = 1024;
const BLOCK: usize = 256;
/// What the heat maps leave white ([`NOISE_LEVEL`]).
const WHITE: &str = "zero, or below 2⁻²⁴ of the largest entry";
/// Points of a line.
const MAX_POINTS: usize = 400;

/// The two matrices, as much of them as is drawn.
struct Matrices<'a> {
    strategy: Matrix<'a>,
    noising: Matrix<'a>,
    note: String,
}

/// Draws a strategy or a plan, and writes the picture.
pub fn draw(inspected: &Inspected, picture: &Picture) -> Result<()> {
    let matrices = matrices(inspected)?;
    let (strategy_column, noising_column) = columns(inspected, &matrices)?;
    let comparison = Comparison::of(inspected)?;
    draw_picture(picture, SIZE, |pen| {
        title(pen, inspected);
        let frame = |column: u32, row: u32| {
            let (left, top) = (30.0 + 570.0 * f64::from(column), 84.0 + 500.0 * f64::from(row));
            Frame { left, top, right: left + 540.0, bottom: top + 470.0 }
        };
        heat_map(pen, frame(0, 0), "Strategy C", &matrices.note, &matrices.strategy);
        heat_map(pen, frame(1, 0), "Noising C⁻¹", &matrices.note, &matrices.noising);
        let solid = Stroke { colour: BLUE, width: 2.0, dash: None };
        let dashed = Stroke { colour: ORANGE, width: 2.0, dash: Some((8.0, 5.0)) };
        let coefficients = [
            Series { name: "C", points: thinned(&strategy_column), stroke: solid, mark: Some(Mark::Disc) },
            Series {
                name: "C⁻¹", points: thinned(&noising_column), stroke: dashed, mark: Some(Mark::Cross)
            },
        ];
        let titles = [
            "First columns",
            "row, from 1 on",
            "size of the entry (left out: zeros, and below 2⁻²⁴ of the largest)",
        ];
        chart(pen, frame(0, 1), titles, &coefficients);
        chart(pen, frame(1, 1), comparison.titles, &comparison.series(thinned));
    })
}

fn title(pen: &mut dyn Pen, inspected: &Inspected) {
    let scaled = if inspected.factorization.has_scaled_columns() { ", columns normalised" } else { "" };
    let steps = counted(inspected.problem.num_steps as u64, "step");
    let heading = format!("{}{scaled}, {steps}", inspected.name);
    pen.text((30.0, 28.0), Align::Left, 22.0, BLACK, &heading);
    let loss = &inspected.loss;
    let numbers = match &inspected.noise {
        None => format!("max loss {:.4}, rms loss {:.4}", loss.max_loss(), loss.rms_loss()),
        Some(noise) => {
            let [max, rms] = [loss.errors.max, loss.errors.rms].map(|error| noise.stddev * error);
            let claim = noise.claim.as_ref().map_or("; its claim does not hold".into(), |claim| {
                format!("; ε = {:.4} at δ = {:e}", claim.epsilon, claim.delta)
            });
            format!("noise of at most {max:.4}, rms {rms:.4}{claim}")
        }
    };
    let details = format!(
        "{} participation, {} workload; sensitivity {:.4}, {numbers}",
        participation_name(&inspected.problem.participation),
        workload_name(&inspected.problem.workload),
        loss.sensitivity.value,
    );
    pen.text((30.0, 56.0), Align::Left, 13.0, GREY, &details);
}

fn matrices(inspected: &Inspected) -> Result<Matrices<'static>> {
    let whole = &inspected.factorization;
    let n = whole.num_steps();
    // The scales of columns are those of the whole, so no part of it stands alone.
    let part = match n > WHOLE && !whole.has_scaled_columns() {
        true => Some(Factorization::new(whole.strategy().clone(), BLOCK)?.restarted(whole.restart_every())?),
        false => None,
    };
    let shown = part.as_ref().unwrap_or(whole);
    let extent = if shown.num_steps() < n {
        format!("first {} of {n} steps; ", shown.num_steps())
    } else {
        String::new()
    };
    if let Strategy::Tree(estimator @ (Estimator::Plain | Estimator::Streaming)) = shown.strategy() {
        let note = format!("{extent}by node and step; white: {WHITE}");
        return tree_matrices(&Tree::new(*estimator, shown.num_steps())?, note);
    }
    let note = format!("{extent}by step; white: {WHITE}");
    Ok(Matrices { strategy: square(shown.matrix()?), noising: square(shown.inverse()?), note })
}

fn square(matrix: LowerTriangular) -> Matrix<'static> {
    Matrix { rows: matrix.len(), columns: matrix.len(), entry: Box::new(move |t, s| matrix.get(t, s)) }
}

fn tree_matrices(tree: &Tree, note: String) -> Result<Matrices<'static>> {
    let (nodes, rows) = tree.strategy_matrix()?;
    let (num_nodes, num_steps) = (nodes.len(), tree.num_steps());
    let place: HashMap<u64, usize> = nodes.iter().enumerate().map(|(i, node)| (*node, i)).collect();
    let mut noising = vec![vec![0.0; num_nodes]; num_steps];
    for (t, row) in noising.iter_mut().enumerate() {
        tree.noising_row(t).into_iter().for_each(|(node, weight)| row[place[&node]] = weight);
    }
    Ok(Matrices {
        strategy: Matrix { rows: num_nodes, columns: num_steps, entry: Box::new(move |r, c| rows[r][c]) },
        noising: Matrix { rows: num_steps, columns: num_nodes, entry: Box::new(move |r, c| noising[r][c]) },
        note,
    })
}

/// First columns by size: all of a Toeplitz strategy, or of what is drawn.
fn columns(inspected: &Inspected, matrices: &Matrices<'_>) -> Result<(Vec<f64>, Vec<f64>)> {
    // A chart leaves zeros out, and what rounding has left of them should not stretch its scale.
    let sizes = |coefs: Vec<f64>| {
        let largest = coefs.iter().fold(0.0, |most: f64, coef| most.max(coef.abs()));
        let counts = |size: &f64| *size >= NOISE_LEVEL * largest;
        coefs.into_iter().map(|coef| Some(coef.abs()).filter(counts).unwrap_or(0.0)).collect()
    };
    let shown = |matrix: &Matrix<'_>| sizes((0..matrix.rows).map(|r| (matrix.entry)(r, 0)).collect());
    let whole = &inspected.factorization;
    match (whole.is_plain(), whole.strategy_coefs()?, whole.noising_coefs()?) {
        (true, Some(strategy), Some(noising)) => Ok((sizes(strategy), sizes(noising))),
        _ => Ok((shown(&matrices.strategy), shown(&matrices.noising))),
    }
}

/// Values against 1, 2, …: all, or the largest of each of some hundred stretches of equal length on a logarithmic scale.
fn thinned(values: &[f64]) -> Vec<(f64, f64)> {
    let n = values.len();
    if n <= MAX_POINTS {
        return values.iter().enumerate().map(|(i, value)| ((i + 1) as f64, *value)).collect();
    }
    let mut points = Vec::new();
    let mut from = 0;
    while from < n {
        let to = ((from as f64 + 1.0) * (n as f64).powf(1.0 / MAX_POINTS as f64)).floor() as usize;
        let to = to.clamp(from + 1, n);
        let (at, value) = values[from..to]
            .iter()
            .enumerate()
            .fold((from, 0.0), |best, (i, value)| if *value > best.1 { (from + i, *value) } else { best });
        points.push(((at + 1) as f64, value));
        from = to;
    }
    points
}
