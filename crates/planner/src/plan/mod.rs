//! From what a trainer knows to a calibrated, certified plan: the request, the comparison of all mechanisms, the calibration of one.

mod answer;
pub mod calibrate;
mod compare;
pub mod recommend;
pub mod request;

pub use calibrate::{Goal, block_poisson, calibrate, calibrate_bands};
pub use recommend::{Candidate, Question, Recommendation, Setting, candidate, recommend};
pub use request::{Request, SettingName, Spelling};
