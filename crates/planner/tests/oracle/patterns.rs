//! The largest shift of the normals by one unit, over all patterns of participation and signs.
//!
//! Gradients of norm at most 1 that lie along one direction are numbers in [−1, 1]; the norm is convex in them, so signs ±1 are worst.

use corrnoise_planner::Participation;

/// The largest shift that was found, which is a lower bound of the truth.
#[derive(Clone, Debug)]
pub struct Worst {
    pub squared: f64,
    /// True if no pattern shifts further, in any dimension.
    pub exhaustive: bool,
    pub steps: Vec<usize>,
    pub signs: Vec<f64>,
}

/// The most patterns that are tried one by one; if there are more, only likely ones are tried.
const MOST_PATTERNS: f64 = 30_000.0;
/// The most participations whose signs are tried one by one.
const MOST_SIGNS: usize = 10;

pub fn worst(gram: &[Vec<f64>], participation: &Participation) -> Worst {
    let n = gram.len();
    let mut search =
        Search { gram, best: Worst { squared: 0.0, exhaustive: true, steps: vec![0], signs: vec![1.0] } };
    match participation {
        Participation::Single => (0..n).for_each(|t| search.consider(&[t])),
        Participation::Full => search.consider(&(0..n).collect::<Vec<_>>()),
        Participation::Cyclic { separation, max_participations } => {
            for first in 0..n {
                let steps = (first..n).step_by(*separation).take(*max_participations);
                search.consider(&steps.collect::<Vec<_>>());
            }
        }
        Participation::MinSep { min_sep, max_participations } => {
            if count(n, *min_sep, *max_participations) <= MOST_PATTERNS {
                search.separated(&mut Vec::new(), 0, *min_sep, *max_participations);
            } else {
                search.likely(*min_sep, *max_participations);
                search.best.exhaustive = false;
            }
        }
        Participation::Patterns(patterns) => patterns.iter().for_each(|pattern| search.consider(pattern)),
    }
    search.best
}

struct Search<'a> {
    gram: &'a [Vec<f64>],
    best: Worst,
}

impl Search<'_> {
    fn consider(&mut self, steps: &[usize]) {
        let entry = |i: usize, j: usize| self.gram[steps[i]][steps[j]];
        let k = steps.len();
        let pairs = || (0..k).flat_map(|i| (0..k).map(move |j| (i, j)));
        let most: f64 = pairs().map(|(i, j)| entry(i, j).abs()).sum();
        if most <= self.best.squared {
            return;
        }
        let negative = pairs().any(|(i, j)| entry(i, j) < -1e-13 * (entry(i, i) * entry(j, j)).sqrt());
        if !negative {
            let signs = vec![1.0; k];
            self.best = Worst { squared: most, steps: steps.to_vec(), signs, ..self.best };
            return;
        }
        // With negative entries, vectors of more dimensions may shift further than signs.
        self.best.exhaustive = false;
        let norm = |signs: &[f64]| pairs().map(|(i, j)| signs[i] * signs[j] * entry(i, j)).sum::<f64>();
        let mut found: Vec<Vec<f64>> = Vec::new();
        if k <= MOST_SIGNS {
            for bits in 0..1_u32 << (k - 1) {
                found.push((0..k).map(|i| if bits >> i & 1 == 1 { -1.0 } else { 1.0 }).collect());
            }
        } else {
            found.push(vec![1.0; k]);
            for first in [0, k / 2, k - 1] {
                found.push((0..k).map(|i| if entry(first, i) < 0.0 { -1.0 } else { 1.0 }).collect());
            }
            for signs in &mut found {
                // Signs are flipped one by one, until no flip shifts further.
                let mut changed = true;
                while changed {
                    changed = false;
                    for i in 0..k {
                        let others: f64 = (0..k).filter(|j| *j != i).map(|j| signs[j] * entry(i, j)).sum();
                        if signs[i] * others < -1e-12 * entry(i, i) {
                            signs[i] = -signs[i];
                            changed = true;
                        }
                    }
                }
            }
        }
        for signs in found {
            let squared = norm(&signs);
            if squared > self.best.squared {
                self.best = Worst { squared, steps: steps.to_vec(), signs, exhaustive: false };
            }
        }
    }

    fn separated(&mut self, steps: &mut Vec<usize>, from: usize, min_sep: usize, left: usize) {
        let n = self.gram.len();
        // A pattern that can still be extended shifts no further than its extensions.
        if !steps.is_empty() && (left == 0 || from >= n) {
            self.consider(&steps.clone());
        }
        if left > 0 {
            for t in from..n {
                steps.push(t);
                self.separated(steps, t + min_sep, min_sep, left - 1);
                steps.pop();
            }
        }
    }

    /// Tries evenly spaced patterns, and improves the best of them by moving single steps.
    fn likely(&mut self, min_sep: usize, count: usize) {
        let n = self.gram.len();
        for first in 0..n {
            for spacing in min_sep..(min_sep + 4).min(n + 1).max(min_sep + 1) {
                self.consider(&(first..n).step_by(spacing).take(count).collect::<Vec<_>>());
            }
        }
        loop {
            let before = self.best.squared;
            let steps = self.best.steps.clone();
            for i in 0..steps.len() {
                let from = if i == 0 { 0 } else { steps[i - 1] + min_sep };
                let to = if i + 1 == steps.len() { n } else { steps[i + 1].saturating_sub(min_sep) + 1 };
                for t in from..to.min(n) {
                    let mut moved = steps.clone();
                    moved[i] = t;
                    self.consider(&moved);
                }
            }
            if self.best.squared <= before * (1.0 + 1e-12) {
                return;
            }
        }
    }
}

/// The number of patterns of steps at least `min_sep` apart, the empty one included.
fn count(n: usize, min_sep: usize, most: usize) -> f64 {
    let mut after = vec![1.0_f64; n + 1];
    for _ in 0..most.min(n) {
        let mut now = vec![1.0_f64; n + 1];
        for t in (0..n).rev() {
            now[t] = now[t + 1] + after[t.saturating_add(min_sep).min(n)];
        }
        after = now;
    }
    after[0]
}
