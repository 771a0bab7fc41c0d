//! From what a trainer knows to a calibrated, certified plan: the request, the comparison of all strategies, the calibration of one.

mod allocated;
pub mod calibrate;
mod candidate;
mod compare;
mod one_strategy;
mod options;
mod question;
mod recommend;
pub mod request;

pub use calibrate::{Goal, calibrate, calibrate_bands, calibrate_confident};
pub use candidate::{Candidate, Recommendation, Skipped};
pub use options::{OptionError, OptionName};
pub use request::{Request, SettingName};
