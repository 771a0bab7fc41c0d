//! `verify --device cuda:0 --report FILE`: what a GPU does with every kernel, in one file to send.
//!
//! The kernels were never run on hardware by those who wrote them; whoever has a GPU can run this and send the file. A check that fails
//! does not end the run: the report names it, and holds all others.

mod cases;
mod compare;
mod report;
mod session;
mod text;
mod throughput;

use super::VerifyArgs;
use crate::failure::{Failure, Outcome, Result};
use crate::output::Output;
use crate::parse::Device;
use crate::progress::Progress;
use cases::{Axes, Case, Point, ROUNDS, cases};
use corrnoise::file::{Access, check_writable, write_anywhere};
use corrnoise::{Dtype, Rounds};
use report::{Check, Report};
use session::{Compare, Session};
use std::time::Instant;

/// The values that a check of parity compares; on a GPU, all of them together take a minute or two.
const VALUES: u64 = 10_000_000;
const QUICK_VALUES: u64 = 1_000_000;
/// More would only fill the host's memory.
const MOST_VALUES: u64 = 1_000_000_000;
/// Graphs and checkpoints add nothing to the arithmetic, so that fewer values show what they do.
const FEWER: u64 = 16;
/// A tile. Fewer coordinates would leave some of a kernel's stores unseen.
const LEAST_COORDS: u64 = 512;

/// A group of checks: what it compares, and on which gradients and numbers of rounds. Rows that are made ahead have fewer of both: the
/// kernels that make them have no number type, the one that adds them has no cipher, and every way shares the code of the fused kernels.
struct Group {
    name: &'static str,
    /// What is compared, for people.
    about: &'static str,
    compare: Compare,
    fused: Axes,
    staged: Axes,
    /// The share of the values of a full check.
    fewer: u64,
}

/// The number of rounds that plans have unless they ask for another.
const USUAL: &[Rounds] = &[Rounds::R12];

impl Group {
    fn points(&self, case: &Case) -> Vec<Point> {
        Point::product(case, &self.fused, &self.staged)
    }
}

/// Graphs come last: what they captured stays in the device's context until the process ends, so that no later check could have a
/// fresh one after a fault.
const GROUPS: [Group; 3] = [
    Group {
        name: "parity",
        about: "Parity with the CPU engine, every bit of every step",
        compare: compare::parity,
        fused: Axes { gradients: &Dtype::ALL, rounds: &ROUNDS },
        staged: Axes { gradients: &Dtype::ALL, rounds: USUAL },
        fewer: 1,
    },
    Group {
        name: "checkpoints",
        about: "Checkpoints: CPU to device to CPU, states equal byte for byte",
        compare: compare::checkpoints,
        fused: Axes { gradients: &[Dtype::F32], rounds: USUAL },
        staged: Axes { gradients: &[Dtype::F32], rounds: USUAL },
        fewer: FEWER,
    },
    Group {
        name: "graphs",
        about: "Captured graphs: replayed steps bit for bit, NaN past the end",
        compare: compare::graph,
        fused: Axes { gradients: &Dtype::ALL, rounds: USUAL },
        staged: Axes { gradients: &[Dtype::F32], rounds: USUAL },
        fewer: FEWER,
    },
];

pub fn run(args: &VerifyArgs, device: Device, output: &mut Output<'_>) -> Result<Outcome> {
    if let Some(path) = &args.report {
        check_writable(path)?;
    }
    let values = args.values.unwrap_or(if args.quick { QUICK_VALUES } else { VALUES });
    if values > MOST_VALUES {
        return Err(Failure::value("values", values, format!("at most {MOST_VALUES}")));
    }
    let mut session = open(device)?;
    let start = Instant::now();
    let facts = session.facts()?;
    let capability = facts.capability;
    let mut report = Report::new(facts, values);
    output.text(report.head(output))?;
    let list = cases()?;
    let points =
        GROUPS.iter().flat_map(|group| list.iter().map(|case| group.points(case).len() as u64)).sum();
    let mut progress = Progress::new(points, "verifying");
    for group in &GROUPS {
        if group.name == "graphs" {
            report.throughput = throughput::measure(&mut session, &report.device, values, &mut progress)?;
        }
        progress.suspend(|| output.text(output.wrap(&format!("\n{}:", group.about))))?;
        for case in &list {
            progress.message(&format!("{}: {}", group.name, case.name));
            let mut checks = Vec::new();
            for point in group.points(case) {
                progress.set((report.checks.len() + checks.len()) as u64);
                checks.push(run_point(&mut session, group, case, &point, values, capability)?);
            }
            progress.suspend(|| output.text(text::line(case, &checks, output)))?;
            report.checks.extend(checks);
        }
    }
    drop(progress);
    report.finish(start.elapsed());
    output.text(report.summary(output))?;
    if let Some(path) = &args.report {
        write_anywhere(path, Access::Usual, |out| {
            serde_json::to_writer_pretty(&mut *out, &report)
                .map_err(std::io::Error::from)
                .and_then(|()| writeln!(out))
                .map_err(|error| Failure::io("write", path, error))
        })?;
        output.text(output.wrap(&format!(
            "\nThe report is in {}. It names the GPU, its driver and the kind of system, but no machine and no person: please send it, whatever it says.",
            path.display()
        )))?;
    }
    output.json(&report)?;
    Ok(if report.passed { Outcome::Passed } else { Outcome::Failed })
}

/// Opens the device, or says in one line why there is none.
fn open(device: Device) -> Result<Session> {
    match device {
        // The library may have the engine because another package of the build asked for it: then it is used, since it was named.
        Device::Cuda(_) => Session::open(device).map_err(|error| match cfg!(feature = "cuda") {
            true => Failure::input(format!("no GPU to verify: {error}")),
            false => crate::failure::without_cuda(&format!("--device {device}")),
        }),
        other => Err(Failure::value(
            "device",
            other,
            "a GPU such as cuda:0; without --device, verify checks the CPU engine",
        )),
    }
}

fn run_point(
    session: &mut Session,
    group: &Group,
    case: &Case,
    point: &Point,
    values: u64,
    capability: (i32, i32),
) -> Result<Check> {
    let coords = (values / group.fewer).div_ceil(case.steps(point.options)).max(LEAST_COORDS);
    let start = Instant::now();
    let finding = session.compare(group.compare, case, point, coords)?;
    let kernel = case.kernels(point, capability);
    Ok(Check::new(group.name, kernel, case, point, coords, finding, start.elapsed()))
}
