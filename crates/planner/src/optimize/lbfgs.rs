//! Limited-memory BFGS with a line search for the strong Wolfe conditions (Nocedal and Wright, algorithms 3.5, 3.6 and 7.5).
//!
//! Ours rather than a crate's: objectives may be infinite outside their domain (the search steps back), a few thousand variables
//! cost microseconds per iteration, and the result must not depend on threads or time.

use super::Iteration;
use crate::strategy::series::dot;
use std::collections::VecDeque;
use std::ops::ControlFlow;

/// A smooth function to minimise.
pub trait Differentiable {
    /// The value at `x`, and its gradient; infinite or NaN outside the domain, where the gradient does not matter.
    fn evaluate(&mut self, x: &[f64], gradient: &mut [f64]) -> f64;
}

impl<F: FnMut(&[f64], &mut [f64]) -> f64> Differentiable for F {
    fn evaluate(&mut self, x: &[f64], gradient: &mut [f64]) -> f64 {
        self(x, gradient)
    }
}

/// When to stop, and how much to remember.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Pairs of steps and gradients kept.
    pub memory: usize,
    /// The most iterations that are made.
    pub max_iterations: usize,
    /// Stops when the largest gradient entry is below this.
    pub gradient_tolerance: f64,
    /// Stops when the value falls by less than this, relative to its size, ten times in a row.
    pub value_tolerance: f64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { memory: 20, max_iterations: 500, gradient_tolerance: 1e-9, value_tolerance: 1e-13 }
    }
}

/// Where the search ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Minimum {
    /// The point where the search ended.
    pub x: Vec<f64>,
    /// The function's value at that point.
    pub value: f64,
    /// How many iterations were made.
    pub iterations: usize,
    /// Evaluations of the function.
    pub evaluations: usize,
}

/// Minimises from `x`, where the function must be finite. `observe` hears the value itself.
pub fn minimize(
    function: &mut impl Differentiable,
    x: Vec<f64>,
    settings: Settings,
    observe: &mut dyn FnMut(Iteration) -> ControlFlow<()>,
) -> Minimum {
    let mut search = Search::new(function, x);
    let mut history: VecDeque<(Vec<f64>, Vec<f64>, f64)> = VecDeque::new();
    let (mut iteration, mut stalled) = (0, 0);
    while iteration < settings.max_iterations && largest(&search.gradient) > settings.gradient_tolerance {
        let direction = two_loop(&search.gradient, &history);
        // The first step has no curvature to go by: a short one.
        let first = if history.is_empty() { (1.0 / largest(&search.gradient)).min(1.0) * 0.1 } else { 1.0 };
        let before = search.value;
        let Some((step, change)) = search.along(&direction, first) else {
            if history.is_empty() {
                break;
            }
            // A direction that leads nowhere: forget, and go down the gradient.
            history.clear();
            continue;
        };
        iteration += 1;
        let curvature = dot(&step, &change);
        if curvature > 1e-14 * dot(&change, &change).sqrt() * dot(&step, &step).sqrt() {
            history.push_back((step, change, curvature));
            if history.len() > settings.memory {
                history.pop_front();
            }
        }
        let small = before - search.value <= settings.value_tolerance * before.abs().max(1e-300);
        stalled = if small { stalled + 1 } else { 0 };
        let progress = Iteration { number: iteration, limit: settings.max_iterations, loss: search.value };
        if stalled >= 10 || observe(progress).is_break() {
            break;
        }
    }
    Minimum { x: search.x, value: search.value, iterations: iteration, evaluations: search.evaluations }
}

/// `−H·gradient` with the inverse Hessian that the history implies.
fn two_loop(gradient: &[f64], history: &VecDeque<(Vec<f64>, Vec<f64>, f64)>) -> Vec<f64> {
    let mut q: Vec<f64> = gradient.iter().map(|g| -g).collect();
    let mut weights = Vec::with_capacity(history.len());
    for (step, change, curvature) in history.iter().rev() {
        let weight = dot(step, &q) / curvature;
        add(&mut q, -weight, change);
        weights.push(weight);
    }
    if let Some((_, change, curvature)) = history.back() {
        let scale = curvature / dot(change, change);
        q.iter_mut().for_each(|value| *value *= scale);
    }
    for ((step, change, curvature), weight) in history.iter().zip(weights.into_iter().rev()) {
        let correction = dot(change, &q) / curvature;
        add(&mut q, weight - correction, step);
    }
    q
}

struct Search<'a, O> {
    function: &'a mut O,
    x: Vec<f64>,
    value: f64,
    gradient: Vec<f64>,
    evaluations: usize,
}

/// A point on the line: length, value, slope.
#[derive(Clone, Copy)]
struct Point {
    length: f64,
    value: f64,
    slope: f64,
}

/// Sufficient decrease, and curvature: loose, since the direction has the right length by itself.
const DECREASE: f64 = 1e-4;
const CURVATURE: f64 = 0.9;

impl<O: Differentiable> Search<'_, O> {
    fn new(function: &mut O, x: Vec<f64>) -> Search<'_, O> {
        let mut gradient = vec![0.0; x.len()];
        let value = function.evaluate(&x, &mut gradient);
        Search { function, x, value, gradient, evaluations: 1 }
    }

    /// Moves along a direction to a point that satisfies the Wolfe conditions; gives the step and the change of the gradient. `None` if
    /// there is no such point, or the direction does not descend.
    fn along(&mut self, direction: &[f64], first: f64) -> Option<(Vec<f64>, Vec<f64>)> {
        let start = Point { length: 0.0, value: self.value, slope: dot(&self.gradient, direction) };
        if start.slope >= 0.0 || !start.slope.is_finite() {
            return None;
        }
        let (from, old) = (self.x.clone(), self.gradient.clone());
        let (mut low, mut high): (Point, Option<Point>) = (start, None);
        let mut length = first;
        let mut best: Option<(f64, Vec<f64>, Vec<f64>)> = None;
        for _ in 0..40 {
            let (point, x, gradient) = self.probe(&from, direction, length);
            let finite = point.value.is_finite() && point.slope.is_finite();
            let decreases = finite && point.value <= start.value + DECREASE * length * start.slope;
            if decreases && best.as_ref().is_none_or(|best| point.value < best.0) {
                best = Some((point.value, x.clone(), gradient.clone()));
            }
            if !decreases || point.value >= low.value && low.length > 0.0 {
                high = Some(if finite { point } else { Point { value: f64::INFINITY, ..point } });
            } else if point.slope.abs() <= -CURVATURE * start.slope {
                best = Some((point.value, x, gradient));
                break;
            } else {
                if point.slope >= 0.0 {
                    high = Some(low);
                }
                low = point;
            }
            length = next_length(low, high);
            if high
                .is_some_and(|high| (high.length - low.length).abs() <= 1e-12 * high.length.max(low.length))
            {
                break;
            }
        }
        let (value, x, gradient) = best?;
        if value > start.value {
            return None;
        }
        let step = x.iter().zip(&from).map(|(new, old)| new - old).collect();
        let change = gradient.iter().zip(&old).map(|(new, old)| new - old).collect();
        (self.x, self.value, self.gradient) = (x, value, gradient);
        Some((step, change))
    }

    fn probe(&mut self, from: &[f64], direction: &[f64], length: f64) -> (Point, Vec<f64>, Vec<f64>) {
        let x: Vec<f64> = from.iter().zip(direction).map(|(x, d)| x + length * d).collect();
        let mut gradient = vec![0.0; x.len()];
        let value = self.function.evaluate(&x, &mut gradient);
        self.evaluations += 1;
        (Point { length, value, slope: dot(&gradient, direction) }, x, gradient)
    }
}

/// Twice as far while nothing bounds the step, else the minimum of the cubic through both ends, kept away from them.
fn next_length(low: Point, high: Option<Point>) -> f64 {
    let Some(high) = high else { return if low.length == 0.0 { 1.0 } else { 2.0 * low.length } };
    let width = high.length - low.length;
    let middle = low.length + 0.5 * width;
    if !high.value.is_finite() {
        return low.length + 0.1 * width;
    }
    let d = low.slope + high.slope - 3.0 * (low.value - high.value) / (low.length - high.length);
    let root = (d * d - low.slope * high.slope).sqrt() * width.signum();
    let cubic = high.length - width * (high.slope + root - d) / (high.slope - low.slope + 2.0 * root);
    let (near, far) = (low.length + 0.1 * width, low.length + 0.9 * width);
    if cubic.is_finite() && cubic > near.min(far) && cubic < near.max(far) { cubic } else { middle }
}

fn add(to: &mut [f64], weight: f64, values: &[f64]) {
    to.iter_mut().zip(values).for_each(|(to, value)| *to += weight * value);
}

fn largest(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |largest: f64, value| largest.max(value.abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quiet() -> impl FnMut(Iteration) -> ControlFlow<()> {
        |_| ControlFlow::Continue(())
    }

    #[test]
    fn finds_the_end_of_a_valley() {
        let mut rosenbrock = |x: &[f64], gradient: &mut [f64]| {
            let mut value = 0.0;
            gradient.fill(0.0);
            for i in 0..x.len() - 1 {
                let (a, b) = (x[i + 1] - x[i] * x[i], 1.0 - x[i]);
                value += 100.0 * a * a + b * b;
                gradient[i] += -400.0 * a * x[i] - 2.0 * b;
                gradient[i + 1] += 200.0 * a;
            }
            value
        };
        let found = minimize(&mut rosenbrock, vec![-1.2; 30], Settings::default(), &mut quiet());
        assert!(found.x.iter().all(|x| (x - 1.0).abs() < 1e-6), "{found:?}");
    }

    #[test]
    fn steps_back_from_infinity_and_stops_when_told() {
        // −ln x + x on x > 0: infinite elsewhere, smallest at 1.
        let mut barrier = |x: &[f64], gradient: &mut [f64]| {
            gradient[0] = 1.0 - 1.0 / x[0];
            if x[0] > 0.0 { x[0] - x[0].ln() } else { f64::INFINITY }
        };
        let found = minimize(&mut barrier, vec![50.0], Settings::default(), &mut quiet());
        assert!((found.x[0] - 1.0).abs() < 1e-6, "{found:?}");
        let mut heard = 0;
        let mut stop = |progress: Iteration| {
            heard = progress.number;
            if heard == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let stopped = minimize(&mut barrier, vec![50.0], Settings::default(), &mut stop);
        assert_eq!((stopped.iterations, heard), (2, 2));
        assert!(stopped.value < 50.0 - 50.0_f64.ln());
    }
}
