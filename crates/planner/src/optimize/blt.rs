//! Buffered linear Toeplitz strategies of least loss (Dvijotham, McMahan, Pillutla, Steinke and Thakurta 2024; McMahan, Xu and Zhang 2024).
//!
//! The loss is smooth in scales and decays but has many local minima, so each number of buffers is searched from several starts: the quadrature
//! rule [`Blt::rational`], tighter and wider; the best with one buffer fewer, one added. What is returned is what the engine runs: scales
//! and decays are f32 numbers, and where f32 is coarse (decays near 1) decays are rounded one at a time, the others searched again.

mod gradient;
mod inverse;
mod variables;

use super::lbfgs::{Settings, minimize};
use super::{Iteration, Observer, Optimum, Problem};
use crate::error::{Error, Result};
use crate::factorization::Factorization;
use crate::strategy::Strategy;
use crate::strategy::blt::{Blt, Decay};
use gradient::{Buffer, MAX_BUFFERS, Model};
use std::ops::ControlFlow;
use std::time::Instant;
use variables::{EDGE, MIN_SCALE, Variables, ascending};

/// Iterations to tell starts apart, and to finish the best of them.
const COARSE: usize = 30;
const FINE: usize = 300;
/// Multiplications per evaluation up to which all starts are tried, and fewer buffers first.
const CHEAP: f64 = 1e6;
/// A difference of `ln loss²` that is not worth a buffer.
const NEGLIGIBLE: f64 = 1e-8;
/// A search ends when it gains less than this three times in a row.
const STALLED: f64 = 1e-10;

/// The best BLT with at most `num_buffers` buffers, 1 to 8: buffers that do not help are dropped.
///
/// The workload is Toeplitz; prefix sums in closed form, others in O(n) per evaluation. With more than one participation the
/// search stays among coefficients that never increase, so that sensitivity is exact.
///
/// # Guarantees
/// The strategy consists of f32 numbers that the engine accepts, and its loss is at most that of [`Blt::rational`] rounded likewise.
///
/// ```
/// use corrnoise_planner::optimize::{Problem, Objective, blt, unobserved};
/// let best = blt::optimize(&Problem::streaming(1024, Objective::Max), 4, &mut unobserved())?;
/// assert!(best.loss < 3.274, "the square root has 3.273");
/// # Ok::<(), corrnoise_planner::Error>(())
/// ```
pub fn optimize(problem: &Problem, num_buffers: usize, observer: Observer<'_>) -> Result<Optimum> {
    let start = Instant::now();
    if !(1..=MAX_BUFFERS).contains(&num_buffers) {
        return Err(Error::parameter(
            "number of buffers",
            num_buffers,
            format!("between 1 and {MAX_BUFFERS}"),
        ));
    }
    Model::check(problem, num_buffers)?;
    let model = Model::new(problem)?;
    let mut search = Search::new(&model, num_buffers, observer);
    let mut best: Option<Candidate> = None;
    for d in search.levels(num_buffers) {
        best = Some(search.level(d, best)?);
    }
    search.deliver(problem, &best.expect("at least one level"), start)
}

/// The BLT with the fewest buffers, up to 8, whose loss is within `tolerance` (relative) of the best found.
pub fn optimize_auto(problem: &Problem, tolerance: f64, observer: Observer<'_>) -> Result<Optimum> {
    let start = Instant::now();
    if !(tolerance.is_finite() && tolerance >= 0.0) {
        return Err(Error::parameter("tolerance", tolerance, "finite, at least 0"));
    }
    Model::check(problem, 1)?;
    let model = Model::new(problem)?;
    let mut search = Search::new(&model, MAX_BUFFERS, observer);
    let mut found: Vec<Candidate> = Vec::new();
    for d in (1..=MAX_BUFFERS).take_while(|d| Model::check(problem, *d).is_ok()) {
        let next = search.level(d, found.last().cloned())?;
        let gain = found.last().map_or(f64::INFINITY, |last| last.value - next.value);
        found.push(next);
        // Gains fall geometrically: what is left is less than the last one.
        if gain < 0.1 * tolerance || search.stopped {
            break;
        }
    }
    let allowed = found.last().expect("at least one level").value + 2.0 * tolerance.ln_1p();
    let best = found.iter().find(|candidate| candidate.value <= allowed).expect("the last one is");
    search.deliver(problem, best, start)
}

/// Buffers by ascending decay and their `ln loss²`.
#[derive(Clone)]
struct Candidate {
    value: f64,
    buffers: Vec<Buffer>,
}

struct Search<'a, 'b> {
    model: &'a Model,
    observer: Observer<'b>,
    iterations: usize,
    max_iterations: usize,
    /// The smallest `ln loss²` so far.
    best: f64,
    stopped: bool,
}

impl<'a, 'b> Search<'a, 'b> {
    fn new(model: &'a Model, num_buffers: usize, observer: Observer<'b>) -> Search<'a, 'b> {
        // Per level: starts, the three best of them; at the end: two ways to round each decay, and the scales.
        let max_iterations = num_buffers * (8 * COARSE + 3 * FINE) + (2 * num_buffers + 2) * COARSE;
        Search { model, observer, iterations: 0, max_iterations, best: f64::INFINITY, stopped: false }
    }

    fn is_cheap(&self, num_buffers: usize) -> bool {
        self.model.cost(num_buffers) <= CHEAP
    }

    /// Numbers of buffers to search on the way to `num_buffers`.
    fn levels(&self, num_buffers: usize) -> std::ops::RangeInclusive<usize> {
        if self.is_cheap(num_buffers) { 1..=num_buffers } else { num_buffers..=num_buffers }
    }

    /// The best with `d` buffers, or with those of `fewer` if another one does not help.
    fn level(&mut self, d: usize, fewer: Option<Candidate>) -> Result<Candidate> {
        let starts = self.starts(d, fewer.as_ref())?;
        // An expensive loss has few starts: each is followed to its end.
        let first = if self.is_cheap(d) { COARSE } else { FINE };
        let free = |buffers: &[Buffer]| vec![None; buffers.len()];
        let mut found: Vec<Candidate> =
            starts.iter().map(|start| self.descend(start, &free(start), first)).collect();
        found.sort_by(|a, b| a.value.total_cmp(&b.value));
        if self.is_cheap(d) {
            found.truncate(3);
            found = found.iter().map(|u| self.descend(&u.buffers, &free(&u.buffers), FINE)).collect();
        }
        let best = found.into_iter().min_by(|a, b| a.value.total_cmp(&b.value)).expect("at least one start");
        let best = self.pruned(best);
        Ok(match fewer {
            Some(fewer) if fewer.value <= best.value + NEGLIGIBLE => fewer,
            _ => best,
        })
    }

    fn starts(&self, d: usize, fewer: Option<&Candidate>) -> Result<Vec<Vec<Buffer>>> {
        let n = self.model.num_steps();
        let rational = buffers_of(&Blt::rational(d, n)?);
        let mut starts = vec![rational.clone()];
        if self.model.non_increasing {
            starts.push(rational.iter().map(|u| Buffer { scale: 0.4 * u.scale, ..*u }).collect());
        }
        if !self.is_cheap(d) {
            return Ok(starts);
        }
        for horizon in [n.div_ceil(8), n.saturating_mul(4)] {
            starts.push(buffers_of(&Blt::rational(d, horizon)?));
        }
        if let Some(fewer) = fewer.filter(|fewer| fewer.buffers.len() < d) {
            starts.extend(with_one_more(&fewer.buffers));
        }
        Ok(starts)
    }

    /// The local minimum below a start, with some decays fixed.
    fn descend(&mut self, start: &[Buffer], fixed: &[Option<Decay>], max_iterations: usize) -> Candidate {
        let mut variables = Variables { model: self.model, fixed: fixed.to_vec() };
        let x = variables.encode(start);
        let max_iterations = if self.stopped { 0 } else { max_iterations };
        // With 1e-7 everywhere, an expensive loss spent most evaluations on line searches at the level of its rounding; 1e-5
        // changed its result by 3e-10 (momentum, 10⁵ steps).
        let gradient_tolerance = if self.is_cheap(start.len()) { 1e-7 } else { 1e-5 };
        let settings = Settings { max_iterations, gradient_tolerance, ..Settings::default() };
        let (before, best) = (self.iterations, self.best);
        let (observer, stopped, limit) = (&mut self.observer, &mut self.stopped, self.max_iterations);
        let (mut last, mut stalled) = (f64::INFINITY, 0);
        let found = minimize(&mut variables, x, settings, &mut |progress: Iteration| {
            let loss = (0.5 * progress.loss.min(best)).exp();
            let heard = observer.iteration(Iteration { number: before + progress.number, limit, loss });
            *stopped |= heard.is_break();
            stalled = if last - progress.loss < STALLED { stalled + 1 } else { 0 };
            last = progress.loss;
            if stalled == 3 { ControlFlow::Break(()) } else { heard }
        });
        self.iterations += found.iterations;
        let value = if found.value.is_nan() { f64::INFINITY } else { found.value };
        self.best = self.best.min(value);
        Candidate { value, buffers: ascending(&variables.decode(&found.x)).1 }
    }

    /// Without buffers that can go, alone or into their neighbour.
    fn pruned(&self, mut candidate: Candidate) -> Candidate {
        let mut i = 0;
        while i < candidate.buffers.len() && candidate.buffers.len() > 1 {
            let mut without = candidate.buffers.clone();
            let gone = without.remove(i);
            let mut merged = without.clone();
            let neighbour = &mut merged[i.min(without.len() - 1)];
            *neighbour = merge(*neighbour, gone);
            let value = |buffers: &[Buffer]| self.model.log_loss_squared(buffers).value;
            let shorter = if value(&merged) < value(&without) { merged } else { without };
            if value(&shorter) <= candidate.value + NEGLIGIBLE {
                candidate = Candidate { value: value(&shorter), buffers: shorter };
            } else {
                i += 1;
            }
        }
        candidate
    }

    /// What the engine runs of a candidate, evaluated anew.
    fn deliver(&mut self, problem: &Problem, best: &Candidate, start: Instant) -> Result<Optimum> {
        let decays = self.rounded_decays(&best.buffers);
        let mut merged: Vec<Buffer> = Vec::new();
        for buffer in decays {
            match merged.last_mut() {
                Some(last) if last.decay == buffer.decay => last.scale += buffer.scale,
                _ => merged.push(buffer),
            }
        }
        let fixed: Vec<Option<Decay>> = merged.iter().map(|buffer| Some(buffer.decay)).collect();
        let found = self.descend(&merged, &fixed, COARSE).buffers;
        let found = self.rounded_scales(&found);
        let simple = buffers_of(&Blt::rational(best.buffers.len(), self.model.num_steps())?);
        let simple = self.rounded_scales(
            &simple.iter().map(|u| Buffer { decay: nearest(u.decay), ..*u }).collect::<Vec<_>>(),
        );
        let value = |buffers: &[Buffer]| self.model.log_loss_squared(buffers).value;
        if !value(&found).is_finite() {
            return Err(Error::parameter("loss", value(&found), "finite: the workload's squares overflow"));
        }
        let buffers = if value(&simple) < value(&found) { simple } else { found };
        let (scale, decay): (Vec<f64>, Vec<f64>) = buffers.iter().map(|u| (u.scale, u.decay.value)).unzip();
        let factorization = Factorization::new(Strategy::Blt(Blt::new(&scale, &decay)?), problem.num_steps)?;
        factorization.form()?;
        Optimum::evaluate(problem, factorization, self.iterations, start)
    }

    /// Decays as f32 numbers. From the largest down, while f32 is coarse for them: both neighbours are tried, and the rest follows.
    fn rounded_decays(&mut self, buffers: &[Buffer]) -> Vec<Buffer> {
        let mut current = Candidate { value: f64::INFINITY, buffers: buffers.to_vec() };
        let mut fixed = vec![None; buffers.len()];
        for i in (0..buffers.len()).rev() {
            let decay = current.buffers[i].decay;
            if !self.is_cheap(buffers.len()) || EDGE < 1e-4 * decay.complement {
                break;
            }
            let tried =
                [(decay.complement / EDGE).floor().max(1.0), (decay.complement / EDGE).ceil()].map(|ticks| {
                    let complement = ticks * EDGE;
                    fixed[i] = Some(Decay { value: 1.0 - complement, complement });
                    (self.descend(&current.buffers, &fixed, COARSE), fixed[i])
                });
            let (best, decay) = if tried[0].0.value <= tried[1].0.value { &tried[0] } else { &tried[1] };
            // A decay that overtook a fixed one would mix up their places.
            if best.buffers[i].decay != decay.expect("just set") {
                break;
            }
            (current, fixed[i]) = (best.clone(), *decay);
        }
        current.buffers.iter().map(|u| Buffer { decay: nearest(u.decay), ..*u }).collect()
    }

    /// Scales as f32 numbers, towards zero where their sum may not exceed 1.
    fn rounded_scales(&self, buffers: &[Buffer]) -> Vec<Buffer> {
        let round = |scale: f64| {
            let nearest = scale.max(MIN_SCALE) as f32;
            let above = f64::from(nearest) > scale;
            f64::from(if self.model.non_increasing && above { nearest.next_down() } else { nearest })
        };
        buffers.iter().map(|u| Buffer { scale: round(u.scale), ..*u }).collect()
    }
}

fn buffers_of(blt: &Blt) -> Vec<Buffer> {
    let pairs = blt.scale().iter().zip(blt.decay());
    let buffers: Vec<Buffer> =
        pairs.map(|(&scale, &decay)| Buffer { scale, decay: Decay::new(decay) }).collect();
    ascending(&buffers).1
}

/// The f32 number next to a decay, not 0 and not 1.
fn nearest(decay: Decay) -> Decay {
    Decay::new(f64::from(decay.value as f32).clamp(EDGE, 1.0 - EDGE))
}

fn merge(a: Buffer, b: Buffer) -> Buffer {
    let scale = a.scale + b.scale;
    let mean = |x: f64, y: f64| (a.scale * x + b.scale * y) / scale;
    let value = mean(a.decay.value, b.decay.value);
    Buffer { scale, decay: Decay { value, complement: mean(a.decay.complement, b.decay.complement) } }
}

/// One buffer more: at once forgotten, below the fastest, above the slowest, or in the widest gap of `ln((1 − λ)/λ)`.
fn with_one_more(buffers: &[Buffer]) -> Vec<Vec<Buffer>> {
    let place = |u: &Buffer| (u.decay.complement / u.decay.value).ln();
    let at = |x: f64, scale: f64| {
        let decay = Decay { value: 1.0 / (1.0 + x.exp()), complement: 1.0 / (1.0 + (-x).exp()) };
        let mut more = buffers.to_vec();
        more.push(Buffer { scale, decay });
        ascending(&more).1
    };
    let (fastest, slowest) = (&buffers[0], &buffers[buffers.len() - 1]);
    let mut starts = vec![
        // λ = 0.01: next to nothing but a first coefficient of its own.
        at(4.6, 0.2 * fastest.scale),
        at(place(fastest) + 1.5, 0.2 * fastest.scale),
        at(place(slowest) - 1.5, 0.2 * slowest.scale),
    ];
    let widest = buffers
        .windows(2)
        .max_by(|a, b| (place(&a[0]) - place(&a[1])).total_cmp(&(place(&b[0]) - place(&b[1]))));
    if let Some(pair) = widest {
        starts.push(at(
            0.5 * (place(&pair[0]) + place(&pair[1])),
            0.3 * (pair[0].scale * pair[1].scale).sqrt(),
        ));
    }
    starts
}
