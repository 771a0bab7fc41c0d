//! Tuples of k patterns, drawn one after another: a distribution close to `W^k·Q`.
//!
//! Given patterns π_1 … π_{c−1}, the next one is drawn with probability `p_π e^{⟨M_c, m_π⟩}/S_c`, `M_c = m_{π_1} + … + m_{π_{c−1}}`, `S_c = Σ_π p_π e^{⟨M_c, m_π⟩}`. The
//! output is then drawn from N(Σ_a m_{π_a}, 1), whose density over Q's is `Π_a e^{⟨m_{π_a}, y⟩ − |m_{π_a}|²/2} · e^{−Σ_{a<c} ⟨m_{π_a}, m_{π_c}⟩}`. With
//! `ρ = Π_c S_c`, a function of the tuple, the sum over all tuples of (probability · density · ρ) is `W^k` times Q's density. So for every f
//!
//! ```text
//! E[f(W) W^{−k} ρ] = E_Q f(W)
//! ```
//! A bound on ρ is one on `S_c ≤ max_{π'} Σ_π p_π e^{(c−1)⟨m_{π'}, m_π⟩}` (Hölder's inequality). Where patterns are bins, that is a maximum of b sums. Where they are spaced steps,
//! the exponent is a sum over the steps s of π', each of which matters in a window of fewer than b steps before and after it. The windows of every second step of π' do not overlap, so by Cauchy's
//! inequality, and by conditioning on what is before a window, the mean is at most `Π_s √η_s`, with η_s the mean of `exp(2(c−1) Σ_{t∈π} ⟨v_s, v_t⟩)` over that window, given the
//! worst place from which on the unit is free. The largest product over spaced steps is a recursion.
//!
//! Few units take part far more often than others, and would spoil the bound. Tuples in which a pattern has more than K steps are therefore given the value 0. With W_B the part of W by such patterns,
//! what is left has the mean `E_Q f(W)(1 − W_B/W)^k ≥ E_Q f(W) − k·E_Q[W_B·f(W)/W]`, and `f(W) ≤ W` for `f(W) = (W − e^ε)₊`: at most k times the probability of such a pattern is
//! missing, which is added.

use super::law::{Law, Patterns, row};
use super::source::Source;
use corrnoise_numerics::{LANES, Lane, exponentials};

/// Bounds on the logarithms of `S_2, S_3, …`, as far as they were asked for.
pub(super) struct Bounds<'a> {
    law: &'a Law,
    variance: f64,
    logs: Vec<f64>,
}

impl<'a> Bounds<'a> {
    pub(super) fn new(law: &'a Law, stddev: f64) -> Bounds<'a> {
        Bounds { law, variance: stddev * stddev, logs: Vec::new() }
    }

    /// A bound on the logarithm of ρ for tuples of so many patterns.
    pub(super) fn ln_weight(&mut self, order: usize) -> f64 {
        for times in self.logs.len() + 1..order {
            self.logs.push(largest_mean(self.law, times as f64 / self.variance));
        }
        self.logs[..order - 1].iter().sum()
    }
}

/// A bound on `ln max_{π'} Σ_π p_π e^{factor·⟨m_{π'}, m_π⟩}`.
fn largest_mean(law: &Law, factor: f64) -> f64 {
    let n = law.squares.len();
    match law.patterns {
        Patterns::One => {
            let mean = |i: usize| {
                let terms = row(&law.products, i).map(|(_, product)| (factor * product).exp());
                terms.sum::<f64>() / n as f64
            };
            (0..n).map(mean).fold(1.0, f64::max).ln()
        }
        Patterns::Spaced { min_sep, prob } => {
            let apart = usize::try_from(min_sep).unwrap_or(usize::MAX);
            let half_ln = |step: usize| {
                let weights: Vec<f64> =
                    row(&law.products, step).map(|(_, product)| (2.0 * factor * product).exp()).collect();
                let mut means = vec![1.0; weights.len() + 1];
                let mut most = 1.0_f64;
                for (t, weight) in weights.iter().enumerate().rev() {
                    let after = means.get(t.saturating_add(apart)).copied().unwrap_or(1.0);
                    means[t] = (1.0 - prob) * means[t + 1] + prob * weight * after;
                    most = most.max(means[t]);
                }
                0.5 * most.ln()
            };
            let half_lns: Vec<f64> = (0..n).map(half_ln).collect();
            // The largest sums of so many steps, from every step on.
            let mut best = vec![0.0_f64; n + 1];
            for _ in 0..law.most_elements {
                let mut more = vec![0.0_f64; n + 1];
                for t in (0..n).rev() {
                    let after = best.get(t.saturating_add(apart)).copied().unwrap_or(0.0);
                    more[t] = more[t + 1].max(half_lns[t] + after);
                }
                best = more;
            }
            best[0]
        }
    }
}

/// Memory for drawing tuples.
#[derive(Default)]
pub(super) struct Room {
    exponents: Vec<Lane>,
    weights: Vec<Lane>,
}

/// Draws a tuple of `order` patterns for every lane, adds their vectors to `output`, and returns the logarithms of ρ: −∞ where a pattern is left out.
pub(super) fn draw(
    law: &Law,
    stddev: f64,
    order: usize,
    source: &mut Source<'_>,
    room: &mut Room,
    output: &mut [Lane],
) -> Lane {
    let Room { exponents, weights } = room;
    exponents.clear();
    exponents.resize(law.squares.len(), [0.0; LANES]);
    let mut ln_weight = [0.0; LANES];
    for stage in 0..order {
        weights.clone_from(exponents);
        exponentials(weights.as_flattened_mut());
        let mean = law.mean(weights);
        (0..LANES).for_each(|lane| ln_weight[lane] += mean[lane].ln());
        for lane in 0..LANES {
            let mut elements = 0;
            law.draw(weights, &mean, lane, source, |element| {
                elements += 1;
                row(&law.vectors, element).for_each(|(place, entry)| output[place][lane] += entry / stddev);
                if stage + 1 < order {
                    let near = row(&law.products, element);
                    near.for_each(|(i, product)| exponents[i][lane] += product / (stddev * stddev));
                }
            });
            if elements > law.most_elements {
                ln_weight[lane] = f64::NEG_INFINITY;
            }
        }
    }
    ln_weight
}
