//! Plans that the planner writes verify, edited ones do not, and claims change in the right direction.

mod random;

use corrnoise_core::{Plan, Sampling};
use corrnoise_planner::account::Budget;
use corrnoise_planner::optimize::{Iteration, Observe, Stage, unobserved};
use corrnoise_planner::{
    Adjacency, Blt, Error, Estimator, Factorization, Goal, Method, Participation, PrivacyUnit, Request,
    Schedule, Strategy, Terms, Workload, calibrate, names, verify,
};
use random::Random;
use serde_json::Value;
use std::ops::ControlFlow;

const STEPS: usize = 48;

fn terms(schedule: Schedule) -> Terms {
    Terms { schedule, adjacency: Adjacency::ZeroOut, unit: PrivacyUnit::Example, clip_norm: 0.7 }
}

fn cyclic() -> Schedule {
    Schedule::Sampling(Sampling::Cyclic { dataset_size: 960, num_batches: 12 })
}

fn blocks(num_blocks: u64, sampling_prob: f64) -> Schedule {
    Schedule::Sampling(Sampling::BlockPoisson { dataset_size: 960, num_blocks, sampling_prob })
}

fn budget(epsilon: f64) -> Goal {
    Goal::Budget(Budget { epsilon, delta: 1e-6 })
}

fn strategies() -> Vec<Factorization> {
    let plain = |strategy: Strategy| Factorization::new(strategy, STEPS).unwrap();
    let rows = (0..STEPS).map(|t| vec![1.2, 0.6, 0.1][..3.min(t + 1)].to_vec()).collect();
    let blt = || plain(Strategy::Blt(Blt::new(&[0.3, 0.1], &[0.6, 0.95]).unwrap()));
    vec![
        plain(Strategy::Identity),
        plain(Strategy::Output(Workload::Prefix)),
        plain(Strategy::square_root(Workload::Prefix).unwrap()),
        plain(Strategy::banded_square_root(6).unwrap()),
        plain(Strategy::banded_square_root(12).unwrap()).column_normalized().unwrap(),
        plain(Strategy::banded(rows).unwrap()),
        blt(),
        blt().restarted(16).unwrap(),
        plain(Strategy::Tree(Estimator::Streaming)),
        plain(Strategy::Dense(blt().matrix().unwrap())),
        plain(Strategy::banded_inverse_square_root(5).unwrap()),
    ]
}

#[test]
fn every_plan_we_write_verifies_and_meets_its_budget() {
    let min_sep = Schedule::Sampling(Sampling::MinSep { min_sep: 12, max_participations: 3 });
    let own = Schedule::Participation(Participation::Single);
    let workload = Workload::momentum(0.9, 0.0).unwrap();
    for strategy in strategies() {
        for schedule in [cyclic(), min_sep.clone(), own.clone()] {
            for adjacency in [Adjacency::ZeroOut, Adjacency::ReplaceOne] {
                let terms = Terms { adjacency, ..terms(schedule.clone()) };
                let plan = calibrate(&strategy, &terms, &workload, &budget(3.0)).unwrap();
                let read = Plan::from_json(&plan.to_json()).unwrap();
                let claim = verify(&read).unwrap().claim;
                let met = claim.epsilon <= 3.0 && claim.epsilon > 3.0 * (1.0 - 1e-6);
                assert!(met, "{}: {}", strategy.describe(), claim.epsilon);
            }
        }
    }
}

#[test]
fn amplification_needs_few_bands_and_zero_out() {
    let six = Factorization::new(Strategy::banded_square_root(6).unwrap(), STEPS).unwrap();
    let refused = |strategy: &Factorization, terms: &Terms| {
        calibrate(strategy, terms, &Workload::Prefix, &budget(1.0)).unwrap_err().to_string()
    };
    assert!(refused(&six, &terms(blocks(5, 0.1))).contains("number of bands is 6: expected at most 5"));
    let replace = Terms { adjacency: Adjacency::ReplaceOne, ..terms(blocks(6, 0.1)) };
    assert!(refused(&six, &replace).contains("adjacency is replace-one"));
    let plain = calibrate(&six, &terms(cyclic()), &Workload::Prefix, &budget(1.0)).unwrap();
    let sampled = calibrate(&six, &terms(blocks(12, 0.05)), &Workload::Prefix, &budget(1.0)).unwrap();
    let claim = verify(&sampled).unwrap().claim;
    assert_eq!(claim.method, Method::Amplified);
    assert!(sampled.stddev() < 0.5 * plain.stddev(), "{} {}", sampled.stddev(), plain.stddev());
    // Sampling everyone is no sampling: the exact Gaussian claim is the better one.
    let all = calibrate(&six, &terms(blocks(12, 1.0)), &Workload::Prefix, &budget(1.0)).unwrap();
    assert_eq!(verify(&all).unwrap().claim.method, Method::Gaussian);
    assert!((all.stddev() / plain.stddev() - 1.0).abs() < 1e-6);
}

#[test]
fn more_noise_never_raises_epsilon_and_more_participations_never_lower_it() {
    let epsilon = |strategy: &Factorization, schedule: Schedule, noise_multiplier: f64| {
        let goal = Goal::NoiseMultiplier { noise_multiplier, delta: 1e-6 };
        verify(&calibrate(strategy, &terms(schedule), &Workload::Prefix, &goal).unwrap())
            .unwrap()
            .claim
            .epsilon
    };
    for strategy in strategies() {
        let mut last = f64::INFINITY;
        for sigma in [0.3, 0.5, 1.0, 1.01, 3.0, 20.0] {
            let now = epsilon(&strategy, cyclic(), sigma);
            assert!(now <= last, "{}: {now} after {last}", strategy.describe());
            last = now;
        }
        // The noise stays the same while participations grow.
        let plan = calibrate(&strategy, &terms(cyclic()), &Workload::Prefix, &budget(1.0)).unwrap();
        let mut last = 0.0;
        for max_participations in 1..=4 {
            let schedule = Schedule::Participation(Participation::MinSep { min_sep: 12, max_participations });
            let plain = Plan::new(plan.num_steps(), plan.form().clone(), plan.stddev()).unwrap();
            let certificate =
                corrnoise_planner::certificate(&plain, &terms(schedule), &Workload::Prefix, 1e-6).unwrap();
            assert!(certificate.claim.epsilon >= last, "{}", strategy.describe());
            last = certificate.claim.epsilon;
        }
    }
    let identity = &strategies()[0];
    let [few, many] = [0.02, 0.2].map(|p| epsilon(identity, blocks(12, p), 1.0));
    let more_noise = epsilon(identity, blocks(12, 0.2), 1.1);
    assert!(few < many && more_noise < many);
}

/// The paths of all leaves of a JSON value.
fn leaves(value: &Value, path: &str, out: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            map.iter().for_each(|(key, value)| leaves(value, &format!("{path}/{key}"), out))
        }
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(i, value)| leaves(value, &format!("{path}/{i}"), out));
        }
        _ => out.push(path.into()),
    }
}

fn corrupt(value: &mut Value, random: &mut Random) {
    match value {
        Value::Number(number) if number.is_u64() => {
            let old = number.as_u64().unwrap();
            *value =
                (if random.below(2) == 0 { old + 1 + random.below(5) as u64 } else { old.saturating_sub(1) })
                    .into();
            if value.as_u64() == Some(old) {
                *value = (old + 1).into();
            }
        }
        Value::Number(number) => {
            let factor = [0.5, 0.9, 0.99, 1.01, 1.1, 2.0, -1.0][random.below(7)];
            let old = number.as_f64().unwrap();
            *value = (if old == 0.0 { 0.25 } else { old * factor }).into();
        }
        Value::String(text) => {
            let at = random.below(text.chars().count().max(1));
            let changed = |(i, c): (usize, char)| if i == at { if c == 'x' { 'y' } else { 'x' } } else { c };
            *text = text.chars().enumerate().map(changed).collect();
        }
        Value::Bool(flag) => *flag = !*flag,
        other => *other = 1.into(),
    }
}

/// True for keys that do not affect the claim: rounds of the cipher, who wrote the file, and how many units are sampled from.
fn is_harmless(path: &str) -> bool {
    path.ends_with("/rounds") || path.ends_with("/planner") || path.ends_with("/dataset_size")
}

#[test]
fn a_thousand_corruptions_are_rejected_even_under_a_new_seal() {
    let banded = Factorization::new(Strategy::banded_square_root(6).unwrap(), STEPS).unwrap();
    let blt = Factorization::new(Strategy::Blt(Blt::new(&[0.3, 0.1], &[0.6, 0.95]).unwrap()), STEPS).unwrap();
    let plans = [
        calibrate(&banded, &terms(cyclic()), &Workload::Prefix, &budget(2.0)).unwrap(),
        calibrate(&blt, &terms(cyclic()), &Workload::momentum(0.9, 0.01).unwrap(), &budget(2.0)).unwrap(),
    ];
    let mut random = Random(7);
    let mut resealed = 0;
    for round in 0..1000 {
        let text = plans[round % 2].to_json();
        let original: Value = serde_json::from_str(&text).unwrap();
        let mut paths = Vec::new();
        leaves(&original, "", &mut paths);
        let path = &paths[random.below(paths.len())];
        let mut corrupted = original.clone();
        corrupt(corrupted.pointer_mut(path).unwrap(), &mut random);
        assert_ne!(corrupted, original);
        let refused = Plan::from_json(&corrupted.to_string());
        let message = refused.expect_err(path).to_string();
        // Whoever edits a plan may also write its fingerprint anew: the message tells which one fits.
        let Some(seal) = message.split("its content has ").nth(1).and_then(|rest| rest.split(':').next())
        else {
            continue;
        };
        if path == "/fingerprint" || is_harmless(path) {
            continue;
        }
        *corrupted.pointer_mut("/fingerprint").unwrap() = seal.into();
        let read = Plan::from_json(&corrupted.to_string()).map_err(Error::from);
        assert!(read.and_then(|plan| verify(&plan)).is_err(), "{path}: {}", corrupted.pointer(path).unwrap());
        resealed += 1;
    }
    assert!(resealed > 500, "{resealed}");
}

/// A certificate names a strategy as its user did; a name that is not of the plan's form is refused, and so is another version.
#[test]
fn a_strategy_keeps_the_name_that_it_was_asked_for_by() {
    for name in [
        "identity",
        "banded-opt:3",
        "banded:4",
        "blt:2",
        "toeplitz",
        "bisr:4",
        "tree",
        "dense",
        "banded-full:5",
    ] {
        let strategy = names::strategy_choice(name).unwrap();
        let request = Request { steps: Some(12), mu: Some(1.0), strategy, ..Request::default() };
        let plan = request.recommend(&mut unobserved()).unwrap().recommended().plan.clone();
        let certificate = verify(&plan).unwrap();
        assert_eq!(certificate.strategy, name);
        assert_eq!(certificate.named_strategy(&plan), Some(names::strategy(name).unwrap()));
        let changed = |key: &str, value: Value| {
            let mut other = plan.certificate().unwrap().clone();
            other[key] = value;
            verify(&plan.clone().with_certificate(other).unwrap()).unwrap_err().to_string()
        };
        // No buffers are no more than one.
        let fewer = if name == "identity" { "toeplitz" } else { "blt:1" };
        for lie in [fewer, "banded-opt:2", "bisr:3", "quadtree", "blt:02", "auto", ""] {
            let message = changed("strategy", lie.into());
            assert!(message.contains("it states strategy"), "{name}, {lie}: {message}");
        }
        let message = changed("version", 2.into());
        assert!(
            message.contains("version 2, and this library reads version 3: make the plan again"),
            "{message}"
        );
    }
}

#[test]
fn a_plan_without_claim_says_so() {
    let plan = Plan::new(10, corrnoise_core::Form::independent(), 1.0).unwrap();
    assert!(verify(&plan).unwrap_err().to_string().contains("makes no privacy claim"));
    let banded = Factorization::new(Strategy::banded_square_root(6).unwrap(), STEPS).unwrap();
    let plan = calibrate(&banded, &terms(cyclic()), &Workload::Prefix, &budget(2.0)).unwrap();
    let louder = Plan::new(STEPS as u64, plan.form().clone(), 0.5 * plan.stddev()).unwrap();
    let louder = louder.with_sampling(plan.sampling().unwrap()).unwrap();
    let certificate = plan.certificate().unwrap();
    let message = louder.clone().with_certificate(certificate.clone()).unwrap_err().to_string();
    assert!(message.contains("its stddev is") && message.contains("its certificate is for"), "{message}");
    // Loading accepts numbers that agree with each other; the claim is still another one.
    let mut fitting = certificate.clone();
    let claim = &mut fitting["claim"];
    for (key, factor) in [("noise_multiplier", 0.5), ("gdp_mu", 2.0)] {
        claim[key] = (factor * claim[key].as_f64().unwrap()).into();
    }
    let message = verify(&louder.with_certificate(fitting).unwrap()).unwrap_err().to_string();
    assert!(message.contains("the plan's claim does not hold: it states claim.epsilon"), "{message}");
}

/// Progress is reported: every class is named before it is optimised, and every strategy before it is certified.
#[test]
fn an_observer_hears_what_a_comparison_is_doing() {
    struct Heard(Vec<String>);
    impl Observe for Heard {
        fn iteration(&mut self, _: Iteration) -> ControlFlow<()> {
            self.0.push("iteration".into());
            ControlFlow::Continue(())
        }
        fn stage(&mut self, stage: Stage<'_>) {
            self.0.push(stage.to_string());
        }
    }
    let request = Request {
        epochs: Some(2.0),
        dataset_size: Some(330),
        batch_size: Some(20),
        epsilon: Some(2.0),
        delta: Some(1e-6),
        ..Request::default()
    };
    let mut heard = Heard(Vec::new());
    let answer = request.recommend(&mut heard).unwrap();
    let place =
        |words: &str| heard.0.iter().position(|line| line == words).unwrap_or_else(|| panic!("{words}"));
    assert_eq!(place("certifying identity"), 0);
    for class in ["blt", "banded-opt", "bandinv-opt:8", "dense"] {
        assert_eq!(heard.0[place(&format!("optimising {class}")) + 1], "iteration", "{class}");
    }
    for candidate in &answer.candidates {
        place(&format!("certifying {candidate}"));
    }
}
