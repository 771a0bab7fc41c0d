//! Correlated noise for differentially private training, at the speed of memory. This is the crate that trainers depend on: the
//! engine under one name, and the offline half as [`planner`].
//!
//! ```
//! use corrnoise::{Form, Key, Mechanism, Plan, Shard};
//!
//! // 100 steps of a two-buffer BLT; the i.i.d. noise Z has standard deviation 0.5.
//! let form = Form::blt(&[0.6, 0.2], &[0.5, 0.97])?;
//! let plan = Plan::new(100, form, 0.5)?;
//! let mut gradient = vec![0.0_f32; 1000];
//! let mut noise = Mechanism::cpu(&plan, Key::from_os()?, Shard::whole(1000)?)?;
//! noise.add_to(&mut gradient)?;
//! assert_eq!(noise.next_step(), 1);
//! # Ok::<(), corrnoise::Error>(())
//! ```
#![warn(missing_docs)]

pub mod any;
mod device;
#[doc(hidden)]
pub mod examine;

pub use any::{AnyMechanism, Device, Place};
pub use corrnoise_core::{
    Admission, Batch, Certificate, Checkpoint, Cpu, CpuOptions, Dtype, Element, Error, Family, Fingerprint,
    Form, Gradients, Guard, Incarnations, Isa, Key, Layout, Mechanism, NOISE_SPEC_VERSION, Plan, Result,
    Resume, Rounds, Row, RowPart, RowSink, RunKey, Sampler, Sampling, SaveOptions, Shard, Tensor, huge_pages,
    with_element,
};
pub use corrnoise_core::{
    backend, chacha, dtype, form, gauss, grid, noise, raw, reference, vectors, warning,
};
#[doc(hidden)]
pub use corrnoise_core::{file, secret};

/// The planner: workloads, strategies, sensitivity and loss.
#[cfg(feature = "planner")]
pub use corrnoise_planner as planner;

#[allow(unused_imports)] // a build without their features has none of them
pub use device::engines::*;

/// The README's examples are compiled with the doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
