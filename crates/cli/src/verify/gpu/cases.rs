//! The list of what is checked: every form that has a kernel, every number type, every number of rounds, every way to run.
//!
//! The list is a product of axes. A new kernel is a line of [`cases`]; a new way to run mechanisms is a line of [`Case::ways`].

use crate::failure::Result;
use corrnoise::examine::Way;
use corrnoise::form::{Kernel, Regenerate, Term};
use corrnoise::planner::strategy::series;
use corrnoise::{Dtype, Family, Form, Plan, Rounds};
use serde::Serialize;

/// A form, with as many steps as it takes to read and write every slot of its state.
pub struct Case {
    /// The name of the form for people, such as `BLT 4`.
    pub name: String,
    /// The module of kernels that runs it in one fused pass per step, such as `blt4`.
    pub kernel: String,
    pub form: Form,
    /// The number of steps of a fused run.
    steps: u64,
}

impl Case {
    fn new(name: impl Into<String>, form: Form, steps: u64) -> Case {
        let kernel = match form.kernel() {
            Kernel::Blt(blt) => format!("blt{}", blt.scale().len()),
            Kernel::Ring(_) => "ring".into(),
            Kernel::Regenerate(_) => "regenerate".into(),
        };
        Case { name: name.into(), kernel, form, steps }
    }

    /// A plan whose scale has many bits, so that products are rounded, on a grid that shows every digit of the noise.
    pub fn plan(&self, point: &Point) -> Result<Plan> {
        let plan = Plan::new(self.steps(point.options), self.form.clone(), 0.7313)?;
        Ok(plan.with_finest_grid()?.with_rounds(point.rounds)?)
    }

    /// The number of steps of a run: rows made ahead take two turns at least, also between two thirds of the run.
    pub fn steps(&self, options: Options) -> u64 {
        match options.is_staged() {
            true => self.steps.max(3 * (options.rows_ahead as u64 + 1)),
            false => self.steps,
        }
    }

    /// Every way to run the form. The kernels that make rows of a ring are two, for up to 8 rows and for more.
    pub fn ways(&self) -> Vec<Options> {
        let (fused, prepared) = (Options::FUSED, |rows_ahead| Options { rows_ahead, prepare: true });
        let ahead = |rows_ahead| Options { rows_ahead, prepare: false };
        match self.form.kernel() {
            Kernel::Blt(blt) if blt.scale().is_empty() => vec![fused],
            Kernel::Ring(_) => vec![fused, ahead(8), ahead(16), prepared(8)],
            // Rows of different steps have nothing in common: one is made at a time.
            Kernel::Regenerate(sum) if sum.toeplitz_weights().is_none() => vec![fused, prepared(1)],
            Kernel::Blt(_) | Kernel::Regenerate(_) => vec![fused, ahead(8), prepared(8)],
        }
    }

    /// The modules of kernels that run a point, as files in `crates/cuda/ptx` are named, on a device of this compute capability.
    pub fn kernels(&self, point: &Point, capability: (i32, i32)) -> String {
        // From there on GPUs have an instruction that rounds to bf16.
        let native = if point.gradient == Dtype::Bf16 && capability >= (8, 0) { "_80" } else { "" };
        let make = match self.form.kernel() {
            _ if !point.options.is_staged() => return format!("{}{native}", self.kernel),
            Kernel::Ring(_) if point.options.rows_ahead <= 8 => "ring8",
            Kernel::Ring(_) => "ring16",
            Kernel::Blt(_) | Kernel::Regenerate(_) => &self.kernel,
        };
        format!("make_{make} + add{native}")
    }
}

/// How a mechanism runs its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Options {
    /// The number of rows made at a time; 1 means one fused pass per step.
    pub rows_ahead: usize,
    /// Whether rows are made before their step.
    pub prepare: bool,
}

impl Options {
    /// One fused pass per step.
    pub const FUSED: Options = Options { rows_ahead: 1, prepare: false };

    /// Whether one kernel makes rows and another adds them.
    pub fn is_staged(self) -> bool {
        self != Options::FUSED
    }

    /// The options in a word and a number that follow a name in a table; nothing for a fused pass.
    pub fn label(self) -> String {
        match self.prepare {
            true => format!(", prepared {}", self.rows_ahead),
            false if self.rows_ahead > 1 => format!(", ahead {}", self.rows_ahead),
            false => String::new(),
        }
    }

    /// The options in words that follow a list; nothing for a fused pass.
    pub fn describe(self) -> String {
        let rows = match self.rows_ahead {
            1 => String::new(),
            rows => format!(", {rows} rows ahead"),
        };
        rows + if self.prepare { ", prepared" } else { "" }
    }
}

impl From<Options> for Way {
    fn from(Options { rows_ahead, prepare }: Options) -> Way {
        Way { rows_ahead, prepare }
    }
}

/// The numbers of rounds that the cipher may have.
pub const ROUNDS: [Rounds; 3] = [Rounds::R8, Rounds::R12, Rounds::R20];

/// Some values on the axes of number types and rounds.
pub struct Axes {
    pub gradients: &'static [Dtype],
    pub rounds: &'static [Rounds],
}

/// One point of the product: a case, and the value on each of the other axes.
#[derive(Clone, Copy)]
pub struct Point {
    pub gradient: Dtype,
    pub rounds: Rounds,
    pub options: Options,
}

impl Point {
    /// All points of one case: those of fused runs, and those of runs whose rows are made ahead.
    pub fn product(case: &Case, fused: &Axes, staged: &Axes) -> Vec<Point> {
        let mut points = Vec::new();
        for options in case.ways() {
            let axes = if options.is_staged() { staged } else { fused };
            for &rounds in axes.rounds {
                points.extend(axes.gradients.iter().map(|&gradient| Point { gradient, rounds, options }));
            }
        }
        points
    }

    /// The point in words.
    pub fn describe(&self) -> String {
        let options = self.options.describe();
        format!("{} gradients, {} rounds{options}", self.gradient, u32::from(self.rounds))
    }
}

/// The steps of the form whose rows are all different: as many as its longest run has.
const FREE_ROWS: usize = 51;

/// Every module of kernels, and every way to give it coefficients.
pub fn cases() -> Result<Vec<Case>> {
    // Unequal, so that a buffer that is swapped with another shows.
    let scale = [0.21, 0.11, 0.07, 0.04, 0.022, 0.011, 0.005, 0.0012];
    let decay = [0.13, 0.49, 0.76, 0.89, 0.952, 0.981, 0.9937, 0.9989];
    let mut list = vec![Case::new("independent", Form::independent(), 8)];
    for d in 1..=8 {
        list.push(Case::new(format!("BLT {d}"), Form::blt(&scale[..d], &decay[..d])?, 8));
    }
    let restarted = Form::blt(&scale[..3], &decay[..3])?.with_restarts(3)?;
    list.push(Case::new("BLT 3 restarted", restarted, 8));
    for bands in [2_usize, 16, 64] {
        let form = Form::banded_toeplitz(&series::binomial(-0.5, bands))?;
        list.push(Case::new(format!("ring {bands}"), form, bands as u64 + 8));
    }
    let free: Vec<Vec<f64>> = (0..FREE_ROWS)
        .map(|t| (0..=t.min(4)).map(|age| 1.5 / (1.0 + age as f64 + 0.1 * t as f64)).collect())
        .collect();
    list.push(Case::new("ring free rows", Form::banded(&free)?, FREE_ROWS as u64));
    let restarted = Form::banded_toeplitz(&series::binomial(-0.5, 5))?.with_restarts(4)?;
    list.push(Case::new("ring 5 restarted", restarted, 12));
    for rows in [4_usize, 32] {
        let form = Form::regenerate(&series::binomial(0.5, rows))?;
        list.push(Case::new(format!("regenerate {rows}"), form, rows as u64 + 4));
    }
    list.push(Case::new("regenerate tree", tree(8)?, 8));
    Ok(list)
}

/// Sums of rows that belong to nodes of a tree and to steps.
fn tree(steps: u64) -> Result<Form> {
    let term = |family, index, weight| Term { family, index, weight };
    let terms: Vec<Vec<Term>> =
        (0..steps).map(|t| vec![term(Family::TreeNode, t / 2, 0.75), term(Family::Step, t, -0.3)]).collect();
    Ok(Kernel::Regenerate(Regenerate::listed(&terms)?).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_modules_of_a_point_are_named() {
        let list = cases().unwrap();
        let kernels = |name: &str, gradient, rows_ahead, prepare, capability| {
            let case = list.iter().find(|case| case.name == name).unwrap();
            let options = Options { rows_ahead, prepare };
            case.kernels(&Point { gradient, rounds: Rounds::R12, options }, capability)
        };
        let (old, new) = ((7, 5), (8, 0));
        assert_eq!(kernels("BLT 4", Dtype::Bf16, 1, false, old), "blt4");
        assert_eq!(kernels("BLT 4", Dtype::Bf16, 1, false, new), "blt4_80");
        assert_eq!(kernels("BLT 4", Dtype::F16, 8, false, new), "make_blt4 + add");
        assert_eq!(kernels("BLT 3 restarted", Dtype::Bf16, 8, true, (9, 0)), "make_blt3 + add_80");
        assert_eq!(kernels("ring 2", Dtype::F32, 8, false, new), "make_ring8 + add");
        assert_eq!(kernels("ring 64", Dtype::F32, 16, false, new), "make_ring16 + add");
        assert_eq!(kernels("regenerate tree", Dtype::F32, 1, true, new), "make_regenerate + add");
    }

    #[test]
    fn rows_ahead_have_several_turns_in_every_run() {
        for case in cases().unwrap() {
            for options in case.ways().into_iter().filter(|options| options.is_staged()) {
                let (steps, rows) = (case.steps(options), options.rows_ahead as u64);
                assert!(2 * steps / 3 - steps / 3 > rows, "{}{}", case.name, options.describe());
                let point = Point { gradient: Dtype::F32, rounds: Rounds::R12, options };
                assert_eq!(case.plan(&point).unwrap().num_steps(), steps);
            }
        }
    }
}
