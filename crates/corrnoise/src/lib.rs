//! The crate that trainers depend on: everything of the online half, under one name; the offline half as [`planner`].
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

pub use corrnoise_core::*;

/// Workloads, strategies, sensitivity and loss.
#[cfg(feature = "planner")]
pub use corrnoise_planner as planner;

/// The CUDA engine.
#[cfg(feature = "cuda")]
pub use corrnoise_cuda as cuda;
