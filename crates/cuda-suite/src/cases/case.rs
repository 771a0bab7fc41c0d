//! A test case for (mutated) kernels: a plan, segments of the coordinate space, and a list of actions.

use super::edge::{Noise, edge, in_units};
use super::fine::{beyond, fine_edge};
use super::witnesses::few_keys;
use corrnoise::backend::{Add, Step, StepKernel};
use corrnoise::cuda::CudaOptions;
use corrnoise::grid::{Grid, STEPS_PER_BLOCK};
use corrnoise::{Element, Family, Incarnations, Plan, Result, Row, RunKey, Shard};
use corrnoise_testkit::gradients::grid_edge;
use std::ops::Range;
use std::sync::Arc;

/// The gradient that a step's noise is added to.
#[derive(Clone, Copy, Debug)]
pub enum Onto {
    /// A gradient of zeros: every bit of the noise shows.
    Zero,
    /// Values no two of which are alike: rounding shows, and so does a swapped coordinate.
    Values,
    /// The values of [`Onto::Values`], with infinities, NaN, subnormals and the largest values at every place of a thread's sixteen.
    Special,
    /// The noise's own negative, rounded to the gradient's type: the sum shows the noise's lowest bits.
    Cancelled,
    /// The value that brings the sum nearest to the middle between two values of the gradient's type: any wrong rounding shows.
    /// For f32, whose sum is not rounded again, it is the same as [`Onto::Cancelled`].
    Halfway,
    /// The value that makes the sum's rounding depend on the noise's last bit; where there is none, that of [`Onto::Cancelled`]. On a
    /// grid, the value whose sum with noise and dither is exactly between two points of the grid, or the next smaller one.
    Edge {
        /// True if the value tells the noise from the next larger number in magnitude, false if from the next smaller one. On a grid,
        /// true for the value exactly between two points.
        above: bool,
    },
    /// As [`Onto::Edge`] on a grid, but small enough for gradients of 16 bits to have it to the last bit where the noise is close to a
    /// limit of the rounding; elsewhere [`Onto::Zero`].
    Fine {
        /// True for the value exactly between two points, false for one that is 2⁻²² units smaller.
        exactly: bool,
    },
    /// A value so far beyond 2²⁴ units that f32 rounds its sum with the noise, which it brings next to the middle between two values of
    /// the gradient's type; where there is none, [`Onto::Cancelled`].
    Beyond,
    /// Halves of grid units and their neighbours, numbers of units where f32 has no more fractions, and numbers that are no gradients.
    Units,
    /// The value one everywhere, but infinity at one or two places of a segment.
    Infinity {
        /// The segment that has the infinities.
        segment: usize,
        /// The coordinates of the infinities within the segment.
        at: [usize; 2],
        /// Whether the infinities are negative.
        negative: bool,
    },
}

/// The values that [`Onto::Special`] mixes with ordinary ones; 13 does not divide a tile.
const SPECIAL: [f32; 13] = [
    f32::NAN,
    1.0,
    f32::INFINITY,
    65_504.0,
    -0.0,
    1e-7,
    f32::NEG_INFINITY,
    -65_504.0,
    3.3e38,
    -3e-40,
    0.0,
    -1.5,
    1e-39,
];

impl Onto {
    /// Whether the gradient depends on the step's noise.
    pub fn follows_noise(self) -> bool {
        matches!(self, Onto::Cancelled | Onto::Halfway | Onto::Edge { .. } | Onto::Fine { .. } | Onto::Beyond)
    }

    /// The value at place `i` of segment `segment`; `place` is its place in the buffer, and `noise` is what will be added to it.
    fn value<E: Element>(self, segment: usize, i: usize, place: usize, noise: Noise) -> E {
        E::from_f32(match (self, noise.fraction) {
            (Onto::Edge { above }, Some(fraction)) => grid_edge(fraction, noise.unit, place, above),
            (Onto::Edge { above }, None) => edge::<E>(noise.value, above),
            (Onto::Fine { exactly }, Some(fraction)) => {
                fine_edge(fraction, exactly).unwrap_or(0.0) * noise.unit
            }
            (Onto::Beyond, Some(fraction)) => {
                beyond::<E>(noise.integer, fraction, noise.unit).unwrap_or(-noise.value)
            }
            (onto, _) => onto.other::<E>(segment, i, place, noise),
        })
    }

    fn other<E: Element>(
        self,
        segment: usize,
        i: usize,
        place: usize,
        Noise { value: noise, unit, .. }: Noise,
    ) -> f32 {
        match self {
            Onto::Cancelled | Onto::Edge { .. } | Onto::Fine { .. } | Onto::Beyond => -noise,
            Onto::Halfway => halfway::<E>(noise) - noise,
            Onto::Units => in_units(place) * unit,
            Onto::Zero => 0.0,
            Onto::Values => ((place as u64 * 7919) % 10_007) as f32 * 1e-3 - 5.0,
            Onto::Special => SPECIAL[place % 13],
            Onto::Infinity { segment: s, at, negative } if s == segment && at.contains(&i) => {
                if negative {
                    f32::NEG_INFINITY
                } else {
                    f32::INFINITY
                }
            }
            Onto::Infinity { .. } => 1.0,
        }
    }
}

/// The middle between the two neighbouring values of type `E` around a number; 0 for f32.
fn halfway<E: Element>(number: f32) -> f32 {
    // The lowest bit of a number near 1 that the type keeps.
    let keeps = |bit: &u32| E::from_f32(f32::from_bits(1.0_f32.to_bits() | 1 << bit)) != E::from_f32(1.0);
    let dropped = (0..23).find(keeps).unwrap_or_default();
    if dropped == 0 {
        return 0.0;
    }
    f32::from_bits(number.to_bits() >> dropped << dropped | 1 << (dropped - 1))
}

/// A step, like [`Step`], that owns its lists.
#[derive(Clone, Debug)]
pub struct Lowered {
    /// The step's number, which the device only reports.
    pub number: u64,
    /// How the noise is added.
    pub add: Add,
    /// The row of the dither's words.
    pub dither: Row,
    /// The kernel that makes the noise.
    pub work: Work,
}

/// A [`StepKernel`] that owns its lists.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "as in `StepKernel`")]
pub enum Work {
    Blt { row: Row, fresh: bool },
    Ring { row: Row, coefs: Vec<f32> },
    Regenerate { terms: Vec<(Row, f32)> },
}

impl Lowered {
    /// Lowers step `number` of a plan.
    pub fn of(plan: &Plan, number: u64) -> Result<Lowered> {
        let mut terms = Vec::new();
        let step = Step::lower(plan, number, &Incarnations::first(), &mut terms)?;
        let work = match &step.kernel {
            StepKernel::Blt { row, fresh, .. } => Work::Blt { row: *row, fresh: *fresh },
            StepKernel::Ring { row, coefs } => Work::Ring { row: *row, coefs: coefs.to_vec() },
            StepKernel::Regenerate { terms } => Work::Regenerate { terms: terms.to_vec() },
        };
        Ok(Lowered { number, add: step.add, dither: step.dither, work })
    }

    /// The same step with another name for the row that it makes, and the dither of that row's incarnation; a regenerated sum keeps its
    /// terms.
    pub fn with_row(mut self, name: Row) -> Result<Lowered> {
        match &mut self.work {
            Work::Blt { row, .. } | Work::Ring { row, .. } => *row = name,
            Work::Regenerate { .. } => {}
        }
        self.dither = Row::new(Family::Dither, name.incarnation(), self.number / STEPS_PER_BLOCK)?;
        Ok(self)
    }

    /// The same step with noise of another scale, on the plan's grid.
    pub fn with_scale(self, plan: &Plan, scale: f32) -> Lowered {
        Lowered { add: Add::OnGrid(Grid::new(plan.grid_exponent(), scale)), ..self }
    }

    /// A step that adds one row as it is, multiplied by `scale` once and without a grid: the first of a run, so that nothing came before
    /// it.
    pub fn of_row(plan: &Plan, name: Row, scale: f32) -> Result<Lowered> {
        let mut step = Lowered { add: Add::Plain(scale), ..Lowered::of(plan, 0)? }.with_row(name)?;
        if let Work::Regenerate { terms } = &mut step.work {
            *terms = vec![(name, 1.0)];
        }
        Ok(step)
    }

    /// The step as a backend takes it.
    pub fn step<'a>(&'a self, plan: &'a Plan) -> Step<'a> {
        let kernel = match &self.work {
            Work::Blt { row, fresh } => {
                let (scale, decay) = match plan.form().kernel() {
                    corrnoise::form::Kernel::Blt(blt) => (blt.scale(), blt.decay()),
                    _ => (&[][..], &[][..]),
                };
                StepKernel::Blt { row: *row, scale, decay, fresh: *fresh }
            }
            Work::Ring { row, coefs } => StepKernel::Ring { row: *row, coefs },
            Work::Regenerate { terms } => StepKernel::Regenerate { terms },
        };
        Step { number: self.number, add: self.add, dither: self.dither, kernel }
    }
}

/// An action of a case on its backend.
#[derive(Clone, Debug)]
pub enum Action {
    /// Adds one step's noise, with the step's arguments passed by value.
    Step(Lowered, Onto),
    /// Schedules the steps on the device, then enqueues `launches` of them; launches past the end must give NaN.
    Replay {
        /// The steps that are scheduled on the device.
        steps: Vec<Lowered>,
        /// The number of steps that are enqueued.
        launches: usize,
        /// The gradient of every launch.
        onto: Onto,
    },
    /// Schedules the steps, captures one as a graph, and launches the graph; then ends the replay and launches the graph again.
    /// Launches past the end of the schedule or of the replay must give NaN and leave the state unchanged.
    Graph {
        /// The steps that are scheduled on the device.
        steps: Vec<Lowered>,
        /// The number of graph launches within the replay.
        launches: usize,
        /// The number of graph launches after its end.
        after: usize,
        /// The gradient of every launch.
        onto: Onto,
    },
}

impl Action {
    /// The gradient that the action's steps are added to.
    pub fn onto(&self) -> Onto {
        match self {
            Action::Step(_, onto) | Action::Replay { onto, .. } | Action::Graph { onto, .. } => *onto,
        }
    }
}

/// A case: a plan, segments, and a list of actions.
pub struct Case {
    /// The name of the case in messages.
    pub name: &'static str,
    /// The plan, which fixes the form and the rounds of the cipher.
    pub plan: Plan,
    /// The keys of the run's incarnations, by number.
    pub keys: Arc<Vec<RunKey>>,
    /// The segments of the shard.
    pub segments: Vec<Range<u64>>,
    /// Per segment, how many values (0 to 3) its memory lies past an address where the kernel may access four at a time.
    pub shifts: Vec<u64>,
    /// The options of the CUDA engine. Where they let rows be prepared, every other step is.
    pub options: CudaOptions,
    /// The actions, in order, all on one backend.
    pub actions: Vec<Action>,
}

/// The number of values between two segments; they must stay unchanged.
const GUARD: usize = 8;

/// The name of cases whose last segment ends with its memory: a load past the end of a gradient, whose value nobody stores, then faults.
pub(super) const ENDS: &str = "ends";

impl Case {
    /// A case with three keys and the default options. Each segment comes with its shift, see [`Case::shifts`].
    pub fn new(
        name: &'static str,
        plan: Plan,
        segments: impl IntoIterator<Item = (Range<u64>, u64)>,
        actions: Vec<Action>,
    ) -> Case {
        let (segments, shifts) = segments.into_iter().unzip();
        Case { name, plan, keys: few_keys(), segments, shifts, options: CudaOptions::default(), actions }
    }

    /// The same case with other options.
    pub fn with_options(self, options: CudaOptions) -> Case {
        Case { options, ..self }
    }

    /// The same case with other keys.
    pub fn with_keys(self, keys: Arc<Vec<RunKey>>) -> Case {
        Case { keys, ..self }
    }

    /// The shard that consists of the segments.
    pub fn shard(&self) -> Result<Shard> {
        let end = self.segments.iter().map(|segment| segment.end).max().unwrap_or(1);
        Shard::whole(end)?.select(&self.segments)
    }

    /// The place of each segment in a buffer, and the buffer's length.
    pub fn places(&self) -> (Vec<Range<usize>>, usize) {
        let mut at = 0;
        let places = self.segments.iter().zip(&self.shifts).map(|(segment, shift)| {
            let wanted = ((segment.start + shift) % 4) as usize;
            at += GUARD;
            at += (wanted + 4 - at % 4) % 4;
            let start = at;
            at += (segment.end - segment.start) as usize;
            start..at
        });
        let places: Vec<_> = places.collect();
        (places, if self.name == ENDS { at } else { at + GUARD })
    }

    /// The buffer before a step. `noise` is the step's noise in the buffer's layout, or empty if the gradient does not depend on it.
    pub(super) fn buffer<E: Element>(&self, onto: Onto, noise: &[Noise]) -> Vec<E> {
        let (places, len) = self.places();
        let none = Noise { unit: self.plan.grid(0).unit, ..Noise::default() };
        let mut buffer: Vec<E> = (0..len).map(|i| Onto::Values.value(0, i, i, none)).collect();
        for (segment, place) in places.into_iter().enumerate() {
            for (i, at) in place.enumerate() {
                buffer[at] = onto.value(segment, i, at, noise.get(at).copied().unwrap_or(none));
            }
        }
        buffer
    }
}
