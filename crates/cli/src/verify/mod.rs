//! `verify`: does this build make the noise it should, on this machine?

mod answers;
mod args;
mod covariance;
mod engines;
mod gpu;
mod statistics;

pub(crate) use args::VerifyArgs;

use crate::account::refuted;
use crate::failure::{Failure, Outcome, Result};
use crate::output::Output;
use crate::plan;
use crate::progress::Progress;
use crate::table::{seconds, short};
use crate::wrap::lines;
use corrnoise::Plan;
use corrnoise::planner::Claim;
use serde::Serialize;
use std::time::Instant;

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Passed,
    Failed,
    Skipped,
}

/// A verdict and what it rests on.
pub struct Finding {
    pub verdict: Verdict,
    pub detail: String,
}

impl Finding {
    pub fn new(passed: bool, detail: impl Into<String>) -> Finding {
        Finding { verdict: if passed { Verdict::Passed } else { Verdict::Failed }, detail: detail.into() }
    }

    pub fn skipped(reason: impl Into<String>) -> Finding {
        Finding { verdict: Verdict::Skipped, detail: reason.into() }
    }
}

/// One check as `verify --json` has it.
#[derive(Serialize)]
struct Check {
    name: &'static str,
    verdict: Verdict,
    seconds: f64,
    detail: String,
}

/// The keys of `verify --json`.
#[derive(Serialize)]
struct Report {
    passed: bool,
    checks: Vec<Check>,
}

type Run = fn(bool) -> Result<Finding>;
type BoxedRun = Box<dyn Fn() -> Result<Finding>>;

/// What is said of a plan.
const CLAIM: &str = "the plan's claim";

/// All checks, in the order in which a failure of one explains those of the next.
const CHECKS: [(&str, Run); 12] = [
    ("known answers: keystream", answers::keystream),
    ("known answers: words to normals", answers::words_to_normals),
    ("known answers: rows of normals", answers::normals),
    ("known answers: forms", answers::forms),
    ("known answers: gradient types", answers::gradients),
    ("normals: moments, tails, distribution", statistics::normals),
    ("covariance against C⁻¹C⁻ᵀ", covariance::every_form),
    ("scalar and SIMD, bit for bit", engines::scalar_and_simd),
    ("one thread and many, bit for bit", engines::threads),
    ("shards and the whole, bit for bit", engines::shards),
    ("stopped and resumed", engines::resume),
    ("CUDA and CPU, bit for bit", engines::cuda),
];

pub(crate) fn run(args: &VerifyArgs, output: &mut Output<'_>) -> Result<Outcome> {
    if let Some(device) = args.device {
        return gpu::run(args, device, output);
    }
    let mut runs: Vec<(&'static str, BoxedRun)> = Vec::new();
    if let Some(path) = &args.plan {
        // One that does not load is bad input, not a check that failed.
        let plan = plan::load(path)?;
        runs.push((CLAIM, Box::new(move || claim(&plan))));
    }
    let quick = args.quick;
    for (name, check) in CHECKS {
        runs.push((name, Box::new(move || check(quick))));
    }
    let mut checks = Vec::new();
    let mut progress = Progress::new(runs.len() as u64, "verifying");
    for (name, check) in &runs {
        progress.message(name);
        progress.set(checks.len() as u64);
        let start = Instant::now();
        // A check that cannot be carried out has not passed.
        let finding = check().or_else(|failure| match failure {
            Failure::Input(message) => Ok(Finding::new(false, message)),
            other => Err(other),
        })?;
        let check = Check {
            name,
            verdict: finding.verdict,
            seconds: start.elapsed().as_secs_f64(),
            detail: finding.detail,
        };
        progress.suspend(|| output.text(line(&check, output)))?;
        checks.push(check);
    }
    drop(progress);
    let failed = checks.iter().filter(|check| check.verdict == Verdict::Failed).count();
    let skipped = checks.iter().filter(|check| check.verdict == Verdict::Skipped).count();
    output.text(format!(
        "\n{} checks: {} passed, {failed} failed, {skipped} skipped",
        checks.len(),
        checks.len() - failed - skipped
    ))?;
    output.json(&Report { passed: failed == 0, checks })?;
    Ok(if failed == 0 { Outcome::Passed } else { Outcome::Failed })
}

/// The claim computed again from the plan's own numbers. A plan without a claim has none that holds.
fn claim(plan: &Plan) -> Result<Finding> {
    Ok(match corrnoise::planner::verify(plan) {
        Ok(certificate) => {
            let Claim { epsilon, delta, .. } = certificate.claim;
            let (strategy, epsilon) = (certificate.strategy, short(epsilon));
            Finding::new(true, format!("ε = {epsilon} at δ = {delta:e}; {strategy}"))
        }
        Err(error) => Finding::new(false, refuted(&error)),
    })
}

/// Columns in front of what a check rests on, where that has a line of its own.
const INDENT: usize = 8;
/// What a check rests on stands beside its name where this many columns are left for it, and below otherwise.
const LEAST_DETAIL: usize = 40;

fn line(check: &Check, output: &Output<'_>) -> String {
    let (word, colour) = match check.verdict {
        Verdict::Passed => ("ok     ", "32"),
        Verdict::Failed => ("FAILED ", "31;1"),
        Verdict::Skipped => ("skipped", "33"),
    };
    let width = CHECKS.iter().map(|(name, _)| name.chars().count()).fold(0, usize::max);
    let (name, time) = (check.name, seconds(check.seconds));
    let head = format!("{} {name:<width$} {time:>8}", output.paint(colour, word));
    let (columns, beside) = (output.screen.width, INDENT + width + 11);
    let (indent, start) = match columns >= beside + LEAST_DETAIL {
        true => (beside, format!("{head}  ")),
        false => (INDENT, format!("{head}\n{}", " ".repeat(INDENT))),
    };
    let detail = lines(&check.detail, columns - indent, 0);
    start + &detail.join(&format!("\n{}", " ".repeat(indent)))
}
