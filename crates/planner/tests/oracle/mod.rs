//! The true guarantee of a plan, computed from plain definitions by code that shares nothing with the crate's analysis.
//!
//! [`check`] compares what a plan states with the noise that it runs. The noise's matrix is read off the engine's recursions in double-double
//! arithmetic ([`noise`]), patterns of participation are tried one by one ([`patterns`]), and ε follows from δ by integrating the definition
//! of the hockey-stick divergence ([`gauss`], [`sampled`]).

// Two test programs share this folder, and neither uses all of it.
#![allow(dead_code)]

pub mod dd;
pub mod gauss;
pub mod noise;
pub mod patterns;
pub mod random;
pub mod sampled;
pub mod small;

use corrnoise_core::{Plan, Sampling};
use corrnoise_planner::{Adjacency, Certificate, Exactness, Method, Participation};

/// The effort that is spent on computing the truth.
#[derive(Clone, Copy, PartialEq)]
pub enum Effort {
    /// Everything is computed but the composition of sampled rounds.
    Usual,
    /// Sampled rounds are composed as well, by a discretisation rounded down.
    Composed,
}

/// The comparisons that could be made.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// The claim's ε was found to be hardly above the truth.
    pub tight: bool,
    /// Rounds of sampling were composed.
    pub composed: bool,
}

/// Refuses a statement that is below the truth of the noise that runs, or far above a truth that is known exactly.
pub fn check(plan: &Plan, stated: &Certificate, effort: Effort) -> Result<Report, String> {
    let mut report = Report::default();
    let claim = &stated.claim;
    let n = plan.num_steps() as usize;
    let strategy = noise::strategy(plan);
    let gram = noise::gram(&strategy);
    if gram.iter().flatten().any(|entry| !entry.is_finite()) {
        return Err("the strategy overflows, and a claim was made".into());
    }
    let participation = participation(plan, stated);
    let worst = patterns::worst(&gram, &participation);
    let factor = match stated.adjacency {
        Adjacency::ZeroOut => 1.0,
        Adjacency::ReplaceOne => 2.0,
    };
    let far = stated.clip_norm * factor;
    let mu = worst.squared.sqrt() * far;
    expect(claim.gdp_mu >= mu * (1.0 - 1e-13), || format!("gdp_mu {} of a true {mu}", claim.gdp_mu))?;
    expect(claim.noise_multiplier <= (1.0 + 1e-13) / mu, || {
        format!("noise multiplier {} of a true {}", claim.noise_multiplier, 1.0 / mu)
    })?;
    let delta = claim.delta;
    let plain = gauss::epsilon(mu, gauss::a_little_more(delta));
    let sampled = sampling_of(plan.sampling());
    if claim.method == Method::Allocated {
        // A unit in the bin with the longest shift is told apart as a single round of that probability would.
        let Some(Sampling::BallsInBins { num_bins, .. }) = plan.sampling() else {
            return Err("a proof by balls in bins under another scheme".into());
        };
        let least = sampled::one_round(mu, 1.0 / num_bins as f64, gauss::a_little_more(delta));
        expect(claim.epsilon >= least * (1.0 - 1e-12), || {
            format!("epsilon {:e}, but one bin of {num_bins} at mu {mu} needs {least:e}", claim.epsilon)
        })?;
    } else if claim.method == Method::Redrawn {
        // Whoever looks at one step of every epoch sees rounds in which a unit takes part with one over their number.
        let Some(Sampling::RandomAllocation { num_bins, .. }) = plan.sampling() else {
            return Err("a proof by redrawn allocation under another scheme".into());
        };
        let bins = num_bins as usize;
        let norm = |t: usize| gram[t][t].sqrt() * far;
        let mus: Vec<f64> =
            (0..n).step_by(bins).map(|t| (t..n.min(t + bins)).map(norm).fold(0.0, f64::max)).collect();
        let loudest = mus.iter().copied().fold(0.0, f64::max);
        let least = sampled::one_round(loudest, 1.0 / num_bins as f64, gauss::a_little_more(delta));
        expect(claim.epsilon >= least * (1.0 - 1e-12), || {
            format!("epsilon {:e}, but one step of {num_bins} at mu {loudest} needs {least:e}", claim.epsilon)
        })?;
        if effort == Effort::Composed && mus.len() <= 16 && claim.epsilon > 0.0 && delta > 1e-10 {
            let true_delta = sampled::delta(&mus, 1.0 / num_bins as f64, claim.epsilon);
            expect(true_delta <= delta * (1.0 + 1e-9), || {
                format!("epsilon {} at delta {delta:e}, but delta is at least {true_delta:e}", claim.epsilon)
            })?;
            report.composed = true;
        }
    } else if sampled.is_none() || claim.method == Method::Gaussian {
        expect(claim.epsilon >= plain * (1.0 - 1e-12), || {
            format!("epsilon {:e} of a true {plain:e} at mu {mu:e} and delta {delta:e}", claim.epsilon)
        })?;
    }
    // Shifts of the normals, if a unit has the same gradient along one coordinate at every step but for the sign.
    let shifts = noise::image(&strategy, &worst.steps, &worst.signs, far);
    let mut tail = gauss::leaving(&shifts);
    if let Some((num_blocks, prob)) = sampled {
        let blocks = (0..num_blocks.min(n)).map(|first| (first..n).step_by(num_blocks).collect::<Vec<_>>());
        tail = 0.0;
        let mut loudest: Vec<f64> = Vec::new();
        for block in blocks {
            let mus: Vec<f64> = block.iter().map(|t| gram[*t][*t].sqrt() * far).collect();
            let most = mus.iter().copied().fold(0.0, f64::max);
            let least = sampled::one_round(most, prob, gauss::a_little_more(delta));
            expect(claim.epsilon >= least * (1.0 - 1e-12), || {
                format!("epsilon {:e}, but one round of {prob} at mu {most} needs {least:e}", claim.epsilon)
            })?;
            let stays: f64 = block
                .iter()
                .map(|t| (-prob * gauss::leaving(&noise::image(&strategy, &[*t], &[1.0], far))).ln_1p())
                .sum();
            tail = f64::max(tail, -stays.exp_m1());
            let squared = |mus: &[f64]| mus.iter().map(|mu| mu * mu).sum::<f64>();
            if squared(&mus) > squared(&loudest) {
                loudest = mus;
            }
        }
        if effort == Effort::Composed && loudest.len() <= 16 && claim.epsilon > 0.0 && delta > 1e-10 {
            let true_delta = sampled::delta(&loudest, prob, claim.epsilon);
            expect(true_delta <= delta * (1.0 + 1e-9), || {
                format!("epsilon {} at delta {delta:e}, but delta is {true_delta:e}", claim.epsilon)
            })?;
            report.composed = true;
        }
    }
    if !noise::is_square(plan) {
        // Where several normals make one step, their sums end further out.
        tail = 0.0;
    }
    expect(delta >= tail && claim.tail_delta >= tail * (1.0 - 1e-3), || {
        format!("delta {delta:e}, of it {:e} for a tail of {tail:e}, mu = {mu}", claim.tail_delta)
    })?;
    if claim.sensitivity_kind == Exactness::Exact && worst.exhaustive {
        expect(claim.gdp_mu <= mu * (1.0 + 1e-6), || {
            format!("gdp_mu {} far above a true {mu}", claim.gdp_mu)
        })?;
        if claim.method == Method::Gaussian && claim.tail_delta <= 1e-4 * delta {
            let left = gauss::a_little_less(delta - claim.tail_delta);
            let most = gauss::epsilon(mu * (1.0 + 5e-7), left) * (1.0 + 3e-6);
            expect(claim.epsilon <= most, || {
                format!("epsilon {} far above a true {plain}, at most {most}", claim.epsilon)
            })?;
            // Near δ = 1 the charge for the tail may be a part of 1 − δ that moves ε.
            report.tight = claim.tail_delta <= 1e-4 * (1.0 - delta);
        }
    }
    Ok(report)
}

fn expect(holds: bool, message: impl Fn() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(message()) }
}

/// The blocks and the probability of (block-cyclic) Poisson sampling.
fn sampling_of(sampling: Option<Sampling>) -> Option<(usize, f64)> {
    match sampling? {
        Sampling::Poisson { sampling_prob, .. } => Some((1, sampling_prob)),
        // Truncation only adds to a claim.
        Sampling::BlockPoisson { num_blocks, sampling_prob, .. }
        | Sampling::TruncatedPoisson { num_blocks, sampling_prob, .. } => {
            Some((num_blocks as usize, sampling_prob))
        }
        _ => None,
    }
}

/// The participation that the sampling scheme allows, or else that which the trainer guarantees.
fn participation(plan: &Plan, stated: &Certificate) -> Participation {
    let n = plan.num_steps() as usize;
    let turns = |parts: u64| Participation::Cyclic { separation: parts as usize, max_participations: n };
    match plan.sampling() {
        None => stated.participation.clone(),
        Some(Sampling::Poisson { .. }) => Participation::Full,
        Some(Sampling::BlockPoisson { num_blocks, .. } | Sampling::TruncatedPoisson { num_blocks, .. }) => {
            turns(num_blocks)
        }
        Some(Sampling::Cyclic { num_batches, .. }) => turns(num_batches),
        Some(Sampling::BallsInBins { num_bins, .. }) => turns(num_bins),
        // Any steps, as many as there are epochs: what a plan states, though a unit's steps lie in different epochs.
        Some(Sampling::RandomAllocation { num_bins, .. }) => {
            Participation::MinSep { min_sep: 1, max_participations: n.div_ceil((num_bins as usize).min(n)) }
        }
        Some(Sampling::SpacedPoisson { min_sep, .. }) => {
            Participation::MinSep { min_sep: min_sep.min(n as u64) as usize, max_participations: n }
        }
        Some(Sampling::MinSep { min_sep, max_participations }) => Participation::MinSep {
            min_sep: min_sep.min(n as u64) as usize,
            max_participations: max_participations.min(n as u64) as usize,
        },
    }
}
