//! Bets under many keys, and attempts at claims.

use super::super::bet::{capital, expected, largest_share};
use super::super::search::{Attempt, Search, Wager, attempt};
use super::{BOTH, key, mean_and_error, toeplitz, usual};
use crate::privacy::account::allocation::Bins;
use crate::privacy::account::confident::Law;

/// The truth is known, α is large, keys are many: a level at the truth is shown false no more often than α says, and levels that are shown are close to the truth.
#[test]
fn bets_fail_as_seldom_as_they_say_and_show_levels_close_to_the_truth() {
    const KEYS: u64 = 600;
    const SAMPLES: usize = 2048;
    let law = Law::bins(&Bins::written(vec![0.3, 0.1, 0.1, 0.3], 2, 1)).unwrap();
    for direction in BOTH {
        let proposal = usual(&law, 1.0, 1.0, direction);
        let (truth, error) = mean_and_error(&proposal.samples(1 << 20, &key(1 << 40)));
        assert!(error < 3e-3 * truth);
        for alpha in [0.3, 0.05] {
            let need = -f64::ln(alpha);
            let pilot = proposal.samples(32 * SAMPLES, &key(1 << 41));
            // The share that is the best for a level that the central limit theorem promises, and the largest one.
            let (_, spread) = mean_and_error(&pilot);
            let hoped = truth + spread * (32.0 * 2.0 * need).sqrt();
            let shares =
                [expected(&pilot, proposal.most(), hoped, 1.0, need).share, largest_share(proposal.most())];
            let (mut failed, mut levels) = ([0.0; 2], 0.0);
            for seed in 0..KEYS {
                let values = proposal.samples(SAMPLES, &key(seed));
                for (failed, share) in failed.iter_mut().zip(shares) {
                    // Two standard errors of the truth on the safe side: the share of false levels must be below α.
                    *failed += f64::from(u8::from(capital(&values, share, truth - 2.0 * error) >= need));
                }
                let (mut low, mut high) = (0.1 * truth, 10.0 * truth);
                while high > low * 1.001 {
                    let middle = (low * high).sqrt();
                    if capital(&values, shares[0], middle) >= need { high = middle } else { low = middle }
                }
                levels += high / truth / KEYS as f64;
            }
            let most = alpha * KEYS as f64 + 4.0 * (alpha * KEYS as f64).sqrt();
            assert!(
                failed.iter().all(|failed| *failed <= most),
                "{direction:?} {alpha}: {failed:?} of {KEYS}"
            );
            let limit = 1.0 + 1.15 * (hoped / truth - 1.0);
            assert!(levels < limit && levels > 1.0, "{direction:?} {alpha}: {levels} {limit}");
        }
    }
}

/// A search's attempt succeeds, with little more noise than the truth asks for, and what is out of range is refused by name.
#[test]
fn attempts_succeed_and_false_ones_do_not() {
    let (epsilon, delta, need) = (1.0, 1e-5, 30.0);
    let spaced = Law::spaced(&toeplitz(&[1.0, 0.5, 0.2], 60), 4, 0.1, 1e-6).unwrap();
    let bins = Law::bins(&Bins::of(&toeplitz(&[1.0, 0.7, 0.5, 0.3], 60), 12).unwrap()).unwrap();
    for law in [&spaced, &bins] {
        let found = Search::new(law, need).unwrap().stddev(epsilon, 20.0, |_| delta).unwrap().unwrap();
        let outcome = attempt(law, &found, delta, need, &key(8)).unwrap();
        assert!(outcome.capitals.iter().all(|capital| *capital >= need), "{found:?} {outcome:?}");
        let again = Search::new(law, need).unwrap().epsilon(found.stddev, 5.0, |_| delta).unwrap().unwrap();
        assert!((again.epsilon / epsilon - 1.0).abs() < 0.04, "{again:?}");
        // Four percent less noise: δ is above the level, and nothing is shown.
        let less = Attempt { stddev: 0.96 * found.stddev, ..found };
        let shrunk = less.wagers.map(|wager| Wager { share: 0.5 * wager.share, ..wager });
        let outcome = attempt(law, &Attempt { wagers: shrunk, ..less }, delta, need, &key(8)).unwrap();
        assert!(
            outcome.capitals.iter().any(|capital| *capital < 0.5 * need) && outcome.short > 0.0,
            "{outcome:?}"
        );
        let message = |wager: Wager, samples: u64| {
            let wagers = [wager, found.wagers[1]];
            attempt(law, &Attempt { wagers, samples, ..found }, delta, need, &key(8)).unwrap_err().to_string()
        };
        let own = found.wagers[0];
        assert!(
            message(Wager { share: 1e9, ..own }, 1024).contains("share of a confident claim is 1000000000")
        );
        assert!(
            message(Wager { share: f64::NAN, ..own }, 1024).contains("share of a confident claim is NaN")
        );
        assert!(message(Wager { tilt: 1.0, ..own }, 1024).contains("tilt of a confident claim is 1"));
        assert!(message(own, 1 << 60).contains("samples of a confident claim"));
        assert!(message(own, 1001).contains("a multiple of 8"));
    }
}
