//! Claims against the truth: random plans of every kind, and Gaussian claims at every extreme.
//!
//! By default a few hundred plans are checked. `CORRNOISE_TRUTH_PLANS=5000` checks as many plans that have a claim.

mod oracle;

use corrnoise_core::Plan;
use corrnoise_planner::{
    Adjacency, Certificate, Error, Factorization, Goal, Method, Participation, PrivacyUnit, Schedule,
    Strategy, Terms, Workload, calibrate, verify,
};
use oracle::random::Random;
use oracle::{Effort, check, gauss, small};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of plans with a claim that are checked by default.
const SAMPLE: usize = 200;
/// One in this many sampled plans has its rounds composed.
const COMPOSED: usize = 4;

fn wanted(name: &str, usual: usize) -> usize {
    std::env::var(name).ok().map_or(usual, |text| text.parse().expect("a number of plans"))
}

#[derive(Default)]
struct Counts {
    made: usize,
    refused: usize,
    amplified: usize,
    composed: usize,
    tight: usize,
    bounds: usize,
    steps: usize,
    seconds: f64,
    violations: Vec<String>,
}

/// Checks one plan, which its number determines.
fn examine(number: usize, counts: &Mutex<Counts>) -> bool {
    let start = std::time::Instant::now();
    let mut random = Random(number as u64);
    let made = catch_unwind(AssertUnwindSafe(|| small::plan(&mut random)));
    let mut violations = Vec::new();
    let mut add = Counts::default();
    match made {
        Err(_) => violations.push("making it panics".into()),
        Ok(small::Made { what, outcome: Err(error) }) => {
            add.refused = 1;
            if !small::is_clear(&error) {
                violations.push(format!("{what}: {error}"));
            }
        }
        Ok(small::Made { what, outcome: Ok(plan) }) => {
            let stated = small::stated(&plan);
            let effort = if random.once_in(COMPOSED) { Effort::Composed } else { Effort::Usual };
            let mut found = |message: String| violations.push(format!("{what}: {message}"));
            match catch_unwind(AssertUnwindSafe(|| check(&plan, &stated, effort))) {
                Err(_) => found("the check panics".into()),
                Ok(Err(message)) => found(message),
                Ok(Ok(report)) => {
                    add.tight = usize::from(report.tight);
                    add.composed = usize::from(report.composed);
                }
            }
            if random.once_in(8)
                && let Err(error) =
                    Plan::from_json(&plan.to_json()).map_err(Error::from).and_then(|p| verify(&p))
            {
                found(format!("is not verified: {error}"));
            }
            add.made = 1;
            add.amplified = usize::from(stated.claim.method == Method::Amplified);
            add.bounds =
                usize::from(stated.claim.sensitivity_kind == corrnoise_planner::Exactness::UpperBound);
            add.steps = plan.num_steps() as usize;
        }
    }
    let mut counts = counts.lock().unwrap();
    counts.made += add.made;
    counts.refused += add.refused;
    counts.amplified += add.amplified;
    counts.composed += add.composed;
    counts.tight += add.tight;
    counts.bounds += add.bounds;
    counts.steps += add.steps;
    counts.seconds = counts.seconds.max(start.elapsed().as_secs_f64());
    counts.violations.extend(violations.into_iter().map(|text| format!("plan {number}: {text}")));
    add.made == 1
}

#[test]
fn no_claim_is_below_the_truth() {
    let wanted = wanted("CORRNOISE_TRUTH_PLANS", SAMPLE);
    let first = self::wanted("CORRNOISE_TRUTH_FIRST", 0);
    let counts = Mutex::new(Counts::default());
    let (next, made) = (AtomicUsize::new(first), AtomicUsize::new(0));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while made.load(Ordering::Relaxed) < wanted {
                    if examine(next.fetch_add(1, Ordering::Relaxed), &counts) {
                        made.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let counts = counts.into_inner().unwrap();
    println!(
        "{} claims ({} amplified, {} of them composed; {} hardly above an exact truth; {} by an upper bound of the sensitivity; {:.0} \
         steps on average), {} refusals; the slowest took {:.2} s",
        counts.made,
        counts.amplified,
        counts.composed,
        counts.tight,
        counts.bounds,
        counts.steps as f64 / counts.made as f64,
        counts.refused,
        counts.seconds
    );
    for violation in &counts.violations {
        println!("{violation}");
    }
    assert!(counts.violations.is_empty(), "{} violations", counts.violations.len());
    assert!(counts.tight * 4 > counts.made && counts.amplified > 0 && counts.composed > 0);
}

/// A plan of independent noise and one participation: μ is exact, so only the conversion and the end of the noise can be wrong.
fn identity(goal: Goal) -> Result<Plan, Error> {
    let terms = Terms {
        schedule: Schedule::Participation(Participation::Single),
        adjacency: Adjacency::ZeroOut,
        unit: PrivacyUnit::Example,
        clip_norm: 1.0,
    };
    calibrate(&Factorization::new(Strategy::Identity, 2)?, &terms, &Workload::Prefix, &goal)
}

#[test]
fn every_mu_and_delta_is_claimed_truly_or_refused() {
    // The long run tries every quarter of a decade, the sample every whole one.
    let coarse = if std::env::var_os("CORRNOISE_TRUTH_PLANS").is_some() { 1 } else { 4 };
    let grid =
        |from: f64, by: f64, count: usize| (0..=count).step_by(coarse).map(move |i| from + by * i as f64);
    let mus = grid(-12.0, 0.25, 84).map(|power| 10_f64.powf(power));
    let (mut claimed, mut refused) = (0, 0);
    for mu in mus.chain([2.0, 3.0, 4.5, 6.0, 8.0, 9.0]) {
        let small = grid(-300.0, 2.5, 120).map(|power| 10_f64.powf(power).min(0.9));
        let usual = grid(-20.0, 0.25, 80).map(|power| 10_f64.powf(power).min(0.95));
        let large = grid(-0.25, -0.25, 47).map(|power| 1.0 - 10_f64.powf(power));
        for delta in small.chain(usual).chain(large) {
            match identity(Goal::GdpMu { gdp_mu: mu, delta }) {
                Ok(plan) => {
                    let report = check(&plan, &small::stated(&plan), Effort::Usual);
                    assert!(report.is_ok(), "mu {mu:e}, delta {delta:e}: {report:?}");
                    claimed += 1;
                }
                Err(error) => {
                    assert!(small::is_clear(&error), "mu {mu:e}, delta {delta:e}: {error}");
                    refused += 1;
                }
            }
        }
    }
    println!("{claimed} claims, {refused} refusals");
    assert!(claimed > 300 && refused > 300);
}

/// Compares the oracle's ε with 25 digits of another program.
#[test]
fn the_oracle_is_right() {
    let mut count = 0;
    for line in include_str!("data/gdp_extremes.txt").lines().filter(|line| !line.starts_with('#')) {
        let numbers: Vec<f64> = line.split(' ').map(|word| word.parse().unwrap()).collect();
        let [mu, delta, epsilon] = numbers[..] else { panic!("{line}") };
        let got = gauss::epsilon(mu, delta.into());
        // Where ε is small beside μ² it is a difference.
        assert!((got - epsilon).abs() <= 1e-11 * epsilon + 1e-12 * mu.min(1.0), "{line}: {got:e}");
        let below = gauss::epsilon(mu, gauss::a_little_more(delta));
        assert!(below <= epsilon * (1.0 + 1e-13), "{line}: {below:e}");
        count += 1;
    }
    assert!(count > 500, "{count}");
}

/// A certificate with any one number slightly smaller than the truth is refused.
#[test]
fn claims_a_little_too_small_are_found() {
    let mut found = [0; 4];
    let mut tried = 0;
    for number in 0..150 {
        let Ok(plan) = small::plan(&mut Random(number)).outcome else { continue };
        let stated = small::stated(&plan);
        let Ok(report) = check(&plan, &stated, Effort::Composed) else { continue };
        if !report.tight || stated.claim.epsilon == 0.0 {
            if report.composed && stated.claim.method == Method::Amplified {
                let fails = |factor: f64| {
                    check(&plan, &changed(&stated, "epsilon", factor), Effort::Composed).is_err()
                };
                found[3] += usize::from(fails(0.99));
            }
            continue;
        }
        tried += 1;
        for (i, (field, factor)) in
            [("epsilon", 0.999), ("gdp_mu", 1.0 - 1e-6), ("noise_multiplier", 1.0 + 1e-6)]
                .into_iter()
                .enumerate()
        {
            found[i] += usize::from(check(&plan, &changed(&stated, field, factor), Effort::Usual).is_err());
        }
    }
    println!("of {tried} claims each: {found:?}");
    assert!(
        tried > 20 && found[..3].iter().all(|count| *count == tried) && found[3] > 0,
        "{tried} {found:?}"
    );
}

fn changed(stated: &Certificate, field: &str, factor: f64) -> Certificate {
    let mut changed = stated.clone();
    let claim = &mut changed.claim;
    let number = match field {
        "epsilon" => &mut claim.epsilon,
        "gdp_mu" => &mut claim.gdp_mu,
        _ => &mut claim.noise_multiplier,
    };
    *number *= factor;
    changed
}

/// Claims of a form whose output scales and standard deviation have extreme sizes that cancel, and of strategies that overflow: true or
/// refused, and soon.
#[test]
fn extreme_scales_are_claimed_truly_or_refused() {
    use corrnoise_core::Form;
    let scaled = |form: Form, scales: &[f64]| form.with_output_scale(scales.to_vec()).unwrap();
    let banded = || Form::banded_toeplitz(&[1.0, 0.5]).unwrap();
    let cyclic = Participation::Cyclic { separation: 50, max_participations: 60 };
    let mut cases = vec![
        // Squares of some scales overflow, and of others do not.
        (2, scaled(Form::independent(), &[1.3e154, 1.4e154]), 1.0 / 1.3e154, Participation::Full),
        // The inverse overflows, with both signs.
        (3000, Form::regenerate(&[1.0, -0.5, 1.4766597747802734]).unwrap(), 1.0, cyclic),
    ];
    for power in [-300, -200, -161, -158, -155, 155, 158, 160, 161, 162, 200, 300] {
        let scale = 3.0 * 10_f64.powi(power);
        cases.push((2, scaled(Form::independent(), &[scale]), 1.0 / scale, Participation::Full));
        cases.push((6, scaled(banded(), &[scale]), 1.0 / scale, Participation::Single));
        cases.push((2, scaled(banded(), &[scale, 2.0 * scale]), 1.0 / scale, Participation::Full));
    }
    let mut violations = Vec::new();
    for (steps, form, stddev, participation) in cases {
        let what = format!("{form:?}, {steps} steps, stddev {stddev:e}, {participation:?}");
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let terms = Terms {
                schedule: Schedule::Participation(participation),
                adjacency: Adjacency::ZeroOut,
                unit: PrivacyUnit::Example,
                clip_norm: 1.0,
            };
            let plan = Plan::new(steps, form, stddev).unwrap();
            let outcome = match corrnoise_planner::certificate(&plan, &terms, &Workload::Prefix, 1e-6) {
                Ok(stated) if steps <= 64 => check(&plan, &stated, Effort::Usual).map(|_| ()),
                Ok(stated) => Err(format!("a claim of {}", stated.claim.epsilon)),
                Err(error) if small::is_clear(&error) => Ok(()),
                Err(error) => Err(error.to_string()),
            };
            // The receiver is gone if this took too long.
            let _ = sender.send(outcome);
        });
        match receiver.recv_timeout(std::time::Duration::from_secs(1)) {
            Ok(Ok(())) => {}
            Ok(Err(message)) => violations.push(format!("{what}: {message}")),
            Err(_) => violations.push(format!("{what}: does not end")),
        }
    }
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

/// A budget that no amount of noise meets is refused with a clear error; a plan that is made for a budget meets it.
#[test]
fn a_delta_below_any_noise_is_refused() {
    use corrnoise_planner::account::Budget;
    for delta in [1e-30, 1e-60, 1e-100, 1e-130, 1e-200, 1e-250, 1e-300] {
        match identity(Goal::Budget(Budget { epsilon: 1.0, delta })) {
            Ok(plan) => assert!(check(&plan, &small::stated(&plan), Effort::Usual).is_ok(), "{delta:e}"),
            Err(error) => assert!(small::is_clear(&error), "{delta:e}: {error}"),
        }
    }
}
