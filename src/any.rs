//! A mechanism whose device is chosen at run time, which C, Python, candle and the command line share.
//!
//! A [`Mechanism`] is compiled for one backend. [`AnyBackend`] is a backend that is one of several, so [`AnyMechanism`] has all that a
//! mechanism has.

use crate::device;
pub use crate::device::{AnyBackend, AnyGradients, Device, Place};
use corrnoise_core::raw::RawGradients;
use corrnoise_core::{
    Checkpoint, Dtype, Element, Gradients, Key, Mechanism, Plan, Result, Resume, RunKey, Shard, with_element,
};
use std::ops::{Deref, DerefMut};

/// A [`Mechanism`] on any device, with the memory that steps on foreign addresses reuse.
///
/// ```
/// use corrnoise::any::{AnyMechanism, Place};
/// use corrnoise::{CpuOptions, Form, Key, Plan, Shard};
///
/// let plan = Plan::new(10, Form::independent(), 0.5)?;
/// let place = Place::open("cpu".parse()?, CpuOptions::default())?;
/// let mut noise = AnyMechanism::new(&plan, Key::from_os()?, Shard::whole(3)?, &place)?;
/// let mut gradient = [1.0_f32; 3];
/// noise.add_to(&mut gradient)?;
/// assert_eq!(noise.next_step(), 1);
/// # Ok::<(), corrnoise::Error>(())
/// ```
pub struct AnyMechanism {
    mechanism: Mechanism<AnyBackend>,
    /// The place, declared after the mechanism so that it is dropped later: the last owner of a device's context closes it.
    place: Place,
    raw: RawGradients,
}

impl AnyMechanism {
    fn on(place: &Place, mechanism: Mechanism<AnyBackend>) -> AnyMechanism {
        AnyMechanism { mechanism, place: place.clone(), raw: RawGradients::default() }
    }

    /// Begins a run, at step 0.
    pub fn new(plan: &Plan, key: Key, shard: Shard, place: &Place) -> Result<AnyMechanism> {
        let make = |keys: &[RunKey], shard: &Shard| AnyBackend::new(plan, keys, shard, place);
        Ok(Self::on(place, Mechanism::with_backend(plan, key, shard, make)?))
    }

    /// Begins a run, unless a state is loaded before its first step; see [`Mechanism::awaiting_state`].
    pub fn awaiting_state(plan: &Plan, key: Key, shard: Shard, place: &Place) -> Result<AnyMechanism> {
        let make = |keys: &[RunKey], shard: &Shard| AnyBackend::new(plan, keys, shard, place);
        Ok(Self::on(place, Mechanism::awaiting_state(plan, key, shard, make)?))
    }

    /// Resumes from checkpoints, whichever device wrote them; see [`Mechanism::resume_from`].
    pub fn resume(
        plan: &Plan,
        key: Key,
        shard: Shard,
        checkpoints: Vec<Checkpoint>,
        resume: Resume,
        place: &Place,
    ) -> Result<AnyMechanism> {
        let make = |keys: &[RunKey], shard: &Shard| AnyBackend::new(plan, keys, shard, place);
        Ok(Self::on(place, Mechanism::resume_from(plan, key, shard, checkpoints, resume, make)?))
    }

    /// Resumes from checkpoints and drops the present state; see [`Mechanism::reload_from`].
    pub fn reload(&mut self, checkpoints: Vec<Checkpoint>, resume: Resume) -> Result<()> {
        let AnyMechanism { mechanism, place, .. } = self;
        let plan = mechanism.plan().clone();
        let make = |keys: &[RunKey], shard: &Shard| AnyBackend::new(&plan, keys, shard, place);
        mechanism.reload_from(checkpoints, resume, make)
    }

    /// Adds the noise of the next step to a gradient in host memory, for a shard of one segment. A device copies it there and back.
    pub fn add_to<E: Element>(&mut self, gradient: &mut [E]) -> Result<()> {
        self.mechanism.run_step(AnyGradients::Host(Gradients::new(&mut [gradient])))
    }

    /// Adds the noise of the next step to memory of [`AnyMechanism::device`]: `(address, length)` of one gradient per segment of the
    /// shard. Refuses addresses that are null, misaligned or overlap, and lengths that are not the shard's.
    ///
    /// # Safety
    /// The memory lies on that device and holds initialised values of `dtype`. Nobody else uses it until this returns, or on a device
    /// until the stream has passed the step.
    pub unsafe fn add_to_raw(
        &mut self,
        dtype: Dtype,
        gradients: impl ExactSizeIterator<Item = (*mut (), usize)> + Clone,
    ) -> Result<()> {
        // SAFETY: the caller's promise, passed on.
        unsafe { device::add_to_raw(&mut self.mechanism, &mut self.raw, dtype, gradients) }
    }

    /// The device in whose memory [`AnyMechanism::add_to_raw`] expects gradients.
    pub fn device(&self) -> Device {
        self.backend().device()
    }

    /// A text for people that names the instructions and the threads in use, or the device.
    pub fn describe(&self) -> String {
        self.backend().describe()
    }

    /// The bytes of state that this process holds.
    pub fn state_bytes(&self) -> u64 {
        self.backend().state_bytes()
    }
}

impl Deref for AnyMechanism {
    type Target = Mechanism<AnyBackend>;

    fn deref(&self) -> &Mechanism<AnyBackend> {
        &self.mechanism
    }
}

impl DerefMut for AnyMechanism {
    fn deref_mut(&mut self) -> &mut Mechanism<AnyBackend> {
        &mut self.mechanism
    }
}

/// Makes the next step of a mechanism whose gradients lie in host memory, as [`AnyMechanism::add_to_raw`] does.
///
/// # Safety
/// The contract is that of [`AnyMechanism::add_to_raw`].
pub(crate) unsafe fn add_in_host_memory(
    mechanism: &mut Mechanism<AnyBackend>,
    raw: &mut RawGradients,
    dtype: Dtype,
    gradients: impl ExactSizeIterator<Item = (*mut (), usize)> + Clone,
) -> Result<()> {
    with_element!(dtype, E => {
        let typed = gradients.map(|(address, len)| (address.cast::<E>(), len));
        // SAFETY: the caller's promise, passed on.
        unsafe {
            raw.with_slices(mechanism, typed, |mechanism, slices| {
                mechanism.run_step(AnyGradients::Host(Gradients::new(slices)))
            })
        }
    })
}
