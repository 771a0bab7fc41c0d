//! Options that do not fit together, and what one strategy is compared with.

use super::*;
use crate::optimize::unobserved;
use crate::plan::OptionName;
use crate::strategy::names::StrategySpec;

/// Independent noise for 8 steps.
fn base() -> Request {
    let strategy = StrategyChoice::One(StrategySpec::Identity);
    Request { steps: Some(8), mu: Some(1.0), strategy, ..Request::default() }
}

fn refusal(request: &Request, spell: fn(OptionName) -> String) -> String {
    request.recommend(&mut unobserved()).unwrap_err().spelled(spell)
}

#[test]
fn what_does_not_fit_together_is_named_in_every_spelling() {
    let data = || Request { dataset_size: Some(80), batch_size: Some(10), ..base() };
    let full = || Request { participation: Some(Participation::Full), ..base() };
    let cases = [
        (Request { steps: None, ..base() }, "no length: expected steps or epochs"),
        (Request { steps: Some(0), ..base() }, "number of steps is 0: expected 1 to"),
        (Request { epochs: Some(2.0), ..data() }, "two lengths: expected one of steps and epochs"),
        (Request { steps: None, epochs: Some(2.0), ..base() }, "epochs needs dataset_size and batch_size"),
        (Request { steps: None, epochs: Some(f64::NAN), ..data() }, "number of epochs is NaN"),
        (Request { batch_size: None, ..data() }, "dataset_size needs batch_size"),
        (
            Request { setting: Some(SettingName::Streaming), ..full() },
            "participation takes the place of setting",
        ),
        (Request { min_sep: Some(3), ..full() }, "participation takes the place of min_sep"),
        (
            Request { sampling: Some(SamplingSpec::Poisson), ..full() },
            "participation takes the place of sampling: leave one of them out",
        ),
        (Request { min_sep: Some(3), ..data() }, "setting federated needs min_sep and max_participations"),
        (
            Request { min_sep: Some(3), setting: Some(SettingName::Centralized), ..data() },
            "min_sep 3 is for setting federated; for a pipeline of your own give participation minsep:B,K",
        ),
        (
            Request { min_sep: Some(3), sampling: Some(SamplingSpec::Cyclic), ..data() },
            "min_sep takes the place of sampling",
        ),
        (
            Request { setting: Some(SettingName::Streaming), sampling: Some(SamplingSpec::Cyclic), ..data() },
            "setting takes the place of sampling",
        ),
        (
            Request { max_participations: Some(4), setting: Some(SettingName::Streaming), ..data() },
            "max_participations 4 is for setting federated",
        ),
        (Request { min_sep: Some(3), ..base() }, "setting federated needs min_sep and max_participations"),
        (
            Request { setting: Some(SettingName::Centralized), ..base() },
            "setting centralized needs dataset_size",
        ),
        (
            Request { sampling: Some(SamplingSpec::Poisson), ..base() },
            "sampling needs dataset_size and batch_size",
        ),
        (
            Request { sampling: Some(SamplingSpec::Poisson), strategy: StrategyChoice::Auto, ..data() },
            "sampling is for one strategy: auto compares",
        ),
        (Request { mu: None, ..base() }, "no budget: expected epsilon, mu or noise_multiplier"),
        (Request { noise_multiplier: Some(1.0), ..base() }, "two budgets"),
        (Request { mu: None, epsilon: Some(1.0), ..base() }, "epsilon needs delta"),
        (Request { mu: Some(f64::INFINITY), ..base() }, "mu is inf: expected a finite number"),
        (
            Request {
                strategy: StrategyChoice::One(StrategySpec::Blt(2)),
                max_state_bytes: Some(4),
                ..base()
            },
            "state is 8 bytes per parameter: expected at most 4, as max_state_bytes says",
        ),
        (
            Request {
                steps: Some(20),
                strategy: StrategyChoice::One(StrategySpec::BandedSquareRoot(10)),
                max_state_bytes: Some(40),
                ..base()
            },
            "state is 36 + 28 bytes per parameter: expected at most 40, as max_state_bytes says",
        ),
    ];
    for (request, expected) in cases {
        let text = refusal(&request, |option| option.keyword().into());
        assert!(text.contains(expected), "{text}");
        assert_eq!(request.recommend(&mut unobserved()).unwrap_err().to_string(), text);
        // Another spelling changes the names alone.
        let flags = refusal(&request, |option| format!("--{}", option.keyword()));
        assert_eq!(flags.replace("--", ""), text);
    }
    let request = Request { steps: None, ..base() };
    let flags = refusal(&request, |option| format!("--{}", option.keyword().replace('_', "-")));
    assert_eq!(flags, "no length: expected --steps or --epochs");
}

fn answer(request: &Request) -> Recommendation {
    request.recommend(&mut unobserved()).unwrap()
}

/// One strategy and independent noise: at one ε under every goal and schedule.
#[test]
fn one_strategy_is_compared_at_its_own_privacy() {
    let strategy = StrategyChoice::One(StrategySpec::BandedOpt(3));
    let data = Request { steps: Some(24), dataset_size: Some(400), batch_size: Some(10), strategy, ..base() };
    let noise = Request { mu: None, noise_multiplier: Some(1.25), ..data.clone() };
    let budget = Request { mu: None, epsilon: Some(1.0), delta: Some(1e-6), ..data.clone() };
    for request in [data, noise, budget] {
        let others = [
            SamplingSpec::BlockPoisson(4),
            SamplingSpec::BallsInBins,
            SamplingSpec::RandomAllocation,
            SamplingSpec::SpacedPoisson(7),
        ];
        for sampling in std::iter::once(None).chain(others.map(Some)) {
            let answer = answer(&Request { sampling, ..request.clone() });
            let [a, b] = &answer.candidates[..] else { panic!("{:?}", answer.skipped) };
            let [a, b] = [a, b].map(|candidate| &candidate.certificate.claim);
            assert!(a.delta == b.delta && (a.epsilon / b.epsilon - 1.0).abs() < 1e-3, "{a:?} {b:?}");
            assert!(answer.reason.contains("independent noise"), "{}", answer.reason);
            let best = &answer.candidates[answer.best];
            assert!(best.strategy == StrategySpec::BandedOpt(3) && answer.relative_noise(best).is_some());
        }
    }
}

/// The goal is met as asked, and nothing is said of what has no number.
#[test]
fn without_an_epsilon_there_is_no_comparison() {
    let strategy = StrategyChoice::One(StrategySpec::BandedSquareRoot(3));
    let answer = answer(&Request { mu: Some(1e-9), strategy, ..base() });
    assert_eq!((answer.candidates.len(), answer.reason.as_str()), (1, "banded:3: as asked for"));
    let claim = &answer.candidates[0].certificate.claim;
    assert!(claim.epsilon == 0.0 && (claim.gdp_mu / 1e-9 - 1.0).abs() < 1e-6, "{claim:?}");
    assert!(answer.skipped[0].reason.contains("epsilon of banded:3 is 0: expected above 0 at δ = 1e-6"));
    assert_eq!(answer.relative_noise(&answer.candidates[0]), None);
}

#[test]
fn a_large_delta_is_a_warning_whoever_draws_the_batches() {
    let data = || Request { dataset_size: Some(80), batch_size: Some(10), delta: Some(0.0125), ..base() };
    let full = Some(Participation::Full);
    for request in [
        data(),
        Request { sampling: Some(SamplingSpec::None), ..data() },
        Request { participation: full, ..data() },
    ] {
        let warnings = answer(&request).warnings;
        assert!(warnings.len() == 1 && warnings[0].contains("1.25e-2 for a dataset of 80"), "{warnings:?}");
    }
    assert!(answer(&Request { delta: Some(0.0124), ..data() }).warnings.is_empty());
    assert!(answer(&Request { delta: Some(0.5), ..base() }).warnings.is_empty(), "of no known size");
}

#[test]
fn rounds_are_those_of_every_candidate() {
    let strategy = StrategyChoice::One(StrategySpec::BandedSquareRoot(3));
    let request = Request { rounds: Rounds::R20, strategy, ..base() };
    let answer = answer(&request);
    assert_eq!((answer.candidates.len(), answer.recommended().to_string().as_str()), (2, "banded:3"));
    assert!(answer.candidates.iter().all(|candidate| candidate.plan.rounds() == Rounds::R20));
    assert!(answer.reason.starts_with("banded:3: as asked for; 1."), "{}", answer.reason);
}
