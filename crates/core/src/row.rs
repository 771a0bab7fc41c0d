//! Names of i.i.d. rows: the purpose, the incarnation of the run, and the index of each.
//!
//! ```text
//! bit  63    62 … 56    55 … 40       39 … 0
//!      tail  family     incarnation   index
//! ```
//! A row's name is the ChaCha stream number, so two rows with different names share no keystream word. The incarnation also
//! chooses the ChaCha key: two incarnations share no keystream at all, even if neither knows of the other.

use crate::error::{Error, Result};
use std::collections::HashSet;

/// The purpose of a row. Each family has a keystream range of its own.
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
    /// The words from which the dither of the output grid follows; no noise form reads it.
    Dither = 3,
}

/// The name of one i.i.d. row of standard normals; the default is that of step 0 in a run's first incarnation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Row(u64);

impl Row {
    /// The limit of indices, which have 40 bits.
    pub const INDEX_LIMIT: u64 = 1 << 40;

    /// Names a row; refuses an index of more than 40 bits.
    pub fn new(family: Family, incarnation: u16, index: u64) -> Result<Row> {
        if index >= Self::INDEX_LIMIT {
            return Err(Error::parameter("row index", index, "less than 2^40 = 1099511627776"));
        }
        Ok(Row((family as u64) << 56 | u64::from(incarnation) << 40 | index))
    }

    /// The number of the incarnation that made this row: it chooses the key.
    pub fn incarnation(self) -> u16 {
        (self.0 >> 40) as u16
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

/// The incarnations of a run: each resume may start a new one, and every incarnation has a ChaCha key of its own.
///
/// A run that died after its last checkpoint has made rows that no file records. Making them again for other gradients would
/// reveal the difference of the two gradients, so a resumed run makes its rows under a new key. The list records which rows an
/// old incarnation made, so that its rows can still be generated again.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "Vec<(u64, String)>", into = "Vec<(u64, String)>")]
pub struct Incarnations(Vec<Incarnation>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Incarnation {
    first_step: u64,
    /// The bytes that tell an incarnation from all others; empty for the first, whose key is the run key itself.
    nonce: Vec<u8>,
}

impl Incarnations {
    /// The length of a nonce in bytes.
    pub const NONCE_LEN: usize = 16;

    /// The list of a new run: its first incarnation, from step 0.
    pub fn first() -> Self {
        Incarnations(vec![Incarnation { first_step: 0, nonce: Vec::new() }])
    }

    /// The number of the incarnation that makes the rows first used at `step`: the last one that began at or before it.
    pub fn at(&self, step: u64) -> u16 {
        // There is one incarnation, or a few: a search from the end is as good as any.
        let after = self.0.iter().rev().take_while(|incarnation| incarnation.first_step > step).count();
        (self.0.len() - after).saturating_sub(1) as u16
    }

    /// Starts a new incarnation at `step`.
    pub fn begin(&mut self, step: u64, nonce: [u8; Self::NONCE_LEN]) -> Result<()> {
        if self.0.iter().any(|incarnation| incarnation.nonce == nonce) {
            return Err(Error::parameter(
                "incarnation nonce",
                hex(&nonce),
                "one that this run never used before",
            ));
        }
        // An incarnation that made no row is forgotten; the first one stays, as number 0.
        self.0.retain(|incarnation| incarnation.first_step < step || incarnation.nonce.is_empty());
        if self.0.len() > usize::from(u16::MAX) {
            return Err(Error::length("list of incarnations", self.0.len(), "at most 65535"));
        }
        self.0.push(Incarnation { first_step: step, nonce: nonce.to_vec() });
        Ok(())
    }

    /// The nonce of the incarnation that makes rows from now on; empty for the first.
    pub(crate) fn last_nonce(&self) -> &[u8] {
        self.0.last().map_or(&[], |incarnation| &incarnation.nonce)
    }

    /// The step at which the newest incarnation began.
    pub(crate) fn last_step(&self) -> u64 {
        self.0.last().map_or(0, |incarnation| incarnation.first_step)
    }

    /// The nonces from which the incarnations' keys are derived, by number; empty for the first.
    pub(crate) fn nonces(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(|incarnation| incarnation.nonce.as_slice())
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl From<Incarnations> for Vec<(u64, String)> {
    fn from(incarnations: Incarnations) -> Self {
        incarnations.0.iter().map(|incarnation| (incarnation.first_step, hex(&incarnation.nonce))).collect()
    }
}

impl TryFrom<Vec<(u64, String)>> for Incarnations {
    type Error = Error;
    fn try_from(list: Vec<(u64, String)>) -> Result<Incarnations> {
        let refuse = |at: usize| {
            let value = format!("{:?}", list.get(at));
            Error::parameter(
                format!("incarnation {at}"),
                value,
                "(0, \"\"), then ascending steps with nonces",
            )
        };
        if !list.first().is_some_and(|(first, nonce)| *first == 0 && nonce.is_empty()) {
            return Err(refuse(0));
        }
        if list.len() > usize::from(u16::MAX) + 1 {
            return Err(Error::length("list of incarnations", list.len(), "at most 65536"));
        }
        // The list is not built by `begin`, which compares with all entries before: it comes from a file and may be long.
        let mut incarnations = Incarnations::first();
        let mut known = HashSet::new();
        for (at, (step, nonce)) in list.iter().enumerate().skip(1) {
            let digits = nonce.bytes().all(|c| c.is_ascii_hexdigit()) && nonce.len() == 2 * Self::NONCE_LEN;
            let ascends =
                incarnations.0.last().is_some_and(|last| last.first_step < *step || last.nonce.is_empty());
            if !digits || !ascends {
                return Err(refuse(at));
            }
            let byte =
                |i: usize| u8::from_str_radix(&nonce[2 * i..2 * i + 2], 16).expect("hexadecimal digits");
            let nonce: [u8; Self::NONCE_LEN] = std::array::from_fn(byte);
            if !known.insert(nonce) {
                return Err(refuse(at));
            }
            incarnations.0.push(Incarnation { first_step: *step, nonce: nonce.to_vec() });
        }
        Ok(incarnations)
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
    fn a_step_belongs_to_the_newest_incarnation_that_reached_it() {
        let mut incarnations = Incarnations::first();
        incarnations.begin(100, [1; 16]).unwrap();
        incarnations.begin(250, [2; 16]).unwrap();
        assert_eq!([0, 99, 100, 249, 250, 9999].map(|t| incarnations.at(t)), [0, 0, 1, 1, 2, 2]);
        assert!(incarnations.begin(300, [2; 16]).is_err(), "a nonce serves one incarnation");
        incarnations.begin(250, [3; 16]).unwrap();
        assert_eq!(
            incarnations.0.iter().map(|incarnation| incarnation.first_step).collect::<Vec<_>>(),
            [0, 100, 250]
        );
        assert_eq!(incarnations.0[2].nonce, [3; 16]);
        let mut restarted = Incarnations::first();
        restarted.begin(0, [4; 16]).unwrap();
        assert_eq!([0, 5].map(|t| restarted.at(t)), [1, 1]);
    }

    #[test]
    fn lists_survive_json_and_bad_ones_do_not() {
        let mut incarnations = Incarnations::first();
        incarnations.begin(0, [0xab; 16]).unwrap();
        incarnations.begin(7, [2; 16]).unwrap();
        let text = serde_json::to_string(&incarnations).unwrap();
        assert_eq!(serde_json::from_str::<Incarnations>(&text).unwrap(), incarnations);
        let nonce = "01".repeat(16);
        for bad in ["[]".into(), format!("[[0,\"{nonce}\"]]"), "[[0,\"\"],[5,\"01\"]]".into()] {
            assert!(serde_json::from_str::<Incarnations>(&bad).is_err(), "{bad}");
        }
        let other = "02".repeat(16);
        let backwards = format!("[[0,\"\"],[9,\"{nonce}\"],[5,\"{other}\"]]");
        assert!(serde_json::from_str::<Incarnations>(&backwards).is_err());
    }
    /// A list comes from a file: the longest one allowed is read quickly, and an error does not quote it.
    #[test]
    fn the_longest_list_is_read_and_a_longer_one_refused() {
        let incarnation = |step: u64| (step, if step == 0 { String::new() } else { format!("{step:032x}") });
        let mut list: Vec<(u64, String)> = (0..=65_535).map(incarnation).collect();
        let incarnations = Incarnations::try_from(list.clone()).unwrap();
        assert_eq!(Vec::from(incarnations), list);
        list.push(incarnation(65_536));
        let error = Incarnations::try_from(list.clone()).unwrap_err().to_string();
        assert!(error.contains("length 65537: expected at most 65536"), "{error}");
        list.truncate(65_535);
        list.push((65_535, format!("{:032x}", 7)));
        let error = Incarnations::try_from(list).unwrap_err().to_string();
        assert!(error.contains("incarnation 65535 is") && error.len() < 200, "a nonce used twice: {error}");
    }
}
