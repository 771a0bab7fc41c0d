//! `inspect`: what a strategy is, what it costs and what it is worth.

use crate::args::InspectArgs;
use crate::failure::{Failure, Outcome, Result};
use crate::output::Output;
use crate::parse::{participation_name, workload_name};
use crate::plot;
use crate::strategies::{self, Columns};
use crate::table::{Table, short};
use corrnoise::form::Kernel;
use corrnoise::planner::optimize::Problem;
use corrnoise::planner::{Adjacency, Factorization, Kind, Loss, Strategy};
use serde::Serialize;

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
    lower_bound: f64,
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
    /// Below the loss of every strategy.
    pub lower_bound: (f64, &'static str),
}

pub(crate) fn run(args: &InspectArgs, output: &mut Output<'_>) -> Result<Outcome> {
    let inspected = inspect(args)?;
    let report = report(&inspected, args)?;
    if let Some(picture) = &args.plot {
        plot::strategy::draw(&inspected, picture)?;
    }
    output.text(text(&report, output))?;
    output.json(&report)?;
    Ok(Outcome::Passed)
}

fn inspect(args: &InspectArgs) -> Result<Inspected> {
    let num_steps = usize::try_from(args.steps)
        .map_err(|_| Failure::value("number of steps", args.steps, "what fits into memory"))?;
    // What is larger is refused here, before anything of that size is allocated.
    if num_steps > MAX_STEPS {
        return Err(Failure::value("number of steps", num_steps, format!("at most {MAX_STEPS}")));
    }
    let problem = Problem {
        num_steps,
        workload: args.workload.clone(),
        participation: args.participation.clone(),
        target: args.objective,
    };
    let base = strategies::build(&args.strategy, &problem)?;
    let norms: Option<Vec<f64>> = match args.column_normalize {
        true => Some(base.column_norms_squared()?.into_iter().map(f64::sqrt).collect()),
        false => None,
    };
    let columns = strategies::first_columns(&base, norms.as_deref())?;
    let factorization = if args.column_normalize { base.column_normalized()? } else { base };
    let loss = factorization.loss(&problem.workload, &problem.participation, args.adjacency)?;
    let (bound, reason) = problem.lower_bound();
    let factor = if args.adjacency == Adjacency::ReplaceOne { 2.0 } else { 1.0 };
    Ok(Inspected {
        name: args.strategy.to_string(),
        problem,
        adjacency: args.adjacency,
        factorization,
        columns,
        loss,
        lower_bound: (factor * bound, reason),
    })
}

/// Coefficients of so many steps take a gigabyte.
const MAX_STEPS: usize = 100_000_000;

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
        adjacency: match args.adjacency {
            Adjacency::ZeroOut => "zero-out",
            Adjacency::ReplaceOne => "replace-one",
        },
        column_normalized: factorization.is_column_normalized(),
        objective: match args.objective {
            corrnoise::planner::optimize::Target::Max => "max",
            corrnoise::planner::optimize::Target::Rms => "rms",
        },
        sensitivity_kind: match loss.sensitivity.kind {
            Kind::Exact => "exact",
            Kind::UpperBound => "upper bound",
        },
        sensitivity_reason: loss.sensitivity.reason,
        lower_bound: inspected.lower_bound.0,
        lower_bound_reason: inspected.lower_bound.1,
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
    let excess = |loss: f64| format!("{:.2} times what no strategy goes below", loss / report.lower_bound);
    row("max loss", short(report.max_loss), excess(report.max_loss));
    row("rms loss", short(report.rms_loss), excess(report.rms_loss));
    row("lower bound", short(report.lower_bound), report.lower_bound_reason.to_owned());
    row("state", format!("{} B", report.state_bytes_per_param), "per parameter".into());
    let rows = format!("{}, {} normals per parameter and step at most", report.form, report.rows_per_step);
    row("runs as", "-".into(), rows);
    let normalized = if report.column_normalized { ", columns normalised" } else { "" };
    let coefs = |values: &[f64]| values.iter().map(|value| short(*value)).collect::<Vec<_>>().join(" ");
    format!(
        "{}{normalized}; {} steps, {} participation, {} workload, {}\n\n{}\nfirst column of C    {}\nfirst column of C⁻¹  {}\n",
        output.paint("1", &report.strategy),
        report.steps,
        report.participation,
        report.workload,
        report.adjacency,
        table.render(output),
        coefs(&report.strategy_coefs),
        coefs(&report.noising_coefs),
    )
}

impl Inspected {
    /// Sensitivity times the error of every released value.
    pub fn per_query_loss(&self) -> Result<Vec<f64>> {
        let squared = self.factorization.per_query_error_squared(&self.problem.workload)?;
        Ok(squared.into_iter().map(|value| self.loss.sensitivity.value * value.sqrt()).collect())
    }

    /// The same for independent noise.
    pub fn independent_loss(&self) -> Result<Vec<f64>> {
        let independent = Factorization::new(Strategy::Identity, self.problem.num_steps)?;
        let sensitivity = independent.sensitivity(&self.problem.participation, self.adjacency)?.value;
        let squared = independent.per_query_error_squared(&self.problem.workload)?;
        Ok(squared.into_iter().map(|value| sensitivity * value.sqrt()).collect())
    }
}
