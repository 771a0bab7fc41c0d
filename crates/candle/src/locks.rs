//! Locks all tensors of a step at once, through candle's in-place operations.
//!
//! An in-place operation is the one way to write to a tensor, and it ends before the next one can begin: one lock at a time. But an
//! operation may start another one, on the next tensor, and so on; the innermost then runs with all locks held. The recursion is as
//! deep as there are tensors, so beyond a few it gets a stack of its own.

use crate::check::Checked;
use crate::storage::with_values;
use candle_core::{CpuStorage, InplaceOp1, Layout, Tensor};
use corrnoise::{Dtype, Element, Error, Result};
use std::cell::RefCell;
use std::ops::Range;

/// The most locks that are taken on the caller's own stack, in less than 192 KiB.
const ON_CALLERS_STACK: usize = 64;
/// The bytes of stack set aside for each lock. It takes 2.9 KB without optimisation and 0.6 KB with it.
const STACK_PER_LOCK: usize = 8 << 10;
/// The bytes of stack for the step inside: as many as Rust gives a thread.
const STACK_OF_STEP: usize = 2 << 20;

/// The memory of some values of a storage, if it holds this number type and that many.
fn span(storage: &mut CpuStorage, dtype: Dtype, values: Range<usize>) -> Option<(*mut (), usize)> {
    fn of<E: Element>(all: &mut [E], dtype: Dtype, values: Range<usize>) -> Option<(*mut (), usize)> {
        let values = all.get_mut(values).filter(|_| E::DTYPE == dtype)?;
        Some((values.as_mut_ptr().cast(), values.len()))
    }
    with_values!(storage, CpuStorage, all => of(all, dtype, values), _ => None)
}

/// Runs `step` on the memory of contiguous tensors of one number type, in their order, while all of them are locked for writing; the locks are
/// taken in the order `by_address`.
pub(crate) fn with_locked(
    checked: &Checked<'_>,
    step: impl FnOnce(&[(*mut (), usize)]) -> Result<()> + Send,
) -> Result<()> {
    let Checked { tensors, dtype, by_address } = checked;
    let run = || {
        let spans = vec![(std::ptr::null_mut(), 0); tensors.len()];
        let held = RefCell::new(Held { dtype: *dtype, spans, step: Some(step), outcome: None });
        let locking = lock_next(tensors, by_address, &held);
        let failed = |error| Error::Device(format!("candle did not lock the gradients: {error}"));
        held.into_inner()
            .outcome
            .unwrap_or_else(|| Err(locking.map_err(failed).expect_err("no step was made")))
    };
    if tensors.len() <= ON_CALLERS_STACK {
        return run();
    }
    let bytes = STACK_OF_STEP + STACK_PER_LOCK * tensors.len();
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(bytes).spawn_scoped(scope, run);
        let thread = thread
            .map_err(|error| Error::Device(format!("no thread with {bytes} bytes of stack: {error}")))?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// The values that the nested operations share.
struct Held<F> {
    dtype: Dtype,
    spans: Vec<(*mut (), usize)>,
    step: Option<F>,
    outcome: Option<Result<()>>,
}

/// The operation on tensor `number`, which holds its lock until those of `rest` are taken and the step is made.
struct Lock<'a, F> {
    tensors: &'a [&'a Tensor],
    number: usize,
    rest: &'a [usize],
    held: &'a RefCell<Held<F>>,
}

fn lock_next<F: FnOnce(&[(*mut (), usize)]) -> Result<()>>(
    tensors: &[&Tensor],
    order: &[usize],
    held: &RefCell<Held<F>>,
) -> candle_core::Result<()> {
    if let Some((number, rest)) = order.split_first() {
        return tensors[*number].inplace_op1(&Lock { tensors, number: *number, rest, held });
    }
    let held = &mut *held.borrow_mut();
    held.outcome = held.step.take().map(|step| step(&held.spans));
    Ok(())
}

impl<F: FnOnce(&[(*mut (), usize)]) -> Result<()>> InplaceOp1 for Lock<'_, F> {
    fn name(&self) -> &'static str {
        "corrnoise"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> candle_core::Result<()> {
        let Some((start, end)) = layout.contiguous_offsets() else {
            candle_core::bail!("a gradient is not contiguous")
        };
        let dtype = self.held.borrow().dtype;
        let Some(span) = span(storage, dtype, start..end) else {
            candle_core::bail!("a gradient changed its type or length")
        };
        self.held.borrow_mut().spans[self.number] = span;
        lock_next(self.tensors, self.rest, self.held)
    }
}
