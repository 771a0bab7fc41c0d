//! `account`: from any of μ, σ, ρ, (ε, δ) to the others.

use crate::failure::{Failure, Outcome, Result};
use crate::output::Output;
use crate::parse;
use crate::plan;
use crate::progress::Progress;
use crate::table::{Table, short};
use clap::{ArgGroup, Args};
use corrnoise::planner::account::{self, Budget, Search, Subsampled};
use corrnoise::planner::privacy::precision::{SHOWN_PARAMETERS, loss_change};
use corrnoise::planner::{Claim, Error, Method, large_delta, verify};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Privacy: from any of μ, σ, ρ, (ε, δ) to the others
///
/// Without --sampling-prob: the Gaussian mechanism, exactly, for one release of the whole matrix CG + Z with noise multiplier σ per unit
/// of sensitivity. With it: N steps of the Poisson-subsampled Gaussian mechanism with independent noise, by privacy loss
/// distributions, rounded so that ε (or δ) is an upper bound, under adding or removing one unit.
///
/// Of a plan: its claim, computed again from its coefficients, its standard deviation and its sampling scheme. Exit code 1 if it says
/// something else.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("what").args(["mu", "noise_multiplier", "rho"]))]
#[command(after_help = "Examples:
  corrnoise account --epsilon 8 --delta 1e-6
  corrnoise account --noise-multiplier 1.3 --delta 1e-6
  corrnoise account --sampling-prob 0.01 --steps 1000 --noise-multiplier 0.8 --delta 1e-6
  corrnoise account --sampling-prob 0.01 --steps 1000 --epsilon 2 --delta 1e-6    finds the noise multiplier
  corrnoise account plan.json")]
pub(crate) struct AccountArgs {
    /// A plan whose claim to check, instead of numbers
    #[arg(value_name = "PLAN", conflicts_with_all = ["mu", "noise_multiplier", "rho", "epsilon", "delta", "sampling_prob", "steps"])]
    pub plan: Option<PathBuf>,
    /// μ of Gaussian differential privacy
    #[arg(long, value_name = "MU", value_parser = parse::number, allow_negative_numbers = true)]
    pub mu: Option<f64>,
    /// σ: standard deviation of the noise over the sensitivity
    #[arg(long, value_name = "SIGMA", value_parser = parse::number, allow_negative_numbers = true)]
    pub noise_multiplier: Option<f64>,
    /// ρ of zero-concentrated differential privacy
    #[arg(long, value_name = "RHO", value_parser = parse::number, allow_negative_numbers = true)]
    pub rho: Option<f64>,
    /// ε: with --delta alone it asks for μ, σ and ρ; beside one of those it asks for δ
    #[arg(long, value_name = "EPSILON", value_parser = parse::number, allow_negative_numbers = true)]
    pub epsilon: Option<f64>,
    /// δ: beside μ, σ or ρ it asks for ε
    #[arg(long, value_name = "DELTA", value_parser = parse::number, allow_negative_numbers = true)]
    pub delta: Option<f64>,
    /// The probability that a unit takes part in a step (Poisson subsampling)
    #[arg(long, value_name = "P", value_parser = parse::number, allow_negative_numbers = true, requires = "steps")]
    pub sampling_prob: Option<f64>,
    /// Number of steps, with --sampling-prob
    #[arg(long, value_name = "N", value_parser = parse::count, allow_negative_numbers = true, requires = "sampling_prob")]
    pub steps: Option<u64>,
}

/// The keys of `account --json`; what does not follow from the question is null.
#[derive(Serialize)]
struct Report {
    gdp_mu: Option<f64>,
    noise_multiplier: Option<f64>,
    zcdp_rho: Option<f64>,
    epsilon: Option<f64>,
    delta: Option<f64>,
    method: &'static str,
}

const GAUSSIAN: &str = "Gaussian mechanism, exact";
const ALLOCATED: &str = "balls in bins, a kernel that is nowhere below the run's covariance, an upper bound (add or remove one unit)";
const REDRAWN: &str =
    "random allocation, privacy loss distribution of its epochs, an upper bound (add or remove one unit)";
const SUBSAMPLED: &str = "Poisson-subsampled Gaussian mechanism, privacy loss distribution, an upper bound (add or remove one unit)";

/// The keys of `account PLAN --json`: those of `account`, null if the claim does not hold, and three more.
#[derive(Serialize)]
struct PlanReport {
    #[serde(flatten)]
    numbers: Report,
    holds: bool,
    reason: Option<String>,
    claim: Option<Claim>,
    /// What finite precision changes of a unit's privacy loss, for a million parameters.
    loss_change: Option<f64>,
}

/// Smaller ones are lost among the smallest f64 in the tails of privacy loss distributions.
const LEAST_DELTA: f64 = 1e-300;

pub(crate) fn run(args: &AccountArgs, output: &mut Output<'_>) -> Result<Outcome> {
    if let Some(path) = &args.plan {
        return of_plan(path, output);
    }
    let report = match (args.sampling_prob, args.steps) {
        (Some(sampling_prob), Some(steps)) => subsampled(args, sampling_prob, steps)?,
        _ => gaussian(args)?,
    };
    output.text(text(&report, output)?)?;
    output.json(&report)?;
    Ok(Outcome::Passed)
}

/// A plan's claim, computed again.
fn of_plan(path: &Path, output: &mut Output<'_>) -> Result<Outcome> {
    let plan = plan::load(path)?;
    let verified = {
        let _progress = Progress::waiting("computing the claim again");
        verify(&plan)
    };
    let certificate = match verified {
        Ok(certificate) => certificate,
        // No claim, or none that can be read: there is nothing to hold.
        Err(error @ Error::Certificate(_)) => {
            return Err(Failure::input(format!(
                "{}: {error}; expected a plan of `corrnoise plan`",
                path.display()
            )));
        }
        Err(error) => {
            let reason = format!("{}: {}", path.display(), refuted(&error));
            output.note(&reason);
            let numbers = Report {
                gdp_mu: None,
                noise_multiplier: None,
                zcdp_rho: None,
                epsilon: None,
                delta: None,
                method: "none: the claim does not hold",
            };
            output.json(&PlanReport {
                numbers,
                holds: false,
                reason: Some(reason),
                claim: None,
                loss_change: None,
            })?;
            return Ok(Outcome::Failed);
        }
    };
    let claim = certificate.claim;
    let dataset_size = plan.sampling().and_then(|sampling| sampling.dataset_size());
    if let Some(warning) = dataset_size.and_then(|size| large_delta(claim.delta, size)) {
        output.note(&format!("warning: {warning}"));
    }
    let numbers = Report {
        gdp_mu: Some(claim.gdp_mu),
        noise_multiplier: Some(claim.noise_multiplier),
        zcdp_rho: Some(account::zcdp_rho_of_gdp(claim.gdp_mu)),
        epsilon: Some(claim.epsilon),
        delta: Some(claim.delta),
        method: match claim.method {
            Method::Gaussian => GAUSSIAN,
            Method::Amplified => SUBSAMPLED,
            Method::Allocated => ALLOCATED,
            Method::Redrawn => REDRAWN,
        },
    };
    let mut table = Table::new(["", "value"]);
    for (name, value) in [
        ("standard deviation of Z", plan.stddev()),
        ("clip norm", certificate.clip_norm),
        ("sensitivity", claim.sensitivity),
        ("μ (GDP), not amplified", claim.gdp_mu),
        ("σ = 1/μ", claim.noise_multiplier),
        ("ε", claim.epsilon),
        ("δ", claim.delta),
    ] {
        table.row([name.to_owned(), short(value)]);
    }
    if let Some(confident) = &claim.confident {
        table.row(["ε, confident".to_owned(), short(confident.epsilon)]);
    }
    let (strategy, claimed) =
        (&certificate.strategy, plan::claim_text(&claim, loss_change(&plan, SHOWN_PARAMETERS), output));
    output.text(format!("{strategy}: the claim holds\n\n{}\n{claimed}", table.render(output)))?;
    let loss_change = Some(loss_change(&plan, SHOWN_PARAMETERS));
    output.json(&PlanReport { numbers, holds: true, reason: None, claim: Some(claim), loss_change })?;
    Ok(Outcome::Passed)
}

/// Why a claim does not hold, in one line.
pub(crate) fn refuted(error: &Error) -> String {
    match error {
        Error::Disagreement { .. } => error.to_string(),
        other => format!("the plan's claim does not hold: {other}"),
    }
}

fn gaussian(args: &AccountArgs) -> Result<Report> {
    let given = [args.mu, args.noise_multiplier, args.rho].iter().any(Option::is_some);
    let (gdp_mu, epsilon, delta) = match (given, args.epsilon, args.delta) {
        (false, Some(epsilon), Some(delta)) => {
            let budget = budget(epsilon, delta)?;
            (account::gdp_mu_of_budget(budget)?, Some(epsilon), Some(delta))
        }
        (false, _, _) => {
            return Err(Failure::input(
                "nothing to convert: expected one of --mu, --noise-multiplier, --rho, or both --epsilon and --delta",
            ));
        }
        (true, Some(epsilon), Some(delta)) => {
            return Err(Failure::input(format!(
                "epsilon {epsilon} and delta {delta} beside another number say too much: leave out one of the three"
            )));
        }
        (true, Some(epsilon), None) => {
            let mu = mu(args)?;
            (mu, Some(epsilon), Some(account::delta_of_epsilon(mu, epsilon)?))
        }
        (true, None, Some(delta)) => {
            let mu = mu(args)?;
            (mu, Some(account::epsilon_of_delta(mu, delta)?), Some(delta))
        }
        (true, None, None) => (mu(args)?, None, None),
    };
    Ok(Report {
        gdp_mu: Some(gdp_mu),
        // Without any privacy loss there is no finite σ.
        noise_multiplier: args
            .noise_multiplier
            .or_else(|| Some(1.0 / gdp_mu).filter(|sigma| sigma.is_finite())),
        zcdp_rho: Some(args.rho.unwrap_or_else(|| account::zcdp_rho_of_gdp(gdp_mu))),
        epsilon,
        delta,
        method: GAUSSIAN,
    })
}

/// μ from whichever of the three was given.
fn mu(args: &AccountArgs) -> Result<f64> {
    match (args.mu, args.noise_multiplier, args.rho) {
        (Some(mu), _, _) if mu > 0.0 => Ok(mu),
        (Some(mu), _, _) => Err(Failure::value("mu", mu, "positive")),
        (_, Some(sigma), _) if sigma > 0.0 => Ok(1.0 / sigma),
        (_, Some(sigma), _) => {
            Err(Failure::value("noise multiplier", sigma, "positive: without noise there is no privacy"))
        }
        (_, _, Some(rho)) if rho > 0.0 => Ok(account::gdp_mu_of_zcdp(rho)?),
        (_, _, Some(rho)) => Err(Failure::value("rho", rho, "positive")),
        _ => Err(Failure::input("one of --mu, --noise-multiplier and --rho is needed")),
    }
}

/// A budget to calibrate for. ε = 0 is a guarantee that one may ask the δ of, but no target for noise.
fn budget(epsilon: f64, delta: f64) -> Result<Budget> {
    if epsilon <= 0.0 {
        return Err(Failure::value(
            "epsilon",
            epsilon,
            "positive; for the δ at ε = 0 give --mu or --noise-multiplier beside it",
        ));
    }
    Ok(Budget::new(epsilon, delta)?)
}

fn subsampled(args: &AccountArgs, sampling_prob: f64, steps: u64) -> Result<Report> {
    if let Some((name, value)) =
        [("--mu", args.mu), ("--rho", args.rho)].into_iter().find_map(|(n, v)| Some((n, v?)))
    {
        return Err(Failure::input(format!(
            "{name} {value} does not describe a subsampled mechanism: give --noise-multiplier"
        )));
    }
    if let Some(delta) = args.delta.filter(|delta| *delta > 0.0 && *delta < LEAST_DELTA) {
        let expected = format!("at least {LEAST_DELTA:e}, which this analysis resolves");
        return Err(Failure::value("delta", format!("{delta:e}"), expected));
    }
    let mechanism = |sigma: f64| Ok::<_, Failure>(Subsampled::new(sigma, sampling_prob, steps)?);
    let (sigma, epsilon, delta) = match (args.noise_multiplier, args.epsilon, args.delta) {
        (Some(sigma), None, Some(delta)) => {
            let epsilon = mechanism(sigma)?.epsilon(delta)?;
            if !epsilon.is_finite() {
                return Err(Failure::value(
                    "epsilon",
                    format!("infinite at noise multiplier {sigma} and delta {delta:e}"),
                    "a finite one: more noise, or a larger delta",
                ));
            }
            (sigma, epsilon, delta)
        }
        (Some(sigma), Some(epsilon), None) => (sigma, epsilon, mechanism(sigma)?.delta(epsilon)?),
        (None, Some(epsilon), Some(delta)) => {
            let _progress = Progress::waiting("calibrating");
            let found = Subsampled::calibrated(budget(epsilon, delta)?, sampling_prob, steps, Search::Fine)?;
            (found.noise_multiplier, epsilon, delta)
        }
        _ => {
            return Err(Failure::input(
                "with --sampling-prob, two of --noise-multiplier, --epsilon and --delta are needed; the third is the answer",
            ));
        }
    };
    Ok(Report {
        gdp_mu: None,
        noise_multiplier: Some(sigma),
        zcdp_rho: None,
        epsilon: Some(epsilon),
        delta: Some(delta),
        method: SUBSAMPLED,
    })
}

fn text(report: &Report, output: &Output<'_>) -> Result<String> {
    let mut table = Table::new(["", "value"]);
    let number = |value: Option<f64>| value.map_or_else(|| "-".into(), short);
    let rows = [
        ("μ (GDP)", report.gdp_mu),
        ("σ (noise multiplier)", report.noise_multiplier),
        ("ρ (zCDP)", report.zcdp_rho),
        ("ε", report.epsilon),
        ("δ", report.delta),
    ];
    for (name, value) in rows.into_iter().filter(|(_, value)| value.is_some()) {
        table.row([name.to_owned(), number(value)]);
    }
    let mut text = format!("{}\n\n{}", report.method, table.render(output));
    if let (Some(mu), None) = (report.gdp_mu, report.epsilon) {
        let mut budgets = Table::new(["δ", "ε"]);
        for delta in [1e-5, 1e-6, 1e-8, 1e-10] {
            budgets.row([format!("{delta:e}"), short(account::epsilon_of_delta(mu, delta)?)]);
        }
        text = format!("{text}\n{}", budgets.render(output));
    }
    Ok(text)
}
