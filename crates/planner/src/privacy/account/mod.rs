//! Privacy accounting: what a noise multiplier and a sensitivity are worth.

pub(crate) mod allocation;
mod compose;
pub(crate) mod confident;
pub mod gdp;
mod losses;
mod normal;
mod redrawn;
mod search;
mod subsampled;
pub(crate) mod tail;
pub(crate) mod truncated;

pub use gdp::{
    Budget, delta_of_epsilon, epsilon_of_delta, gdp_mu_of_budget, gdp_mu_of_zcdp, zcdp_rho_of_gdp,
};
pub use redrawn::Redrawn;
pub use search::Search;
pub use subsampled::Subsampled;
pub use tail::MAX_PARAMETERS;
