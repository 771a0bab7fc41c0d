//! Participation: in which steps one privacy unit may take part.

use crate::error::{Error, Result, check_steps};
use serde::{Deserialize, Serialize};

/// Which sets of steps one privacy unit may take part in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Participation {
    /// At most one step: a stream.
    Single,
    /// A unit takes part in every step.
    Full,
    /// One fixed step of each epoch of `separation` steps, from any epoch on: `(l, l + b, l + 2b, …)` for any step `l`, at most
    /// `max_participations` of them.
    Cyclic {
        /// Steps per epoch, at least 1.
        separation: usize,
        /// At most this many epochs, one after another.
        max_participations: usize,
    },
    /// Any steps that are at least `min_sep` apart, at most `max_participations` of them.
    #[serde(rename = "minsep")]
    MinSep {
        /// Steps between two participations, at least 1.
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

    /// How many patterns together hold every step: as few as are easily found; `None` if no patterns do. See [`crate::utility::bounds`] for
    /// what follows.
    pub fn cover(&self, n: usize) -> Option<usize> {
        match self {
            Participation::Single => Some(n),
            Participation::Full => Some(1),
            // Every residue is cut into cycles.
            Participation::Cyclic { separation, max_participations } => {
                let (members, longer) = (n / separation, n % separation);
                let cycles = |members: usize| members.div_ceil(*max_participations);
                Some(longer * cycles(members + 1) + (separation - longer).min(n) * cycles(members))
            }
            // Residues of a modulus so large that none has more members than allowed.
            Participation::MinSep { min_sep, max_participations } => {
                Some(n.div_ceil(*max_participations).max(*min_sep).min(n))
            }
            Participation::Patterns(patterns) => {
                // Where that many steps are held at all, they are listed.
                if n > patterns.iter().map(Vec::len).sum() {
                    return None;
                }
                let mut held = vec![false; n];
                let mut count = 0;
                for pattern in patterns {
                    if pattern.iter().any(|t| !held[*t]) {
                        count += 1;
                        pattern.iter().for_each(|t| held[*t] = true);
                    }
                }
                held.iter().all(|held| *held).then_some(count)
            }
        }
    }
}

fn check_patterns(patterns: &[Vec<usize>], n: usize) -> Result<()> {
    if patterns.is_empty() {
        return Err(Error::parameter("number of participation patterns", 0, "at least 1"));
    }
    for (i, pattern) in patterns.iter().enumerate() {
        let name = || format!("participation pattern {i}");
        let expected = || format!("ascending steps below {n}");
        if pattern.is_empty() {
            return Err(Error::parameter(name(), "empty", expected()));
        }
        // The first step that is out of place says enough: patterns may be long.
        let wrong = |at: &usize| pattern[*at] >= n || *at > 0 && pattern[at - 1] >= pattern[*at];
        if let Some(at) = (0..pattern.len()).find(wrong) {
            let name = format!("{}, step {at} of it,", name());
            return Err(Error::parameter(name, pattern[at], expected()));
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
        assert!(
            message(Participation::Patterns(vec![vec![0, 12]]), 10)
                .contains("pattern 0, step 1 of it, is 12")
        );
        assert!(message(Participation::Patterns(vec![]), 10).contains("patterns is 0"));
        assert!(message(Participation::Patterns(vec![vec![]]), 10).contains("pattern 0 is empty"));
    }

    /// Covers as large as they say, of allowed patterns.
    #[test]
    fn covers_are_made_of_patterns() {
        for n in 1..20_usize {
            for b in 1..=n + 2 {
                for k in 1..=n.div_ceil(b) {
                    let cyclic = Participation::Cyclic { separation: b, max_participations: k };
                    let cycles: usize = (0..b.min(n)).map(|l| (l..n).step_by(b).count().div_ceil(k)).sum();
                    assert_eq!(cyclic.cover(n), Some(cycles), "{n} {b} {k}");
                    let modulus =
                        Participation::MinSep { min_sep: b, max_participations: k }.cover(n).unwrap();
                    let longest = (0..modulus).map(|l| (l..n).step_by(modulus).count()).max();
                    assert!(modulus >= b.min(n) && longest <= Some(k), "{n} {b} {k}");
                }
            }
        }
        let patterns = |list: &[&[usize]]| Participation::Patterns(list.iter().map(|p| p.to_vec()).collect());
        assert_eq!(patterns(&[&[0, 1], &[0], &[1, 2]]).cover(3), Some(2));
        assert_eq!(patterns(&[&[0, 1], &[0]]).cover(3), None);
    }
}
