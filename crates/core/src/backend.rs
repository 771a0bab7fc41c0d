//! The interface between a mechanism and a device: all that differs per device, and nothing more.

use crate::error::{Error, Result};
use crate::form::Kernel;
use crate::grid::{Grid, STEPS_PER_BLOCK};
use crate::plan::Plan;
use crate::row::{Family, Incarnations, Row};

/// The work of one step, lowered from the plan: the same for every device.
#[derive(Debug)]
pub struct Step<'a> {
    /// The number of the step, for messages only: the kernel names its rows itself.
    pub number: u64,
    /// How the noise is added to gradients.
    pub add: Add,
    /// The row that holds the secret words of the grid's dither.
    pub dither: Row,
    /// How `z̃` is made from rows and state.
    pub kernel: StepKernel<'a>,
}

/// How noise `z̃` in unit scale is added to a gradient `g`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Add {
    /// On the output grid, as every mechanism does.
    OnGrid(Grid),
    /// As it is, `g ← fma(scale, z̃, g)`: for tools that show the noise, never for a release.
    Plain(f32),
}

/// A form at one step.
#[derive(Debug)]
pub enum StepKernel<'a> {
    /// One step of a BLT: `z̃ = z − Σ αᵢ mᵢ`, `mᵢ ← λᵢ mᵢ + z̃`.
    Blt {
        /// The name of the row `z`.
        row: Row,
        /// The scales αᵢ, one per buffer.
        scale: &'a [f32],
        /// The decays λᵢ, one per buffer.
        decay: &'a [f32],
        /// True at the first step and at a restart: the buffers count as zero, whatever memory holds.
        fresh: bool,
    },
    /// One step of a ring: `y = z − Σ cₐ y₋ₐ` over the ages that exist, oldest first; `y` becomes age 1.
    Ring {
        /// The name of the row `z`.
        row: Row,
        /// The coefficients cₐ for ages 1, 2, …; there may be fewer than the ring has rows.
        coefs: &'a [f32],
    },
    /// A weighted sum of rows, `z̃ = Σ w z_row`, in the order given.
    Regenerate {
        /// The names of the rows, each with its weight.
        terms: &'a [(Row, f32)],
    },
}

impl<'a> Step<'a> {
    /// Turns a plan at one step into what a backend executes. `terms` is scratch that a caller keeps from step to step.
    pub fn lower(
        plan: &'a Plan,
        number: u64,
        incarnations: &Incarnations,
        terms: &'a mut Vec<(Row, f32)>,
    ) -> Result<Step<'a>> {
        if number >= plan.num_steps() {
            return Err(Error::PastEnd { step: number, num_steps: plan.num_steps() });
        }
        let form = plan.form();
        let age = form.age(number);
        let row = Row::new(Family::Step, incarnations.at(number), number)?;
        let kernel = match form.kernel() {
            Kernel::Blt(blt) => {
                StepKernel::Blt { row, scale: blt.scale(), decay: blt.decay(), fresh: age == 0 }
            }
            Kernel::Ring(_) => StepKernel::Ring { row, coefs: form.ring_coefs(number) },
            Kernel::Regenerate(regenerate) => {
                terms.clear();
                regenerate.terms(number, age, |step| incarnations.at(step), terms)?;
                StepKernel::Regenerate { terms }
            }
        };
        let dither = Row::new(Family::Dither, incarnations.at(number), number / STEPS_PER_BLOCK)?;
        Ok(Step { number, add: Add::OnGrid(plan.grid(number)), dither, kernel })
    }
}

/// A device that runs steps and keeps the state between them.
///
/// State is `slots × coordinates`. Slot `i` of a BLT is buffer `i`; slot `i` of a ring is the output of age `i + 1`. How it
/// lies in memory, and whether rows are made ahead of time, is the device's own business: [`Backend::read_state`] gives
/// the plain state between two steps.
pub trait Backend {
    /// What noise is added to: a list (`'list`) of as many slices of memory (`'memory`) as the shard has segments.
    type Gradients<'list, 'memory: 'list>;

    /// Refuses gradients that do not fit the shard. Changes nothing.
    fn check(&self, gradients: &Self::Gradients<'_, '_>) -> Result<()>;

    /// Refuses to run, to read and to write while the device cannot: for instance while its stream is captured into a graph, which would
    /// repeat what happens once. Changes nothing.
    fn check_ready(&self) -> Result<()> {
        Ok(())
    }

    /// Runs one step. An error means that gradients or state may be half-way, except [`Error::Overflow`]: then the step is
    /// complete, and some value of the gradient is not finite.
    fn step(&mut self, step: &Step<'_>, gradients: Self::Gradients<'_, '_>) -> Result<()>;

    /// Begins to make the noise of the next step, so that the step itself only adds it. Does nothing where it is made or being made, or
    /// where the device makes none ahead. It releases nothing and counts nothing: the plain state stays that before the step. After
    /// [`Error::Worker`] the state may be half-way; after any other error nothing was begun.
    fn prepare(&mut self, step: &Step<'_>) -> Result<()> {
        let _ = step;
        Ok(())
    }

    /// Does what [`Backend::prepare`] does, for the step that the device counts next ([`Replay`]), within a capture: it becomes a branch of the
    /// graph, which the step's own work waits for. Outside of a capture it does nothing.
    fn prepare_counted(&mut self) -> Result<()> {
        Ok(())
    }

    /// Copies state of one slot, from the shard's coordinate number `first` on, as little-endian f32 bytes.
    fn read_state(&self, slot: usize, first: u64, bytes: &mut [u8]) -> Result<()>;

    /// The reverse of [`Backend::read_state`], before the first step only.
    fn write_state(&mut self, slot: usize, first: u64, bytes: &[u8]) -> Result<()>;
}

/// A device that can count steps itself: those of a captured graph, which is replayed without the host.
///
/// The steps are scheduled before anything is captured. Past the last scheduled one the device turns gradients into NaN
/// rather than letting one pass without noise.
pub trait Replay: Backend {
    /// Makes room for the steps to come, before the first of them is scheduled; refuses more than fit into memory.
    fn reserve(&mut self, num_steps: u64) -> Result<()> {
        let _ = num_steps;
        Ok(())
    }

    /// Takes one more step for the device to run; called in the order of the steps, before [`Replay::start`].
    fn schedule(&mut self, step: &Step<'_>) -> Result<()>;

    /// Puts the schedule where the device finds it.
    fn start(&mut self) -> Result<()>;

    /// Does what [`Backend::check`] does, for gradients of a step that the device counts.
    fn check_enqueued(&self, gradients: &Self::Gradients<'_, '_>) -> Result<()> {
        self.check(gradients)
    }

    /// Enqueues a step without a number: which one it is, the device finds when it runs it.
    fn enqueue(&mut self, gradients: Self::Gradients<'_, '_>) -> Result<()>;

    /// Waits for the device and says how many steps it was asked to run; ends the schedule. What was enqueued into a graph turns gradients
    /// into NaN from now on.
    fn stop(&mut self) -> Result<u64>;
}
