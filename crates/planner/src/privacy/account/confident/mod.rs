//! Confident claims: a δ that a sample shows to be large enough, with a failure probability that δ pays for.
//!
//! The pair of a run is sampled under a tilted distribution, so that samples are bounded (`estimate.rs`), and a bet on every sample tells whether their
//! mean, the hockey stick, is below a level (`bet.rs`). Nothing is approximated: whatever the law of the samples, a claim that is false is made with at most
//! the stated probability over the key. A key is a hash of the plan and of the claim, so nobody can choose it; how much noise to try is found on samples of another key
//! (`search.rs`).

mod bet;
mod estimate;
mod law;
mod search;
mod source;
#[cfg(test)]
mod tests;
mod tuples;

pub(crate) use law::Law;
pub use search::Wager;
pub(crate) use search::{Attempt, Search, attempt};
