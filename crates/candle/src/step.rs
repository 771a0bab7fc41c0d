//! One step of a mechanism, on candle's own memory.

use crate::check::check;
#[cfg(feature = "cuda")]
use crate::cuda::add_on_device;
use crate::locks::with_locked;
use candle_core::{Device, Tensor};
use corrnoise::{AnyMechanism, Result};

/// Adds the noise of the mechanism's next step to one tensor per segment of its shard, in place and without copying.
///
/// On the CPU, all of them are locked for writing meanwhile. On a CUDA device they belong to the device and the stream of the
/// mechanism, and the step is enqueued there.
///
/// This is for mechanisms with options or a shard of their own; otherwise see [`CorrelatedNoise`](crate::CorrelatedNoise). An error names the
/// gradient by its number, and leaves gradients and mechanism as they were.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use corrnoise::{AnyMechanism, CpuOptions, Form, Key, Layout, Place, Plan};
///
/// let plan = Plan::new(10, Form::banded_toeplitz(&[1.0, 0.5])?, 0.3)?;
/// let shard = Layout::new([("weight", 6), ("bias", 2)])?.whole();
/// let place = Place::Cpu(CpuOptions { threads: 1, ..CpuOptions::default() });
/// let mut noise = AnyMechanism::new(&plan, Key::from_os()?, shard, &place)?;
/// let (weight, bias) = (Tensor::new(&[[1.0_f32; 3]; 2], &Device::Cpu)?, Tensor::new(&[0.5_f32; 2], &Device::Cpu)?);
/// corrnoise_candle::add_to(&mut noise, &[&weight, &bias])?;
/// assert_ne!(bias.to_vec1::<f32>()?, [0.5; 2]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn add_to(mechanism: &mut AnyMechanism, gradients: &[&Tensor]) -> Result<()> {
    add_named(mechanism, gradients, &|i| format!("gradient {i}"))
}

/// Does what [`add_to`] does, with names of gradients for errors.
pub(crate) fn add_named(
    mechanism: &mut AnyMechanism,
    gradients: &[&Tensor],
    name: &dyn Fn(usize) -> String,
) -> Result<()> {
    #[cfg(feature = "cuda")]
    if mechanism.device() != corrnoise::Device::Cpu {
        return add_on_device(mechanism, gradients, name);
    }
    let checked = check(mechanism.shard(), gradients, name, (&Device::is_cpu, "the CPU, as the mechanism"))?;
    with_locked(&checked, |spans| {
        // SAFETY: each span lies in the storage of a tensor of its own, whose write lock is held until this returns, and holds values
        // of the type that was checked.
        unsafe { mechanism.add_to_raw(checked.dtype, spans.iter().copied()) }
    })
}
