//! `generate`: rows of a plan's noise as a `.npy` file.
//!
//! Rows come from a backend, not from a mechanism: a mechanism makes each step once and in order, which is what training needs, but looking
//! at step 10⁶ of a form without state should not take 10⁶ steps.

use crate::failure::{Failure, Outcome, Result};
use crate::npy;
use crate::output::Output;
use crate::parse;
use crate::plan;
use crate::progress::Progress;
use clap::{ArgGroup, Args};
use corrnoise::any::{AnyBackend, AnyGradients};
use corrnoise::backend::{Add, Backend, Step, StepKernel};
use corrnoise::file::{Access, write_anywhere};
use corrnoise::form::Kernel;
use corrnoise::{CpuOptions, Device, Family, Form, Gradients, Incarnations, Key, Place, Plan, Row, Shard};
use serde::Serialize;
use std::ops::Range;
use std::path::PathBuf;

/// Rows of noise as a .npy file of f32, one row per step
///
/// What a plan adds to a gradient, C⁻¹Z times its standard deviation, for some steps and coordinates; the same bytes on every device
/// and for every division of the coordinates. It is the noise before the output grid: there is no gradient, and so no sum to round. Past steps are run through where the form has a state, and skipped where it has none.
/// Memory is a few rows, whatever the number of steps. Noise is as secret as its key.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("key").args(["key_hex", "key_file"]))]
#[command(after_help = "Examples:
  corrnoise generate --plan plan.json --steps 0..10 --coords 0..1000000 --key-file noise.key --out noise.npy
  corrnoise generate --plan plan.json --steps 0..10 --coords 0..1000 --key-file noise.key --iid --out z.npy")]
pub(crate) struct GenerateArgs {
    /// The plan whose noise is made
    #[arg(long, value_name = "FILE")]
    pub plan: PathBuf,
    /// The key as 64 hexadecimal digits. Other users of the machine can see a command line: for real runs use --key-file. Without a
    /// key a fresh one is drawn, used and forgotten
    #[arg(long, value_name = "HEX")]
    pub key_hex: Option<String>,
    /// A file that holds the key: 32 raw bytes or 64 hexadecimal digits
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Name of the run: one key makes different noise for every name
    #[arg(long, value_name = "NAME", default_value = "")]
    pub run_id: String,
    /// Steps, the last one excluded
    #[arg(long, value_name = "A..B", value_parser = parse::range, allow_hyphen_values = true)]
    pub steps: Range<u64>,
    /// Coordinates of the model, the last one excluded
    #[arg(long, value_name = "LO..HI", value_parser = parse::range, allow_hyphen_values = true)]
    pub coords: Range<u64>,
    /// Parameters of the whole model, to check the coordinates against
    #[arg(long, value_name = "M", value_parser = parse::count, allow_negative_numbers = true)]
    pub dim: Option<u64>,
    /// Rows of Z, independent and of standard deviation 1, instead of C⁻¹Z
    #[arg(long)]
    pub iid: bool,
    #[arg(long, value_name = "DEVICE", default_value = "cpu", value_parser = parse::device)]
    #[arg(help = format!("What makes the noise: {}. The bytes are the same", Device::help()))]
    pub device: Device,
    /// The file to write, for its owner alone (mode 0600): noise is as secret as the key
    #[arg(long, short = 'o', value_name = "FILE")]
    pub out: PathBuf,
}

/// The keys of `generate --json`.
#[derive(Serialize)]
struct Report {
    out: String,
    dtype: &'static str,
    shape: [u64; 2],
    steps: [u64; 2],
    coords: [u64; 2],
    iid: bool,
    device: String,
    plan_fingerprint: String,
    key_commitment: String,
}

pub(crate) fn run(args: &GenerateArgs, output: &mut Output<'_>) -> Result<Outcome> {
    let plan = plan::load(&args.plan)?;
    check_ranges(args, &plan)?;
    let key = key(args)?;
    let run_key = key.run_key(plan.fingerprint());
    let shard = Shard::whole(args.dim.unwrap_or(args.coords.end))?.within(args.coords.clone())?;
    let commitment = run_key.commitment().to_string();
    // Rows of Z alone are those of independent noise, under the plan's own key.
    let runs = if args.iid {
        Plan::new(plan.num_steps(), Form::independent(), 1.0)?.with_rounds(plan.rounds())?
    } else {
        plan.clone()
    };
    let place = place(args.device)?;
    let mut backend = AnyBackend::new(&runs, &[run_key], &shard, &place)?;
    // Whoever has the rows can take them off gradients that were released.
    write_anywhere(&args.out, Access::Owner, |out| -> Result<()> {
        let fail = |error| Failure::io("write", &args.out, error);
        let mut row = row_buffer(shard.num_coords())?;
        npy::write_header(out, args.steps.end - args.steps.start, shard.num_coords()).map_err(fail)?;
        let first = first_step(&runs, args.steps.start);
        let mut progress = Progress::new(args.steps.end - first, "steps");
        for step in first..args.steps.end {
            row.fill(0.0);
            one_row(&runs, step, args.iid, &mut backend, &mut row)?;
            if args.steps.contains(&step) {
                npy::write_row(out, &row).map_err(fail)?;
            }
            progress.set(step + 1 - first);
        }
        Ok(())
    })?;
    let report = Report {
        out: args.out.display().to_string(),
        dtype: "<f4",
        shape: [args.steps.end - args.steps.start, shard.num_coords()],
        steps: [args.steps.start, args.steps.end],
        coords: [args.coords.start, args.coords.end],
        iid: args.iid,
        device: backend.describe(),
        plan_fingerprint: plan.fingerprint().to_string(),
        key_commitment: commitment,
    };
    output.text(format!(
        "{}: {} × {} f32, {} of steps {:?}, coordinates {:?}; {}",
        report.out,
        report.shape[0],
        report.shape[1],
        if args.iid { "rows of Z" } else { "noise before the output grid" },
        args.steps,
        args.coords,
        report.device
    ))?;
    if args.key_hex.is_none() && args.key_file.is_none() {
        output.note("the key was drawn afresh and is not kept: nothing makes these rows again");
    }
    output.json(&report)?;
    Ok(Outcome::Passed)
}

fn check_ranges(args: &GenerateArgs, plan: &Plan) -> Result<()> {
    let show = |range: &std::ops::Range<u64>| format!("{}..{}", range.start, range.end);
    if args.steps.end > plan.num_steps() {
        return Err(Failure::value(
            "steps",
            show(&args.steps),
            format!("within 0..{}, the plan's steps", plan.num_steps()),
        ));
    }
    if let Some(dim) = args.dim.filter(|dim| args.coords.end > *dim) {
        return Err(Failure::value(
            "coords",
            show(&args.coords),
            format!("within 0..{dim}, the model's parameters"),
        ));
    }
    if args.iid && matches!(plan.form().kernel(), Kernel::Regenerate(rows) if rows.listed_terms(0).is_some())
    {
        return Err(Failure::input(
            "--iid is for plans whose Z has a row per step, and this plan's rows belong to nodes of a tree: leave it out",
        ));
    }
    Ok(())
}

fn key(args: &GenerateArgs) -> Result<Key> {
    Ok(match (&args.key_hex, &args.key_file) {
        (Some(hex), _) => Key::from_hex(hex, args.run_id.as_str())?,
        (None, Some(path)) => Key::from_file(path, args.run_id.as_str())?,
        (None, None) => Key::from_os()?,
    })
}

/// One row of the shard, or an error instead of an abort.
fn row_buffer(len: u64) -> Result<Vec<f32>> {
    let refuse = || {
        Failure::value(
            "coords",
            format!("{len} coordinates"),
            "a row that fits into memory; take fewer at a time",
        )
    };
    let len = usize::try_from(len).map_err(|_| refuse())?;
    let mut row = Vec::new();
    row.try_reserve_exact(len).map_err(|_| refuse())?;
    row.resize(len, 0.0);
    Ok(row)
}

/// The last step before `step` whose state is known: that after a restart, or any where there is none.
fn first_step(plan: &Plan, step: u64) -> u64 {
    match plan.form().kernel() {
        Kernel::Regenerate(_) => step,
        Kernel::Blt(blt) if blt.scale().is_empty() => step,
        _ => step - plan.form().age(step),
    }
}

/// Adds a step's row to a gradient that is zero.
fn one_row(plan: &Plan, step: u64, iid: bool, backend: &mut AnyBackend, row: &mut [f32]) -> Result<()> {
    let mut terms = Vec::new();
    let step = if iid {
        let z = Row::new(Family::Step, 0, step)?;
        let kernel = StepKernel::Blt { row: z, scale: &[], decay: &[], fresh: true };
        Step { number: step, add: Add::Plain(1.0), dither: z, kernel }
    } else {
        // There is no gradient, and so no sum to round: the noise is shown before the output grid.
        Step {
            add: Add::Plain(plan.scale(step)),
            ..Step::lower(plan, step, &Incarnations::first(), &mut terms)?
        }
    };
    Ok(backend.step(&step, AnyGradients::Host(Gradients::new(&mut [row])))?)
}

fn place(device: Device) -> Result<Place> {
    #[cfg(not(feature = "cuda"))]
    if matches!(device, Device::Cuda(_) | Device::HostMade(_)) {
        return Err(crate::failure::without_cuda("--device cuda"));
    }
    Ok(Place::open(device, CpuOptions::default())?)
}
