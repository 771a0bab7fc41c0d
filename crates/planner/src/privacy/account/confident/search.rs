//! How much noise a confident claim is likely to take, or which ε: a search on samples that nothing is claimed from, and the attempts that follow.

use super::bet::{capital, expected, largest_share, least_level};
use super::estimate::{MOST_ORDER, Proposal, usual_tilt};
use super::law::Law;
use crate::error::{Error, Result};
use crate::privacy::account::allocation::grid::Direction;
use crate::privacy::account::allocation::search::root;
use serde::{Deserialize, Serialize};

/// How one direction's samples are drawn, and what is bet on each.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wager {
    /// By how much the distribution that is sampled is tilted towards large losses.
    pub tilt: f64,
    /// The share of the capital that is bet on every sample.
    pub share: f64,
}

/// What is claimed by samples, and how they are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Attempt {
    /// For clip norm 1.
    pub(crate) stddev: f64,
    pub(crate) epsilon: f64,
    /// The number of samples of each direction.
    pub(crate) samples: u64,
    /// For adding the unit and for removing it.
    pub(crate) wagers: [Wager; 2],
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// The logarithms of the capitals of both directions: each at least the need if the claim is made.
    pub(crate) capitals: [f64; 2],
    /// By how much the logarithm of δ should fall for the next attempt to succeed.
    pub(crate) short: f64,
    /// The wagers for that.
    pub(crate) wagers: [Wager; 2],
}

const DIRECTIONS: [Direction; 2] = [Direction::Add, Direction::Remove];

/// Operations that an attempt may take in one direction, about; fewer samples are drawn where one takes many.
const WORK: usize = 1 << 34;
const LEAST_SAMPLES: usize = 1 << 15;
const MOST_SAMPLES: usize = 1 << 18;
/// Most operations that a stated claim may ask for.
const MOST_WORK: u64 = 1 << 40;

/// The key of searches, from which nothing is claimed.
const SEARCH_KEY: [u8; 32] = *b"corrnoise confident claim search";
/// Steps of a search: samples, how exactly ln δ is to be met, and the most evaluations.
const COARSE: (usize, f64, usize) = (1 << 10, 0.1, 16);
const FINE: (usize, f64, usize) = (1 << 15, 0.015, 5);
/// Samples by which tilts are compared.
const TILTED: usize = 1 << 12;

impl Law {
    /// The number of samples of an attempt; refuses laws of which few samples take minutes.
    pub(crate) fn samples(&self) -> Result<usize> {
        let most = WORK / self.cost();
        if most < LEAST_SAMPLES / 32 {
            let expected = format!(
                "at most {:.1e}, for {LEAST_SAMPLES} samples in minutes",
                32.0 * (WORK / LEAST_SAMPLES) as f64
            );
            return Err(Error::parameter("operations of a sample", self.cost(), expected));
        }
        Ok(1 << most.clamp(LEAST_SAMPLES, MOST_SAMPLES).ilog2())
    }
}

/// A search for a claim that is likely to be made.
pub(crate) struct Search<'a> {
    law: &'a Law,
    samples: usize,
    /// The logarithm of the capital that the claim asks for.
    need: f64,
    tilts: [f64; 2],
}

impl<'a> Search<'a> {
    pub(crate) fn new(law: &'a Law, need: f64) -> Result<Search<'a>> {
        Ok(Search { law, samples: law.samples()?, need, tilts: [0.0; 2] })
    }

    /// The least noise at which an attempt is likely to succeed, with `level` the δ that some noise leaves; below `plain`.
    pub(crate) fn stddev(
        &mut self,
        epsilon: f64,
        plain: f64,
        level: impl Fn(f64) -> f64,
    ) -> Result<Option<Attempt>> {
        let point =
            |ln_stddev: f64| Point { stddev: ln_stddev.exp(), epsilon, level: level(ln_stddev.exp()) };
        let found = self.least((0.8 * plain).ln(), -20.0, point)?;
        Ok(found.filter(|attempt| attempt.stddev < plain))
    }

    /// The least ε at which an attempt is likely to succeed, with `level` the δ that an ε leaves; below `plain`.
    pub(crate) fn epsilon(
        &mut self,
        stddev: f64,
        plain: f64,
        level: impl Fn(f64) -> f64,
    ) -> Result<Option<Attempt>> {
        let point = |epsilon: f64| Point { stddev, epsilon: epsilon.max(1e-9), level: level(epsilon) };
        let found = self.least(0.6 * plain, -8.0 / plain, point)?;
        Ok(found.filter(|attempt| attempt.epsilon < plain))
    }

    fn least(&mut self, start: f64, slope: f64, point: impl Fn(f64) -> Point) -> Result<Option<Attempt>> {
        let mut slope = slope;
        let coarse = |at: f64| {
            let point = point(at);
            for (side, direction) in DIRECTIONS.into_iter().enumerate() {
                self.tilts[side] = usual_tilt(self.law, point.stddev, point.epsilon, direction);
            }
            Ok(Some(self.excess(&point, COARSE.0)))
        };
        let Some(at) = root(start, &mut slope, COARSE.1, COARSE.2, coarse)? else { return Ok(None) };
        self.choose_tilts(&point(at));
        let count = (self.samples / 8).min(FINE.0);
        let fine = |at: f64| Ok(Some(self.excess(&point(at), count)));
        let Some(at) = root(at, &mut slope, FINE.1, FINE.2, fine)? else { return Ok(None) };
        let point = point(at);
        let wagers = std::array::from_fn(|side| {
            let sample = self.sample(&point, side, count);
            self.wager(side, &sample, point.level)
        });
        let (Point { stddev, epsilon, .. }, samples) = (point, self.samples as u64);
        Ok(Some(Attempt { stddev, epsilon, samples, wagers }))
    }

    fn sample(&self, point: &Point, side: usize, count: usize) -> Sample {
        let proposal =
            Proposal::new(self.law, point.stddev, point.epsilon, DIRECTIONS[side], self.tilts[side]);
        Sample {
            values: proposal.samples(count, &SEARCH_KEY),
            most: proposal.most(),
            charge: proposal.charge(),
        }
    }

    fn wager(&self, side: usize, sample: &Sample, level: f64) -> Wager {
        let times = self.samples as f64 / sample.values.len() as f64;
        let share = sample.share(level, times, self.need);
        Wager { tilt: self.tilts[side], share }
    }

    /// By how much the logarithm of δ, as an attempt is likely to show it, exceeds that of the level.
    fn excess(&self, point: &Point, count: usize) -> f64 {
        if point.level <= 0.0 {
            return 5.0;
        }
        let times = self.samples as f64 / count as f64;
        let sides = (0..2).map(|side| self.sample(point, side, count).shown(times, self.need));
        let excess = (sides.fold(0.0, f64::max) / point.level).ln();
        if excess.is_nan() { 5.0 } else { excess.clamp(-20.0, 20.0) }
    }

    /// Takes those tilts by which the least is likely to be shown.
    fn choose_tilts(&mut self, point: &Point) {
        for (side, direction) in DIRECTIONS.into_iter().enumerate() {
            let usual = usual_tilt(self.law, point.stddev, point.epsilon, direction);
            let mut best = (f64::INFINITY, usual);
            let tilts = match direction {
                Direction::Add => [usual - 1.0, usual, usual + 1.0, usual + 2.0],
                Direction::Remove => [0.7, 0.85, 1.0, 1.2].map(|part| part * usual),
            };
            for tilt in tilts {
                if !allowed(direction, tilt) {
                    continue;
                }
                self.tilts[side] = tilt;
                let times = self.samples as f64 / TILTED as f64;
                let level = self.sample(point, side, TILTED).shown(times, self.need);
                if level < best.0 {
                    best = (level, self.tilts[side]);
                }
            }
            self.tilts[side] = best.1;
        }
    }
}

/// Values of one direction, and what bounds them.
struct Sample {
    values: Vec<f64>,
    most: f64,
    charge: f64,
}

impl Sample {
    /// The least δ that as many new values, times `times`, are likely to show.
    fn shown(&self, times: f64, need: f64) -> f64 {
        least_level(&self.values, self.most, times, need) + self.charge
    }

    /// The best share for a δ.
    fn share(&self, level: f64, times: f64, need: f64) -> f64 {
        expected(&self.values, self.most, level - self.charge, times, need).share
    }
}

/// Where the search is.
struct Point {
    stddev: f64,
    epsilon: f64,
    level: f64,
}

/// Draws an attempt's samples under a key and bets: the capitals of both directions against the claim that δ is below the level.
pub(crate) fn attempt(
    law: &Law,
    attempt: &Attempt,
    level: f64,
    need: f64,
    key: &[u8; 32],
) -> Result<Outcome> {
    let Attempt { stddev, epsilon, samples, wagers } = *attempt;
    let count = usize::try_from(samples).unwrap_or(usize::MAX);
    let work = samples.saturating_mul(law.cost() as u64);
    if !samples.is_multiple_of(8) || samples < 8 || work > MOST_WORK {
        let expected = format!("a multiple of 8, at most {}", MOST_WORK / law.cost() as u64);
        return Err(Error::parameter("samples of a confident claim", samples, expected));
    }
    let mut outcome = Outcome { capitals: [0.0; 2], short: 0.0, wagers };
    for (side, direction) in DIRECTIONS.into_iter().enumerate() {
        let Wager { tilt, share } = wagers[side];
        if !allowed(direction, tilt) {
            let expected = match direction {
                Direction::Add => format!("a whole number, 2 to {MOST_ORDER}"),
                Direction::Remove => format!("above 0, at most {MOST_TILT}"),
            };
            return Err(Error::parameter("tilt of a confident claim", tilt, expected));
        }
        let proposal = Proposal::new(law, stddev, epsilon, direction, tilt);
        let largest = largest_share(proposal.most());
        // Written so that what is no number is refused.
        if !(share >= 0.0 && share <= largest) {
            let expected = format!("0 to {largest:e}, with which no capital falls below 0");
            return Err(Error::parameter("share of a confident claim", share, expected));
        }
        let (values, charge) = (proposal.samples(count, key), proposal.charge());
        let reached = capital(&values, share, level - charge);
        outcome.capitals[side] = reached;
        if reached >= need {
            continue;
        }
        let sample = Sample { values, most: proposal.most(), charge };
        let short = (sample.shown(1.0, need) / level).ln();
        outcome.short = if short.is_nan() { 1.0 } else { outcome.short.max(short.clamp(0.0, 1.0)) };
        outcome.wagers[side].share = sample.share(level, 1.0, need);
    }
    Ok(outcome)
}

/// Whether samples may be tilted so.
fn allowed(direction: Direction, tilt: f64) -> bool {
    match direction {
        Direction::Add => tilt.fract() == 0.0 && (2.0..=MOST_ORDER as f64).contains(&tilt),
        Direction::Remove => tilt > 0.0 && tilt <= MOST_TILT,
    }
}

/// More than searches choose.
const MOST_TILT: f64 = 1000.0;
