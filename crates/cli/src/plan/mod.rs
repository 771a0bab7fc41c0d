//! `plan`: from the numbers a trainer knows to a compared table, a recommendation and a file that training reads.

mod args;
mod report;

pub(crate) use args::PlanArgs;
pub(crate) use report::claim_text;

use crate::failure::{Failure, Outcome, Result};
use crate::output::Output;
use crate::progress::Stages;
use corrnoise::Plan;
use corrnoise::file::{Access, check_writable, write_anywhere};
use corrnoise::planner::{Request, verify};
use std::path::Path;

pub(crate) fn run(args: &PlanArgs, output: &mut Output<'_>) -> Result<Outcome> {
    let request = Request::from(args);
    if let Some(path) = &args.out {
        check_writable(path)?;
    }
    let answer = request.recommend(&mut Stages::new("comparing strategies"))?;
    let plan = &answer.recommended().plan;
    // What is written is what was checked: the text, read back.
    let text = plan.to_json();
    let claim = verify(&Plan::from_json(&text)?)?.claim;
    let mut replaced = false;
    if let Some(path) = &args.out {
        replaced = path.is_file();
        write_anywhere(path, Access::Usual, |out| -> Result<()> {
            out.write_all(text.as_bytes()).map_err(|error| Failure::io("write", path, error))
        })?;
    }
    for warning in &answer.warnings {
        output.note(&format!("warning: {warning}"));
    }
    let report = report::Report::new(&answer, plan, claim, args.out.as_deref())?;
    output.text(report::text(&report, &request, replaced, output))?;
    output.json(&report)?;
    Ok(Outcome::Passed)
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
