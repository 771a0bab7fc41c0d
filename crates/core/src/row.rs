//! Names of i.i.d. rows: which purpose, which life of the run, which index.
//!
//! ```text
//! bit  63    62 … 56    55 … 40       39 … 0
//!      tail  family     incarnation   index
//! ```
//! A row's name is the ChaCha stream number, so two rows with different names share no keystream word.

use crate::error::{Error, Result};

/// What a row is for. Each family is a keystream range of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Family {
    /// Row `t` of `Z`, the noise of step `t`.
    Step = 0,
    /// The noise of one node of an aggregation tree.
    TreeNode = 1,
    /// Randomness of batch selection; no noise form reads it.
    Sampler = 2,
}

/// The name of one i.i.d. row of standard normals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Row(u64);

impl Row {
    /// Indices are below this: 40 bits.
    pub const INDEX_LIMIT: u64 = 1 << 40;

    /// Names a row; refuses an index of more than 40 bits.
    pub fn new(family: Family, incarnation: u16, index: u64) -> Result<Row> {
        if index >= Self::INDEX_LIMIT {
            return Err(Error::parameter("row index", index, "less than 2^40 = 1099511627776"));
        }
        Ok(Row((family as u64) << 56 | u64::from(incarnation) << 40 | index))
    }

    /// The ChaCha stream that holds this row's words.
    pub fn stream(self) -> u64 {
        self.0
    }

    /// The ChaCha stream that extends this row's rare small radius words.
    pub fn tail_stream(self) -> u64 {
        self.0 | 1 << 63
    }
}

/// Which life of a run made the rows of a step: each resume may start a new one.
///
/// A run that died after its last checkpoint has made rows that nobody remembers. Making them again for other
/// gradients would reveal the difference of the two gradients, so a resumed run names its rows anew.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Incarnations(Vec<(u64, u16)>);

impl Incarnations {
    /// A first life, from step 0.
    pub fn first() -> Self {
        Incarnations(vec![(0, 0)])
    }

    /// The incarnation that makes the rows first used at `step`.
    pub fn at(&self, step: u64) -> u16 {
        self.0.iter().rev().find(|(first, _)| *first <= step).map_or(0, |(_, incarnation)| *incarnation)
    }

    /// The newest incarnation.
    pub fn latest(&self) -> u16 {
        self.0.last().map_or(0, |(_, incarnation)| *incarnation)
    }

    /// Starts `incarnation` at `step`; it must be newer than every one before.
    pub fn begin(&mut self, step: u64, incarnation: u16) -> Result<()> {
        if incarnation <= self.latest() {
            return Err(Error::parameter(
                "incarnation",
                incarnation,
                format!("greater than {}, which already made rows", self.latest()),
            ));
        }
        // A life that made no row leaves no trace worth keeping.
        self.0.retain(|(first, _)| *first < step);
        self.0.push((step, incarnation));
        Ok(())
    }

    /// True if the list begins at step 0 and both columns ascend.
    pub(crate) fn is_valid(&self) -> bool {
        self.0.first().is_some_and(|(first, _)| *first == 0)
            && self.0.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_do_not_overlap() {
        let row = Row::new(Family::TreeNode, 0xabcd, 0x12_3456_789a).unwrap();
        assert_eq!(row.stream(), 0x01ab_cd12_3456_789a);
        assert_eq!(row.tail_stream(), 0x81ab_cd12_3456_789a);
        assert!(Row::new(Family::Step, 0, (1 << 40) - 1).is_ok());
        let message = Row::new(Family::Step, 0, 1 << 40).unwrap_err().to_string();
        assert!(message.contains("1099511627776"), "{message}");
    }

    #[test]
    fn a_step_belongs_to_the_newest_life_that_reached_it() {
        let mut lives = Incarnations::first();
        lives.begin(100, 1).unwrap();
        lives.begin(250, 4).unwrap();
        assert_eq!([0, 99, 100, 249, 250, 9999].map(|t| lives.at(t)), [0, 0, 1, 1, 4, 4]);
        assert!(lives.begin(300, 4).is_err());
        lives.begin(250, 5).unwrap();
        assert_eq!(lives.0, [(0, 0), (100, 1), (250, 5)]);
        assert!(lives.is_valid());
        let mut restarted = Incarnations::first();
        restarted.begin(0, 3).unwrap();
        assert!(restarted.is_valid());
        assert_eq!(restarted.at(0), 3);
    }
}
