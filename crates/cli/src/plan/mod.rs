//! `plan`: from the numbers a trainer knows to a compared table, a recommendation and a file that training reads.

mod question;
mod report;

pub(crate) use report::claim_text;

use crate::args::PlanArgs;
use crate::failure::{Failure, Outcome, Result};
use crate::output::{Output, check_writable, write_file};
use crate::parse::{SamplingSpec, StrategyChoice, StrategySpec};
use crate::progress::Progress;
use crate::strategies;
use corrnoise::planner::auto::{Candidate, Question, Recommendation, candidate, recommend};
use corrnoise::planner::optimize::{Problem, unobserved};
use corrnoise::planner::{Factorization, Participation, Strategy, verify};
use corrnoise::{Plan, Sampling};
use std::path::Path;

pub(crate) fn run(args: &PlanArgs, output: &mut Output<'_>) -> Result<Outcome> {
    let question = question::question(args)?;
    if let Some(path) = &args.out {
        check_writable(path)?;
    }
    let answer = {
        let _progress = Progress::waiting("comparing mechanisms");
        match &args.strategy {
            StrategyChoice::Auto => automatic(args, &question)?,
            StrategyChoice::One(spec) => one(args, &question, spec)?,
        }
    };
    let plan = answer.candidates[answer.best].plan.clone().with_rounds(args.rounds)?;
    // What is written is what was checked: the text, read back.
    let text = plan.to_json();
    let claim = verify(&Plan::from_json(&text)?)?.claim;
    let mut replaced = false;
    if let Some(path) = &args.out {
        replaced = path.is_file();
        write_file(path, |out| {
            out.write_all(text.as_bytes()).map_err(|error| Failure::io("write", path, error))
        })?;
    }
    let report = report::Report::new(&answer, &plan, claim, args.out.as_deref())?;
    output.text(report::text(&report, &question, replaced, output))?;
    output.json(&report)?;
    Ok(Outcome::Passed)
}

fn automatic(args: &PlanArgs, question: &Question) -> Result<Recommendation> {
    match args.sampling {
        None | Some(SamplingSpec::None) => Ok(recommend(question, &mut unobserved())?),
        Some(_) => Err(Failure::input(
            "--sampling is for one --strategy: auto compares them under cyclic and Poisson sampling; leave it out, or say none",
        )),
    }
}

/// One strategy, beside independent noise under the same schedule.
fn one(args: &PlanArgs, question: &Question, spec: &StrategySpec) -> Result<Recommendation> {
    let schedule = question::schedule(args, question)?;
    let plain = Factorization::new(Strategy::Identity, question.num_steps)?;
    // The cheapest mechanism comes first: if it fails, the question is at fault.
    let mut candidates = vec![candidate(question, "identity", &plain, schedule.clone())?];
    if *spec != StrategySpec::Identity {
        let participation = match schedule.sampling() {
            // Under Poisson sampling a strategy costs its largest column norm, as in a stream.
            Some(Sampling::Poisson { .. } | Sampling::BlockPoisson { .. }) => Participation::Single,
            _ => schedule.participation(question.num_steps)?,
        };
        let problem = Problem {
            num_steps: question.num_steps,
            workload: question.workload.clone(),
            participation,
            target: question.target,
        };
        let strategy = strategies::build(spec, &problem)?;
        candidates.push(candidate(question, &spec.to_string(), &strategy, schedule)?);
    }
    let chosen = &candidates[candidates.len() - 1];
    if let Some(most) = question.max_state_bytes.filter(|most| chosen.state_bytes > *most) {
        return Err(Failure::value(
            "state",
            format!("{} bytes per parameter", chosen.state_bytes),
            format!("at most {most}, as --max-state-bytes says"),
        ));
    }
    let (name, reason) = (chosen.name.clone(), reason(&candidates));
    candidates.sort_by(|a, b| a.error.total_cmp(&b.error));
    let best = candidates.iter().position(|candidate| candidate.name == name).unwrap_or(0);
    Ok(Recommendation { candidates, skipped: Vec::new(), best, reason })
}

fn reason(candidates: &[Candidate]) -> String {
    let chosen = &candidates[candidates.len() - 1];
    let gain = candidates[0].error / chosen.error;
    match candidates {
        [_] => format!("{}: as asked for", chosen.name),
        _ if gain >= 1.0 => {
            format!("{}: as asked for; {gain:.2} times less noise than independent noise", chosen.name)
        }
        _ => format!("{}: as asked for; {:.2} times the noise of independent noise", chosen.name, 1.0 / gain),
    }
}

/// Reads a plan, with advice where it cannot be used.
pub(crate) fn load(path: &Path) -> Result<Plan> {
    Plan::load(path).map_err(|error| match error {
        corrnoise::Error::Plan(reason) => Failure::input(format!(
            "plan {} refused: {reason}; expected a file that `corrnoise plan` wrote and nobody changed since",
            path.display()
        )),
        corrnoise::Error::Parameter { .. } => {
            Failure::input(format!("plan {} refused: {error}", path.display()))
        }
        other => Failure::input(format!("{other}; expected the path of a plan")),
    })
}
