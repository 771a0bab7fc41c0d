//! One binary, for candle takes long to link.

mod examples;
mod refusals;
mod steps;
