//! The CPU engine: fused passes over tiles, on any number of threads, with bits that depend on neither.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod blt;
mod kernels;
mod lanes;
mod pieces;
mod pool;
mod prefetch;
mod regenerate;
mod ring;
mod state;

use crate::backend::{Backend, Step, StepKernel};
use crate::chacha::ChaCha;
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::form::{self, Form};
use crate::gradients::Gradients;
use crate::key::RunKey;
use crate::layout::Shard;
use crate::plan::Plan;
use crate::row::{Family, Row};
use crate::with_element;
use kernels::Job;
pub(crate) use lanes::Stored;
use pieces::{PIECE, run_pieces};
use pool::{Panicked, Pool};
use ring::RingJob;
use state::State;

/// The instruction set that kernels use. The bits of the noise are the same with any of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isa {
    /// The fastest instructions that this machine has.
    #[default]
    Auto,
    /// Plain Rust, one coordinate at a time: for comparison, and for machines without a vector path.
    Scalar,
}

/// Options of the CPU engine, none of which changes the noise.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuOptions {
    /// The number of threads, the caller's included; 0 means one per core.
    pub threads: usize,
    /// The instructions that the kernels use.
    pub isa: Isa,
    /// Keeps a ring in its least memory. By default a ring of 9 bands or more makes rows ahead, which is several times as
    /// fast and takes 7 more rows of state.
    pub compact: bool,
}

/// The CPU backend of a [`crate::Mechanism`].
pub struct Cpu {
    /// One cipher per incarnation of the run, by number.
    ciphers: Vec<ChaCha>,
    shard: Shard,
    pool: Pool,
    vector: bool,
    state: State,
    /// The plan, if its form is a ring: rows are made ahead from it.
    ring: Option<Plan>,
    /// The number of rows of a ring that a tile makes at a time, that of the step at hand included.
    rows_ahead: usize,
    /// The number of steps since this backend was made or restored.
    time: u64,
}

impl Cpu {
    /// A backend whose state is that before the first step. `keys` are those of the run's incarnations, by number.
    pub fn new(plan: &Plan, keys: &[RunKey], shard: &Shard, options: CpuOptions) -> Result<Cpu> {
        let threads = match options.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        };
        let is_ring = matches!(plan.form().kernel(), form::Kernel::Ring(_));
        let rows_ahead = rows_ahead(plan.form(), options);
        let spawn_error = |error| Error::Device(format!("cannot start {threads} threads: {error}"));
        Ok(Cpu {
            ciphers: keys.iter().map(|key| ChaCha::new(key.bytes(), plan.rounds())).collect(),
            shard: shard.clone(),
            pool: Pool::new(threads).map_err(spawn_error)?,
            vector: options.isa == Isa::Auto && has_vector_path(),
            state: new_state(plan.form(), shard.num_coords(), rows_ahead)?,
            ring: is_ring.then(|| plan.clone()),
            rows_ahead,
            time: 0,
        })
    }

    /// A text for people that names the instructions and the threads in use.
    pub fn describe(&self) -> String {
        format!("{}, {} threads", if self.vector { "AVX2 + FMA" } else { "scalar" }, self.pool.threads())
    }

    /// The physical slot that holds a canonical one.
    fn physical(&self, slot: usize) -> usize {
        let slots = self.state.slots();
        if self.ring.is_some() && slots > 0 { (ring::head(self.time, slots) + slot) % slots } else { slot }
    }

    /// Refuses a step of another plan than the one this backend was made for.
    fn check_fits(&self, step: &Step<'_>) -> Result<()> {
        let slots = self.state.slots();
        let fits = match &step.kernel {
            StepKernel::Blt { scale, decay, .. } => {
                self.ring.is_none() && scale.len() == slots && decay.len() == slots
            }
            StepKernel::Ring { coefs, .. } => self.ring.is_some() && coefs.len() <= slots,
            StepKernel::Regenerate { .. } => self.ring.is_none(),
        };
        let known = |row: &Row| usize::from(row.incarnation()) < self.ciphers.len();
        let rows_known = match &step.kernel {
            StepKernel::Blt { row, .. } | StepKernel::Ring { row, .. } => known(row),
            StepKernel::Regenerate { terms } => terms.iter().all(|(row, _)| known(row)),
        };
        match fits && rows_known {
            true => Ok(()),
            false => {
                Err(Error::Device(format!("step {} is not one of this backend's plan and run", step.number)))
            }
        }
    }

    /// The bytes of state that this backend holds: the form's, and a few rows more for a ring that is made ahead.
    pub fn state_bytes(&self) -> u64 {
        self.state.bytes()
    }

    fn run<G: Element>(&mut self, step: &Step<'_>, slices: &mut [&mut [G]]) -> Result<()> {
        let slots = self.state.slots();
        self.check_fits(step)?;
        let mut rows = [(Row::default(), &[][..]); ring::MAX_ROWS_AHEAD];
        let made = future(self.ring.as_ref(), self.rows_ahead, step, &mut rows)?;
        let ring = RingJob { future: &rows[..made], rows_ahead: self.rows_ahead, time: self.time };
        let job = Job { ciphers: &self.ciphers, scale: step.scale, kernel: &step.kernel, slots, ring };
        let state = self.state.values_mut();
        let overflow = run_pieces(&mut self.pool, self.vector, &job, &self.shard, slices, state);
        let overflow = overflow.map_err(|Panicked| Error::Worker { step: step.number })?;
        self.time += 1;
        if overflow { Err(Error::Overflow { step: step.number }) } else { Ok(()) }
    }
}

/// Writes the rows and coefficients of a ring at this step and at those that a tile may make with it; returns how many.
fn future<'a>(
    plan: Option<&'a Plan>,
    rows_ahead: usize,
    step: &Step<'a>,
    out: &mut [(Row, &'a [f32])],
) -> Result<usize> {
    let (StepKernel::Ring { row, coefs }, Some(plan)) = (&step.kernel, plan) else { return Ok(0) };
    out[0] = (*row, coefs);
    let rest = plan.num_steps().saturating_sub(step.number + 1);
    let count = rows_ahead.min(usize::try_from(rest).unwrap_or(usize::MAX).saturating_add(1));
    for (k, next) in out[..count].iter_mut().enumerate().skip(1) {
        let number = step.number + k as u64;
        // An incarnation begins only when a run is resumed: all rows made from here on belong to this step's.
        *next = (Row::new(Family::Step, row.incarnation(), number)?, plan.form().ring_coefs(number));
    }
    Ok(count)
}

fn has_vector_path() -> bool {
    #[cfg(target_arch = "x86_64")]
    return avx2::is_available();
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}

/// The number of rows of a ring that a tile makes at a time; 1 where nothing is made ahead.
fn rows_ahead(form: &Form, options: CpuOptions) -> usize {
    let is_ring = matches!(form.kernel(), form::Kernel::Ring(_));
    if is_ring && !options.compact { ring::rows_ahead(form.num_slots()) } else { 1 }
}

/// The number of rows of state: the form's, and those made ahead.
fn rows_held(form: &Form, rows_ahead: usize) -> usize {
    form.num_slots() + rows_ahead - 1
}

/// The bytes of state per coordinate that a backend with these options holds: [`Cpu::state_bytes`] of one coordinate.
pub(crate) fn bytes_per_coord(form: &Form, options: CpuOptions) -> u64 {
    (rows_held(form, rows_ahead(form, options)) * form::STATE_BYTES) as u64
}

fn new_state(form: &Form, num_coords: u64, rows_ahead: usize) -> Result<State> {
    let chunk = match form.kernel() {
        form::Kernel::Ring(_) => ring::chunk(rows_ahead),
        _ => PIECE,
    };
    State::new(num_coords, rows_held(form, rows_ahead), chunk)
}

impl Backend for Cpu {
    type Gradients<'list, 'memory: 'list> = Gradients<'list, 'memory>;

    fn check(&self, gradients: &Gradients<'_, '_>) -> Result<()> {
        gradients.check(&self.shard)
    }

    fn step(&mut self, step: &Step<'_>, gradients: Gradients<'_, '_>) -> Result<()> {
        with_element!(gradients.dtype(), E => self.run::<E>(step, gradients.slices().unwrap_or_default()))
    }

    fn read_state(&self, slot: usize, first: u64, bytes: &mut [u8]) -> Result<()> {
        let physical = self.physical(slot);
        self.state.read(&self.shard, physical, first, bytes);
        Ok(())
    }

    fn write_state(&mut self, slot: usize, first: u64, bytes: &[u8]) -> Result<()> {
        let physical = self.physical(slot);
        self.state.write(&self.shard, physical, first, bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::form::{Kernel, Regenerate, Term};
    use crate::{Key, Mechanism};

    /// The state that a form predicts for this engine is what the engine holds, whatever the form, the size and the options.
    #[test]
    fn a_form_knows_what_its_engine_holds() {
        let steps = 12_usize;
        let ring = |bands: usize| Form::banded_toeplitz(&vec![1.0; bands]).unwrap();
        let rows = |bands: usize| (0..steps).map(|t| vec![1.0; bands.min(t + 1)]).collect::<Vec<_>>();
        let mut forms: Vec<Form> = (1..=70).map(ring).collect();
        forms.extend([1, 8, 9, 12].map(|bands| Form::banded(&rows(bands)).unwrap()));
        forms.extend([ring(8).with_restarts(5).unwrap(), ring(9).with_restarts(5).unwrap()]);
        forms.extend((0..=8).map(|d| Form::blt(&vec![0.1; d], &vec![0.5; d]).unwrap()));
        forms.extend([1, 9, 20].map(|bands| Form::regenerate(&vec![0.5; bands]).unwrap()));
        forms.push(Kernel::Regenerate(Regenerate::varying(&rows(12)).unwrap()).into());
        let node = |t: usize| vec![Term { family: Family::TreeNode, index: t as u64, weight: 1.0 }];
        forms.push(
            Kernel::Regenerate(Regenerate::listed(&(0..steps).map(node).collect::<Vec<_>>()).unwrap()).into(),
        );
        for form in forms {
            let plan = Plan::new(steps as u64, form, 1.0).unwrap();
            for (dim, compact) in
                [1, 7, 511, 512, 8193, 20_001].into_iter().flat_map(|d| [(d, false), (d, true)])
            {
                let options = CpuOptions { threads: 1, compact, ..CpuOptions::default() };
                let shard = Shard::whole(dim).unwrap();
                let key = Key::from_bytes([1; 32], "memory");
                let held = Mechanism::cpu_with(&plan, key, shard, options).unwrap().state_bytes();
                let said = match compact {
                    false => plan.form().engine_bytes_per_param(),
                    true => plan.form().state_bytes_per_param(),
                };
                assert_eq!(held, dim * said, "{:?}, {dim} coordinates", plan.form());
            }
        }
    }
}
