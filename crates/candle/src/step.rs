//! One step of a mechanism on the CPU, on candle's own memory.

use crate::check::{Checked, check};
use crate::locks::{Value, with_locked};
use candle_core::{DType, Device, Tensor};
use corrnoise::raw::RawGradients;
use corrnoise::{Mechanism, Result};
use half::{bf16, f16};

/// Adds the noise of the mechanism's next step to one tensor per segment of its shard, in place and without copying. All of them are
/// locked for writing meanwhile.
///
/// For mechanisms with options or a shard of their own; otherwise see [`CorrelatedNoise`](crate::CorrelatedNoise). An error names the
/// gradient by its number, and leaves gradients and mechanism as they were.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use corrnoise::{CpuOptions, Form, Key, Layout, Mechanism, Plan};
///
/// let plan = Plan::new(10, Form::banded_toeplitz(&[1.0, 0.5])?, 0.3)?;
/// let shard = Layout::new([("weight", 6), ("bias", 2)])?.whole();
/// let options = CpuOptions { threads: 1, ..CpuOptions::default() };
/// let mut noise = Mechanism::cpu_with(&plan, Key::from_os()?, shard, options)?;
/// let (weight, bias) = (Tensor::new(&[[1.0_f32; 3]; 2], &Device::Cpu)?, Tensor::new(&[0.5_f32; 2], &Device::Cpu)?);
/// corrnoise_candle::add_to(&mut noise, &[&weight, &bias])?;
/// assert_ne!(bias.to_vec1::<f32>()?, [0.5; 2]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn add_to(mechanism: &mut Mechanism, gradients: &[&Tensor]) -> Result<()> {
    add_named(mechanism, &mut RawGradients::default(), gradients, &|i| format!("gradient {i}"))
}

/// The same, with memory to reuse and names for errors.
pub(crate) fn add_named(
    mechanism: &mut Mechanism,
    raw: &mut RawGradients,
    gradients: &[&Tensor],
    name: &dyn Fn(usize) -> String,
) -> Result<()> {
    let checked = check(mechanism.shard(), gradients, name, (&Device::is_cpu, "the CPU, as the mechanism"))?;
    match checked.dtype {
        DType::BF16 => add::<bf16>(mechanism, raw, &checked),
        DType::F16 => add::<f16>(mechanism, raw, &checked),
        _ => add::<f32>(mechanism, raw, &checked),
    }
}

fn add<E: Value>(mechanism: &mut Mechanism, raw: &mut RawGradients, checked: &Checked<'_>) -> Result<()> {
    with_locked::<E>(checked.tensors, &checked.by_address, |spans| {
        // SAFETY: each span lies in the storage of a tensor of its own, whose write lock is held until this returns.
        unsafe { raw.add_to(mechanism, spans.iter().copied()) }
    })
}
