//! corrnoise for [candle](candle_core): correlated noise on the gradients of variables, in place, one fused pass per step.
//!
//! ```
//! use candle_core::{Device, Var};
//! use corrnoise::{Form, Key, Plan};
//! use corrnoise_candle::CorrelatedNoise;
//!
//! let plan = Plan::new(100, Form::banded_toeplitz(&[1.0, 0.5, 0.375])?, 0.8)?; // yours comes from the planner
//! let weight = Var::new(&[[0.5_f32, -1.0], [2.0, 0.0]], &Device::Cpu)?;
//! let mut noise = CorrelatedNoise::new([("weight", weight.clone())], &plan, Key::from_os()?)?;
//!
//! let gradients = weight.sqr()?.sum_all()?.backward()?; // yours: clipped per example and summed
//! noise.add_noise(&gradients)?;
//! weight.set(&(weight.as_tensor() - (gradients.get(&weight).unwrap() * 0.01)?)?)?;
//! assert_eq!(noise.next_step(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Gradients may be of any [`Dtype`](corrnoise::Dtype). `docs/rust.md` has a whole training loop; `examples/train.rs` is one that learns.
//!
//! With the feature `cuda`, variables on a CUDA device get their noise there, on candle's stream. That part was type-checked and never run on a device.

mod check;
#[cfg(feature = "cuda")]
mod cuda;
mod locks;
mod noise;
mod step;
mod storage;

pub use noise::{CorrelatedNoise, place_of};
pub use step::add_to;

/// The guide's code, which is run as it stands.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/rust.md")]
struct RustGuide;
