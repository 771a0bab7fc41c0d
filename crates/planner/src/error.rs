//! The one error type of the crate: every variant names the value it met and what was expected.

use std::fmt::Display;

/// What can go wrong between a training schedule and a strategy's numbers.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A quantity that costs more than linear time by nature, asked for at a size where it would take minutes.
    #[error("{what} takes {cost} operations: {n} steps are too many, expected at most {limit}")]
    TooLarge {
        /// Which quantity, for which strategy.
        what: String,
        /// How its cost grows.
        cost: &'static str,
        /// The number of steps asked for.
        n: usize,
        /// The most that is answered.
        limit: usize,
    },
    /// A plan that says something else than what its numbers give.
    #[error("the plan's claim does not hold: it states {what} {stated}, but its numbers give {computed}")]
    Disagreement {
        /// The statement that does not hold.
        what: String,
        /// As written in the plan.
        stated: String,
        /// As computed from the rest.
        computed: String,
    },
    /// A plan without a claim, or with one that cannot be read.
    #[error("the plan's certificate: {0}")]
    Certificate(String),
    /// What [`crate::verify`] said of a plan when it was first asked for.
    #[error("{0}")]
    Refuted(String),
    /// A name that stands for nothing; the text says what was expected.
    #[error("{0}")]
    Input(String),
    /// Options of a request that do not fit together; a front end spells their names by [`Error::spelled`].
    #[error(transparent)]
    Options(#[from] crate::plan::OptionError),
    /// A number that its own bounds refute: a defect of this library, reported in place of a wrong answer.
    #[error("internal error: {what}; expected {expected}. Please report this")]
    Internal {
        /// The number that its bounds refute.
        what: String,
        /// The bounds that it has to lie in.
        expected: String,
    },
    /// What the engine says: it refused the form, or a number here lies outside its domain
    /// ([`corrnoise_core::Error::Parameter`]).
    #[error(transparent)]
    Engine(#[from] corrnoise_core::Error),
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A number outside its domain.
    pub fn parameter(name: impl Into<String>, value: impl Display, expected: impl Into<String>) -> Self {
        Error::Engine(corrnoise_core::Error::parameter(name, value, expected))
    }

    /// The message, with the options of a request spelled as the front end spells them.
    pub fn spelled(&self, spell: impl Fn(crate::plan::OptionName) -> String) -> String {
        match self {
            Error::Options(error) => error.spelled(spell),
            other => other.to_string(),
        }
    }
}

/// Refuses a number of steps that is zero.
pub(crate) fn check_steps(n: usize) -> Result<()> {
    if n == 0 { Err(Error::parameter("number of steps", 0, "at least 1")) } else { Ok(()) }
}

/// Refuses a number that is not finite.
pub(crate) fn check_finite(name: &str, value: f64) -> Result<f64> {
    if value.is_finite() { Ok(value) } else { Err(Error::parameter(name, value, "a finite number")) }
}
