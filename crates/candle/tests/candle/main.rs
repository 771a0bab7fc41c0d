//! The tests are one binary, because candle takes long to link.

mod examples;
mod refusals;
mod steps;
