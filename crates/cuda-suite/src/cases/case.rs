//! One thing that a mutant is run on: a plan, places in the coordinate space, and what is done.

use crate::compare::Both;
use corrnoise::backend::{Step, StepKernel};
use corrnoise::{Incarnations, Plan, Result, Row, RunKey, Shard};
use std::ops::Range;
use std::sync::Arc;

/// What a step's noise is added to.
#[derive(Clone, Copy, Debug)]
pub enum Onto {
    /// Zero: every bit of the noise shows.
    Zero,
    /// Values no two of which are alike: rounding shows, and so does a swapped coordinate.
    Values,
    /// Also infinities, NaN, subnormals and the largest values, in every place of a thread's sixteen.
    Special,
    /// The noise's own negative, rounded to the gradient's type: what is left shows the noise's lowest bits.
    Cancelled,
    /// What brings the sum nearest to the middle between two values of the gradient's type: any rounding shows. For f32, which
    /// is not rounded again, as [`Onto::Cancelled`].
    Halfway,
    /// One, but infinite at one or two places of a segment.
    Infinity {
        /// Which segment.
        segment: usize,
        /// Which coordinates of it.
        at: [usize; 2],
        /// Of which sign.
        negative: bool,
    },
}

/// What [`Onto::Special`] mixes with ordinary values; 13 do not divide a tile.
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
    /// Whether it follows the step's noise.
    pub fn follows_noise(self) -> bool {
        matches!(self, Onto::Cancelled | Onto::Halfway)
    }

    /// The value at place `i` of segment `segment`; `place` is its place in the buffer and `noise` what will be added to it.
    fn value<E: Both>(self, segment: usize, i: usize, place: usize, noise: f32) -> E {
        E::from_f32(match self {
            Onto::Cancelled => -noise,
            Onto::Halfway => halfway::<E>(noise) - noise,
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
        })
    }
}

/// The middle between the two values of type `E` that a number lies between; 0 for f32.
fn halfway<E: Both>(number: f32) -> f32 {
    // The lowest bit of a number near 1 that the type keeps.
    let keeps = |bit: &u32| E::from_f32(f32::from_bits(1.0_f32.to_bits() | 1 << bit)) != E::from_f32(1.0);
    let dropped = (0..23).find(keeps).unwrap_or_default();
    if dropped == 0 {
        return 0.0;
    }
    f32::from_bits(number.to_bits() >> dropped << dropped | 1 << (dropped - 1))
}

/// A step that owns its lists.
#[derive(Clone, Debug)]
pub struct Lowered {
    /// The step's number; the device only reports it.
    pub number: u64,
    /// What noise is multiplied with.
    pub scale: f32,
    /// What noise it is.
    pub work: Work,
}

/// [`StepKernel`] with its lists.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "as in `StepKernel`")]
pub enum Work {
    Blt { row: Row, fresh: bool },
    Ring { row: Row, coefs: Vec<f32> },
    Regenerate { terms: Vec<(Row, f32)> },
}

impl Lowered {
    /// Step `number` of a plan.
    pub fn of(plan: &Plan, number: u64) -> Result<Lowered> {
        let mut terms = Vec::new();
        let step = Step::lower(plan, number, &Incarnations::first(), &mut terms)?;
        let work = match &step.kernel {
            StepKernel::Blt { row, fresh, .. } => Work::Blt { row: *row, fresh: *fresh },
            StepKernel::Ring { row, coefs } => Work::Ring { row: *row, coefs: coefs.to_vec() },
            StepKernel::Regenerate { terms } => Work::Regenerate { terms: terms.to_vec() },
        };
        Ok(Lowered { number, scale: step.scale, work })
    }

    /// The same with another name for the row that it makes; a regenerated sum keeps its terms.
    pub fn with_row(mut self, name: Row) -> Lowered {
        match &mut self.work {
            Work::Blt { row, .. } | Work::Ring { row, .. } => *row = name,
            Work::Regenerate { .. } => {}
        }
        self
    }

    /// As a backend takes it.
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
        Step { number: self.number, scale: self.scale, kernel }
    }
}

/// What is done with a backend.
#[derive(Clone, Debug)]
pub enum Action {
    /// One step by value.
    Step(Lowered, Onto),
    /// The steps are scheduled on the device, then `launches` are enqueued; those past the end must give NaN.
    Replay {
        /// What is scheduled.
        steps: Vec<Lowered>,
        /// How many steps are enqueued.
        launches: usize,
        /// What each is added to.
        onto: Onto,
    },
    /// The steps are scheduled, and one is captured as a graph, which is launched; then the replay ends, and the graph is launched
    /// again. Launches past the end of the schedule or of the replay must give NaN, and leave the state alone.
    Graph {
        /// What is scheduled.
        steps: Vec<Lowered>,
        /// How often the graph is launched within the replay.
        launches: usize,
        /// How often it is launched after.
        after: usize,
        /// What each is added to.
        onto: Onto,
    },
}

impl Action {
    /// What its steps are added to.
    pub fn onto(&self) -> Onto {
        match self {
            Action::Step(_, onto) | Action::Replay { onto, .. } | Action::Graph { onto, .. } => *onto,
        }
    }
}

/// A plan, places, and what is done.
pub struct Case {
    /// For people.
    pub name: &'static str,
    /// The form and the rounds.
    pub plan: Plan,
    /// One key per incarnation.
    pub keys: Arc<Vec<RunKey>>,
    /// The shard's segments.
    pub segments: Vec<Range<u64>>,
    /// Per segment, how far its memory is from where the kernel may use fours: 0 to 3 values.
    pub shifts: Vec<u64>,
    /// In order, on one backend.
    pub actions: Vec<Action>,
}

/// Values between two segments, which nobody may touch.
const GUARD: usize = 8;

impl Case {
    /// The shard of the segments.
    pub fn shard(&self) -> Result<Shard> {
        let end = self.segments.iter().map(|segment| segment.end).max().unwrap_or(1);
        Shard::whole(end)?.select(&self.segments)
    }

    /// Where each segment lies in a buffer, and the buffer's length.
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
        (places, at + GUARD)
    }

    /// The buffer before a step whose noise is `noise`, in the buffer's places; empty if the buffer does not follow it.
    pub fn buffer<E: Both>(&self, onto: Onto, noise: &[f32]) -> Vec<E> {
        let (places, len) = self.places();
        let mut buffer: Vec<E> = (0..len).map(|i| Onto::Values.value(0, i, i, 0.0)).collect();
        for (segment, place) in places.into_iter().enumerate() {
            for (i, at) in place.enumerate() {
                buffer[at] = onto.value(segment, i, at, noise.get(at).copied().unwrap_or(0.0));
            }
        }
        buffer
    }
}
