//! What is compared, at which privacy, within which memory.

use super::*;
use crate::optimize::{Objective, unobserved};
use crate::privacy::claim::PrivacyUnit;
use crate::privacy::sensitivity::Adjacency;
use crate::privacy::verify;
use crate::utility::workload::Workload;

fn question(setting: Setting, steps: usize, epsilon: f64) -> Question {
    Question {
        steps,
        setting,
        goal: Goal::Budget(Budget { epsilon, delta: 1e-6 }),
        workload: Workload::Prefix,
        objective: Objective::Max,
        adjacency: Adjacency::ZeroOut,
        unit: PrivacyUnit::Example,
        clip_norm: 1.0,
        claims: crate::Claims::Proven,
        max_state_bytes: None,
    }
}

#[test]
fn every_candidate_is_certified_within_the_budget() {
    let central = Setting::Centralized { dataset_size: 2000, batch_size: 100 };
    let federated = Setting::Federated { min_sep: 20, max_participations: 4 };
    let given = Setting::Given(Participation::MinSep { min_sep: 30, max_participations: 3 });
    for setting in [central, federated, Setting::Streaming, given] {
        let answer = all(&question(setting.clone(), 100, 2.0), Bins::Quick, &mut unobserved()).unwrap();
        assert!(answer.candidates.len() >= 6, "{setting:?}: {:?}", answer.skipped);
        for candidate in &answer.candidates {
            let claim = verify(&candidate.plan).unwrap().claim;
            assert!(claim.epsilon <= 2.0 && claim.epsilon > 1.999, "{candidate}: {}", claim.epsilon);
        }
        let best = &answer.candidates[answer.best];
        assert!(
            best.cost.rows <= compare::MAX_ROWS && answer.reason.contains(&best.to_string()),
            "{}",
            answer.reason
        );
        let identity = answer.candidates.iter().find(|c| c.to_string() == "identity").unwrap();
        assert!(best.error < identity.error);
    }
}

#[test]
fn memory_is_respected_and_high_privacy_prefers_sampling() {
    let central = Setting::Centralized { dataset_size: 2000, batch_size: 100 };
    let mut asked = question(central, 160, 0.3);
    let strict = all(&asked, Bins::Quick, &mut unobserved()).unwrap();
    let sampling = strict.recommended().sampling();
    assert!(
        matches!(
            sampling,
            Some(SamplingSpec::Poisson | SamplingSpec::BlockPoisson(_) | SamplingSpec::BallsInBins)
        ),
        "{}",
        strict.reason
    );
    asked.max_state_bytes = Some(0);
    let frugal = all(&asked, Bins::Quick, &mut unobserved()).unwrap();
    assert_eq!(frugal.candidates[frugal.best].state_bytes, 0);
}

/// Whatever the goal, one (ε, δ) for all, amplified or not; else their noise could not be compared.
#[test]
fn every_row_has_one_epsilon_whatever_the_goal() {
    let delta = 1e-6;
    let expected = crate::privacy::account::epsilon_of_delta(1.25, delta).unwrap();
    let whole_run = Goal::NoiseMultiplier { noise_multiplier: 0.8, delta };
    for goal in [Goal::GdpMu { gdp_mu: 1.25, delta }, whole_run] {
        let central = Setting::Centralized { dataset_size: 400, batch_size: 50 };
        let asked = Question { goal, ..question(central, 120, 1.0) };
        let answer = all(&asked, Bins::Quick, &mut unobserved()).unwrap();
        let names = answer.candidates.iter().map(Candidate::to_string).collect::<Vec<_>>();
        assert!(names.iter().any(|name| name.ends_with("block-cyclic Poisson")), "{names:?}");
        for candidate in &answer.candidates {
            let claim = &candidate.certificate.claim;
            assert!(claim.delta == delta && claim.epsilon <= expected * (1.0 + 1e-9), "{claim:?}");
            assert!(claim.epsilon > 0.999 * expected, "{candidate}: {claim:?}");
            assert!(answer.relative_noise(candidate).is_some_and(f64::is_finite));
        }
        assert!(answer.reason.contains("times less noise than the best independent noise"));
        let least = answer.independent().unwrap();
        assert_eq!(answer.relative_noise(least), Some(1.0));
    }
}

#[test]
fn claims_of_different_privacy_have_no_ratio() {
    let row = |gdp_mu: f64, delta: f64| {
        let asked = Question { goal: Goal::GdpMu { gdp_mu, delta }, ..question(Setting::Streaming, 10, 1.0) };
        let plain = Factorization::new(Strategy::Identity, 10).unwrap();
        let schedule = asked.setting.cycle(10).unwrap();
        Candidate::new(&asked, StrategySpec::Identity, &plain, schedule).unwrap()
    };
    let one = row(1.0, 1e-6);
    assert!(one.noise_relative_to(&row(1.0, 1e-6)).is_some());
    assert!(one.noise_relative_to(&row(1.01, 1e-6)).is_none());
    assert!(one.noise_relative_to(&row(1.0, 1e-7)).is_none());
}

#[test]
fn a_goal_without_an_epsilon_to_compare_at_is_refused() {
    let asked = |gdp_mu: f64| {
        let goal = Goal::GdpMu { gdp_mu, delta: 1e-6 };
        all(&Question { goal, ..question(Setting::Streaming, 10, 1.0) }, Bins::Quick, &mut unobserved())
    };
    let message = asked(1e-12).unwrap_err().to_string();
    assert!(
        message.contains("mu is 0.000000000001: expected one with a finite ε above 0 at δ = 1e-6"),
        "{message}"
    );
    assert!(asked(0.1).is_ok());
}

/// A limit is about what runs.
#[test]
fn the_engine_holds_no_more_than_the_limit() {
    let federated = Setting::Federated { min_sep: 40, max_participations: 3 };
    let mut asked = question(federated, 120, 2.0);
    for most in [0, 4, 30, 40, 59, 64, 120] {
        asked.max_state_bytes = Some(most);
        let answer = all(&asked, Bins::Quick, &mut unobserved()).unwrap();
        let best = &answer.candidates[answer.best];
        let shard = corrnoise_core::Shard::whole(1000).unwrap();
        let key = corrnoise_core::Key::from_bytes([1; 32], "limit");
        let held = corrnoise_core::Mechanism::cpu(&best.plan, key, shard).unwrap().state_bytes();
        assert!(held == 1000 * best.engine_bytes && held <= 1000 * most, "{best}: {held} of {most}");
    }
}

/// A candidate's strategy is a name that makes its plan again, whatever the workload.
#[test]
fn candidates_are_what_their_names_build() {
    let federated = Setting::Federated { min_sep: 9, max_participations: 3 };
    let workload = Workload::momentum(0.9, 0.0).unwrap();
    let asked = Question { workload, ..question(federated, 27, 2.0) };
    let answer = all(&asked, Bins::Quick, &mut unobserved()).unwrap();
    for candidate in &answer.candidates {
        let problem = asked.problem(&candidate.schedule).unwrap();
        let built = candidate.strategy.build(&problem, &mut unobserved()).unwrap();
        let again = Candidate::new(&asked, candidate.strategy.clone(), &built, candidate.schedule.clone());
        let ratio = again.unwrap().error / candidate.error;
        assert!((ratio - 1.0).abs() < 1e-3, "{candidate}: {ratio}");
    }
}

#[test]
fn a_bad_question_is_an_error() {
    let central = |dataset_size, batch_size| Setting::Centralized { dataset_size, batch_size };
    let message = |setting, n, epsilon| {
        all(&question(setting, n, epsilon), Bins::Quick, &mut unobserved()).unwrap_err().to_string()
    };
    assert!(message(central(10, 11), 10, 1.0).contains("batch size is 11: expected 1 to 10"));
    assert!(message(central(0, 1), 10, 1.0).contains("dataset size is 0"));
    assert!(message(Setting::Streaming, 0, 1.0).contains("number of steps is 0"));
    assert!(message(Setting::Streaming, 10, -1.0).contains("epsilon is -1"));
    let federated = Setting::Federated { min_sep: 0, max_participations: 1 };
    assert!(message(federated, 10, 1.0).contains("minimum separation is 0"));
}

/// Schemes that are asked for alone: every row is drawn by them, meets the budget and is verified, and amplified noise has less of it.
#[test]
fn allocation_and_truncation_are_compared_alone() {
    let central = Setting::Centralized { dataset_size: 4000, batch_size: 100 };
    let asked = question(central, 120, 2.0);
    let least = |answer: &Recommendation| answer.independent().unwrap().error;
    let usual = all(&asked, Bins::Quick, &mut unobserved()).unwrap();
    let poisson = least(&usual);
    for (scheme, rows) in [
        (SamplingSpec::RandomAllocation, 4),
        (SamplingSpec::TruncatedPoisson { max_batch_size: 200, num_blocks: 1 }, 2),
        (SamplingSpec::TruncatedPoisson { max_batch_size: 200, num_blocks: 3 }, 2),
    ] {
        let answer = under(&asked, scheme, &mut unobserved()).unwrap();
        assert!(answer.candidates.len() >= rows, "{:?}", answer.skipped);
        for candidate in &answer.candidates {
            let claim = verify(&candidate.plan).unwrap().claim;
            assert!(claim.epsilon <= 2.0 && claim.epsilon > 1.999, "{candidate}: {}", claim.epsilon);
            let sampling = candidate.sampling().unwrap();
            assert_eq!(std::mem::discriminant(&sampling), std::mem::discriminant(&scheme));
            let amplified = [Method::Redrawn, Method::Amplified].contains(&claim.method);
            assert!(amplified || !candidate.is_independent(), "{candidate}: {claim:?}");
        }
        let found = least(&answer);
        match scheme {
            SamplingSpec::RandomAllocation => assert!(found < poisson && found > 0.9 * poisson),
            // The charge is far below δ.
            SamplingSpec::TruncatedPoisson { num_blocks: 1, .. } => {
                assert!((found / poisson - 1.0).abs() < 1e-4, "{found} {poisson}")
            }
            _ => assert_eq!(answer.candidates[0].to_string(), "banded-opt:3, truncated block-cyclic Poisson"),
        }
    }
    // Half of all batches are cut: nothing is left of δ, and the claim is the one without amplification.
    let tight = SamplingSpec::TruncatedPoisson { max_batch_size: 100, num_blocks: 1 };
    let answer = under(&asked, tight, &mut unobserved()).unwrap();
    assert!(answer.candidates.iter().all(|candidate| candidate.certificate.claim.method == Method::Gaussian));
}
