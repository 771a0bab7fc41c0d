//! Noise for the gradients of a list of variables.

use crate::step::add_named;
use candle_core::backprop::GradStore;
use candle_core::{Tensor, Var};
#[cfg(doc)]
use corrnoise::Mechanism;
use corrnoise::{AnyMechanism, Batch, Checkpoint, Error, Key, Layout, Place, Plan, Result, Resume, Shard};
use std::path::Path;

/// Adds a plan's noise to the gradients of candle variables, one step after another.
///
/// # Guarantees
/// - Variables are sorted by name, byte by byte: the noise depends on names and lengths and not on the order of the list, so a `HashMap`
///   serves. The names are what a checkpoint is bound to.
/// - A step is made on all gradients or on none. A missing gradient, another shape, type or device, one that is not contiguous and two that share a
///   storage are refused with an error that names the variable; nothing is changed, and the next call makes the same step.
/// - Gradients are changed in place: no copy is made, and every other tensor on the same storage sees the noise.
pub struct CorrelatedNoise {
    vars: Vec<(String, Var)>,
    mechanism: AnyMechanism,
}

impl CorrelatedNoise {
    /// Begins a run on the device of the variables: on the CPU with all cores, or with the feature `cuda` on a CUDA device in the order of
    /// candle's stream. `vars` are names and variables in any order, such as a `VarMap` of candle-nn holds:
    /// `varmap.data().lock().unwrap().clone()`.
    pub fn new<N: Into<String>>(
        vars: impl IntoIterator<Item = (N, Var)>,
        plan: &Plan,
        key: Key,
    ) -> Result<Self> {
        Self::with(vars, |shard, vars| AnyMechanism::new(plan, key, shard, &place_of(vars)))
    }

    /// Resumes from checkpoints that [`CorrelatedNoise::save`] or any process of the run wrote, on whichever device; see [`Mechanism::resume_with`].
    pub fn resume<N: Into<String>>(
        vars: impl IntoIterator<Item = (N, Var)>,
        plan: &Plan,
        key: Key,
        files: &[impl AsRef<Path>],
        resume: Resume,
    ) -> Result<Self> {
        Self::with(vars, |shard, vars| {
            let checkpoints = files.iter().map(Checkpoint::open).collect::<Result<_>>()?;
            AnyMechanism::resume(plan, key, shard, checkpoints, resume, &place_of(vars))
        })
    }

    /// Adds the noise of the next step to the gradient of every variable, in place; on a device, the step is enqueued. The gradients are
    /// yours: clipped and summed before, divided and applied after.
    pub fn add_noise(&mut self, gradients: &GradStore) -> Result<()> {
        let CorrelatedNoise { vars, mechanism } = self;
        add_named(mechanism, &collect(vars, gradients)?, &|i| call(&vars[i].0))
    }

    /// Uses a mechanism that you made, for the shard of all variables in their sorted order. That is how options of an engine are passed, with
    /// [`place_of`]:
    ///
    /// ```
    /// # use candle_core::{Device, Var};
    /// # use corrnoise::{AnyMechanism, CpuOptions, Form, Key, Place, Plan};
    /// # use corrnoise_candle::{CorrelatedNoise, place_of};
    /// # let plan = Plan::new(100, Form::independent(), 0.8)?;
    /// # let vars = [("weight", Var::new(&[0.5_f32, -1.0], &Device::Cpu)?)];
    /// let options = CpuOptions { threads: 2, ..CpuOptions::default() };
    /// let noise = CorrelatedNoise::with(vars, |shard, vars| {
    ///     let place = match place_of(vars) {
    ///         Place::Cpu(_) => Place::Cpu(options),
    ///         // On a GPU, `with_cuda_options` takes the number of rows ahead, `prepare`, and a limit of memory.
    ///         other => other,
    ///     };
    ///     AnyMechanism::new(&plan, Key::from_os()?, shard, &place)
    /// })?;
    /// assert!(noise.mechanism().describe().contains("2 threads"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with<N: Into<String>>(
        vars: impl IntoIterator<Item = (N, Var)>,
        mechanism: impl FnOnce(Shard, &[(String, Var)]) -> Result<AnyMechanism>,
    ) -> Result<Self> {
        let mut vars: Vec<(String, Var)> = vars.into_iter().map(|(name, var)| (name.into(), var)).collect();
        vars.sort_by(|a, b| a.0.cmp(&b.0));
        let shard = Layout::new(vars.iter().map(|(name, var)| (name, var.elem_count() as u64)))?.whole();
        let mechanism = mechanism(shard.clone(), &vars)?;
        // A replica of the shard has the same coordinates.
        let own = mechanism.shard();
        if (own.space(), own.segments()) != (shard.space(), shard.segments()) {
            let expected = format!("the one given, of {} segments", shard.segments().len());
            let found = format!("one of {}", mechanism.shard().segments().len());
            return Err(Error::parameter("shard of the mechanism", found, expected));
        }
        Ok(CorrelatedNoise { vars, mechanism })
    }

    /// Returns this value with the next step admitted, if the batch is that of the next step; see [`Mechanism::for_batch`].
    pub fn for_batch(&mut self, batch: &Batch) -> Result<&mut Self> {
        self.mechanism.for_batch(batch)?;
        Ok(self)
    }

    /// Returns this value with the next step admitted though nobody shows its batch; see [`Mechanism::unchecked_batch`].
    pub fn unchecked_batch(&mut self) -> Result<&mut Self> {
        self.mechanism.unchecked_batch()?;
        Ok(self)
    }

    /// Begins to make the noise of the next step in the background; see [`Mechanism::prepare`].
    pub fn prepare(&mut self) -> Result<()> {
        self.mechanism.prepare()
    }

    /// Writes a checkpoint, which is as secret as the key; see [`Mechanism::save`].
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        self.mechanism.save(path)
    }

    /// The step that the next call will make.
    pub fn next_step(&self) -> u64 {
        self.mechanism.next_step()
    }

    /// The mechanism, which knows its plan, its shard and its next step.
    pub fn mechanism(&self) -> &AnyMechanism {
        &self.mechanism
    }

    /// Names and variables in the order of the shard's segments.
    pub fn vars(&self) -> &[(String, Var)] {
        &self.vars
    }
}

/// The place where [`CorrelatedNoise::new`] makes a mechanism: the device of the first variable, with the engine's usual options and on a CUDA
/// device in the order of candle's stream. A gradient on another device is refused at its step.
pub fn place_of(vars: &[(String, Var)]) -> Place {
    match vars.first().map(|(_, var)| var.device()) {
        #[cfg(feature = "cuda")]
        Some(candle_core::Device::Cuda(device)) => {
            Place::Cuda(device.cuda_stream().into(), Default::default())
        }
        _ => Place::default(),
    }
}

/// The name of a variable's gradient in errors.
fn call(name: &str) -> String {
    format!("gradient of {name:?}")
}

/// The gradients of all variables, each of its variable's shape.
fn collect<'a>(vars: &[(String, Var)], gradients: &'a GradStore) -> Result<Vec<&'a Tensor>> {
    let gradient = |(name, var): &(String, Var)| {
        let Some(gradient) = gradients.get(var) else {
            return Err(Error::parameter(call(name), "missing", "a tensor in the GradStore"));
        };
        if gradient.shape() != var.shape() {
            let (found, expected) = (format!("{:?}", gradient.dims()), format!("{:?}", var.dims()));
            return Err(Error::parameter(format!("shape of {}", call(name)), found, expected));
        }
        Ok(gradient)
    };
    vars.iter().map(gradient).collect()
}
