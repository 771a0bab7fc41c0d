//! Batches of units that sit out after they took part: a calendar holds the step at which each of them comes next.
//!
//! Every unit has a coin for every step. It is *free* from some step on, takes part at the first step from there whose coin says yes, and is free
//! again `min_sep` steps later. So a unit's steps follow from its own coins, and from nobody else's.
//!
//! Coins are looked at in groups of 64 steps. Where a group says no throughout, the unit looks again when the next group begins; hence no unit
//! is entered more than `min_sep + 64` steps ahead, and as many pages, used in turn, hold the whole calendar:
//!
//! ```text
//! page of step t:  joins → unit → unit → …    take part at t
//!                  looks → unit → …           free, and t is the first step of a group
//! ```
//! The lists are linked through one array with an entry per unit, which is all the memory that grows with the dataset.

use super::Purpose;
use super::bernoulli::Coin;
use super::parts::room;
use crate::chacha::ChaCha;
use crate::error::Result;
use crate::sampler::words::Words;
use std::sync::{Mutex, PoisonError};

/// What the batches follow from, beside the key.
#[derive(Clone, Copy)]
struct Rule {
    dataset_size: u64,
    min_sep: u64,
    num_steps: u64,
    coin: Coin,
}

/// The next step of every unit, at the step that was asked for last.
pub(in crate::sampler) struct Calendar {
    rule: Rule,
    pages: Mutex<Pages>,
}

/// The pages with links of 32 bits while these suffice.
enum Pages {
    Narrow(Ring<u32>),
    Wide(Ring<u64>),
}

/// The pages of the steps to come, the page of step `t` at place `t mod len`.
struct Ring<T> {
    /// The unit that follows each unit in its list.
    after: Vec<T>,
    pages: Vec<Page<T>>,
    /// The step whose page is turned next.
    next: u64,
    /// The units of the step before `next`, ascending.
    batch: Vec<u64>,
}

/// The first units of the two lists of a step.
#[derive(Clone, Copy)]
struct Page<T> {
    joins: T,
    looks: T,
}

/// The number of a unit, or none.
trait Link: Copy + Eq + Into<u64> + TryFrom<u64> {
    /// The value that is no unit's number.
    const NONE: Self;
}

impl Link for u32 {
    const NONE: u32 = u32::MAX;
}

impl Link for u64 {
    const NONE: u64 = u64::MAX;
}

impl Calendar {
    /// The calendar of a run that has not begun, with all memory that it will need.
    pub(in crate::sampler) fn new(
        cipher: &ChaCha,
        dataset_size: u64,
        min_sep: u64,
        num_steps: u64,
        coin: Coin,
    ) -> Result<Calendar> {
        let rule = Rule { dataset_size, min_sep, num_steps, coin };
        let pages = if dataset_size <= u64::from(u32::MAX) {
            Pages::Narrow(Ring::new(&rule, cipher)?)
        } else {
            Pages::Wide(Ring::new(&rule, cipher)?)
        };
        Ok(Calendar { rule, pages: Mutex::new(pages) })
    }

    /// Appends the units of a step. One that is gone is reached from the beginning again.
    pub(in crate::sampler) fn batch(&self, cipher: &ChaCha, step: u64, indices: &mut Vec<u64>) {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        indices.extend_from_slice(match &mut *pages {
            Pages::Narrow(ring) => ring.batch(&self.rule, cipher, step),
            Pages::Wide(ring) => ring.batch(&self.rule, cipher, step),
        });
    }
}

impl Rule {
    /// The step from which a unit is free at first, drawn so that every step has the same expected batch.
    ///
    /// A unit that has been coming for ever is free for `1/p` steps on average and sits out `min_sep − 1` of them. So it is free at step 0 with
    /// probability `1 / (1 + p·(min_sep − 1))`, and has each number of steps from 1 to `min_sep − 1` still to sit out with `p` times that. In units of
    /// 2^−64 these are whole numbers.
    fn first_free(&self, cipher: &ChaCha, unit: u64) -> u64 {
        let (free, seat) = (1_u128 << 64, self.coin.threshold());
        let mut words = Words::new(cipher, Purpose::Start, unit, 0);
        let number = words.below_wide(free + seat * u128::from(self.min_sep - 1));
        if number < free { 0 } else { 1 + ((number - free) / seat) as u64 }
    }
}

impl<T: Link> Ring<T> {
    fn new(rule: &Rule, cipher: &ChaCha) -> Result<Ring<T>> {
        // The farthest page is that of a group's first step, after a unit that is free min_sep steps from now.
        let len = rule.min_sep.min(rule.num_steps) + 65;
        let (mut after, mut pages) = (room(rule.dataset_size)?, room(len)?);
        after.resize(rule.dataset_size as usize, T::NONE);
        pages.resize(len as usize, Page { joins: T::NONE, looks: T::NONE });
        let mut ring = Ring { after, pages, next: 0, batch: Vec::new() };
        ring.begin(rule, cipher);
        Ok(ring)
    }

    fn batch(&mut self, rule: &Rule, cipher: &ChaCha, step: u64) -> &[u64] {
        if step.saturating_add(1) < self.next {
            self.begin(rule, cipher);
        }
        while self.next <= step {
            self.turn(rule, cipher);
        }
        &self.batch
    }

    /// Enters every unit for the first time.
    fn begin(&mut self, rule: &Rule, cipher: &ChaCha) {
        // After the last step of all: should this be cut short by a panic, the next call begins anew.
        self.next = u64::MAX;
        self.pages.fill(Page { joins: T::NONE, looks: T::NONE });
        for unit in 0..rule.dataset_size {
            self.enter(rule, cipher, unit, rule.first_free(cipher, unit));
        }
        self.next = 0;
    }

    /// Takes the units of the next step, and enters them for their steps after it.
    fn turn(&mut self, rule: &Rule, cipher: &ChaCha) {
        let step = std::mem::replace(&mut self.next, u64::MAX);
        let place = self.place(step);
        // First those that look, for they may find that they join now.
        let mut link = std::mem::replace(&mut self.pages[place].looks, T::NONE);
        while link != T::NONE {
            let unit: u64 = link.into();
            link = self.after[unit as usize];
            self.enter(rule, cipher, unit, step);
        }
        self.batch.clear();
        let mut link = std::mem::replace(&mut self.pages[place].joins, T::NONE);
        while link != T::NONE {
            let unit: u64 = link.into();
            link = self.after[unit as usize];
            self.batch.push(unit);
            self.enter(rule, cipher, unit, step + rule.min_sep);
        }
        self.batch.sort_unstable();
        self.next = step + 1;
    }

    /// Enters a unit that is free from a step on, unless the run ends before it comes.
    fn enter(&mut self, rule: &Rule, cipher: &ChaCha, unit: u64, free: u64) {
        if free >= rule.num_steps {
            return;
        }
        let (group, places) = (free / 64, u64::MAX << (free % 64));
        let heads = rule.coin.heads(cipher, Purpose::Coins, unit, group, places);
        let step = 64 * group + u64::from(heads.trailing_zeros());
        if step >= rule.num_steps {
            return;
        }
        let place = self.place(step);
        let page = &mut self.pages[place];
        // Without heads there are 64 zeros: the step is the first of the next group.
        let list = if heads == 0 { &mut page.looks } else { &mut page.joins };
        let link =
            T::try_from(unit).unwrap_or_else(|_| unreachable!("the width was chosen by the dataset's size"));
        self.after[unit as usize] = std::mem::replace(list, link);
    }

    fn place(&self, step: u64) -> usize {
        (step % self.pages.len() as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chacha::Rounds;

    fn cipher() -> ChaCha {
        ChaCha::new(&[5; 32], Rounds::R12)
    }

    #[test]
    fn both_widths_hold_the_same_units() {
        let cipher = cipher();
        for (min_sep, prob) in [(1, 0.2), (3, 0.01), (70, 0.5), (500, 0.9), (9, 1.0)] {
            let rule = Rule { dataset_size: 300, min_sep, num_steps: 200, coin: Coin::new(prob) };
            let (mut narrow, mut wide) =
                (Ring::<u32>::new(&rule, &cipher).unwrap(), Ring::<u64>::new(&rule, &cipher).unwrap());
            for step in (0..200).chain([199, 40, 41, 0]) {
                let batch = narrow.batch(&rule, &cipher, step).to_vec();
                assert_eq!(batch, wide.batch(&rule, &cipher, step));
                if step % 40 == 1 {
                    let mut resumed = Ring::<u32>::new(&rule, &cipher).unwrap();
                    assert_eq!(batch, resumed.batch(&rule, &cipher, step));
                }
            }
        }
    }

    /// A ring is as short as its rule says, so a page too few would show as a unit at a wrong step.
    #[test]
    fn units_are_where_their_coins_are() {
        let cipher = cipher();
        for (min_sep, prob) in [(1, 0.003), (1, 0.9), (2, 0.3), (63, 0.01), (64, 0.5), (65, 1.0), (150, 0.02)]
        {
            let rule = Rule { dataset_size: 90, min_sep, num_steps: 400, coin: Coin::new(prob) };
            let mut ring = Ring::<u32>::new(&rule, &cipher).unwrap();
            let mut free: Vec<u64> = (0..90).map(|unit| rule.first_free(&cipher, unit)).collect();
            let mut units = 0;
            for step in 0..400 {
                let joins = |unit: u64| {
                    rule.coin.heads(&cipher, Purpose::Coins, unit, step / 64, 1 << (step % 64)) != 0
                };
                let expected: Vec<u64> =
                    (0..90).filter(|unit| free[*unit as usize] <= step && joins(*unit)).collect();
                expected.iter().for_each(|unit| free[*unit as usize] = step + min_sep);
                assert_eq!(ring.batch(&rule, &cipher, step), expected, "{min_sep}, {prob}, step {step}");
                units += expected.len();
            }
            assert!(units > 40, "{units}");
        }
    }

    #[test]
    fn a_certain_unit_starts_at_every_place_alike() {
        let cipher = cipher();
        let rule = Rule { dataset_size: 1, min_sep: 5, num_steps: 9, coin: Coin::Always };
        let mut counts = [0.0_f64; 5];
        (0..50_000).for_each(|unit| counts[rule.first_free(&cipher, unit) as usize] += 1.0);
        let statistic: f64 = counts.iter().map(|count| (count - 1e4).powi(2) / 1e4).sum();
        // χ² with 4 degrees of freedom exceeds x with probability e^{−x/2}·(1 + x/2): at 33.4 it is 1e-6.
        assert!(statistic < 33.4, "{counts:?}");
    }

    #[test]
    fn a_coin_that_never_says_yes_ends_too() {
        let rule = Rule { dataset_size: 20, min_sep: 4, num_steps: 300, coin: Coin::new(1e-30) };
        let mut ring = Ring::<u32>::new(&rule, &cipher()).unwrap();
        assert!((0..300).all(|step| ring.batch(&rule, &cipher(), step).is_empty()));
    }
}
