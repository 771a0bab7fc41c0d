//! Hostile input, at random from a seed: checkpoints that were damaged, edited or forged, ledgers, key files, and ranges of
//! coordinates.
//!
//! `CORRNOISE_FUZZ_CASES` says how many cases there are, `CORRNOISE_FUZZ_FIRST` the number of the first one; a failure names its
//! number, so that it can be run again alone.

mod cases;
mod edit;
mod judge;
mod keys;
#[cfg(target_os = "linux")]
mod ledger;
mod ranges;
mod seal;

use cases::{Random, cases, named, timed};
