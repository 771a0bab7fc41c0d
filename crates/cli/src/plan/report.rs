//! What `plan` says: the keys of its JSON, and the same for people.

use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::parse::{adjacency_name, workload_name};
use crate::table::{Table, counted, digits, short};
use corrnoise::Plan;
use corrnoise::planner::optimize::Objective;
use corrnoise::planner::privacy::precision::{SHOWN_PARAMETERS, loss_change};
use corrnoise::planner::{Candidate, Claim, Method, Recommendation, Request};
use serde::Serialize;
use serde_json::Value;
use std::path::Path;

/// The keys of `plan --json`.
#[derive(Serialize)]
pub struct Report {
    plan: Value,
    steps: u64,
    recommended: String,
    reason: String,
    candidates: Vec<Row>,
    skipped: Vec<Skipped>,
    claim: Claim,
    /// What finite precision changes of a unit's privacy loss, for a million parameters.
    loss_change: f64,
    warnings: Vec<String>,
    out: Option<String>,
}

/// One strategy under one schedule.
#[derive(Serialize)]
struct Row {
    strategy: String,
    recommended: bool,
    /// The sampling by name; null where the engine does not draw batches.
    sampling: Option<String>,
    schedule: String,
    /// Null where no independent noise of the same privacy was found.
    relative_noise: Option<f64>,
    error: f64,
    state_bytes_per_param: u64,
    engine_bytes_per_param: u64,
    /// The two for people, who need no key for it.
    #[serde(skip)]
    memory: String,
    rows_per_step: f64,
    bytes_per_step: f64,
    /// The ε of the proof.
    epsilon: f64,
    /// What samples show beside it; null where nothing but proofs is claimed.
    confident_epsilon: Option<f64>,
    delta: f64,
    method: Method,
    gdp_mu: f64,
    noise_multiplier: f64,
    stddev: f64,
}

#[derive(Serialize)]
struct Skipped {
    strategy: String,
    reason: String,
}

impl Report {
    pub fn new(answer: &Recommendation, plan: &Plan, claim: Claim, out: Option<&Path>) -> Result<Report> {
        let rows = answer.candidates.iter().enumerate();
        Ok(Report {
            plan: serde_json::from_str(&plan.to_json()).map_err(|error| Failure::input(error.to_string()))?,
            steps: plan.num_steps(),
            recommended: answer.recommended().to_string(),
            reason: answer.reason.clone(),
            candidates: rows
                .map(|(i, candidate)| Row::new(candidate, i == answer.best, answer.relative_noise(candidate)))
                .collect(),
            skipped: answer
                .skipped
                .iter()
                .map(|skipped| Skipped { strategy: skipped.strategy.clone(), reason: skipped.reason.clone() })
                .collect(),
            claim,
            loss_change: loss_change(plan, SHOWN_PARAMETERS),
            warnings: answer.warnings.clone(),
            out: out.map(|path| path.display().to_string()),
        })
    }
}

impl Row {
    fn new(candidate: &Candidate, recommended: bool, relative_noise: Option<f64>) -> Row {
        let claim = &candidate.certificate.claim;
        Row {
            strategy: candidate.strategy.to_string(),
            recommended,
            sampling: candidate.sampling().map(|sampling| sampling.to_string()),
            schedule: candidate.schedule.to_string(),
            relative_noise,
            error: candidate.error,
            state_bytes_per_param: candidate.state_bytes,
            engine_bytes_per_param: candidate.engine_bytes,
            memory: candidate.memory(),
            rows_per_step: candidate.cost.rows,
            bytes_per_step: candidate.cost.bytes,
            epsilon: claim.epsilon,
            confident_epsilon: claim.confident.map(|confident| confident.epsilon),
            delta: claim.delta,
            method: claim.method,
            gdp_mu: claim.gdp_mu,
            noise_multiplier: claim.noise_multiplier,
            stddev: candidate.plan.stddev(),
        }
    }
}

fn method_name(method: Method) -> &'static str {
    match method {
        Method::Gaussian => "Gaussian, exact",
        Method::Amplified => "Poisson, PLD",
        Method::Allocated => "bins, proof",
        Method::Redrawn => "allocation, PLD",
    }
}

pub fn text(report: &Report, request: &Request, replaced: bool, output: &Output<'_>) -> String {
    let error = match request.objective {
        Objective::Max => "worst error",
        Objective::Rms => "rms error",
    };
    // What samples show has a column of its own, where there is any.
    let confident = report.candidates.iter().any(|row| row.confident_epsilon.is_some());
    let mut headings = vec!["", "strategy", "schedule", "noise", error, "state", "rows", "moved", "ε", "by"];
    headings.extend(confident.then_some("ε, confident"));
    let mut table = Table::new(headings);
    for row in &report.candidates {
        let mut cells = vec![
            if row.recommended { "*" } else { " " }.to_owned(),
            row.strategy.clone(),
            row.schedule.clone(),
            row.relative_noise.map_or("-".into(), |noise| format!("{noise:.3}")),
            short(row.error),
            format!("{} B", row.memory),
            format!("{:.1}", row.rows_per_step),
            format!("{:.0} B", row.bytes_per_step),
            short(row.epsilon),
            method_name(row.method).to_owned(),
        ];
        if confident {
            cells.push(row.confident_epsilon.map_or("-".into(), short));
        }
        table.row(cells);
    }
    let head = format!(
        "{}, {} workload, clip norm {}, {}",
        counted(report.steps, "step"),
        workload_name(&request.workload),
        request.clip_norm,
        adjacency_name(request.adjacency),
    );
    let legend = format!(
        "noise: of the {}, relative to the best independent noise at the same ε and δ. Per parameter: state kept + rows made ahead; per step, rows of normals made and bytes moved.",
        match request.objective {
            Objective::Max => "worst released value",
            Objective::Rms => "root mean square of all released values",
        }
    );
    let skipped =
        report.skipped.iter().map(|skipped| format!("  {}: {}\n", skipped.strategy, skipped.reason));
    let skipped = skipped.collect::<String>();
    let skipped = if skipped.is_empty() { skipped } else { format!("\nLeft out\n{skipped}") };
    let reason = format!("{} {}", output.paint("1", "Recommended:"), report.reason);
    format!(
        "{}\n\n{}\n{}\n{}\n{}\n\n{}{}",
        output.wrap(&head),
        table.render(output),
        output.wrap(&legend),
        output.wrap(&skipped),
        output.wrap(&reason),
        claim_text(&report.claim, report.loss_change, output),
        output.wrap(&written(report, replaced))
    )
}

/// A claim and what it rests on.
pub fn claim_text(claim: &Claim, loss_change: f64, output: &Output<'_>) -> String {
    let how = match (claim.method, &claim.amplified, &claim.allocated, &claim.redrawn) {
        (Method::Amplified, Some(amplified), ..) => format!(
            "amplified by Poisson sampling: {} with probability {} and noise multiplier {}, by privacy loss distributions{}",
            counted(amplified.num_rounds, "round"),
            digits(amplified.sampling_prob),
            short(amplified.noise_multiplier),
            amplified.truncation_delta.map_or_else(String::new, |delta| format!(
                "; of δ, {delta:.1e} is for units that are left out"
            ))
        ),
        (Method::Allocated, _, Some(allocated), _) => format!(
            "amplified by balls in {} bins, proven by a kernel of {} bins that is nowhere below the run's",
            allocated.num_bins,
            allocated.kernel.num_bins()
        ),
        (Method::Redrawn, _, _, Some(redrawn)) => format!(
            "amplified by random allocation: {} with {} places each and noise multiplier {}, by privacy loss distributions",
            counted(redrawn.num_epochs, "epoch"),
            redrawn.num_bins,
            short(redrawn.noise_multiplier)
        ),
        _ => format!(
            "the whole run is one Gaussian mechanism with μ = {}, converted exactly",
            short(claim.gdp_mu)
        ),
    };
    let assumptions: String = claim.assumptions.iter().map(|line| format!("  - {line}\n")).collect();
    let (epsilon, delta) = (short(claim.epsilon), claim.delta);
    let mut claimed = format!("{} ε = {epsilon} at δ = {delta:e}; {how}", output.paint("1", "Claim:"));
    if let Some(confident) = &claim.confident {
        claimed.push_str(&format!(
            "\n{} ε = {} at δ = {delta:e}, shown by {} samples of each direction, which mislead with a probability of at most {:e}, counted in δ; no proof",
            output.paint("1", "Confident claim:"),
            short(confident.epsilon),
            confident.samples,
            confident.failure
        ));
    }
    let compared = if loss_change > delta { "; that is more than δ" } else { "" };
    let precision = format!(
        "Not in the claim: with f32 instead of exact normals a unit's privacy loss differs by about {loss_change:.0e} (root mean square, for \
         a million parameters; it grows as the root of their number), as if one more Gaussian mechanism of that μ were released{compared}"
    );
    output.wrap(&format!("{claimed}\nprovided that\n{assumptions}{precision}\n"))
}

fn written(report: &Report, replaced: bool) -> String {
    match (&report.out, replaced) {
        (None, _) => "\nNot written: name a file by --out".into(),
        (Some(path), false) => format!("\nWritten to {path}, its claim verified"),
        (Some(path), true) => format!("\nWritten to {path}, its claim verified; the old file was replaced"),
    }
}
