//! `inspect`: what a strategy is, what it costs and what it is worth.

use crate::failure::{Failure, Outcome, Result};
use crate::output::Output;
use crate::parse::{
    self, Picture, StrategySpec, adjacency_name, objective_name, participation_name, workload_name,
};
use crate::plan;
use crate::plot;
use crate::plot::noise_comparison::PlanNoise;
use crate::strategies::{self, Columns};
use crate::table::{Table, counted, short};
use crate::wrap::lines;
use clap::Args;
use corrnoise::form::Kernel;
use corrnoise::planner::optimize::{Objective, Problem};
use corrnoise::planner::{Adjacency, Certificate, Exactness, Factorization, Loss, Participation, Workload};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// A strategy's numbers and pictures: sensitivity, errors, loss, state, coefficients
///
/// Coefficients are the first columns of C and of C⁻¹, up to 16 entries: for a Toeplitz strategy the whole matrix follows from them. A tree
/// has a row of C, and a column of what stands for C⁻¹, per node. Sensitivity is that of clip norm 1; errors are those of noise of
/// standard deviation 1; loss is their product.
///
/// Of a plan: the same for the coefficients that run, as they are rounded, under the participation, workload and adjacency of its
/// certificate, or those given beside it.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  corrnoise inspect --strategy toeplitz --steps 1024
  corrnoise inspect --strategy banded-opt:32 --steps 2000 --participation minsep:400,5
  corrnoise inspect --strategy blt:4 --steps 2000 --workload momentum:0.9 --plot blt.svg
  corrnoise inspect plan.json --plot plan.svg")]
pub(crate) struct InspectArgs {
    /// A plan, instead of a strategy and a number of steps
    #[arg(value_name = "PLAN", conflicts_with_all = ["strategy", "steps", "column_normalize"])]
    pub plan: Option<PathBuf>,
    #[arg(long, short = 's', value_name = "S", help = parse::strategy_help(), value_parser = parse::strategy, required_unless_present = "plan")]
    pub strategy: Option<StrategySpec>,
    /// Number of training steps
    #[arg(long, short = 'n', value_name = "N", value_parser = parse::count, allow_negative_numbers = true, required_unless_present = "plan")]
    pub steps: Option<u64>,
    /// Who takes part when: single (the default), cyclic:B,K (one fixed step of each of K epochs of B steps, from any epoch on), minsep:B,K (at most K
    /// times, at least B steps apart), full (every step)
    #[arg(long, short = 'p', value_name = "P", value_parser = parse::participation)]
    pub participation: Option<Participation>,
    /// What is released: prefix (plain SGD; the default), momentum:BETA, momentum:BETA,DECAY (with weight decay), nesterov:BETA
    #[arg(long, short = 'w', value_name = "W", value_parser = parse::workload)]
    pub workload: Option<Workload>,
    /// Neighbouring datasets: zero-out (one unit's gradients become zero; the default), replace-one (twice as far)
    #[arg(long, value_name = "A", value_parser = parse::adjacency)]
    pub adjacency: Option<Adjacency>,
    /// Divide every column of C by its norm
    #[arg(long)]
    pub column_normalize: bool,
    /// Which loss the optimised strategies make small: max or rms
    #[arg(long, value_name = "OBJECTIVE", default_value = "max", value_parser = parse::objective)]
    pub objective: Objective,
    /// Draw C, C⁻¹, the coefficients and the error of every step: FILE.svg or FILE.png
    #[arg(long, value_name = "FILE", value_parser = parse::picture)]
    pub plot: Option<Picture>,
}

/// The keys of `inspect --json`.
#[derive(Serialize)]
struct Report {
    strategy: String,
    steps: usize,
    sensitivity: f64,
    max_error: f64,
    rms_error: f64,
    max_loss: f64,
    rms_loss: f64,
    state_bytes_per_param: u64,
    strategy_coefs: Vec<f64>,
    noising_coefs: Vec<f64>,
    participation: String,
    workload: String,
    adjacency: &'static str,
    column_normalized: bool,
    objective: &'static str,
    sensitivity_kind: &'static str,
    sensitivity_reason: &'static str,
    lower_bound: Option<f64>,
    lower_bound_reason: &'static str,
    form: &'static str,
    rows_per_step: usize,
}

/// A strategy with everything that is said about it.
pub(crate) struct Inspected {
    pub name: String,
    pub problem: Problem,
    pub adjacency: Adjacency,
    pub factorization: Factorization,
    pub columns: Columns,
    pub loss: Loss,
    /// Below the loss of every strategy, where such a bound is known.
    pub lower_bound: Option<(f64, &'static str)>,
    /// Whether the strategy comes from a plan.
    pub is_plan: bool,
    /// The noise of a plan whose own terms are inspected.
    pub noise: Option<PlanNoise>,
}

pub(crate) fn run(args: &InspectArgs, output: &mut Output<'_>) -> Result<Outcome> {
    let inspected = inspect(args)?;
    let report = report(&inspected, args)?;
    if let Some(picture) = &args.plot {
        plot::strategy_picture::draw(&inspected, picture)?;
    }
    output.text(text(&report, output))?;
    output.json(&report)?;
    Ok(Outcome::Passed)
}

/// A plan's or the command line's, whichever is asked for.
fn inspect(args: &InspectArgs) -> Result<Inspected> {
    match (&args.plan, &args.strategy, args.steps) {
        (Some(path), ..) => of_plan(args, path),
        (None, Some(strategy), Some(steps)) => of_strategy(args, strategy, steps),
        _ => Err(Failure::input("nothing to inspect: expected a plan, or --strategy and --steps")),
    }
}

/// Of the coefficients that run, under what the plan's certificate says, or the command line where that says something.
fn of_plan(args: &InspectArgs, path: &Path) -> Result<Inspected> {
    let plan = plan::load(path)?;
    let stated = match plan.certificate() {
        Some(_) => Some(Certificate::of(&plan)?),
        None => None,
    };
    let num_steps = check_steps(plan.num_steps())?;
    let problem = Problem {
        num_steps,
        workload: given(&args.workload, stated.as_ref().map(|c| &c.workload), Workload::Prefix),
        participation: given(
            &args.participation,
            stated.as_ref().map(|c| &c.participation),
            Participation::Single,
        ),
        objective: args.objective,
    };
    problem.participation.check(num_steps)?;
    let adjacency = given(&args.adjacency, stated.as_ref().map(|c| &c.adjacency), Adjacency::ZeroOut);
    let factorization = Factorization::from_form(plan.form(), num_steps)?;
    // The leading part of a triangular matrix' inverse is the inverse of its leading part.
    let part = Factorization::from_form(plan.form(), num_steps.min(strategies::NUM_COEFS))?;
    let columns = Columns {
        strategy: strategies::first_column(&part.matrix()?),
        noising: strategies::first_column(&part.inverse()?),
    };
    let named = stated.as_ref().and_then(|stated| stated.named_strategy(&plan));
    let name = named.map_or_else(|| factorization.describe_matrix(), |strategy| strategy.to_string());
    let own_terms = stated.is_some() && args.participation.is_none() && args.adjacency.is_none();
    let noise = match args.plot.is_some() && own_terms {
        true => Some(PlanNoise::of(&plan, num_steps, &problem.workload)?),
        false => None,
    };
    Ok(Inspected { is_plan: true, noise, ..inspected(name, problem, adjacency, factorization, columns)? })
}

fn given<T: Clone>(flag: &Option<T>, stated: Option<&T>, default: T) -> T {
    flag.as_ref().or(stated).cloned().unwrap_or(default)
}

fn check_steps(steps: u64) -> Result<usize> {
    usize::try_from(steps)
        .ok()
        .filter(|steps| *steps <= MAX_STEPS)
        .ok_or_else(|| Failure::value("number of steps", steps, format!("at most {MAX_STEPS}")))
}

fn of_strategy(args: &InspectArgs, strategy: &StrategySpec, steps: u64) -> Result<Inspected> {
    let problem = Problem {
        num_steps: check_steps(steps)?,
        workload: given(&args.workload, None, Workload::Prefix),
        participation: given(&args.participation, None, Participation::Single),
        objective: args.objective,
    };
    let adjacency = given(&args.adjacency, None, Adjacency::ZeroOut);
    let base = strategies::build(strategy, &problem)?;
    let norms: Option<Vec<f64>> = match args.column_normalize {
        true => Some(base.column_norms_squared()?.into_iter().map(f64::sqrt).collect()),
        false => None,
    };
    let columns = strategies::first_columns(&base, norms.as_deref())?;
    let factorization = if args.column_normalize { base.column_normalized()? } else { base };
    inspected(strategy.to_string(), problem, adjacency, factorization, columns)
}

fn inspected(
    name: String,
    problem: Problem,
    adjacency: Adjacency,
    factorization: Factorization,
    columns: Columns,
) -> Result<Inspected> {
    let loss = factorization.loss(&problem.workload, &problem.participation, adjacency)?;
    let factor = if adjacency == Adjacency::ReplaceOne { 2.0 } else { 1.0 };
    let lower_bound = problem.nuclear_bound()?.map(|(bound, reason)| (factor * bound, reason));
    Ok(Inspected {
        name,
        problem,
        adjacency,
        factorization,
        columns,
        loss,
        lower_bound,
        is_plan: false,
        noise: None,
    })
}

/// As many steps as a plan may have. What no closed form answers is refused where it would be written out.
const MAX_STEPS: usize = 1 << 40;
/// Where there is no bound to compare with.
const NO_BOUND: &str =
    "none is known: the patterns leave steps out, or the workload is too large for its singular values";

fn report(inspected: &Inspected, args: &InspectArgs) -> Result<Report> {
    let Inspected { problem, factorization, columns, loss, .. } = inspected;
    let form = factorization.form()?;
    let (form_name, rows_per_step) = match form.kernel() {
        Kernel::Blt(blt) if blt.scale().is_empty() => ("independent", 1),
        Kernel::Blt(_) => ("blt", 1),
        Kernel::Ring(_) => ("ring", 1),
        Kernel::Regenerate(rows) => ("regenerate", rows.max_terms()),
    };
    Ok(Report {
        strategy: inspected.name.clone(),
        steps: problem.num_steps,
        sensitivity: loss.sensitivity.value,
        max_error: loss.errors.max,
        rms_error: loss.errors.rms,
        max_loss: loss.max_loss(),
        rms_loss: loss.rms_loss(),
        state_bytes_per_param: form.state_bytes_per_param(),
        strategy_coefs: columns.strategy.clone(),
        noising_coefs: columns.noising.clone(),
        participation: participation_name(&problem.participation),
        workload: workload_name(&problem.workload),
        adjacency: adjacency_name(inspected.adjacency),
        column_normalized: args.column_normalize,
        objective: objective_name(args.objective),
        sensitivity_kind: match loss.sensitivity.exactness {
            Exactness::Exact => "exact",
            Exactness::UpperBound => "upper bound",
        },
        sensitivity_reason: loss.sensitivity.reason,
        lower_bound: inspected.lower_bound.map(|(bound, _)| bound),
        lower_bound_reason: inspected.lower_bound.map_or(NO_BOUND, |(_, reason)| reason),
        form: form_name,
        rows_per_step,
    })
}

fn text(report: &Report, output: &Output<'_>) -> String {
    let mut table = Table::new(["quantity", "value", ""]);
    let mut row = |name: &str, value: String, note: String| table.row([name.to_owned(), value, note]);
    let kind = format!("{}: {}", report.sensitivity_kind, report.sensitivity_reason);
    row("sensitivity", short(report.sensitivity), kind);
    row(
        "max error",
        short(report.max_error),
        "largest error of a released value, for noise of standard deviation 1".into(),
    );
    row("rms error", short(report.rms_error), String::new());
    let excess = |loss: f64| {
        let ratio = |bound: f64| format!("{:.2} times what no strategy goes below", loss / bound);
        report.lower_bound.map_or_else(String::new, ratio)
    };
    row("max loss", short(report.max_loss), excess(report.max_loss));
    row("rms loss", short(report.rms_loss), excess(report.rms_loss));
    let bound = report.lower_bound.map_or_else(|| "-".to_owned(), short);
    row("lower bound", bound, report.lower_bound_reason.to_owned());
    row("state", format!("{} B", report.state_bytes_per_param), "per parameter".into());
    let engine = match report.form {
        "independent" => "independent noise",
        "blt" => "a BLT",
        "ring" => "a ring",
        _ => "a sum of rows that are made again",
    };
    let most = if report.rows_per_step == 1 { "" } else { ", at most" };
    row(
        "normals",
        report.rows_per_step.to_string(),
        format!("per parameter and step{most}; runs as {engine}"),
    );
    let normalized = if report.column_normalized { ", columns normalised" } else { "" };
    let coefs = |values: &[f64]| values.iter().map(|value| short(*value)).collect::<Vec<_>>().join(" ");
    let head = format!(
        "{}{normalized}; {}, {} participation, {} workload, {}",
        output.paint("1", &report.strategy),
        counted(report.steps as u64, "step"),
        report.participation,
        report.workload,
        report.adjacency,
    );
    let column = |name: &str, values: &[f64]| {
        let name = format!("first column of {name:<5}");
        let indent = name.chars().count();
        let values = lines(&coefs(values), output.screen.width - indent, 0);
        name + &values.join(&format!("\n{}", " ".repeat(indent)))
    };
    format!(
        "{}\n\n{}\n{}\n{}\n",
        output.wrap(&head),
        table.render(output),
        column("C", &report.strategy_coefs),
        column("C⁻¹", &report.noising_coefs),
    )
}
