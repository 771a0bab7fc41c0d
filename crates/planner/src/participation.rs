//! Participation: in which steps one privacy unit may take part.

use crate::error::{Error, Result, check_steps};
use serde::{Deserialize, Serialize};

/// Which sets of steps one privacy unit may take part in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Participation {
    /// At most one step: a stream.
    Single,
    /// Every step.
    Full,
    /// One fixed step of each epoch of `separation` steps: `(l, l + b, l + 2b, …)`, `max_participations` of them. Nobody takes part
    /// in the steps after the last epoch.
    Cyclic {
        /// Steps per epoch, at least 1.
        separation: usize,
        /// Epochs.
        max_participations: usize,
    },
    /// Any steps that are at least `min_sep` apart, at most `max_participations` of them.
    MinSep {
        /// At least 1.
        min_sep: usize,
        /// At most this often.
        max_participations: usize,
    },
    /// Exactly these sets of steps.
    Patterns(Vec<Vec<usize>>),
}

/// The most participations that `n` steps allow when they are at least `separation` apart: ⌈n / separation⌉.
pub fn max_feasible_participations(n: usize, separation: usize) -> Result<usize> {
    check_steps(n)?;
    if separation == 0 {
        return Err(Error::parameter("separation", 0, "at least 1"));
    }
    Ok(n.div_ceil(separation))
}

impl Participation {
    /// Refuses what `n` steps do not allow.
    pub fn check(&self, n: usize) -> Result<()> {
        check_steps(n)?;
        match self {
            Participation::Single | Participation::Full => Ok(()),
            Participation::Cyclic { separation, max_participations }
            | Participation::MinSep { min_sep: separation, max_participations } => {
                let most = max_feasible_participations(n, *separation)?;
                if (1..=most).contains(max_participations) {
                    return Ok(());
                }
                let expected = format!("1 to {most}, what {n} steps at a separation of {separation} allow");
                Err(Error::parameter("max participations", max_participations, expected))
            }
            Participation::Patterns(patterns) => check_patterns(patterns, n),
        }
    }
}

fn check_patterns(patterns: &[Vec<usize>], n: usize) -> Result<()> {
    if patterns.is_empty() {
        return Err(Error::parameter("number of participation patterns", 0, "at least 1"));
    }
    for (i, pattern) in patterns.iter().enumerate() {
        let ascends = pattern.windows(2).all(|pair| pair[0] < pair[1]);
        if pattern.is_empty() || !ascends || pattern.last().is_some_and(|last| *last >= n) {
            let name = format!("participation pattern {i}");
            return Err(Error::parameter(name, format!("{pattern:?}"), format!("ascending steps below {n}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_steps_do_not_allow_is_named() {
        let min_sep = |min_sep, max_participations| Participation::MinSep { min_sep, max_participations };
        assert_eq!(max_feasible_participations(10, 3).unwrap(), 4);
        assert!(min_sep(3, 4).check(10).is_ok());
        let message = |participation: Participation, n| participation.check(n).unwrap_err().to_string();
        assert!(message(min_sep(3, 5), 10).contains("max participations is 5: expected 1 to 4"));
        assert!(message(min_sep(0, 1), 10).contains("separation is 0"));
        assert!(message(min_sep(3, 0), 10).contains("max participations is 0"));
        assert!(message(Participation::Single, 0).contains("number of steps is 0"));
        assert!(message(Participation::Patterns(vec![vec![0, 12]]), 10).contains("pattern 0 is [0, 12]"));
        assert!(message(Participation::Patterns(vec![]), 10).contains("patterns is 0"));
    }
}
