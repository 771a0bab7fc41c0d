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

mod error;
pub mod factorization;
pub mod names;
pub mod optimize;
pub mod plan;
pub mod privacy;
pub mod strategy;
pub mod utility;

pub use error::{Error, Result};
pub use factorization::{
    CUBIC_LIMIT, Factorization, LINEAR_LIMIT, LowerTriangular, MATRIX_LIMIT, MAX_RING_BANDS, QUADRATIC_LIMIT,
};
pub use plan::{
    Candidate, Goal, OptionError, OptionName, Recommendation, Request, SettingName, Skipped, calibrate,
    calibrate_bands, calibrate_confident,
};
pub use privacy::{
    Adjacency, Allocated, Amplified, Certificate, Chain, Claim, Claims, Confident, Exactness, Kernel, Method,
    Participation, PrivacyUnit, Reallocated, SamplingSpec, Schedule, Sensitivity, Terms, Utility, Wager,
    account, block_poisson, certificate, large_delta, max_feasible_participations, spent, verified, verify,
};
pub use strategy::names::{StrategyChoice, StrategySpec};
pub use strategy::{Blt, Estimator, Strategy, Tree};
pub use utility::{Cost, Errors, Execution, Loss, Moved, Workload, bounds};
