//! The offline half of corrnoise, in f64 on the host: what a strategy's noise costs in privacy and in error.
//!
//! ```
//! use corrnoise_planner::{Adjacency, Factorization, Participation, Strategy, Workload};
//!
//! // 2000 steps; a user takes part at most 5 times, 400 steps apart.
//! let factorization = Factorization::new(Strategy::banded_square_root(64)?, 2000)?;
//! let participation = Participation::MinSep { min_sep: 400, max_participations: 5 };
//! let loss = factorization.loss(&Workload::Prefix, &participation, Adjacency::ZeroOut)?;
//! assert!(loss.max_loss() < 2000_f64.sqrt() * 5_f64.sqrt(), "better than independent noise");
//! let form = factorization.form()?; // what the engine runs
//! assert_eq!(form.state_bytes_per_param(), 4 * 63);
//! # Ok::<(), corrnoise_planner::Error>(())
//! ```

pub mod account;
pub mod auto;
pub mod blt;
pub mod bounds;
mod calibrate;
mod certificate;
mod claim;
mod cost;
mod error;
mod factorization;
mod form;
mod from_form;
mod gram;
mod loss;
mod lower;
pub mod names;
pub mod optimize;
mod participation;
mod request;
mod rows;
mod schedule;
mod sensitivity;
pub mod series;
mod spec;
mod strategy;
pub mod tree;
mod verified;
mod warning;
mod workload;

pub use blt::Blt;
pub use calibrate::{Goal, block_poisson, calibrate, calibrate_bands};
pub use certificate::{Certificate, Utility, certificate};
pub use claim::{Amplified, Claim, Method, PrivacyUnit, Terms};
pub use cost::Cost;
pub use error::{Error, Result};
pub use factorization::{CUBIC_LIMIT, Factorization, LINEAR_LIMIT, MATRIX_LIMIT};
pub use form::MAX_RING_BANDS;
pub use loss::{Errors, Loss};
pub use lower::Lower;
pub use participation::{Participation, max_feasible_participations};
pub use request::{Request, SettingName, Spelling};
pub use rows::QUADRATIC_LIMIT;
pub use schedule::Schedule;
pub use sensitivity::{Adjacency, Kind, Sensitivity};
pub use spec::{SamplingSpec, StrategyChoice, StrategySpec};
pub use strategy::Strategy;
pub use tree::{Estimator, Tree};
pub use verified::{verified, verify};
pub use warning::large_delta;
pub use workload::Workload;
