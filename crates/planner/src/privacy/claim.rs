//! What a mechanism guarantees: (ε, δ) and μ, how they are known, and what they assume.
//!
//! Without amplification the whole run is one Gaussian mechanism: `μ = clip_norm · sensitivity / stddev`. Under (block-cyclic) Poisson
//! sampling and with no more bands than blocks, the turns of one block touch disjoint rows of `CG + Z`, so the run is `⌈n / blocks⌉` steps
//! of the subsampled Gaussian mechanism with noise multiplier `stddev / (clip_norm · ‖C‖_col)` (amplified banded matrix factorisation,
//! Choquette-Choo et al. 2023). Both hold; the smaller ε is the claim.
//!
//! Under balls in bins a third proof bounds the loss of any strategy without negative entries (`account/allocation`), and under allocation
//! that is redrawn in every epoch a fourth one that of noise whose bands end with it (`account/redrawn`).
//! Beside a proof there may be a smaller ε that samples show with confidence, of a type of its own (`claim/confident.rs`).
//!
//! The engine's normals end, so a part of δ is spent on outputs that only one of two datasets makes (`account/tail.rs`); ε is that of the
//! rest. Numbers that a guarantee rests on are stated a little larger than they were computed, by more than sums and transforms may be
//! off: a statement that is no smaller than what another machine computes is true.

use crate::error::{Error, Result, check_finite};
use crate::factorization::Factorization;
use crate::factorization::from_form::num_rows;
use crate::privacy::account::allocation::Bins;
use crate::privacy::account::tail::{beyond, beyond_sampled, delta_taken};
use crate::privacy::account::{Budget, MAX_PARAMETERS, Search, Subsampled, epsilon_of_delta, gdp};
use crate::privacy::participation::Participation;
use crate::privacy::schedule::{Poisson, Schedule};
use crate::privacy::sensitivity::{Adjacency, Exactness, Sensitivity};
use crate::strategy::Strategy;
use corrnoise_core::{Form, Sampling};
use serde::{Deserialize, Serialize};

mod allocated;
mod confident;
mod redrawn;

pub use allocated::Allocated;
pub(crate) use allocated::Proof;
pub(crate) use confident::{ATTEMPTS, Attempted};
pub use confident::{Claims, Confident};
use redrawn::Epochs;
pub use redrawn::Reallocated;

/// Whose privacy is protected. The mathematics is the same; what must be clipped and counted is not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PrivacyUnit {
    /// One training example: every example's gradient is clipped, and participations are counted per example.
    #[default]
    Example,
    /// One user: the sum of all that a user contributes to a step is clipped, and participations are counted per user.
    User,
}

/// What a claim is made for.
#[derive(Clone, Debug, PartialEq)]
pub struct Terms {
    /// Who takes part when.
    pub schedule: Schedule,
    /// Which datasets are neighbours.
    pub adjacency: Adjacency,
    /// Whose privacy is protected.
    pub unit: PrivacyUnit,
    /// Largest norm of one unit's contribution to a step.
    pub clip_norm: f64,
}

/// Which proof gave ε.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// The whole run is one Gaussian mechanism: μ-GDP, converted exactly.
    Gaussian,
    /// Amplification by Poisson sampling: privacy-loss distributions of the subsampled Gaussian mechanism, composed.
    Amplified,
    /// Amplification by balls in bins: the likelihood ratio of a covariance that is nowhere below the run's, bounded from above.
    Allocated,
    /// Amplification by random allocation that is redrawn in every epoch: the likelihood ratio of an epoch, a mean of independent
    /// lognormals, bounded in convex order and composed.
    Redrawn,
}

/// A privacy claim of a plan: a proof, and perhaps a smaller ε that is known with confidence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The ε that is proven, at `delta`.
    pub epsilon: f64,
    /// The δ of the claim.
    pub delta: f64,
    /// The part of δ that the end of the noise's tail takes.
    pub tail_delta: f64,
    /// How ε is known.
    pub method: Method,
    /// μ-GDP of the whole run without amplification, which holds whatever the method.
    pub gdp_mu: f64,
    /// `stddev / (clip_norm · sensitivity)`, which is 1/μ.
    pub noise_multiplier: f64,
    /// For clip norm 1, adjacency included.
    pub sensitivity: f64,
    /// Exact or an upper bound.
    pub sensitivity_kind: Exactness,
    /// The subsampled mechanism, under Poisson sampling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amplified: Option<Amplified>,
    /// What bounds the loss, under balls in bins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocated: Option<Allocated>,
    /// The epochs of random allocation, where it amplifies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redrawn: Option<Reallocated>,
    /// A smaller ε at `delta` that samples show: no proof.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confident: Option<Confident>,
    /// What must be true outside this library, in words.
    pub assumptions: Vec<String>,
}

/// The subsampled Gaussian mechanism that a run under Poisson sampling amounts to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Amplified {
    /// The noise multiplier of a round, `stddev / (clip_norm · ‖C‖_col)`.
    pub noise_multiplier: f64,
    /// The probability of every round.
    pub sampling_prob: f64,
    /// Times that a unit may be sampled.
    pub num_rounds: u64,
    /// The part of δ that is paid for batches of which units are left out; absent where nobody is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub truncation_delta: Option<f64>,
    /// ε at the claim's δ by this proof.
    pub epsilon: f64,
}

/// What the claims of one form under one schedule have in common, whatever the noise.
pub(crate) struct Basis {
    pub(crate) running: Factorization,
    pub(crate) participation: Participation,
    pub(crate) sensitivity: Sensitivity,
    pub(crate) poisson: Option<Poisson>,
    /// The bins of balls in bins, where the proof by them applies.
    bins: Option<Bins>,
    /// The epochs of random allocation, where the proof by them applies.
    epochs: Option<Epochs>,
    pub(crate) column_norm: f64,
    /// Rows of normals that the run is made of.
    num_rows: usize,
    clip_norm: f64,
}

impl Basis {
    pub(crate) fn new(form: &Form, num_steps: usize, terms: &Terms) -> Result<Basis> {
        check_finite("clip norm", terms.clip_norm)?;
        if terms.clip_norm <= 0.0 {
            return Err(Error::parameter("clip norm", terms.clip_norm, "above 0"));
        }
        let running = Factorization::from_form(form, num_steps)?;
        let participation = terms.schedule.participation(num_steps)?;
        let poisson = terms.schedule.poisson(num_steps);
        if let Some(Poisson { num_blocks, .. }) = poisson {
            if terms.adjacency == Adjacency::ReplaceOne {
                return Err(Error::parameter(
                    "adjacency",
                    "replace-one",
                    "zero-out under Poisson sampling: replacing has another dominating pair",
                ));
            }
            if running.num_bands() > num_blocks {
                return Err(too_many_bands(&running, num_blocks));
            }
        }
        let sensitivity = running.sensitivity(&participation, terms.adjacency)?;
        let column_norm = running.sensitivity(&Participation::Single, Adjacency::ZeroOut)?.value;
        for (name, value) in [("sensitivity", sensitivity.value), ("largest column norm", column_norm)] {
            if !(value.is_finite() && value > 0.0) {
                return Err(Error::parameter(name, value, "a finite number above 0"));
            }
        }
        let num_rows = num_rows(form, num_steps);
        // Where it does not apply, the run is still one Gaussian mechanism.
        let bins = match terms.schedule.sampling() {
            Some(Sampling::BallsInBins { num_bins, .. }) if terms.adjacency == Adjacency::ZeroOut => {
                Bins::of(&running, num_bins).ok()
            }
            _ => None,
        };
        let epochs = Epochs::of(&running, terms);
        Ok(Basis {
            running,
            participation,
            sensitivity,
            poisson,
            bins,
            epochs,
            column_norm,
            num_rows,
            clip_norm: terms.clip_norm,
        })
    }

    /// The standard deviation that makes the whole run μ-GDP.
    pub(crate) fn stddev_of_mu(&self, gdp_mu: f64) -> f64 {
        self.clip_norm * self.sensitivity.value / gdp_mu
    }

    /// The standard deviation with which one round of sampling has a noise multiplier.
    pub(crate) fn stddev_of_round(&self, noise_multiplier: f64) -> f64 {
        self.clip_norm * self.column_norm * noise_multiplier
    }

    fn stddev_without_bins(&self, budget: Budget) -> Result<f64> {
        let Budget { epsilon, delta } = budget;
        // What is stated is rounded up, and must still fit.
        let epsilon = epsilon * (1.0 - 2.0 * EPSILON_ROUNDING);
        let holds = |mu: f64| {
            let left = delta - self.plain_tail(mu * (1.0 + MU_ROUNDING), delta);
            Ok(left > 0.0 && gdp::ln_delta(mu * (1.0 + MU_ROUNDING), epsilon)? <= left.ln())
        };
        let plain = self.stddev_of_mu(gdp::largest_mu(holds, epsilon)?);
        match self.poisson {
            Some(poisson) if epsilon > 0.0 && poisson.truncation_delta.unwrap_or(0.0) < delta => {
                let Poisson { sampling_prob, num_rounds, .. } = poisson;
                let left =
                    |noise_multiplier: f64| delta - self.amplified_charge(poisson, noise_multiplier, delta);
                let budget = Budget { epsilon, delta };
                let round =
                    Subsampled::calibrated_with(budget, sampling_prob, num_rounds, Search::Fine, left)?;
                Ok(plain.min(self.stddev_of_round(round.noise_multiplier)))
            }
            _ => match self.epochs {
                Some(epochs) if epsilon > 0.0 => {
                    self.stddev_of_epochs(epochs, Budget { epsilon, delta }, plain)
                }
                _ => Ok(plain),
            },
        }
    }

    /// Pairs of normals in so many rows of a model of the largest size: at most one per parameter, where every tensor has a single one.
    fn pairs(rows: usize) -> f64 {
        rows as f64 * MAX_PARAMETERS as f64
    }

    /// What the end of the tail takes of δ if the whole run is one Gaussian mechanism.
    fn plain_tail(&self, gdp_mu: f64, delta: f64) -> f64 {
        let pairs = Self::pairs(self.num_rows);
        delta_taken(delta, pairs, beyond(gdp_mu, pairs))
    }

    /// What it takes if a run is rounds of sampling. A round touches as many rows as there are bands.
    fn amplified_tail(&self, poisson: Poisson, noise_multiplier: f64, delta: f64) -> f64 {
        let Poisson { sampling_prob, num_rounds, .. } = poisson;
        let touched = Self::pairs(self.running.num_bands());
        let beyond = beyond_sampled(1.0 / noise_multiplier, touched, sampling_prob, num_rounds);
        delta_taken(delta, Self::pairs(self.num_rows), beyond)
    }

    /// The same with what truncated batches take.
    fn amplified_charge(&self, poisson: Poisson, noise_multiplier: f64, delta: f64) -> f64 {
        poisson.truncation_delta.unwrap_or(0.0) + self.amplified_tail(poisson, noise_multiplier, delta)
    }

    /// The claim for the noise that is really added: `stddev` after the loss by rounding scales to f32.
    pub(crate) fn claim(&self, stddev: f64, delta: f64, terms: &Terms, proof: Proof<'_>) -> Result<Claim> {
        if stddev <= 0.0 {
            return Err(Error::parameter("stddev", stddev, "above 0: without noise there is no claim"));
        }
        Budget::new(0.0, delta)?;
        let sensitivity = self.sensitivity.value * (1.0 + MU_ROUNDING);
        let gdp_mu = self.clip_norm * sensitivity / stddev;
        if !(gdp_mu.is_finite() && gdp_mu > 0.0) {
            return Err(Error::parameter("gdp_mu", gdp_mu, "a finite number above 0"));
        }
        let tail = self.plain_tail(gdp_mu, delta);
        let plain = match delta > tail {
            true => Some((epsilon_of_delta(gdp_mu, delta - tail)? * (1.0 + EPSILON_ROUNDING), tail)),
            false => None,
        };
        let amplified = match self.poisson {
            Some(poisson) => self.amplified(poisson, stddev, delta)?,
            None => None,
        };
        let allocated = self.allocated(stddev, gdp_mu, delta, plain, proof)?;
        let redrawn = match self.epochs {
            Some(epochs) if !matches!(proof, Proof::Neither) => self.redrawn(epochs, stddev, delta)?,
            _ => None,
        };
        // No scheme has two of them.
        let by_scheme = [
            amplified.map(|(amplified, tail)| (amplified.epsilon, tail, Method::Amplified)),
            allocated.as_ref().map(|(allocated, tail)| (allocated.epsilon, *tail, Method::Allocated)),
            redrawn.map(|(redrawn, tail)| (redrawn.epsilon, tail, Method::Redrawn)),
        ];
        let worth =
            |found: &(f64, f64, Method)| plain.is_none_or(|(plain, _)| found.0 < (1.0 - 1e-6) * plain);
        let (epsilon, tail_delta, method) = match (by_scheme.into_iter().flatten().find(worth), plain) {
            (Some(found), _) => found,
            (None, Some((epsilon, tail))) => (epsilon, tail, Method::Gaussian),
            (None, None) => return Err(beyond_the_end(gdp_mu, delta, tail)),
        };
        Ok(Claim {
            epsilon,
            delta,
            tail_delta,
            method,
            gdp_mu,
            noise_multiplier: 1.0 / gdp_mu,
            sensitivity,
            sensitivity_kind: self.sensitivity.exactness,
            amplified: amplified.map(|(amplified, _)| amplified),
            assumptions: assumptions(terms, self.running.num_steps(), method)?,
            allocated: allocated.map(|(allocated, _)| allocated),
            redrawn: redrawn.map(|(redrawn, _)| redrawn),
            confident: None,
        })
    }

    /// The proof by sampling and the part of δ that the end of the tail takes from it, if it gives a bound.
    fn amplified(&self, poisson: Poisson, stddev: f64, delta: f64) -> Result<Option<(Amplified, f64)>> {
        let Poisson { sampling_prob, num_rounds, truncation_delta, .. } = poisson;
        let noise_multiplier = stddev / (self.clip_norm * self.column_norm) * (1.0 - MU_ROUNDING);
        let left = delta - self.amplified_charge(poisson, noise_multiplier, delta);
        if left <= 0.0 {
            return Ok(None);
        }
        let epsilon = Subsampled::new(noise_multiplier, sampling_prob, num_rounds)?.epsilon(left)?;
        let epsilon = epsilon * (1.0 + EPSILON_ROUNDING);
        let tail = self.amplified_tail(poisson, noise_multiplier, delta);
        let amplified = Amplified { noise_multiplier, sampling_prob, num_rounds, truncation_delta, epsilon };
        Ok(epsilon.is_finite().then_some((amplified, tail)))
    }
}

/// The error of a strategy that Poisson sampling does not amplify: it has more bands than blocks take turns, or is not banded at all.
fn too_many_bands(running: &Factorization, num_blocks: usize) -> Error {
    let most = format!("at most {num_blocks}, one per block that takes its turn, under Poisson sampling");
    let class = match running.strategy() {
        Strategy::Blt(_) | Strategy::OneParameter { .. } => "a BLT",
        Strategy::BandedInverse(_) => "the inverse of a banded matrix",
        Strategy::Dense(_) => "a dense matrix",
        _ => return Error::parameter("number of bands", running.num_bands(), most),
    };
    let bands = format!("{}, since {class} is not banded", running.num_bands());
    Error::parameter("number of bands", bands, most)
}

/// The error of a claim that the end of the tail refutes.
fn beyond_the_end(gdp_mu: f64, delta: f64, taken: f64) -> Error {
    let why = "a unit may move noise beyond its end at 11.5 standard deviations, and is told apart there";
    if taken < 1.0 {
        return Error::parameter(
            "delta",
            format!("{delta:e}"),
            format!("above {taken:.3e}: with μ = {gdp_mu:.4} {why}"),
        );
    }
    Error::parameter("gdp_mu", gdp_mu, format!("more noise: {why}"))
}

/// By how much an ε is stated larger than it was computed: transforms round differently from machine to machine, in the ninth digit.
pub(crate) const EPSILON_ROUNDING: f64 = 1e-7;
/// The same for μ, which is made of sums of squares.
pub(crate) const MU_ROUNDING: f64 = 1e-10;

fn assumptions(terms: &Terms, num_steps: usize, method: Method) -> Result<Vec<String>> {
    let clip_norm = terms.clip_norm;
    let contribution = match terms.unit {
        PrivacyUnit::Example => "every example's gradient is clipped",
        PrivacyUnit::User => "the sum of all that one user contributes to a step is clipped",
    };
    let neighbours = match terms.adjacency {
        Adjacency::ZeroOut => "neighbouring datasets differ in one unit, whose contributions become zero",
        Adjacency::ReplaceOne => "neighbouring datasets differ in one unit, which is replaced by another",
    };
    let mut assumptions = vec![
        format!("{contribution} to norm {clip_norm} before the batch is summed; the noise is added to the sum"),
        terms.schedule.assumption(num_steps)?,
        neighbours.into(),
        "the key, checkpoints and past noise stay secret; only noisy gradients and what follows from them are released".into(),
        format!(
            "the model has at most 2^{} parameters: normals end at 11.5 standard deviations, and δ counts a unit that moves one of them beyond",
            MAX_PARAMETERS.ilog2()
        ),
        "noise is Gaussian up to the resolution of its random words and of f32, which no accountant counts".into(),
    ];
    if matches!(method, Method::Allocated | Method::Redrawn) {
        assumptions.insert(2, allocated::ASSUMPTION.into());
    }
    Ok(assumptions)
}
